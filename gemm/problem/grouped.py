"""What is asked for: arrays checked, extents, strides and scales; and the arguments of the kernels, by name."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ptxkit.errors import LaunchError
from ptxkit.idioms import inverse
from ptxkit.layout import Major
from ptxkit.runtime.arrays import ArrayView
from ptxkit.runtime.launch import check_aligned, check_contiguous, check_dtype, check_shape
from ptxkit.types import TYPES

from ..collective.atoms import ROWS
from ..collective.thread_scales import BLOCK
from ..config.grouped import CAPACITIES, GroupedConfig, GroupOperands, StagedGroups
from ..config.grouped_parts import Scatter, Vectors
from ..config.parts import BlockScaled, Promoted, Promotion, ScaleLoad, Sums, TensorCoreSums, ThreadScaled
from ..scheduler.group_table import CONTIGUOUS_ROWS, MOST_CONTIGUOUS, Layout
from ..scheduler.grouped import ORDERS, Order
from .dense import MOST_EXTENT, Lines, check_forwards, short
from .lines import settled_strides
from .scales import check_contiguous_rows, check_contiguous_vector, check_near, group_scale_kind, taken_by_groups

OPERANDS = {"bf16": ("bf16",), "f16": ("f16",), "e4m3": ("e4m3", "e5m2"), "e5m2": ("e4m3", "e5m2")}
RESULTS = ("bf16", "f16", "f32")
CHUNK = 16
"""Bytes that a thread copies at once of a gathered row."""
NAMES: dict[Layout, str] = {"cu_seqlens": "cu_seqlens", "masked": "masked_m", "contiguous": "m_indices", "ptr_array": "sizes"}
"""What the array of lengths is called in each layout."""


class GroupArrays(NamedTuple):
    """x [M, K] (masked: [G, rows, K]), w [G, N, K], lengths [G + 1] (masked: [G]), out [M, N]. With gather [M] x is [rows, K], with
    scatter [M] out is [rows, N]."""

    x: ArrayView
    w: ArrayView
    lengths: ArrayView
    out: ArrayView
    x_scale: ArrayView | None = None
    w_scale: ArrayView | None = None
    out_scale: ArrayView | None = None
    gather: ArrayView | None = None
    scatter: ArrayView | None = None

    def named(self) -> list[tuple[str, ArrayView]]:
        """Those that are given, by name."""
        return [(name, array) for name, array in zip(self._fields, self, strict=True) if array is not None]


def settled(arrays: GroupArrays) -> GroupArrays:
    """The arrays with strides along extents of 1 that the others give, since those have no meaning: where masked groups have one row each,
    rows are as far apart as groups, else 0. Those without elements have the strides of contiguous ones."""
    changed = {name: array._replace(strides=_settled(array)) for name, array in arrays.named() if {0, 1} & {*array.shape}}
    return arrays._replace(**changed)


def _settled(array: ArrayView) -> tuple[int, ...]:
    strides = settled_strides(array)
    return (strides[0], strides[0], strides[2]) if len(strides) == 3 and array.shape[1] == 1 else strides


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """The rest of the arguments of `gemm.group_gemm`."""

    layout: Layout = "cu_seqlens"
    gated: bool = False
    mean_tokens: float | None = None
    fast_accum: bool | None = None
    order: Order | None = None
    batch_invariant: bool = False
    weighted: bool = False
    """Whether x_scale are weights of the rows of the product."""
    add: bool = False
    """Whether the rows of the product are added to those of out."""


class GroupProblem:
    """One launch, checked: everything of it but the pointers. Lengths stay unknown."""

    def __init__(self, arrays: GroupArrays, options: GroupOptions = GroupOptions()) -> None:
        x, w, out = arrays.x, arrays.w, arrays.out
        self.options = options
        self.groups, self.x_rows, self.n, self.k, self.pitch = extents(x, w, options)
        self.gathered = arrays.gather is not None
        self.rows = self.x_rows if arrays.gather is None else gathered_rows(arrays.gather, options)
        if self.rows >= MOST_EXTENT:
            raise LaunchError(f"x has {self.rows} rows: a launch has fewer than {MOST_EXTENT}; launch parts of them")
        if x.dtype not in OPERANDS:
            raise LaunchError(f"x has elements of {x.dtype}: group_gemm multiplies {', '.join(OPERANDS)}")
        if w.dtype not in OPERANDS[x.dtype]:
            raise LaunchError(f"x has elements of {x.dtype} and w of {w.dtype}: w must have {' or '.join(OPERANDS[x.dtype])}")
        self.quantised = arrays.out_scale is not None
        if out.dtype == "e4m3" and not self.quantised:
            raise LaunchError("out has elements of e4m3: give out_scale as well, float32 [M, N / 128], for the scale of every 128 columns")
        check_dtype("out", out, ("e4m3",) if self.quantised else RESULTS)
        self.scatter: Scatter = "" if arrays.scatter is None else "add" if options.add else "rows"
        self.out_rows = out.shape[0] if self.scatter else self.rows
        check_shape("out", out, (None if self.scatter else self.rows, self.n) if self.gathered or self.scatter else (*x.shape[:-1], self.n))
        self._scatter(arrays.scatter)
        self.x, self.w, self.out = TYPES[x.dtype], TYPES[w.dtype], TYPES[out.dtype]
        self._lengths(arrays.lengths)
        if options.order is not None and options.order not in ORDERS:
            raise LaunchError(f"order={short(options.order)}: it is {', '.join(ORDERS)}, or None")
        mean = options.mean_tokens
        if mean is not None and not mean > 0:
            raise LaunchError(f"mean_tokens={mean}: it is the expected number of rows of a group, more than 0; None is rows / groups")
        self.mean = float(mean) if mean is not None else self.rows / max(1, self.groups)
        self.w_major: Major = "mn" if along_n(w, options) else "k"
        self.by_element = False                                 # whether rows of out begin anywhere, or N is no multiple of 8
        self.x_lines = self.w_lines = self.y_lines = self.s_lines = self.w_s_lines = Lines((), ())
        if self.groups and self.rows and self.n:
            self._result(out)
        if not self.empty:
            self._operands(x, w)
        self.block_scales = self.scaled = self.scale_bulk = False
        self.vectors: Vectors = ""
        self.scales_apart = any(map(self._apart, (arrays.x_scale, arrays.out_scale)))
        self._scales(arrays.x_scale, arrays.w_scale)
        if arrays.out_scale is not None:
            self._out_scale(arrays.out_scale)
        if not self.k and self.quantised:
            raise LaunchError("K = 0 leaves nothing to quantise: clear out and its scales without a gemm")
        if options.fast_accum and self.block_scales:
            raise LaunchError("fast_accum=True sums the whole depth in the tensor cores, block scales apply every 128: leave it out")
        self.promote = self.block_scales or (self.x.bits == 8 and options.fast_accum is False)
        self.out_row = out.strides[-2]

    @property
    def empty(self) -> bool:
        """Whether nothing is to be multiplied."""
        return not (self.groups and self.rows and self.n and self.k)

    @property
    def clears(self) -> bool:
        """Whether K = 0 leaves rows to be cleared: those of groups."""
        return bool(not self.k and self.rows and self.n and self.groups)

    def clear_arguments(self, out: ArrayView) -> dict[str, int]:
        """The numbers that `clear_groups` takes."""
        size = self.out.bits // 8
        return {"groups": self.groups, "pitch": self.pitch, "row_bytes": self.n * size, "row_stride": out.strides[-2] * size,
                "group_stride": out.strides[0] * size if len(out.shape) == 3 else 0}

    @property
    def blocks(self) -> int:
        """The blocks of CONTIGUOUS_ROWS that the rows of contiguous groups fill."""
        return -(-self.rows // CONTIGUOUS_ROWS)

    @property
    def capacity(self) -> int:
        """Of the table of groups."""
        return next((capacity for capacity in CAPACITIES if self.groups <= capacity), CAPACITIES[-1])

    @property
    def in_parts(self) -> bool:
        """Whether the groups are more than a table has room for, so that several launches have some of them each (`group_parts`)."""
        return self.groups > CAPACITIES[-1] and self.options.layout != "contiguous"

    def _lengths(self, lengths: ArrayView) -> None:
        name = NAMES[self.options.layout]
        if self.options.layout == "contiguous" and self.groups > MOST_CONTIGUOUS:
            raise LaunchError(f"w has {self.groups:,} groups: contiguous ones are at most {MOST_CONTIGUOUS:,}; take group_gemm with "
                              "cu_seqlens")
        count, what = {"masked": (self.groups, "the rows of each group"), "contiguous": (self.rows, "the group of each row of x"),
                       "cu_seqlens": (self.groups + 1, "where each group begins, and the end of the last")}[self.options.layout]
        if lengths.dtype not in ("s32", "u32"):
            raise LaunchError(f"{name} has elements of {lengths.dtype}: it must be int32")
        if lengths.shape != (count,):
            raise LaunchError(f"{name} has shape {lengths.shape}: for {self.groups} groups it is ({count},), {what}")
        check_contiguous(name, lengths)

    def _operands(self, x: ArrayView, w: ArrayView) -> None:
        size = self.x.bits // 8
        for name, array in (("x", x), ("w", w)):
            lying = name == "w" and self.w_major == "mn"        # with another contiguous extent than the last
            _check_lines(name, array, 16, lying=lying)
            for axis in range(len(array.shape)):
                if axis != len(array.shape) - 1 - lying and array.shape[axis] > 1 and array.strides[axis] * size % 16:
                    which = "contiguous one" if lying else "last"
                    raise LaunchError(f"{name} has strides {array.strides}: all but the {which} are multiples of {16 // size} (16 bytes); "
                                      "pad them")
        if self.k * size % 16:
            raise LaunchError(f"K = {self.k}: group_gemm needs rows of x and w of a multiple of 16 bytes, {16 // size} elements; pad them")
        _check_gaps("x", x)
        row = w.strides[1] * size if w.shape[1] > 1 else self.k * size
        group = w.strides[0] * size if self.groups > 1 else w.shape[1] * row
        self.x_lines = Lines((self.k, self.x_rows), (x.strides[-2] * size if self.x_rows > 1 else self.k * size,))
        if self.gathered and self.x_rows * self.x_lines.strides[0] // CHUNK >= (1 << 32) - 1:
            raise LaunchError(f"x has shape {x.shape} and strides {x.strides}: gathered rows begin within 64 GiB; gather from parts of it")
        if self.w_major == "mn":
            row = w.strides[2] * size
            self.w_lines = Lines((self.n, self.k, self.groups), (row, w.strides[0] * size if self.groups > 1 else self.k * row))
        elif self.options.gated:
            self.w_lines = Lines((self.k, self.n, 2, self.groups), (row, self.n * row, group))
        else:
            self.w_lines = Lines((self.k, self.n, self.groups), (row, group))

    def _result(self, out: ArrayView) -> None:
        size = self.out.bits // 8
        _check_lines("out", out, size)
        if self.quantised and (out.pointer % 16 or out.strides[-2] % 16):
            raise LaunchError(f"out has strides {out.strides} at address {out.pointer:#x}: rows of quantised results begin at multiples of "
                              "16 bytes; pass a contiguous one")
        self.by_element = bool(self.n % 8 or out.pointer % 16 or (self.out_rows > 1 and out.strides[-2] * size % 16))
        if self.by_element and self.options.add and size < 4:
            raise LaunchError(f"out has {self.n} columns of {out.dtype}, at strides {out.strides}: atomic additions of 16 bits need rows "
                              "of a multiple of 8 that begin at multiples of 16 bytes; take a float32 result")
        _check_gaps("out", out)
        if self.out_rows > 1 and out.strides[-2] < self.n:
            raise LaunchError(f"the rows of out are {out.strides[-2]} elements apart: rows of {self.n} would overlap; pass a "
                              "contiguous one")
        self.y_lines = Lines((self.n, self.rows), (out.strides[-2] * size if self.out_rows > 1 else self.n * size,))

    def _scales(self, x: ArrayView | None, w: ArrayView | None) -> None:
        if self.options.weighted:
            self._weights(x, w)
            return
        if x is None and w is None:
            return
        if x is None or w is None:
            raise LaunchError(f"{'x_scale' if x is None else 'w_scale'} is missing: both operands have scales, or none")
        for name, scale in (("x_scale", x), ("w_scale", w)):
            check_dtype(name, scale, ("f32",))
            check_near(name, scale)
        depth, lines = -(-self.k // BLOCK), self.n * (2 if self.options.gated else 1)
        rows = (self.groups, self.pitch) if self.options.layout == "masked" else (self.rows,)
        asked = rows, self.groups, lines, self.k
        kind = group_scale_kind(x.shape, w.shape, *asked)
        if kind == "block" and (self.options.fast_accum or self.x.bits != 8):
            kind = group_scale_kind(x.shape, w.shape, *asked, blocks=False) or kind
        self.scaled = kind in ("whole", "row", "column", "row_column")
        if kind == "whole":
            return
        if self.x.bits != 8:
            raise LaunchError("scales of rows, features and blocks are those of fp8 operands, x has elements of "
                              f"{self.x.__name__}: pass one of x, and one of w or of each of {self.groups} groups")
        if kind is None:
            raise LaunchError(f"x_scale has shape {x.shape} and w_scale has shape {w.shape}: {taken_by_groups(*asked)}")
        if kind != "block":
            self.vectors = kind
            if "row" in kind:
                check_contiguous_rows("x_scale", x)
            if "column" in kind:
                check_contiguous_vector("w_scale", w._replace(shape=w.shape[1:], strides=w.strides[1:]))
            return
        if self.options.gated and self.n % 8:
            raise LaunchError(f"gate and up have {self.n} features: with block scales their number is a multiple of 8; pad them")
        if self.scatter:
            raise LaunchError("scatter: the kernel of scattered rows has no block scales; combine the rows of the result instead")
        if self.gathered:
            raise LaunchError("gather: the kernels of gathered rows have no block scales; take scales of rows and features, or gather the "
                              "rows and their scales before")
        self.block_scales = True
        count = self.pitch if self.scales_apart else self.rows
        row, k = x.strides[-2], x.strides[-1] if depth > 1 else -(-count // 4) * 4
        group = x.strides[0] if self.scales_apart else 0
        if row == 1 and k % 4 == group % 4 == 0 and k >= count and x.pointer % 16 == 0 and not self.empty:
            self.s_lines = Lines((count, depth), (4 * k,)) if not group else Lines((count, depth, self.groups), (4 * k, 4 * group))
            self.scale_bulk = w.strides[-1] == 1 and not any(extent % 4 for extent in (depth, *w.strides[:2])) and w.pointer % 16 == 0
            span = 1 + sum((extent - 1) * stride for extent, stride in zip(w.shape, w.strides, strict=True))
            if w.pointer % 16 == 0 and span < 1 << 31:
                self.w_s_lines = Lines((span,), ())

    def _scatter(self, scatter: ArrayView | None) -> None:
        if scatter is None:
            if self.options.add:
                raise LaunchError('combine="atomic" adds rows to those of out by number: give scatter as well')
            return
        if self.options.layout != "cu_seqlens" or self.gathered or self.quantised:
            raise LaunchError("scatter: the kernel of scattered rows has groups with offsets, neither gathered rows nor quantised results; "
                              "combine the rows of the result instead")
        check_dtype("scatter", scatter, ("s32", "u32"))
        check_shape("scatter", scatter, (self.rows,))
        check_contiguous("scatter", scatter)
        if not self.k:
            raise LaunchError("K = 0 leaves nothing to scatter: clear the rows of out without a gemm")

    def _weights(self, weights: ArrayView | None, w_scale: ArrayView | None) -> None:
        if weights is None or w_scale is not None:
            raise LaunchError("weights: with scales of operands multiply x_scale, of rows, by them instead")
        if self.options.gated:
            raise LaunchError("weights: they multiply sums, and a gate comes after them; weigh the rows of the next product")
        check_dtype("weights", weights, ("f32",))
        check_shape("weights", weights, (self.rows,))
        check_contiguous("weights", weights)
        self.scaled, self.vectors = True, "weight"

    def _out_scale(self, scale: ArrayView) -> None:
        if self.n % BLOCK:
            raise LaunchError(f"out has {self.n} columns: with out_scale, a scale for every {BLOCK}, a multiple of {BLOCK}; quantise "
                              "the result afterwards")
        check_dtype("out_scale", scale, ("f32",))
        rows = (self.groups, self.pitch) if self.options.layout == "masked" else (self.rows,)
        check_near("out_scale", scale)
        check_shape("out_scale", scale, (*rows, self.n // BLOCK))

    def _apart(self, scale: ArrayView | None) -> bool:
        """Whether the scales of masked groups do not follow one another as the groups' rows do."""
        return self.options.layout == "masked" and scale is not None and len(scale.shape) == 3 and self.groups > 1 \
            and scale.strides[0] != self.pitch * scale.strides[1]

    @property
    def operands(self) -> GroupOperands:
        """The element types, the layout and the epilogue that a configuration must have; and the smallest table that has room."""
        return GroupOperands(self.x, self.w, self.out, self.options.layout, self.options.gated, self.scaled, self.vectors,
                             self.capacity, self.scales_apart, self.gate_step, self.gathered, self.scatter,
                             self.w_major)

    @property
    def as_rows(self) -> bool:
        """Whether tokens must be rows of a tile, however few there are."""
        return self.options.batch_invariant or self.by_element or self.gathered or bool(self.scatter)

    @property
    def gate_step(self) -> int:
        """What the number of features is a multiple of, where the scales of an up projection lie behind those of the gate."""
        return math.gcd(self.n, BLOCK) if self.options.gated and self.block_scales and self.n else BLOCK

    @property
    def scale_load(self) -> ScaleLoad:
        """How the block scales can be loaded best. The producer can copy those of x by a tensor map where they are contiguous along the
        rows, on 16-byte lines. It can copy those of w as well: four at a time where they are contiguous along K on 16-byte lines, else one
        by one. Each way that comes before the best one in `ScaleLoad` is possible too."""
        return "bulk" if self.scale_bulk else "lines" if self.w_s_lines.dims else "tensor_map" if self.s_lines.dims else "warp"

    @property
    def scales_by_producer(self) -> bool:
        """Whether the producer can copy all block scales."""
        return self.scale_load in ("lines", "bulk")

    @property
    def scales_in_shared(self) -> bool:
        """Whether there are block scales that can come through shared memory: with a gate, the producer must be able to copy them all."""
        return self.block_scales and (self.scales_by_producer or not self.options.gated)

    def sums(self, how: Promotion = "plain", swap_ab: bool = False) -> Sums:
        """Where the sums along K are accumulated; promoted ones in this way. Block scales come through shared memory where they can."""
        if not self.promote:
            return TensorCoreSums()
        if not self.block_scales:
            return Promoted(how)
        if swap_ab or not self.scales_in_shared:
            return ThreadScaled(how == "stagger")
        return BlockScaled(how, self.scale_load)

    def arguments(self, arrays: GroupArrays, config: GroupedConfig, pointer: Callable[[str], Any]) -> dict[str, Any]:
        """The arguments besides tensor maps of this configuration's kernel, by name. `pointer` maps the name of an array, or workspace, to
        what stands for its address. Where a kernel has no block scales, x's one scale is an address alone."""
        x, w, out = arrays.x_scale, arrays.w_scale, arrays.out_scale
        w_strides: tuple[int, ...] = (0, 0, 0)
        if self.block_scales and w is not None:
            w_strides = w.strides
        elif self.scaled and w is not None:
            w_strides = (w.strides[0] if w.shape and w.shape[0] > 1 else 0, 0, 0)

        def rows(name: str, array: ArrayView | None) -> dict[str, Any]:
            strides = array.strides if array is not None and len(array.shape) > 1 else (0, 0)
            return {"pointer": pointer(name), "mn_stride": strides[-2], "k_stride": strides[-1],
                    "group_stride": strides[0] if len(strides) == 3 else 0}

        by_block = config.swap_ab or isinstance(config.sums, BlockScaled | ThreadScaled)
        x_scale = rows("x_scale", x if self.block_scales else None) if by_block else pointer("x_scale")
        groups = {"lengths": pointer("lengths"), "count": self.groups, "rows": self.rows, "pitch": self.pitch, "n": self.n,
                  "weight_tiles": -(-self.n // config.features), "k_tiles": -(-self.k // config.tile.BK),
                  "weights_divmod": inverse(self.weight_work_tiles(config))}
        gathered = {"x": {"pointer": pointer("x"), "numbers": pointer("gather"), "pitch": self.x_lines.strides[0] // CHUNK,
                          "rows": self.x_rows, "depth": self.k * self.x.bits // 8}} if self.gathered else {}
        scattered = {"scatter": {"numbers": pointer("scatter"), "rows": self.out_rows}} if self.scatter else {}
        return {**gathered, **scattered, "groups": groups, "out": {"pointer": pointer("out"), "row": self.out_row, "batch": 0},
                "x_scale": x_scale,
                "w_scale": {"pointer": pointer("w_scale"), "group_stride": w_strides[0], "mn_stride": w_strides[1],
                            "k_stride": w_strides[2]},
                "out_scale": rows("out_scale", out),
                "workspace": pointer("workspace")}

    def update_arguments(self, pointer: Callable[[str], Any]) -> dict[str, Any]:
        """Those of the kernel that makes a map of each group. `pointer` maps "none", too, to what stands for no array."""
        none = pointer("none")
        return {"lengths": pointer("lengths"), "groups": self.groups, "rows": self.rows, "pitch": self.pitch, "out": pointer("out"),
                "out_row_bytes": self.y_lines.strides[0], "x_at": none, "w_at": none, "y_at": none, "workspace": pointer("workspace")}

    def stored(self, config: GroupedConfig) -> tuple[Lines, int]:
        """Y as the kernel's tensor map describes it, and how many bytes before Y it begins; see `RaggedStore`.

        Those bytes need not be memory: no copy has coordinates there, and a map only says an address and extents.
        """
        if not isinstance(config.store, StagedGroups) or config.store.ends != "ragged":
            return self.y_lines, 0
        (row,) = self.y_lines.strides
        return Lines((self.n, ROWS, self.rows + 1), (row, row)), ROWS * row

    def work_tiles(self, config: GroupedConfig) -> int:
        """The most work tiles there can be, whatever the lengths."""
        rows = -(-self.rows // config.tile_tokens) if self.options.layout == "contiguous" else \
            self.rows // (config.tile_tokens * config.along_tokens) + min(self.groups, self.rows)
        return rows * self.weight_work_tiles(config)

    def weight_work_tiles(self, config: GroupedConfig) -> int:
        """Work tiles along the weights of a group."""
        return -(-self.n // (config.features * config.along_weights))

    def grid(self, config: GroupedConfig, ctas: int) -> int:
        """CTAs of a launch on a device that holds so many: the same number, of whole clusters, for each kernel of the configuration."""
        size = math.lcm(*(each.cluster for each in config.kernels))
        wanted = max(self.work_tiles(each) * each.cluster * each.sharing for each in config.kernels)
        return min(-(-wanted // size), max(1, ctas // size)) * size


def gathered_rows(gather: ArrayView, options: GroupOptions) -> int:
    """The rows of a product, of which these are the numbers in x. Raises LaunchError."""
    if options.layout != "cu_seqlens":
        raise LaunchError(f"gather: the rows of {options.layout} groups are where they are; take group_gemm with cu_seqlens")
    check_dtype("gather", gather, ("s32", "u32"))
    if len(gather.shape) != 1:
        raise LaunchError(f"gather has shape {gather.shape}: it is int32 [M], for each row of out the number of its row of x")
    check_contiguous("gather", gather)
    return gather.shape[0]


def along_n(w: ArrayView, options: GroupOptions) -> bool:
    """Whether the weights are read as they lie, contiguous along N: w [groups, N, K] is then a transposed view of [groups, K, N]."""
    (_, n, k), (_, line, element) = w.shape, w.strides
    return k > 1 and element != 1 and (line == 1 or n == 1) and TYPES[w.dtype].bits == 16 and not options.gated


def _check_lines(name: str, array: ArrayView, alignment: int, *, lying: bool = False) -> None:
    """Raise LaunchError unless the array begins at a multiple of so many bytes, and its last extent is contiguous, or it is `lying`
    with another one."""
    check_aligned(name, array, alignment)
    check_forwards(name, array)
    if array.shape[-1] > 1 and array.strides[-1] != 1 and not lying:
        raise LaunchError(f"{name} has strides {array.strides}: its last extent must be contiguous; pass a contiguous copy")


def _check_gaps(name: str, array: ArrayView) -> None:
    """Raise LaunchError if masked groups do not follow one another."""
    if len(array.shape) == 3 and array.shape[0] > 1 and array.strides[0] != array.shape[1] * array.strides[1]:
        raise LaunchError(f"the groups of {name} are {array.strides[0]} elements apart: masked groups follow one another without "
                          f"gaps, {array.shape[1] * array.strides[1]} apart; pass a contiguous copy")


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


__all__ = ["NAMES", "GroupArrays", "GroupOptions", "GroupProblem", "along_n", "extents", "gathered_rows", "misfit", "settled"]
