"""The gradient of silu(gate) * up in one kernel, which reads and writes each value once."""

from __future__ import annotations

from typing import Any, Literal

from ptxkit import Ptr, Reg, ctaid, if_, kernel, nctaid, tid
from ptxkit.errors import LaunchError
from ptxkit.flow import for_range
from ptxkit.fragments import pack, unpack
from ptxkit.ptx import add, ex2, fma, ld, mov, mul, neg, rcp, st
from ptxkit.types import TYPES, b16, b32, f32, u32

from . import cpu
from .framework import torch

THREADS = 256
VALUES = 4                      # of a thread in a row: 16 bytes of f32
MOST_ROWS = 65535               # CTAs along y


@kernel(target="sm_90a", block=THREADS)
def gate_gradient(gradient: Ptr[b16], z: Ptr[f32], out: Ptr[b16], rows: Reg[u32], features: Reg[u32], *,
                  type: Literal["bf16", "f16"] = "bf16") -> None:
    """out [rows, 2 features] = (gradient up silu'(gate), gradient silu(gate)) of z [rows, 2 features], which has gate and up; silu'(x) is
    s (1 + x (1 - s)) with s = 1 / (1 + exp(-x)). A thread has four neighbouring features of every row that its CTA goes through."""
    column = (mov.u32(ctaid.x) * THREADS + mov.u32(tid.x)) * VALUES
    with if_(column < features):
        with for_range(rows, start=mov.u32(ctaid.y), step=mov.u32(nctaid.y)) as row:
            first = mul.wide.u32(row, features)
            of_z, of_out = (pointer.at(first).at(first).at(column) for pointer in (z, out))
            words = ld.global_.v2.b32(gradient.at(first).at(column).cast(b32))
            dy = [value for word in words for value in unpack(TYPES[type], word)]
            gates, ups = ld.global_.v4.f32(of_z), ld.global_.v4.f32(of_z.at(features))
            of_gates, of_ups = [], []
            for d, x, up in zip(dy, gates, ups, strict=True):
                s = rcp.approx.ftz.f32(add.rn.f32(ex2.approx.ftz.f32(mul.rn.f32(x, -1.4426950408889634)), 1.0))
                of_gates.append(mul.rn.f32(mul.rn.f32(d, up), mul.rn.f32(s, fma.rn.f32(x, add.rn.f32(neg.f32(s), 1.0), 1.0))))
                of_ups.append(mul.rn.f32(d, mul.rn.f32(x, s)))
            for place, values in ((of_out, of_gates), (of_out.at(features), of_ups)):
                st.global_.v2.b32(place.cast(b32), (pack(TYPES[type], *values[:2]), pack(TYPES[type], *values[2:])))


def of_gate(gradient: Any, z: Any) -> Any:
    """The gradient of z [M, 2 N] from that of silu(z[:, :N]) * z[:, N:], in the type of the gradient, of 16 bits: on a GPU."""
    out, grid, numbers, config = _asked(gradient, z)
    if grid is not None:
        gate_gradient.launch(grid, gradient, z, out, *numbers, **config)
    return out


def of_gate_on_cpu(gradient: Any, z: Any) -> Any:
    """The same on the CPU device."""
    cpu.require("gradient")
    out, grid, numbers, config = _asked(gradient, z)
    if grid is not None:
        gate_gradient.simulate(grid, *(cpu.array(tensor, "gradient") for tensor in (gradient, z, out)), *numbers, **config)
    return out


def _asked(gradient: Any, z: Any) -> tuple[Any, tuple[int, int] | None, tuple[int, int], dict[str, Any]]:
    """The result, and the launch: its grid (None if it has nothing to do), numbers and configuration."""
    if not fits(gradient, z):
        raise LaunchError(f"gradient is {gradient.dtype} {tuple(gradient.shape)} and z {z.dtype} {tuple(z.shape)}: they are [M, N] of 16 "
                          f"bits and float32 [M, 2 N], row-major without gaps, with N a multiple of {VALUES}")
    rows, features = gradient.shape
    grid = (-(-features // (VALUES * THREADS)), min(rows, MOST_ROWS)) if rows and features else None
    word = "bf16" if gradient.dtype is torch.bfloat16 else "f16"
    return torch.empty_like(z, dtype=gradient.dtype), grid, (rows, features), {"type": word}


def fits(gradient: Any, z: Any) -> bool:
    """Whether the kernel takes these."""
    return gradient.ndim == z.ndim == 2 and gradient.dtype in (torch.bfloat16, torch.float16) and z.dtype is torch.float32 \
        and gradient.shape[1] % VALUES == 0 and z.shape == (gradient.shape[0], 2 * gradient.shape[1]) \
        and gradient.is_contiguous() and z.is_contiguous()


__all__ = ["fits", "gate_gradient", "of_gate", "of_gate_on_cpu"]
