"""`gemm.quantize`: a matrix in fp8 and its scales, as products take them; on the device and on the CPU device."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from ptxkit.cards import H200, Card
from ptxkit.dsl.kernel import Kernel
from ptxkit.dsl.parameters import values
from ptxkit.errors import LaunchError
from ptxkit.idioms import inverse
from ptxkit.newest import Newest
from ptxkit.runtime import driver
from ptxkit.runtime.arrays import ArrayView, marks
from ptxkit.runtime.launch import check_dtype, check_shape, empty_like_owner, raw_stream, refuse_gradients, same_device, view
from ptxkit.runtime.overlap import refuse_overlap
from ptxkit.types import TYPES

from ..collective.quantizer import LARGEST, VECTOR
from ..kernels.quantize import (
    BLOCK,
    MOST_VECTORS,
    SEGMENT,
    STEPS,
    THREADS,
    largest_magnitudes,
    quantize_blocks,
    quantize_row_blocks,
    quantize_rows,
    quantize_tensor,
    tile_rows,
)
from ..kernels.quantize_transposed import WIDTH, quantize_transposed
from ..problem.dense import short, type_name
from ..problem.lines import check_forwards
from ..problem.options import flag
from .dense import check_out_dtype, compiled
from .grid import places, scalars
from .workspace import Workspaces

if TYPE_CHECKING:
    import numpy as np

    from ptxkit.sim import Report

    Array = np.ndarray[Any, Any]

Kind = Literal["tensor", "row", "1x128", "128x128"]
SOURCES = ("bf16", "f16", "f32")
ROW_THREADS = (32, 128, 256, 512)       # that may share a row
CTAS = 8                                # of an SM, of a matrix with one scale
_launches: Newest[Any, Quantiser] = Newest()
_workspaces = Workspaces(1 << 14)


class Step(NamedTuple):
    """One kernel of a quantiser, its compile-time parameters and its CTAs."""

    kernel: Kernel[...]
    parameters: dict[str, Any]
    ctas: int


class QuantiseProblem:
    """One quantiser, checked: everything of it but the pointers. `transposed`: q is that of x^T, whose rows have the blocks."""

    def __init__(self, x: ArrayView, q: ArrayView, scale: ArrayView, kind: Kind, transposed: bool = False) -> None:
        check_dtype("out", q, tuple(LARGEST))
        self.m, self.k = _matrix(x)
        self.transposed = transposed
        rows, columns = q_shape(kind, self.m, self.k, transposed)
        check_shape("out", q, (rows, columns))
        check_dtype("out_scale", scale, ("f32",))
        for name, array in (("x", x), ("out", q), ("out_scale", scale)):
            check_forwards(name, array)
            if name != "out_scale" and self.m * self.k and array.shape[1] > 1 and array.strides[1] != 1:
                raise LaunchError(f"{name} has strides {array.strides}: its rows must be contiguous; pass a contiguous copy")
            if any(stride >= 1 << 32 for extent, stride in zip(array.shape, array.strides, strict=True) if extent > 1):
                raise LaunchError(f"{name} has strides {array.strides}: they are less than 2^32; pass a contiguous copy")
        if rows > 1 and q.strides[0] < columns:
            raise LaunchError(f"the rows of out are {q.strides[0]} elements apart and have {columns}: they must not overlap; pass a "
                              "contiguous one")
        shape = scale_shape(kind, rows, columns)
        if not (scale.shape == shape or (kind == "row" and scale.shape == (self.m,)) or (kind == "tensor" and math.prod(scale.shape) == 1)):
            raise LaunchError(f"out_scale has shape {scale.shape}: with kind={kind!r} x {x.shape} has scales of shape {shape}")
        self.kind, self.source, self.out = kind, TYPES[x.dtype], TYPES[q.dtype]
        self.empty = 0 in shape or (not self.m and kind != "tensor")
        size, self.vector = self.source.bits // 8, VECTOR * 8 // self.source.bits
        apart = x.strides[0] if self.m > 1 else 0, q.strides[0] if rows > 1 else 0
        stored = VECTOR if transposed else self.vector          # results at once
        self.wide_out = not (columns % stored or q.pointer % stored or apart[1] % stored)
        self.wide = not (self.k % self.vector or x.pointer % VECTOR or apart[0] * size % VECTOR) and (transposed or self.wide_out)
        steps = scale.strides if len(scale.shape) == 2 else (*scale.strides, 0)[:2] if scale.shape else (0, 0)
        of_row, of_column = steps[0] if rows > 1 else 0, steps[1] if scale.shape[1:] > (1,) else 0
        self.strides = {"x_row": apart[0], "q_row": apart[1], "scale_row": of_row, "scale_column": of_column}

    @property
    def across(self) -> int:
        """The tiles of blocks, or of a matrix with one scale, that lie side by side."""
        return max(1, -(-self.k // (WIDTH if self.transposed else BLOCK if self.kind == "128x128" else SEGMENT)))

    @property
    def tiles(self) -> int:
        """All of these tiles."""
        return self.across * -(-self.m // (BLOCK if self.transposed or self.kind == "128x128" else tile_rows(self.source)))

    def steps(self, sms: int) -> list[Step]:
        """The kernels that are launched, one after another, on a card with so many SMs."""
        types = {"source": self.source, "out": self.out, "wide": self.wide}
        if self.transposed:
            return [Step(quantize_transposed, {**types, "wide_out": self.wide_out}, self.tiles)]
        if self.kind == "row":
            threads = next((threads for threads in ROW_THREADS if threads * self.vector * STEPS >= self.k), ROW_THREADS[-1])
            vectors = max(1, -(-self.k // (threads * self.vector)))
            held = vectors <= MOST_VECTORS
            own = {"threads": threads, "vectors": vectors if held else STEPS, "held": held}
            return [Step(quantize_rows, {**types, **own}, -(-self.m * threads // max(THREADS, threads)))]
        if self.kind != "tensor":
            return [Step(quantize_blocks if self.kind == "128x128" else quantize_row_blocks, types, self.tiles)]
        ctas = max(1, min(self.tiles, CTAS * sms))
        return [Step(each, types, ctas) for each in (largest_magnitudes, quantize_tensor)]

    def arguments(self, x: Any, q: Any, scale: Any, partial: Any) -> dict[str, Any]:
        """The kernels' arguments by name."""
        return {"given": {"x": x, "q": q, "scale": scale, "rows": self.m, "columns": self.k, **self.strides}, "partial": partial,
                "tiles": self.tiles, "tiling": {"across": self.across, "inverse": inverse(self.across)}}


