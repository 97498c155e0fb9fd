"""Before the first use: an mbarrier is initialised and the others know it; the CTAs of the cluster have begun."""

from __future__ import annotations

from collections.abc import Iterator

from ..grammar import tree
from ..grammar.errors import Finding
from .analysis import Analysis
from .flow import Flow, State, is_barrier, members
from .program import Site
from .values import Linear

RULES = {
    "init-twice": "an mbarrier is initialised again while it is one, without mbarrier.inval",
    "init-before-use": "a thread uses an mbarrier that another has initialised, without a barrier between",
    "init-fence": "an mbarrier is used by other CTAs after a relaxed cluster arrive without fence.mbarrier_init",
    "cluster-entry": "the shared memory or an mbarrier of another CTA is used before a cluster barrier",
}


def findings(analysis: Analysis) -> Iterator[Finding]:
    yield from _Startup(analysis).findings()


class _Startup(Flow):
    """("fresh", init): threads that may not rely on it yet. ("known", init): on some path a barrier came between.

    ("remote", init, stage): how far the news is on its way to other CTAs: "made", "fenced", "sent" and "sent unfenced" after
    the cluster's arrive, "unfenced" after the wait. ("live", symbol, offset): an mbarrier is there. ("early",): no cluster barrier yet;
    ("joined",): on some path there was one.
    """

    def __init__(self, analysis: Analysis) -> None:
        super().__init__(analysis)
        self.inits = {use.site.index: use for use in analysis.barriers.uses if "init" in use.kinds and use.barrier is not None}
        self._said: set[tuple[str, object]] = set()

    def start(self) -> State:
        return {("early",): self.everyone}

    def relevant(self, site: Site) -> bool:
        return (site.index in self.analysis.barriers.by_site or is_barrier(site) or "fence" in site.sync or "cluster.arrive" in site.sync
                or "warp.barrier" in site.sync or bool(remote_accesses(self.analysis, site)))

    def step(self, site: Site, threads: int, state: State) -> None:
        use = self.analysis.barriers.by_site.get(site.index)
        if use is not None and "inval" in use.kinds:
            self.drop(state, self.everyone, lambda fact: fact[0] == "live")
        if site.index in self.inits:
            if use is not None and not use.address.terms:
                state["live", use.address.symbol, use.low] = self.everyone
            state["fresh", site.index] = self.everyone if self._many(site, threads) else self.everyone & ~threads
            self.drop(state, self.everyone, lambda fact: fact[0] in ("remote", "known") and fact[1] == site.index)
            state["remote", site.index, "made"] = self.everyone
        elif is_barrier(site) or "warp.barrier" in site.sync:
            for fact in [fact for fact in state if fact[0] == "fresh"]:
                initialisers = self.analysis.lanes.of(self.inits[fact[1]].site)
                together = members(self.analysis, site, threads)
                if "warp.barrier" in site.sync:
                    together = self.analysis.launch.warps(initialisers & threads)
                elif initialisers & together:
                    state["known", fact[1]] = self.everyone
                if initialisers & together:
                    self.drop(state, together, lambda other, this=fact: other == this)  # type: ignore[misc]
        if "mbarrier.fence_init" in site.sync or (site.mnemonic == "fence" and site.tokens & {"cluster", "gpu", "sys"}
                                                  and site.tokens & {"sc", "acq_rel", "release"}):
            self._move(state, {"made": "fenced"})
        elif "cluster.arrive" in site.sync:
            relaxed = "relaxed" in site.tokens
            self._move(state, {"made": "sent unfenced" if relaxed else "sent", "fenced": "sent", "unfenced": "sent unfenced"})
        elif "cluster.wait" in site.sync:
            self._move(state, {"sent unfenced": "unfenced", "sent": ""})
            state.pop(("early",), None)
            state[("joined",)] = self.everyone

    def _many(self, site: Site, threads: int) -> bool:
        """Whether several threads initialise one mbarrier: each may do so after another has begun to use it."""
        analysis, use = self.analysis, self.inits[site.index]
        return threads & (threads - 1) != 0 and not use.address.terms and analysis.launch.block is not None and analysis.lanes.exact(site)

    @staticmethod
    def _move(state: State, stages: dict[str, str]) -> None:
        for fact in [fact for fact in state if fact[0] == "remote" and fact[2] in stages]:
            holders = state.pop(fact)
            if stages[fact[2]]:
                new = (*fact[:2], stages[fact[2]])
                state[new] = state.get(new, 0) | holders

    # ------------------------------------------------------------------------------------------- what is wrong

    def look(self, site: Site, threads: int, state: State) -> Iterator[Finding]:
        use = self.analysis.barriers.by_site.get(site.index)
        if use is not None and use.kinds & {"init"} and ("live", use.address.symbol, use.low) in state and not use.address.terms:
            yield self.analysis.report(
                "init-twice", site, f"`{site.name}` initialises an mbarrier of {use.barrier} that is one already: who waits or arrives on "
                "it loses its phase", "mbarrier.inval before, or one mbarrier.init for each barrier", "error")
        if use is not None and use.barrier is not None and "init" not in use.kinds and not use.remote:
            for fact in sorted(fact for fact in state if fact[0] == "fresh" and state[fact] & threads):
                init = self.inits[fact[1]]
                same = init.barrier is use.barrier and (use.address.terms or init.address.terms or init.low == use.low)
                if same and self._new("init-before-use", use.barrier):
                    certain = ("known", fact[1]) not in state
                    yield self.analysis.report(
                        "init-before-use", site, f"`{site.name}` uses the mbarrier {use.barrier} that another thread initialises at "
                        f"{init.site.place}, and {'' if certain else 'on some path '}no barrier stands between",
                        "bar.sync 0 (in a cluster barrier.cluster.arrive and wait) between mbarrier.init and the first use",
                        "error" if certain else "review")
        if self.analysis.in_clusters:
            yield from self._remote(site, state)

    def _remote(self, site: Site, state: State) -> Iterator[Finding]:
        what = remote_accesses(self.analysis, site)
        if not what:
            return
        use = self.analysis.barriers.by_site.get(site.index)
        if ("early",) in state and self._new("cluster-entry", use.barrier if use is not None and use.barrier is not None else site.index):
            never = ("joined",) not in state
            path = "" if never else "on some path "
            yield self.analysis.report(
                "cluster-entry", site, f"`{site.name}` touches {what[0]} of another CTA, and {path}no cluster barrier comes before: that "
                "CTA may not have started", "barrier.cluster.arrive and barrier.cluster.wait in every thread before this line",
                "error" if never and self.analysis.cluster is not None else "review")
            return
        for fact in sorted(fact for fact in state if fact[0] == "remote"):
            init = self.inits[fact[1]]
            if use is None or use.barrier is not init.barrier or not self._new("init-fence", init.barrier):
                continue
            unfenced = fact[2] in ("unfenced", "sent unfenced")
            yield self.analysis.report(
                "init-fence" if unfenced else "cluster-entry", init.site if unfenced else site,
                f"other CTAs use the mbarrier {init.barrier} at {site.place} after a relaxed cluster arrive, which does not publish its "
                "initialisation" if unfenced else f"`{site.name}` uses the mbarrier {init.barrier} of another CTA, which may not have "
                f"initialised it: no cluster barrier comes after {init.site.place}",
                "fence.mbarrier_init.release.cluster after mbarrier.init" if unfenced else
                "barrier.cluster.arrive and barrier.cluster.wait between mbarrier.init and this line", "error" if unfenced else "review")
            return

    def _new(self, rule: str, what: object) -> bool:
        new = (rule, what) not in self._said
        self._said.add((rule, what))
        return new


def remote_accesses(analysis: Analysis, site: Site) -> list[str]:
    """What of other CTAs' shared memory the site touches, in words: addresses made by mapa, and destinations of a multicast."""
    if site.mnemonic in ("mapa", "getctarank"):
        return []
    found = []
    if "multicast::cluster" in site.tokens:
        found.append("the shared memory and the mbarrier")
    for parameter, value in zip(site.signature.parameters if site.signature else (), site.values, strict=True):
        space = str(parameter.operand.space)
        if isinstance(value, tree.Address) and space.partition("::")[0] in ("", "shared") and space != "shared::cta":
            address: Linear = analysis.values.address(site, value)
            if address.rank is not None:
                found.append("an mbarrier" if parameter.operand.tag == "mbarrier" else "the shared memory")
    return found
