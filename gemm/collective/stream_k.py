"""Stream-K: the stages of many tiles in runs of equal length, one a CTA, and the sums of a tile that lies in several runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ptxkit import Ptr, Reg, Vec, cluster_ctarank, if_, loop
from ptxkit.ptx import add, bar, ld, mov, opcode, selp, st
from ptxkit.ptx import max as max_
from ptxkit.ptx import min as min_
from ptxkit.types import f32, u32

from .atoms import WARPGROUP

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


@dataclass(frozen=True, slots=True)
class RunReduction:
    """Through global memory: the CTA that has the beginning of a tile adds the sums of those that have its end, and stores it.

    A run has at most one part that does not begin its tile, and it comes first: its sums go to the CTA's place in the workspace, then its
    flag is raised (release; one a CTA and warpgroup). The part that does not end its tile is the last of its run. If it begins the tile its
    warpgroup waits for the flags of the runs that follow (acquire), up to the tile's end, clears them for the next launch, and adds their
    sums from the first to the last.

    Nobody waits before its own flag is raised, so nobody waits in a circle; and all are on the device at once, since the grid is no
    larger than what it holds. A CTA waits for those of lower numbers only, which begin first.
    """

    workspace: Ptr[f32]
    flags: Ptr[u32]
    slabs: int                                  # of 64 rows, of the whole tile
    blocks: int                                 # of 8 columns
    sharing: int                                # warpgroups that share a tile
    cluster: int = 1                            # CTAs, each with a tile of its own

    def hand_over(self, part: Part, sums: list[Vec[Any, Any]], slab: Reg[u32], thread: Reg[u32], consumer: Reg[u32]) -> None:
        """By a warpgroup that has not the beginning of the tile."""
        place = self._place(part.run, slab, thread)
        for s, fragment in enumerate(sums):
            for j in range(self.blocks):
                st.global_.v4.f32(place + (s * self.blocks + j) * WARPGROUP * 4, Vec(list(fragment[4 * j:4 * j + 4])))
        bar.sync(consumer + 1, b=WARPGROUP)
        opcode("st.release.gpu.global.u32")(self._flag(part.run, consumer), 1, pred=thread == 0)

    def collect(self, part: Part, tile: Reg[u32], sums: list[Vec[Any, Any]], slab: Reg[u32], thread: Reg[u32], consumer: Reg[u32]) -> None:
        """By the warpgroup that has the beginning: the sums of the rest are added to its own."""
        other, end = part.run + 1, (tile + 1) * part.runs.stages
        with loop() as more:
            more.break_if(part.runs.start(other) >= end)
            with if_(thread == 0):
                flag = self._flag(other, consumer)
                with loop() as spin:
                    spin.break_if(opcode("ld.acquire.gpu.global.u32")(flag) != 0)
                opcode("st.relaxed.gpu.global.u32")(flag, 0)
            bar.sync(consumer + 1, b=WARPGROUP)
            place = self._place(other, slab, thread)
            for s, fragment in enumerate(sums):
                for j in range(self.blocks):
                    found = ld.global_.v4.f32(place + (s * self.blocks + j) * WARPGROUP * 4)
                    for i, value in enumerate(found):
                        add.rn.f32(fragment[4 * j + i], fragment[4 * j + i], value)
            add.u32(other, other, 1)

    def _number(self, run: Reg[u32]) -> Reg[u32]:
        """Of the CTA of a run that has this CTA's place in its cluster."""
        return run if self.cluster == 1 else run * self.cluster + mov.u32(cluster_ctarank)

    def _flag(self, run: Reg[u32], consumer: Reg[u32]) -> Ptr[u32]:
        number = self._number(run)
        return self.flags.at(number if self.sharing == 1 else number * self.sharing + consumer)

    def _place(self, run: Reg[u32], slab: Reg[u32], thread: Reg[u32]) -> Ptr[f32]:
        """Of a thread's sums, 16 bytes for each block of 8 columns; those of a warpgroup lie next to each other."""
        of_slab = self.blocks * WARPGROUP * 4
        return self.workspace.at(opcode("mul.wide.u32")(self._number(run), self.slabs * of_slab)).at(slab * of_slab + thread * 4)


__all__ = ["LEAST", "Part", "RunReduction", "Runs"]
