"""The policy that records a schedule, and the policy that repeats one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from copy import deepcopy
from typing import TYPE_CHECKING, Any, cast

from ..sim import deadlock
from ..sim.milestones import DONE
from ..sim.policy import Patience, Policy, Starve
from ..sim.tasks import Task
from .choices import Choices, Help, Land, Place, Run, Step

if TYPE_CHECKING:
    from ..sim.fragment import Fragment
    from ..sim.machine import Machine


class _Names:
    """Numbers the asynchronous operations, elections and waits of each warp, in its own order."""

    def __init__(self) -> None:
        self.warp: Place = 0, 0
        self._count: dict[tuple[Any, ...], int] = {}
        self.of_task: dict[int, Place] = {}
        self.tasks: dict[Place, Task] = {}

    def runs(self, f: Fragment) -> None:
        self.warp = f.cta.index, f.warp.index

    def next(self, kind: str, *who: int) -> int:
        key = kind, *who
        self._count[key] = number = self._count.get(key, 0) + 1
        return number

    def issued(self, what: Any) -> Place:
        if not isinstance(what, Task):
            return *self.warp, -self.next("wgmma", *self.warp)
        warp = what.warp.cta.index, what.warp.index
        place = *warp, self.next("task", *warp)
        self.of_task[what.number] = place
        self.tasks[place] = what
        return place


class Recording(Policy):
    """Does what another policy does, and writes it down; `choices()` are what has been written.

    `told`, when given, is called with each fragment that gets a turn.
    """

    def __init__(self, inner: Policy, told: Callable[[Fragment], None] | None = None) -> None:
        super().__init__(inner.seed)
        self.fresh = inner
        self.name = inner.name
        self.quantum = inner.quantum
        self.stepwise = inner.stepwise
        self.told = told
        self._anew()

    def _anew(self) -> None:
        self.inner = deepcopy(self.fresh)
        self.names = _Names()
        self.steps: list[Step] = []
        self.late: set[Place] = set()
        self.elections: list[tuple[Place, int]] = []
        self.spurious: set[Place] = set()

    def choices(self) -> Choices:
        return Choices(tuple(self.steps), frozenset(self.late), tuple(self.elections), frozenset(self.spurious), name=self.name,
                       seed=self.seed, stepwise=self.stepwise)

    def begin(self, machine: Machine) -> None:
        self._anew()
        self.inner.begin(machine)
        self._landing = cast("Machine", Landing(machine, self))

    def next(self, ready: deque[Fragment]) -> Fragment:
        f = self.inner.next(ready)
        self.names.runs(f)
        self.steps.append(Run(f.cta.index, f.warp.index, f.first(), self.inner.turn(f)))
        if self.told is not None:
            self.told(f)
        return f

    def turn(self, f: Fragment) -> int:
        """The turn that was asked for when the fragment was chosen."""
        last = self.steps[-1]
        assert isinstance(last, Run)
        return last.blocks

    def lands_at_once(self, what: Any) -> bool:
        where = self.names.issued(what)
        at_once = self.inner.lands_at_once(what)
        if not at_once:
            self.late.add(where)
        return at_once

    def between(self, machine: Machine) -> None:
        self.inner.between(self._landing)

    def landed(self, task: Task, milestone: int) -> None:
        cta, warp, number = self.names.of_task[task.number]
        self.steps.append(Land(cta, warp, number, milestone))

    def choose(self, tasks: list[Task]) -> list[Task]:
        chosen = self.inner.choose(tasks)
        self.steps.append(Help(tuple(self.names.of_task[task.number] for task in chosen)))
        return chosen

    def elect(self, mask: int) -> int:
        lane = self.inner.elect(mask)
        place = *self.names.warp, self.names.next("elect", *self.names.warp)
        if lane != Policy.elect(self, mask):
            self.elections.append((place, lane))
        return lane

    def fails(self, f: Fragment) -> bool:
        place = f.cta.index, f.warp.index, f.first()
        number = self.names.next("fails", *place)
        if not self.inner.fails(f):
            return False
        self.spurious.add((*place, number))
        return True


class Landing:
    """The machine as `between` sees it: what lands is written down."""

    def __init__(self, machine: Machine, recording: Recording) -> None:
        self._machine, self._recording = machine, recording

    def land(self, task: Task, milestone: int = DONE) -> None:
        self._recording.landed(task, milestone)
        self._machine.land(task, milestone)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._machine, name)


class _Last(Starve):
    """Some warps go last; all others first come, first run."""

    def __init__(self, warps: frozenset[Place]) -> None:
        super().__init__()
        self.warps = warps

    def begin(self, machine: Machine) -> None:
        self.patience = Patience(machine)

    def starved(self, f: Fragment) -> bool:
        return (f.cta.index, f.warp.index) in self.warps

    def next(self, ready: deque[Fragment]) -> Fragment:
        return super().next(ready) if self.warps else ready.popleft()

    def turn(self, f: Fragment) -> int:
        return super().turn(f) if self.warps else self.quantum


class Replaying(Policy):
    """Repeats a schedule: exactly where it was recorded, and as far as it still means something in another run.

    A step that cannot be done (its warp waits, its operation is not issued) is left out and counted in `missed`. After the last step
    the order is that of "fifo".
    """

    def __init__(self, choices: Choices, told: Callable[[Fragment], None] | None = None) -> None:
        super().__init__(choices.seed)
        self.name = "replay" if len(choices) else "fifo"
        self.choices = choices
        self.stepwise = choices.stepwise
        self.steps = choices.steps
        self.late = choices.late
        self.elections = dict(choices.elections)
        self.spurious = choices.spurious
        self.told = told
        self.others = _Last(choices.last)
        self._anew()

    def _anew(self) -> None:
        self.names = _Names()
        self.at = 0
        self.missed = 0
        self.blocks = self.quantum
        self._turn: tuple[int, Fragment] | None = None
        self._ends: dict[int, str] = {}

    def words(self) -> list[str]:
        """After a run: the choices as sentences, with where each turn ended."""
        self._look()
        operations = {task: deadlock.place(self.names.tasks[task].op) for task in self.late if task in self.names.tasks}
        return list(self.choices.words(operations, self._ends))

    def _look(self) -> None:
        """Where the fragment that had the turn of a step is now."""
        if self._turn is not None:
            step, f = self._turn
            self._ends[step] = _stopped(f)
            self._turn = None

    def begin(self, machine: Machine) -> None:
        self._anew()
        self.others.begin(machine)

    def next(self, ready: deque[Fragment]) -> Fragment:
        if self._turn is not None:
            self._look()
        f = self._chosen(ready)
        self.names.runs(f)
        if self.told is not None:
            self.told(f)
        return f

    def _chosen(self, ready: deque[Fragment]) -> Fragment:
        while self.at < len(self.steps):
            step = self.steps[self.at]
            self.at += 1
            if isinstance(step, Run):
                for i, f in enumerate(ready):
                    if f.cta.index == step.cta and f.warp.index == step.warp and f.mask >> step.lane & 1:
                        del ready[i]
                        self.blocks = step.blocks
                        self._turn = self.at - 1, f
                        return f
            self.missed += 1
        f = self.others.next(ready)
        self.blocks = self.others.turn(f)
        return f

    def turn(self, f: Fragment) -> int:
        return self.blocks

    def lands_at_once(self, what: Any) -> bool:
        where = self.names.issued(what)
        return where not in self.late and (*where[:2], 0) not in self.late

    def between(self, machine: Machine) -> None:
        while self.at < len(self.steps):
            step = self.steps[self.at]
            if not isinstance(step, Land):
                return
            self.at += 1
            task = self.names.tasks.get((step.cta, step.warp, step.number))
            if task is None:
                self.missed += 1
            elif task.state < step.milestone:
                machine.land(task, step.milestone)

    def choose(self, tasks: list[Task]) -> list[Task]:
        step = self.steps[self.at] if self.at < len(self.steps) else None
        if not isinstance(step, Help):
            return tasks
        self.at += 1
        wanted = [self.names.tasks.get(place) for place in step.tasks]
        return [task for task in wanted if task is not None and task in tasks] or tasks

    def elect(self, mask: int) -> int:
        place = *self.names.warp, self.names.next("elect", *self.names.warp)
        lane = self.elections.get(place)
        return lane if lane is not None and mask >> lane & 1 else super().elect(mask)

    def fails(self, f: Fragment) -> bool:
        place = f.cta.index, f.warp.index, f.first()
        return (*place, self.names.next("fails", *place)) in self.spurious


def _stopped(f: Fragment) -> str:
    if f.wait is not None:
        return f"until it waits at {deadlock.place(f.wait.op)}"
    if not f.warp.live:
        return "to its end"
    ops = f.machine.program.blocks[f.block].ops if f.mask and f.block >= 0 else ()
    return f"up to {deadlock.place(ops[0])}" if ops else "until its lanes join others"
