"""Lifetimes: other CTAs' shared memory, bulk copies at exit, registers of setmaxnreg, barriers' storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..values import Array, indices, lane_list
from .boxes import BoxRules
from .clocks import DONE
from .copies import CopyRules

if TYPE_CHECKING:
    from ..barriers import MBarrier
    from ..cta import Cluster, Cta
    from ..fragment import Fragment
    from ..program import Op
    from ..tasks import Task
    from .clocks import Double, Home


class Lifetime:
    """Of a CTA: what its threads knew when they ended, and the remote events that must come before its end (by agent). `copies`: its own
    copies into its shared memory, `threads`: per warp the last cp.async of each lane. `passed`: the last phase of the cluster barrier
    that one of its threads has waited for.
    """

    def __init__(self, width: int) -> None:
        self.known: Array = np.zeros(width, np.int32)
        self.events: dict[int, tuple[int, Any]] = {}
        self.copies: dict[int, tuple[int, Any]] = {}
        self.threads: dict[int, tuple[Array, Any]] = {}
        self.passed = -1


class Checker(CopyRules, BoxRules):
    """The observer that `run` uses when it checks."""

    def __init__(self) -> None:
        super().__init__()

    def _life(self, cta: Cta) -> Lifetime:
        home = self.home(cta.cluster)
        found: Lifetime | None = home.state.get(cta)
        if found is None:
            found = home.state[cta] = Lifetime(home.width)
        return found

    def _note(self, f: Fragment, cta: Cta, agent: int, clock: int, op: Op) -> None:
        """A remote event on a CTA's shared memory, that it must outlive."""
        if not cta.live:
            self.report("dsmem-exit", op, f"`{op.opcode}` of {f.warp!r} reaches {cta!r}, which has exited")
            return
        events = self._life(cta).events
        if not (op.tokens[0] == "ld" and agent in events and events[agent][1].tokens[0] != "ld"):
            events[agent] = clock, op
        else:
            events[agent] = clock, events[agent][1]
        home = self.home(cta.cluster)
        known = self.lanes(f).view(f.mask).fit()[DONE]
        first = 32 * home.warps_per_cta * cta.rank
        if not known[first:first + 32 * home.warps_per_cta].any():
            self.report("dsmem-entry", op, f"`{op.opcode}` of {f.warp!r} reaches {cta!r}, which is not known to have started")

    def _remote(self, f: Fragment, mask: int, op: Op, at: Any) -> None:
        ctas = f.cta.cluster.ctas
        if len(ctas) == 1:
            return
        stride = self.machine.shared_stride
        low, high = (at, at) if isinstance(at, int) else (int(at.min()), int(at.max()))
        own = f.cta.rank
        if low // stride == own == high // stride:
            return
        warp = self.lanes(f, op, mask).warp
        for rank in {int(x) // stride for x in ([at] if isinstance(at, int) else at)} - {own}:
            self._note(f, ctas[rank], warp.base + mask.bit_length() - 1, warp.epoch, op)

    def source(self, f: Fragment, op: Op, agent: int, clock: int) -> None:
        """A copy to another CTA, that only its mbarrier there says to be over, reads this CTA's shared memory."""
        self._life(f.cta).events[agent] = clock, op

    def _distant(self, f: Fragment, lane: int, op: Op, barrier: MBarrier, stamp: tuple[int, int] | None = None) -> None:
        if barrier.cta is f.cta:
            if stamp is not None:
                self._life(f.cta).copies[stamp[0]] = stamp[1], op
            return
        warp = self.lanes(f, op, 1 << lane).warp
        self._note(f, barrier.cta, *(stamp or (warp.base + lane, warp.epoch)), op)

    def _overlaps(self, f: Fragment, op: Op, mode: str, at: Any, size: int) -> None:
        barriers = f.cta.cluster.mbarriers
        if not barriers:
            return
        low, high = (at, at + size) if isinstance(at, int) else (int(at.min()), int(at.max()) + size)
        if max(barriers) <= low - 8 or min(barriers) >= high:
            return
        near = [place for place in barriers if low - 8 < place < high]
        hit = bool(near) and (isinstance(at, int) or any(bool(((at - 8 < place) & (place < at + size)).any()) for place in near))
        if hit and mode != "r":
            self.report("mbarrier-overlap", op, f"`{op.opcode}` of {f.warp!r} writes into a live mbarrier")
        elif hit and (not op.writes() or self.reach(op, "order") is not None):
            self.withhold(op, f"`{op.opcode}` of {f.warp!r} reads a live mbarrier, of which PTX does not say what it holds", "undefined")

    def exited(self, f: Fragment, mask: int) -> None:
        lanes = self.lanes(f)
        home = self.home(f.cta.cluster)
        life = self._life(f.cta)
        known = lanes.view(mask)
        alone = self._alone_at(f, mask) if self.alone else []
        for double in alone:
            known = known.copy().join(double.lanes.view(double.mask))
        known_by = known.fit()
        if len(life.known) < home.width:
            life.known = np.pad(life.known, (0, home.width - len(life.known)))
        np.maximum(life.known, known_by[DONE], out=life.known)
        for warp, some in [(lanes.warp, mask), *((d.lanes.warp, d.mask) for d in (*lanes.elected(mask), *alone))]:
            if warp.copies >= 0:
                at = indices(some)
                life.known[warp.copies + at] = np.maximum(life.known[warp.copies + at], warp.copied[at])
        self._gone(f, mask, home)
        for task, (reads, _, clock) in home.state.get(("bulk", f.warp), {}).items():
            if task.mask & mask and known_by.item(DONE, reads) < clock:
                self.report("bulk-exit", task.op, f"{f.warp!r} exits while `{task.op.opcode}` may still read its shared memory")
        quarter = lanes.warp.wgmma
        if quarter is not None and quarter.groups and not f.warp.live:
            self.report("wgmma-uncommitted", None, f"{f.warp!r} exits with a wgmma in flight")

    def _alone_at(self, f: Fragment, mask: int) -> list[Double]:
        """The elected lane that these lanes are, where it is alone."""
        found = [self._elected(f, op, mask) for op in self.machine.program.blocks[f.block].ops]
        return [double for double in found if double is not None][:1]

    def _gone(self, f: Fragment, mask: int, home: Home) -> None:
        """Lanes end: from this phase on the cluster barrier waits for them no more."""
        if len(f.cta.cluster.ctas) == 1:
            return
        barrier = f.cta.cluster.barrier
        here = barrier.arrived.get((f.cta.rank, f.warp.index), 0)
        left: dict[int, int] = home.state.setdefault("left", {})
        lanes = self.lanes(f)
        for lane in lane_list(mask):
            left[lanes.warp.base + lane] = barrier.phase + (here >> lane & 1)
        for double in lanes.elected(mask):
            left[double.agent] = barrier.phase + (here >> double.lane & 1)

    def cluster_pass(self, f: Fragment, mask: int, op: Op, cluster: Cluster, phase: int) -> None:
        super().cluster_pass(f, mask, op, cluster, phase)
        life = self._life(f.cta)
        life.passed = max(life.passed, phase)

    def issued(self, f: Fragment, task: Task) -> None:
        super().issued(f, task)
        if task.kind == "copy":
            warp, life = (task.elected or self.lanes(f)).warp, self._life(f.cta)
            last, _ = life.threads.setdefault(warp.copies, (np.zeros(32, np.int32), task.op))
            last[indices(task.mask)] = task.shadow

    def _same_counts(self, cta: Cta) -> None:
        """All warps of a warpgroup execute the same setmaxnreg."""
        state = self.home(cta.cluster).state
        for group in cta.warpgroups:
            done = [state.pop(("setmaxnreg", warp), []) for warp in group.warps]
            most = max(done, key=len)
            for warp, ops in zip(group.warps, done, strict=True):
                if ops != most:
                    op = next(op for i, op in enumerate(most) if ops[i:i + 1] != [op])
                    self.report("setmaxnreg-participation", op, f"{warp!r} does not execute `{op.opcode}`, other warps of its warpgroup do")

    def cta_end(self, cta: Cta) -> None:
        self._same_counts(cta)
        home = self.home(cta.cluster)
        life: Lifetime | None = home.state.get(cta)
        for agent, (clock, op) in (life.events.items() if life else ()):
            if life and (agent >= len(life.known) or life.known[agent] < clock):
                if home.state.get("left", {}).get(agent, life.passed + 1) > life.passed:
                    self.report("dsmem-exit", op, f"{cta!r} may exit before `{op.opcode}` of {home.describe(agent).name} has reached it")
                elif op.tokens[0] != "ld":
                    self.withhold(op, f"{cta!r} waits for the end of {home.describe(agent).name}, and nothing says that its `{op.opcode}` "
                                  "has reached it then", "order", "end")
        for agent, (clock, op) in (life.copies.items() if life else ()):
            if life and (agent >= len(life.known) or life.known[agent] < clock):
                self.withhold(op, f"{cta!r} may exit before `{op.opcode}` of {home.describe(agent).name} has written its shared memory, "
                              "which the next CTA may have then", "order", "end")
        for first, (clocks, op) in (life.threads.items() if life else ()):
            if life and (life.known[first:first + 32] < clocks[:len(life.known[first:first + 32])]).any():
                self.report("bulk-exit", op, f"{cta!r} may exit before `{op.opcode}` of {home.describe(first).name} has written its shared "
                            "memory", fix="cp.async.wait_all before the threads exit")
        if not cta.cluster.live:
            self.forget(cta.cluster)

    def registers(self, f: Fragment, op: Op, before: int, after: int) -> None:
        self.home(f.cta.cluster).state.setdefault(("setmaxnreg", f.warp), []).append(op)
        grows = "inc" in op.tokens
        if (after < before) if grows else (after > before):
            self.report("setmaxnreg-direction", op, f"`{op.opcode}` of {f.warp!r} goes from {before} to {after} registers")

