"""Attention on the CPU device: runs the same kernel and configuration as on a GPU, on NumPy arrays, and reports what the checker found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ptxkit.cards import H200, Card
from ptxkit.dsl.arguments import WORDS
from ptxkit.errors import LaunchError
from ptxkit.gemm.launch.on_cpu import bytes_of, check_card, check_numpy, check_overlap, place
from ptxkit.runtime.arrays import ArrayView

from ..config.forward import ForwardConfig
from ..heuristic import heuristic
from ..kernels.forward import forward
from ..problem.forward import Arrays, Options, Problem, check_config
from ..problem.refusals import flag
from .grid import Grid

if TYPE_CHECKING:
    from ptxkit.sim import Report

Array = np.ndarray[Any, Any]


def simulate(q: Array, k: Array, v: Array, out: Array, *, is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
             cu_seqlens: Array | None = None, lse: Array | None = None, dtype: str | None = None, config: ForwardConfig | None = None,
             card: Card = H200, schedule: str = "fifo", seed: int = 0, check: bool = True, marks: Any = False) -> Report:
    """`out[...]`, and `lse[...]` if it is given, are those of `ptxkit.attention(q, k, v, ...)`, executed on the CPU.

    Arrays are float16, ml_dtypes' bfloat16, or uint16 with the bits of `dtype`. A card with fewer SMs (`card.with_sms`) gives each CTA more
    tiles. `schedule`, `seed` and `check` are passed to `ptxkit.sim.run`. With `marks` the report has the timeline.
    """
    from ptxkit.sim import Report
    from ptxkit.sim.limits import UNLIMITED

    launch = arguments(q, k, v, out, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa, cu_seqlens=cu_seqlens, lse=lse, dtype=dtype,
                       config=config, card=card)
    if launch is None:
        return Report(checked=False)
    grid, named, chosen = launch
    return forward.simulate(grid, **named, **chosen, schedule=schedule, seed=seed, check=check, max_steps=UNLIMITED,
                            marks=marks)


def arguments(q: Array, k: Array, v: Array, out: Array, *, is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
              cu_seqlens: Array | None = None, lse: Array | None = None, dtype: str | None = None, config: ForwardConfig | None = None,
              card: Card = H200) -> tuple[tuple[int, int, int], dict[str, Any], Mapping[str, Any]] | None:
    """The grid, the arguments and the compile-time parameters of `forward` for a call, as `simulate` and `ptxkit.prove` take them. None
    where there is nothing to launch; then out and lse are filled."""
    check_card(card)
    arrays = Arrays(seen("q", q, dtype), seen("k", k, dtype), seen("v", v, dtype), seen("out", out, dtype),
                    None if lse is None else seen("lse", lse, None), None if cu_seqlens is None else seen("cu_seqlens", cu_seqlens, None))
    problem = Problem.of(arrays, Options(flag("is_causal", is_causal), scale, flag("enable_gqa", enable_gqa)))
    check_overlap({"q": q, "k": k, "v": v, "out": out, "lse": lse, "cu_seqlens": cu_seqlens}, ("out", "lse"), problem.in_place)
    if problem.empty or not problem.keys:
        out[...] = 0
        if lse is not None:
            lse[...] = -np.inf
        return None
    check_config(config, problem)
    config = config or heuristic(problem)
    grid = Grid(problem, config, card.sms, int(card.l2_mib * (1 << 20)))
    memory = {"lse": np.zeros(1, np.float32) if lse is None else lse.reshape(-1), "out": bytes_of(out),
              "cu_seqlens": np.zeros(2, np.uint32) if cu_seqlens is None else cu_seqlens.view(np.uint32)}
    maps = {name: _of_rank_4(array, dict(problem.lines)[name].strides, problem.type)
            for name, array in zip("qkvo", (q, k, v, out), strict=True)}
    return grid.ctas, {**maps, **grid.arguments(memory.__getitem__)}, config.parameters


def seen(name: str, array: Array, word: str | None) -> ArrayView:
    """The array as a launch on a GPU would see it. Raises LaunchError if attention has no argument of its type."""
    check_numpy(name, array)
    known = word if array.dtype == np.uint16 and word is not None else WORDS.get(array.dtype.name)
    if known is None:
        raise LaunchError(f"{name} has elements of {array.dtype}: pass bfloat16, float16, or uint16 and the type of its bits as dtype=")
    return ArrayView(place(array), array.shape, tuple(s // array.itemsize for s in array.strides), known, 0, "numpy")


def _of_rank_4(array: Array, strides: tuple[int, ...], type: str) -> Array:
    """The array as [batches, heads, rows, head dim] with the strides of its tensor map. Bits of f16 are of the type that NumPy has."""
    shape = array.shape if array.ndim == 4 else (1, array.shape[1], array.shape[0], array.shape[2])
    bits, kind = array.view(np.uint16), np.float16 if type == "f16" else array.dtype
    return np.lib.stride_tricks.as_strided(bits, shape, (*reversed(strides), array.itemsize)).view(kind)


__all__ = ["arguments", "seen", "simulate"]
