"""Facts that reach a place: a forward data-flow over all paths, in which each fact holds for a set of threads.

A fact is a tuple that begins with a word. It reaches a place if some path brings it there ("may"); that it does so on every path is told
by the absence of the fact that says the opposite.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator
from heapq import heappop, heappush
from typing import Any

from ..grammar.errors import Finding
from .analysis import Analysis
from .effort import spend
from .program import Site

Fact = tuple[Any, ...]
State = dict[Fact, int]
"""The threads that a fact holds for."""
KEPT = 12
"""Steps that a fact counts for that a block has for itself: it takes memory until the end."""


class Flow(ABC):
    """One analysis. `narrow` are the words of facts that only the threads on a path have: a branch on %tid narrows them."""

    narrow: frozenset[str] = frozenset()
    silent = False
    """Whether sites may be relevant that only compute."""

    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis
        self.everyone = analysis.launch.everyone
        self._sent: dict[Hashable, State] = {}
        self._news = False

    # ------------------------------------------------------------------------------------------- what an analysis says

    @abstractmethod
    def relevant(self, site: Site) -> bool:
        """Whether the site changes or asks for facts; the others are passed over."""

    @abstractmethod
    def step(self, site: Site, threads: int, state: State) -> None:
        """Change the state as the threads' executing the site does."""

    def look(self, site: Site, threads: int, state: State) -> Iterator[Finding]:
        """What is wrong when these threads execute the site in this state."""
        yield from ()

    def turns(self, block: int) -> bool:
        """Whether the begin of a block may change a state."""
        return False

    def entered(self, block: int, state: State) -> None:
        """Change the state at the begin of a block that `turns`."""
        return

    def start(self) -> State:
        """The facts at the entry."""
        return {}

    # ------------------------------------------------------------------------------------------- tools for `step`

    def send(self, to: Hashable, state: State, threads: int, *words: str) -> None:
        """Facts that these threads have, handed to whoever synchronises with `to` later or in another role."""
        box = self._sent.setdefault(to, {})
        for fact, holders in state.items():
            if holders & threads and fact[0] in words and fact not in box:
                box[fact] = holders
                self._news = True

    def receive(self, source: Hashable, state: State, threads: int) -> None:
        for fact in self._sent.get(source, ()):
            state[fact] = state.get(fact, 0) | threads

    @staticmethod
    def forget(state: State, threads: int, *facts: Fact) -> None:
        """As `drop`, of facts that are known."""
        for fact in facts:
            left = state.get(fact, 0) & ~threads
            if left:
                state[fact] = left
            else:
                state.pop(fact, None)

    @staticmethod
    def drop(state: State, threads: int, which: Callable[[Fact], bool]) -> None:
        """These threads no longer have the facts."""
        spend(len(state))
        for fact in [fact for fact in state if which(fact)]:
            left = state[fact] & ~threads
            if left:
                state[fact] = left
            else:
                del state[fact]

    # ------------------------------------------------------------------------------------------- the solution

    def findings(self) -> Iterator[Finding]:
        """Follow all paths until nothing new is found, then look at every place once, in the order of the text."""
        lanes = self.analysis.lanes
        inside = {block: asked for block, sites in (self.analysis.inside if self.silent else self.analysis.telling).items()
                  if (asked := [site for site in sites if self.relevant(site) or site.control == "unknown"])}
        if not inside:
            return
        threads = {site.index: lanes.of(site) for sites in inside.values() for site in sites}
        at = self._solve(inside, threads)
        for block in sorted(inside):
            state = dict(at.get(block, {}))
            self.entered(block, state)
            for site in inside[block]:
                if threads[site.index]:
                    spend(1 + len(state))
                    yield from self.look(site, threads[site.index], state)
                self._step(site, threads[site.index], state)

    def _step(self, site: Site, threads: int, state: State) -> None:
        if site.control == "unknown":
            state.clear()  # a function that is not seen may do all that is missing
        elif threads:
            self.step(site, threads, state)

    def _solve(self, inside: dict[int, list[Site]], threads: dict[int, int]) -> dict[int, State]:
        routine, lanes = self.analysis.routine, self.analysis.lanes
        rank = routine.rank
        at: dict[int, State] = {0: self.start()}
        self._news = True
        while self._news:
            self._news = False
            todo = set(routine.order)
            queue = list(range(len(routine.order)))  # places in the order, a heap
            while queue:
                block = routine.order[heappop(queue)]
                if block not in todo:
                    continue
                todo.discard(block)
                if block not in at:
                    continue
                state, sites = at[block], inside.get(block, ())
                spend(1)
                if sites or self.turns(block):
                    state = dict(state)
                    spend(len(state) * KEPT)
                    self.entered(block, state)
                    for site in sites:
                        spend(1 + len(state) // 4)
                        self._step(site, threads[site.index], state)
                for successor, taken in zip(routine.blocks[block].successors, routine.blocks[block].taken, strict=True):
                    if lanes.at[block] & lanes.edge(block, taken) and self._join(at, successor, state, lanes.edge(block, taken)):
                        todo.add(successor)
                        heappush(queue, rank[successor])
        return at

    def _join(self, at: dict[int, State], block: int, state: State, edge: int) -> bool:
        """Whether the state brings anything new to a block. States that are in `at` do not change any more: several blocks share one."""
        into = at.get(block)
        if into is state:
            return False
        spend(len(state))
        narrowed = edge != self.everyone and not self.narrow.isdisjoint([fact[0] for fact in state])
        if into is None and not narrowed and all(state.values()):
            at[block] = state
            return True
        known: State = {} if into is None else into
        new: State = {}
        for fact, holders in state.items():
            kept = holders & edge if narrowed and fact[0] in self.narrow else holders
            before = known.get(fact, 0)
            if kept & ~before:
                new[fact] = before | kept
        if into is None or new:
            spend(KEPT * (len(new) + len(known)))
            at[block] = {**known, **new}
        return into is None or bool(new)


def is_barrier(site: Site) -> bool:
    """Whether all the threads that take part leave the instruction only when all have come: bar, barrier, the cluster's wait."""
    return "cta.barrier" in site.sync or "cluster.wait" in site.sync


def members(analysis: Analysis, site: Site, threads: int) -> int:
    """The threads that a barrier brings together: those that execute it, at a cluster's wait all."""
    return analysis.launch.everyone if "cluster.wait" in site.sync else threads
