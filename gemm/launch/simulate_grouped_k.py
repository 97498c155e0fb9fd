"""Products with groups along K on the CPU device: runs the same kernel and configuration as on a GPU, on NumPy arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ptxkit.cards import H200, Card
from ptxkit.dsl.parameters import values
from ptxkit.runtime.arrays import ArrayView

from ..config.grouped_k import GroupedKConfig
from ..heuristic.grouped_k import heuristic
from ..kernels.grouped_k import group_gemm_k
from ..problem.grouped_k import COUNTERS_BYTES, ArraysAlongK, ProblemAlongK, parts
from ..problem.options import check_kind, flag
from .grouped_k import check_config
from .on_cpu import Array, check_card, check_overlap, integer, map_of, view_of, worst

COUNTERS = COUNTERS_BYTES // 4
POISON = 0x7FFFFFFF             # NaN

if TYPE_CHECKING:
    from ptxkit.sim import Report


def simulate(a: Array, b: Array, lengths: Array, out: Array, *, accumulate: bool = False, dtype: str | None = None,
             out_dtype: str | None = None, config: GroupedKConfig | None = None, card: Card = H200, schedule: str = "fifo", seed: int = 0,
             check: bool = True) -> Report:
    """`gemm.group_gemm_k` with the configuration for `card`, executed on the CPU.

    Arrays are float16, float32 and ml_dtypes' bfloat16, or unsigned integers with the bits of `dtype` (a, b) and `out_dtype` (out). A card
    with fewer SMs (`card.with_sms`) gives each CTA more tiles. `schedule`, `seed` and `check` are passed to `ptxkit.sim.run`.
    """
    from ptxkit.sim import Report, run
    from ptxkit.sim.limits import UNLIMITED

    check_card(card)
    check_overlap({"a": a, "b": b, "lengths": lengths, "out": out})
    accumulate = flag("accumulate", accumulate)
    check_kind(config, GroupedKConfig)
    arrays = described(a, b, lengths, out, dtype, out_dtype)
    problem = ProblemAlongK(arrays, accumulate)
    if problem.empty or not problem.rows:
        if not problem.empty and not accumulate:
            out[...] = 0
        return Report(checked=False)
    if problem.in_parts:
        more: dict[str, Any] = {"accumulate": accumulate, "dtype": dtype, "out_dtype": out_dtype, "config": config, "card": card,
                                "schedule": schedule, "seed": seed, "check": check}
        reports, first = [], 0
        for part in parts(arrays, problem.groups):
            last = first + part.out.shape[0]
            reports.append(simulate(a, b, lengths[first:last + 1], out[first:last], **more))
            first = last
        return worst(reports)
    if config is not None:
        check_config(config, problem)
    config = config or heuristic(problem, card)
    workspace = np.full(max(COUNTERS, problem.workspace_bytes(config) // 4), POISON, np.uint32)
    workspace[:COUNTERS] = 0
    given: dict[str, Any] = {"lengths": lengths.view(np.uint32), "workspace": workspace}
    traced = group_gemm_k.trace(**config.parameters)
    records, sources = traced.copies.records, problem.sources(config)
    named: dict[str, Any] = {name: map_of(array, records[name], sources[name]) for name, array in (("a", a), ("b", b))}
    named |= {"d": map_of(out, records["d"], problem.d_lines), **problem.arguments(config, given.__getitem__)}
    report = run(traced, grid=problem.grid(config, card.sms), args=values(traced.signature, (), named), max_steps=UNLIMITED,
                 schedule=schedule, seed=seed, check=check)
    if workspace[:COUNTERS].any():
        raise AssertionError("the counters of a workspace are zeros between launches, and these are not")
    return report


def described(a: Array, b: Array, lengths: Array, out: Array, dtype: str | None = None, out_dtype: str | None = None) -> ArraysAlongK:
    """The arrays as the device adapter would see them."""
    words = {"a": dtype, "b": dtype, "out": out_dtype or dtype}
    views = {name: view_of(name, array, words[name]) for name, array in (("a", a), ("b", b), ("out", out))}
    seen = ArrayView(0, lengths.shape, (1,), integer(lengths), 0, "numpy")
    return ArraysAlongK(views["a"], views["b"], seen, views["out"])


__all__ = ["described", "simulate"]
