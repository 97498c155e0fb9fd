"""Tile schedulers of a dense product, device side: whole tiles, tiles whose K is split, and stream-K."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ptxkit import Ptr, Reg, cluster_ctarank
from ptxkit.idioms import fast_div
from ptxkit.ptx import mov
from ptxkit.types import u32

from ..config.parts import ClusterShape, Dynamic, SplitK, Static, StreamK
from .dynamic import DynamicScheduler
from .fast_divmod import ceil_div
from .persistent import PersistentLoop, Place
from .stream_k import Skip, parts_of
from .tile_order import TileOrder
from .work import Extents, WorkTile


@dataclass(frozen=True, slots=True)
class TileScheduler:
    """A persistent loop over whole tiles in a given order."""

    extents: Extents
    order: TileOrder
    loop: PersistentLoop

    @contextmanager
    def work(self, *, turn: Reg[u32] | int = 0, turns: int = 1, draws: bool = False, skip: Skip | None = None,
             first: Sequence[Reg[u32]] | None = None) -> Iterator[WorkTile]:
        """A loop over this CTA's work tiles. Of every `turns` tiles it yields only number `turn`, for warpgroups that take turns.

        `draws`: set in the thread that draws tickets of a dynamic scheduler. `first` is what `begins_at` returned: a static loop then
        starts without computing its first tile again. Only stream-K calls `skip`.
        """
        count, place, work_tile = self._tiles()
        with self.loop.placed(count, place, turn, turns, draws) if first is None else self.loop.continued(count, place, first) as found:
            yield work_tile(*found)

    def begins_at(self) -> tuple[WorkTile, Sequence[Reg[u32]] | None]:
        """This CTA's first work tile, and what `work` takes as `first` (None for a dynamic scheduler and for a Hilbert order)."""
        index, _ = self.loop.own_index()
        _, place, work_tile = self._tiles()
        found = index, *place(index)
        return work_tile(*found), found if self.loop.dynamic is None and self.order.curve is None else None

    def _grid(self) -> tuple[Reg[u32], Reg[u32], Reg[u32], Reg[u32]]:
        """The numbers of rows and columns of cluster tiles, of cluster tiles in a batch, and of all cluster tiles."""
        extents, cluster = self.extents, self.order.cluster
        rows, columns = ceil_div(extents.m, cluster.m), ceil_div(extents.n, cluster.n)
        tiles = rows * columns
        return rows, columns, tiles, tiles if extents.batches is None else tiles * extents.batches

    def _tiles(self) -> tuple[Reg[u32], Place, Callable[..., WorkTile]]:
        """The number of work tiles, the function that computes where one lies, and the function that makes a `WorkTile` of that."""
        rows, columns, tiles, count = self._grid()

        def place(index: Reg[u32]) -> Sequence[Reg[u32]]:
            m, n, batch = self._tile(index, tiles, rows, columns)
            return m, n, *([batch] if batch is not None else [])

        def work_tile(index: Reg[u32], m: Reg[u32], n: Reg[u32], *batch: Reg[u32]) -> WorkTile:
            return WorkTile(m, n, 0, self.extents.k, index, None, batch[0] if self.extents.batches is not None else None)

        return count, place, work_tile

    def _tile(self, index: Reg[u32], tiles: Reg[u32], rows: Reg[u32], columns: Reg[u32]) -> tuple[Reg[u32], Reg[u32], Reg[u32] | None]:
        """Row, column and batch of this CTA's tile. A batch has `tiles` cluster tiles."""
        batch, within = None, index
        if self.extents.batches is not None:
            batch = fast_div(index, tiles, self.extents.divmod.batch)
            within = index - batch * tiles
        m, n = self.order.in_cluster(*self.order.place(within, rows, columns, self.extents.divmod))
        return m, n, batch


@dataclass(frozen=True, slots=True)
class SplitKScheduler(TileScheduler):
    """Tiles whose K is split among consecutive CTAs or clusters, or among the CTAs of a cluster."""

    split: SplitK

    def _tiles(self) -> tuple[Reg[u32], Place, Callable[..., WorkTile]]:
        rows, columns, tiles, count = self._grid()
        splits, k = self.split.splits, self.extents.k
        spread = splits if self.split.reduce == "workspace" else 1         # consecutive work tiles that share an output tile

        def place(index: Reg[u32]) -> Sequence[Reg[u32]]:
            tile = fast_div(index, spread) if spread > 1 else index
            m, n, batch = self._tile(tile, tiles, rows, columns)
            return m, n, *([batch] if batch is not None else []), *([tile] if spread > 1 else [])

        def work_tile(index: Reg[u32], m: Reg[u32], n: Reg[u32], *rest: Reg[u32]) -> WorkTile:
            tile = rest[-1] if spread > 1 else index
            batch = rest[0] if self.extents.batches is not None else None
            split = index - tile * spread if spread > 1 else mov.u32(cluster_ctarank)
            first = fast_div(k * split, splits)
            return WorkTile(m, n, first, fast_div(k * (split + 1), splits) - first, tile, split, batch)

        return count * spread if spread > 1 else count, place, work_tile


@dataclass(frozen=True, slots=True)
class StreamKScheduler(TileScheduler):
    """Each cluster works on one run of the stages that are shared out, then on whole tiles (see `Runs`)."""

    @contextmanager
    def work(self, *, turn: Reg[u32] | int = 0, turns: int = 1, draws: bool = False, skip: Skip | None = None,
             first: Sequence[Reg[u32]] | None = None) -> Iterator[WorkTile]:
        """As `TileScheduler.work`. `skip` is called with the stages of each part that another warpgroup computes."""
        rows, columns, tiles, count = self._grid()
        own, clusters = self.loop.own_index()
        with parts_of(count, self.extents.k, own, clusters, turn, turns, skip) as (tile, stages, part):
            m, n, batch = self._tile(tile, tiles, rows, columns)
            yield WorkTile(m, n, part.first, stages, tile, None, batch, part=part)


def tile_scheduler(scheduler: Static | Dynamic | StreamK | SplitK, extents: Extents, curve: Ptr[u32],
                   dynamic: DynamicScheduler | None = None) -> TileScheduler:
    """The scheduler of a configuration. `dynamic` belongs to a `Dynamic` one. Only a Hilbert order reads `curve`."""
    cluster = ClusterShape() if isinstance(scheduler, Dynamic) else scheduler.cluster
    in_cluster = isinstance(scheduler, SplitK) and scheduler.reduce == "cluster"
    order = TileOrder.of(scheduler.order, cluster, curve)
    persistent = PersistentLoop(cluster.size > 1 or in_cluster, dynamic)
    if isinstance(scheduler, SplitK):
        return SplitKScheduler(extents, order, persistent, scheduler)
    return (StreamKScheduler if isinstance(scheduler, StreamK) else TileScheduler)(extents, order, persistent)


__all__ = ["Skip", "SplitKScheduler", "StreamKScheduler", "TileScheduler", "tile_scheduler"]
