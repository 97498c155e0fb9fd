"""The products of `ptxkit.gemm` as operators of torch, with gradients: importing this module defines `torch.ops.ptxkit`.

`torch.ops.ptxkit.gemm`, `scaled_gemm`, `gated_gemm`, `grouped_gemm`, `scaled_grouped_gemm` and `combine` have functional and out variants,
work under torch.compile, autocast and activation checkpointing, and can be captured into CUDA graphs. `Linear`, `GatedMLP` and `MoE` are
layers of them, and `swap_linear` puts linear layers into a model. Tensors are those of a Hopper GPU; inside `with cpu_device():` tensors on
the CPU are multiplied by the same kernels on the CPU device. docs/torch.md shows how each is used.
"""

from __future__ import annotations

from . import operators
from .cpu import cpu_device
from .modules import GatedMLP, Linear, Swapped, swap_linear
from .moe import MoE

operators.define()

__all__ = ["GatedMLP", "Linear", "MoE", "Swapped", "cpu_device", "swap_linear"]
