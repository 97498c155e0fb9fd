"""Dynamic tile scheduler, device side: units of work handed out as CTAs get to them."""

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
class OneEnd:
    """Units in the order of their numbers; the counter says how many tickets were drawn."""

    counter: Ptr[u32]
    units: Reg[u32]
    ctas: Reg[u32]

    def draw(self) -> Reg[u32]:
        """Begin to draw a ticket."""
        return atom.relaxed.gpu.global_.add.u32(self.counter, 1)

    def following(self, ticket: Reg[u32]) -> Reg[u32]:
        """The unit of a ticket that was drawn, or one past the last; whoever drew the last ticket sets the counter back."""
        st.relaxed.gpu.global_.u32(self.counter, 0, pred=ticket == self.units - 1)
        return ticket + self.ctas


@dataclass(frozen=True, slots=True)
class BothEnds:
    """The same, where `behind` CTAs go `backwards` from the last unit until all have met. The counter has two halves of 32 bits: how many
    tickets were drawn at either end."""

    counter: Ptr[u64]
    units: Reg[u32]
    ctas: Reg[u32]
    from_tail: Reg[u32]
    front: Reg[u32]
    backwards: Reg[pred]
    one: Reg[u64]                               # what a ticket of this CTA's end adds

    @classmethod
    def begin(cls, counter: Ptr[u32], units: Reg[u32], unit: Reg[u32], ctas: Reg[u32], from_tail: int) -> BothEnds:
        """For one of so many CTAs, whose first `unit` is put right if it goes backwards."""
        halves = counter.cast(u64)
        behind = min_.u32(ctas // 2, from_tail)
        backwards = (unit >= ctas - behind) & (units > ctas)
        mov.u32(unit, units - (ctas - unit), pred=backwards)
        one, front = selp.u64(1 << 32, 1, backwards), ctas - behind
        return cls(halves, units, ctas, behind, front, backwards, one)

    def draw(self) -> Reg[u64]:
        """Begin to draw a ticket."""
        return atom.relaxed.gpu.global_.add.u64(self.counter, self.one)

    def following(self, ticket: Reg[u64]) -> Reg[u32]:
        """The unit of a ticket that was drawn, or one past the last; whoever drew the last ticket sets the counter back."""
        ahead, back = cvt.u32.u64(ticket), cvt.u32.u64(shr.u64(ticket, 32))
        drawn = ahead + back
        st.relaxed.gpu.global_.u64(self.counter, 0, pred=drawn == self.units - 1)
        here = selp.u32(self.units - (back + self.from_tail + 1), ahead + self.front, self.backwards)
        return selp.u32(here, self.units, drawn + self.ctas < self.units)


@dataclass(frozen=True, slots=True)
class Tickets:
    """Units handed out as CTAs get to them: the first to each by its number, every further one by a counter in global memory.

    The producer's thread draws a ticket while it loads the tile before, finds out where that unit is, and passes both on through a ring
    of slots, so that who multiplies begins without a division. full[slot]: 1, its arrive. empty[slot]: a lane of every warp that works on
    what is drawn, when the warp has read the slot. As many tickets are drawn as there are units, so whoever draws the last sets the
    counter back to 0 for the next launch. With `from_tail` so many CTAs, at most every second one, begin with the last units (`BothEnds`).
    """

    counter: Ptr[u32]
    warps: int
    from_tail: int = 0                           # CTAs that go through the units from the last one on
    slots: Shared[u32] = field(init=False)
    full: MBarriers = field(init=False)
    empty: MBarriers = field(init=False)

    SLOTS = 2
    WORDS = 4                                   # of a slot: the unit, and up to three that say where it is
    BYTES = SLOTS * (4 * WORDS + 2 * 8)         # of shared memory

    def __post_init__(self) -> None:
        object.__setattr__(self, "slots", smem.array(u32, self.SLOTS * self.WORDS, align=8, name="tickets"))
        object.__setattr__(self, "full", smem.mbarrier(self.SLOTS, name="ticket is there"))
        object.__setattr__(self, "empty", smem.mbarrier(self.SLOTS, name="ticket is read"))

    @property
    def counts(self) -> tuple[tuple[MBarriers, int], ...]:
        """For `Pipeline.init`."""
        return (self.full, 1), (self.empty, self.warps)

    @contextmanager
    def drawn(self, units: Reg[u32], place: Callable[[Reg[u32]], Sequence[Reg[u32]]]) -> Iterator[Sequence[Reg[u32]]]:
        """The producer's loop, in one thread: each unit, and what `place` says of it."""
        unit, position = mov.u32(ctaid.x), Ring(self.SLOTS)
        ends = self._ends(units, unit, mov.u32(nctaid.x))
        with loop() as more:
            wait(self.empty[position.stage], position.parity ^ 1)
            slot, over = self.slots.at(position.stage * self.WORDS), unit >= units
            _put(slot, [unit] * self.WORDS, over)
            mbarrier.arrive.shared__cta.b64(self.full[position.stage], pred=over)
            more.break_if(over)
            ticket = ends.draw()
            words = place(unit)
            _put(slot, [unit, *words, *[unit] * (self.WORDS - 1 - len(words))])
            mbarrier.arrive.shared__cta.b64(self.full[position.stage])
            position.advance()
            yield unit, *words
            mov.u32(unit, ends.following(ticket))

    @contextmanager
    def passed_on(self, units: Reg[u32], turn: Reg[u32] | int, turns: int) -> Iterator[Sequence[Reg[u32]]]:
        """A loop of those who multiply, in whole warps, over the same; of every `turns` tickets only number `turn`."""
        position, number = Ring(self.SLOTS), mov.u32(0)
        with loop() as more:
            wait(self.full[position.stage], position.parity)
            unit, *words = _taken(self.slots.at(position.stage * self.WORDS))
            bar.warp.sync(0xFFFFFFFF)
            mbarrier.arrive.shared__cta.b64(self.empty[position.stage], pred=mov.u32(laneid) == 0)
            position.advance()
            more.break_if(unit >= units)
            if turns > 1:
                mine = number == turn
                mov.u32(number, number ^ 1)
                more.continue_if(~mine)
            yield unit, *words

    def _ends(self, units: Reg[u32], unit: Reg[u32], drawers: Reg[u32]) -> Any:
        """How one of so many draws, whose first `unit` this is."""
        if self.from_tail:
            return BothEnds.begin(self.counter, units, unit, drawers, self.from_tail)
        return OneEnd(self.counter, units, drawers)


@dataclass(frozen=True, slots=True)
class ClusterTickets(Tickets):
    """Units handed out to clusters of `size` CTAs as they get to them: the first CTA's producer draws for all.

    It sends what it draws to the producer of each other CTA by st.async; each passes it on in its own CTA, as above. sent[slot], of those
    others: 1, their producer's arrive.expect_tx. free[slot], of the first CTA: the other producers, when they have loaded that tile. Nobody
    else of a CTA synchronises with another's: a release at the scope of the cluster takes a consumer, who has stores under way, too long.
    `from_tail` counts clusters.
    """

    size: int = field(default=2, kw_only=True)
    received: Shared[u32] = field(init=False)
    sent: MBarriers = field(init=False)
    free: MBarriers = field(init=False)

    BYTES = 2 * Tickets.BYTES

    def __post_init__(self) -> None:
        Tickets.__post_init__(self)
        object.__setattr__(self, "received", smem.array(u32, self.SLOTS * self.WORDS, align=16, name="tickets of the cluster"))
        object.__setattr__(self, "sent", smem.mbarrier(self.SLOTS, name="ticket is sent"))
        object.__setattr__(self, "free", smem.mbarrier(self.SLOTS, name="ticket is done with"))

    @property
    def counts(self) -> tuple[tuple[MBarriers, int], ...]:
        """For `Pipeline.init`."""
        return (self.full, 1), (self.empty, self.warps), (self.sent, 1), (self.free, self.size - 1)

    @contextmanager
    def drawn(self, units: Reg[u32], place: Callable[[Reg[u32]], Sequence[Reg[u32]]]) -> Iterator[Sequence[Reg[u32]]]:
        """The producer's loop, in one thread of each CTA: each unit of the cluster, and what `place` says of it."""
        unit, position, draws = mov.u32(clusterid.x), Ring(self.SLOTS), mov.u32(cluster_ctarank) == 0
        words = [mov.u32(0) for _ in range(self.WORDS - 1)]
        ends, free = self._ends(units, unit, mov.u32(nclusterid.x)), remote(self.free, 0)
        others = [(mapa.shared__cluster.u32(self.received.register(), rank), remote(self.sent, rank)) for rank in range(1, self.size)]
        send: Any = opcode("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.u32")
        with loop() as more:
            slot, parity = position.stage, position.parity
            with if_(draws):
                with if_(unit < units):
                    for word, value in zip(words, place(unit), strict=False):
                        mov.u32(word, value)
                wait(self.free[slot], parity ^ 1, cluster=True)
                for there, sent in others:
                    send(smem.SharedAddress(0, there + slot * (4 * self.WORDS)), Vec((unit, *words)), sent[slot])
            with else_():
                mbarrier.arrive.expect_tx.shared__cta.b64(self.sent[slot], 4 * self.WORDS)
                wait(self.sent[slot], parity)
                for word, value in zip((unit, *words), _taken(self.received.at(slot * self.WORDS)), strict=True):
                    mov.u32(word, value)
            wait(self.empty[slot], parity ^ 1)
            _put(self.slots.at(slot * self.WORDS), (unit, *words))
            mbarrier.arrive.shared__cta.b64(self.full[slot])
            more.break_if(unit >= units)
            with if_(draws):
                ticket = ends.draw()
            position.advance()
            yield unit, *words
            with if_(draws):
                mov.u32(unit, ends.following(ticket))
            with else_():
                mbarrier.arrive.release.cluster.shared__cluster.b64(free[position.stage ^ 1])
        with if_(draws):                                        # nobody arrives in a CTA that has exited
            wait(self.free[position.stage ^ 1], position.parity ^ 1 ^ position.stage)


def _taken(slot: Shared[u32]) -> tuple[Reg[u32], ...]:
    """What is in a slot."""
    return *ld.shared__cta.v2.u32(slot), *ld.shared__cta.v2.u32(slot + 2)


def _put(slot: Shared[u32], words: Sequence[Reg[u32]], p: Reg[pred] | None = None) -> None:
    """Write a slot, in pairs of words: slots lie on 8-byte lines."""
    for i in range(0, len(words), 2):
        st.shared__cta.v2.u32(slot + i, Vec(words[i:i + 2]), pred=p)


__all__ = ["ClusterTickets", "Tickets"]
