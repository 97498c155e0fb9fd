"""A dense product: D = A B in whole tiles."""

from __future__ import annotations

from ptxkit import Ptr, Ring, TensorMap, if_, kernel, role, span, tid
from ptxkit.idioms import elect, prefetch_tensormaps
from ptxkit.ptx import createpolicy, mov, shfl
from ptxkit.types import u32

from ..collective.atoms import Mma
from ..collective.cluster import Cluster
from ..collective.epilogue import Edges, Fused, allocate_staging, elements_of, tile_store
from ..collective.epilogue_ops import PLAIN_SUM, Fusion, FusionArguments, FusionOperands, Strided
from ..collective.mainloop_promoted import MmaMainloop
from ..collective.ordered_barrier import OrderedSequence
from ..collective.pipeline import Pipeline
from ..collective.producer import Producer
from ..collective.tiled import TiledCopy, TiledMma
from ..collective.vector_scales import ScaledMma, VectorScales
from ..collective.warpgroups import loaded, mma_threads, producer_warpgroup, start
from ..config import budget
from ..config.dense import Operands
from ..config.parts import ClusterShape, Cooperative, Dynamic, Loads, Pingpong, Staged, Static, Store, Swizzle, Tile
from ..scheduler.dense import tile_scheduler
from ..scheduler.dynamic import DynamicScheduler
from ..scheduler.work import TileDivmod
from .shape import Shape, prefetch_first_tile, stage_tiles


@kernel(target="sm_90a", block=lambda config: budget.threads(config["schedule"]),
        cluster=lambda config: getattr(config["scheduler"], "cluster", ClusterShape()).size)
def gemm(a: TensorMap, b: TensorMap, d: TensorMap, shape: Shape, out: Strided, counters: Ptr[u32], fused: FusionArguments,
         curve: Ptr[u32], divmod: TileDivmod, *, operands: Operands = Operands(), tile: Tile = Tile(128, 256, 64), stages: int = 4,
         schedule: Cooperative | Pingpong = Cooperative(2), scheduler: Static | Dynamic = Static(Swizzle(), ClusterShape(2, 1)),
         store: Store = Staged(2), loads: Loads = Loads(), fusion: Fusion = PLAIN_SUM) -> None:
    """D[M, N] = fusion(A[M, K] B[K, N]) in tiles of BM x BN, stages of BK.

    Roles. Warpgroup 0 is the producer: one lane of its first warp issues every load. The mma warpgroups multiply and store. Cooperative:
    they share a tile, BM / warpgroups rows or BN / warpgroups columns each. Pingpong: each has a whole tile, and they take turns.

    Arrivals of a phase. full[stage]: 1, the producer's arrive.expect_tx of the whole stage. empty[stage]: one thread of every warpgroup
    that reads the stage (one warpgroup with pingpong), in every CTA that this CTA's copies reach. See also `OrderedSequence` and
    `DynamicScheduler`.

    Stage and parity continue from tile to tile, so the producer loads the next tile while the mma warpgroups store this one.

    No global memory is read or written before griddepcontrol.wait, so programmatic dependent launch may start the kernel before the
    previous one ends. The exception: each CTA prefetches the first stages of B into the L2. That is safe: later writes go to the L2 too.
    """
    pingpong, mma_warpgroups = isinstance(schedule, Pingpong), budget.warpgroups_of(schedule)
    cluster = Cluster.of(scheduler)
    columns = budget.own_columns(tile, schedule)
    atom = Mma(operands.a, operands.b, columns, operands.accumulator)
    a_tile, b_tile = stage_tiles(operands, tile, stages)
    staging = allocate_staging(store, mma_warpgroups, columns, operands.out)
    pipeline = Pipeline(stages, 1 if pingpong else mma_warpgroups, cluster)
    turns = OrderedSequence.allocate() if pingpong else None
    dynamic = DynamicScheduler(counters, 4 * mma_warpgroups) if isinstance(scheduler, Dynamic) else None

    thread = mov.u32(tid.x)
    warpgroup = shfl.sync.idx.b32(thread >> 5, 0, 31, 0xFFFFFFFF) >> 2      # uniform across the warp, and ptxas can see it
    with if_(thread == 0):
        prefetch_tensormaps(a, b, *([d] if isinstance(store, Staged) else []))
        pipeline.init(*([(turns, OrderedSequence.ARRIVALS)] if turns is not None else []), *(dynamic.counts if dynamic is not None else ()))
    tiles = tile_scheduler(scheduler, shape.extents(divmod, operands.batched), curve, dynamic)
    begins_at = prefetch_first_tile(tiles, b, b_tile, tile.BN, cluster, thread, shape.n, loads.l2_prefetch_stages)
    start(cluster.size > 1, scheduler.overlap)

    with producer_warpgroup(thread, mma_warpgroups), if_(thread < 32), if_(elect()):
        role("producer")
        hint = createpolicy.fractional.L2__evict_first.b64() if loads.b_evict_first else None
        producer = Producer(pipeline, TiledCopy(a, a_tile, cluster.of_a(), rows=loads.a_rows),
                            TiledCopy(b, b_tile, cluster.of_b(), hint), Ring(stages))
        with tiles.work(draws=True, first=begins_at) as work:
            producer.load(work, work.m * tile.BM, work.n * tile.BN, *work.outer)
        loaded(scheduler.overlap)
        producer.tail()

    with mma_threads(thread, warpgroup, mma_warpgroups, budget.m64_blocks(tile, schedule), schedule,
                     columns=columns) as mma_thread:
        mma = TiledMma(atom, mma_thread.m64_blocks, mma_thread.first_row, mma_thread.first_column)
        scales_when = budget.when_scales_are_read(tile, schedule, operands.accumulator)
        vectors = VectorScales.of(fusion, fused, mma_thread, columns, shape.m, shape.n, scales_when)
        epilogue = Fused(ScaledMma.of(atom, vectors), fusion, FusionOperands.of(fusion, fused), Edges(shape.m, shape.n), mma_thread.row,
                         mma_thread.column, elements_of(store))
        to_d = tile_store(store, staging, d, out.of(operands.out), mma_thread, epilogue, together=not pingpong)
        mainloop = MmaMainloop(budget.sums_of(schedule), pipeline, mma, a_tile, b_tile, mma_thread, mma_warpgroups=mma_warpgroups,
                               a_rows=loads.a_rows)
        order = OrderedSequence(turns, mma_thread.warpgroup, mma_thread.lane) if turns is not None else None
        if pingpong:
            mainloop.position.skip(mma_thread.warpgroup * shape.k_tiles)
        with tiles.work(turn=mma_thread.warpgroup if pingpong else 0, turns=2 if pingpong else 1) as work, span("tile"):
            row, column = work.m * tile.BM, work.n * tile.BN
            row, column = mma_thread.tile_row(row), mma_thread.tile_column(column)
            with vectors.read(row, column):
                mainloop.run(work, column, order)
            if pingpong:
                mainloop.position.skip(shape.k_tiles)
            with span("store"):
                to_d.tile(mainloop.total, row, column, columns, work.batch)
        to_d.tail()
        mainloop.tail()


__all__ = ["gemm"]
