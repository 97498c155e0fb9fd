"""Tile schedulers of a dense product, device side: whole tiles, tiles whose K is split, and stream-K."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ptxkit import Ptr, Reg, cluster_ctarank, if_, loop
from ptxkit.idioms import quotient
from ptxkit.ptx import add, mov, selp
from ptxkit.ptx import min as min_
from ptxkit.types import u32

from ..config.parts import ClusterShape, Dynamic, SplitK, Static, StreamK
from .dynamic import Tickets
from .fast_divmod import rounded_up
from .persistent import PersistentLoop, Place
from .stream_k import Part, Runs
from .tile_order import TileOrder
from .work import Extents, WorkTile

Skip = Callable[[Reg[u32]], None]
"""Hears of the stages of a work tile that is another warpgroup's."""


@dataclass(frozen=True, slots=True)
class TileScheduler:
    """Whole tiles, in an order, by a persistent loop."""

    extents: Extents
    order: TileOrder
    loop: PersistentLoop

    @contextmanager
    def work(self, *, turn: Reg[u32] | int = 0, turns: int = 1, draws: bool = False, skip: Skip | None = None,
             first: Sequence[Reg[u32]] | None = None) -> Iterator[WorkTile]:
        """A loop over this CTA's work tiles; of every `turns` only number `turn`, for warpgroups that take turns. `draws`: in the thread
        that draws tickets. `first` is where the first tile was found to be (`begins_at`): a loop dealt out in advance begins there, which
        takes no time any more. `skip` is asked by stream-K alone."""
        count, place, work_tile = self._tiles()
        with self.loop.placed(count, place, turn, turns, draws) if first is None else self.loop.continued(count, place, first) as found:
            yield work_tile(*found)

    def begins_at(self) -> tuple[WorkTile, Sequence[Reg[u32]] | None]:
        """The work tile that this CTA begins with; and what `work` takes as `first`, where tiles are dealt out in advance."""
        index, _ = self.loop.here()
        _, place, work_tile = self._tiles()
        found = index, *place(index)
        return work_tile(*found), found if self.loop.tickets is None and self.order.curve is None else None

    def _grid(self) -> tuple[Reg[u32], Reg[u32], Reg[u32], Reg[u32]]:
        """Rows and columns of cluster tiles, those of a batch, and all."""
        extents, cluster = self.extents, self.order.cluster
        rows, columns = rounded_up(extents.m, cluster.m), rounded_up(extents.n, cluster.n)
        tiles = rows * columns
        return rows, columns, tiles, tiles if extents.batches is None else tiles * extents.batches

    def _tiles(self) -> tuple[Reg[u32], Place, Callable[..., WorkTile]]:
        """How many indices there are, where one lies, and the work tile that this makes."""
        rows, columns, tiles, count = self._grid()

        def place(index: Reg[u32]) -> Sequence[Reg[u32]]:
            m, n, batch = self._tile(index, tiles, rows, columns)
            return m, n, *([batch] if batch is not None else [])

        def work_tile(index: Reg[u32], m: Reg[u32], n: Reg[u32], *batch: Reg[u32]) -> WorkTile:
            return WorkTile(m, n, 0, self.extents.k, index, None, batch[0] if self.extents.batches is not None else None)

        return count, place, work_tile

    def _tile(self, index: Reg[u32], tiles: Reg[u32], rows: Reg[u32], columns: Reg[u32]) -> tuple[Reg[u32], Reg[u32], Reg[u32] | None]:
        """Row, column and batch of this CTA's tile, where a batch has `tiles` cluster tiles."""
        batch, within = None, index
        if self.extents.batches is not None:
            batch = quotient(index, tiles, self.extents.divmod.batch)
            within = index - batch * tiles
        m, n = self.order.in_cluster(*self.order.place(within, rows, columns, self.extents.divmod))
        return m, n, batch


