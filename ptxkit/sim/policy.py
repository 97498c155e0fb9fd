"""Schedules: which fragment runs next, when asynchronous operations land, what an election or a failed wait may do."""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .fragment import Fragment
    from .machine import Machine
    from .tasks import Task


class Policy:
    """First come, first run, until it blocks; asynchronous operations land at issue."""

    name = "fifo"
    quantum = 2000
    """Blocks that a fragment runs before others get a turn."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def next(self, ready: deque[Fragment]) -> Fragment:
        return ready.popleft()

    def lands_at_once(self, what: Any) -> bool:
        """Whether a task, or a wgmma group, runs as soon as it is issued."""
        return True

    def between(self, machine: Machine) -> None:
        """Called between two turns: land what is in flight, or not."""

    def choose(self, tasks: list[Task]) -> list[Task]:
        """Nobody can go on: which tasks in flight land now (at least one)."""
        return tasks

    def elect(self, mask: int) -> int:
        """The lane that an election picks."""
        return (mask & -mask).bit_length() - 1

    def fails(self, f: Fragment) -> bool:
        """Whether a try_wait whose phase has completed still says no."""
        return False

    def turn(self, f: Fragment) -> int:
        """How many blocks this fragment runs before others get a turn."""
        return self.quantum


class Random(Policy):
    """Anything at any time, by seed."""

    name = "random"

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.random = random.Random(seed)

    def next(self, ready: deque[Fragment]) -> Fragment:
        i = self.random.randrange(len(ready))
        ready[0], ready[i] = ready[i], ready[0]
        return ready.popleft()

    def lands_at_once(self, what: Any) -> bool:
        return self.random.random() < 0.3

    def between(self, machine: Machine) -> None:
        if machine.flying and self.random.random() < 0.5:
            machine.land(self.random.choice(machine.flying), self.random.choice((1, 2)))

    def choose(self, tasks: list[Task]) -> list[Task]:
        return [self.random.choice(tasks)]

    def elect(self, mask: int) -> int:
        return self.random.choice([lane for lane in range(32) if mask >> lane & 1])

    def fails(self, f: Fragment) -> bool:
        return self.random.random() < 0.05

    def turn(self, f: Fragment) -> int:
        return self.random.choice((1, 1, 2, 5, 20, self.quantum))


SCHEDULES = {"fifo": Policy, "random": Random}


def policy_of(schedule: str, seed: int) -> Policy:
    from .errors import SimulationError

    made = SCHEDULES.get(schedule)
    if made is None:
        raise SimulationError(f"there is no schedule {schedule!r}; there are {', '.join(SCHEDULES)}")
    return made(seed)
