"""Stream-K: the stages of many tiles, divided into runs of equal length, one for each CTA or cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ptxkit import Reg, if_, loop
from ptxkit.ptx import add, mov, selp
from ptxkit.ptx import max as max_
from ptxkit.ptx import min as min_
from ptxkit.types import u32

MIN_STAGES_OF_PART = 4
"""The fewest stages of a tile that a run takes. Fewer would not pay for sending the tile's sums through the L2."""

Skip = Callable[[Reg[u32]], None]
"""Called with the stages of a work tile that another warpgroup computes."""


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


@contextmanager
def parts_of(tiles: Reg[u32], stages: Reg[u32], own: Reg[u32], ctas: Reg[u32], turn: Reg[u32] | int = 0, turns: int = 1,
             skip: Skip | None = None, most: int = 0) -> Iterator[tuple[Reg[u32], Reg[u32], Part]]:
    """A loop of CTA (or cluster) `own` of `ctas` over its run of `tiles` tiles, then over its whole tiles. It yields the tile, the number
    of stages, and the `Part`. `skip` is called with the stages of each part that another warpgroup computes.

    `most`: about so many CTAs share a tile where there are few tiles, and the others have no run (0: all have one).
    """
    if most:
        ctas = min_.u32(ctas, max_.u32(tiles * most, 1))
    runs = Runs.of(tiles, stages, ctas)
    run = ctas - 1 - own                        # those with lower numbers start first, and get the later runs
    at, end = mov.u32(runs.start(run)), runs.start(run + 1)
    if most:
        end = selp.u32(end, at, own < ctas)
    whole, number = runs.tiles + own, mov.u32(0)
    with loop() as more:
        streams = at < end
        more.break_if((at >= end) & (whole >= tiles))
        tile = selp.u32(at // stages, whole, streams)
        first = selp.u32(at - tile * stages, 0, streams)
        left = stages - first
        taken = selp.u32(min_.u32(left, end - at), left, streams)
        add.u32(at, at, taken, pred=streams)
        add.u32(whole, whole, ctas, pred=~streams)
        if turns > 1:
            other = number != turn
            mov.u32(number, number ^ 1)
            if skip is not None:
                with if_(other):
                    skip(taken)
            more.continue_if(other)
        yield tile, taken, Part(runs, run, first, left - taken)


__all__ = ["MIN_STAGES_OF_PART", "Part", "Runs", "Skip", "parts_of"]
