"""Shared memory that threads write and asynchronous operations read: the proxy fence, and the barrier between writers and reader."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from functools import cached_property

from ..grammar.errors import Finding
from .analysis import Analysis
from .effort import spend
from .flow import Flow, State, is_barrier, members
from .memory import Access
from .program import Site

RULES = {
    "proxy-fence": "shared memory that threads wrote is used by a bulk copy or wgmma without fence.proxy.async between",
    "store-barrier": "shared memory that other threads wrote is read by a bulk copy or wgmma without a barrier between",
}


def findings(analysis: Analysis) -> Iterator[Finding]:
    yield from _Fences(analysis).findings()
    yield from _Writers(analysis).findings()


def _writes(analysis: Analysis, site: Site) -> list[Access]:
    """What the threads themselves write to shared memory; a barrier object is not data."""
    if any(word.startswith("mbarrier") for word in site.sync) and site.mnemonic != "st":
        return []
    return [access for access in analysis.memory.of(site) if access.by == "generic" and access.mode != "r"]


def _uses(analysis: Analysis, site: Site) -> list[Access]:
    """What asynchronous operations read or overwrite."""
    return [access for access in analysis.memory.of(site) if access.by == "async" and access.operand != "mbar"]


class _Shared(Flow):
    """Both analyses follow the stores that some asynchronous operation may meet.

    ("pending", cp.async, commits): the thread's copy, which stores only when it is waited for.
    """

    narrow = frozenset(("pending",))

    def __init__(self, analysis: Analysis) -> None:
        super().__init__(analysis)
        self._said: set[tuple[int, bool]] = set()
        memory = analysis.memory
        used = {memory.region(access) for site in analysis.touching for access in _uses(analysis, site)}
        self.stores = {site.index: written for site in analysis.touching
                       if (written := [a for a in _writes(analysis, site) if memory.region(a) in used])}

    def relevant(self, site: Site) -> bool:
        sync = site.sync
        return bool(self.stores) and (site.index in self.stores or bool(_uses(self.analysis, site)) or is_barrier(site)
                                      or site.effects.fence is not None or "warp.barrier" in sync or "cta.arrive" in sync
                                      or site.index in self.analysis.barriers.by_site
                                      or not {"async.commit", "async.wait", "mbarrier.arrive_async"}.isdisjoint(sync))

    def new(self, site: Site, certain: bool) -> bool:
        """One finding speaks for the products of one block, which read what the same stores wrote."""
        key = (site.block if site.mnemonic == "wgmma" else ~site.index, certain)
        said = key in self._said or (site.block, True) in self._said
        self._said.add(key)
        return not said

    @abstractmethod
    def stored(self, store: int, threads: int, state: State) -> None:
        """These threads have stored."""

    def step(self, site: Site, threads: int, state: State) -> None:
        sync = site.sync
        if site.index in self.stores and "async.issue" in sync:
            state["pending", site.index, 0] = threads
        elif site.index in self.stores:
            self.stored(site.index, threads, state)
        if {"async.commit", "async.wait", "mbarrier.arrive_async"}.isdisjoint(sync):
            return
        pending = sorted((fact for fact in state if fact[0] == "pending" and state[fact] & threads), key=lambda fact: -fact[2])
        if "async.commit" in sync:
            for fact in pending:
                new = (*fact[:2], min(fact[2] + 1, 9))
                state[new] = state.get(new, 0) | state.pop(fact)
        else:
            left = self.analysis.constant(site, "n") if site.value("n") is not None else -1
            for fact in pending:
                if fact[2] > (left if left is not None else 0):
                    self.stored(fact[1], state.pop(fact) & threads, state)

    def met(self, use: Access, store: int) -> bool:
        return any(self.analysis.memory.may_meet(use, written) for written in self.stores[store])

    def surely_met(self, use: Access, store: int, writers: int = -1) -> bool:
        """Whether these writers' store takes bytes that the use takes, whatever the data are."""
        site = self.analysis.routine.sites[store]
        return not self.analysis.between.exclusive(site, use.site) and any(
            self.analysis.overlap.surely(written, use, writers) for written in self.stores[store])

    def place(self, store: int) -> str:
        site = self.analysis.routine.sites[store]
        return f"`{site.name}` at {site.place}"


def _fences(site: Site) -> bool:
    """Whether the site orders this thread's generic accesses to shared memory before asynchronous ones."""
    fence = site.effects.fence
    return fence is not None and fence[1] == "async" and "global" not in site.tokens


