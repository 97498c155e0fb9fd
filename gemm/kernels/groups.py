"""The group parameters of every grouped kernel, and their common part: from the group lengths to a loop over work tiles."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from ptxkit import Ptr, Reg, if_
from ptxkit.idioms import cluster_start
from ptxkit.ptx import bar, griddepcontrol, ld, mov, mul, ret, sub
from ptxkit.types import f32, u32

from ..collective.atoms import ROWS
from ..collective.epilogue_groups import GroupEpilogue
from ..collective.pipeline import Counts
from ..collective.stream_k import RunReduction, StreamKStore, TileStore
from ..collective.tensormaps import COUNTER_WORDS, COUNTERS_WORDS
from ..collective.thread_scales import ScaleArray
from ..collective.tiled import TiledCopy
from ..collective.warpgroups import MmaThread
from ..config.grouped import DynamicGroups, GroupedConfig, GroupOperands, StaticGroups
from ..scheduler.dynamic import ClusterDynamicScheduler, DynamicScheduler
from ..scheduler.fast_divmod import DivmodTable
from ..scheduler.group_table import GroupTable
from ..scheduler.grouped import GroupScheduler, GroupWorkTile
from ..scheduler.persistent import PersistentLoop
from ..scheduler.tile_order import TileOrder
from .shape import PREFETCHING_THREAD, prefetch_stages

TABLE_WARP, DIVMOD_WARP = 1, 3      # and warp 2 prefetches: different warps, so that their work before the start overlaps


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of a product.

    `lengths` depends on the layout: offsets, numbers of used rows, the group of each row, or M, N and K of each group. `rows` is the
    number of rows of X, `pitch` the rows from one "masked" group to the next, `n` the number of columns of Y. `weight_tiles` is the number
    of work tiles along the weights, `k_tiles` the number of stages along K, and `weights_divmod` the inverse of `weight_tiles` in cluster
    tiles.
    """

    lengths: Ptr[u32]
    count: Reg[u32]
    rows: Reg[u32]
    pitch: Reg[u32]
    n: Reg[u32]
    weight_tiles: Reg[u32]
    k_tiles: Reg[u32]
    weights_divmod: Reg[u32]


@dataclass(frozen=True, slots=True)
class RowScales:
    """The block scales of rows of X, or of Y. Strides are in elements; `group_stride` is that of masked groups whose scales lie apart."""

    pointer: Ptr[f32]
    mn_stride: Reg[u32]
    k_stride: Reg[u32]
    group_stride: Reg[u32]

    @property
    def rows(self) -> ScaleArray:
        """The scales, where those of a group follow those of the group before as their rows do."""
        return ScaleArray(self.pointer, self.mn_stride, self.k_stride)

    def of(self, work: GroupWorkTile, operands: GroupOperands) -> ScaleArray:
        """The scales of a work tile's group, as an array whose index is the row of X."""
        if not operands.scales_apart:
            return self.rows
        return self.rows.at(sub.u64(mul.wide.u32(work.group, self.group_stride), mul.wide.u32(work.start, self.mn_stride)))


@dataclass(frozen=True, slots=True)
class GroupScales:
    """The scales of the weights: one for each group, or for each feature or block of a group. Strides are in elements."""

    pointer: Ptr[f32]
    group_stride: Reg[u32]
    mn_stride: Reg[u32]
    k_stride: Reg[u32]

    @property
    def blocks(self) -> ScaleArray:
        """The block scales of the first group."""
        return ScaleArray(self.pointer, self.mn_stride, self.k_stride)

    def of_blocks(self, group: Reg[u32]) -> ScaleArray:
        """The block scales of a group."""
        return self.blocks.at(mul.wide.u32(group, self.group_stride))

    def of(self, group: Reg[u32]) -> Reg[f32]:
        """The scale of a group."""
        return ld.global_.f32(self.pointer.at(mul.wide.u32(group, self.group_stride)))


class TileScales:
    """The scales of X and of the weights that the epilogue of a tile multiplies by.

    One of X and one of each group are a factor of all sums. Those of rows of X or of features of a group are vectors, and so are weights of
    rows, which come without other scales.
    """

    def __init__(self, epilogue: GroupEpilogue, x: Ptr[f32], w: GroupScales) -> None:
        operands = epilogue.config.operands
        self.epilogue, self.w, self.scaled = epilogue, w, operands.scaled
        self.weighted = operands.vectors == "weight"
        self.rows, self.features = self.weighted or "row" in operands.vectors, "column" in operands.vectors
        self.x = ld.global_.f32(x) if self.scaled and not self.rows else epilogue.factor
        if self.features and not self.rows:
            mov.f32(epilogue.factor, self.x)
        if self.rows:
            self._set(x, of_weights=False)

    def begin(self, group: Reg[u32]) -> None:
        """Begin a tile of this group."""
        if self.features:
            self._set(self.w.pointer.at(mul.wide.u32(group, self.w.group_stride)), of_weights=True)
        elif self.rows and not self.weighted:
            mov.f32(self.epilogue.factor, self.w.of(group))
        elif self.scaled and not self.weighted:
            mul.rn.f32(self.epilogue.factor, self.x, self.w.of(group))

    def _set(self, scales: Ptr[f32], *, of_weights: bool) -> None:
        vectors = self.epilogue.vectors
        if of_weights == self.epilogue.config.swap_ab:
            vectors.rows = scales
        else:
            vectors.columns = scales


