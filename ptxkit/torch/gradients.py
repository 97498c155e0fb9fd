"""The gradients of the operators, out of the operators themselves: they can be differentiated again.

What a fusion adds after the product is differentiated in float32. Where that needs what the activation was applied to, the product is
computed again with a float32 result: nothing is kept for it but the operands.
"""

from __future__ import annotations

import math
from typing import Any

from ptxkit.errors import LaunchError

from . import combine, gate
from .framework import torch
from .record import is_plain
from .views import with_contiguous_rows

_ops: Any = torch.ops.ptxkit
DIFFERENTIATED = (torch.bfloat16, torch.float16, torch.float32)


def dense_product(a: Any, b: Any, like: Any, alpha: float = 1.0) -> Any:
    """alpha a @ b with the shape and type of `like`: summed over batches that `like` has not, and contiguous along the same extent."""
    dtype = like.dtype
    if a.ndim == b.ndim == 2 == like.ndim:
        return _like(a, b, like, alpha, dtype)
    found = _ops.gemm.default(a, b, alpha=alpha, out_dtype=dtype if like.shape == (*a.shape[:-1], b.shape[-1]) else torch.float32)
    return found.sum_to_size(like.shape).to(dtype)


def _like(a: Any, b: Any, like: Any, alpha: float, dtype: Any) -> Any:
    if like.stride(0) == 1 and like.shape[0] > 1:
        return _ops.gemm.default(b.mT, a.mT, alpha=alpha, out_dtype=dtype).mT
    return _ops.gemm.default(a, b, alpha=alpha, out_dtype=dtype)


def packed(gradient: Any) -> Any:
    """A gradient that a kernel can read line by line: one that is expanded, as that of a sum, is written out."""
    return gradient.contiguous() if 0 in gradient.stride() else gradient


def refuse(a: Any, what: str) -> None:
    """Raise LaunchError for operands that have no gradients."""
    if a.dtype not in DIFFERENTIATED:
        raise LaunchError(f"the operands of {what} have elements of {a.dtype}, and there are gradients of float32, bfloat16 and float16: "
                          "multiply dequantised operands, or call it under torch.no_grad()")


def activated(activation: str, gradient: Any, z: Any) -> Any:
    """The gradient of z, in float32, from that of activation(z)."""
    gradient = gradient.float()
    if activation == "relu":
        return torch.ops.aten.threshold_backward(gradient, z, 0)
    if activation == "gelu":
        return torch.ops.aten.gelu_backward(gradient, z)
    return of_silu(gradient, z)


def of_silu(gradient: Any, z: Any) -> Any:
    """The gradient of z from that of silu(z). torch's own operator cannot be differentiated again."""
    if not torch.is_grad_enabled():
        return torch.ops.aten.silu_backward(gradient, z)
    s = torch.sigmoid(z)
    return gradient * s * (1 + z * (1 - s))


# -------------------------------------------------------------------------------------------------------------- dense


def save_gemm(ctx: Any, a: Any, b: Any, bias: Any = None, residual: Any = None, c: Any = None, alpha: float = 1.0, beta: float = 0.0,
              activation: str | None = None, out_dtype: Any = None, batch_invariant: bool = False) -> None:
    """Keep what the gradients of `gemm` need."""
    refuse(a, "gemm")
    ctx.given = alpha, beta, activation
    ctx.kinds = None if bias is None else (bias.shape, bias.dtype), residual is not None and residual.dtype, c is not None and c.dtype
    ctx.save_for_backward(a, b, *((bias, c) if activation is not None else (None, None)))


def gemm(ctx: Any, gradient: Any) -> tuple[Any, ...]:
    """The gradients of `gemm`: of a, b, bias, residual and c."""
    a, b, bias, c = ctx.saved_tensors
    (alpha, beta, activation), (bias_is, residual_is, c_is) = ctx.given, ctx.kinds
    wanted = ctx.wanted
    of_residual = gradient.to(residual_is) if wanted[3] else None
    dz = gradient
    if activation is not None:
        z = _ops.gemm.default(a, b, bias=bias, c=c, alpha=alpha, beta=beta, out_dtype=torch.float32)
        dz = activated(activation, gradient, z)
    of_bias = _summed(_matrices(a, b, dz), *bias_is) if wanted[2] else None
    of_c = (beta * dz.float()).to(c_is) if wanted[4] else None
    of_a = of_b = None
    if wanted[0] or wanted[1]:
        dz = packed(dz if dz.dtype is a.dtype else dz.to(a.dtype))
        straight = ctx.kernel is not None and alpha == 1.0 and b.ndim == 2 and (a.ndim == 2 or dz.is_contiguous()) and is_plain(dz)
        of_a, of_b = _by_kernel(ctx.kernel, a, b, dz, wanted) if straight else _operands(a, b, dz, alpha, wanted)
    return of_a, of_b, of_bias, of_residual, of_c, None, None, None, None, None


