"""A dense product with few tiles and a long K: several CTAs share the K of an output tile (split-K, stream-K)."""

from __future__ import annotations

from ptxkit import Ptr, Ring, TensorMap, if_, kernel, laneid, role, span, tid
from ptxkit.idioms import elect, prefetch_tensormaps
from ptxkit.ptx import createpolicy, mov, shfl
from ptxkit.types import f32, u32

from ..collective.atoms import ROWS, Mma
from ..collective.cluster import Cluster
from ..collective.epilogue import DirectStore, Edges, Fused, allocate_staging, elements_of, tile_store
from ..collective.epilogue_ops import PLAIN_SUM, Fusion, FusionArguments, FusionOperands, Strided
from ..collective.epilogue_swap_ab import TransposedBlocks
from ..collective.mainloop_promoted import MmaMainloop, yields
from ..collective.ordered_barrier import OrderedSequence
from ..collective.pipeline import Pipeline
from ..collective.producer import Producer, ScaleCopier
from ..collective.scale_factors import ScaleRing
from ..collective.split_k import ClusterReduction, SplitKStore
from ..collective.stream_k import RunReduction, StreamKStore
from ..collective.thread_scales import ScaleArray
from ..collective.tiled import TiledCopy, TiledMma
from ..collective.vector_scales import ScaledMma, VectorScales
from ..collective.warpgroups import mma_threads, producer_warpgroup, start
from ..config import budget
from ..config.dense import Operands
from ..config.parts import Cooperative, Direct, DirectTransposed, Loads, Pingpong, SplitK, Staged, Store, StreamK, Tile
from ..scheduler.dense import tile_scheduler
from ..scheduler.work import TileDivmod
from .shape import Shape, prefetch_first_tile, stage_tiles


def _cluster(scheduler: SplitK | StreamK) -> int:
    return scheduler.together if isinstance(scheduler, SplitK) else scheduler.cluster.size


@kernel(target="sm_90a", block=lambda config: budget.threads(config["schedule"]), cluster=lambda config: _cluster(config["scheduler"]),
        directives=lambda config: yields(config["schedule"]))
