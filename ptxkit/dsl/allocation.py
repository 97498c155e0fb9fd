"""One allocation of shared memory, and what a sentence calls it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from ..grammar.errors import Position


@dataclass(frozen=True, slots=True)
class Allocation:
    """One row of the plan: bytes `offset` to `offset + bytes` of the CTA's shared memory."""

    name: str
    offset: int
    bytes: int
    align: int
    what: str
    element: str = ""
    """What it holds, in a word: `u32[32]`."""
    position: Position | None = None
    """The author's line."""


def called(allocation: Allocation, among: Sequence[Allocation]) -> str:
    """Its name, or the line and the type where it has none; both where names are equal."""
    named = not allocation.name.startswith("#")
    alike = [each for each in among if (each.name == allocation.name if named else each.name.startswith("#"))]
    if named and len(alike) == 1:
        return allocation.name
    line = _line(allocation, among)
    alike = [each for each in alike if each.element == allocation.element and _line(each, among) == line]
    which = "" if len(alike) == 1 else f"{_ordinal(alike.index(allocation) + 1)} "
    return f"{allocation.name} ({which}{allocation.element} of {line})" if named else f"the {which}{allocation.element} of {line}"


def _line(allocation: Allocation, among: Sequence[Allocation]) -> str:
    """Its line, and the file where the allocations are of several."""
    position = allocation.position
    if position is None:
        return f"byte {allocation.offset}"
    several = len({each.position.file for each in among if each.position is not None}) > 1 and position.file is not None
    return f"line {position.line}{f' of {PurePath(str(position.file)).name}' if several else ''}"


def _ordinal(number: int) -> str:
    end = "th" if 11 <= number % 100 <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{end}"


__all__ = ["Allocation", "called"]
