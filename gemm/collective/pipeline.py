"""Layer 3: the ring of stages between a producer thread, which fills them, and mma warpgroups, which read them.

The producer acquires a stage and copies into it. A consumer waits for a stage, reads it and releases it. The classes do not depend on the
contents of a stage, so any kernel can use them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ptxkit import MBarrier, MBarriers, Reg
from ptxkit.idioms import remote, wait
from ptxkit.pipeline import Stages
from ptxkit.ptx import bar, fence, mbarrier
from ptxkit.types import pred, u32

from .cluster import Cluster

Counts = tuple[MBarriers, int]
"""mbarriers, and the arrivals of one phase of each."""


class Pipeline(Stages):
    """The stages of a producer, for the CTAs of a cluster. `ConsumerSide` is the other side.

    Arrivals of a phase. full: 1, the producer's arrive.expect_tx with the bytes of the whole stage, including those that peers multicast;
    and `copying_lanes`, if the lanes of a warp copy into the stage too. empty: one thread of every warpgroup that reads the stage, in every
    CTA that this CTA's copies reach. With `by_warp` it is one thread of every warp: its threads read the stage through the generic proxy.

    `by_threads`: threads copy operands into the stage, which wgmma reads through the async proxy. A copy of cp.async has no thread that
    could execute a proxy fence after it, so the readers do, after they have waited. Then `tensor_copies` says whether there is an
    arrive.expect_tx besides.
    """

    def __init__(self, stages: int, readers: int, cluster: Cluster | None = None, *, by_warp: bool = False, copying_lanes: int = 0,
                 by_threads: bool = False, tensor_copies: bool = True, name: str = "") -> None:
        self.by_warp, self.copying_lanes, self.by_threads, self.tensor_copies = by_warp, copying_lanes, by_threads, tensor_copies
        self.cluster = cluster or Cluster()
        self.readers = readers * (4 if by_warp else 1)
        super().__init__(stages, consumers=self.cluster.peers * self.readers, producers=tensor_copies + copying_lanes, name=name)

    def acquire(self, stage: Reg[u32], parity: Reg[u32]) -> None:
        """Wait until the stage is empty."""
        wait(self.empty[stage], parity ^ 1)

    def expect(self, stage: Reg[u32], bytes: Reg[u32] | int) -> MBarrier:
        """The producer's arrive.expect_tx of `bytes`. Returns the mbarrier on which the copies complete."""
        mbarrier.arrive.expect_tx.shared__cta.b64(self.full[stage], bytes)
        return self.full[stage]


@dataclass(frozen=True, slots=True)
class ConsumerSide:
    """One mma warpgroup's side of a pipeline. `thread` is the thread's index in the warpgroup."""

    pipeline: Pipeline
    thread: Reg[u32]
    released: MBarriers = field(init=False)
    releases: Reg[pred] = field(init=False)

    def __post_init__(self) -> None:
        cluster, empty = self.pipeline.cluster, self.pipeline.empty
        who = self.thread & 31 if self.pipeline.by_warp else self.thread
        object.__setattr__(self, "released", remote(empty, who) if cluster.size > 1 else empty)
        object.__setattr__(self, "releases", cluster.reaches_here(who))

    def wait(self, stage: Reg[u32] | int, parity: Reg[u32]) -> None:
        """Wait until the stage has landed, and is visible to wgmma."""
        wait(self.pipeline.full[stage], parity)
        if self.pipeline.by_threads:
            fence.proxy.async_.shared__cta()

    def have_read(self) -> None:
        """With `by_warp`: order this warp's generic-proxy reads of a stage before the copies that overwrite it.

        Call it while wgmma are in flight: then it costs no time.
        """
        if self.pipeline.by_warp:
            fence.proxy.async_.shared__cta()
            bar.warp.sync(0xFFFFFFFF)

    def release(self, stage: Reg[u32] | int, p: Reg[pred] | None = None) -> None:
        """Arrive on empty[stage] in the threads where `p` holds (None: one thread for each CTA whose copies reach this one)."""
        barrier: MBarrier = self.released[stage]
        arrive: Any = mbarrier.arrive.shared__cluster.b64 if self.pipeline.cluster.size > 1 else mbarrier.arrive.shared__cta.b64
        arrive(barrier, pred=self.releases if p is None else p)


__all__ = ["ConsumerSide", "Counts", "Pipeline"]
