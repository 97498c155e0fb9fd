"""Shadow memory of one allocation in global memory: the last write of each cell, and what has been done since by whom."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..tasks import Region
from ..values import Array, indices
from .shadow import ATOMIC, OVER, POLL, READ, SAME, Reader, Shadow

CLOCK_BITS, AGENT_BITS = 26, 18
PAGE_BITS = 6
LOGGED = 20_000
"""Accesses that a history logs before it puts them in order."""


def stamps(home: int, agents: Any, clock: int) -> Any:
    """Stamps of one cluster's agents as int64: number of the cluster + 1, agent, clock."""
    return (home + 1 << AGENT_BITS + CLOCK_BITS) + (agents << CLOCK_BITS) + clock


def parts(stamp: Any) -> tuple[Any, Any, Any]:
    return ((stamp >> AGENT_BITS + CLOCK_BITS) - 1, stamp >> CLOCK_BITS & (1 << AGENT_BITS) - 1, stamp & (1 << CLOCK_BITS) - 1)


class History:
    """The accesses of one kind to one allocation, by page of cells and by who made them (number of the cluster, first agent).

    Most allocations are only read: their accesses are first logged, and put in order when somebody asks.
    """

    def __init__(self, of: GlobalShadow) -> None:
        self.of = of
        self.log: list[tuple[tuple[int, int], Array | Region, int, int, Array | int | None, int]] = []
        self.pages: dict[int, dict[tuple[int, int], Reader]] = {}

    def add(self, who: tuple[int, int], cells: Array | Region, clock: int, site: int, lanes: Array | int | None, floor: int) -> None:
        self.log.append((who, cells, clock, site, lanes, floor))
        if len(self.log) > LOGGED:
            self.order()

    def order(self) -> None:
        for who, logged, clock, site, lanes, floor in self.log:
            cells = self.of.cells(logged.starts, logged.length) if isinstance(logged, Region) else logged
            pages = cells >> PAGE_BITS
            for page in np.unique(pages).tolist():
                chosen = np.flatnonzero(pages == page)
                readers = self.pages.setdefault(page, {})
                reader = readers.get(who)
                if reader is None:
                    reader = readers[who] = Reader(1 << PAGE_BITS, lanes is not None)
                of: Array | int = 0 if lanes is None else lanes if isinstance(lanes, int) else lanes[chosen]
                reader.add(cells[chosen] & (1 << PAGE_BITS) - 1, clock, site, of, floor)
        self.log.clear()

    def refine(self, factor: int) -> None:
        """Smaller cells: whole allocations of a few pages, so it is enough to log again what is known."""
        self.order()
        before, self.pages = self.pages, {}
        for page, readers in before.items():
            for who, reader in readers.items():
                reader.refine(factor)
                for part in range(factor):
                    first = part << PAGE_BITS
                    made = Reader(1 << PAGE_BITS, reader.lanes is not None)
                    made.epoch, made.site = reader.epoch[first:first + len(made.epoch)], reader.site[first:first + len(made.epoch)]
                    if reader.lanes is not None:
                        made.lanes = reader.lanes[first:first + len(made.epoch)]
                    made.low, made.high = 0, len(made.epoch)
                    made.older = reader.older.part(first, len(made.epoch))
                    if made.epoch.any():
                        self.pages.setdefault(page * factor + part, {})[who] = made

    def unknown(self, cells: Array, known_of: Callable[[int], Array | None], mine: tuple[int, int] | None,
                own: Array | None) -> tuple[int, int, int, int, int] | None:
        """(index into cells, cluster, agent, clock, site) of an access that is not known."""
        if self.log:
            self.order()
        if not self.pages:
            return None
        pages = cells >> PAGE_BITS
        for page in np.unique(pages).tolist():
            chosen = np.flatnonzero(pages == page)
            at = cells[chosen] & (1 << PAGE_BITS) - 1
            for who, reader in self.pages.get(page, {}).items():
                known = known_of(who[0])
                warp = reader.lanes is not None
                if known is None:
                    known = np.zeros(who[1] + 32, np.int32)
                elif len(known) < who[1] + 32:
                    known = np.pad(known, (0, who[1] + 32 - len(known)))
                found = reader.unknown(at, known[who[1]:who[1] + 32] if warp else known[who[1]],
                                       own[chosen] if own is not None and warp and who == mine else None)
                if found is not None:
                    i, lane, clock, site = found
                    return int(chosen[i]), who[0], who[1] + lane, clock, site
        return None

    def of_agent(self, cells: Array, number: int, agent: int, clock: int) -> Array:
        """The cells (indices) of which this access is the one that is known of the agent."""
        found: list[Array] = []
        for page in np.unique(cells >> PAGE_BITS).tolist():
            chosen = np.flatnonzero(cells >> PAGE_BITS == page)
            at = cells[chosen] & (1 << PAGE_BITS) - 1
            for (home, first), reader in self.pages.get(page, {}).items():
                lane = agent - first
                if home != number or not 0 <= lane < (1 if reader.lanes is None else 32):
                    continue
                its = reader.epoch[at] == clock
                if reader.lanes is not None:
                    its = its & (reader.lanes[at] >> lane & 1).astype(bool) | reader.older.of(at, lane, clock)
                found.append(chosen[its])
        return np.concatenate(found) if found else np.zeros(0, np.int64)


