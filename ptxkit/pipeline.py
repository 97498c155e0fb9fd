"""A pipeline of stages between producers and consumers, and named barriers. Each docstring says what is emitted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .dsl.ambient import current
from .dsl.reg import Index, Negated, Reg, Special
from .dsl.uncalled import EmittingMethods, Handle
from .errors import TraceError
from .flow import Ring, ring
from .grammar.limits import MBARRIER
from .idioms import init_barriers, wait
from .ptx import bar, fence, mbarrier
from .smem import MBarrier, MBarriers
from .smem import mbarrier as allocate
from .types import pred, u32

NAMED = 16
"""Named barriers of a CTA."""


class Stages(EmittingMethods):
    """The mbarriers full[stage] and empty[stage] of a ring of `stages`, and how many arrivals end a phase of each."""

    __slots__ = ("counts", "empty", "full", "stages")

    def __init__(self, stages: int, *, producers: int, consumers: int, name: str = "") -> None:
        for what, count in (("producers", producers), ("consumers", consumers)):
            if not isinstance(count, Reg) and (type(count) is not int or not 1 <= count <= MBARRIER):
                raise TraceError(f"{what}={count!r}: a phase waits for 1 to {MBARRIER:,} arrivals; say how many threads arrive for a stage")
        self.stages = stages
        self.full: MBarriers = allocate(stages, name=f"{name}full")
        self.empty: MBarriers = allocate(stages, name=f"{name}empty")
        self.counts = (self.full, producers), (self.empty, consumers)
        """The mbarriers and their arrival counts, for `init_barriers`."""

    def init(self, *more: tuple[MBarriers, int]) -> None:
        """In one thread: mbarrier.init of these mbarriers and of `more`, and fence.mbarrier_init. A barrier of the block follows."""
        init_barriers(*self.counts, *more)

    def producer_tail(self, position: Ring) -> None:
        """Before the producer exits: wait until every stage is empty, in a `ring` over the stages. No CTA may arrive at, or multicast into,
        one that has exited."""
        with ring(position, self.stages) as (_, stage, parity):
            wait(self.empty[stage], parity ^ 1)


class Pipeline(Stages):
    """Stages between producers and consumers of one CTA. The stage and the parity are those of `ring`.

    Arrivals of a phase. full: `producers`; with `bytes` that is 1, the arrive.expect_tx of `producer_acquire`, and the copies complete it.
    empty: `consumers`, the number of threads that execute `consumer_release` for a stage.

    `generic`: consumers read with ld or ldmatrix what copies write. Then each of them orders its reads before the copies that follow.
    """

    __slots__ = ("bytes", "generic")

    def __init__(self, stages: int, *, consumers: int, bytes: int | None = None, producers: int = 1, generic: bool = False,
                 name: str = "") -> None:
        if bytes is not None and producers != 1:
            raise TraceError(f"one thread arms a stage of {bytes} bytes, not {producers}: leave producers= or bytes= out")
        if bytes is not None and not isinstance(bytes, Reg) and (type(bytes) is not int or not 0 <= bytes <= MBARRIER):
            raise TraceError(f"bytes={bytes!r}: copies bring 0 to {MBARRIER:,} bytes to a stage; add up `tile.layout.bytes` of its tiles")
        super().__init__(stages, producers=producers, consumers=consumers, name=name)
        self.bytes, self.generic = bytes, generic

    def producer_acquire(self, stage: Index, parity: Reg[u32] | int, bytes: Reg[u32] | int | None = None) -> MBarrier:
        """Wait until the stage is empty. Returns full[stage], on which the copies complete.

        Emits an xor and the loop of `wait`; and with bytes, here or in the constructor, mbarrier.arrive.expect_tx.
        """
        number = isinstance(parity, int) and parity in (0, 1)
        if not number and not (isinstance(parity, Reg) and parity.type.register == "b32"):
            raise TraceError(f"the parity of a stage is 0, 1 or a 32-bit register, as `ring` gives it, not {parity!r}")
        wait(self.empty[stage], parity ^ 1)
        full, expected = self.full[stage], self.bytes if bytes is None else bytes
        if expected is not None:
            mbarrier.arrive.expect_tx.shared__cta.b64(full, expected)
        return full

    def producer_commit(self, stage: Index) -> None:
        """This thread has written its part of the stage: one mbarrier.arrive. Nothing for a pipeline with bytes, which copies complete."""
        if self.bytes is None:
            mbarrier.arrive.shared__cta.b64(self.full[stage])

    def consumer_wait(self, stage: Index, parity: Reg[u32] | int) -> None:
        """Wait until the stage is full: the loop of `wait`."""
        wait(self.full[stage], parity)

    def consumer_release(self, stage: Index, *, pred: Reg[pred] | Negated | None = None) -> None:
        """This thread has read the stage: one mbarrier.arrive; with `generic` a fence.proxy.async before it."""
        if self.generic:
            fence.proxy.async_.shared__cta()
        mbarrier.arrive.shared__cta.b64(self.empty[stage], pred=pred)


class NamedBarrier(EmittingMethods):
    """One of the 16 barriers of a CTA, for `threads` of its threads, in whole warps. Number 0 is that of `bar.sync(0)`.

    Without a `number` it gets the lowest one that no object before it has. `NamedBarriers` are several, which a register chooses.
    """

    __slots__ = ("number", "threads")

    def __init__(self, threads: int, number: Index | None = None) -> None:
        builder = current()
        _check_threads(threads)
        self.threads = threads
        self.number = take(1) if number is None else number.read() if isinstance(number, Special) else number
        if type(self.number) is not int and not (isinstance(self.number, Reg) and self.number.type.register == "b32"):
            raise TraceError(f"a named barrier is called by an int or a 32-bit register, not {self.number!r}")
        if isinstance(self.number, int) and not 0 <= self.number < NAMED:
            raise TraceError(f"a CTA has {NAMED} barriers, 0 to {NAMED - 1}, and this is number {self.number}")
        if isinstance(self.number, int):
            builder.module.barriers.add(self.number)

    def sync(self) -> None:
        """Wait until all threads have arrived: one bar.sync."""
        bar.sync(self.number, b=self.threads)

    def arrive(self) -> None:
        """Arrive and do not wait: one bar.arrive."""
        bar.arrive(self.number, self.threads)


class NamedBarriers(Handle):
    """`count` named barriers for `threads` threads each. `barriers[i]` is a `NamedBarrier`: for a register one add."""

    __slots__ = ("count", "first", "threads")

    def __init__(self, count: int, threads: int) -> None:
        _check_threads(threads)
        if type(count) is not int or count < 1:
            raise TraceError(f"NamedBarriers({count!r}, {threads}): ask for 1 to {NAMED - 1} barriers, an int")
        self.count, self.threads = count, threads
        self.first = take(count)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: Index) -> NamedBarrier:
        if isinstance(index, int) and not 0 <= index < self.count:
            raise TraceError(f"barrier {index} of {self.count} named barriers")
        if type(index) is not int and not isinstance(index, Reg | Special):
            raise TraceError(f"named barriers are indexed with an int or a 32-bit register, not {index!r}")
        return NamedBarrier(self.threads, index + self.first)

    def __iter__(self) -> Iterator[NamedBarrier]:
        return (self[i] for i in range(self.count))


def _check_threads(threads: Any) -> None:
    """Raise TraceError unless a barrier for so many threads can open."""
    most = current().module.threads
    if type(threads) is not int or threads % 32 or not 32 <= threads <= 1024:
        raise TraceError(f"a named barrier is for whole warps, 32 to 1024 threads, not {threads!r}")
    if most is not None and threads > most:
        raise TraceError(f"a named barrier for {threads} threads would never open: the block has {most}")


def take(count: int) -> int:
    """The first of `count` neighbouring numbers that no named barrier has. 0 is left to `bar.sync(0)`."""
    taken = current().module.barriers
    first = next((i for i in range(1, NAMED + 1 - count) if taken.isdisjoint(range(i, i + count))), None)
    if first is None:
        raise TraceError(f"a CTA has {NAMED} barriers: {len(taken)} are taken, number 0 for `bar.sync(0)`, and {count} more, next to each "
                         "other, are asked for")
    taken.update(range(first, first + count))
    return first


__all__ = ["NamedBarrier", "NamedBarriers", "Pipeline", "Stages"]
