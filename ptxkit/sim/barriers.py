"""Barriers: mbarriers, the named barriers of a CTA, the barrier of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..grammar.limits import MBARRIER
from .errors import Fault
from .values import mask_of

if TYPE_CHECKING:
    from .cta import Cluster, Cta, Warp
    from .fragment import Fragment
    from .program import Op

TAGS = 1 << 20
"""How many mbarriers the tokens of arrivals tell apart."""


class MBarrier:
    """One mbarrier object. `place` is its byte in the cluster's shared memory.

    `phase` numbers the phase that is not complete yet; hardware shows its lowest bit. A phase completes when `pending` is 0 and
    `tx` is 0. `tx` may be negative for a while: bytes may come before they are announced.
    """

    __slots__ = ("arrivals", "before", "cta", "expected", "most", "pending", "phase", "place", "seen", "shadow", "tx", "waiters")

    def __init__(self, cta: Cta, place: int, count: int) -> None:
        self.cta = cta
        self.place = place
        self.expected = self.pending = count
        self.tx = 0
        self.phase = 0
        self.waiters: list[Fragment] = []
        self.arrivals: dict[Warp, int] = {}
        """Who has arrived in this phase, how often; `before`: in the last one; `most`: the most arrivals that a phase has had."""
        self.before: dict[Warp, int] = {}
        self.most = 0
        self.seen: dict[Warp, int] = {}
        """The last phase that each waiting warp has seen complete."""
        self.shadow: Any = None

    @property
    def offset(self) -> int:
        """Its offset in the CTA's shared memory."""
        return self.place - self.cta.start

    @property
    def name(self) -> str:
        return self.cta.machine.name_of(self.offset)

    def arrive(self, count: int, op: Op, who: Warp) -> None:
        if count > self.pending:
            raise Fault("mbarrier-underflow", f"{who!r} arrives {count} times on {self}, which awaits {self.pending} more in phase "
                        f"{self.phase}", "the init count is too small, or a phase is arrived on twice", op)
        self.pending -= count
        self.arrivals[who] = self.arrivals.get(who, 0) + count
        self.check()

    def expect(self, count: int, op: Op, who: Warp) -> None:
        """Announce bytes for this phase."""
        self.tx += count
        if self.tx > MBARRIER:
            raise _overflow(f"{who!r} announces {count:,} bytes on {self}: {self.tx:,} are outstanding", op)

    def complete_tx(self, count: int, op: Op, who: Warp) -> None:
        """Bytes have come; who announces them later must not be late by more than the barrier can count."""
        self.tx -= count
        if self.tx < -MBARRIER:
            raise _overflow(f"{count:,} bytes of {who!r} complete on {self}: {-self.tx:,} have come that nothing has announced yet", op)
        self.check()

    def check(self) -> None:
        if self.pending == 0 and self.tx == 0:
            machine = self.cta.machine
            self.phase += 1
            self.pending = self.expected
            self.before, self.arrivals = self.arrivals, {}
            self.most = max(self.most, self.expected)
            machine.progress += 1
            if machine.watch is not None:
                machine.watch.mbarrier_flip(self, self.phase - 1)
            machine.wake(self.waiters)

    def done(self, parity: int) -> bool:
        """Whether the phase of this parity is the one that has completed last."""
        return self.phase & 1 != parity

    def state(self) -> int:
        """The token that an arrive returns."""
        return (self.place >> 3) % TAGS << 44 | self.phase << 20 | self.pending

    def meant(self, state: int, op: Op, who: Warp) -> int:
        """The phase of a token; a fault where PTX does not define what a wait for it says."""
        phase = state >> 20 & (1 << 24) - 1
        if state >> 44 != (self.place >> 3) % TAGS:
            wrong = "is not one that an arrival on it has returned"
        elif phase > self.phase:
            wrong = f"is of phase {phase}, which has not begun"
        elif phase < self.phase - 1:
            wrong = f"is of phase {phase}, now phase {self.phase} is under way: a token is good for the current phase and the one before"
        else:
            return phase
        raise Fault("mbarrier-state", f"{who!r}: `{op.opcode}` on {self} with a token that {wrong}",
                    "wait with the token of the last arrival, before the phase after it completes", op)

    def __str__(self) -> str:
        return f"{self.name} of {self.cta!r}"


