"""f64 arithmetic by integers, rounded once in any mode: what float64 of the host cannot give (fma, and modes but to nearest)."""

from __future__ import annotations

import math
import struct

_FRACTION = (1 << 52) - 1
_INDEFINITE = 0xFFF8000000000000


def _float(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<Q", bits))[0])


def _bits(value: float) -> int:
    return int(struct.unpack("<Q", struct.pack("<d", value))[0])


def _split(bits: int) -> tuple[int, int]:
    """(signed integer, exponent) of a finite number."""
    exponent, fraction = bits >> 52 & 0x7FF, bits & _FRACTION
    integer = fraction | 1 << 52 if exponent else fraction
    return (-integer if bits >> 63 else integer), max(exponent, 1) - 1075


def _finite(*bits: int) -> bool:
    return all(b >> 52 & 0x7FF != 0x7FF for b in bits)


def _is_nan(bits: int) -> bool:
    return bits >> 52 & 0x7FF == 0x7FF and bits & _FRACTION != 0


def _special(result: float, *bits: int) -> int:
    """A result that involves infinities or NaN: the first NaN, quieted, else what the host computes."""
    for b in bits:
        if _is_nan(b):
            return b | 1 << 51
    return _INDEFINITE if math.isnan(result) else _bits(result)


def compose(negative: bool, integer: int, exponent: int, mode: str) -> int:
    """The f64 nearest to +-integer * 2**exponent in the mode's sense; the integer is positive."""
    sign = int(negative) << 63
    quantum = max(integer.bit_length() - 1 + exponent, -1022) - 52
    shift = quantum - exponent
    if shift <= 0:
        rounded = integer << -shift
    else:
        rounded, rest, half = integer >> shift, integer & (1 << shift) - 1, 1 << shift - 1
        up = {"rn": rest > half or (rest == half and rounded & 1), "rz": False, "rm": negative and rest, "rp": not negative and rest}[mode]
        rounded += bool(up)
    if rounded >> 53:
        rounded, quantum = rounded >> 1, quantum + 1
    if rounded >> 52 == 0:
        return sign | rounded
    biased = quantum + 1075
    if biased >= 2047:
        finite = mode == "rz" or (mode == "rm" and not negative) or (mode == "rp" and negative)
        return sign | (0x7FEFFFFFFFFFFFFF if finite else 0x7FF0000000000000)
    return sign | biased << 52 | rounded & _FRACTION


def multiply_add(a: int, b: int, c: int, mode: str) -> int:
    """a * b + c on bits."""
    if not _finite(a, b, c):
        return _special(_inf_or_one(a) * _inf_or_one(b) + _inf_or_zero(c), a, b, c)
    (x, ex), (y, ey), (z, ez) = _split(a), _split(b), _split(c)
    product, ep = x * y, ex + ey
    negative = bool((a ^ b) >> 63)
    low = min(ep, ez)
    total = (product << ep - low) + (z << ez - low)
    if not total:
        if not product and not z and negative == bool(c >> 63):
            return int(negative) << 63
        return (1 << 63) if mode == "rm" else 0
    return compose(total < 0, abs(total), low, mode)


def _inf_or_one(bits: int) -> float:
    """An operand of a product: only whether it is zero, infinite, its sign."""
    value = _float(bits)
    return value if math.isinf(value) or not value else math.copysign(1.0, value)


def _inf_or_zero(bits: int) -> float:
    value = _float(bits)
    return value if math.isinf(value) else 0.0


def add(a: int, b: int, mode: str) -> int:
    if not _finite(a, b):
        return _special(_float(a) + _float(b), a, b)
    (x, ex), (y, ey) = _split(a), _split(b)
    low = min(ex, ey)
    total = (x << ex - low) + (y << ey - low)
    if not total:
        if not x and not y and a >> 63 == b >> 63:
            return a
        return (1 << 63) if mode == "rm" else 0
    return compose(total < 0, abs(total), low, mode)


def multiply(a: int, b: int, mode: str) -> int:
    if not _finite(a, b):
        return _special(_inf_or_one(a) * _inf_or_one(b), a, b)
    (x, ex), (y, ey) = _split(a), _split(b)
    negative = bool((a ^ b) >> 63)
    if not x or not y:
        return int(negative) << 63
    return compose(negative, abs(x * y), ex + ey, mode)


def divide(a: int, b: int, mode: str) -> int:
    sign = (a ^ b) >> 63 << 63
    if not _finite(a, b):
        x, y = _float(a), _float(b)
        return _special(math.nan if math.isinf(x) and math.isinf(y) else 0.0, a, b) if (math.isinf(x) and math.isinf(y)) or \
            _is_nan(a) or _is_nan(b) else sign | (0x7FF0000000000000 if math.isinf(x) else 0)
    (x, ex), (y, ey) = _split(a), _split(b)
    x, y = abs(x), abs(y)
    if not y:
        return sign | 0x7FF0000000000000 if x else _INDEFINITE
    if not x:
        return sign
    shift = max(0, 56 + y.bit_length() - x.bit_length())
    quotient, rest = divmod(x << shift, y)
    return compose(bool(sign), quotient << 1 | bool(rest), ex - ey - shift - 1, mode)


def root(a: int, mode: str) -> int:
    if _is_nan(a):
        return a | 1 << 51
    x, ex = _split(a)
    if not x:
        return a
    if a >> 63:
        return _INDEFINITE
    if a == 0x7FF0000000000000:
        return a
    shift = 110 + (ex & 1)
    found = math.isqrt(x << shift)
    return compose(False, found << 1 | (found * found != x << shift), (ex - shift) // 2 - 1, mode)
