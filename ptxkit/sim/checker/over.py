"""Writes that a strong one has followed, in the same word, and that may race with who does not race with the strong one.

Strong accesses need no order among themselves, so who comes after the strong write need not come after a weak one before it, or after one
whose scope does not reach as far. Such are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..values import Array, indices
from .agents import ranks
from .clocks import SEEN, Lanes, View
from .global_shadow import GlobalShadow, History, Stamp, cells_of, earlier, parts
from .memory import EVER, MemoryRules
from .shadow import ATOMIC, OVER, POLL, READ, Shadow

if TYPE_CHECKING:
    from ..fragment import Fragment
    from ..memory import Memory
    from ..polling import Loop
    from ..program import Op

NARROW = {1: "of the CTA", 2: "of the cluster"}
"""Kinds of strong writes that a strong one has followed, by their scope + 1."""
ASKS = {scope: f"{READ} {words}" for scope, words in NARROW.items()}
"""Kinds of strong reads of these scopes."""


class OverRules(MemoryRules):
    def overwrites(self, f: Fragment, shadow: Shadow | GlobalShadow, cells: Any) -> None:
        if isinstance(cells, slice):
            cells = np.arange(cells.start, cells.stop)
        written = shadow.epoch[cells] if isinstance(shadow, Shadow) else shadow.write[cells]
        strong = shadow.strong[cells]
        for scope in np.unique(strong[(written != 0) & (strong < 3)]).tolist():
            self._keep_below(f, shadow, cells[(written != 0) & (strong == scope)], NARROW.get(scope, OVER))

    def _keep_below(self, f: Fragment, shadow: Shadow | GlobalShadow, cells: Array, kept: str) -> None:
        """The last writes of these cells are to be remembered."""
        if isinstance(shadow, Shadow):
            number, agents, clocks = self.home(f.cta.cluster).number, shadow.agent[cells], shadow.epoch[cells]
            before: dict[Stamp, Array] = {(number, agent, clock): np.flatnonzero((agents == agent) & (clocks == clock))
                                          for agent, clock in {*zip(agents.tolist(), clocks.tolist(), strict=True)}}
        else:
            before = earlier(shadow, cells)
        for (number, agent, clock), which in before.items():
            kind = self.homes[number].describe(agent).kind
            lane = agent % 32 if kind == "lane" else None
            if kind == "cp.async":
                lane = agent - max(base for base in self.home(f.cta.cluster).generic if base <= agent)
            by = None if lane is None else np.full(len(which), lane)
            first, site = agent - (lane or 0), int(shadow.site[cells[which[0]]])
            if isinstance(shadow, Shadow):
                shadow.kinds.setdefault(kept, {})
                shadow.accessed(kept, first, cells[which], clock, site, by)
            else:
                shadow.kinds.setdefault(kept, History(shadow)).add((number, first), cells[which], clock, site, by, 0)

    def unobserved(self, shadow: Shadow | GlobalShadow, cells: Array, view: View, own: Array) -> Array | None:
        """An atomic observes those before it, so that what its thread does next, or who comes after that, comes after them (PTX: causality
        order). In another schedule it may observe others: so only where its result lasts, which withholds the certificate.
        """
        strong = np.flatnonzero(shadow.strong[cells])
        if not len(strong):
            return None
        at, known, start = cells[strong], view.fit()[SEEN], 0
        if isinstance(shadow, Shadow):
            fine = (known[shadow.agent[at]] >= shadow.epoch[at]) | (shadow.agent[at] == own[strong])
        else:
            start, (number, agent, clock) = shadow.start, parts(shadow.write[at])
            mine = number == view.home.number
            fine = mine & ((known[np.where(mine, agent, 0)] >= clock) | (agent == own[strong]))
        for i in np.flatnonzero(fine).tolist():
            op = self.machine.program.ops[int(shadow.site[at[i]])]
            place = start + (int(at[i]) << shadow.shift)
            fine[i] = op.tokens[0] == "atom" and place not in shadow.stores and self.reach(op, "order") is not None
        return np.setdiff1d(np.arange(len(cells)), strong[fine]) if fine.any() else None

    def scoped(self, f: Fragment, lanes: Lanes, shadow: Shadow | GlobalShadow, mode: str, op: Op, cells: Array, view: View, each: Array,
               strong: int) -> None:
        if isinstance(shadow, Shadow) and len(f.cta.cluster.ctas) == 1:
            return
        for scope in NARROW:
            self._beyond(f, lanes, shadow, mode, op, cells, view, each, scope, (NARROW[scope], ASKS[scope])[:1 + (mode != "r")])
        if strong < 3:
            self._beyond(f, lanes, shadow, mode, op, cells, view, each, strong, (ATOMIC, POLL)[:1 + (mode != "r")])
        if strong < 3 and mode == "r":
            kind, warp = ASKS[strong], lanes.warp
            if isinstance(shadow, Shadow):
                shadow.kinds.setdefault(kind, {})
                shadow.accessed(kind, warp.base, cells, warp.epoch, op.index, each)
            else:
                shadow.kinds.setdefault(kind, History(shadow)).add((view.home.number, warp.base), cells, warp.epoch, op.index, each, 0)

    def _beyond(self, f: Fragment, lanes: Lanes, shadow: Shadow | GlobalShadow, mode: str, op: Op, cells: Array, view: View, each: Array,
                scope: int, kinds: tuple[str, ...]) -> None:
        """What threads have done that this scope does not reach, those of another CTA or another cluster, must come before."""
        kinds = tuple(kind for kind in kinds if shadow.kinds.get(kind))
        if not kinds:
            return
        known, base = view.fit()[SEEN].copy(), lanes.warp.base
        near = np.ones(len(known), bool) if scope == 2 else ranks(view.home, np.arange(len(known))) == f.cta.rank
        known[near] = EVER
        if isinstance(shadow, GlobalShadow):
            self._others(f, op, shadow, kinds, cells, view, known, SEEN, base, each, mode)
        elif (prior := shadow.unknown(kinds, cells, known, each, base)) is not None:
            self._race(f, op, prior, "shared", "reads" if mode == "r" else "writes", f.cta.cluster, lanes)

    def _waits_for(self, f: Fragment, lanes: Lanes, mask: int, op: Op, loop: Loop, memory: Memory, places: Any, size: int) -> None:
        """A loop may read before any of the writes that it waits for, so before it has acquired anything."""
        at: Any = places if type(places) is int else places[indices(mask)]
        low: int = at if type(at) is int else int(at.min())
        where = self.shadow(f.cta.cluster) if memory.space == "shared" else self._allocation(memory, low)
        if where is not None and (where.kinds[OVER] if isinstance(where, Shadow) else where.touched):
            for m, view in lanes.groups:
                if not m & mask:
                    continue
                chosen = at if type(at) is int else np.asarray(places)[indices(m & mask)]
                cells, each = cells_of(where, chosen, size, m & mask)
                known, base = view.fit()[SEEN], lanes.warp.base
                if isinstance(where, GlobalShadow):
                    self._others(f, op, where, (OVER,), cells, view, known, SEEN, base, each, "r")
                elif (prior := where.unknown((OVER,), cells, known, each, base, lanes.warp.copies)) is not None:
                    self._race(f, op, prior, "shared", "reads", f.cta.cluster, lanes)
        super()._waits_for(f, lanes, mask, op, loop, memory, places, size)
