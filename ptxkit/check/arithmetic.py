"""Arithmetic that is right and slow."""

from __future__ import annotations

from collections.abc import Iterator

from ..grammar.errors import Finding
from .analysis import Analysis
from .program import Site

RULES = {
    "division": "an integer division by a constant, of which ptxas makes no shift and no product",
}

TAKES = {"u16": (9, 10), "s16": (14, 15), "u32": (14, 13), "s32": (18, 16), "u64": (67, 63), "s64": (76, 72)}
"""Instructions that ptxas 13.0 makes of div and of rem by a constant, for sm_90a."""


def findings(analysis: Analysis) -> Iterator[Finding]:
    for site in analysis.sites:
        kind = site.opcode.rpartition(".")[2]
        if site.mnemonic in ("div", "rem") and kind in TAKES:
            by = analysis.constant(site, "b")
            if by is not None and by > 0:
                yield _slow(analysis, site, kind, by)


def _slow(analysis: Analysis, site: Site, kind: str, by: int) -> Finding:
    remainder = site.mnemonic == "rem"
    if by & (by - 1):
        fix = "mul.hi by the divisor's inverse, and a correction: ptxkit.idioms.fast_div"
    elif kind[0] == "s":
        fix = f"u{kind[1:]} if the number is never negative, and then a {'mask' if remainder else 'shift'}"
    else:
        fix = f"and.b{kind[1:]} with {by - 1}" if remainder else f"shr.{kind} by {by.bit_length() - 1}"
    return analysis.report("division", site, f"`{site.opcode}` by {by}: ptxas computes a reciprocal, whatever the constant is, "
                           f"{TAKES[kind][remainder]} instructions", fix, "info", "advice")


__all__ = ["RULES", "findings"]
