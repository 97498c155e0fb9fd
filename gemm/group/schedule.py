"""Which tile of which group a CTA works on next, from group lengths that only the device knows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from ptxkit import Ptr, Reg, clusterid, ctaid, for_range, laneid, loop, nclusterid, nctaid, smem
from ptxkit.ptx import add, ld, mov, selp, shfl, st
from ptxkit.ptx import max as max_
from ptxkit.ptx import min as min_
from ptxkit.smem import Shared
from ptxkit.types import u32

from ..scheduler import Schedule, Work, _shared_out

Layout = Literal["offsets", "masked"]
Order = Literal["linear", "search", "across"]
Tails = Literal["ragged", "predicated"]

ORDERS: tuple[Order, ...] = ("linear", "search", "across")


@dataclass(frozen=True, slots=True)
class GroupWork(Work):
    """A piece of work in a group: `m` and `n` count its own tiles, its rows of x are `start` to `end`."""

    group: Reg[u32] | None = None
    start: Reg[u32] | None = None
    end: Reg[u32] | None = None


class GroupTable:
    """The groups in shared memory: first row and end of each, and how many units of rows come before it."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.before: Shared[u32] = smem.array(u32, capacity + 1, name="units before each group")
        self.start: Shared[u32] = smem.array(u32, capacity, name="first rows")
        self.end: Shared[u32] = smem.array(u32, capacity, name="end rows")

    @staticmethod
    def bytes(capacity: int) -> int:
        """Shared memory, the alignment of the three arrays included."""
        return 12 * capacity + 64

    def scan(self, lengths: Ptr[u32], groups: Reg[u32], rows: Reg[u32], unit: int, layout: Layout, pitch: Reg[u32]) -> None:
        """By one warp: read the lengths, add up the units of `unit` rows.

        "offsets": `lengths` [groups + 1] are where groups begin and end. "masked": `lengths` [groups] count rows, groups are `pitch`
        rows apart. Whatever the numbers are, no group reaches past `rows`, or ends before it begins.
        """
        lane, each = mov.u32(laneid), self.capacity // 32
        first = lane * each
        read = each + 1 if layout == "offsets" else each
        values = [mov.u32(0) for _ in range(read)]
        for i, value in enumerate(values):
            at = first + i if i else first
            ld.global_.u32(value, lengths.at(at), pred=at <= groups if layout == "offsets" else at < groups)
        counts = []
        for i in range(each):
            at = first + i if i else first
            inside = at < groups
            if layout == "offsets":
                start = min_.u32(values[i], rows)
                end = min_.u32(max_.u32(values[i + 1], start), rows)
            else:
                start = at * pitch
                end = start + min_.u32(values[i], pitch)
            count = selp.u32((end - start + (unit - 1)) // unit, 0, inside)
            st.shared__cta.u32(self.start.at(at), start)
            st.shared__cta.u32(self.end.at(at), end)
            counts.append(count)
        here = mov.u32(counts[0])
        for count in counts[1:]:
            add.u32(here, here, count)
        sum_ = mov.u32(here)
        for distance in (1, 2, 4, 8, 16):
            add.u32(sum_, sum_, shfl.sync.up.b32(sum_, distance, 0, 0xFFFFFFFF), pred=lane >= distance)
        before = sum_ - here
        for i, count in enumerate(counts):
            st.shared__cta.u32(self.before.at(first + i if i else first), before)
            before = before + count
        st.shared__cta.u32(self.before.at(self.capacity), before, pred=lane == 31)


@dataclass(frozen=True, slots=True)
class GroupSchedule:
    """Static persistent schedule over the tiles of all groups: cluster c of C works on units c, c + C, ...

    "linear" and "search" go through the groups one after another, so that the units in flight share one or two groups' weights; the group
    of a unit is found by walking on from the last one, or by a binary search. "across" goes through all groups' rows for each
    column of tiles before the next. Within a group (or a column) `tiles` says the order and what a cluster shares.

    Rows of tiles are those of A, columns those of B: the tokens are rows, or, `transposed`, columns.
    """

    tiles: Schedule
    order: Order
    transposed: bool = False

    @contextmanager
    def work(self, table: GroupTable, weight_tiles: Reg[u32], stages: Reg[u32], *, turn: Reg[u32] | int = 0,
             turns: int = 1) -> Iterator[GroupWork]:
        """A loop over this CTA's work; of every `turns` pieces only number `turn`."""
        tiles = self.tiles
        clustered = tiles.cluster_m * tiles.cluster_n > 1
        here, all_ = (mov.u32(clusterid.x), mov.u32(nclusterid.x)) if clustered else (mov.u32(ctaid.x), mov.u32(nctaid.x))
        across = _shared_out(weight_tiles, tiles.cluster_m if self.transposed else tiles.cluster_n)
        rows = ld.shared__cta.u32(table.before.at(table.capacity))
        units = rows * across
        start = here if isinstance(turn, int) and turn == 0 else here + all_ * turn
        group = mov.u32(0)
        with for_range(units, start=start, step=all_ * turns if turns > 1 else all_) as unit:
            column = unit // rows if self.order == "across" else None
            sought = unit - column * rows if column is not None else unit // across
            if self.order == "linear":
                with loop() as walk:
                    walk.break_if(sought < ld.shared__cta.u32(table.before.at(group + 1)))
                    add.u32(group, group, 1)
            else:
                self._search(table, group, sought)
            before = ld.shared__cta.u32(table.before.at(group))
            if column is not None:
                along, other = sought - before, column
                m, n = (other, along) if self.transposed else (along, other)
            else:
                own = ld.shared__cta.u32(table.before.at(group + 1)) - before
                extents = (across, own) if self.transposed else (own, across)
                m, n = tiles._place(unit - before * across, *extents)
            m, n = tiles._in_cluster(m, n)
            yield GroupWork(m, n, 0, stages, unit, None, None, group, ld.shared__cta.u32(table.start.at(group)),
                            ld.shared__cta.u32(table.end.at(group)))

    @staticmethod
    def _search(table: GroupTable, group: Reg[u32], sought: Reg[u32]) -> None:
        """The last group before which there are at most `sought` units: it has some, if any group behind `sought` does."""
        mov.u32(group, 0)
        step = table.capacity // 2
        while step:
            middle = group + step
            mov.u32(group, middle, pred=ld.shared__cta.u32(table.before.at(middle)) <= sought)
            step //= 2


__all__ = ["ORDERS", "GroupSchedule", "GroupTable", "GroupWork", "Layout", "Order", "Tails"]
