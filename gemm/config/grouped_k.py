"""The configuration of a product with groups along K: its compile-time parameters, checked when they are written."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, get_args

from ptxkit.smem import SHARED_LIMIT
from ptxkit.types import Scalar, bf16, f16, f32

from ..collective.atoms import ROWS
from ..collective.epilogue import BUFFERS
from ..scheduler.dynamic import ClusterDynamicScheduler
from ..scheduler.group_table import GroupTable
from ..scheduler.grouped_k import DepthScheduler
from . import budget
from .grouped_parts import CAPACITIES
from .parts import MAX_STAGES, ClusterShape, ConfigError, Cooperative, Overlap, Pingpong, Staged, Swizzle, Tile, chosen
from .tiled import TiledConfig

MOST_ROWS = 1 << 20         # of a part
SPAN = 64                   # elements of 16 bits in 128 bytes: the columns of a matrix that one copy loads


@dataclass(frozen=True, slots=True)
class OperandsAlongK:
    """What the problem decides: the element type of A and B, that of the result, and whether it is added to what is there (`accumulate`,
    in f32). `max_groups`: the size of the group table."""

    source: type[Scalar] = bf16
    out: type[Scalar] = bf16
    accumulate: bool = False
    max_groups: int = 256

    def __post_init__(self) -> None:
        chosen("max_groups", self.max_groups, CAPACITIES)
        if self.source not in (bf16, f16) or self.out not in (bf16, f16, f32):
            raise ConfigError(f"groups along K are bf16 or f16 and their results bf16, f16 or f32, not {self.source.__name__} and "
                              f"{self.out.__name__}: wgmma transposes 16-bit types only")
        if self.accumulate and self.out is not f32:
            raise ConfigError(f"results are accumulated in f32, not {self.out.__name__}: take out=f32, or accumulate=False")


@dataclass(frozen=True, slots=True)
class StaticDepths:
    """Static persistent scheduler: cluster (or CTA) c of C works on tiles c, c + C, ..., those of the longest group first. `overlap`: when
    the next kernel in the stream may begin, as `parts.Static` says it."""

    order: Swizzle = Swizzle()
    cluster: ClusterShape = ClusterShape()
    overlap: Overlap = "start"

    def __post_init__(self) -> None:
        chosen("overlap", self.overlap, get_args(Overlap))


@dataclass(frozen=True, slots=True)
class DynamicDepths:
    """Dynamic persistent scheduler: clusters (or CTAs) draw their next tile from a counter, those of the longest group first."""

    order: Swizzle = Swizzle()
    cluster: ClusterShape = ClusterShape()
    overlap: ClassVar[Overlap] = "start"


@dataclass(frozen=True, slots=True)
class GroupedKConfig(TiledConfig):
    """One specialisation of `kernels.grouped_k`.

    Some fields are derived if they are left out: `tile.BK` 0, `stages` 0 (the deepest ring that fits next to the group table), the
    warpgroups of `Cooperative(0)`, and the buffers of `Staged(0)`.

    `part`: CTAs share the tiles of a group of more than so many rows; each has a part of at most so many, and the parts' sums are added up
    in a workspace. 0: each tile is one CTA's, or one warpgroup's with pingpong.
    """

    operands: OperandsAlongK = OperandsAlongK()
    tile: Tile = Tile()
    stages: int = 0
    schedule: Cooperative | Pingpong = Cooperative()
    scheduler: StaticDepths | DynamicDepths = StaticDepths()
    store: Staged | None = None
    part: int = 0

    def __post_init__(self) -> None:
        self._derive_tile(self.operands.source)
        if self.store is None or not self.store.buffers:
            self._derive(store=Staged(BUFFERS))
        if problem := self._ungrouped_problem() or self._tile_problem():
            raise ConfigError(problem)
        if not self.stages:
            source = self.operands.source
            self._derive(stages=budget.deepest_ring(self.tile, source, source, self._bytes(0), self._bytes))
        if problem := self._budget_problem():
            raise ConfigError(problem)

    @property
    def dynamic(self) -> bool:
        """Whether the scheduler is dynamic."""
        return isinstance(self.scheduler, DynamicDepths)

    @property
    def cluster(self) -> int:
        """The number of CTAs of a cluster."""
        return self.scheduler.cluster.size

    @property
    def buffers(self) -> int:
        """The number of staging buffers of a warpgroup."""
        return self.store.buffers if self.store is not None else BUFFERS

    @property
    def shared_bytes(self) -> int:
        """Shared memory of one CTA: ring, staging, group table, and the slots of a dynamic scheduler."""
        return self._bytes(self.stages)

    def _bytes(self, stages: int) -> int:
        source = self.operands.source
        ring = budget.ring_bytes(stages, self.tile, self.sums, source, source)
        table = GroupTable.bytes(self.operands.max_groups, longest_first=True)
        more = ClusterDynamicScheduler.BYTES + 16 + DepthScheduler.SHARED_BYTES * (self.part > 0)
        return ring + self._staging_bytes(self.buffers, self.operands.out) + table + more

    @property
    def parameters(self) -> dict[str, Any]:
        """The kernel's compile-time parameters. How long a part is counts when it is launched."""
        found = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "part"}
        return found | {"share": self.part > 0}

    def tiles(self, m: int, n: int) -> tuple[int, int]:
        """The tiles of a group's result along M and N."""
        return -(-m // self.tile.BM), -(-n // self.tile.BN)

    def __str__(self) -> str:
        tile, cluster, order = self.tile, self.scheduler.cluster, self.scheduler.order
        words = [f"{tile.BM}x{tile.BN}x{tile.BK}", f"{self.stages} stages",
                 "pingpong" if isinstance(self.schedule, Pingpong) else
                 f"{self.warpgroups} mma warpgroup{'s' if self.warpgroups > 1 else ''}",
                 f"cluster {cluster.m}x{cluster.n}" if cluster.size > 1 else "",
                 f"{order.raster.replace('_', ' ')} by {order.size}" + (" serpentine" if order.serpentine else ""),
                 f"next kernel after the {self.scheduler.overlap}" if self.scheduler.overlap != "start" else "",
                 "dynamic" if self.dynamic else "", f"parts of {self.part} rows" if self.part else "",
                 "accumulates" if self.operands.accumulate else ""]
        return ", ".join(word for word in words if word)

    def _tile_problem(self) -> str | None:
        """The reason if the tile does not fit the operands or the schedule."""
        tile, cluster = self.tile, self.scheduler.cluster
        if budget.promoted(self.sums):
            return "groups along K have their sums in the tensor cores: take Cooperative() or Pingpong()"
        if tile.BK % SPAN or tile.BK > 256:
            return f"BK is 64, 128, 192 or 256, not {tile.BK}"
        if tile.BN % SPAN:
            return f"tiles contiguous along N have whole spans of {SPAN} columns: take BN a multiple of {SPAN}, not {tile.BN}"
        if isinstance(self.schedule, Cooperative) and tile.BM % (ROWS * self.warpgroups):
            return f"{self.warpgroups} mma warpgroups cannot share {tile.BM} rows in m64 blocks"
        if self.part < 0 or self.part % tile.BK or self.part > MOST_ROWS:
            return f"parts have whole stages of {tile.BK} rows, up to {MOST_ROWS:,}: part is a multiple of {tile.BK}, not {self.part}"
        for extent, by in ((tile.BM, cluster.n), (tile.BN, cluster.m)):
            if extent // SPAN % by and tile.BK % (8 * by):
                return f"{by} CTAs cannot share tiles of {extent // SPAN} spans: take a smaller cluster"
        return None

    def _budget_problem(self) -> str | None:
        """The reason if an SM does not have enough shared memory or registers."""
        if problem := budget.buffers_problem(self.buffers, self.schedule):
            return problem
        if not 2 <= self.stages <= MAX_STAGES:
            return f"a ring has 2 to {MAX_STAGES} stages, not {self.stages}: take a smaller tile"
        if self.shared_bytes > SHARED_LIMIT:
            return f"{self.stages} stages and the table of {self.operands.max_groups} groups take more than {SHARED_LIMIT:,} bytes"
        return budget.register_problem(self.tile, self.schedule)


__all__ = ["DynamicDepths", "GroupedKConfig", "OperandsAlongK", "StaticDepths"]
