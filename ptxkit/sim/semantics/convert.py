"""cvt and cvt.pack.

From floating to integer: saturated to the integer's range. A NaN is 0, but the lowest number (unsigned: the highest bit alone) where
64 bits are read or written. From or to f32, `.ftz` flushes subnormal numbers, but not from f32 to f16. All of this as an H200 does it:
the ISA says 0 for every NaN. The bits of a NaN result are canonical except from f32 to f32 and from bf16 to f32, which keep them, and in
tf32, whose lower 13 bits are zeros; the ISA leaves them open.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...grammar.operands import width
from ..program import Op
from ..rounding import (
    FORMATS,
    ROUND,
    add_odd,
    canonical,
    decode,
    directed,
    encode,
    flush,
    parts,
    quiet,
    relu,
    saturate,
    whole,
)
from ..values import DTYPES, SIGNED, Array, array_of, resize, value_of
from .integer import lanewise
from .registry import Run, pure

_TO_INTEGER = ("rni", "rzi", "rmi", "rpi")
_TO_FLOAT = ("rn", "rz", "rm", "rp", "rna")


@pure("cvt.pack")
def pack(op: Op) -> Run:
    """Two saturated integers, `b` lowest; of less than 16 bits, below the lower part of `c`."""
    type = op.bindings["dtype"]
    bits = int(type[1:])
    low, high = (-1 << bits - 1, (1 << bits - 1) - 1) if type[0] == "s" else (0, (1 << bits) - 1)
    mask = (1 << bits) - 1

    def one(a: int, b: int, c: int = 0) -> int:
        x, y = (min(max(v - (v >> 31 << 32), low), high) & mask for v in (a, b))
        return c << 2 * bits & 0xFFFFFFFF | x << bits | y

    return lanewise(one, 32, 32, *[32] * (bits < 16), to=32)


@pure("cvt")
def cvt(op: Op) -> Run:
    tokens = op.tokens
    to, source = tokens[-2], tokens[-1]
    mode = next((token for token in tokens if token in _TO_INTEGER or token in _TO_FLOAT), "")
    if tokens == ["cvt", "rn", "bf16x2", "f32"]:
        return _pack_bf16
    if tokens == ["cvt", "rn", "f16x2", "f32"]:
        return _pack_f16
    if source[0] in "us":
        return _between_integers(op, to, source) if to[0] in "us" else _from_integer(op, to, source, mode)
    return _to_integer(op, to, source, mode) if to[0] in "us" else _between_floats(op, to, source, mode)


def _bf16(bits: Any) -> Any:
    """Each f32 rounded to bf16, in the upper half."""
    found = bits + ((bits >> _SIXTEEN & _ONE) + _BELOW_HALF) & _UPPER
    wrong = np.isnan(bits.view(np.float32))
    return np.where(wrong, np.uint32(0x7FFF0000), found) if b"\1" in wrong.tobytes() else found


_ONE, _SIXTEEN, _BELOW_HALF, _UPPER = (np.uint32(word) for word in (1, 16, 0x7FFF, 0xFFFF0000))


def _pack_bf16(a: Any, b: Any) -> Any:
    x, y = array_of(a, 32), array_of(b, 32)
    if len(x) != len(y):
        return _bf16(x) | _bf16(y) >> _SIXTEEN
    both = _bf16(np.concatenate((x, y)))
    return value_of(both[:len(x)] | both[len(x):] >> _SIXTEEN)


@quiet
def _pack_f16(a: Any, b: Any) -> Any:
    x, y = (canonical(array_of(v, 32).view(np.float32).astype(np.float16).view(np.uint16), "f16").astype(np.uint32) for v in (a, b))
    return value_of(x << np.uint32(16) | y)


def _between_integers(op: Op, to: str, source: str) -> Run:
    bits, wanted = width(source), width(to)
    if not op.has("sat"):
        return lambda a: resize(a, bits, wanted, source[0] == "s")
    low, high = (-1 << wanted - 1, (1 << wanted - 1) - 1) if to[0] == "s" else (0, (1 << wanted) - 1)
    mask = (1 << wanted) - 1

    def one(a: int) -> int:
        value = a - (1 << bits) if source[0] == "s" and a >> bits - 1 else a
        return min(max(value, low), high) & mask

    return lanewise(one, bits, to=wanted)


def _halves(a: Any, source: str) -> tuple[Array, Array]:
    """An integer register as a sum of two float64, the first one divisible by 2**32."""
    bits = width(source)
    array = array_of(a, bits)
    if bits < 64:
        exact = (array.view(SIGNED[bits]) if source[0] == "s" else array).astype(np.float64)
        return exact, np.zeros_like(exact)
    lower = (array & np.uint64(0xFFFFFFFF)).astype(np.float64)
    upper = array.view(np.int64) >> 32 if source[0] == "s" else array >> np.uint64(32)
    return upper.astype(np.float64) * 2.0**32, lower


def _from_integer(op: Op, to: str, source: str, mode: str) -> Run:
    sat = op.has("sat")

    @quiet
    def run(a: Any) -> Any:
        high, low = _halves(a, source)
        if to == "f64":
            total = high + low
            found = directed(total, low - (total - high), mode).view(np.uint64)
        else:
            found = encode(add_odd(high, low), to, mode)
        return whole(saturate(found, to) if sat else found)

    return run


def _to_integer(op: Op, to: str, source: str, mode: str) -> Run:
    wanted, is_signed = width(to), to[0] == "s"
    low, high = (-1 << wanted - 1, (1 << wanted - 1) - 1) if is_signed else (0, (1 << wanted) - 1)
    lost = 1 << wanted - 1 if 64 in (wanted, width(source)) else 0
    ftz = op.has("ftz")
    integers: Any = np.int64 if is_signed else np.uint64

    @quiet
    def run(a: Any) -> Any:
        bits = parts(a, source)
        x = ROUND[mode](decode(flush(bits, "f32") if ftz else bits, source))
        wrong, below, above = x != x, x <= low, x >= high
        found = np.where(wrong | below | above, 0.0, x).astype(integers).astype(DTYPES[wanted])
        dtype = DTYPES[wanted]
        found = np.where(below, dtype(low & (1 << wanted) - 1), np.where(above, dtype(high), found))
        return whole(np.where(wrong, dtype(lost), found))

    return run


def _between_floats(op: Op, to: str, source: str, mode: str) -> Run:
    """One rounding, of packed types in each half. Where there is no mode the result is exact."""
    result, operand = to.removesuffix("x2"), source.removesuffix("x2")
    ftz, sat, clamps, finite = op.has("ftz"), op.has("sat"), op.has("relu"), op.has("satfinite")
    integral = ROUND[mode] if mode in _TO_INTEGER else None
    rounding = mode if mode in _TO_FLOAT else "rn"
    if operand == result == "f64" and integral is None:
        return _wide(sat)
    if op.tokens == ["cvt", "f32", "f32"]:
        return lambda a: a
    if (operand, to) == ("bf16", "f32"):
        def widened(a: Any) -> Any:
            return resize(a, 16, 32) << (16 if isinstance(a, int) else np.uint32(16))

        return (lambda a: whole(flush(parts(widened(a), "f32"), "f32"))) if ftz else widened

    def convert(bits: Array) -> Array:
        if ftz and operand == "f32" and result != "f16":
            bits = flush(bits, "f32")
        if rounding == "rna":
            bits = np.where((bits & np.uint32(0x7FFFE000)) == np.uint32(0x7F800000), bits & np.uint32(0xFFFFE000), bits)
        x = decode(bits, operand)
        found = encode(x if integral is None else integral(x), result, rounding, finite)
        if result == "tf32" and rounding != "rna":
            found = np.where(x != x, np.uint32(0x7FFFE000), found)
        elif result != "f64":
            found = canonical(found, result)
        elif operand == "f32" or operand == "f16":
            found = np.where(x != x, DTYPES[64](FORMATS["f64"].nan), found)
        if ftz and result == "f32":
            found = flush(found, "f32")
        found = saturate(found, result) if sat else found
        return relu(found, result) if clamps else found

    return quiet(_packed(convert, op, source, result))


def _wide(sat: bool) -> Run:
    return quiet(lambda a: whole(saturate(parts(a, "f64"), "f64"))) if sat else lambda a: a


def _packed(convert: Callable[[Array], Array], op: Op, source: str, result: str) -> Run:
    """`convert` on a register, on two registers that become one, or on a packed one."""
    bits = FORMATS[result].bits
    if not op.tokens[-2].endswith("x2"):
        return lambda a: whole(convert(parts(a, source)))
    dtype = DTYPES[2 * bits]

    def joined(low: Array, high: Array) -> Any:
        return value_of(low.astype(dtype) | high.astype(dtype) << dtype(bits))

    if not source.endswith("x2"):
        return lambda a, b: joined(convert(parts(b, source)), convert(parts(a, source)))
    half = FORMATS[source.removesuffix("x2")].bits

    def run(a: Any) -> Any:
        array = array_of(a, 2 * half)
        narrow = DTYPES[half]
        found = [convert((array >> array.dtype.type(shift)).astype(narrow)) for shift in (0, half)]
        return joined(*found)

    return run