class GroupWork:
    """The work tiles of all groups.

    Warp 1 reads the group lengths and builds the group table in shared memory. Every role finds its work tiles in it by itself. Warp 3
    computes the inverses of small divisors; `Groups.weights_divmod` comes from the host.

    As in a dense kernel, griddepcontrol.wait precedes the first access to global memory. The exception: a CTA prefetches the first stages
    of weights into the L2, for the tile that it begins with if every group has one tile of tokens.

    With a plan, some or all groups belong to another kernel with another tile. Kernel 2 waits only before it exits: its inputs are
    already visible, and the kernels write disjoint rows. Its CTAs therefore start as CTAs of kernel 1 run out of work. Waiting for
    kernel 2 is waiting for both. It lets nothing begin before it has ended (see `combine`), and neither does a product of gathered rows:
    the product after it, whose static schedule suffers, is the other one of a layer of experts.
    """

    def __init__(self, config: GroupedConfig, groups: Groups, workspace: Ptr[u32], readers: int) -> None:
        """Allocate the group table, and the slots of a dynamic scheduler, which `readers` warps read."""
        self.config, self.groups, self.workspace = config, groups, workspace
        self.is_second = config.plan is not None and not config.plan.is_first
        layout, capacity, scheduler = config.operands.layout, config.operands.max_groups, config.scheduler
        self.table = GroupTable(capacity, layout, scheduler.longest_first) if layout != "contiguous" else None
        self.dynamic: DynamicScheduler | None = None
        if isinstance(scheduler, DynamicGroups):
            counter = workspace + COUNTER_WORDS if self.is_second else workspace
            self.dynamic = DynamicScheduler(counter, readers, scheduler.from_tail) if config.cluster == 1 else \
                ClusterDynamicScheduler(counter, readers, scheduler.from_tail, size=config.cluster)

    @property
    def counts(self) -> tuple[Counts, ...]:
        """The mbarriers of a dynamic scheduler and their arrival counts."""
        return self.dynamic.counts if self.dynamic is not None else ()

    def start(self, thread: Reg[u32], weights: Callable[[], TiledCopy]) -> None:
        """In all threads: build the table and start. `weights` makes the copy that prefetches weights."""
        config, groups, scheduler = self.config, self.groups, self.config.scheduler
        divmods = DivmodTable()
        find = scheduler.find if isinstance(scheduler, StaticGroups) else "dynamic" if config.dynamic else "search"
        self.scheduler = GroupScheduler(TileOrder(scheduler.order, scheduler.cluster), PersistentLoop(config.cluster > 1, self.dynamic),
                                        find, config.tile_tokens, divmods, groups.weights_divmod, config.swap_ab, config.even_rows,
                                        config.sharing)
        with if_((thread >> 5) == DIVMOD_WARP):
            divmods.make(thread & 31)
        if config.loads.l2_prefetch_stages:
            with if_(thread == PREFETCHING_THREAD):
                group, weight_tile = self.scheduler.expected(groups.count, groups.weight_tiles)
                line, features = weight_tile * config.features, config.features
                prefetch_stages(weights(), line, features, groups.n, config.loads.l2_prefetch_stages, groups.k_tiles, 0, group)
        if not self.is_second:
            griddepcontrol.wait()
            if not config.operands.gathered and scheduler.overlap == "start":
                griddepcontrol.launch_dependents()
        if self.table is not None:
            with if_((thread >> 5) == TABLE_WARP):
                self._make_table(self.table, thread & 31)
        if config.cluster > 1:
            cluster_start(own=True)
        else:
            bar.sync(0)
        if self.table is not None and config.plan is not None:
            no_tiles = ld.shared__cta.u32(self.table.tiles_before.at(config.operands.max_groups)) == 0
            if self.is_second:
                with if_(no_tiles):
                    griddepcontrol.wait()
            ret(pred=no_tiles)

    def _make_table(self, table: GroupTable, lane: Reg[u32]) -> None:
        config, groups = self.config, self.groups
        if config.updates_maps:
            table.load(self.workspace + COUNTERS_WORDS, lane)
            return
        along = config.tile_tokens * config.along_tokens
        table.scan(groups.lengths, groups.count, groups.rows, along, config.operands.layout, groups.pitch, plan=config.plan, n=groups.n)

    def work(self, **role: Any) -> AbstractContextManager[GroupWorkTile]:
        """The loop over this CTA's work tiles in one role. See `GroupScheduler.work`."""
        groups = self.groups
        if self.table is None:
            return self.scheduler.contiguous_work(groups.lengths, groups.rows, groups.weight_tiles, groups.k_tiles,
                                                  leaves_out=self.config.tokens.partial_boxes, **role)
        return self.scheduler.work(self.table, groups.weight_tiles, groups.k_tiles, **role)

    def parts(self, store: TileStore, mma_thread: MmaThread) -> StreamKStore | None:
        """What stores tiles whose K several CTAs share; None if there are none."""
        config = self.config
        if not config.streams:
            return None
        sums, flags = (self.workspace + COUNTERS_WORDS).cast(f32), self.workspace + 2 * COUNTER_WORDS
        runs = RunReduction(sums, flags, config.tile.BM // ROWS, config.tile.BN // 8, config.warpgroups)
        return StreamKStore(runs, store, mma_thread, config.stored_columns)

    def producer_tail(self) -> None:
        """Before the producer exits: kernel 2 waits for kernel 1."""
        if self.is_second:
            griddepcontrol.wait()


__all__ = ["GroupScales", "GroupWork", "Groups", "RowScales", "TileScales"]
