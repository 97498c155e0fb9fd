"""Dynamic persistent tile scheduler, device side: each CTA takes its next work tile from a counter in global memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ptxkit import MBarriers, Ptr, Reg, Ring, Vec, cluster_ctarank, clusterid, ctaid, if_, laneid, loop, nclusterid, nctaid, smem
from ptxkit.flow import else_
from ptxkit.idioms import remote, wait
from ptxkit.ptx import atom, bar, cvt, ld, mapa, mbarrier, mov, opcode, selp, shr, st
from ptxkit.ptx import min as min_
from ptxkit.smem import Shared
from ptxkit.types import pred, u32, u64


@dataclass(frozen=True, slots=True)
class ForwardCounter:
    """Work tiles in ascending order. The counter is the number of tickets drawn so far. A ticket is the counter's value before the draw."""

    counter: Ptr[u32]
    count: Reg[u32]
    ctas: Reg[u32]

    def draw(self) -> Reg[u32]:
        """Begin to draw a ticket: the atomic's latency overlaps what does not use its result."""
        return atom.relaxed.gpu.global_.add.u32(self.counter, 1)

    def next_index(self, ticket: Reg[u32]) -> Reg[u32]:
        """The index of a ticket's work tile; `count` or more if none is left. The CTA that drew the last ticket resets the counter."""
        st.relaxed.gpu.global_.u32(self.counter, 0, pred=ticket == self.count - 1)
        return ticket + self.ctas


