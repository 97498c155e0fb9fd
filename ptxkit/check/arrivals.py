"""Arrivals and waits: the count that an mbarrier is initialised with against the threads that arrive, and waits that nothing ends."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from ..grammar.errors import Finding
from .analysis import Analysis
from .barriers import Barrier, Use
from .effort import spend
from .lanes import uniform
from .program import Site
from .values import Linear, Value

RULES = {
    "arrive-count": "the threads that arrive cannot make the count that an mbarrier is initialised with",
    "barrier-uninitialised": "an mbarrier is used that no mbarrier.init initialises",
    "wait-without-arrival": "a wait on an mbarrier that nobody arrives on",
    "phase-deadlock": "the first phases of mbarriers wait for each other",
    "parity-start": "a wait for data passes in the first round, before any has come",
    "parity-fixed": "a wait in a loop asks for the same parity in every round",
    "wait-result": "the result of a wait is not used, or is not asked for again",
}

_PASSING = frozenset(("selp", "setp", "mov", "cvt", "and", "or", "not", "xor"))


def findings(analysis: Analysis) -> Iterator[Finding]:
    readers = {site.index: _readers(analysis, site) for site in analysis.acting if "mbarrier.test" in site.sync}
    read = [use for use in analysis.barriers.uses if "test" in use.kinds and readers.get(use.site.index)]
    for index, those in readers.items():
        yield from _result(analysis, analysis.routine.sites[index], those, read)
    yield from _circle(analysis)
    understood = analysis.barriers.understood and not any(site.control == "unknown" for site in analysis.sites)
    for barrier in analysis.barriers.all:
        inits, waits = barrier.having("init"), barrier.having("test")
        arrives = barrier.having("arrive", "arrive_async")
        if not inits and understood:
            yield from _uninitialised(analysis, barrier)
        elif waits and not arrives and understood:
            yield from _lonely(analysis, barrier, waits)
        elif inits:
            yield from _missing(analysis, barrier, inits)
            yield from _parities(analysis, barrier, waits)
            if understood and arrives:
                yield from _Count(analysis, barrier, inits, arrives).findings()


def _elsewhere(analysis: Analysis, uses: list[Use], *kinds: str) -> bool:
    """Whether one of the uses may name a barrier that a use of those kinds names, in whatever array that is."""
    others = [other for other in analysis.barriers.uses if not other.kinds.isdisjoint(kinds)]
    return any(analysis.overlap.may(use.address, 8, other.address, 8) for use in uses for other in others)


def _uninitialised(analysis: Analysis, barrier: Barrier) -> Iterator[Finding]:
    """An error where no mbarrier.init can name a word that is used; an index that is not known may name any."""
    site = barrier.uses[0].site
    yield analysis.report("barrier-uninitialised", site, f"`{site.name}` uses the mbarrier {barrier}, which no mbarrier.init initialises",
                          "mbarrier.init in one thread, and a barrier, before the first use",
                          "review" if _elsewhere(analysis, barrier.uses, "init") else "error")


def _lonely(analysis: Analysis, barrier: Barrier, waits: list[Use]) -> Iterator[Finding]:
    """Waits on a barrier that no arrive can name: an error of one that asks for the first phase until it is there."""
    blocking = [use for use in waits if analysis.first_parity(use.site) == 0 and _spins(analysis, use.site)]
    site = (blocking or waits)[0].site
    arrives = [use for use in analysis.barriers.uses if use.kinds & {"arrive", "arrive_async"}]
    certain = any(not any(analysis.overlap.may(_first(analysis, use), 8, other.address, 8) for other in arrives) for use in blocking)
    yield analysis.report("wait-without-arrival", site, f"`{site.name}` waits on the mbarrier {barrier}, and nothing arrives on it: its "
                          "first phase never completes", "mbarrier.arrive (or arrive.expect_tx, with a copy) on this barrier",
                          "error" if certain else "review")


# ------------------------------------------------------------------------------------------------ waits in a circle


def _circle(analysis: Analysis) -> Iterator[Finding]:
    """Barriers whose every arrive comes after a wait for the first phase of another, in a circle."""
    if not analysis.barriers.understood:
        return
    needs: dict[Barrier, dict[Barrier, Use]] = {}
    waits = [use for use in analysis.barriers.uses if "test" in use.kinds and analysis.first_parity(use.site) == 0]
    for barrier in analysis.barriers.all:
        arrives = barrier.having("arrive", "arrive_async")
        spend(len(waits) * min(len(arrives), 1))
        for wait in waits if arrives else ():
            if wait.barrier is not None and all(_follows(analysis, wait, use) for use in arrives):
                needs.setdefault(barrier, {}).setdefault(wait.barrier, wait)
    for barrier, others in needs.items():
        for other, wait in others.items():
            if barrier in needs.get(other, {}) and analysis.barriers.all.index(barrier) <= analysis.barriers.all.index(other):
                back = needs[other][barrier]
                yield analysis.report(
                    "phase-deadlock", wait.site, f"`{wait.site.name}` waits for the first phase of {other}, whose arrives all come after "
                    f"the wait at {back.site.place} for the first phase of {barrier}, which this line keeps from completing",
                    "wait with the other parity where a buffer is free at the start",
                    "error" if _starves(analysis, wait, back) and _starves(analysis, back, wait) else "review")


def _follows(analysis: Analysis, wait: Use, use: Use) -> bool:
    """Whether a thread comes to the use only after the wait."""
    return analysis.routine.dominators.above(wait.site.block, use.site.block) and (
        wait.site.block != use.site.block or wait.site.index < use.site.index)


def _starves(analysis: Analysis, wait: Use, back: Use) -> bool:
    """Whether every arrive that can name the barrier which `wait` names the first time comes after `back`, which lets no thread pass."""
    first = _first(analysis, wait)
    arrives = [use for use in analysis.barriers.uses if use.kinds & {"arrive", "arrive_async"}
               and analysis.overlap.may(first, 8, use.address, 8)]
    return (first.constant and all(_follows(analysis, back, use) for use in arrives) and _insists(analysis, back.site)
            and not any(site.control == "unknown" for site in analysis.sites))


def _first(analysis: Analysis, use: Use) -> Linear:
    """The address that the use names the first time; all that it may name, where that is not known."""
    firsts = [(analysis.values.initial(term), factor) for term, factor in use.address.terms]
    if any(first is None for first, _ in firsts):
        return use.address
    return Linear(use.address.symbol, use.address.offset + sum((first or 0) * factor for first, factor in firsts))


def _insists(analysis: Analysis, site: Site) -> bool:
    """Whether one of the ways out of the wait's block leads back to it and nowhere else: control passes when the phase has completed."""
    routine = analysis.routine
    if site.instruction.guard is not None:
        return False
    for way in dict.fromkeys(routine.blocks[site.block].successors):
        seen, todo = {way}, [way] if way != site.block else []
        while todo:
            here = todo.pop()
            new = [block for block in routine.blocks[here].successors if block != site.block and block not in seen]
            if not routine.blocks[here].successors or len(seen) > 8:
                break
            seen.update(new)
            todo += new
        else:
            return len(set(routine.blocks[site.block].successors)) > 1
    return False


