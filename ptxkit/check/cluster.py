"""Clusters: no CTA is touched after it may have exited; a multicast goes to CTAs that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..grammar import tree
from ..grammar.errors import Finding
from .analysis import Analysis
from .barriers import Barrier, Use
from .flow import Flow, State
from .lanes import Lanes
from .program import Site
from .startup import remote_accesses, surely_remote
from .values import Value

RULES = {
    "cluster-exit": "a CTA may have exited when another still touches its shared memory or mbarriers",
    "cluster-barrier": "a thread arrives on the cluster barrier twice without waiting, or waits without having arrived",
    "cluster-window": "an address that mapa made, in another CTA's shared memory, is accessed in .shared::cta or .shared",
    "multicast-release": "a multicast overwrites buffers that only their own CTA has released",
    "multicast-mask": "the CTA mask of a multicast names CTAs that the cluster does not have, or none",
}


def findings(analysis: Analysis) -> Iterator[Finding]:
    if analysis.in_clusters:
        yield from _Exit(analysis).findings()
    yield from _Turns(analysis).findings()
    yield from _masks(analysis)
    yield from _windows(analysis)
    yield from _releases(analysis)


class _Exit(Flow):
    """("touch", site, armed): no cluster barrier since; `armed` once this CTA has arrived on one. ("ended", site): some path has one."""

    def __init__(self, analysis: Analysis) -> None:
        super().__init__(analysis)
        self.touches = {site.index for site in analysis.acting if remote_accesses(analysis, site)}
        self._said: set[object] = set()

    def relevant(self, site: Site) -> bool:
        return bool(self.touches) and (site.index in self.touches or site.control == "exit"
                                       or not {"cluster.arrive", "cluster.wait"}.isdisjoint(site.sync))

    def step(self, site: Site, threads: int, state: State) -> None:
        if site.index in self.touches:
            state["touch", site.index, False] = self.everyone
            self.drop(state, self.everyone, lambda fact: fact[:2] == ("ended", site.index))
        elif "cluster.arrive" in site.sync:
            for fact in [fact for fact in state if fact[0] == "touch" and not fact[2]]:
                state["touch", fact[1], True] = state.pop(fact)
        elif "cluster.wait" in site.sync:
            for fact in [fact for fact in state if fact[0] == "touch" and fact[2]]:
                state["ended", fact[1]] = state.pop(fact)

    def look(self, site: Site, threads: int, state: State) -> Iterator[Finding]:
        if site.control != "exit":
            return
        for fact in sorted(fact for fact in state if fact[0] == "touch"):
            touch = self.analysis.routine.sites[fact[1]]
            awaited = self._awaited(touch)
            use = self.analysis.barriers.by_site.get(touch.index)
            what_of = use.barrier if use is not None and use.barrier is not None else touch.index
            if awaited is None or what_of in self._said:
                continue
            self._said.add(what_of)
            certain = ("ended", touch.index) not in state and not awaited and self._certain(touch)
            what = remote_accesses(self.analysis, touch)[0]
            yield self.analysis.report(
                "cluster-exit", touch, f"`{touch.name}` touches {what} of another CTA, which may have exited by then: "
                f"{'on some path ' if ('ended', touch.index) in state else ''}no cluster barrier follows, and no CTA waits at its end for "
                "what the others still do to it",
                "barrier.cluster.arrive and barrier.cluster.wait before the kernel ends, or a last wait on what the others arrive on",
                "error" if certain else "review")

    def _awaited(self, touch: Site) -> bool | None:
        """None when the CTA that is touched surely waits for it before it exits; True when it may, False when it does not."""
        use = self.analysis.barriers.by_site.get(touch.index)
        if use is None:
            return self._announced(touch)
        if use.barrier is None:
            return True
        if "complete_tx" in use.kinds:  # bytes that its CTA expects are waited for by whoever uses them
            return None if use.barrier.having("test") else False
        return None if self._drained(use.barrier) else False

    def _certain(self, touch: Site) -> bool:
        return surely_remote(self.analysis, touch) and not self._lingers(touch) and not self._met(touch)

    def _met(self, touch: Site) -> bool:
        """Whether a CTA that does not touch may wait at a cluster barrier meanwhile: it waits until those that do arrive or exit."""
        above, later = self.analysis.routine.dominators.above, self.analysis.reaches(touch.block) | {touch.block}
        return any("cluster.wait" in site.sync and site.block not in later and not above(site.block, touch.block)
                   for site in self.analysis.acting)

    def _lingers(self, touch: Site) -> bool:
        """Whether a CTA may wait for something after its last cluster barrier, so that it may still be there."""
        between = self.analysis.between
        return any(between.asks(site) and "cluster.wait" not in site.sync and "cta.barrier" not in site.sync and site is not touch
                   and (site.control or self.analysis.in_loop(site)) and not self._served(site) for site in self.analysis.acting)

    def _served(self, site: Site) -> bool:
        """Whether what a wait waits for comes from this CTA alone, or surely before the touch."""
        use = self.analysis.barriers.by_site.get(site.index)
        if use is None or not self.analysis.barriers.understood:
            return False
        return not any(other.kinds & {"arrive", "arrive_async", "complete_tx"}
                       and (other.remote or "multicast::cluster" in other.site.tokens)
                       and self.analysis.overlap.may(use.address, 8, other.address, 8) for other in self.analysis.barriers.uses)

    def _announced(self, touch: Site) -> bool | None:
        """A plain access: an arrive on the other CTA after it tells that it is over."""
        later = self.analysis.reaches(touch.block) | {touch.block}
        arrives = [use for use in self.analysis.barriers.uses if "arrive" in use.kinds and use.remote and use.site.block in later
                   and (use.site.block != touch.block or use.site.index > touch.index)]
        if any(use.barrier is None or self._drained(use.barrier) for use in arrives):
            return None
        return False

    def _drained(self, barrier: Barrier) -> bool:
        """Whether a CTA waits for every arrival on it: from the first phase on, or, where the first wait is free, once more at its end."""
        return any(self.analysis.first_parity(wait.site) == 0 or self._last(wait.site) for wait in barrier.having("test"))

    def _last(self, wait: Site) -> bool:
        """Whether the kernel can end after this wait without asking its peers for more: no load, and nothing that touches them, comes
        on a way from it to an exit."""
        issues = {use.site.block for use in self.analysis.barriers.uses if use.kinds & {"complete_tx", "expect_tx"}}
        issues |= {self.analysis.routine.sites[index].block for index in self.touches if self.analysis.first_parity(wait) is not None}
        exits = {site.block for site in self.analysis.sites if site.control == "exit"}
        return not exits.isdisjoint({wait.block} | self.analysis.reaches(wait.block, frozenset(issues)))


class _Turns(Flow):
    """("away",): threads that have waited, or not yet arrived; ("arrived",): threads that have arrived and not yet waited."""

    narrow = frozenset(("away", "arrived"))

    def __init__(self, analysis: Analysis) -> None:
        super().__init__(analysis)
        self._said = False

    def start(self) -> State:
        return {("away",): self.everyone}

    def relevant(self, site: Site) -> bool:
        return not {"cluster.arrive", "cluster.wait"}.isdisjoint(site.sync)

    def step(self, site: Site, threads: int, state: State) -> None:
        surely = self.analysis.lanes.surely(site)
        for word in ("away", "arrived"):
            self.drop(state, surely, lambda fact, word=word: fact == (word,))  # type: ignore[misc]
        for word, now in (("cluster.arrive", ("arrived",)), ("cluster.wait", ("away",))):
            if word in site.sync:
                state[now] = state.get(now, 0) | threads

    def look(self, site: Site, threads: int, state: State) -> Iterator[Finding]:
        if not self.relevant(site):
            return
        arrives = "cluster.arrive" in site.sync
        wrong, right = (("arrived",), ("away",)) if arrives else (("away",), ("arrived",))
        if not state.get(wrong, 0) & threads or self._said:
            return
        self._said = True
        certain = not state.get(right, 0) & threads
        path = "" if certain else " on some path"
        what = "after an arrive with no wait between" if arrives else "without an arrive before it"
        yield self.analysis.report(
            "cluster-barrier", site, f"`{site.name}` comes{path} {what}: each thread arrives on the cluster barrier once, then waits",
            "barrier.cluster.arrive and barrier.cluster.wait in every thread, in turn", "error" if certain and arrives else "review")


def _masks(analysis: Analysis) -> Iterator[Finding]:
    size = analysis.cluster
    for site in analysis.sites:
        operand = site.value("ctaMask")
        if operand is None:
            continue
        value = analysis.values.of(site, operand)
        for rank in range(size or 1):
            lanes = analysis.ranked(rank) if size else analysis.lanes
            vector = lanes.vector(value)
            threads = lanes.of(site)
            masks = {number for thread, number in enumerate(vector or ()) if number is not None and threads >> thread & 1}
            wrong = next((mask & 0xFFFF for mask in sorted(masks) if mask & 0xFFFF == 0 or (size and (mask & 0xFFFF) >> size)), None)
            if wrong is not None:
                beyond = [cta for cta in range(16) if wrong >> cta & 1 and size and cta >= size]
                what = (f"CTA {beyond[0]} of a cluster of {size}" if beyond else "no CTA at all")
                yield analysis.report("multicast-mask", site, f"the mask {wrong:#x} of `{site.name}` names {what}",
                                      "a mask of the cluster's own CTAs: bits 0 to the cluster's size minus 1", "error")
                break


def _windows(analysis: Analysis) -> Iterator[Finding]:
    """An access in the window of the executing CTA at a place that is surely another CTA's."""
    for site in analysis.acting:
        for parameter, value in zip(site.signature.parameters if site.signature else (), site.values, strict=True):
            space = str(parameter.operand.space)
            if not isinstance(value, tree.Address) or space not in ("shared", "shared::cta") or site.mnemonic == "mapa":
                continue
            rank = analysis.values.address(site, value).rank
            if rank is not None and _elsewhere(analysis, site, rank):
                word = f".{space}" if space == "shared::cta" else ".shared, which is .shared::cta,"
                yield analysis.report(
                    "cluster-window", site, f"`{site.name}` accesses {word} at an address that mapa made in another CTA: that window has "
                    "the executing CTA's own memory", f"`{_widened(site.opcode)}`", "error")
                break


