"""The parts of a configuration: frozen values and sum types, so that what excludes each other cannot be written together.

They say how a kernel works on a product and nothing of what the product is. The configurations of `dense` and `grouped` are made of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from ptxkit.dsl.values import FieldError

ROWS = 64                   # of an m64 block: of A and D in one wgmma
MAX_STAGES = 16
MAX_CLUSTER = 8             # CTAs, without asking for a non-portable size
MAX_SPLITS = 16
L2_FETCH: L2Fetch = 256     # bytes that the L2 fetches at once, unless a map asks for less

Raster = Literal["along_m", "along_n"]
Promotion = Literal["plain", "overlap", "stagger"]
ScaleLoad = Literal["warp", "tensor_map", "bulk"]
L2Fetch = Literal[64, 128, 256]


class ConfigError(FieldError):
    """A configuration that no kernel can have."""


def chosen(name: str, value: object, options: tuple[object, ...]) -> None:
    """Raises ConfigError unless the value is one of the options."""
    if value not in options:
        raise ConfigError(f"{name} is {', '.join(map(str, options[:-1]))} or {options[-1]}, not {value!r}")


@dataclass(frozen=True, slots=True)
class Tile:
    """Extents of a CTA's output tile and of a stage, in elements. BK 0 is 128 bytes of K."""

    BM: int = 128
    BN: int = 256
    BK: int = 0

    def __post_init__(self) -> None:
        chosen("BM", self.BM, (64, 128, 192, 256))
        if self.BN % 8 or not 8 <= self.BN <= 256:
            raise ConfigError(f"BN is a multiple of 8 up to 256, not {self.BN}: take {max(8, min(256, round(self.BN / 8) * 8))}")


@dataclass(frozen=True, slots=True)
class TensorCoreSums:
    """The tensor cores accumulate over the whole K."""


@dataclass(frozen=True, slots=True)
class Promoted:
    """The tensor cores accumulate 128 bytes of K; those sums are added up in f32 registers.

    `how`: "plain", one after the other; "overlap", two sets of accumulators, so that one is promoted while the next products run;
    "stagger", the warpgroups that share a tile issue in turn, so that one promotes while the others multiply.
    """

    how: Promotion = "plain"

    def __post_init__(self) -> None:
        chosen("how", self.how, get_args(Promotion))


@dataclass(frozen=True, slots=True)
class BlockScaled(Promoted):
    """Promoted sums of fp8 operands, each multiplied by its block scales: SFA, one for 1 x 128 of A, and SFB, one for 128 x 128 of B.

    They come through shared memory with their stage. `load`: "warp", a warp beside the producer copies both; "tensor_map", the producer
    copies SFA by a tensor map and the warp SFB; "bulk", the producer copies SFA by a tensor map and SFB by bulk copies.
    """

    load: ScaleLoad = "warp"

    def __post_init__(self) -> None:
        Promoted.__post_init__(self)
        chosen("load", self.load, get_args(ScaleLoad))


@dataclass(frozen=True, slots=True)
class ThreadScaled:
    """Promoted sums of fp8 operands, whose block scales each thread reads from global memory, a stage ahead. For grouped products."""

    stagger: bool = False


Sums = TensorCoreSums | Promoted | BlockScaled | ThreadScaled


@dataclass(frozen=True, slots=True)
class Cooperative:
    """The mma warpgroups share each tile, BM / warpgroups rows each. 0 warpgroups: one for each m64 block up to 3, but 2 for 256 rows."""

    warpgroups: Literal[0, 1, 2, 3] = 0
    sums: TensorCoreSums | Promoted | BlockScaled | ThreadScaled = TensorCoreSums()

    def __post_init__(self) -> None:
        chosen("warpgroups", self.warpgroups, (0, 1, 2, 3))


@dataclass(frozen=True, slots=True)
class Pingpong:
    """Two mma warpgroups have a tile each: while one multiplies, the other stores. Tiles of 64 or 128 rows."""


Schedule = Cooperative | Pingpong


@dataclass(frozen=True, slots=True)
class Swizzle:
    """Tiles go down `size` rows, then on to the next column of them ("along_n": with rows and columns exchanged). `serpentine` walks
    every other such panel backwards."""

    raster: Raster = "along_m"
    size: int = 8
    serpentine: bool = False

    def __post_init__(self) -> None:
        chosen("raster", self.raster, get_args(Raster))
        if not 1 <= self.size < 1 << 16:
            raise ConfigError(f"a panel has 1 to 65,535 rows or columns of tiles, not size={self.size}")


