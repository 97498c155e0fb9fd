"""Results of calls without a destination, which only a trace knows: of PTX text they may be what a compiler means."""

from __future__ import annotations

from collections.abc import Iterator

from ..dsl.dropped import RULES, Result
from ..dsl.regions import accesses, names
from ..dsl.traced import Traced
from ..grammar import tree
from ..grammar.errors import Finding
from ..grammar.walk import instructions
from .places import Place, Places

STORES = ("st", "atom", "red")
CHOOSES = ("selp", "slct")
"""They may leave the value that holds nothing aside."""


def findings(module: tree.Module, places: Places, traced: Traced) -> Iterator[Finding]:
    """`module` is the trace's, with lines."""
    lost = {(each.function, each.result): each for each in traced.dropped}
    half = {(each.function, each.result): each for each in traced.guarded}
    for function in (item for item in module.items if (lost or half) and isinstance(item, tree.Function)):
        body = list(instructions(function.body or ()))
        for instruction in body:
            if instruction.operands and (found := lost.get((function.name, instruction.operands[0]))) is not None:
                place = places.of(instruction.position)
                yield found.finding(place.line, place.column)
        mine = {result: each for (name, result), each in half.items() if name == function.name}
        if mine:
            yield from _half(body, mine, places)


def _half(body: list[tree.Instruction], results: dict[tree.Operand, Result], places: Places) -> Iterator[Finding]:
    """The results that an instruction without a guard stores or adds to an older register, as they are or computed with, before the next
    branch.

    A register that a second instruction writes, with the opposite guard or before, is none.
    """
    written: dict[str, int] = {}
    for instruction in body:
        for name in accesses(instruction)[1]:
            written[name] = written.get(name, 0) + 1
    holds: dict[str, tuple[Result, Place]] = {}
    said: set[Result] = set()
    for instruction in body:
        mnemonic = instruction.opcode.partition(".")[0]
        if mnemonic in ("bra", "call", "brx"):
            holds.clear()
            continue
        read, made = accesses(instruction)
        found = results.get(instruction.operands[0]) if instruction.operands else None
        if found is not None and all(written[name] == 1 for name in names(found.result)):
            holds.update(dict.fromkeys(names(found.result), (found, places.of(instruction.position))))
            continue
        source = next((holds[name] for name in read if name in holds), None)
        if source is None or instruction.guard is not None:
            continue
        if mnemonic in STORES or (mnemonic not in CHOOSES and any(written[name] > 1 for name in made)):
            if source[0] not in said:
                said.add(source[0])
                reader = places.of(instruction.position)
                said_as = f"`{instruction.opcode}`{f' at {reader}' if reader.position else ''}"
                yield source[0].half(said_as, source[1].line, source[1].column)
        elif mnemonic not in CHOOSES:
            holds.update({name: source for name in made if written[name] == 1})


__all__ = ["RULES", "findings"]
