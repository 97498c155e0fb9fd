"""Which write of a register reaches a place: static single assignment form with the fewest phis.

A register needs a phi where two of its writes meet: in the iterated dominance frontier of the blocks that write it. Everywhere else it
has what it has at the end of the block that dominates the place. Sets of blocks are ints with a bit for each block, by its number in a
walk through the dominator tree that comes to a parent before its children.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from .program import Routine, Site

START = -1
"""Stands for the place before the first block, where no register has been written."""


@dataclass(frozen=True, slots=True)
class _Marks:
    """The blocks at whose end a register may have another definition than at the end of their parent, as numbers in rising order.

    `around` has for each mark the nearest other one that dominates it, as its index, -1 for none; `phis` is a set of blocks.
    """

    numbers: list[int]
    around: list[int]
    phis: int


class Definitions:
    """The definitions of every register of a routine. One is a site, or the block at whose begin a phi joins others, or START."""

    def __init__(self, routine: Routine) -> None:
        self.routine = routine
        self.writes: dict[str, dict[int, list[int]]] = {}
        """The sites that write a register, by its name and their block."""
        for site in routine.sites:
            for name in dict.fromkeys(site.writes):
                self.writes.setdefault(name, {}).setdefault(site.block, []).append(site.index)
        self._marks: dict[str, _Marks] = {}
        self._number_blocks()
        self._frontier = self._frontiers()

    def before(self, site: Site, name: str) -> Site | int:
        """What the register has just before a site."""
        places = self.writes.get(name, {}).get(site.block)
        at = bisect_left(places, site.index) if places else 0
        return self.routine.sites[places[at - 1]] if places and at else self._at_begin(site.block, name)

    def joined(self, block: int, name: str) -> list[Site | int]:
        """What a phi at the begin of the block joins, each definition once."""
        found = dict.fromkeys(self.at_end(p, name) for p in self.routine.blocks[block].predecessors if p in self._number)
        return [*found, START] if block == 0 and START not in found else [*found]

    def at_end(self, block: int, name: str) -> Site | int:
        """What the register has at the end of a block."""
        places = self.writes.get(name, {}).get(block)
        return self.routine.sites[places[-1]] if places else self._at_begin(block, name)

    def _at_begin(self, block: int, name: str) -> Site | int:
        number = self._number.get(block)
        if number is None or name not in self.writes:  # nothing leads to the block, or nothing writes the register
            return START
        marks = self._marks.get(name) or self._marked(name)
        if marks.phis >> number & 1:
            return block
        at = bisect_left(marks.numbers, number) - 1
        while at >= 0 and self._last[marks.numbers[at]] < number:
            at = marks.around[at]
        if at < 0:
            return START
        above = self._block[marks.numbers[at]]
        places = self.writes[name].get(above)
        return self.routine.sites[places[-1]] if places else above

    def _marked(self, name: str) -> _Marks:
        written = 0
        for block in self.writes[name]:
            if block in self._number:
                written |= 1 << self._number[block]
        phis, new = 0, written
        while new:  # ends, since each round has blocks that no round before had
            joins = 0
            for number in _members(new):
                joins |= self._frontier[number]
            new = joins & ~phis
            phis |= new
        numbers = list(_members(written | phis))
        around: list[int] = []
        for index, number in enumerate(numbers):
            outer = index - 1
            while outer >= 0 and self._last[numbers[outer]] < number:
                outer = around[outer]
            around.append(outer)
        self._marks[name] = _Marks(numbers, around, phis)
        return self._marks[name]

    # ------------------------------------------------------------------------------------------- the dominator tree

    def _number_blocks(self) -> None:
        """Give the blocks numbers; `_last` is the highest one of those that a block dominates."""
        children: dict[int | None, list[int]] = {}
        for block, parent in self.routine.dominators.items():
            children.setdefault(parent, []).append(block)
        self._block: list[int] = []
        self._parent: list[int] = []
        todo = [(0, START)]
        while todo:
            block, parent = todo.pop()
            todo += [(child, len(self._block)) for child in children.get(block, ())]
            self._block.append(block)
            self._parent.append(parent)
        self._number = {block: number for number, block in enumerate(self._block)}
        self._last = list(range(len(self._block)))
        for number in reversed(range(1, len(self._block))):
            self._last[self._parent[number]] = max(self._last[self._parent[number]], self._last[number])

    def _frontiers(self) -> list[int]:
        """The dominance frontier of each block: where what it dominates ends."""
        found = [0] * len(self._block)
        inner = [0] * len(self._block)
        same: dict[int, int] = {}
        for number in reversed(range(len(self._block))):
            for successor in self.routine.blocks[self._block[number]].successors:
                found[number] |= 1 << self._number[successor]
            found[number] &= ~inner[number]
            found[number] = same.setdefault(found[number], found[number])  # of a long chain of branches to one place all are equal
            if number:
                found[self._parent[number]] |= found[number]
                inner[self._parent[number]] |= 1 << number
        return found


def _members(blocks: int) -> Iterator[int]:
    """The numbers of a set, rising."""
    while blocks:
        low = blocks & -blocks
        yield low.bit_length() - 1
        blocks ^= low
