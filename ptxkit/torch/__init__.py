"""The products of `ptxkit.gemm` as operators of torch, with gradients: importing this module defines `torch.ops.ptxkit`.

`torch.ops.ptxkit.gemm`, `scaled_gemm`, `grouped_gemm` and `scaled_grouped_gemm` have functional and out variants, work under
torch.compile, autocast and activation checkpointing, and can be captured into CUDA graphs. Tensors are those of a Hopper GPU; inside
`with cpu_device():` tensors on the CPU are multiplied by the same kernels on the CPU device. docs/torch.md shows how each is used.
"""

from __future__ import annotations

from . import operators
from .cpu import cpu_device

operators.define()

__all__ = ["cpu_device"]
