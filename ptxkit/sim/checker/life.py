"""Lifetimes: other CTAs' shared memory, bulk copies at exit, registers of setmaxnreg, barriers' storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..values import Array
from .clocks import DONE
from .products import ProductRules

if TYPE_CHECKING:
    from ..barriers import MBarrier
    from ..cta import Cta, Warp
    from ..fragment import Fragment
    from ..machine import Machine
    from ..program import Op


class Lifetime:
    """Of a CTA: what its threads knew when they ended, and the remote events that must come before its end (by agent)."""

    def __init__(self, width: int) -> None:
        self.known: Array = np.zeros(width, np.int32)
        self.events: dict[int, tuple[int, Any]] = {}
        self.starts = 0


class Checker(ProductRules):
    """The observer that `run` uses when it checks."""

    def __init__(self) -> None:
        super().__init__()
        self._issued = {}
        self._lives: dict[Cta, Lifetime] = {}
        self._counts: dict[Warp, list[Op]] = {}

    def _life(self, cta: Cta) -> Lifetime:
        found = self._lives.get(cta)
        if found is None:
            found = self._lives[cta] = Lifetime(self.home(cta.cluster).width)
        return found

    def _note(self, f: Fragment, cta: Cta, agent: int, clock: int, op: Op) -> None:
        """A remote event on a CTA's shared memory, that it must outlive."""
        if not cta.live:
            self.report("dsmem-exit", op, f"`{op.opcode}` of {f.warp!r} reaches {cta!r}, which has exited")
            return
        self._life(cta).events[agent] = clock, op
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
        warp = self.lanes(f).warp
        for rank in {int(x) // stride for x in ([at] if isinstance(at, int) else at)} - {own}:
            self._note(f, ctas[rank], warp.base + mask.bit_length() - 1, warp.epoch, op)

    def source(self, f: Fragment, op: Op, agent: int, clock: int) -> None:
        """A copy to another CTA, that only its mbarrier there says to be over, reads this CTA's shared memory."""
        self._life(f.cta).events[agent] = clock, op

    def _distant(self, f: Fragment, lane: int, op: Op, barrier: MBarrier, stamp: tuple[int, int] | None = None) -> None:
        if barrier.cta is f.cta:
            return
        warp = self.lanes(f).warp
        self._note(f, barrier.cta, *(stamp or (warp.base + lane, warp.epoch)), op)

    def _overlaps(self, f: Fragment, op: Op, mode: str, at: Any, size: int) -> None:
        barriers = f.cta.cluster.mbarriers
        if not barriers or (mode == "r" and size == 8):
            return
        if isinstance(at, int):
            hit = any(at - 8 < place < at + size for place in barriers)
        else:
            low, high = int(at.min()), int(at.max()) + size
            near = [place for place in barriers if low - 8 < place < high]
            hit = bool(near) and any(bool(((at - 8 < place) & (place < at + size)).any()) for place in near)
        if hit and mode != "r":
            self.report("mbarrier-overlap", op, f"`{op.opcode}` of {f.warp!r} writes into a live mbarrier")

    def exited(self, f: Fragment, mask: int) -> None:
        lanes = self.lanes(f)
        home = self.home(f.cta.cluster)
        life = self._life(f.cta)
        known = lanes.view(mask).fit()
        if len(life.known) < home.width:
            life.known = np.pad(life.known, (0, home.width - len(life.known)))
        np.maximum(life.known, known[DONE], out=life.known)
        for task, reads, _, clock in self._issued.values():
            if task.warp is f.warp and task.mask & mask and known.item(DONE, reads) < clock:
                self.report("bulk-exit", task.op, f"{f.warp!r} exits while `{task.op.opcode}` may still read its shared memory")
        quarter = self._quarters.get(f.warp)
        if quarter is not None and quarter.groups and not f.warp.live:
            self.report("wgmma-uncommitted", None, f"{f.warp!r} exits with a wgmma in flight")

    def _same_counts(self, cta: Cta) -> None:
        """All warps of a warpgroup execute the same setmaxnreg."""
        for group in cta.warpgroups:
            done = [self._counts.pop(warp, []) for warp in group.warps]
            most = max(done, key=len)
            for warp, ops in zip(group.warps, done, strict=True):
                if ops != most:
                    op = next(op for i, op in enumerate(most) if ops[i:i + 1] != [op])
                    self.report("setmaxnreg-participation", op, f"{warp!r} does not execute `{op.opcode}`, other warps of its warpgroup do")

    def cta_end(self, cta: Cta) -> None:
        self._same_counts(cta)
        life = self._lives.get(cta)
        if life is None or not life.events:
            return
        home = self.home(cta.cluster)
        for agent, (clock, op) in life.events.items():
            if agent >= len(life.known) or life.known[agent] < clock:
                self.report("dsmem-exit", op, f"{cta!r} may exit before `{op.opcode}` of {home.describe(agent).name} has reached it")

    def registers(self, f: Fragment, op: Op, before: int, after: int) -> None:
        self._counts.setdefault(f.warp, []).append(op)
        grows = "inc" in op.tokens
        if (after < before) if grows else (after > before):
            self.report("setmaxnreg-direction", op, f"`{op.opcode}` of {f.warp!r} goes from {before} to {after} registers")

    def polled(self, f: Fragment, mask: int, op: Op) -> None:
        self.incomplete = True

    def end(self, machine: Machine) -> None:
        self._issued.clear()
