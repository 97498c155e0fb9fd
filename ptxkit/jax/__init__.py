"""The products of `ptxkit.gemm` as functions of jax arrays, with gradients, under jax.jit, jax.vmap and jax.shard_map.

`gemm`, `scaled_gemm`, `gated_gemm`, `grouped_gemm`, `scaled_grouped_gemm` and `weight_gradient` take arrays on a Hopper GPU; inside
`with cpu_device():` arrays on the CPU are multiplied by the same kernels on the CPU device. XLA calls them through one C file, which is
compiled at first use by the system's C compiler. `export` and `deserialize` are those of jax.export for programs with products.
docs/jax.md shows how each is used.
"""

from __future__ import annotations

from .cpu import cpu_device
from .exported import deserialize, export
from .operators import gated_gemm, gemm, grouped_gemm, scaled_gemm, scaled_grouped_gemm, weight_gradient

__all__ = ["cpu_device", "deserialize", "export", "gated_gemm", "gemm", "grouped_gemm", "scaled_gemm", "scaled_grouped_gemm",
           "weight_gradient"]
