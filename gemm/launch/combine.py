"""`gemm.combine`: sums of chosen rows with weights, in a fixed order; on the device and on the CPU device."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ptxkit.dsl.kernel import Kernel
from ptxkit.dsl.parameters import values
from ptxkit.errors import LaunchError
from ptxkit.newest import Newest
from ptxkit.runtime.arrays import ArrayView, marks
from ptxkit.runtime.launch import (
    check_contiguous,
    check_dtype,
    check_shape,
    empty_like_owner,
    raw_stream,
    refuse_gradients,
    same_device,
    view,
)
from ptxkit.runtime.launcher import Launcher
from ptxkit.runtime.overlap import refuse_overlap
from ptxkit.types import TYPES

from ..kernels.combine import MOST_AT_ONCE, THREADS, VECTOR, row_products
from ..kernels.combine import combine as combine_kernel
from ..problem.dense import type_name
from ..problem.lines import check_forwards
from .dense import check_out_dtype, compiled
from .grid import scalars

if TYPE_CHECKING:
    import numpy as np

    from ptxkit.sim import Report

    Array = np.ndarray[Any, Any]

SOURCES = ("bf16", "f16", "f32")
MOST_CHOICES = (1 << 32) - MOST_AT_ONCE
LOADS = 4                               # that a thread has under way at least, where rows are long enough
MOST_TILES = 65535                      # CTAs along the columns
_launches: Newest[Any, Sums] = Newest()


class CombineProblem:
    """One combine, checked: everything of it but the pointers."""

    kernel: Kernel[...] = combine_kernel
    written: tuple[str, ...] = ("out",)

    def __init__(self, y: ArrayView, place: ArrayView, weights: ArrayView | None, starts: ArrayView | None, out: ArrayView) -> None:
        self.rows, self.columns = matrix("y", y)
        self.count, self.top = choices(place, weights, starts)
        self.choices = math.prod(place.shape)
        check_dtype("out", out, SOURCES)
        check_shape("out", out, (self.count, self.columns))
        self.out_row = row_of_result(out)
        self.source, self.out = TYPES[y.dtype], TYPES[out.dtype]
        self.weighted, self.ragged, self.empty = weights is not None, starts is not None, not (self.count and self.columns)
        self.once = not self.ragged and self.top > 1 and self.choices <= self.rows
        self.y_row = y.strides[0] if self.rows > 1 else 0
        self.wide = wide((y, self.y_row), (out, self.out_row), self.columns)
        self.vectors = -(-self.columns * self.source.bits // (8 * VECTOR)) if self.wide else self.columns
        self.at_once = MOST_AT_ONCE if self.ragged else next(number for number in (1, 2, 4, 8) if number >= min(self.top, MOST_AT_ONCE))
        self.across = next(across for across in (4, 2, 1) if across == 1 or (self.wide and across * self.at_once <= LOADS
                                                                             and self.vectors > across * 16))
        self.threads = next((threads for threads in (32, 64, 128) if threads * self.across >= self.vectors), THREADS)
        if -(-self.vectors // self.threads) > MOST_TILES:
            raise LaunchError(f"y has {self.columns} columns: a combine has at most {MOST_TILES * THREADS}; combine parts of them")

    @property
    def grid(self) -> tuple[int, int, int]:
        """The CTAs: along the rows of the result and along its columns."""
        return -(-self.count * self.threads // THREADS), -(-self.vectors // (self.threads * self.across)), 1

    @property
    def parameters(self) -> dict[str, Any]:
        """The kernel's compile-time parameters."""
        return {"source": self.source, "result": self.out, "threads": self.threads, "at_once": self.at_once, "across": self.across,
                "weighted": self.weighted, "ragged": self.ragged, "wide": self.wide, "once": self.wide and self.once}

    def arguments(self, pointer: Callable[[str], Any]) -> dict[str, Any]:
        """The kernel's arguments by name. `pointer` maps the name of an array to its address."""
        return {"y": {"pointer": pointer("y"), "row": self.y_row, "rows": self.rows},
                "choices": {"place": pointer("place"), "weights": pointer("weights"), "starts": pointer("starts"), "top": self.top,
                            "count": self.choices},
                "out": {"pointer": pointer("out"), "row": self.out_row, "rows": self.count}, "columns": self.columns}


