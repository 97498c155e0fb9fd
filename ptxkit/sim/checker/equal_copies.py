"""Unordered bulk and tensor stores of equal bytes to global memory: whichever lands last, memory is the same.

What such a store writes is known when it lands. So the two are compared then: before the later of them, memory has what the earlier one
has left. Bytes of shared memory that nothing has written are no bytes that one could compare (`bulk-source-uninitialised`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...grammar.errors import Finding
from ..milestones import DONE
from ..values import Array
from .clocks import View
from .equal import RULE, EqualRules
from .global_shadow import GlobalShadow, Stamp
from .shadow import SAME

if TYPE_CHECKING:
    from ..fragment import Fragment
    from ..machine import Machine
    from ..memory import Memory
    from ..tasks import Task

STORES = ("bulk store", "tensor store")


@dataclass(eq=False, slots=True)
class Suspect:
    """A store, and earlier writes that it is not ordered after, at these bytes of global memory. `open` are those of them that have not
    landed; the last one to land is judged by what it changes.
    """

    memory: Memory
    bytes: Array
    open: set[int]
    race: Callable[[], None]
    same: Callable[[], None]

    def watch(self, task: Task) -> None:
        """Look at memory before and after the task delivers."""
        self.open.add(id(task))
        deliver = task.deliver

        def judged(held: Any) -> None:
            self.open.discard(id(task))
            before = None if self.open else self.memory.data[self.bytes]
            deliver(held)
            if before is not None:
                (self.same if (self.memory.data[self.bytes] == before).all() else self.race)()

        task.deliver = judged


class EqualCopyRules(EqualRules):
    def __init__(self) -> None:
        super().__init__()
        self._in_flight: dict[Stamp, Task] = {}
        """Stores to global memory that have not landed, by their stamp: cluster, agent, clock."""
        self._rank: dict[tuple[int, int], int] = {}
        """The CTA, by its rank, of agents that store to global memory."""
        self._suspects: list[Suspect] = []
        """Those of which something has not landed."""
        self._compared = False

    def landed(self, task: Task, milestone: int) -> None:
        super().landed(task, milestone)
        if self._in_flight and task.kind in STORES and milestone == DONE:
            self._in_flight = {stamp: each for stamp, each in self._in_flight.items() if each is not task}

    def end(self, machine: Machine) -> None:
        super().end(machine)
        for suspect in self._suspects:
            if suspect.open:                                    # the run ended before: nothing says that they are equal
                suspect.race()

    def findings(self) -> list[Finding]:
        found = super().findings()
        empty = any(finding.rule == "bulk-source-uninitialised" for finding in found)
        return found if not empty or not self._compared else \
            [replace(finding, severity="review") if finding.rule == RULE else finding for finding in found]

    def stored(self, f: Fragment, task: Task, number: int, agent: int, clock: int, bytes_: int) -> None:
        """A store to global memory, by its stamp."""
        if task.kind in STORES:
            self._in_flight[number, agent, clock] = task
            self._rank[number, agent] = f.cta.rank
            self._stored[number, f.cta.rank] = self._stored.get((number, f.cta.rank), 0) + bytes_

    def equal_later(self, f: Fragment, task: Task, shadow: GlobalShadow, view: View, cells: Array, earlier: Mapping[Stamp, Array],
                    race: Callable[[], None], site: int = -1) -> bool:
        if task.kind not in STORES or shadow.strong[cells].any() or not all(self._may_store(*stamp) for stamp in earlier):
            return False
        sites = shadow.site[cells]
        first = int(sites[0]) if site < 0 else site
        place = self._global_name(shadow.start + (int(cells[0]) << shadow.shift))
        size = 1 << shadow.shift
        apart = {(number, self._rank_of(number, agent, view)): 0 for number, agent, _ in earlier}
        for (number, agent, _), which in earlier.items():
            apart[number, self._rank_of(number, agent, view)] += len(which) * size
        own = view.home.number, f.cta.rank
        apart.pop(own, None)

        def same() -> None:
            for cta, bytes_ in apart.items():
                self._repeats(cta, bytes_, place)
                self._repeats(own, bytes_, place)
            self._told(f, task.op, place, first, apart=bool(apart))

        at = (shadow.start + (cells << shadow.shift))[:, None] + np.arange(size)
        suspect = Suspect(self.machine.memory, at.reshape(-1), set(), race, same)
        for stamp, which in earlier.items():
            if site < 0:                                        # else it is kept already
                self._keep_earlier(shadow, cells[which], stamp, sites[which])
            if (flying := self._in_flight.get(stamp)) is not None:
                suspect.watch(flying)
        suspect.watch(task)
        self._compared = True
        self._suspects = [*(each for each in self._suspects if each.open), suspect]
        return True

    def _may_store(self, number: int, agent: int, clock: int) -> bool:
        """Whether a write is a plain store of a lane, or a store of the kinds that are compared here."""
        return (number, agent) in self._rank or self.homes[number].describe(agent).kind == "lane"

    def _rank_of(self, number: int, agent: int, view: View) -> int:
        return self._rank.get((number, agent), agent // (32 * view.home.warps_per_cta))

    def _keep_earlier(self, shadow: GlobalShadow, cells: Array, stamp: Stamp, sites: Array) -> None:
        """A later write of other bytes must come after this one, too."""
        number, agent, clock = stamp
        lane = (number, agent) not in self._rank
        who = (number, agent - agent % 32) if lane else (number, agent)
        by = np.full(len(cells), agent % 32) if lane else None
        for site in np.unique(sites).tolist():
            some = sites == site
            shadow.kinds[SAME].add(who, cells[some], clock, site, None if by is None else by[some], 0)
