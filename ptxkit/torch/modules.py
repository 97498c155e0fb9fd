"""Layers whose products are those of this package, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ptxkit.errors import LaunchError

from .framework import torch

_nn: Any = torch.nn
_ops: Any = torch.ops.ptxkit
_TAKEN = "torch._subclasses", "torch.distributed.tensor"
"""Modules of torch whose classes of tensors the operators take: those that torch.compile traces with, and DTensor."""
LEAST = 8
"""Elements of 2 bytes, as float32 has under torch.autocast: lines that begin at multiples of these 16 bytes are loaded by tensor copies."""


class Linear(_nn.Linear):  # type: ignore[misc]
    """`torch.nn.Linear` with the products of this package: the same arguments, parameters and state_dict.

    Weights of float32 are multiplied as tf32, unless torch.autocast casts them. Any number of extents may come before the last one of x.
    """

    def forward(self, x: Any) -> Any:
        """x @ weight.T + bias, in one launch."""
        return _ops.gemm.default(x, self.weight.t(), self.bias)


class GatedMLP(_nn.Module):  # type: ignore[misc]
    """down(silu(gate(x)) * up(x)), as in Llama: two launches forward, since the first multiplies by both and stores their product.

    `gate_up` has the rows of the gate, then those of the up projection: [2 hidden, features]. `down` is [features, hidden]. There are no
    biases. The backward pass computes gate and up again rather than keep them. The parameters are float16 or bfloat16, or float32 under
    torch.autocast, and `features` is a multiple of 8.
    """

    def __init__(self, features: int, hidden: int, *, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.features, self.hidden = features, hidden
        self.gate_up = _nn.Parameter(torch.empty(2 * hidden, features, device=device, dtype=dtype))
        self.down = _nn.Parameter(torch.empty(features, hidden, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Parameters as `torch.nn.Linear` begins with them: uniform within 1 / sqrt(K)."""
        for weight in (self.gate_up, self.down):
            bound = weight.shape[1] ** -0.5 if weight.shape[1] else 0.0
            _nn.init.uniform_(weight, -bound, bound)

    @classmethod
    def of(cls, gate: Any, up: Any, down: Any) -> GatedMLP:
        """The same layer as three `torch.nn.Linear` without biases, with copies of their weights."""
        for name, layer in (("gate", gate), ("up", up), ("down", down)):
            if layer.bias is not None:
                raise LaunchError(f"{name} has a bias, and a GatedMLP has none: keep the three layers, which swap_linear takes")
        hidden, features = gate.weight.shape
        if up.weight.shape != gate.weight.shape or tuple(down.weight.shape) != (features, hidden):
            raise LaunchError(f"gate is {tuple(gate.weight.shape)}, up {tuple(up.weight.shape)} and down {tuple(down.weight.shape)}: they "
                              "are [hidden, features], the same, and [features, hidden]")
        made = cls(features, hidden, device="meta")
        made.gate_up = _nn.Parameter(torch.cat([gate.weight.detach(), up.weight.detach()]))
        made.down = _nn.Parameter(down.weight.detach().clone())
        return made

    def forward(self, x: Any) -> Any:
        """x [..., features] gives [..., features]."""
        return _ops.gemm.default(_ops.gated_gemm.default(x, self.gate_up.t()), self.down.t())

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"features={self.features}, hidden={self.hidden}"


@dataclass(frozen=True)
class Swapped:
    """What `swap_linear` did: the names of the layers that it replaced, and of those that it left, each with the reason."""

    replaced: tuple[str, ...]
    left: dict[str, str]

    def __str__(self) -> str:
        """A line for each layer that was left, after the number of those that were replaced."""
        return "\n".join([f"replaced {len(self.replaced)} of {len(self.replaced) + len(self.left)} linear layers",
                          *(f"left {name or 'the model'}: {why}" for name, why in self.left.items())])


def swap_linear(model: Any, *, float32: bool = False, wanted: Callable[[str, Any], bool] | None = None) -> Swapped:
    """Make every `torch.nn.Linear` of a model a `ptxkit.torch.Linear`, in place, and say which were left and why.

    A layer stays the object that it is, with its parameters, hooks and names, so that optimizers and tied weights are not disturbed. Left
    are layers of other types than float16 and bfloat16, subclasses of nn.Linear, whose forward pass may be another, weights that are
    sparse or of a class of their own, as quantisers leave them, layers without features, biases whose elements lie apart, and shapes
    whose rows are no multiples of 16 bytes. With `float32` layers of float32 are replaced, too, where their numbers of features are
    multiples of 8, which are these 16 bytes under torch.autocast: outside of it the layers are then multiplied as tf32.
    `wanted(name, layer)` may leave out more.
    """
    if not isinstance(model, _nn.Module):
        raise LaunchError(f"model is a {type(model).__name__}, not a torch.nn.Module: pass a torch.nn.ModuleList of several")
    replaced, left = [], {}
    for name, layer in model.named_modules():
        if not isinstance(layer, _nn.Linear) or type(layer) is Linear:
            continue
        why = _why_not(layer, float32) or ("it was not wanted" if wanted is not None and not wanted(name, layer) else "")
        if why:
            left[name] = why
        else:
            layer.__class__ = Linear
            replaced.append(name)
    return Swapped(tuple(replaced), left)


def _why_not(layer: Any, float32: bool) -> str:
    """Why a layer is left; empty if it is not."""
    if type(layer) is not _nn.Linear:
        return f"it is a {type(layer).__name__}, whose forward pass may be another than that of nn.Linear"
    if "forward" in vars(layer):
        return "its forward pass was replaced"
    for name in ("weight", "bias"):
        if what := _not_plain(getattr(layer, name)):
            return f"its {name} is {what}, which the products do not take"
    if layer.weight is None:
        return "it has no weight"
    dtype = layer.weight.dtype
    if dtype is torch.float32 and not float32:
        return "its weights are float32, which are multiplied as tf32: pass float32=True, for training under torch.autocast, say"
    if dtype not in (torch.float16, torch.bfloat16, torch.float32):
        return f"its weights are {dtype}"
    (features, k), bias = layer.weight.shape, layer.bias
    if not k:
        return "it has no features to multiply: its result is its bias, or 0"
    if bias is not None and (bias.shape != (features,) or (features > 1 and bias.stride() != (1,))):
        return (f"its bias has shape {tuple(bias.shape)} and strides {bias.stride()}, and the products take one of shape ({features},) "
                "whose elements are next to each other")
    if k % LEAST or features % LEAST:
        cast = ": under torch.autocast an element has 2" if dtype.itemsize > 2 else ""
        return f"it has {k} by {features} features, and rows that are no multiples of {LEAST * 2} bytes are slower{cast}"
    return ""


def _not_plain(parameter: Any) -> str:
    """What a parameter is that the operators refuse, a tensor of a quantiser's class, say; empty for one that they take, or for None."""
    if parameter is None:
        return ""
    kind = type(parameter)
    own = kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
    if own and not kind.__module__.startswith(_TAKEN):
        return f"a {kind.__name__}"
    return "" if parameter.layout is torch.strided else f"a tensor of the layout {parameter.layout}"


__all__ = ["GatedMLP", "Linear", "Swapped", "swap_linear"]
