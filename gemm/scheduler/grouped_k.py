"""Tile scheduler of products with groups along K, device side: every group has the same tiles, and a number of stages of its own. CTAs may
share a tile of a long group: each has a part of the group's rows."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar

from ptxkit import Ptr, Reg, if_, smem
from ptxkit.idioms import fast_div
from ptxkit.ptx import ld, mov, redux, selp, st
from ptxkit.ptx import max as max_
from ptxkit.smem import Shared
from ptxkit.types import pred, u32

from .fast_divmod import ceil_div
from .group_table import GroupTable
from .persistent import PersistentLoop
from .tile_cost import ALL_LANES
from .tile_order import TileOrder
from .work import TileDivmod, WorkTile

ANY_LENGTH = 1 << 31
"""More rows than a group has: the group table counts every group that is not empty once."""


@dataclass(frozen=True, slots=True)
class GroupPart:
    """A part of a group's rows, of `parts`. The work tiles with the same tile of the group have the indices `first`, `first` + `step`, ...;
    `tile` is that tile's number among those of all groups. Long groups come first, so the numbers of tiles with several parts are small."""

    parts: Reg[u32]
    first: Reg[u32]
    step: Reg[u32]
    tile: Reg[u32]


@dataclass(frozen=True, slots=True)
class DepthWorkTile(WorkTile):
    """A work tile of a group: it sums over rows `start` to `end` of A and B. `shared`: whether these are a part of the group."""

    group: Reg[u32] = field(kw_only=True)
    start: Reg[u32] = field(kw_only=True)
    end: Reg[u32] = field(kw_only=True)
    shared: Reg[pred] | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class GroupsAlongK:
    """The groups of a product as kernel parameters: `lengths` [count + 1] are the first rows of the groups, then the end of the last one.
    A and B have `rows` rows. Each group has `m_tiles` x `n_tiles` tiles, and `divmod` are the inverses of these numbers.

    Where CTAs share tiles, a group of more than `part` rows has several parts. There is room for the sums of `most_parts`: twice as many as
    A has times `part` rows. That is enough for all groups, unless they overlap."""

    lengths: Ptr[u32]
    count: Reg[u32]
    rows: Reg[u32]
    m_tiles: Reg[u32]
    n_tiles: Reg[u32]
    divmod: TileDivmod
    part: Reg[u32]
    inverse_of_part: Reg[u32]
    most_parts: Reg[u32]


