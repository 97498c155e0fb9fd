"""Barriers, fences and groups: what they make known, and the certificates under which every schedule counts alike.

Of an mbarrier (and likewise of a named barrier): an arrival is *tight* when it comes after everything that completed the phase before,
else it may be counted there; a phase is *observed* when somebody waited for it before the next one's first arrival; a wait is tight when
the next phase cannot complete before it, else the waiter may be two phases late and, seeing only a parity, wait for the wrong one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..tasks import DONE as LANDED
from ..tasks import Group, Task
from ..values import Array, indices, lane_list
from .clocks import DONE, GLOBAL, PUBLISHED, SEEN, SHARED, Home, Lanes, Published, View
from .memory import MemoryRules, scope_of

if TYPE_CHECKING:
    from ..barriers import MBarrier, NamedBarrier
    from ..cta import Cluster
    from ..fragment import Fragment
    from ..program import Op, Program


@dataclass(slots=True, eq=False)
class Phase:
    """One phase: what its arrivals publish (at cluster scope; `near`: within the CTA that they come from), and the stamps (clock per lane)
    of its arrivals and of the waits for it.
    """

    view: View
    arrivals: Array
    waits: Array
    near: dict[int, View] = field(default_factory=dict)
    bytes: bool = False
    arrived: int = 0
    op: Any = None


@dataclass(slots=True, eq=False)
class Barrier:
    """An mbarrier, or a generation-counting barrier: its phases by number, its agent, its init's stamp."""

    home: Home
    agent: int
    owner: int = -1
    clock: int = 0
    fenced: bool = False
    phases: dict[int, Phase] = field(default_factory=dict)

    def phase(self, number: int) -> Phase:
        found = self.phases.get(number)
        if found is None:
            width = self.home.lanes
            found = self.phases[number] = Phase(self.home.new(), np.zeros(width, np.int32), np.zeros(width, np.int32))
            self.phases.pop(number - 4, None)
        return found