class _Fences(_Shared):
    """("stale", store): the thread has made or seen the store, and no proxy fence since. ("fenced", store): on some path there is one."""

    narrow = frozenset(("stale", "fenced", "pending"))

    def stored(self, store: int, threads: int, state: State) -> None:
        state["stale", store] = state.get(("stale", store), 0) | threads
        self.forget(state, threads, ("fenced", store))

    def step(self, site: Site, threads: int, state: State) -> None:
        super().step(site, threads, state)
        if _fences(site):
            for fact in [fact for fact in state if fact[0] == "stale" and state[fact] & threads]:
                state["fenced", fact[1]] = state.get(("fenced", fact[1]), 0) | threads
            self.drop(state, threads, lambda fact: fact[0] == "stale")
        if is_barrier(site):
            self._spread(state, threads, members(self.analysis, site, threads))
            for other in self._partners(site, threads):
                self.receive(other, state, threads)
        elif "warp.barrier" in site.sync:
            self._spread(state, threads, None)
        if "cta.barrier" in site.sync or "cta.arrive" in site.sync:
            self.send(site.index, state, threads, "stale", "fenced")
        use = self.analysis.barriers.by_site.get(site.index)
        if use is not None and use.barrier is not None:
            if use.kinds & {"arrive", "arrive_async"}:
                self.send(use.barrier, state, threads, "stale", "fenced")
            elif "test" in use.kinds:
                self.receive(use.barrier, state, threads)

    def _spread(self, state: State, threads: int, to: int | None) -> None:
        """What the threads know is known to all that they meet; `to` is None where each warp meets by itself."""
        for fact in [fact for fact in state if fact[0] != "pending" and state[fact] & threads]:
            state[fact] |= self.analysis.launch.warps(state[fact] & threads) if to is None else to

    def _partners(self, site: Site, threads: int) -> list[int]:
        """Where threads of another role come to the same barrier."""
        if site.value("a") is None:
            return []
        name = self.analysis.constant(site, "a")
        spend(len(self._numbered.get(name, ())) // 4)
        return [index for index, others in self._numbered.get(name, ()) if not others & threads]

    @cached_property
    def _numbered(self) -> dict[int | None, list[tuple[int, int]]]:
        """The sites of named barriers with their threads, by the barrier's number."""
        found: dict[int | None, list[tuple[int, int]]] = {}
        for site in self.analysis.sites:
            if "cta.barrier" in site.sync or "cta.arrive" in site.sync:
                found.setdefault(self.analysis.constant(site, "a"), []).append((site.index, self.analysis.lanes.of(site)))
        return found

    def look(self, site: Site, threads: int, state: State) -> Iterator[Finding]:
        for use in _uses(self.analysis, site):
            stale = [fact[1] for fact, holders in state.items() if fact[0] == "stale" and holders & threads and self.met(use, fact[1])]
            if stale:
                certain = [store for store in stale if ("fenced", store) not in state and self.surely_met(use, store)]
                if not self.new(site, bool(certain)):
                    return
                store = min(certain or stale)
                verb = "reads" if use.mode == "r" else "overwrites"
                path = "" if certain else " on some path"
                yield self.analysis.report(
                    "proxy-fence", site, f"`{site.name}` {verb} shared memory that {self.place(store)} wrote, and{path} no "
                    "fence.proxy.async stands between: the asynchronous proxy may see the old bytes",
                    "fence.proxy.async.shared::cta in every thread that wrote, before the barrier that precedes this line",
                    "error" if certain else "review")
                return


class _Writers(_Shared):
    """("alone", store): threads whose store only they know to be done; ("warp", store): only their warp; ("ordered", store): some path
    has a barrier; ("sent", store, barrier): threads that have arrived on an mbarrier since."""

    def stored(self, store: int, threads: int, state: State) -> None:
        state["alone", store] = state.get(("alone", store), 0) | threads
        self.forget(state, self.everyone, ("ordered", store), *(("sent", store, b) for b in self.analysis.barriers.all))

    def step(self, site: Site, threads: int, state: State) -> None:
        super().step(site, threads, state)
        if is_barrier(site):
            self._order(state, members(self.analysis, site, threads))
        elif "warp.barrier" in site.sync:
            warps = self.analysis.launch.warps(threads)
            for fact in [fact for fact in state if fact[0] == "alone" and state[fact] & warps]:
                state["warp", fact[1]] = state.get(("warp", fact[1]), 0) | state[fact] & warps
            self.drop(state, warps, lambda fact: fact[0] == "alone")
        use = self.analysis.barriers.by_site.get(site.index)
        if use is not None and use.barrier is not None:
            if use.kinds & {"arrive", "arrive_async"}:
                warps = self.analysis.launch.warps(threads)
                for fact in [fact for fact in state if fact[0] in ("alone", "warp")]:
                    sent = state[fact] & (threads if fact[0] == "alone" else warps)
                    if sent:
                        key = ("sent", fact[1], use.barrier)
                        state[key] = state.get(key, 0) | sent
            elif "test" in use.kinds:
                for fact in [fact for fact in state if fact[0] == "sent" and fact[2] is use.barrier]:
                    self._order(state, state.pop(fact), fact[1])

    def _order(self, state: State, threads: int, store: int | None = None) -> None:
        for fact in [fact for fact in state if fact[0] in ("alone", "warp") and state[fact] & threads and store in (None, fact[1])]:
            state["ordered", fact[1]] = self.everyone
        self.drop(state, threads, lambda fact: fact[0] in ("alone", "warp") and store in (None, fact[1]))

    def look(self, site: Site, threads: int, state: State) -> Iterator[Finding]:
        warps = self.analysis.launch.warps(threads)
        together = site.effects.convergence == "warpgroup"
        for use in _uses(self.analysis, site):
            found: dict[int, int] = {}
            for fact, writers in state.items():
                others = {"alone": writers if together else writers & ~threads, "warp": writers & ~warps}.get(fact[0], 0)
                if together and not others & ~(warps if warps.bit_count() <= 32 else 0):
                    others = 0
                if others and self.met(use, fact[1]):
                    found[fact[1]] = found.get(fact[1], 0) | others
            if found:
                certain = [store for store, writers in found.items() if ("ordered", store) not in state
                           and self.surely_met(use, store, writers)
                           and not self.analysis.between.after(self.analysis.routine.sites[store], site, threads)]
                if not self.new(site, bool(certain)):
                    return
                yield self.analysis.report(
                    "store-barrier", site, f"`{site.name}` reads shared memory that other threads write with "
                    f"{self.place(min(certain or found))}, and {'' if certain else 'on some path '}no barrier stands between",
                    "bar.sync (or an mbarrier that every writer arrives on) between the stores and this line",
                    "error" if certain else "review")
                return
