"""The group table in shared memory: each group's rows of X and Y, and its work tiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from ptxkit import Ptr, Reg, laneid, smem
from ptxkit.ptx import add, bar, ld, mov, mul, selp, shfl, st
from ptxkit.ptx import max as max_
from ptxkit.ptx import min as min_
from ptxkit.smem import Shared
from ptxkit.types import u32

from .fast_divmod import ceil_div
from .sort import descending, places_of
from .tile_cost import ALL_LANES, Groups, OnDevice
from .two_kernels import TwoKernelPlan

Layout = Literal["cu_seqlens", "masked", "contiguous", "ptr_array"]
"""How device memory describes the groups. "cu_seqlens": cumulative row counts. "masked": groups have slots of equal size, and each slot
has a number of used rows. "contiguous": the group of each row. "ptr_array": each group has its own matrices with its own M, N and K."""
Counts = Callable[[Sequence[Sequence[Reg[u32]]]], Sequence[Reg[u32]]]
"""Computes the tile rows of a lane's entries from their places, first rows and ends."""
COUNTED: tuple[Layout, ...] = ("cu_seqlens", "masked")
"""Layouts with the groups in one matrix whose kernel builds the group table itself."""
CONTIGUOUS_ROWS = 128
"""In the contiguous layout, each aligned block of this many rows belongs to the group of its first row: DeepGEMM's alignment."""
PIECE = 32
"""Where padding at the end of such a block is left out, it is in aligned pieces of this many rows: those after the last one whose first
row has a group."""
MOST_CONTIGUOUS = 1 << 28
"""The most groups of the contiguous layout: a word holds the number of a group, and above it how many pieces of a tile have rows."""
MOST_GROUPS = 1024
"""The most groups of a table."""
MOST_COUNTED = 64
"""Up to so many groups each one's place is counted. Sorting that many takes some 0.1 us longer on an H200; of 128 groups 0.4 us less, of
1024 groups 40 us."""
MAX_SORT_LENGTH = (1 << 32) // MOST_GROUPS - 1
"""The longest group that sorting tells apart, in rows. Longer groups count as equally long."""