@dataclass(frozen=True, slots=True)
class SplitKScheduler(TileScheduler):
    """Tiles whose K is split: among consecutive CTAs, or among the CTAs of a cluster."""

    split: SplitK

    def _tiles(self) -> tuple[Reg[u32], Place, Callable[..., WorkTile]]:
        rows, columns, tiles, count = self._grid()
        splits, k = self.split.splits, self.extents.k
        spread = splits if self.split.reduce == "workspace" else 1

        def place(index: Reg[u32]) -> Sequence[Reg[u32]]:
            tile = quotient(index, spread) if spread > 1 else index
            m, n, batch = self._tile(tile, tiles, rows, columns)
            return m, n, *([batch] if batch is not None else []), *([tile] if spread > 1 else [])

        def work_tile(index: Reg[u32], m: Reg[u32], n: Reg[u32], *rest: Reg[u32]) -> WorkTile:
            tile = rest[-1] if spread > 1 else index
            batch = rest[0] if self.extents.batches is not None else None
            split = index - tile * spread if spread > 1 else mov.u32(cluster_ctarank)
            first = quotient(k * split, splits)
            return WorkTile(m, n, first, quotient(k * (split + 1), splits) - first, tile, split, batch)

        return count * spread if spread > 1 else count, place, work_tile


@dataclass(frozen=True, slots=True)
class StreamKScheduler(TileScheduler):
    """Each cluster has a run of the first tiles' stages, then whole tiles (see `Runs`)."""

    @contextmanager
    def work(self, *, turn: Reg[u32] | int = 0, turns: int = 1, draws: bool = False, skip: Skip | None = None,
             first: Sequence[Reg[u32]] | None = None) -> Iterator[WorkTile]:
        """The same; `skip` hears of the stages that are another warpgroup's."""
        rows, columns, tiles, count = self._grid()
        with self._runs(count, turn, turns, skip) as (tile, stages, part):
            m, n, batch = self._tile(tile, tiles, rows, columns)
            yield WorkTile(m, n, part.first, stages, tile, None, batch, part=part)

    @contextmanager
    def _runs(self, count: Reg[u32], turn: Reg[u32] | int, turns: int, skip: Skip | None) -> Iterator[tuple[Reg[u32], Reg[u32], Part]]:
        """A loop over this cluster's run, then over its whole tiles: tile, stages, and which part of the tile they are."""
        here, all_ = self.loop.here()
        k = self.extents.k
        runs = Runs.of(count, k, all_)
        run = all_ - 1 - here                   # clusters of lower numbers have the later runs, and begin first
        at, end = mov.u32(runs.start(run)), runs.start(run + 1)
        whole, number = runs.tiles + here, mov.u32(0)
        with loop() as more:
            streams = at < end
            more.break_if((at >= end) & (whole >= count))
            tile = selp.u32(at // k, whole, streams)
            first = selp.u32(at - tile * k, 0, streams)
            left = k - first
            stages = selp.u32(min_.u32(left, end - at), left, streams)
            add.u32(at, at, stages, pred=streams)
            add.u32(whole, whole, all_, pred=~streams)
            if turns > 1:
                other = number != turn
                mov.u32(number, number ^ 1)
                if skip is not None:
                    with if_(other):
                        skip(stages)
                more.continue_if(other)
            yield tile, stages, Part(runs, run, first, left - stages)


def tile_scheduler(scheduler: Static | Dynamic | StreamK | SplitK, extents: Extents, curve: Ptr[u32],
                   tickets: Tickets | None = None) -> TileScheduler:
    """The scheduler of a configuration. A `Dynamic` one draws `tickets`; `curve` is read for a Hilbert order alone."""
    cluster = scheduler.cluster if isinstance(scheduler, Static | StreamK) else ClusterShape()
    in_cluster = isinstance(scheduler, SplitK) and scheduler.reduce == "cluster"
    order = TileOrder.of(scheduler.order, cluster, curve)
    persistent = PersistentLoop(cluster.size > 1 or in_cluster, tickets)
    if isinstance(scheduler, SplitK):
        return SplitKScheduler(extents, order, persistent, scheduler)
    return (StreamKScheduler if isinstance(scheduler, StreamK) else TileScheduler)(extents, order, persistent)


__all__ = ["Skip", "SplitKScheduler", "StreamKScheduler", "TileScheduler", "tile_scheduler"]