def _by_kernel(product: Any, a: Any, b: Any, dz: Any, wanted: Any) -> tuple[Any, Any]:
    """The gradients of a [..., K] and a matrix b, as `_operands` has them, by what the dispatcher would call: it costs the host as much as
    the launches."""
    rows = a
    if a.ndim != 2:
        count = math.prod(a.shape[:-1])
        rows, dz = a.reshape(count, a.shape[-1]) if wanted[1] else a, dz.view(count, dz.shape[-1])
    of_a = of_b = None
    if wanted[0]:
        turned = a.ndim == 2 and a.stride(0) == 1 and a.shape[0] > 1
        of_a = product(b, dz.t()).t() if turned else product(dz, b.t())
        of_a = of_a if a.ndim == 2 else of_a.view(a.shape)
    if wanted[1]:
        of_b = product(dz.t(), rows).t() if b.stride(0) == 1 and b.shape[0] > 1 else product(rows.t(), dz)
    return of_a, of_b


def _matrices(a: Any, b: Any, dz: Any) -> Any:
    """A gradient of a @ b as that of matrices, where a or b is a vector."""
    dz = dz if b.ndim > 1 else dz[..., None]
    return dz if a.ndim > 1 else dz[..., None, :]


def _summed(dz: Any, shape: Any, dtype: Any) -> Any:
    """The gradient of a bias."""
    column = len(shape) == 2 and not (shape[0] == 1 and shape[1] == dz.shape[-1])
    kept = dz.shape[-2] if column else dz.shape[-1]
    others = [axis for axis in range(dz.ndim) if axis != dz.ndim - (2 if column else 1)]
    if others and dz.dtype is dtype and not column and len(shape) == 1:
        return dz.sum(others)                   # in float32, rounded once
    total = dz.sum(others, dtype=torch.float32) if others else dz.float()
    return total.reshape((kept, 1) if column else shape).to(dtype)


def _operands(a: Any, b: Any, dz: Any, alpha: float, wanted: Any) -> tuple[Any, Any]:
    """The gradients of a and b. Vectors are matrices of one row or column here."""
    matrix_a, matrix_b, dz = a if a.ndim > 1 else a[None], b if b.ndim > 1 else b[:, None], _matrices(a, b, dz)
    of_a = dense_product(dz, matrix_b.mT, matrix_a, alpha) if wanted[0] else None
    of_b = None
    if wanted[1] and matrix_b.ndim == 2 and matrix_a.ndim > 2:          # all batches are one product
        rows_a, rows_dz = _rows(matrix_a, dz)
        of_b = dense_product(rows_a.mT, rows_dz, matrix_b, alpha)
    elif wanted[1]:
        of_b = dense_product(matrix_a.mT, dz, matrix_b, alpha)
    return of_a if of_a is None else of_a.reshape(a.shape), of_b if of_b is None else of_b.reshape(b.shape)


def _rows(a: Any, dz: Any) -> tuple[Any, Any]:
    """a [..., K] and dz [..., N] as matrices with the same rows, in the same order. That order does not change a sum over all rows. So
    extents that are divided among devices are moved to the front: torch 2.11 flattens no others."""
    axes = range(a.ndim - 1)
    divided = {axis for tensor in (a, dz) for placement in getattr(tensor, "placements", ()) for axis in axes if placement.is_shard(axis)}
    if divided - {0}:
        order = *sorted(axes, key=lambda axis: axis not in divided), a.ndim - 1
        a, dz = a.permute(order), dz.permute(order)
    return a.reshape(-1, a.shape[-1]), dz.reshape(-1, dz.shape[-1])


# ------------------------------------------------------------------------------------------------------------- groups


def save_grouped(ctx: Any, a: Any, b: Any, offs: Any, bias: Any = None, out_dtype: Any = None, activation: str | None = None,
                 batch_invariant: bool = False, clear_rest: bool = False, gather: Any = None, back: Any = None) -> None:
    """Keep what the gradients of `grouped_gemm` need."""
    refuse(a, "grouped_gemm")
    ctx.activation = activation
    ctx.save_for_backward(a, b, offs, gather, back)


def grouped(ctx: Any, gradient: Any) -> tuple[Any, ...]:
    """The gradients of `grouped_gemm`: of a and b. Rows of a outside of all groups have zeros."""
    a, b, offs, gather, back = ctx.saved_tensors
    of_a = of_b = None
    if b.ndim == 2:
        dz = packed(gradient.to(a.dtype))
        if ctx.wanted[0]:                                     # b [T, N] by dz [G, M, N]: a.T [T, M]
            of_a = _ops.grouped_gemm.default(b, dz.mT, offs, clear_rest=True).mT
        if ctx.wanted[1]:
            of_b = _ops.grouped_gemm.default(a.mT, dz, offs, clear_rest=True)
        return of_a, of_b, *(None,) * 8
    return *_of_groups(ctx, a, b, offs, gradient, gather, back), *(None,) * 8