def _overflow(what: str, op: Op) -> Fault:
    return Fault("mbarrier-tx-overflow", f"{what}, at most {MBARRIER:,} may be", "split the copies over several barriers", op)


class NamedBarrier:
    """Barrier `index` of a CTA. Each generation collects the threads of whole warps."""

    def __init__(self, cta: Cta, index: int) -> None:
        self.cta = cta
        self.index = index
        self.generation = 0
        self.arrived = 0
        self.count: int | None = None
        self.partial: dict[int, int] = {}
        self.warps: list[Warp] = []
        """The warps that have come in this generation."""
        self.waiters: list[Fragment] = []
        self.votes: dict[int, tuple[str, int, int]] = {}
        self.all = False
        """Whether the generation is for all threads of the CTA, whose number falls when warps exit."""

    def arrive(self, f: Fragment, mask: int, op: Op, count: int | None) -> None:
        """The lanes of a warp; they count once all lanes that live have come."""
        if count is not None and self.count not in (None, count):
            raise Fault("barrier-count",
                        f"{f.warp!r} gives barrier {self.index} {count} threads, others of its generation gave {self.count}",
                        "every thread of one generation names the same count", op)
        self.all = self.all or count is None
        if count is not None:
            self.count = count
        warp = f.warp
        came = self.partial.get(warp.index, 0) | mask
        if came & warp.live == warp.live:
            self.partial.pop(warp.index, None)
            self.arrived += 32
            self.warps.append(warp)
        else:
            self.partial[warp.index] = came

    def vote(self, generation: int, reduction: str, mask: int, p: Any) -> None:
        """The predicates of a bar.red: (its reduction, lanes that came, lanes where it holds)."""
        _, came, held = self.votes.get(generation, (reduction, 0, 0))
        self.votes[generation] = reduction, came + mask.bit_count(), held + (mask_of(p) & mask).bit_count()

    def result(self, generation: int) -> int | bool:
        reduction, came, held = self.votes[generation]
        return held if reduction == "popc" else held == came if reduction == "and" else held > 0

    def wanted(self) -> int:
        return self.count if self.count is not None else 32 * sum(1 for warp in self.cta.warps if warp.live)

    def check(self) -> bool:
        """Complete the generation if all are there."""
        if not self.arrived or self.arrived < self.wanted():
            return False
        machine = self.cta.machine
        self.generation += 1
        self.arrived, self.count, self.all, self.warps = 0, None, False, []
        machine.progress += 1
        if machine.watch is not None:
            machine.watch.barrier_complete(self, self.generation - 1)
        machine.wake(self.waiters)
        return True

    def __str__(self) -> str:
        return f"barrier {self.index} of {self.cta!r}"


class ClusterBarrier:
    """The barrier of a cluster: every thread arrives once a phase."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.phase = 0
        self.arrived: dict[tuple[int, int], int] = {}
        self.waiters: list[Fragment] = []

    def arrive(self, f: Fragment, mask: int, op: Op) -> None:
        key = f.cta.rank, f.warp.index
        before = self.arrived.get(key, 0)
        if before & mask:
            raise Fault("cluster-barrier-twice", f"{f.warp!r} arrives twice in one phase of the cluster barrier",
                        "pair each barrier.cluster.arrive with a barrier.cluster.wait", op)
        self.arrived[key] = before | mask
        self.check()

    def check(self) -> None:
        """Complete the phase if every live thread has arrived."""
        if not self.arrived:
            return
        for cta in self.cluster.ctas:
            for warp in cta.warps:
                if warp.live and self.arrived.get((cta.rank, warp.index), 0) & warp.live != warp.live:
                    return
        machine = self.cluster.machine
        self.phase += 1
        self.arrived = {}
        machine.progress += 1
        if machine.watch is not None:
            machine.watch.cluster_complete(self.cluster, self.phase - 1)
        machine.wake(self.waiters)

    def __str__(self) -> str:
        return f"the barrier of cluster {self.cluster.index}"
