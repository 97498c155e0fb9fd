"""hgemm on the CPU device: NumPy arrays in, the same kernel and configuration as on a GPU, a report of what the checker found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ptxkit.arrays import ArrayView
from ptxkit.errors import LaunchError
from ptxkit.types import TYPES

from .config import Config, heuristic
from .device import Problem
from .hgemm import BK, BM
from .hgemm import hgemm as kernel

if TYPE_CHECKING:
    from ptxkit.sim import Report

Array = np.ndarray[Any, Any]

_WORDS = {"float16": "f16", "bfloat16": "bf16", "float32": "f32"}


def simulate(a: Array, b: Array, out: Array, *, dtype: str | None = None, out_dtype: str | None = None, config: Config | None = None,
             sms: int = 132, schedule: str = "fifo", seed: int = 0, check: bool = True) -> Report:
    """`out[...] = a @ b` as `gemm.hgemm` would do it on a device with `sms` SMs, executed on the CPU.

    Arrays are float16, ml_dtypes.bfloat16, float32 (out), or 16-bit unsigned integers holding the bits of `dtype` / `out_dtype`.
    Fewer `sms` make each CTA work on more tiles. `schedule`, `seed` and `check` are those of `ptxkit.sim.run`.
    """
    from ptxkit.sim import Report

    views = [_view(name, array, word) for name, array, word in (("a", a, dtype), ("b", b, dtype), ("out", out, out_dtype or dtype))]
    problem = Problem(*views)
    if not (problem.m and problem.n and problem.k):
        out[...] = 0
        return Report(checked=False)
    config = config or heuristic(problem.m, problem.n, problem.k, problem.dtype, problem.out, problem.a_major, problem.b_major, sms=sms)
    tiles = -(-problem.m // BM), -(-problem.n // config.BN), -(-problem.k // BK)
    clusters = min(-(-tiles[0] // config.CLUSTER) * tiles[1], max(1, sms // config.CLUSTER))
    a_lines = a if problem.a_major == "k" else a.T
    b_lines = b if problem.b_major == "mn" else b.T
    return kernel.simulate(clusters * config.CLUSTER, _rows(a_lines), _rows(b_lines), out, *tiles, schedule=schedule, seed=seed,
                           check=check, **config.parameters)


def _view(name: str, array: Array, word: str | None) -> ArrayView:
    known = _WORDS.get(array.dtype.name)
    if known is None and array.dtype == np.uint16:
        known = word
    if known is None:
        raise LaunchError(f"{name} has elements of {array.dtype}: float16, bfloat16 or float32, or uint16 with dtype= saying what its bits "
                          "are")
    size = TYPES[known].bits // 8
    return ArrayView(0, array.shape, tuple(s // size for s in array.strides), known, 0, "numpy")


def _rows(array: Array) -> Array:
    """The array with a stride that a tensor map can have where one of its extents is 1 and the stride means nothing."""
    if array.shape[0] > 1 or array.strides[0] % 16 == 0:
        return array
    return np.lib.stride_tricks.as_strided(array, strides=(array.shape[1] * array.itemsize, array.itemsize))
