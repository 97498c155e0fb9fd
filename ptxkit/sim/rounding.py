"""Floating formats on arrays of bits, and one rounding for each result.

A number of a format narrower than f64 is exact in float64. An operation on such numbers is done in float64 so that its result,
where it is inexact, lies on the right side of every number and of every tie of the narrow format (`add_odd`, `divide`, `root`:
round to odd, or a nudge); `encode` then rounds once, as the instruction says.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from .formats import decode as table_of
from .values import DTYPES, Array


@dataclass(frozen=True, slots=True)
class Format:
    """`precision` counts the hidden bit; `low` is the exponent of the smallest normal number; `nan` is the canonical NaN."""

    bits: int
    precision: int
    low: int
    largest: float
    nan: int
    infinity: int

    @property
    def sign(self) -> int:
        return 1 << self.bits - 1


FORMATS: dict[str, Format] = {
    "f64": Format(64, 53, -1022, 1.7976931348623157e308, 0x7FFFFFFFFFFFFFFF, 0x7FF0000000000000),
    "f32": Format(32, 24, -126, float(np.finfo(np.float32).max), 0x7FFFFFFF, 0x7F800000),
    "tf32": Format(32, 11, -126, 2.0**127 * (2 - 2.0**-10), 0x7FFFFFFF, 0x7F800000),
    "f16": Format(16, 11, -14, 65504.0, 0x7FFF, 0x7C00),
    "bf16": Format(16, 8, -126, 2.0**127 * (2 - 2.0**-7), 0x7FFF, 0x7F80),
    "e4m3": Format(8, 4, -6, 448.0, 0x7F, 0x7F),
    "e5m2": Format(8, 3, -14, 57344.0, 0x7F, 0x7C),
}

quiet = np.errstate(all="ignore")
"""A decorator: IEEE results without NumPy's warnings."""

ROUND: dict[str, Any] = {
    "rn": np.rint, "rz": np.trunc, "rm": np.floor, "rp": np.ceil, "rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil,
    "rna": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x)}


