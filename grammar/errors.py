"""The root of all errors of the project, and the one record of a finding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["language", "protocol", "advice"]
Severity = Literal["error", "review", "info"]


LONGEST = 120
"""Characters of a name in a message."""


def shown(name: str) -> str:
    """A name as a message has it: on one line, of printable characters, and not longer than about LONGEST of them."""
    text = printable(name)
    return text if len(text) <= LONGEST else f"{text[:LONGEST // 2]}... ({len(name):,} characters)"


def printable(text: str) -> str:
    """A text on one line, with escapes for what cannot be printed."""
    return text if text.isprintable() else "".join(each if each.isprintable() else escaped(each) for each in text)


def escaped(character: str) -> str:
    """A character as Python writes it in a text: `\\n`."""
    return character.encode("unicode_escape").decode()


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a source: a PTX text (`file` is None) or the user's Python file. Lines and columns count from 1."""

    file: str | None
    line: int
    column: int = 0

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.file else f"line {self.line}"
        return f"{place}:{self.column}" if self.file and self.column else place


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding about a program: a stable rule name, one sentence, how to correct it, and where it is.

    `kind`: "language" (not legal PTX), "protocol" (legal, but wrong or not provably right), "advice". `position` is the author's line if it
    is known, else the PTX line. `ptx_line` and `ptx_column` are the position in the PTX text. `words` is what is wrong as it is written
    there. `expected` says what may stand there.
    """

    rule: str
    message: str
    fix: str = ""
    position: Position | None = None
    kind: Kind = "language"
    severity: Severity = "error"
    ptx_line: int | None = None
    ptx_column: int = 0
    words: str = ""
    expected: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = f"{self.position}: " if self.position else ""
        if self.position is not None and self.position.file is not None and self.ptx_line not in (None, self.position.line):
            where = f"{self.position} (PTX line {self.ptx_line}): "
        way_out = f" ({self.fix})" if self.fix else ""
        return f"{where}{self.severity} [{self.rule}]: {self.message}{way_out}"


class PtxkitError(Exception):
    """The root of every error that this project raises on purpose. It can be pickled: another process gets it with the same text."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (type(self), self.args, self.__dict__)


def _unpickled(kind: type[PtxkitError], args: tuple[Any, ...], fields: dict[str, Any]) -> PtxkitError:
    """An error with these fields. Its constructor is not called: it takes other arguments than the text."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(fields)
    return error


class ParseError(PtxkitError, ValueError):
    """The text is not PTX at `position`. `expected`: what may stand there."""

    def __init__(self, message: str, position: Position, expected: tuple[str, ...] = ()) -> None:
        super().__init__(f"{position}: {message}")
        self.message = message
        self.position = position
        self.expected = expected


class OpcodeError(PtxkitError, ValueError):
    """An opcode that the table does not know. The message names the wrong token. `expected`: the tokens that are legal there."""

    def __init__(self, message: str, expected: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.expected = expected
