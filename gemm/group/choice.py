"""Two tiles for one product: both kernels are launched, and the lengths on the device say which of them works."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ptxkit import Reg, nctaid
from ptxkit.idioms import inverse
from ptxkit.ptx import add, cvt, mov, mul, redux, selp, setp
from ptxkit.types import f32, u32

from ..quotients import rounded_up

ALL_LANES = 0xFFFFFFFF
LEVEL = 5
"""Tenths of the time that go by whole waves; the rest goes by the number of tiles."""


class Ctas(NamedTuple):
    """How many work on a product, and the inverse of that (`ptxkit.idioms.inverse`)."""

    number: Reg[u32]
    inverse: Reg[u32]

    @classmethod
    def read(cls) -> Ctas:
        """Before anything depends on lengths that are still being read: the division takes as long."""
        number = mov.u32(nctaid.x)
        return cls(number, inverse(number))


@dataclass(frozen=True, slots=True)
class Tiles:
    """A kernel's tiles of `tokens` by `features`: each takes as long as it has tokens, by `step` of them at a time, and as `beside` steps
    more, whatever it has. `wave` is the time of a step, in any unit."""

    tokens: int
    features: int
    step: int
    wave: int
    beside: int = 0

    def work(self, rows_of: Callable[[int], Reg[u32]], across: Reg[u32], ctas: Ctas) -> tuple[Reg[f32], Reg[f32]]:
        """By all lanes of a warp: what rows of `across` tiles take, times the number of tiles; and that number. `rows_of` tells the rows of
        so many tokens in all groups."""
        rows, steps = rows_of(self.tokens), rows_of(self.step)
        tiles = rows * across
        level = rounded_up(tiles, *ctas) * ctas.number * LEVEL + tiles * (10 - LEVEL)
        whole = mul.rn.f32(cvt.rn.f32.u32(level), cvt.rn.f32.u32((steps + rows * self.beside) * across))
        return mul.rn.f32(whole, float(self.wave)), cvt.rn.f32.u32(tiles)

    def work_of(self, lengths: Sequence[int], n: int, ctas: int) -> tuple[np.float32, np.float32]:
        """The same on the host, of results of `n` columns."""
        across = -(-n // self.features)
        tiles, steps = (sum(-(-length // of) for length in lengths) * across for of in (self.tokens, self.step))
        level = -(-tiles // ctas) * ctas * LEVEL + tiles * (10 - LEVEL)
        return np.float32(level) * np.float32(steps + tiles * self.beside) * np.float32(self.wave), np.float32(tiles)

    def time_of(self, lengths: Sequence[int], n: int, ctas: int) -> float:
        """What results of `n` columns take, in 1 / (10 CTAs) of the unit of `wave`."""
        work, tiles = self.work_of(lengths, n, ctas)
        return float(work) / float(tiles) if tiles else 0.0


@dataclass(frozen=True, slots=True)
class Choice:
    """What a kernel knows of its own tiles and the other one's.

    Tiles are dealt out in waves, and whether the last one is full depends on every group's length. Both kernels count both kinds of
    tiles with the same grid; the one that takes longer has no work. `first` works where they take equally long. The time goes by the waves
    and by the tiles (LEVEL): while some SMs have none left, the others have their power.
    """

    own: Tiles
    other: Tiles
    first: bool

    def rows(self, here: Reg[u32], lengths: Sequence[Reg[u32]], across: Reg[u32], n: Reg[u32], ctas: Ctas) -> Reg[u32]:
        """By all lanes of a warp, each with the lengths of some groups and this kernel's rows of tiles in them (`here`): all rows of
        tiles, or 0 for the kernel that does not work.

        This kernel's tiles are `across` to a row; results have `n` columns.
        """
        own, other = self.own, self.other
        counted = {own.tokens: redux.sync.add.u32(here, ALL_LANES)}

        def rows_of(tokens: int) -> Reg[u32]:
            if tokens not in counted:
                counted[tokens] = _rows(lengths, tokens)
            return counted[tokens]

        mine, own_tiles = own.work(rows_of, across, ctas)
        theirs, other_tiles = other.work(rows_of, rounded_up(n, other.features), ctas)
        mine, theirs = mul.rn.f32(mine, other_tiles), mul.rn.f32(theirs, own_tiles)
        return selp.u32(counted[own.tokens], 0, setp.le.f32(mine, theirs) if self.first else setp.lt.f32(mine, theirs))

    def works(self, lengths: Sequence[int], n: int, ctas: int) -> bool:
        """Whether this kernel has the work, of results of `n` columns: on the host, with the device's rounding."""
        (mine, own_tiles), (theirs, other_tiles) = (tiles.work_of(lengths, n, ctas) for tiles in (self.own, self.other))
        mine, theirs = mine * other_tiles, theirs * own_tiles
        return bool(mine <= theirs if self.first else mine < theirs)


def _rows(lengths: Sequence[Reg[u32]], of: int) -> Reg[u32]:
    """By all lanes of a warp, each with some groups: the rows of tiles, or of steps, of `of` tokens in all groups."""
    here = mov.u32(0)
    for length in lengths:
        add.u32(here, here, rounded_up(length, of))
    return redux.sync.add.u32(here, ALL_LANES)


__all__ = ["Choice", "Ctas", "Tiles"]
