"""The products of `ptxkit.gemm`, and attention, as functions of jax arrays, with gradients, under jax.jit, jax.vmap and jax.shard_map.

`gemm`, `scaled_gemm`, `gated_gemm`, `grouped_gemm`, `scaled_grouped_gemm`, `weight_gradient`, `combine` and `attention` take arrays on a
Hopper GPU; inside `with cpu_device():` the same kernels run on the CPU device, on arrays on the CPU. XLA calls them through one C file,
which is compiled at first use by the system's C compiler. `export` and `deserialize` are those of jax.export for programs with products.
docs/jax.md shows how each is used.
"""

from __future__ import annotations

from .attention import attention
from .cpu import cpu_device
from .exported import deserialize, export
from .operators import combine, gated_gemm, gemm, grouped_gemm, scaled_gemm, scaled_grouped_gemm, weight_gradient

__all__ = ["attention", "combine", "cpu_device", "deserialize", "export", "gated_gemm", "gemm", "grouped_gemm", "scaled_gemm",
           "scaled_grouped_gemm", "weight_gradient"]