class OrderRules(MemoryRules):
    def __init__(self) -> None:
        super().__init__()
        self._named: dict[Any, Barrier] = {}
        self._inits: dict[int, list[Barrier]] = {}
        self._looks: dict[int, bool] = {}

    # ------------------------------------------------------------------------------------------- warps and fences

    def warp_sync(self, f: Fragment, mask: int, op: Op) -> None:
        lanes = self.lanes(f)
        if op.opcode == "bar.warp.sync":
            lanes.meet(mask)
        else:
            lanes.meet_done(mask)

    def fence(self, f: Fragment, mask: int, op: Op) -> None:
        lanes = self.lanes(f)
        tokens = op.tokens
        if "proxy" in tokens or tokens[0] == "tensormap":
            if any(t.startswith("tensormap") for t in tokens):
                self._fence_maps(lanes, mask, tokens)
            elif "async" in tokens:
                rows = [GLOBAL] if "global" in tokens else [SHARED] if any(t.startswith("shared::") for t in tokens) else [SHARED, GLOBAL]
                lanes.fence_proxy(mask, rows)
            return
        if "mbarrier_init" in tokens:
            warp = lanes.warp
            for barrier in self._inits.get(warp.base, ()):
                if barrier.home is self.home(f.cta.cluster) and barrier.owner - warp.base in lane_list(mask):
                    barrier.fenced = True
            return
        if "release" not in tokens and lanes.pending:
            lanes.unseal(mask, scope_of(tokens))
        if "acquire" not in tokens:
            lanes.seal(mask, scope_of(tokens))

    def _fence_maps(self, lanes: Lanes, mask: int, tokens: list[str]) -> None:
        if "acquire" not in tokens:
            lanes.fence_proxy(mask, [PUBLISHED])
        if "release" not in tokens:
            lanes.fence_maps(mask)
        if tokens[0] == "tensormap":
            lanes.meet(mask)

    # ------------------------------------------------------------------------------------------- mbarriers

    def _barrier(self, barrier: MBarrier) -> Barrier:
        state: Barrier | None = barrier.shadow
        if state is None:
            home = self.home(barrier.cta.cluster)
            state = barrier.shadow = Barrier(home, home.agent(("mbarrier", id(barrier)), "copies", f"copies on {barrier}"))
        return state

    def mbarrier_init(self, f: Fragment, op: Op, barrier: MBarrier, before: MBarrier | None) -> None:
        lanes = self.lanes(f)
        lanes.warp.used = True
        cluster = f.cta.cluster
        if before is not None:
            self.report("mbarrier-reinit", op, f"{f.warp!r} initialises {barrier}, which is a live mbarrier")
        near = [place for place in range(barrier.place - 7, barrier.place + 8) if place != barrier.place and place in cluster.mbarriers]
        if near:
            self.report("mbarrier-overlap", op, f"{barrier} overlaps {cluster.mbarriers[near[0]]}")
        state = self._barrier(barrier)
        lane = next((lane for lane in lane_list(f.mask)), 0)
        state.owner, state.clock = lanes.warp.base + lane, lanes.warp.epoch
        self._inits.setdefault(lanes.warp.base, []).append(state)
        shadow = self.shadow(cluster)
        cells = shadow.span(barrier.place, 8) if shadow.shift <= 3 else slice(barrier.place >> 4, (barrier.place >> 4) + 1)
        known = lanes.view(f.mask).fit()[SEEN]
        bad = shadow.writes_unknown(cells, known)
        if bad is not None and int(shadow.agent[cells][int(bad[0])]) != state.owner and shadow.shift <= 3:
            self.report("mbarrier-overlap", op, f"{barrier} is initialised where "
                        f"{self.site(int(shadow.site[cells][int(bad[0])]))} may still write")

    def mbarrier_inval(self, f: Fragment, op: Op, barrier: MBarrier) -> None:
        self._use(f, self.lanes(f), f.first(), op, barrier)

    def _use(self, f: Fragment, lanes: Lanes, lane: int, op: Op, barrier: MBarrier) -> Barrier:
        """The barrier's init must be known to who uses it."""
        state = self._barrier(barrier)
        if state.owner < 0 or state.owner == lanes.warp.base + lane:
            return state
        a = lanes.view(1 << lane).fit()
        row = DONE if state.fenced else SEEN
        if a.item(row, state.owner) < state.clock:
            who = state.home.describe(state.owner).name
            self.report("mbarrier-init", op, f"{f.warp!r} lane {lane} uses {barrier} and nothing orders the use after its init by {who}",
                        other=barrier.place)
        return state

    def mbarrier_expect_tx(self, f: Fragment, lane: int, op: Op, barrier: MBarrier, count: int) -> None:
        state = self._use(f, self.lanes(f), lane, op, barrier)
        state.phase(barrier.phase).bytes = True

    def mbarrier_arrive(self, f: Fragment, lane: int, op: Op, barrier: MBarrier, count: int, drop: bool) -> None:
        lanes = self.lanes(f)
        state = self._use(f, lanes, lane, op, barrier)
        self._distant(f, lane, op, barrier)
        own = lanes.warp.base + lane
        known = lanes.view(1 << lane).fit()[DONE].copy()
        out = lanes.publish(1 << lane, 1 if _wide(op.tokens) else 0, visible="relaxed" not in op.tokens)
        self._arrives(state, barrier, op, known, own, out, f.cta.rank)

    def copies_arrive(self, task: Task, barrier: MBarrier) -> None:
        out, warp = task.shadow
        own = warp.base + task.mask.bit_length() - 1
        self._arrives(self._barrier(barrier), barrier, task.op, out.fit()[DONE], own, Published(out, (out, None, None)), task.warp.cta.rank)

    def _arrives(self, state: Barrier, barrier: MBarrier, op: Op, known: Array, own: int, out: Published, rank: int) -> None:
        """A lane's arrival: what it knows to have been done, what it publishes."""
        number = barrier.phase
        phase = state.phase(number)
        before = state.phases.get(number - 1)
        if before is not None:
            self._tight(op, barrier, state, before, known, own, number)
            if not phase.arrived:
                self._observed(op, barrier, state, before, known, own, number)
        phase.arrived += 1
        phase.op = op
        phase.arrivals[own] = out.done.a.item(DONE, own)
        near, far = out.seen[0] or out.done, out.seen[1]
        if rank in phase.near:
            phase.near[rank].join(near)
        else:
            phase.near[rank] = near.copy() if near is not out.done else near
        phase.near[rank].join_done(out.done)
        if far is not None:
            phase.view.join(far)
        phase.view.join_done(out.done)

    def _tight(self, op: Op, barrier: MBarrier, state: Barrier, before: Phase, known: Array, own: int, number: int) -> None:
        late = before.arrivals > known[:len(before.arrivals)]
        late[own] = False
        missing = ""
        if late.any():
            missing = f"the arrival of {state.home.describe(int(np.flatnonzero(late)[0])).name}"
        elif before.bytes and known[state.agent] < number:
            missing = "the bytes"
        if missing:
            who = state.home.describe(own).name
            self.report("mbarrier-arrival", op, f"{who} arrives on {barrier} in phase {number} but is not ordered after {missing} of phase "
                        f"{number - 1}, where it may be counted instead", other=barrier.place)

    def _observed(self, op: Op, barrier: MBarrier, state: Barrier, before: Phase, known: Array, own: int, number: int) -> None:
        waited = before.waits > 0
        if not waited[own] and not (known[:len(waited)][waited] >= before.waits[waited]).any():
            who = state.home.describe(own).name
            self.report("mbarrier-unobserved", op, f"{who} is the first to arrive on {barrier} in phase {number}, and nobody is known to "
                        f"have waited for phase {number - 1}", other=barrier.place)

    def mbarrier_complete_tx(self, task: Task | None, barrier: MBarrier, count: int) -> None:
        state = self._barrier(barrier)
        state.phase(barrier.phase).bytes = True
        if task is None or task.shadow is None:
            return
        issued, view = task.shadow
        phase = issued.get(barrier.place)
        state.phase(barrier.phase).view.join_done(view)
        if phase is not None and phase != barrier.phase:
            self.report("mbarrier-bytes", task.op, f"the {count} bytes of `{task.op.opcode}` issued by {task.warp!r} in phase {phase} "
                        f"of {barrier} "
                        f"complete in phase {barrier.phase}", other=barrier.place)

    def mbarrier_flip(self, barrier: MBarrier, phase: int) -> None:
        state = self._barrier(barrier)
        before, now = state.phases.get(phase - 1), state.phase(phase)
        if before is None:
            return
        known = now.view.fit()[DONE]
        late = before.waits > known[:len(before.waits)]
        if late.any():
            who = state.home.describe(int(np.flatnonzero(late)[0])).name
            self.report("mbarrier-wait", now.op, f"phase {phase} of {barrier} completes without being ordered after the wait of {who} "
                        f"for phase "
                        f"{phase - 1}: a late waiter would miss it", other=barrier.place)

    def mbarrier_test(self, f: Fragment, mask: int, op: Op, barrier: MBarrier, phase: int, done: bool) -> None:
        lanes = self.lanes(f)
        first = (mask & -mask).bit_length() - 1
        state = self._use(f, lanes, first, op, barrier)
        if op.index not in self._looks:
            self._looks[op.index] = read_later(self.machine.program, op)
        if not self._looks[op.index]:
            self.report("mbarrier-ignored", op, f"nothing looks at what `{op.opcode}` of {f.warp!r} on {barrier} returns",
                        other=barrier.place)
            return
        if not done:
            return
        warp = lanes.warp
        if "parity" in op.tokens:
            before = state.phases.get(phase - 1)
            if before is not None and phase > 0:
                self._early(f, lanes, mask, op, barrier, state, before, phase)
        warp.used = True
        now = state.phase(phase)
        now.waits[indices(mask) + warp.base] = warp.epoch
        if phase < 0:
            return
        visible = "relaxed" not in op.tokens
        near = now.near.get(f.cta.rank)
        if near is not None:
            lanes.acquire(mask, near, visible=visible)
        if visible:
            lanes.complete(mask, state.agent, phase + 1)
        else:
            landed = state.home.new()
            landed.complete(state.agent, phase + 1)
            lanes.acquire(mask, landed, visible=False)
        if _wide(op.tokens):
            lanes.acquire(mask, now.view, visible=visible, apart=1)
        else:
            lanes.learn(mask, now.view)

    def _early(self, f: Fragment, lanes: Lanes, mask: int, op: Op, barrier: MBarrier, state: Barrier, before: Phase, phase: int) -> None:
        known = lanes.view(mask).fit()[DONE]
        late = before.arrivals > known[:len(before.arrivals)]
        late[indices(mask) + lanes.warp.base] = False
        if late.any() or (before.bytes and known[state.agent] < phase):
            self.report("mbarrier-early-wait", op, f"{f.warp!r} waits for phase {phase} of {barrier} and is not ordered after the "
                        f"completion of "
                        f"phase {phase - 1}: earlier, the same parity means phase {phase - 2}", other=barrier.place)

    # ------------------------------------------------------------------------------------------- named barriers, cluster

    def _counted(self, key: Any, home: Home) -> Barrier:
        found = self._named.get(key)
        if found is None:
            found = self._named[key] = Barrier(home, -1)
        return found

    def barrier_arrive(self, f: Fragment, mask: int, op: Op, barrier: NamedBarrier, count: int | None, waits: bool) -> None:
        self._join_generation(f, mask, op, self._counted(barrier, self.home(f.cta.cluster)), barrier.generation, str(barrier), visible=True)

    def _join_generation(self, f: Fragment, mask: int, op: Op, state: Barrier, number: int, name: str, *, visible: bool) -> None:
        lanes = self.lanes(f)
        warp = lanes.warp
        before = state.phases.get(number - 1)
        own = indices(mask) + warp.base
        if before is not None:
            late = before.arrivals > lanes.view(mask).fit()[DONE][:len(before.arrivals)]
            late[own] = False
            if late.any():
                who = state.home.describe(int(np.flatnonzero(late)[0])).name
                self.report("barrier-generation", op, f"{f.warp!r} arrives at {name} and is not ordered after the arrival of {who} in the "
                            "generation before, where it may be counted instead", other=name)
        phase = state.phase(number)
        out = lanes.publish(mask, 1, visible=visible)
        phase.view.join_done(out.done)
        if out.seen[1] is not None:
            phase.view.join(out.seen[1])
        phase.arrivals[own] = warp.epoch - 1

    def barrier_pass(self, f: Fragment, mask: int, op: Op, barrier: NamedBarrier, generation: int) -> None:
        self.lanes(f).acquire(mask, self._counted(barrier, self.home(f.cta.cluster)).phase(generation).view)

    def cluster_arrive(self, f: Fragment, mask: int, op: Op, cluster: Cluster) -> None:
        self._join_generation(f, mask, op, self._counted(cluster, self.home(cluster)), cluster.barrier.phase, "the cluster barrier",
                              visible="relaxed" not in op.tokens)

    def cluster_pass(self, f: Fragment, mask: int, op: Op, cluster: Cluster, phase: int) -> None:
        self.lanes(f).acquire(mask, self._counted(cluster, self.home(cluster)).phase(phase).view)

    # ------------------------------------------------------------------------------------------- copies and their groups

    def _agents(self, f: Fragment, task: Task, home: Home) -> tuple[tuple[int, int], list[tuple[int, int]]]:
        lanes = self.lanes(f)
        lane = task.mask.bit_length() - 1
        cluster = f.cta.cluster
        if task.signals:
            view = lanes.release(task.mask)
            issued: dict[int, int] = {}
            writers = []
            for place in task.signals:
                barrier = cluster.mbarriers.get(place)
                if barrier is None:
                    continue
                state = self._use(f, lanes, lane, task.op, barrier)
                issued[place] = barrier.phase
                writers.append((state.agent, barrier.phase + 1))
                self._expected(f, lanes, lane, task, barrier, state)
                self._distant(f, lane, task.op, barrier, (state.agent, barrier.phase + 1))
            task.shadow = issued, view
            if writers:
                return writers[0], writers
        base = lanes.warp.base + lane
        reads = home.agent(("reads", base), "bulk reads", f"{f.warp!r} lane {lane}")
        writes = home.agent(("writes", base), "bulk writes", f"{f.warp!r} lane {lane}")
        clock = home.known[("issued", base)] = home.known.get(("issued", base), 0) + 1
        task.shadow = task.shadow or ({}, lanes.view(task.mask))
        self._issued[id(task)] = (task, reads, writes, clock)
        return (reads, clock), [(writes, clock)]

    _issued: dict[int, tuple[Task, int, int, int]]

    def _expected(self, f: Fragment, lanes: Lanes, lane: int, task: Task, barrier: MBarrier, state: Barrier) -> None:
        """The copy's bytes must not be able to complete in the phase before."""
        before = state.phases.get(barrier.phase - 1)
        if before is None:
            return
        known = lanes.view(1 << lane).fit()[DONE]
        late = before.arrivals > known[:len(before.arrivals)]
        late[lanes.warp.base + lane] = False
        if late.any() or (before.bytes and known[state.agent] < barrier.phase):
            self.report("mbarrier-arrival", task.op, f"{f.warp!r} issues a copy that signals {barrier} in phase {barrier.phase} and is "
                        f"not ordered "
                        f"after the completion of phase {barrier.phase - 1}, where its bytes may be counted instead", other=barrier.place)

    def group_wait(self, f: Fragment, mask: int, op: Op, groups: Sequence[Group], milestone: int) -> None:
        lanes = self.lanes(f)
        warp = lanes.warp
        for group in groups:
            for task in group.tasks:
                if task.kind == "copy":
                    some = indices(mask & task.mask)
                    warp.copied[some] = np.maximum(warp.copied[some], task.shadow)
                    continue
                found = self._issued.get(id(task))
                if found is None or not task.mask & mask:
                    continue
                _, reads, writes, clock = found
                lanes.complete(task.mask & mask, reads, clock)
                if milestone == LANDED:
                    lanes.complete(task.mask & mask, writes, clock)

    def _distant(self, f: Fragment, lane: int, op: Op, barrier: MBarrier, stamp: tuple[int, int] | None = None) -> None:
        """An operation on an mbarrier, perhaps of another CTA; a copy has an asynchronous stamp."""


