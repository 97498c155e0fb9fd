"""The group product on the CPU device: NumPy arrays in, the same kernel and configuration as on a GPU, a report of the checker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ptxkit.tensormap import TensorMap

from ..simulate import Array, _bytes, _lines, _view
from .config import GroupConfig
from .heuristic import heuristic
from .kernel import group_gemm as kernel
from .problem import GroupArrays, GroupOptions, GroupProblem
from .schedule import Layout

if TYPE_CHECKING:
    from ptxkit.sim import Report


def simulate(x: Array, w: Array, lengths: Array, out: Array, *, x_scale: Array | None = None, w_scale: Array | None = None,
             layout: Layout = "offsets", gated: bool = False, mean_tokens: float | None = None, fast_accum: bool | None = None,
             dtype: str | None = None, out_dtype: str | None = None, config: GroupConfig | None = None, sms: int = 132,
             schedule: str = "fifo", seed: int = 0, check: bool = True) -> Report:
    """`gemm.group_gemm` as a device with `sms` SMs would do it, executed on the CPU.

    Arrays are float16, float32, ml_dtypes' bfloat16 and float8, or unsigned integers holding the bits of `dtype` (x, w) and
    `out_dtype` (out). Fewer `sms` make each CTA work on more tiles. `schedule`, `seed` and `check` are those of `ptxkit.sim.run`.
    """
    from ptxkit.sim import Report

    options = GroupOptions(layout, gated, mean_tokens, fast_accum)
    given: dict[str, Array | None] = {"x": x, "w": w, "lengths": lengths, "out": out, "x_scale": x_scale, "w_scale": w_scale}
    arrays = _views(given, dtype, out_dtype)
    problem = GroupProblem(arrays, options)
    if problem.empty:
        if not problem.k:
            out[...] = 0
        return Report(checked=False)
    config = config or heuristic(problem, sms)
    cluster = config.tile.cluster
    ctas = min(problem.units(config), max(1, sms // cluster)) * cluster

    records = kernel.trace(**config.parameters).copies.records
    lines, before = problem.stored(config)
    flat_x, flat_out = (array.reshape(-1, array.shape[-1]) for array in (x, out))
    seen = _lines(flat_out, True)
    guarded = _Guarded(out, before)

    def pointer(name: str) -> Any:
        array = given[name]
        if name == "lengths":
            assert array is not None
            return array.view(np.uint32)
        if name.endswith("_scale"):
            return np.zeros(1, np.float32) if array is None else array
        return guarded.bytes[before:] if before else guarded.bytes

    if before:
        seen = guarded.seen(lines.dims, lines.strides)
    halves = w.reshape(w.shape[0], 2, w.shape[1] // 2, w.shape[2]) if gated else w
    maps = [_lines(flat_x, True), _lines(halves, True), seen if "y" in records else TensorMap(flat_x[0, :16 // x.itemsize],
                                                                                            box=(16 // x.itemsize,))]
    report = kernel.simulate(ctas, *maps, *problem.scalars(arrays, config, pointer), schedule=schedule, seed=seed, check=check,
                             **config.parameters)
    guarded.copy_back()
    return report


class _Guarded:
    """The memory of an array with `before` bytes in front of it, which nothing may write."""

    def __init__(self, array: Array, before: int) -> None:
        self.array, self.before = array, before
        self.bytes = np.concatenate([np.full(before, 0xA5, np.uint8), _bytes(array)]) if before else _bytes(array)

    def seen(self, dims: tuple[int, ...], strides: tuple[int, ...]) -> Array:
        """The whole of it with these extents and byte strides, contiguous first, as elements of the array's type."""
        return np.ndarray(dims[::-1], self.array.dtype, self.bytes, strides=(*strides[::-1], self.array.itemsize))

    def copy_back(self) -> None:
        """What was written goes to the array."""
        if self.before:
            assert (self.bytes[:self.before] == 0xA5).all(), "bytes in front of the result were written"
            _bytes(self.array)[:] = self.bytes[self.before:]


def described(x: Array, w: Array, lengths: Array, out: Array, x_scale: Array | None, w_scale: Array | None,
              options: GroupOptions) -> GroupProblem:
    """The problem that these arrays make."""
    given: dict[str, Array | None] = {"x": x, "w": w, "lengths": lengths, "out": out, "x_scale": x_scale, "w_scale": w_scale}
    return GroupProblem(_views(given, None, None), options)


def _views(given: dict[str, Array | None], dtype: str | None, out_dtype: str | None) -> GroupArrays:
    """What the adapter would see of the arrays."""
    words = {"x": dtype, "w": dtype}
    views = {name: _view(name, array, words.get(name, out_dtype or dtype)) for name, array in given.items()
             if array is not None and name != "lengths"}
    lengths = given["lengths"]
    assert lengths is not None
    views["lengths"] = views["x"]._replace(shape=lengths.shape, strides=(1,), dtype=_INTEGERS.get(lengths.dtype.name, "s64"))
    return GroupArrays(**views)


_INTEGERS = {"int32": "s32", "uint32": "u32"}


__all__ = ["described", "simulate"]
