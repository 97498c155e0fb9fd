"""Bit fields, counts, permutation of bytes, three-input logic, funnel shifts."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...grammar.operands import width
from ..operand import Immediate
from ..program import Op
from ..values import DTYPES, Array, array_of, signed, uniform, value_of
from .integer import lanewise
from .registry import Inline, Run, pure

_WORD = 0xFFFFFFFF


def _place(value: int, bits: int) -> int:
    return value & 0xFF if bits == 32 else min(value, 64)


@pure("bfe")
def bfe(op: Op) -> Run:
    """A field of position b and length c; a signed one is filled with its sign, or the number's where it ends outside.

    Of 32 bits, only the lowest 8 of position and length count; of 64, all (the ISA wants them below 256)."""
    type = op.bindings["type"]
    bits = width(type)

    def one(a: int, position: int, length: int) -> int:
        position, length = _place(position, bits), _place(length, bits)
        if type[0] == "u" or not length:
            return a >> position & (1 << length) - 1
        last = position + length - 1
        if last >= bits - 1:
            return signed(a, bits) >> min(position, bits - 1) & (1 << bits) - 1
        field = a >> position & (1 << length) - 1
        return signed(field, length) & (1 << bits) - 1

    return lanewise(one, bits, 32, 32, to=bits)


@pure("bfi")
def bfi(op: Op) -> Run:
    bits = width(op.bindings["type"])

    def one(a: int, b: int, position: int, length: int) -> int:
        position, length = _place(position, bits), _place(length, bits)
        field = ((1 << length) - 1 << position) & (1 << bits) - 1
        return b & ~field | a << position & field

    return lanewise(one, bits, bits, 32, 32, to=bits)


@pure("popc")
def popc(op: Op) -> Run:
    return lanewise(int.bit_count, width(op.bindings["type"]), to=32)


@pure("clz")
def clz(op: Op) -> Run:
    bits = width(op.bindings["type"])
    return lanewise(lambda a: bits - a.bit_length(), bits, to=32)


@pure("bfind")
def bfind(op: Op) -> Run:
    """The highest bit that is not the sign's; -1 when there is none."""
    type = op.bindings["type"]
    bits, shifts = width(type), op.has("shiftamt")

    def one(a: int) -> int:
        if type[0] == "s" and a >> bits - 1:
            a ^= (1 << bits) - 1
        found = a.bit_length() - 1
        return (bits - 1 - found if shifts and found >= 0 else found) & _WORD

    return lanewise(one, bits, to=32)


@pure("brev")
def brev(op: Op) -> Run:
    bits = width(op.bindings["type"])
    return lanewise(lambda a: int(f"{a:0{bits}b}"[::-1], 2), bits, to=bits)


@pure("szext")
def szext(op: Op) -> Run:
    """Sign or zero extension from `b` bits."""
    is_signed, wraps = op.bindings["type"][0] == "s", op.bindings["mode"] == "wrap"

    def one(a: int, b: int) -> int:
        length = b & 31 if wraps else min(b, 32)
        field = a & (1 << length) - 1
        return signed(field, length) & _WORD if is_signed and length else field

    return lanewise(one, 32, 32, to=32)


@pure("bmsk")
def bmsk(op: Op) -> Run:
    """`b` ones from bit `a`."""
    wraps = op.bindings["mode"] == "wrap"

    def one(a: int, b: int) -> int:
        start, length = (a & 31, b & 31) if wraps else (min(a, 32), min(b, 32))
        return (1 << length) - 1 << start & _WORD

    return lanewise(one, 32, 32, to=32)


@pure("fns")
def fns(op: Op) -> Run:
    """The offset-th set bit from `base` on, up or down; all ones when there is none."""

    def one(mask: int, base: int, offset: int) -> int:
        count = signed(offset, 32)
        if offset == 1 << 31:  # whose magnitude is no s32: as an H200 does it
            return 0
        if base > 31:
            return _WORD
        if not count:
            return base if mask >> base & 1 else _WORD
        left = abs(count)
        for place in range(base, 32) if count > 0 else range(base, -1, -1):
            left -= mask >> place & 1
            if not left:
                return place
        return _WORD

    return lanewise(one, 32, 32, 32, to=32)


