"""An observer that writes down what happens, for pages and traces."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..sim.fragment import Fragment
from ..sim.milestones import DONE, READ
from ..sim.observer import Observer
from ..sim.operand import SymbolValue
from ..sim.program import Op
from ..sim.storage import storage
from ..sim.tasks import Task
from ..sim.values import indices
from .events import LIMIT, Asleep, Event, Flight, Mark, Phase, Record, Touched, Who, overlap, people

if TYPE_CHECKING:
    from ..sim.barriers import MBarrier, NamedBarrier
    from ..sim.cta import Cluster, Cta, Warp
    from ..sim.fragment import Wait
    from ..sim.machine import Machine
    from ..sim.memory import Memory, Places
    from ..sim.report import Report
    from ..sim.tasks import Group
    from ..sim.warpgroup import Product, WGroup


class Recorder(Observer, Record):
    """Writes the record of a run while it is told of it."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self._anew()

    def _anew(self) -> None:
        limit = self.limit
        self.count = 0
        self.events = deque(maxlen=limit)
        self.turns = deque(maxlen=limit)
        self.phases = {}
        self.flights = deque(maxlen=limit)
        self.sleeps = deque(maxlen=limit)
        self.marks = []
        self.said = {}
        self.running: Who | None = None
        self.choices = ()
        self._open: dict[Fragment, Asleep] = {}
        self._by_task: dict[int, Flight] = {}
        self._groups: dict[tuple[int, int, int], Flight] = {}
        self._checkers: list[Any] = []
        self._known = 0

    # ------------------------------------------------------------------------------------------- writing down

    def _note(self, kind: str, f: Fragment | None, mask: int, op: Op | None, words: str = "", row: str = "",
              touched: tuple[Touched, ...] = (), flight: Flight | None = None, who: Who | None = None) -> Event:
        step = self.machine.steps
        if f is not None:
            who = f.cta.index, f.warp.index
            if op is not None:
                ops = self.machine.program.blocks[op.block].ops
                step += op.index - ops[0].index - len(ops) - 1
            if self._open and kind != "slept":
                self._wakes(f)
        event = Event(self.count, step, kind, who, mask, op, words, row, touched, flight)
        self.count += 1
        self.events.append(event)
        self.said[kind] = self.said.get(kind, 0) + 1
        for checker in self._checkers:
            if len(checker.keyed) != self._known:
                self._found(checker, event)
        return event

    def _found(self, checker: Any, event: Event) -> None:
        """The checker has just said something about this event."""
        rows = list(checker.keyed.items())
        for (_, _, other), finding in rows[self._known:]:
            site = other[0] if isinstance(other, tuple) and other and type(other[0]) is int else None
            ops = self.machine.program.ops
            before = ops[site] if site is not None and 0 <= site < len(ops) else None
            self.marks.append(Mark(finding, event, None if before is None else self._earlier(event, before), before))
        self._known = len(rows)

    def _earlier(self, event: Event, op: Op) -> Event | None:
        """The last event of this instruction that touched the same bytes."""
        last = None
        for other in reversed(self.events):
            if other.op is not op or other is event or other.kind not in ("access", "issued", "wgmma_issue"):
                continue
            last = last or other
            if any(overlap(a, b) for a in event.touched for b in other.touched):
                return other
        return last

    def turned(self, f: Fragment) -> None:
        """The schedule lets a fragment run: told by the policy."""
        self.running = f.cta.index, f.warp.index
        self.turns.append((self.count, self.running))
        self._wakes(f)

    def _wakes(self, f: Fragment) -> None:
        if f in self._open:
            self._open.pop(f).end = self.count

    def close(self, report: Report) -> None:
        """After the run: what ended it, and who still waits for what."""
        known = {mark.finding for mark in self.marks}
        for finding in report.findings:
            if finding not in known:
                ended = finding.severity == "error" and finding.rule not in ("deadlock", "livelock", "max-steps")
                event = self._note("fault", None, 0, None, finding.rule, who=self.running) if ended else None
                self.marks.append(Mark(finding, event, None))
        for f, asleep in self._open.items():
            if f in self.machine.sleeping:
                asleep.lacks, asleep.missing = self._lacks(f)
            else:
                asleep.end = self.count

    def writer(self, name: str, array: Any, index: tuple[int, ...]) -> Event | None:
        memory = self.machine.memory
        start = next((found.start for found in memory.allocations if found.name == name), None)
        if start is None or len(index) != array.ndim:
            return None
        offset = array.__array_interface__["data"][0] - storage(array).__array_interface__["data"][0]
        place = start + offset + sum(i * step for i, step in zip(index, array.strides, strict=True))
        there = Touched(memory, place, array.dtype.itemsize, "writes")
        return next((event for event in reversed(self.events) if event.kind in ("access", "landed")
                     and any(each.verb != "reads" and overlap(each, there) for each in event.touched)), None)

    # ------------------------------------------------------------------------------------------- life

    def begin(self, machine: Machine) -> None:
        self._anew()
        self.machine = machine
        watch = machine.watch
        self._checkers = [each for each in getattr(watch, "observers", ()) if hasattr(each, "keyed")]

    def end(self, machine: Machine) -> None:
        self._note("end", None, 0, None, "the grid has ended")

    def cta_begin(self, cta: Cta) -> None:
        self._note("cta_begin", None, 0, None, f"{cta!r} begins")

    def cta_end(self, cta: Cta) -> None:
        self._note("cta_end", None, 0, None, f"{cta!r} has ended")

    def exited(self, f: Fragment, mask: int) -> None:
        self._note("exited", f, mask, None, "exits")

    def part(self, f: Fragment, other: Fragment) -> None:
        self._note("part", f, other.mask, None, f"lanes {other.mask:#x} leave lanes {f.mask:#x}")

    def joined(self, parts: Sequence[Fragment]) -> None:
        mask = 0
        for f in parts:
            mask |= f.mask
            self._wakes(f)
        self._note("joined", parts[0], mask, None, "lanes run together again")

    # ------------------------------------------------------------------------------------------- memory

    def access(self, f: Fragment, mask: int, op: Op, mode: str, memory: Memory, places: Places, size: int, strong: bool,
               values: Any = None) -> None:
        if memory.space not in ("shared", "global"):
            return
        at: Any = places
        verb = {"r": "reads", "w": "writes"}.get(mode, "updates")
        self._note("access", f, mask, op, verb, touched=(Touched(memory, at if type(at) is int else at[indices(mask)], size, verb),))

    def issued(self, f: Fragment, task: Task) -> None:
        touched = (*(Touched(region.memory, region.starts, region.length, "reads") for region in task.reads),
                   *(Touched(region.memory, region.starts, region.length, "writes") for region in task.writes))
        flight = Flight(task.kind, (f.cta.index, f.warp.index), task.op, self.count, touched=touched)
        self._by_task[task.number] = flight
        self.flights.append(flight)
        self._note("issued", f, task.mask, task.op, f"issues a {task.kind} of {task.bytes:,} bytes", touched=touched, flight=flight)

    def landed(self, task: Task, milestone: int) -> None:
        flight = self._by_task.get(task.number)
        if flight is None:
            return
        warp: Warp = task.warp
        if milestone == READ:
            flight.read = self.count
        else:
            flight.landed = self.count
        self._note("landed" if milestone == DONE else "read", None, task.mask, task.op,
                   f"the {task.kind} {'is done' if milestone == DONE else 'has read its sources'}", touched=flight.touched, flight=flight,
                   who=(warp.cta.index, warp.index))

    def tensormap(self, f: Fragment, lane: int, op: Op, memory: Memory, place: int) -> None:
        self._note("tensormap", f, 1 << lane, op, "takes a tensor map", touched=(Touched(memory, place, 128, "reads"),))

    # ------------------------------------------------------------------------------------------- order

    def warp_sync(self, f: Fragment, mask: int, op: Op) -> None:
        self._note("warp_sync", f, mask, op, "lanes meet")

    def warp_meet(self, parts: Sequence[tuple[Fragment, int]], op: Op) -> None:
        mask = 0
        for f, lanes in parts:
            mask |= lanes
            self._wakes(f)
        self._note("warp_meet", parts[-1][0], mask, op, f"lanes {mask:#x} meet from {len(parts)} places")

    def fence(self, f: Fragment, mask: int, op: Op) -> None:
        self._note("fence", f, mask, op, "fence")

    def _phase(self, row: str, number: int, wanted: int) -> Phase:
        known = self.phases.setdefault(row, [])
        if not known or known[-1].number != number:
            known.append(Phase(number, self.count, wanted))
        return known[-1]

    def mbarrier_init(self, f: Fragment, lane: int, op: Op, barrier: MBarrier, before: MBarrier | None) -> None:
        row = str(barrier)
        if self.phases.get(row):
            last = self.phases[row][-1]
            last.end = max(self.count - 1, last.start) if last.end is None else last.end
        self.phases.setdefault(row, []).append(Phase(barrier.phase, self.count, barrier.expected))
        self._note("mbarrier_init", f, 0, op, f"initialises {row} for {barrier.expected} arrivals", row)

    def mbarrier_inval(self, f: Fragment, lane: int, op: Op, barrier: MBarrier) -> None:
        row = str(barrier)
        self._phase(row, barrier.phase, barrier.expected).end = self.count
        self._note("mbarrier_inval", f, 0, op, f"invalidates {row}", row)

    def mbarrier_expect_tx(self, f: Fragment, lane: int, op: Op, barrier: MBarrier, count: int) -> None:
        row = str(barrier)
        self._phase(row, barrier.phase, barrier.expected).announced += count
        self._note("mbarrier_expect_tx", f, 1 << lane, op, f"announces {count:,} bytes on {row} in phase {barrier.phase}", row)

    def mbarrier_arrive(self, f: Fragment, lane: int, op: Op, barrier: MBarrier, count: int, drop: bool) -> None:
        row = str(barrier)
        phase = self._phase(row, barrier.phase, barrier.expected)
        phase.arrivals.append((self.count, (f.cta.index, f.warp.index), 1 << lane, count))
        self._note("mbarrier_arrive", f, 1 << lane, op, f"arrives{' for the last time' if drop else ''} on {row} in phase {barrier.phase}: "
                   f"{barrier.expected - barrier.pending + count} of {barrier.expected}", row)

    def copies_arrive(self, task: Task, barrier: MBarrier) -> None:
        row = str(barrier)
        warp: Warp = task.warp
        who = warp.cta.index, warp.index
        self._phase(row, barrier.phase, barrier.expected).arrivals.append((self.count, who, task.mask, 1))
        self._note("copies_arrive", None, task.mask, task.op, f"the lane's copies are done and arrive on {row}, phase {barrier.phase}", row,
                   flight=self._by_task.get(task.number), who=who)

    def mbarrier_complete_tx(self, task: Task | None, barrier: MBarrier, count: int) -> None:
        row = str(barrier)
        self._phase(row, barrier.phase, barrier.expected).came += count
        flight = None if task is None else self._by_task.get(task.number)
        self._note("mbarrier_complete_tx", None, 0, None if task is None else task.op, f"{count:,} bytes come on {row} in phase "
                   f"{barrier.phase}", row, flight=flight, who=None if flight is None else flight.who)

    def mbarrier_flip(self, barrier: MBarrier, phase: int) -> None:
        row = str(barrier)
        self._phase(row, phase, barrier.expected).end = self.count
        self._note("mbarrier_flip", None, 0, None, f"phase {phase} of {row} is complete", row)
        self._phase(row, phase + 1, barrier.expected)

    def mbarrier_test(self, f: Fragment, mask: int, op: Op, barrier: MBarrier, phase: int, done: bool) -> None:
        row = str(barrier)
        self._note("mbarrier_test", f, mask, op, f"phase {phase} of {row}: {'complete, goes on' if done else 'told: not complete'}", row)

    def barrier_arrive(self, f: Fragment, mask: int, op: Op, barrier: NamedBarrier, count: int | None, waits: bool) -> None:
        row = str(barrier)
        phase = self._phase(row, barrier.generation, barrier.wanted() if count is None else count)
        phase.arrivals.append((self.count, (f.cta.index, f.warp.index), mask, mask.bit_count()))
        self._note("barrier_arrive", f, mask, op, f"{'comes to' if waits else 'arrives at'} {row}, generation {barrier.generation}", row)

    def barrier_complete(self, barrier: NamedBarrier, generation: int) -> None:
        row = str(barrier)
        self._phase(row, generation, 0).end = self.count
        self._note("barrier_complete", None, 0, None, f"generation {generation} of {row} is complete", row)

    def barrier_pass(self, f: Fragment, mask: int, op: Op, barrier: NamedBarrier, generation: int) -> None:
        row = str(barrier)
        self._note("barrier_pass", f, mask, op, f"goes on after {row}, generation {generation}", row)

    def cluster_arrive(self, f: Fragment, mask: int, op: Op, cluster: Cluster) -> None:
        row = str(cluster.barrier)
        phase = self._phase(row, cluster.barrier.phase, sum(warp.live.bit_count() for cta in cluster.ctas for warp in cta.warps))
        phase.arrivals.append((self.count, (f.cta.index, f.warp.index), mask, mask.bit_count()))
        self._note("cluster_arrive", f, mask, op, f"arrives at {row}, phase {cluster.barrier.phase}", row)

    def cluster_complete(self, cluster: Cluster, phase: int) -> None:
        row = str(cluster.barrier)
        self._phase(row, phase, 0).end = self.count
        self._note("cluster_complete", None, 0, None, f"phase {phase} of {row} is complete", row)

    def cluster_pass(self, f: Fragment, mask: int, op: Op, cluster: Cluster, phase: int) -> None:
        row = str(cluster.barrier)
        self._note("cluster_pass", f, mask, op, f"goes on after {row}, phase {phase}", row)

    def slept(self, f: Fragment, wait: Wait) -> None:
        words, row = _waits(wait)
        asleep = Asleep((f.cta.index, f.warp.index), f.mask, wait.op, words, row, self.count)
        self._wakes(f)
        self._open[f] = asleep
        self.sleeps.append(asleep)
        self._note("slept", f, f.mask, wait.op, words, row)

    # ------------------------------------------------------------------------------------------- groups

    def group_commit(self, f: Fragment, mask: int, op: Op, group: Group) -> None:
        self._note("group_commit", f, mask, op, f"commits a group of {len(group.tasks)} copies")

    def group_wait(self, f: Fragment, mask: int, op: Op, groups: Sequence[Group], milestone: int) -> None:
        self._note("group_wait", f, mask, op, f"has waited for {len(groups)} groups" + (" to be read" if milestone == READ else ""))

    def wgmma_issue(self, f: Fragment, op: Op, product: Product) -> None:
        group, quarter = f.warp.group, f.warp.index & 3
        key = f.cta.index, f.warp.index // 4, group.committed[quarter]
        flight = self._groups.get(key)
        if flight is None:
            flight = self._groups[key] = Flight(f"wgmma group {key[2]}", (f.cta.index, f.warp.index), op, self.count)
            self.flights.append(flight)
        self._note("wgmma_issue", f, f.mask, op, f"issues a product of wgmma group {key[2]}", flight=flight)

    def wgmma_fence(self, f: Fragment, op: Op) -> None:
        self._note("wgmma_fence", f, f.mask, op, "wgmma fence")

    def wgmma_commit(self, f: Fragment, op: Op, group: WGroup) -> None:
        self._note("wgmma_commit", f, f.mask, op, f"commits wgmma group {group.number}")

    def wgmma_done(self, group: Any, run: WGroup, products: Sequence[Product]) -> None:
        first: Warp = group.warps[0]
        flight = self._groups.get((first.cta.index, first.index // 4, run.number))
        if flight is not None:
            flight.landed = self.count
        self._note("wgmma_done", None, 0, None, f"wgmma group {run.number} has run", flight=flight, who=(first.cta.index, first.index))

    def wgmma_wait(self, f: Fragment, op: Op, finished: int) -> None:
        self._note("wgmma_wait", f, f.mask, op, f"has waited for {finished} wgmma groups")

    def touch(self, f: Fragment, op: Op) -> None:
        self._note("touch", f, f.mask, op, "uses registers that wgmma uses")

    def shuffled(self, parts: Sequence[tuple[Fragment, Op, int]], source: Any, absent: int) -> None:
        f, op, mask = parts[0]
        self._note("shuffled", f, absent or mask, op, "reads lanes that do not take part" if absent else "reads other lanes' values")

    # ------------------------------------------------------------------------------------------- the rest

    def registers(self, f: Fragment, op: Op, before: int, after: int) -> None:
        self._note("registers", f, f.mask, op, f"has {after} registers a thread, before {before}")

    def polled(self, f: Fragment, mask: int, op: Op) -> None:
        self._note("polled", f, mask, op, "has read a value that depends on timing")

    # ------------------------------------------------------------------------------------------- words

    def says(self, event: Event) -> str:
        who = "" if event.who is None else people(event.who, event.mask) + ": "
        op = "" if event.op is None else f"`{event.op.opcode}` "
        parts = [f"{'' if each.verb == event.words else each.verb + ' '}{self.where(each, event)}" for each in event.touched]
        return f"{who}{op}{event.words}{': ' if parts and event.kind != 'access' else ' '}{'; '.join(parts)}".strip()

    def where(self, touched: Touched, event: Event) -> str:
        places = touched.places
        if not isinstance(places, int) and not len(places):
            return "nothing"
        low, high = (places, places) if isinstance(places, int) else (int(np.min(places)), int(np.max(places)))
        total = high + touched.size - low
        memory, machine = touched.memory, self.machine
        if memory.space == "shared":
            cta, offset = divmod(low, machine.shared_stride)
            name = machine.name_of(offset)
            own = event.who is not None and cta == event.who[0] % max(1, machine.cluster[0] * machine.cluster[1] * machine.cluster[2])
            return f"{total:,} bytes from {name}" + ("" if own else f" of the cluster's CTA {cta}")
        found = machine.memory.allocation(low, low + 1) if memory.space == "global" else None
        return f"{total:,} bytes from " + (f"{memory.space} memory +{low:#x}" if found is None else f"{found.name} +{low - found.start}")

    def _lacks(self, f: Fragment) -> tuple[str, tuple[Who, ...]]:
        """What a fragment that waits at the end lacks, and the warps that have not come."""
        wait = f.wait
        assert wait is not None
        row = str(wait.on)
        phase = self.phases[row][-1] if self.phases.get(row) else None
        if wait.kind == "mbarrier":
            barrier: MBarrier = wait.on
            words = f"{barrier.expected - barrier.pending} of {barrier.expected} arrivals"
            if barrier.tx:
                words += f", {barrier.tx:,} bytes announced and not come" if barrier.tx > 0 else f", {-barrier.tx:,} bytes too many"
            missing = list(self._missing(row, phase)) if barrier.pending else []
            if missing:
                words += ", missing: " + ", ".join(people(who, mask) for who, mask in missing[:4])
            elif barrier.pending and (missing := [(who, 0) for who in arrivers(self.machine, barrier)]):
                words += ", would come from " + ", ".join(people(who) for who, _ in missing[:4])
            return words, tuple(dict.fromkeys(who for who, _ in missing))
        if wait.kind in ("barrier", "cluster"):
            came = {who for _, who, _, _ in phase.arrivals} if phase is not None and phase.end is None else set()
            ctas = [wait.on.cta] if wait.kind == "barrier" else wait.on.cluster.ctas
            absent = [(cta.index, warp.index) for cta in ctas for warp in cta.warps if (cta.index, warp.index) not in came and warp.live]
            words = f"{wait.on.arrived} of {wait.on.wanted()} threads" if wait.kind == "barrier" else f"{len(came)} warps have come"
            return words + (", not here: " + ", ".join(people(who) for who in absent[:4]) if absent else ""), tuple(absent)
        return "", ()

    def _missing(self, row: str, phase: Phase | None) -> Iterator[tuple[Who, int]]:
        """Who arrived in the phase before (of this barrier, else of another of its array) and has not in this one."""
        if phase is None:
            return
        complete = [p for p in self.phases[row] if p is not phase and p.arrivals]
        if not complete:
            name = row.split("[")[0]
            complete = [p for other, known in self.phases.items() if other != row and other.split("[")[0] == name
                        and other.rpartition(" of ")[2] == row.rpartition(" of ")[2] for p in known if p.end is not None and p.arrivals][:1]
        came = {(who, mask) for _, who, mask, _ in phase.arrivals}
        for _, who, mask, _ in complete[-1].arrivals if complete else ():
            if (who, mask) not in came:
                yield who, mask


def arrivers(machine: Machine, barrier: MBarrier) -> list[Who]:
    """The warps that sleep and after that come to an arrive on this barrier, as far as its address stands in the instruction."""
    layout, blocks = machine.program.layout, machine.program.blocks

    def on(op: Op) -> bool:
        address = op.operand("addr")
        base = getattr(address, "base", None)
        return op.tokens[:2] in (["mbarrier", "arrive"], ["mbarrier", "arrive_drop"]) and isinstance(base, SymbolValue) \
            and layout.address(base.symbol) + base.offset + getattr(address, "offset", 0) == barrier.offset

    where = {block.index for block in blocks if any(on(op) for op in block.ops)}
    found: dict[Who, None] = {}
    for f in machine.sleeping:
        if f.cta is not barrier.cta:
            continue
        reached, todo = set[int](), list(blocks[f.block].successors)
        while todo:
            block = todo.pop()
            if block >= 0 and block not in reached:
                reached.add(block)
                todo += blocks[block].successors
        if reached & where:
            found[f.cta.index, f.warp.index] = None
    return list(found)


def _waits(wait: Wait) -> tuple[str, str]:
    """(what a fragment waits for, the row of it)."""
    match wait.kind:
        case "mbarrier":
            return f"waits for phase {wait.phase} of {wait.on}", str(wait.on)
        case "barrier" | "cluster":
            return f"waits at {wait.on}", str(wait.on)
        case "registers":
            return "waits for registers", ""
        case "wgmma":
            return f"waits for wgmma group {wait.phase}", ""
        case "warp" | "aligned":
            return f"waits for lanes {wait.phase:#x} of its warp", ""
    return f"waits for a {wait.on.kind}", ""


def _noted(name: str) -> Any:
    """The hook of an event that has no words of its own here."""
    def hook(self: Recorder, *told: Any) -> None:
        f = next((each for each in told if isinstance(each, Fragment)), None)
        op = next((each for each in told if isinstance(each, Op)), None)
        self._note(name, f, 0 if f is None else f.mask, op, name.replace("_", " "))

    return hook


for _name, _hook in vars(Observer).items():
    if callable(_hook) and _name not in vars(Recorder) and _hook.__annotations__.get("return") == "None":
        setattr(Recorder, _name, _noted(_name))
