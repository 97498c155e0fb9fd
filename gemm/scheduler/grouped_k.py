"""Tile scheduler of products with groups along K, device side: every group has the same tiles, and a number of stages of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from ptxkit import Ptr, Reg
from ptxkit.idioms import fast_div
from ptxkit.ptx import ld, mov
from ptxkit.ptx import max as max_
from ptxkit.types import u32

from .fast_divmod import ceil_div
from .group_table import GroupTable
from .persistent import PersistentLoop
from .tile_order import TileOrder
from .work import TileDivmod, WorkTile

ANY_LENGTH = 1 << 31
"""More rows than a group has: the group table counts every group that is not empty once."""


@dataclass(frozen=True, slots=True)
class DepthWorkTile(WorkTile):
    """A work tile of a group: it sums over rows `start` to `end` of A and B."""

    group: Reg[u32] = field(kw_only=True)
    start: Reg[u32] = field(kw_only=True)
    end: Reg[u32] = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class GroupsAlongK:
    """The groups of a product as kernel parameters: `lengths` [count + 1] are the first rows of the groups, then the end of the last one.
    A and B have `rows` rows. Each group has `m_tiles` x `n_tiles` tiles, and `divmod` are the inverses of these numbers."""

    lengths: Ptr[u32]
    count: Reg[u32]
    rows: Reg[u32]
    m_tiles: Reg[u32]
    n_tiles: Reg[u32]
    divmod: TileDivmod


@dataclass(frozen=True, slots=True)
class DepthScheduler:
    """Persistent loop over the tiles of all groups, those of the longest group first: what is left at the end are short tiles.

    `table` is a `GroupTable` with its longest groups first. Stages are `depth` rows deep. An empty group has one stage, which loads
    zeros; with `skip_empty` it has no tiles.
    """

    groups: GroupsAlongK
    table: GroupTable
    order: TileOrder
    loop: PersistentLoop
    depth: int
    skip_empty: bool

    def read(self) -> None:
        """Build the table; executed by one warp."""
        groups = self.groups
        self.table.scan(groups.lengths, groups.count, groups.rows, ANY_LENGTH, "cu_seqlens", mov.u32(0))

    @contextmanager
    def work(self, *, draws: bool = False) -> Iterator[DepthWorkTile]:
        """A loop over this CTA's work tiles. `draws`: set in the thread that draws tickets of a dynamic scheduler."""
        groups, table, cluster = self.groups, self.table, self.order.cluster
        there = ld.shared__cta.u32(table.tiles_before.at(table.capacity)) if self.skip_empty else groups.count
        rows, columns = ceil_div(groups.m_tiles, cluster.m), ceil_div(groups.n_tiles, cluster.n)
        tiles = rows * columns

        def place(index: Reg[u32]) -> Sequence[Reg[u32]]:
            """The cluster's tile, the same for all of its CTAs: row, column and table entry."""
            entry = fast_div(index, tiles, groups.divmod.batch)
            return *self.order.place(index - entry * tiles, rows, columns, groups.divmod), entry

        with self.loop.placed(tiles * there, place, draws=draws) as (index, m, n, entry):
            m, n = self.order.in_cluster(m, n)
            start, end, group = (ld.shared__cta.u32(words.at(entry)) for words in (table.start, table.end, table.group))
            stages = max_.u32(ceil_div(end - start, self.depth), 1)
            yield DepthWorkTile(m, n, 0, stages, index, group=group, start=start, end=end)


__all__ = ["DepthScheduler", "DepthWorkTile", "GroupsAlongK"]
