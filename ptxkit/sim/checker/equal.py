"""Unordered plain stores of equal bytes: whichever comes last, memory is the same."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...grammar.errors import Finding
from ..values import Array, array_of
from .agents import ranks
from .clocks import View
from .global_shadow import PAGE_BITS, GlobalShadow, parts
from .over import OverRules
from .shadow import SAME, Reader, Shadow

if TYPE_CHECKING:
    from ..fragment import Fragment
    from ..machine import Machine
    from ..memory import Allocation, Memory, Places
    from ..program import Op

RULE = "same-value"
TILE = 64
"""Bytes of a tile: fewer may be a flag that several CTAs set."""


class EqualRules(OverRules):
    """A store over bytes that another thread stored, with nothing that orders the two, is no race where the bytes are equal.

    Which of the two is last is not known then. So the earlier one is kept: a later write of other bytes must be ordered after both.
    """

    def __init__(self) -> None:
        super().__init__()
        self._apart = False
        self._stored: dict[tuple[int, int], int] = {}
        """Bytes that a CTA (number of its cluster, rank) has stored to global memory."""
        self._repeated: dict[tuple[int, int], tuple[int, str]] = {}
        """How many of them another CTA has stored too, and where the first is."""

    def access(self, f: Fragment, mask: int, op: Op, mode: str, memory: Memory, places: Places, size: int, strong: bool,
               values: Any = None) -> None:
        if mode == "w" and memory.space == "global":
            cta = self.home(f.cta.cluster).number, f.cta.rank
            self._stored[cta] = self._stored.get(cta, 0) + size * (1 if type(places) is int else mask.bit_count())
        super().access(f, mask, op, mode, memory, places, size, strong, values)

    def end(self, machine: Machine) -> None:
        """A CTA whose every store repeats those of another CTA has most likely forgotten which CTA it is."""
        super().end(machine)
        for cta, (repeated, where) in self._repeated.items():
            if TILE <= self._stored.get(cta, 0) <= repeated:
                self.report("global-race", None, "a CTA stores to global memory only what other CTAs store too, with nothing that orders "
                            f"the two; the first of it is {where}", fix="let each CTA store a part of its own: use %ctaid")
                return

    def _repeats(self, cta: tuple[int, int], bytes_: int, where: str) -> None:
        before, first = self._repeated.get(cta, (0, where))
        self._repeated[cta] = before + bytes_, first

    def findings(self) -> list[Finding]:
        """Equal in this run is equal in every schedule only where the certificates hold. Compilers let the warps of a CTA repeat stores,
        but not CTAs.
        """
        found = super().findings()
        return found if self.every_schedule and not self._apart else [replace(f, severity="review") if f.rule == RULE else f for f in found]

    def global_shadows(self) -> list[tuple[Allocation, GlobalShadow]]:
        """Who wrote what of each buffer that was accessed."""
        return list(self._globals.values())

    def equal_shared(self, f: Fragment, op: Op, shadow: Shadow, cells: Array, each: Array) -> bool:
        home = self.home(f.cta.cluster)
        agents = shadow.agent[cells]
        memory = f.cta.cluster.shared
        if not _stored_by_lanes(home, agents) or shadow.strong[cells].any() \
                or not self._equal(f, memory, cells << shadow.shift, each, 1 << shadow.shift).all():
            return False
        for base, some in _by_warp(agents):
            _keep(shadow.reader(SAME, base, True), cells[some], shadow.epoch[cells[some]], agents[some] - base, shadow.site[cells[some]])
        self._told(f, op, self.place(f.cta.cluster, int(cells[0]) << shadow.shift), int(shadow.site[cells[0]]))
        return True

    def equal_global(self, f: Fragment, op: Op, shadow: GlobalShadow, view: View, cells: Array, each: Array) -> bool:
        numbers, agents, clocks = parts(shadow.write[cells])
        places = shadow.start + (cells << shadow.shift)
        if any(not _stored_by_lanes(self.homes[number], agents[numbers == number]) for number in np.unique(numbers).tolist()) \
                or shadow.strong[cells].any() or not self._equal(f, f.machine.memory, places, each, 1 << shadow.shift).all():
            return False
        history = shadow.kinds[SAME]
        history.order()
        for number in np.unique(numbers).tolist():
            theirs = np.flatnonzero(numbers == number)
            for base, some in _by_warp(agents[theirs]):
                chosen = theirs[some]
                for page in np.unique(cells[chosen] >> PAGE_BITS).tolist():
                    of = chosen[cells[chosen] >> PAGE_BITS == page]
                    reader = history.pages.setdefault(page, {}).setdefault((number, base), Reader(1 << PAGE_BITS, True))
                    _keep(reader, cells[of] & (1 << PAGE_BITS) - 1, clocks[of].astype(np.int32), agents[of] - base, shadow.site[cells[of]])
        where = self._global_name(int(places[0]))
        rank_of = np.zeros_like(agents)
        for number in np.unique(numbers).tolist():
            rank_of[numbers == number] = ranks(self.homes[number], agents[numbers == number])
        apart = (numbers != view.home.number) | (rank_of != f.cta.rank)
        for number, rank in {*zip(numbers[apart].tolist(), rank_of[apart].tolist(), strict=True)}:
            bytes_ = int(((numbers == number) & (rank_of == rank)).sum()) << shadow.shift
            self._repeats((number, rank), bytes_, where)
            self._repeats((view.home.number, f.cta.rank), bytes_, where)
        self._told(f, op, where, int(shadow.site[cells[0]]), apart=bool(apart.any()))
        return True

    def before_equal(self, f: Fragment, shadow: Shadow | GlobalShadow, mode: str, strong: bool, cells: Array, each: Array) -> Array | None:
        """A store that leaves a cell as it is need not come after what others stored there."""
        if isinstance(shadow, Shadow):
            kept, memory, places = bool(shadow.kinds[SAME]), f.cta.cluster.shared, cells << shadow.shift
        else:
            history = shadow.kinds[SAME]
            kept, memory, places = bool(history.pages or history.log), f.machine.memory, shadow.start + (cells << shadow.shift)
        if not kept:
            return None
        if strong or mode != "w":
            return np.arange(len(cells))
        some = np.flatnonzero(~self._equal(f, memory, places, each, 1 << shadow.shift))
        return some if len(some) else None

    def _equal(self, f: Fragment, memory: Memory, places: Array, each: Array, size: int) -> Array:
        """Of each of the places, whether what these lanes store into `size` bytes there is there already."""
        storing = f.machine.storing
        if storing is None:
            return np.zeros(len(places), bool)
        starts, values, bytes_ = storing
        new = np.stack([np.broadcast_to(array_of(value, 8 * bytes_), 32) for value in values], axis=1)
        new = np.ascontiguousarray(new).view(np.uint8).reshape(32, -1)
        offsets = places - (starts if type(starts) is int else np.asarray(starts)[each])
        column = np.arange(size)
        found: Array = (new[each[:, None], offsets[:, None] + column] == memory.data[places[:, None] + column]).all(axis=1)
        return found

    def _told(self, f: Fragment, op: Op, where: str, site: int, apart: bool = False) -> None:
        self._apart |= apart
        self.report(RULE, op, f"{f.warp!r} stores to {where} what {self.site(site)} has stored there, with nothing that orders the two: "
                    "the bytes are equal", other=site)


def _stored_by_lanes(home: Any, agents: Array) -> bool:
    return all(home.describe(agent).kind == "lane" for agent in np.unique(agents).tolist())


def _by_warp(agents: Array) -> list[tuple[int, Array]]:
    """(the first lane of a warp, which of the agents are lanes of it)."""
    bases = agents & ~31
    return [(base, np.flatnonzero(bases == base)) for base in np.unique(bases).tolist()]


def _keep(reader: Reader, cells: Array, clocks: Array, lanes: Array, sites: Array) -> None:
    reader.low, reader.high = min(reader.low, int(cells.min())), max(reader.high, int(cells.max()) + 1)
    reader.older.add(cells, clocks, np.uint32(1) << lanes.astype(np.uint32), sites)
