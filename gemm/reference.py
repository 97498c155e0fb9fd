"""The oracle: what a product must be, and how far the kernel may be from it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# Relative rounding step of the result's type: half a unit in the last place of f16 (11 bits), bf16 (8 bits), f32 (24 bits).
HALF_ULP = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24}
# Half the distance of its subnormals.
HALF_TINY = {"f16": 2.0**-25, "bf16": 2.0**-134, "f32": 2.0**-150}


def product(a: Array, b: Array) -> tuple[Array, Array]:
    """(A B, |A| |B|) in float64: the exact value to within float64, and the scale of its rounding errors."""
    a64, b64 = a.astype(np.float64), b.astype(np.float64)
    return a64 @ b64, np.abs(a64) @ np.abs(b64)


def tolerance(expected: Array, magnitude: Array, k: int, out: str) -> Array:
    """The largest error allowed per element: fp32 accumulation in any order, then one rounding to `out`.

    Each of the k additions of a 16 x 16 x k tensor-core chain may lose 2^-23 (it truncates) of the running magnitude; sqrt(k) + 16 of
    them is far above what random signs give and far below one lost product.
    """
    return magnitude * accumulation(k) + np.abs(expected) * HALF_ULP[out] * 1.01 + HALF_TINY[out]


def accumulation(k: int) -> float:
    """The error of k additions in fp32, as a share of the sum of magnitudes."""
    return 2.0**-23 * (16 + math.sqrt(k))


def worst(actual: Array, expected: Array, magnitude: Array, k: int, out: str) -> float:
    """Largest error as a share of what is allowed; over 1 is wrong, NaN or inf anywhere is infinity."""
    actual = np.asarray(actual, np.float64)
    if not bool(np.isfinite(actual).all()):
        return float("inf")
    if actual.size == 0:
        return 0.0
    return float(np.max(np.abs(actual - expected) / tolerance(expected, magnitude, k, out)))
