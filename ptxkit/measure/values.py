"""What arrays on a device hold: their bytes, and their elements as numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..runtime.arrays import NUMPY_NAMES, ArrayView
from ..types import TYPES

WHOLE = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64", "f64")


def span(array: ArrayView) -> int:
    """The bytes from the first element to the end of the last."""
    if 0 in array.shape:
        return 0
    last = sum((extent - 1) * stride for extent, stride in zip(array.shape, array.strides, strict=True))
    return (last + 1) * TYPES[array.dtype].bits // 8


def decoded(bytes: Any, dtype: str) -> Any:
    """The values in these bytes, as float64: of floating-point types, and of integers (up to 2 ** 53 exactly)."""
    if dtype in WHOLE:
        return bytes.view(NUMPY_NAMES[dtype]).astype(np.float64)
    if dtype in ("bf16", "f16", "f32", "e5m2"):
        wide = {"bf16": lambda: (bytes.view(np.uint16).astype(np.uint32) << 16).view(np.float32), "f16": lambda: bytes.view(np.float16),
                "f32": lambda: bytes.view(np.float32), "e5m2": lambda: (bytes.astype(np.uint16) << 8).view(np.float16)}[dtype]()
        with np.errstate(invalid="ignore"):     # any bits may stand there
            return wide.astype(np.float64)
    exponent, fraction = (bytes >> 3) & 15, (bytes & 7) / 8.0
    size = np.where(exponent == 0, fraction * 2.0 ** -6, (1 + fraction) * 2.0 ** (exponent.astype(np.float64) - 7))
    return np.where((bytes & 127) == 127, np.nan, np.where(bytes > 127, -size, size))


def apart(one: Any, other: Any) -> float:
    """The relative difference, by the Frobenius norm, where the second is finite; infinite where only the first is not, or where the second
    is an infinity or NaN and the first is no such."""
    there = np.isfinite(other)
    if not np.isfinite(one[there]).all() or not np.array_equal(one[~there], other[~there], equal_nan=True):
        return float("inf")
    size = float(np.square(other[there]).sum())
    if not size:
        return float("inf") if one[there].any() else 0.0
    return float(np.sqrt(np.square(one[there] - other[there]).sum() / size))


__all__ = ["WHOLE", "apart", "decoded", "span"]