def _elsewhere(analysis: Analysis, site: Site, rank: Value) -> bool:
    """Whether a thread that surely executes the site has the address of another CTA there. A cluster of unknown size has a CTA 0."""
    for own in range(analysis.cluster or 1):
        lanes = analysis.ranked(own) if analysis.cluster else Lanes(analysis.routine, analysis.values, analysis.launch, own)
        threads = lanes.surely(site) if lanes.exact(site) else 0
        if any(threads >> thread & 1 and target is not None and target != own for thread, target in enumerate(lanes.vector(rank) or ())):
            return True
    return False


def _widened(opcode: str) -> str:
    return re.sub(r"\.shared(::cta)?(?=\.)", ".shared::cluster", opcode, count=1)


def _releases(analysis: Analysis) -> Iterator[Finding]:
    """A multicast after a wait for free buffers: the arrives on that mbarrier must come from the other CTAs too."""
    for site in analysis.sites:
        if "multicast::cluster" not in site.tokens or not analysis.cluster or analysis.cluster < 2 or not analysis.in_loop(site):
            continue
        for wait in analysis.barriers.uses:
            barrier = wait.barrier
            if (barrier is None or "test" not in wait.kinds or barrier.having("complete_tx") or not barrier.having("arrive")
                    or not analysis.routine.dominators.above(wait.site.block, site.block)):
                continue
            if all(_stays(analysis, use) for use in barrier.having("arrive")):
                yield analysis.report(
                    "multicast-release", site, f"`{site.name}` writes into other CTAs after the wait at {wait.site.place} on {barrier}, on "
                    "which only threads of this CTA arrive: the others may still read what it overwrites",
                    "let every CTA that reads the buffer arrive on the mbarriers of all that fill it (mapa, .shared::cluster)",
                    "error" if _unheard(analysis, site) else "review")
                return


