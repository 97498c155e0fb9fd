"""Two tiles for one product: both kernels are launched, and the lengths on the device say which groups are whose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .tile_cost import LEVEL, Arithmetic, Count, Groups, OnHost, TileCost, in_waves


class Shares(NamedTuple):
    """Whether the second kernel has all groups, else the first; and whether they share them instead (None: never)."""

    second: Any
    shared: Any


@dataclass(frozen=True, slots=True)
class TwoKernelPlan:
    """What a kernel knows of the `first` one's tiles and of the `second` one's, and which of them it is.

    Whether the last wave of tiles is full depends on every group's length, and so does how full tiles are. Both kernels count both kinds
    with the same grid. One has all groups, the first where both take equally long. Or (`between`) each has the groups that take it less
    time, where that takes less in all, although every CTA goes over from one kernel to the other, for so long: those of the second begin
    where those of the first end, so that only its last wave counts.
    """

    first: TileCost
    second: TileCost
    between: int | None
    is_first: bool

    def shares(self, groups: Groups, n: Any) -> Shares:
        """Who has what of all groups, for results of `n` columns. On the device by all lanes of a warp, each with some of the groups."""
        by, counts = groups.by, self._counts(groups, n)
        second = self._second(groups, *counts)
        if self.between is None:
            return Shares(second, None)
        together = self._shared(groups, n, self.between)
        less = [by.less(by.times(together, by.real(count.tiles)), in_waves(by, count)) for count in counts]
        return Shares(second, by.either(second, *reversed(less)))

    def if_shared(self, groups: Groups, n: Any) -> Sequence[Any]:
        """The lengths of the groups that are this kernel's where they are shared, and 0 for others."""
        seconds, firsts = groups.split(self._each(groups, n))
        return (firsts if self.is_first else seconds).lengths

    def settled(self, by: Arithmetic, shares: Shares, all_: Any, shared: Any) -> Any:
        """This kernel's number of something: `all_` where it has all groups, `shared` where they are shared, else none."""
        alone = by.pick(shares.second, *((0, all_) if self.is_first else (all_, 0)))
        return alone if shares.shared is None else by.pick(shares.shared, shared, alone)

    def own(self, lengths: Sequence[int], n: int, ctas: int) -> tuple[int, ...]:
        """The lengths of the groups that are this kernel's, and 0 for others: on the host."""
        groups = OnHost(ctas).groups(lengths)
        (all_,), (shared,) = groups.lengths, self.if_shared(groups, n)
        return tuple(self.settled(groups.by, self.shares(groups, n), all_, shared).tolist())

    def alone(self, lengths: Sequence[int], n: int, ctas: int) -> bool:
        """Whether this kernel would have all groups if they were not shared: on the host."""
        groups = OnHost(ctas).groups(lengths)
        return bool(self._second(groups, *self._counts(groups, n)) != self.is_first)

    def time(self, groups: Groups, n: int) -> float:
        """What both take together, as `TileCost.time` has it."""
        alone = min(self.first.time(groups, n), self.second.time(groups, n))
        return alone if self.between is None else min(alone, float(self._shared(groups, n, self.between)))

    def _counts(self, groups: Groups, n: Any) -> tuple[Count, Count]:
        return self.first.count(groups, n), self.second.count(groups, n)

    def _second(self, groups: Groups, one: Count, two: Count) -> Any:
        """Whether the second kernel takes less for all groups."""
        by = groups.by
        return by.less(by.times(in_waves(by, two), by.real(one.tiles)), by.times(in_waves(by, one), by.real(two.tiles)))

    def _each(self, groups: Groups, n: Any) -> list[Any]:
        """Of each group whether the second kernel takes less."""
        return [groups.by.less(second, first) for first, second in zip(self.first.of_each(groups, n), self.second.of_each(groups, n),
                                                                       strict=True)]

    def _shared(self, groups: Groups, n: Any, between: int) -> Any:
        """What both take of groups that they share, in tenths of a CTA's time."""
        by, (seconds, firsts) = groups.by, groups.split(self._each(groups, n))
        one, two = self.first.count(firsts, n), self.second.count(seconds, n)
        tiles = one.tiles + two.tiles
        empty = by.waves(tiles) * by.ctas - tiles
        busy = by.times(by.plus(one.time, two.time), by.real(10))
        idle = by.times(by.real(empty), by.real(LEVEL * self.second.full))
        return by.plus(by.plus(busy, idle), by.times(by.real(by.ctas), by.real(10 * between)))


__all__ = ["TwoKernelPlan"]
