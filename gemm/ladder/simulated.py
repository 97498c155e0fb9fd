"""The ladder on the CPU device: every step on a small product, with the checker."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .rung import Rung
from .rungs import RUNGS

if TYPE_CHECKING:
    from ptxkit.sim import Report

Array = np.ndarray[Any, Any]
UNWRITTEN = 0x7FC0          # a NaN in bf16


@dataclass(frozen=True)
class Outcome:
    """The run of one step: the number of wrong elements of D, and the checker's report, with the timeline of a run with marks."""

    rung: Rung
    shape: tuple[int, int, int]
    wrong: int
    report: Report
    seconds: float

    @property
    def fine(self) -> bool:
        return not self.wrong and self.report.verdict not in ("error", "incomplete")

    def __str__(self) -> str:
        m, n, k = self.shape
        report = str(self.report) if self.report.findings else str(self.report).splitlines()[0]
        numbers = "right" if not self.wrong else f"{self.wrong} elements WRONG"
        return f"{self.rung.step:>4}  {self.rung.name:<15} {m} x {n} x {k}, {self.seconds:.1f} s: {numbers}; verdict: {report}"


def small(rung: Rung) -> tuple[int, int, int]:
    """A small product with several tiles in every direction, and enough stages to wrap the ring."""
    rows, columns, depth = rung.tile
    if rung.step < 3:
        return 2 * rows, columns, max(depth, 16)
    return 2 * rows * rung.cluster, 2 * columns, 5 * depth


def run(rung: Rung, m: int, n: int, k: int, *, resident: int = 1, schedule: str = "fifo", seed: int = 0, check: bool = True,
        marks: bool = False) -> Outcome:
    """Run a step on small integers. Their products and sums are exact in any order, so D must equal the rounded product in every bit.

    The device holds `resident` clusters at once: with 1, one cluster of a persistent kernel computes all tiles.
    """
    rung.require(m, n, k)
    generator = np.random.default_rng(m * n + k)
    (a, a_value), (b, b_value) = (_integers(generator, rows, k) for rows in (m, n))
    d = np.full((m, n), UNWRITTEN, np.uint16)
    order = None if rung.order is None else np.array(rung.order(m, n), np.uint32)
    begin = time.perf_counter()
    report = rung.kernel.simulate(rung.grid(m, n, resident), *rung.arguments(a, b, d, m, n, k, order), schedule=schedule, seed=seed,
                                  check=check, marks=marks)
    expected = _bf16(a_value @ b_value.T)
    return Outcome(rung, (m, n, k), int((d != expected).sum()), report, time.perf_counter() - begin)


def ladder(size: int | None, say: Callable[[str], None]) -> int:
    """Run every step. Returns 0 if all are right and the checker found nothing. `size` None: small products, else cubes."""
    failed = 0
    for rung in RUNGS:
        outcome = run(rung, *(small(rung) if size is None else (size, size, size)))
        say(str(outcome))
        failed += not outcome.fine
    say(f"{len(RUNGS)} steps executed on the CPU device, not a GPU: {failed or 'none'} failed")
    return int(failed > 0)


def _integers(generator: np.random.Generator, rows: int, k: int) -> tuple[Array, Array]:
    """(bits of bf16, the same values as float32)."""
    value = generator.integers(-3, 4, (rows, k)).astype(np.float32)
    return _bf16(value), value


def _bf16(value: Array) -> Array:
    """The bits of float32 rounded to bf16, to nearest even."""
    bits = value.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
