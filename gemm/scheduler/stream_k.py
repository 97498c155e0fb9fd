"""Stream-K: the stages of many tiles in runs of equal length, one a CTA or cluster."""

from __future__ import annotations

from dataclasses import dataclass

from ptxkit import Reg
from ptxkit.ptx import max as max_
from ptxkit.ptx import min as min_
from ptxkit.ptx import selp
from ptxkit.types import u32

LEAST = 4
"""Stages that are worth a trip of a tile's sums through the L2: what is less goes to the neighbour."""


@dataclass(frozen=True, slots=True)
class Runs:
    """The stages of tiles 0 to `tiles` - 1, one tile after the other, shared out among C CTAs (or clusters): run r is those from `start(r)`
    to `start(r + 1)`. Of at least C tiles all but the last whole wave and the rest are left to whole waves; of a multiple of C, all are.

    A run is the end of a tile, then whole tiles, then the beginning of one. A start that is fewer than LEAST stages away from a tile's
    edge is moved there, and a run may be empty.
    """

    tiles: Reg[u32]
    stages: Reg[u32]                            # of a tile
    each: Reg[u32]                              # of a run
    more: Reg[u32]                              # runs, the first ones, that have a stage more

    @classmethod
    def of(cls, tiles: Reg[u32], stages: Reg[u32], ctas: Reg[u32]) -> Runs:
        waves = tiles // ctas
        rest = tiles - waves * ctas
        whole = (max_.u32(waves, 1) - 1) * ctas
        shared = selp.u32(tiles - whole, 0, rest != 0)
        total = shared * stages
        each = total // ctas
        return cls(shared, stages, each, total - each * ctas)

    def start(self, run: Reg[u32]) -> Reg[u32]:
        """Of a run, in stages of all tiles."""
        at = run * self.each + min_.u32(run, self.more)
        within = at - at // self.stages * self.stages
        left = self.stages - within
        up = selp.u32(at + left, at, left < LEAST)
        return selp.u32(at - within, up, within < LEAST)


@dataclass(frozen=True, slots=True)
class Part:
    """What a run has of a tile: from stage `first` of it on, and `rest` stages are left for the runs that follow."""

    runs: Runs
    run: Reg[u32]
    first: Reg[u32]
    rest: Reg[u32]


__all__ = ["LEAST", "Part", "Runs"]
