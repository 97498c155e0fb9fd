"""Two tiles for one product: both kernels are launched, and the lengths on the device say which of them works."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ptxkit import Reg, nctaid
from ptxkit.ptx import add, cvt, mov, mul, redux, selp
from ptxkit.ptx import max as max_
from ptxkit.types import u32, u64

ALL_LANES = 0xFFFFFFFF
LEVEL = 3
"""Tenths that whole waves count where tiles take as long as they have tokens: the last wave is fuller than that of tiles that are alike."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """A kernel's tiles of `tokens` by `features`, and the time of a wave of them, in any unit.

    With a smaller `step` a tile takes only as long as it has tokens, rounded up to that, and `wave` is the time of a step.
    """

    tokens: int
    features: int
    step: int
    wave: int

    @property
    def level(self) -> int:
        """Tenths that whole waves count; the rest is the number of tiles."""
        return 5 if self.step == self.tokens else LEVEL

    def rows(self, lengths: Sequence[Reg[u32]], of: int) -> Reg[u32]:
        """By all lanes of a warp, each with some groups: the rows of tiles, or of steps, of `of` tokens in all groups."""
        here = mov.u32(0)
        for length in lengths:
            add.u32(here, here, (length + (of - 1)) // of)
        return redux.sync.add.u32(here, ALL_LANES)

    def time(self, rows: Reg[u32], lengths: Sequence[Reg[u32]], across: Reg[u32]) -> Reg[u64]:
        """By all lanes of a warp: what `rows` rows of tiles take, each of `across`, in 1 / (10 CTAs) of the unit of `wave`."""
        ctas, tiles = mov.u32(nctaid.x), rows * across
        level = (tiles + (ctas - 1)) // ctas * ctas * self.level + tiles * (10 - self.level)
        if self.step == self.tokens:
            return mul.wide.u32(level, mov.u32(self.wave))
        steps = self.rows(lengths, self.step) * across
        return mul.wide.u32(level, steps) // cvt.u64.u32(max_.u32(tiles, 1)) * mov.u64(self.wave)

    def time_of(self, lengths: Sequence[int], n: int, ctas: int) -> int:
        """The same on the host, of results of `n` columns."""
        across = -(-n // self.features)
        tiles, steps = (sum(-(-length // of) for length in lengths) * across for of in (self.tokens, self.step))
        level = -(-tiles // ctas) * ctas * self.level + tiles * (10 - self.level)
        return level * self.wave if self.step == self.tokens else level * steps // max(tiles, 1) * self.wave


@dataclass(frozen=True, slots=True)
class Choice:
    """What a kernel knows of its own tiles and the other one's.

    Tiles are dealt out in waves, and whether the last one is full depends on every group's length. Both kernels count both kinds of
    tiles with the same grid; the one that takes longer has no work. `first` works where they take equally long. The time goes by the waves
    and by the tiles (`level`): while some SMs have none left, the others have their power.
    """

    own: Tiles
    other: Tiles
    first: bool

    def rows(self, here: Reg[u32], lengths: Sequence[Reg[u32]], across: Reg[u32], n: Reg[u32]) -> Reg[u32]:
        """By all lanes of a warp, each with the lengths of some groups and this kernel's rows of tiles in them (`here`): all rows of
        tiles, or 0 for the kernel that does not work.

        This kernel's tiles are `across` to a row; results have `n` columns.
        """
        own, other = self.own, self.other
        rows = redux.sync.add.u32(here, ALL_LANES)
        mine = own.time(rows, lengths, across)
        theirs = other.time(other.rows(lengths, other.tokens), lengths, (n + (other.features - 1)) // other.features)
        return selp.u32(rows, 0, mine <= theirs if self.first else mine < theirs)


__all__ = ["Choice", "Tiles"]