def _missing(analysis: Analysis, barrier: Barrier, inits: list[Use]) -> Iterator[Finding]:
    """Barriers of a declared array that no init reaches, or a single one that is used apart from those initialised."""
    if any(use.address.terms for use in inits) or not analysis.barriers.understood:
        return
    made = {use.low for use in inits}
    for use in barrier.uses:
        if not use.address.terms and not use.remote and use.low not in made and not _elsewhere(analysis, [use], "init"):
            yield analysis.report("barrier-uninitialised", use.site, f"`{use.site.name}` uses an mbarrier of {barrier} at byte {use.low} "
                                  "that no mbarrier.init initialises", "mbarrier.init for every barrier of the array", "error")
            return
    count = _indexed(analysis, barrier)
    if count is not None and len(made) < count:
        yield analysis.report("barrier-uninitialised", inits[0].site, f"{len(made)} of the {count} barriers {barrier} are "
                              "initialised, and an index chooses among all of them", "mbarrier.init for every barrier of the array")


def _indexed(analysis: Analysis, barrier: Barrier) -> int | None:
    """How many barriers of an array an index chooses among."""
    if barrier.declared is not None:
        return barrier.declared if any(use.address.terms for use in barrier.uses) else None
    extents = [extent * factor // 8 for use in barrier.uses if len(use.address.terms) == 1 for term, factor in use.address.terms
               if factor % 8 == 0 and use.low == barrier.base and (extent := analysis.extent(term)) is not None]
    return min(max(extents), barrier.size) if extents and barrier.size else None


