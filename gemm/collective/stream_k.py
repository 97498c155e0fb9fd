"""Stream-K: adds the partial sums of a tile that several runs share, through global memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from ptxkit import Ptr, Reg, Vec, cluster_ctarank, if_, loop
from ptxkit.flow import else_
from ptxkit.ptx import add, bar, ld, mov, opcode, st
from ptxkit.types import f32, u32

from ..scheduler.stream_k import Part
from ..scheduler.work import WorkTile
from .atoms import WARPGROUP
from .warpgroups import MmaThread


class TileStore(Protocol):
    """Stores the sums of a tile."""

    def tile(self, acc: list[Vec[Any, Any]], row: Reg[u32], column: Reg[u32], BN: int, batch: Reg[u32] | None = None) -> None:
        """Store m64 blocks by BN columns, from `row` and `column` on."""

    def tail(self) -> None:
        """Before the warpgroup exits: wait for its stores."""


@dataclass(frozen=True, slots=True)
class RunReduction:
    """Reduction through global memory: the CTA with the first stages of a tile adds the sums of the CTAs with its other stages.

    At most one part of a run does not start at its tile's first stage, and it is the run's first part. Its sums go to the CTA's place in
    the workspace, then its flag is set (release; one flag per CTA and warpgroup). Only the last part of a run can end before its tile
    does. If it has the tile's first stage, its warpgroup waits for the flags of the next runs (acquire) up to the tile's end, clears them
    for the next launch, and adds their sums in order.

    A CTA sets its own flag before it waits, so there is no deadlock. All CTAs are resident at once: the grid is no larger than what the
    device holds. A CTA waits only for CTAs with lower numbers, which start first.
    """

    workspace: Ptr[f32]
    flags: Ptr[u32]
    m64_blocks: int                             # of the whole tile
    blocks: int                                 # of 8 columns
    sharing: int                                # mma warpgroups that share a tile
    cluster: int = 1                            # CTAs, each with a tile of its own

    def hand_over(self, part: Part, sums: list[Vec[Any, Any]], block: Reg[u32], thread: Reg[u32], warpgroup: Reg[u32]) -> None:
        """Write the sums to the workspace and set the flag. Executed by a warpgroup without the tile's first stage."""
        place = self._place(part.run, block, thread)
        for s, fragment in enumerate(sums):
            for j in range(self.blocks):
                st.global_.v4.f32(place + (s * self.blocks + j) * WARPGROUP * 4, Vec(list(fragment[4 * j:4 * j + 4])))
        bar.sync(warpgroup + 1, b=WARPGROUP)
        opcode("st.release.gpu.global.u32")(self._flag(part.run, warpgroup), 1, pred=thread == 0)

    def collect(self, part: Part, tile: Reg[u32], sums: list[Vec[Any, Any]], block: Reg[u32], thread: Reg[u32],
                warpgroup: Reg[u32]) -> None:
        """Add the sums of the tile's other runs to `sums`. Executed by the warpgroup with the tile's first stage."""
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
        """The number of the CTA of a run that has this CTA's rank in its cluster."""
        return run if self.cluster == 1 else run * self.cluster + mov.u32(cluster_ctarank)

    def _flag(self, run: Reg[u32], warpgroup: Reg[u32]) -> Ptr[u32]:
        number = self._number(run)
        return self.flags.at(number if self.sharing == 1 else number * self.sharing + warpgroup)

    def _place(self, run: Reg[u32], block: Reg[u32], thread: Reg[u32]) -> Ptr[f32]:
        """The address of a thread's sums: 16 bytes for each block of 8 columns, in thread order within a warpgroup."""
        stride = self.blocks * WARPGROUP * 4                    # elements of an m64 block
        return self.workspace.at(opcode("mul.wide.u32")(self._number(run), self.m64_blocks * stride)).at(block * stride + thread * 4)


@dataclass(frozen=True, slots=True)
class StreamKStore:
    """Hands over the sums of a part without its tile's first stage; otherwise collects the other runs' sums and stores the tile."""

    runs: RunReduction
    store: TileStore
    mma_thread: MmaThread
    BN: int                                     # columns that are stored

    def begin(self) -> None:
        """Before the first work tile: nothing to do."""

    def tile(self, sums: list[Vec[Any, Any]], work: WorkTile, row: Reg[u32], column: Reg[u32]) -> None:
        """Reduce and store the warpgroup's m64 blocks of a work tile. They begin at `row` and `column` of D."""
        mma_thread, part = self.mma_thread, work.part
        block = mov.u32(0) if isinstance(mma_thread.first, int) else mma_thread.first
        assert part is not None
        with if_(part.first != 0):
            self.runs.hand_over(part, sums, block, mma_thread.thread, mma_thread.warpgroup)
        with else_():
            with if_(part.rest != 0):
                self.runs.collect(part, work.tile, sums, block, mma_thread.thread, mma_thread.warpgroup)
            self.store.tile(sums, row, column, self.BN, work.batch)

    def tail(self) -> None:
        """Before the warpgroup exits: wait for its stores."""
        self.store.tail()


__all__ = ["RunReduction", "StreamKStore", "TileStore"]
