"""The parameters of a kernel: the declaration of each annotation, and the value that the kernel's body gets for it.

A dataclass annotation is a record: each field is a PTX parameter named `parameter_field`, in the order of the fields. The body gets an
instance of the dataclass. A launch passes an instance, or a mapping from field names to values.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, Union, get_args, get_origin

from ..errors import TraceError
from ..grammar import tree
from ..grammar.errors import Position
from ..types import ScalarType, is_scalar, u64
from . import raw
from .author import hints_of
from .names import identifier, symbol
from .reg import Ptr, Reg
from .tensormap import TensorMap, TensorMapParameter
from .trace import Builder


@dataclass(frozen=True, slots=True)
class Parameter:
    """One kernel parameter: its kind, "tensormap", "pointer", "scalar" or "bytes", and its element or scalar type.

    `declaration` belongs to a `Param`, which the kernel's body reads itself.
    """

    name: str
    kind: str
    type: ScalarType | None
    declaration: tree.Variable | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """A dataclass parameter. Its fields are parameters or records."""

    name: str
    type: type
    fields: tuple[tuple[str, Parameter | Record], ...]

    def values(self, given: Any) -> Iterator[Any]:
        """The launch arguments of its parameters, from an instance or from a mapping of field names to values."""
        names = [name for name, _ in self.fields]
        if isinstance(given, self.type):
            found = [getattr(given, name) for name in names]
        elif isinstance(given, Mapping):
            missing, unknown = [name for name in names if name not in given], [name for name in given if name not in names]
            if missing or unknown:
                wrong = f"`{missing[0]}` is missing" if missing else f"there is no {unknown[0]!r}"
                raise TraceError(f"`{self.name}` is a {self.type.__name__} of {', '.join(names)}: {wrong}")
            found = [given[name] for name in names]
        else:
            raise TraceError(f"`{self.name}` is a {self.type.__name__}: pass one, or a mapping of {', '.join(names)}, not {given!r}")
        for (_, part), value in zip(self.fields, found, strict=True):
            yield from part.values(value) if isinstance(part, Record) else (value,)


def described(name: str, hint: Any, where: str, here: Position) -> Parameter | Record:
    """The parameter or record that an annotation declares. Raises TraceError at the kernel for any other annotation."""
    if (made := given(name, hint)) is not None:
        return made
    if is_dataclass(hint) and isinstance(hint, type):
        hints = hints_of(hint, f"the dataclass `{hint.__name__}`, parameter `{name}` of kernel `{where}`")
        names = [identifier(field.name, f"rename the field of `{hint.__name__}`") for field in fields(hint)]
        return Record(name, hint, tuple((field, described(f"{name}_{field}", hints[field], where, here)) for field in names))
    if get_origin(hint) in (Union, types.UnionType):                        # `Reg[u32] | int`: a record that host code makes too
        on_device = [arm for arm in get_args(hint) if get_origin(arm) in (Ptr, Reg)]
        hint = on_device[0] if len(on_device) == 1 else hint
    origin, args = get_origin(hint), get_args(hint)
    if hint is TensorMap:
        return Parameter(name, "tensormap", None)
    if origin is Ptr and args and is_scalar(args[0]):
        return Parameter(name, "pointer", args[0])
    if origin is Reg and args and is_scalar(args[0]) and args[0].bits in (8, 16, 32, 64):
        return Parameter(name, "scalar", args[0])
    if hint is None and name in ("self", "cls"):
        raise TraceError(f"kernel `{where}` is a method, and a launch has no `{name}`: make it a staticmethod, or a function outside of "
                         "the class", here)
    annotated = "has no type" if hint is None else f"is annotated {hint!r}"
    raise TraceError(f"parameter `{name}` of kernel `{where}` {annotated}: write TensorMap, Ptr[type], Reg[type], or a dataclass "
                     "of these", here)


def flat(parameters: Sequence[Parameter | Record]) -> tuple[Parameter, ...]:
    """The parameters in the order of PTX."""
    found: list[Parameter] = []
    for parameter in parameters:
        found += flat([part for _, part in parameter.fields]) if isinstance(parameter, Record) else [parameter]
    return tuple(found)


def values(parameters: Sequence[Parameter | Record], args: Sequence[Any], named: Mapping[str, Any] | None = None) -> tuple[Any, ...]:
    """The launch arguments of `flat(parameters)`: `args` are for the first parameters, `named` for the others by name."""
    if len(args) > len(parameters):
        return tuple(args)                                                  # the launch checks their number
    given = list(args)
    for parameter in parameters[len(args):]:
        if not named or parameter.name not in named:
            break
        given.append(named[parameter.name])
    found: list[Any] = []
    for parameter, value in zip(parameters, given, strict=False):
        found += parameter.values(value) if isinstance(parameter, Record) else [value]
    return tuple(found)


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
    symbol(variable.name)
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
    fundamental = name[0] in "usbf" and name[1:].isdigit() and name != "f16"    # there is no ld.f16
    return tree.Variable("param", name if fundamental else f"b{parameter.type.bits}", parameter.name)


def argument(builder: Builder, parameter: Parameter | Record, here: Position) -> Any:
    """The argument of the kernel's Python function."""
    if isinstance(parameter, Record):
        return parameter.type(**{name: argument(builder, part, here) for name, part in parameter.fields})
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


__all__ = ["Parameter", "Record", "argument", "declared", "described", "flat", "given", "values"]
