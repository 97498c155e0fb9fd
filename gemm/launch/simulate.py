"""gemm on the CPU device: runs the same kernel and configuration as on a GPU, on NumPy arrays, and reports what the checker found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ptxkit.cards import H200, Card
from ptxkit.dsl.parameters import values
from ptxkit.dsl.tensormap import TensorMap
from ptxkit.errors import LaunchError
from ptxkit.runtime.arrays import ArrayView
from ptxkit.timeline.simulated import marked
from ptxkit.types import TYPES

from ..config.dense import DenseConfig
from ..heuristic.dense import heuristic
from ..kernels.align_lines import align_lines
from ..problem.dense import Arrays, Options, Problem
from ..problem.matmul import products
from ..scheduler.hilbert import hilbert
from .aligning import Copy
from .dense import as_one
from .grid import COUNTER_BYTES, Grid, kernel_of

if TYPE_CHECKING:
    from ptxkit.sim import Report

Array = np.ndarray[Any, Any]

MARKS = 1 << 14
"""Marks that a warp has room for in each of its roles."""
_WORDS = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}


def simulate(a: Array, b: Array, out: Array, *, c: Array | None = None, alpha: float = 1.0, beta: float = 0.0, bias: Array | None = None,
             activation: Any = None, residual: Array | None = None, a_scale: Array | None = None, b_scale: Array | None = None,
             accumulate: str = "f32", fast_accum: bool | None = None, batch_invariant: bool = False, dtype: str | None = None,
             out_dtype: str | None = None, config: DenseConfig | None = None, card: Card = H200, schedule: str = "fifo", seed: int = 0,
             check: bool = True, counters: Array | None = None, marks: Any = False) -> Report:
    """`out[...] = gemm.gemm(a, b, ...)` with the configuration for `card`, executed on the CPU.

    Arrays are float16, ml_dtypes' bfloat16 and float8, float32, or unsigned integers with the bits of `dtype` (a, b) and `out_dtype` (out,
    c, bias, residual). A card with fewer SMs (`card.with_sms`) gives each CTA more tiles. `schedule`, `seed` and `check` are passed to
    `ptxkit.sim.run`. `counters` are the workspace's counters, zeros before and after the run: pass an array to check that. With `marks`
    the report has the timeline of the product's kernel.
    """
    from ptxkit.sim import Report, run
    from ptxkit.sim.limits import UNLIMITED

    given = {"a": a, "b": b, "out": out, "c": c, "bias": bias, "residual": residual, "a_scale": a_scale, "b_scale": b_scale}
    words = {"a": dtype, "b": dtype}
    views = {name: _view(name, array, words.get(name, out_dtype or dtype)) for name, array in given.items() if array is not None}
    arrays, options = Arrays(**views), Options(alpha, beta, activation, accumulate, fast_accum, batch_invariant)
    parts = products(arrays)
    if parts != [arrays]:
        how: dict[str, Any] = {"alpha": alpha, "beta": beta, "activation": activation, "accumulate": accumulate, "fast_accum": fast_accum,
                               "batch_invariant": batch_invariant, "dtype": dtype, "out_dtype": out_dtype, "config": config, "card": card,
                               "schedule": schedule, "seed": seed, "check": check, "counters": counters, "marks": marks}
        reports = []
        for part in parts:
            own: dict[str, Any] = {name: _part(given[seen.owner], views[seen.owner], seen) for name, seen in part.named()}
            reports.append(simulate(**own, **how))
        return next((report for report in reports if report.verdict != "clean"), reports[-1])
    whole = as_one(arrays, config)
    if whole is not arrays:
        given |= {name: _strided(array, getattr(whole, name)) for name, array in given.items() if array is not None}
        a, b, out = (_strided(array, getattr(whole, name)) for name, array in (("a", a), ("b", b), ("out", out)))
    problem = Problem(whole, options)
    if problem.empty or not problem.k:
        out[...] = 0
        return Report(checked=False)
    config = config or heuristic(problem, card)
    grid = Grid.of(problem, config, max(1, card.sms // config.cluster))
    workspace = np.full(max(1, (grid.workspace_bytes - COUNTER_BYTES) // 4), np.nan, np.float32)
    counters = np.zeros(COUNTER_BYTES // 4, np.uint32) if counters is None else counters
    curve = hilbert(*grid.curve) if grid.curve else np.zeros(1, np.uint32)

    def pointer(name: str) -> Any:
        array = {"workspace": workspace, "counters": counters, "curve": curve}.get(name)
        if array is None:
            array = given.get(name)
        if name.endswith("_scale"):
            return np.zeros(1, np.float32) if array is None else bytes_of(array).view(array.dtype)
        if name in ("workspace", "counters", "curve"):
            return array
        return np.zeros(4, np.uint8) if array is None else bytes_of(array)

    copied = {copy.name: _aligned(copy, given[copy.name], problem.aligned(copy.name), card, schedule, seed) for copy in grid.copies}
    traced = kernel_of(config).trace(marks=marks, **config.parameters)
    records = traced.copies.records
    nothing = TensorMap(np.zeros(16, np.uint8), box=(16,))

    def operand(name: str) -> Array:
        if name in copied:
            return copied[name]
        return _lines(a, problem.a_major == "k") if name == "a" else _lines(b, problem.b_major == "mn")

    first, second = ("b", "a") if config.swap_ab else ("a", "b")
    maps = {"a": operand(first) if "a" in records else nothing, "b": operand(second) if "b" in records else nothing,
            "d": _lines(out, True) if "d" in records else nothing,
            "sfa_map": _lines(a_scale, False) if "sfa_map" in records and a_scale is not None else nothing}
    named = {**maps, **grid.arguments(problem, arrays, options, pointer)}
    own = {parameter.name: named[parameter.name] for parameter in traced.signature if parameter.name in named}
    if traced.marks is not None:
        return marked(traced, (), own, MARKS,
                      {"grid": grid.ctas, "schedule": schedule, "seed": seed, "check": check, "max_steps": UNLIMITED})
    return run(traced, grid=grid.ctas, args=values(traced.signature, (), own), schedule=schedule, seed=seed, check=check,
               max_steps=UNLIMITED)


def _aligned(copy: Copy, operand: Array | None, problem: Problem, card: Card, schedule: str, seed: int) -> Array:
    """An operand's copy, made by the kernel that runs before the product, as an array of its lines."""
    from ptxkit.sim import run

    assert operand is not None
    made = np.full(copy.bytes, 0xFF, np.uint8)
    traced = align_lines.trace(**copy.parameters)
    named = copy.arguments(bytes_of(operand), made)
    report = run(traced, grid=(min(copy.ctas, card.sms), 1, 1), args=values(traced.signature, (), named), schedule=schedule, seed=seed)
    if report.verdict != "clean":
        raise LaunchError(f"the copy of {copy.name} is {report.verdict}: {report}")
    one = problem.of_a if copy.name == "a" else problem.of_b
    shape, strides = one.lines.dims[::-1], (*one.lines.strides[::-1], operand.itemsize)
    return np.lib.stride_tricks.as_strided(made.view(f"u{operand.itemsize}"), shape, strides).view(operand.dtype)