@dataclass(frozen=True, slots=True)
class DepthScheduler:
    """Persistent loop over the tiles of all groups, those of the longest group first: what is left at the end are short tiles.

    `table` is a `GroupTable` with its longest groups first. Stages are `depth` rows deep. An empty group has one stage, which loads
    zeros; with `skip_empty` it has no tiles.

    If CTAs share tiles, long groups have parts, of whole stages but for the first one's. All tiles of a part come before those of the
    group's next part, so CTAs that work at the same time read the same rows. `shared` is room for two words then.
    """

    groups: GroupsAlongK
    table: GroupTable
    order: TileOrder
    loop: PersistentLoop
    depth: int
    skip_empty: bool
    shared: Shared[u32] | None = None

    SHARED_BYTES: ClassVar[int] = 8

    @classmethod
    def allocate_shared(cls) -> Shared[u32]:
        """Room for how many groups have parts, and for how many these are."""
        return smem.array(u32, cls.SHARED_BYTES // 4, name="groups with parts")

    def read(self) -> None:
        """Build the table; executed by one warp."""
        groups = self.groups
        self.table.scan(groups.lengths, groups.count, groups.rows, ANY_LENGTH, "cu_seqlens", mov.u32(0),
                        counts=self._parts if self.shared is not None else None)

    def _parts(self, found: Sequence[Sequence[Reg[u32]]]) -> list[Reg[u32]]:
        """The parts of this lane's groups, given their places, first rows and ends. Each group is one part if there is no room for sums.
        Executed by one warp, which writes how many groups have several parts, and how many these are."""
        groups = self.groups
        lengths = [end - start for _, start, end in found]
        several = [selp.u32(ceil_div(length, groups.part, groups.inverse_of_part), 0, length > groups.part) for length in lengths]
        total = redux.sync.add.u32(functools.reduce(operator.add, several), ALL_LANES)
        room = total <= groups.most_parts
        longer = redux.sync.add.u32(functools.reduce(operator.add, (selp.u32(1, 0, parts > 0) for parts in several)), ALL_LANES)
        assert self.shared is not None
        for place, number in enumerate((longer, total)):
            st.shared__cta.u32(self.shared.at(place), selp.u32(number, 0, room))
        wholes = [length > 0 if self.skip_empty else place < groups.count for (place, *_), length in zip(found, lengths, strict=True)]
        return [max_.u32(selp.u32(parts, 0, room), selp.u32(1, 0, whole)) for parts, whole in zip(several, wholes, strict=True)]

    @contextmanager
    def work(self, *, draws: bool = False) -> Iterator[DepthWorkTile]:
        """A loop over this CTA's work tiles. `draws`: set in the thread that draws tickets of a dynamic scheduler."""
        groups, table, cluster = self.groups, self.table, self.order.cluster
        counted = self.skip_empty or self.shared is not None
        there = ld.shared__cta.u32(table.tiles_before.at(table.capacity)) if counted else groups.count
        rows, columns = ceil_div(groups.m_tiles, cluster.m), ceil_div(groups.n_tiles, cluster.n)
        tiles = rows * columns

        def place(index: Reg[u32]) -> Sequence[Reg[u32]]:
            """The cluster's tile, the same for all of its CTAs: row, column, and the number of its part among those of all groups."""
            number = fast_div(index, tiles, groups.divmod.batch)
            return *self.order.place(index - number * tiles, rows, columns, groups.divmod), number

        with self.loop.placed(tiles * there, place, draws=draws) as (index, m, n, number):
            m, n = self.order.in_cluster(m, n)
            entry, part, parts, shared = number, None, None, None
            if self.shared is not None:
                longer, several = (ld.shared__cta.u32(self.shared.at(place)) for place in range(2))
                entry, part, parts, shared = mov.u32(number - several + longer), mov.u32(0), mov.u32(1), number < several
                with if_(shared):
                    before = self._find(entry, number, parts)
                    mov.u32(part, number - before)
            start, end, group = (ld.shared__cta.u32(words.at(entry)) for words in (table.start, table.end, table.group))
            if shared is not None and part is not None and parts is not None:
                with if_(shared):
                    self._cut(start, end, part, parts)
            stages = max_.u32(ceil_div(end - start, self.depth), 1)
            yield DepthWorkTile(m, n, 0, stages, index, group=group, start=start, end=end, shared=shared)

    def part_of(self, index: Reg[u32]) -> GroupPart:
        """The part that a work tile is, given its index, where its group has several. This is looked up once more: kept, it would take
        registers from the sums."""
        groups, entry, parts = self.groups, mov.u32(0), mov.u32(0)
        tiles = self._tiles()
        number = fast_div(index, tiles, groups.divmod.batch)
        before = self._find(entry, number, parts)
        return GroupPart(parts, index - (number - before) * tiles, tiles, index - (number - entry) * tiles)

    def _find(self, entry: Reg[u32], number: Reg[u32], parts: Reg[u32]) -> Reg[u32]:
        """Set the entry of part `number` of all groups and how many its group has. Returns how many come before those of its group."""
        self.table.search(entry, number)
        before, after = (ld.shared__cta.u32(self.table.tiles_before.at(at)) for at in (entry, entry + 1))
        mov.u32(parts, after - before)
        return before

    def _tiles(self) -> Reg[u32]:
        """The cluster tiles of a group."""
        groups, cluster = self.groups, self.order.cluster
        return ceil_div(groups.m_tiles, cluster.m) * ceil_div(groups.n_tiles, cluster.n)

    def _cut(self, start: Reg[u32], end: Reg[u32], part: Reg[u32], parts: Reg[u32]) -> None:
        """Set `start` and `end` to the rows of a part: whole stages up to the group's end, and for the first part what is left. No part is
        empty: each has at most as many stages as one of `GroupsAlongK.part` rows, of which one fewer has all but the last rows."""
        each = ceil_div(ceil_div(end - start, self.depth), parts) * self.depth
        until = end - (parts - 1 - part) * each
        mov.u32(start, until - each, pred=part > 0)
        mov.u32(end, until)


__all__ = ["DepthScheduler", "DepthWorkTile", "GroupPart", "GroupsAlongK"]
