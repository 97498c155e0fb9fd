"""Layer 3: the mainloop of an mma warpgroup, which multiplies what the stages hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ptxkit import Reg, Ring, Vec, if_, ring, smem
from ptxkit.ptx import bar, fence, mov, st, wgmma
from ptxkit.smem import Tile
from ptxkit.types import b32, u32

from ..scheduler.fast_divmod import ceil_div
from .atoms import WARPGROUP
from .ordered_barrier import OrderedSequence, Stagger
from .pipeline import ConsumerSide
from .tiled import TiledMma

REGISTERS = {2: (40, 232), 3: (32, 160)}
"""Registers a thread of the producer and of the mma warpgroups, by the number of these: 128 (p + warpgroups c) fits what the CTA has at
entry. One mma warpgroup needs no setmaxnreg: 256 threads have 255 each."""

Accumulators = list[Vec[Any, Any]]
"""One fragment for each m64 block."""


@dataclass(frozen=True, slots=True)
class Mainloop:
    """One warpgroup: multiplies stage after stage of A and B."""

    stages: ConsumerSide
    mma: TiledMma
    a: Tile[Any]
    b: Tile[Any]
    position: Ring

    def multiply(self, acc: Accumulators, count: Reg[u32], order: OrderedSequence | None = None) -> None:
        """acc = A B over `count` stages, one wgmma group in flight: a stage is released when the next one's group has been issued."""
        self._multiply(self.mma, acc, count, order)

    def multiply_columns(self, acc: Accumulators, count: Reg[u32], columns: Reg[u32], granularity: int) -> None:
        """The same for the first `columns` of a tile, rounded up to `granularity`: a loop for each number of them. Accumulators of the
        other columns keep what they held."""
        steps = ceil_div(columns, granularity)
        for n in range(granularity, self.mma.atom.n + 1, granularity):
            mma = self.mma.of_columns(n)
            with if_(steps == n // granularity):
                self._multiply(mma, [part[:mma.registers] for part in acc], count)

    def _multiply(self, mma: TiledMma, acc: Accumulators, count: Reg[u32], order: OrderedSequence | None = None) -> None:
        stages, previous = self.stages, mov.u32(0)
        if order is not None:
            order.wait()
        with ring(self.position, count) as (k, stage, parity):
            accumulate = k != 0
            stages.wait(stage, parity)
            wgmma.fence.sync.aligned()
            mma.issue(acc, self.a[stage], self.b[stage], accumulate)
            wgmma.commit_group.sync.aligned()
            wgmma.wait_group.sync.aligned(1)                     # all but the group just issued: `previous` has been read
            stages.release(previous, stages.releases & accumulate)
            mov.u32(previous, stage)
        if order is not None:
            order.arrive()
        wgmma.wait_group.sync.aligned(0)
        stages.release(previous)

    def skip(self, count: Reg[u32], barrier: Reg[u32], stagger: Stagger | None = None, issues: int = 1) -> None:
        """No row of these stages is this warpgroup's: when one has landed, and not before, say that it has been read.

        Without wgmma the warps need `barrier`, of the warpgroup, to see each phase before one of them may bring about the next. Where
        warpgroups issue in turn, `issues` times a stage, this one gives its turns away.
        """
        with ring(self.position, count) as (_, stage, parity):
            self.stages.wait(stage, parity)
            if stagger is None:
                bar.sync(barrier, b=WARPGROUP)
            else:
                for _ in range(issues):
                    stagger.wait()
                    stagger.arrive()
            self.stages.release(stage)


def clear_rows(tile: Tile[Any], start: int, thread: Reg[u32]) -> None:
    """By one warpgroup, once: zeros in the rows of every stage from `start` on, which no copy fills and wgmma reads."""
    layout = tile.layout
    bytes = (layout.rows - start) * layout.span_bytes
    zero = mov.b32(0)
    place = tile[0].register() + thread * 16
    for stage in range(len(tile)):
        for span in range(layout.spans):
            offset = stage * tile.stage_bytes + span * layout.span_stride + start * layout.span_bytes
            for done in range(0, bytes, WARPGROUP * 16):
                inside = None if bytes - done >= WARPGROUP * 16 else thread < (bytes - done) // 16
                zeros: Vec[b32, Any] = Vec((zero, zero, zero, zero))
                st.shared__cta.v4.b32(smem.SharedAddress(offset + done, place), zeros, pred=inside)
    fence.proxy.async_.shared__cta()
    bar.sync(1, b=WARPGROUP)


__all__ = ["REGISTERS", "Accumulators", "Mainloop", "clear_rows"]
