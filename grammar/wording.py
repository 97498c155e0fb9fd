"""Operands in the words of findings."""

from __future__ import annotations

from dataclasses import replace

from . import tree
from .forms import Group
from .operands import accepts, legal, width
from .schema import Operand, Range
from .write import write_operand

REGISTER_TYPES = ("pred", "b8", "b16", "b32", "b64", "b128", "f16", "f16x2", "f32", "f64")
SHOWN = 256
"""How many elements of an operand a finding writes out."""


def expected(operand: Operand) -> tuple[str, ...]:
    """What an operand accepts, in words."""
    kind, allowed = operand.kind, operand.immediate
    words = []
    if kind in ("register", "predicate"):
        words.append(wanted(operand))
    elif kind in ("vector", "coordinates"):
        words.append(f"{operand.count} in braces, each {wanted(operand)}")
    elif kind == "address":
        words.append(f"an address in .{operand.space}" if operand.space else "an address")
    elif kind not in ("immediate", "symbol"):
        words.append({"special": "a special register", "arguments": "a list in parentheses"}.get(kind, f"a {kind}"))
    if kind == "symbol" or operand.variable:
        words.append("a variable")
    if isinstance(allowed, Range):
        words.append(f"the integer {legal(allowed)}" if allowed.choices else f"an integer, {legal(allowed)}")
    if operand.float_immediate:
        words.append("a floating-point literal")
    if operand.sink:
        words.append("_")
    return tuple(words)


def wanted(operand: Operand) -> str:
    """The register that an operand accepts, in words."""
    if operand.type == "pred":
        return "a predicate"
    taken = [type for type in REGISTER_TYPES if accepts(operand, type)]
    shown = str(operand.type) if accepts(operand, str(operand.type)) and width(str(operand.type)) else "/.".join(taken)
    return f"a .{shown} register"


def shape(group: Group) -> str:
    """What a group of operands looks like, in words."""
    return {"address": "an address in brackets", "tensor": "a tensor map and coordinates in brackets",
            "pair": "two registers with a bar between", "arguments": "a list in parentheses"}.get(group.kind, "an operand")


def written(operand: tree.Operand) -> str:
    """An operand as text. A long list is cut off after its first elements."""
    if isinstance(operand, tree.Vector | tree.Arguments) and len(operand.elements) > SHOWN:
        operand = replace(operand, elements=operand.elements[:SHOWN])
        return f"{write_operand(operand)[:-1]}, ..."
    return write_operand(operand)
