"""Registers that decide something and that nothing writes: predicates of guards and branches, bases of addresses."""

from __future__ import annotations

from collections.abc import Iterator

from ..grammar import tree
from ..grammar.errors import Finding
from .analysis import Analysis
from .names import names_in
from .program import Site
from .values import Value

RULES = {"register-undefined": "a branch, a guard or an address depends on a register that nothing has written"}

FOLLOWED = frozenset(("mov", "cvt", "cvta", "add", "sub", "mul", "mad", "shl", "shr", "setp", "not"))
"""Operations whose result is as undefined as an operand: `and` or `selp` may not need it."""


def findings(analysis: Analysis) -> Iterator[Finding]:
    said: set[tuple[str, int]] = set()
    elsewhere = {name for site in analysis.sites if site.control in ("call", "unknown") or site.mnemonic == "call"
                 for operand in site.instruction.operands for name in names_in(operand)}
    known: dict[tuple[Value, int], Value | None] = {}
    for site in analysis.sites:
        for name, what in _decisive(site):
            if name not in analysis.routine.registers:
                continue
            undefined = _undefined(analysis, analysis.values.register(site, name), known)
            if undefined is not None and undefined.name not in elsewhere and (undefined.name, undefined.block) not in said:
                said.add((undefined.name, undefined.block))
                through = f"computed from `{_short(undefined.name)}`" if name != undefined.name else f"`{_short(name)}`"
                yield analysis.report(
                    "register-undefined", site, f"{what} of `{site.name}` is {through}, and nothing has written that on any way here",
                    "write the register before, or name the one that is meant", "error")


def _short(name: str) -> str:
    """The name without the scope."""
    return name.rpartition(":")[2]


def _decisive(site: Site) -> Iterator[tuple[str, str]]:
    if site.instruction.guard is not None:
        yield site.instruction.guard.predicate, "the predicate"
    for value in site.values:
        if isinstance(value, tree.Address) and isinstance(value.base, tree.Name):
            yield value.base.name, "the address"


def _undefined(analysis: Analysis, value: Value, known: dict[tuple[Value, int], Value | None], depth: int = 0) -> Value | None:
    """The undefined register that the value comes from, whatever path is taken. `known` are answers: many ways may lead to one value."""
    if value.kind == "unknown" and value.name:
        return value
    if value.kind != "op" or value.site is None or value.site.mnemonic not in FOLLOWED or depth > 20:
        return None
    given = analysis.values.arguments(value)
    if len(given) == 2 and given[0] is given[1] and value.site.mnemonic in ("sub", "setp"):
        return None  # whatever it is, it equals itself
    if (value, depth) not in known:
        arguments = (_undefined(analysis, argument, known, depth + 1) for argument in given)
        known[value, depth] = next((found for found in arguments if found is not None), None)
    return known[value, depth]
