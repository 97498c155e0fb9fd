"""What every kernel of attention refuses."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

from ptxkit.errors import LaunchError
from ptxkit.gemm.problem.options import truth
from ptxkit.runtime.arrays import ArrayView, contiguous_strides

LEAST, MOST = 2.0**-100, 2.0**100       # of a scale: in f32, times log2 e and times scores, it is neither 0 nor infinite


def check_scale(scale: float | None) -> None:
    """Raises LaunchError unless the scale is one that f32 has."""
    if scale is None:
        return
    try:                                # as a float: NumPy compares in the type of the scale, where the bounds are 0 and infinite
        found = float(scale) if isinstance(scale, Real) and not isinstance(scale, bool) else math.nan
    except OverflowError:
        found = math.inf
    if not LEAST <= found <= MOST:
        shown = found if found == math.inf else scale
        raise LaunchError(f"scale is {shown!r}: the softmax subtracts the largest score, so scale is positive and finite, a number "
                          "from 2^-100 to 2^100 as f32 has it")


def flag(name: str, value: Any) -> bool:
    """True or False as it is given, also as 1 or 0. Raises LaunchError for all else: a mask, for instance, is not taken for True."""
    found = truth(value)
    if found is not None:
        return found
    others = ", and attention has no other masks" if name == "is_causal" else ""
    raise LaunchError(f"{name} has the type {type(value).__name__}: it is True or False{others}")


def check_heads(heads: int, kv_heads: int, keys: str) -> None:
    """Raises LaunchError unless each head of keys is shared by as many heads of queries. `keys` names the array of the keys."""
    if (not kv_heads and heads) or (kv_heads and heads % kv_heads):
        raise LaunchError(f"q has {heads} heads and {keys} {kv_heads}: the heads of {keys} divide those of q")


def check_lse(lse: ArrayView | None, shape: tuple[int, ...]) -> None:
    """Raises LaunchError unless the log-sum-exp is f32 of this shape, without gaps."""
    if lse is not None and (lse.dtype != "f32" or lse.shape != shape or (0 not in shape and any(
            extent > 1 and stride != step for extent, stride, step in zip(shape, lse.strides, contiguous_strides(shape), strict=True)))):
        raise LaunchError(f"lse is {lse.dtype} of shape {lse.shape} and strides {lse.strides}: it is f32 of shape {shape}, contiguous")


__all__ = ["check_heads", "check_lse", "check_scale", "flag"]
