"""Instructions that a whole warp, warpgroup or barrier's population executes together: who can reach them, and the counts of bar.sync."""

from __future__ import annotations

from collections.abc import Iterator

from ..grammar.errors import Finding, Severity
from .analysis import Analysis
from .program import Site

RULES = {
    "convergence": "an instruction that a whole warp or warpgroup must execute stands where only part of it comes",
    "bar-count": "the threads that come to a named barrier are not as many as it counts",
}


def findings(analysis: Analysis) -> Iterator[Finding]:
    if analysis.launch.block is None:
        return
    said: set[int] = set()
    for site in analysis.sites:
        yield from _convergence(analysis, site, said)
    yield from _counts(analysis)


# ------------------------------------------------------------------------------------------------ warps and warpgroups


def _convergence(analysis: Analysis, site: Site, said: set[int]) -> Iterator[Finding]:
    """One finding for the threads that are missing, at the first instruction that misses them."""
    size = {"warp": 32, "warpgroup": 128}.get(site.effects.convergence, 0)
    if not size:
        return
    if site.value("membermask") is not None:
        yield from _members(analysis, site, said)
        return
    threads = analysis.lanes.of(site)
    whole = _groups(analysis, threads, size)
    absent = whole & ~threads
    if not absent or not threads or absent in said:
        return
    said.add(absent)
    group = "warpgroup" if size == 128 else "warp"
    number = (absent & -absent).bit_length() - 1
    yield analysis.report(
        "convergence", site, f"`{site.name}` must be executed by every thread of a {group}, and of that of thread {number} at most "
        f"{(threads >> number // size * size & (1 << size) - 1).bit_count()} come here",
        f"move it out of the branch, or let the branch take whole {group}s", _severity(analysis, site, absent))


