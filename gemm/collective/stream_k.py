"""Stream-K: the sums of a tile that lies in several runs, added through global memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ptxkit import Ptr, Reg, Vec, cluster_ctarank, if_, loop
from ptxkit.flow import else_
from ptxkit.ptx import add, bar, ld, mov, opcode, st
from ptxkit.types import f32, u32

from ..scheduler.stream_k import Part
from ..scheduler.work import WorkTile
from .atoms import WARPGROUP
from .epilogue import DirectStore, StagedStore
from .warpgroups import MmaThread


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
    m64_blocks: int                             # of the whole tile
    blocks: int                                 # of 8 columns
    sharing: int                                # mma warpgroups that share a tile
    cluster: int = 1                            # CTAs, each with a tile of its own

    def hand_over(self, part: Part, sums: list[Vec[Any, Any]], block: Reg[u32], thread: Reg[u32], warpgroup: Reg[u32]) -> None:
        """By a warpgroup that has not the beginning of the tile."""
        place = self._place(part.run, block, thread)
        for s, fragment in enumerate(sums):
            for j in range(self.blocks):
                st.global_.v4.f32(place + (s * self.blocks + j) * WARPGROUP * 4, Vec(list(fragment[4 * j:4 * j + 4])))
        bar.sync(warpgroup + 1, b=WARPGROUP)
        opcode("st.release.gpu.global.u32")(self._flag(part.run, warpgroup), 1, pred=thread == 0)

    def collect(self, part: Part, tile: Reg[u32], sums: list[Vec[Any, Any]], block: Reg[u32], thread: Reg[u32],
                warpgroup: Reg[u32]) -> None:
        """By the warpgroup that has the beginning: the sums of the rest are added to its own."""
        other, end = part.run + 1, (tile + 1) * part.runs.stages
        with loop() as more:
            more.break_if(part.runs.start(other) >= end)
            with if_(thread == 0):
                flag = self._flag(other, warpgroup)
                with loop() as spin:
                    spin.break_if(opcode("ld.acquire.gpu.global.u32")(flag) != 0)
                opcode("st.relaxed.gpu.global.u32")(flag, 0)
            bar.sync(warpgroup + 1, b=WARPGROUP)
            place = self._place(other, block, thread)
            for s, fragment in enumerate(sums):
                for j in range(self.blocks):
                    found = ld.global_.v4.f32(place + (s * self.blocks + j) * WARPGROUP * 4)
                    for i, value in enumerate(found):
                        add.rn.f32(fragment[4 * j + i], fragment[4 * j + i], value)
            add.u32(other, other, 1)

    def _number(self, run: Reg[u32]) -> Reg[u32]:
        """Of the CTA of a run that has this CTA's place in its cluster."""
        return run if self.cluster == 1 else run * self.cluster + mov.u32(cluster_ctarank)

    def _flag(self, run: Reg[u32], warpgroup: Reg[u32]) -> Ptr[u32]:
        number = self._number(run)
        return self.flags.at(number if self.sharing == 1 else number * self.sharing + warpgroup)

    def _place(self, run: Reg[u32], block: Reg[u32], thread: Reg[u32]) -> Ptr[f32]:
        """Of a thread's sums, 16 bytes for each block of 8 columns; those of a warpgroup lie next to each other."""
        of_block = self.blocks * WARPGROUP * 4
        return self.workspace.at(opcode("mul.wide.u32")(self._number(run), self.m64_blocks * of_block)).at(block * of_block + thread * 4)


@dataclass(frozen=True, slots=True)
class StreamKStore:
    """Hands over the sums of a tile's end, or adds those of its end to its beginning and stores them."""

    runs: RunReduction
    store: StagedStore | DirectStore
    here: MmaThread
    BN: int

    def begin(self) -> None:
        """Nothing is to be done before the first work tile."""

    def tile(self, sums: list[Vec[Any, Any]], work: WorkTile, row: Reg[u32], column: Reg[u32]) -> None:
        """The warpgroup's m64 blocks of a work tile, which begin at `row` and `column` of D."""
        here, part = self.here, work.part
        block = mov.u32(0) if isinstance(here.first, int) else here.first
        assert part is not None
        with if_(part.first != 0):
            self.runs.hand_over(part, sums, block, here.thread, here.warpgroup)
        with else_():
            with if_(part.rest != 0):
                self.runs.collect(part, work.tile, sums, block, here.thread, here.warpgroup)
            self.store.tile(sums, row, column, self.BN, work.batch)

    def tail(self) -> None:
        """Before the warpgroup exits."""
        self.store.tail()


__all__ = ["RunReduction", "StreamKStore"]