@dataclass(frozen=True, slots=True)
class Hilbert:
    """Tiles go along a Hilbert curve, whose order the host computes."""


TileOrder = Swizzle | Hilbert


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """`m` x `n` CTAs that multicast: those of a row share A, those of a column share B."""

    m: Literal[1, 2, 4] = 1
    n: Literal[1, 2, 4] = 1

    def __post_init__(self) -> None:
        chosen("m", self.m, (1, 2, 4))
        chosen("n", self.n, (1, 2, 4))
        if self.size > MAX_CLUSTER:
            raise ConfigError(f"a cluster has at most {MAX_CLUSTER} CTAs, not {self.m} x {self.n}")

    @property
    def size(self) -> int:
        return self.m * self.n


@dataclass(frozen=True, slots=True)
class Static:
    """Persistent CTAs, or clusters: cluster c of C works on tiles c, c + C, ..."""

    order: Swizzle | Hilbert = Swizzle()
    cluster: ClusterShape = ClusterShape()


@dataclass(frozen=True, slots=True)
class Dynamic:
    """Persistent CTAs that take the next tile from a counter in global memory as they get to it."""

    order: Swizzle | Hilbert = Swizzle()


@dataclass(frozen=True, slots=True)
class StreamK:
    """The stages of some tiles are dealt out in equal runs, one a CTA or cluster; the other tiles are whole."""

    order: Swizzle | Hilbert = Swizzle()
    cluster: ClusterShape = ClusterShape()


@dataclass(frozen=True, slots=True)
class SplitK:
    """The K of every tile is split among `splits` CTAs, which add up their sums through a workspace, or as a cluster through DSMEM."""

    splits: int = 2
    reduce: Literal["workspace", "cluster"] = "workspace"
    order: Swizzle | Hilbert = Swizzle()

    def __post_init__(self) -> None:
        chosen("reduce", self.reduce, ("workspace", "cluster"))
        most = MAX_CLUSTER if self.reduce == "cluster" else MAX_SPLITS
        if not 2 <= self.splits <= most:
            raise ConfigError(f"K is split 2 to {most} ways through the {self.reduce}, not {self.splits}")


Scheduler = Static | Dynamic | StreamK | SplitK


@dataclass(frozen=True, slots=True)
class Staged:
    """Tiles go through shared memory to D by tensor copies. `buffers` a warpgroup, each 64 rows of one span; 0: as many as are of use."""

    buffers: int = 0


@dataclass(frozen=True, slots=True)
class Direct:
    """Tiles go to D straight from the registers, predicated at the edges."""


Store = Staged | Direct


@dataclass(frozen=True, slots=True)
class Loads:
    """How operands are read.

    `a_rows`: rows that a copy of A loads, where A has so few that the rest of a tile of 64 is cleared once (0: all). `b_evict_first`: B has
    an L2 cache hint evict_first. `l2_prefetch_stages`: stages of its first tile of B that a CTA brings into the L2 before it waits for the
    kernel ahead of it. `l2_fetch`: bytes that the L2 fetches at once.
    """

    a_rows: int = 0
    b_evict_first: bool = False
    l2_prefetch_stages: int = 0
    l2_fetch: L2Fetch = 256

    def __post_init__(self) -> None:
        chosen("l2_fetch", self.l2_fetch, get_args(L2Fetch))
        if self.a_rows % 8 or not 0 <= self.a_rows < ROWS:
            raise ConfigError(f"a copy of few rows of A loads 8, 16, ... or 56 of them, not a_rows={self.a_rows}; 0 loads all")
        if not 0 <= self.l2_prefetch_stages <= MAX_STAGES:
            raise ConfigError(f"0 to {MAX_STAGES} stages of B are prefetched, not l2_prefetch_stages={self.l2_prefetch_stages}")


__all__ = ["L2_FETCH", "MAX_CLUSTER", "MAX_SPLITS", "MAX_STAGES", "ROWS", "BlockScaled", "ClusterShape", "ConfigError", "Cooperative",
           "Direct", "Dynamic", "Hilbert", "L2Fetch", "Loads", "Pingpong", "Promoted", "Promotion", "Raster", "ScaleLoad", "Schedule",
           "Scheduler", "SplitK", "Staged", "Static", "Store", "StreamK", "Sums", "Swizzle", "TensorCoreSums", "ThreadScaled", "Tile",
           "TileOrder", "chosen"]
