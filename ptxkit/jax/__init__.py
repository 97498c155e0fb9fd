"""The products of `ptxkit.gemm` as functions of jax arrays, with gradients, under jax.jit, jax.vmap and jax.shard_map.

`gemm`, `scaled_gemm`, `grouped_gemm`, `scaled_grouped_gemm` and `weight_gradient` take arrays on a Hopper GPU; inside `with cpu_device():`
arrays on the CPU are multiplied by the same kernels on the CPU device. XLA calls them through one C file, which is compiled at first use
by the system's C compiler. docs/jax.md shows how each is used.
"""

from __future__ import annotations

from .cpu import cpu_device
from .operators import gemm, grouped_gemm, scaled_gemm, scaled_grouped_gemm, weight_gradient

__all__ = ["cpu_device", "gemm", "grouped_gemm", "scaled_gemm", "scaled_grouped_gemm", "weight_gradient"]
