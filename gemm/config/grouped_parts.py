"""The parts that only a grouped configuration has: operands, orientation of the tokens, schedulers, stores and loads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from ptxkit.layout import Major
from ptxkit.types import Scalar, bf16, e4m3

from ..scheduler.group_table import CONTIGUOUS_ROWS, Layout
from .parts import MAX_STAGES, ClusterShape, ConfigError, L2Fetch, Overlap, Swizzle, chosen

CAPACITIES = (32, 64, 128, 256, 512, 1024)
"""The sizes of a group table, in groups."""
GATE_STEPS = (8, 16, 32, 64, 128)
"""Where the scales of an up projection may begin in a block of 128 weights, those of the gate before it."""
MIN_BOX_ROWS = 32
"""The fewest rows of X that one copy of a swap-AB tile loads. Smaller copies cost more time than the rows that they do not load."""
MOST_SHARING = 16
"""The most CTAs that share the K of a tile."""

Granularity = Literal[0, 8, 16, 32, 64]
TailRows = Literal[0, 8, 16, 32]
Vectors = Literal["", "row", "column", "row_column", "weight"]
Scatter = Literal["", "rows", "add"]
Find = Literal["linear", "search", "across"]
GroupEnds = Literal["ragged", "tensormap"]


@dataclass(frozen=True, slots=True)
class GroupOperands:
    """What the problem decides: the element types of X, W and Y, the layout of the groups, and the epilogue.

    `gated`: W has the rows of a gate, then the rows of an up projection, and Y is silu(gate) * up. `scaled`: the epilogue multiplies by
    scales, one of X and one of each group but for its `vectors`: each row of X, each feature of a group ("column") or both have one; or
    nothing but each row of Y has a "weight".
    `max_groups`: the size of the group table. Results in e4m3 are quantised with one scale for every 128 columns of a row. `scales_apart`:
    the block scales of X or Y of masked groups do not follow one another as the groups' rows do. `gate_step`: with a gate and block scales,
    the number of features is a multiple of it; less than 128 where the up projection begins within a block of scales. `gathered`: the rows
    of X are given by their numbers. `scatter`: so are those of Y, to which results are stored ("rows") or added ("add").
    `w_major`: "mn" if the weights of a group are contiguous along N instead of K, with 16 bits.
    """

    x: type[Scalar] = bf16
    w: type[Scalar] = bf16
    out: type[Scalar] = bf16
    layout: Layout = "cu_seqlens"
    gated: bool = False
    scaled: bool = False
    vectors: Vectors = ""
    max_groups: int = 256
    scales_apart: bool = False
    gate_step: int = 128
    gathered: bool = False
    scatter: Scatter = ""
    w_major: Major = "k"

    def __post_init__(self) -> None:
        chosen("layout", self.layout, get_args(Layout))
        chosen("max_groups", self.max_groups, CAPACITIES)
        chosen("gate_step", self.gate_step, GATE_STEPS)
        chosen("vectors", self.vectors, get_args(Vectors))
        if self.vectors and (not self.scaled or self.layout == "ptr_array"):
            raise ConfigError("scales of rows and features are scales of groups in one matrix: take scaled=True and another layout than "
                              "ptr_array, or vectors=\"\"")
        if self.vectors == "weight" and self.gated:
            raise ConfigError("weights of rows multiply sums, and a gate comes after them: weigh the rows of the next product, or take "
                              "gated=False")
        if self.gate_step < GATE_STEPS[-1] and not self.gated:
            raise ConfigError("only a gate has a second projection: take gate_step=128")
        if self.scales_apart and self.layout != "masked":
            raise ConfigError("only the scales of masked groups lie apart: take scales_apart=False")
        if self.gated and self.layout == "ptr_array":
            raise ConfigError("groups with matrices of their own have no gate: multiply gate and up as two groups, or take another layout")
        if self.gathered and (self.layout != "cu_seqlens" or self.gate_step < GATE_STEPS[-1]):
            raise ConfigError("gathered rows are those of groups with offsets, without block scales: take "
                              "layout=\"cu_seqlens\" and gate_step=128")
        chosen("scatter", self.scatter, get_args(Scatter))
        if self.scatter and (self.layout != "cu_seqlens" or self.gathered or self.quantised or self.gate_step < GATE_STEPS[-1]):
            raise ConfigError("rows of results go by number in products of groups with offsets, without gathered rows, quantised "
                              "results and block scales: take scatter=\"\"")
        chosen("w_major", self.w_major, get_args(Major))
        if self.w_major == "mn" and (self.w.bits != 16 or self.gated or self.layout == "ptr_array"):
            raise ConfigError("weights that are contiguous along N have 16 bits, no gate and one matrix for all groups, since wgmma "
                              "transposes 16-bit types only: take w_major=\"k\"")
        if self.quantised and (self.layout == "ptr_array" or self.out is not e4m3):
            raise ConfigError("results are quantised to e4m3, where tokens are rows of one matrix")

    @property
    def quantised(self) -> bool:
        """Whether Y is quantised, with a scale for every 128 columns of a row."""
        return self.out.bits == 8


@dataclass(frozen=True, slots=True)
class TokensAsRows:
    """Y = X W^T: the tokens are rows of a tile.

    `partial_boxes`, if warpgroups share a tile: each warpgroup's rows of X are one box, and boxes without rows are not loaded. Contiguous
    groups then end before their padding, in pieces of 32 rows, which is not multiplied and not stored.
    `tail_rows`: a partial box loads this many rows at a time (0: the whole box).
    """

    partial_boxes: bool = False
    tail_rows: TailRows = 0

    def __post_init__(self) -> None:
        chosen("tail_rows", self.tail_rows, get_args(TailRows))
        if self.tail_rows and not self.partial_boxes:
            raise ConfigError("tail rows are those of a partial box: take partial_boxes=True, or tail_rows=0")


@dataclass(frozen=True, slots=True)
class SwapAB:
    """Y^T = W X^T: the tokens are columns of a tile, so a few tokens need only a narrow tile.

    `n_granularity`: a tile multiplies only as many columns as it has tokens, rounded up to this number (0: all columns). `partial_boxes`:
    it also loads only these rows of X, and leaves padding of contiguous groups out.
    """

    n_granularity: Granularity = 0
    partial_boxes: bool = False

    def __post_init__(self) -> None:
        chosen("n_granularity", self.n_granularity, get_args(Granularity))
        if self.partial_boxes and not self.n_granularity:
            raise ConfigError("partial boxes of swapped tiles go by n_granularity: take 16, or partial_boxes=False")


@dataclass(frozen=True, slots=True)
class StaticGroups:
    """Static persistent scheduler: CTA (or cluster) c of C works on work tiles c, c + C, ... of all groups.

    `find`: "linear" and "search" finish a group before the next one. "linear" finds a tile's group by walking on from the previous group,
    "search" by a binary search. "across" visits the tile rows of all groups for one column of tiles before the next column; it searches.
    `longest_first`: groups are sorted by length.
    `overlap`: when the next kernel in the stream may begin, as of `Static` (`config.parts`).
    """

    find: Find = "linear"
    longest_first: bool = False
    order: Swizzle = Swizzle()
    cluster: ClusterShape = ClusterShape()
    overlap: Overlap = "start"
    most: ClassVar[int] = 1

    def __post_init__(self) -> None:
        chosen("find", self.find, get_args(Find))
        chosen("overlap", self.overlap, get_args(Overlap))


@dataclass(frozen=True, slots=True)
class DynamicGroups:
    """Dynamic persistent scheduler: CTAs or clusters draw their next work tile from a counter. `from_tail` of them start from the tail."""

    longest_first: bool = False
    from_tail: int = 0
    order: Swizzle = Swizzle()
    cluster: ClusterShape = ClusterShape()
    overlap: ClassVar[Overlap] = "start"
    most: ClassVar[int] = 1


@dataclass(frozen=True, slots=True)
class StreamGroups:
    """Stream-K: for few tiles with a long K. The stages of a partial wave of tiles, and of the full wave before it, are divided into equal
    runs, one for each CTA. The other tiles are computed whole.

    `most`: about so many CTAs share a tile at most; the CTA that stores it adds up the sums of the others.
    """

    order: Swizzle = Swizzle()
    most: int = 4
    cluster: ClassVar[ClusterShape] = ClusterShape()
    longest_first: ClassVar[bool] = False
    overlap: ClassVar[Overlap] = "start"

    def __post_init__(self) -> None:
        if not 2 <= self.most <= MOST_SHARING:
            raise ConfigError(f"2 to {MOST_SHARING} CTAs share a tile, not most={self.most}")


GroupScheduling = StaticGroups | DynamicGroups | StreamGroups
"""How CTAs get their work tiles. `most` CTAs share the K of a tile: one, but for `StreamGroups`."""


@dataclass(frozen=True, slots=True)
class StagedGroups:
    """Tiles are stored to Y through shared memory, by tensor copies that do not write the next group's rows.

    `ends`: "ragged", the extents of one common map cut off the rows; "tensormap", each group has its own map, made on the device. Each
    warpgroup has `buffers` (0: derived).
    """

    buffers: int = 0
    ends: GroupEnds = "ragged"

    def __post_init__(self) -> None:
        chosen("ends", self.ends, get_args(GroupEnds))


@dataclass(frozen=True, slots=True)
class GroupLoads:
    """How operands are read.

    `weights_evict_first`: weights that only one tile of tokens reads have the L2 cache hint evict_first. `l2_prefetch_stages`: the stages
    of its first tile of weights that a CTA prefetches into the L2 before it knows the lengths. `l2_fetch`: the L2 promotion of the tensor
    maps, in bytes.
    """

    weights_evict_first: bool = False
    l2_prefetch_stages: int = 0
    l2_fetch: L2Fetch = 256

    def __post_init__(self) -> None:
        chosen("l2_fetch", self.l2_fetch, get_args(L2Fetch))
        if not 0 <= self.l2_prefetch_stages <= MAX_STAGES:
            raise ConfigError(f"0 to {MAX_STAGES} stages of weights are prefetched, not l2_prefetch_stages={self.l2_prefetch_stages}")


__all__ = ["CAPACITIES", "CONTIGUOUS_ROWS", "GATE_STEPS", "MIN_BOX_ROWS", "DynamicGroups", "GroupLoads", "GroupOperands",
           "GroupScheduling", "Scatter", "StagedGroups", "StaticGroups", "StreamGroups", "SwapAB", "TokensAsRows", "Vectors"]
