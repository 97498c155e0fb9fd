"""Between which numbers a register is: intervals through masks, remainders and the comparisons that wrap a ring's index."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from math import gcd

from ..grammar.operands import width
from .definitions import START
from .lanes import Lanes
from .program import Site
from .quotients import Quotients
from .values import Linear, Value, Values, sources

Interval = tuple[int, int]
MOST, PATIENCE = 400, 24
"""Values that one answer may depend on; and how often the interval of one may grow before it is set to a bound that the code names."""
NUMBERS: Interval = (-(1 << 31), (1 << 32) - 1)
"""What a register of 32 bits can mean, signed or not. An interval that goes beyond may have wrapped: it is not known."""
NEGATED = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "lo": "hs", "hs": "lo", "ls": "hi", "hi": "ls"}
_MIRRORED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "lo": "hi", "hi": "lo", "ls": "hs", "hs": "ls"}


class Ranges:
    """The intervals of a routine's values. None is any number. With `hopeful` what is divided with its sign is taken for positive."""

    def __init__(self, values: Values, lanes: Lanes, *, hopeful: bool = False) -> None:
        self.values = values
        self.lanes = lanes
        self.hopeful = hopeful
        self.quotients = Quotients(values)
        self._known: dict[Value, Interval | None] = {}

    def of(self, value: Value) -> Interval | None:
        if value not in self._known:
            self._solve(value)
        return self._known[value]

    def terms(self, form: Linear) -> tuple[int | None, int | None, int]:
        """Of `form` without its symbol: lowest and highest number, None where that is not known, and the step between its numbers.

        With an unknown term products may wrap: only what is a power of two in the step is sure.
        """
        span = self._sum(form, self.of)
        step = gcd(*(factor for _, factor in form.terms))
        if span is None or span[1] - span[0] >= 1 << 32:
            return None, None, step & -step
        return *span, step

    # ------------------------------------------------------------------------------------------- the solution

    def _solve(self, value: Value) -> None:
        """All that the value depends on, from nothing upwards until no interval grows."""
        users: dict[Value, list[Value]] = {}
        closure, todo = {value: None}, [value]
        while todo:
            here = todo.pop()
            for other in self._needed(here):
                users.setdefault(other, []).append(here)
                if other not in closure and other not in self._known:
                    closure[other] = None
                    todo.append(other)
            if len(closure) > MOST:
                self._known[value] = None
                return
        bounds = self._bounds([*closure])
        found: dict[Value, Interval | None] = {}
        grown: dict[Value, int] = {}
        waiting = dict.fromkeys(reversed(closure))

        def known(other: Value) -> Interval | None:
            if other in self._known:
                return self._known[other]
            if other not in found:
                raise _NothingYetError
            return found[other]

        while waiting:
            here = next(iter(waiting))
            del waiting[here]
            try:
                new = self._evaluated(here, known)
            except _NothingYetError:
                continue
            old = found.get(here, new)
            if here in found:
                if old is None or (new is not None and old[0] <= new[0] and new[1] <= old[1]):
                    continue
                new = None if new is None else (min(old[0], new[0]), max(old[1], new[1]))
                grown[here] = grown.get(here, 0) + 1
                if grown[here] > PATIENCE and new is not None:
                    new = self._widened(old, new, bounds) if grown[here] < 3 * PATIENCE else None
            if new is not None and (new[0] < NUMBERS[0] or new[1] > NUMBERS[1]):
                new = None
            found[here] = new
            waiting.update(dict.fromkeys(users.get(here, ())))
        self._known.update({here: found.get(here) for here in closure})

    @staticmethod
    def _widened(old: Interval, new: Interval, bounds: list[int]) -> Interval | None:
        low = new[0] if new[0] == old[0] else max((bound for bound in bounds if bound <= new[0]), default=None)
        high = new[1] if new[1] == old[1] else min((bound for bound in bounds if bound >= new[1]), default=None)
        return None if low is None or high is None else (low, high)

    def _bounds(self, closure: list[Value]) -> list[int]:
        """The numbers that the code compares with, and those beside them."""
        found = {0}
        for value in closure:
            for site, _ in self._conditions(value):
                for operand in sources(site):
                    number = self.values.number(self.values.of(site, operand))
                    if number is not None:
                        found |= {number - 1, number, number + 1}
        return sorted(found)

    def _conditions(self, value: Value) -> list[tuple[Site, bool]]:
        """Comparisons that decide what the value is, with whether they have to hold."""
        if value.kind == "op" and value.site is not None and value.site.mnemonic == "selp":
            chosen = self.values.arguments(value)[-1]
            return [] if chosen.site is None else [(chosen.site, True)]
        if value.kind == "select" and value.site is not None and value.site.instruction.guard is not None:
            guard = self.values.register(value.site, value.site.instruction.guard.predicate)
            return [] if guard.site is None else [(guard.site, True)]
        if value.kind != "phi":
            return []
        return [(site, holds) for block in self.values.routine.blocks[value.block].predecessors
                for site, holds in self._path(block, value.block)]

    def _needed(self, value: Value) -> list[Value]:
        if value.kind in ("phi", "select"):
            needed = self.values.alternatives(value)
            if value.kind == "select" and value.site is not None:
                needed = needed + self._parts(value)
            return needed
        return self._parts(value) if value.kind == "op" and value.site is not None else []

    def _parts(self, value: Value) -> list[Value]:
        form = self._form(value)
        return self.values.arguments(value) if form is None else [term for term, _ in form.terms]

    def _form(self, value: Value) -> Linear | None:
        """The sum that the value is, unless it is one of its own terms."""
        if value.kind != "op":
            return None
        form = self.values.linear(value)
        return None if form.symbol is not None or any(term is value or term.kind == "unknown" for term, _ in form.terms) else form

    def _evaluated(self, value: Value, known: Callable[[Value], Interval | None]) -> Interval | None:
        if value.kind == "int":
            return value.number, value.number
        vector = self.lanes.vector(value)
        if vector is not None and None not in vector:
            numbers = [number for number in vector if number is not None]
            return min(numbers), max(numbers)
        if value.kind == "special":
            return self._special(value.name.lstrip("%"))
        if value.kind == "phi":
            return self._joined(value, known)
        if value.kind == "select" and value.site is not None:
            return self._guarded(value, value.site, known)
        if value.kind != "op" or value.site is None:
            return None
        form = self._form(value)
        return self._sum(form, known) if form is not None else self._operation(value, value.site, known)

    def _special(self, name: str) -> Interval | None:
        if name == "laneid":
            return 0, 31
        if name.startswith("tid."):
            return 0, (self.lanes.launch.block or (1024,) * 3)["xyz".index(name[-1])] - 1
        if name == "cluster_ctarank" or name.startswith("cluster_ctaid."):
            return 0, (self.lanes.launch.cluster or 16) - 1
        return (0, (1 << 31) - 1) if name.startswith(("ctaid.", "nctaid.", "ntid.", "clusterid.", "nclusterid.")) else None

    # ------------------------------------------------------------------------------------------- joins

    def _joined(self, value: Value, known: Callable[[Value], Interval | None]) -> Interval | None:
        """What comes from each predecessor, as far as the branches on the way there let it through."""
        if value.block == 0:
            return None
        found: list[Interval | None] = []
        routine = self.values.routine
        ways = [block for block in routine.blocks[value.block].predecessors if block in routine.reachable]
        for block in ways:
            definition = self.values.definitions.at_end(block, value.name)
            if definition == START:
                return None
            other = self.values.defined(definition, value.name)
            try:
                here = known(other)
            except _NothingYetError:
                continue
            for site, holds in self._path(block, value.block):
                here = self._where(other, here, site, holds)
                if here is not None and here[0] > here[1]:
                    break
            else:
                found.append(here)
        return self._union(found)

    @staticmethod
    def _union(found: list[Interval | None]) -> Interval | None:
        if not found:
            raise _NothingYetError
        known = [interval for interval in found if interval is not None]
        if len(known) < len(found):
            return None
        return min(low for low, _ in known), max(high for _, high in known)

    def _path(self, block: int, to: int) -> list[tuple[Site, bool]]:
        """The comparisons behind the branches from a block to the next, and from what alone leads to the block."""
        found: list[tuple[Site, bool]] = []
        routine = self.values.routine
        for _ in range(3):
            here = routine.blocks[block]
            ways = {taken for successor, taken in zip(here.successors, here.taken, strict=True) if successor == to}
            last = routine.sites[here.end - 1]
            if len(ways) == 1 and last.control == "branch" and last.instruction.guard is not None:
                guard = self.values.register(last, last.instruction.guard.predicate)
                holds = bool(next(iter(ways))) != last.instruction.guard.negated
                if guard.site is not None and guard.kind == "op":
                    found.append((guard.site, holds))
            if len(here.predecessors) != 1:
                break
            block, to = here.predecessors[0], block
        return found

    def _guarded(self, value: Value, site: Site, known: Callable[[Value], Interval | None]) -> Interval | None:
        """Of a guarded instruction: its result where the guard holds, else what was there before."""
        guard = site.instruction.guard
        test = self.values.register(site, guard.predicate) if guard is not None else None
        found: list[Interval | None] = []
        for other in self.values.alternatives(value):
            try:
                before = known(other)
            except _NothingYetError:
                continue
            if test is not None and test.site is not None and test.kind == "op" and guard is not None:
                before = self._where(other, before, test.site, guard.negated)
            if before is None or before[0] <= before[1]:
                found.append(before)
        with contextlib.suppress(_NothingYetError):
            found.append(self._operation(value, site, known))
        return self._union(found)

    def _where(self, value: Value, interval: Interval | None, site: Site, holds: bool) -> Interval | None:
        """The interval where a comparison of the value, or of the value and a constant, with a constant holds or fails."""
        if site.mnemonic != "setp" or len(site.writes) != 1 or len(sources(site)) != 2:
            return interval
        one, other = self.values.arguments(Value("op", site=site))
        word = site.opcode.split(".")[1]
        if self.values.number(one) is not None:
            one, other, word = other, one, _MIRRORED.get(word, word)
        bound = self.values.number(other)
        if bound is None or word not in NEGATED:
            return interval
        mine, its = self.values.linear(value), self.values.linear(one)
        if mine.symbol is not None or its.symbol is not None or mine.terms != its.terms:
            return interval
        return _cut(interval, word if holds else NEGATED[word], bound + mine.offset - its.offset,
                    unsigned=site.opcode[-3] == "u" or word in ("lo", "ls", "hi", "hs"), shift=mine.offset - its.offset)

    # ------------------------------------------------------------------------------------------- sums

    def _sum(self, form: Linear, known: Callable[[Value], Interval | None]) -> Interval | None:
        low = high = form.offset
        rest = dict(form.terms)
        for term, factor in form.terms:
            part = self._remainder(term, factor, rest, known) if term in rest else None
            if part is not None:
                low, high = low + min(part), high + max(part)
        for term, factor in rest.items():
            interval = known(term)
            if interval is None:
                return None
            low += min(interval[0] * factor, interval[1] * factor)
            high += max(interval[0] * factor, interval[1] * factor)
        return low, high

    def _remainder(self, term: Value, factor: int, rest: dict[Value, int],
                   known: Callable[[Value], Interval | None]) -> Interval | None:
        """Of `c (x - x / n * n)` and `c (x - (x + b & -n))`, whose term with the quotient this is: its bounds. Takes them out of `rest`."""
        quotient, parts = self.quotients.of(term), [term]
        if quotient is None:
            for other in [other for other in rest if rest[other] == factor and other is not term]:
                pair = self.quotients.pair(term, other)
                if pair is not None:
                    quotient, parts = (*pair, True), [term, other]
                    break
        if quotient is not None:
            x, n, signed = quotient
            if x not in parts and rest.get(x, 0) * -n == factor:
                interval = known(x) if signed and not self.hopeful else (0, 0)
                least = 0 if interval is not None and interval[0] >= 0 else 1 - n
                own = rest.pop(x)
                for part in parts:
                    del rest[part]
                return least * own, (n - 1) * own
        masked = self._masked(term, factor)
        if masked is None:
            return None
        n, form = masked
        shared = [(x, own) for x, own in form.terms if x is not term and rest.get(x, 0) == -factor * own]
        if not shared:
            return None
        added = self._sum(Linear(None, form.offset, form.terms - {*shared}), known)
        if added is None:
            return None
        for x, _ in shared:
            del rest[x]
        del rest[term]
        return -added[1] * -factor, (n - 1 - added[0]) * -factor

    def _masked(self, term: Value, factor: int) -> tuple[int, Linear] | None:
        """(n, y) of `y & -n`; the mask may lack high bits that the product with the factor loses anyway."""
        if term.kind != "op" or term.site is None or term.site.mnemonic != "and":
            return None
        one, other = self.values.arguments(term)
        mask = self.values.number(other)
        if mask is None:
            one, mask = other, self.values.number(one)
        if mask is None or mask == 0:
            return None
        n, form = mask & -mask, self.values.linear(one)
        lost = mask + n  # 0, or the first bit that the mask lacks
        whole = lost & lost - 1 == 0 and lost * factor % (1 << 32) == 0
        return (n, form) if n > 1 and whole and form.symbol is None else None

    # ------------------------------------------------------------------------------------------- one instruction

    def _operation(self, value: Value, site: Site, known: Callable[[Value], Interval | None]) -> Interval | None:
        given = [self.values.of(site, operand) for operand in sources(site)]
        kind = site.opcode.rpartition(".")[2]
        bits, unsigned = width(kind), kind[:1] in ("u", "b")
        constant = [self.values.number(one) for one in given]
        match site.mnemonic:
            case "setp":
                return 0, 1
            case "mov" | "cvta" if len(given) == 1:
                return known(given[0])
            case "cvt" if len(given) == 1:
                return _converted(site, known(given[0]))
            case "add" | "sub" | "mul" | "mad" | "shl":
                return self._guarded_sum(site, given, known)
            case "selp":
                return self._chosen(given, known)
            case "and":
                masks = [number for number in constant if number is not None and number >= 0]
                spans = [span for one in given if (span := _seen(known(one), bits, signed=False)) is not None]
                tops = [*masks, *(high for _, high in spans)]
                return (0, min(tops)) if tops else None
            case "or" | "xor" if bits > 1:
                both = [_seen(known(one), bits, signed=False) for one in given]
                if any(span is None or span[0] < 0 for span in both):
                    return None
                return 0, (1 << max(span[1] for span in both if span is not None).bit_length()) - 1
            case "rem" if constant[1] is not None and constant[1] > 0:
                span = _seen(known(given[0]), bits, signed=not unsigned)
                positive = unsigned or self.hopeful or (span is not None and span[0] >= 0)
                return 0 if positive else 1 - constant[1], constant[1] - 1
            case "div" if constant[1] is not None and constant[1] > 0:
                span = _seen(known(given[0]), bits, signed=not unsigned)
                if span is not None and span[0] >= 0:
                    return span[0] // constant[1], span[1] // constant[1]
                return (0, ((1 << bits) - 1) // constant[1]) if unsigned else None
            case "shr" if constant[1] is not None and 0 <= constant[1] < bits:
                span, by = _seen(known(given[0]), bits, signed=not unsigned), constant[1]
                if self.hopeful and by == bits - 1:
                    return 0, 0
                if span is not None:
                    return span[0] >> by, span[1] >> by
                return (0, (1 << bits - by) - 1) if unsigned else (-(1 << bits - 1 - by), (1 << bits - 1 - by) - 1)
            case "bfe" if constant[2] is not None and unsigned and 0 < constant[2] < bits:
                return 0, (1 << constant[2]) - 1
            case "min" | "max" if len(given) == 2:
                return self._extreme(site, given, known, unsigned)
            case "popc" | "clz" | "bfind":
                return (0, 64) if site.mnemonic != "bfind" else None
            case "ld" if kind in ("u8", "u16", "s8", "s16") and len(site.writes) == 1:
                return (0, (1 << bits) - 1) if unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)
        return None

    def _guarded_sum(self, site: Site, given: list[Value], known: Callable[[Value], Interval | None]) -> Interval | None:
        """`add`, `sub` and `shl` under a guard, which have no sum of their own."""
        spans = [known(one) for one in given]
        if site.mnemonic not in ("add", "sub") or None in spans or len(spans) != 2:
            return None
        (low, high), (below, above) = (span or (0, 0) for span in spans)
        return (low + below, high + above) if site.mnemonic == "add" else (low - above, high - below)

    def _chosen(self, given: list[Value], known: Callable[[Value], Interval | None]) -> Interval | None:
        found: list[Interval | None] = []
        for one, holds in zip(given[:2], (True, False), strict=True):
            try:
                here = known(one)
            except _NothingYetError:
                continue
            test = given[2]
            if test.site is not None and test.kind == "op":
                here = self._where(one, here, test.site, holds)
            if here is None or here[0] <= here[1]:
                found.append(here)
        return self._union(found)

    @staticmethod
    def _extreme(site: Site, given: list[Value], known: Callable[[Value], Interval | None], unsigned: bool) -> Interval | None:
        bits = width(site.opcode.rpartition(".")[2])
        one, other = (_seen(known(part), bits, signed=not unsigned) for part in given)
        if one is not None and other is not None:
            pick = min if site.mnemonic == "min" else max
            return pick(one[0], other[0]), pick(one[1], other[1])
        some = one or other
        return (0, some[1]) if some is not None and unsigned and site.mnemonic == "min" else None