Stamp = tuple[int, ...]
"""Who and when: the number of a cluster, an agent of it, the agent's clock."""


class GlobalShadow:
    """Of one allocation in global memory: the last write of each cell, and all readers and strong writers."""

    def __init__(self, start: int, stop: int) -> None:
        self.start = start
        self.shift = 4
        self.bytes = stop - start + 15 & ~15
        count = self.bytes >> 4
        self.write: Array = np.zeros(count, np.int64)
        self.site: Array = np.zeros(count, np.int32)
        self.strong: Array = np.zeros(count, np.int8)
        self.stores: set[int] = set()
        """The bytes that strong stores wrote, by their addresses."""
        self.kinds = {kind: History(self) for kind in (READ, POLL, ATOMIC, SAME, OVER)}
        self.touched = False
        """Whether anything but reads has happened."""

    def fit(self, places: Any, size: int) -> None:
        bits = size | (places if isinstance(places, int) else int(np.bitwise_or.reduce(places, axis=None)))
        shift = (bits & -bits).bit_length() - 1
        if shift < self.shift:
            for history in self.kinds.values():                 # what is logged as regions is in cells of the size so far
                history.order()
            factor = 1 << self.shift - shift
            self.shift = shift
            self.write, self.site, self.strong = (np.repeat(a, factor) for a in (self.write, self.site, self.strong))
            for history in self.kinds.values():
                history.refine(factor)

    def region(self, region: Region) -> Region | None:
        """The region, once the cells are small enough for it; None where that is not known without looking at all of it."""
        if not region.unit:
            return None
        self.fit(region.unit | self.start, region.length)
        return region

    def cells(self, starts: Any, length: int) -> Array:
        """The cells of `length` bytes from each of the places."""
        at = np.atleast_1d(np.asarray(starts)) - self.start
        self.fit(at, length)
        count = length >> self.shift
        first = at >> self.shift
        if count == 1:
            return first.reshape(-1)
        return (first.reshape(-1)[:, None] + np.arange(count)).reshape(-1)

    def wrote(self, cells: Array, stamp: Any, site: int, strong: int) -> None:
        self.touched = True
        self.write[cells] = stamp
        self.site[cells] = site
        self.strong[cells] = strong


def earlier(shadow: GlobalShadow, cells: Array) -> dict[Stamp, Array]:
    """Who wrote the cells last: (cluster, agent, clock), with the indices into `cells`."""
    stamp = shadow.write[cells]
    return {tuple(int(part) for part in parts(one)): np.flatnonzero(stamp == one) for one in np.unique(stamp)}


def cells_of(where: Shadow | GlobalShadow, at: Any, size: int, mask: int) -> tuple[Array, Array]:
    """The cells of an access by the lanes of the mask, and the lane of each (of one place: the highest lane)."""
    if isinstance(where, GlobalShadow):
        cells = where.cells(at, size)
        if type(at) is int:
            return cells, np.full(len(cells), mask.bit_length() - 1)
        return cells, np.repeat(indices(mask), len(cells) // mask.bit_count())
    where.fit(at, size)
    if type(at) is int:
        cells = np.arange(at >> where.shift, at + size >> where.shift)
        return cells, np.full(len(cells), mask.bit_length() - 1)
    count = size >> where.shift
    cells, each = at >> where.shift, indices(mask)
    return (cells, each) if count == 1 else ((cells[:, None] + np.arange(count)).reshape(-1), np.repeat(each, count))
