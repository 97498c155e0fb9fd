"""The operations of asynchronous reductions, on bytes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..grammar.operands import width
from .values import Array

_DTYPES = {"u32": np.uint32, "s32": np.int32, "u64": np.uint64, "s64": np.int64, "b32": np.uint32, "b64": np.uint64, "f16": np.float16,
           "f32": np.float32, "f64": np.float64, "f32.ftz": np.float32, "tf32": np.float32, "tf32.ftz": np.float32}

_OPERATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "add": lambda old, new: old + new,
    "and": lambda old, new: old & new,
    "or": lambda old, new: old | new,
    "xor": lambda old, new: old ^ new,
    "inc": lambda old, new: np.where(old >= new, 0, old + 1),
    "dec": lambda old, new: np.where((old == 0) | (old > new), new, old - 1),
    "min": lambda old, new: np.fmin(old, new) if old.dtype.kind == "f" else np.minimum(old, new),
    "max": lambda old, new: np.fmax(old, new) if old.dtype.kind == "f" else np.maximum(old, new)}


_LEAST, _BITS = "u32 s32 u64 s64 f16 bf16", "u32 s32 u64"
_TENSOR = {"add": "u32 s32 u64 f32 f16 bf16 f64 tf32", "min": _LEAST, "max": _LEAST, "inc": "u32", "dec": "u32",
           "and": _BITS, "or": _BITS, "xor": _BITS}
"""The element types of a tensor map that a tensor reduction combines, by PTX's table; b32 and b64, which no map has, are integers.

That f64 and tf32 are added is not in the table: an H200 does, and traps at sums and bits of s64, at bits of f32, and at the least of f32
and f64 (measured: benchmarks/results/2026-11-21-h200-tensor-faults.txt, 2026-11-25-h200-chunks.txt).
"""


def combines(operation: str, type: str) -> bool:
    """Whether a tensor reduction has this operation for a tensor map's elements."""
    return type.partition(".")[0] in _TENSOR[operation].split()


def takes(operation: str) -> str:
    """The element types of a tensor reduction, in words."""
    return _TENSOR[operation].replace(" ", ", ")


def reduced(operation: str, type: str, old: Array, new: Array) -> Array:
    """The bytes of `old operation new`, element by element; floating sums are rounded to nearest even.

    Sums of tf32 are taken for sums of f32: that an H200 makes them was measured, not what becomes of their low bits.
    """
    with np.errstate(all="ignore"):
        if type == "bf16":
            wide = _OPERATIONS[operation](_widened(old), _widened(new))
            return _narrowed(wide).view(np.uint8)
        dtype = _DTYPES[type if operation not in ("and", "or", "xor") else f"b{width(type.partition('.')[0])}"]
        found = _OPERATIONS[operation](np.ascontiguousarray(old).view(dtype), np.ascontiguousarray(new).view(dtype)).astype(dtype)
        if type.endswith(".ftz"):
            found[np.abs(found) < np.finfo(np.float32).tiny] *= 0
        return found.view(np.uint8)


def _widened(data: Array) -> Array:
    return (np.ascontiguousarray(data).view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def _narrowed(values: Array) -> Array:
    """fp32 to bf16, to nearest even. A sum of two bf16 in fp32 (24 bits, more than 2 * 8 + 2) is not rounded twice."""
    bits = values.view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(values), 0x7FFF, rounded).astype(np.uint16)