def gemm_split_k(a: TensorMap, b: TensorMap, d: TensorMap, sfa_map: TensorMap, shape: Shape, out: Strided, workspace: Ptr[f32],
                 counters: Ptr[u32], fused: FusionArguments, sfa: ScaleArray, sfb: ScaleArray, curve: Ptr[u32], divmod: TileDivmod, *,
                 operands: Operands = Operands(), tile: Tile = Tile(128, 128, 64), stages: int = 4,
                 schedule: Cooperative | Pingpong = Cooperative(2), scheduler: SplitK | StreamK = SplitK(2),
                 store: Store = Direct(), loads: Loads = Loads(), fusion: Fusion = PLAIN_SUM) -> None:
    """D[M, N] = fusion(A[M, K] B[K, N]) in tiles of BM x BN, stages of BK. A work tile has some of the stages of an output tile.

    Roles, rings and scale factors are as in `gemm` and `gemm_blockscaled`. The store depends on the scheduler: `SplitKStore` adds up equal
    shares of K, through DSMEM or a workspace; `StreamKStore` adds up the parts of a tile that several runs have.

    Arrivals of a phase. full[stage] and empty[stage]: as there. See also `OrderedSequence`, `ClusterReduction`, `WorkspaceReduction` and
    `RunReduction`.
    """
    pingpong, mma_warpgroups, sums = isinstance(schedule, Pingpong), budget.warpgroups_of(schedule), budget.sums_of(schedule)
    cluster, splits = Cluster.of(scheduler), scheduler.splits if isinstance(scheduler, SplitK) and scheduler.reduce == "cluster" else 1
    atom = Mma(operands.a, operands.b, tile.BN, operands.accumulator)
    a_tile, b_tile = stage_tiles(operands, tile, stages)
    staging = allocate_staging(store, mma_warpgroups, tile.BN, operands.out)
    landing = ClusterReduction.allocate(splits, tile.BM, tile.BN) if splits > 1 else None
    scales = ScaleRing.allocate(sums, sfa, sfb, sfa_map, tile, stages)
    pipeline = Pipeline(stages, 1 if pingpong else mma_warpgroups, cluster, by_warp=scales is not None,
                        copying_lanes=scales.copying_lanes if scales is not None else 0)
    turns = OrderedSequence.allocate() if pingpong else None

    thread = mov.u32(tid.x)
    warp = shfl.sync.idx.b32(thread >> 5, 0, 31, 0xFFFFFFFF)                # uniform across the warp, and ptxas can see it
    warpgroup = warp >> 2
    with if_(thread == 0):
        prefetch_tensormaps(a, b, *([d] if isinstance(store, Staged) else []),
                            *([sfa_map] if scales is not None and scales.m.tensormap is not None else []))
        pipeline.init(*([(turns, OrderedSequence.ARRIVALS)] if turns is not None else []),
                      *([(landing.landed, 1)] if landing is not None else []))
    tiles = tile_scheduler(scheduler, shape.extents(divmod, operands.batched), curve)
    begins_at = prefetch_first_tile(tiles, b, b_tile, tile.BN, cluster, thread, shape.n, loads.l2_prefetch_stages)
    start(cluster.size > 1 or splits > 1)

    with producer_warpgroup(thread, mma_warpgroups):
        with if_(thread < 32), if_(elect()):
            role("producer")
            hint = createpolicy.fractional.L2__evict_first.b64() if loads.b_evict_first else None
            producer = Producer(pipeline, TiledCopy(a, a_tile, cluster.of_a(), rows=loads.a_rows),
                                TiledCopy(b, b_tile, cluster.of_b(), hint), Ring(stages))
            with tiles.work(draws=True, first=begins_at) as work:
                producer.load(work, work.m * tile.BM, work.n * tile.BN, *work.outer, scales=scales, columns=shape.n)
            producer.tail()
        if scales is not None and scales.copied:
            with if_(warp == 1):
                copier = ScaleCopier(pipeline, scales, mov.u32(laneid), Ring(stages))
                with tiles.work() as work:
                    copier.begin_rows(work, work.m * tile.BM, shape.m)
                    copier.begin_columns(work, work.n * tile.BN, shape.n)
                    copier.copy(work)

    with mma_threads(thread, warpgroup, mma_warpgroups, budget.m64_blocks(tile, schedule), schedule) as mma_thread:
        mma = TiledMma(atom, mma_thread.m64_blocks, mma_thread.first_row)
        scales_when = budget.when_scales_are_read(tile, schedule, operands.accumulator, split=isinstance(scheduler, SplitK))
        vectors = VectorScales.of(fusion, fused, mma_thread, tile.BN, shape.m, shape.n, scales_when)
        epilogue = Fused(ScaledMma.of(atom, vectors), fusion, FusionOperands.of(fusion, fused), Edges(shape.m, shape.n), mma_thread.row,
                         mma_thread.column, elements_of(store))
        to_d = tile_store(store, staging, d, out.of(operands.out), mma_thread, epilogue, together=not pingpong)
        mainloop = MmaMainloop(sums, pipeline, mma, a_tile, b_tile, mma_thread, mma_warpgroups=mma_warpgroups, scales=scales, in_parts=True,
                               a_rows=loads.a_rows)
        order = OrderedSequence(turns, mma_thread.warpgroup, mma_thread.lane) if turns is not None else None
        if isinstance(scheduler, StreamK):
            sharing = 1 if pingpong else mma_warpgroups
            runs = RunReduction(workspace, counters, tile.BM // ROWS, tile.BN // 8, sharing, cluster.size)
            parts: SplitKStore | StreamKStore = StreamKStore(runs, to_d, mma_thread, tile.BN)
        else:
            assert isinstance(to_d, DirectStore)
            blocks = TransposedBlocks.of(to_d.out, epilogue, mma_thread) if isinstance(store, DirectTransposed) else to_d
            parts = SplitKStore(scheduler, atom, blocks, epilogue.edges, vectors, mma_thread, tile.BM, tile.BN, mma_warpgroups, landing,
                                workspace, counters, budget.mma_registers(schedule))
        parts.begin()
        turn, turns_of = (mma_thread.warpgroup, 2) if pingpong else (0, 1)
        with tiles.work(turn=turn, turns=turns_of, skip=mainloop.position.skip) as work, span("tile"):
            row, column = work.m * tile.BM, work.n * tile.BN
            row = mma_thread.tile_row(row)
            with vectors.read(row, column):
                mainloop.run(work, column, order)
            parts.tile(mainloop.total, work, row, column)
        parts.tail()
        mainloop.tail()


__all__ = ["gemm_split_k"]