def _parities(analysis: Analysis, barrier: Barrier, waits: list[Use]) -> Iterator[Finding]:
    """The parity of the phase waited for: 0 the first time that data is due, and another one in the next round of the ring."""
    asked = {use.site.index: use.site.value("phaseParity") for use in waits}
    values = {index: analysis.values.of(analysis.routine.sites[index], operand) for index, operand in asked.items() if operand is not None}
    fixed = {index: analysis.values.number(value) for index, value in values.items()}
    unknown = all(number is None for number in fixed.values())
    filled = bool(barrier.having("complete_tx"))
    goes_on = any(analysis.in_loop(arrive.site) for arrive in barrier.having("arrive", "arrive_async"))
    together: dict[frozenset[int], set[int | None]] = {}
    for index in values:
        site, use = analysis.routine.sites[index], analysis.barriers.by_site[index]
        if unknown and filled and analysis.first_parity(site) == 1 and not any(  # of an unrolled loop
                analysis.first_parity(other.site) == 0 and _follows(analysis, other, use) for other in waits):
            yield analysis.report("parity-start", site, f"`{site.name}` first waits for parity 1 of {barrier}, which a barrier has before "
                                  "its first phase: it passes before the first copy has come",
                                  "start with parity 0 where data is waited for, with 1 where a free buffer is")
        loop = analysis.loops.get(site.block)
        if loop is None:
            continue
        if loop not in together:
            together[loop] = {fixed[other.site.index] for other in waits if other.site.block in loop}
        beside = together[loop]
        if goes_on and fixed[index] is not None and beside == {fixed[index]} and analysis.wraps(use.address) and _rounds(analysis, site):
            yield analysis.report("parity-fixed", site, f"`{site.name}` waits for parity {fixed[index]} of {barrier} in every round of "
                                  "its loop: from the second phase on it waits for the wrong one",
                                  "xor the parity with 1 whenever the ring wraps to its first stage")


def _rounds(analysis: Analysis, site: Site) -> bool:
    """Whether control comes back to the wait after doing something with a barrier, not only to ask again."""
    loop = analysis.around(site.block)
    spend(len(analysis.barriers.uses))
    uses = [use for use in analysis.barriers.uses if use.site.index != site.index and use.site.block in loop and analysis.in_loop(site)]
    return bool(uses) and not any("init" in use.kinds for use in uses)


def _result(analysis: Analysis, site: Site, readers: list[Site], read: list[Use]) -> Iterator[Finding]:
    """test_wait and try_wait may say no: the loop around them is part of the wait. `read`: the waits whose results are read."""
    if not readers:
        use = analysis.barriers.by_site.get(site.index)
        others = any(use is None or analysis.overlap.may(use.address, 8, other.address, 8) for other in read)
        yield analysis.report("wait-result", site, f"`{site.name}` does not wait: its result, which nothing reads, says whether the phase "
                              "has completed", "branch back to it until the result is true", "review" if others else "error")
    elif "try_wait" in site.tokens and not _spins(analysis, site) and not _heard(analysis, readers):
        yield analysis.report("wait-result", site, f"`{site.name}` may give up before the phase has completed, and is not asked again",
                              "branch back to it until the result is true")


