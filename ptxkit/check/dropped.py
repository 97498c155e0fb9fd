"""Results that nothing takes, which only a trace knows: in PTX text a register that nothing reads may be a compiler's."""

from __future__ import annotations

from collections.abc import Iterator

from ..dsl.dropped import RULES
from ..dsl.traced import Traced
from ..grammar import tree
from ..grammar.errors import Finding
from ..grammar.walk import instructions
from .places import Places


def findings(module: tree.Module, places: Places, traced: Traced) -> Iterator[Finding]:
    """`module` is the trace's, with lines."""
    lost = {(each.function, each.result): each for each in traced.dropped}
    for function in (item for item in module.items if lost and isinstance(item, tree.Function)):
        for instruction in instructions(function.body or ()):
            if instruction.operands and (found := lost.get((function.name, instruction.operands[0]))) is not None:
                place = places.of(instruction.position)
                yield found.finding(place.line, place.column)


__all__ = ["RULES", "findings"]
