"""Where an instruction stands: its PTX line, and the author's line when `.loc` or the trace gives it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..grammar import tree
from ..grammar.authors import Authors
from ..grammar.errors import Finding, Kind, Position, Severity


@dataclass(frozen=True, slots=True)
class Place:
    """A line of PTX (None in a tree without lines) and the author's position for it."""

    line: int | None
    author: Position | None
    column: int = 0

    @property
    def position(self) -> Position | None:
        return self.author or (None if self.line is None else Position(None, self.line, self.column))

    def __str__(self) -> str:
        """As findings name it: `line 12`, or the author's file and line."""
        return str(self.position) if self.position else "a line without a position"


NOWHERE = Place(None, None)


class Places:
    """The positions of a module's statements. For a traced kernel, `lines` has the author's position by PTX line."""

    def __init__(self, module: tree.Module, lines: Mapping[int, Position] | None = None) -> None:
        self.lines = lines
        self.authors = Authors(module)

    def of(self, position: Position | None, loc: tree.Loc | None = None) -> Place:
        """The place of a statement at this position, under this `.loc`."""
        if position is None:
            return Place(None, self._author(loc))
        if position.file is not None:
            return Place(None, position)
        if self.lines is not None:
            return Place(position.line, self.lines.get(position.line), position.column)
        return Place(position.line, self._author(loc), position.column)

    def _author(self, loc: tree.Loc | None) -> Position | None:
        """The author's position. Inlined code has the position of the outermost call."""
        found = self.authors.of(loc)
        return None if found is None else Position(found.file, found.line)


def finding(rule: str, message: str, fix: str, place: Place, severity: Severity, kind: Kind = "protocol", words: str = "",
            expected: tuple[str, ...] = ()) -> Finding:
    return Finding(rule, message, fix, place.position, kind, severity, place.line, place.column, words, expected)
