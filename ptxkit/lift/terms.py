"""Operands as Python: the text that a lifted kernel has for each, and the value that this text has when it is traced."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..dsl import special
from ..dsl.label import Label
from ..dsl.module import ModuleBuilder
from ..dsl.raw import Param, Written, at
from ..dsl.reg import Negated, Reg, Special, sink
from ..dsl.trace import Builder
from ..grammar import tree
from ..grammar.forms import Parameter
from ..grammar.special import SPECIAL
from ..smem import SharedPlan
from ..types import TYPES, ScalarType


class Term(NamedTuple):
    """The text of an argument and its value."""

    text: str
    value: Any


@dataclass
class Names:
    """What a function's names are in Python, and the values that stand for them while the lifter tries calls."""

    registers: dict[str, str]
    types: dict[str, ScalarType]
    parameters: dict[str, str]
    labels: dict[str, str]
    used: set[str] = field(default_factory=set)
    builder: Builder = field(default_factory=lambda: scratch())

    def register(self, name: str) -> Term:
        return Term(self.registers[name], Reg(self.builder, name, self.types[name]))

    def use(self, helper: str) -> str:
        """The name of something that the lifted file imports."""
        self.used.add(helper)
        return helper


def scratch() -> Builder:
    """A trace that nobody reads."""
    plan = SharedPlan("scratch")
    return Builder(ModuleBuilder("scratch", "sm_90a", None, (1, 1, 1), plan), "scratch")


SPECIALS: dict[str, tuple[str, str]] = {}
"""Special registers that ptxkit has by name: what to import, and how it is spelled."""

for _name, _value in vars(special).items():
    if isinstance(_value, Special):
        SPECIALS[_value.name] = (_name, _name)
    elif isinstance(_value, special.Dim3):
        SPECIALS.update({f"%{_name}.{axis}": (_name, f"{_name}.{axis}") for axis in "xyz"})


def term(names: Names, parameter: Parameter, operand: tree.Operand) -> Term:
    """How the operand of this parameter is written in Python."""
    if parameter.operand.kind in ("vector", "coordinates") and isinstance(operand, tree.Vector):
        elements = [_single(names, parameter, element) for element in operand.elements]
        comma = "," if len(elements) == 1 else ""
        return Term(f"({', '.join(e.text for e in elements)}{comma})", tuple(e.value for e in elements))
    return _single(names, parameter, operand)


def _single(names: Names, parameter: Parameter, operand: tree.Operand) -> Term:
    given = parameter.operand
    if isinstance(operand, tree.Integer):
        return Term(integer(parameter, operand.value), operand.value)
    if isinstance(operand, tree.Float):
        return _float(names, str(given.type), operand)
    if isinstance(operand, tree.Address) and not operand.unified:
        return _address(names, parameter, operand)
    if isinstance(operand, tree.Not) and isinstance(operand.operand, tree.Name) and operand.operand.name in names.registers:
        register = names.register(operand.operand.name)
        return Term(f"~{register.text}", Negated(register.value))
    if isinstance(operand, tree.Name):
        name = operand.name
        if name in names.registers:
            register = names.register(name)
            if given.tag == "descriptor":
                return Term(f"{names.use('raw')}({register.text})", Written(tree.Name(name)))
            return register
        if name == "_":
            return Term(names.use("sink"), sink)
        if name in names.labels:
            return Term(names.labels[name], _label(name))
        if given.kind == "special":
            return _special(names, name)
        if given.kind == "symbol" and name in names.parameters:
            return Term(names.parameters[name], Param(name))
        if given.kind in ("label", "function", "symbol") and name not in names.parameters:
            return Term(f'"{name}"', name)
    return raw(names, operand)


def integer(parameter: Parameter, value: int) -> str:
    """Masks and other patterns of bits in hexadecimal, numbers in decimal."""
    bits = str(parameter.operand.type).startswith("b") or parameter.operand.tag in ("members", "mask", "descriptor")
    return hex(value) if bits and value > 1024 and value & (value - 1) else str(value)