@dataclass(frozen=True, slots=True)
class TwoEndedCounter:
    """Work tiles from both ends: most CTAs ascend from the first tile, the last `from_tail` CTAs descend from the last tile.

    The counter has two 32-bit halves: tickets drawn by ascending CTAs in the lower one, by descending CTAs in the upper one.
    """

    counter: Ptr[u64]
    count: Reg[u32]
    ctas: Reg[u32]
    from_tail: Reg[u32]
    from_head: Reg[u32]                         # CTAs that ascend
    descends: Reg[pred]                         # whether this CTA descends
    one: Reg[u64]                               # what this CTA adds to the counter

    @classmethod
    def begin(cls, counter: Ptr[u32], count: Reg[u32], index: Reg[u32], ctas: Reg[u32], from_tail: int) -> TwoEndedCounter:
        """For one of `ctas` CTAs. `index` is its first work tile; a descending CTA's is overwritten with one at the tail."""
        halves = counter.cast(u64)
        descending = min_.u32(ctas // 2, from_tail)
        descends = (index >= ctas - descending) & (count > ctas)
        mov.u32(index, count - (ctas - index), pred=descends)
        one, from_head = selp.u64(1 << 32, 1, descends), ctas - descending
        return cls(halves, count, ctas, descending, from_head, descends, one)

    def draw(self) -> Reg[u64]:
        """Begin to draw a ticket, as `ForwardCounter.draw`."""
        return atom.relaxed.gpu.global_.add.u64(self.counter, self.one)

    def next_index(self, ticket: Reg[u64]) -> Reg[u32]:
        """The index of a ticket's work tile; `count` if none is left. The CTA that drew the last ticket resets the counter."""
        head, tail = cvt.u32.u64(ticket), cvt.u32.u64(shr.u64(ticket, 32))
        drawn = head + tail
        st.relaxed.gpu.global_.u64(self.counter, 0, pred=drawn == self.count - 1)
        index = selp.u32(self.count - (tail + self.from_tail + 1), head + self.from_head, self.descends)
        return selp.u32(index, self.count, drawn + self.ctas < self.count)


@dataclass(frozen=True, slots=True)
class DynamicScheduler:
    """Work tiles taken from a counter: CTA i begins with tile i, and each further tile is drawn as a ticket from the counter.

    The producer's thread draws the next ticket while it loads the current tile. It also computes where the tile lies and writes both to a
    ring of slots in shared memory, so that the mma warpgroups start without a division. full[slot]: 1, the producer's arrive. empty[slot]:
    one lane of every reading warp, after the warp has read the slot. Exactly `count` tickets are drawn, so whoever draws the last one
    resets the counter for the next launch. With `from_tail`, that many CTAs (at most half of them) start from the tail
    (`TwoEndedCounter`).
    """

    counter: Ptr[u32]
    warps: int
    from_tail: int = 0                           # CTAs that start from the tail
    slots: Shared[u32] = field(init=False)
    full: MBarriers = field(init=False)
    empty: MBarriers = field(init=False)

    SLOTS = 2
    WORDS = 4                                   # of a slot: the index, and up to three words from `place`
    BYTES = SLOTS * (4 * WORDS + 2 * 8)         # of shared memory

    def __post_init__(self) -> None:
        object.__setattr__(self, "slots", smem.array(u32, self.SLOTS * self.WORDS, align=8, name="work tiles"))
        object.__setattr__(self, "full", smem.mbarrier(self.SLOTS, name="work tile full"))
        object.__setattr__(self, "empty", smem.mbarrier(self.SLOTS, name="work tile empty"))

    @property
    def counts(self) -> tuple[tuple[MBarriers, int], ...]:
        """The mbarriers and their arrival counts, for `Pipeline.init`."""
        return (self.full, 1), (self.empty, self.warps)

    @contextmanager
    def producer_loop(self, count: Reg[u32], place: Callable[[Reg[u32]], Sequence[Reg[u32]]]) -> Iterator[Sequence[Reg[u32]]]:
        """The producer's loop, in one thread: each work tile's index and the words that `place` computes from it."""
        index, position = mov.u32(ctaid.x), Ring(self.SLOTS)
        counter = self._counter(count, index, mov.u32(nctaid.x))
        with loop() as more:
            wait(self.empty[position.stage], position.parity ^ 1)
            slot, done = self.slots.at(position.stage * self.WORDS), index >= count
            _put(slot, [index] * self.WORDS, done)
            mbarrier.arrive.shared__cta.b64(self.full[position.stage], pred=done)
            more.break_if(done)
            ticket = counter.draw()
            words = place(index)
            _put(slot, [index, *words, *[index] * (self.WORDS - 1 - len(words))])
            mbarrier.arrive.shared__cta.b64(self.full[position.stage])
            position.advance()
            yield index, *words
            mov.u32(index, counter.next_index(ticket))

    @contextmanager
    def reader_loop(self, count: Reg[u32], turn: Reg[u32] | int, turns: int) -> Iterator[Sequence[Reg[u32]]]:
        """The readers' loop over the same work tiles, in whole warps. Of every `turns` tiles it yields only number `turn`."""
        position, number = Ring(self.SLOTS), mov.u32(0)
        with loop() as more:
            wait(self.full[position.stage], position.parity)
            index, *words = _get(self.slots.at(position.stage * self.WORDS))
            bar.warp.sync(0xFFFFFFFF)
            mbarrier.arrive.shared__cta.b64(self.empty[position.stage], pred=mov.u32(laneid) == 0)
            position.advance()
            more.break_if(index >= count)
            if turns > 1:
                mine = number == turn
                mov.u32(number, number ^ 1)
                more.continue_if(~mine)
            yield index, *words

    def _counter(self, count: Reg[u32], index: Reg[u32], ctas: Reg[u32]) -> Any:
        """The counter of one of `ctas` CTAs or clusters, which begins with work tile `index`."""
        if self.from_tail:
            return TwoEndedCounter.begin(self.counter, count, index, ctas, self.from_tail)
        return ForwardCounter(self.counter, count, ctas)


@dataclass(frozen=True, slots=True)
class ClusterDynamicScheduler(DynamicScheduler):
    """The same for clusters of `size` CTAs that work together: the first CTA's producer draws for its cluster.

    It sends each work tile to the producers of the other CTAs by st.async, and every producer passes it on inside its own CTA as above.
    sent[slot], in the other CTAs: 1, their producer's arrive.expect_tx. free[slot], in the first CTA: the other producers, after they have
    loaded that tile. Only producers synchronise across CTAs: a release at cluster scope would make an mma warpgroup wait for its stores in
    flight. `from_tail` counts clusters.
    """

    size: int = field(default=2, kw_only=True)
    received: Shared[u32] = field(init=False)
    sent: MBarriers = field(init=False)
    free: MBarriers = field(init=False)

    BYTES = 2 * DynamicScheduler.BYTES

    def __post_init__(self) -> None:
        DynamicScheduler.__post_init__(self)
        object.__setattr__(self, "received", smem.array(u32, self.SLOTS * self.WORDS, align=16, name="work tiles of the cluster"))
        object.__setattr__(self, "sent", smem.mbarrier(self.SLOTS, name="work tile sent"))
        object.__setattr__(self, "free", smem.mbarrier(self.SLOTS, name="work tile done"))

    @property
    def counts(self) -> tuple[tuple[MBarriers, int], ...]:
        """The mbarriers and their arrival counts, for `Pipeline.init`."""
        return (self.full, 1), (self.empty, self.warps), (self.sent, 1), (self.free, self.size - 1)

    @contextmanager
    def producer_loop(self, count: Reg[u32], place: Callable[[Reg[u32]], Sequence[Reg[u32]]]) -> Iterator[Sequence[Reg[u32]]]:
        """The producer's loop, in one thread of each CTA: each of the cluster's work tiles and the words that `place` computes from it."""
        index, position, draws = mov.u32(clusterid.x), Ring(self.SLOTS), mov.u32(cluster_ctarank) == 0
        words = [mov.u32(0) for _ in range(self.WORDS - 1)]
        counter, free = self._counter(count, index, mov.u32(nclusterid.x)), remote(self.free, 0)
        others = [(mapa.shared__cluster.u32(self.received.register(), rank), remote(self.sent, rank)) for rank in range(1, self.size)]
        send: Any = opcode("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.u32")
        with loop() as more:
            slot, parity = position.stage, position.parity
            with if_(draws):
                with if_(index < count):
                    for word, value in zip(words, place(index), strict=False):
                        mov.u32(word, value)
                wait(self.free[slot], parity ^ 1, cluster=True)
                for address, sent in others:
                    send(smem.SharedAddress(0, address + slot * (4 * self.WORDS)), Vec((index, *words)), sent[slot])
            with else_():
                mbarrier.arrive.expect_tx.shared__cta.b64(self.sent[slot], 4 * self.WORDS)
                wait(self.sent[slot], parity)
                for word, value in zip((index, *words), _get(self.received.at(slot * self.WORDS)), strict=True):
                    mov.u32(word, value)
            wait(self.empty[slot], parity ^ 1)
            _put(self.slots.at(slot * self.WORDS), (index, *words))
            mbarrier.arrive.shared__cta.b64(self.full[slot])
            more.break_if(index >= count)
            with if_(draws):
                ticket = counter.draw()
            position.advance()
            yield index, *words
            with if_(draws):
                mov.u32(index, counter.next_index(ticket))
            with else_():
                mbarrier.arrive.release.cluster.shared__cluster.b64(free[position.stage ^ 1])
        with if_(draws):                                        # the first CTA must not exit before the last arrivals
            wait(self.free[position.stage ^ 1], position.parity ^ 1 ^ position.stage)


def _get(slot: Shared[u32]) -> tuple[Reg[u32], ...]:
    """The words of a slot."""
    return *ld.shared__cta.v2.u32(slot), *ld.shared__cta.v2.u32(slot + 2)


def _put(slot: Shared[u32], words: Sequence[Reg[u32]], p: Reg[pred] | None = None) -> None:
    """Write a slot, two words at a time: slots are aligned to 8 bytes."""
    for i in range(0, len(words), 2):
        st.shared__cta.v2.u32(slot + i, Vec(words[i:i + 2]), pred=p)


__all__ = ["ClusterDynamicScheduler", "DynamicScheduler"]
