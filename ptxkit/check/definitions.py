"""Which write of a register reaches a place: static single assignment form with the fewest phis.

A register needs a phi where two of its writes meet: in the iterated dominance frontier of the blocks that write it. Everywhere else it
has what it has at the end of the block that dominates the place.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import accumulate

from .effort import spend
from .frontiers import Frontiers
from .program import Routine, Site

START = -1
"""Stands for the place before the first block, where no register has been written."""
NONE: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class _Marks:
    """The blocks at whose end a register may have another definition than at the end of their parent, as numbers in rising order.

    `around` has for each mark the nearest other one that dominates it, as its index, -1 for none; `phis` are those with a phi.
    """

    numbers: list[int]
    around: list[int]
    phis: Collection[int]


class Definitions:
    """The definitions of every register of a routine. One is a site, or the block at whose begin a phi joins others, or START."""

    def __init__(self, routine: Routine) -> None:
        self.routine = routine
        self.writes: dict[str, list[int]] = {}
        """The sites that write a register, by its name, in the order of the text."""
        for site in routine.sites:
            for name in site.writes:
                places = self.writes.setdefault(name, [])
                if not places or places[-1] != site.index:
                    places.append(site.index)
        self._marks: dict[tuple[str, int], _Marks] = {}
        self._written: dict[str, tuple[list[int], list[int]]] = {}
        """The blocks that write a register, as numbers, and those of them that no other one dominates."""
        self._tree = Frontiers(routine)

    def before(self, site: Site, name: str) -> Site | int:
        """What the register has just before a site."""
        return self._last(name, site.block, site.index)

    def joined(self, block: int, name: str) -> list[Site | int]:
        """What a phi at the begin of the block joins, each definition once."""
        predecessors = self.routine.blocks[block].predecessors
        spend(len(predecessors))
        found = dict.fromkeys(self.at_end(p, name) for p in predecessors if p in self._tree.number)
        return [*found, START] if block == 0 and START not in found else [*found]

    def at_end(self, block: int, name: str) -> Site | int:
        """What the register has at the end of a block."""
        return self._last(name, block, self.routine.blocks[block].end)

    def _last(self, name: str, block: int, end: int) -> Site | int:
        """What the register has in a block before the site `end`."""
        places = self.writes.get(name)
        if places is None:
            return START
        at = bisect_left(places, end)
        if at and places[at - 1] >= self.routine.blocks[block].first:
            return self.routine.sites[places[at - 1]]
        return self._at_begin(block, name)

    def _at_begin(self, block: int, name: str) -> Site | int:
        number = self._tree.number.get(block)
        if number is None:  # nothing leads to the block
            return START
        marks = self._around(number, name)
        if number in marks.phis:
            return block
        at, steps = bisect_left(marks.numbers, number) - 1, 0
        while at >= 0 and self._tree.last[marks.numbers[at]] < number:
            at, steps = marks.around[at], steps + 1
        spend(steps)
        if at < 0:
            return START
        above = self._tree.block[marks.numbers[at]]
        places = self.writes[name]
        last = bisect_left(places, self.routine.blocks[above].end)
        return self.routine.sites[places[last - 1]] if last and places[last - 1] >= self.routine.blocks[above].first else above

    def _around(self, number: int, name: str) -> _Marks:
        """The marks that tell what a block has at its begin: below the highest block that writes the register and dominates it.

        What is above that block is not asked for: a register of an inner loop may be written there in each round of the outer ones.
        """
        tree, sites = self._tree, self.routine.sites
        if name not in self._written:
            written = sorted({tree.number[block] for place in self.writes[name] if (block := sites[place].block) in tree.number})
            self._written[name] = written, [one for one, before in zip(written, (-1, *accumulate(
                [tree.last[one] for one in written], max)), strict=False) if one > before]
        written, highest = self._written[name]
        at = bisect_left(highest, number) - 1
        top = highest[at] if at >= 0 and tree.last[highest[at]] >= number else -1
        if (name, top) not in self._marks:
            self._marks[name, top] = self._marked(written, top)
        return self._marks[name, top]

    def _marked(self, written: list[int], top: int) -> _Marks:
        """The marks below a block, and it."""
        last = self._tree.last
        if top >= 0:
            written = written[bisect_left(written, top):bisect_right(written, last[top])]
        phis = self._phis({*written}, -1 if top < 0 else self._tree.level[top])
        numbers = sorted({*written, *phis})
        around: list[int] = []
        for index, number in enumerate(numbers):
            outer = index - 1
            while outer >= 0 and last[numbers[outer]] < number:
                outer = around[outer]
            around.append(outer)
        return _Marks(numbers, around, phis or NONE)

    def _phis(self, written: set[int], above: int) -> set[int]:
        """The iterated frontier, of higher levels than `above`. The deepest blocks come first, so that no part of the tree is gone through
        twice."""
        tree, phis, seen = self._tree, set[int](), set[int]()
        waiting: list[tuple[int, int]] = []
        for number in written:
            heappush(waiting, (-tree.level[number], number))
        while waiting:
            _, number = heappop(waiting)
            met = tree.frontier(number, above, seen)
            spend(1 + len(met))
            for join in met:
                if join not in phis:
                    phis.add(join)
                    if join not in written:
                        heappush(waiting, (-tree.level[join], join))
        return phis
