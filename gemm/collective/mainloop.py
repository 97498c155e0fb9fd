"""Layer 3: the mainloop of an mma warpgroup: multiplies one stage after another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ptxkit import Reg, Ring, Vec, if_, ring, smem, span
from ptxkit.ptx import bar, fence, mov, st, wgmma
from ptxkit.smem import Tile
from ptxkit.types import b32, u32

from ..scheduler.fast_divmod import ceil_div
from .atoms import WARPGROUP
from .ordered_barrier import OrderedSequence, Stagger
from .pipeline import ConsumerSide
from .tiled import TiledMma

REGISTERS = {2: (40, 232), 3: (32, 160)}
"""Registers per thread of the producer (p) and of the mma warpgroups (c), by the number of mma warpgroups. 128 (p + warpgroups * c) fits
the registers that the CTA has at entry. One mma warpgroup needs no setmaxnreg: 256 threads have 255 registers each."""

Accumulators = list[Vec[Any, Any]]
"""One fragment for each m64 block."""


@dataclass(frozen=True, slots=True)
class Mainloop:
    """The mainloop of one warpgroup over the stages of A and B."""

    stages: ConsumerSide
    mma: TiledMma
    a: Tile[Any]
    b: Tile[Any]
    position: Ring

    def multiply(self, acc: Accumulators, count: Reg[u32], order: OrderedSequence | None = None) -> None:
        """acc = A B over `count` stages, with one wgmma group in flight: a stage is released after the next stage's group is issued."""
        self._multiply(self.mma, acc, count, order)

    def multiply_columns(self, acc: Accumulators, count: Reg[u32], columns: Reg[u32], granularity: int) -> None:
        """As `multiply`, for the first `columns` of a tile, rounded up to `granularity`. Each possible width has its own loop. The
        accumulators of other columns keep their values."""
        steps = ceil_div(columns, granularity)
        for n in range(granularity, self.mma.atom.n + 1, granularity):
            mma = self.mma.of_columns(n)
            with if_(steps == n // granularity):
                self._multiply(mma, [part[:mma.registers] for part in acc], count)

    def _multiply(self, mma: TiledMma, acc: Accumulators, count: Reg[u32], order: OrderedSequence | None = None) -> None:
        stages, previous = self.stages, mov.u32(0)
        if order is not None:
            with span("turn"):
                order.wait()
        with ring(self.position, count) as (k, stage, parity), span("stage"):
            accumulate = k != 0
            with span("wait"):
                stages.wait(stage, parity)
            wgmma.fence.sync.aligned()
            mma.issue(acc, self.a[stage], self.b[stage], accumulate)
            wgmma.commit_group.sync.aligned()
            wgmma.wait_group.sync.aligned(1)                     # all groups but the last one are complete: `previous` has been read
            stages.release(previous, stages.releases & accumulate)
            mov.u32(previous, stage)
        if order is not None:
            order.arrive()
        wgmma.wait_group.sync.aligned(0)
        stages.release(previous)

    def skip(self, count: Reg[u32], barrier: Reg[u32], stagger: Stagger | None = None, issues: int = 1) -> None:
        """Release `count` stages in which this warpgroup has no rows, each after it has landed.

        `barrier` is the warpgroup's: without wgmma, a fast warp could otherwise complete a phase that a slow warp has not seen yet. With a
        `stagger`, the warpgroup gives away its `issues` turns of each stage instead.
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
    """Zero the rows from `start` in every stage; executed by one warpgroup, once. No copy fills these rows, but wgmma reads them."""
    layout = tile.layout
    bytes = (layout.rows - start) * layout.span_bytes
    zero = mov.b32(0)
    place = tile[0].register() + thread * 16
    for stage in range(len(tile)):
        for part in range(layout.spans):
            offset = stage * tile.stage_bytes + part * layout.span_stride + start * layout.span_bytes
            for done in range(0, bytes, WARPGROUP * 16):
                inside = None if bytes - done >= WARPGROUP * 16 else thread < (bytes - done) // 16
                zeros: Vec[b32, Any] = Vec((zero, zero, zero, zero))
                st.shared__cta.v4.b32(smem.SharedAddress(offset + done, place), zeros, pred=inside)
    fence.proxy.async_.shared__cta()
    bar.sync(1, b=WARPGROUP)


__all__ = ["REGISTERS", "Accumulators", "Mainloop", "clear_rows"]
