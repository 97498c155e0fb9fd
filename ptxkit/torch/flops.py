"""What `torch.utils.flop_counter.FlopCounterMode` counts of the operators: two for each multiplication that is added, as of torch's own.

Lengths of groups and sequences are on the device: all rows count as rows of groups, and packed sequences as one.
"""

from __future__ import annotations

import math
from typing import Any

from .framework import torch

Shape = tuple[int, ...]


def _dense(a: Shape, b: Shape, *_: Any, out_shape: Shape | None = None, out: Shape | None = None, **__: Any) -> int:
    result = out if out is not None else out_shape
    assert result is not None
    return 2 * math.prod(result) * a[-1]


def _gated(a: Shape, b: Shape, *_: Any, **__: Any) -> int:
    return 2 * math.prod(a) * b[1]


def _groups(a: Shape, b: Shape, *rest: Any, gather: Shape | None = None, **__: Any) -> int:
    """a [M, K] by b [G, K, N], or groups along K of b [K, N]. `gather` is the ninth argument of grouped_gemm."""
    gather = rest[6] if len(rest) > 6 else gather
    return 2 * (a[0] if gather is None else gather[0]) * math.prod(b[-2:])


def _scaled_groups(a: Shape, b: Shape, *_: Any, **__: Any) -> int:
    return 2 * a[0] * math.prod(b[-2:])


def _along_k(a: Shape, b: Shape, *_: Any, **__: Any) -> int:
    return 2 * math.prod(a) * b[1]


def _added_along_k(out: Shape, a: Shape, b: Shape, *_: Any, **__: Any) -> int:
    return _along_k(a, b)


def _attention(q: Shape, k: Shape, *_: Any, **__: Any) -> int:
    """q [B, H, S, D] and k [B, Hkv, Sk, D], or packed [T, H, D]."""
    keys = k[-2] if len(q) == 4 else k[0]
    return 4 * math.prod(q) * keys


FORMULAS = {"gemm": _dense, "scaled_gemm": _dense, "gated_gemm": _gated, "grouped_gemm": _groups, "scaled_grouped_gemm": _scaled_groups,
            "quantized_grouped_gemm": _scaled_groups, "weight_gradient": _along_k, "weight_gradient_": _added_along_k,
            "attention": _attention, "attention_lse": _attention}


def define() -> None:
    """Tell torch's counter the formulas."""
    from torch.utils.flop_counter import register_flop_formula  # pyright: ignore[reportMissingImports]

    for name, formula in FORMULAS.items():
        register_flop_formula(getattr(torch.ops.ptxkit, name))(formula)


__all__ = ["FORMULAS", "define"]
