"""Where the boxes of tensor copies may begin: the copy engine moves 16 bytes at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from ..grammar import tree
from ..grammar.errors import Finding
from .analysis import Analysis
from .program import Site
from .values import Value

RULES = {
    "tensor-coordinate": "a tensor copy begins between multiples of 16 bytes of its array's contiguous dimension",
}

Certainty = Literal["always", "sometimes"]
DEEP = 6
"""Choices within choices that are looked into."""


def findings(analysis: Analysis) -> Iterator[Finding]:
    for site in analysis.sites:
        if site.mnemonic == "cp" and "tensor" in site.tokens:
            yield from _coordinate(analysis, site)


def _coordinate(analysis: Analysis, site: Site) -> Iterator[Finding]:
    """Of PTX text the element type is not known: no type makes an odd coordinate a multiple of 16 bytes."""
    operand = site.value("tensorCoords")
    if not isinstance(operand, tree.Vector) or any(token.startswith("im2col") for token in site.tokens):
        return
    innermost = analysis.values.of(site, operand.elements[0])
    address = analysis.tensormap(site)
    record = analysis.traced.copies.records.get(address.symbol or "") if analysis.traced and address and address.constant else None
    unit = 2 if record is None else max(1, 128 // record.type.bits)
    certainty = _between(analysis, innermost, unit)
    if certainty is None:
        return
    path = "" if certainty == "always" else " on some path"
    number = analysis.values.number(innermost)
    coordinate = f"the innermost coordinate{'' if number is None else f' {number}'}"
    if record is None or address is None:
        what, begin = f"{coordinate} is odd{path}: of no element type is that a multiple of 16 bytes", "a multiple of 16 bytes"
    else:
        what = f"{coordinate} of the {record.type.__name__} elements of `{address.symbol}` is no multiple of 16 bytes{path}"
        begin = f"a multiple of {unit} elements"
    yield analysis.report(
        "tensor-coordinate", site, f"`{site.name}`: {what}, where no box can begin",
        f"begin the box at {begin} and use it from a later element on, or describe the array so that this coordinate is an outer one",
        "error" if record is not None and certainty == "always" else "review")


def _between(analysis: Analysis, value: Value, unit: int, depth: int = 0) -> Certainty | None:
    """Whether a number is no multiple of the unit: always, or on one of the paths that it comes by."""
    values = analysis.values
    form = values.linear(value)
    if form.symbol is not None or depth > DEEP:
        return None
    if form.beyond(unit):
        return "always"
    firsts = [(values.initial(term), factor) for term, factor in form.terms]
    begin = form.offset + sum((first or 0) * factor for first, factor in firsts)
    if firsts and all(first is not None for first, _ in firsts) and begin % unit:
        return "sometimes"
    if form.terms != frozenset(((value, 1),)):
        return None
    choices = values.alternatives(value)
    if value.site is not None and value.kind == "op" and value.site.mnemonic == "selp":
        choices = values.arguments(value)[:2]
    found = {_between(analysis, choice, unit, depth + 1) for choice in choices}
    return None if found <= {None} else "always" if found == {"always"} and value.kind != "select" else "sometimes"
