"""A grouped product over arrays of pointers: each group has its own matrices and its own M, N and K."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from ptxkit import Ptr, TensorMap, if_, kernel, role, smem, span, tid
from ptxkit.flow import else_
from ptxkit.idioms import elect
from ptxkit.ptx import add, mov, shfl
from ptxkit.types import f32, u32

from ..collective.atoms import Mma
from ..collective.cluster import Cluster
from ..collective.epilogue import allocate_staging
from ..collective.epilogue_groups import GroupEpilogue, UpdatedStore
from ..collective.epilogue_ops import Strided
from ..collective.group_producer import GroupProducer, weights_copy
from ..collective.mainloop_promoted import MmaMainloop
from ..collective.ordered_barrier import OrderedSequence
from ..collective.pipeline import Pipeline
from ..collective.tensormaps import acquire, map_of, maps_of
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
    SwapAB,
    TokensAsRows,
)
from ..config.parts import Cooperative, Direct, Pingpong, Staged, Tile
from ..scheduler.two_kernels import TwoKernelPlan
from .groups import Groups, GroupScales, GroupWork, TileScales


@kernel(target="sm_90a", block=lambda config: budget.threads(config["schedule"]))
def group_gemm_ptr_array(x: TensorMap, w: TensorMap, y: TensorMap, groups: Groups, out: Strided, x_scale: Ptr[f32], w_scale: GroupScales,
                         workspace: Ptr[u32], *, operands: GroupOperands = GroupOperands(layout="ptr_array"),
                         tokens: TokensAsRows | SwapAB = TokensAsRows(), tile: Tile = Tile(128, 256, 64), stages: int = 3,
                         schedule: Cooperative | Pingpong = Cooperative(2), scheduler: StaticGroups | DynamicGroups = StaticGroups(),
                         store: StagedGroups | Direct = StagedGroups(2, "tensormap"), loads: GroupLoads = GroupLoads(),
                         plan: TwoKernelPlan | None = None) -> None:
    """Y_g = X_g W_g^T for every group, in tiles of BM x BN, stages of BK.

    Roles and arrivals are as in `group_gemm`. `update_tensormaps` runs before this kernel and writes each group's maps and the group table
    to `workspace`. A thread that copies through a map acquires it when it starts another group. Stores without a map read the address of
    the group's Y from `out` and its number of columns from `groups.lengths`. The tensor maps among the parameters are only templates: this
    kernel does not read them.
    """
    config = GroupedConfig(operands, tokens, tile, stages, schedule, scheduler, store, loads, plan)
    pingpong, mma_warpgroups = isinstance(schedule, Pingpong), config.warpgroups
    cluster, layout = Cluster(), operands.layout
    atom = Mma(config.a, config.b, tile.BN)
    a_tile, b_tile = (smem.tile(type_, (stages, lines, tile.BK), name=name)
                      for type_, lines, name in ((config.a, tile.BM, "A"), (config.b, tile.BN, "B")))
    staging = allocate_staging(Staged(config.buffers) if config.staged else None, mma_warpgroups, tile.BN, operands.out, "Y staging")
    pipeline = Pipeline(stages, 1 if pingpong else mma_warpgroups, cluster)
    turns = OrderedSequence.allocate() if pingpong else None
    tiles = GroupWork(config, groups, workspace, 4 * mma_warpgroups)

    thread = mov.u32(tid.x)
    warpgroup = shfl.sync.idx.b32(thread >> 7, 0, 31, 0xFFFFFFFF)           # uniform across the warp, and ptxas can see it
    with if_(thread == 0):
        pipeline.init(*([(turns, OrderedSequence.ARRIVALS)] if turns is not None else []), *tiles.counts)
    tiles.start(thread, lambda: weights_copy(config, w, b_tile, Multicast()))

    with producer_warpgroup(thread, mma_warpgroups), if_(thread < 32), if_(elect()):
        role("producer")
        loading = GroupProducer(config, pipeline, cluster, _no_map, _no_map, x, a_tile, b_tile)
        last = mov.u32(0xFFFF_FFFF)
        with tiles.work(draws=True) as work:
            loading.begin(work)
            for which, map_ in enumerate((loading.x, loading.w)):
                place = map_of(workspace, operands.max_groups, layout, work.group, which)
                acquire(place, pred=work.group != last)
                mov.u64(map_.reg, add.u64(place.reg, place.offset))
            mov.u32(last, work.group)
            loading.producer.load(work, *((work.m * config.features, work.row) if config.swap_ab else (work.row, work.n * tile.BN)))
        loading.tail()
        tiles.producer_tail()

    with mma_threads(thread, warpgroup, mma_warpgroups, config.m64_blocks, schedule) as mma_thread:
        mma = TiledMma(atom, mma_thread.m64_blocks, mma_thread.first_row)
        epilogue = GroupEpilogue(config, atom, groups.n, out, mma_thread)
        to_y: Any = epilogue.swap_ab_store() if config.swap_ab else epilogue.store(staging, y)
        mainloop = MmaMainloop(config.sums, pipeline, mma, a_tile, b_tile, mma_thread, mma_warpgroups=mma_warpgroups)
        order = OrderedSequence(turns, mma_thread.warpgroup, mma_thread.lane) if turns is not None else None
        scales = TileScales(epilogue, x_scale, w_scale)
        has_rows = mma_thread.shares_rows and not config.swap_ab          # each warpgroup has its own rows of a tile
        turn = {"turn": mma_thread.warpgroup, "turns": 2, "skip": mainloop.position.skip} if pingpong else {}
        with tiles.work(**turn) as work, span("tile"):
            epilogue.begin(work, groups.lengths)
            row, column = (work.m * tile.BM, work.row) if config.swap_ab else (work.row, work.n * tile.BN)
            row = mma_thread.tile_row(row)
            scales.begin(work.group)
            with if_(row < epilogue.end) if has_rows else nullcontext():
                if config.n_granularity:
                    mainloop.loop.multiply_columns(mainloop.total, work.stages, work.until - work.row, config.n_granularity)
                else:
                    mainloop.run(work, column, order)
                if isinstance(to_y, UpdatedStore):
                    to_y.turn_to(work.group, map_of(workspace, operands.max_groups, layout, work.group, maps_of(layout) - 1), work.start)
                to_y.tile(mainloop.total, row, column, tile.BN)
            if has_rows:
                with else_():
                    mainloop.skip(work, mma_thread.warpgroup + 1)
        to_y.tail()
        mainloop.tail()


def _no_map() -> Ptr[u32]:
    """A register for the address of a map that is not known yet."""
    return Ptr(mov.u64(0), u32)


__all__ = ["group_gemm_ptr_array"]
