"""The oracle: what a product must be, and how far the kernel may be from it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# Relative rounding step of the result's type: half a unit in the last place of f16 (11 bits), bf16 (8), f32 (24), e4m3 (4), e5m2 (3).
HALF_ULP = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24, "e4m3": 2.0**-4, "e5m2": 2.0**-3}
# Half the distance of its subnormals.
HALF_TINY = {"f16": 2.0**-25, "bf16": 2.0**-134, "f32": 2.0**-150, "e4m3": 2.0**-10, "e5m2": 2.0**-17}

EIGHT_BITS = ("e4m3", "e5m2")
PROMOTED_EVERY = 128        # of k: what the tensor cores sum up before f32 registers take over, where sums are promoted


def product(a: Array, b: Array) -> tuple[Array, Array]:
    """(A B, |A| |B|) in float64: the exact value to within float64, and the scale of its rounding errors."""
    a64, b64 = a.astype(np.float64), b.astype(np.float64)
    return a64 @ b64, np.abs(a64) @ np.abs(b64)


def tolerance(expected: Array, magnitude: Array, k: int, out: str, operand: str = "bf16", promoted: bool = False) -> Array:
    """The largest error allowed per element: sums in any order, see `accumulation`, then one rounding to `out`."""
    return magnitude * accumulation(k, operand, promoted) + rounding(expected, out)


def rounding(expected: Array, out: str) -> Array:
    """The error of one rounding to `out`, of an array of NumPy or torch."""
    return abs(expected) * HALF_ULP[out] * 1.01 + HALF_TINY[out]


def silu_and_mul(exact: Any, error: Any, silu: Callable[[Any], Any]) -> tuple[Any, Any]:
    """silu of the first half of the columns times the second half, and its error where the columns have these errors."""
    half = exact.shape[1] // 2
    gate, up = silu(exact[:, :half]), exact[:, half:]
    found = gate * up
    return found, 1.1 * error[:, :half] * abs(up) + (abs(gate) + error[:, :half]) * error[:, half:] + 1e-5 * abs(found)


def accumulation(k: int, operand: str = "bf16", promoted: bool = False) -> float:
    """The error of a sum of k products of `operand`, as a share of the sum of their magnitudes.

    16-bit operands and tf32: each of k additions may lose 2^-23 (the tensor cores truncate) of the running magnitude; sqrt(k) + 16 of
    them are far above what random signs give and far below one lost product.

    e4m3 and e5m2: one instruction adds 32 products to the accumulator, all 33 cut off at 2^-13 of the largest of them (14 bits are
    kept; measured on an H200). With random signs the largest is about 8 typical products, or the sum so far, and what 33 numbers lose
    adds up like sqrt(33) / sqrt(3) = 3.3 of such steps: over k / 32 instructions 3.3 sqrt(k / 32) max(8, sqrt(k)) 2^-13 of k products of
    mean magnitude 0.64, which is about 2^-13 of the magnitude at every k. Largest errors of whole matrices were 1.3 (k 64) to
    1.5 (k 900) times 2^-13, and 2.5 among some 10^8 sums of 48, of which one product may be most; 4 + sqrt(k) / 16 leaves room for
    these and for longer sums, whose truncation is not quite symmetric. One product that is missing is 2^13 / k of such steps.
    `promoted`: the tensor cores sum 128 of k at a time (4 instructions), and f32 additions join the parts.
    """
    exact = 2.0**-23 * (16 + math.sqrt(k))
    if operand not in EIGHT_BITS:
        return exact
    within = min(k, PROMOTED_EVERY) if promoted else k
    return exact + 2.0**-13 * (4 + math.sqrt(within) / 16)


def worst(actual: Array, expected: Array, magnitude: Array, k: int, out: str, operand: str = "bf16", promoted: bool = False) -> float:
    """Largest error as a share of what is allowed; over 1 is wrong, NaN or inf anywhere is infinity."""
    actual = np.asarray(actual, np.float64)
    if not bool(np.isfinite(actual).all()):
        return float("inf")
    if actual.size == 0:
        return 0.0
    return float(np.max(np.abs(actual - expected) / tolerance(expected, magnitude, k, out, operand, promoted)))
