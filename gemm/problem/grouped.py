"""What is asked for: arrays checked, extents, strides and kinds of scales, and the numbers that the kernel is given."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ptxkit.errors import LaunchError
from ptxkit.idioms import inverse
from ptxkit.runtime.arrays import ArrayView
from ptxkit.runtime.launch import check_aligned, check_contiguous, check_dtype, check_shape
from ptxkit.types import TYPES

from ..collective.atoms import ROWS
from ..collective.thread_scales import BLOCK
from ..config.grouped import CAPACITIES, GroupConfig
from ..scheduler.group_table import Layout
from ..scheduler.grouped import ORDERS, Order
from .dense import Lines

OPERANDS = {"bf16": ("bf16",), "f16": ("f16",), "e4m3": ("e4m3", "e5m2"), "e5m2": ("e4m3", "e5m2")}
RESULTS = ("bf16", "f16", "f32")
NAMES: dict[Layout, str] = {"offsets": "cu_seqlens", "masked": "masked_m", "rows": "m_indices", "pointers": "sizes"}
"""What the array of lengths is called in each layout."""


class GroupArrays(NamedTuple):
    """x [M, K] (masked: [G, rows, K]), w [G, N, K], lengths [G + 1] (masked: [G]), out [M, N]."""

    x: ArrayView
    w: ArrayView
    lengths: ArrayView
    out: ArrayView
    x_scale: ArrayView | None = None
    w_scale: ArrayView | None = None
    out_scale: ArrayView | None = None

    def named(self) -> list[tuple[str, ArrayView]]:
        """Those that are given, by name."""
        return [(name, array) for name, array in zip(self._fields, self, strict=True) if array is not None]


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """The rest of the arguments of `gemm.group_gemm`."""

    layout: Layout = "offsets"
    gated: bool = False
    mean_tokens: float | None = None
    fast_accum: bool | None = None
    order: Order | None = None


class GroupProblem:
    """One launch, checked: everything of it but the pointers. Lengths stay unknown."""

    def __init__(self, arrays: GroupArrays, options: GroupOptions = GroupOptions()) -> None:
        x, w, out = arrays.x, arrays.w, arrays.out
        self.options = options
        self.groups, self.rows, self.n, self.k, self.pitch = extents(x, w, options)
        if x.dtype not in OPERANDS:
            raise LaunchError(f"x has elements of {x.dtype}: group_gemm multiplies {', '.join(OPERANDS)}")
        if w.dtype not in OPERANDS[x.dtype]:
            raise LaunchError(f"x has elements of {x.dtype} and w of {w.dtype}: w must have {' or '.join(OPERANDS[x.dtype])}")
        self.quantised = arrays.out_scale is not None
        if out.dtype == "e4m3" and not self.quantised:
            raise LaunchError("out has elements of e4m3: give out_scale as well, float32 [M, N / 128], for the scale of every 128 columns")
        check_dtype("out", out, ("e4m3",) if self.quantised else RESULTS)
        check_shape("out", out, (*x.shape[:-1], self.n))
        self.x, self.w, self.out = TYPES[x.dtype], TYPES[w.dtype], TYPES[out.dtype]
        self._lengths(arrays.lengths)
        if self.groups > CAPACITIES[-1]:
            raise LaunchError(f"w has {self.groups} groups: a table of groups has room for {CAPACITIES[-1]}; launch parts of them")
        if options.order is not None and options.order not in ORDERS:
            raise LaunchError(f"order={options.order!r}: it is {', '.join(ORDERS)}, or None")
        mean = options.mean_tokens
        if mean is not None and not mean > 0:
            raise LaunchError(f"mean_tokens={mean}: it is the expected number of rows of a group, more than 0; None is rows / groups")
        self.mean = float(mean) if mean is not None else self.rows / max(1, self.groups)
        self.x_lines = self.w_lines = self.y_lines = self.s_lines = Lines((), ())
        if not self.empty:
            self._operands(x, w, out)
        self.block_scales = self.scaled = self.scale_bulk = False
        self._scales(arrays.x_scale, arrays.w_scale)
        if arrays.out_scale is not None:
            self._out_scale(arrays.out_scale)
        if options.fast_accum and self.block_scales:
            raise LaunchError("fast_accum=True sums the whole depth in the tensor cores, block scales apply every 128: leave it out")
        self.promote = self.block_scales or (self.x.bits == 8 and options.fast_accum is False)
        self.out_row = out.strides[-2]

    @property
    def empty(self) -> bool:
        """Whether nothing is to be multiplied."""
        return not (self.groups and self.rows and self.n and self.k)

    @property
    def capacity(self) -> int:
        """Of the table of groups."""
        return next(capacity for capacity in CAPACITIES if self.groups <= capacity)

    def _lengths(self, lengths: ArrayView) -> None:
        name = NAMES[self.options.layout]
        count, what = {"masked": (self.groups, "the rows of each group"), "rows": (self.rows, "the group of each row of x"),
                       "offsets": (self.groups + 1, "where each group begins, and the end of the last")}[self.options.layout]
        if lengths.dtype not in ("s32", "u32"):
            raise LaunchError(f"{name} has elements of {lengths.dtype}: it must be int32")
        if lengths.shape != (count,):
            raise LaunchError(f"{name} has shape {lengths.shape}: for {self.groups} groups it is ({count},), {what}")
        check_contiguous(name, lengths)

    def _operands(self, x: ArrayView, w: ArrayView, out: ArrayView) -> None:
        size, result = self.x.bits // 8, self.out.bits // 8
        for name, array in (("x", x), ("w", w), ("out", out)):
            check_aligned(name, array, 16)
            if array.shape[-1] > 1 and array.strides[-1] != 1:
                raise LaunchError(f"{name} has strides {array.strides}: its last extent must be contiguous; pass a contiguous copy")
            bytes = TYPES[array.dtype].bits // 8
            for axis in range(len(array.shape) - 1):
                if array.shape[axis] > 1 and array.strides[axis] * bytes % 16:
                    raise LaunchError(f"{name} has strides {array.strides}: all but the last are multiples of {16 // bytes} (16 bytes)")
        if self.k * size % 16:
            raise LaunchError(f"K = {self.k}: group_gemm needs rows of x and w of a multiple of 16 bytes, {16 // size} elements; pad them")
        if self.n % 8 or self.n * result % 16:
            raise LaunchError(f"out has {self.n} columns: group_gemm needs a multiple of 8")
        for name, array in (("x", x), ("out", out)):
            if len(array.shape) == 3 and array.shape[0] > 1 and array.strides[0] != array.shape[1] * array.strides[1]:
                raise LaunchError(f"the groups of {name} are {array.strides[0]} elements apart: masked groups follow one another without "
                                  f"gaps, {array.shape[1] * array.strides[1]} apart")
        if self.rows > 1 and out.strides[-2] < self.n:
            raise LaunchError(f"the rows of out are {out.strides[-2]} elements apart: rows of {self.n} would overlap")
        row = w.strides[1] * size if w.shape[1] > 1 else self.k * size
        group = w.strides[0] * size if self.groups > 1 else w.shape[1] * row
        self.x_lines = Lines((self.k, self.rows), (x.strides[-2] * size if self.rows > 1 else self.k * size,))
        self.y_lines = Lines((self.n, self.rows), (out.strides[-2] * result if self.rows > 1 else self.n * result,))
        if self.options.gated:
            self.w_lines = Lines((self.k, self.n, 2, self.groups), (row, self.n * row, group))
        else:
            self.w_lines = Lines((self.k, self.n, self.groups), (row, group))

    def _scales(self, x: ArrayView | None, w: ArrayView | None) -> None:
        if x is None and w is None:
            return
        if x is None or w is None:
            raise LaunchError(f"{'x_scale' if x is None else 'w_scale'} is missing: both operands have scales, or none")
        for name, scale in (("x_scale", x), ("w_scale", w)):
            check_dtype(name, scale, ("f32",))
        depth, lines = -(-self.k // BLOCK), self.n * (2 if self.options.gated else 1)
        if len(x.shape) < 2:
            if math.prod(x.shape) != 1 or (math.prod(w.shape) != 1 and w.shape != (self.groups,)):
                raise LaunchError(f"x_scale has shape {x.shape} and w_scale {w.shape}: scales are one of x and one of w or of each of "
                                  f"{self.groups} groups, or blocks: x_scale ({self.rows}, {depth}), w_scale "
                                  f"({self.groups}, {-(-lines // BLOCK)}, {depth})")
            self.scaled = True
            return
        if self.x.bits != 8:
            raise LaunchError(f"block scales are those of fp8 operands, x has elements of {self.x.__name__}: pass scales of one element")
        rows = (self.groups, self.pitch) if self.options.layout == "masked" else (self.rows,)
        check_shape("x_scale", x, (*rows, depth))
        check_shape("w_scale", w, (self.groups, -(-lines // BLOCK), depth))
        if len(rows) == 2 and self.groups > 1 and x.strides[0] != self.pitch * x.strides[1]:
            raise LaunchError(f"x_scale has strides {x.strides}: the scales of masked groups follow one another without gaps")
        if self.options.gated and self.n % BLOCK:
            raise LaunchError(f"gate and up have {self.n} features: with block scales their number is a multiple of {BLOCK}")
        self.block_scales = True
        row, k = x.strides[-2:]
        if row == 1 and k % 4 == 0 and k >= self.rows and x.pointer % 16 == 0 and not self.empty:
            self.s_lines = Lines((self.rows, depth), (4 * k,))
            self.scale_bulk = w.strides[-1] == 1 and not any(extent % 4 for extent in (depth, *w.strides[:2])) and w.pointer % 16 == 0

    def _out_scale(self, scale: ArrayView) -> None:
        if self.n % BLOCK:
            raise LaunchError(f"out has {self.n} columns: with out_scale, a scale for every {BLOCK}, a multiple of {BLOCK}")
        check_dtype("out_scale", scale, ("f32",))
        rows = (self.groups, self.pitch) if self.options.layout == "masked" else (self.rows,)
        check_shape("out_scale", scale, (*rows, self.n // BLOCK))
        if len(rows) == 2 and self.groups > 1 and scale.strides[0] != self.pitch * scale.strides[1]:
            raise LaunchError(f"out_scale has strides {scale.strides}: the scales of masked groups follow one another without gaps")

    @property
    def scale_map(self) -> bool:
        """Whether x has block scales that are contiguous along the rows, on 16-byte lines."""
        return bool(self.s_lines.dims)

    @property
    def scale_copies(self) -> dict[str, bool]:
        """Which of the block scales the producer can copy: x's by a tensor map, w's, contiguous along K, four at a time."""
        return {"SCALE_MAP": self.scale_map, "SCALE_BULK": self.scale_bulk}

    def scalars(self, arrays: GroupArrays, config: GroupConfig, pointers: Any = None) -> tuple[Any, ...]:
        """The kernel's arguments besides tensor maps. `pointers` maps the name of an array to what stands for its pointer."""
        def pointer(name: str) -> Any:
            if pointers is not None:
                return pointers(name)
            array = getattr(arrays, name)
            return 0 if array is None else array.pointer

        x, w = arrays.x_scale, arrays.w_scale
        strides: tuple[int, ...] = (0, 0, 0, 0, 0)
        if self.block_scales:
            assert x is not None
            assert w is not None
            strides = (*x.strides[-2:], *w.strides)
        elif self.scaled:
            assert w is not None
            strides = (0, 0, w.strides[0] if w.shape and w.shape[0] > 1 else 0, 0, 0)
        return (pointer("lengths"), self.groups, self.rows, self.pitch, self.n, -(-self.n // config.features),
                -(-self.k // config.tile.BK), pointer("out"), self.out_row, 0, pointer("x_scale"), strides[0], strides[1],
                pointer("w_scale"), strides[2], strides[3], strides[4], pointer("out_scale"), *self._out_strides(arrays.out_scale),
                inverse(self.units_of_weights(config)), pointer("workspace") if pointers is not None else 0)

    @staticmethod
    def _out_strides(scale: ArrayView | None) -> tuple[int, ...]:
        return scale.strides[-2:] if scale is not None else (0, 0)

    def update_scalars(self, arrays: GroupArrays, pointers: Any = None) -> tuple[Any, ...]:
        """Those of the kernel that makes the maps; its workspace comes last."""
        where = pointers or (lambda name: getattr(arrays, name).pointer)
        none = pointers("none") if pointers is not None else 0
        return where("lengths"), self.groups, self.rows, self.pitch, where("out"), self.y_lines.strides[0], none, none, none

    def stored(self, config: GroupConfig) -> tuple[Lines, int]:
        """Y as the kernel's tensor map describes it, and how many bytes before Y it begins; see `RaggedStore`.

        Those bytes need not be memory: no copy has coordinates there, and the map is an address and extents, whatever lies at them.
        """
        if config.TAILS != "ragged":
            return self.y_lines, 0
        (row,) = self.y_lines.strides
        return Lines((self.n, ROWS, self.rows + 1), (row, row)), ROWS * row

    def units(self, config: GroupConfig) -> int:
        """At most how many units of work there are, whatever the lengths."""
        along = config.tile.CLUSTER_N if config.TRANSPOSED else config.tile.CLUSTER_M
        rows = -(-self.rows // config.tokens) if config.LAYOUT == "rows" else \
            self.rows // (config.tokens * along) + min(self.groups, self.rows)
        return rows * self.units_of_weights(config)

    def units_of_weights(self, config: GroupConfig) -> int:
        """How many units the weights of a group are."""
        across = config.tile.CLUSTER_M if config.TRANSPOSED else config.tile.CLUSTER_N
        return -(-self.n // (config.features * across))

    def grid(self, config: GroupConfig, ctas: int) -> int:
        """CTAs of a launch where so many fit: the same number, of whole clusters, for each kernel of the configuration."""
        size = math.lcm(*(each.tile.cluster for each in config.kernels))
        wanted = max(self.units(each) * each.tile.cluster for each in config.kernels)
        return min(-(-wanted // size), max(1, ctas // size)) * size


def extents(x: ArrayView, w: ArrayView, options: GroupOptions) -> tuple[int, int, int, int, int]:
    """(groups, rows of x, N, K, rows from a masked group to the next)."""
    masked = options.layout == "masked"
    if len(x.shape) != (3 if masked else 2):
        raise LaunchError(f"x has shape {x.shape}: it is {'[groups, rows, K]' if masked else '[rows, K], the groups one after another'}")
    if len(w.shape) != 3:
        raise LaunchError(f"w has shape {w.shape}: it is [groups, N, K]")
    groups, lines, k = w.shape
    if x.shape[-1] != k:
        raise LaunchError(f"x has shape {x.shape} and w {w.shape}: both have K last, and it is the same")
    if masked and x.shape[0] != groups:
        raise LaunchError(f"x has {x.shape[0]} groups and w {groups}")
    if options.gated and lines % 2:
        raise LaunchError(f"w has {lines} rows a group: those of the gate, then as many of the up projection")
    rows = x.shape[0] * x.shape[1] if masked else x.shape[0]
    return groups, rows, lines // 2 if options.gated else lines, k, x.shape[1] if masked else 0


def misfit(ends: Sequence[int], rows: int) -> str | None:
    """A sentence when these offsets are not those of groups in `rows` rows."""
    if ends and ends[0] < 0:
        return f"cu_seqlens begins with {ends[0]}: the first group begins at row 0 or later"
    for group, (start, end) in enumerate(itertools.pairwise(ends)):
        if end < start:
            return f"group {group} begins at row {start} and ends at row {end}: cu_seqlens must not decrease"
    if ends and ends[-1] > rows:
        return f"cu_seqlens ends at row {ends[-1]}: x has {rows} rows"
    return None


__all__ = ["NAMES", "GroupArrays", "GroupOptions", "GroupProblem", "extents", "misfit"]