def _of_groups(ctx: Any, a: Any, b: Any, offs: Any, gradient: Any, gather: Any = None, back: Any = None) -> tuple[Any, Any]:
    """The gradients of a and b, whose groups are rows of a."""
    of_a = of_b = None
    dz = gradient
    if ctx.activation is not None:
        dz = of_gate(gradient, _ops.grouped_gemm.default(a, b, offs, out_dtype=torch.float32, clear_rest=True, gather=gather), a.dtype)
    dz = packed(dz.to(a.dtype))
    if ctx.wanted[0]:
        of_a = _ops.grouped_gemm.default(dz, b.mT, offs, clear_rest=True)
        if gather is not None:
            of_a = combine.of_rows(of_a, a.shape[0], a.dtype, gather[:, None], back=back)
    if ctx.wanted[1]:
        if gather is not None:
            a = _ops.combine.default(with_contiguous_rows(a), gather[:, None], back=back)
        starts = offs if offs.shape[0] == b.shape[0] + 1 else torch.nn.functional.pad(offs, (1, 0))
        turned = b.stride(-2) == 1 and b.shape[-2] > 1
        of_b = _ops.weight_gradient.default(dz, a, starts).mT if turned else _ops.weight_gradient.default(a, dz, starts)
    return of_a, of_b


def save_quantized(ctx: Any, a: Any, b: Any, offs: Any, out_dtype: Any = None, activation: str | None = None, *rest: Any) -> None:
    """Keep what the gradients of `quantized_grouped_gemm` need."""
    refuse(a, "quantized_grouped_gemm")
    ctx.activation = activation
    ctx.save_for_backward(a, b, offs)


def quantized(ctx: Any, gradient: Any) -> tuple[Any, ...]:
    """The gradients of `quantized_grouped_gemm`: those of `grouped_gemm` of the dequantised operands."""
    a, b, offs = ctx.saved_tensors
    x, w = _ops.rounded_to_blocks.default(a, "1x128"), _ops.rounded_to_blocks.default(b.mT, "128x128")
    return *_of_groups(ctx, x, w.mT, offs, gradient), *(None,) * 5


def save_nothing(ctx: Any, *given: Any) -> None:
    """Keep nothing."""


def straight_through(ctx: Any, gradient: Any) -> tuple[Any, None]:
    """The gradient of `rounded_to_blocks`: that of its result."""
    return gradient, None


def of_gate(gradient: Any, z: Any, dtype: Any) -> Any:
    """The gradient of z [M, 2 N], gate and up, from that of silu(gate) * up, for operands of this type."""
    gradient = packed(gradient)
    if not torch.is_grad_enabled() and gradient.dtype is dtype and gate.fits(gradient, z):
        return _ops.gate_gradient.default(gradient, z)
    of_gates, ups = z.chunk(2, dim=-1)
    gradient = gradient.float()
    return torch.cat([of_silu(gradient * ups, of_gates), gradient * torch.nn.functional.silu(of_gates)], dim=-1)


def save_gated(ctx: Any, a: Any, b: Any, out_dtype: Any = None) -> None:
    """Keep what the gradients of `gated_gemm` need."""
    refuse(a, "gated_gemm")
    ctx.save_for_backward(a, b)


def gated(ctx: Any, gradient: Any) -> tuple[Any, ...]:
    """The gradients of `gated_gemm`: of a and b."""
    a, b = ctx.saved_tensors
    count = math.prod(a.shape[:-1])
    rows = a.reshape(count, a.shape[-1])
    z = _ops.gemm.default(rows, b, out_dtype=torch.float32)
    dz = packed(of_gate(gradient.reshape(count, gradient.shape[-1]), z, a.dtype).to(a.dtype))
    of_a = dense_product(dz, b.mT, rows).reshape(a.shape) if ctx.wanted[0] else None
    return of_a, dense_product(rows.mT, dz, b) if ctx.wanted[1] else None, None


def save_weight_gradient(ctx: Any, a: Any, b: Any, offs: Any, out_dtype: Any = None) -> None:
    """Keep what the gradients of `weight_gradient` need."""
    ctx.save_for_backward(a, b, offs)


def weight_gradient(ctx: Any, gradient: Any) -> tuple[Any, ...]:
    """The gradients of `weight_gradient`: of a and b."""
    a, b, offs = ctx.saved_tensors
    dz = packed(gradient.to(a.dtype))
    of_a = _ops.grouped_gemm.default(b, dz.mT, offs, clear_rest=True) if ctx.wanted[0] else None
    of_b = _ops.grouped_gemm.default(a, dz, offs, clear_rest=True) if ctx.wanted[1] else None
    return of_a, of_b, None, None


def none_of_scaled(ctx: Any, *given: Any) -> None:
    """Raise LaunchError: a product of quantised operands has no gradients."""
    raise LaunchError("scaled_gemm and scaled_grouped_gemm have no gradients: multiply dequantised operands with gemm or grouped_gemm, or "
                      "call them under torch.no_grad()")


def none_of_gate(ctx: Any, *given: Any) -> None:
    """Raise LaunchError: where gradients are recorded `of_gate` is made of torch's operators."""
    raise LaunchError("gate_gradient has no gradient: it is a part of that of gated_gemm and grouped_gemm")


__all__ = ["activated", "gated", "gemm", "grouped", "none_of_gate", "none_of_scaled", "quantized", "save_gated", "save_gemm",
           "save_grouped", "save_nothing", "save_quantized", "save_weight_gradient", "straight_through", "weight_gradient"]
