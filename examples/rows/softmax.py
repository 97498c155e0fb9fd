"""Softmax of each row, bf16 in and out, f32 between: y = exp(x - max) / sum of exp(x - max).

The row is held in registers, so that the maximum, the sum and the quotient each go over registers: one read and one write of memory.

    python -m examples.rows.softmax
"""
from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from examples.host.problem import Problem, Step, normal, poison, report, taken, ulps, wide
from examples.rows.held import Row, block, ctas
from ptxkit import Ptr, Reg, kernel
from ptxkit.ptx import add, ex2, fma, max, mul, rcp
from ptxkit.types import bf16, u32

LOG2_E = math.log2(math.e)


@kernel(target="sm_90a", block=block, min_ctas=None)
def softmax(x: Ptr[bf16], y: Ptr[bf16], rows: Reg[u32], *, COLUMNS: int = 4096) -> None:
    """y[r] = softmax(x[r]). A warp has a row of up to 1,024 columns, a CTA a longer one."""
    row = Row(rows, COLUMNS)
    values = row.load(x, filler=-math.inf)                          # exp(-inf) is 0: the tail adds nothing
    top = row.reduce(max.f32, values)
    shift = mul.rn.f32(top, -LOG2_E)
    # exp(v - top) = 2^(v log2 e - top log2 e): one fma and one ex2. The MUFU makes 16 of them a clock, and memory feeds 4.
    powers = [[ex2.approx.ftz.f32(fma.rn.f32(v, LOG2_E, shift)) for v in eight] for eight in values]
    scale = rcp.approx.ftz.f32(row.reduce(add.rn.f32, powers))      # one quotient a row, and a product for each element
    row.store(y, [[mul.rn.f32(p, scale) for p in eight] for eight in powers])


def steps(x: Any, y: Any) -> list[Step]:
    """The launch for x and y [rows, columns]."""
    rows, columns = x.shape
    grid = ctas(rows, columns)
    taken(x=(x, (rows, columns)), y=(y, (rows, columns)))
    return [Step(softmax, grid, (x, y, rows), {"COLUMNS": columns}, ())]


def problem(rows: int, columns: int, seed: int = 0) -> Problem:
    """Normal rows of some spread."""
    x = normal(seed, rows, columns)
    exact = np.exp(wide("bf16", x) - wide("bf16", x).max(1, keepdims=True))
    exact /= exact.sum(1, keepdims=True)
    # One rounding to bf16. ex2.approx, rcp.approx and the f32 sums are good to 2^-20; the fma's argument, below 16, adds 2^-20 of itself.
    allowed = 1.01 * ulps(exact) + 2.0**-18 * exact
    return Problem({"x": ("bf16", x), "y": ("bf16", poison("bf16", rows, columns))}, lambda a: steps(a["x"], a["y"]),
                   {"y": (exact, allowed)}, bytes=4 * rows * columns, library=_library)


def _library(torch: Any, a: Mapping[str, Any]) -> Any:
    compiled = torch.compile(lambda x: torch.softmax(x, 1))
    return lambda: compiled(a["x"])


if __name__ == "__main__":
    print(report("softmax", problem(4096, 8192), problem(9, 520)))
