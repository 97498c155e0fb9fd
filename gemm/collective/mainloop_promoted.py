"""Layer 3: mainloops with promotion. The tensor cores accumulate one stage; f32 registers add up the scaled sums of all stages.

fp8 products accumulate with few bits in the tensor cores, and block scales change with each stage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ptxkit import Reg, Ring, Vec, for_range, if_, loop, ring, span
from ptxkit.flow import else_
from ptxkit.ptx import fma, mov, wgmma
from ptxkit.ptx import min as min_
from ptxkit.sass.hints import fma_yield
from ptxkit.smem import Tile
from ptxkit.types import u32

from ..config.parts import BlockScaled, Cooperative, Promoted, Schedule, Sums, ThreadScaled
from ..scheduler.work import WorkTile
from .atoms import ROWS
from .mainloop import Accumulators, Mainloop, clear_rows
from .ordered_barrier import OrderedSequence, Stagger
from .pipeline import ConsumerSide, Pipeline
from .scale_factors import Factors, Reader, ScaleRing
from .thread_scales import Scales
from .tiled import TiledMma
from .warpgroups import MmaThread

PROMOTED = 192              # the most registers of a thread for accumulators whose stage is promoted at once
MIN_UNROLLED_STAGES = 4     # the fewest stages in an unrolled loop body with promotion
YIELD = 8                   # fmas of a promotion between two yields of a warp, if two mma warpgroups share a tile
OVERLAPPED = 4              # stages of a run: each promotion but the last one overlaps the products of the next stage


@dataclass(frozen=True, slots=True)
class PromotedMainloop(Mainloop):
    """The mainloop of a warpgroup with two sets of registers: `acc` has one stage's sums, `total` the promoted sums in f32."""

    def promote(self, acc: Accumulators, total: Accumulators, count: Reg[u32], scales: Scales | Reader,
                stagger: Stagger | None = None) -> None:
        """total = the sum of the scaled products of `count` stages.

        If `acc` has fewer m64 blocks or columns than `total`, the parts of `total` are multiplied and promoted one after another in the
        registers of `acc`.
        """
        _clear(total)
        parts = parts_of(acc, total)
        factors = scales if isinstance(scales, Scales) else scales.factors()
        if isinstance(scales, Scales):
            scales.prefetch(0)

        def step(stage: Reg[u32] | int, parity: Reg[u32], k: Reg[u32] | None = None) -> None:
            if isinstance(scales, Scales):
                scales.take()
            self._await(stage, parity, scales, factors)
            for number, (block, column) in enumerate(parts):
                last = number == len(parts) - 1
                self._issue(acc, stage, block, stagger, column)
                if isinstance(scales, Scales) and k is not None and not number:
                    scales.prefetch(min_.u32(k + 1, count - 1))
                if last:
                    self.stages.have_read()
                wgmma.wait_group.sync.aligned(0)
                if last:
                    self.stages.release(stage)
                _promote(acc, total, factors, block, column)

        if isinstance(scales, Scales):
            with ring(self.position, count) as (k, stage, parity):
                step(stage, parity, k)
        else:
            self._around(count, scales.whole, step)

    def _around(self, count: Reg[u32], whole: bool, step: Callable[[Reg[u32] | int, Reg[u32]], None]) -> None:
        """Call `step` for `count` stages. The loop is unrolled over a whole ring while the position is at the ring's start and enough
        stages are left. `whole` tiles always consist of whole rings.

        In the unrolled body the stage numbers are constants: the next stage's barrier is tested while sums are promoted, and no address
        computation delays its first product.
        """
        position, depth = self.position, self.stages.pipeline.stages
        rounds = 1 if whole else -(-MIN_UNROLLED_STAGES // depth)

        def around() -> None:
            for _ in range(rounds):
                for stage in range(depth):
                    step(stage, position.parity)
                mov.u32(position.parity, position.parity ^ 1)

        if whole:
            with for_range(count, step=depth):
                around()
            return
        left = mov.u32(count)
        with loop() as more:
            more.break_if(left == 0)
            with if_((position.stage == 0) & (left >= rounds * depth)):
                around()
                mov.u32(left, left - rounds * depth)
            with else_():
                step(position.stage, position.parity)
                position.advance()
                mov.u32(left, left - 1)

    def promote_overlapped(self, accs: tuple[Accumulators, Accumulators], total: Accumulators, count: Reg[u32], scales: Reader) -> None:
        """As `promote`, with two alternating sets of accumulators: while one is promoted, the tensor cores work on the other.

        It works in runs of OVERLAPPED stages, because ptxas serialises wgmma that stay in flight across loop iterations (C7514).
        """
        _clear(total)
        position, factors = self.position, (scales.factors(), scales.factors())
        previous = (mov.u32(0), mov.u32(0))

        def issue(turn: int) -> None:
            self._await(position.stage, position.parity, scales, factors[turn])
            self._issue(accs[turn], position.stage)
            self.stages.have_read()
            mov.u32(previous[turn], position.stage)
            position.advance()

        def finish(turn: int, in_flight: int) -> None:
            wgmma.wait_group.sync.aligned(in_flight)
            self.stages.release(previous[turn])
            _promote(accs[turn], total, factors[turn])

        runs = count // OVERLAPPED
        with for_range(runs):
            issue(0)
            for number in range(1, OVERLAPPED):
                issue(number % 2)
                finish(1 - number % 2, 1)
            finish((OVERLAPPED - 1) % 2, 0)
        with for_range(count - runs * OVERLAPPED):
            issue(0)
            finish(0, 0)

    def _await(self, stage: Reg[u32] | int, parity: Reg[u32], scales: Scales | Reader, factors: Any) -> None:
        """Wait for a stage and read its scales."""
        with span("wait"):
            self.stages.wait(stage, parity)
        if isinstance(scales, Reader):
            scales.read(factors, stage)

    def _issue(self, acc: Accumulators, stage: Reg[u32] | int, first: int = 0, stagger: Stagger | None = None, column: int = 0) -> None:
        """Issue a stage's products for m64 blocks from `first` and columns from `column`, as one wgmma group."""
        if stagger is not None:
            stagger.wait()
        wgmma.fence.sync.aligned()
        self.mma.of_columns(2 * len(acc[0])).issue(acc, self.a[stage], self.b[stage], False, first, column)
        if stagger is not None:
            stagger.arrive()
        wgmma.commit_group.sync.aligned()


class MmaMainloop:
    """The mainloop of a configuration: `run` leaves the sums of a work tile in `total`.

    `scales` are block scales that come with the stages. `in_parts`: work tiles may have only a part of K. `moving`: tiles begin at any
    row, so the place of their scales in a stage changes (`shift`). `a_rows`: the rows of A that copies load, if A is that small; the
    constructor zeroes the other rows.
    """

    def __init__(self, sums: Sums, pipeline: Pipeline, mma: TiledMma, a: Tile[Any], b: Tile[Any], thread: MmaThread, *,
                 mma_warpgroups: int, scales: ScaleRing | None = None, in_parts: bool = False, a_rows: int = 0,
                 moving: bool = False) -> None:
        position = Ring(pipeline.stages)
        self.loop = PromotedMainloop(ConsumerSide(pipeline, thread.thread), mma, a, b, position)
        if a_rows:
            clear_rows(a, a_rows, thread.thread)
        self.promotes = isinstance(sums, Promoted | ThreadScaled)
        self.acc, self.total = accumulators(mma, self.promotes)
        self.second: Accumulators | None = None
        self.stagger: Stagger | None = None
        if isinstance(sums, Promoted):
            self.in_stage = thread.row if isinstance(thread.first, int) else thread.first * ROWS + thread.row
            if moving and scales is not None:
                self.in_stage = scales.m.place(self.in_stage)
            row = mov.u32(self.in_stage) if moving else self.in_stage
            self.reader = Reader.of(scales, mma.m64_blocks, row, thread.column, pipeline.stages, in_parts)
            self.second = mma.fragments() if sums.how == "overlap" else None
            self.stagger = Stagger(thread.warpgroup, mma_warpgroups) if sums.how == "stagger" else None
        elif isinstance(sums, ThreadScaled):
            self.stagger = Stagger(thread.warpgroup, mma_warpgroups) if sums.stagger else None

    @property
    def position(self) -> Ring:
        """The warpgroup's position in the ring of stages."""
        return self.loop.position

    def run(self, work: WorkTile, column: Reg[u32], order: OrderedSequence | None = None) -> None:
        """Multiply the stages of a work tile that begins at `column`."""
        with span("mma"):
            if not self.promotes:
                self.loop.multiply(self.total, work.stages, order)
                return
            self.reader.begin(column, work.first)
            if self.second is not None:
                self.loop.promote_overlapped((self.acc, self.second), self.total, work.stages, self.reader)
            else:
                self.loop.promote(self.acc, self.total, work.stages, self.reader, self.stagger)

    def run_scaled(self, work: WorkTile, scales: Scales) -> None:
        """As `run`, with block scales that each thread reads from global memory."""
        with span("mma"):
            self.loop.promote(self.acc, self.total, work.stages, scales, self.stagger)

    def shift(self, rows: Reg[u32] | int) -> None:
        """Set the place of the next tile's row scales: `rows` after the start of a stage."""
        mov.u32(self.reader.row, self.in_stage + rows)

    def skip(self, work: WorkTile, barrier: Reg[u32]) -> None:
        """Release the stages of a work tile in which this warpgroup has no rows."""
        self.loop.skip(work.stages, barrier, self.stagger, len(parts_of(self.acc, self.total)))

    def tail(self) -> None:
        """Before the warpgroup exits: end its turns."""
        if self.stagger is not None:
            self.stagger.tail()


def accumulators(mma: TiledMma, promoted: bool) -> tuple[Accumulators, Accumulators]:
    """(accumulators of the tensor cores, totals). They are the same registers unless sums are promoted."""
    if not promoted:
        acc = mma.fragments()
        return acc, acc
    blocks, columns = part_shape(mma.m64_blocks, mma.atom.n)
    return replace(mma.of_columns(columns), m64_blocks=blocks).fragments(), mma.fragments()


def yields(schedule: Schedule) -> str:
    """The machine-code hint of a block-scaled kernel in which two mma warpgroups share a tile: fewer register reads and fewer yields
    during promotion. Empty for other kernels.

    One of the two warpgroups promotes while the other one's products are in flight. With three warpgroups, or if a warpgroup's products
    overlap its own promotion, ptxas's yield at every second fma is at least as fast.
    """
    if not isinstance(schedule, Cooperative) or not isinstance(schedule.sums, BlockScaled | ThreadScaled) or schedule.warpgroups != 2:
        return ""
    return "" if isinstance(schedule.sums, BlockScaled) and schedule.sums.how == "overlap" else fma_yield(YIELD)


def part_shape(m64_blocks: int, columns: int) -> tuple[int, int]:
    """The m64 blocks and columns that a warpgroup promotes together: all if there are enough registers, else one block or half a block."""
    if m64_blocks * columns <= PROMOTED:
        return m64_blocks, columns
    return 1, columns if columns <= PROMOTED else columns // 2


def parts_of(acc: Accumulators, total: Accumulators) -> list[tuple[int, int]]:
    """The first m64 block and column of each part of `total`. A part has the shape of `acc`."""
    return [(block, column) for block in range(0, len(total), len(acc)) for column in range(0, 2 * len(total[0]), 2 * len(acc[0]))]


def _clear(total: list[Vec[Any, Any]]) -> None:
    for vector in total:
        for register in vector:
            mov.f32(register, 0.0)


def _promote(acc: Accumulators, total: Accumulators, factors: Scales | Factors | None, first: int = 0, column: int = 0) -> None:
    """total += factors * acc, for m64 blocks from `first` and columns from `column`."""
    if isinstance(factors, Factors) and not first and not column:
        factors.forget()
    for block, part in enumerate(acc, first):
        for i, value in enumerate(part, column // 2):
            fma.rn.f32(total[block][i], value, 1.0 if factors is None else factors.factor(block, i), total[block][i])


__all__ = ["MIN_UNROLLED_STAGES", "OVERLAPPED", "PROMOTED", "MmaMainloop", "PromotedMainloop", "accumulators", "part_shape", "parts_of",
           "yields"]
