"""What is behind a session: one launch on the machine, turn by turn."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..cards import H200, Card
from ..html.parts import framed, pre
from ..proof.launch import Launch
from ..replay.choices import Choices
from ..replay.outcome import Trial
from ..replay.replay import Replay
from ..replay.sources import Excerpt, Sources
from ..sim.asked import PolicyBase
from ..sim.errors import Again, SimulationError
from ..sim.limits import LIMITS, Limits
from ..sim.milestones import DONE
from ..sim.policy import policy_of
from ..sim.simulation import STOPS, finding_of, prepare
from ..sim.storage import storage
from . import views
from .breaks import SAID, Breakpoint, Condition, Line, Stop
from .events import Events
from .lines import Lines, line_of
from .memory import MemoryView
from .policy import Stepping
from .rows import BarrierRow, BreakRow, FlightRow, RegisterRow, WarpRow
from .session import Session
from .standing import completes, is_called, stands, stop_of
from .tables import Rows
from .values import Matrix

if TYPE_CHECKING:
    from ..dsl.named import Names
    from ..grammar.errors import Finding
    from ..layout import Layout
    from ..sim.cta import Cta
    from ..sim.fragment import Fragment
    from ..sim.report import Report
    from ..sim.values import Array

BY_HAND = "by hand"
"""What the schedule is called once somebody has changed it."""
Told = tuple[str, tuple[Any, ...]]
"""What somebody did to the schedule."""


class LiveSession(Session):
    """A session, and the machine that it steps."""

    def __init__(self, launch: Launch, *, schedule: str | PolicyBase = "fifo", seed: int = 0, check: bool = True,
                 max_steps: int | None = None, card: Card = H200, limits: Limits = LIMITS, names: Names | None = None) -> None:
        self.trial = Trial.of(launch, max_steps, card)
        self.launch = self.trial.launch
        self.names = names
        self.policy = Stepping(policy_of(schedule, seed))
        self.events = Events()
        self.simulation = prepare(self.launch.source, self.launch.name, **self.launch.asked(), schedule=self.policy, check=check,
                                  max_steps=max_steps, card=card, limits=limits, observers=[self.events])
        self.lines = Lines(self.simulation.program)
        self.sources = Sources(self.launch.text)
        self.breaks: list[Breakpoint] = []
        self._numbers = 0
        self._interrupted = False
        self._before = {name: storage(array).copy() for name, array in self.launch.arrays.items()}
        self._told: list[tuple[int, Told]] = []
        self._begin()
        self.stop = stop_of("start", "before the first instruction", self.chosen)

    # ------------------------------------------------------------------------------------------- going on

    def step(self, count: int = 1) -> Stop:
        left = iter(range(_natural(count, "the number of steps"), 0, -1))
        return self._go(lambda f: "step" if next(left) == 1 else "", stops=False)

    def line(self) -> Stop:
        f = self.chosen
        start = None if f is None or (op := views.next_op(f)) is None else line_of(op)

        def done(ran: Fragment) -> str:
            if self.machine.going is None:
                return self._stands(ran)
            op = views.next_op(self.machine.going)
            return "" if op is not None and line_of(op) == start else "line"

        return self._go(done)

    def run_warp(self) -> Stop:
        return self._go(lambda ran: self._stands(ran) if self.machine.going is None else "")

    def phase(self, barrier: str = "") -> Stop:
        point = Breakpoint(0, "phase", self._barrier(barrier))
        return self._go(None, [*self.breaks, point])

    def go(self) -> Stop:
        return self._go(None)

    def finish(self) -> Report:
        self._go(None, stops=False)
        if self.report is None:
            raise SimulationError("the run was interrupted before its end")
        return self.report

    def interrupt(self) -> None:
        self._interrupted = True

    def back(self, count: int = 1) -> Stop:
        return self._repeat(max(self.turns - _natural(count, "the number of turns"), 0))

    def restart(self) -> Stop:
        self._told.clear()
        return self._repeat(0)

    # ------------------------------------------------------------------------------------------- the schedule

    def switch(self, warp: int, cta: int | None = None, lane: int | None = None) -> Stop:
        f = self.fragment(warp, cta, lane)
        if f not in self.machine.ready:
            raise SimulationError(f"{stands(f)}: others must go on first")
        self._tell("switch", f.warp.index, f.cta.index, f.first())
        self.stop = stop_of("step", "", self.chosen)
        return self.stop

    def late(self, late: bool = True) -> None:
        self._tell("late", bool(late))

    def land(self, number: int, warp: int | None = None, cta: int | None = None) -> None:
        warp, cta = self._who(warp, cta)
        found = self.policy.names.tasks.get((cta, warp, number))
        if found is None or found not in self.machine.flying:
            raise SimulationError(f"CTA {cta} warp {warp} has no operation {number} in flight; `flight` shows what is")
        self._tell("land", cta, warp, number)

    @property
    def choices(self) -> Choices:
        return self.policy.choices()

    def replay(self) -> Replay:
        return Replay(Trial(self.launch.copy(self._before), self.trial.max_steps, self.trial.card), self.choices)

    def save(self, path: str | os.PathLike[str]) -> Path:
        return self.replay().save(path)

    # ------------------------------------------------------------------------------------------- breakpoints

    def break_at(self, line: str | int, *, warp: int | None = None, cta: int | None = None, when: str = "", skip: int = 0) -> Breakpoint:
        condition = Condition.of(when) if when else None
        if condition is not None and not views.is_named(self.simulation.program, self.names, condition.name):
            raise SimulationError(f"no register is called {condition.name}; `registers all` lists them")
        return self._add("line", self.lines.find(str(line)), warp=warp, cta=cta, when=condition, skip=skip)

    def break_phase(self, barrier: str = "", *, phase: int | None = None, cta: int | None = None, skip: int = 0) -> Breakpoint:
        return self._add("phase", self._barrier(barrier), phase=phase, cta=cta, skip=skip)

    def break_finding(self) -> Breakpoint:
        if not self.simulation.check:
            raise SimulationError("the checker does not run: there are no findings")
        return self._add("finding", None)

    def delete(self, number: int) -> None:
        if all(point.number != number for point in self.breaks):
            raise SimulationError(f"there is no breakpoint {number}")
        self.breaks = [point for point in self.breaks if point.number != number]

    def breakpoints(self) -> Rows[BreakRow]:
        return Rows([point.row() for point in self.breaks], "there are no breakpoints")

    # ------------------------------------------------------------------------------------------- looking

    @property
    def chosen(self) -> Fragment | None:
        """The lanes that execute the next instruction."""
        return None if self.report is not None else self.policy.peek()

    def warps(self) -> Rows[WarpRow]:
        return views.warps(self.machine, self.chosen)

    def barriers(self) -> Rows[BarrierRow]:
        return views.barriers(self.machine)

    def flight(self) -> Rows[FlightRow]:
        return views.flight(self.machine, self.policy)

    def registers(self, *names: str, warp: int | None = None, cta: int | None = None, lane: int | None = None,
                  every: bool = False) -> Rows[RegisterRow]:
        return views.registers(self.machine, self.fragment(warp, cta, lane), self.names, names, every)

    def tile(self, name: str, stage: int = 0, *, cta: int | None = None, layout: Layout | None = None) -> Matrix:
        if layout is not None:
            return self.memory.laid_out(layout, self.cta(cta), self.memory.offset(name, self.cta(cta)) - views.RESERVED_SHARED)
        return self.memory.tile(name, self.cta(cta), stage)

    def shared(self, place: str, count: int = 8, type: str = "u32", *, cta: int | None = None) -> Matrix:
        return self.memory.shared(place, self.cta(cta), _natural(count, "the number of elements"), type)

    def array(self, name: str) -> Array:
        return self.memory.array(name).values

    @property
    def findings(self) -> tuple[Finding, ...]:
        if self.report is not None:
            return self.report.findings
        return () if self.simulation.watch is None else tuple(self.simulation.watch.findings())

    def source(self) -> list[Excerpt]:
        f = self.chosen or next(iter(views.fragments(self.machine)), None)
        return [] if f is None else list(self.sources.excerpts(f.wait.op if f.wait is not None else views.next_op(f)))

    def cta(self, index: int | None = None) -> Cta:
        """A CTA by its index, or that of the warp whose turn it is."""
        f = self.chosen
        wanted = index if index is not None else f.cta.index if f is not None else self._last[1]
        found = [cta for cluster in self.machine.clusters for cta in cluster.ctas if cta.index == wanted]
        if not found:
            raise SimulationError(f"CTA {wanted} is not on the device: it has exited, or has not begun")
        return found[0]

    def fragment(self, warp: int | None = None, cta: int | None = None, lane: int | None = None) -> Fragment:
        """The lanes of a warp that are together, those with the lane; by default those that execute the next instruction."""
        f = self.chosen
        if f is not None and warp is None and cta is None and lane in (None, f.first()):
            return f
        warp, cta = self._who(warp, cta)
        found = [f for f in views.fragments(self.machine) if (f.cta.index, f.warp.index) == (cta, warp)]
        found = [f for f in found if lane is None or f.mask >> lane & 1]
        if not found:
            which = f"CTA {cta} warp {warp}" + ("" if lane is None else f" lane {lane}")
            raise SimulationError(f"{which} is not there: it has exited, or has not begun")
        return next((f for f in found if f is self.chosen), next((f for f in found if f in self.machine.ready), found[0]))

    def __repr__(self) -> str:
        state = "standing" if self.report is None else "ended"
        return f"<session of {self.launch.name}, {state} after {self.executed:,} warp instructions>\n{self.stop}"

    def _repr_html_(self) -> str:
        return framed(pre(repr(self), wrapped=True), self.warps().as_table())

    # ------------------------------------------------------------------------------------------- the engine

    @property
    def executed(self) -> int:
        return self._executed

    def _begin(self) -> None:
        for name, array in self.launch.arrays.items():
            if array.flags.writeable:
                storage(array)[:] = self._before[name]
        with self.simulation.explained():
            self.machine = self.simulation.begin()
            self.machine.begin()
        self.memory = MemoryView(self.simulation, self.events, self.names)
        self.report = None
        self.turns = self._executed = 0
        self._known = 0
        self._last: tuple[int, int] = 0, 0
        self._passed: dict[Fragment, int] = {}

    def _repeat(self, turns: int) -> Stop:
        """Begin again, and come to this turn."""
        told = [each for each in self._told if each[0] <= turns]
        self._told = []
        for point in self.breaks:
            point.hits = 0
        self._begin()
        for at, (what, arguments) in told:
            self._turn_to(at)
            self._tell(what, *arguments)
        self._turn_to(turns)
        if turns:
            self._at_line(self.breaks)                       # it has been reached: to go on is to pass it
        self._known = len(self.findings)
        self.stop = stop_of("step" if turns else "start", "" if turns else "before the first instruction", self.chosen)
        return self.stop

    def _turn_to(self, turns: int) -> None:
        """Come to this turn, past breakpoints, which count."""
        while self.turns < turns and self.report is None:
            self._at_line(self.breaks)
            self._turn()
            self._at_event(self.breaks)

    def _tell(self, what: str, *arguments: Any) -> None:
        """Change the schedule, and remember it for `back`."""
        if self.report is not None:
            raise SimulationError("the run has ended: `restart` begins again, `back` goes back")
        self._told.append((self.turns, (what, arguments)))
        self.policy.name = BY_HAND
        if what == "switch":
            f = self.fragment(*arguments)
            self.policy.choose_next(f)
            if (op := views.next_op(f)) is not None:
                self._passed[f] = op.index
        elif what == "late":
            self.policy.keeps = arguments[0]
        else:
            self.policy.land(self.policy.names.tasks[arguments], DONE)

    def _turn(self) -> Fragment | None:
        """One instruction of whose turn it is; where nobody can go on, what happens by itself. Who had the turn."""
        f, machine = self.policy.peek(), self.machine
        block = -1 if f is None else f.block
        before = machine.counts[block] if f is not None else 0
        self.events.phases.clear()
        with self.simulation.explained():
            try:
                if not machine.advance():
                    machine.end()
                    self.report = self.simulation.report([])
            except Again:
                hits = [point.hits for point in self.breaks]
                self._repeat(self.turns)
                for point, count in zip(self.breaks, hits, strict=True):
                    point.hits = count
                return self._turn()
            except STOPS as stop:
                self.report = self.simulation.report([finding_of(machine, stop)])
                if f is not None and f not in machine.sleeping and f not in machine.ready:
                    machine.ready.appendleft(f)              # it stands at what it could not do
        self.turns += 1
        if f is not None:
            self._last = f.warp.index, f.cta.index
            if machine.counts[block] > before:
                self._executed += len(machine.program.blocks[block].ops)
                self._passed.pop(f, None)
            elif f.mask and machine.program.blocks[block].ops:
                self._passed[f] = machine.program.blocks[block].ops[0].index
        return f

    def _go(self, done: Callable[[Fragment], str] | None, points: Sequence[Breakpoint] | None = None, *, stops: bool = True) -> Stop:
        """Let it go on until a breakpoint, the end, or `done` names a reason (given who has just had a turn)."""
        if self.report is not None:
            raise SimulationError("the run has ended: `restart` begins again, `back` goes back")
        points = self.breaks if points is None else points
        self._interrupted = False
        while True:
            if stops and (stop := self._at_line(points)) is not None:
                return self._stopped(stop)
            f = self._turn()
            if self.report is not None:
                return self._stopped(self._ended())
            if self._interrupted:
                return self._stopped(stop_of("interrupt", "interrupted", self.chosen))
            if stops and (stop := self._at_event(points)) is not None:
                return self._stopped(stop)
            if f is not None and done is not None and (reason := done(f)):
                text = stands(f) if self.machine.going is None else ""
                return self._stopped(stop_of(reason, text, self.chosen))

    def _stopped(self, stop: Stop) -> Stop:
        found = self.findings
        fresh, self._known = found[self._known:], len(found)
        self.stop = replace(stop, findings=tuple(fresh)) if fresh and stop.reason not in SAID else stop
        return self.stop

    def _at_line(self, points: Sequence[Breakpoint]) -> Stop | None:
        f = self.policy.peek()
        op = None if f is None else views.next_op(f)
        if f is None or op is None or self._passed.get(f) == op.index:
            return None
        here = [point for point in points if isinstance(point.at, Line) and op.index in point.at.ops
                and point.takes(f.cta.index, f.warp.index) and self._holds(point, f)]
        if not here:
            return None
        self._passed[f] = op.index
        hit = [point for point in here if point.hit()]
        return stop_of("break", f"{hit[0]}", f, number=hit[0].number) if hit else None

    def _holds(self, point: Breakpoint, f: Fragment) -> bool:
        if point.when is None:
            return True
        try:
            return point.when.holds(views.registers(self.machine, f, self.names, (point.when.name,), False))
        except SimulationError:                              # another function, which has no such register
            return False

    def _at_event(self, points: Sequence[Breakpoint]) -> Stop | None:
        for phase in self.events.phases:
            hit = [point for point in points if point.kind == "phase" and completes(point, phase) and point.hit()]
            if hit:
                return stop_of("phase", str(phase), self.chosen, number=hit[0].number or None)
        if any(point.kind == "finding" for point in points):
            fresh = self.findings[self._known:]
            if fresh:
                hit = [point for point in points if point.kind == "finding" and point.hit()]
                if hit:
                    return stop_of("finding", "\n".join(f"finding: {finding}" for finding in fresh), self.chosen, number=hit[0].number,
                                   findings=tuple(fresh))
        return None

    def _ended(self) -> Stop:
        report = self.report
        assert report is not None
        if report.ended:
            return Stop("end", f"the run has ended: {report}", findings=report.findings)
        first = report.findings[0]
        reason = first.rule if first.rule == "deadlock" else "fault"
        return Stop(reason, f"the run stops: {first}", findings=report.findings)

    def _stands(self, f: Fragment) -> str:
        return "waits" if f.wait is not None or not f.mask or not f.warp.live & f.mask else "parted"

    def _add(self, kind: str, at: Any, **conditions: Any) -> Breakpoint:
        ctas, warps = math.prod(self.machine.grid), -(-self.machine.threads // 32)
        for word, count in ("cta", ctas), ("warp", warps), ("phase", None), ("skip", None):
            value = conditions.get(word)
            if isinstance(value, Integral):                     # of numpy, too
                value = conditions[word] = int(value)
            if value is not None and (not isinstance(value, int) or value < 0 or (count is not None and value >= count)):
                there = "a number from 0 on" if count is None else f"0 to {count - 1} in this launch" if count > 1 else "0 in this launch"
                raise SimulationError(f"{word} is {there}, not {value!r}: the run would never stop here")
        self._numbers += 1
        point = Breakpoint(self._numbers, kind, at, **conditions)
        self.breaks.append(point)
        return point

    def _barrier(self, name: str) -> str:
        """The name, if a barrier may have it."""
        name = name.strip()
        plan = self.simulation.traced.shared.barriers if self.simulation.traced is not None else []
        known = [each for barriers in plan for each in (barriers.name, *(f"{barriers.name}[{i}]" for i in range(len(barriers))))]
        there = [barrier for cluster in self.machine.clusters for barrier in cluster.mbarriers.values()]
        if name in known or name in ("", "cluster") or name.startswith("barrier ") or any(is_called(each, name) for each in there):
            return name
        if not plan:
            return name                                      # its name is known when it is initialised
        names = ", ".join(f"{barriers.name}[0]" + (f" to [{len(barriers) - 1}]" if len(barriers) > 1 else "") for barriers in plan)
        raise SimulationError(f"there is no barrier `{name}`; there are {names}, barrier N and cluster")

    def _who(self, warp: int | None, cta: int | None) -> tuple[int, int]:
        f = self.chosen
        at = (f.warp.index, f.cta.index) if f is not None else self._last
        return at[0] if warp is None else warp, at[1] if cta is None else cta


def _natural(value: int, what: str) -> int:
    if not isinstance(value, int) or value < 1:
        raise SimulationError(f"{what} is at least 1, not {value!r}")
    return value
