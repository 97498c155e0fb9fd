"""What ptxas takes and PTX does not mean so: parts of numbers, sums, one value for a vector. It is to review."""

from __future__ import annotations

from collections.abc import Iterator

from ..grammar import forms, match, tree
from ..grammar.errors import Finding
from ..grammar.operands import width
from .places import Place, finding


def odd(signature: forms.Signature, parameter: forms.Parameter, place: Place) -> Finding:
    """A sum where a register is due, or one value for a whole vector."""
    what, fix = (("is one value for a whole vector: PTX does not say what its lanes become", "write a value for each lane in braces")
                 if match.lone(signature, parameter) else ("is a sum, which ptxas adds up with another instruction", "add it before"))
    return finding("operands", f"`{signature.opcode}`: operand `{parameter.name}` {what}", fix, place, "review", "language",
                   signature.opcode)


def cut(signature: forms.Signature, parameter: forms.Parameter, value: tree.Integer | tree.Vector, place: Place) -> Iterator[Finding]:
    """A number that is too large for the operand's type: ptxas takes its lowest bits."""
    for number in value.elements if isinstance(value, tree.Vector) else (value,):
        left = match.cut(parameter.operand, number) if isinstance(number, tree.Integer) else None
        if left is not None and isinstance(number, tree.Integer):
            what = f"`{signature.opcode}`: operand `{parameter.name}` is {number.value}, of which "
            yield finding("operands", f"{what}{width(str(parameter.operand.type))} bits hold {left}",
                          f"write {left} if that is meant", place, "review", "language", str(number.value))
