"""A grouped product with tokens as rows of a tile: Y[start:end] = X[start:end] W[group]^T for every group."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from ptxkit import Ptr, TensorMap, if_, kernel, role, smem, span, tid
from ptxkit.flow import else_
from ptxkit.idioms import elect, prefetch_tensormaps
from ptxkit.ptx import mov, shfl
from ptxkit.types import f32, u32

from ..collective.atoms import Mma
from ..collective.cluster import Cluster
from ..collective.epilogue import allocate_staging
from ..collective.epilogue_groups import GroupEpilogue
from ..collective.epilogue_ops import Strided
from ..collective.epilogue_quantize import QuantisedStore
from ..collective.group_producer import GroupProducer, weights_copy
from ..collective.mainloop_promoted import MmaMainloop
from ..collective.ordered_barrier import OrderedSequence
from ..collective.pipeline import Pipeline
from ..collective.tiled import Multicast, TiledMma
from ..collective.warpgroups import mma_threads, producer_warpgroup
from ..config import budget
from ..config.grouped import (
    GroupedConfig,
    GroupLoads,
    GroupOperands,
    GroupScheduling,
    StagedGroups,
    StaticGroups,
    TokensAsRows,
)
from ..config.parts import Cooperative, Direct, Pingpong, Staged, Tile
from ..scheduler.two_kernels import TwoKernelPlan
from .groups import Groups, GroupScales, GroupWork, RowScales, TileScales


@kernel(target="sm_90a", block=lambda config: budget.threads(config["schedule"]),
        cluster=lambda config: config["scheduler"].cluster.size)
def group_gemm(x: TensorMap, w: TensorMap, y: TensorMap, x_tail: TensorMap, groups: Groups, out: Strided, x_scale: Ptr[f32],
               w_scale: GroupScales, out_scale: RowScales, workspace: Ptr[u32], *, operands: GroupOperands = GroupOperands(),
               tokens: TokensAsRows = TokensAsRows(), tile: Tile = Tile(128, 256, 64), stages: int = 3,
               schedule: Cooperative | Pingpong = Cooperative(2), scheduler: GroupScheduling = StaticGroups(),
               store: StagedGroups | Direct = StagedGroups(2), loads: GroupLoads = GroupLoads(), plan: TwoKernelPlan | None = None) -> None:
    """Y [M, N] in tiles of BM tokens x BN features, stages of BK.

    Roles. Warpgroup 0 is the producer: one thread fills the ring with tensor copies. The mma warpgroups multiply and store. Cooperative:
    each has its own m64 blocks of a tile. Pingpong: each has a whole tile. `GroupWork` describes how every role finds its work tiles.

    Arrivals of a phase. full[stage]: 1, the producer's arrive.expect_tx. empty[stage]: one thread of each warpgroup that reads the stage,
    in every CTA that shares an operand with this one. See also `OrderedSequence` and `DynamicScheduler`.

    A group's last tile may also load rows of the next group; stores end with the group and drop them. A warpgroup without rows of the
    group releases the stages without multiplying. Quantised results have a scale for every 128 columns of a row: a CTA works on
    `config.passes` neighbouring tiles to complete 128 columns.
    """
    config = GroupedConfig(operands, tokens, tile, stages, schedule, scheduler, store, loads, plan)
    pingpong, mma_warpgroups = isinstance(schedule, Pingpong), config.warpgroups
    cluster = Cluster(scheduler.cluster.m, scheduler.cluster.n)
    atom = Mma(operands.x, operands.w, tile.BN)
    a_tile, b_tile = (smem.tile(type_, (stages, lines, tile.BK), major=major, name=name)
                      for type_, lines, major, name in ((operands.x, tile.BM, config.a_major, "A"),
                                                        (operands.w, tile.BN, config.b_major, "B")))
    staging = allocate_staging(Staged(config.buffers) if config.staged else None, mma_warpgroups, config.stored_columns, operands.out,
                               "Y staging")
    kept = smem.array(f32, config.kept_bytes // 4, name="kept for the next tile") if config.kept_bytes else None
    pipeline = Pipeline(stages, 1 if pingpong else mma_warpgroups, cluster)
    turns = OrderedSequence.allocate() if pingpong else None
    tiles = GroupWork(config, groups, workspace, 4 * mma_warpgroups)

    thread = mov.u32(tid.x)
    warpgroup = shfl.sync.idx.b32(thread >> 7, 0, 31, 0xFFFFFFFF)           # uniform across the warp, and ptxas can see it
    with if_(thread == 0):
        prefetch_tensormaps(x, w, *([y] if staging is not None and not config.updates_maps else []))
        pipeline.init(*([(turns, OrderedSequence.ARRIVALS)] if turns is not None else []), *tiles.counts)
    tiles.start(thread, lambda: weights_copy(config, w, b_tile, Multicast()))

    with producer_warpgroup(thread, mma_warpgroups), if_(thread < 32), if_(elect()):
        role("producer")
        loading = GroupProducer(config, pipeline, cluster, x, w, x_tail, a_tile, b_tile)
        with tiles.work(draws=True) as work:
            loading.begin(work)
            for number in range(config.passes):
                column = work.n * config.features
                column = column + number * config.stored_columns if number else column
                loading.producer.load(work, work.row, column, b_outer=(work.group,))
        loading.tail()
        tiles.producer_tail()

    with mma_threads(thread, warpgroup, mma_warpgroups, config.m64_blocks, schedule) as mma_thread:
        mma = TiledMma(atom, mma_thread.m64_blocks, mma_thread.first_row)
        epilogue = GroupEpilogue(config, atom, groups.n, out, mma_thread)
        to_y: Any = QuantisedStore.of(epilogue, out_scale.rows, kept) if operands.quantised else epilogue.store(staging, y)
        mainloop = MmaMainloop(config.sums, pipeline, mma, a_tile, b_tile, mma_thread, mma_warpgroups=mma_warpgroups)
        order = OrderedSequence(turns, mma_thread.warpgroup, mma_thread.lane) if turns is not None else None
        scales = TileScales(epilogue, x_scale, w_scale)
        parts = tiles.parts(to_y, mma_thread)
        if pingpong:
            mainloop.position.skip(mma_thread.warpgroup * groups.k_tiles)
        with tiles.work(**({"turn": mma_thread.warpgroup, "turns": 2} if pingpong else {})) as work, span("tile"):
            epilogue.begin(work, groups.lengths)
            if isinstance(to_y, QuantisedStore):
                to_y.scales = out_scale.of(work, operands)
            row, column = work.row, work.n * (tile.BN * config.passes)
            row = mma_thread.tile_row(row)
            scales.begin(work.group)
            column = column // 2 if operands.gated else column
            with if_(row < epilogue.end) if mma_thread.shares_rows else nullcontext():
                for number in range(config.passes):
                    column = column + config.stored_columns if number else column
                    with epilogue.vectors.read(row, column):
                        mainloop.run(work, column, order)
                    if pingpong:
                        mainloop.position.skip(groups.k_tiles)
                    epilogue.turn_to_group(to_y, work, workspace)
                    if parts is not None:
                        parts.tile(mainloop.total, work, row, column)
                    else:
                        to_y.tile(mainloop.total, row, column, config.stored_columns)
            if mma_thread.shares_rows:
                with else_():
                    for _ in range(config.passes):
                        mainloop.skip(work, mma_thread.warpgroup + 1)
        to_y.tail()
        mainloop.tail()


__all__ = ["group_gemm"]
