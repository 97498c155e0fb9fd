"""Layer 3, collective mainloop: a producer thread that fills a ring of stages, and warpgroups that multiply what it holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ptxkit import MBarrier, MBarriers, Reg, Ring, Vec, cluster_ctarank, for_range, if_, loop, ring, smem
from ptxkit.flow import else_
from ptxkit.idioms import init_barriers, remote, wait
from ptxkit.ptx import bar, cvt, fence, fma, mbarrier, mov, selp, shl, st, wgmma
from ptxkit.ptx import min as min_
from ptxkit.sass.hints import fma_yield
from ptxkit.smem import Tile
from ptxkit.types import pred, u16, u32

from ..scheduler.fast_divmod import rounded_up
from ..scheduler.static import Work
from .atoms import WARPGROUP
from .scale_factors import Factors, Reader, ScaleRing
from .thread_scales import Scales
from .tiled import Shares, TiledCopy, TiledMma

PROMOTED = 192              # registers of a thread for sums that are promoted: what the tensor cores sum up, and the totals
UNROLLED = 4                # stages at least that follow each other in a loop whose sums are promoted
YIELD = 8                   # fmas of a promotion after which a warp lets others issue, where two warpgroups share a tile
OVERLAPPED = 4              # stages whose promotions overlap with the products of the next one; after each run one does not


@dataclass(frozen=True, slots=True)
class Cluster:
    """`m` x `n` CTAs that share operands: those of a row the same A, those of a column the same B. Rank = row + column * m.

    What some share each of them loads a part of, or (`leader`) the first of them loads for all.
    """

    m: int = 1
    n: int = 1
    leader: bool = False

    @property
    def size(self) -> int:
        return self.m * self.n

    def reached(self) -> Reg[u32] | int:
        """CTAs, this one among them, that this CTA's copies reach: its row and its column, as far as it loads for them."""
        if not self.leader or self.size == 1:
            return self.m + self.n - 1
        in_row, in_column = self.n - 1, self.m - 1
        return selp.u32(in_row, 0, self.column() == 0) + selp.u32(in_column, 0, self.row() == 0) + 1

    def row(self) -> Reg[u32]:
        rank = mov.u32(cluster_ctarank)
        return rank if self.n == 1 else rank % self.m

    def column(self) -> Reg[u32]:
        rank = mov.u32(cluster_ctarank)
        return rank if self.m == 1 else rank // self.m

    def a_shares(self) -> Shares:
        """A goes to the CTAs of this row."""
        if self.n == 1:
            return Shares()
        row = sum(1 << column * self.m for column in range(self.n))
        mask: Reg[u16] | int = row if self.m == 1 else _low(shl.b32(mov.u32(row), self.row()))
        return Shares(self.n, self.column(), mask, self.leader)

    def b_shares(self) -> Shares:
        """B goes to the CTAs of this column."""
        if self.m == 1:
            return Shares()
        column = (1 << self.m) - 1
        mask: Reg[u16] | int = column if self.n == 1 else _low(shl.b32(mov.u32(column), self.column() * self.m))
        return Shares(self.m, self.row(), mask, self.leader)

    def reaches_here(self, rank: Reg[u32]) -> Reg[pred]:
        """Whether copies of CTA `rank` of the cluster reach this CTA."""
        within = rank < self.size
        if self.leader and self.size > 1:
            row, column = rank % self.m, rank // self.m
            for_row = (row == self.row()) & (column == 0)
            for_column = (column == self.column()) & (row == 0)
            return within & (for_row | for_column | (rank == mov.u32(cluster_ctarank)))
        if self.m == 1 or self.n == 1:
            return within
        return within & ((rank % self.m == self.row()) | (rank // self.m == self.column()))


def _low(value: Any) -> Reg[u16]:
    return cvt.u16.u32(value)


class Pipeline:
    """The ring of stages: full[stage] and empty[stage].

    Arrivals a phase. full: 1, the producer's arrive.expect_tx of the whole stage (what peers multicast into it counts here too).
    empty: one thread of every warpgroup that reads the stage, in every CTA that this CTA's copies reach; with `loads`, where threads load
    from a stage themselves, one of every warp. With a `ScaleRing` they do, and where a warp copies scales, full: 32 more, of its lanes.
    """

    def __init__(self, stages: int, readers: int, cluster: Cluster, *, scales: ScaleRing | None = None, loads: bool = False) -> None:
        self.loads = loads or scales is not None
        self.loads_across = loads and cluster.size > 1          # threads of another CTA load what this one's copies write
        self.stages, self.readers, self.cluster = stages, readers * (4 if self.loads else 1), cluster
        self.copied = scales is not None and scales.copied
        self.full, self.empty = smem.mbarrier(stages, name="full"), smem.mbarrier(stages, name="empty")

    def init(self, *more: tuple[MBarriers, int]) -> None:
        """In one thread: every barrier, and the fence for the CTAs of the cluster."""
        init_barriers((self.full, 1 + 32 * self.copied), (self.empty, self.cluster.reached() * self.readers), *more)


@dataclass(frozen=True, slots=True)
class Producer:
    """One thread: loads the stages of one piece of work after another, a ring ahead of the consumers."""

    pipeline: Pipeline
    a: TiledCopy
    b: TiledCopy
    position: Ring

    def load(self, work: Work, row: Reg[u32], column: Reg[u32], *outer: Any, a_outer: tuple[Any, ...] = (),
             b_outer: tuple[Any, ...] = (), scales: ScaleRing | None = None, columns: Any = None) -> None:
        """Rows `row`.. of A and `column`.. of B (in elements); `outer` are further coordinates of both maps, the others of one. With
        `scales`, `columns` are all of B's."""
        pipeline, depth = self.pipeline, self.a.tile.layout.columns
        of_scales = scales.m.bytes + scales.n.bytes if scales is not None else 0
        bytes, fills = self.a.bytes() + self.b.bytes() + of_scales, self.a.fills or self.b.fills
        at_first = self.a.bytes(True) + self.b.bytes(True) + of_scales if fills else bytes
        if scales is not None:
            scales.n.aim(column, columns)
        with ring(self.position, work.stages) as (k, stage, parity):
            number = k if isinstance(work.first, int) and work.first == 0 else k + work.first
            at = number * depth
            wait(pipeline.empty[stage], parity ^ 1, cluster=pipeline.loads_across)
            first = k < pipeline.stages if fills else None
            mbarrier.arrive.expect_tx.shared__cta.b64(pipeline.full[stage], bytes if first is None else selp.u32(at_first, bytes, first))
            self.a.load(stage, row, at, pipeline.full[stage], *outer, *a_outer, first=first)
            self.b.load(stage, column, at, pipeline.full[stage], *outer, *b_outer, first=first)
            if scales is not None:
                scales.m.load(stage, row, number, pipeline.full[stage])
                scales.n.load(stage, column, number, pipeline.full[stage])

    def copy_scales(self, scales: ScaleRing, work: Work, lane: Reg[u32]) -> None:
        """In all lanes of another warp, with a ring position of its own: the scales of one piece of work, a ring ahead."""
        with ring(self.position, work.stages) as (k, stage, parity):
            wait(self.pipeline.empty[stage], parity ^ 1)
            scales.copy(stage, k, lane, self.pipeline.full[stage])

    def drain(self) -> None:
        """Wait until every stage is empty: nobody arrives in, or multicasts into, a CTA that has exited."""
        with ring(self.position, self.pipeline.stages) as (_, stage, parity):
            wait(self.pipeline.empty[stage], parity ^ 1)


@dataclass(frozen=True, slots=True)
class Consumer:
    """One warpgroup: multiplies stage after stage. `thread` counts within the warpgroup."""

    pipeline: Pipeline
    mma: TiledMma
    a: Tile[Any]
    b: Tile[Any]
    position: Ring
    thread: Reg[u32]
    released: MBarriers = field(init=False)
    releases: Reg[pred] = field(init=False)

    def __post_init__(self) -> None:
        cluster, empty = self.pipeline.cluster, self.pipeline.empty
        who = self.thread & 31 if self.pipeline.loads else self.thread
        object.__setattr__(self, "released", remote(empty, who) if cluster.size > 1 else empty)
        object.__setattr__(self, "releases", cluster.reaches_here(who))

    def multiply(self, acc: list[Vec[Any, Any]], stages: Reg[u32], turn: Turn | None = None) -> None:
        """acc = A B over `stages` stages, one wgmma group in flight: a stage is released when the next one's group has been issued."""
        self._multiply(self.mma, acc, stages, turn)

    def multiply_fitted(self, acc: list[Vec[Any, Any]], stages: Reg[u32], columns: Reg[u32], step: int) -> None:
        """The same of the first `columns` of a tile, rounded up to `step`: a loop for each number of them, and accumulators beyond hold
        what they held."""
        steps = rounded_up(columns, step)
        for n in range(step, self.mma.atom.n + 1, step):
            mma = self.mma.of_columns(n)
            with if_(steps == n // step):
                self._multiply(mma, [part[:mma.registers] for part in acc], stages)

    def _multiply(self, mma: TiledMma, acc: list[Vec[Any, Any]], stages: Reg[u32], turn: Turn | None = None) -> None:
        previous = mov.u32(0)
        if turn is not None:
            turn.take()
        with ring(self.position, stages) as (k, stage, parity):
            accumulate = k != 0
            wait(self.pipeline.full[stage], parity)
            wgmma.fence.sync.aligned()
            mma.issue(acc, self.a[stage], self.b[stage], accumulate)
            wgmma.commit_group.sync.aligned()
            wgmma.wait_group.sync.aligned(1)                     # all but the group just issued: `previous` has been read
            self._release(previous, self.releases & accumulate)
            mov.u32(previous, stage)
        if turn is not None:
            turn.pass_on()
        wgmma.wait_group.sync.aligned(0)
        self._release(previous, self.releases)

    def pass_by(self, stages: Reg[u32], barrier: Reg[u32], stagger: Stagger | None = None, issues: int = 1) -> None:
        """Nothing of these stages is this warpgroup's: when one has landed, and not before, say that it has been read.

        Without wgmma the warps need `barrier`, of the warpgroup, to see each phase before one of them may bring about the next. Where
        warpgroups issue in turn, `issues` times a stage, this one gives its turns away.
        """
        with ring(self.position, stages) as (_, stage, parity):
            wait(self.pipeline.full[stage], parity)
            if stagger is None:
                bar.sync(barrier, b=WARPGROUP)
            else:
                for _ in range(issues):
                    stagger.take()
                    stagger.pass_on()
            self._release(stage, self.releases)

    def multiply_promoted(self, acc: list[Vec[Any, Any]], total: list[Vec[Any, Any]], stages: Reg[u32], scales: Scales | Reader,
                          stagger: Stagger | None = None) -> None:
        """total = the sum of each stage's product, scaled, in f32: what a stage sums up in the tensor cores is short.

        Where `acc` has fewer slabs than `total`, or fewer columns, its parts are multiplied and promoted one after another in the same
        registers.
        """
        _clear(total)
        parts = parts_of_sums(acc, total)
        factors = scales if isinstance(scales, Scales) else scales.factors()
        if isinstance(scales, Scales):
            scales.prefetch(0)

        def step(stage: Reg[u32] | int, parity: Reg[u32], k: Reg[u32] | None = None) -> None:
            if isinstance(scales, Scales):
                scales.take()
            self._await(stage, parity, scales, factors)
            for number, (slab, column) in enumerate(parts):
                last = number == len(parts) - 1
                self._issue(acc, stage, slab, stagger, column)
                if isinstance(scales, Scales) and k is not None and not number:
                    scales.prefetch(min_.u32(k + 1, stages - 1))
                if last:
                    self._have_read()
                wgmma.wait_group.sync.aligned(0)
                if last:
                    self._release(stage, self.releases)
                _promote(acc, total, factors, slab, column)

        if isinstance(scales, Scales):
            with ring(self.position, stages) as (k, stage, parity):
                step(stage, parity, k)
        else:
            self._around(stages, scales.whole, step)

    def _around(self, stages: Reg[u32], whole: bool, step: Callable[[Reg[u32] | int, Reg[u32]], None]) -> None:
        """`step` for so many stages; all of the ring in a row where it is at its beginning and as many are left, which is known of `whole`
        tiles.

        There the numbers of the stages are constants: the next one's barrier is looked at while sums are promoted, and between
        that and its first product there are no addresses to compute.
        """
        here, depth = self.position, self.pipeline.stages
        rounds = 1 if whole else -(-UNROLLED // depth)

        def around() -> None:
            for _ in range(rounds):
                for stage in range(depth):
                    step(stage, here.parity)
                mov.u32(here.parity, here.parity ^ 1)

        if whole:
            with for_range(stages, step=depth):
                around()
            return
        left = mov.u32(stages)
        with loop() as more:
            more.break_if(left == 0)
            with if_((here.stage == 0) & (left >= rounds * depth)):
                around()
                mov.u32(left, left - rounds * depth)
            with else_():
                step(here.stage, here.parity)
                here.advance()
                mov.u32(left, left - 1)

    def multiply_overlapped(self, accs: tuple[list[Vec[Any, Any]], list[Vec[Any, Any]]], total: list[Vec[Any, Any]], stages: Reg[u32],
                            scales: Reader) -> None:
        """The same with two sets of sums in turn: while one is promoted the tensor cores work on the other.

        In runs of OVERLAPPED stages, since ptxas serialises wgmma that are under way from one round of a loop to the next (C7514).
        """
        _clear(total)
        here, factors = self.position, (scales.factors(), scales.factors())
        previous = (mov.u32(0), mov.u32(0))

        def issue(turn: int) -> None:
            self._await(here.stage, here.parity, scales, factors[turn])
            self._issue(accs[turn], here.stage)
            self._have_read()
            mov.u32(previous[turn], here.stage)
            here.advance()

        def finish(turn: int, under_way: int) -> None:
            wgmma.wait_group.sync.aligned(under_way)
            self._release(previous[turn], self.releases)
            _promote(accs[turn], total, factors[turn])

        runs = stages // OVERLAPPED
        with for_range(runs):
            issue(0)
            for number in range(1, OVERLAPPED):
                issue(number % 2)
                finish(1 - number % 2, 1)
            finish((OVERLAPPED - 1) % 2, 0)
        with for_range(stages - runs * OVERLAPPED):
            issue(0)
            finish(0, 0)

    def _await(self, stage: Reg[u32] | int, parity: Reg[u32], scales: Scales | Reader, factors: Any) -> None:
        """Wait for a stage, and read its scales."""
        wait(self.pipeline.full[stage], parity)
        if isinstance(scales, Reader):
            scales.read(factors, stage)

    def _issue(self, acc: list[Vec[Any, Any]], stage: Reg[u32] | int, first: int = 0, stagger: Stagger | None = None,
               column: int = 0) -> None:
        """Begin the products of a stage, of slabs from `first` and columns from `column` on, as a group of their own."""
        if stagger is not None:
            stagger.take()
        wgmma.fence.sync.aligned()
        self.mma.of_columns(2 * len(acc[0])).issue(acc, self.a[stage], self.b[stage], False, first, column)
        if stagger is not None:
            stagger.pass_on()
        wgmma.commit_group.sync.aligned()

    def _have_read(self) -> None:
        """Scales, or A, were read by all lanes through the generic proxy: a copy may write over them, and one lane speaks for a warp.

        While the products are under way, where it costs nothing.
        """
        if self.pipeline.loads:
            fence.proxy.async_.shared__cta()
            bar.warp.sync(0xFFFFFFFF)

    def _release(self, stage: Reg[u32] | int, p: Reg[pred]) -> None:
        """Where `p` holds, say that this warpgroup has read the stage; each of the first threads says it to one CTA."""
        barrier: MBarrier = self.released[stage]
        arrive = mbarrier.arrive.shared__cluster.b64 if self.pipeline.cluster.size > 1 else mbarrier.arrive.shared__cta.b64
        if self.pipeline.loads_across:
            arrive = mbarrier.arrive.release.cluster.shared__cluster.b64
        arrive(barrier, pred=p)


def sums_of(mma: TiledMma, promote: bool) -> tuple[list[Vec[Any, Any]], list[Vec[Any, Any]]]:
    """(what the tensor cores sum up in, the totals): the same registers unless sums are promoted."""
    if not promote:
        acc = mma.fragments()
        return acc, acc
    slabs, columns = at_once(mma.slabs, mma.atom.n)
    return replace(mma.of_columns(columns), slabs=slabs).fragments(), mma.fragments()


def yields(config: Mapping[str, Any]) -> str:
    """The directive of a kernel whose warps read the register file less often while they promote, and yield less often.

    Of two warpgroups one promotes while the other one's products are under way. Where there are three, or their own products overlap
    with promotion, ptxas's yield at every second fma is as fast or faster.
    """
    return fma_yield(YIELD) if config["BLOCK_SCALES"] and config["CONSUMERS"] == 2 and not config["OVERLAP"] else ""


def at_once(slabs: int, columns: int) -> tuple[int, int]:
    """Slabs and columns whose products a warpgroup promotes together: all; or slabs one after another, or halves of one, where their sums
    take too many registers."""
    if slabs * columns <= PROMOTED:
        return slabs, columns
    return 1, columns if columns <= PROMOTED else columns // 2


def parts_of_sums(acc: list[Vec[Any, Any]], total: list[Vec[Any, Any]]) -> list[tuple[int, int]]:
    """The first slab and column of each part of `total` that is multiplied in `acc`."""
    return [(slab, column) for slab in range(0, len(total), len(acc)) for column in range(0, 2 * len(total[0]), 2 * len(acc[0]))]


def _clear(total: list[Vec[Any, Any]]) -> None:
    for vector in total:
        for register in vector:
            mov.f32(register, 0.0)


def _promote(acc: list[Vec[Any, Any]], total: list[Vec[Any, Any]], factors: Scales | Factors | None, first: int = 0,
             column: int = 0) -> None:
    """total += acc, scaled: of slabs from `first` and columns from `column` on."""
    if isinstance(factors, Factors) and not first and not column:
        factors.forget()
    for slab, part in enumerate(acc, first):
        for i, value in enumerate(part, column // 2):
            fma.rn.f32(total[slab][i], value, 1.0 if factors is None else factors.factor(slab, i), total[slab][i])


def clear_lines(tile: Tile[Any], start: int, thread: Reg[u32]) -> None:
    """By one warpgroup, once: zeros in the lines of every stage from `start` on, which no copy fills and wgmma reads."""
    layout = tile.layout
    bytes = (layout.rows - start) * layout.span_bytes
    zero = mov.b32(0)
    place = tile[0].register() + thread * 16
    for stage in range(len(tile)):
        for span in range(layout.spans):
            offset = stage * tile.stage_bytes + span * layout.span_stride + start * layout.span_bytes
            for done in range(0, bytes, WARPGROUP * 16):
                inside = None if bytes - done >= WARPGROUP * 16 else thread < (bytes - done) // 16
                st.shared__cta.v4.b32(smem.SharedAddress(offset + done, place), Vec((zero, zero, zero, zero)), pred=inside)
    fence.proxy.async_.shared__cta()
    bar.sync(1, b=WARPGROUP)


class Turn:
    """Two warpgroups take turns at the tensor cores: while one multiplies, the other stores its tile.

    order[w]: 4 arrivals, of a lane of each warp of the other warpgroup when that warp has issued its last wgmma of a tile: each has then
    waited for its own turn, and none can miss a phase. Warpgroup 0's first wait is for the phase before the first, which has completed.
    """

    ARRIVALS = 4

    def __init__(self, order: MBarriers, warpgroup: Reg[u32], lane: Reg[u32]) -> None:
        self.mine, self.other = order[warpgroup], order[warpgroup ^ 1]
        self.parity = mov.u32(warpgroup ^ 1)
        self.first = lane == 0

    def take(self) -> None:
        """Wait for this warpgroup's turn."""
        wait(self.mine, self.parity)
        mov.u32(self.parity, self.parity ^ 1)

    def pass_on(self) -> None:
        """Give the turn to the other warpgroup."""
        mbarrier.arrive.shared__cta.b64(self.other, pred=self.first)


class Stagger:
    """Warpgroups that share a tile issue their products one after another, and promote them while those of the others are multiplied.

    Left to themselves they get into step, since they wait for the same stages, and then promote at the same time. Barrier FIRST + w: the
    128 threads of warpgroup w wait there for the 128 of the one before it, which have issued theirs; the first begins by itself.
    """

    FIRST = 4                                   # the barriers below are those of the epilogue

    def __init__(self, warpgroup: Reg[u32], warpgroups: int) -> None:
        self.warpgroup, self.last = warpgroup, warpgroups - 1
        self.mine = warpgroup + self.FIRST
        self.next = selp.u32(self.FIRST, self.mine + 1, warpgroup == self.last)
        with if_(warpgroup == self.last):
            self.pass_on()

    def take(self) -> None:
        """Wait for this warpgroup's turn."""
        bar.sync(self.mine, b=2 * WARPGROUP)

    def pass_on(self) -> None:
        """The next one's turn."""
        bar.arrive(self.next, 2 * WARPGROUP)

    def end(self) -> None:
        """Before the warpgroup exits: the turn that nobody takes."""
        with if_(self.warpgroup == 0):
            self.take()


__all__ = ["Cluster", "Consumer", "Pipeline", "Producer", "Stagger", "Turn", "at_once", "clear_lines", "parts_of_sums", "sums_of",
           "yields"]
