"""The parameters of a kernel: what an annotation declares, and the value that stands for it in the kernel's body."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin

from ..grammar import tree
from ..grammar.errors import Position
from ..types import ScalarType, u64
from . import raw
from .reg import Ptr
from .tensormap import TensorMapParameter
from .trace import Builder


@dataclass(frozen=True, slots=True)
class Parameter:
    """One kernel parameter: kind "tensormap", "pointer", "scalar" or "bytes", and its element or scalar type.

    `declaration` is that of a `Param`, which the kernel reads itself.
    """

    name: str
    kind: str
    type: ScalarType | None
    declaration: tree.Variable | None = None


def given(name: str, hint: Any) -> Parameter | None:
    """The parameter that a `Param` annotation declares, None for any other annotation."""
    inner, *text = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    if get_origin(inner) is not raw.Param:
        return None
    (of,) = get_args(inner)
    pointer = get_origin(of) is Ptr
    type_ = get_args(of)[0] if pointer else of
    type_ = None if type_ is Any else type_
    if not text:
        if pointer:
            return Parameter(name, "pointer", type_, tree.Variable("param", "u64", name))
        return Parameter(name, "scalar", of, tree.Variable("param", of.__name__, name))
    variable = raw.parameter(text[0])
    if variable.shape:
        map_ = variable.type == "b8" and variable.shape == (128,) and (variable.align or 0) >= 64
        return Parameter(variable.name, "tensormap" if map_ else "bytes", None, variable)
    if variable.pointer and not pointer:
        return Parameter(variable.name, "pointer", None, variable)
    return Parameter(variable.name, "pointer" if pointer else "scalar", type_, variable)


def declared(parameter: Parameter) -> tree.Variable:
    """The `.param` of an entry."""
    if parameter.declaration is not None:
        return parameter.declaration
    if parameter.kind == "tensormap":
        return tree.Variable("param", "b8", parameter.name, align=64, shape=(128,))
    if parameter.kind == "pointer":
        return tree.Variable("param", "u64", parameter.name, pointer=tree.Pointer("global", 1))
    assert parameter.type is not None
    name = parameter.type.__name__
    fundamental = name[0] in "usbf" and name[1:].isdigit()
    return tree.Variable("param", name if fundamental else f"b{parameter.type.bits}", parameter.name)


def argument(builder: Builder, parameter: Parameter, here: Position) -> Any:
    """What the kernel's Python function is called with."""
    name = tree.Name(parameter.name)
    if parameter.declaration is not None:
        return raw.Param(parameter.name)
    if parameter.kind == "tensormap":
        address, generic = builder.register(u64), builder.register(u64)
        builder.emit("mov.b64", (address.operand(), name), position=here)
        builder.emit("cvta.param.u64", (generic.operand(), address.operand()), position=here)
        return TensorMapParameter(parameter.name, generic)
    assert parameter.type is not None
    if parameter.kind == "pointer":
        loaded, pointer = builder.register(u64), builder.register(u64)
        builder.emit("ld.param.u64", (loaded.operand(), tree.Address(name)), position=here)
        builder.emit("cvta.to.global.u64", (pointer.operand(), loaded.operand()), position=here)
        return Ptr(pointer, parameter.type)
    value = builder.register(parameter.type)
    builder.emit(f"ld.param.{declared(parameter).type}", (value.operand(), tree.Address(name)), position=here)
    return value


__all__ = ["Parameter", "argument", "declared", "given"]
