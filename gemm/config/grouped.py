"""The configuration of a grouped kernel: its compile-time parameters, checked when they are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from math import gcd
from typing import Any, ClassVar

from ptxkit.layout import Major
from ptxkit.smem import SHARED_LIMIT
from ptxkit.types import Scalar

from ..collective.atoms import ROWS
from ..collective.epilogue import BUFFERS
from ..collective.epilogue_quantize import kept_bytes, passes
from ..collective.mainloop_promoted import MIN_UNROLLED_STAGES
from ..collective.scale_factors import bulk_count, copies_per_tile, flat_floats, groups_of
from ..collective.tensormaps import COUNTERS_WORDS, FLAGS_WORDS, workspace_bytes
from ..collective.thread_scales import BLOCK
from ..scheduler.dynamic import ClusterDynamicScheduler, DynamicScheduler
from ..scheduler.fast_divmod import DivmodTable
from ..scheduler.group_table import COUNTED, GroupTable
from ..scheduler.tile_cost import TileCost
from ..scheduler.two_kernels import TwoKernelPlan
from . import budget
from .grouped_parts import (
    CAPACITIES,
    CONTIGUOUS_ROWS,
    MIN_BOX_ROWS,
    DynamicGroups,
    GroupLoads,
    GroupOperands,
    GroupScheduling,
    StagedGroups,
    StaticGroups,
    StreamGroups,
    SwapAB,
    TokensAsRows,
)
from .grouped_words import in_words
from .parts import MAX_STAGES, BlockScaled, ConfigError, Cooperative, Direct, Pingpong, Promoted, ThreadScaled, Tile
from .tiled import TiledConfig

MN_SPAN = 64                # elements of 16 bits in 128 bytes: the columns of MN-major weights that one copy loads
MAX_COLUMN_SCALES = 8
"""The most scales of columns that a thread holds."""


@dataclass(frozen=True, slots=True)
class GroupedConfig(TiledConfig):
    """One specialisation of a grouped kernel (`gemm.kernels`).

    `tile` is the tile of A B, which is X W^T, or with `SwapAB` W X^T. Some fields are derived if they are left out: `tile.BK` 0, `stages`
    0 (the deepest ring that fits next to the group table), the warpgroups of `Cooperative(0)`, `store` None, and the buffers of
    `StagedGroups(0)`. With a `plan` this is the first of two kernels that share the groups, and `second` is the other.
    """

    operands: GroupOperands = GroupOperands()
    tokens: TokensAsRows | SwapAB = TokensAsRows()
    tile: Tile = Tile()
    stages: int = 0
    schedule: Cooperative | Pingpong = Cooperative()
    scheduler: GroupScheduling = StaticGroups()
    store: StagedGroups | Direct | None = None
    loads: GroupLoads = GroupLoads()
    plan: TwoKernelPlan | None = None
    second: GroupedConfig | None = None
    FIXED: ClassVar[tuple[str, ...]] = ("plan", "second")

    def __post_init__(self) -> None:
        self._derive_tile(self.a)
        if self.store is None:
            self._derive(store=StagedGroups() if self._can_stage else Direct())
        if isinstance(self.store, StagedGroups) and self.operands.layout == "ptr_array" and self.store.ends == "ragged":
            self._derive(store=replace(self.store, ends="tensormap"))
        problem = self._ungrouped_problem() or self._tile_problem() or self._operand_problem() or self._scheduler_problem()
        if problem:
            raise ConfigError(problem)
        self._fit()
        problem = self._budget_problem()
        if problem:
            raise ConfigError(problem)

    def _fit(self) -> None:
        """Derive the deepest ring that fits, then the most staging buffers that fit next to it."""
        auto = isinstance(self.store, StagedGroups) and not self.store.buffers
        if isinstance(self.store, StagedGroups) and auto:
            self._derive(store=StagedGroups(BUFFERS, self.store.ends))
        if self.stages:
            if auto and isinstance(self.store, StagedGroups) and budget.promoted(self.sums):
                self._derive(store=StagedGroups(self._most_buffers(), self.store.ends))
            return
        self._derive(stages=budget.deepest_ring(self.tile, self.a, self.b, self._fixed_bytes, self._tile_bytes))
        if auto and isinstance(self.store, StagedGroups) and budget.promoted(self.sums):
            self._derive(store=StagedGroups(self._most_buffers(), self.store.ends))
        fewest, least = (MIN_UNROLLED_STAGES, 1) if budget.promoted_by_halves(self.tile, self.schedule) else (2, BUFFERS)
        most = self.buffers or BUFFERS
        for stages in range(max(self.stages, fewest), fewest - 1, -1):
            for buffers in range(most, min(least, most) - 1, -1):
                self._derive(stages=stages)
                if isinstance(self.store, StagedGroups):
                    self._derive(store=StagedGroups(buffers, self.store.ends))
                if self.shared_bytes <= SHARED_LIMIT:
                    return
        self._derive(stages=1)                  # which is refused

    def _most_buffers(self) -> int:
        boxes = budget.store_boxes(self.tile, self.tile.BN, self.operands.out, self.schedule)
        one = budget.staging_bytes(1, self.tile.BN, self.operands.out, self.schedule)
        return max(BUFFERS, min(boxes, self.buffers + (SHARED_LIMIT - self._tile_bytes(self.stages)) // one))

    # ------------------------------------------------------------------------------------------- what follows from the fields

    @property
    def swap_ab(self) -> bool:
        """Whether tokens are columns of a tile."""
        return isinstance(self.tokens, SwapAB)

    @property
    def a(self) -> type[Scalar]:
        """The element type of A."""
        return self.operands.w if self.swap_ab else self.operands.x

    @property
    def b(self) -> type[Scalar]:
        """The element type of B."""
        return self.operands.x if self.swap_ab else self.operands.w

    @property
    def a_major(self) -> Major:
        """The major of tiles of A."""
        return self.operands.w_major if self.swap_ab else "k"

    @property
    def b_major(self) -> Major:
        """The major of tiles of B."""
        return "k" if self.swap_ab else self.operands.w_major

    @property
    def n_granularity(self) -> int:
        """`SwapAB.n_granularity`: the number of multiplied columns is rounded up to it; 0: all columns are multiplied."""
        return self.tokens.n_granularity if isinstance(self.tokens, SwapAB) else 0

    @property
    def tail_rows(self) -> int:
        """`TokensAsRows.tail_rows`: the rows that a partial box loads at a time; 0: the whole box."""
        return self.tokens.tail_rows if isinstance(self.tokens, TokensAsRows) else 0

    @property
    def box_rows(self) -> int:
        """The rows of X in one box: the rows of a warpgroup, or with `SwapAB` a multiple of n_granularity; 0 without partial boxes."""
        if not self.tokens.partial_boxes:
            return 0
        if isinstance(self.tokens, SwapAB):
            return max(self.tokens.n_granularity, gcd(self.tile.BN, MIN_BOX_ROWS))
        return self.m64_blocks * ROWS

    @property
    def even_rows(self) -> int:
        """A group's tiles share its rows evenly in multiples of this number; 0: all but the last tile are full.

        Example: a group of four m64 blocks has two tiles of 192 rows. Each gets two blocks, instead of three and one.
        """
        if self.n_granularity:
            return self.n_granularity
        three = self._warpgroups_have_rows and self.m64_blocks == 1 and self.tile.BM > 2 * ROWS and self.scheduler.cluster.m == 1
        return ROWS if three and self.operands.layout != "contiguous" else 0

    @property
    def _warpgroups_have_rows(self) -> bool:
        """Whether several warpgroups share the rows of tokens of a tile."""
        return isinstance(self.schedule, Cooperative) and self.warpgroups > 1 and not self.swap_ab

    @property
    def tile_tokens(self) -> int:
        """The rows of X in a tile."""
        return self.tile.BN if self.swap_ab else self.tile.BM

    @property
    def stored_columns(self) -> int:
        """The columns of a stored tile."""
        return self.tile.BN // 2 if self.operands.gated and not self.swap_ab else self.tile.BN

    @property
    def passes(self) -> int:
        """The neighbouring tiles that one CTA computes in turn to complete 128 quantised columns."""
        return passes(self.stored_columns) if self.operands.quantised else 1

    @property
    def features(self) -> int:
        """The columns of Y in a work tile."""
        lines = self.tile.BM if self.swap_ab else self.tile.BN
        lines = lines // 2 if self.operands.gated else lines
        return lines * passes(lines) if self.operands.quantised else lines

    @property
    def dynamic(self) -> bool:
        """Whether the scheduler is dynamic."""
        return isinstance(self.scheduler, DynamicGroups)

    @property
    def staged(self) -> bool:
        """Whether tiles are stored through shared memory."""
        return isinstance(self.store, StagedGroups)

    @property
    def elements(self) -> int:
        """The neighbours that a store writes at a time; 1: rows of Y may begin anywhere, and may have any number of columns."""
        return self.store.elements if isinstance(self.store, Direct) else 2

    @property
    def buffers(self) -> int:
        """The number of staging buffers of a warpgroup."""
        return self.store.buffers if isinstance(self.store, StagedGroups) else 0

    @property
    def updates_maps(self) -> bool:
        """Whether `update_tensormaps` runs before this kernel and makes maps for each group."""
        return self.operands.layout == "ptr_array" or (isinstance(self.store, StagedGroups) and self.store.ends == "tensormap")

    @property
    def counts_itself(self) -> bool:
        """Whether the kernel itself builds the group table, from the lengths of groups in one matrix."""
        return self.operands.layout in COUNTED and not self.updates_maps

    @property
    def needs_workspace(self) -> bool:
        """Whether the kernel needs a workspace in global memory."""
        return self.updates_maps or self.dynamic or self.streams

    @property
    def streams(self) -> bool:
        """Whether CTAs share the K of tiles."""
        return self.sharing > 1

    @property
    def sharing(self) -> int:
        """The most CTAs that share the K of a tile; 1: each has tiles of its own."""
        return self.scheduler.most

    def workspace_bytes(self, ctas: int) -> int:
        """The bytes of the workspace of a launch of so many CTAs. Raises ConfigError where these have more flags than there is room for."""
        if self.streams:
            if ctas * self.warpgroups > FLAGS_WORDS:
                raise ConfigError(f"stream-K has flags for {FLAGS_WORDS} warpgroups, and {ctas} CTAs have {ctas * self.warpgroups}: take "
                                  "StaticGroups() or DynamicGroups()")
            return 4 * (COUNTERS_WORDS + ctas * self.tile.BM * self.tile.BN)
        return workspace_bytes(self.operands.max_groups, self.operands.layout) if self.needs_workspace else 0

    @property
    def cluster(self) -> int:
        """The number of CTAs of a cluster."""
        return self.scheduler.cluster.size

    @property
    def along_tokens(self) -> int:
        """The CTAs of a cluster along the tokens."""
        return self.scheduler.cluster.n if self.swap_ab else self.scheduler.cluster.m

    @property
    def along_weights(self) -> int:
        """The CTAs of a cluster along the weights."""
        return self.scheduler.cluster.m if self.swap_ab else self.scheduler.cluster.n

    @property
    def kernels(self) -> tuple[GroupedConfig, ...]:
        """The kernels that are launched: one, or the two of a plan."""
        return (self,) if self.second is None else (self, self.second)

    @property
    def alone(self) -> GroupedConfig:
        """This kernel without a plan: it computes all groups."""
        return replace(self, plan=None, second=None)

    def or_(self, own: TileCost, second: GroupedConfig, seconds: TileCost, between: int | None = None) -> GroupedConfig:
        """This kernel and a `second` one with a plan: the group lengths on the device decide which kernel computes which groups.

        `own` and `seconds` are the costs of their tiles. `between` is the time that the change of kernels takes on a CTA (None: one kernel
        always computes all groups).
        """
        plan = TwoKernelPlan(own, seconds, between, is_first=True)
        return replace(self, plan=plan, second=replace(second, plan=replace(plan, is_first=False)))

    def cost(self, wave: int) -> TileCost:
        """The cost of this configuration's tiles. A tile, or with n_granularity each step of that many columns, takes the time `wave`."""
        return TileCost(self.tile_tokens, self.features, self.n_granularity or self.tile_tokens, wave)

    def chosen(self, lengths: Sequence[int], n: int, ctas: int) -> GroupedConfig:
        """The kernel that is faster for groups of these lengths and results of `n` columns, if one kernel computes all groups."""
        return self if self.second is None or self.plan is None or self.plan.alone(lengths, n, ctas) else self.second

    def own(self, lengths: Sequence[int], n: int, ctas: int) -> tuple[int, ...]:
        """The lengths of the groups that this kernel computes, and 0 for the others, for results of `n` columns."""
        return tuple(lengths) if self.plan is None else self.plan.own(lengths, n, ctas)

    @property
    def kept_bytes(self) -> int:
        """Shared memory for quantised values that wait for the next tile to complete their 128 columns."""
        if not self.operands.quantised or passes(self.tile.BN // (1 + self.operands.gated)) == 1:
            return 0
        accumulators = budget.accumulator_registers(self.tile, self.schedule)
        return kept_bytes(self.tile, self.m64_blocks, self.warpgroups, accumulators, self.operands.gated)

    @property
    def _fixed_bytes(self) -> int:
        return self._staging_bytes(self.buffers, self.operands.out)

    def _tile_bytes(self, stages: int) -> int:
        """Shared memory of the ring, the staging buffers and their mbarriers."""
        return budget.ring_bytes(stages, self.tile, self.sums, self.a, self.b) + self._fixed_bytes

    @property
    def shared_bytes(self) -> int:
        """Shared memory of one CTA: ring, staging, scales that are loaded for alignment or for a second projection, kept values, group
        table, divmod table, and the slots of a dynamic scheduler."""
        tile, operands, scales = self.tile, self.operands, 0
        if isinstance(self.sums, BlockScaled) and self.sums.load != "warp" and not operands.scales_apart:
            scales += self.stages * copies_per_tile(tile.BM) * 128
        if isinstance(self.sums, BlockScaled) and self.sums.load in ("lines", "bulk") and operands.gated:
            count = bulk_count if self.sums.load == "bulk" else flat_floats
            scales += self.stages * 4 * (count(tile.BN, 2, operands.gate_step) - count(tile.BN))
        table = 0
        if operands.layout != "contiguous":
            table = GroupTable.bytes(operands.max_groups, operands.layout, self.scheduler.longest_first)
        dynamic = ClusterDynamicScheduler.BYTES if self.cluster > 1 else DynamicScheduler.BYTES
        return self._tile_bytes(self.stages) + scales + self.kept_bytes + table + dynamic + DivmodTable.BYTES + 16

    @property
    def parameters(self) -> dict[str, Any]:
        """The kernel's compile-time parameters."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "second"}

    @property
    def update(self) -> dict[str, Any]:
        """The compile-time parameters of `update_tensormaps`."""
        return {"operands": replace(self.operands, gated=False, scaled=False, vectors=""), "TOKENS": self.tile_tokens * self.along_tokens,
                "FEATURES": self.features, "BK": self.tile.BK, "longest_first": self.scheduler.longest_first}

    def __str__(self) -> str:
        return in_words(self)

    # ------------------------------------------------------------------------------------------- what is refused

    @property
    def _can_stage(self) -> bool:
        """Whether results have 16 or 32 bits and the rows of a stored tile are whole 32-byte spans."""
        whole = self.stored_columns * self.operands.out.bits % 256 == 0
        return not self.swap_ab and not self.operands.scatter and self.operands.out.bits > 8 and whole \
            and (not self.operands.gated or self.tile.BN * self.operands.out.bits % 512 == 0)

    def _tile_problem(self) -> str | None:
        """The reason if the tile does not fit the schedule or the tokens."""
        tile, sums, bits = self.tile, self.sums, self.a.bits
        if tile.BK * bits // 8 % budget.STAGE_BYTES:
            return f"BK is a multiple of {budget.STAGE_BYTES * 8 // bits} for {self.a.__name__}, not {tile.BK}"
        if isinstance(self.schedule, Pingpong) and tile.BM > 128:
            return f"pingpong warpgroups have a tile of 64 or 128 rows each, not {tile.BM}"
        if isinstance(self.schedule, Cooperative) and tile.BM % (ROWS * self.warpgroups):
            return f"{self.warpgroups} mma warpgroups cannot share {tile.BM} rows in m64 blocks"
        if budget.promoted(sums) and tile.BK * bits // 8 != budget.STAGE_BYTES:
            return "promotion needs stages of 128 bytes: take BK=0"
        stagger = sums.stagger if isinstance(sums, ThreadScaled) else isinstance(sums, Promoted) and sums.how == "stagger"
        if stagger and self.warpgroups < 2:
            return "staggered promotion needs warpgroups that share a tile: take two warpgroups, or how=\"plain\""
        if self.staged and not self._can_stage:
            return "staged stores need tokens as rows, 16- or 32-bit results and rows of whole 32-byte spans: take Direct"
        for name, extent, by in (("A", tile.BM, self.scheduler.cluster.n), ("B", tile.BN, self.scheduler.cluster.m)):
            if extent % (8 * by):
                return f"{by} CTAs cannot share {name} tiles of {extent} lines in parts of 8: take a smaller cluster"
        lines = tile.BM if self.swap_ab else tile.BN
        if self.operands.w_major == "mn" and lines % MN_SPAN:
            return f"tiles of weights that are contiguous along N have a multiple of {MN_SPAN} features, not {lines}"
        return self._token_problem()

    def _token_problem(self) -> str | None:
        """The reason if `tokens` does not fit the rest."""
        tile, scheduler, layout, pair = self.tile, self.scheduler, self.operands.layout, self.cluster > 1
        listed = self.counts_itself or layout in ("ptr_array", "contiguous")        # a tile's rows end with its group's
        if self.n_granularity:
            if tile.BN % self.n_granularity:
                return f"n_granularity divides BN={tile.BN}, not {self.n_granularity}"
            if not listed or budget.promoted(self.sums) or isinstance(self.schedule, Pingpong) or pair:
                return ("n_granularity needs groups with given lengths and warpgroups that share a tile, without promotion and clusters: "
                        "take n_granularity=0")
        elif self.tokens.partial_boxes:
            apart = scheduler.cluster.n == 1
            if isinstance(self.schedule, Pingpong) or not apart or not (self._warpgroups_have_rows or self.tail_rows):
                return ("partial boxes need groups with given lengths, warpgroups that share a tile, and CTAs that do not share tokens: "
                        "take partial_boxes=False")
            if self.tail_rows and layout == "ptr_array":
                return "ptr_array groups have no second map of X for tail rows: take tail_rows=0"
        return None

    def _operand_problem(self) -> str | None:
        """The reason if the operands do not fit the rest."""
        operands, tile, sums, pingpong = self.operands, self.tile, self.sums, isinstance(self.schedule, Pingpong)
        scaled = isinstance(sums, BlockScaled | ThreadScaled)
        if operands.gated and (self.m64_blocks % 2 if self.swap_ab else tile.BN % 16):
            return "a gated tile has two halves: take BN a multiple of 16, or with SwapAB an even number of m64 blocks per warpgroup"
        if operands.gated and self.cluster > 1 and (ROWS if self.swap_ab else tile.BN // 2) % 16:
            return "two CTAs share each half of a gated tile in parts of 8 lines: take BN a multiple of 32"
        if self.elements == 1 and (self.swap_ab or operands.quantised):
            return "stores of single elements are those of 16 and 32 bits of tokens as rows: take Direct()"
        if operands.quantised and (self.swap_ab or self.stored_columns not in (64, 128, 256) or (self.stored_columns == 64 and pingpong)):
            return ("quantised results need tokens as rows and stored tiles of 64, 128 or 256 columns; with 64 columns, warpgroups that "
                    "share a tile")
        if isinstance(sums, BlockScaled) and (self.swap_ab or (operands.gated and sums.load not in ("lines", "bulk"))):
            return ("block scales in shared memory need tokens as rows, and with a gate load=\"lines\" or \"bulk\": take ThreadScaled")
        parts = groups_of(tile.BN, 2, operands.gate_step) if scaled and operands.gated and not self.swap_ab else 0
        if parts > MAX_COLUMN_SCALES:
            return (f"a thread cannot hold the scales of {parts} parts of {tile.BN} columns: for gates of a multiple of "
                    f"{operands.gate_step} features take a smaller BN")
        if scaled and operands.scaled:
            return "a product has block scales or group scales, not both"
        if scaled and tile.BK != BLOCK:
            return f"block scales need BK={BLOCK}"
        if isinstance(sums, ThreadScaled) and self.swap_ab and tile.BN > 128:
            return f"a thread cannot hold the block scales of {tile.BN} tokens: take BN=128"
        if operands.layout == "contiguous":
            if CONTIGUOUS_ROWS % self.tile_tokens or self.updates_maps:
                return f"contiguous groups need tiles of a divisor of {CONTIGUOUS_ROWS} tokens, and no map for each group"
            if self.cluster > 1 and (self.along_tokens > 1 or not isinstance(self.scheduler, StaticGroups)):
                return ("contiguous groups need clusters whose CTAs share the tokens, since neighbouring blocks may be of two groups, and "
                        "StaticGroups()")
        apart = self.swap_ab or self.tokens.partial_boxes or self.along_weights > 1
        if operands.gathered and (apart or scaled or self.updates_maps or self.plan):
            return ("gathered rows need tokens as rows, without partial boxes, clusters along the weights, block scales, maps of each "
                    "group and a second kernel: take TokensAsRows()")
        if operands.scatter and (self.swap_ab or self.staged or scaled or self.plan):
            return ("rows of results go by number from tokens as rows, by direct stores, without block scales and a second kernel: take "
                    "TokensAsRows() and Direct()")
        if operands.layout == "ptr_array" and (self.cluster > 1 or scaled):
            return "ptr_array groups have no clusters and no block scales"
        return None

    def _scheduler_problem(self) -> str | None:
        """The reason if the scheduler does not fit the rest."""
        scheduler, layout = self.scheduler, self.operands.layout
        if self.loads.l2_prefetch_stages and (self.cluster > 1 or layout not in COUNTED):
            return "prefetched weights need groups with given lengths and no clusters: take l2_prefetch_stages=0"
        if scheduler.longest_first and not (self.counts_itself or layout == "ptr_array"):
            return "longest_first needs a kernel that reads the lengths itself, or ptr_array groups: take longest_first=False"
        if self.streams and (problem := self._stream_problem()):
            return problem
        if layout == "ptr_array" and isinstance(scheduler, StaticGroups) and scheduler.find == "across":
            return "ptr_array groups have no common columns: take find=\"linear\""
        if scheduler.overlap != "start" and (self.operands.gathered or self.plan is not None):
            return "the kernel after gathered rows, or after two kernels of one product, begins at a fixed time: take overlap=\"start\""
        if self.plan is not None and (not self.counts_itself or self.along_tokens > 1 or self.streams):
            return ("two kernels of one product need groups of one matrix with given lengths, no map for each group, no clusters that "
                    "share weights, and no stream-K")
        return None

    def _stream_problem(self) -> str | None:
        """The reason if CTAs cannot share the K of tiles."""
        operands = self.operands
        plain = not (self.swap_ab or operands.gathered or operands.scatter or operands.quantised or budget.promoted(self.sums))
        if not self.counts_itself or not plain or isinstance(self.schedule, Pingpong) or self.loads.l2_prefetch_stages:
            return ("stream-K needs groups of one matrix with given lengths and no map for each group, tokens as rows, warpgroups that "
                    "share a tile, sums in the tensor cores, and neither numbered rows, quantised results nor prefetched weights: take "
                    "StaticGroups() or DynamicGroups()")
        return None

    def _budget_problem(self) -> str | None:
        """The reason if an SM does not have enough shared memory or registers."""
        if self.staged and (problem := budget.buffers_problem(self.buffers, self.schedule)):
            return problem
        if not 2 <= self.stages <= MAX_STAGES:
            return f"a ring has 2 to {MAX_STAGES} stages, not {self.stages}: take a smaller tile"
        if problem := self._promotion_problem():
            return problem
        if self.shared_bytes > SHARED_LIMIT:
            return (f"{self.stages} stages of {budget.stage_bytes(self.tile, self.a, self.b):,} bytes and the table of "
                    f"{self.operands.max_groups} groups take more than {SHARED_LIMIT:,} bytes")
        return budget.register_problem(self.tile, self.schedule)


__all__ = [
    "CAPACITIES",
    "CONTIGUOUS_ROWS",
    "MAX_COLUMN_SCALES",
    "DynamicGroups",
    "GroupLoads",
    "GroupOperands",
    "GroupScheduling",
    "GroupedConfig",
    "StagedGroups",
    "StaticGroups",
    "StreamGroups",
    "SwapAB",
    "TokensAsRows",
]
