"""The ladder on the CPU device: every step on a small head, beside float64 and with the checker."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..tools.reference import expected, narrowed, widened
from .rung import Rung
from .rungs import RUNGS

if TYPE_CHECKING:
    from ptxkit.sim import Report

Array = np.ndarray[Any, Any]
UNWRITTEN = 0x7FC0          # a NaN in bf16


@dataclass(frozen=True)
class Outcome:
    """The run of one step: the largest error as a share of its bound (NaN: an element was not written), and the checker's report."""

    rung: Rung
    rows: int
    causal: bool
    share: float
    report: Report
    seconds: float

    @property
    def fine(self) -> bool:
        return self.share <= 1 and self.report.verdict == "clean" and self.report.every_schedule

    def __str__(self) -> str:
        report = str(self.report) if self.report.findings else str(self.report).splitlines()[0]
        numbers = "right" if self.share <= 1 else f"WRONG, {self.share:.3g} times the bound"
        mask = "causal" if self.causal else "full"
        return f"{self.rung.step:>4}  {self.rung.name:<13} {mask:<6} {self.rows} rows, {self.seconds:.1f} s: {numbers}; verdict: {report}"


def small(rung: Rung, causal: bool = False, BN: int = 32) -> int:
    """Rows of a small head: more blocks of keys than a ring has stages, and under a mask two tiles of queries, which see different keys."""
    tiles = 2 if causal or not rung.step else 1
    return tiles * rung.BM if not rung.step else max(tiles * rung.BM, 4 * BN)


def run(rung: Rung, rows: int, causal: bool = False, *, heads: int = 1, HEAD: int = 64, BN: int = 32, grown: float = 3.0,
        schedule: str = "fifo", seed: int = 0, marks: bool = False) -> Outcome:
    """Run a step on random numbers; keys grow by `grown` along the rows, so that maxima rise from block to block."""
    if rung.step:
        rung.require(rows, BN)
    generator = np.random.default_rng(rows + heads)
    shape = heads, rows, HEAD
    growth = np.linspace(1, grown, rows)[:, None]
    q, k, v = (narrowed(generator.standard_normal(shape) * by, "bf16") for by in (1, growth, 1))
    o = np.full(shape, UNWRITTEN, np.uint16)
    begin = time.perf_counter()
    report = rung.kernel.simulate(rung.grid(heads, rows), *rung.arguments(q, k, v, o), HEAD=HEAD, BN=BN, causal=causal, schedule=schedule,
                                  seed=seed, marks=marks)
    seconds = time.perf_counter() - begin
    return Outcome(rung, rows, causal, share(q, k, v, o, causal), report, seconds)


def share(q: Array, k: Array, v: Array, o: Array, causal: bool) -> float:
    """The largest error of `o` as a share of its bound, NaN where an element was not written. All arrays hold bits of bf16."""
    right = expected(widened(q, "bf16"), widened(k, "bf16"), widened(v, "bf16"), "bf16", causal=causal)
    return float((np.abs(widened(o, "bf16") - right.out) / right.out_bound).max())


def ladder(say: Callable[[str], None], rungs: Sequence[Rung] = RUNGS) -> int:
    """Run every step, full and causal. Returns 0 if all are right and the checker certifies every schedule."""
    failed = 0
    for rung in rungs:
        for causal in (False, True):
            outcome = run(rung, small(rung, causal), causal)
            say(str(outcome))
            failed += not outcome.fine
    say(f"{len(rungs)} steps executed on the CPU device, not a GPU: {failed or 'none'} failed")
    return int(failed > 0)
