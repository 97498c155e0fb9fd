"""The mbarriers of a routine: which instructions use which, by the address that they name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from math import gcd

from ..grammar.operands import width
from .effort import spend
from .memory import Memory
from .program import Routine, Site
from .ranges import Ranges
from .values import Linear, Values

WORDS = ("init", "inval", "arrive", "arrive_async", "expect_tx", "complete_tx", "test", "drop")


@dataclass(eq=False, slots=True)
class Use:
    """An instruction that touches an mbarrier. `kinds` are words of the table's effects (`WORDS`).

    `barrier` is None where the address is not understood. `low` is the address in the barrier's symbol with the lowest
    index, or the first one.
    """

    site: Site
    kinds: frozenset[str]
    address: Linear
    low: int
    barrier: Barrier | None = None

    @property
    def remote(self) -> bool:
        """Whether the barrier is that of another CTA of the cluster: its address comes from mapa."""
        return self.address.rank is not None


@dataclass(eq=False, slots=True)
class Barrier:
    """An mbarrier or an array of them, `stride` bytes from one to the next. `declared` is how many a trace declares, `size` how many
    their variable has room for, where these are known.
    """

    symbol: str
    base: int
    stride: int
    name: str
    declared: int | None = None
    size: int | None = None
    uses: list[Use] = field(default_factory=list)

    def having(self, *kinds: str) -> list[Use]:
        return [use for use in self.uses if not use.kinds.isdisjoint(kinds)]

    def __str__(self) -> str:
        return f"`{self.name}`"


def _begin(values: Values, memory: Memory, ranges: Ranges, site: Site, address: Linear) -> int:
    """Where the array begins that an address names: what its indices have at least, or else the first time."""
    low, _, _ = ranges.terms(address)
    if low is not None and not any(memory.lanes.vector(term) for term, _ in address.terms):
        return low
    first = sum((values.initial(term) or 0) * factor for term, factor in address.terms if memory.lanes.vector(term) is None)
    return memory.low(site, address) + first


class Barriers:
    """All uses of mbarriers, grouped. `arrays`: (symbol, offset, count, name) of those that a trace declared."""

    def __init__(self, routine: Routine, values: Values, memory: Memory, arrays: Iterable[tuple[str, int, int, str]] = ()) -> None:
        self.uses: list[Use] = []
        ranges = Ranges(values, memory.lanes, hopeful=True)
        for site in routine.body():
            kinds = frozenset(word.partition(".")[2] for word in site.sync if word.startswith("mbarrier."))
            operand = site.tagged("mbarrier")
            if operand is not None and kinds & set(WORDS):
                address = values.address(site, operand)
                self.uses.append(Use(site, kinds, address, _begin(values, memory, ranges, site, address)))
        self._settle(Ranges(values, memory.lanes))
        self.by_site = {use.site.index: use for use in self.uses}
        self.all: list[Barrier] = [Barrier(symbol, offset, 8, name, count) for symbol, offset, count, name in arrays]
        sizes = {(symbol, offset): 8 * count for symbol, offset, count, _ in arrays}
        for use in self.uses:
            spend(len(self.all))
            use.barrier = next((barrier for barrier in self.all if barrier.symbol == use.address.symbol
                                and 0 <= use.low - barrier.base < sizes[barrier.symbol, barrier.base]), None)
        self._tops = {use.site.index: use.low if high is None else high for use in self.uses
                      for _, high, _ in [ranges.terms(use.address)]}
        self._group([use for use in self.uses if use.barrier is None and memory.is_shared(use.address.symbol)])
        for use in self.uses:
            if use.barrier is not None:
                use.barrier.uses.append(use)
        self.all = [barrier for barrier in self.all if barrier.uses]
        named = Counter(barrier.symbol for barrier in self.all)
        for barrier in self.all:
            barrier.size = self._size(routine, barrier) if named[barrier.symbol] == 1 else None

    @cached_property
    def waits(self) -> frozenset[int]:
        """The blocks of the waits."""
        return frozenset(use.site.block for use in self.uses if "test" in use.kinds)

    @cached_property
    def understood(self) -> bool:
        """Whether the address of every use is known."""
        return all(use.barrier is not None for use in self.uses)

    def _size(self, routine: Routine, barrier: Barrier) -> int | None:
        """How many there is room for in a variable that holds no other."""
        variable = routine.variables.get(barrier.symbol)
        if variable is None or barrier.base or barrier.stride != 8 or None in variable.shape:
            return None
        size = width(variable.type) // 8
        for extent in variable.shape:
            size *= extent or 0
        return size // 8

    def _settle(self, ranges: Ranges) -> None:
        """Arrays begin where barriers are initialised: at the first of a row of words with one count. An index that begins elsewhere is of
        the nearest row.
        """
        rows: dict[str, list[int]] = {}
        counts = {(use.address.symbol, use.low): use.site.value("count") for use in self.uses
                  if "init" in use.kinds and not use.address.terms}
        for (symbol, low), count in counts.items():
            before = counts.get((symbol, low - 8))
            if (symbol, low - 8) not in counts or before != count:
                rows.setdefault(symbol or "", []).append(low)
        for use in self.uses:
            begins = rows.get(use.address.symbol or "")
            if begins and use.address.terms and (use.address.symbol, use.low) not in counts and "init" not in use.kinds:
                if ranges.terms(use.address)[0] == use.low >= 0:
                    continue  # the index begins there, and nothing is initialised
                use.low = min(begins, key=lambda begin: (abs(begin - use.low), begin))

    def _group(self, uses: list[Use]) -> None:
        """An indexed use makes an array; an address without an index belongs to the array below it that it is in step with."""
        strides: dict[tuple[str, int], int] = {}
        tops: dict[tuple[str, int], int] = {}
        for use in uses:
            if use.address.terms:
                key = (use.address.symbol or "", use.low)
                tops[key] = max(tops.get(key, use.low), self._tops[use.site.index])
                step = gcd(*(factor for _, factor in use.address.terms))
                strides[key] = gcd(strides.get(key, 0), step if step % 8 == 0 else 8)
        fixed = {(use.address.symbol, use.low) for use in uses if not use.address.terms}
        made: dict[tuple[str, int], Barrier] = {}
        for use in uses:
            symbol = use.address.symbol or ""
            key = (symbol, use.low)
            if not use.address.terms:
                spend(len(strides))
                arrays = [base for (other, base), stride in strides.items() if other == symbol and base <= use.low
                          and (use.low - base) % stride == 0
                          and (use.low <= tops[other, base] or all((symbol, at) in fixed for at in range(base, use.low, stride)))]
                key = (symbol, max(arrays, default=use.low))
            if key not in made:
                made[key] = Barrier(symbol, key[1], strides.get(key, 8), f"{symbol}+{key[1]}" if key[1] else symbol)
                self.all.append(made[key])
            use.barrier = made[key]
