"""What a session is told of while the device runs: phases that complete, and what tensor copies have left in shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..sim.milestones import DONE
from ..sim.observer import Observer

if TYPE_CHECKING:
    from ..sim.barriers import MBarrier, NamedBarrier
    from ..sim.cta import Cluster
    from ..sim.machine import Machine
    from ..sim.tasks import Task
    from ..sim.tensormap import Box


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase, or the generation of a named barrier, that has completed. `barrier` is the object."""

    barrier: Any
    number: int

    def __str__(self) -> str:
        return f"phase {self.number} of {self.barrier} is complete"


class Events(Observer):
    """`phases` are those since the last `clear`. `boxes`: from a place in a cluster's shared memory to the box that came there last."""

    def __init__(self) -> None:
        self.phases: list[Phase] = []
        self.boxes: dict[tuple[int, int], Box] = {}

    def begin(self, machine: Machine) -> None:
        self.phases.clear()
        self.boxes.clear()

    def mbarrier_flip(self, barrier: MBarrier, phase: int) -> None:
        self.phases.append(Phase(barrier, phase))

    def barrier_complete(self, barrier: NamedBarrier, generation: int) -> None:
        self.phases.append(Phase(barrier, generation))

    def cluster_complete(self, cluster: Cluster, phase: int) -> None:
        self.phases.append(Phase(cluster.barrier, phase))

    def landed(self, task: Task, milestone: int) -> None:
        if milestone == DONE and task.kind == "tensor load" and task.box is not None:
            for region in task.writes:
                self.boxes[task.warp.cta.cluster.index, int(region.starts)] = task.box
