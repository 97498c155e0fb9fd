"""The parts of a grouped configuration alone: operands, the way of the tokens, schedulers, stores and loads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from ptxkit.types import Scalar, bf16, e4m3

from ..scheduler.group_table import Layout
from .parts import MAX_STAGES, ClusterShape, ConfigError, L2Fetch, Swizzle, chosen

CAPACITIES = (32, 64, 128, 256, 1024)
"""Groups that a table has room for."""
CONTIGUOUS_ROWS = 128
"""Rows of a block that has one group in the contiguous layout: DeepGEMM's alignment."""
LEAST_BOX = 32
"""Rows that one copy of a swapped tile loads, at least: copies of fewer take longer than what they do not load."""

Granularity = Literal[0, 8, 16, 32, 64]
TailRows = Literal[0, 8, 16, 32]
Find = Literal["linear", "search", "across"]
GroupEnds = Literal["ragged", "tensormap"]


@dataclass(frozen=True, slots=True)
class GroupOperands:
    """Element types of X, W and Y, how the device says which rows are whose, and what the epilogue does: what the problem decides.

    `gated`: W holds the rows of a gate, then those of an up projection, and Y is silu(gate) * up. `scaled`: each group has one scale.
    `max_groups`: groups that the table of groups has room for. Results in e4m3 are quantised, 128 columns of a row with one scale.
    """

    x: type[Scalar] = bf16
    w: type[Scalar] = bf16
    out: type[Scalar] = bf16
    layout: Layout = "cu_seqlens"
    gated: bool = False
    scaled: bool = False
    max_groups: int = 256

    def __post_init__(self) -> None:
        chosen("layout", self.layout, get_args(Layout))
        chosen("max_groups", self.max_groups, CAPACITIES)
        if self.gated and self.layout == "ptr_array":
            raise ConfigError("groups with matrices of their own have no gate: multiply gate and up as two groups, or take another layout")
        if self.quantised and (self.layout == "ptr_array" or self.out is not e4m3):
            raise ConfigError("results are quantised to e4m3, where tokens are rows of one matrix")

    @property
    def quantised(self) -> bool:
        """Whether every 128 columns of a row of Y have a scale of their own."""
        return self.out.bits == 8


@dataclass(frozen=True, slots=True)
class TokensAsRows:
    """Y = X W^T: the tokens are rows of a tile.

    `partial_boxes`, where warpgroups share a tile: X is loaded by a copy for each of them, and only for those that have rows. `tail_rows`:
    rows at a time that are loaded of a warpgroup's that are not all there (0: all of them).
    """

    partial_boxes: bool = False
    tail_rows: TailRows = 0

    def __post_init__(self) -> None:
        chosen("tail_rows", self.tail_rows, get_args(TailRows))
        if self.tail_rows and not self.partial_boxes:
            raise ConfigError("tail rows are those of a partial box: take partial_boxes=True, or tail_rows=0")


@dataclass(frozen=True, slots=True)
class SwapAB:
    """Y^T = W X^T: the tokens are columns of a tile, so that few tokens waste no rows.

    `n_granularity`: only as many columns are multiplied as there are tokens, rounded up to it (0: all). `partial_boxes`: only as many rows
    of X are loaded.
    """

    n_granularity: Granularity = 0
    partial_boxes: bool = False

    def __post_init__(self) -> None:
        chosen("n_granularity", self.n_granularity, get_args(Granularity))
        if self.partial_boxes and not self.n_granularity:
            raise ConfigError("partial boxes of swapped tiles go by n_granularity: take 16, or partial_boxes=False")


@dataclass(frozen=True, slots=True)
class StaticGroups:
    """CTA c of C works on work tiles c, c + C, ... of all groups. `find`: a tile's group is found by walking on from the last one
    ("linear") or by a binary search ("search"), one group after another; or all groups' rows come before the next column of tiles
    ("across", which searches). `longest_first`: groups in the order of their lengths instead of their own."""

    find: Find = "linear"
    longest_first: bool = False
    order: Swizzle = Swizzle()
    cluster: ClusterShape = ClusterShape()

    def __post_init__(self) -> None:
        chosen("find", self.find, get_args(Find))


@dataclass(frozen=True, slots=True)
class DynamicGroups:
    """CTAs, or clusters, take the next work tile from a counter as they get to it. `from_tail`: so many of them start from the last
    tile."""

    longest_first: bool = False
    from_tail: int = 0
    order: Swizzle = Swizzle()
    cluster: ClusterShape = ClusterShape()


@dataclass(frozen=True, slots=True)
class StagedGroups:
    """Tiles go through shared memory to Y by tensor copies, which leave the next group's rows alone: by the extents of one map ("ragged"),
    or by a map of each group, updated on the device ("tensormap"). `buffers` a warpgroup; 0: as many as are of use."""

    buffers: int = 0
    ends: GroupEnds = "ragged"

    def __post_init__(self) -> None:
        chosen("ends", self.ends, get_args(GroupEnds))


@dataclass(frozen=True, slots=True)
class GroupLoads:
    """How weights are read, and all operands fetched.

    `weights_evict_first`: weights that one tile of tokens needs have this L2 cache hint. `l2_prefetch_stages`: so many stages of its first
    tile of weights are prefetched into the L2 before a CTA knows the lengths. `l2_fetch`: bytes that the L2 fetches at once.
    """

    weights_evict_first: bool = False
    l2_prefetch_stages: int = 0
    l2_fetch: L2Fetch = 256

    def __post_init__(self) -> None:
        chosen("l2_fetch", self.l2_fetch, get_args(L2Fetch))
        if not 0 <= self.l2_prefetch_stages <= MAX_STAGES:
            raise ConfigError(f"0 to {MAX_STAGES} stages of weights are prefetched, not l2_prefetch_stages={self.l2_prefetch_stages}")


__all__ = ["CAPACITIES", "CONTIGUOUS_ROWS", "LEAST_BOX", "DynamicGroups", "GroupLoads", "GroupOperands", "StagedGroups", "StaticGroups",
           "SwapAB", "TokensAsRows"]
