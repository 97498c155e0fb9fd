"""Protocols of the machine's parts, with what messages and pages name of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..grammar.errors import Position


class Site(Protocol):
    """An instruction of a running program. `python` is where its author wrote it (None: nobody said), `position` where the PTX has it."""

    @property
    def opcode(self) -> str: ...
    @property
    def tokens(self) -> Sequence[str]: ...
    @property
    def python(self) -> Position | None: ...
    @property
    def position(self) -> Position | None: ...


class Space(Protocol):
    """A memory: `space` is "global", "shared", ..."""

    @property
    def space(self) -> str: ...
