"""Hopper GEMM kernels written with ptxkit: `gemm.gemm(a, b)`, `gemm.hgemm(a, b)` for 16-bit operands, `gemm.Adapter(a, b, out)` for
the steps of such a call one by one, and `gemm.group_gemm(x, w, cu_seqlens)` for groups of rows with weights of their own."""

from __future__ import annotations

if __name__ == "gemm":
    raise ImportError("the package `gemm` is called `ptxkit.gemm`: write `from ptxkit import gemm`")

from .launch.adapter import Adapter
from .launch.dense import gemm, hgemm
from .launch.grouped import group_gemm, group_gemm_contiguous, group_gemm_masked
from .launch.ptr_array import group_gemm_pointers

__all__ = ["Adapter", "gemm", "group_gemm", "group_gemm_contiguous", "group_gemm_masked", "group_gemm_pointers", "hgemm"]
