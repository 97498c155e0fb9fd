"""Two kernels with different tiles for one product. Both are launched; each computes from the group lengths which groups are its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .tile_cost import LEVEL, Arithmetic, Count, Groups, TileCost, in_waves


class Assignment(NamedTuple):
    """`second`: the second kernel has all groups (otherwise the first). `shared`: they share the groups instead (None: never)."""

    second: Any
    shared: Any


@dataclass(frozen=True, slots=True)
class TwoKernelPlan:
    """The tile costs of the `first` and the `second` kernel, and which of them a kernel is.

    How full the last wave and the tiles are depends on every group's length. Both kernels compute the cost of both for the same grid. The
    faster one takes all groups; the first one if they are equally fast. With `between` the kernels share the groups if that is faster:
    each takes the groups that it is faster for. The CTAs of the second kernel start as those of the first end, so only the last wave of
    the second kernel is rounded up. `between` is the time that this change of kernels takes on each CTA.
    """

    first: TileCost
    second: TileCost
    between: int | None
    is_first: bool

    def shares(self, groups: Groups, n: Any) -> Assignment:
        """The assignment of all groups, for a result of `n` columns. On the device all lanes of a warp execute it."""
        by, counts = groups.by, self._counts(groups, n)
        second = self._second(groups, *counts)
        if self.between is None:
            return Assignment(second, None)
        together = self._shared(groups, n, self.between)
        less = [by.less(by.times(together, by.real(count.tiles)), in_waves(by, count)) for count in counts]
        return Assignment(second, by.either(second, *reversed(less)))

    def if_shared(self, groups: Groups, n: Any) -> Sequence[Any]:
        """The group lengths of this kernel if the groups are shared; 0 for groups of the other kernel."""
        seconds, firsts = groups.split(self._each(groups, n))
        return (firsts if self.is_first else seconds).lengths

    def settled(self, by: Arithmetic, shares: Assignment, alone: Any, shared: Any) -> Any:
        """`alone` if this kernel has all groups, `shared` if they are shared, 0 if the other kernel has all."""
        alone = by.pick(shares.second, *((0, alone) if self.is_first else (alone, 0)))
        return alone if shares.shared is None else by.pick(shares.shared, shared, alone)

    def own(self, lengths: Sequence[int], n: int, ctas: int) -> tuple[int, ...]:
        """On the host: the lengths of this kernel's groups, and 0 for groups of the other kernel."""
        from .host_cost import on_host

        groups = on_host(lengths, ctas)
        (alone,), (shared,) = groups.lengths, self.if_shared(groups, n)
        return tuple(self.settled(groups.by, self.shares(groups, n), alone, shared).tolist())

    def alone(self, lengths: Sequence[int], n: int, ctas: int) -> bool:
        """On the host: whether this kernel has all groups if they are not shared."""
        from .host_cost import on_host

        groups = on_host(lengths, ctas)
        return bool(self._second(groups, *self._counts(groups, n)) != self.is_first)

    def time(self, groups: Groups, n: int) -> float:
        """The time of both kernels together, in the unit of `TileCost.time`."""
        alone = min(self.first.time(groups, n), self.second.time(groups, n))
        return alone if self.between is None else min(alone, float(self._shared(groups, n, self.between)))

    def _counts(self, groups: Groups, n: Any) -> tuple[Count, Count]:
        return self.first.count(groups, n), self.second.count(groups, n)

    def _second(self, groups: Groups, one: Count, two: Count) -> Any:
        """Whether the second kernel is faster for all groups."""
        by = groups.by
        return by.less(by.times(in_waves(by, two), by.real(one.tiles)), by.times(in_waves(by, one), by.real(two.tiles)))

    def _each(self, groups: Groups, n: Any) -> list[Any]:
        """For each group, whether the second kernel is faster."""
        return [groups.by.less(second, first) for first, second in zip(self.first.of_each(groups, n), self.second.of_each(groups, n),
                                                                       strict=True)]

    def _shared(self, groups: Groups, n: Any, between: int) -> Any:
        """The time of both kernels if they share the groups, in tenths of the unit of `TileCost.time`, summed over the CTAs."""
        by, (seconds, firsts) = groups.by, groups.split(self._each(groups, n))
        one, two = self.first.count(firsts, n), self.second.count(seconds, n)
        tiles = one.tiles + two.tiles
        empty = by.waves(tiles) * by.ctas - tiles
        busy = by.times(by.plus(one.time, two.time), by.real(10))
        idle = by.times(by.real(empty), by.real(LEVEL * self.second.full))
        return by.plus(by.plus(busy, idle), by.times(by.real(by.ctas), by.real(10 * between)))


__all__ = ["TwoKernelPlan"]