def _members(analysis: Analysis, site: Site, said: set[int]) -> Iterator[Finding]:
    """The membermask says who takes part: whoever executes the instruction, and all that it names but those that have exited."""
    threads = analysis.lanes.of(site)
    masks = _of_threads(analysis, site, "membermask", threads)
    if not threads or masks is None:
        return
    outside = [thread for thread, mask in masks.items() if not mask >> thread % 32 & 1]
    if outside and (analysis.lanes.exact(site) or len(outside) == len(masks)):
        yield analysis.report(
            "convergence", site, f"thread {outside[0]} executes `{site.name}`, whose membermask {masks[outside[0]] & 0xFFFFFFFF:#x} does "
            f"not name lane {outside[0] % 32}", "a membermask of just the lanes that execute it", "error")
        return
    named = sum(1 << lane for warp in {thread // 32 for thread in masks} for lane in range(32 * warp, 32 * warp + 32)
                if any(mask >> lane % 32 & 1 for thread, mask in masks.items() if thread // 32 == warp))
    absent = named & analysis.launch.everyone & ~threads
    if absent and absent not in said and analysis.launch.exact and not _come_elsewhere(analysis, site, masks, absent) and (
            _severity(analysis, site, absent) == "error"):
        said.add(absent)
        number = (absent & -absent).bit_length() - 1
        yield analysis.report(
            "convergence", site, f"`{site.name}` waits for the lanes that its membermask names, and thread {number}, which it names, never "
            "comes here", "a membermask of just the lanes that come, or no branch around it", "error")
    elif "shfl" in site.tokens and "idx" in site.tokens:
        yield from _source(analysis, site, masks)


def _come_elsewhere(analysis: Analysis, site: Site, masks: dict[int, int], absent: int) -> bool:
    """Whether threads that are missing may execute the like with the same membermask at another place."""
    wanted = {mask & 0xFFFFFFFF for mask in masks.values()}
    for other in analysis.sites:
        threads = analysis.lanes.of(other) & absent if other is not site and other.opcode == site.opcode else 0
        if threads:
            given = _of_threads(analysis, other, "membermask", threads)
            if given is None or not wanted.isdisjoint(mask & 0xFFFFFFFF for mask in given.values()):
                return True
    return False


def _source(analysis: Analysis, site: Site, masks: dict[int, int]) -> Iterator[Finding]:
    """What a shuffle reads from a lane that does not take part is undefined."""
    lane, width = analysis.constant(site, "b"), analysis.constant(site, "c")
    if lane is not None and width == 31 and not any(mask >> (lane & 31) & 1 for mask in masks.values()):
        yield analysis.report(
            "convergence", site, f"`{site.name}` reads lane {lane & 31}, which its membermask does not name: what it gets is undefined",
            "name the lane in the membermask, and let it come")


def _groups(analysis: Analysis, threads: int, size: int) -> int:
    """All threads of the groups that these threads are in."""
    group = (1 << size) - 1
    return sum(group << at for at in range(0, analysis.launch.threads, size) if threads >> at & group) & analysis.launch.everyone


def _severity(analysis: Analysis, site: Site, absent: int) -> Severity:
    """Threads that have exited are not waited for by today's hardware; those that go on elsewhere are missed."""
    later = analysis.reaches(site.block) | {site.block}
    alive = any(analysis.lanes.at[block] & absent for block in later
                if analysis.routine.sites[analysis.routine.blocks[block].first].control != "exit")
    elsewhere = any(analysis.lanes.of(other) & absent and site.block not in analysis.reaches(other.block)
                    for other in analysis.sites if other.sync or other.effects.convergence != "none")
    return "error" if (alive or elsewhere) and analysis.launch.exact else "review"


# ------------------------------------------------------------------------------------------------ named barriers


def _counts(analysis: Analysis) -> Iterator[Finding]:
    """Per barrier number: who can come, against the count that the instructions say (without one, the whole CTA)."""
    if any(site.control == "unknown" for site in analysis.sites):
        return
    comers: dict[int, int] = {}
    counts: dict[int, set[int]] = {}
    places: dict[int, list[Site]] = {}
    exact = analysis.launch.exact
    for site in analysis.sites:
        if site.value("a") is None or not {"cta.barrier", "cta.arrive"} & set(site.sync):
            continue
        threads = analysis.lanes.of(site)
        numbers = _of_threads(analysis, site, "a", threads)
        sizes = _of_threads(analysis, site, "b", threads) if site.value("b") is not None else dict.fromkeys(numbers or (), 0)
        if numbers is None or sizes is None:
            return
        exact = exact and analysis.lanes.exact(site)
        for thread, number in numbers.items():
            comers[number] = comers.get(number, 0) | 1 << thread
            counts.setdefault(number, set()).add(sizes[thread] or analysis.launch.threads)
        for number in dict.fromkeys(numbers.values()):
            places.setdefault(number, []).append(site)
    for number, threads in sorted(comers.items()):
        yield from _count(analysis, number, threads, counts[number], places[number], exact)


def _count(analysis: Analysis, number: int, threads: int, counts: set[int], places: list[Site], exact: bool) -> Iterator[Finding]:
    came, site = threads.bit_count(), places[0]
    if len(counts) > 1:
        said = " and ".join(map(str, sorted(counts)))
        yield analysis.report("bar-count", places[-1], f"barrier {number} is used with the counts {said}: the threads of one generation "
                              "must agree on it", "one count for each barrier number")
        return
    count = counts.pop()
    bare = all(place.value("b") is None for place in places)
    if came < count and analysis.launch.exact:
        absent = analysis.launch.everyone & ~threads
        # Without a count the exited threads are not waited for by today's hardware; with one a warp may count as a whole.
        whole = analysis.launch.warps(threads).bit_count() < count
        severity = _severity(analysis, site, absent) if bare else "error" if whole else "review"
        yield analysis.report(
            "bar-count", site, f"`{site.name}` waits for {count} threads on barrier {number}, and at most {came} come to it",
            f"bar.sync {number}, {came} with the threads that come" if came % 32 == 0 else "let whole warps come to the barrier", severity)
    elif came > count and exact:
        yield analysis.report(
            "bar-count", site, f"`{site.name}` counts {count} threads on barrier {number}, and {came} come to it: it opens before all "
            "are there", "one barrier number for each group of threads, or the count of all that come")


def _of_threads(analysis: Analysis, site: Site, operand: str, threads: int) -> dict[int, int] | None:
    """The operand's number in each of the threads, None unless all are known."""
    vector = analysis.lanes.vector(analysis.values.of(site, site.value(operand)))
    if vector is None:
        return None
    found = {thread: number for thread, number in enumerate(vector) if threads >> thread & 1 and number is not None}
    return found if len(found) == threads.bit_count() else None
