"""Softmax of each row, bf16 in and out, f32 between: y = exp(x - max) / sum of exp(x - max).

The row is held in registers, so that the maximum, the sum and the quotient each go over registers: one read and one write of memory.

    python -m examples.rows.softmax
"""
from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from examples.host.problem import Problem, Step, apart, extents, narrow, normal, poison, report, taken, ulps, wide
from examples.rows.held import Row, block, ctas
from ptxkit import Ptr, Reg, kernel
from ptxkit.ptx import add, ex2, max, mul, rcp, sub
from ptxkit.types import bf16, u32

LOG2_E = math.log2(math.e)


@kernel(target="sm_90a", block=block, min_ctas=None)
def softmax(x: Ptr[bf16], y: Ptr[bf16], rows: Reg[u32], *, COLUMNS: int = 4096) -> None:
    """y[r] = softmax(x[r]). A warp has a row of up to 1,024 columns, a CTA a longer one."""
    row = Row(rows, COLUMNS)
    values = row.load(x, filler=-math.inf)                          # exp(-inf) is 0: the tail adds nothing
    top = row.reduce(max.f32, values)
    # exp(v - top) = 2^((v - top) log2 e). The MUFU makes 16 of ex2 a clock, and memory feeds 4. One fma for v log2 e - top log2 e would be
    # wrong for large values: what rounding leaves of the second product is in the exponent, and from 2^127.5 on it is infinite.
    powers = [[ex2.approx.ftz.f32(mul.rn.f32(sub.rn.f32(v, top), LOG2_E)) for v in eight] for eight in values]
    scale = rcp.approx.ftz.f32(row.reduce(add.rn.f32, powers))      # one quotient a row, and a product for each element
    row.store(y, [[mul.rn.f32(p, scale) for p in eight] for eight in powers])


def steps(x: Any, y: Any) -> list[Step]:
    """The launch for x and y [rows, columns]."""
    rows, columns = extents("x [rows, columns]", x)
    grid = ctas(rows, columns)
    taken(x=(x, (rows, columns)), y=(y, (rows, columns)))
    apart("y", x=x, y=y)
    return [Step(softmax, grid, (x, y, rows), {"COLUMNS": columns}, ())]


def problem(rows: int, columns: int, size: float = 1.0, seed: int = 0) -> Problem:
    """Normal rows, times `size`."""
    x = narrow(size * normal(seed, rows, columns, kind="f32"))
    exact = np.exp(wide("bf16", x) - wide("bf16", x).max(1, keepdims=True))
    exact /= exact.sum(1, keepdims=True)
    # One rounding to bf16. ex2.approx, rcp.approx and the f32 sums are good to 2^-20. The argument of ex2 has three roundings, one of them
    # of log2 e; ex2.ftz gives zeros from -126 on.
    below = np.minimum(wide("bf16", x).max(1, keepdims=True) - wide("bf16", x), 100)
    allowed = 1.01 * ulps(exact) + (2.0**-19 + 2.0**-22 * below) * exact + 2.0**-126
    return Problem({"x": ("bf16", x), "y": ("bf16", poison("bf16", rows, columns))}, lambda a: steps(a["x"], a["y"]),
                   {"y": (exact, allowed)}, bytes=4 * rows * columns, library=_library)


def _library(torch: Any, a: Mapping[str, Any]) -> Any:
    compiled = torch.compile(lambda x: torch.softmax(x, 1))
    return lambda: compiled(a["x"])


if __name__ == "__main__":
    print(report("softmax", problem(4096, 8192), problem(9, 520)))