def _float(names: Names, type: str, operand: tree.Float) -> Term:
    value = operand.value
    if math.isfinite(value) and tree.Float.of(value, 32 if type == "f32" else 64) == operand:
        text = repr(value)
        short = f"{value:.9g}"
        if operand.width == 32 and "e" not in text and tree.Float.of(float(short), 32) == operand and any(c in short for c in ".e"):
            text, value = short, float(short)
        return Term(text, value)
    return raw(names, operand)


def _address(names: Names, parameter: Parameter, operand: tree.Address) -> Term:
    space = str(parameter.operand.space)
    if isinstance(operand.base, tree.Integer):
        return Term(f"{names.use('at')}({operand.base.value})", Written(operand, {}))
    name = operand.base.name
    barrier = parameter.operand.tag == "mbarrier" and bool(space)
    if name in names.registers:
        register = names.register(name)
        type = register.value.type
        if not _plus(operand) and not barrier and type.register in ("b32", "b64") and (type.bits == 64 or space.startswith("shared")):
            return register
        text = f"{names.use('at')}({register.text}{_plus(operand)})"
        return Term(text, Written(operand, {name: type.__name__}))
    if name in names.parameters:
        if not _plus(operand):
            return Term(names.parameters[name], Param(name))
        return Term(f"{names.use('at')}({names.parameters[name]}{_plus(operand)})", Written(operand, {}))
    return Term(f'{names.use("at")}("{name}"{_plus(operand)})', Written(operand, {}))


def _plus(operand: tree.Address) -> str:
    return f", {operand.offset}" if operand.offset or operand.displaced else ""


def _special(names: Names, name: str) -> Term:
    if name in SPECIALS:
        imported, text = SPECIALS[name]
        return Term(text, Special(name, TYPES[SPECIAL[name]])) if names.use(imported) else Term(text, None)
    type = SPECIAL.get(name, "u32")
    names.use(type)
    return Term(f'{names.use("Special")}("{name}", {type})', Special(name, TYPES[type]))


def raw(names: Names, operand: tree.Operand) -> Term:
    """Any operand as PTX writes it."""
    text, values = template(names, (operand,))
    return Term(f"{names.use('raw')}({quoted(text)}{''.join(f', {v}' for v in values)})", Written(operand))


def template(names: Names, operands: tuple[tree.Operand, ...]) -> tuple[str, list[str]]:
    """The operands as PTX text with `{}` for registers, labels and parameters, and what stands there."""
    from ..grammar.write import write_operand
    from .scopes import mapped

    texts: list[str] = []
    values: list[str] = []
    for operand in operands:
        found: list[str] = []

        def note(name: str, found: list[str] = found) -> str:
            base, _, axis = name.rpartition(".")
            known = names.registers.get(name) or names.labels.get(name) or names.parameters.get(name)
            if known is None and base in names.registers:
                found.append(names.registers[base])
                return f"\0{len(found) - 1}\0.{axis}"
            if known is None:
                return name
            found.append(known)
            return f"\0{len(found) - 1}\0"

        pieces = write_operand(mapped(operand, note)).split("\0")
        values += [found[int(piece)] for piece in pieces[1::2]]
        texts.append("{}".join(pieces[0::2]))
    return ", ".join(texts), values


def quoted(text: str) -> str:
    """A Python string in double quotes."""
    if '"' not in text and "\\" not in text:
        return f'"{text}"'
    return f"'{text}'" if "'" not in text and "\\" not in text else repr(text)


def _label(name: str) -> Label:
    made = object.__new__(Label)
    made.name = name
    return made


def register_types(types: Mapping[str, str]) -> dict[str, ScalarType]:
    """The DSL's types by name."""
    return {name: TYPES[type] for name, type in types.items()}


__all__ = ["SPECIALS", "Names", "Term", "at", "integer", "quoted", "raw", "register_types", "scratch", "template", "term"]
