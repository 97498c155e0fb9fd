"""gemm on the CPU device: runs the same kernel and configuration as on a GPU, on NumPy arrays, and reports what the checker found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ptxkit.cards import H200, Card
from ptxkit.dsl.parameters import values
from ptxkit.dsl.tensormap import TensorMap
from ptxkit.errors import LaunchError
from ptxkit.timeline.simulated import marked

from ..config.dense import DenseConfig
from ..heuristic.dense import heuristic
from ..kernels.align_lines import align_lines
from ..problem.dense import Arrays, Problem
from ..problem.matmul import products
from ..problem.options import check_kind
from ..problem.options import options as checked
from ..scheduler.hilbert import hilbert
from .aligning import Copy
from .dense import as_one
from .grid import COUNTER_BYTES, Grid, kernel_of
from .on_cpu import Array, bytes_of, check_card, check_overlap, lines_of, part_of, strided, view_of
from .parts import check_config

if TYPE_CHECKING:
    from ptxkit.sim import Report

MARKS = 1 << 14
"""Marks that a warp has room for in each of its roles."""


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
    check_card(card)
    check_overlap(given, in_place=("c", "residual"))
    words = {"a": dtype, "b": dtype}
    views = {name: view_of(name, array, words.get(name, out_dtype or dtype)) for name, array in given.items()      # type: ignore[arg-type]
             if array is not None or name not in Arrays._field_defaults}
    arrays, options = Arrays(**views), checked(alpha, beta, activation, accumulate, fast_accum, batch_invariant)
    check_kind(config, DenseConfig)
    parts = products(arrays)
    if parts != [arrays]:
        how: dict[str, Any] = {"alpha": alpha, "beta": beta, "activation": activation, "accumulate": accumulate, "fast_accum": fast_accum,
                               "batch_invariant": batch_invariant, "dtype": dtype, "out_dtype": out_dtype, "config": config, "card": card,
                               "schedule": schedule, "seed": seed, "check": check, "counters": counters, "marks": marks}
        reports = []
        for part in parts:
            own: dict[str, Any] = {name: part_of(given[seen.owner], views[seen.owner], seen) for name, seen in part.named()}
            reports.append(simulate(**own, **how))
        return next((report for report in reports if report.verdict != "clean"), reports[-1])
    whole = as_one(arrays, config)
    if whole is not arrays:
        given |= {name: strided(array, getattr(whole, name)) for name, array in given.items() if array is not None}
        a, b, out = (strided(array, getattr(whole, name)) for name, array in (("a", a), ("b", b), ("out", out)))
    problem = Problem(whole, options)
    if problem.empty or not problem.k:
        out[...] = 0
        return Report(checked=False)
    if config is not None:
        check_config(config, problem)
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
        return lines_of(a, problem.a_major == "k") if name == "a" else lines_of(b, problem.b_major == "mn")

    first, second = ("b", "a") if config.swap_ab else ("a", "b")
    maps = {"a": operand(first) if "a" in records else nothing, "b": operand(second) if "b" in records else nothing,
            "d": lines_of(out, True) if "d" in records else nothing,
            "sfa_map": lines_of(given["a_scale"], False) if "sfa_map" in records and given["a_scale"] is not None else nothing}
    named = {**maps, **grid.arguments(problem, options, pointer)}
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


__all__ = ["simulate"]
