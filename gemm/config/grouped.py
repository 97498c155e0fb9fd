"""The configuration of a grouped product: what its kernel is specialised to, checked where it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import gcd
from typing import Any

from ptxkit.dsl.values import changed
from ptxkit.smem import SHARED_LIMIT
from ptxkit.types import Scalar

from ..collective.atoms import ROWS
from ..collective.epilogue import BUFFERS
from ..collective.epilogue_quantize import kept_bytes, passes
from ..collective.mainloop_promoted import UNROLLED
from ..collective.scale_factors import bulk_count, parts_of
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
    LEAST_BOX,
    DynamicGroups,
    GroupLoads,
    GroupOperands,
    StagedGroups,
    StaticGroups,
    SwapAB,
    TokensAsRows,
)
from .parts import L2_FETCH, MAX_STAGES, BlockScaled, ConfigError, Cooperative, Direct, Pingpong, Promoted, Sums, ThreadScaled, Tile


@dataclass(frozen=True, slots=True)
class GroupedConfig:
    """One specialisation of a grouped kernel (`gemm.kernels`).

    `tile` is that of A B: X W^T, or of swapped operands W X^T. Some fields are derived where they are left out: `tile.BK` 0, `stages` 0
    (the deepest ring that shared memory holds next to the table of groups), the warpgroups of `Cooperative(0)`, `store` None, and the
    buffers of `StagedGroups(0)`. With a `plan` this is the first of two kernels that share the groups, and `second` the other.
    """

    operands: GroupOperands = GroupOperands()
    tokens: TokensAsRows | SwapAB = TokensAsRows()
    tile: Tile = Tile()
    stages: int = 0
    schedule: Cooperative | Pingpong = Cooperative()
    scheduler: StaticGroups | DynamicGroups = StaticGroups()
    store: StagedGroups | Direct | None = None
    loads: GroupLoads = GroupLoads()
    plan: TwoKernelPlan | None = None
    second: GroupedConfig | None = None

    def __post_init__(self) -> None:
        self._derive(tile=replace(self.tile, BK=self.tile.BK or budget.STAGE_BYTES * 8 // self.a.bits))
        if isinstance(self.schedule, Cooperative) and not self.schedule.warpgroups:
            self._derive(schedule=replace(self.schedule, warpgroups=budget.default_warpgroups(self.tile.BM)))
        if self.store is None:
            self._derive(store=StagedGroups() if self._can_stage else Direct())
        if isinstance(self.store, StagedGroups) and self.operands.layout == "ptr_array" and self.store.ends == "ragged":
            self._derive(store=replace(self.store, ends="tensormap"))
        problem = self._tile_problem() or self._operand_problem() or self._scheduler_problem()
        if problem:
            raise ConfigError(problem)
        self._fit()
        problem = self._budget_problem()
        if problem:
            raise ConfigError(problem)

    def _derive(self, **found: Any) -> None:
        for name, value in found.items():
            object.__setattr__(self, name, value)

    def _fit(self) -> None:
        """The deepest ring that fits, and then as many staging buffers."""
        auto = isinstance(self.store, StagedGroups) and not self.store.buffers
        if isinstance(self.store, StagedGroups) and auto:
            self._derive(store=replace(self.store, buffers=BUFFERS))
        if self.stages:
            if auto and isinstance(self.store, StagedGroups) and budget.promoted(self.sums):
                self._derive(store=replace(self.store, buffers=self._most_buffers()))
            return
        self._derive(stages=budget.deepest_ring(self.tile, self.a, self.b, self._fixed_bytes, self._tile_bytes))
        if auto and isinstance(self.store, StagedGroups) and budget.promoted(self.sums):
            self._derive(store=replace(self.store, buffers=self._most_buffers()))
        fewest, least = (UNROLLED, 1) if budget.promoted_by_halves(self.tile, self.schedule) else (2, BUFFERS)
        most = self.buffers or BUFFERS
        for stages in range(self.stages, fewest - 1, -1):
            for buffers in range(most, min(least, most) - 1, -1):
                self._derive(stages=stages)
                if isinstance(self.store, StagedGroups):
                    self._derive(store=replace(self.store, buffers=buffers))
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
        """Whether the tokens are columns of a tile."""
        return isinstance(self.tokens, SwapAB)

    @property
    def a(self) -> type[Scalar]:
        """The type of the tile's rows."""
        return self.operands.w if self.swap_ab else self.operands.x

    @property
    def b(self) -> type[Scalar]:
        """The type of the tile's columns."""
        return self.operands.x if self.swap_ab else self.operands.w

    @property
    def sums(self) -> Sums:
        """Where the sums along K are accumulated."""
        return budget.sums_of(self.schedule)

    @property
    def warpgroups(self) -> int:
        """The mma warpgroups."""
        return budget.warpgroups_of(self.schedule)

    @property
    def m64_blocks(self) -> int:
        """m64 blocks of a tile that one mma warpgroup multiplies."""
        return budget.m64_blocks(self.tile, self.schedule)

    @property
    def n_granularity(self) -> int:
        """The tokens to which the columns that a swapped tile multiplies are rounded up; 0: all are multiplied."""
        return self.tokens.n_granularity if isinstance(self.tokens, SwapAB) else 0

    @property
    def tail_rows(self) -> int:
        """Rows at a time that are loaded of a partial box; 0: the whole box."""
        return self.tokens.tail_rows if isinstance(self.tokens, TokensAsRows) else 0

    @property
    def box_rows(self) -> int:
        """Rows of X that one copy of partial boxes loads: those of a warpgroup, or a multiple of n_granularity; 0 without partial boxes."""
        if not self.tokens.partial_boxes:
            return 0
        if isinstance(self.tokens, SwapAB):
            return max(self.tokens.n_granularity, gcd(self.tile.BN, LEAST_BOX))
        return self.m64_blocks * ROWS

    @property
    def even_rows(self) -> int:
        """The rows by which a group's tiles share its rows evenly, or 0. Two tiles of three warpgroups then have two each of four m64
        blocks."""
        if self.n_granularity:
            return self.n_granularity
        of_three = self._warpgroups_have_rows and self.m64_blocks == 1 and self.tile.BM > 2 * ROWS and self.scheduler.cluster.m == 1
        return ROWS if of_three and self.operands.layout != "contiguous" else 0

    @property
    def _warpgroups_have_rows(self) -> bool:
        """Whether each of several warpgroups has rows of its own in a tile."""
        return isinstance(self.schedule, Cooperative) and self.warpgroups > 1 and not self.swap_ab

    @property
    def tile_tokens(self) -> int:
        """Rows of X in a tile."""
        return self.tile.BN if self.swap_ab else self.tile.BM

    @property
    def stored_columns(self) -> int:
        """Columns of a stored tile."""
        return self.tile.BN // 2 if self.operands.gated and not self.swap_ab else self.tile.BN

    @property
    def passes(self) -> int:
        """Tiles next to each other that one CTA works on in turn: those that make up 128 quantised columns."""
        return passes(self.stored_columns) if self.operands.quantised else 1

    @property
    def features(self) -> int:
        """Columns of Y in a work tile."""
        lines = self.tile.BM if self.swap_ab else self.tile.BN
        lines = lines // 2 if self.operands.gated else lines
        return lines * passes(lines) if self.operands.quantised else lines

    @property
    def dynamic(self) -> bool:
        """Whether work tiles are taken from a counter."""
        return isinstance(self.scheduler, DynamicGroups)

    @property
    def staged(self) -> bool:
        """Whether tiles go through shared memory to Y."""
        return isinstance(self.store, StagedGroups)

    @property
    def buffers(self) -> int:
        """Staging buffers of a warpgroup."""
        return self.store.buffers if isinstance(self.store, StagedGroups) else 0

    @property
    def updates_maps(self) -> bool:
        """Whether a kernel before this one makes maps for each group."""
        return self.operands.layout == "ptr_array" or (isinstance(self.store, StagedGroups) and self.store.ends == "tensormap")

    @property
    def counts_itself(self) -> bool:
        """Whether the kernel itself makes the table of groups, which are rows of one matrix."""
        return self.operands.layout in COUNTED and not self.updates_maps

    @property
    def needs_workspace(self) -> bool:
        """Whether the kernel uses global memory of its own."""
        return self.updates_maps or self.dynamic

    @property
    def cluster(self) -> int:
        """CTAs of a cluster."""
        return self.scheduler.cluster.size

    @property
    def along_tokens(self) -> int:
        """CTAs of a cluster next to each other along the tokens."""
        return self.scheduler.cluster.n if self.swap_ab else self.scheduler.cluster.m

    @property
    def along_weights(self) -> int:
        """CTAs of a cluster next to each other along the weights."""
        return self.scheduler.cluster.m if self.swap_ab else self.scheduler.cluster.n

    @property
    def kernels(self) -> tuple[GroupedConfig, ...]:
        """What is launched: one kernel, or two, of which one has all groups or each some."""
        return (self,) if self.second is None else (self, self.second)

    @property
    def alone(self) -> GroupedConfig:
        """This kernel, which works whatever the lengths."""
        return replace(self, plan=None, second=None)

    def or_(self, own: TileCost, second: GroupedConfig, seconds: TileCost, between: int | None = None) -> GroupedConfig:
        """This configuration or another, by the lengths, or each for some groups: given what their tiles cost, and a CTA's way from one
        kernel to the other (None: all groups are the same one's)."""
        plan = TwoKernelPlan(own, seconds, between, is_first=True)
        return replace(self, plan=plan, second=replace(second, plan=replace(plan, is_first=False)))

    def cost(self, wave: int) -> TileCost:
        """The cost of this configuration's tiles, which take `wave`, or so long for each n_granularity."""
        return TileCost(self.tile_tokens, self.features, self.n_granularity or self.tile_tokens, wave)

    def chosen(self, lengths: Sequence[int], n: int, ctas: int) -> GroupedConfig:
        """The kernel that takes less time for groups of these lengths and results of `n` columns, if only one of them works."""
        return self if self.second is None or self.plan is None or self.plan.alone(lengths, n, ctas) else self.second

    def own(self, lengths: Sequence[int], n: int, ctas: int) -> tuple[int, ...]:
        """The lengths of the groups on which this kernel works, and 0 for others, for results of `n` columns."""
        return tuple(lengths) if self.plan is None else self.plan.own(lengths, n, ctas)

    @property
    def kept_bytes(self) -> int:
        """Shared memory for quantised values that are kept until the next tile completes their 128 columns."""
        if not self.operands.quantised or passes(self.tile.BN // (1 + self.operands.gated)) == 1:
            return 0
        accumulators = budget.accumulator_registers(self.tile, self.schedule)
        return kept_bytes(self.tile, self.m64_blocks, self.warpgroups, accumulators, self.operands.gated)

    @property
    def _fixed_bytes(self) -> int:
        bytes = budget.staging_bytes(self.buffers, self.tile.BN, self.operands.out, self.schedule) if self.staged else 0
        return bytes + (16 if isinstance(self.schedule, Pingpong) else 0)

    def _tile_bytes(self, stages: int) -> int:
        """The ring, the staging and their barriers."""
        return budget.ring_bytes(stages, self.tile, self.sums, self.a, self.b) + self._fixed_bytes

    @property
    def shared_bytes(self) -> int:
        """Shared memory of one CTA: the tile's, scales of rows before its first one and of the other projection, kept values, the table of
        groups, the inverses of small numbers, the tickets and their alignment."""
        tile, operands, scales = self.tile, self.operands, 0
        if isinstance(self.sums, BlockScaled) and self.sums.load != "warp":
            scales += self.stages * parts_of(tile.BM) * 128
        if isinstance(self.sums, BlockScaled) and self.sums.load == "bulk" and operands.gated:
            scales += self.stages * 4 * (bulk_count(tile.BN, 2) - bulk_count(tile.BN))
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
        """Those of the kernel that makes the groups' maps."""
        return {"operands": replace(self.operands, gated=False, scaled=False), "UNIT": self.tile_tokens * self.along_tokens,
                "FEATURES": self.features, "BK": self.tile.BK, "longest_first": self.scheduler.longest_first}

    def with_(self, changes: Mapping[str, Any]) -> GroupedConfig:
        """The same with the fields at these paths changed (`{"tile.BM": 64}`); what was derived and is not among them is derived again."""
        schedule = replace(self.schedule, warpgroups=0) if isinstance(self.schedule, Cooperative) else self.schedule
        bare = _Draft(self.operands, self.tokens, self.tile, 0, schedule, self.scheduler, None, self.loads)
        for path, value in changes.items():
            bare = changed(bare, path, value)
        return bare.config()

    # ------------------------------------------------------------------------------------------- in words

    def __str__(self) -> str:
        tile, scheduler, loads, sums, cluster = self.tile, self.scheduler, self.loads, self.sums, self.scheduler.cluster
        pingpong = isinstance(self.schedule, Pingpong)
        order = scheduler.order
        words = [f"{tile.BM}x{tile.BN}x{tile.BK}", f"{self.stages} stages",
                 "pingpong" if pingpong else f"{self.warpgroups} mma warpgroup{'s' if self.warpgroups > 1 else ''}",
                 f"cluster {cluster.m}x{cluster.n}" if cluster.size > 1 else "",
                 f"{order.raster.replace('_', ' ')} by {order.size}" + (" serpentine" if order.serpentine else ""),
                 {"overlap": "overlapped promotion", "stagger": "staggered promotion"}.get(getattr(sums, "how", ""), ""),
                 "staggered promotion" if isinstance(sums, ThreadScaled) and sums.stagger else "",
                 f"{loads.l2_prefetch_stages} stages prefetched" if loads.l2_prefetch_stages else "",
                 f"L2 by {loads.l2_fetch} bytes" if loads.l2_fetch != L2_FETCH else "", "" if self.staged else "direct stores",
                 "swap AB" if self.swap_ab else "", "dynamic" if self.dynamic else getattr(scheduler, "find", "").replace("linear", ""),
                 "gated" if self.operands.gated else "", "quantised" if self.operands.quantised else "",
                 "weights evict first" if loads.weights_evict_first else "",
                 "scales through shared memory" if isinstance(sums, BlockScaled) else "",
                 "partial boxes" if self.tokens.partial_boxes else "",
                 f"tail rows by {self.tail_rows}" if self.tail_rows else "",
                 f"columns by {self.n_granularity}" if self.n_granularity else "",
                 "longest groups first" if scheduler.longest_first else "",
                 f"{scheduler.from_tail} from the tail" if isinstance(scheduler, DynamicGroups) and scheduler.from_tail else "",
                 "a map of each group" if isinstance(self.store, StagedGroups) and self.store.ends == "tensormap" else ""]
        said = ", ".join(word for word in words if word)
        return said if self.second is None else f"{said}; or by the lengths {self.second}"

    # ------------------------------------------------------------------------------------------- what no kernel can be

    @property
    def _can_stage(self) -> bool:
        """Whether the rows of a stored tile are whole 32-byte spans of 16- or 32-bit results."""
        return not self.swap_ab and self.operands.out.bits > 8 and self.stored_columns * self.operands.out.bits % 256 == 0 \
            and (not self.operands.gated or self.tile.BN * self.operands.out.bits % 512 == 0)

    def _tile_problem(self) -> str | None:
        """A sentence when the tile does not go with the schedule and the way of the tokens."""
        tile, sums, bits = self.tile, self.sums, self.a.bits
        if tile.BK * bits // 8 % budget.STAGE_BYTES:
            return f"BK is a multiple of {budget.STAGE_BYTES * 8 // bits} for {self.a.__name__}, not {tile.BK}"
        if isinstance(self.schedule, Pingpong) and tile.BM > 128:
            return f"pingpong warpgroups have a tile of 64 or 128 rows each, not {tile.BM}"
        if isinstance(self.schedule, Cooperative) and tile.BM % (ROWS * self.warpgroups):
            return f"{self.warpgroups} mma warpgroups cannot share {tile.BM} rows in m64 blocks"
        if budget.promoted(sums) and tile.BK * bits // 8 != budget.STAGE_BYTES:
            return "sums are promoted after each stage of 128 bytes: take BK=0"
        stagger = sums.stagger if isinstance(sums, ThreadScaled) else isinstance(sums, Promoted) and sums.how == "stagger"
        if stagger and self.warpgroups < 2:
            return "staggered promotion keeps warpgroups that share a tile apart: take two warpgroups, or how=\"plain\""
        if self.staged and not self._can_stage:
            return "staged stores are of whole 32-byte spans of 16- or 32-bit results whose tokens are rows: take Direct"
        for name, extent, by in (("A", tile.BM, self.scheduler.cluster.n), ("B", tile.BN, self.scheduler.cluster.m)):
            if extent % (8 * by):
                return f"{by} CTAs cannot share {name} tiles of {extent} lines in parts of 8: take a smaller cluster"
        return self._token_problem()

    def _token_problem(self) -> str | None:
        """What the way of the tokens does not go with."""
        tile, scheduler, layout, pair = self.tile, self.scheduler, self.operands.layout, self.cluster > 1
        listed = self.counts_itself or layout == "ptr_array"    # in a table with the lengths of all
        if self.n_granularity:
            if tile.BN % self.n_granularity:
                return f"n_granularity divides BN={tile.BN}, not {self.n_granularity}"
            if not listed or budget.promoted(self.sums) or isinstance(self.schedule, Pingpong) or pair:
                return ("n_granularity is for groups whose lengths are given, in tiles that warpgroups share, without promoted sums and "
                        "clusters: take n_granularity=0")
        elif self.tokens.partial_boxes:
            apart = scheduler.cluster.n == 1 and layout != "contiguous"
            if isinstance(self.schedule, Pingpong) or not apart or not (self._warpgroups_have_rows or self.tail_rows):
                return ("partial boxes are loaded for warpgroups that share a tile, by CTAs that share no tokens, of groups whose lengths "
                        "are given: take partial_boxes=False")
            if self.tail_rows and layout == "ptr_array":
                return "groups with matrices of their own have one map each: take tail_rows=0"
        return None

    def _operand_problem(self) -> str | None:
        """What the operands do not go with."""
        operands, tile, sums, pingpong = self.operands, self.tile, self.sums, isinstance(self.schedule, Pingpong)
        scaled = isinstance(sums, BlockScaled | ThreadScaled)
        if operands.gated and (self.m64_blocks % 2 if self.swap_ab else tile.BN % 16):
            return "a gated tile has halves: columns in pieces of 8, or with SwapAB the m64 blocks of each warpgroup"
        if operands.gated and self.cluster > 1 and (ROWS if self.swap_ab else tile.BN // 2) % 16:
            return "CTAs share halves of a gated tile in parts of 8 lines"
        if operands.quantised and (self.swap_ab or self.stored_columns not in (64, 128, 256) or (self.stored_columns == 64 and pingpong)):
            return ("quantised results come in tiles of 64, 128 or 256 columns whose tokens are rows, those of 64 by warpgroups that share "
                    "a tile")
        if isinstance(sums, BlockScaled) and (self.swap_ab or (operands.gated and sums.load != "bulk")):
            return ("block scales come through shared memory where tokens are rows, and with a gate where the producer copies them "
                    "(load=\"bulk\"): take ThreadScaled")
        if scaled and operands.scaled:
            return "scales are those of blocks or those of groups"
        if scaled and tile.BK != BLOCK:
            return f"block scales go with BK={BLOCK}"
        if isinstance(sums, ThreadScaled) and self.swap_ab and tile.BN > 128:
            return f"block scales of {tile.BN} tokens a tile are too many for a thread: take BN=128"
        if operands.layout == "contiguous" and (self.cluster > 1 or CONTIGUOUS_ROWS % self.tile_tokens or self.updates_maps):
            return (f"contiguous groups come in blocks of {CONTIGUOUS_ROWS} rows: tiles of a divisor of that, no clusters, and no maps of "
                    "each group")
        if operands.layout == "ptr_array" and (self.cluster > 1 or scaled):
            return "groups with matrices of their own have no clusters and no block scales"
        return None

    def _scheduler_problem(self) -> str | None:
        """What the scheduler does not go with."""
        scheduler, layout = self.scheduler, self.operands.layout
        if self.loads.l2_prefetch_stages and (self.cluster > 1 or layout not in COUNTED):
            return "weights are prefetched by CTAs of their own, of groups whose lengths are given: take l2_prefetch_stages=0"
        if scheduler.longest_first and not (self.counts_itself or layout == "ptr_array"):
            return ("the longest groups come first where the kernel reads their lengths, or they have matrices of their own: take "
                    "longest_first=False")
        if layout == "ptr_array" and isinstance(scheduler, StaticGroups) and scheduler.find == "across":
            return "groups with matrices of their own have no common columns: take find=\"linear\""
        if self.plan is not None and (not self.counts_itself or self.along_tokens > 1):
            return ("two kernels of one product count the tiles themselves: tokens of one matrix, no maps of each group, no clusters "
                    "that share weights")
        return None

    def _budget_problem(self) -> str | None:
        """A sentence when an SM does not have what it takes."""
        if self.staged and (problem := budget.buffers_problem(self.buffers, self.schedule)):
            return problem
        if not 2 <= self.stages <= MAX_STAGES:
            return f"a ring has 2 to {MAX_STAGES} stages, not {self.stages}: take a smaller tile"
        if budget.promoted_by_halves(self.tile, self.schedule) and self.stages < UNROLLED:
            return (f"sums promoted by halves of {self.tile.BN} columns spill in a ring of {self.stages} stages: take {UNROLLED}, or "
                    f"BN={self.tile.BN // 2}")
        if self.shared_bytes > SHARED_LIMIT:
            return (f"{self.stages} stages of {budget.stage_bytes(self.tile, self.a, self.b):,} bytes and the table of "
                    f"{self.operands.max_groups} groups take more than {SHARED_LIMIT:,} bytes")
        return budget.register_problem(self.tile, self.schedule)


@dataclass(frozen=True, slots=True)
class _Draft:
    """The fields of a configuration that is not checked yet."""

    operands: GroupOperands
    tokens: TokensAsRows | SwapAB
    tile: Tile
    stages: int
    schedule: Cooperative | Pingpong
    scheduler: StaticGroups | DynamicGroups
    store: StagedGroups | Direct | None
    loads: GroupLoads

    def config(self) -> GroupedConfig:
        return GroupedConfig(**{field.name: getattr(self, field.name) for field in fields(self)})


__all__ = ["CAPACITIES", "CONTIGUOUS_ROWS", "DynamicGroups", "GroupLoads", "GroupOperands", "GroupedConfig", "StagedGroups",
           "StaticGroups", "SwapAB", "TokensAsRows"]
