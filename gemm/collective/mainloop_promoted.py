"""Layer 3: mainloops that promote: the tensor cores accumulate one stage, and f32 registers the sums of all, scaled.

What the tensor cores accumulate over a stage of fp8 is short, and block scales change with each stage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ptxkit import Reg, Ring, Vec, for_range, if_, loop, ring
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

PROMOTED = 192              # registers of a thread for promoted sums: accumulators of the tensor cores, and totals
UNROLLED = 4                # the fewest stages that follow each other in a loop with promotion
YIELD = 8                   # fmas of a promotion after which a warp lets others issue, where two warpgroups share a tile
OVERLAPPED = 4              # stages whose promotions overlap with the products of the next one; the last of each run does not


@dataclass(frozen=True, slots=True)
class PromotedMainloop(Mainloop):
    """The mainloop of a warpgroup with two sets of registers: `acc` for one stage in the tensor cores, `total` in f32."""

    def promote(self, acc: Accumulators, total: Accumulators, count: Reg[u32], scales: Scales | Reader,
                stagger: Stagger | None = None) -> None:
        """total = the scaled sum of each stage's product, over `count` stages.

        Where `acc` has fewer m64 blocks than `total`, or fewer columns, its parts are multiplied and promoted one after another in the
        same registers.
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
        """`step` for `count` stages. A whole ring is unrolled where the position is at its beginning and as many stages are left, which
        is known of `whole` tiles.

        There the numbers of the stages are constants: the next one's barrier is looked at while sums are promoted, and between
        that and its first product there are no addresses to compute.
        """
        here, depth = self.position, self.stages.pipeline.stages
        rounds = 1 if whole else -(-UNROLLED // depth)

        def around() -> None:
            for _ in range(rounds):
                for stage in range(depth):
                    step(stage, here.parity)
                mov.u32(here.parity, here.parity ^ 1)

        if whole:
            with for_range(count, step=depth):
                around()
            return
        left = mov.u32(count)
        with loop() as more:
            more.break_if(left == 0)
            with if_((here.stage == 0) & (left >= rounds * depth)):
                around()
                mov.u32(left, left - rounds * depth)
            with else_():
                step(here.stage, here.parity)
                here.advance()
                mov.u32(left, left - 1)

    def promote_overlapped(self, accs: tuple[Accumulators, Accumulators], total: Accumulators, count: Reg[u32], scales: Reader) -> None:
        """The same with two sets of accumulators in turn: while one is promoted the tensor cores work on the other.

        In runs of OVERLAPPED stages, since ptxas serialises wgmma that are in flight from one round of a loop to the next (C7514).
        """
        _clear(total)
        here, factors = self.position, (scales.factors(), scales.factors())
        previous = (mov.u32(0), mov.u32(0))

        def issue(turn: int) -> None:
            self._await(here.stage, here.parity, scales, factors[turn])
            self._issue(accs[turn], here.stage)
            self.stages.have_read()
            mov.u32(previous[turn], here.stage)
            here.advance()

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
        """Wait for a stage, and read its scales."""
        self.stages.wait(stage, parity)
        if isinstance(scales, Reader):
            scales.read(factors, stage)

    def _issue(self, acc: Accumulators, stage: Reg[u32] | int, first: int = 0, stagger: Stagger | None = None, column: int = 0) -> None:
        """Begin the products of a stage, of m64 blocks from `first` and columns from `column` on, as a group of their own."""
        if stagger is not None:
            stagger.wait()
        wgmma.fence.sync.aligned()
        self.mma.of_columns(2 * len(acc[0])).issue(acc, self.a[stage], self.b[stage], False, first, column)
        if stagger is not None:
            stagger.arrive()
        wgmma.commit_group.sync.aligned()


class MmaMainloop:
    """The mainloop of a configuration: `run` leaves the sums of a work tile in `total`.

    `scales` are those of blocks, which come with the stages. `in_parts`: work tiles may have a part of their depth.
    `moving`: tiles begin at any row, so that the scales of their rows move in a stage (`shift`). `a_rows`: rows of A
    that copies load, where it has so few; those after them are cleared here.
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
        """Where the warpgroup is in the ring of stages."""
        return self.loop.position

    def run(self, work: WorkTile, column: Reg[u32], order: OrderedSequence | None = None) -> None:
        """Multiply the stages of a work tile, whose columns begin at `column`."""
        if not self.promotes:
            self.loop.multiply(self.total, work.stages, order)
            return
        self.reader.begin(column, work.first)
        if self.second is not None:
            self.loop.promote_overlapped((self.acc, self.second), self.total, work.stages, self.reader)
        else:
            self.loop.promote(self.acc, self.total, work.stages, self.reader, self.stagger)

    def run_scaled(self, work: WorkTile, scales: Scales) -> None:
        """The same with block scales that each thread reads itself."""
        self.loop.promote(self.acc, self.total, work.stages, scales, self.stagger)

    def shift(self, rows: Reg[u32] | int) -> None:
        """The scales of the next tile's rows are so many places later in a stage."""
        mov.u32(self.reader.row, self.in_stage + rows)

    def skip(self, work: WorkTile, barrier: Reg[u32]) -> None:
        """A work tile in which this warpgroup has no rows."""
        self.loop.skip(work.stages, barrier, self.stagger, len(parts_of(self.acc, self.total)))

    def tail(self) -> None:
        """Before the warpgroup exits."""
        if self.stagger is not None:
            self.stagger.tail()


def accumulators(mma: TiledMma, promoted: bool) -> tuple[Accumulators, Accumulators]:
    """(accumulators of the tensor cores, totals): the same registers unless sums are promoted."""
    if not promoted:
        acc = mma.fragments()
        return acc, acc
    blocks, columns = at_once(mma.m64_blocks, mma.atom.n)
    return replace(mma.of_columns(columns), m64_blocks=blocks).fragments(), mma.fragments()


def yields(schedule: Schedule) -> str:
    """The machine-code hint of a block-scaled kernel in which two mma warpgroups share a tile: while they promote, they read the register
    file less often, and yield less often. Nothing for other kernels.

    One of the two promotes while the other one's products are in flight. Where there are three, or their own products overlap with
    promotion, ptxas's yield at every second fma is as fast or faster.
    """
    if not isinstance(schedule, Cooperative) or not isinstance(schedule.sums, BlockScaled | ThreadScaled) or schedule.warpgroups != 2:
        return ""
    return "" if isinstance(schedule.sums, BlockScaled) and schedule.sums.how == "overlap" else fma_yield(YIELD)


def at_once(m64_blocks: int, columns: int) -> tuple[int, int]:
    """The m64 blocks and columns whose products a warpgroup promotes together: all; or one block after another, or halves of a block,
    where their sums take too many registers."""
    if m64_blocks * columns <= PROMOTED:
        return m64_blocks, columns
    return 1, columns if columns <= PROMOTED else columns // 2


def parts_of(acc: Accumulators, total: Accumulators) -> list[tuple[int, int]]:
    """The first m64 block and column of each part of `total` that is multiplied in `acc`."""
    return [(block, column) for block in range(0, len(total), len(acc)) for column in range(0, 2 * len(total[0]), 2 * len(acc[0]))]


def _clear(total: list[Vec[Any, Any]]) -> None:
    for vector in total:
        for register in vector:
            mov.f32(register, 0.0)


def _promote(acc: Accumulators, total: Accumulators, factors: Scales | Factors | None, first: int = 0, column: int = 0) -> None:
    """total += acc, scaled: of m64 blocks from `first` and columns from `column` on."""
    if isinstance(factors, Factors) and not first and not column:
        factors.forget()
    for block, part in enumerate(acc, first):
        for i, value in enumerate(part, column // 2):
            fma.rn.f32(total[block][i], value, 1.0 if factors is None else factors.factor(block, i), total[block][i])


__all__ = ["OVERLAPPED", "PROMOTED", "UNROLLED", "MmaMainloop", "PromotedMainloop", "accumulators", "at_once", "parts_of", "yields"]
