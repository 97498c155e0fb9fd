"""Layer 3: adds the sums of the parts of a group that CTAs share, through global memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ptxkit import Ptr, Reg, Vec, cluster_ctarank, for_range, if_
from ptxkit.ptx import add, bar, ld, mov, opcode, st
from ptxkit.types import f32, pred, u32

from ..config.parts import Tile
from ..scheduler.grouped_k import DepthScheduler, DepthWorkTile, GroupPart
from ..scheduler.tile_cost import ALL_LANES
from .atoms import ROWS, WARPGROUP
from .tensormaps import COUNTERS_WORDS
from .warpgroups import MmaThread

COUNTER_WORDS = 1 << 14
"""Counters of shared tiles in a workspace, one for each CTA's tile and warpgroup that has rows of it. They are zeros between launches."""

IN_FLIGHT, REGISTERS = 64, 216
"""Registers that a thread loads sums into at a time; and at most so many for these and its own sums."""


@dataclass(frozen=True, slots=True)
class PartSums:
    """Each part's sums go to the workspace, and its warpgroup adds 1 to the tile's counter. The last one to do so adds up the sums of all
    parts, from the first to the last, so the same rows give the same bits whoever comes last; then it clears the counter. Nobody waits.

    A thread writes and reads the sums of the same elements. The accesses of a warp are contiguous.
    """

    workspace: Ptr[f32]
    counters: Ptr[u32]
    m64_blocks: int                             # of the whole tile
    blocks: int                                 # of 8 columns
    sharing: int                                # mma warpgroups that share a tile
    cluster: int                                # CTAs, each with a tile of its own

    @classmethod
    def of(cls, workspace: Ptr[u32], tile: Tile, cluster: int, sharing: int) -> PartSums:
        """In a workspace as `COUNTERS_WORDS` and `COUNTER_WORDS` divide it up."""
        counters = workspace + COUNTERS_WORDS
        return cls((counters + COUNTER_WORDS).cast(f32), counters, tile.BM // ROWS, tile.BN // 8, sharing, cluster)

    def whole(self, tiles: DepthScheduler, work: DepthWorkTile, sums: list[Vec[Any, Any]], thread: MmaThread) -> Reg[pred]:
        """Whether this warpgroup stores the tile. `sums`, of a part, are those of the whole group then."""
        own = mov.pred(True)
        assert work.shared is not None
        with if_(work.shared):
            place = self._place(work.tile, thread)
            for s, fragment in enumerate(sums):
                for j in range(self.blocks):
                    st.global_.v4.f32(place + (s * self.blocks + j) * WARPGROUP * 4, Vec(list(fragment[4 * j:4 * j + 4])))
            shared = tiles.part_of(work.tile)
            self._arrive(own, shared, thread)
            with if_(own):
                self._add_up(shared, sums, thread)
        return own

    def _arrive(self, last: Reg[pred], shared: GroupPart, thread: MmaThread) -> None:
        """Count this part. The warpgroup whose part is the `last` one sees the sums of the others."""
        barrier, arrived = thread.warpgroup + 1, mov.u32(0)
        bar.sync(barrier, b=WARPGROUP)
        with if_(thread.thread == 0):
            counter = self.counters.at(self._cta(shared.tile) * self.sharing + (thread.warpgroup if self.sharing > 1 else 0))
            mov.u32(arrived, opcode("atom.acq_rel.gpu.global.add.u32")(counter, 1) + 1)
            opcode("st.relaxed.gpu.global.u32")(counter, 0, pred=arrived == shared.parts)
        mov.pred(last, bar.red.or_.pred(barrier, arrived == shared.parts, b=WARPGROUP))

    def _add_up(self, shared: GroupPart, sums: list[Vec[Any, Any]], thread: MmaThread) -> None:
        """Set the sums to those of all parts."""
        for fragment in sums:
            for value in fragment:
                mov.f32(value, 0.0)
        with for_range(shared.parts) as part:
            place = self._place(shared.first + part * shared.step, thread)
            blocks = [(s, fragment, j) for s, fragment in enumerate(sums) for j in range(self.blocks)]
            at_once = max(1, min(IN_FLIGHT, REGISTERS - 4 * len(blocks)) // 4)
            for first in range(0, len(blocks), at_once):
                if first:
                    bar.warp.sync(ALL_LANES)                    # later loads wait, so that registers suffice
                some = blocks[first:first + at_once]
                parts = [ld.global_.v4.f32(place + (s * self.blocks + j) * WARPGROUP * 4) for s, _, j in some]
                for (_, fragment, j), found in zip(some, parts, strict=True):
                    for total, value in zip(fragment[4 * j:4 * j + 4], found, strict=True):
                        add.rn.f32(total, total, value)

    def _place(self, number: Reg[u32], thread: MmaThread) -> Ptr[f32]:
        """The address of a thread's sums of a work tile: 16 bytes for each block of 8 columns, in thread order within a warpgroup."""
        stride = self.blocks * WARPGROUP * 4                    # elements of an m64 block
        tile = self.workspace.at(opcode("mul.wide.u32")(self._cta(number), self.m64_blocks * stride))
        return tile.at((thread.thread if isinstance(thread.first, int) else thread.thread + thread.first * (stride // 4)) * 4)

    def _cta(self, number: Reg[u32]) -> Reg[u32]:
        """The number of this CTA's tile of a cluster's."""
        return number if self.cluster == 1 else number * self.cluster + mov.u32(cluster_ctarank)


__all__ = ["COUNTER_WORDS", "PartSums"]
