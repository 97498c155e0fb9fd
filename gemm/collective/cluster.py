"""Layer 3: the CTAs of a cluster that share operands by multicast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ptxkit import Reg, cluster_ctarank
from ptxkit.ptx import cvt, mov, shl
from ptxkit.types import pred, u16, u32

from ..config.parts import Dynamic, Scheduler
from .tiled import Multicast


@dataclass(frozen=True, slots=True)
class Cluster:
    """`m` x `n` CTAs that share operands. The CTAs of a row share A, the CTAs of a column share B. Rank = row + column * m.

    Each CTA loads a part of each shared tile and multicasts it.
    """

    m: int = 1
    n: int = 1

    @classmethod
    def of(cls, scheduler: Scheduler) -> Cluster:
        """The CTAs that share operands under a scheduler."""
        return cls() if isinstance(scheduler, Dynamic) else cls(scheduler.cluster.m, scheduler.cluster.n)

    @property
    def size(self) -> int:
        return self.m * self.n

    @property
    def peers(self) -> int:
        """The number of CTAs that this CTA's copies reach: its row and its column, including itself."""
        return self.m + self.n - 1

    def row(self) -> Reg[u32]:
        rank = mov.u32(cluster_ctarank)
        return rank if self.n == 1 else rank % self.m

    def column(self) -> Reg[u32]:
        rank = mov.u32(cluster_ctarank)
        return rank if self.m == 1 else rank // self.m

    def of_a(self) -> Multicast:
        """The multicast of A to the CTAs of this row."""
        if self.n == 1:
            return Multicast()
        row = sum(1 << column * self.m for column in range(self.n))
        mask: Reg[u16] | int = row if self.m == 1 else _low(shl.b32(mov.u32(row), self.row()))
        return Multicast(self.n, self.column(), mask)

    def of_b(self) -> Multicast:
        """The multicast of B to the CTAs of this column."""
        if self.m == 1:
            return Multicast()
        column = (1 << self.m) - 1
        mask: Reg[u16] | int = column if self.n == 1 else _low(shl.b32(mov.u32(column), self.column() * self.m))
        return Multicast(self.m, self.row(), mask)

    def reaches_here(self, rank: Reg[u32]) -> Reg[pred]:
        """Whether the copies of CTA `rank` of the cluster reach this CTA."""
        within = rank < self.size
        if self.m == 1 or self.n == 1:
            return within
        return within & ((rank % self.m == self.row()) | (rank // self.m == self.column()))


def _low(value: Any) -> Reg[u16]:
    return cvt.u16.u32(value)


__all__ = ["Cluster"]
