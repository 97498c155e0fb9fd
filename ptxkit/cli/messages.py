"""The messages of a command on stderr. Words of the command line are shortened there and cannot control the terminal."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import TextIO

from ..grammar.errors import LONGEST, escaped, shown

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_ENDLESS = re.compile(rf"[\w$]{{{2 * LONGEST},}}")
_words: ContextVar[tuple[str, ...]] = ContextVar("words", default=())
"""What the command line says and a message may not repeat as it is, longest first."""


@contextlib.contextmanager
def about(arguments: Sequence[str]) -> Iterator[None]:
    """Messages are about this command line."""
    parts = {part for word in arguments for part in (word, *word.partition("="), *word.rpartition(":")) if part != shown(part)}
    before = _words.set(tuple(sorted(parts, key=len, reverse=True)))
    try:
        yield
    finally:
        _words.reset(before)


def plain(text: str) -> str:
    """A message with each word of the command line, and any name that is very long, as `shown` writes it, and without other control
    characters than ends of lines."""
    for word in _words.get():
        text = text.replace(word, shown(word)).replace(repr(word)[1:-1], shown(word))
    return _CONTROL.sub(lambda found: escaped(found[0]), _ENDLESS.sub(lambda found: shown(found[0]), text))


def say(text: str) -> None:
    """A message on stderr, if that takes it."""
    try:
        print(plain(text), file=sys.stderr, flush=True)
    except (OSError, ValueError):
        drop(sys.stderr)


def drop(stream: TextIO) -> None:
    """What is still to be written to a stream goes nowhere, so that Python does not try it again when it ends."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


__all__ = ["about", "drop", "plain", "say", "shown"]
