"""The roles of warps: which instructions the producer executes, which the mma warpgroups, and which stand before they part."""

from __future__ import annotations

from ..check.analysis import Analysis
from ..check.program import Site
from .facts import RoleFact
from .resources import kind_of
from .words import threads

SETUP, PRODUCER, MMA, OTHER = "setup", "producer", "mma warpgroups", "other warps"


def roles(analysis: Analysis) -> tuple[RoleFact, ...]:
    """The roles in the order of the text; () unless some warps multiply and others copy the operands for them.

    What all warps execute has no role. Before the warps part, what only some threads execute is `setup`.
    """
    launch, lanes = analysis.launch, analysis.lanes
    if launch.block is None:
        return ()
    mma = loads = 0
    for site in analysis.sites:
        if multiplies(site):
            mma |= launch.warps(lanes.of(site))
    for site in analysis.sites:
        if copies(site):
            loads |= launch.warps(lanes.of(site)) & ~mma
    if not mma or not loads:
        return ()
    common = _common(analysis, loads)
    found: dict[tuple[str, str], list[int]] = {}
    for site in analysis.sites:
        here = lanes.of(site)
        warps = launch.warps(here)
        if here == launch.everyone or site.place.line is None or not here:
            continue
        if site.index <= common:
            name = SETUP
        elif warps & mma:
            name = MMA if not warps & ~mma else ""
        else:
            name = PRODUCER if warps & loads else OTHER
        if name:
            found.setdefault((name, threads(analysis, site)), []).append(site.place.line)
    return tuple(RoleFact(name, who, tuple(dict.fromkeys(lines))) for (name, who), lines in found.items())


def multiplies(site: Site) -> bool:
    return "wgmma.issue" in site.sync or site.mnemonic in ("mma", "wmma")


def copies(site: Site) -> bool:
    """Whether the site fills shared memory asynchronously."""
    return kind_of(site.opcode) == "tma_load" or site.opcode.startswith(("cp.async.ca", "cp.async.cg"))


def _common(analysis: Analysis, loads: int) -> int:
    """The last site that all threads execute before the warps part; -1 without one."""
    works = [site.index for site in analysis.sites if multiplies(site) or (
        copies(site) and not analysis.launch.warps(analysis.lanes.of(site)) & ~loads)]
    return max((site.index for site in analysis.sites
                if site.index < min(works) and analysis.lanes.of(site) == analysis.launch.everyone), default=-1)


__all__ = ["roles"]