def _unheard(analysis: Analysis, site: Site) -> bool:
    """Whether nothing in the loops around the multicast comes from another CTA, and the buffers come round again."""
    around = analysis.around(site.block)
    target = next((access for access in analysis.memory.of(site) if access.operand == "dstMem"), None)
    if target is None or not analysis.barriers.understood or None in analysis.overlap.ranges.terms(target.address)[:2]:
        return False
    for other in analysis.acting:
        if other.block not in around or not analysis.between.asks(other):
            continue
        use = analysis.barriers.by_site.get(other.index)
        if use is None or any(one.kinds & {"arrive", "arrive_async"} and not _stays(analysis, one)
                              and analysis.overlap.may(use.address, 8, one.address, 8) for one in analysis.barriers.uses):
            return False
    return not any("cluster.wait" in other.sync for other in analysis.acting if other.block in around)


def _stays(analysis: Analysis, use: Use) -> bool:
    """Whether the arrive is on the barrier of the executing CTA."""
    if use.address.rank is None:
        return True
    for rank in range(analysis.cluster or 1):
        lanes = analysis.ranked(rank)
        targets, threads = lanes.vector(use.address.rank), lanes.of(use.site)
        if targets is None or any(target != rank for thread, target in enumerate(targets) if threads >> thread & 1):
            return False
    return True
