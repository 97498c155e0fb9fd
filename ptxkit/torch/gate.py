"""The gradient of silu(gate) * up in one kernel, which reads and writes each value once."""

from __future__ import annotations

from typing import Any, Literal

from ptxkit import Ptr, Reg, ctaid, if_, kernel, nctaid, tid
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
    """The gradient of z [M, 2 N] from that of silu(z[:, :N]) * z[:, N:], in the type of the gradient, of 16 bits."""
    rows, features = gradient.shape
    out = torch.empty_like(z, dtype=gradient.dtype)
    if not rows or not features:
        return out
    grid = -(-features // (VALUES * THREADS)), min(rows, MOST_ROWS)
    word = "bf16" if gradient.dtype is torch.bfloat16 else "f16"
    if gradient.device.type == "cuda":
        gate_gradient.launch(grid, gradient, z, out, rows, features, type=word)
    else:
        cpu.require("gradient")
        gate_gradient.simulate(grid, *(cpu.array(tensor, "gradient") for tensor in (gradient, z, out)), rows, features, type=word)
    return out


def fits(gradient: Any, z: Any) -> bool:
    """Whether the kernel takes these."""
    return gradient.dtype in (torch.bfloat16, torch.float16) and z.dtype is torch.float32 and gradient.shape[1] % VALUES == 0 \
        and gradient.is_contiguous() and z.is_contiguous()


__all__ = ["fits", "gate_gradient", "of_gate"]
