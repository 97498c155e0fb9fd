"""The choice of experts, whose weights have gradients, and the sort of choices as operators of torch."""

from __future__ import annotations

from typing import Any

from ptxkit.errors import LaunchError
from ptxkit.gemm.kernels.route import LANES, MOST_EXPERTS
from ptxkit.gemm.launch.route import ChoiceProblem, Sorted, refuse_count, refuse_top
from ptxkit.gemm.launch.route import choose_experts as launch_choice
from ptxkit.gemm.launch.route import sort_choices as launch_sort

from . import cpu
from .framework import torch
from .record import below_autograd, recorder, refuse_tangents
from .views import views

_ops: Any = torch.ops.ptxkit


def define(library: Any) -> None:
    """Define both operators."""
    tags = (torch.Tag.pt2_compliant_tag,)
    library.define("choose_experts(Tensor logits, int top, bool over_all=False) -> (Tensor, Tensor)", tags=tags)
    library.define("sort_choices(Tensor experts, int count) -> (Tensor, Tensor, Tensor, Tensor)", tags=tags)
    for name, gpu, on_cpu, fake in (("choose_experts", _choose, _choose_on_cpu, _choose_fake),
                                    ("sort_choices", _sort, _sort_on_cpu, _sort_fake)):
        library.impl(name, gpu, "CUDA")
        library.impl(name, on_cpu, "CPU")
        torch.library.register_fake(f"ptxkit::{name}", fake, lib=library)
    library.impl("choose_experts", _recorded(_ops.choose_experts.default), "Autograd", with_keyset=True)
    library.impl("sort_choices", torch.library.fallthrough_kernel, "Autograd")


def takes(experts: int, top: int) -> bool:
    """Whether the kernel chooses so many of so many."""
    return experts <= MOST_EXPERTS and top <= LANES


# ------------------------------------------------------------------------------------------------------------- choices


def _chosen(logits: Any, top: int) -> tuple[Any, Any]:
    """Memory for weights and experts."""
    if logits.ndim != 2:
        raise LaunchError(f"logits has shape {tuple(logits.shape)}: it is float32 [tokens, experts]")
    if top < 1:                                 # of which torch makes no memory; a launch looks at the rest
        refuse_top(top, logits.shape[1])
    shape = logits.shape[0], top
    return logits.new_empty(shape, dtype=torch.float32), logits.new_empty(shape, dtype=torch.int32)


def _choose(logits: Any, top: int, over_all: bool = False) -> tuple[Any, Any]:
    return launch_choice(logits, top, over_all=over_all, out=_chosen(logits, top))


def _choose_on_cpu(logits: Any, top: int, over_all: bool = False) -> tuple[Any, Any]:
    cpu.require("logits")
    out = _chosen(logits, top)
    cpu.chosen(logits, *out, over_all)
    return out


def _choose_fake(logits: Any, top: int, over_all: bool = False) -> tuple[Any, Any]:
    out = _chosen(logits, top)
    seen = views({"logits": logits, "weights": out[0]})
    if seen is not None:
        ChoiceProblem(seen["logits"], seen["weights"], seen["weights"]._replace(dtype="s32"), over_all)
    return out


def _recorded(overload: Any) -> Any:
    """`choose_experts` where gradients may be recorded."""
    enabled, wanted = torch.is_grad_enabled, torch._C._any_requires_grad
    kernel_of = below_autograd("choose_experts", overload, _choose, _choose_on_cpu)

    def forward(ctx: Any, run: Any, logits: Any, top: int, over_all: bool = False) -> Any:
        weights, experts = run(logits, top, over_all)
        ctx.over_all = over_all
        ctx.save_for_backward(logits, experts)
        ctx.mark_non_differentiable(experts)
        return weights, experts

    def backward(ctx: Any, gradient: Any, _: Any) -> tuple[Any, ...]:
        logits, experts = ctx.saved_tensors
        return None, of_logits(gradient, logits, experts, ctx.over_all), None, None

    record, tangents = recorder("choose_experts", forward, backward).whole, torch.autograd.forward_ad

    def call(keys: Any, *given: Any) -> Any:
        if tangents._current_level >= 0:
            refuse_tangents("choose_experts", given)
        if enabled() and wanted(*given):
            return record(kernel_of(keys), *given, *(False,) * (3 - len(given)))
        return kernel_of(keys)(*given)

    return call


def of_logits(gradient: Any, logits: Any, experts: Any, over_all: bool) -> Any:
    """The gradient of the logits from that of the weights, out of torch's operators."""
    columns, zeros = experts.long(), torch.zeros_like(logits)
    if over_all:
        share = logits.softmax(-1)
        spread = zeros.scatter(1, columns, gradient)
        return share * (spread - (share * spread).sum(-1, keepdim=True))
    share = logits.gather(1, columns).softmax(-1)
    return zeros.scatter(1, columns, share * (gradient - (share * gradient).sum(-1, keepdim=True)))


# --------------------------------------------------------------------------------------------------------------- sorts


def _sorted(experts: Any, count: int) -> Sorted:
    """Memory for the sort."""
    refuse_count(count)
    return Sorted(*(experts.new_empty(shape, dtype=torch.int32) for shape in ((count + 1,), (experts.numel(),), experts.shape,
                                                                              (experts.numel(),))))


def _sort(experts: Any, count: int) -> tuple[Any, ...]:
    return tuple(launch_sort(experts, count, out=_sorted(experts, count)))


def _sort_on_cpu(experts: Any, count: int) -> tuple[Any, ...]:
    cpu.require("experts")
    out = _sorted(experts, count)
    cpu.in_order(experts, out)
    return tuple(out)


def _sort_fake(experts: Any, count: int) -> tuple[Any, ...]:
    if experts.dtype is not torch.int32 or experts.ndim != 2:
        raise LaunchError(f"experts is {experts.dtype} {tuple(experts.shape)}: it is int32 [tokens, choices of a token]")
    return tuple(_sorted(experts, count))


__all__ = ["define", "of_logits", "takes"]
