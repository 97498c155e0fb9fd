"""The families of protocol rules, in the order of the documentation."""

from __future__ import annotations

from . import (
    arithmetic,
    arrivals,
    bulk,
    cluster,
    convergence,
    layout,
    order,
    proxies,
    races,
    reads,
    registers,
    startup,
    tensormaps,
    tensors,
    transactions,
    undefined,
    wgmma,
)

FAMILIES = (startup, arrivals, transactions, order, reads, races, proxies, tensormaps, tensors, bulk, wgmma, cluster, convergence,
            registers, undefined, layout, arithmetic)
RULES: dict[str, str] = {rule: sentence for family in FAMILIES for rule, sentence in family.RULES.items()}
"""Every protocol and advice rule, with what it says in one sentence."""
