"""Threads, addresses and values in words."""

from __future__ import annotations

from ..check.analysis import Analysis
from ..check.program import Site
from ..check.values import Linear, Value


def threads(analysis: Analysis, site: Site) -> str:
    """Who executes the site: "all threads", "thread 0", "threads 128-383 (warps 4-11)"; "some of" before it when that depends on data."""
    mask = analysis.lanes.of(site)
    said = of_mask(mask, analysis.launch.threads, analysis.launch.block is not None)
    exact = analysis.lanes.exact(site) or mask.bit_count() <= 1
    return said if exact else f"some of {said}"


def of_mask(mask: int, total: int, known: bool = True) -> str:
    """A set of threads as words. `known`: whether the block has `total` threads, or that is only assumed."""
    count = mask.bit_count()
    everyone = (1 << total) - 1
    if not count:
        return "no thread"
    if mask == everyone:
        return "all threads"
    first, last = (mask & -mask).bit_length() - 1, mask.bit_length() - 1
    if count == 1:
        return f"thread {first}"
    if count == last - first + 1:
        if last == total - 1 and not known:
            return f"threads from {first} on"
        warps = ""
        if first % 32 == 0 and last % 32 == 31:
            warps = f" (warp {first // 32})" if first // 32 == last // 32 else f" (warps {first // 32}-{last // 32})"
        return f"threads {first}-{last}{warps}"
    lanes = {thread % 32 for thread in range(first, last + 1) if mask >> thread & 1}
    if len(lanes) == 1:
        warps_of = [thread // 32 for thread in range(first, last + 1) if mask >> thread & 1]
        if warps_of == list(range(warps_of[0], warps_of[-1] + 1)):
            whole = mask.bit_count() == -(-total // 32)
            return f"one lane of {'each warp' if whole else f'warps {warps_of[0]}-{warps_of[-1]}'}"
    if count <= 8:
        return f"threads {', '.join(str(thread) for thread in range(first, last + 1) if mask >> thread & 1)}"
    return f"{count} threads from {first} to {last}"


def address(analysis: Analysis, form: Linear, site: Site | None = None) -> str:
    """`symbol+1024 + 8192*%r12`; what a trace has put there as `check` calls it: where the threads of the site come to at the lowest."""
    symbol, offset = _named(analysis, form, form.offset if site is None else analysis.memory.low(site, form))
    beside = f" ({offset:+,})" if " " in symbol else f"{offset:+,}"
    parts = [f"{symbol}{beside if offset else ''}" if symbol else f"{offset:#x}"]
    for term, factor in sorted(form.terms, key=lambda pair: (-abs(pair[1]), pair[0].name)):
        name = value(term)
        parts.append(name if factor == 1 else f"{factor:,}*{name}")
    said = " + ".join(parts)
    return f"{said} of another CTA" if form.rank is not None else said


def _named(analysis: Analysis, form: Linear, low: int) -> tuple[str, int]:
    """The symbol and the bytes behind it: of a traced kernel the allocation that the bytes are in."""
    plan = analysis.traced.shared if analysis.traced else None
    if plan is not None and form.symbol == plan.symbol:
        for part in plan.allocations:
            if 0 <= low - part.offset < part.bytes:
                return plan.said(part), form.offset - part.offset
    return form.symbol or "", form.offset


def value(term: Value) -> str:
    """A value by the register or parameter that holds it."""
    return term.name.rpartition(":")[2] or "?"
