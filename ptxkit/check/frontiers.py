"""Dominance frontiers: where what a block dominates ends."""

from __future__ import annotations

from collections.abc import Collection

from .effort import spend
from .program import Routine

FEW, EACH = 4, 8
"""Members of a frontier that is always kept; and members of all the others that are kept, for each block."""


class Frontiers:
    """The dominator tree of a routine's blocks, which have numbers in it: a parent has a lower one than its children.

    `block` has the block of a number and `number` the other way round, `last` the highest number of those that one dominates, `level` how
    deep it is. All the frontiers of n loops in one another have n * n members: so many are not kept. Then the tree below a block is gone
    through (Sreedhar and Gao), as far as something in it leads out.
    """

    def __init__(self, routine: Routine) -> None:
        self.block: list[int] = []
        self.level: list[int] = []
        self._parent: list[int] = []
        self._walk(routine)
        self.number = {block: number for number, block in enumerate(self.block)}
        self.last = list(range(len(self.block)))
        for number in reversed(range(1, len(self.block))):
            self.last[self._parent[number]] = max(self.last[self._parent[number]], self.last[number])
        self._kept: list[Collection[int] | None] = [()] * len(self.block)
        self._out: dict[int, Collection[int]] = {}
        """Of a block whose frontier is not kept: where its own branches lead out of what it dominates."""
        self._below: dict[int, list[int]] = {}
        """Of such a block: its children from below which something leads out of what it dominates; what leads highest comes first."""
        self._highest = [len(self.block)] * len(self.block)
        """The lowest level to which anything below a block leads."""
        self._deepest = [-1] * len(self.block)
        """No member of a frontier has a higher level than that."""
        self._keep(routine)

    def frontier(self, number: int, above: int, seen: set[int]) -> Collection[int]:
        """The blocks that a block does not strictly dominate though it dominates a predecessor; those of a higher level than `above`.

        `seen`: what has been gone through, for blocks that were as deep or deeper. What was found for them is left out.
        """
        if self._deepest[number] <= above:
            return ()
        level, found, todo, steps = self.level[number], set[int](), [number], 0
        while todo:
            here = todo.pop()
            steps += 1
            if here in seen or self._deepest[here] <= above:
                continue
            seen.add(here)
            kept = self._kept[here]
            joins = self._out[here] if kept is None else kept
            found.update([join for join in joins if above < self.level[join] <= level])
            steps += len(joins)
            for child in self._below[here] if kept is None else ():
                if self._highest[child] > level:
                    break
                todo.append(child)
        spend(steps)
        return found

    def _walk(self, routine: Routine) -> None:
        children: dict[int, list[int]] = {}
        for block, parent in routine.dominators.items():
            if parent is not None:
                children.setdefault(parent, []).append(block)
        todo = [(0, -1, 0)]
        while todo:
            block, parent, level = todo.pop()
            todo += [(child, len(self.block), level + 1) for child in children.get(block, ())]
            self.block.append(block)
            self._parent.append(parent)
            self.level.append(level)

    def _keep(self, routine: Routine) -> None:
        """From the leaves of the tree to its root."""
        children: dict[int, list[int]] = {}
        left = EACH * len(self.block)
        for number in reversed(range(len(self.block))):
            below = children.pop(number, [])
            out = {join for successor in routine.blocks[self.block[number]].successors
                   if self._parent[join := self.number[successor]] != number}
            levels = [self.level[join] for join in out]
            self._highest[number] = min([*levels, *(self._highest[child] for child in below)], default=len(self.block))
            self._deepest[number] = min(self.level[number], max([*levels, *(self._deepest[child] for child in below)], default=-1))
            if number:
                children.setdefault(self._parent[number], []).append(number)
            leading = [child for child in below if self._highest[child] <= self.level[number]]
            if len(leading) == 1 and self._all_of(leading[0], number, below, out):
                self._kept[number] = self._kept[leading[0]]  # of a long chain of branches to one place all are equal
                continue
            parts = [self._kept[child] for child in leading]
            size = sum([len(part) for part in parts if part is not None], len(out))
            if None not in parts and (size <= FEW or size <= left):
                left -= size
                out.update([join for part in parts for join in part or () if self._parent[join] != number])
                self._kept[number] = tuple(out) if len(out) <= FEW else frozenset(out)
            else:
                self._kept[number] = None
                self._out[number] = tuple(out)
                self._below[number] = sorted(leading, key=self._highest.__getitem__)

    def _all_of(self, child: int, number: int, below: list[int], out: set[int]) -> bool:
        """Whether the frontier is that of the child."""
        kept = self._kept[child]
        return kept is not None and out.issubset(kept) and not any(other in kept for other in below)
