"""A dense product of fp8 operands with block scales: D = (SFA A) (SFB B) in whole tiles."""

from __future__ import annotations

from ptxkit import Ptr, Ring, TensorMap, if_, kernel, laneid, role, span, tid
from ptxkit.idioms import elect, prefetch_tensormaps
from ptxkit.ptx import createpolicy, mov, shfl
from ptxkit.types import bf16, e4m3, u32

from ..collective.atoms import Mma
from ..collective.cluster import Cluster
from ..collective.epilogue import Edges, Fused, allocate_staging, elements_of, tile_store
from ..collective.epilogue_ops import PLAIN_SUM, Fusion, FusionArguments, FusionOperands, Strided
from ..collective.mainloop_promoted import MmaMainloop, yields
from ..collective.pipeline import Pipeline
from ..collective.producer import Producer, ScaleCopier
from ..collective.scale_factors import ScaleRing
from ..collective.thread_scales import ScaleArray
from ..collective.tiled import TiledCopy, TiledMma
from ..collective.warpgroups import loaded, mma_threads, producer_warpgroup, start
from ..config import budget
from ..config.dense import Operands
from ..config.parts import BlockScaled, ClusterShape, Cooperative, Dynamic, Loads, Staged, Static, Store, Tile
from ..scheduler.dense import tile_scheduler
from ..scheduler.dynamic import DynamicScheduler
from ..scheduler.work import TileDivmod
from .shape import Shape, prefetch_first_tile, stage_tiles


@kernel(target="sm_90a", block=lambda config: budget.threads(config["schedule"]),
        cluster=lambda config: getattr(config["scheduler"], "cluster", ClusterShape()).size,
        directives=lambda config: yields(config["schedule"]))
def gemm_blockscaled(a: TensorMap, b: TensorMap, d: TensorMap, sfa_map: TensorMap, shape: Shape, out: Strided, counters: Ptr[u32],
                     fused: FusionArguments, sfa: ScaleArray, sfb: ScaleArray, curve: Ptr[u32], divmod: TileDivmod, *,
                     operands: Operands = Operands(e4m3, e4m3, bf16), tile: Tile = Tile(128, 128, 128), stages: int = 4,
                     schedule: Cooperative = Cooperative(2, BlockScaled("overlap")), scheduler: Static | Dynamic = Static(),
                     store: Store = Staged(2), loads: Loads = Loads(), fusion: Fusion = PLAIN_SUM) -> None:
    """D[M, N] = fusion((SFA A)[M, K] (SFB B)[K, N]) in tiles of BM x BN, stages of 128 of K. Each stage is promoted with its scale factors.

    Roles. Warpgroup 0 is the producer: one lane of its first warp loads A, B and the scale factors that bulk or tensor copies can load.
    Its second warp copies the other scale factors. The mma warpgroups multiply and store one tile together.

    Arrivals of a phase. full[stage]: 1, the producer's arrive.expect_tx, and 32 lanes of the second warp if it copies. empty[stage]: one
    thread of every mma warp, since each reads scale factors, in every CTA that this CTA's copies reach. See also `DynamicScheduler`.

    Order with other kernels: as in `gemm`.
    """
    mma_warpgroups, cluster = schedule.warpgroups, Cluster.of(scheduler)
    atom = Mma(operands.a, operands.b, tile.BN, operands.accumulator)
    a_tile, b_tile = stage_tiles(operands, tile, stages)
    staging = allocate_staging(store, mma_warpgroups, tile.BN, operands.out)
    scales = ScaleRing.allocate(schedule.sums, sfa, sfb, sfa_map, tile, stages)
    assert scales is not None
    pipeline = Pipeline(stages, mma_warpgroups, cluster, by_warp=True, copying_lanes=scales.copying_lanes)
    dynamic = DynamicScheduler(counters, 4 * mma_warpgroups + scales.copied) if isinstance(scheduler, Dynamic) else None

    thread = mov.u32(tid.x)
    warp = shfl.sync.idx.b32(thread >> 5, 0, 31, 0xFFFFFFFF)                # uniform across the warp, and ptxas can see it
    warpgroup = warp >> 2
    with if_(thread == 0):
        prefetch_tensormaps(a, b, *([d] if isinstance(store, Staged) else []), *([sfa_map] if scales.m.tensormap is not None else []))
        pipeline.init(*(dynamic.counts if dynamic is not None else ()))
    tiles = tile_scheduler(scheduler, shape.extents(divmod, operands.batched), curve, dynamic)
    begins_at = prefetch_first_tile(tiles, b, b_tile, tile.BN, cluster, thread, shape.n, loads.l2_prefetch_stages)
    start(cluster.size > 1, scheduler.overlap)

    with producer_warpgroup(thread, mma_warpgroups):
        with if_(thread < 32), if_(elect()):
            role("producer")
            hint = createpolicy.fractional.L2__evict_first.b64() if loads.b_evict_first else None
            producer = Producer(pipeline, TiledCopy(a, a_tile, cluster.of_a(), rows=loads.a_rows),
                                TiledCopy(b, b_tile, cluster.of_b(), hint), Ring(stages))
            with tiles.work(draws=True, first=begins_at) as work:
                producer.load(work, work.m * tile.BM, work.n * tile.BN, *work.outer, scales=scales, columns=shape.n)
            loaded(scheduler.overlap)
            producer.tail()
        if scales.copied:
            with if_(warp == 1):
                copier = ScaleCopier(pipeline, scales, mov.u32(laneid), Ring(stages))
                with tiles.work() as work:
                    copier.begin_rows(work, work.m * tile.BM, shape.m)
                    copier.begin_columns(work, work.n * tile.BN, shape.n)
                    copier.copy(work)

    with mma_threads(thread, warpgroup, mma_warpgroups, budget.m64_blocks(tile, schedule), schedule) as mma_thread:
        mma = TiledMma(atom, mma_thread.m64_blocks, mma_thread.first_row)
        epilogue = Fused(atom, fusion, FusionOperands.of(fusion, fused), Edges(shape.m, shape.n), mma_thread.row, mma_thread.column,
                         elements_of(store))
        to_d = tile_store(store, staging, d, out.of(operands.out), mma_thread, epilogue, together=True)
        mainloop = MmaMainloop(schedule.sums, pipeline, mma, a_tile, b_tile, mma_thread, mma_warpgroups=mma_warpgroups, scales=scales,
                               a_rows=loads.a_rows)
        with tiles.work() as work, span("tile"):
            row, column = work.m * tile.BM, work.n * tile.BN
            row = mma_thread.tile_row(row)
            mainloop.run(work, column)
            with span("store"):
                to_d.tile(mainloop.total, row, column, tile.BN, work.batch)
        to_d.tail()
        mainloop.tail()


__all__ = ["gemm_blockscaled"]
