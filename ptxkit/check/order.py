"""Memory order of arrives and waits: what a relaxed one, or one of too small a scope, does not order."""

from __future__ import annotations

from collections.abc import Iterator

from ..grammar.errors import Finding
from .analysis import Analysis
from .flow import Flow, State, is_barrier
from .memory import Access
from .program import Site

RULES = {
    "wait-order": "after a relaxed wait (or one of too small a scope) memory is used without a fence",
    "arrive-order": "before a relaxed arrive (or one of too small a scope) memory is written without a fence",
}


def findings(analysis: Analysis) -> Iterator[Finding]:
    if analysis.barriers.uses:
        yield from _Order(analysis).findings()


class _Order(Flow):
    """("weak", wait): threads that have only waited weakly; ("written", site): threads whose store no fence or barrier has followed."""

    narrow = frozenset(("weak", "written"))

    def __init__(self, analysis: Analysis) -> None:
        super().__init__(analysis)
        self.published = self._published()
        self._said: set[tuple[str, int]] = set()

    def _published(self) -> list[Access]:
        """Stores of the threads into other CTAs."""
        return [access for site in self.analysis.touching for access in self._data(site)
                if access.by == "generic" and access.mode != "r" and access.address.rank is not None and "async" not in site.tokens]

    def _data(self, site: Site) -> list[Access]:
        return [access for access in self.analysis.memory.of(site) if access.operand not in ("mbar", "addr")]

    def relevant(self, site: Site) -> bool:
        return (site.index in self.analysis.barriers.by_site or bool(self._data(site)) or is_barrier(site) or "fence" in site.sync)

    def step(self, site: Site, threads: int, state: State) -> None:
        use = self.analysis.barriers.by_site.get(site.index)
        if use is not None and "test" in use.kinds and self._weak(site):
            state["weak", site.index] = threads
        elif use is not None and "test" in use.kinds:
            self.forget(state, threads, ("weak", site.index))
        elif "fence" in site.sync and site.effects.fence is None:
            if site.tokens & {"sc", "acq_rel", "acquire"}:
                self.drop(state, threads, lambda fact: fact[0] == "weak")
            if site.tokens & {"sc", "acq_rel", "release"}:
                self.drop(state, threads, lambda fact: fact[0] == "written")
        elif is_barrier(site):
            self.drop(state, threads, lambda fact: fact[0] == "written")
        for access in self._data(site) if use is None else ():
            if access.by == "generic" and access.mode != "r" and "async" not in site.tokens:
                state["written", site.index] = threads

    def _weak(self, site: Site) -> bool:
        """Relaxed, or of the CTA's scope where other CTAs' stores are waited for."""
        use = self.analysis.barriers.by_site[site.index]
        if "relaxed" in site.tokens:
            return True
        remote = use.barrier is not None and any(other.remote for other in use.barrier.having("arrive"))
        return remote and bool(self.published) and not site.tokens & {"cluster"}

    # ------------------------------------------------------------------------------------------- what is wrong

    def look(self, site: Site, threads: int, state: State) -> Iterator[Finding]:
        use = self.analysis.barriers.by_site.get(site.index)
        if use is not None and "arrive" in use.kinds:
            yield from self._arrive(site, threads, state)
        for access in self._data(site) if use is None or "complete_tx" in use.kinds else ():
            for fact in sorted(fact for fact in state if fact[0] == "weak" and state[fact] & threads):
                wait = self.analysis.routine.sites[fact[1]]
                if not self._matters(wait, access) or ("wait-order", wait.index) in self._said:
                    continue
                self._said.add(("wait-order", wait.index))
                what = "is relaxed" if "relaxed" in wait.tokens else "has the scope of its CTA, and other CTAs store what it waits for"
                yield self.analysis.report(
                    "wait-order", wait, f"`{wait.name}` {what}: it does not order the `{site.name}` at {site.place} after what the arrives "
                    "publish", "the default (.acquire), with .cluster where other CTAs store; or fence.acq_rel behind the wait")

    def _matters(self, wait: Site, access: Access) -> bool:
        """Of a wait whose scope is too small only the memory that other CTAs store to is concerned."""
        if "relaxed" in wait.tokens:
            return True
        places = {(other.symbol, other.low) for other in self.published}
        return access.address.rank is None and access.mode == "r" and any(symbol == access.symbol for symbol, _ in places)

    def _arrive(self, site: Site, threads: int, state: State) -> Iterator[Finding]:
        use = self.analysis.barriers.by_site[site.index]
        small = use.remote and not site.tokens & {"cluster"}
        if "relaxed" not in site.tokens and not small:
            return
        for fact in sorted(fact for fact in state if fact[0] == "written" and state[fact] & threads):
            store = self.analysis.routine.sites[fact[1]]
            remote = any(access.address.rank is not None for access in self._data(store))
            if ("relaxed" in site.tokens or remote) and ("arrive-order", site.index) not in self._said:
                self._said.add(("arrive-order", site.index))
                what = "is relaxed" if "relaxed" in site.tokens else "releases to its own CTA only"
                yield self.analysis.report(
                    "arrive-order", site, f"`{site.name}` {what}: a waiter may not see what `{store.name}` at {store.place} stored",
                    "the default (.release), with .cluster where another CTA waits; or fence.acq_rel before the arrive")
