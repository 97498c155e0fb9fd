"""Attention in float64 with NumPy, and a bound on the error of a kernel's result."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

ROUNDOFF = {"bf16": 2.0**-8, "f16": 2.0**-11}
SMALLEST = {"bf16": 0.0, "f16": 2.0**-25}       # half of the smallest subnormal: bf16 has the exponents of f32
F32 = 2.0**-24
SLACK = 8                                       # of `LazySoftmax`
EX2 = 2.0**-22                                  # relative error of ex2.approx, lg2.approx and rcp.approx: PTX ISA


@dataclass(frozen=True)
class Expected:
    """The exact result, the exact log-sum-exp, and bounds on the errors of both."""

    out: Array
    lse: Array
    out_bound: Array
    lse_bound: Array


def expected(q: Array, k: Array, v: Array, type: str, *, causal: bool = False, scale: float | None = None) -> Expected:
    """Of float64 arrays: q [..., H, S, D], k and v [..., Hkv, Sk, D].

    The bound. A score sums D products in f32; with its scale and the maximum subtracted its error is at most e = (D + 4) 2^-24 times the
    largest scale |q| |k|, and exp changes by that much. A weight is rounded to `type` once, its sum is not; the result is rounded once. A
    sum over n keys in f32 has an error of n 2^-24 of the sum of magnitudes. Weights and their sum may be of a maximum that is up to SLACK
    below the row's, in powers of two: then the logarithm of the sum is larger by as much, and so is its error.
    """
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    group = q.shape[-3] // k.shape[-3]
    k, v = np.repeat(k, group, -3), np.repeat(v, group, -3)
    rows, keys, depth = q.shape[-2], k.shape[-2], q.shape[-1]
    scores = scale * (q @ k.swapaxes(-1, -2))
    sizes = scale * (np.abs(q) @ np.abs(k).swapaxes(-1, -2)).max(-1, keepdims=True)
    if causal:
        scores = np.where(np.arange(keys) <= np.arange(rows)[:, None], scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - top)
    total = weights.sum(-1, keepdims=True)
    out, magnitude = weights @ v / total, weights @ np.abs(v) / total
    unit, small = ROUNDOFF[type], SMALLEST[type]
    exponent = (depth + 4) * F32 * sizes + 2 * EX2
    relative = 2 * unit + 2 * exponent + 2 * keys * F32 + 2 * EX2
    bound = relative * magnitude + small * (np.abs(v).sum(-2, keepdims=True) / total + 1)
    lse_bound = exponent + keys * F32 + 4 * F32 * (np.abs(top) + SLACK) + 4 * EX2 + EX2 * (np.abs(np.log2(total)) + SLACK)
    return Expected(out, (top + np.log(total))[..., 0], bound, lse_bound[..., 0])


def widened(bits: Array, type: str) -> Array:
    """Bits of bf16 or f16 as float64."""
    if type == "f16":
        return bits.view(np.float16).astype(np.float64)
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def narrowed(values: Array, type: str) -> Array:
    """The bits of values in bf16 (cut off) or f16."""
    if type == "f16":
        return values.astype(np.float16).view(np.uint16)
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


__all__ = ["Expected", "expected", "narrowed", "widened"]
