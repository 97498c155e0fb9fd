"""Schedules: which fragment runs next, when asynchronous operations land, what an election or a failed wait may do.

Whatever a schedule does, the hardware may do. The adversaries each do one thing that tests on a GPU hardly ever see.
"""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING, Any

from .asked import SCHEDULES, PolicyBase
from .errors import SimulationError

if TYPE_CHECKING:
    from .fragment import Fragment
    from .machine import Machine
    from .program import Op
    from .tasks import Task

STARVED_TURNS = 24
"""How many turns in a row others may have before a starved fragment that is ready gets one: whoever polls may wait for it."""


class Patience:
    """How long some may go before others that are ready: a few turns, or until nothing comes of it (they poll, for what others will do)."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.turns = self.idle = self.before = 0
        self.first = False

    def look(self) -> None:
        """Before a choice: what has come of the last one."""
        if self.first:
            self.idle = self.idle + 1 if self.machine.progress == self.before else 0

    def chose(self, f: Fragment, first: bool) -> Fragment:
        self.first, self.before = first, self.machine.progress
        return f

    def over(self) -> bool:
        """Another turn out of order: whether that is one too many."""
        self.turns += 1
        if self.turns <= STARVED_TURNS and not self.polls:
            return False
        self.turns = 0
        return True

    @property
    def polls(self) -> bool:
        return self.idle >= STARVED_TURNS


class Policy(PolicyBase):
    """First come, first run, until it blocks; asynchronous operations land at issue."""

    def begin(self, machine: Machine) -> None:
        """Before the first turn. A run may begin again: a policy object starts anew here."""

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
    """Anything at any time, by seed; one seed in four lands at issue, one only when everybody waits."""

    name = "random"

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.random = random.Random(seed)
        self.eagerness = (0.3, 1.0, 0.0, 0.7)[seed % 4]

    def next(self, ready: deque[Fragment]) -> Fragment:
        return _take(ready, self.random.randrange(len(ready)))

    def lands_at_once(self, what: Any) -> bool:
        return self.random.random() < self.eagerness

    def between(self, machine: Machine) -> None:
        if self.eagerness and machine.flying and self.random.random() < 0.5:
            machine.land(self.random.choice(machine.flying), self.random.choice((1, 2)))

    def choose(self, tasks: list[Task]) -> list[Task]:
        return [self.random.choice(tasks)]

    def elect(self, mask: int) -> int:
        return self.random.choice([lane for lane in range(32) if mask >> lane & 1])

    def fails(self, f: Fragment) -> bool:
        return self.random.random() < 0.05

    def turn(self, f: Fragment) -> int:
        return self.random.choice((1, 1, 2, 5, 20, self.quantum))


class Lazy(Policy):
    """Asynchronous operations land only when everybody waits, the newest first, one at a time."""

    name = "lazy"

    def lands_at_once(self, what: Any) -> bool:
        return False

    def choose(self, tasks: list[Task]) -> list[Task]:
        return tasks[-1:]


class Reverse(Policy):
    """The last warp of the last CTA first; now and then the one that has waited longest, which a last one may be waiting for."""

    name = "reverse"

    def begin(self, machine: Machine) -> None:
        self.patience = Patience(machine)

    def next(self, ready: deque[Fragment]) -> Fragment:
        self.patience.look()
        if self.patience.over():
            return self.patience.chose(ready.popleft(), first=False)
        return self.patience.chose(_take(ready, max(range(len(ready)), key=lambda i: _place(ready[i]))), first=True)

    def turn(self, f: Fragment) -> int:
        return 50


class ElectHigh(Policy):
    """Elections pick the highest lane."""

    name = "elect-high"

    def elect(self, mask: int) -> int:
        return mask.bit_length() - 1


class Spurious(Policy):
    """Each try_wait may say no although its phase has completed: it says so at every other chance."""

    name = "spurious"

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.random = random.Random(seed)
        self.failed: set[Fragment] = set()

    def fails(self, f: Fragment) -> bool:
        if f in self.failed:
            self.failed.discard(f)
            return self.random.random() < 0.25
        self.failed.add(f)
        return True


class Starve(Policy):
    """Some fragments run only when all others wait."""

    def begin(self, machine: Machine) -> None:
        self.producing = producing(machine)
        self.patience = Patience(machine)

    def starved(self, f: Fragment) -> bool:
        raise NotImplementedError

    def next(self, ready: deque[Fragment]) -> Fragment:
        self.patience.look()
        chosen = 0
        for i, f in enumerate(ready):
            if not self.starved(f):
                chosen = 0 if i and self.patience.over() else i
                break
        first = not self.starved(ready[chosen])
        return self.patience.chose(_take(ready, chosen), first)

    def turn(self, f: Fragment) -> int:
        if self.starved(f):
            return self.quantum if self.patience.polls else 3
        return 50 if self.patience.idle > 1 else self.quantum


class StarveProducer(Starve):
    """Warps that load shared memory asynchronously run last, and what they load comes late."""

    name = "starve-producer"

    def starved(self, f: Fragment) -> bool:
        return self.producing[f.block]

    def lands_at_once(self, what: Any) -> bool:
        return False

    def choose(self, tasks: list[Task]) -> list[Task]:
        return tasks[:1]


class StarveConsumer(Starve):
    """Warps that load nothing asynchronously run last: the loads run as far ahead as the barriers let them."""

    name = "starve-consumer"

    def starved(self, f: Fragment) -> bool:
        return not self.producing[f.block]


class DelayCta(Starve):
    """Of each cluster (of the grid, when it has none) every other CTA runs last, and its operations land late."""

    name = "delay-cta"

    def starved(self, f: Fragment) -> bool:
        return self.delayed(f.cta)

    def delayed(self, cta: Any) -> bool:
        return bool((cta.rank if len(cta.cluster.ctas) > 1 else cta.index) & 1)

    def lands_at_once(self, what: Any) -> bool:
        warp = getattr(what, "warp", None)
        return warp is None or not self.delayed(warp.cta)


class Adversarial(Random):
    """All of it, by seed: every few hundred turns another set of warps starves, and operations land early or late."""

    name = "adversarial"

    def begin(self, machine: Machine) -> None:
        self.producing = producing(machine)
        self.left = 0
        self.patience = Patience(machine)
        self._change()

    def _change(self) -> None:
        self.left = self.random.choice((20, 100, 400))
        self.mode = self.random.choice(("producers", "consumers", "odd", "warp", "reverse", "none"))
        self.victim = self.random.randrange(16)
        self.eagerness = self.random.choice((0.0, 0.0, 0.5, 1.0))
        self.failing = self.random.choice((0.0, 0.1, 0.5))
        self.high = self.random.random() < 0.5

    def _starved(self, f: Fragment) -> bool:
        match self.mode:
            case "producers":
                return self.producing[f.block]
            case "consumers":
                return not self.producing[f.block]
            case "odd":
                return bool(f.cta.index & 1)
            case "warp":
                return f.warp.index % 16 == self.victim
        return False

    def next(self, ready: deque[Fragment]) -> Fragment:
        self.left -= 1
        if self.left < 0:
            self._change()
        self.patience.look()
        last = len(ready) - 1
        if self.mode == "reverse" and not self.patience.over():
            return self.patience.chose(_take(ready, last), first=True)
        for i, f in enumerate(ready):
            if not self._starved(f):
                if i and self.patience.over():
                    break
                return self.patience.chose(_take(ready, i), first=True)
        return self.patience.chose(super().next(ready), first=False)

    def elect(self, mask: int) -> int:
        return mask.bit_length() - 1 if self.high else super().elect(mask)

    def fails(self, f: Fragment) -> bool:
        return self.random.random() < self.failing


POLICIES: dict[str, type[Policy]] = {
    made.name: made for made in (Policy, Random, Lazy, StarveProducer, StarveConsumer, Reverse, ElectHigh, Spurious, DelayCta, Adversarial)}
"""What each of the `SCHEDULES` does."""


def policy_of(schedule: str | PolicyBase, seed: int) -> Policy:
    """The policy of this name, with the seed; one that is given stays as it is."""
    if isinstance(schedule, Policy):
        return schedule
    if not isinstance(schedule, str):
        raise SimulationError(f"schedule={schedule!r} is no name of ptxkit.sim.SCHEDULES, nor a ptxkit.sim.policy.Policy")
    made = POLICIES.get(schedule)
    if made is None:
        raise SimulationError(f"there is no schedule {schedule!r}; there are {', '.join(SCHEDULES)}")
    return made(seed)


def _take(ready: deque[Fragment], i: int) -> Fragment:
    found = ready[i]
    del ready[i]
    return found


def _place(f: Fragment) -> tuple[int, int, int]:
    return f.cta.index, f.warp.index, f.mask


def loads_shared(op: Op) -> bool:
    """Whether the instruction fills shared memory asynchronously: what a producer does."""
    tokens = op.tokens
    if tokens[:2] != ["cp", "async"] or "commit_group" in tokens or "wait_group" in tokens or "prefetch" in tokens:
        return False
    if tokens[2] != "bulk":
        return tokens[2] in ("ca", "cg")
    return any(parameter.operand.access == "r" and parameter.name in ("dstMem", "dst") and str(parameter.operand.space).startswith("shared")
               for parameter, _ in op.parameters())


def producing(machine: Machine) -> list[bool]:
    """For each block whether a thread there can still come to an asynchronous load of shared memory."""
    program = machine.program
    loads = [any(loads_shared(op) for op in block.ops) for block in program.blocks]
    calls = {name: any(loads[i] for i, owner in enumerate(program.owner) if owner is routine) for name, routine in program.routines.items()}
    for block in program.blocks:
        for op in block.ops:
            if op.signature.form.effects.control == "call":
                called = op.operand("func")
                loads[block.index] |= calls.get(getattr(called, "text", ""), False)
    changed = True
    while changed:
        changed = False
        for block in reversed(program.blocks):
            if not loads[block.index] and any(loads[s] for s in block.successors):
                loads[block.index] = changed = True
    return loads
