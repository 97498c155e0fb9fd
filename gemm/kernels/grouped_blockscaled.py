"""A grouped product of fp8 operands with block scales, and tokens as rows of a tile."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from ptxkit import Ptr, Ring, TensorMap, if_, kernel, laneid, role, smem, span, tid
from ptxkit.flow import else_
from ptxkit.idioms import elect, prefetch_tensormaps
from ptxkit.ptx import mov, shfl
from ptxkit.types import bf16, e4m3, f32, u32

from ..collective.atoms import Mma
from ..collective.cluster import Cluster
from ..collective.epilogue import allocate_staging
from ..collective.epilogue_groups import GroupEpilogue
from ..collective.epilogue_ops import Strided
from ..collective.epilogue_quantize import QuantisedStore
from ..collective.gated import GatedScales
from ..collective.group_producer import GroupProducer, weights_copy
from ..collective.mainloop_promoted import MmaMainloop, yields
from ..collective.pipeline import Pipeline
from ..collective.producer import ScaleCopier
from ..collective.scale_factors import ScaleRing
from ..collective.thread_scales import Scales
from ..collective.tiled import Multicast, TiledMma
from ..collective.warpgroups import mma_threads, producer_warpgroup
from ..config import budget
from ..config.grouped import (
    DynamicGroups,
    GroupedConfig,
    GroupLoads,
    GroupOperands,
    StagedGroups,
    StaticGroups,
    TokensAsRows,
)
from ..config.parts import BlockScaled, Cooperative, Direct, Staged, ThreadScaled, Tile
from ..scheduler.two_kernels import TwoKernelPlan
from .groups import Groups, GroupScales, GroupWork, RowScales


@kernel(target="sm_90a", block=lambda config: budget.threads(config["schedule"]),
        cluster=lambda config: config["scheduler"].cluster.size, directives=lambda config: yields(config["schedule"]))
def group_gemm_blockscaled(x: TensorMap, w: TensorMap, y: TensorMap, sfa_map: TensorMap, sfb_map: TensorMap, x_tail: TensorMap,
                           groups: Groups, out: Strided, x_scale: RowScales, w_scale: GroupScales, out_scale: RowScales,
                           workspace: Ptr[u32], *, operands: GroupOperands = GroupOperands(e4m3, e4m3, bf16),
                           tokens: TokensAsRows = TokensAsRows(), tile: Tile = Tile(128, 128, 128), stages: int = 4,
                           schedule: Cooperative = Cooperative(2, BlockScaled("overlap")),
                           scheduler: StaticGroups | DynamicGroups = StaticGroups(), store: StagedGroups | Direct = StagedGroups(2),
                           loads: GroupLoads = GroupLoads(), plan: TwoKernelPlan | None = None) -> None:
    """Y [M, N] in tiles of BM tokens x BN features, stages of 128 of K. Each stage is promoted with its scale factors.

    Roles. Warpgroup 0 is the producer: one thread loads the operands and the scale factors that bulk or tensor copies can load. Its second
    warp copies the other scale factors. The mma warpgroups multiply and store one tile together.

    Arrivals of a phase. full[stage]: 1, the producer's arrive.expect_tx, and 32 lanes of the second warp if it copies. empty[stage]: one
    thread of each warpgroup, or of each mma warp if these read scale factors from the stage, in every CTA that shares an operand with
    this one. See also `DynamicScheduler`.

    With `ThreadScaled` sums each thread reads its own scale factors from global memory, one stage ahead. The rest is as in `group_gemm`.
    """
    config = GroupedConfig(operands, tokens, tile, stages, schedule, scheduler, store, loads, plan)
    mma_warpgroups, sums = schedule.warpgroups, schedule.sums
    cluster = Cluster(scheduler.cluster.m, scheduler.cluster.n)
    atom = Mma(operands.x, operands.w, tile.BN)
    a_tile, b_tile = (smem.tile(type_, (stages, lines, tile.BK), name=name)
                      for type_, lines, name in ((operands.x, tile.BM, "A"), (operands.w, tile.BN, "B")))
    staging = allocate_staging(Staged(config.buffers) if config.staged else None, mma_warpgroups, config.stored_columns, operands.out,
                               "Y staging")
    kept = smem.array(f32, config.kept_bytes // 4, name="kept for the next tile") if config.kept_bytes else None
    scales = ScaleRing.of_groups(sums, x_scale.rows, w_scale.blocks, sfa_map, sfb_map, tile, stages, operands)
    lanes = scales.copying_lanes if scales is not None else 0
    pipeline = Pipeline(stages, mma_warpgroups, cluster, by_warp=scales is not None, copying_lanes=lanes)
    tiles = GroupWork(config, groups, workspace, 4 * mma_warpgroups + (lanes > 0))

    thread = mov.u32(tid.x)
    warpgroup = shfl.sync.idx.b32(thread >> 7, 0, 31, 0xFFFFFFFF)           # uniform across the warp, and ptxas can see it
    with if_(thread == 0):
        prefetch_tensormaps(x, w, *([y] if staging is not None and not config.updates_maps else []))
        pipeline.init(*tiles.counts)
    tiles.start(thread, lambda: weights_copy(config, w, b_tile, Multicast()))

    with producer_warpgroup(thread, mma_warpgroups):
        with if_(thread < 32), if_(elect()):
            role("producer")
            loading = GroupProducer(config, pipeline, cluster, x, w, x_tail, a_tile, b_tile)
            with tiles.work(draws=True) as work:
                loading.begin(work)
                if scales is not None:
                    scales.m.turn_to(work.group, work.start)
                    scales.n.turn_to_group(work.group, w_scale.group_stride, groups.n)
                    scales.n.array = w_scale.of_blocks(work.group)
                for number in range(config.passes):
                    column = work.n * config.features
                    column = column + number * config.stored_columns if number else column
                    loading.producer.load(work, work.row, column, b_outer=(work.group,), scales=scales, columns=groups.n)
            loading.tail()
            tiles.producer_tail()
        if scales is not None and scales.copied:
            with if_(mov.u32(tid.x) >> 5 == 1):
                copier = ScaleCopier(pipeline, scales, mov.u32(laneid), Ring(stages))
                with tiles.work() as work:
                    scales.m.array = x_scale.of(work, operands)
                    copier.begin_rows(work, work.row, work.until)
                    scales.n.array = w_scale.of_blocks(work.group)
                    copier.begin_columns(work, work.n * tile.BN, groups.n)
                    copier.copy(work)

    with mma_threads(thread, warpgroup, mma_warpgroups, config.m64_blocks, schedule) as mma_thread:
        mma = TiledMma(atom, mma_thread.m64_blocks, mma_thread.first_row)
        epilogue = GroupEpilogue(config, atom, groups.n, out, mma_thread)
        to_y: Any = QuantisedStore.of(epilogue, out_scale.rows, kept) if operands.quantised else epilogue.store(staging, y)
        mainloop = MmaMainloop(sums, pipeline, mma, a_tile, b_tile, mma_thread, mma_warpgroups=mma_warpgroups, scales=scales, moving=True)
        with tiles.work() as work, span("tile"):
            epilogue.begin(work, groups.lengths)
            if isinstance(to_y, QuantisedStore):
                to_y.scales = out_scale.of(work, operands)
            row, column = work.row, work.n * (tile.BN * config.passes)
            row = mma_thread.tile_row(row)
            column = column // 2 if operands.gated else column
            if scales is not None:
                scales.n.turn_to_group(work.group, w_scale.group_stride, groups.n)
                if scales.m.parts:
                    mainloop.shift(scales.m.shift(work.start))
            with if_(row < epilogue.end) if mma_thread.shares_rows else nullcontext():
                for number in range(config.passes):
                    column = column + config.stored_columns if number else column
                    if isinstance(sums, ThreadScaled):
                        kind = GatedScales if operands.gated else Scales
                        own = kind(x_scale.of(work, operands), w_scale.of_blocks(work.group), mma_thread.m64_blocks, tile.BN,
                                   operands.gate_step)
                        own.begin(row + mma_thread.row, column, epilogue.end, groups.n)
                        mainloop.run_scaled(work, own)
                    else:
                        mainloop.run(work, column)
                    epilogue.turn_to_group(to_y, work, workspace)
                    to_y.tile(mainloop.total, row, column, config.stored_columns)
            if mma_thread.shares_rows:
                with else_():
                    for _ in range(config.passes):
                        mainloop.skip(work, mma_thread.warpgroup + 1)
        to_y.tail()
        mainloop.tail()


__all__ = ["group_gemm_blockscaled"]
