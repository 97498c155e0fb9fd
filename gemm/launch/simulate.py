"""gemm on the CPU device: runs the same kernel and configuration as on a GPU, on NumPy arrays, and reports what the checker found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ptxkit.cards import H200, Card
from ptxkit.dsl.parameters import values
from ptxkit.dsl.tensormap import TensorMap
from ptxkit.errors import LaunchError
from ptxkit.runtime.arrays import ArrayView
from ptxkit.types import TYPES

from ..config.dense import DenseConfig
from ..heuristic.dense import heuristic
from ..problem.dense import Arrays, Options, Problem
from ..scheduler.hilbert import hilbert
from .grid import COUNTER_BYTES, Grid, kernel_of

if TYPE_CHECKING:
    from ptxkit.sim import Report

Array = np.ndarray[Any, Any]

_WORDS = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}


def simulate(a: Array, b: Array, out: Array, *, c: Array | None = None, alpha: float = 1.0, beta: float = 0.0, bias: Array | None = None,
             activation: Any = None, residual: Array | None = None, a_scale: Array | None = None, b_scale: Array | None = None,
             accumulate: str = "f32", fast_accum: bool | None = None, dtype: str | None = None, out_dtype: str | None = None,
             config: DenseConfig | None = None, card: Card = H200, schedule: str = "fifo", seed: int = 0, check: bool = True,
             counters: Array | None = None) -> Report:
    """`out[...] = gemm.gemm(a, b, ...)` with the configuration for `card`, executed on the CPU.

    Arrays are float16, ml_dtypes' bfloat16 and float8, float32, or unsigned integers with the bits of `dtype` (a, b) and `out_dtype` (out,
    c, bias, residual). A card with fewer SMs (`card.with_sms`) gives each CTA more tiles. `schedule`, `seed` and `check` are passed to
    `ptxkit.sim.run`. `counters` are the workspace's counters, zeros before and after the run: pass an array to check that.
    """
    from ptxkit.sim import Report, run

    given = {"a": a, "b": b, "out": out, "c": c, "bias": bias, "residual": residual, "a_scale": a_scale, "b_scale": b_scale}
    words = {"a": dtype, "b": dtype}
    views = {name: _view(name, array, words.get(name, out_dtype or dtype)) for name, array in given.items() if array is not None}
    arrays, options = Arrays(**views), Options(alpha, beta, activation, accumulate, fast_accum)
    problem = Problem(arrays, options)
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
            return np.zeros(1, np.float32) if array is None else np.atleast_1d(array)
        if name in ("workspace", "counters", "curve"):
            return array
        return np.zeros(4, np.uint8) if array is None else _bytes(array)

    traced = kernel_of(config).trace(**config.parameters)
    records = traced.copies.records
    nothing = TensorMap(a.reshape(-1)[:16 // a.itemsize], box=(16 // a.itemsize,))
    maps = {"a": _lines(a, problem.a_major == "k"), "b": _lines(b, problem.b_major == "mn"),
            "d": _lines(out, True) if "d" in records else nothing,
            "sfa_map": _lines(a_scale, False) if "sfa_map" in records and a_scale is not None else nothing}
    named = {**maps, **grid.arguments(problem, arrays, options, pointer)}
    own = {parameter.name: named[parameter.name] for parameter in traced.signature}
    return run(traced, grid=grid.ctas, args=values(traced.signature, (), own), schedule=schedule, seed=seed, check=check)


def _view(name: str, array: Array, word: str | None) -> ArrayView:
    known = _WORDS.get(array.dtype.name)
    if known is None and array.dtype.kind == "u" and word is not None and TYPES[word].bits == 8 * array.dtype.itemsize:
        known = word
    if known is None:
        raise LaunchError(f"{name} has elements of {array.dtype}: pass {', '.join(_WORDS)}, or unsigned integers and the type of their "
                          "bits as dtype=")
    size = array.dtype.itemsize
    return ArrayView(0, array.shape, tuple(s // size for s in array.strides), known, 0, "numpy")


def _bytes(array: Array) -> Array:
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
            strides[axis] = array.shape[axis + 1] * max(strides[axis + 1], array.itemsize)
    if tuple(strides) == array.strides:
        return array
    return np.lib.stride_tricks.as_strided(_bits(array), strides=strides).view(array.dtype)


__all__ = ["simulate"]
