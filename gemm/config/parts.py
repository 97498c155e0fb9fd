"""The parts of a configuration: frozen values and sum types. Choices that exclude each other cannot be written together.

They describe how a kernel computes a product, not the product. `DenseConfig` and `GroupedConfig` are made of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from ptxkit.dsl.values import FieldError

ROWS = 64                   # rows of an m64 block: of A and D in one wgmma
MOST_COLUMNS = 256          # of B and D in one wgmma
MAX_STAGES = 16
MAX_CLUSTER = 8             # CTAs of a portable cluster size
MAX_SPLITS = 16
L2_FETCH: L2Fetch = 256     # the default L2 promotion of a tensor map, in bytes

Raster = Literal["along_m", "along_n"]
Promotion = Literal["plain", "overlap", "stagger"]
Share = Literal["rows", "columns"]
Overlap = Literal["start", "loads", "end"]
ScaleLoad = Literal["warp", "tensor_map", "lines", "bulk"]
L2Fetch = Literal[64, 128, 256]


class ConfigError(FieldError):
    """An impossible configuration."""


def chosen(name: str, value: object, options: tuple[object, ...]) -> None:
    """Raises ConfigError unless the value is one of the options."""
    if value not in options:
        raise ConfigError(f"{name} is {', '.join(map(str, options[:-1]))} or {options[-1]}, not {value!r}")


@dataclass(frozen=True, slots=True)
class Tile:
    """Extents of a CTA's output tile and of a stage, in elements. BK 0 is 128 bytes of K. `wide` ones, of more than 256 columns, are of
    dense products with Static or Dynamic."""

    BM: int = 128
    BN: int = 256
    BK: int = 0

    def __post_init__(self) -> None:
        chosen("BM", self.BM, (64, 128, 192, 256))
        unit = 16 if self.wide else 8
        if self.BN % unit or not 8 <= self.BN <= 384:
            raise ConfigError(f"BN is a multiple of 8 up to 256 or of 16 up to 384, not {self.BN}: take "
                              f"{max(8, min(384, round(self.BN / unit) * unit))}")

    @property
    def wide(self) -> bool:
        """Whether there are more columns than one wgmma or one tensor copy can have."""
        return self.BN > MOST_COLUMNS


@dataclass(frozen=True, slots=True)
class TensorCoreSums:
    """The tensor cores accumulate over the whole K."""


@dataclass(frozen=True, slots=True)
class Promoted:
    """The tensor cores accumulate 128 bytes of K. These sums are then added up (promoted) in f32 registers.

    `how`: "plain", multiply and promote alternately; "overlap", two sets of accumulators: one is promoted while the next products run;
    "stagger", the warpgroups that share a tile issue in turn: one promotes while the others multiply.
    """

    how: Promotion = "plain"

    def __post_init__(self) -> None:
        chosen("how", self.how, get_args(Promotion))


@dataclass(frozen=True, slots=True)
class BlockScaled(Promoted):
    """Promoted sums of fp8 operands, multiplied by block scales: SFA has one for 1 x 128 elements of A, SFB one for 128 x 128 of B.

    The scales come through shared memory with their stage. `load`: "warp", another warp of the producer warpgroup copies both;
    "tensor_map", the producer copies SFA by a tensor map and that warp copies SFB; "lines" and "bulk", the producer copies SFA by a tensor
    map, and SFB in lines of 16 bytes by another one, whatever its strides, or four stages at once by bulk copies.
    """

    load: ScaleLoad = "warp"

    def __post_init__(self) -> None:
        Promoted.__post_init__(self)
        chosen("load", self.load, get_args(ScaleLoad))


@dataclass(frozen=True, slots=True)
class ThreadScaled:
    """Promoted sums of fp8 operands. Each thread reads its block scales from global memory, one stage ahead. For grouped products."""

    stagger: bool = False


Sums = TensorCoreSums | Promoted | BlockScaled | ThreadScaled


@dataclass(frozen=True, slots=True)
class Cooperative:
    """The mma warpgroups share each tile: BM / warpgroups rows each or, with share="columns", BN / warpgroups columns each. 0 warpgroups:
    one for each m64 block, but 2 for 256 rows and where they share columns."""

    warpgroups: Literal[0, 1, 2, 3] = 0
    sums: TensorCoreSums | Promoted | BlockScaled | ThreadScaled = TensorCoreSums()
    share: Share = "rows"

    def __post_init__(self) -> None:
        chosen("warpgroups", self.warpgroups, (0, 1, 2, 3))
        chosen("share", self.share, get_args(Share))
        if self.share == "columns" and self.warpgroups not in (0, 2):
            raise ConfigError(f"two warpgroups share columns, not {self.warpgroups}: take warpgroups=2, or share=\"rows\"")


@dataclass(frozen=True, slots=True)
class Pingpong:
    """Each of two mma warpgroups has its own tile: one multiplies while the other stores. Tiles have 64 or 128 rows, and with groups along
    K as many as the sums of one warpgroup have registers for."""


Schedule = Cooperative | Pingpong


def shares_columns(schedule: Schedule) -> bool:
    """Whether the mma warpgroups share the columns of a tile, not its rows."""
    return isinstance(schedule, Cooperative) and schedule.share == "columns"


@dataclass(frozen=True, slots=True)
class Swizzle:
    """The order goes through panels of `size` rows of tiles, down one column of a panel after another. "along_n" exchanges rows and
    columns. `serpentine` walks every other panel backwards."""

    raster: Raster = "along_m"
    size: int = 8
    serpentine: bool = False

    def __post_init__(self) -> None:
        chosen("raster", self.raster, get_args(Raster))
        if not 1 <= self.size < 1 << 16:
            raise ConfigError(f"a panel has 1 to 65,535 rows or columns of tiles, not size={self.size}")


@dataclass(frozen=True, slots=True)
class Hilbert:
    """The order follows a Hilbert curve, which the host computes."""


TileOrder = Swizzle | Hilbert


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """`m` x `n` CTAs that multicast. The CTAs of a row share A, the CTAs of a column share B."""

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
    """Static persistent scheduler: cluster (or CTA) c of C works on tiles c, c + C, ...

    `overlap`: when the next kernel in the stream may begin, where there is room for its CTAs: "start", once all CTAs have begun; "loads",
    once they have asked for the last of their operands; "end", once they have ended. The later it is, the more multiprocessors are free by
    then. Without clusters CTAs with consecutive tiles then run in the same GPC, which asks the L2 once for what several of them load at
    about the same time.
    """

    order: Swizzle | Hilbert = Swizzle()
    cluster: ClusterShape = ClusterShape()
    overlap: Overlap = "start"

    def __post_init__(self) -> None:
        chosen("overlap", self.overlap, get_args(Overlap))


@dataclass(frozen=True, slots=True)
class Dynamic:
    """Dynamic persistent scheduler: each CTA draws its next tile from a counter in global memory."""

    order: Swizzle | Hilbert = Swizzle()
    overlap: ClassVar[Overlap] = "start"


@dataclass(frozen=True, slots=True)
class StreamK:
    """Stream-K: the stages of some tiles are divided into equal runs, one for each CTA or cluster. The other tiles are computed whole."""

    order: Swizzle | Hilbert = Swizzle()
    cluster: ClusterShape = ClusterShape()
    overlap: ClassVar[Overlap] = "start"


@dataclass(frozen=True, slots=True)
class SplitK:
    """The K of every tile is split among `splits` CTAs. They add up their sums through a workspace, or as a cluster through DSMEM.

    `cluster`: CTAs that share operands, and have the same part of K. Their sums go through the workspace.
    """

    splits: int = 2
    reduce: Literal["workspace", "cluster"] = "workspace"
    order: Swizzle | Hilbert = Swizzle()
    cluster: ClusterShape = ClusterShape()
    overlap: ClassVar[Overlap] = "start"

    def __post_init__(self) -> None:
        chosen("reduce", self.reduce, ("workspace", "cluster"))
        most = MAX_CLUSTER if self.reduce == "cluster" else MAX_SPLITS
        if not 2 <= self.splits <= most:
            raise ConfigError(f"K is split 2 to {most} ways through the {self.reduce}, not {self.splits}")
        if self.reduce == "cluster" and self.cluster.size > 1:
            raise ConfigError("the CTAs of a cluster share K or operands, not both: take reduce=\"workspace\"")

    @property
    def together(self) -> int:
        """The number of CTAs of a cluster."""
        return self.splits if self.reduce == "cluster" else self.cluster.size


Scheduler = Static | Dynamic | StreamK | SplitK


@dataclass(frozen=True, slots=True)
class Staged:
    """Tiles are stored to D through shared memory, by tensor copies. Each warpgroup has `buffers` of 64 rows by one span (0: derived)."""

    buffers: int = 0


@dataclass(frozen=True, slots=True)
class Transposed(Staged):
    """How the kernel of a configuration with `swap_ab` stores its tiles, which are those of D^T: a buffer has 64 columns of D by some of
    its rows. `DenseConfig.parameters` makes it of `Staged`."""


@dataclass(frozen=True, slots=True)
class Direct:
    """Tiles are stored to D directly from the registers, predicated at the edges. A store has `elements` neighbours: 1 if D or what is
    added has an odd N, or lines that do not begin at pairs."""

    elements: Literal[1, 2] = 2

    def __post_init__(self) -> None:
        chosen("elements", self.elements, (1, 2))


@dataclass(frozen=True, slots=True)
class DirectTransposed(Direct):
    """How the kernel of a configuration with `swap_ab` and a split K stores its tiles, which are those of D^T: transposed within a warp.
    `DenseConfig.parameters` makes it of `Direct`."""

    elements: Literal[1, 2] = 1


@dataclass(frozen=True, slots=True)
class Rows:
    """Tiles are stored to D through shared memory, by threads: a warp stores its rows one after another, a word a thread, and elements at
    the ends of a row. D may have any address, N and strides."""


Store = Staged | Direct | Rows


@dataclass(frozen=True, slots=True)
class TensorCopies:
    """One thread of a CTA loads an operand by tensor copies. Its lines begin at multiples of 16 bytes."""


@dataclass(frozen=True, slots=True)
class AsyncCopies:
    """The producer warpgroup loads an operand by cp.async of this many bytes, which divide its address, its strides and its lines."""

    bytes: Literal[4, 8, 16] = 4

    def __post_init__(self) -> None:
        chosen("bytes", self.bytes, (4, 8, 16))


@dataclass(frozen=True, slots=True)
class ElementCopies:
    """The producer warpgroup loads an operand element by element, which any address and strides allow.

    `across`: neighbouring threads load from neighbouring lines of the tile, not along a line. That suits an operand whose lines are not
    contiguous in global memory, as those of an f32 operand that is contiguous along M or N.
    """

    across: bool = False


@dataclass(frozen=True, slots=True)
class ShiftedCopies:
    """The producer warpgroup loads the units of 16 bytes that an operand's lines touch by cp.async, and shifts them into the tile
    `ahead` - 1 stages later. Any operand whose lines are contiguous allows that."""

    ahead: int = 3

    def __post_init__(self) -> None:
        if not 2 <= self.ahead <= MAX_STAGES:
            raise ConfigError(f"2 to {MAX_STAGES} stages are held before they are shifted, not ahead={self.ahead}")


OperandCopies = TensorCopies | AsyncCopies | ElementCopies | ShiftedCopies


@dataclass(frozen=True, slots=True)
class CopiedLoads:
    """How operands are read of which threads copy at least one."""

    a: TensorCopies | AsyncCopies | ElementCopies | ShiftedCopies = AsyncCopies()
    b: TensorCopies | AsyncCopies | ElementCopies | ShiftedCopies = AsyncCopies()
    a_rows: ClassVar[int] = 0
    b_evict_first: ClassVar[bool] = False
    l2_prefetch_stages: ClassVar[int] = 0
    l2_fetch: ClassVar[L2Fetch] = 256
    align: ClassVar[str] = ""

    def __post_init__(self) -> None:
        if isinstance(self.a, TensorCopies) and isinstance(self.b, TensorCopies):
            raise ConfigError("threads copy neither A nor B: take Loads()")
        others = {type(one) for one in (self.a, self.b)} - {TensorCopies}
        if ShiftedCopies in others and len({self.a, self.b} - {TensorCopies()}) > 1:
            raise ConfigError("what is shifted goes together with tensor copies or its like: take ShiftedCopies of one `ahead` for both")

    @property
    def ahead(self) -> int:
        """The stages that are held before they are shifted; 0 where nothing is."""
        return max(copies.ahead if isinstance(copies, ShiftedCopies) else 0 for copies in (self.a, self.b))

    def shifted(self, ahead: int) -> CopiedLoads | None:
        """The same with operands shifted that threads copy; None where the lines of one are not contiguous."""
        if any(isinstance(copies, ElementCopies) and copies.across for copies in (self.a, self.b)):
            return None
        return CopiedLoads(*(copies if isinstance(copies, TensorCopies) else ShiftedCopies(ahead) for copies in (self.a, self.b)))


@dataclass(frozen=True, slots=True)
class Loads:
    """How operands are read that have tensor copies.

    `a_rows`: the rows of A that a copy loads, for an A of fewer than 64 rows (0: all rows of a tile); the tile's other rows are zeroed
    once. `b_evict_first`: loads of B have the L2 cache hint evict_first. `l2_prefetch_stages`: the stages of B of its first tile that a CTA
    prefetches into the L2 before it waits for the previous kernel. `l2_fetch`: the L2 promotion of the tensor maps, in bytes. `align`: the
    operands that another kernel copies before, into lines in the workspace that tensor copies can load.
    """

    a_rows: int = 0
    b_evict_first: bool = False
    l2_prefetch_stages: int = 0
    l2_fetch: L2Fetch = 256
    align: Literal["", "a", "b", "ab"] = ""
    a: ClassVar[OperandCopies] = TensorCopies()
    b: ClassVar[OperandCopies] = TensorCopies()

    def __post_init__(self) -> None:
        chosen("l2_fetch", self.l2_fetch, get_args(L2Fetch))
        chosen("align", self.align, ("", "a", "b", "ab"))
        if self.a_rows % 8 or not 0 <= self.a_rows < ROWS:
            raise ConfigError(f"a copy of few rows of A loads 8, 16, ... or 56 of them, not a_rows={self.a_rows}; 0 loads all")
        if not 0 <= self.l2_prefetch_stages <= MAX_STAGES:
            raise ConfigError(f"0 to {MAX_STAGES} stages of B are prefetched, not l2_prefetch_stages={self.l2_prefetch_stages}")


__all__ = ["L2_FETCH", "MAX_CLUSTER", "MAX_SPLITS", "MAX_STAGES", "ROWS", "AsyncCopies", "BlockScaled", "ClusterShape", "ConfigError",
           "Cooperative", "CopiedLoads", "Direct", "DirectTransposed", "Dynamic", "ElementCopies", "Hilbert", "L2Fetch", "Loads",
           "OperandCopies", "Overlap", "Pingpong", "Promoted", "Promotion", "Raster", "Rows", "ScaleLoad", "Schedule", "Scheduler",
           "ShiftedCopies", "SplitK", "Staged", "Static", "Store", "StreamK", "Sums", "Swizzle", "TensorCopies", "TensorCoreSums",
           "ThreadScaled", "Tile", "TileOrder", "Transposed", "chosen"]
