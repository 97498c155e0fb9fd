"""The operations of asynchronous reductions, on bytes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from grammar.operands import width

from .values import Array

_DTYPES = {"u32": np.uint32, "s32": np.int32, "u64": np.uint64, "s64": np.int64, "b32": np.uint32, "b64": np.uint64, "f16": np.float16,
           "f32": np.float32, "f64": np.float64, "f32.ftz": np.float32}

_OPERATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "add": lambda old, new: old + new,
    "and": lambda old, new: old & new,
    "or": lambda old, new: old | new,
    "xor": lambda old, new: old ^ new,
    "inc": lambda old, new: np.where(old >= new, 0, old + 1),
    "dec": lambda old, new: np.where((old == 0) | (old > new), new, old - 1),
    "min": lambda old, new: np.fmin(old, new) if old.dtype.kind == "f" else np.minimum(old, new),
    "max": lambda old, new: np.fmax(old, new) if old.dtype.kind == "f" else np.maximum(old, new)}


_TENSOR = {"add": "u32 s32 u64 f32 f16 bf16", "min": "u32 s32 u64 s64 f16 bf16", "max": "u32 s32 u64 s64 f16 bf16", "inc": "u32",
           "dec": "u32"}


def combines(operation: str, type: str) -> bool:
    """Whether a tensor reduction has this operation for a tensor map's elements: bits of words, or what PTX lists."""
    name = type.partition(".")[0]
    return name in _TENSOR[operation].split() if operation in _TENSOR else width(name) >= 32


def takes(operation: str) -> str:
    """The element types of a tensor reduction, in words."""
    return _TENSOR[operation].replace(" ", ", ") if operation in _TENSOR else "32- and 64-bit"


def reduced(operation: str, type: str, old: Array, new: Array) -> Array:
    """The bytes of `old operation new`, element by element; floating sums are rounded to nearest even."""
    with np.errstate(all="ignore"):
        if type == "bf16":
            wide = _OPERATIONS[operation](_widened(old), _widened(new))
            return _narrowed(wide).view(np.uint8)
        dtype = _DTYPES[type if operation not in ("and", "or", "xor") else f"b{width(type.partition('.')[0])}"]
        found = _OPERATIONS[operation](np.ascontiguousarray(old).view(dtype), np.ascontiguousarray(new).view(dtype)).astype(dtype)
        if type == "f32.ftz":
            found[np.abs(found) < np.finfo(np.float32).tiny] *= 0
        return found.view(np.uint8)


def _widened(data: Array) -> Array:
    return (np.ascontiguousarray(data).view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def _narrowed(values: Array) -> Array:
    """fp32 to bf16, to nearest even. A sum of two bf16 in fp32 (24 bits, more than 2 * 8 + 2) is not rounded twice."""
    bits = values.view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(values), 0x7FFF, rounded).astype(np.uint16)