# ------------------------------------------------------------------------------------------------ logic


@pure("cnot")
def cnot(op: Op) -> Inline:
    dtype = DTYPES[width(op.bindings["type"])]
    return Inline(lambda a: (a == 0).astype(dtype), "int({0} == 0)")


@pure("lop3")
def lop3(op: Op) -> Run:
    """A table of eight bits; with `.or` or `.and` also whether the result is not zero, combined with `q`."""
    table = op.operand("immLut")
    assert isinstance(table, Immediate)
    terms = [i for i in range(8) if table.value >> i & 1]
    boolean = op.bindings.get("BoolOp")

    def logic(a: Any, b: Any, c: Any) -> Array:
        x, y, z = array_of(a, 32), array_of(b, 32), array_of(c, 32)
        found = np.zeros(np.broadcast(x, y, z).shape, np.uint32)
        for i in terms:
            found = found | (x if i & 4 else ~x) & (y if i & 2 else ~y) & (z if i & 1 else ~z)
        return found

    def run(a: Any, b: Any, c: Any, _: Any = 0, q: Any = None) -> Any:
        found = logic(a, b, c)
        if boolean is None:
            return value_of(found) if found.size == 1 else uniform(found)
        truth = (found != 0) | q if boolean == "or" else (found != 0) & q
        return value_of(found), bool(truth[0]) if truth.size == 1 else truth

    return run


@pure("shf")
def shf(op: Op) -> Run:
    """The upper word of {b, a} shifted left, or the lower of it shifted right."""
    left, wraps = op.bindings["direction"] == "l", op.bindings["mode"] == "wrap"

    def run(a: Any, b: Any, c: Any) -> Any:
        count = array_of(c, 32)
        amount = (count & np.uint32(31) if wraps else np.minimum(count, np.uint32(32))).astype(np.uint64)
        pair = array_of(b, 32).astype(np.uint64) << np.uint64(32) | array_of(a, 32)
        found = (pair << amount) >> np.uint64(32) if left else pair >> amount
        return value_of(found.astype(np.uint32))

    return run


_PRMT = {  # the four selectors of each mode, by the two lowest bits of c
    "f4e": ("3210", "4321", "5432", "6543"), "b4e": ("5670", "6701", "7012", "0123"),
    "rc8": ("0000", "1111", "2222", "3333"), "ecl": ("3210", "3211", "3222", "3333"),
    "ecr": ("0000", "1110", "2210", "3210"), "rc16": ("1010", "3232", "1010", "3232")}


@pure("prmt")
def prmt(op: Op) -> Run:
    """Four bytes of {b, a}; bit 3 of a selector repeats the byte's sign instead."""
    table = _PRMT.get(op.bindings.get("mode", ""))
    selectors = np.array([int(s, 16) for s in table], np.uint32) if table else None

    def run(a: Any, b: Any, c: Any) -> Any:
        x, y, z = np.broadcast_arrays(array_of(a, 32), array_of(b, 32), array_of(c, 32))
        octets = np.stack([x, y], 1).view(np.uint8)
        chosen = z if selectors is None else selectors[z & np.uint32(3)]
        nibbles = (chosen[:, None] >> np.array([0, 4, 8, 12], np.uint32)) & np.uint32(15)
        found = np.take_along_axis(octets, (nibbles & np.uint32(7)).astype(np.intp), 1)
        found = np.where(nibbles & np.uint32(8), np.where(found & np.uint8(0x80), np.uint8(0xFF), np.uint8(0)), found)
        return value_of(np.ascontiguousarray(found, np.uint8).view(np.uint32).reshape(-1))

    return run
