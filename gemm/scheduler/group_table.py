"""The table of groups in shared memory: what of X, W and Y is each group's, and which tiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from ptxkit import Ptr, Reg, for_range, laneid, smem
from ptxkit.ptx import add, bar, ld, mov, mul, selp, shfl, st
from ptxkit.ptx import max as max_
from ptxkit.ptx import min as min_
from ptxkit.smem import Shared
from ptxkit.types import u32

from .fast_divmod import rounded_up
from .tile_cost import ALL_LANES, Groups, OnDevice
from .two_kernels import TwoKernelPlan

Layout = Literal["cu_seqlens", "masked", "contiguous", "ptr_array"]
"""How the device says which rows are whose: where groups begin and end; how many rows of equal slots are used; the group of each row; or
groups with matrices of their own, and their M, N and K."""
COUNTED: tuple[Layout, ...] = ("cu_seqlens", "masked")
"""Those whose lengths the kernel reads by itself, of groups that are rows of one matrix."""
LONGEST = (1 << 22) - 1
"""Rows of a group from which on it counts as no longer than any other."""


class GroupTable:
    """First row and end of each group, and how many units of rows (pointers: units) come before it.

    "ptr_array" adds the tiles across N and the stages of K of each group; `longest_first`, where the groups come in another order than
    their own, which one each is.
    """

    def __init__(self, capacity: int, layout: Layout = "cu_seqlens", longest_first: bool = False) -> None:
        self.capacity, self.longest_first = capacity, longest_first
        self.layout: Layout = layout
        words = self.words(capacity, layout, longest_first)
        self.words_at: Shared[u32] = smem.array(u32, words, name="table of groups")
        self.before = self.words_at
        places = [self.words_at + (capacity * i + 1) for i in range(1, words // capacity)]
        self.start, self.end = places[:2]
        self.across, self.stages = places[2:4] if layout == "ptr_array" else places[:2]
        self.group = places[-1]                                 # of `longest_first`

    @staticmethod
    def words(capacity: int, layout: Layout, longest_first: bool = False) -> int:
        """Of 32 bits."""
        return 0 if layout == "contiguous" else ((5 if layout == "ptr_array" else 3) + longest_first) * capacity + 1

    @classmethod
    def bytes(cls, capacity: int, layout: Layout = "cu_seqlens", longest_first: bool = False) -> int:
        """Shared memory, the alignment included."""
        return 4 * cls.words(capacity, layout, longest_first) + 16

    @staticmethod
    def bounds(lengths: Ptr[u32], group: Reg[u32], rows: Reg[u32], layout: Layout, pitch: Reg[u32]) -> tuple[Reg[u32], Reg[u32]]:
        """First row and end of one group, read from `lengths`; within `rows` whatever is there."""
        value = ld.global_.u32(lengths.at(group))
        following = ld.global_.u32(lengths.at(group + 1)) if layout == "cu_seqlens" else None
        return _bounds(value, following, group, rows, pitch)

    def scan(self, lengths: Ptr[u32], groups: Reg[u32], rows: Reg[u32], unit: int, layout: Layout, pitch: Reg[u32], features: int = 0,
             depth: int = 0, plan: TwoKernelPlan | None = None, n: Reg[u32] | None = None) -> None:
        """By one warp: read the lengths, add up the units of `unit` rows.

        "cu_seqlens": `lengths` [groups + 1] are where groups begin and end. "masked": `lengths` [groups] count rows, groups are `pitch`
        rows apart. Whatever the numbers are, no group reaches past `rows`, or ends before it begins.
        "ptr_array": `lengths` [groups, 3] are M, N and K, units are tiles of `unit` rows by `features`, and stages are `depth` deep.
        With a `plan`, for a result of `n` columns, groups of the other kernel have no units.
        """
        lane, by = mov.u32(laneid), OnDevice.begin() if plan is not None else None
        places = [lane + first if first else lane for first in range(0, self.capacity, 32)]
        found: list[Sequence[Reg[u32]]] = []                    # of this lane's groups: number, and what the table has of each
        values = [] if layout == "ptr_array" else [self._read(lengths, at, groups, layout) for at in places]
        for i, at in enumerate(places):
            inside = at < groups
            if layout == "ptr_array":
                m, n, k = (mov.u32(0) for _ in range(3))
                for axis, extent in enumerate((m, n, k)):
                    ld.global_.u32(extent, lengths.at(at * 3 + axis), pred=inside)
                found.append((at, mov.u32(0), m, rounded_up(n, features), rounded_up(k, depth)))
            else:
                start, end = _bounds(*values[i], at, rows, pitch)
                found.append((at, start, selp.u32(end, start, inside)))
        shares = plan.shares(_groups(by, found), n) if plan is not None and by is not None else None
        arrays = (self.start, self.end, self.across, self.stages)[:len(found[0]) - 1]
        if self.longest_first:
            found = self._sorted(found, arrays)
        else:
            for at, *entries in found:
                for array, entry in zip(arrays, entries, strict=True):
                    st.shared__cta.u32(array.at(at), entry)
        before, units = self._add_up([self._units(unit, *entries) for _, *entries in found], lane)
        if plan is not None and by is not None and shares is not None:
            shared: tuple[Sequence[Any], Any] = before, units
            if plan.between is not None:                        # added up before the shares are known, which take longer
                shared = self._add_up([rounded_up(length, unit) for length in plan.if_shared(_groups(by, found), n)], lane)
            before = [plan.settled(by, shares, *each) for each in zip(before, shared[0], strict=True)]
            units = plan.settled(by, shares, units, shared[1])
        for at, number in zip(places, before, strict=True):
            st.shared__cta.u32(self.before.at(at), number)
        st.shared__cta.u32(self.before.at(self.capacity), units, pred=lane == 31)

    @staticmethod
    def _add_up(counts: Sequence[Reg[u32]], lane: Reg[u32]) -> tuple[Sequence[Reg[u32]], Reg[u32]]:
        """By one warp, each lane with the units of some groups: how many come before each of them; and in the last lane all of them."""
        sums = [mov.u32(count) for count in counts]
        for distance in (1, 2, 4, 8, 16):
            for sum_ in sums:
                add.u32(sum_, sum_, shfl.sync.up.b32(sum_, distance, 0, ALL_LANES), pred=lane >= distance)
        for i, sum_ in enumerate(sums[1:], 1):
            add.u32(sum_, sum_, shfl.sync.idx.b32(sums[i - 1], 31, 31, ALL_LANES))
        return [sum_ - count for sum_, count in zip(sums, counts, strict=True)], sums[-1]

    @staticmethod
    def _units(unit: int, start: Reg[u32], end: Reg[u32], across: Reg[u32] | None = None, stages: Reg[u32] | None = None) -> Reg[u32]:
        """Of a group: rows of tiles, or ("ptr_array") tiles, of which there are none without depth."""
        rows = rounded_up(end - start, unit)
        return rows if across is None or stages is None else selp.u32(mul.lo.u32(rows, across), 0, stages != 0)

    def _sorted(self, found: list[Sequence[Reg[u32]]], arrays: Sequence[Shared[u32]]) -> list[Sequence[Reg[u32]]]:
        """By one warp, each lane with number and entries of some groups: those into the table, the longest first, and of groups that are
        equally long the first one; and place and entries of those that are now in this lane's places. Of matrices of different depths
        those are the longest whose rows are the most stages."""
        keys = [mov.u32(self._length(*entries) * 1024 + (1023 - at)) for at, *entries in found]
        places = [mov.u32(0) for _ in keys]
        with for_range(32) as lane:
            for other in [shfl.sync.idx.b32(key, lane, 31, ALL_LANES) for key in keys]:
                for key, place in zip(keys, places, strict=True):
                    add.u32(place, place, 1, pred=other > key)
        for place, (at, *entries) in zip(places, found, strict=True):
            for array, value in zip((*arrays, self.group), (*entries, at), strict=True):
                st.shared__cta.u32(array.at(place), value)
        bar.warp.sync(ALL_LANES)
        return [(at, *(ld.shared__cta.u32(array.at(at)) for array in arrays)) for at, *_ in found]

    @staticmethod
    def _length(start: Reg[u32], end: Reg[u32], across: Reg[u32] | None = None, stages: Reg[u32] | None = None) -> Reg[u32]:
        """By which groups are sorted, at most LONGEST."""
        if stages is None:
            return min_.u32(end - start, LONGEST)
        return mul.lo.u32(min_.u32(end, LONGEST >> 10), min_.u32(stages, 1023))

    @staticmethod
    def _read(lengths: Ptr[u32], at: Reg[u32], groups: Reg[u32], layout: Layout) -> tuple[Reg[u32], Reg[u32] | None]:
        """What `lengths` has of a group, and ("cu_seqlens") of the next; 0 behind the last."""
        value, following = mov.u32(0), mov.u32(0) if layout == "cu_seqlens" else None
        ld.global_.u32(value, lengths.at(at), pred=at < groups)
        if following is not None:
            ld.global_.u32(following, lengths.at(at + 1), pred=at < groups)
        return value, following

    def save(self, to: Ptr[u32], lane: Reg[u32]) -> None:
        """By one warp: the table to global memory."""
        for first, inside in self._words(lane):
            word = mov.u32(0)
            ld.shared__cta.u32(word, self.words_at.at(lane + first), pred=inside)
            st.global_.u32(to.at(lane + first), word, pred=inside)

    def load(self, source: Ptr[u32], lane: Reg[u32]) -> None:
        """By one warp: the table that another kernel has left in global memory."""
        for first, inside in self._words(lane):
            word = mov.u32(0)
            ld.global_.u32(word, source.at(lane + first), pred=inside)
            st.shared__cta.u32(self.words_at.at(lane + first), word, pred=inside)

    def _words(self, lane: Reg[u32]) -> list[tuple[int, Any]]:
        words = self.words(self.capacity, self.layout, self.longest_first)
        return [(first, None if first + 32 <= words else lane < words - first) for first in range(0, words, 32)]


def _groups(by: OnDevice, found: Sequence[Sequence[Reg[u32]]]) -> Groups:
    """Those of a lane: number, first row and end of each."""
    return Groups(by, [end - start for _, start, end in found])


def _bounds(value: Reg[u32], following: Reg[u32] | None, group: Reg[u32], rows: Reg[u32], pitch: Reg[u32]) -> tuple[Reg[u32], Reg[u32]]:
    """Of a group from its offset and the next one's, or (masked) from its number of rows."""
    if following is not None:
        start = min_.u32(value, rows)
        return start, min_.u32(max_.u32(following, start), rows)
    start = group * pitch
    return start, start + min_.u32(value, pitch)


__all__ = ["COUNTED", "GroupTable", "Layout"]
