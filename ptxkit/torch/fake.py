"""The operators on tensors without memory: shapes and types of results, and the same complaints as a launch has.

A launch is checked by `ptxkit.gemm` itself, from views of its arrays. Here the views have no address, and the example of a size that is
dynamic: looking at it adds no guard to a graph. A size that depends on data has no example; only the extents of the result are then said.
"""

from __future__ import annotations

import math
from typing import Any

from ptxkit.errors import LaunchError
from ptxkit.gemm.launch.dense import as_one, check_out_dtype
from ptxkit.gemm.problem.dense import Arrays, Options, Problem, type_name
from ptxkit.gemm.problem.grouped import GroupArrays, GroupOptions, GroupProblem
from ptxkit.gemm.problem.lines import UNIT as LINE
from ptxkit.gemm.problem.matmul import products, result_shape
from ptxkit.runtime.arrays import ArrayView, contiguous_strides

from .framework import torch
from .products import group_scale, in_blocks, lies_along_n, refuse_fp8_result, refuse_gated, refuse_gather, refuse_groups, result_dtype
from .views import numbers, refuse_missing, same_device, views, word_of
from .weight_gradient import ROWS as UNIT
from .weight_gradient import refuse_shape, refuse_sums, refuse_types


def _shape(a: Any, b: Any) -> tuple[Any, ...]:
    """The extents of a @ b."""
    if a.ndim == b.ndim == 2:
        if isinstance(a.shape[1], torch.SymInt) or isinstance(b.shape[0], torch.SymInt):
            torch._check(a.shape[1] == b.shape[0], lambda: f"a has shape {tuple(a.shape)} and b {tuple(b.shape)}")
        elif a.shape[1] != b.shape[0]:
            raise LaunchError(f"a has shape {tuple(a.shape)} and b {tuple(b.shape)}: a is [M, K] and b [K, N]; pass a weight w of shape "
                              "[N, K] as w.T")
        return a.shape[0], b.shape[1]
    return result_shape(a, b)


def _result(like: ArrayView, shape: tuple[Any, ...], dtype: Any, out: ArrayView | None) -> ArrayView:
    """The view of a result: the given one, or that of new memory."""
    if out is not None:
        return out
    extents = tuple(extent if isinstance(extent, int) else int(extent.node.hint) for extent in shape)
    return ArrayView(0, extents, contiguous_strides(extents), word_of(dtype, "out"), like.device, "torch")


