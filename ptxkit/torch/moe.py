"""A mixture of experts: rows of tokens through the experts that a router chooses, and the weighted sum of what they give."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, get_args

from ptxkit.errors import LaunchError
from ptxkit.gemm.launch.route import Sorted

from .framework import torch
from .route import takes
from .views import with_contiguous_rows

_nn: Any = torch.nn
_ops: Any = torch.ops.ptxkit
Softmax = Literal["before", "after"]
Quantisation = Literal["blocks"]


def by_expert(experts: Any, count: int) -> Sorted:
    """The routing of choices [tokens, top_k] among `count` experts, in one launch; nothing waits for it. Choices of no expert, below 0 or
    not below `count`, have slots after those of all experts, which nothing computes."""
    return Sorted(*_ops.sort_choices.default(experts.to(torch.int32).contiguous(), count))


class MoE(_nn.Module):  # type: ignore[misc]
    """The `top_k` experts of each token, each down(silu(gate(x)) * up(x)), summed with the weights of a router.

    `router` is [experts, features]; `gate_up` has the rows of each expert's gate, then those of its up projection: [experts, 2 hidden,
    features]; `down` is [experts, features, hidden]. There are no biases. The router's logits are float32. `softmax` "after" makes weights
    of the logits that were chosen, "before" of all of them, and with `normalise` divides those that were chosen by their sum.

    A token's sum has the order of its choices, forward and backward, so that the same input gives the same bits. No token is dropped, and
    an expert may have none. With `gather` the first product reads tokens where they are; without, they are copied to their experts first.
    With `quantize` "blocks" the operands of both products are quantised to e4m3 on the way, activations with a scale for each 1 x 128 and
    weights for each 128 x 128, and gradients are those of the dequantised operands, in the parameters' type; rows are copied then.
    Nothing waits for the device. The parameters are float16 or bfloat16, or float32 under torch.autocast, and
    `features` and `hidden` are multiples of 8, with `quantize` of 16. A subclass may have another `route`.
    """

    def __init__(self, features: int, hidden: int, experts: int, top_k: int, *, softmax: Softmax = "after", normalise: bool = False,
                 gather: bool = True, quantize: Quantisation | None = None, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        if not 1 <= top_k <= experts:
            raise LaunchError(f"top_k={top_k} of {experts} experts: a token has at least one of them and at most all")
        if softmax not in get_args(Softmax):
            raise LaunchError(f"softmax={softmax!r}: it is \"before\" or \"after\" the choice of experts")
        if normalise and softmax == "after":
            raise LaunchError("normalise=True: the softmax after the choice of experts has the sum 1; leave it out, or take "
                              "softmax=\"before\"")
        self.features, self.hidden, self.experts, self.top_k = features, hidden, experts, top_k
        if quantize not in (None, *get_args(Quantisation)):
            raise LaunchError(f"quantize={quantize!r}: it is \"blocks\", e4m3 with scales of 1 x 128 and 128 x 128, or None")
        if quantize and (features % 16 or hidden % 16):
            raise LaunchError(f"quantize={quantize!r} with features={features} and hidden={hidden}: they are multiples of 16, at which "
                              "rows of e4m3 begin")
        self.softmax, self.normalise, self.gather, self.quantize = softmax, normalise, gather and quantize is None, quantize
        self.router = _nn.Parameter(torch.empty(experts, features, device=device, dtype=dtype))
        self.gate_up = _nn.Parameter(torch.empty(experts, 2 * hidden, features, device=device, dtype=dtype))
        self.down = _nn.Parameter(torch.empty(experts, features, hidden, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Parameters as `torch.nn.Linear` begins with them: uniform within 1 / sqrt(K)."""
        for weight in (self.router, self.gate_up, self.down):
            bound = weight.shape[-1] ** -0.5 if weight.shape[-1] else 0.0
            _nn.init.uniform_(weight, -bound, bound)

    @classmethod
    def of(cls, router: Any, gate: Any, up: Any, down: Any, top_k: int, **options: Any) -> MoE:
        """The layer of these weights, which are copied: router [experts, features], gate and up [experts, hidden, features] and down
        [experts, features, hidden], or a sequence of matrices, one of each expert."""
        gate, up, down = (torch.stack([*each]) if isinstance(each, Sequence) else each for each in (gate, up, down))
        fits = gate.ndim == 3 and router.ndim == 2 and gate.shape == up.shape and down.shape == gate.mT.shape \
            and router.shape == (gate.shape[0], gate.shape[2])
        if not fits:
            raise LaunchError(f"router is {tuple(router.shape)}, gate {tuple(gate.shape)}, up {tuple(up.shape)} and down "
                              f"{tuple(down.shape)}: they are [experts, features], twice [experts, hidden, features] and [experts, "
                              "features, hidden]")
        experts, hidden, features = gate.shape
        made = cls(features, hidden, experts, top_k, device="meta", **options)
        made.router = _nn.Parameter(router.detach().clone())
        made.gate_up = _nn.Parameter(torch.cat([gate.detach(), up.detach()], dim=1))
        made.down = _nn.Parameter(down.detach().clone())
        return made

    def route(self, rows: Any) -> tuple[Any, Any]:
        """The weights of each token's experts, float32 [tokens, top_k], and their numbers. Those of no expert, such as -1, add nothing."""
        logits = _ops.gemm.default(rows, self.router.t(), out_dtype=torch.float32)
        over_all = self.softmax == "before" and not self.normalise
        if takes(self.experts, self.top_k):
            weights, experts = _ops.choose_experts.default(logits, self.top_k, over_all)
            return weights, experts
        if not over_all:
            chosen, experts = logits.topk(self.top_k, dim=-1)
            return chosen.softmax(-1), experts
        weights, experts = logits.softmax(-1).topk(self.top_k, dim=-1)
        return weights, experts

    def forward(self, x: Any) -> Any:
        """x [..., features] gives [..., features]."""
        if not x.ndim or x.shape[-1] != self.features:
            raise LaunchError(f"x has shape {tuple(x.shape)}: it is [..., {self.features}], the features of a token last")
        rows = with_contiguous_rows(x.reshape(math.prod(x.shape[:-1]), self.features))
        weights, experts = self.route(rows)
        routing = by_expert(experts, self.experts)
        token, gate_up = routing.token, self.gate_up.mT
        product = _ops.grouped_gemm if self.quantize is None else _ops.quantized_grouped_gemm
        if self.gather:
            hidden = product(rows, gate_up, routing.offs, activation="silu_and_mul", gather=token, back=routing.slot)
        else:
            own = _ops.combine.default(rows, token[:, None], back=routing.slot)
            hidden = product(own, gate_up, routing.offs, activation="silu_and_mul")
        given = product(hidden, self.down.mT, routing.offs)
        return _ops.combine.default(given, routing.slot, weights, back=routing.choice[:, None]).view(x.shape)

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"features={self.features}, hidden={self.hidden}, experts={self.experts}, top_k={self.top_k}, softmax={self.softmax!r}" + \
            ", normalise=True" * self.normalise + ", gather=False" * (not self.gather and self.quantize is None) + \
            f", quantize={self.quantize!r}" * (self.quantize is not None)


__all__ = ["MoE", "by_expert"]
