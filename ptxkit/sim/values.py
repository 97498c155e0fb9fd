"""Register values: unsigned bits of 32 lanes, as one Python int where all lanes agree.

A value of an N-bit register is an `int` in 0 .. 2^N-1 (the same in every active lane) or an array of 32 lanes of the unsigned
dtype of that width; a predicate is a `bool` or an array of bool; 128 bits are an `int` or a (32, 2) array of uint64. Values are
immutable: nobody writes into an array that has been in a register. Lanes outside the active mask hold anything.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Value: TypeAlias = Any
"""`int`, `bool` or `Array`; a vector operand is a sequence of them."""

FULL = 0xFFFFFFFF
DTYPES: dict[int, Any] = {1: np.bool_, 8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
SIGNED: dict[int, Any] = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
FLOATS: dict[int, Any] = {16: np.float16, 32: np.float32, 64: np.float64}


def frozen(array: Array) -> Array:
    array.flags.writeable = False
    return array


LANE = frozen(np.arange(32, dtype=np.uint32))
_BITS = frozen(np.uint32(1) << LANE)
_NO, _YES = bytes(32), b"\1" * 32


@cache
def lanes(mask: int) -> Array:
    """The mask as 32 booleans."""
    return frozen((np.uint32(mask) & _BITS) != 0)


@cache
def indices(mask: int) -> Array:
    """The lanes of the mask in ascending order."""
    return frozen(np.flatnonzero(lanes(mask)))


@cache
def lane_list(mask: int) -> tuple[int, ...]:
    return tuple(lane for lane in range(32) if mask >> lane & 1)


def mask_of(p: Value) -> int:
    """A predicate as a 32-bit mask."""
    if p is True:
        return FULL
    if p is False:
        return 0
    return int.from_bytes(np.packbits(p, bitorder="little").tobytes(), "little")


def truth(p: Array) -> Value:
    """A predicate, as a bool where all 32 lanes agree."""
    found = p.tobytes()
    return True if found == _YES else False if found == _NO else p


def uniform(value: Array) -> Value:
    """A value, as an int where all 32 lanes agree."""
    found = value.tobytes()
    size = value.itemsize
    return value.item(0) if found == found[:size] * 32 else value


def spread(value: Value, bits: int) -> Array:
    """32 lanes of a value, for reading."""
    return np.full(32, value, DTYPES[bits]) if type(value) is int or type(value) is bool else value


def array_of(value: Value, bits: int) -> Array:
    """The value as an array that broadcasts: one lane where it is uniform."""
    return np.array([value], DTYPES[bits]) if type(value) is int or type(value) is bool else value


def value_of(array: Array) -> Value:
    """The inverse of `array_of`: a one-lane array is a uniform value."""
    return array.item() if array.size == 1 else array


def lane_of(value: Value, lane: int) -> Any:
    """One lane as a Python int or bool."""
    return value if type(value) is int or type(value) is bool else value.item(lane) if value.ndim == 1 else _wide(value, lane)


def _wide(value: Array, lane: int) -> int:
    low, high = value[lane].tolist()
    return int(low | high << 64)


def merge(mask: int, inside: Value, outside: Value, bits: int) -> Value:
    """`inside` in the lanes of the mask, `outside` elsewhere."""
    if inside is outside:
        return inside
    plain = type(inside) is int or type(inside) is bool
    if plain and type(inside) is type(outside) and inside == outside:
        return inside
    if bits == 128:
        return np.where(lanes(mask)[:, None], wide_lanes(inside), wide_lanes(outside))
    if type(outside) is int or type(outside) is bool:
        merged = np.full(32, outside, DTYPES[bits])
    else:
        merged = outside.copy()
    chosen = lanes(mask)
    merged[chosen] = inside if isinstance(inside, int) else inside[chosen]
    return merged


def wide_lanes(value: Value) -> Array:
    """A 128-bit value as (32, 2) words."""
    if type(value) is int:
        return np.broadcast_to(np.array([value & (1 << 64) - 1, value >> 64], np.uint64), (32, 2))
    return value  # type: ignore[no-any-return]


def invert(p: Value) -> Value:
    """The negated predicate."""
    return (not p) if type(p) is bool else ~p


def signed(value: int, bits: int) -> int:
    """An int's bits read as two's complement."""
    return value - (1 << bits) if value >> bits - 1 else value


def resize(value: Value, bits: int, to: int, is_signed: bool = False) -> Value:
    """Truncation, or zero or sign extension, from one width to another."""
    if to == 128 or bits == 128:
        return _resize_wide(value, bits, to, is_signed)
    if type(value) is int:
        if to > bits:
            return signed(value, bits) & (1 << to) - 1 if is_signed else value
        return value & (1 << to) - 1
    if is_signed and to > bits:
        return value.view(SIGNED[bits]).astype(SIGNED[to]).view(DTYPES[to])
    return value.astype(DTYPES[to])


def _resize_wide(value: Value, bits: int, to: int, is_signed: bool) -> Value:
    if type(value) is int:
        return (signed(value, bits) if is_signed and to > bits else value) & (1 << to) - 1
    if bits == to:
        return value
    if to == 128:
        low = resize(value, bits, 64, is_signed)
        high = (low.view(np.int64) >> 63).view(np.uint64) if is_signed else np.zeros(32, np.uint64)
        return np.stack([low, high], axis=1)
    return value[:, 0].astype(DTYPES[to])
