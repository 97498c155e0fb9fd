"""Hopper GEMM kernels written with ptxkit: `gemm.gemm(a, b)`, and `gemm.hgemm(a, b)` for 16-bit operands."""

from __future__ import annotations

from .device import gemm, hgemm

__all__ = ["gemm", "hgemm"]
