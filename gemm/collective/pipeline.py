"""Layer 3: the ring of stages between a producer thread, which fills them, and mma warpgroups, which read them.

A producer acquires a stage, copies into it, and goes on; a consumer waits for a stage, reads it, and releases it. The pieces know nothing
of what the stages hold, so that any kernel can have a ring of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ptxkit import MBarrier, MBarriers, Reg, Ring, ring, smem
from ptxkit.idioms import init_barriers, remote, wait
from ptxkit.ptx import bar, fence, mbarrier
from ptxkit.types import pred, u32

from .cluster import Cluster

Counts = tuple[MBarriers, int]
"""Barriers, and the arrivals of a phase of each."""


class Pipeline:
    """full[stage] and empty[stage].

    Arrivals a phase. full: 1, the producer's arrive.expect_tx of the whole stage (what peers multicast into it counts here too), and
    `copying_lanes` more where a warp's lanes copy into the stage themselves. empty: one thread of every warpgroup that reads the stage, in
    every CTA that this CTA's copies reach; with `by_warp`, where threads read a stage through the generic proxy, one of every warp.
    """

    def __init__(self, stages: int, readers: int, cluster: Cluster | None = None, *, by_warp: bool = False, copying_lanes: int = 0,
                 name: str = "") -> None:
        self.stages, self.by_warp, self.copying_lanes = stages, by_warp, copying_lanes
        self.cluster = cluster or Cluster()
        self.readers = readers * (4 if by_warp else 1)
        self.full, self.empty = smem.mbarrier(stages, name=f"{name}full"), smem.mbarrier(stages, name=f"{name}empty")

    @property
    def counts(self) -> tuple[Counts, Counts]:
        """The barriers and their arrivals."""
        return (self.full, 1 + self.copying_lanes), (self.empty, self.cluster.peers * self.readers)

    def init(self, *more: Counts) -> None:
        """In one thread: every barrier, these and more, and the fence for the CTAs of the cluster."""
        init_barriers(*self.counts, *more)

    def acquire(self, stage: Reg[u32], parity: Reg[u32]) -> None:
        """Wait until the stage is empty."""
        wait(self.empty[stage], parity ^ 1)

    def expect(self, stage: Reg[u32], bytes: Reg[u32] | int) -> MBarrier:
        """Arrive for the producer, and expect so many bytes; the barrier that the copies complete on."""
        mbarrier.arrive.expect_tx.shared__cta.b64(self.full[stage], bytes)
        return self.full[stage]

    def producer_tail(self, position: Ring) -> None:
        """Wait until every stage is empty: nobody arrives in, or multicasts into, a CTA that has exited."""
        with ring(position, self.stages) as (_, stage, parity):
            wait(self.empty[stage], parity ^ 1)


@dataclass(frozen=True, slots=True)
class ConsumerSide:
    """One mma warpgroup's side of a pipeline. `thread` counts within the warpgroup."""

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
        """Wait until the stage has landed."""
        wait(self.pipeline.full[stage], parity)

    def have_read(self) -> None:
        """Where lanes read a stage through the generic proxy: a copy may write over it, and one lane speaks for its warp.

        Call it while products are under way, where it costs nothing.
        """
        if self.pipeline.by_warp:
            fence.proxy.async_.shared__cta()
            bar.warp.sync(0xFFFFFFFF)

    def release(self, stage: Reg[u32] | int, p: Reg[pred] | None = None) -> None:
        """Say that this warpgroup has read the stage, where `p` holds (by default in each thread that speaks to a CTA)."""
        barrier: MBarrier = self.released[stage]
        arrive: Any = mbarrier.arrive.shared__cluster.b64 if self.pipeline.cluster.size > 1 else mbarrier.arrive.shared__cta.b64
        arrive(barrier, pred=self.releases if p is None else p)


__all__ = ["ConsumerSide", "Counts", "Pipeline"]