def _matrix(x: ArrayView) -> tuple[int, int]:
    if x.dtype not in SOURCES:
        raise LaunchError(f"x has elements of {x.dtype}: quantize takes {', '.join(SOURCES)}")
    if len(x.shape) != 2:
        raise LaunchError(f"x has shape {x.shape}: it is a matrix [M, K]; reshape it, or quantise its matrices one by one")
    return x.shape[0], x.shape[1]


def q_shape(kind: Kind, m: int, k: int, transposed: bool) -> tuple[int, int]:
    """The shape of what an M x K matrix is quantised to."""
    if transposed and kind != "1x128":
        raise LaunchError(f"transposed=True with kind={short(kind)}: only '1x128' has a transposed result")
    return (k, m) if transposed else (m, k)


def scale_shape(kind: Kind, m: int, k: int) -> tuple[int, ...]:
    """The shape of the scales of an M x K matrix."""
    if not (isinstance(kind, str) and kind in get_args(Kind)):
        raise LaunchError(f"kind={short(kind)}: it is {', '.join(get_args(Kind))}")
    depth = -(-k // BLOCK)
    shapes: dict[str, tuple[int, ...]] = {"tensor": (1,), "row": (m, 1), "1x128": (m, depth), "128x128": (-(-m // BLOCK), depth)}
    return shapes[kind]


class Quantiser:
    """A quantiser's launches."""

    __slots__ = ("launches", "like", "ordinal", "partial", "placed")

    def __init__(self, x: ArrayView, q: ArrayView, scale: ArrayView, kind: Kind, transposed: bool) -> None:
        self.ordinal, self.like = same_device([("x", x), ("out", q), ("out_scale", scale)]), x
        problem = QuantiseProblem(x, q, scale, kind, transposed)
        self.launches, self.partial, self.placed = [], 0, (-1, [])
        if problem.empty:
            return
        refuse_overlap((("x", x), ("out", q), ("out_scale", scale)), ("out", "out_scale"))
        named = problem.arguments(x.pointer, q.pointer, scale.pointer, 0)
        for kernel, parameters, ctas in problem.steps(driver.device(self.ordinal).multiprocessors):
            made = compiled(kernel, self.ordinal, **parameters)
            place = places(made.traced).get("partial")
            self.partial = 4 * ctas if place is not None else 0
            self.launches.append((made.launcher(pdl=False), (ctas, 1, 1), scalars(made.traced, named), place))

    launches: list[tuple[Callable[..., None], tuple[int, int, int], tuple[Any, ...], int | None]]
    placed: tuple[int, list[tuple[Callable[..., None], tuple[int, int, int], tuple[Any, ...]]]]

    def run(self, stream: int) -> None:
        """Launch on a stream."""
        if self.placed[0] != stream:
            where = _workspaces.of(self.ordinal, stream, self.partial) if self.partial else 0
            self.placed = stream, [(launcher, grid, given if place is None else (*given[:place], where, *given[place + 1:]))
                                   for launcher, grid, given, place in self.launches]
        for launcher, grid, given in self.placed[1]:
            launcher(stream, grid, given, ())


def quantize(x: Any, kind: Kind = "row", *, dtype: Any = None, transposed: bool = False, out: Any = None, out_scale: Any = None,
             stream: Any = None) -> Any:
    """(q, scale): x in fp8, so that x is about q * scale. x is [M, K] with contiguous rows, of bf16, f16 or f32.

    `kind` says what has a scale, float32: "tensor", all of x, scale [1]; "row", each row, [M, 1]; "1x128", each block of 128 columns of a
    row, [M, K/128]; "128x128", each block of 128 rows and 128 columns, [M/128, K/128]; all rounded up. `gemm.gemm` takes q and scale of
    activations as a and a_scale, and of a weight [N, K] as `q.T` and, of rows and blocks, `scale.T`.

    A scale is the largest magnitude divided by 448 (`dtype` "e4m3", the default) or 57344 ("e5m2"), in f32. Where that is zero, as of
    zeros, the scale is 1. q is x / scale in f32, rounded to nearest even. With a NaN, a scale and all that it divides are NaN. With an
    infinity and no NaN the scale is infinite, infinities become NaN and the rest zeros. A NaN is 0x7F.

    `transposed`, with "1x128": q [K, M] and scale [K, M/128] are those of x.T, as the operands of a weight gradient need them.

    `out` and `out_scale` are written if they are given; `out` may have rows at any distance, `out_scale` any strides that are not negative
    ("row": also [M]). New scales of "1x128" lie as products read them fastest: contiguous along M, where the library has such views.
    `stream` None is the current stream of the library of x. Where rows begin at multiples of 16 bytes, x is read once ("tensor" and rows of
    more than 32,768 elements of 16 bits: twice), 16 bytes a thread; any other x is read element by element.

    A torch tensor that requires grad is refused while gradients are recorded: a rounding has no gradient.
    """
    refuse_gradients(("x", x), ("out", out), ("out_scale", out_scale))
    transposed = flag("transposed", transposed)
    key = marks(x, out, out_scale) if out is not None and out_scale is not None and dtype is None else None
    found = _launches.get((key, kind, transposed)) if key is not None else None
    if found is None:
        seen = view(x, "x")
        m, k = _matrix(seen)
        word = type_name(dtype) or "e4m3"
        if word not in LARGEST:
            raise LaunchError(f"dtype={short(dtype)}: it is {' or '.join(LARGEST)}")
        if out is not None:
            check_out_dtype(out, dtype)
        wanted = q_shape(kind, m, k, transposed)
        shape = scale_shape(kind, *wanted)
        out = empty_like_owner(seen, wanted, word) if out is None else out
        out_scale = _new_scales(seen, shape, kind) if out_scale is None else out_scale
        made = Quantiser(seen, view(out, "out"), view(out_scale, "out_scale"), kind, transposed)
        found = made
        if key is not None:
            _launches[key, kind, transposed] = made
    found.run(raw_stream(stream, found.like))
    return out, out_scale


def _new_scales(x: ArrayView, shape: tuple[int, ...], kind: Kind) -> Any:
    """An array for the scales; of blocks of one row contiguous along M, on lines of 16 bytes."""
    if kind != "1x128":
        return empty_like_owner(x, shape, "f32")
    lines = empty_like_owner(x, (shape[1], -(-shape[0] // 4) * 4), "f32")
    transposed = getattr(lines, "T", None)
    return empty_like_owner(x, shape, "f32") if transposed is None else transposed[:shape[0]]


def simulate(x: Array, kind: Kind = "row", *, out: Array, out_scale: Array, transposed: bool = False, card: Card = H200,
             schedule: str = "fifo", seed: int = 0, check: bool = True) -> list[Report]:
    """`gemm.quantize` into NumPy arrays `out` and `out_scale`, executed on the CPU. The reports of its kernels."""
    import numpy as np

    from ptxkit.sim import run

    from .on_cpu import bytes_of, check_card, check_overlap, view_of

    check_card(card)
    check_overlap({"x": x, "out": out, "out_scale": out_scale}, ("out", "out_scale"))
    problem = QuantiseProblem(view_of("x", x, None), view_of("out", out, None), view_of("out_scale", out_scale, None), kind, transposed)
    if problem.empty:
        return []
    steps = problem.steps(card.sms)
    flat = functools.partial(np.zeros, 16, np.uint8)
    named = problem.arguments(bytes_of(x) if x.size else flat(), bytes_of(out) if out.size else flat(),
                              bytes_of(out_scale).view(np.float32), np.zeros(steps[0].ctas, np.uint32))
    reports = []
    for kernel, parameters, ctas in steps:
        traced = kernel.trace(**parameters)
        own = {parameter.name: named[parameter.name] for parameter in traced.signature if parameter.name in named}
        reports.append(run(traced, grid=ctas, args=values(traced.signature, (), own), schedule=schedule, seed=seed, check=check))
    return reports


__all__ = ["Kind", "QuantiseProblem", "Quantiser", "q_shape", "quantize", "scale_shape", "simulate"]
