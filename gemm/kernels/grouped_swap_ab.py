"""A grouped product for few tokens per group, as columns of a tile: Y[start:end]^T = W[group] X[start:end]^T."""

from __future__ import annotations

from ptxkit import Ptr, TensorMap, if_, kernel, role, smem, span, tid
from ptxkit.idioms import elect, prefetch_tensormaps
from ptxkit.ptx import mov, shfl
from ptxkit.types import u32

from ..collective.atoms import Mma
from ..collective.cluster import Cluster
from ..collective.epilogue_groups import GroupEpilogue
from ..collective.epilogue_ops import Strided
from ..collective.epilogue_swap_ab import TokenScales
from ..collective.gated import GatedTokenScales
from ..collective.group_producer import GroupProducer, weights_copy
from ..collective.mainloop_promoted import MmaMainloop, yields
from ..collective.ordered_barrier import OrderedSequence
from ..collective.pipeline import Pipeline
from ..collective.tiled import Multicast, TiledMma
from ..collective.warpgroups import mma_threads, producer_warpgroup
from ..config import budget
from ..config.grouped import (
    DynamicGroups,
    GroupedConfig,
    GroupLoads,
    GroupOperands,
    StaticGroups,
    SwapAB,
)
from ..config.parts import Cooperative, Direct, Pingpong, ThreadScaled, Tile
from ..scheduler.two_kernels import TwoKernelPlan
from .groups import Groups, GroupScales, GroupWork, RowScales, TileScales


@kernel(target="sm_90a", block=lambda config: budget.threads(config["schedule"]),
        cluster=lambda config: config["scheduler"].cluster.size, directives=lambda config: yields(config["schedule"]))
def group_gemm_swap_ab(x: TensorMap, w: TensorMap, x_tail: TensorMap, groups: Groups, out: Strided, x_scale: RowScales,
                       w_scale: GroupScales, workspace: Ptr[u32], *, operands: GroupOperands = GroupOperands(), tokens: SwapAB = SwapAB(16),
                       tile: Tile = Tile(128, 64, 64), stages: int = 4, schedule: Cooperative | Pingpong = Cooperative(2),
                       scheduler: StaticGroups | DynamicGroups = StaticGroups(), store: Direct = Direct(), loads: GroupLoads = GroupLoads(),
                       plan: TwoKernelPlan | None = None) -> None:
    """Y [M, N] in tiles of BM features x BN tokens, stages of BK.

    Roles and arrivals are as in `group_gemm`. With `n_granularity` a tile multiplies only as many columns as it has tokens, rounded up to
    it; with `partial_boxes` it also loads only these rows of X. Results are transposed within a warp and stored directly to Y.

    With `ThreadScaled` sums each thread reads its own block scales from global memory, one stage ahead.
    """
    config = GroupedConfig(operands, tokens, tile, stages, schedule, scheduler, store, loads, plan)
    pingpong, mma_warpgroups = isinstance(schedule, Pingpong), config.warpgroups
    cluster = Cluster(scheduler.cluster.m, scheduler.cluster.n)
    atom = Mma(operands.w, operands.x, tile.BN)
    a_tile, b_tile = (smem.tile(type_, (stages, lines, tile.BK), major=major, name=name)
                      for type_, lines, major, name in ((operands.w, tile.BM, config.a_major, "A"),
                                                        (operands.x, tile.BN, config.b_major, "B")))
    pipeline = Pipeline(stages, 1 if pingpong else mma_warpgroups, cluster)
    turns = OrderedSequence.allocate() if pingpong else None
    tiles = GroupWork(config, groups, workspace, 4 * mma_warpgroups)

    thread = mov.u32(tid.x)
    warpgroup = shfl.sync.idx.b32(thread >> 7, 0, 31, 0xFFFFFFFF)           # uniform across the warp, and ptxas can see it
    with if_(thread == 0):
        prefetch_tensormaps(x, w)
        pipeline.init(*([(turns, OrderedSequence.ARRIVALS)] if turns is not None else []), *tiles.counts)
    tiles.start(thread, lambda: weights_copy(config, w, a_tile, Multicast()))

    with producer_warpgroup(thread, mma_warpgroups), if_(thread < 32), if_(elect()):
        role("producer")
        loading = GroupProducer(config, pipeline, cluster, x, w, x_tail, a_tile, b_tile)
        with tiles.work(draws=True) as work:
            loading.begin(work)
            loading.producer.load(work, work.m * config.features, work.row, a_outer=(work.group,))
        loading.tail()
        tiles.producer_tail()

    with mma_threads(thread, warpgroup, mma_warpgroups, config.m64_blocks, schedule) as mma_thread:
        mma = TiledMma(atom, mma_thread.m64_blocks, mma_thread.first_row)
        epilogue = GroupEpilogue(config, atom, groups.n, out, mma_thread)
        to_y = epilogue.swap_ab_store()
        mainloop = MmaMainloop(config.sums, pipeline, mma, a_tile, b_tile, mma_thread, mma_warpgroups=mma_warpgroups)
        order = OrderedSequence(turns, mma_thread.warpgroup, mma_thread.lane) if turns is not None else None
        scales = TileScales(epilogue, x_scale.pointer, w_scale)
        if pingpong:
            mainloop.position.skip(mma_thread.warpgroup * groups.k_tiles)
        with tiles.work(**({"turn": mma_thread.warpgroup, "turns": 2} if pingpong else {})) as work, span("tile"):
            epilogue.begin(work, groups.lengths)
            row, column = work.m * tile.BM, work.row
            row = mma_thread.tile_row(row)
            scales.begin(work.group)
            row = row // 2 if operands.gated else row
            with epilogue.vectors.read(row, column):
                if isinstance(config.sums, ThreadScaled):
                    kind = GatedTokenScales if operands.gated else TokenScales
                    own = kind(x_scale.of(work, operands), w_scale.of_blocks(work.group), mma_thread.m64_blocks, tile.BN,
                               operands.gate_step)
                    own.row = mma_thread.row
                    own.begin(row, column + mma_thread.column, groups.n, epilogue.end)
                    mainloop.run_scaled(work, own)
                elif config.n_granularity:
                    mainloop.loop.multiply_columns(mainloop.total, work.stages, work.until - work.row, config.n_granularity)
                else:
                    mainloop.run(work, column, order)
            if pingpong:
                mainloop.position.skip(groups.k_tiles)
            to_y.tile(mainloop.total, row, column, tile.BN)
        to_y.tail()
        mainloop.tail()


__all__ = ["group_gemm_swap_ab"]
