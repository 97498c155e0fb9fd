"""Sums of chosen rows as operators of torch, and their gradients: what gathers the rows of experts, and what adds their results."""

from __future__ import annotations

from typing import Any

from ptxkit.errors import LaunchError
from ptxkit.gemm.launch.combine import CombineProblem, ProductsProblem
from ptxkit.gemm.launch.combine import combine as launch_combine
from ptxkit.gemm.launch.combine import products_of_rows as launch_products

from . import cpu
from .framework import torch
from .views import dtype_of, refuse_back, views, word_of

_ops: Any = torch.ops.ptxkit


def combine(y: Any, place: Any, weights: Any = None, starts: Any = None, back: Any = None, out_dtype: Any = None, *,
            out: Any = None) -> Any:
    """`combine` on a GPU."""
    out = _result(y, place, starts, back, out_dtype, out)
    launch_combine(y, place, weights, starts=starts, out=out)
    return out


def combine_on_cpu(y: Any, place: Any, weights: Any = None, starts: Any = None, back: Any = None, out_dtype: Any = None, *,
                   out: Any = None) -> Any:
    """`combine` on the CPU device."""
    cpu.require("y")
    out = _result(y, place, starts, back, out_dtype, out)
    cpu.combined(y, place, weights, starts, out)
    return out


def combine_fake(y: Any, place: Any, weights: Any = None, starts: Any = None, back: Any = None, out_dtype: Any = None, *,
                 out: Any = None) -> Any:
    """`combine` of tensors without memory."""
    seen = views({"y": y, "place": place, "weights": weights, "starts": starts, "back": back})
    out = _result(y, place, starts, back, out_dtype, out)
    of_out = views({"out": out})
    if seen is not None and of_out is not None:
        CombineProblem(seen["y"], seen["place"], seen.get("weights"), seen.get("starts"), of_out["out"])
    return out


def _result(y: Any, place: Any, starts: Any, back: Any, out_dtype: Any, out: Any) -> Any:
    """Memory for the sums, or `out`; checked as far as `ptxkit.gemm` does not."""
    if back is not None:
        refuse_back(y, back)
    if out is not None:
        if out_dtype is not None and out.dtype is not out_dtype:
            raise LaunchError(f"out has elements of {out.dtype} and out_dtype says {out_dtype}: give one of them")
        return out
    if y.ndim != 2 or place.ndim != (2 if starts is None else 1) or (starts is not None and starts.ndim != 1):
        raise LaunchError(f"y has shape {tuple(y.shape)} and place {tuple(place.shape)}: y is [rows, N], and place [T, choices of a row], "
                          "or [choices] with starts [T + 1]")
    rows = place.shape[0] if starts is None else starts.shape[0] - 1
    return y.new_empty((rows, y.shape[1]), dtype=out_dtype or y.dtype)


def products(a: Any, first: Any, b: Any, second: Any) -> Any:
    """`row_products` on a GPU."""
    return launch_products(a, first, b, second, out=a.new_empty(first.shape, dtype=torch.float32))


def products_on_cpu(a: Any, first: Any, b: Any, second: Any) -> Any:
    """`row_products` on the CPU device."""
    cpu.require("a")
    out = a.new_empty(first.shape, dtype=torch.float32)
    cpu.products_of_rows(a, first, b, second, out)
    return out


def products_fake(a: Any, first: Any, b: Any, second: Any) -> Any:
    """`row_products` of tensors without memory."""
    out = a.new_empty(first.shape, dtype=torch.float32)
    seen = views({"a": a, "first": first, "b": b, "second": second, "out": out})
    if seen is not None:
        ProductsProblem(*seen.values())
    return out


# ---------------------------------------------------------------------------------------------------------- gradients


def save(ctx: Any, y: Any, place: Any, weights: Any = None, starts: Any = None, back: Any = None, out_dtype: Any = None) -> None:
    """Keep what the gradients of `combine` need: y only for those of the weights."""
    ctx.rows, ctx.dtype = y.shape[0], word_of(y.dtype, "y")
    ctx.save_for_backward(y if ctx.wanted[2] else None, place, weights, starts, back)


def gradient(ctx: Any, dout: Any) -> tuple[Any, ...]:
    """The gradients of `combine`: of y and of the weights."""
    y, place, weights, starts, back = ctx.saved_tensors
    dout = dout.contiguous()
    of_y = of_rows(dout, ctx.rows, dtype_of(ctx.dtype), place, weights, starts, back) if ctx.wanted[0] else None
    of_weights = None
    if ctx.wanted[2]:
        row = _row_of(torch.arange(place.numel(), dtype=torch.int32, device=place.device), place, starts)
        of_weights = dot(y, place.reshape(-1), dout.to(y.dtype), row).view(place.shape)
    return of_y, None, of_weights, None, None, None


def _row_of(choice: Any, place: Any, starts: Any) -> Any:
    """The row of the result that choices belong to, by their numbers; of those that belong to none, no row."""
    if starts is None:
        return choice // max(1, place.shape[1])
    return torch.searchsorted(starts, choice, right=True, out_int32=True) - 1


def of_rows(dout: Any, rows: Any, dtype: Any, place: Any, weights: Any = None, starts: Any = None, back: Any = None) -> Any:
    """The gradient of y: a combine of the rows of `dout`, by the choices that take each row of y, in their order."""
    if back is not None:
        own = None if weights is None else weights.reshape(-1)[back.clamp(min=0)]
        return _ops.combine.default(dout, _row_of(back, place, starts), own, out_dtype=dtype)
    ordered, order = place.reshape(-1).sort(stable=True)
    begins = torch.searchsorted(ordered, torch.arange(rows + 1, dtype=torch.int32, device=place.device), out_int32=True)
    order = order.int()
    own = None if weights is None else weights.reshape(-1)[order]
    return _ops.combine.default(dout, _row_of(order, place, starts), own, begins, out_dtype=dtype)


def dot(a: Any, first: Any, b: Any, second: Any) -> Any:
    """The products of pairs of rows, in float32; where gradients are recorded, out of torch's operators."""
    if not torch.is_grad_enabled():
        return _ops.row_products.default(a, first, b, second)
    there = (first >= 0) & (first < a.shape[0]) & (second >= 0) & (second < b.shape[0])
    one, other = (each.float()[number.clamp(0, each.shape[0] - 1)] for each, number in ((a, first), (b, second)))
    return torch.where(there, (one * other).sum(-1), 0)


def none_of_products(ctx: Any, *given: Any) -> None:
    """Raise LaunchError: where gradients are recorded `dot` is made of torch's operators."""
    raise LaunchError("row_products has no gradient: it is a part of that of combine")


__all__ = ["combine", "combine_fake", "combine_on_cpu", "dot", "gradient", "none_of_products", "of_rows", "products", "products_fake",
           "products_on_cpu", "save"]
