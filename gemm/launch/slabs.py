"""Products of misaligned operands that are larger than the L2, in slabs of rows and columns whose operands are small enough to be copied.

The copy of no slab is larger than the L2. The columns' operand is copied again for each slab of rows. The products are launched one after
another, and each is as any other product.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ptxkit.cards import Card
from ptxkit.runtime.arrays import ArrayView
from ptxkit.types import TYPES

from ..config.parts import TensorCopies
from ..heuristic.dense import clocks, heuristic
from ..problem.dense import Arrays, Options, Problem
from ..problem.lines import ALIGNED, copied_bytes

LINES = 128                 # of which a slab has a multiple


def slabs(arrays: Arrays, options: Options, card: Callable[[], Card]) -> list[Arrays]:
    """The product as products of slabs, where the model expects them to be faster; else the arrays alone."""
    a, b = arrays.a, arrays.b
    size = TYPES[a.dtype].bits // 8 if a.dtype in TYPES else 0
    if len(a.shape) != 2 or len(b.shape) != 2 or max(math.prod(a.shape), math.prod(b.shape)) * size < LEAST:
        return [arrays]
    problem, l2 = Problem(arrays, options), card().l2_mib * (1 << 20)
    if not problem.misaligned or problem.block_scales or problem.empty or not problem.k:
        return [arrays]
    rows, columns = (_lines(problem, name, l2) for name in "ab")
    made = [_slab(arrays, m, min(m + rows, problem.m), n, min(n + columns, problem.n))
            for m in range(0, problem.m, rows) for n in range(0, problem.n, columns)]
    if len(made) == 1:
        return [arrays]
    asked = [Problem(part, options) for part in made]
    known = {(one.m, one.n): clocks(one, heuristic(one, card()), card()) for one in {(one.m, one.n): one for one in asked}.values()}
    whole = clocks(problem, heuristic(problem, card()), card())
    return made if sum(known[one.m, one.n] for one in asked) < whole else [arrays]


LEAST = 24 << 20            # bytes, up to which an operand fits the L2 of any card


def _lines(problem: Problem, name: str, l2: float) -> int:
    """The rows (of A) or columns (of B) of a slab: all, if tensor copies load the operand or a copy of it fits the L2."""
    one, extent = (problem.of_a, problem.m) if name == "a" else (problem.of_b, problem.n)
    size = problem.a.bits // 8
    if isinstance(one.copies, TensorCopies) or copied_bytes(one, size) <= l2:
        return extent
    most = max(LINES, int(l2 / (-(-problem.k * size // ALIGNED) * ALIGNED)) // LINES * LINES)
    return -(-extent // -(-extent // most) // LINES) * LINES


def _slab(arrays: Arrays, top: int, bottom: int, left: int, right: int) -> Arrays:
    """Rows `top` to `bottom` and columns `left` to `right` of the product."""
    found: dict[str, ArrayView] = {}
    for name, array in arrays.named():
        if name in ("out", "c", "residual"):
            found[name] = _cut(_cut(array, 0, top, bottom), 1, left, right)
        elif name == "a":
            found[name] = _cut(array, 0, top, bottom)
        elif name == "b":
            found[name] = _cut(array, 1, left, right)
        elif name == "bias":
            along_rows = len(array.shape) == 2 and array.shape[1] == 1 and (array.shape[0] > 1 or arrays.out.shape[1] != 1)
            found[name] = _cut(array, 0, top, bottom) if along_rows else _cut(array, len(array.shape) - 1, left, right)
        elif math.prod(array.shape) > 1:                        # scales of rows or of columns
            found[name] = _cut(array, 0, top, bottom) if name == "a_scale" else _cut(array, len(array.shape) - 1, left, right)
    return arrays._replace(**found)


def _cut(array: ArrayView, axis: int, start: int, stop: int) -> ArrayView:
    shape = list(array.shape)
    shape[axis] = stop - start
    return array._replace(pointer=array.pointer + start * array.strides[axis] * (TYPES[array.dtype].bits // 8), shape=tuple(shape))


__all__ = ["slabs"]
