"""The lines of source around an instruction."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..grammar.errors import Position
from ..html.parts import SUFFIXES

if TYPE_CHECKING:
    from ..sim.told import Site

AROUND = 3


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Lines of one file: (number, text); `marked` is the one that is meant."""

    name: str
    marked: int
    lines: tuple[tuple[int, str], ...]


class Sources:
    """Reads the files that an instruction's `.loc` names, and the PTX text."""

    def __init__(self, ptx: str) -> None:
        self.ptx = ptx.split("\n") if ptx else []
        self._files: dict[str, list[str] | None] = {}

    def excerpts(self, op: Site | None, position: Position | None = None, ptx_line: int | None = None) -> Iterable[Excerpt]:
        """Of the author's source where it is known and can be read, and of the PTX."""
        author = op.python if op is not None else position if position is not None and position.file is not None else None
        text = op.position if op is not None else Position(None, ptx_line) if ptx_line is not None else position
        if author is not None and author.file is not None:
            lines = self._file(author.file)
            if lines is not None:
                yield _around(author.file, lines, author.line)
        if text is not None and text.file is None and self.ptx:
            yield _around("PTX", self.ptx, text.line)

    def _file(self, name: str) -> list[str] | None:
        if name not in self._files:
            self._files[name] = self._read(name)
        return self._files[name]

    def _read(self, name: str) -> list[str] | None:
        path = Path(name)
        if path.suffix not in SUFFIXES:                  # a notebook's cell is no file
            return [line.rstrip("\n") for line in linecache.getlines(name)] if name in linecache.cache else None
        for folder in (Path(), *map(Path, sys.path)):
            try:
                if (folder / path).is_file():
                    return (folder / path).read_text(encoding="utf-8", errors="replace").split("\n")
            except OSError:
                continue
        return None


def _around(name: str, lines: list[str], line: int) -> Excerpt:
    low, high = max(line - AROUND, 1), min(line + AROUND, len(lines))
    return Excerpt(name, line, tuple((number, lines[number - 1][:200]) for number in range(low, high + 1)))