def _goes_on(program: Program, op: Op) -> bool:
    """Whether an instruction is a branch both of whose ways lead to the same place."""
    if op.signature.form.effects.control != "branch":
        return False
    ends: set[int] = set()
    for index in program.blocks[op.block].successors:
        for _ in program.blocks:
            if index < 0:
                break
            block = program.blocks[index]
            if len(block.successors) != 1 or any(o.signature.form.effects.control != "branch" for o in block.ops):
                break
            index = block.successors[0]
        ends.add(index)
    return len(ends) == 1


def read_later(program: Program, op: Op) -> bool:
    """Whether some instruction may read what this one writes into registers."""
    left = op.writes()
    block = program.blocks[op.block]
    after = block.ops[block.ops.index(op) + 1:]
    seen: set[int] = set()
    work = [(after, block.successors)]
    while work:
        ops, successors = work.pop()
        for other in ops:
            if not left.isdisjoint(other.reads()) and not _goes_on(program, other):
                return True
            if other.guard is None and left <= other.writes():
                break
        else:
            for index in successors:
                if index >= 0 and index not in seen:
                    seen.add(index)
                    work.append((program.blocks[index].ops, program.blocks[index].successors))
    return False


def _wide(tokens: list[str]) -> bool:
    """Whether an operation's scope goes beyond the CTA."""
    return not _WIDE.isdisjoint(tokens)


_WIDE = {"cluster", "gpu", "sys"}
