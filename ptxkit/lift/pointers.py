"""Which parameters of an entry are pointers, and to elements of which width: seen from what is loaded and stored through them."""

from __future__ import annotations

import re

from ..grammar import tree
from ..grammar.walk import instructions
from .scopes import flattened, names

_PASSES = re.compile(r"(?:mov|cvta|add|sub|mad|fma|selp|prefetch)\b")
_ACCESS = re.compile(r"(?:ld|st|red|atom|ldu)\b(?!\.(?:param|shared|local|const))")
_WIDTH = re.compile(r"[busf]f?(\d+)$")


def pointers(entry: tree.Function) -> dict[str, int | None]:
    """Bits of the elements by parameter; None where they differ or are not known."""
    wide = {v.name for v in entry.parameters if v.type in ("u64", "b64", "s64") and not v.shape}
    origin: dict[str, str] = {}
    found: dict[str, set[int]] = {}
    for instruction in instructions(flattened(entry).statements):
        operands = instruction.operands
        match operands:
            case (tree.Name(name), tree.Address(base=tree.Name(source), offset=0)) if instruction.opcode.startswith("ld.param"):
                if source in wide:
                    origin[name] = source
                continue
        if _PASSES.match(instruction.opcode) and operands and isinstance(operands[0], tree.Name):
            sources = {origin[n] for operand in operands[1:] for n in names(operand) if n in origin}
            if len(sources) == 1:
                origin.setdefault(operands[0].name, sources.pop())
            if instruction.opcode.startswith("cvta.to.global") and operands[0].name in origin:
                found.setdefault(origin[operands[0].name], set())
        elif _ACCESS.match(instruction.opcode):
            width = _WIDTH.search(instruction.opcode)
            for operand in operands:
                if isinstance(operand, tree.Address) and isinstance(operand.base, tree.Name) and operand.base.name in origin:
                    found.setdefault(origin[operand.base.name], set()).add(int(width[1]) if width else 0)
    return {name: bits.pop() if len(bits) == 1 else None for name, bits in found.items()}
