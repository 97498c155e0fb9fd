"""Transaction bytes: what an mbarrier is told to expect against the bytes of the copies that complete on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..grammar.errors import Finding
from ..grammar.limits import MBARRIER
from .analysis import Analysis
from .barriers import Barrier, Use
from .program import Site
from .values import Value

RULES = {"expect-tx": "an mbarrier expects other bytes than the copies complete on it, or more than it can count"}


def findings(analysis: Analysis) -> Iterator[Finding]:
    for barrier in analysis.barriers.all:
        expects, copies = barrier.having("expect_tx"), [use for use in barrier.having("complete_tx") if "arrive" not in use.kinds]
        for use in expects:
            bytes = analysis.constant(use.site, "tx_count")
            if bytes is not None and bytes > MBARRIER:
                yield analysis.report("expect-tx", use.site, f"the mbarrier {barrier} is told to expect {bytes:,} bytes at once: it counts "
                                      f"{MBARRIER:,} at most", "a phase for each part of the bytes, or several mbarriers", "error")
        if expects:
            yield from _Balance(analysis, barrier, expects, copies).findings()
        elif copies and analysis.barriers.understood and barrier.having("test") and not _others(analysis, barrier, "expect_tx"):
            site = copies[0].site
            yield analysis.report("expect-tx", site, f"`{site.name}` completes bytes on the mbarrier {barrier}, and nothing tells it "
                                  "to expect any: its phase completes before they have come, or never",
                                  "mbarrier.arrive.expect_tx with the bytes of the copies", "error")


def _others(analysis: Analysis, barrier: Barrier, *kinds: str) -> bool:
    """Whether a use of these kinds that counts for another array may name a barrier of this one."""
    return any(use.barrier is not barrier and not use.kinds.isdisjoint(kinds)
               and any(analysis.overlap.may(use.address, 8, own.address, 8) for own in barrier.uses) for use in analysis.barriers.uses)


@dataclass(frozen=True, slots=True)
class _Sum:
    """Bytes that reach the barrier of one CTA, from the sites of one group."""

    expected: int
    completed: int


class _Balance:
    """Sites that are executed equally often are compared group by group.

    In a cluster the barrier of CTA d gets what the copies of all CTAs send to it: each CTA's share of a multicast counts in every CTA
    of the mask.
    """

    def __init__(self, analysis: Analysis, barrier: Barrier, expects: list[Use], copies: list[Use]) -> None:
        self.analysis = analysis
        self.barrier = barrier
        self.expects = expects
        self.copies = copies
        self._weights: dict[tuple[int, int], int | None] = {}

    def findings(self) -> Iterator[Finding]:
        ranks, uses = range(self.analysis.cluster or 1), (*self.expects, *self.copies)
        if self.analysis.cluster is None and any(use.remote or "multicast::cluster" in use.site.tokens for use in uses):
            return
        if any(self._bytes(use, rank) is None for use in uses for rank in ranks):
            return
        groups = self._groups(self._same_place)
        together = self._groups(lambda one, other: True)
        if len(groups) > len(together):
            for rank in ranks:
                if all(self._balanced(group, rank) for group in together) and not all(self._balanced(group, rank) for group in groups):
                    yield self._elsewhere(next(group for group in groups if not self._balanced(group, rank)), groups)
                    return
        alone = self._alone(together)
        if alone is not None:
            yield alone
            return
        paired = all({"expect_tx"} <= {kind for use in group for kind in use.kinds} for group in groups)
        for rank in ranks:
            for group in groups if paired else [list(uses)]:
                found = self._sum(group, rank)
                if found.expected != found.completed and (paired or self._comparable()):
                    yield self._mismatch(group, found, certain=paired and self._alone_there())
                    return

    def _alone_there(self) -> bool:
        """Whether nothing else can complete or expect bytes on the barrier."""
        analysis = self.analysis
        return (analysis.barriers.understood and not any(site.control == "unknown" for site in analysis.sites)
                and not _others(analysis, self.barrier, "expect_tx", "complete_tx"))

    def _alone(self, groups: list[list[Use]]) -> Finding | None:
        """Where elsewhere what is expected is also copied: copies that nothing expects, or bytes expected that nothing copies."""
        mixed: list[list[Use]] = []
        alone: list[list[Use]] = []
        for group in groups:
            (mixed if len({"expect_tx" in use.kinds for use in group}) == 2 else alone).append(group)
        expecting = {"expect_tx" in group[0].kinds for group in alone}
        balanced = all(self._balanced(group, rank) for group in mixed for rank in range(self.analysis.cluster or 1))
        if not mixed or not balanced or len(expecting) != 1:
            return None
        site = alone[0][0].site
        if expecting == {True}:
            message, fix = f"expects bytes on the mbarrier {self.barrier} that no copy beside it completes", "a copy for every expect_tx"
        else:
            message, fix = (f"completes bytes on the mbarrier {self.barrier} that no expect_tx beside it announces",
                            "mbarrier.arrive.expect_tx with its bytes where the copy is issued")
        return self.analysis.report("expect-tx", site, f"`{site.name}` {message}, while the other copies on it are in balance", fix)

    def _balanced(self, group: list[Use], rank: int) -> bool:
        found = self._sum(group, rank)
        return found.expected == found.completed

    def _elsewhere(self, group: list[Use], groups: list[list[Use]]) -> Finding:
        """Bytes expected on one barrier of an array and completed on another."""
        strays = [use for other in groups for use in other if not any("expect_tx" in one.kinds for one in other)]
        stray = strays[0] if strays else group[-1]
        expect = next(use for use in self.expects if use.site.block == stray.site.block or use in self.expects)
        return self.analysis.report(
            "expect-tx", stray.site, f"`{stray.site.name}` completes its bytes on another mbarrier of {self.barrier} than the one that "
            f"{expect.site.place} makes expect them", "name the same barrier, with the same index, in both")

    def _mismatch(self, group: list[Use], found: _Sum, certain: bool) -> Finding:
        expect = next(use for use in group if "expect_tx" in use.kinds)
        listed = [use for use in group if "expect_tx" not in use.kinds]
        places = ", ".join(str(use.site.place) for use in listed[:4])
        copies = f"the copies at {places} complete {found.completed:,}" if listed else "no copy completes any on it beside this line"
        more = found.completed < found.expected
        return self.analysis.report(
            "expect-tx", expect.site, f"the mbarrier {self.barrier} expects {found.expected:,} bytes a phase, and {copies}: the phase "
            f"{'never completes' if more else 'can complete before the last bytes are there'}",
            f"expect {found.completed:,} bytes" if listed else "expect the bytes on the barrier that the copies name",
            "error" if certain else "review")

    def _sum(self, group: list[Use], rank: int) -> _Sum:
        expected = sum(self._bytes(use, rank) or 0 for use in group if "expect_tx" in use.kinds)
        return _Sum(expected, sum(self._bytes(use, rank) or 0 for use in group if "expect_tx" not in use.kinds))

    def _comparable(self) -> bool:
        """Whether sums over sites that are executed unequally often still say something: each as deep in loops as the others."""
        depths = {self.analysis.in_loop(use.site) for use in (*self.expects, *self.copies)}
        return len(depths) == 1 and bool(self.copies) and len(self.expects) == 1

    # ------------------------------------------------------------------------------------------- groups

    def _groups(self, alike: Callable[[Use, Use], bool]) -> list[list[Use]]:
        """Uses that are alike and executed equally often."""
        groups: list[list[Use]] = []
        for use in (*self.expects, *self.copies):
            for group in groups:
                if alike(group[0], use) and self._equally_often(group[0].site, use.site):
                    group.append(use)
                    break
            else:
                groups.append([use])
        return groups

    @staticmethod
    def _same_place(one: Use, other: Use) -> bool:
        return one.address.terms == other.address.terms and one.address.offset == other.address.offset

    def _equally_often(self, one: Site, other: Site) -> bool:
        """Each is before or after the other on every path, and neither comes again without the other."""
        if self._condition(one) != self._condition(other):
            return False
        if one.block == other.block:
            return True
        first, second = sorted((one.block, other.block), key=self.analysis.routine.rank.__getitem__)
        return (self.analysis.routine.dominators.above(first, second) and self.analysis.lanes.joins.above(second, first)
                and first not in self.analysis.reaches(first, frozenset((second,)))
                and second not in self.analysis.reaches(second, frozenset((first,))))

    def _condition(self, site: Site) -> tuple[Value, bool] | None:
        """The guard, unless it says which threads: of one that the data decide nobody knows how often it holds."""
        guard = site.instruction.guard
        if guard is None:
            return None
        value = self.analysis.values.register(site, guard.predicate)
        vector = self.analysis.lanes.vector(value)
        return None if vector is not None and None not in vector else (value, guard.negated)

    # ------------------------------------------------------------------------------------------- bytes

    def _bytes(self, use: Use, rank: int) -> int | None:
        """Bytes that executing the site once, in all threads and CTAs that do, adds on the barrier of the CTA `rank`."""
        key = (use.site.index, rank)
        if key not in self._weights:
            self._weights[key] = self._weight(use, rank)
        return self._weights[key]

    def _weight(self, use: Use, rank: int) -> int | None:
        analysis, site = self.analysis, use.site
        known = (analysis.constant(site, "tx_count") if "expect_tx" in use.kinds else analysis.bytes(site))
        if known is None:
            return None
        sources = range(analysis.cluster) if analysis.cluster and (use.remote or "multicast::cluster" in site.tokens) else (rank,)
        total = 0
        for source in sources:
            lanes = analysis.ranked(source) if analysis.cluster else analysis.lanes
            threads = lanes.of(site)
            if not lanes.exact(site):
                return None
            reached = threads.bit_count() if source == rank else 0
            if use.remote and use.address.rank is not None:
                targets = lanes.vector(use.address.rank)
                if targets is None or any(targets[t] is None for t in range(len(targets)) if threads >> t & 1):
                    return None
                reached = sum(1 for thread, target in enumerate(targets) if threads >> thread & 1 and target == rank)
            elif "multicast::cluster" in site.tokens:
                masks = lanes.vector(analysis.values.of(site, site.value("ctaMask")))
                if masks is None or any(masks[t] is None for t in range(len(masks)) if threads >> t & 1):
                    return None
                reached = sum(1 for thread, mask in enumerate(masks) if threads >> thread & 1 and (mask or 0) >> rank & 1)
            total += known * reached
        return total
