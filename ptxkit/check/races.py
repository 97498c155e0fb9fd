"""Shared memory among the threads themselves: loads and stores of different threads with nothing that orders them."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from ..grammar.errors import Finding
from .analysis import Analysis
from .effort import spend
from .flow import Fact, Flow, State, is_barrier, members
from .memory import Access
from .overlap import rows
from .program import Site

RULES = {
    "shared-race": "a thread uses shared memory that another writes or reads, without a barrier between",
    "elected-arrive": "one lane arrives for a warp whose other lanes' accesses are not ordered before its arrive",
    "copy-wait": "the destination of a cp.async is used before the copy has been waited for",
}

MOST = 6000
"""Pairs of instructions compared thread by thread in one entry."""
ASSUMED = 64
"""Threads compared of a kernel that does not say how many it has: blocks are seldom smaller."""


def findings(analysis: Analysis) -> Iterator[Finding]:
    yield from _Races(analysis).findings()
    found = list(_Copies(analysis).findings())
    yield from found or _never(analysis)


def _accesses(analysis: Analysis, site: Site) -> list[Access]:
    """What the threads themselves read and write in their own CTA; a barrier object is not data."""
    if any(word.startswith("mbarrier") for word in site.sync) or site.mnemonic == "tensormap":
        return []
    return [access for access in analysis.memory.of(site) if access.by == "generic" and access.address.rank is None]


class _Meetings:
    """Which threads of two accesses touch the same bytes."""

    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis
        self.left = MOST
        self._known: dict[tuple[Access, Access], list[tuple[int, int]]] = {}

    def pairs(self, one: Access, other: Access) -> list[tuple[int, int]]:
        """(thread of the one, thread of the other), not the same, with common bytes; [] where the addresses are not known."""
        key = (one, other)
        if key not in self._known:
            if len(self._known) > 256:  # an answer may have thousands of pairs
                self._known.clear()
            self._known[key] = self._pairs(one, other)
        return self._known[key]

    def _pairs(self, one: Access, other: Access) -> list[tuple[int, int]]:
        memory, threads = self.analysis.memory, self.analysis.launch.threads if self.analysis.launch.block else ASSUMED
        if one.symbol != other.symbol or one.bytes is None or other.bytes is None or self.left <= 0:
            return []
        self.left -= 1
        here, there = memory.places(one), memory.places(other)
        if here is None or there is None or memory.rest(one) != memory.rest(other):
            return []
        mine, theirs = self._starts(one, here[:threads]), self._starts(other, there[:threads])
        if not mine or not theirs or max(mine.values()) + one.bytes <= min(theirs.values()) or (
                max(theirs.values()) + other.bytes <= min(mine.values())):
            return []
        piece = gcd(one.bytes, other.bytes, *mine.values(), *theirs.values())
        touched: dict[int, list[int]] = {}
        for thread, at in mine.items():
            for place in range(at // piece, (at + one.bytes) // piece):
                touched.setdefault(place, []).append(thread)
        found: set[tuple[int, int]] = set()
        for thread, at in theirs.items():
            for place in range(at // piece, (at + other.bytes) // piece):
                found.update((first, thread) for first in touched.get(place, ())[:8] if first != thread)
        return sorted(found)[:4096]

    def _starts(self, access: Access, places: list[int | None]) -> dict[int, int]:
        """The offset of each thread that comes, as far as it is known."""
        reach = self.analysis.lanes.of(access.site) & rows(access.site, self.analysis.launch.threads)
        return {thread: at for thread, at in enumerate(places) if at is not None and reach >> thread & 1}


class _Races(Flow):
    """("alone", access): threads whose access is ordered before nobody else; ("warp", access): only before their own warp.

    ("ordered", access): some path has a barrier. ("sent", access, mbarrier): threads that have arrived on it since;
    ("handed", access): some path waits for that. Accesses are known
    by (site, operand); an index that a loop changes ends the fact.
    """

    def __init__(self, analysis: Analysis) -> None:
        super().__init__(analysis)
        self.of = {site.index: found for site in analysis.touching if (found := _accesses(analysis, site))}
        self.by_key = {(index, access.operand): access for index, found in self.of.items() for access in found}
        if all(access.mode == "r" for access in self.by_key.values()):
            self.of, self.by_key = {}, {}
        self.meetings = _Meetings(analysis)
        self._said: set[tuple[str, int, int]] = set()
        self._turning: dict[int, list[tuple[int, str]]] = {}
        for key, access in self.by_key.items():
            for block in {term.block for term, _ in analysis.memory.rest(access) if term.kind == "phi"}:
                self._turning.setdefault(block, []).append(key)
        self._accessed: dict[tuple[str, str], dict[int, list[tuple[int, str]]]] = {}
        for key, access in self.by_key.items():
            self._accessed.setdefault((access.symbol, access.mode), {}).setdefault(access.site.block, []).append(key)

    def relevant(self, site: Site) -> bool:
        return bool(self.of) and (site.index in self.of or is_barrier(site) or "warp.barrier" in site.sync
                                  or site.index in self.analysis.barriers.by_site)

    def turns(self, block: int) -> bool:
        return block in self._turning

    def entered(self, block: int, state: State) -> None:
        for key in self._turning.get(block, ()):
            self.forget(state, self.everyone, ("alone", key), ("warp", key))

    def step(self, site: Site, threads: int, state: State) -> None:
        launch = self.analysis.launch
        for access in self.of.get(site.index, ()):
            key = (site.index, access.operand)
            state["alone", key] = state.get(("alone", key), 0) | threads
            self.forget(state, self.everyone, ("ordered", key), ("handed", key), *(("sent", key, b) for b in self.analysis.barriers.all))
        if is_barrier(site):
            self._order(state, members(self.analysis, site, threads))
        elif "warp.barrier" in site.sync:
            warps = launch.warps(threads)
            for fact in [fact for fact in state if fact[0] == "alone" and state[fact] & warps]:
                state["warp", fact[1]] = state.get(("warp", fact[1]), 0) | state[fact] & warps
            self.drop(state, warps, lambda fact: fact[0] == "alone")
        use = self.analysis.barriers.by_site.get(site.index)
        if use is None or use.barrier is None:
            return
        if use.kinds & {"arrive", "arrive_async"}:
            warps = launch.warps(threads)
            for fact in [fact for fact in state if fact[0] in ("alone", "warp")]:
                sent = state[fact] & (threads if fact[0] == "alone" else warps)
                if sent:
                    state["sent", fact[1], use.barrier] = state.get(("sent", fact[1], use.barrier), 0) | sent
        elif "test" in use.kinds:
            for fact in [fact for fact in state if fact[0] == "sent" and fact[2] is use.barrier]:
                self._order(state, state.pop(fact), fact[1])
                state["handed", fact[1]] = self.everyone

    def _order(self, state: State, threads: int, key: tuple[int, str] | None = None) -> None:
        for fact in [fact for fact in state if fact[0] in ("alone", "warp") and state[fact] & threads and key in (None, fact[1])]:
            state["ordered", fact[1]] = self.everyone
        self.drop(state, threads, lambda fact: fact[0] in ("alone", "warp") and key in (None, fact[1]))

    # ------------------------------------------------------------------------------------------- what is wrong

    def look(self, site: Site, threads: int, state: State) -> Iterator[Finding]:
        for access in self.of.get(site.index, ()):
            for fact in self._harmful(access, state):
                before = self.by_key[fact[1]]
                if not (before.strong and access.strong) and ("handed", fact[1]) not in state:
                    yield from self._race(before, access, threads, state[fact], fact[0] == "warp", ("ordered", fact[1]) in state)
        use = self.analysis.barriers.by_site.get(site.index)
        if use is not None and "arrive" in use.kinds and use.barrier is not None:
            yield from self._elected(site, threads, state)

    def _harmful(self, access: Access, state: State) -> list[Fact]:
        """The accesses to the same variable that may race with this one, where nothing was said of their blocks, in their order."""
        if self.meetings.left <= 0:  # nothing is compared any more
            return []
        harmful = {"r": ("w", "rw"), "w": ("r",), "rw": ("r", "w")}[access.mode]  # two stores mostly store the same
        groups = [keys for mode in harmful for block, keys in self._accessed.get((access.symbol, mode), {}).items()
                  if ("shared-race", block, access.site.block) not in self._said]
        spend(min(sum(map(len, groups)), len(state)))
        if sum(map(len, groups)) <= len(state):
            return sorted(fact for word in ("alone", "warp") for keys in groups for key in keys if (fact := (word, key)) in state)
        return sorted(fact for fact in state if fact[0] in ("alone", "warp") and self.by_key[fact[1]].symbol == access.symbol
                      and self.by_key[fact[1]].mode in harmful)

    def _race(self, before: Access, access: Access, threads: int, holders: int, synced: bool, ordered: bool) -> Iterator[Finding]:
        """`synced`: each warp is ordered in itself; a matrix instruction brings its warp together anyway."""
        matrix = "matrix" in before.site.mnemonic or "matrix" in access.site.mnemonic
        key = ("shared-race", before.site.block, access.site.block)
        if key in self._said:
            return
        taken_in_turn = self._after_wait(before.site)
        for first, second in self.meetings.pairs(before, access):
            if taken_in_turn and first // 128 != second // 128:
                continue  # warpgroups that run the same code one after the other, as mbarriers let them
            if not (holders >> first & 1 and threads >> second & 1) or ((synced or matrix) and first // 32 == second // 32):
                continue
            self._said.add(key)
            within = first // 32 == second // 32
            certain = not ordered and not within and self.analysis.launch.exact and self._certain(before, access, first, second)
            did, does = "reads" if before.mode == "r" else "writes", "reads" if access.mode == "r" else "overwrites"
            path = "on some path " if ordered else ""
            yield self.analysis.report(
                "shared-race", access.site, f"`{access.site.name}` in thread {second} {does} shared memory that thread {first} {did} with "
                f"`{before.site.name}` at {before.site.place}, and {path}no barrier stands between",
                "bar.warp.sync between them" if within else "bar.sync between them", "error" if certain else "review")
            return

    def _certain(self, before: Access, access: Access, first: int, second: int) -> bool:
        """Whether nothing that is not followed here may order the two threads, in the one direction or the other."""
        between = self.analysis.between
        return (self.analysis.overlap.surely(before, access, 1 << first, 1 << second) and not between.exclusive(before.site, access.site)
                and not between.after(before.site, access.site, 1 << second) and not between.before(before.site, 1 << first))

    def _after_wait(self, site: Site) -> bool:
        return any("test" in use.kinds and self.analysis.routine.dominators.above(use.site.block, site.block)
                   for use in self.analysis.barriers.uses)

    def _elected(self, site: Site, threads: int, state: State) -> Iterator[Finding]:
        """One lane of a warp arrives, and other lanes of it have accessed what a waiter then uses."""
        warps = self.analysis.launch.warps(threads)
        if threads.bit_count() * 32 > warps.bit_count():
            return
        for fact in sorted(fact for fact in state if fact[0] == "alone" and state[fact] & warps & ~threads):
            before = self.by_key[fact[1]]
            if self._waited_for(site, before, threads):
                yield self.analysis.report(
                    "elected-arrive", site, f"one lane arrives for its warp, but the {'load' if before.mode == 'r' else 'store'} "
                    f"`{before.site.name}` at {before.site.place} of the other lanes is not ordered before its arrive",
                    "bar.warp.sync before the arrive, or let every lane arrive")
                return

    def _waited_for(self, site: Site, before: Access, threads: int) -> bool:
        """Whether others, after a wait on this barrier, use the same memory, one of the two writing it."""
        barrier = self.analysis.barriers.by_site[site.index].barrier
        warps = self.analysis.launch.warps(threads)
        for use in barrier.having("test") if barrier is not None else ():
            if self.analysis.lanes.of(use.site) & ~warps:
                later = {use.site.block, *self.analysis.reaches(use.site.block)}
                if any((before.mode != "r" or access.mode != "r") and self.analysis.memory.may_meet(access, before)
                       for other in self.analysis.sites if other.block in later and self.analysis.lanes.of(other) & ~warps
                       for access in self.analysis.memory.of(other) if access.operand not in ("mbar", "addr")):
                    return True
        return False


def _never(analysis: Analysis) -> Iterator[Finding]:
    """Copies of which the whole kernel waits for none, or makes no group that a wait could count."""
    memory, sites = analysis.memory, analysis.sites
    copies = [access for site in sites if "async.issue" in site.sync for access in memory.of(site) if access.operand == "dst"]
    waits = [site for site in sites if not {"async.wait", "mbarrier.arrive_async"}.isdisjoint(site.sync)]
    grouped = any("async.commit" in site.sync for site in sites)
    if not copies or any(site.control == "unknown" for site in sites) or any(site.value("n") is None or grouped for site in waits):
        return
    copy = copies[0].site
    for access in (access for site in sites for access in memory.of(site)):
        if access.mode != "w" and access.operand not in ("mbar", "addr") and any(memory.may_meet(filled, access) for filled in copies):
            what = "no group is ever committed that a wait could count" if waits else "nothing ever waits for one"
            certain = any(analysis.overlap.surely(filled, access) and not analysis.between.exclusive(filled.site, access.site)
                          for filled in copies)
            yield analysis.report(
                "copy-wait", access.site, f"`{access.site.name}` reads shared memory that the `{copy.name}` at {copy.place} fills, and "
                f"{what}", "cp.async.commit_group, and a cp.async.wait_group that covers the group; then a barrier",
                "error" if certain else "review")
            return


class _Copies(Flow):
    """("copying", site, commits, waited): the thread's cp.async may not have landed; `waited` after a wait that leaves its group.
    ("landed", site): on some path it has.
    """

    narrow = frozenset(("copying",))

    def __init__(self, analysis: Analysis) -> None:
        super().__init__(analysis)
        self.copies = {site.index: next((a for a in analysis.memory.of(site) if a.operand == "dst"), None)
                       for site in analysis.sites if "async.issue" in site.sync}
        self.meetings = _Meetings(analysis)
        self._said: set[int] = set()

    def relevant(self, site: Site) -> bool:
        return bool(self.copies) and (site.index in self.copies or bool(self.analysis.memory.of(site))
                                      or not {"async.commit", "async.wait", "mbarrier.arrive_async"}.isdisjoint(site.sync))

    def step(self, site: Site, threads: int, state: State) -> None:
        mine = sorted((fact for fact in state if fact[0] == "copying" and state[fact] & threads), key=lambda fact: -fact[2])
        if site.index in self.copies:
            state["copying", site.index, 0, False] = threads
            self.forget(state, threads, ("landed", site.index))
        elif "mbarrier.arrive_async" in site.sync:
            for fact in mine:
                state["landed", fact[1]] = self.everyone
            self.drop(state, threads, lambda fact: fact[0] == "copying")  # whoever waits on the barrier waits for the copies
        elif "async.commit" in site.sync:
            for fact in mine:
                new = (*fact[:2], min(fact[2] + 1, 9), fact[3])
                state[new] = state.get(new, 0) | state.pop(fact)
        elif "async.wait" in site.sync:
            left = self.analysis.constant(site, "n") if site.value("n") is not None else -1
            for fact in mine:
                holders = state.pop(fact)
                if fact[2] <= (left if left is not None else 0):
                    new = (*fact[:3], True)
                    state[new] = state.get(new, 0) | holders
                else:
                    state["landed", fact[1]] = self.everyone

    def look(self, site: Site, threads: int, state: State) -> Iterator[Finding]:
        if site.index in self.copies:
            return
        for access in self.analysis.memory.of(site):
            for fact in sorted(fact for fact in state if fact[0] == "copying" and state[fact] & threads):
                copy = self.copies[fact[1]]
                if copy is not None and site.index not in self._said and self._used(copy, access, fact[3]):
                    self._said.add(site.index)
                    yield self.analysis.report(
                        "copy-wait", site, f"`{site.name}` uses shared memory that the `{copy.site.name}` at {copy.site.place} may not "
                        "have filled yet", "a cp.async.wait_group that covers its group, in the thread that copies; then a barrier",
                        "review" if fact[3] or ("landed", fact[1]) in state or not self._certain(copy, access, threads) else "error")

    def _certain(self, copy: Access, access: Access, threads: int) -> bool:
        return self.analysis.overlap.surely(copy, access, threads, threads) and not self.analysis.between.exclusive(
            copy.site, access.site, one_thread=True)

    def _used(self, copy: Access, access: Access, waited: bool) -> bool:
        if access.operand in ("mbar", "addr"):
            return False
        if access.by == "async":
            return self.analysis.memory.may_meet(copy, access) and not (waited and self.analysis.memory.rest(copy))
        memory = self.analysis.memory
        spend(8)
        here, there = memory.places(copy), memory.places(access)
        if here is None or there is None or copy.symbol != access.symbol or memory.rest(copy) != memory.rest(access):
            return False
        one, other = memory.span(copy), memory.span(access)
        if one is None or other is None or one[1] <= other[0] or other[1] <= one[0]:
            return False
        spend(64)
        return bool(self.meetings.pairs(copy, access)) or any(a is not None and a == b for a, b in zip(here, there, strict=True))