def _view(name: str, array: Array, word: str | None) -> ArrayView:
    known = _WORDS.get(array.dtype.name)
    if known is None and array.dtype.kind == "u" and word is not None and TYPES[word].bits == 8 * array.dtype.itemsize:
        known = word
    if known is None:
        raise LaunchError(f"{name} has elements of {array.dtype}: pass {', '.join(_WORDS)}, or unsigned integers and the type of their "
                          "bits as dtype=")
    size = array.dtype.itemsize
    return ArrayView(_place(array), array.shape, tuple(s // size for s in array.strides), known, 0, name)


def _place(array: Array) -> int:
    """The address of an array modulo 256: the CPU device places the memory that it is a part of at a multiple of that."""
    whole = array
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    return int(array.__array_interface__["data"][0] - whole.__array_interface__["data"][0]) % 256


def _strided(array: Array, seen: ArrayView) -> Array:
    """The same memory with the shape and strides of this view."""
    strides = tuple(stride * array.itemsize for stride in seen.strides)
    return np.lib.stride_tricks.as_strided(_bits(array), seen.shape, strides).view(array.dtype)


def _part(array: Array | None, whole: ArrayView, seen: ArrayView) -> Array:
    """What a view of a part of an array shows of it."""
    assert array is not None
    skipped = (seen.pointer - whole.pointer) // array.itemsize
    first = _bits(array)[tuple(slice(1) for _ in array.shape)].reshape(-1) if array.ndim else _bits(array).reshape(1)
    flat = np.lib.stride_tricks.as_strided(first, (skipped + 1,), (array.itemsize,))
    strides = tuple(stride * array.itemsize for stride in seen.strides)
    return np.lib.stride_tricks.as_strided(flat[skipped:], seen.shape, strides).view(array.dtype)


def bytes_of(array: Array) -> Array:
    """The memory from an array's first element to its last, as an array of bytes that shares it."""
    extent = sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)) + array.itemsize
    first = _bits(array)[tuple(slice(1) for _ in array.shape)].reshape(-1).view(np.uint8)
    return np.lib.stride_tricks.as_strided(first, (extent,), (1,))


def _bits(array: Array) -> Array:
    """The same memory as unsigned integers: NumPy can change strides only of its own types."""
    return array.view(np.dtype(f"u{array.itemsize}"))


def _lines(array: Array, columns_are_contiguous: bool) -> Array:
    """The array with its contiguous axis last. The stride of an extent of 1 has no meaning, so it is replaced by one that a tensor map
    accepts."""
    array = array if columns_are_contiguous else np.swapaxes(array, -1, -2)
    strides = list(array.strides)
    for axis in range(array.ndim - 2, -1, -1):
        if array.shape[axis] == 1 and strides[axis] % 16:
            strides[axis] = -(-array.shape[axis + 1] * max(strides[axis + 1], array.itemsize) // 16) * 16
    if tuple(strides) == array.strides:
        return array
    return np.lib.stride_tricks.as_strided(_bits(array), strides=strides).view(array.dtype)


__all__ = ["simulate"]
