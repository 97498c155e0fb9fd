"""The cost of a kernel's tiles as a function of the group lengths. Host and kernel evaluate the same formula and get the same result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

from ptxkit import Reg, nctaid
from ptxkit.idioms import inverse
from ptxkit.ptx import add, cvt, mov, mul, redux, selp, setp
from ptxkit.types import pred, u32

from .fast_divmod import ceil_div

ALL_LANES = 0xFFFFFFFF
LEVEL = 5
"""Tenths of the time that are proportional to the number of whole waves. The rest is proportional to the number of tiles: in a partial
wave the busy SMs get the idle ones' share of power."""


class Arithmetic(Protocol):
    """The arithmetic of the formula: on host integers or on device registers. Both round alike."""

    @property
    def ctas(self) -> Any:
        """The number of CTAs of the launch."""

    def rows(self, tokens: Any, of: int) -> Any:
        """tokens / of, rounded up."""

    def waves(self, tiles: Any) -> Any:
        """tiles / ctas, rounded up."""

    def total(self, numbers: Sequence[Any]) -> Any:
        """The sum of the numbers of all groups."""

    def real(self, number: Any) -> Any:
        """An integer as float32."""

    def times(self, a: Any, b: Any) -> Any:
        """a * b in float32."""

    def plus(self, a: Any, b: Any) -> Any:
        """a + b in float32."""

    def less(self, a: Any, b: Any) -> Any:
        """a < b in float32."""

    def pick(self, which: Any, a: Any, b: Any) -> Any:
        """a if `which` holds, else b, for integers."""

    def either(self, which: Any, a: Any, b: Any) -> Any:
        """a if `which` holds, else b, for predicates."""


@dataclass(frozen=True, slots=True)
class OnDevice:
    """Executed by all lanes of a warp, each with some of the groups."""

    ctas: Reg[u32]
    inverse: Reg[u32]                           # of `ctas` (`ptxkit.idioms.inverse`)

    @classmethod
    def begin(cls) -> OnDevice:
        """Call it while the lengths are still being read: the division of the inverse takes as long."""
        ctas = mov.u32(nctaid.x)
        return cls(ctas, inverse(ctas))

    def rows(self, tokens: Reg[u32], of: int) -> Reg[u32]:
        return ceil_div(tokens, of)

    def waves(self, tiles: Reg[u32]) -> Reg[u32]:
        return ceil_div(tiles, self.ctas, self.inverse)

    def total(self, numbers: Sequence[Reg[u32]]) -> Reg[u32]:
        own = mov.u32(numbers[0])
        for number in numbers[1:]:
            add.u32(own, own, number)
        return redux.sync.add.u32(own, ALL_LANES)

    def real(self, number: Any) -> Any:
        return float(number) if isinstance(number, int) else cvt.rn.f32.u32(number)

    def times(self, a: Any, b: Any) -> Any:
        return mul.rn.f32(a, b)

    def plus(self, a: Any, b: Any) -> Any:
        return add.rn.f32(a, b)

    def less(self, a: Any, b: Any) -> Reg[pred]:
        return setp.lt.f32(a, b)

    def pick(self, which: Reg[pred], a: Any, b: Any) -> Reg[u32]:
        return selp.u32(a, b, which)

    def either(self, which: Reg[pred], a: Reg[pred], b: Reg[pred]) -> Reg[pred]:
        return (which & a) | (~which & b)


class Groups:
    """The lengths of a set of groups. Groups outside the set have length 0."""

    def __init__(self, by: Arithmetic, lengths: Sequence[Any]) -> None:
        self.by, self.lengths = by, lengths
        self._rows: dict[int, Any] = {}

    def rows(self, of: int) -> Any:
        """The number of tile rows of `of` tokens, over all groups."""
        if of not in self._rows:
            self._rows[of] = self.by.total([self.by.rows(length, of) for length in self.lengths])
        return self._rows[of]

    def split(self, which: Sequence[Any]) -> tuple[Groups, Groups]:
        """The groups for which `which` holds, and the others."""
        pairs = list(zip(which, self.lengths, strict=True))
        return (Groups(self.by, [self.by.pick(p, length, 0) for p, length in pairs]),
                Groups(self.by, [self.by.pick(p, 0, length) for p, length in pairs]))


class Count(NamedTuple):
    """The number of tiles, and the time that one CTA would take for all of them: float32, in the unit of `TileCost.wave`."""

    tiles: Any
    time: Any


@dataclass(frozen=True, slots=True)
class TileCost:
    """The cost of a kernel's tiles of `tokens` by `features`.

    A tile takes one step for each `step` tokens that it has, rounded up, and `fixed_steps` more. `wave` is the time of a step in any unit.
    """

    tokens: int
    features: int
    step: int
    wave: int
    fixed_steps: int = 0

    @property
    def full(self) -> int:
        """The time of a full tile."""
        return (self.tokens // self.step + self.fixed_steps) * self.wave

    def count(self, groups: Groups, n: Any) -> Count:
        """The tiles of all groups, for a result of `n` columns."""
        across = groups.by.rows(n, self.features)
        return Count(groups.rows(self.tokens) * across, self._time(groups.by, groups.rows, across))

    def of_each(self, groups: Groups, n: Any) -> list[Any]:
        """The time of each group's tiles."""
        by, across = groups.by, groups.by.rows(n, self.features)
        return [self._time(by, partial(by.rows, length), across) for length in groups.lengths]

    def _time(self, by: Arithmetic, rows: Callable[[int], Any], across: Any) -> Any:
        """The time of tiles in rows of `across` tiles. `rows(t)` is the number of rows of `t` tokens."""
        steps = rows(self.step) + rows(self.tokens) * self.fixed_steps
        return by.times(by.real(steps), by.times(by.real(across), by.real(self.wave)))

    def time(self, groups: Groups, n: int) -> float:
        """The time of a product with `n` columns, in 1 / (10 `ctas`) of the unit of `wave`. `groups` are on the host (`host_cost.on_host`);
        they keep their counts of rows, so several tile shapes can share them."""
        count = self.count(groups, n)
        return float(in_waves(groups.by, count)) / count.tiles if count.tiles else 0.0


def in_waves(by: Arithmetic, count: Count) -> Any:
    """The time of the tiles, summed over all CTAs, in tenths of the unit of `Count.time`.

    Scaled by the tile count, so the device needs no division.
    """
    return by.times(by.real(by.waves(count.tiles) * by.ctas * LEVEL + count.tiles * (10 - LEVEL)), count.time)


__all__ = ["ALL_LANES", "LEVEL", "Arithmetic", "Count", "Groups", "OnDevice", "TileCost", "in_waves"]
