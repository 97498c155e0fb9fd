"""Whether two accesses to shared memory touch the same bytes: whether they may, and whether they surely do."""

from __future__ import annotations

from bisect import bisect_left
from math import gcd
from typing import TYPE_CHECKING

from .effort import spend
from .lanes import Vector, uniform
from .memory import Access
from .program import Site
from .ranges import Ranges
from .values import Linear, Value

if TYPE_CHECKING:
    from .analysis import Analysis

CHUNK = 16
"""Bytes that a copy, a store or a product of unknown extent moves at its address, at least."""


MOST_MAY, MOST_SURELY = 300_000, 10_000
"""Questions answered for one entry; beyond, accesses may touch the same bytes and surely never do."""


class Overlap:
    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis
        self.ranges = Ranges(analysis.values, analysis.lanes)
        self._once: dict[Value, bool] = {}
        self._may_left, self._surely_left = MOST_MAY, MOST_SURELY

    def root(self, symbol: str | None) -> str | None:
        """What a symbol lies in: a variable of its own, or the memory that all `.extern .shared` variables share."""
        if symbol is None:
            return None
        name = symbol.partition("+")[0]
        variable = self.analysis.routine.variables.get(name)
        return ".extern" if variable is not None and variable.linkage == "extern" else name

    def may(self, one: Linear, size: int, other: Linear, other_size: int) -> bool:
        """Whether so many bytes from one address and from another, at any two times, may have one in common."""
        self._may_left -= 1
        if one.symbol is None or other.symbol is None or self._may_left < 0:
            return True
        spend(8)
        if one.symbol != other.symbol:
            return self.root(one.symbol) == self.root(other.symbol) and not self._apart(one.symbol, other.symbol)
        same = {(term, factor) for term, factor in one.terms & other.terms if self._fixed(term)}
        one, other = (Linear(form.symbol, form.offset, form.terms - same) for form in (one, other))
        (low, high, step), (bottom, top, beside) = self.ranges.terms(one), self.ranges.terms(other)
        step = gcd(step, beside)
        if None in (low, top) or None in (high, bottom):
            step &= -step
        least = 1 - other_size if high is None or bottom is None else max(bottom - high, 1 - other_size)
        most = size - 1 if low is None or top is None else min(top - low, size - 1)
        begin = other.offset - one.offset
        return least <= begin <= most if step == 0 else least + (begin - least) % step <= most

    def _fixed(self, term: Value) -> bool:
        """Whether the term is one number in all threads, from its only execution on."""
        if term not in self._once:
            block = term.block if term.site is None else term.site.block
            again = block in self.analysis.loops
            self._once[term] = term.kind != "unknown" and not again and uniform(self.analysis.values, term)
        return self._once[term]

    def _apart(self, one: str, other: str) -> bool:
        """Variables of one space that are not the same; only those of the CTA's dynamic memory share their bytes."""
        return "+" not in one and "+" not in other and self.root(one) != ".extern"

    # ------------------------------------------------------------------------------------------- surely

    def surely(self, first: Access, second: Access, threads: int = -1, others: int = -1, *, ordered: bool = True) -> bool:
        """Whether `threads` of the first site touch bytes that `others` of the second touch when they come there next.

        Not `ordered`: whether they do the first time that each comes to its own.
        """
        self._surely_left -= 1
        if self._surely_left < 0 or first.symbol != second.symbol or (first.address.rank is None) != (second.address.rank is None):
            return False
        here = self._starts(first, second, threads, before=True, ordered=ordered)
        there = self._starts(second, first, others, before=False, ordered=ordered)
        if here is None or there is None or not here or not there:
            return False
        size, second_size = self.size(first), self.size(second)
        places = sorted(here)
        nearest = ((at, bisect_left(places, at - size + 1)) for at in there)
        return any(index < len(places) and places[index] < at + second_size for at, index in nearest)

    def size(self, access: Access) -> int:
        """Bytes that an access surely takes, in one thread."""
        if access.bytes is not None:
            return access.bytes
        if access.by == "async":
            known = self.analysis.constant(access.site, "size") or (self.analysis.bytes(access.site) if self._filled(access) else None)
            return known or CHUNK
        return 1

    @staticmethod
    def _filled(access: Access) -> bool:
        return access.site.mnemonic == "cp"

    def _starts(self, access: Access, other: Access, among: int, *, before: bool, ordered: bool) -> set[int] | None:
        """The offsets of the threads that come; without what is the same in both accesses at the time."""
        lanes, launch = self.analysis.lanes, self.analysis.launch
        found: list[int | None] = [access.address.offset] * launch.threads
        common = access.address.terms & other.address.terms if ordered else frozenset()
        common = frozenset(part for part in common if lanes.vector(part[0]) is None and uniform(self.analysis.values, part[0]))
        if not self._steady(common, access, other, before=before):
            common = frozenset()
        rest = [part for part in access.address.terms if part not in common]
        dominators = self.analysis.routine.dominators
        unknown = any(lanes.vector(term) is None for term, _ in rest)
        if unknown and ordered and not before and not dominators.above(other.site.block, access.site.block):
            return None
        for term, factor in rest:
            vector = lanes.vector(term) or self.first(term)
            if vector is None:
                return None
            found = [None if at is None or number is None else at + number * factor for at, number in zip(found, vector, strict=True)]
        threads = lanes.of(access.site) & among & rows(access.site, launch.threads)
        return {at for thread, at in enumerate(found) if at is not None and threads >> thread & 1}

    def first(self, term: Value) -> Vector | None:
        """What a loop's register is in each thread the first time."""
        number = self.analysis.values.initial(term)
        if number is not None:
            return (number,) * self.analysis.launch.threads
        before = self.analysis.values.before_loop(term)
        return None if before is None else self.analysis.lanes.vector(before)

    def _steady(self, rest: frozenset[tuple[Value, int]], access: Access, other: Access, *, before: bool) -> bool:
        """Whether control comes from the first access to the second without any of the terms changing on the way."""
        first, second = (access.site, other.site) if before else (other.site, access.site)
        changing = {term.block if term.site is None else term.site.block for term, _ in rest}
        if first.block == second.block and first.index < second.index:
            return True
        return not changing & {first.block, second.block} and second.block in self.analysis.reaches(first.block, frozenset(changing))


def rows(site: Site, threads: int) -> int:
    """The lanes whose addresses a matrix instruction uses: 8 a matrix."""
    if site.mnemonic not in ("ldmatrix", "stmatrix"):
        return (1 << threads) - 1
    lanes = 8 if "x1" in site.tokens else 16 if "x2" in site.tokens else 32
    row = (1 << lanes) - 1
    return sum(row << at for at in range(0, threads, 32))
