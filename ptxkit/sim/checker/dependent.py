"""Programmatic dependent launch: before griddepcontrol.wait returns, the grid before may still read and write its arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..previous import Use
from ..values import Array, indices
from .clocks import DONE, SEEN, Home, View
from .undefined import UndefinedRules

if TYPE_CHECKING:
    from ..fragment import Fragment
    from ..machine import Machine
    from ..memory import Memory, Places
    from ..program import Op
    from ..tasks import Task

AGENT = "the grid before"


class DependentRules(UndefinedRules):
    """`previous`: what the grid before uses, None if nothing is said of it."""

    def __init__(self) -> None:
        super().__init__()
        self.previous: tuple[Use, ...] | None = None
        self._depends = False

    def begin(self, machine: Machine) -> None:
        super().begin(machine)
        controls = any(op.tokens[0] == "griddepcontrol" for op in machine.program.ops)
        self._depends = bool(self.previous) or (self.previous is None and controls)

    def previous_ended(self, f: Fragment, mask: int, op: Op) -> None:
        if self._depends:
            self.lanes(f, op, mask).complete(mask, self._grid(self.home(f.cta.cluster)), 1)

    def access(self, f: Fragment, mask: int, op: Op, mode: str, memory: Memory, places: Places, size: int, strong: bool,
               values: Any = None) -> None:
        super().access(f, mask, op, mode, memory, places, size, strong, values)
        if not self._depends or memory.space != "global":
            return
        for lanes, view in self.lanes(f, op, mask).groups:
            some = lanes & mask
            if some and not self._waited(view, SEEN):
                starts = np.asarray([places] if isinstance(places, int) else places[indices(some)])
                self._before(f, op, mode, view, starts, size)

    def issued(self, f: Fragment, task: Task) -> None:
        super().issued(f, task)
        if not self._depends:
            return
        view = self.lanes(f, task.op, task.mask).view(task.mask)
        if self._waited(view, SEEN):
            return
        for mode, regions in (("r", task.reads), ("w", task.writes)):
            for region in regions:
                if region.memory.space == "global" and np.size(region.starts):
                    self._before(f, task.op, mode, view, np.atleast_1d(np.asarray(region.starts)), region.length)

    def tensormap(self, f: Fragment, lane: int, op: Op, memory: Memory, place: int) -> None:
        super().tensormap(f, lane, op, memory, place)
        if self._depends and memory.space == "global":
            view = self.lanes(f, op, 1 << lane).view(1 << lane)
            if not self._waited(view, SEEN):
                self._before(f, op, "r", view, np.asarray([place]), 128)

    def _grid(self, home: Home) -> int:
        return home.agent(AGENT, "grid", AGENT)

    def _waited(self, view: View, row: int) -> bool:
        """Whether this comes after a griddepcontrol.wait, of this cluster or another one."""
        agent = view.home.known.get(AGENT)
        if agent is not None and view.fit().item(row, agent):
            return True
        for home, a in (view.far or {}).items():
            agent = home.known.get(AGENT)
            if agent is not None and agent < a.shape[1] and a.item(row, agent):
                return True
        return False

    def _before(self, f: Fragment, op: Op, mode: str, view: View, starts: Array, size: int) -> None:
        """An access of an array that the grid before may still use."""
        does = "reads" if mode == "r" else "writes"
        if self.previous is None:
            self.report("dependent-launch-unsaid", op, f"{f.warp!r} {does} {self._global_name(int(starts[0]))} with `{op.opcode}`, and "
                        "nothing orders it after griddepcontrol.wait: what the grid before still uses then is not said", other=mode == "r")
            return
        over = self._waited(view, DONE)
        for use in self.previous:
            if (mode == "r" and not use.writes) or (over and not use.writes):
                continue
            hit = starts[(starts < use.stop) & (starts + size > use.start)]
            if len(hit):
                where = self._global_name(int(hit[0]))
                self.report("dependent-launch", op, f"{f.warp!r} {does} `{use.name}` ({where}) with `{op.opcode}`, "
                            f"which the grid before may still {'write' if use.writes else 'read'}: nothing orders it after "
                            "griddepcontrol.wait", other=use.name)
                return
