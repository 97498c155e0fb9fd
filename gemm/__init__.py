"""Hopper GEMM kernels written with ptxkit: `gemm.gemm(a, b)`, `gemm.hgemm(a, b)` for 16-bit operands, `gemm.Adapter(a, b, out)` for
the steps of such a call one by one, and `gemm.group_gemm(x, w, cu_seqlens)` for groups of rows with weights of their own, whose gradients
are `gemm.group_gemm_k(dy, x, cu_seqlens)`.
`gemm.quantize(x)` makes fp8 operands and their scales, `gemm.combine(y, place, weights)` sums chosen rows, `gemm.spread(x, place)` copies
rows to their places, and `gemm.choose_experts(logits, top)` and `gemm.sort_choices(experts, count)` say which. Shapes are tuned on their
first use in a block `with gemm.tuning():`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if __name__ == "gemm":
    raise ImportError("the package `gemm` is called `ptxkit.gemm`: write `from ptxkit import gemm`")
if not os.path.isfile(__file__):
    from ..errors import PtxkitError

    raise PtxkitError(f"ptxkit.gemm reads tables that are files, and {os.path.dirname(__file__)} is in an archive: "
                      "install the wheel with pip, or unpack it")

if TYPE_CHECKING:
    from .launch.adapter import Adapter
    from .launch.combine import combine
    from .launch.dense import gemm, hgemm
    from .launch.grouped import group_gemm, group_gemm_contiguous, group_gemm_masked
    from .launch.grouped_k import group_gemm_k
    from .launch.ptr_array import group_gemm_pointers
    from .launch.quantize import quantize
    from .launch.route import choose_experts, sort_choices
    from .launch.spread import spread
    from .launch.tuning import tuning

_LAZY = {"Adapter": "launch.adapter", "choose_experts": "launch.route", "combine": "launch.combine", "gemm": "launch.dense",
         "hgemm": "launch.dense", "group_gemm": "launch.grouped", "group_gemm_contiguous": "launch.grouped",
         "group_gemm_masked": "launch.grouped", "group_gemm_k": "launch.grouped_k", "group_gemm_pointers": "launch.ptr_array",
         "quantize": "launch.quantize", "sort_choices": "launch.route", "spread": "launch.spread", "tuning": "launch.tuning"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        found = globals()[name] = getattr(import_module(f".{_LAZY[name]}", __name__), name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["Adapter", "choose_experts", "combine", "gemm", "group_gemm", "group_gemm_contiguous", "group_gemm_k", "group_gemm_masked",
           "group_gemm_pointers", "hgemm", "quantize", "sort_choices", "spread", "tuning"]