def decode(bits: Array, type: str) -> Array:
    """The numbers, as float64."""
    found: Any
    match type:
        case "f64":
            found = bits.view(np.float64)
        case "f32" | "tf32":
            found = bits.view(np.float32)
        case "f16":
            found = bits.view(np.float16)
        case "bf16":
            found = (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
        case _:
            found = table_of(bits, type)
    return np.asarray(found, np.float64)


def encode(x: Array, type: str, mode: str = "rn", finite: bool = False) -> Array:
    """Numbers rounded to a format; beyond its range the infinity or largest number that the mode says, with `finite` the largest."""
    if type == "f64":
        return x.view(np.uint64)
    if mode == "rn" and not finite and type in ("f32", "f16"):
        found = _pack(x, type)
    else:
        found = _pack(quantise(x, type, mode, finite), type)
    wrong = x != x
    return np.where(wrong, DTYPES[FORMATS[type].bits](FORMATS[type].nan), found) if wrong.any() else found


def quantise(x: Array, type: str, mode: str, finite: bool = False) -> Array:
    """The float64 numbers rounded to numbers of the format."""
    format = FORMATS[type]
    quantum = np.maximum(np.frexp(x)[1] - 1, format.low) - (format.precision - 1)
    y: Array = np.asarray(np.ldexp(ROUND[mode](np.ldexp(x, -quantum)), quantum))
    over = np.abs(y) > format.largest
    if not over.any():
        return y
    edge = np.copysign(format.largest, y)
    if finite:
        return np.where(over, edge, y)
    to_infinity = {"rz": np.False_, "rm": y < 0, "rp": y > 0}.get(mode, np.True_) | np.isinf(x)
    return np.where(over, np.where(to_infinity, np.copysign(np.inf, y), edge), y)


def _pack(y: Array, type: str) -> Array:
    """The bits of numbers of the format; f32 and f16 round to nearest."""
    found: Any
    match type:
        case "f32" | "tf32":
            found = y.astype(np.float32).view(np.uint32)
        case "f16":
            found = y.astype(np.float16).view(np.uint16)
        case "bf16":
            found = (y.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
        case "e5m2":
            found = (y.astype(np.float16).view(np.uint16) >> np.uint16(8)).astype(np.uint8)
        case _:
            found = np.searchsorted(_magnitudes(), np.abs(y)).astype(np.uint8) | (np.signbit(y).astype(np.uint8) << np.uint8(7))
    return np.asarray(found)


@cache
def _magnitudes() -> Array:
    """The non-negative numbers of e4m3."""
    return table_of(np.arange(0x7F, dtype=np.uint8), "e4m3").astype(np.float64)


# ------------------------------------------------------------------------------------------------ operations in float64


def add_odd(a: Array, b: Array, mode: str = "rn") -> Array:
    """a + b rounded to odd; an exact zero has the sign that the mode says."""
    total = a + b
    part = total - a
    error = (a - (total - part)) + (b - part)
    inexact = (error != 0) & (error == error) & np.isfinite(total)
    if inexact.any():
        bits = total.view(np.int64)
        step = np.where((error > 0) == (total > 0), 1, -1)
        total = np.where(inexact & (bits & 1 == 0), bits + step, bits).view(np.float64)
    if mode == "rm":
        total = np.where((total == 0) & (np.signbit(a) != np.signbit(b)), -0.0, total)
    return total


def multiply_add(a: Array, b: Array, c: Array, mode: str = "rn") -> Array:
    """a * b + c rounded to odd, of numbers whose products are exact in float64."""
    product, addend = np.broadcast_arrays(a * b, c)
    return add_odd(product, addend, mode)


def divide(a: Array, b: Array) -> Array:
    """a / b of f32 numbers, nudged off the 28-bit numbers where it is none of them."""
    quotient = _truncate(a / b, 28)
    return _nudge(quotient, np.abs(a) - np.abs(quotient) * np.abs(b))


def root(a: Array) -> Array:
    """The square root of f32 numbers, nudged off the 26-bit numbers where it is none of them."""
    found = _truncate(np.sqrt(a), 26)
    return _nudge(found, a - found * found)


def _truncate(x: Array, precision: int) -> Array:
    kept: Array = (x.view(np.int64) & -1 << 53 - precision).view(np.float64)
    return kept


def _nudge(x: Array, error: Array) -> Array:
    inexact = (error != 0) & np.isfinite(error)
    return np.where(inexact, x * (1 + np.copysign(2.0**-40, error)), x)


def directed(total: Array, error: Array, mode: str) -> Array:
    """The float64 that a mode gives for the exact sum `total + error`, where `total` is the nearest one."""
    if mode == "rn":
        return total
    down = error < 0 if mode == "rm" else (error < 0) & (total > 0) if mode == "rz" else np.zeros_like(error, bool)
    up = error > 0 if mode == "rp" else (error > 0) & (total < 0) if mode == "rz" else np.zeros_like(error, bool)
    return np.where(down, np.nextafter(total, -np.inf), np.where(up, np.nextafter(total, np.inf), total))


# ------------------------------------------------------------------------------------------------ bits


def is_nan(bits: Array, type: str) -> Array:
    format, dtype = FORMATS[type], bits.dtype.type
    found: Array = (bits & dtype(format.sign - 1)) > dtype(format.infinity)
    return found


def canonical(bits: Array, type: str) -> Array:
    """Every NaN as the canonical one."""
    wrong = is_nan(bits, type)
    return np.where(wrong, bits.dtype.type(FORMATS[type].nan), bits) if wrong.any() else bits


def flush(bits: Array, type: str) -> Array:
    """Subnormal numbers as zeros of their sign."""
    format, dtype = FORMATS[type], bits.dtype.type
    tiny = (bits & dtype(format.infinity)) == 0
    return np.where(tiny, bits & dtype(format.sign), bits) if tiny.any() else bits


def saturate(bits: Array, type: str) -> Array:
    """Clamped to 0 .. 1; a NaN is 0."""
    format, dtype = FORMATS[type], bits.dtype.type
    one = dtype({"f16": 0x3C00, "f32": 0x3F800000, "f64": 0x3FF0000000000000}[type])
    return np.asarray(np.where((bits >= dtype(format.sign)) | is_nan(bits, type), dtype(0), np.minimum(bits, one)))


def relu(bits: Array, type: str) -> Array:
    """Negative numbers as 0; a NaN stays one."""
    dtype = bits.dtype.type
    return np.where((bits >= dtype(FORMATS[type].sign)) & ~is_nan(bits, type), dtype(0), bits)


def parts(value: Any, type: str) -> Array:
    """The numbers in a register, as bits: (lanes,), of a packed type (lanes, 2) with the lower half first."""
    bits = 32 if type.endswith("x2") else FORMATS[type].bits
    array = np.array([value], DTYPES[bits]) if isinstance(value, int) else value
    return np.ascontiguousarray(array).view(np.uint16).reshape(-1, 2) if type.endswith("x2") else array


def whole(array: Array) -> Any:
    """The inverse of `parts`: a register's value."""
    if array.ndim == 2:
        array = np.ascontiguousarray(array).view(np.uint32).reshape(-1)
    return array.item() if array.size == 1 else array