def _spins(analysis: Analysis, site: Site) -> bool:
    """Whether control can come back to the site with nothing else done that synchronises: it asks again."""
    routine = analysis.routine

    def quiet(first: int, end: int) -> bool:
        return not any(other.sync for other in routine.sites[first:end])

    block = routine.blocks[site.block]
    if not quiet(site.index + 1, block.end) or not quiet(block.first, site.index):
        return False
    seen: set[int] = set()
    todo = list(block.successors)
    while todo:
        here = todo.pop()
        if here == site.block:
            return True
        if here not in seen and quiet(routine.blocks[here].first, routine.blocks[here].end):
            seen.add(here)
            todo += routine.blocks[here].successors
    return False


def _readers(analysis: Analysis, site: Site) -> list[Site]:
    """What reads the result, through the moves and comparisons that compilers put between."""
    found: list[Site] = []
    seen, todo = {site.index}, [site]
    while todo:
        here = todo.pop()
        for name in here.writes:
            for value in analysis.computed_from(analysis.values.defined(here, name)):
                for other in analysis.readers.get((value, name), ()):
                    if other.index not in seen:
                        seen.add(other.index)
                        (todo if other.mnemonic in _PASSING else found).append(other)
    return found


def _heard(analysis: Analysis, readers: list[Site]) -> bool:
    """Whether the result makes a difference: it decides where control goes, or is kept (a first look before the real wait)."""
    return any(site.control != "branch" or len(set(analysis.routine.blocks[site.block].successors)) > 1 for site in readers)


