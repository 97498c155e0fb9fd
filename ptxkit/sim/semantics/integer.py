"""Integer arithmetic. Bits of integers are in `bits`, chains with a carry in `carry`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...grammar.operands import width
from ..program import Op
from ..values import DTYPES, SIGNED, Array, array_of, signed, uniform, value_of
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
    dtype = DTYPES[width(op.bindings["type"])]
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
    """Toward zero; by zero, both are all ones."""
    type, what = op.bindings["type"], op.tokens[0]
    bits = width(type)
    ones = (1 << bits) - 1

    def one(a: int, b: int) -> int:
        if not b:
            return ones
        if type[0] == "u":
            return a // b if what == "div" else a % b
        x, y = signed(a, bits), signed(b, bits)
        quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        return (quotient if what == "div" else x - quotient * y) & ones

    run = lanewise(one, bits, bits, to=bits)
    if type[0] == "s":
        return run
    return Inline(run, f"{{0}} // {{1}} if {{1}} else {ones}" if what == "div" else f"{{0}} % {{1}} if {{1}} else {ones}")


def lanewise(one: Callable[..., int], *bits: int, to: int) -> Run:
    """A function of ints on registers of `bits`, lane by lane."""

    def run(*sources: Any) -> Any:
        if all(type(source) is int for source in sources):
            return one(*sources)
        values = np.broadcast_arrays(*(array_of(source, b) for source, b in zip(sources, bits, strict=True)))
        return uniform(np.array([one(*lane) for lane in zip(*(v.tolist() for v in values), strict=True)], DTYPES[to]))

    return run


def numbers(value: Any, bits: int, is_signed: bool) -> Array:
    """A register of at most 32 bits as int64."""
    array = array_of(value, bits)
    return (array.view(SIGNED[bits]) if is_signed else array).astype(np.int64)


def clamped(value: int, bits: int) -> int:
    """The bits of a signed result, saturated."""
    return min(max(value, -1 << bits - 1), (1 << bits - 1) - 1) & (1 << bits) - 1


@pure("add", "sub", "min", "max", types="u16x2 s16x2")
def packed(op: Op) -> Run:
    name, is_signed = op.tokens[0], op.bindings["type"][0] == "s"
    ufunc = {"add": np.add, "sub": np.subtract, "min": np.minimum, "max": np.maximum}[name]
    dtype: Any = np.int16 if is_signed else np.uint16
    positive = op.has("relu")

    def run(a: Any, b: Any) -> Any:
        x, y = (np.ascontiguousarray(array_of(v, 32)).view(dtype).reshape(-1, 2) for v in (a, b))
        found = ufunc(x, y)
        if positive:
            found = np.maximum(found, dtype(0))
        return value_of(np.ascontiguousarray(found).view(np.uint32).reshape(-1))

    return run


@pure("min.relu", "max.relu", types="s32")
def relu(op: Op) -> Run:
    ufunc = np.minimum if op.tokens[0] == "min" else np.maximum

    def run(a: Any, b: Any) -> Any:
        return value_of(np.maximum(ufunc(array_of(a, 32).view(np.int32), array_of(b, 32).view(np.int32)), np.int32(0)).view(np.uint32))

    return run


@pure("add.sat", "sub.sat", types="s32")
def saturating(op: Op) -> Run:
    sign = 1 if op.tokens[0] == "add" else -1

    def run(a: Any, b: Any) -> Any:
        exact = numbers(a, 32, True) + sign * numbers(b, 32, True)
        return value_of(np.clip(exact, -1 << 31, (1 << 31) - 1).astype(np.int32).view(np.uint32))

    return run


@pure("mul.wide", "mad.wide")
def wide(op: Op) -> Run | Inline:
    type = op.bindings["type"]
    bits, to, is_signed = width(type), 2 * width(type), type[0] == "s"
    adds = op.tokens[0] == "mad"

    def run(a: Any, b: Any, c: Any = 0) -> Any:
        product = (numbers(a, bits, is_signed) * numbers(b, bits, is_signed)).view(np.uint64)
        if not adds:
            return value_of(product.astype(DTYPES[to]))
        return value_of((product + array_of(c, to).astype(np.uint64)).astype(DTYPES[to]))

    if is_signed:
        half, mask = 1 << bits - 1, (1 << to) - 1
        product = f"(({{0}} ^ {half}) - {half}) * (({{1}} ^ {half}) - {half})"
        return Inline(run, f"({product} + {{2}}) & {mask}" if adds else f"{product} & {mask}")
    return Inline(run, f"({{0}} * {{1}} + {{2}}) & {(1 << to) - 1}" if adds else "{0} * {1}")


@pure("mul.hi", "mad.hi")
def high(op: Op) -> Run:
    """The upper half of the product, plus `c`."""
    type = op.bindings["type"]
    bits, is_signed, adds, sat = width(type), type[0] == "s", op.tokens[0] == "mad", op.has("sat")
    mask = (1 << bits) - 1

    def one(a: int, b: int, c: int = 0) -> int:
        if is_signed:
            a, b = signed(a, bits), signed(b, bits)
        product = a * b >> bits
        return clamped(product + signed(c, bits), bits) if sat else product + c & mask

    slow = lanewise(one, bits, bits, *[bits] * adds, to=bits)
    if bits == 64:
        return slow

    def run(a: Any, b: Any, c: Any = 0) -> Any:
        if isinstance(a, int) and isinstance(b, int) and isinstance(c, int):
            return one(a, b, c)
        product = numbers(a, bits, is_signed) * numbers(b, bits, is_signed)
        top = product >> bits if is_signed else product.view(np.uint64) >> np.uint64(bits)
        if sat:
            return value_of(np.clip(top + numbers(c, bits, True), -1 << bits - 1, mask >> 1).astype(SIGNED[bits]).view(DTYPES[bits]))
        return value_of(top.astype(DTYPES[bits]) + array_of(c, bits))

    return run


@pure("mul24", "mad24")
def narrow_product(op: Op) -> Run:
    """The lower or upper 32 of the 48 bits of a product of 24-bit numbers."""
    is_signed, adds, sat = op.bindings["type"][0] == "s", op.tokens[0] == "mad24", op.has("sat")
    shift = 16 if op.bindings.get("mode", "hi") == "hi" else 0

    def one(a: int, b: int, c: int = 0) -> int:
        x, y = a & 0xFFFFFF, b & 0xFFFFFF
        if is_signed:
            x, y = signed(x, 24), signed(y, 24)
        product = x * y >> shift & 0xFFFFFFFF
        return clamped(signed(product, 32) + signed(c, 32), 32) if sat else product + c & 0xFFFFFFFF

    return lanewise(one, 32, 32, *[32] * adds, to=32)


@pure("sad")
def sad(op: Op) -> Run:
    type = op.bindings["type"]
    bits, is_signed = width(type), type[0] == "s"

    def one(a: int, b: int, c: int) -> int:
        distance = abs(signed(a, bits) - signed(b, bits)) if is_signed else abs(a - b)
        return distance + c & (1 << bits) - 1

    return lanewise(one, bits, bits, bits, to=bits)


@pure("abs", "neg", types="s16 s32 s64")
def sign(op: Op) -> Run:
    """Of the lowest number, itself."""
    bits = width(op.bindings["type"])
    ufunc: Any = np.abs if op.tokens[0] == "abs" else np.negative

    def run(a: Any) -> Any:
        if isinstance(a, int):
            value = signed(a, bits)
            return (abs(value) if ufunc is np.abs else -value) & (1 << bits) - 1
        return ufunc(a.view(SIGNED[bits])).view(DTYPES[bits])

    return run


@pure("dp4a", "dp2a")
def dot(op: Op) -> Run:
    """Products of packed integers; dp2a takes halves of `a` and the lower or upper two bytes of `b`."""
    left, right = op.bindings["atype"][0] == "s", op.bindings["btype"][0] == "s"
    a_type: Any = {4: (np.uint8, np.int8), 2: (np.uint16, np.int16)}[count := 4 if op.tokens[0] == "dp4a" else 2][left]
    b_type: Any = np.int8 if right else np.uint8
    start = 2 if op.bindings.get("mode") == "hi" else 0

    def run(a: Any, b: Any, c: Any) -> Any:
        x = np.ascontiguousarray(array_of(a, 32)).view(a_type).reshape(-1, count).astype(np.int64)
        y = np.ascontiguousarray(array_of(b, 32)).view(b_type).reshape(-1, 4)[:, start:start + count].astype(np.int64)
        return value_of((x * y).sum(1).astype(np.uint32) + array_of(c, 32))

    return run
