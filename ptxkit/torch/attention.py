"""Attention as an operator of torch, with torch's own flash backward from the result and the log-sum-exp."""

from __future__ import annotations

from typing import Any

from ptxkit.attention.launch.forward import attention as launch
from ptxkit.attention.problem.forward import Arrays, Options, Problem
from ptxkit.errors import LaunchError

from . import cpu
from .framework import torch
from .record import autocast, recorder, refuse_tangents
from .views import refuse_missing, views

ARGUMENTS = "Tensor q, Tensor k, Tensor v, bool is_causal=False, float? scale=None, bool enable_gqa=False, Tensor? cu_seqlens=None"
_ops: Any = torch.ops.ptxkit


def define(library: Any) -> None:
    """Define `attention`, and `attention_lse`, which also returns the log-sum-exp."""
    tags = (torch.Tag.pt2_compliant_tag,)
    for name, result, run in (("attention", "Tensor", _result), ("attention_lse", "(Tensor, Tensor)", _both)):
        library.define(f"{name}({ARGUMENTS}) -> {result}", tags=tags)
        library.impl(name, run(_on_gpu), "CUDA")
        library.impl(name, run(_on_cpu), "CPU")
        torch.library.register_fake(f"ptxkit::{name}", run(_fake), lib=library)
        for device in ("CUDA", "CPU"):
            library.impl(name, autocast(getattr(_ops, name).default, device, (0, 1, 2)), f"Autocast{device}")
    library.impl("attention", _recorded(_ops.attention.default), "Autograd", with_keyset=True)
    library.impl("attention_lse", _recorded_with_lse(_ops.attention_lse.default), "Autograd", with_keyset=True)


def _result(run: Any) -> Any:
    return lambda *given, **named: run(False, *given, **named)[0]


def _both(run: Any) -> Any:
    return lambda *given, **named: run(True, *given, **named)


def _recorded(overload: Any) -> Any:
    """`attention` where gradients may be recorded: with the log-sum-exp if one is, which the backward needs."""
    redispatch, after = overload._handle.redispatch_boxed, torch._C._after_autograd_keyset

    def call(keys: Any, *given: Any) -> Any:
        if torch.autograd.forward_ad._current_level >= 0:
            refuse_tangents("attention", given)
        if torch.is_grad_enabled() and torch._C._any_requires_grad(*given):
            return _ops.attention_lse(*given)[0]
        with torch._C._AutoDispatchBelowAutograd():
            return redispatch(keys & after, *given)

    return call


def _recorded_with_lse(overload: Any) -> Any:
    """`attention_lse` where gradients may be recorded."""
    redispatch, after, below = overload._handle.redispatch_boxed, torch._C._after_autograd_keyset, torch._C._AutoDispatchBelowAutograd

    def forward(ctx: Any, keys: Any, *given: Any) -> Any:
        with below():
            output = redispatch(keys & after, *given)
        _save(ctx, (*given, *(False, None, False, None)[len(given) - 3:]), output)
        return output

    record = recorder("attention_lse", forward, lambda ctx, *gradients: (None, *_backward(ctx, *gradients))).whole

    def call(keys: Any, *given: Any) -> Any:
        if torch.autograd.forward_ad._current_level >= 0:
            refuse_tangents("attention_lse", given)
        if torch.is_grad_enabled() and torch._C._any_requires_grad(*given):
            return record(keys, *given)
        with below():
            return redispatch(keys & after, *given)

    return call


def _empty(with_lse: bool, q: Any, cu_seqlens: Any) -> tuple[Any, Any]:
    refuse_missing(q, "q")
    shape = q.shape[:-1] if cu_seqlens is None else (q.shape[1], q.shape[0])
    return torch.empty_like(q, memory_format=torch.contiguous_format), q.new_empty(shape, dtype=torch.float32) if with_lse else None


def _on_gpu(with_lse: bool, q: Any, k: Any, v: Any, is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
            cu_seqlens: Any = None) -> tuple[Any, Any]:
    out, lse = _empty(with_lse, q, cu_seqlens)
    launch(q, k, v, is_causal, scale, enable_gqa, cu_seqlens, out=out, lse=lse)
    return out, lse


def _on_cpu(with_lse: bool, q: Any, k: Any, v: Any, is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
            cu_seqlens: Any = None) -> tuple[Any, Any]:
    cpu.require("q")
    out, lse = _empty(with_lse, q, cu_seqlens)
    for name, tensor in (("k", k), ("v", v)):
        refuse_missing(tensor, name)
    cpu.attended(q, k, v, out, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa, cu_seqlens=cu_seqlens, lse=lse)
    return out, lse


def _fake(with_lse: bool, q: Any, k: Any, v: Any, is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
          cu_seqlens: Any = None) -> tuple[Any, Any]:
    out, lse = _empty(with_lse, q, cu_seqlens)
    for name, tensor in (("k", k), ("v", v)):
        refuse_missing(tensor, name)
    seen = views({"q": q, "k": k, "v": v, "out": out, "cu_seqlens": cu_seqlens})
    if seen is not None:
        arrays = Arrays(seen["q"], seen["k"], seen["v"], seen["out"], None, seen.get("cu_seqlens"))
        Problem.of(arrays, Options(is_causal, scale, enable_gqa))
    return out, lse


# ---------------------------------------------------------------------------------------------------------- gradients


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, Any]) -> None:
    """Keep what the backward needs. Raises LaunchError for what torch's flash backward does not have."""
    q, k, v, is_causal, scale, _, cu_seqlens = inputs
    out, lse = output
    if cu_seqlens is not None:
        raise LaunchError("q, k or v requires grad, and packed sequences have no gradient: call it under torch.no_grad(), or pad the "
                          "sequences and leave cu_seqlens out")
    if is_causal and q.shape[2] != k.shape[2]:
        raise LaunchError(f"q, k or v requires grad, and with is_causal there are gradients only of as many queries as keys, not "
                          f"{q.shape[2]} and {k.shape[2]}: call it under torch.no_grad()")
    ctx.is_causal, ctx.scale = is_causal, scale
    ctx.save_for_backward(q, k, v, out, lse)
    ctx.mark_non_differentiable(lse)


def _backward(ctx: Any, gradient: Any, _: Any) -> tuple[Any, ...]:
    """Torch's flash backward. Heads of keys that several heads of queries share are repeated for it, and their gradients summed."""
    q, k, v, out, lse = ctx.saved_tensors
    length, keys = q.shape[2], k.shape[2]
    if not keys or not q.numel():                       # which torch's kernel on a GPU does not take
        return torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v), None, None, None, None
    group = q.shape[1] // k.shape[1]
    wide = [x.repeat_interleave(group, 1) if group > 1 else x for x in (k, v)]
    gradient = gradient.contiguous()
    if q.device.type == "cpu":
        found = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(gradient, q, *wide, out, lse, 0.0, ctx.is_causal,
                                                                                    scale=ctx.scale)
    else:
        seed, unused = (torch.zeros(shape, dtype=torch.uint64, device=q.device) for shape in ((2,), ()))    # there is no dropout
        found = torch.ops.aten._scaled_dot_product_flash_attention_backward(gradient, q, *wide, out, lse, None, None, length, keys, 0.0,
                                                                            ctx.is_causal, seed, unused, scale=ctx.scale)
    of_q, *others = found
    of_k, of_v = (x.unflatten(1, (-1, group)).sum(2) if group > 1 else x for x in others)
    return of_q, of_k, of_v, None, None, None, None


__all__ = ["define"]
