"""The schedule of a session: one instruction a turn, in the order of another schedule until somebody says otherwise."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..replay.choices import Run
from ..replay.policies import Recording

if TYPE_CHECKING:
    from ..sim.fragment import Fragment
    from ..sim.machine import Machine
    from ..sim.policy import Policy
    from ..sim.tasks import Task


class Stepping(Recording):
    """Does what `inner` does, an instruction at a time, and writes the choices down. A turn of `inner` counts its basic blocks, so that
    left alone the order is exactly that of a run under `inner`.

    `keeps`, when set, keeps asynchronous operations in flight until somebody lands them or everybody waits.
    """

    def __init__(self, inner: Policy) -> None:
        super().__init__(inner)
        self.by_instruction = inner.stepwise
        self.stepwise = True
        self.keeps = False
        self.chosen: Fragment | None = None
        self.current: Fragment | None = None
        self.left = 0

    def begin(self, machine: Machine) -> None:
        self.machine = machine
        self.chosen = self.current = None
        self.keeps = False
        self.left = 0
        self.name = self.fresh.name
        super().begin(machine)

    def peek(self) -> Fragment | None:
        """Who executes the next instruction; None: nobody can."""
        ready = self.machine.ready
        if self.chosen is None and ready:
            current = self.current
            if current is None or (ready[-1] is not current and current not in ready):
                self.current = self.inner.next(ready)
                self.left = self.inner.turn(self.current)
                ready.appendleft(self.current)
            self.chosen = self.current
        return self.chosen

    def choose_next(self, f: Fragment) -> None:
        """Let this fragment, which is ready, have the next turn."""
        self.current = self.chosen = f
        self.left = self.inner.quantum

    def next(self, ready: deque[Fragment]) -> Fragment:
        f = self.peek()
        assert f is not None
        if ready[-1] is f:
            ready.pop()
        else:
            ready.remove(f)
        self.names.runs(f)
        last = self.steps[-1] if self.steps else None
        if self.machine.going is f and isinstance(last, Run):
            self.steps[-1] = replace(last, blocks=last.blocks + 1)
        else:
            self.steps.append(Run(f.cta.index, f.warp.index, f.first(), 1))
        self.chosen = None
        return f

    def turn(self, f: Fragment) -> int:
        return 1

    def between(self, machine: Machine) -> None:
        going = self.machine.going
        if going is not None and (self.by_instruction or self.machine.program.blocks[going.block].begins):
            self.left -= 1
        if going is None or self.left <= 0:
            self.current = None
            super().between(machine)
        else:
            self.current = going

    def lands_at_once(self, what: Any) -> bool:
        if not self.keeps:
            return super().lands_at_once(what)
        self.late.add(self.names.issued(what))
        return False

    def land(self, task: Task, milestone: int) -> None:
        """Land an operation that is in flight."""
        self.landed(task, milestone)
        self.machine.land(task, milestone)
