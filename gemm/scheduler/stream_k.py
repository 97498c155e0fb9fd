"""Stream-K: the stages of many tiles, divided into runs of equal length, one for each CTA or cluster."""

from __future__ import annotations

from dataclasses import dataclass

from ptxkit import Reg
from ptxkit.ptx import max as max_
from ptxkit.ptx import min as min_
from ptxkit.ptx import selp
from ptxkit.types import u32

MIN_STAGES_OF_PART = 4
"""The fewest stages of a tile that a run takes. Fewer would not pay for sending the tile's sums through the L2."""


@dataclass(frozen=True, slots=True)
class Runs:
    """The stages of tiles 0 to `tiles` - 1 in tile order, divided among C CTAs or clusters: run r has stages `start(r)` to `start(r + 1)`.

    The remaining tiles are computed whole, in full waves of C tiles. If the last wave is partial, the runs share it and the full wave
    before it. If C divides the number of tiles, there are no runs.

    A run is the end of one tile, then whole tiles, then the beginning of another tile. A start that is fewer than MIN_STAGES_OF_PART
    stages away from a tile's edge moves to that edge. A run may be empty.
    """

    tiles: Reg[u32]
    stages: Reg[u32]                            # of a tile
    each: Reg[u32]                              # of a run
    longer: Reg[u32]                            # the number of runs, the first ones, that have one more stage

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
        """The first stage of a run, counted over all tiles."""
        at = run * self.each + min_.u32(run, self.longer)
        within = at - at // self.stages * self.stages
        left = self.stages - within
        up = selp.u32(at + left, at, left < MIN_STAGES_OF_PART)
        return selp.u32(at - within, up, within < MIN_STAGES_OF_PART)


@dataclass(frozen=True, slots=True)
class Part:
    """A run's part of a tile. It starts at the tile's stage `first`; the next runs have the tile's last `rest` stages."""

    runs: Runs
    run: Reg[u32]
    first: Reg[u32]
    rest: Reg[u32]


__all__ = ["MIN_STAGES_OF_PART", "Part", "Runs"]
