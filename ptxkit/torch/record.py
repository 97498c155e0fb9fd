"""What torch does around an operator: it records it for gradients, under the transforms of torch.func too, and casts for autocast."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from ptxkit.errors import LaunchError

from .framework import torch

_OWN = "torch._subclasses"          # of torch.compile
_functorch: Any = torch._functorch.autograd_function


class Recorder(NamedTuple):
    """Two ways to run an operator and record it for gradients: `plain` takes tensors alone, `whole` also the wrappers of torch.func."""

    plain: Callable[..., Any]
    whole: Callable[..., Any]


def recorder(name: str, forward: Callable[..., Any], backward: Callable[..., Any]) -> Recorder:
    """What runs an operator and records it. A transform of torch.func comes to the operator once for each of its levels, so that the
    function that is recorded is one of a single level there."""
    def recorded_below(ctx: Any, *given: Any) -> Any:
        with torch.enable_grad(), torch.autograd.forward_ad._set_fwd_grad_enabled(True):    # which a forward pass turns off, for all levels
            return forward(ctx, *given)

    def function(base: Any, forward: Callable[..., Any]) -> Any:
        return type(f"Ptxkit_{name}", (base,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})

    usual, single = function(torch.autograd.Function, forward), function(torch.autograd.function._SingleLevelFunction, recorded_below)
    transformed, whole = torch._C._are_functorch_transforms_active, usual.apply

    def record(*given: Any) -> Any:
        if not transformed():
            return whole(*given)
        with _functorch.enable_single_level_autograd_function():
            return single.apply(*given)

    return Recorder(super(torch.autograd.Function, usual).apply, record)       # `usual.apply` unwraps its arguments first


def below_autograd(name: str, overload: Any, gpu: Callable[..., Any], cpu: Callable[..., Any]) -> Callable[..., Any]:
    """What runs an operator below autograd, by the keys of the dispatcher: it is dispatched again, or, where nothing is left to dispatch
    to but its kernel of a device, it is that kernel. What keys say is asked once; a call of the dispatcher costs 2 us."""
    after, redispatch, below = torch._C._after_autograd_keyset, overload._handle.redispatch_boxed, torch._C._AutoDispatchBelowAutograd

    def dispatched(keys: Any, *given: Any) -> Any:
        try:
            with below():
                return redispatch(keys & after, *given)
        except NotImplementedError as error:
            refuse_subclasses(name, given, error)
            raise
        except RuntimeError as error:           # of a DTensor's rule, about what the operator itself refused
            if isinstance(error.__cause__, LaunchError):
                raise error.__cause__ from None
            raise

    devices = {torch._C.DispatchKey.CUDA: gpu, torch._C.DispatchKey.CPU: cpu}
    straight: dict[int, Callable[..., Any] | None] = {}

    def kernel(keys: Any) -> Callable[..., Any]:
        seen = keys.raw_repr()
        if seen not in straight:
            straight[seen] = devices.get((keys & after).highestPriorityTypeId())
        return straight[seen] or functools.partial(dispatched, keys)

    return kernel


def is_plain(tensor: Any) -> bool:
    """Whether a call of the dispatcher with such tensors would do no more than call the kernel of their device: torch records nothing, no
    mode or transform is active, and the tensor is neither a wrapper nor a view that is negated."""
    if torch.compiler.is_dynamo_compiling() or _enabled() or _modes() or _transformed() or type(tensor) is not torch.Tensor:
        return False
    keys = _keys(tensor)
    seen = keys.raw_repr()
    if seen not in _plain:
        below = keys & torch._C._after_ADInplaceOrView_keyset
        _plain[seen] = below.highestPriorityTypeId() in _DEVICES and not any(keys.has(wrapper) for wrapper in _WRAPPERS)
    return _plain[seen]


_enabled, _modes, _transformed, _keys = (torch.is_grad_enabled, torch._C._len_torch_dispatch_stack,
                                         torch._C._are_functorch_transforms_active, torch._C._dispatch_keys)
_DEVICES = torch._C.DispatchKey.CUDA, torch._C.DispatchKey.CPU
_WRAPPERS = torch._C.DispatchKey.FuncTorchBatched, torch._C.DispatchKey.FuncTorchGradWrapper
_plain: dict[int, bool] = {}


def refuse_subclasses(name: str, given: tuple[Any, ...], error: NotImplementedError) -> None:
    """Raise LaunchError if an argument is of a class of tensors with operators of its own, of which this is none."""
    for each in given:
        kind = type(each)
        if isinstance(each, torch.Tensor) and kind not in (torch.Tensor, torch.nn.Parameter) and not kind.__module__.startswith(_OWN):
            raise LaunchError(f"an argument of {name} is a {kind.__name__}, whose class has no rule for it ({str(error).splitlines()[0]}): "
                              "pass the plain tensors that it stands for, values() of a nested one, say") from error


def refuse_tangents(name: str, given: tuple[Any, ...]) -> None:
    """Raise LaunchError for an argument with a tangent: forward mode would lose it."""
    for each in given:
        if isinstance(each, torch.Tensor) and torch.autograd.forward_ad.unpack_dual(each).tangent is not None:
            raise LaunchError(f"an argument of {name} has a tangent, and the operators have no forward mode: take gradients backward, with "
                              "torch.func.grad or torch.func.vjp")


def autocast(operator: Any, device: str, places: tuple[int, ...]) -> Callable[..., Any]:
    """Under torch.autocast operands of 16 and 32 bits are cast to its type; the rest of the arguments is taken as it is."""
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, f"Autocast{device}"))
    kind, castable = device.lower(), {torch.float32, torch.float16, torch.bfloat16}

    def cast(*arguments: Any, **named: Any) -> Any:
        wanted = torch.get_autocast_dtype(kind)
        try:
            given = [argument.to(wanted) if place in places and argument.dtype in castable else argument
                     for place, argument in enumerate(arguments)]
        except AttributeError:                  # of None, which the operator refuses
            given = [*arguments]
        with torch._C._ExcludeDispatchKeyGuard(keys):
            return operator(*given, **named)

    return cast


__all__ = ["autocast", "below_autograd", "is_plain", "recorder", "refuse_tangents"]