class _NothingYetError(Exception):
    """An interval of which nothing is known yet was asked for."""


def _seen(interval: Interval | None, bits: int, *, signed: bool) -> Interval | None:
    """The interval as a signed or unsigned instruction sees its numbers; None where some are on the other side of the sign."""
    if interval is None:
        return None
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    for turn in (0, 1 << bits, -(1 << bits)):
        if low <= interval[0] + turn and interval[1] + turn <= high:
            return interval[0] + turn, interval[1] + turn
    return None


def _cut(interval: Interval | None, word: str, bound: int, *, unsigned: bool, shift: int) -> Interval | None:
    """The part of the interval where a comparison with the bound holds. An unsigned one says nothing of numbers below 0."""
    if word == "eq":
        meant = (bound, bound - (1 << 32), bound + (1 << 32))
        same = [bound] if interval is None else [number for number in meant if interval[0] <= number <= interval[1]]
        return (same[0], same[0]) if same else (1, 0)
    if interval is None:
        return interval
    low, high = interval
    if word != "ne" and (low - shift < 0 if unsigned else high - shift >= 1 << 31):
        return interval
    if word == "ne":
        return low + (low == bound), high - (high == bound)
    if word in ("lt", "lo"):
        return low, min(high, bound - 1)
    if word in ("le", "ls"):
        return low, min(high, bound)
    if word in ("gt", "hi"):
        return max(low, bound + 1), high
    return max(low, bound), high


def _converted(site: Site, interval: Interval | None) -> Interval | None:
    types = [token for token in site.opcode.split(".") if width(token)]
    if len(types) != 2 or any(token[0] not in "usb" for token in types):
        return None
    to, source = types
    bits = width(source)
    natural = (0, (1 << bits) - 1) if source[0] != "s" else (-(1 << bits - 1), (1 << bits - 1) - 1)
    if interval is None or interval[0] < natural[0] or interval[1] > natural[1]:
        interval = natural if bits < 32 else None
    if interval is None:
        return None
    bits = width(to)
    fits = (interval[0] >= 0 and interval[1] < 1 << bits - (to[0] == "s")) or (to[0] == "s" and bits >= width(source))
    return interval if fits or (bits >= 32 and interval[0] >= -(1 << bits - 1)) else None


__all__ = ["Ranges"]
