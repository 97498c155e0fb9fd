"""Two tiles for one product: both kernels are launched, and the lengths on the device say which of them works."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ptxkit import Reg, nctaid
from ptxkit.ptx import mov, mul, redux, selp
from ptxkit.types import u32, u64

ALL_LANES = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Choice:
    """What a kernel knows of the other one's tile: `tokens` by `features`, and the time of a wave of either's tiles, in any unit.

    Tiles are dealt out in waves, and whether the last one is full depends on every group's length. Both kernels count both kinds of
    tiles with the same grid; the one that takes longer has no work. `first` works where they take equally long. The time goes half by the
    waves and half by the tiles: while some SMs have none left, the others have their power.
    """

    tokens: int
    features: int
    wave: int
    other: int
    first: bool

    def rows(self, own: Reg[u32], other: Reg[u32], across: Reg[u32], n: Reg[u32]) -> Reg[u32]:
        """By all lanes of a warp, each with some groups: all their rows of tiles, or 0 for the kernel that does not work."""
        rows, rows_of_other = redux.sync.add.u32(own, ALL_LANES), redux.sync.add.u32(other, ALL_LANES)
        here = _time(rows * across, self.wave)
        there = _time(rows_of_other * ((n + (self.features - 1)) // self.features), self.other)
        return selp.u32(rows, 0, here <= there if self.first else here < there)


def _time(tiles: Reg[u32], wave: int) -> Reg[u64]:
    ctas = mov.u32(nctaid.x)
    return mul.wide.u32((tiles + (ctas - 1)) // ctas * ctas + tiles, mov.u32(wave))


def time(lengths: Sequence[int], n: int, tokens: int, features: int, ctas: int, wave: int) -> int:
    """What groups of these lengths take, in 1 / (2 ctas) of the unit of `wave`; on the host."""
    tiles = sum(-(-length // tokens) for length in lengths) * -(-n // features)
    return (-(-tiles // ctas) * ctas + tiles) * wave


__all__ = ["Choice", "time"]
