"""How Python calls an opcode, what each operand means, and where the parts of a packed result come from: all from the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..grammar import forms, summaries
from ..grammar.schema import Operand
from ..grammar.spelling import python_name
from ..types import TYPES

PAIRS = frozenset(name for name in TYPES if name.endswith("x2"))
"""Types of two values in a register."""


def calls(signature: forms.Signature) -> tuple[str, ...]:
    """The calls of a form: one that gives fresh registers, and one that writes into registers that come first."""
    name = f"ptx.{'.'.join(python_name(signature.opcode.split('.')))}"
    written, read, options = list[str](), list[str](), list[str]()
    for parameter in signature.parameters:
        operand = parameter.operand
        if parameter.optional or operand.default is not None:          # `...`: what the layout of the operand says
            options.append(f"{parameter.name}={_default(operand)}")
        else:
            (written if operand.access == "w" else read).append(parameter.name)
    given = [read] if not written else [read, [*written, *read]]
    found = [f"{name}({', '.join([*names, *options, 'pred=None'])})" for names in given]
    if written:
        found[0] = f"{', '.join(written)} = {found[0]}"
    return tuple(found)


def _default(operand: Operand) -> str:
    return "..." if operand.tag == "transpose" else str(operand.default)


def meaning(opcode: str, name: str, names: Sequence[str]) -> str:
    """What one of these operands means."""
    if opcode.startswith("setp.") and name in ("p", "q") and _pairs(opcode):
        return f"whether it holds of the {'lower' if name == 'p' else 'upper'} halves"
    return summaries.operand(opcode, name, alone="b" not in names)


def _pairs(opcode: str) -> bool:
    """Whether an operand has two values in a register."""
    return not PAIRS.isdisjoint(opcode.split("."))


def packed(signature: forms.Signature) -> Iterator[str]:
    """Where the parts of what holds several values come from, or go to."""
    mnemonic, *tokens = signature.opcode.split(".")
    names = {parameter.name: parameter.operand for parameter in signature.parameters}
    pairs = _pairs(signature.opcode)
    if mnemonic == "cvt" and pairs and {"a", "b"} <= names.keys():
        yield "the upper half of `d` comes from `a`, the lower half from `b`"
    elif pairs and (mnemonic in ("atom", "red") or "red" in tokens):
        yield "each half on its own: one of `b` with the same half of what is in memory"
    elif pairs and mnemonic not in ("setp", "tex") and names.get("d") is not None:
        yield "each half on its own: the lower halves give the lower half, the upper ones the upper half"
    for name, operand in names.items():
        if mnemonic == "mov" and operand.kind == "vector":
            yield f"the first register of `{name}` has the lowest bits"
        elif mnemonic in ("ld", "ldu", "st", "multimem") and operand.kind == "vector":
            yield f"the first register of `{name}` has the lowest address"
