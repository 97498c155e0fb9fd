"""Bulk stores and reductions out of shared memory: groups, waits, and the memory that they still read."""

from __future__ import annotations

from collections.abc import Iterator

from ..grammar.errors import Finding, Severity
from .analysis import Analysis
from .flow import Flow, State, is_barrier, members
from .memory import Access
from .program import Site

RULES = {
    "bulk-source-reuse": "shared memory is overwritten that a bulk store may still be reading",
    "bulk-wait-unshared": "threads overwrite the source of a bulk store that only its issuer has waited for",
    "bulk-commit": "a bulk store is in no group that a wait covers",
    "bulk-exit": "a thread exits while a bulk store may still be reading the shared memory of its CTA",
}

MANY = 9
"""Groups told apart: a wait that leaves more in flight than this is taken to wait for nothing older."""


def findings(analysis: Analysis) -> Iterator[Finding]:
    yield from _Bulk(analysis).findings()


class _Bulk(Flow):
    """("out", copy, commits since, waited): the copy that these threads issued may be reading. ("known", copy): threads that do not know
    yet that it has read, though its issuer has waited. ("free", copy): on some path the copy has been waited for; ("shared", copy): on
    some path its issuer has then met others.
    """

    narrow = frozenset(("out", "free"))

    def __init__(self, analysis: Analysis) -> None:
        super().__init__(analysis)
        self.copies = {site.index: site for site in analysis.acting if "bulk.issue" in site.sync}
        self.issuers = {index: analysis.lanes.of(site) for index, site in self.copies.items()}
        self.sources = {index: [a for a in analysis.memory.of(site) if a.operand == "srcMem"] for index, site in self.copies.items()}
        self._said: set[tuple[str, int]] = set()

    def relevant(self, site: Site) -> bool:
        if not self.copies:
            return False
        return (site.index in self.copies or is_barrier(site) or site.control == "exit" or site.index in self.analysis.barriers.by_site
                or not {"bulk.commit", "bulk.wait", "warp.barrier"}.isdisjoint(site.sync) or bool(self._overwritten(site)))

    def step(self, site: Site, threads: int, state: State) -> None:
        if site.index in self.copies:
            state["out", site.index, 0, False] = threads
            self.drop(state, self.everyone, lambda fact: fact[0] in ("free", "known", "shared") and fact[1] == site.index)
        elif "bulk.commit" in site.sync:
            self._commit(state, threads)
        elif "bulk.wait" in site.sync:
            self._wait(state, threads, self.analysis.constant(site, "n") or 0)
        elif is_barrier(site):
            self._share(state, threads, members(self.analysis, site, threads))
        elif "warp.barrier" in site.sync:
            self._share(state, threads, None)
        use = self.analysis.barriers.by_site.get(site.index)
        if use is not None and use.barrier is not None and "arrive" in use.kinds:
            for fact in [fact for fact in state if fact[0] == "known" and self.issuers[fact[1]] & threads]:
                state["told", fact[1], use.barrier] = self.everyone
        elif use is not None and "test" in use.kinds:
            for fact in [fact for fact in state if fact[0] == "told" and fact[2] is use.barrier]:
                self.drop(state, threads, lambda other, copy=fact[1]: other == ("known", copy))  # type: ignore[misc]
                state["shared", fact[1]] = self.everyone

    def _commit(self, state: State, threads: int) -> None:
        for fact in sorted((fact for fact in state if fact[0] == "out" and self.issuers[fact[1]] & threads), key=lambda f: -f[2]):
            _, copy, commits, waited = fact
            new = ("out", copy, min(commits + 1, MANY), waited)
            state[new] = state.get(new, 0) | state.pop(fact)

    def _wait(self, state: State, threads: int, left: int) -> None:
        """All but the newest `left` groups of these threads have read their sources."""
        for fact in [fact for fact in state if fact[0] == "out" and self.issuers[fact[1]] & threads]:
            _, copy, commits, _ = fact
            issuers = state.pop(fact)
            # A wait is for the groups of the thread that executes it: it tells the others nothing.
            if commits > left:
                state["known", copy] = state.get(("known", copy), 0) | self.everyone & ~issuers
                state["free", copy] = state.get(("free", copy), 0) | issuers
            else:
                state["out", copy, commits, True] = state.get(("out", copy, commits, True), 0) | issuers

    def _share(self, state: State, threads: int, together: int | None) -> None:
        """The issuers tell the others of a barrier; `together` is None where each warp meets by itself."""
        for fact in [fact for fact in state if fact[0] == "known" and self.issuers[fact[1]] & threads]:
            told = self.analysis.launch.warps(self.issuers[fact[1]] & threads) if together is None else together
            self.drop(state, told, lambda other, this=fact: other == this)  # type: ignore[misc]
            state["shared", fact[1]] = self.everyone

    # ------------------------------------------------------------------------------------------- what is wrong

    def _overwritten(self, site: Site) -> list[Access]:
        if any(word.startswith("mbarrier") for word in site.sync) and not any(a.by == "async" for a in self.analysis.memory.of(site)):
            return []
        return [access for access in self.analysis.memory.of(site) if access.mode != "r" and access.operand not in ("mbar", "addr")]

    def look(self, site: Site, threads: int, state: State) -> Iterator[Finding]:
        if site.control == "exit":
            yield from self._exit(site, threads, state)
        for access in self._overwritten(site):
            for fact in sorted(state, key=lambda fact: (fact[0] != "out", fact[1])):
                if fact[0] in ("out", "known") and any(self.analysis.memory.may_meet(access, source) for source in self.sources[fact[1]]):
                    found = self._overwrites(site, access, threads, state, fact)
                    if found is not None and (found.rule, fact[1]) not in self._said:
                        self._said.add((found.rule, fact[1]))
                        yield found
                        return

    def _certain(self, access: Access, copy: Site, writers: int, *, anyway: bool) -> bool:
        """Whether the writers touch what the copy reads, and nothing else can have told them that it has read it."""
        between = self.analysis.between
        return (any(self.analysis.overlap.surely(source, access, others=writers) for source in self.sources[copy.index])
                and not between.exclusive(copy, access.site) and (anyway or not between.after(copy, access.site, writers)))

    def _overwrites(self, site: Site, access: Access, threads: int, state: State, fact: tuple[object, ...]) -> Finding | None:
        copy = self.copies[fact[1]]  # type: ignore[index]
        named = f"`{copy.name}` at {copy.place}"
        if fact[0] == "known":
            if not state[fact] & threads:
                return None
            return self.analysis.report(
                "bulk-wait-unshared", site, f"`{site.name}` overwrites the source of {named}; only the thread that issued it has waited, "
                "and its wait tells the others nothing", "bar.sync between the issuer's cp.async.bulk.wait_group and this line",
                "error" if state[fact] == self.everyone & ~self.issuers[copy.index] and ("shared", copy.index) not in state
                and self._certain(access, copy, threads & ~self.issuers[copy.index], anyway=False) else "review")
        _, _, commits, waited = fact
        indexed = any(self.analysis.lanes.vector(term) is None for source in self.sources[copy.index] for term, _ in source.address.terms)
        if indexed and (waited or ("free", copy.index) in state):
            return None  # a ring of buffers: the newest groups read others than the one that is written
        if waited and not commits:
            return self._uncommitted(copy, f"{site.place} overwrites its source")
        # The issuer itself comes here without having waited: it cannot have told the others either.
        certain = ("free", copy.index) not in state and self._certain(access, copy, threads, anyway=bool(state[fact] & threads))
        return self._reused(site, named, "error" if certain else "review")

    def _reused(self, site: Site, named: str, severity: Severity) -> Finding:
        return self.analysis.report(
            "bulk-source-reuse", site, f"`{site.name}` overwrites shared memory that {named} may still be reading",
            "cp.async.bulk.wait_group.read in the thread that issued it, then a barrier, before this line", severity)

    def _uncommitted(self, copy: Site, when: str) -> Finding:
        return self.analysis.report(
            "bulk-commit", copy, f"`{copy.name}` is in no committed group when {when}: the wait does not cover it",
            "cp.async.bulk.commit_group after the last store of the group, in the same thread")

    def _exit(self, site: Site, threads: int, state: State) -> Iterator[Finding]:
        for fact in sorted(fact for fact in state if fact[0] == "out"):
            _, index, commits, _ = fact
            rule = "bulk-exit" if commits else "bulk-commit"
            if ("free", index) in state:
                continue  # a wait on some path: mostly those where there was something to wait for
            if state[fact] & threads and (rule, index) not in self._said:
                self._said.add((rule, index))
                copy = self.copies[index]
                if not commits:
                    yield self._uncommitted(copy, "its thread exits")
                else:
                    yield self.analysis.report(
                        "bulk-exit", copy, f"the thread that issues `{copy.name}` can exit before it has read its source: the shared "
                        "memory of an exited CTA may be given to another", "cp.async.bulk.wait_group.read 0 in that thread before it exits")
