"""A grouped product whose rows go to rows of Y by number: Y[numbers[start:end]] = X[start:end] W[group]^T for every group, or += that."""

from __future__ import annotations

from contextlib import nullcontext

from ptxkit import Ptr, TensorMap, if_, kernel, role, smem, span, tid
from ptxkit.flow import else_
from ptxkit.idioms import elect, prefetch_tensormaps
from ptxkit.ptx import mov, shfl
from ptxkit.types import f32, u32

from ..collective.atoms import Mma
from ..collective.cluster import Cluster
from ..collective.epilogue_groups import GroupEpilogue
from ..collective.epilogue_ops import Strided
from ..collective.group_producer import GroupProducer, weights_copy
from ..collective.mainloop_promoted import MmaMainloop
from ..collective.ordered_barrier import OrderedSequence
from ..collective.pipeline import Pipeline
from ..collective.scatter import Scattered, ScatteredStore
from ..collective.tiled import Multicast, TiledMma
from ..collective.warpgroups import mma_threads, producer_warpgroup
from ..config import budget
from ..config.grouped import (
    DynamicGroups,
    GroupedConfig,
    GroupLoads,
    GroupOperands,
    StaticGroups,
    TokensAsRows,
)
from ..config.parts import Cooperative, Direct, Pingpong, Tile
from .groups import Groups, GroupScales, GroupWork, TileScales


@kernel(target="sm_90a", block=lambda config: budget.threads(config["schedule"]),
        cluster=lambda config: config["scheduler"].cluster.size)
def group_gemm_scattered(x: TensorMap, w: TensorMap, x_tail: TensorMap, groups: Groups, out: Strided, scatter: Scattered, x_scale: Ptr[f32],
                         w_scale: GroupScales, workspace: Ptr[u32], *, operands: GroupOperands = GroupOperands(scatter="rows"),
                         tokens: TokensAsRows = TokensAsRows(), tile: Tile = Tile(128, 256, 64), stages: int = 3,
                         schedule: Cooperative | Pingpong = Cooperative(2), scheduler: StaticGroups | DynamicGroups = StaticGroups(),
                         store: Direct = Direct(), loads: GroupLoads = GroupLoads(), plan: None = None) -> None:
    """X W^T in tiles of BM tokens x BN features, stages of BK.

    Roles, arrivals and rows past a group's end are as in `group_gemm`. Rows are stored directly from the registers, or added by atomic
    additions; see `ScatteredStore`.
    """
    config = GroupedConfig(operands, tokens, tile, stages, schedule, scheduler, store, loads, plan)
    pingpong, mma_warpgroups = isinstance(schedule, Pingpong), config.warpgroups
    cluster = Cluster(scheduler.cluster.m, scheduler.cluster.n)
    atom = Mma(operands.x, operands.w, tile.BN)
    a_tile, b_tile = (smem.tile(type_, (stages, lines, tile.BK), major=major, name=name)
                      for type_, lines, major, name in ((operands.x, tile.BM, config.a_major, "A"),
                                                        (operands.w, tile.BN, config.b_major, "B")))
    pipeline = Pipeline(stages, 1 if pingpong else mma_warpgroups, cluster)
    turns = OrderedSequence.allocate() if pingpong else None
    tiles = GroupWork(config, groups, workspace, 4 * mma_warpgroups)

    thread = mov.u32(tid.x)
    warpgroup = shfl.sync.idx.b32(thread >> 7, 0, 31, 0xFFFFFFFF)           # uniform across the warp, and ptxas can see it
    with if_(thread == 0):
        prefetch_tensormaps(x, w)
        pipeline.init(*([(turns, OrderedSequence.ARRIVALS)] if turns is not None else []), *tiles.counts)
    tiles.start(thread, lambda: weights_copy(config, w, b_tile, Multicast()))

    with producer_warpgroup(thread, mma_warpgroups), if_(thread < 32), if_(elect()):
        role("producer")
        loading = GroupProducer(config, pipeline, cluster, x, w, x_tail, a_tile, b_tile)
        with tiles.work(draws=True) as work:
            loading.begin(work)
            loading.producer.load(work, work.row, work.n * config.features, b_outer=(work.group,))
        loading.tail()

    with mma_threads(thread, warpgroup, mma_warpgroups, config.m64_blocks, schedule) as mma_thread:
        mma = TiledMma(atom, mma_thread.m64_blocks, mma_thread.first_row)
        epilogue = GroupEpilogue(config, atom, groups.n, out, mma_thread)
        to_y = ScatteredStore(epilogue.matrix, epilogue.fused, scatter, add=operands.scatter == "add")
        mainloop = MmaMainloop(config.sums, pipeline, mma, a_tile, b_tile, mma_thread, mma_warpgroups=mma_warpgroups)
        order = OrderedSequence(turns, mma_thread.warpgroup, mma_thread.lane) if turns is not None else None
        scales = TileScales(epilogue, x_scale, w_scale)
        if pingpong:
            mainloop.position.skip(mma_thread.warpgroup * groups.k_tiles)
        with tiles.work(**({"turn": mma_thread.warpgroup, "turns": 2} if pingpong else {})) as work, span("tile"):
            epilogue.begin(work, groups.lengths)
            row, column = mma_thread.tile_row(work.row), work.n * config.features
            scales.begin(work.group)
            with if_(row < epilogue.end) if mma_thread.shares_rows else nullcontext():
                with epilogue.vectors.read(row, column):
                    mainloop.run(work, column, order)
                if pingpong:
                    mainloop.position.skip(groups.k_tiles)
                to_y.tile(mainloop.total, row, column, config.stored_columns)
            if mma_thread.shares_rows:
                with else_():
                    mainloop.skip(work, mma_thread.warpgroup + 1)
        to_y.tail()
        mainloop.tail()


__all__ = ["group_gemm_scattered"]
