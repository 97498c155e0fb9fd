"""f16 and bf16 arithmetic, single and in pairs: every result rounded once, to nearest; a NaN result is 0x7FFF.

Approximate: ex2 and tanh give the exact result rounded to nearest, inside the ISA's bounds (ex2.f16 2**-9.9 relative, tanh.f16
2**-10.987 and tanh.bf16 2**-8 absolute).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..program import Op
from ..rounding import add_odd, canonical, decode, encode, flush, multiply_add, parts, quiet, relu, saturate, whole
from ..values import Array
from .registry import Run, pure

HALVES = "f16 f16x2 bf16 bf16x2"


def rounded(op: Op, function: Callable[..., Array]) -> Run:
    """A function on float64 numbers, its result in the instruction's type."""
    type = op.bindings["type"]
    of = type.removesuffix("x2")
    ftz, sat, clamps, oob = op.has("ftz"), op.has("sat"), op.has("relu"), op.has("oob")

    @quiet
    def run(*sources: Any) -> Any:
        bits = [parts(source, type) for source in sources]
        if ftz:
            bits = [flush(b, of) for b in bits]
        found = canonical(encode(function(*(decode(b, of) for b in bits)), of), of)
        if ftz:
            found = flush(found, of)
        if oob:
            found = np.where(is_fill(bits[0]) | is_fill(bits[1]), np.uint16(0), found)
        if sat:
            found = saturate(found, of)
        return whole(relu(found, of) if clamps else found)

    return run


def is_fill(bits: Array) -> Array:
    """Whether a half is what a tensor copy fills in outside of the tensor: the NaN 0x7FF7 of either sign (measured on an H200)."""
    return np.asarray((bits & np.uint16(0x7FFF)) == np.uint16(0x7FF7))


@pure("add", "sub", "mul", types=HALVES)
def arithmetic(op: Op) -> Run:
    name = op.tokens[0]
    if name == "mul":
        return rounded(op, lambda a, b: a * b)
    return rounded(op, add_odd if name == "add" else lambda a, b: add_odd(a, -b))


@pure("fma", types=HALVES)
def fma(op: Op) -> Run:
    return rounded(op, multiply_add)


@pure("ex2", types=HALVES)
def ex2(op: Op) -> Run:
    return rounded(op, np.exp2)


@pure("tanh", types=HALVES)
def tanh(op: Op) -> Run:
    return rounded(op, np.tanh)
