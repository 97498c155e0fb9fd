"""How long a kernel's tiles take by the lengths of the groups: one formula, for the host and for a kernel that has just read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from ptxkit import Reg, nctaid
from ptxkit.idioms import inverse
from ptxkit.ptx import add, cvt, mov, mul, redux, selp, setp
from ptxkit.types import pred, u32

from .fast_divmod import rounded_up

ALL_LANES = 0xFFFFFFFF
LEVEL = 5
"""Tenths of the time that go by whole waves; the rest goes by the number of tiles: while some SMs have none left, the others have their
power."""


class Arithmetic(Protocol):
    """What is counted with: integers that are there, or registers. Both round alike."""

    @property
    def ctas(self) -> Any:
        """How many work on a product."""

    def rows(self, tokens: Any, of: int) -> Any:
        """Rows of `of` tokens at most."""

    def waves(self, tiles: Any) -> Any:
        """Of tiles on all CTAs."""

    def total(self, numbers: Sequence[Any]) -> Any:
        """Of a number of each group."""

    def real(self, number: Any) -> Any:
        """In float32."""

    def times(self, a: Any, b: Any) -> Any:
        """Of float32."""

    def plus(self, a: Any, b: Any) -> Any:
        """Of float32."""

    def less(self, a: Any, b: Any) -> Any:
        """Of float32: whether a is less."""

    def pick(self, which: Any, a: Any, b: Any) -> Any:
        """a where `which` holds, else b: integers."""

    def either(self, which: Any, a: Any, b: Any) -> Any:
        """The same of what holds or does not."""


@dataclass(frozen=True, slots=True)
class OnDevice:
    """By all lanes of a warp, each with some of the groups."""

    ctas: Reg[u32]
    inverse: Reg[u32]                           # of their number (`ptxkit.idioms.inverse`)

    @classmethod
    def begin(cls) -> OnDevice:
        """Before anything depends on lengths that are still being read: the division takes as long."""
        ctas = mov.u32(nctaid.x)
        return cls(ctas, inverse(ctas))

    def rows(self, tokens: Reg[u32], of: int) -> Reg[u32]:
        return rounded_up(tokens, of)

    def waves(self, tiles: Reg[u32]) -> Reg[u32]:
        return rounded_up(tiles, self.ctas, self.inverse)

    def total(self, numbers: Sequence[Reg[u32]]) -> Reg[u32]:
        here = mov.u32(numbers[0])
        for number in numbers[1:]:
            add.u32(here, here, number)
        return redux.sync.add.u32(here, ALL_LANES)

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


@dataclass(frozen=True, slots=True)
class OnHost:
    """With the lengths of all groups as one array."""

    ctas: int

    def groups(self, lengths: Sequence[int]) -> Groups:
        """Of these lengths."""
        return Groups(self, [np.array(lengths, np.int64)])

    def rows(self, tokens: Any, of: int) -> Any:
        return -(-tokens // of)

    def waves(self, tiles: int) -> int:
        return -(-tiles // self.ctas)

    def total(self, numbers: Sequence[Any]) -> int:
        return sum(int(number.sum()) for number in numbers)

    def real(self, number: Any) -> Any:
        return np.float32(number)

    def times(self, a: Any, b: Any) -> Any:
        return a * b

    def plus(self, a: Any, b: Any) -> Any:
        return a + b

    def less(self, a: Any, b: Any) -> Any:
        return a < b

    def pick(self, which: Any, a: Any, b: Any) -> Any:
        return np.where(which, a, b)

    def either(self, which: Any, a: Any, b: Any) -> Any:
        return np.where(which, a, b)


class Groups:
    """The lengths of the groups that are somebody's; others have none."""

    def __init__(self, by: Arithmetic, lengths: Sequence[Any]) -> None:
        self.by, self.lengths = by, lengths
        self._rows: dict[int, Any] = {}

    def rows(self, of: int) -> Any:
        """Rows of so many tokens, of all groups."""
        if of not in self._rows:
            self._rows[of] = self.by.total([self.by.rows(length, of) for length in self.lengths])
        return self._rows[of]

    def split(self, which: Sequence[Any]) -> tuple[Groups, Groups]:
        """Those for which it holds, and the others."""
        pairs = list(zip(which, self.lengths, strict=True))
        return (Groups(self.by, [self.by.pick(p, length, 0) for p, length in pairs]),
                Groups(self.by, [self.by.pick(p, 0, length) for p, length in pairs]))


class Count(NamedTuple):
    """How many tiles, and the time of all of them in float32: of one CTA, in the unit of `TileCost.wave`."""

    tiles: Any
    time: Any


@dataclass(frozen=True, slots=True)
class TileCost:
    """A kernel's tiles of `tokens` by `features`: each takes as long as it has tokens, by `step` of them at a time, and as `beside` steps
    more, whatever it has. `wave` is the time of a step, in any unit."""

    tokens: int
    features: int
    step: int
    wave: int
    beside: int = 0

    @property
    def full(self) -> int:
        """The time of a tile that has all its tokens."""
        return (self.tokens // self.step + self.beside) * self.wave

    def count(self, groups: Groups, n: Any) -> Count:
        """Those of groups, for results of `n` columns."""
        across = groups.by.rows(n, self.features)
        return Count(groups.rows(self.tokens) * across, self._time(groups.by, groups.rows, across))

    def of_each(self, groups: Groups, n: Any) -> list[Any]:
        """The time of each group's."""
        by, across = groups.by, groups.by.rows(n, self.features)
        return [self._time(by, partial(by.rows, length), across) for length in groups.lengths]

    def _time(self, by: Arithmetic, rows: Callable[[int], Any], across: Any) -> Any:
        """Of `rows` of so many tokens, each `across` tiles."""
        steps = rows(self.step) + rows(self.tokens) * self.beside
        return by.times(by.real(steps), by.times(by.real(across), by.real(self.wave)))

    def time_of(self, lengths: Sequence[int], n: int, ctas: int) -> float:
        """What results of `n` columns take, in 1 / (10 CTAs) of the unit of `wave`."""
        return self.time(OnHost(ctas).groups(lengths), n)

    def time(self, groups: Groups, n: int) -> float:
        """The same of groups on the host, whose rows are counted once for all tiles."""
        count = self.count(groups, n)
        return float(in_waves(groups.by, count)) / count.tiles if count.tiles else 0.0


def in_waves(by: Arithmetic, count: Count) -> Any:
    """What tiles take in waves, in tenths of `Count.time`; times their number, by which nobody needs to divide."""
    return by.times(by.real(by.waves(count.tiles) * by.ctas * LEVEL + count.tiles * (10 - LEVEL)), count.time)


__all__ = ["ALL_LANES", "LEVEL", "Arithmetic", "Count", "Groups", "OnDevice", "OnHost", "TileCost", "in_waves"]
