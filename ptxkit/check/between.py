"""What may order two instructions of different threads: whatever lets a thread know what another has done, on the ways between them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from .compatible import Compatible
from .lanes import uniform
from .program import Site
from .ranges import NEGATED
from .values import Value

if TYPE_CHECKING:
    from .analysis import Analysis

Condition = tuple[object, object, bool, tuple[Value, ...]]
"""A comparison or a number, whether it holds or what it is, whether that is the same in all threads, and the values compared."""
_ASKING = frozenset(("volatile", "relaxed", "acquire", "mmio", "acq_rel", "sc"))


class Between:
    """A rule that says what is missing is certain only where nothing else could do the same."""

    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis
        self._closed: dict[int, bool] = {}
        self._compatible = Compatible(analysis.values)
        self._found: dict[tuple[int, int, bool], bool] = {}

    # ------------------------------------------------------------------------------------------- what lets threads know

    def closed(self, site: Site) -> bool:
        """Whether a barrier brings together just the threads that execute this line: the rules know all of what it orders."""
        if site.index not in self._closed:
            self._closed[site.index] = self._is_closed(site)
        return self._closed[site.index]

    def _is_closed(self, site: Site) -> bool:
        analysis, lanes = self.analysis, self.analysis.lanes
        threads = lanes.of(site)
        if "cluster.wait" in site.sync:
            return threads == analysis.launch.everyone and lanes.exact(site)
        if "cta.barrier" not in site.sync or not lanes.exact(site):
            return False
        if site.value("b") is None:
            return threads == analysis.launch.everyone
        count, number = analysis.constant(site, "b"), analysis.constant(site, "a")
        if number is None or count != threads.bit_count():
            return False
        return not any(lanes.of(other) & ~threads for other in self._barriers
                       if other is not site and analysis.constant(other, "a") in (None, number))

    @cached_property
    def _barriers(self) -> list[Site]:
        return [site for site in self.analysis.sites if {"cta.barrier", "cta.arrive"} & set(site.sync)]

    def common(self, site: Site) -> bool:
        """Whether all threads of the CTA meet there."""
        return bool({"cta.barrier", "cluster.wait"} & set(site.sync)) and self.closed(site) and (
            self.analysis.lanes.of(site) == self.analysis.launch.everyone)

    def asks(self, site: Site) -> bool:
        """Whether a thread that executes the site may know afterwards what others have done, apart from closed barriers."""
        if site.control in ("unknown", "call"):
            return True
        sync = site.sync
        if "mbarrier.test" in sync:
            return True
        if "cta.barrier" in sync or "cluster.wait" in sync:
            return not self.closed(site)
        return site.mnemonic == "atom" or (site.mnemonic == "ld" and not site.tokens.isdisjoint(_ASKING))

    # ------------------------------------------------------------------------------------------- on which ways

    def sites(self, first: Site, second: Site) -> Iterator[Site]:
        """The sites on the ways from the first to the next time that control comes to the second."""
        behind = set(self._forward(first, second))
        return (site for site in self._backward(second, {first.index, second.index}) if site.index in behind)

    def after(self, first: Site, second: Site, threads: int) -> bool:
        """Whether one of the threads may ask between the first site and the next time it comes to the second."""
        return any(self.analysis.lanes.of(site) & threads and self.asks(site) for site in self.sites(first, second))

    def asking(self, block: int) -> bool:
        """Whether a thread may ask anything in a loop around the block."""
        around = self.analysis.around(block)
        return any(self.asks(site) for site in self.analysis.acting if site.block in around)

    def before(self, site: Site, threads: int) -> bool:
        """Whether one of the threads may have asked before it comes to the site for the first time, with no barrier of all threads since.

        A wait for the phase before the first one says nothing.
        """
        start = self.analysis.sites[0]
        ever = {start.index, *self._forward(start, site)}
        return any(other.index in ever and self.analysis.lanes.of(other) & threads and self.asks(other) and not self._free(other, site)
                   for other in self._backward(site, self._common))

    def _free(self, wait: Site, site: Site) -> bool:
        """Whether the wait passes on a fresh barrier, and has been passed but once when control first comes to the site."""
        return ("mbarrier.test" in wait.sync and self.analysis.first_parity(wait) == 1
                and (site.block in self.analysis.around(wait.block) or not self.analysis.loops_with_more(wait)))

    @cached_property
    def _common(self) -> set[int]:
        return {site.index for site in self._barriers if self.common(site)} | {
            site.index for site in self.analysis.sites if "cluster.wait" in site.sync and self.common(site)}

    def _forward(self, first: Site, second: Site) -> Iterator[int]:
        """The sites that control comes to from the first, up to it or the second."""
        routine = self.analysis.routine
        todo, seen = [(first.block, first.index + 1)], set[int]()
        while todo:
            block, start = todo.pop()
            for index in range(start, routine.blocks[block].end):
                yield index
                if index in (first.index, second.index):
                    break
            else:
                for successor in routine.blocks[block].successors:
                    if successor not in seen:
                        seen.add(successor)
                        todo.append((successor, routine.blocks[successor].first))

    def _backward(self, site: Site, stops: set[int]) -> Iterator[Site]:
        """The sites from which control comes to this one, back to those at which it stops."""
        routine = self.analysis.routine
        todo, seen = [(site.block, site.index)], set[int]()
        while todo:
            block, end = todo.pop()
            for index in range(end - 1, routine.blocks[block].first - 1, -1):
                if index in stops:
                    break
                yield routine.sites[index]
            else:
                for previous in routine.blocks[block].predecessors:
                    if previous not in seen and previous in routine.reachable:
                        seen.add(previous)
                        todo.append((previous, routine.blocks[previous].end))

    # ------------------------------------------------------------------------------------------- conditions

    def exclusive(self, first: Site, second: Site, *, one_thread: bool = False) -> bool:
        """Whether no CTA executes both, since their conditions contradict each other; with `one_thread`, whether no thread does."""
        holds = {what: how for what, how, same, _ in self._conditions(first) if same or one_thread}
        wrong = [made for what, how, same, made in self._conditions(second) if (same or one_thread) and holds.get(what, how) != how]
        if not wrong:
            return not self._together(first, second, one_thread)
        passed = {site.index for site in self.sites(first, second)}
        # What is made anew on the way may be another number.
        apart = any(passed.isdisjoint(self._made(value) for value in made) for made in wrong)
        return apart or not self._together(first, second, one_thread)

    def _together(self, first: Site, second: Site, one_thread: bool) -> bool:
        """Whether numbers are known with which one CTA, or thread, executes both: conditions of one source may exclude each other."""
        one, other = ({what: bool(holds) for what, holds, same, _ in self._conditions(site)
                       if isinstance(what, Value) and (same or one_thread)} for site in (first, second))
        if not one or not other or other.items() <= one.items() or one.items() <= other.items():
            return True
        key = first.index, second.index, one_thread
        if key not in self._found:
            self._found[key] = self._search(first, second, one, other)
        return self._found[key]

    def _search(self, first: Site, second: Site, one: dict[Value, bool], other: dict[Value, bool]) -> bool:
        """Conditions that share no source with any of the other site's do not decide whether both are executed."""
        passed = {site.index for site in self.sites(first, second)}
        for here, there in self._compatible.linked(one, other, lambda value: self._made(value) not in passed):
            if here.items() <= there.items() or there.items() <= here.items():
                continue
            known = [self._compatible.sources(each) for each in (here, there)]
            if known[0] is None or known[1] is None:
                return False
            common = {value for value in known[0] & known[1] if self._made(value) not in passed}
            if not self._compatible.together(here, there, common):
                return False
        return True

    def _made(self, value: Value) -> int:
        """The site behind which the value is there."""
        if value.site is not None:
            return value.site.index
        return self.analysis.routine.blocks[value.block].first if value.kind == "phi" else -1

    def _conditions(self, site: Site) -> list[Condition]:
        """What holds where the site is executed."""
        guard = site.instruction.guard
        own = [] if guard is None or site.control == "branch" else self._meaning(
            self.analysis.values.register(site, guard.predicate), not guard.negated)
        if site.block not in self._leading:
            self._leading[site.block] = [fact for last, taken in self._branches(site.block) if last.instruction.guard is not None
                                         for fact in self._meaning(self.analysis.values.register(last, last.instruction.guard.predicate),
                                                                   taken != last.instruction.guard.negated)]
        return own + self._leading[site.block]

    def _branches(self, block: int) -> Iterator[tuple[Site, bool]]:
        """The branches that have to be taken, or not, on the way to a block."""
        routine = self.analysis.routine
        here, parent = block, routine.dominators.get(block)
        while parent is not None:
            last = routine.blocks[parent]
            ways = [taken for successor, taken in zip(last.successors, last.taken, strict=True) if successor == here]
            others = [before for before in routine.blocks[here].predecessors if before != parent and before in routine.reachable]
            if len(ways) == 1 and ways[0] is not None and all(routine.dominators.above(here, before) for before in others):
                yield routine.sites[last.end - 1], ways[0]
            here, parent = parent, routine.dominators.get(parent)

    @cached_property
    def _leading(self) -> dict[int, list[Condition]]:
        return {}

    def _meaning(self, value: Value, holds: bool, depth: int = 0) -> list[Condition]:
        values, test = self.analysis.values, value.site if value.kind == "op" else None
        same = uniform(values, value)
        given = values.arguments(value) if test is not None and depth < 8 else []
        if test is not None and test.mnemonic in ("not", "mov") and given:
            return self._meaning(given[0], holds != (test.mnemonic == "not"), depth + 1)
        found: list[Condition] = [(value, holds, same, (value,))]
        if test is None or not given:
            return found
        if (test.mnemonic == "and" and holds) or (test.mnemonic == "or" and not holds):
            return found + [fact for part in given for fact in self._meaning(part, holds, depth + 1)]
        word = test.opcode.split(".")[1] if test.mnemonic == "setp" else ""
        if word in NEGATED and len(test.writes) == 1 and len(given) == 2:
            one, other = (values.linear(part) for part in given)
            if word in ("ne", "ge", "gt", "hs", "hi"):
                word, holds = NEGATED[word], not holds
            made = tuple(term for form in (one, other) for term, _ in form.terms)
            found.append(((word, test.opcode.rpartition(".")[2], one, other), holds, same, made))
            if word == "eq" and holds and other.constant and other.symbol is None:
                found.append(((one.symbol, one.terms), other.offset - one.offset, same, made))
        return found
