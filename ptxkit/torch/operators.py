"""The operators `torch.ops.ptxkit`: their schemas, and what each dispatch key runs.

They are defined by `torch.library.Library`, whose calls cost the host a sixth of those of `torch.library.custom_op`. All arguments but
`out` may be given by position or by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ptxkit.errors import LaunchError

from . import attention, attention_decode, combine, cpu, fake, flops, gate, gradients, mapped, products, quantized, route, sharding
from . import weight_gradient as along_k
from .framework import torch
from .record import autocast, below_autograd, recorder, refuse_tangents
from .views import OF_NONE, naming_none, refuse_none, tensors_of

_DENSE = "Tensor? residual=None, Tensor? c=None, float alpha=1.0, float beta=0.0, str? activation=None, ScalarType? out_dtype=None, " \
         "bool batch_invariant=False"
_GROUPS = "str? activation=None, bool batch_invariant=False, bool clear_rest=False"
_SCALED = "Tensor a, Tensor b, Tensor scale_a, Tensor scale_b"


class Operator(NamedTuple):
    """One operator: its arguments, what runs it on a GPU (into new memory, into `out`), on the CPU device and without memory, and its
    gradients: what is kept for them and what computes them."""

    name: str
    arguments: str
    gpu: Callable[..., Any]
    gpu_out: Callable[..., Any] | None
    cpu: Callable[..., Any]
    fake: Callable[..., Any]
    save: Callable[..., Any]
    gradient: Callable[..., Any] | None
    casts: tuple[int, ...]
    """The places of the arguments that autocast casts."""
    plain: str = ""
    """The arguments of a second variant into `out`, `plain_out`, which has the first ones alone: each one that an operator may take costs
    the host a part of every call."""


class InPlace(NamedTuple):
    """An operator that changes its first argument and returns nothing. It has no gradients: a launch refuses what requires grad."""

    name: str
    arguments: str
    gpu: Callable[..., None]
    cpu: Callable[..., None]
    fake: Callable[..., None]
    casts: tuple[int, ...]


def _weight_gradient(launch: Callable[..., None]) -> Callable[..., Any]:
    """`weight_gradient` by `launch`."""
    def weight_gradient(a: Any, b: Any, offs: Any, out_dtype: Any = None, *, out: Any = None) -> Any:
        if launch is along_k.on_cpu:
            cpu.require()
        if out is not None:
            products.check_out(out, out_dtype)
        return along_k.weight_gradient(launch, a, b, offs, products.result_dtype(a, out_dtype), out)

    return weight_gradient


def _accumulate(launch: Callable[..., None]) -> Callable[..., None]:
    """`weight_gradient_` by `launch`."""
    def accumulate(out: Any, a: Any, b: Any, offs: Any) -> None:
        if launch is along_k.on_cpu:
            cpu.require()
        along_k.accumulate(launch, out, a, b, offs)
        changed((out,))

    return accumulate


def _into(function: Callable[..., Any]) -> Callable[..., None]:
    """The out variant of a function: torch makes no functional graph of an operator that returns what it was given. Autograd is told that
    `out` changes, so that it refuses a backward pass that would need what was there."""
    def into(*arguments: Any, out: Any, **named: Any) -> None:
        changed((out,))
        function(*arguments, out=out, **named)

    return into


changed = torch._C._increment_version


OPERATORS = (
    Operator("gemm", f"Tensor a, Tensor b, Tensor? bias=None, {_DENSE}", products.gemm, products.gemm_out, products.gemm_on_cpu, fake.gemm,
             gradients.save_gemm, gradients.gemm, (0, 1), plain="Tensor a, Tensor b, Tensor? bias=None"),
    Operator("scaled_gemm", f"{_SCALED}, Tensor? bias=None, ScalarType? out_dtype=None, bool use_fast_accum=False, Tensor? residual=None, "
             "str? activation=None, bool batch_invariant=False", products.scaled_gemm, _into(products.scaled_gemm_out),
             products.scaled_gemm_on_cpu, fake.scaled_gemm, gradients.none_of_scaled, None, ()),
    Operator("gated_gemm", "Tensor a, Tensor b, ScalarType? out_dtype=None", products.gated_gemm, _into(products.gated_gemm),
             products.gated_gemm_on_cpu, fake.gated_gemm, gradients.save_gated, gradients.gated, (0, 1)),
    Operator("grouped_gemm", f"Tensor a, Tensor b, Tensor offs, Tensor? bias=None, ScalarType? out_dtype=None, {_GROUPS}, "
             "Tensor? gather=None, Tensor? back=None",
             products.grouped_gemm, _into(products.grouped_gemm), products.grouped_gemm_on_cpu, fake.grouped_gemm, gradients.save_grouped,
             gradients.grouped, (0, 1)),
    Operator("scaled_grouped_gemm", f"{_SCALED}, Tensor offs, Tensor? bias=None, ScalarType? out_dtype=None, bool use_fast_accum=False, "
             f"{_GROUPS}", products.scaled_grouped_gemm, _into(products.scaled_grouped_gemm), products.scaled_grouped_gemm_on_cpu,
             fake.scaled_grouped_gemm, gradients.none_of_scaled, None, ()),
    Operator("quantized_grouped_gemm", f"Tensor a, Tensor b, Tensor offs, ScalarType? out_dtype=None, {_GROUPS}",
             quantized.quantized_grouped_gemm, _into(quantized.quantized_grouped_gemm), quantized.quantized_grouped_gemm_on_cpu,
             quantized.grouped_fake, gradients.save_quantized, gradients.quantized, (0, 1)),
    Operator("rounded_to_blocks", "Tensor x, str kind", quantized.rounded_to_blocks, None, quantized.rounded_to_blocks_on_cpu,
             quantized.rounded_fake, gradients.save_nothing, gradients.straight_through, ()),
    Operator("weight_gradient", "Tensor a, Tensor b, Tensor offs, ScalarType? out_dtype=None", _weight_gradient(along_k.on_gpu),
             _into(_weight_gradient(along_k.on_gpu)), _weight_gradient(along_k.on_cpu), fake.weight_gradient,
             gradients.save_weight_gradient, gradients.weight_gradient, (0, 1)),
    Operator("gate_gradient", "Tensor gradient, Tensor z", gate.of_gate, None, gate.of_gate_on_cpu, fake.gate_gradient,
             gradients.none_of_gate, None, ()),
    Operator("combine", "Tensor y, Tensor place, Tensor? weights=None, Tensor? starts=None, Tensor? back=None, ScalarType? out_dtype=None",
             combine.combine, _into(combine.combine), combine.combine_on_cpu, combine.combine_fake, combine.save, combine.gradient, ()),
    Operator("row_products", "Tensor a, Tensor first, Tensor b, Tensor second", combine.products, None, combine.products_on_cpu,
             combine.products_fake, combine.none_of_products, None, ()),
)

IN_PLACE = (
    InPlace("weight_gradient_", "Tensor(a!) out, Tensor a, Tensor b, Tensor offs", _accumulate(along_k.on_gpu),
            _accumulate(along_k.on_cpu), fake.accumulate, (1, 2)),
)

_REFUSED = {"SparseCPU": "sparse", "SparseCUDA": "sparse", "SparseCsrCPU": "sparse", "SparseCsrCUDA": "sparse",
            "NestedTensorCPU": "nested", "NestedTensorCUDA": "nested", "QuantizedCPU": "quantised", "QuantizedCUDA": "quantised",
            "MkldnnCPU": "mkldnn"}
OTHERS = ("attention", "attention_lse", "attention_decode", "attention_decode_lse", "choose_experts", "sort_choices")
"""The operators that their modules define."""
_library: Any = None


def define() -> None:
    """Define the operators, once a process."""
    global _library
    if _library is None:
        _library = torch.library.Library("ptxkit", "DEF")
        for operator in OPERATORS:
            _define(operator)
        for in_place in IN_PLACE:
            _define_in_place(in_place)
        attention.define(_library)
        attention_decode.define(_library)
        route.define(_library)
        for name in OTHERS:
            _refuse_kinds(name)
        torch.library.register_vmap("ptxkit::gemm", mapped.gemm, lib=_library)
        torch.library.register_vmap("ptxkit::gated_gemm", mapped.gated_gemm, lib=_library)
        flops.define()
        packets = [getattr(torch.ops.ptxkit, name) for name in (*(operator.name for operator in (*OPERATORS, *IN_PLACE)), *OTHERS)]
        sharding.define(_library, [getattr(packet, overload) for packet in packets for overload in packet.overloads()])


def _define(operator: Operator) -> None:
    name, tags = operator.name, (torch.Tag.pt2_compliant_tag,)
    _library.define(f"{name}({operator.arguments}) -> Tensor", tags=tags)
    for variant, arguments in (("plain_out", operator.plain), ("out", operator.arguments)):     # in the order in which torch tries them
        if operator.gpu_out is not None and arguments:
            _library.define(f"{name}.{variant}({arguments}, *, Tensor(a!) out) -> ()", tags=tags)
            _implement(f"{name}.{variant}", operator.gpu_out, _into(operator.cpu), _into(operator.fake))
            _library.impl(f"{name}.{variant}", torch.library.fallthrough_kernel, "Autograd")    # a launch refuses what requires grad
    _implement(name, operator.gpu, operator.cpu, operator.fake)
    _library.impl(name, differentiable(getattr(torch.ops.ptxkit, name).default, operator), "Autograd", with_keyset=True)
    for device in ("CUDA", "CPU") if operator.casts else ():
        _library.impl(name, autocast(getattr(torch.ops.ptxkit, name).default, device, operator.casts), f"Autocast{device}")


def _define_in_place(operator: InPlace) -> None:
    name = operator.name
    _library.define(f"{name}({operator.arguments}) -> ()", tags=(torch.Tag.pt2_compliant_tag,))
    _implement(name, operator.gpu, operator.cpu, operator.fake)
    _library.impl(name, torch.library.fallthrough_kernel, "Autograd")
    for device in ("CUDA", "CPU"):
        _library.impl(name, autocast(getattr(torch.ops.ptxkit, name).default, device, operator.casts), f"Autocast{device}")


def _implement(name: str, gpu: Callable[..., Any], cpu: Callable[..., Any], without_memory: Callable[..., Any]) -> None:
    packet, _, variant = name.partition(".")
    overload = getattr(getattr(torch.ops.ptxkit, packet), variant or "default")
    _library.impl(name, gpu if gpu in (products.gemm, products.gemm_out) else naming_none(overload, gpu), "CUDA")
    _library.impl(name, naming_none(overload, cpu), "CPU")
    _refuse_kinds(name)
    torch.library.register_fake(f"ptxkit::{name}", naming_none(overload, without_memory), lib=_library)


def _refuse_kinds(name: str) -> None:
    for key, kind in _REFUSED.items():
        _library.impl(name, _refuse(kind), key)


def _refuse(kind: str) -> Callable[..., Any]:
    def refuse(*arguments: Any, **named: Any) -> Any:
        raise LaunchError(f"an argument is a {kind} tensor: the operators take plain dense ones; convert it with .to_dense(), "
                          ".dequantize() or .to_padded_tensor()")

    return refuse


def differentiable(overload: Any, operator: Operator) -> Callable[..., Any]:
    """What runs where gradients may be recorded: torch.library.register_autograd in fewer steps, for it is a fifth of a call."""
    enabled, wanted, tangents = torch.is_grad_enabled, torch._C._any_requires_grad, torch.autograd.forward_ad
    kernel_of = below_autograd(operator.name, overload, operator.gpu, operator.cpu)
    kernels, operands = (operator.gpu, operator.cpu), tensors_of(overload)

    def forward(ctx: Any, run: Any, *given: Any) -> Any:
        result = run(*given)
        # Arguments that are their defaults are left out; the first one is `run`.
        ctx.wanted = ctx.needs_input_grad[1:] + left_out[len(given)]
        ctx.kernel = run if run in kernels else None
        operator.save(ctx, *given)
        return result

    def backward(ctx: Any, gradient: Any) -> Any:
        assert operator.gradient is not None
        if gradient.dtype.itemsize == 1:
            raise LaunchError(f"{operator.name} has a result of {gradient.dtype}, whose gradient is rounded to 8 bits: take another "
                              "out_dtype, or call it under torch.no_grad()")
        return None, *operator.gradient(ctx, gradient)

    count = len(overload._schema.arguments)
    left_out = [(False,) * (count - given) for given in range(count + 1)]
    record = recorder(operator.name, forward, backward)

    def call(keys: Any, *given: Any) -> Any:
        if tangents._current_level >= 0:
            refuse_tangents(operator.name, given)
        run = kernel_of(keys)
        try:
            if not (enabled() and wanted(*given)):
                return run(*given)
            return (record.plain if run in kernels else record.whole)(run, *given)
        except OF_NONE:
            refuse_none(operands, given, {})
            raise

    return call


__all__ = ["IN_PLACE", "OPERATORS", "OTHERS", "InPlace", "Operator", "define"]