def _dense(a: Any, b: Any, options: Options, out_dtype: Any, out: Any, **rest: Any) -> Any:
    """The result of a dense product, checked."""
    seen = views({"a": a, "b": b, "out": out, **rest})
    type_name(out_dtype)
    shape, dtype = _shape(a, b), result_dtype(a, out_dtype)
    if seen is not None:
        if out is not None:
            check_out_dtype(seen["out"], out_dtype)
        seen["out"] = _result(seen["a"], shape, dtype, seen.get("out"))
        of_blocks = "a_scale" in seen and len(seen["a"].shape) > 1 and len(seen["b"].shape) == 2
        if of_blocks and in_blocks(*(seen[name] for name in ("a", "b", "a_scale", "b_scale"))):
            *rows, k = list(seen["a"].shape)
            line = -(-k // LINE) * LINE                                           # those that lie otherwise are copied
            seen["a"], seen["b"] = (seen["a"]._replace(strides=contiguous_strides((*rows, line))),
                                    seen["b"]._replace(strides=(1, line)))
        for part in products(Arrays(**seen)):
            Problem(as_one(part, None), options)
    return a.new_empty(shape, dtype=dtype) if out is None else out


def gemm(a: Any, b: Any, bias: Any = None, residual: Any = None, c: Any = None, alpha: float = 1.0, beta: float = 0.0,
         activation: str | None = None, out_dtype: Any = None, batch_invariant: bool = False, *, out: Any = None) -> Any:
    """`gemm` of tensors without memory."""
    options = Options(alpha, beta, activation, batch_invariant=batch_invariant)
    return _dense(a, b, options, out_dtype, out, bias=bias, residual=residual, c=c)


def scaled_gemm(a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any = None, out_dtype: Any = None, use_fast_accum: bool = False,
                residual: Any = None, activation: str | None = None, batch_invariant: bool = False, *, out: Any = None) -> Any:
    """`scaled_gemm` of tensors without memory."""
    refuse_missing(scale_a, "scale_a")
    options = Options(activation=activation, fast_accum=use_fast_accum, batch_invariant=batch_invariant)
    return _dense(a, b, options, out_dtype, out, bias=bias, residual=residual, a_scale=scale_a, b_scale=scale_b)


def _groups(a: Any, b: Any, offs: Any, bias: Any, out_dtype: Any, activation: str | None, options: dict[str, Any], out: Any,
            **rest: Any) -> Any:
    """The result of a product of groups, checked."""
    refuse_groups(a, b, offs, bias, activation)
    dtype = result_dtype(a, out_dtype)
    if b.ndim == 2:
        return weight_gradient(a.mT, b, torch.nn.functional.pad(offs, (1, 0)), dtype) if out is None else out
    refuse_fp8_result(out, out_dtype)
    same_device({name: tensor for name, tensor in (("a", a), ("b", b), ("offs", offs), ("out", out)) if tensor is not None})
    seen = views({"x": a, "w": b.mT, "lengths": offs, "out": out, **rest})
    rows = a if rest.get("gather") is None else rest["gather"]
    shape = rows.shape[0], b.shape[2] // (1 if activation is None else 2)
    if seen is not None:
        groups = seen["w"].shape[0]
        if seen["w"].strides[-1] != 1 and (activation is not None or not lies_along_n(b)):     # is copied
            seen["w"] = seen["w"]._replace(strides=contiguous_strides(seen["w"].shape))
        seen["x"], seen["w"] = _lined(seen["x"], seen["w"])
        seen["lengths"] = seen["lengths"]._replace(shape=(groups + 1,))
        seen["out"] = _result(seen["x"], shape, dtype, seen.get("out"))
        GroupProblem(GroupArrays(**seen), GroupOptions("cu_seqlens", activation is not None, **options))
    return a.new_empty(shape, dtype=dtype) if out is None else out


def _lined(x: ArrayView, w: ArrayView) -> tuple[ArrayView, ArrayView]:
    """Those of operands of 16 bits that a launch copies, with further zeros of K: see `products.lined`."""
    (rows, k), (row, column) = x.shape, x.strides
    missing = -k % UNIT if w.shape[2] == k else 0
    reads = (rows <= 1 or (row % UNIT == 0 and row >= k)) and (column == 1 or k <= 1)
    if x.dtype not in ("bf16", "f16") or not rows * k or (reads and not missing):
        return x, w
    x = x._replace(shape=(rows, k + missing), strides=(k + missing, 1))
    if missing:
        shape = (*w.shape[:2], k + missing)
        w = w._replace(shape=shape, strides=contiguous_strides(shape))
    return x, w


def grouped_gemm(a: Any, b: Any, offs: Any, bias: Any = None, out_dtype: Any = None, activation: str | None = None,
                 batch_invariant: bool = False, clear_rest: bool = False, gather: Any = None, back: Any = None, *,
                 out: Any = None) -> Any:
    """`grouped_gemm` of tensors without memory."""
    refuse_gather(a, b, gather, back)
    return _groups(a, b, offs, bias, out_dtype, activation, {"batch_invariant": batch_invariant}, out, gather=gather)


def scaled_grouped_gemm(a: Any, b: Any, scale_a: Any, scale_b: Any, offs: Any, bias: Any = None, out_dtype: Any = None,
                        use_fast_accum: bool = False, activation: str | None = None, batch_invariant: bool = False,
                        clear_rest: bool = False, *, out: Any = None) -> Any:
    """`scaled_grouped_gemm` of tensors without memory."""
    options = {"batch_invariant": batch_invariant, "fast_accum": use_fast_accum}
    return _groups(a, b, offs, bias, out_dtype, activation, options, out, x_scale=scale_a, w_scale=group_scale(scale_b))


def gated_gemm(a: Any, b: Any, out_dtype: Any = None, *, out: Any = None) -> Any:
    """`gated_gemm` of tensors without memory."""
    refuse_gated(a, b)
    shape = *a.shape[:-1], b.shape[1] // 2
    lengths = a.new_empty((2,), dtype=torch.int32)
    rows = None if out is None else out.reshape(math.prod(shape[:-1]), shape[-1])
    _groups(a.reshape(math.prod(shape[:-1]), a.shape[-1]), b[None], lengths, None, out_dtype, "silu_and_mul", {}, rows)
    return a.new_empty(shape, dtype=result_dtype(a, out_dtype)) if out is None else out


def gate_gradient(gradient: Any, z: Any) -> Any:
    """`gate_gradient` of tensors without memory."""
    return torch.empty_like(z, dtype=gradient.dtype)


def weight_gradient(a: Any, b: Any, offs: Any, out_dtype: Any = None, *, out: Any = None) -> Any:
    """`weight_gradient` of tensors without memory."""
    shape, dtype = _along_k(a, b, offs, out), result_dtype(a, out_dtype)
    refuse_types(a, b, dtype if out is None else out.dtype)
    return a.new_empty(shape, dtype=dtype) if out is None else out


def accumulate(out: Any, a: Any, b: Any, offs: Any) -> None:
    """`weight_gradient_` of tensors without memory."""
    refuse_sums(out)
    refuse_types(a, b, out.dtype)
    _along_k(a, b, offs, out)


def _along_k(a: Any, b: Any, offs: Any, out: Any) -> tuple[Any, ...]:
    """The shape of a product with groups along K, checked."""
    seen = views({"a": a, "b": b, "offs": offs, "out": out})
    torch._check(a.shape[0] == b.shape[0], lambda: f"a has shape {tuple(a.shape)} and b {tuple(b.shape)}: as many rows in a as in b")
    shape = offs.shape[0] - 1, a.shape[1], b.shape[1]
    if seen is not None and out is not None:
        refuse_shape(seen["out"], numbers(shape))
    return shape


__all__ = ["accumulate", "gate_gradient", "gated_gemm", "gemm", "grouped_gemm", "scaled_gemm", "scaled_grouped_gemm", "weight_gradient"]
