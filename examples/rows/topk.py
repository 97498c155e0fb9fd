"""The k largest of each row, with their columns, in order: a warp a row, as the router of a layer of experts needs it.

The row becomes keys whose order as integers is that of the values: all bits are flipped of a negative one, the sign of another. Each round
takes the largest key by `redux.sync`, one instruction for 32 lanes, and the lowest column that has it by another. Lane r keeps what round
r has found, so that the warp stores its k results together.

Adding 0 makes -0 a 0, and each NaN the one without a sign: so 0 and -0 are equal, and a NaN is above all, as torch has it. No value has
the key 0, which is that of what has been taken.

    python -m examples.rows.topk
"""
from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from examples.host.problem import Problem, Step, apart, extents, normal, poison, report, taken
from ptxkit import Ptr, Reg, ctaid, if_, kernel, laneid, tid
from ptxkit.ptx import add, ld, max, min, mov, mul, selp, setp, shr, st, xor
from ptxkit.reductions import warp_reduce
from ptxkit.types import f32, u32

WARPS, LANES, VECTOR = 8, 32, 4
NONE = 0xFFFFFFFF


@kernel(target="sm_90a", block=WARPS * LANES, min_ctas=None)
def topk(x: Ptr[f32], values: Ptr[f32], columns: Ptr[u32], rows: Reg[u32], *, COLUMNS: int = 256, K: int = 8) -> None:
    """values and columns [rows, K]: the K largest of x [rows, COLUMNS], the largest first; of equal ones the lowest column."""
    lane, row = mov.u32(laneid), mov.u32(ctaid.x) * WARPS + (mov.u32(tid.x) >> 5)
    with if_(row < rows):                                            # the same in all lanes of a warp
        start = x.at(mul.wide.u32(row, COLUMNS)).at(lane * VECTOR)
        elements = []
        for first in range(0, COLUMNS, LANES * VECTOR):
            if first + LANES * VECTOR <= COLUMNS:
                elements.extend(ld.global_.nc.L1__no_allocate.v4.f32(start + first))
            else:
                last = [mov.f32(-math.inf) for _ in range(VECTOR)]      # of -inf the row's own columns are lower
                ld.global_.nc.L1__no_allocate.v4.f32(last, start + first, pred=lane * VECTOR < COLUMNS - first)
                elements.extend(last)
        words = [mov.u32(mov.b32(add.rn.f32(element, 0.0))) for element in elements]
        keys = [xor.b32(word, mov.u32(shr.s32(mov.s32(word), 31)) | 0x80000000) for word in words]
        places = [lane * VECTOR + (i // VECTOR * LANES * VECTOR + i % VECTOR) for i in range(len(keys))]
        found, where = mov.u32(0), mov.u32(0)
        for turn in range(K):
            top = warp_reduce(max.u32, over(max.u32, keys))
            equal = [setp.eq.u32(key, top) for key in keys]
            winner = warp_reduce(min.u32, over(min.u32, [selp.u32(place, NONE, p) for place, p in zip(places, equal, strict=True)]))
            mov.u32(found, top, pred=lane == turn)
            mov.u32(where, winner, pred=lane == turn)
            for key, place in zip(keys, places, strict=True):
                mov.u32(key, 0, pred=place == winner)                # taken
        back = found ^ (~mov.u32(shr.s32(mov.s32(found), 31)) | 0x80000000)
        at = mul.wide.u32(row, K)
        with if_(lane < K):
            st.global_.u32(values.cast(u32).at(at).at(lane), back)
            st.global_.u32(columns.at(at).at(lane), where)


def over(operation: Any, values: list[Reg[u32]]) -> Reg[u32]:
    """Reduce in pairs: chains of log2(n)."""
    while len(values) > 1:
        values = [operation(*values[i:i + 2]) if i + 1 < len(values) else values[i] for i in range(0, len(values), 2)]
    return values[0]


def steps(x: Any, values: Any, columns: Any) -> list[Step]:
    """The launch for x [rows, columns], values and columns [rows, k]."""
    (rows, width), k = extents("x [rows, columns]", x), extents("values [rows, k]", values)[1]
    if width % VECTOR or not k <= width <= 1024 or not 1 <= k <= LANES:
        raise ValueError(f"a warp holds a row of a multiple of {VECTOR} elements, 1,024 at most, and finds 1 to {LANES} of them, not {k} "
                         f"of {width:,}: pad the row with -inf")
    taken(x=(x, (rows, width)), values=(values, (rows, k)), columns=(columns, (rows, k)))
    apart("values", "columns", x=x, values=values, columns=columns)
    return [Step(topk, -(-rows // WARPS), (x, values, columns, rows), {"COLUMNS": width, "K": k})]


def problem(rows: int, columns: int, k: int = 8, step: float = 2.0**-6, seed: int = 0) -> Problem:
    """Normal values rounded to multiples of `step`, with ties, zeros of both signs among them."""
    x = np.round(normal(seed, rows, columns, kind="f32") / step) * step
    order = np.argsort(-x, axis=1, kind="stable")[:, :k]
    right = {"values": (np.take_along_axis(x, order, 1).astype(np.float64), 0.0), "columns": (order.astype(np.float64), 0.0)}
    operands = {"x": ("f32", x), "values": ("f32", poison("f32", rows, k)), "columns": ("u32", np.full((rows, k), NONE, np.uint32))}
    return Problem(operands, lambda a: steps(a["x"], a["values"], a["columns"]), right, bytes=4 * x.size + 8 * rows * k,
                   library=_library(k), library_name="torch.topk")


def _library(k: int) -> Any:
    def of(torch: Any, a: Mapping[str, Any]) -> Any:
        return lambda: torch.topk(a["x"], k, dim=1)

    return of


if __name__ == "__main__":
    print(report("topk", problem(65_536, 256), problem(9, 100)))
