"""Tensor maps that are edited in a run: who has published them to the tensormap proxy, and who has acquired which of them.

A release fence of that proxy publishes what its thread has written, `tensormap.cp_fenceproxy` the 128 bytes that it copies. An acquire
fence covers the 128 bytes at its address, for its thread and for whoever is ordered after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..values import Array, lane_list
from .clocks import GLOBAL, MAPS, PUBLISHED, SEEN, View
from .equal_copies import EqualCopyRules
from .global_shadow import parts

if TYPE_CHECKING:
    from ..fragment import Fragment
    from ..memory import Memory, Places
    from ..program import Op

BYTES = 128


class MapRules(EqualCopyRules):
    def __init__(self) -> None:
        super().__init__()
        self._copied: dict[int, Array] = {}
        """By place, the stamps of a map's cells as the last tensormap.cp_fenceproxy to there wrote them."""
        self._acquired: dict[int, dict[tuple[int, int], tuple[int, View]]] = {}
        """By place, and by the cluster and lane of who has acquired the map there: when, and what was known then."""

    def map_published(self, f: Fragment, mask: int, op: Op, memory: Memory, place: int) -> None:
        shadow = self._allocation(memory, place)
        if shadow is not None:
            self._copied[place] = shadow.write[shadow.cells(place, BYTES)]
        self.lanes(f, op, mask).meet(mask)

    def map_acquired(self, f: Fragment, mask: int, op: Op, memory: Memory, places: Places) -> None:
        if memory.space != "global":
            return
        every = self.lanes(f, op, mask)
        home = self.home(f.cta.cluster)
        each = [(every, lane) for lane in lane_list(mask)] + [(double.lanes, double.lane) for double in every.elected(mask)]
        for lanes, lane in each:
            warp = lanes.warp
            warp.used = True
            view = lanes.view(1 << lane).copy()
            a = view.fit()
            a[PUBLISHED, warp.base + lane] = warp.fenced[PUBLISHED - GLOBAL, lane]
            a[SEEN, warp.base + lane] = warp.epoch
            place = places if isinstance(places, int) else int(places[lane])
            self._acquired.setdefault(place, {})[home.number, warp.base + lane] = warp.epoch, view

    def tensormap(self, f: Fragment, lane: int, op: Op, memory: Memory, place: int) -> None:
        """The map must have been published, and acquired by the issuing thread or before it, since it was last written."""
        self._map = None
        if memory.space != "global":
            return
        shadow = self._allocation(memory, place)
        if shadow is None:
            return
        cells = shadow.cells(place, BYTES)
        self._map = shadow, cells
        stamps = shadow.write[cells]
        if not shadow.touched or not stamps.any():
            return
        lanes = self.lanes(f, op, 1 << lane)
        view = lanes.view(1 << lane)
        own = (view.home.number, lanes.warp.base + lane)
        missing: Array | None = None
        for who, (clock, then) in self._acquired.get(place, {}).items():
            if who == own or self._knows(view, SEEN, *who, clock):
                late = self._unpublished(then, place, stamps)
                if not len(late):
                    return
                missing = late
        i = int(np.flatnonzero(stamps)[0]) if missing is None else int(missing[0])
        number, agent, clock = (int(part) for part in parts(stamps[i]))
        self._global_race(f, op, shadow, int(cells[i]), (number, agent, clock), int(shadow.site[cells[i]]), MAPS, view, "r", wrote=True)

    def _unpublished(self, then: View, place: int, stamps: Array) -> Array:
        """Of a map's cells those whose writes were not published to who acquired them `then`."""
        copied = self._copied.get(place)
        if copied is not None:                                  # cells may have become smaller since
            copied = np.repeat(copied, len(stamps) // len(copied))
        late = []
        for i in np.flatnonzero(stamps).tolist():
            number, agent, clock = (int(part) for part in parts(stamps[i]))
            row = SEEN if copied is not None and copied[i] == stamps[i] else PUBLISHED
            if not self._knows(then, row, number, agent, clock):
                late.append(i)
        return np.array(late, np.intp)

    def _knows(self, view: View, row: int, number: int, agent: int, clock: int) -> bool:
        a: Any = view.fit() if number == view.home.number else view.of(number)
        return a is not None and agent < a.shape[1] and bool(a.item(row, agent) >= clock)

