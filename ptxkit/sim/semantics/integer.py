"""Integer arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from grammar.operands import width

from ..program import Op
from ..values import SIGNED, array_of, signed, uniform, value_of
from .registry import Inline, Run, pure

INTEGERS = "u16 u32 u64 s16 s32 s64"


def _modular(op: Op, array: Callable[..., Any], expression: str) -> Inline:
    """An operation that is the same for both signs, modulo the width."""
    mask = (1 << width(op.bindings["type"])) - 1
    return Inline(array, f"({expression}) & {mask}")


@pure("add", types=INTEGERS)
def add(op: Op) -> Inline:
    return _modular(op, lambda a, b: a + b, "{0} + {1}")


@pure("sub", types=INTEGERS)
def sub(op: Op) -> Inline:
    dtype = np.uint32 if width(op.bindings["type"]) == 32 else np.uint64 if width(op.bindings["type"]) == 64 else np.uint16
    return _modular(op, lambda a, b: (dtype(a) if type(a) is int else a) - b, "{0} - {1}")


@pure("mul.lo", types=INTEGERS)
def mul_lo(op: Op) -> Inline:
    return _modular(op, lambda a, b: a * b, "{0} * {1}")


@pure("mad.lo", types=INTEGERS)
def mad_lo(op: Op) -> Inline:
    return _modular(op, lambda a, b, c: array_of(a, width(op.bindings["type"])) * b + c, "{0} * {1} + {2}")


@pure("min", "max", types=INTEGERS)
def min_max(op: Op) -> Run | Inline:
    type = op.bindings["type"]
    bits = width(type)
    ufunc = np.minimum if op.tokens[0] == "min" else np.maximum
    choose = min if op.tokens[0] == "min" else max
    if type[0] == "u":
        return Inline(ufunc, f"{choose.__name__}({{0}}, {{1}})")

    def run(a: Any, b: Any) -> Any:
        if isinstance(a, int) and isinstance(b, int):
            return choose(a, b, key=lambda v: signed(v, bits))
        return ufunc(array_of(a, bits).view(SIGNED[bits]), array_of(b, bits).view(SIGNED[bits])).view(f"u{bits // 8}")

    return run


@pure("div", "rem", types=INTEGERS)
def div_rem(op: Op) -> Run | Inline:
    """Toward zero; a division by zero gives all ones, its remainder the dividend."""
    type, what = op.bindings["type"], op.tokens[0]
    bits = width(type)
    ones = (1 << bits) - 1

    def one(a: int, b: int) -> int:
        if not b:
            return ones if what == "div" else a
        if type[0] == "u":
            return a // b if what == "div" else a % b
        x, y = signed(a, bits), signed(b, bits)
        quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        return (quotient if what == "div" else x - quotient * y) & ones

    def run(a: Any, b: Any) -> Any:
        x, y = np.broadcast_arrays(array_of(a, bits), array_of(b, bits))
        return value_of(uniform_lanes(np.array([one(p, q) for p, q in zip(x.tolist(), y.tolist(), strict=True)], f"u{bits // 8}")))

    return Inline(lambda a, b: one(a, b) if isinstance(a, int) and isinstance(b, int) else run(a, b),
                  ("{0} // {1} if {1} else " + str(ones)) if type[0] == "u" and what == "div" else
                  "{0} % {1} if {1} else {0}" if type[0] == "u" else "0") if type[0] == "u" else \
        (lambda a, b: one(a, b) if isinstance(a, int) and isinstance(b, int) else run(a, b))


def uniform_lanes(value: Any) -> Any:
    found = uniform(value) if value.size == 32 else value
    return found if not isinstance(found, int) else np.array([found], value.dtype)


@pure("bfe")
def bfe(op: Op) -> Run:
    type = op.bindings["type"]
    bits = width(type)

    def one(a: int, position: int, length: int) -> int:
        position, length = position & 0xFF, length & 0xFF
        field = a >> position & (1 << length) - 1
        if type[0] == "u" or not length:
            return field
        top = min(position + length - 1, bits - 1)
        if a >> top & 1:
            field |= -1 << max(top - position + 1, 0)
        return field & (1 << bits) - 1

    def run(a: Any, b: Any, c: Any) -> Any:
        if isinstance(a, int) and isinstance(b, int) and isinstance(c, int):
            return one(a, b, c)
        x, y, z = np.broadcast_arrays(array_of(a, bits), array_of(b, 32), array_of(c, 32))
        found = [one(*v) for v in zip(x.tolist(), y.tolist(), z.tolist(), strict=True)]
        return uniform(np.array(found, f"u{bits // 8}"))

    return run