class ProductsProblem:
    """Products of pairs of rows, checked."""

    kernel: Kernel[...] = row_products
    written: tuple[str, ...] = ("out",)

    def __init__(self, a: ArrayView, first: ArrayView, b: ArrayView, second: ArrayView, out: ArrayView) -> None:
        (firsts, self.columns), (seconds, other) = matrix("a", a), matrix("b", b)
        if self.columns != other or a.dtype != b.dtype:
            raise LaunchError(f"a is {a.dtype} {a.shape} and b {b.dtype} {b.shape}: they have one type and as many columns")
        check_dtype("out", out, ("f32",))
        for name, array in (("first", first), ("second", second), ("out", out)):
            check_shape(name, array, out.shape if len(out.shape) == 1 else (None,))
            check_contiguous(name, array)
            if name != "out":
                check_dtype(name, array, ("s32", "u32"))
        self.source, self.count, self.rows = TYPES[a.dtype], out.shape[0], (firsts, seconds)
        self.apart = a.strides[0] if firsts > 1 else 0, b.strides[0] if seconds > 1 else 0
        self.wide, self.empty = wide((a, self.apart[0]), (b, self.apart[1]), self.columns), not self.count

    @property
    def grid(self) -> tuple[int, int, int]:
        """The CTAs: a warp for each pair."""
        return -(-self.count * 32 // THREADS), 1, 1

    @property
    def parameters(self) -> dict[str, Any]:
        """The kernel's compile-time parameters."""
        return {"source": self.source, "wide": self.wide}

    def arguments(self, pointer: Callable[[str], Any]) -> dict[str, Any]:
        """The kernel's arguments by name."""
        a, b = ({"pointer": pointer(name), "row": self.apart[i], "rows": self.rows[i]} for i, name in enumerate("ab"))
        return {"a": a, "b": b, "first": pointer("first"), "second": pointer("second"), "out": pointer("out"), "count": self.count,
                "columns": self.columns}


def matrix(name: str, array: ArrayView) -> tuple[int, int]:
    """The rows and columns of a matrix of an element type that these kernels read. Raises LaunchError."""
    check_dtype(name, array, SOURCES)
    if len(array.shape) != 2:
        raise LaunchError(f"{name} has shape {array.shape}: it is a matrix, [rows, columns]")
    _check_rows(name, array)
    if array.shape[0] >= (1 << 32) - 1:
        raise LaunchError(f"{name} has {array.shape[0]} rows: their numbers have 32 bits; take parts of them")
    return array.shape[0], array.shape[1]


def row_of_result(out: ArrayView) -> int:
    """The elements from row to row of a result, 0 if it has one. Raises LaunchError if its rows overlap or are not contiguous."""
    _check_rows("out", out)
    rows, columns = out.shape
    if rows > 1 and columns and out.strides[0] < columns:
        raise LaunchError(f"the rows of out are {out.strides[0]} elements apart and have {columns}: they must not overlap; pass a "
                          "contiguous one")
    return out.strides[0] if rows > 1 else 0


def _check_rows(name: str, array: ArrayView) -> None:
    """Raise LaunchError unless the rows of a matrix are contiguous."""
    check_forwards(name, array)
    if 0 not in array.shape and array.shape[1] > 1 and array.strides[1] != 1:
        raise LaunchError(f"{name} has strides {array.strides}: its rows must be contiguous; pass a contiguous copy")
    if max(array.strides, default=0) >= 1 << 32:
        raise LaunchError(f"{name} has strides {array.strides}: they are less than 2^32; pass a contiguous copy")


def choices(place: ArrayView, weights: ArrayView | None, starts: ArrayView | None) -> tuple[int, int]:
    """How many rows these choices have sums for, and how many choices each row has (0: as `starts` says). Raises LaunchError."""
    check_dtype("place", place, ("s32", "u32"))
    if len(place.shape) != (2 if starts is None else 1):
        raise LaunchError(f"place has shape {place.shape}: it is int32 [rows of the result, choices of a row], or with starts [choices]")
    check_contiguous("place", place)
    if weights is not None:
        check_dtype("weights", weights, ("f32",))
        check_shape("weights", weights, place.shape)
        check_contiguous("weights", weights)
    if starts is None:
        count, top = place.shape
    else:
        check_dtype("starts", starts, ("s32", "u32"))
        if len(starts.shape) != 1 or not starts.shape[0]:
            raise LaunchError(f"starts has shape {starts.shape}: it is int32 [rows of the result + 1], where the choices of each row begin "
                              "and those of the last end")
        check_contiguous("starts", starts)
        count, top = starts.shape[0] - 1, 0
    if max(count * top, *place.shape) >= MOST_CHOICES:
        raise LaunchError(f"place has shape {place.shape}: there are less than 2^32 choices; combine parts of them")
    return count, top


def wide(one: tuple[ArrayView, int], other: tuple[ArrayView, int], columns: int) -> bool:
    """Whether threads read 16 bytes of rows of the first array, and the same elements of the other begin at places for them."""
    count = VECTOR * 8 // TYPES[one[0].dtype].bits
    for array, row in (one, other):
        bytes = min(VECTOR, count * TYPES[array.dtype].bits // 8)
        if array.pointer % bytes or row * (TYPES[array.dtype].bits // 8) % bytes:
            return False
    return not columns % count


class Sums:
    """A launch of a checked problem's kernel."""

    __slots__ = ("launch", "like")

    def __init__(self, problem: Any, arrays: dict[str, ArrayView], ordinal: int, like: ArrayView) -> None:
        self.like = like
        self.launch: tuple[Launcher, tuple[int, int, int], tuple[Any, ...]] | None = None
        if problem.empty:
            return
        refuse_overlap(arrays.items(), problem.written)
        made = compiled(problem.kernel, ordinal, **problem.parameters)
        passed = scalars(made.traced, problem.arguments(lambda name: arrays[name].pointer if name in arrays else 0))
        self.launch = made.launcher(pdl=True), problem.grid, passed

    def run(self, stream: int) -> None:
        """Launch on a stream."""
        if self.launch is not None:
            launcher, grid, passed = self.launch
            launcher(stream, grid, passed, ())


def combine(y: Any, place: Any, weights: Any = None, *, starts: Any = None, out: Any = None, out_dtype: Any = None,
            stream: Any = None) -> Any:
    """out[t] = the sum over k of weights[t, k] * y[place[t, k]], k from 0 on, in f32, rounded once. Returns `out`, [T, N].

    It ends a mixture of experts: y has the results of the experts, place [T, K] says where those of token t are, and weights are the
    router's. y is [S, N] with contiguous rows, of bf16, f16 or f32, and so is out (default: as y). place is int32 and weights float32, on
    the device and contiguous; without weights they are 1. Numbers below 0 and not below S add nothing: no row is read there.

    With `starts`, int32 [T + 1], rows have any number of choices: place and weights are [choices], and those of row t are starts[t] to
    starts[t + 1] - 1. Choices past the last one add nothing.

    The order of a row's sums is that of its choices, so the same row gives the same bits, whatever the other rows are. Rows at multiples of
    16 bytes with whole vectors of 16 bytes are read so; others element by element.

    A torch tensor that requires grad is refused while gradients are recorded: ptxkit.torch has operators with them.
    """
    key: Any = marks(y, place, weights, starts, out) if out is not None and out_dtype is None else None
    found = _launches.get(key) if key is not None else None
    refuse_gradients(("y", y), ("weights", weights), ("out", out))
    if found is None:
        seen = {name: view(array, name) for name, array in (("y", y), ("place", place), ("weights", weights), ("starts", starts))
                if array is not None or name in ("y", "place")}
        if out is None:
            _, columns = matrix("y", seen["y"])
            count, _ = choices(seen["place"], seen.get("weights"), seen.get("starts"))
            out = empty_like_owner(seen["y"], (count, columns), type_name(out_dtype) or seen["y"].dtype)
        else:
            check_out_dtype(out, out_dtype)
        seen["out"] = view(out, "out")
        problem = CombineProblem(seen["y"], seen["place"], seen.get("weights"), seen.get("starts"), seen["out"])
        found = _kept(key, Sums(problem, seen, same_device(list(seen.items())), seen["y"]))
    found.run(raw_stream(stream, found.like))
    return out


def products_of_rows(a: Any, first: Any, b: Any, second: Any, *, out: Any, stream: Any = None) -> Any:
    """out[e] = the product of row first[e] of a and row second[e] of b, in f32, and 0 where a number is that of no row. Returns `out`.

    a and b are [.., N] of one type, bf16, f16 or f32, with contiguous rows; first and second are int32 [E], out is float32 [E].
    """
    refuse_gradients(("a", a), ("b", b), ("out", out))
    key: Any = marks(a, first, b, second, out)
    found = _launches.get(key) if key is not None else None
    if found is None:
        given = (("a", a), ("first", first), ("b", b), ("second", second), ("out", out))
        seen = {name: view(array, name) for name, array in given}
        found = _kept(key, Sums(ProductsProblem(*seen.values()), seen, same_device(list(seen.items())), seen["a"]))
    found.run(raw_stream(stream, found.like))
    return out


def _kept(key: Any, made: Sums) -> Sums:
    if key is not None:
        _launches[key] = made
    return made


def simulate(y: Array, place: Array, weights: Array | None = None, *, starts: Array | None = None, out: Array, schedule: str = "fifo",
             seed: int = 0, check: bool = True) -> Report:
    """`gemm.combine` into a NumPy array `out`, executed on the CPU. Arrays are float16, float32 or ml_dtypes' bfloat16; int32."""
    given = {"y": y, "place": place, "weights": weights, "starts": starts, "out": out}
    seen = views_of(given)
    problem = CombineProblem(seen["y"], seen["place"], seen.get("weights"), seen.get("starts"), seen["out"])
    return run_problem(problem, given, {"schedule": schedule, "seed": seed, "check": check})


def simulate_products(a: Array, first: Array, b: Array, second: Array, *, out: Array, check: bool = True) -> Report:
    """`products_of_rows` into a NumPy array `out`, executed on the CPU."""
    given = {"a": a, "first": first, "b": b, "second": second, "out": out}
    return run_problem(ProductsProblem(*views_of(given).values()), given, {"check": check})


def views_of(given: dict[str, Any]) -> dict[str, ArrayView]:
    """The views of NumPy arrays, and of those that are None no view."""
    from .on_cpu import view_of

    def seen(name: str, array: Any) -> ArrayView:
        if array.dtype.kind != "i":
            return view_of(name, array, None)
        strides = tuple(stride // array.itemsize for stride in array.strides)
        return ArrayView(0, array.shape, strides, "s32" if array.itemsize == 4 else "s64", 0, "numpy")

    return {name: seen(name, array) for name, array in given.items() if array is not None}


def run_problem(problem: Any, given: dict[str, Any], how: dict[str, Any]) -> Report:
    """A checked problem's kernel over NumPy arrays, executed on the CPU."""
    import numpy as np

    from ptxkit.sim import Report, run

    from .on_cpu import bytes_of, check_overlap

    check_overlap(given, problem.written)
    if problem.empty:
        return Report(checked=False)

    def pointer(name: str) -> Any:
        array = given.get(name)
        numbers = {"weights": np.float32, "out": np.float32 if isinstance(problem, ProductsProblem) else np.uint8}
        kind = numbers.get(name, np.uint8 if name in ("a", "b", "x", "y") else np.uint32)
        return np.zeros(4, kind) if array is None or not array.size else bytes_of(array).view(kind)

    traced = problem.kernel.trace(**problem.parameters)
    return run(traced, grid=problem.grid, args=values(traced.signature, (), problem.arguments(pointer)), **how)


__all__ = ["MOST_TILES", "CombineProblem", "ProductsProblem", "Sums", "choices", "combine", "matrix", "products_of_rows",
           "row_of_result", "run_problem", "simulate", "simulate_products", "views_of", "wide"]
