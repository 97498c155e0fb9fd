"""Before the first use: an mbarrier is initialised and the others know it; the CTAs of the cluster have begun."""

from __future__ import annotations

from collections.abc import Iterator

from ..grammar import tree
from ..grammar.errors import Finding
from .analysis import Analysis
from .barriers import Use
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
    the cluster's arrive, "unfenced" after the wait; ("published", init): on some path it was fenced. ("live", symbol, offset): an
    mbarrier is there; ("bare", symbol, offset): on some path there is none yet. ("early",): no cluster barrier yet; ("joined",): on some
    path there was one.
    """

    def __init__(self, analysis: Analysis) -> None:
        super().__init__(analysis)
        self.inits = {use.site.index: use for use in analysis.barriers.uses if "init" in use.kinds and use.barrier is not None}
        self._said: set[tuple[str, object]] = set()

    def start(self) -> State:
        places = {(use.address.symbol, use.low) for use in self.inits.values() if not use.address.terms}
        return {("early",): self.everyone, **{("bare", *place): self.everyone for place in places}}

    def relevant(self, site: Site) -> bool:
        return (site.index in self.analysis.barriers.by_site or is_barrier(site) or "fence" in site.sync or "cluster.arrive" in site.sync
                or "warp.barrier" in site.sync or bool(remote_accesses(self.analysis, site)))

    def step(self, site: Site, threads: int, state: State) -> None:
        use = self.analysis.barriers.by_site.get(site.index)
        if use is not None and "inval" in use.kinds:
            for fact in [fact for fact in state if fact[0] == "live"]:
                state["bare", *fact[1:]] = state.pop(fact)
        if site.index in self.inits:
            if use is not None and not use.address.terms:
                state["live", use.address.symbol, use.low] = self.everyone
                if self.analysis.lanes.surely(site):
                    state.pop(("bare", use.address.symbol, use.low), None)
            state["fresh", site.index] = self.everyone if self._many(site, threads) else self.everyone & ~threads
            self.drop(state, self.everyone, lambda fact: fact[0] in ("remote", "known", "published") and fact[1] == site.index)
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
                                                  and site.tokens & {"sc", "acq_rel", "release"}) or (
                site.mnemonic == "membar" and site.tokens & {"gl", "sys"}):
            for fact in [fact for fact in state if fact[0] == "remote"]:
                state["published", fact[1]] = self.everyone
            self._move(state, {"made": "fenced"})
        elif "cluster.arrive" in site.sync:
            relaxed = "relaxed" in site.tokens
            sent = "sent unfenced" if relaxed else "sent"
            self._move(state, {"made": sent, "fenced": "sent", "unfenced": sent})
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
            certain = ("bare", use.address.symbol, use.low) not in state
            yield self.analysis.report(
                "init-twice", site, f"`{site.name}` initialises an mbarrier of {use.barrier} that is one already: who waits or arrives on "
                "it loses its phase", "mbarrier.inval before, or one mbarrier.init for each barrier", "error" if certain else "review")
        if use is not None and use.barrier is not None and "init" not in use.kinds and not use.remote:
            yield from self._early(use, threads, state)
        if self.analysis.in_clusters:
            yield from self._remote(site, threads, state)

    def _early(self, use: Use, threads: int, state: State) -> Iterator[Finding]:
        """A use by threads that may not rely on the init yet; one that surely comes too early is told before others."""
        fresh = [self.inits[fact[1]] for fact in sorted(fact for fact in state if fact[0] == "fresh" and state[fact] & threads)]
        inits = [init for init in fresh if init.barrier is use.barrier
                 and (use.address.terms or init.address.terms or init.low == use.low)]
        if not inits or not self._new("init-before-use", use.barrier):
            return
        certain = next((init for init in inits if ("known", init.site.index) not in state
                        and self._unordered(init, use, state["fresh", init.site.index] & threads)), None)
        yield self.analysis.report(
            "init-before-use", use.site, f"`{use.site.name}` uses the mbarrier {use.barrier} that another thread initialises at "
            f"{(certain or inits[0]).site.place}, and {'' if certain else 'on some path '}no barrier stands between",
            "bar.sync 0 (in a cluster barrier.cluster.arrive and wait) between mbarrier.init and the first use",
            "error" if certain else "review")

    def _unordered(self, init: Use, use: Use, users: int) -> bool:
        """Whether the threads use just the mbarrier of the init, which threads of another warp execute, and know nothing of these."""
        launch, between = self.analysis.launch, self.analysis.between
        initialisers = self.analysis.lanes.of(init.site)
        warps = launch.warps(initialisers)
        apart = users & ~warps or (users and warps & ~launch.warps(initialisers & -initialisers))
        return bool(apart) and not init.address.terms and self._start(use) == init.low and not between.exclusive(
            init.site, use.site) and not between.after(init.site, use.site, users)

    def _start(self, use: Use) -> int | None:
        """Where the mbarrier is that a use names the first time."""
        firsts = [(self.analysis.values.initial(term), factor) for term, factor in use.address.terms]
        known = all(first is not None for first, _ in firsts)
        return use.address.offset + sum((first or 0) * factor for first, factor in firsts) if known else None

    def _remote(self, site: Site, threads: int, state: State) -> Iterator[Finding]:
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
                "error" if never and surely_remote(self.analysis, site) and not self.analysis.between.before(site, threads) else "review")
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
                "barrier.cluster.arrive and barrier.cluster.wait between mbarrier.init and this line",
                "error" if unfenced and ("published", fact[1]) not in state and surely_remote(self.analysis, site)
                and not self.analysis.between.exclusive(init.site, site) and not self._told(init, site) else "review")
            return

    def _told(self, init: Use, site: Site) -> bool:
        """Whether the initialising thread does anything else on the way that may publish what it has done."""
        return any(self.analysis.lanes.of(other) & self.analysis.lanes.of(init.site) and (
            other.control in ("unknown", "call") or other.mnemonic in ("atom", "red")
            or (other.mnemonic != "barrier" and other.tokens & {"cluster", "gpu", "sys", "gl"})
            or ("cluster.arrive" in other.sync and "relaxed" not in other.tokens))
            for other in self.analysis.between.sites(init.site, site))

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


def surely_remote(analysis: Analysis, site: Site) -> bool:
    """Whether a thread of some CTA of the cluster, executing the site, touches another CTA."""
    if not analysis.cluster or analysis.cluster < 2:
        return False
    mask = analysis.values.of(site, site.value("ctaMask")) if "multicast::cluster" in site.tokens else None
    ranks = [address.rank for value in site.values if isinstance(value, tree.Address)
             and (address := analysis.values.address(site, value)).rank is not None]
    for rank in range(analysis.cluster):
        lanes = analysis.ranked(rank)
        threads = lanes.of(site)
        masks = lanes.vector(mask) if mask is not None else None
        targets = [lanes.vector(target) for target in ranks if target is not None]
        if any(threads >> thread & 1 and number is not None and number & ~(1 << rank) for thread, number in enumerate(masks or ())):
            return True
        if any(threads >> thread & 1 and number is not None and number != rank
               for target in targets for thread, number in enumerate(target or ())):
            return True
    return False