class _Count:
    """The arrivals that one CTA's barrier gets from each site, by every thread of the cluster that executes it once."""

    def __init__(self, analysis: Analysis, barrier: Barrier, inits: list[Use], arrives: list[Use]) -> None:
        self.analysis = analysis
        self.barrier = barrier
        self.inits = inits
        self.arrives = arrives

    def findings(self) -> Iterator[Finding]:
        analysis = self.analysis
        if analysis.launch.block is None or any("drop" in use.kinds for use in self.arrives):
            return
        if analysis.cluster is None and any(use.remote for use in self.arrives):
            return
        for init in self.inits:
            found = self._wrong(init.site)
            if found is not None:
                yield found
                return

    def _wrong(self, init: Site) -> Finding | None:
        """Of the CTAs in which a thread may wait; an error where none of them can do with the count, or one surely waits."""
        count = self.analysis.constant(init, "count")
        waits = [use.site for use in self.barrier.having("test") if not use.remote]
        wrong: list[tuple[int, dict[int, int | None]]] = []
        fits = False
        for rank in range(self.analysis.cluster or 1):
            lanes = self.analysis.ranked(rank) if self.analysis.cluster else self.analysis.lanes
            if waits and not any(lanes.of(wait) for wait in waits):
                continue
            given = {use.site.index: self._arrivals(use, rank) for use in self.arrives}
            if count is None or any(number is None for number in given.values()):
                return None
            if self._fits(count, {index: number for index, number in given.items() if number}):
                fits = True
            else:
                wrong.append((rank, given))
        for rank, given in wrong[:1]:
            numbers = [number for number in given.values() if number]
            step = gcd(*numbers) if numbers else 0
            lanes = self.analysis.ranked(rank) if self.analysis.cluster else self.analysis.lanes
            certain = (self.analysis.launch.exact and (not step or count % step != 0)  # type: ignore[operator]
                       and (not fits or any(lanes.surely(wait) and lanes.always(wait) for wait in waits)) and not self._strangers())
            listed = ", ".join(f"{number} at {self.analysis.routine.sites[index].place}" for index, number in given.items() if number)
            return self.analysis.report(
                "arrive-count", init, f"the mbarrier {self.barrier} expects {count} arrivals a phase, and no choice of the arrives makes "
                f"that many: {listed or 'none'}", f"mbarrier.init with the arrivals of one phase ({self._likely(numbers)})",
                "error" if certain else "review")
        return None

    def _strangers(self) -> bool:
        """Whether an arrive that counts for another array may name a barrier of this one."""
        own = self.barrier.uses
        return any(use.barrier is not self.barrier and use.kinds & {"arrive", "arrive_async"}
                   and any(self.analysis.overlap.may(use.address, 8, one.address, 8) for one in own)
                   for use in self.analysis.barriers.uses)

    @staticmethod
    def _likely(numbers: list[int]) -> str:
        return str(max(numbers)) if numbers else "there are none"

    def _fits(self, count: int, numbers: dict[int, int]) -> bool:
        """Whether some of the sites together make the count; a site in a loop without a wait may do so several times a phase."""
        sums = {0}
        for together in self._units(numbers):
            number = sum(numbers[index] for index in together)
            times = count // number if self._repeats(self.analysis.routine.sites[together[0]]) else 1
            sums |= {s + number * n for s in sums for n in range(1, times + 1) if s + number * n <= count}
        return count in sums

    def _units(self, numbers: dict[int, int]) -> list[list[int]]:
        """Sites of one block with one guard, one address and no wait between: who executes one executes all, in the same phase."""
        units: list[list[int]] = []
        for index in sorted(numbers):
            site, use = self.analysis.routine.sites[index], self.analysis.barriers.by_site[index]
            last = units[-1] if units else []
            before = self.analysis.routine.sites[last[-1]] if last else None
            if (before is not None and before.block == site.block and self._guard(before) == self._guard(site)
                    and self.analysis.barriers.by_site[before.index].address == use.address
                    and not any("mbarrier.test" in other.sync for other in self.analysis.routine.sites[before.index:index])):
                last.append(index)
            else:
                units.append([index])
        return units

    def _guard(self, site: Site) -> tuple[Value, bool] | None:
        guard = site.instruction.guard
        return None if guard is None else (self.analysis.values.register(site, guard.predicate), guard.negated)

    def _repeats(self, site: Site) -> bool:
        """Whether the thread can come back to the arrive without waiting on any mbarrier, or with an index that makes it another one."""
        waits = self.analysis.barriers.waits
        return site.block not in waits and site.block in self.analysis.reaches(site.block, waits)

    def _arrivals(self, use: Use, rank: int) -> int | None:
        analysis, site = self.analysis, use.site
        if use.kinds & {"arrive_async"} and "noinc" not in site.tokens:
            return 0
        count = 1 if site.value("count") is None else analysis.constant(site, "count")
        sources = range(analysis.cluster) if analysis.cluster and use.remote else (rank,)
        total = 0
        for source in sources:
            lanes = analysis.ranked(source) if analysis.cluster else analysis.lanes
            threads = lanes.of(site)
            if count is None or not lanes.exact(site):
                return None
            targets = lanes.vector(use.address.rank) if use.address.rank is not None else (rank,) * analysis.launch.threads
            if targets is None or any(targets[t] is None for t in range(len(targets)) if threads >> t & 1):
                return None
            if any(lanes.vector(term) is None and not uniform(analysis.values, term) for term, _ in use.address.terms):
                return None  # some threads may arrive on one barrier of the array, others on another
            # Threads may choose barriers of the array by their number: each gets its part.
            parts: dict[int, int] = {}
            for thread, target in enumerate(targets):
                if threads >> thread & 1 and target == rank:
                    chosen = sum((vector[thread] or 0) * factor for term, factor in use.address.terms if (vector := lanes.vector(term)))
                    parts[chosen] = parts.get(chosen, 0) + 1
            if len(set(parts.values())) > 1:
                return None
            total += count * next(iter(parts.values()), 0)
        return total
