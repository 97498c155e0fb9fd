"""Shadow memory: who wrote and who read each cell last.

Cells are as large as the accesses allow: 16 bytes at first, finer once something smaller is accessed. Of weak writes the last is kept:
who is ordered after it is ordered after those before it, or they have been reported. Reads, and strong writes (which may be unordered
among themselves), are kept of every warp (its epoch and lanes) and asynchronous agent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..values import Array

Cells = Any
"""A slice or an array of cells."""
LANE_BITS = np.arange(32, dtype=np.uint32)
READ, POLL, ATOMIC = "read", "poll", "atomic"
"""Kinds of accesses that are remembered for all who make them: weak reads, strong reads, strong writes."""


@dataclass(frozen=True, slots=True)
class Prior:
    """An earlier access to one of the cells: agent, clock, site (an instruction's index), whether it wrote."""

    cell: int
    agent: int
    clock: int
    site: int
    wrote: bool
    lane: int = -1
    """The lane that now accesses the cell, where it is known."""


class Reader:
    """The accesses of one kind by one warp (`lanes` per cell) or by one asynchronous agent (`lanes` is None).

    A cell has the newest clock and its lanes. What lanes did at an older clock, that the newer access is not ordered after, is in `older`.
    """

    def __init__(self, cells: int, warp: bool) -> None:
        self.epoch: Array = np.zeros(cells, np.int32)
        self.lanes: Array | None = np.zeros(cells, np.uint32) if warp else None
        self.site: Array = np.zeros(cells, np.int32)
        self.low, self.high = cells, 0
        self.older: list[tuple[Array, Array, Array, Array]] = []

    def refine(self, factor: int) -> None:
        """Smaller cells."""
        self.epoch, self.site = np.repeat(self.epoch, factor), np.repeat(self.site, factor)
        self.low, self.high = self.low * factor, self.high * factor
        if self.lanes is not None:
            self.lanes = np.repeat(self.lanes, factor)
        self.older = [((cells[:, None] * factor + np.arange(factor)).reshape(-1), np.repeat(epoch, factor), np.repeat(lanes, factor),
                       np.repeat(site, factor)) for cells, epoch, lanes, site in self.older]

    def add(self, cells: Cells, clock: int, site: int, lanes: Array | int = 0, floor: int = 0) -> None:
        """`lanes`: per cell the lane, or the mask of all that access all of the cells. `floor`: the clock up to which the one who
        accesses is ordered after every lane of its warp.
        """
        if isinstance(cells, slice):
            self.low, self.high = min(self.low, cells.start), max(self.high, cells.stop)
        else:
            self.low, self.high = min(self.low, int(cells.min())), max(self.high, int(cells.max()) + 1)
        if self.lanes is not None:
            at: Any = cells
            epoch = self.epoch[at]
            stale = np.flatnonzero(epoch != clock)
            if len(stale):
                self._retire(at[stale], epoch[stale], floor, lanes if isinstance(lanes, int) else lanes[stale])
            if isinstance(lanes, int):
                self.lanes[at] |= np.uint32(lanes)
            else:
                np.bitwise_or.at(self.lanes, at, np.uint32(1) << lanes.astype(np.uint32))
        self.epoch[cells] = clock
        self.site[cells] = site

    def _retire(self, cells: Array, epoch: Array, floor: int, lanes: Array | int) -> None:
        """These cells get a newer clock: keep what is not implied by it."""
        assert self.lanes is not None
        if int(epoch.max()) > floor:
            new = np.uint32(lanes) if isinstance(lanes, int) else np.uint32(1) << lanes.astype(np.uint32)
            lost = np.flatnonzero((epoch > floor) & (self.lanes[cells] & ~new != 0))
            if len(lost):
                gone = cells[lost]
                self.older.append((gone, epoch[lost], self.lanes[gone], self.site[gone]))
        self.lanes[cells] = 0

    def unknown(self, cells: Cells, theirs: Any, own: Array | None) -> tuple[int, int, int, int] | None:
        """An access to these cells of which `theirs` (the clocks known of the warp's lanes, or of the agent) does not know: (index into
        `cells`, lane, clock, site). `own` are the lanes of this very warp that access the cells now: what they did they know.
        """
        epoch = self.epoch[cells]
        if self.lanes is None:
            wrong = np.flatnonzero(epoch > theirs)
            return (int(wrong[0]), 0, int(epoch[wrong[0]]), int(self.site[cells][wrong[0]])) if len(wrong) else None
        if int(epoch.max()) > int(theirs.min()):
            found = _lane_unknown(np.arange(len(epoch)), epoch, self.lanes[cells], self.site[cells], theirs, own)
            if found is not None:
                return found
        if self.older:
            every = np.arange(cells.start, cells.stop) if isinstance(cells, slice) else cells
            for old, clocks, lanes, sites in self.older:
                _, here, there = np.intersect1d(every, old, return_indices=True)
                if len(here):
                    found = _lane_unknown(here, clocks[there], lanes[there], sites[there], theirs, own)
                    if found is not None:
                        return found
        return None


def _lane_unknown(which: Array, epoch: Array, lanes: Array, site: Array, theirs: Array,
                  own: Array | None) -> tuple[int, int, int, int] | None:
    some = np.flatnonzero(epoch > theirs.min())
    bits = (lanes[some][:, None] >> LANE_BITS & 1).astype(bool)
    bits &= theirs[None, :] < epoch[some][:, None]
    if own is not None:
        bits[np.arange(len(some)), own[which[some]]] = False
    if not bits.any():
        return None
    row, lane = (int(x[0]) for x in np.nonzero(bits))
    i = int(some[row])
    return int(which[i]), lane, int(epoch[i]), int(site[i])


class Shadow:
    """Of the shared memory of one cluster."""

    def __init__(self, size: int, shift: int = 4) -> None:
        self.size = size
        self.shift = shift
        count = size >> shift
        self.agent: Array = np.zeros(count, np.int32)
        self.epoch: Array = np.zeros(count, np.int32)
        self.site: Array = np.zeros(count, np.int32)
        self.strong: Array = np.zeros(count, np.int8)
        """0, or the scope of a strong write + 1."""
        self.kinds: dict[str, dict[int, Reader]] = {READ: {}, POLL: {}, ATOMIC: {}}

    def refine(self, shift: int) -> None:
        """Smaller cells from now on."""
        factor = 1 << self.shift - shift
        self.shift = shift
        for name in ("agent", "epoch", "site", "strong"):
            setattr(self, name, np.repeat(getattr(self, name), factor))
        for readers in self.kinds.values():
            for reader in readers.values():
                reader.refine(factor)

    def fit(self, places: Any, size: int) -> None:
        """Cells no larger than an access of `size` bytes at these places."""
        bits = size | (places if isinstance(places, int) else int(np.bitwise_or.reduce(places)))
        shift = (bits & -bits).bit_length() - 1
        if shift < self.shift:
            self.refine(shift)

    def span(self, place: int, size: int) -> slice:
        """The cells of neighbouring bytes."""
        self.fit(place, size)
        return slice(place >> self.shift, place + size >> self.shift)

    # ------------------------------------------------------------------------------------------- questions

    def writes_unknown(self, cells: Cells, known: Array) -> Array | None:
        """Of these cells, those whose last write is not known (indices into `cells`)."""
        bad = known[self.agent[cells]] < self.epoch[cells]
        return np.flatnonzero(bad) if bad.any() else None

    def write_at(self, cells: Cells, i: int, lane: int = -1) -> Prior:
        cell = _cell(cells, i)
        return Prior(cell, int(self.agent[cell]), int(self.epoch[cell]), int(self.site[cell]), True, lane)

    def unknown(self, kinds: tuple[str, ...], cells: Cells, known: Array, lanes: Array | None, base: int) -> Prior | None:
        """An access of these kinds that is not known. `lanes` are the lanes (of the warp at `base`) that access the cells."""
        low, high = (cells.start, cells.stop) if isinstance(cells, slice) else (int(cells.min()), int(cells.max()) + 1)
        for kind in kinds:
            for key, reader in self.kinds[kind].items():
                if reader.low >= high or reader.high <= low:
                    continue
                warp = reader.lanes is not None
                found = reader.unknown(cells, known[key:key + 32] if warp else known[key], lanes if warp and key == base else None)
                if found is not None:
                    i, lane, clock, site = found
                    return Prior(_cell(cells, i), key + lane, clock, site, kind == ATOMIC, -1 if lanes is None else int(lanes[i]))
        return None

    def unwritten(self, cells: Cells) -> bool:
        return not self.epoch[cells].all()

    # ------------------------------------------------------------------------------------------- records

    def wrote(self, cells: Cells, agents: Any, clock: int, site: int, strong: int = 0) -> None:
        self.agent[cells] = agents
        self.epoch[cells] = clock
        self.site[cells] = site
        self.strong[cells] = strong

    def accessed(self, kind: str, key: int, cells: Cells, clock: int, site: int, lanes: Array | int | None = None, floor: int = 0) -> None:
        """By the lanes of the warp whose first is `key`, or (`lanes` None) by an asynchronous agent."""
        readers = self.kinds[kind]
        reader = readers.get(key)
        if reader is None:
            reader = readers[key] = Reader(len(self.agent), lanes is not None)
        reader.add(cells, clock, site, 0 if lanes is None else lanes, floor)


def _cell(cells: Cells, i: int) -> int:
    return cells.start + i if isinstance(cells, slice) else int(cells[i])


# ------------------------------------------------------------------------------------------------------ global memory

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

    def __init__(self) -> None:
        self.log: list[tuple[tuple[int, int], Array, int, int, Array | int | None, int]] = []
        self.pages: dict[int, dict[tuple[int, int], Reader]] = {}

    def add(self, who: tuple[int, int], cells: Array, clock: int, site: int, lanes: Array | int | None, floor: int) -> None:
        self.log.append((who, cells, clock, site, lanes, floor))
        if len(self.log) > LOGGED:
            self.order()

    def order(self) -> None:
        for who, cells, clock, site, lanes, floor in self.log:
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
                    for cells, epoch, lanes, site in reader.older:
                        inside = (cells >= first) & (cells < first + len(made.epoch))
                        if inside.any():
                            made.older.append((cells[inside] - first, epoch[inside], lanes[inside], site[inside]))
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
        self.kinds = {READ: History(), POLL: History(), ATOMIC: History()}
        self.touched = False
        """Whether anything but reads has happened."""

    def fit(self, places: Any, size: int) -> None:
        bits = size | (places if isinstance(places, int) else int(np.bitwise_or.reduce(places, axis=None)))
        shift = (bits & -bits).bit_length() - 1
        if shift < self.shift:
            factor = 1 << self.shift - shift
            self.shift = shift
            self.write, self.site, self.strong = (np.repeat(a, factor) for a in (self.write, self.site, self.strong))
            for history in self.kinds.values():
                history.refine(factor)

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
