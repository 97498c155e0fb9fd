"""Products under torch.vmap: one product of batches where the kernels have one, else a product for each element."""

from __future__ import annotations

from typing import Any

from ptxkit.gemm.problem.matmul import result_shape

from .framework import torch
from .products import result_dtype

_ops: Any = torch.ops.ptxkit


def gemm(info: Any, dims: tuple[Any, ...], a: Any, b: Any, bias: Any = None, residual: Any = None, c: Any = None, alpha: float = 1.0,
         beta: float = 0.0, activation: str | None = None, out_dtype: Any = None, batch_invariant: bool = False) -> tuple[Any, int]:
    """The result of `gemm` for each element of the mapped extents, and the place of that extent."""
    size, dims = info.batch_size, (*dims, None, None, None)
    given = [one if dim is None else one.movedim(dim, 0) for one, dim in zip((a, b, bias, residual, c), dims, strict=False)]
    mapped = [dim is not None for dim in dims[:5]]
    more = {"alpha": alpha, "activation": activation, "out_dtype": out_dtype, "batch_invariant": batch_invariant}
    if _is_one_product(given, mapped, beta):
        a, b, bias, residual, c = given
        batches = (1,) * (a.ndim - mapped[0] - 2)               # of an element
        if mapped[1]:
            b = b.reshape(size, *batches, *b.shape[1:])
        shape = result_shape(a, b)
        if mapped[2]:                                           # c is added where a bias is, in float32
            c, bias, beta = bias.reshape(size, *(1,) * (len(shape) - 2), bias.shape[-1]), None, 1.0
        c, residual = (one if one is None else one.expand(shape).contiguous() for one in (c, residual))
        return _ops.gemm.default(a, b, bias, residual, c, beta=beta, **more), 0
    if not size:
        a, b = (one.new_empty(one.shape[1:]) if has else one for one, has in zip(given[:2], mapped[:2], strict=True))
        return a.new_empty((0, *result_shape(a, b)), dtype=result_dtype(a, out_dtype)), 0
    return torch.stack([_ops.gemm.default(*(one[at] if has else one for one, has in zip(given, mapped, strict=True)), beta=beta, **more)
                        for at in range(size)]), 0


def gated_gemm(info: Any, dims: tuple[Any, ...], a: Any, b: Any, out_dtype: Any = None) -> tuple[Any, int]:
    """The result of `gated_gemm` for each element of the mapped extents, and the place of that extent."""
    a, b = (one if dim is None else one.movedim(dim, 0) for one, dim in zip((a, b), dims, strict=False))
    if dims[1] is None:
        return _ops.gated_gemm.default(a, b, out_dtype), 0
    if not info.batch_size:
        rows = a.shape[:-1] if dims[0] is None else a.shape[1:-1]
        return a.new_empty((0, *rows, b.shape[-1] // 2), dtype=result_dtype(a, out_dtype)), 0
    return torch.stack([_ops.gated_gemm.default(a if dims[0] is None else a[at], b[at], out_dtype) for at in range(info.batch_size)]), 0


def _is_one_product(given: list[Any], mapped: list[bool], beta: float) -> bool:
    """Whether the mapped extent is that of a batch, or of the rows of a where its elements are vectors."""
    a, b, bias, _, c = given
    rank = a.ndim - mapped[0]
    if not any(mapped[:2]) or b.ndim - mapped[1] != 2 or rank < (2 if mapped[1] else 1):
        return False
    return bias is None or (bias.ndim - mapped[2] == 1 and not (mapped[2] and (c is not None or beta)))


__all__ = ["gated_gemm", "gemm"]
