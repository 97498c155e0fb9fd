"""Hopper GEMM kernels written with ptxkit: `gemm.hgemm(a, b)`."""

from __future__ import annotations

from .device import hgemm

__all__ = ["hgemm"]
