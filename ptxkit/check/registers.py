"""setmaxnreg: whether it is honoured, the pool that it takes from, and the direction."""

from __future__ import annotations

from collections.abc import Iterator

from ..dsl.rules import entry_registers
from ..grammar.errors import Finding
from .analysis import Analysis
from .program import Site

RULES = {
    "setmaxnreg-ignored": "setmaxnreg in a kernel without a register cap at entry, which ptxas ignores",
    "setmaxnreg-pool": "the warpgroups ask for more registers than the CTA has at entry",
    "setmaxnreg-direction": "setmaxnreg.dec to more registers than the warpgroup has, or .inc to fewer",
}

WARPGROUP = 128


def findings(analysis: Analysis) -> Iterator[Finding]:
    sites = [site for site in analysis.sites if site.mnemonic == "setmaxnreg"]
    if not sites:
        return
    # A kernel with wgmma gets a cap from its block alone (ptxas 13.0).
    sized = analysis.launch.block is not None and (analysis.launch.min_ctas or any(site.mnemonic == "wgmma" for site in analysis.sites))
    if not analysis.launch.max_registers and not sized:
        yield analysis.report("setmaxnreg-ignored", sites[0], f"ptxas ignores `{sites[0].name}`: the kernel has no register cap at entry",
                              ".maxntid or .reqntid with .minnctapersm 1, or .maxnreg")
        return
    if analysis.launch.block is not None:
        yield from _pool(analysis, sites)


def _pool(analysis: Analysis, sites: list[Site]) -> Iterator[Finding]:
    threads = analysis.launch.threads
    counts = {site.index: analysis.constant(site, "imm_reg_count") or 0 for site in sites}
    ctas = (analysis.launch.min_ctas or (1,))[0]
    most = analysis.launch.max_registers
    entry = most[0] if most else min(entry_registers(threads * ctas, max(counts.values())), 255)
    holds: dict[int, int] = {}
    wrong: set[int] = set()
    for first in range(0, threads, WARPGROUP):
        here = [site for site in sites if analysis.lanes.of(site) >> first & (1 << WARPGROUP) - 1]
        before = {entry}
        for site in here:
            count, rises = counts[site.index], "inc" in site.tokens
            known = before if len(before) == 1 else set()
            if site.index not in wrong and known and (count < min(known) if rises else count > max(known)):
                wrong.add(site.index)
                yield analysis.report(
                    "setmaxnreg-direction", site, f"`{site.name} {count}` where the warpgroup of thread {first} has {min(known)} "
                    f"registers: it may only {'rise' if rises else 'fall'}", f"setmaxnreg.{'dec' if rises else 'inc'}, or another count",
                    "error" if len(here) == 1 else "review")
            before = {count}
        holds[first] = max([counts[site.index] for site in here], default=entry)
    total = sum(count * min(WARPGROUP, threads - first) for first, count in holds.items())
    pool = entry * threads
    raised = [site for site in sites if "inc" in site.tokens]
    if total > pool and raised:
        listed = ", ".join(f"{count} from thread {first}" for first, count in holds.items())
        single = all(sum(1 for site in sites if analysis.lanes.of(site) >> first & 1) <= 1 for first in holds)
        yield analysis.report(
            "setmaxnreg-pool", raised[0], f"the warpgroups hold {listed}: {total:,} registers, and the CTA has {threads} x {entry} = "
            f"{pool:,} at entry, so that the last .inc waits for ever",
            "lower the counts until their sum over the threads is at most the pool",
            "error" if single and analysis.launch.exact else "review")
