"""Barriers, fences and groups: what they make known, and the certificates under which every schedule counts alike.

Of an mbarrier (and likewise of a named barrier): an arrival is *tight* when it comes after everything that completed the phase before,
else it may be counted there; a phase is *observed* when somebody waited for it before the next one's first arrival; a wait is tight when
the next phase cannot complete before it, else the waiter may be two phases late and, seeing only a parity, wait for the wrong one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..milestones import DONE as LANDED
from ..tasks import Group, Task
from ..values import Array, indices
from .agents import LANE_WORDS
from .clocks import DONE, GLOBAL, PUBLISHED, SEEN, SHARED, Home, Lanes, Published
from .maps import MapRules
from .phases import Barrier, Phase
from .shadow import ATOMIC, OVER, POLL, READ, SAME
from .strong import scope_of

if TYPE_CHECKING:
    from ..barriers import MBarrier, NamedBarrier
    from ..cta import Cluster
    from ..fragment import Fragment
    from ..program import Op, Program


class OrderRules(MapRules):
    def __init__(self) -> None:
        super().__init__()
        self._looks: dict[int, bool] = {}
        self._stray: set[Task] = set()
        """Copies that another schedule's elected lane does not commit."""

    # ------------------------------------------------------------------------------------------- warps and fences

    def warp_sync(self, f: Fragment, mask: int, op: Op) -> None:
        lanes = self.lanes(f, op, mask)
        if op.opcode == "bar.warp.sync":
            lanes.meet(mask)
        elif lanes.warp.used or lanes.doubles:
            lanes.meet_done(mask)

    def warp_meet(self, parts: Sequence[tuple[Fragment, int]], op: Op) -> None:
        visible = op.opcode == "bar.warp.sync"
        met = self.lanes(parts[0][0]).release(parts[0][1], visible=visible)
        for f, mask in parts[1:]:
            met.join(self.lanes(f).release(mask, visible=visible))
        every = 0
        for _, mask in parts:
            every |= mask
        doubles = {id(double): double for f, _ in parts for double in self.lanes(f).elected(every)}.values()
        for double in doubles:
            met.join(double.lanes.release(double.mask, visible=visible))
        for double in doubles:
            if visible:
                double.lanes.acquire(double.mask, met)
            else:
                double.lanes.learn(double.mask, met)
        for f, mask in parts:
            if visible:
                self.lanes(f).acquire(mask, met)
            else:
                self.lanes(f).learn(mask, met)

    def fence(self, f: Fragment, mask: int, op: Op) -> None:
        lanes = self.lanes(f, op, mask)
        tokens = op.tokens
        if "proxy" in tokens or tokens[0] == "tensormap":
            if any(t.startswith("tensormap") for t in tokens):
                if "acquire" not in tokens and tokens[0] != "tensormap":
                    lanes.fence_proxy(mask, [PUBLISHED])
            elif "async" in tokens:
                lanes.fence_proxy(mask, _covered(tokens, f.cta.rank, len(f.cta.cluster.ctas)))
            return
        if "mbarrier_init" in tokens:
            home = self.home(f.cta.cluster)
            for base, some in [(lanes.warp.base, mask), *((double.lanes.warp.base, double.mask) for double in lanes.elected(mask))]:
                for barrier in home.state.get(("inits", base), ()):
                    if some >> barrier.owner - base & 1:
                        barrier.fenced = True
            return
        if "release" not in tokens and (lanes.pending or lanes.doubles):
            lanes.unseal(mask, scope_of(tokens))
        if "acquire" not in tokens:
            lanes.seal(mask, scope_of(tokens))

    # ------------------------------------------------------------------------------------------- mbarriers

    def _barrier(self, barrier: MBarrier) -> Barrier:
        state: Barrier | None = barrier.shadow
        if state is None:
            home = self.home(barrier.cta.cluster)
            who = barrier.name, barrier.cta.index
            state = barrier.shadow = Barrier(home, home.agent(("mbarrier", id(barrier)), "copies", "copies on {} of CTA {}", who))
        return state

    def mbarrier_init(self, f: Fragment, lane: int, op: Op, barrier: MBarrier, before: MBarrier | None) -> None:
        lanes = self.lanes(f, op, 1 << lane)
        lanes.warp.used = True
        if before is not None:
            self.report("mbarrier-reinit", op, f"{f.warp!r} initialises {barrier}, which is a live mbarrier")
        state = self._barrier(barrier)
        state.owner, state.clock = lanes.warp.base + lane, lanes.warp.epoch
        state.home.state.setdefault(("inits", lanes.warp.base), []).append(state)
        shadow = self.shadow(f.cta.cluster)
        cells = slice(barrier.place >> shadow.shift, (barrier.place + 7 >> shadow.shift) + 1)
        known = lanes.view(1 << lane).fit()[SEEN]
        bad = shadow.writes_unknown(cells, known)
        if bad is not None and int(shadow.agent[cells][int(bad[0])]) != state.owner:
            self.report("mbarrier-overlap", op, f"{barrier} is initialised where "
                        f"{self.site(int(shadow.site[cells][int(bad[0])]))} may still write")
            return
        own = np.full(cells.stop - cells.start, lane)
        every = np.arange(cells.start, cells.stop)
        prior = shadow.unknown((READ, POLL, ATOMIC, SAME, OVER), every, known, own, lanes.warp.base, lanes.warp.copies)
        if prior is not None:
            self.report("mbarrier-overlap", op, f"{barrier} is initialised where {self.site(prior.site)} of "
                        f"{state.home.describe(prior.agent).name} may still {'write' if prior.wrote else 'read'}")

    def mbarrier_inval(self, f: Fragment, lane: int, op: Op, barrier: MBarrier) -> None:
        lanes = self.lanes(f, op, 1 << lane)
        state = self._use(f, lanes, lane, op, barrier)
        lanes.warp.used = True
        shadow = self.shadow(f.cta.cluster)
        cells = shadow.span(barrier.place, 8)
        shadow.accessed(OVER, lanes.warp.base, np.arange(cells.start, cells.stop), lanes.warp.epoch, op.index, 1 << lane)
        known, own = lanes.view(1 << lane).fit()[DONE], lanes.warp.base + lane
        for phase in state.phases.values():
            late = (phase.arrivals > known[:len(phase.arrivals)]) | phase.late(known)
            late[own] = False
            if late.any():
                who = state.home.describe(int(np.flatnonzero(late)[0])).name
                self.report("mbarrier-init", op, f"{f.warp!r} lane {lane} invalidates {barrier} and nothing orders that after its use by "
                            f"{who}", other=barrier.place)
                return

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
        lanes = self.lanes(f, op, 1 << lane)
        phase = self._use(f, lanes, lane, op, barrier).phase(barrier.phase)
        phase.bytes = True
        if op.tokens[1] == "expect_tx":
            lanes.warp.used = True
            phase.promise(lanes.warp.base + lane, lanes.warp.epoch, op, count)

    def mbarrier_arrive(self, f: Fragment, lane: int, op: Op, barrier: MBarrier, count: int, drop: bool) -> None:
        lanes = self.lanes(f, op, 1 << lane)
        state = self._use(f, lanes, lane, op, barrier)
        self._distant(f, lane, op, barrier)
        own = lanes.warp.base + lane
        known = lanes.view(1 << lane).fit()[DONE]
        scope, visible = 1 if _wide(op.tokens) else 0, "relaxed" not in op.tokens
        out = lanes.publish(1 << lane, scope, visible=visible)
        if "noComplete" in op.tokens:
            state.phase(barrier.phase).promise(own, lanes.warp.epoch - 1, op)
        self._arrives(state, barrier, op, known, own, out, f.cta.rank)
        if lanes.doubles:
            phase = state.phase(barrier.phase)
            for other in phase.with_elected(lanes, lane, lambda some, mask: some.publish(mask, scope, visible=visible)):
                phase.publish(other, f.cta.rank)

    def copies_counted(self, f: Fragment, lane: int, op: Op, barrier: MBarrier) -> None:
        lanes = self.lanes(f, op, 1 << lane)
        state = self._use(f, lanes, lane, op, barrier)
        if "noinc" not in op.tokens:
            lanes.warp.used = True
            state.phase(barrier.phase).promise(lanes.warp.base + lane, lanes.warp.epoch, op)

    def copies_arrive(self, task: Task, barrier: MBarrier) -> None:
        out, warp = task.shadow
        own = warp.base + task.mask.bit_length() - 1
        self._arrives(self._barrier(barrier), barrier, task.op, out.fit()[DONE], own, Published(out, (out, None, None)), task.warp.cta.rank)

    def _arrives(self, state: Barrier, barrier: MBarrier, op: Op, known: Array, own: int, out: Published, rank: int) -> None:
        """A lane's arrival: what it knows to have been done, what it publishes."""
        number = barrier.phase
        phase = state.phase(number)
        before = state.before(number)
        if before is not None:
            self._tight(op, barrier, state, before, known, own, number)
            if number and not phase.arrived:        # nobody need wait for what a fresh barrier answers
                self._observed(op, barrier, state, before, known, own, number)
        if phase.promised and "noComplete" not in op.tokens and (op.tokens[0] == "mbarrier" or "noinc" in op.tokens):
            phase.follows(own, known)
        phase.arrived += 1
        phase.op = op
        phase.arrivals[own] = out.done.a.item(DONE, own)
        phase.publish(out, rank)

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
        before, now = state.before(phase), state.phase(phase)
        for lane, (_, op, _) in now.promised.items():
            self.report("mbarrier-arrival", op, f"{state.home.describe(lane).name} executes `{op.opcode}` on {barrier} in phase {phase}, "
                        "and no arrival is known to come after it: the phase may be complete before", other=barrier.place)
        if before is None:
            return
        known = now.view.fit()[DONE]
        late = before.late(known)
        if late.any():
            who = state.home.describe(int(np.flatnonzero(late)[0])).name
            self.report("mbarrier-wait", now.op, f"phase {phase} of {barrier} completes without being ordered after the wait of {who} "
                        f"for phase "
                        f"{phase - 1}: a late waiter would miss it", other=barrier.place)

    def mbarrier_test(self, f: Fragment, mask: int, op: Op, barrier: MBarrier, phase: int, done: bool) -> None:
        lanes = self.lanes(f, op, mask)
        first = (mask & -mask).bit_length() - 1
        state = self._use(f, lanes, first, op, barrier)
        looks = self._looks.get(op.index)
        if looks is None:
            looks = self._looks[op.index] = read_later(self.machine.program, op)
        if not looks:
            self.report("mbarrier-ignored", op, f"nothing looks at what `{op.opcode}` of {f.warp!r} on {barrier} returns",
                        other=barrier.place)
            return
        self.waited(f, op, barrier, phase, done)
        if not done:
            return
        warp = lanes.warp
        if "parity" in op.tokens:
            before = state.before(phase)
            if before is not None and phase > 0:
                self._early(f, lanes, mask, op, barrier, state, before, phase)
        warp.used = True
        now = state.phase(phase)
        now.waits[warp.places(mask)[0]] = warp.epoch
        if warp.elected:
            now.with_all.discard(warp.base + first)
        for double in lanes.elected(mask):
            double.lanes.warp.used = True
            now.waits[double.agent] = double.lanes.warp.epoch
            now.with_all.add(double.agent)
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
        late[lanes.warp.places(mask)[0]] = False
        for double in lanes.elected(mask):
            late[double.agent] = False
        if late.any() or (before.bytes and known[state.agent] < phase):
            self.report("mbarrier-early-wait", op, f"{f.warp!r} waits for phase {phase} of {barrier} and is not ordered after the "
                        f"completion of "
                        f"phase {phase - 1}: earlier, the same parity means phase {phase - 2}", other=barrier.place)

    # ------------------------------------------------------------------------------------------- named barriers, cluster

    def _counted(self, key: Any, home: Home) -> Barrier:
        found: Barrier | None = home.state.get(("counted", key))
        if found is None:
            found = home.state["counted", key] = Barrier(home, -1)
        return found

    def barrier_arrive(self, f: Fragment, mask: int, op: Op, barrier: NamedBarrier, count: int | None, waits: bool) -> None:
        self._join_generation(f, mask, op, self._counted(barrier, self.home(f.cta.cluster)), barrier.generation, barrier, visible=True)

    def _join_generation(self, f: Fragment, mask: int, op: Op, state: Barrier, number: int, name: object, *, visible: bool) -> None:
        lanes = self.lanes(f, op, mask)
        warp = lanes.warp
        before = state.before(number)
        own, _ = warp.places(mask)
        if before is not None:
            late = before.arrivals > lanes.view(mask).fit()[DONE][:len(before.arrivals)]
            late[own] = False
            if late.any():
                who = state.home.describe(int(np.flatnonzero(late)[0])).name
                self.report("barrier-generation", op, f"{f.warp!r} arrives at {name} and is not ordered after the arrival of {who} in the "
                            "generation before, where it may be counted instead", other=str(name))
        phase = state.phase(number)
        out = lanes.publish(mask, 1, visible=visible)
        if out.seen[1] is not out.done:
            phase.view.join_done(out.done)
        if out.seen[1] is not None:
            phase.view.join(out.seen[1])
        phase.arrivals[own] = warp.epoch - 1

    def barrier_pass(self, f: Fragment, mask: int, op: Op, barrier: NamedBarrier, generation: int) -> None:
        self.lanes(f, op, mask).acquire(mask, self._counted(barrier, self.home(f.cta.cluster)).phase(generation).view)

    def cluster_arrive(self, f: Fragment, mask: int, op: Op, cluster: Cluster) -> None:
        self._join_generation(f, mask, op, self._counted(cluster, self.home(cluster)), cluster.barrier.phase, "the cluster barrier",
                              visible="relaxed" not in op.tokens)

    def cluster_pass(self, f: Fragment, mask: int, op: Op, cluster: Cluster, phase: int) -> None:
        self.lanes(f, op, mask).acquire(mask, self._counted(cluster, self.home(cluster)).phase(phase).view)

    # ------------------------------------------------------------------------------------------- copies and their groups

    def _agents(self, f: Fragment, task: Task, home: Home) -> tuple[tuple[int, int], list[tuple[int, int]]]:
        lanes = self.lanes(f, task.op, task.mask)
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
                if (phase := state.phase(barrier.phase)).promised:
                    phase.follows(lanes.warp.base + lane, lanes.view(1 << lane).fit()[DONE], task.bytes)
                self._distant(f, lane, task.op, barrier, (state.agent, barrier.phase + 1))
            task.shadow = issued, view
            if writers:
                return writers[0], writers
        base = lanes.warp.base + lane
        who = f.cta.index, f.warp.index, lane
        reads = home.agent(("reads", base), "bulk reads", LANE_WORDS, who)
        writes = home.agent(("writes", base), "bulk writes", LANE_WORDS, who)
        clock = home.known[("issued", base)] = home.known.get(("issued", base), 0) + 1
        task.shadow = task.shadow or ({}, lanes.view(task.mask))
        home.state.setdefault(("bulk", f.warp), {})[task] = reads, writes, clock
        return (reads, clock), [(writes, clock)]

    def _expected(self, f: Fragment, lanes: Lanes, lane: int, task: Task, barrier: MBarrier, state: Barrier) -> None:
        """The copy's bytes must not be able to complete in the phase before."""
        before = state.before(barrier.phase)
        if before is None:
            return
        known = lanes.view(1 << lane).fit()[DONE]
        late = before.arrivals > known[:len(before.arrivals)]
        late[lanes.warp.base + lane] = False
        if late.any() or (before.bytes and known[state.agent] < barrier.phase):
            self.report("mbarrier-arrival", task.op, f"{f.warp!r} issues a copy that signals {barrier} in phase {barrier.phase} and is "
                        f"not ordered "
                        f"after the completion of phase {barrier.phase - 1}, where its bytes may be counted instead", other=barrier.place)

    def _are(self, f: Fragment, lanes: Lanes, task: Task, every: Lanes, mask: int) -> bool:
        """Whether a task's lane is among those of the mask, whichever lane is elected: it may not be the elected one, or only that."""
        if lanes is every or any(double.lanes is lanes for double in every.elected(mask)):
            return True
        return lanes is self.lanes(f) and task.mask & task.mask - 1 != 0

    def group_commit(self, f: Fragment, mask: int, op: Op, group: Group) -> None:
        every = self.lanes(f, op, mask)
        self._stray.update(task for task in group.tasks if not self._are(f, task.elected or self.lanes(f), task, every, mask))

    def group_wait(self, f: Fragment, mask: int, op: Op, groups: Sequence[Group], milestone: int) -> None:
        every = self.lanes(f, op, mask)
        issued: dict[Task, tuple[int, int, int]] = self.home(f.cta.cluster).state.get(("bulk", f.warp), {})
        for group in groups:
            for task in group.tasks:
                lanes = task.elected or self.lanes(f)
                if task in self._stray or not self._are(f, lanes, task, every, mask):
                    continue
                warp = lanes.warp
                if task.kind == "copy":
                    some = indices(mask & task.mask)
                    warp.copied[some] = np.maximum(warp.copied[some], task.shadow)
                    continue
                found = issued.get(task)
                if found is None or not task.mask & mask:
                    continue
                reads, writes, clock = found
                lanes.complete(task.mask & mask, reads, clock)
                if milestone == LANDED:
                    lanes.complete(task.mask & mask, writes, clock)
                    del issued[task]

    def _distant(self, f: Fragment, lane: int, op: Op, barrier: MBarrier, stamp: tuple[int, int] | None = None) -> None:
        """An operation on an mbarrier, perhaps of another CTA; a copy has an asynchronous stamp."""


def _covered(tokens: list[str], rank: int, ctas: int) -> list[int]:
    """The rows of a proxy fence: the state space that it names, all of them without a name. `.shared::cta` is the CTA's own memory."""
    if "global" in tokens:
        return [GLOBAL]
    if "shared::cta" in tokens:
        return [SHARED + rank]
    shared = [SHARED + other for other in range(ctas)]
    return shared if "shared::cluster" in tokens else [GLOBAL, *shared]


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