class GroupTable:
    """First row and end of each group, and the number of tile rows ("ptr_array": of work tiles) in the groups before it.

    "ptr_array" adds each group's number of tiles across N and of stages along K. With `longest_first` the entries are sorted by length,
    and the table adds the group number of each entry.
    """

    def __init__(self, capacity: int, layout: Layout = "cu_seqlens", longest_first: bool = False) -> None:
        self.capacity, self.longest_first = capacity, longest_first
        self.layout: Layout = layout
        words = self.words(capacity, layout, longest_first)
        self.words_at: Shared[u32] = smem.array(u32, words, name="table of groups")
        self.tiles_before = self.words_at
        places = [self.words_at + (capacity * i + 1) for i in range(1, words // capacity)]
        self.start, self.end = places[:2]
        self.across, self.stages = places[2:4] if layout == "ptr_array" else places[:2]
        self.group = places[-1]                                 # only with `longest_first`

    @staticmethod
    def words(capacity: int, layout: Layout, longest_first: bool = False) -> int:
        """The table's number of 32-bit words."""
        return 0 if layout == "contiguous" else ((5 if layout == "ptr_array" else 3) + longest_first) * capacity + 1

    @classmethod
    def bytes(cls, capacity: int, layout: Layout = "cu_seqlens", longest_first: bool = False) -> int:
        """Shared memory of the table, including its alignment."""
        return 4 * cls.words(capacity, layout, longest_first) + 16

    @staticmethod
    def bounds(lengths: Ptr[u32], group: Reg[u32], rows: Reg[u32], layout: Layout, pitch: Reg[u32]) -> tuple[Reg[u32], Reg[u32]]:
        """First row and end of one group, read from `lengths` and clamped to `rows`."""
        value = ld.global_.u32(lengths.at(group))
        following = ld.global_.u32(lengths.at(group + 1)) if layout == "cu_seqlens" else None
        return _bounds(value, following, group, rows, pitch)

    def scan(self, lengths: Ptr[u32], groups: Reg[u32], rows: Reg[u32], tokens: int, layout: Layout, pitch: Reg[u32], features: int = 0,
             depth: int = 0, plan: TwoKernelPlan | None = None, n: Reg[u32] | None = None, counts: Counts | None = None) -> None:
        """Build the table; executed by one warp. It reads the lengths and adds up the tile rows of `tokens` rows each.

        "cu_seqlens": `lengths` [groups + 1] are the first rows of the groups, then the end of the last one. "masked": `lengths` [groups]
        are row counts, and groups start `pitch` rows apart. Bounds are clamped: no group reaches past `rows` or ends before it begins.
        "ptr_array": `lengths` [groups, 3] are M, N and K; tiles have `tokens` rows by `features` columns and stages are `depth` deep.
        With a `plan`, for a result of `n` columns, groups of the other kernel get no tiles. `counts` says how many tile rows entries have.
        """
        lane, by = mov.u32(laneid), OnDevice.begin() if plan is not None else None
        places = [lane + first if first else lane for first in range(0, self.capacity, 32)]
        found: list[Sequence[Reg[u32]]] = []                    # for each of this lane's groups: its number and its table entries
        values = [] if layout == "ptr_array" else [self._read(lengths, at, groups, layout) for at in places]
        for i, at in enumerate(places):
            inside = at < groups
            if layout == "ptr_array":
                m, n, k = (mov.u32(0) for _ in range(3))
                for axis, extent in enumerate((m, n, k)):
                    ld.global_.u32(extent, lengths.at(at * 3 + axis), pred=inside)
                found.append((at, mov.u32(0), m, ceil_div(n, features), ceil_div(k, depth)))
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
        preceding, tiles = self._add_up(counts(found) if counts else [self._tiles(tokens, *entries) for _, *entries in found], lane)
        if plan is not None and by is not None and shares is not None:
            shared: tuple[Sequence[Any], Any] = preceding, tiles
            if plan.between is not None:                        # these sums overlap the computation of `shares`, which takes longer
                shared = self._add_up([ceil_div(length, tokens) for length in plan.if_shared(_groups(by, found), n)], lane)
            preceding = [plan.settled(by, shares, *each) for each in zip(preceding, shared[0], strict=True)]
            tiles = plan.settled(by, shares, tiles, shared[1])
        for at, number in zip(places, preceding, strict=True):
            st.shared__cta.u32(self.tiles_before.at(at), number)
        st.shared__cta.u32(self.tiles_before.at(self.capacity), tiles, pred=lane == 31)

    def search(self, entry: Reg[u32], sought: Reg[u32]) -> None:
        """Set `entry` to the last one with at most `sought` tiles before it, by a binary search."""
        mov.u32(entry, 0)
        step = self.capacity // 2
        while step:
            middle = entry + step
            mov.u32(entry, middle, pred=ld.shared__cta.u32(self.tiles_before.at(middle)) <= sought)
            step //= 2

    @staticmethod
    def _add_up(counts: Sequence[Reg[u32]], lane: Reg[u32]) -> tuple[Sequence[Reg[u32]], Reg[u32]]:
        """Exclusive prefix sums over the counts of all lanes of a warp; in the last lane also the total."""
        sums = [mov.u32(count) for count in counts]
        for distance in (1, 2, 4, 8, 16):
            for sum_ in sums:
                add.u32(sum_, sum_, shfl.sync.up.b32(sum_, distance, 0, ALL_LANES), pred=lane >= distance)
        for i, sum_ in enumerate(sums[1:], 1):
            add.u32(sum_, sum_, shfl.sync.idx.b32(sums[i - 1], 31, 31, ALL_LANES))
        return [sum_ - count for sum_, count in zip(sums, counts, strict=True)], sums[-1]

    @staticmethod
    def _tiles(tokens: int, start: Reg[u32], end: Reg[u32], across: Reg[u32] | None = None, stages: Reg[u32] | None = None) -> Reg[u32]:
        """A group's number of tile rows, or ("ptr_array") of tiles. A group with K = 0 has no tiles."""
        rows = ceil_div(end - start, tokens)
        return rows if across is None or stages is None else selp.u32(mul.lo.u32(rows, across), 0, stages != 0)

    def _sorted(self, found: list[Sequence[Reg[u32]]], arrays: Sequence[Shared[u32]]) -> list[Sequence[Reg[u32]]]:
        """Write the entries to the table, longest group first, and return the ones that are now in this lane's places.

        Executed by one warp; each lane has the numbers and entries of some groups. Equally long groups keep their order. With "ptr_array"
        a group's length is its rows times its stages along K.
        """
        keys = [self._length(*entries) * MOST_GROUPS + (MOST_GROUPS - 1 - at) for at, *entries in found]
        if self.capacity <= MOST_COUNTED:
            self._write(places_of(keys), found, arrays)
            bar.warp.sync(ALL_LANES)
            return [(at, *(ld.shared__cta.u32(array.at(at)) for array in arrays)) for at, *_ in found]
        for at, *entries in found:
            for array, value in zip(arrays, entries, strict=True):
                st.shared__cta.u32(array.at(at), value)
        numbers = [MOST_GROUPS - 1 - (key & (MOST_GROUPS - 1)) for key in descending(keys)]
        bar.warp.sync(ALL_LANES)
        moved = [(number, *(ld.shared__cta.u32(array.at(number)) for array in arrays)) for number in numbers]
        bar.warp.sync(ALL_LANES)
        self._write([at for at, *_ in found], moved, arrays)
        return [(at, *entries) for (at, *_), (_, *entries) in zip(found, moved, strict=True)]

    def _write(self, places: Sequence[Reg[u32]], found: Sequence[Sequence[Reg[u32]]], arrays: Sequence[Shared[u32]]) -> None:
        """Write groups' entries and numbers to these places."""
        for place, (number, *entries) in zip(places, found, strict=True):
            for array, value in zip((*arrays, self.group), (*entries, number), strict=True):
                st.shared__cta.u32(array.at(place), value)

    @staticmethod
    def _length(start: Reg[u32], end: Reg[u32], across: Reg[u32] | None = None, stages: Reg[u32] | None = None) -> Reg[u32]:
        """The length by which groups are sorted, at most MAX_SORT_LENGTH."""
        if stages is None:
            return min_.u32(end - start, MAX_SORT_LENGTH)
        return mul.lo.u32(min_.u32(end, MAX_SORT_LENGTH >> 10), min_.u32(stages, 1023))

    @staticmethod
    def _read(lengths: Ptr[u32], at: Reg[u32], groups: Reg[u32], layout: Layout) -> tuple[Reg[u32], Reg[u32] | None]:
        """The group's entry of `lengths`, and with "cu_seqlens" the next entry; 0 after the last group."""
        value, following = mov.u32(0), mov.u32(0) if layout == "cu_seqlens" else None
        ld.global_.u32(value, lengths.at(at), pred=at < groups)
        if following is not None:
            ld.global_.u32(following, lengths.at(at + 1), pred=at < groups)
        return value, following

    def save(self, to: Ptr[u32], lane: Reg[u32]) -> None:
        """Copy the table to global memory; executed by one warp."""
        for first, inside in self._words(lane):
            word = mov.u32(0)
            ld.shared__cta.u32(word, self.words_at.at(lane + first), pred=inside)
            st.global_.u32(to.at(lane + first), word, pred=inside)

    def load(self, source: Ptr[u32], lane: Reg[u32]) -> None:
        """Copy the table that another kernel saved in global memory; executed by one warp."""
        for first, inside in self._words(lane):
            word = mov.u32(0)
            ld.global_.u32(word, source.at(lane + first), pred=inside)
            st.shared__cta.u32(self.words_at.at(lane + first), word, pred=inside)

    def _words(self, lane: Reg[u32]) -> list[tuple[int, Any]]:
        words = self.words(self.capacity, self.layout, self.longest_first)
        return [(first, None if first + 32 <= words else lane < words - first) for first in range(0, words, 32)]


def _groups(by: OnDevice, found: Sequence[Sequence[Reg[u32]]]) -> Groups:
    """The lengths of a lane's groups. `found` has the number, first row and end of each."""
    return Groups(by, [end - start for _, start, end in found])


def _bounds(value: Reg[u32], following: Reg[u32] | None, group: Reg[u32], rows: Reg[u32], pitch: Reg[u32]) -> tuple[Reg[u32], Reg[u32]]:
    """First row and end of a group: from its offset and the next group's, or ("masked") from its number of rows."""
    if following is not None:
        start = min_.u32(value, rows)
        return start, min_.u32(max_.u32(following, start), rows)
    start = group * pitch
    return start, start + min_.u32(value, pitch)


__all__ = ["CONTIGUOUS_ROWS", "COUNTED", "MOST_CONTIGUOUS", "PIECE", "GroupTable", "Layout"]
