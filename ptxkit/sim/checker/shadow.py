"""Shadow memory: who wrote and who read each cell last.

Cells are as large as the accesses allow: 16 bytes at first, finer once something smaller is accessed. Reads are kept per reading warp
(its epoch and lanes) and per asynchronous agent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..values import Array

Cells = Any
"""A slice or an array of cells."""
LANE_BITS = np.arange(32, dtype=np.uint32)


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
    """The reads of one warp (`lanes` per cell) or of one asynchronous agent (`lanes` is None)."""

    def __init__(self, cells: int, warp: bool) -> None:
        self.epoch: Array = np.zeros(cells, np.int32)
        self.lanes: Array | None = np.zeros(cells, np.uint32) if warp else None
        self.site: Array = np.zeros(cells, np.int32)
        self.low, self.high = cells, 0

    def cover(self, low: int, high: int) -> None:
        self.low, self.high = min(self.low, low), max(self.high, high)


class Shadow:
    """Of the shared memory of one cluster."""

    def __init__(self, size: int, shift: int = 4) -> None:
        self.size = size
        self.shift = shift
        count = size >> shift
        self.agent: Array = np.zeros(count, np.int32)
        self.epoch: Array = np.zeros(count, np.int32)
        self.site: Array = np.zeros(count, np.int32)
        self.strong: Array = np.zeros(count, np.bool_)
        self.readers: dict[int, Reader] = {}

    def refine(self, shift: int) -> None:
        """Smaller cells from now on."""
        factor = 1 << self.shift - shift
        self.shift = shift
        for name in ("agent", "epoch", "site", "strong"):
            setattr(self, name, np.repeat(getattr(self, name), factor))
        for reader in self.readers.values():
            reader.epoch, reader.site = np.repeat(reader.epoch, factor), np.repeat(reader.site, factor)
            reader.low, reader.high = reader.low * factor, reader.high * factor
            if reader.lanes is not None:
                reader.lanes = np.repeat(reader.lanes, factor)

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

    def reader(self, key: int, warp: bool) -> Reader:
        found = self.readers.get(key)
        if found is None:
            found = self.readers[key] = Reader(len(self.agent), warp)
        return found

    # ------------------------------------------------------------------------------------------- questions

    def writes_unknown(self, cells: Cells, known: Array) -> Array | None:
        """Of these cells, those whose last write is not known (indices into `cells`)."""
        bad = known[self.agent[cells]] < self.epoch[cells]
        return np.flatnonzero(bad) if bad.any() else None

    def write_at(self, cells: Cells, i: int, lane: int = -1) -> Prior:
        cell = _cell(cells, i)
        return Prior(cell, int(self.agent[cell]), int(self.epoch[cell]), int(self.site[cell]), True, lane)

    def reads_unknown(self, cells: Cells, known: Array, lanes: Array | None, base: int) -> Prior | None:
        """A read of these cells that is not known. `lanes` are the lanes (of the warp at `base`) that access them: their own reads are."""
        low, high = (cells.start, cells.stop) if isinstance(cells, slice) else (int(cells.min()), int(cells.max()) + 1)
        for key, reader in self.readers.items():
            if reader.low >= high or reader.high <= low:
                continue
            epoch = reader.epoch[cells]
            if reader.lanes is None:
                wrong = epoch > known[key]
                if wrong.any():
                    i = int(np.flatnonzero(wrong)[0])
                    cell = _cell(cells, i)
                    return Prior(cell, key, int(epoch[i]), int(reader.site[cell]), False, -1 if lanes is None else int(lanes[i]))
                continue
            theirs = known[key:key + 32]
            if int(epoch.max()) <= int(theirs.min()):
                continue
            found = self._lane_unknown(reader, key, cells, epoch, theirs, lanes if key == base else None)
            if found is not None:
                return found
        return None

    def _lane_unknown(self, reader: Reader, key: int, cells: Cells, epoch: Array, theirs: Array, own: Array | None) -> Prior | None:
        assert reader.lanes is not None
        some = np.flatnonzero(epoch > theirs.min())
        bits = (reader.lanes[cells][some][:, None] >> LANE_BITS & 1).astype(bool)
        bits &= theirs[None, :] < epoch[some][:, None]
        if own is not None:
            bits[np.arange(len(some)), own[some]] = False
        if not bits.any():
            return None
        row, lane = (int(x[0]) for x in np.nonzero(bits))
        cell = _cell(cells, int(some[row]))
        return Prior(cell, key + lane, int(epoch[some[row]]), int(reader.site[cell]), False, -1 if own is None else int(own[some[row]]))

    def unwritten(self, cells: Cells) -> bool:
        return not self.epoch[cells].all()

    # ------------------------------------------------------------------------------------------- records

    def wrote(self, cells: Cells, agents: Any, clock: int, site: int, strong: bool = False) -> None:
        self.agent[cells] = agents
        self.epoch[cells] = clock
        self.site[cells] = site
        self.strong[cells] = strong

    def read(self, key: int, cells: Cells, clock: int, site: int) -> None:
        """By an asynchronous agent."""
        reader = self.reader(key, False)
        if isinstance(cells, slice):
            reader.cover(cells.start, cells.stop)
        else:
            reader.cover(int(cells.min()), int(cells.max()) + 1)
        reader.epoch[cells] = clock
        reader.site[cells] = site

    def read_by_lanes(self, base: int, cells: Array, lanes: Array | int, clock: int, site: int) -> None:
        """`lanes`: per cell the lane, or the mask of all that read all of the cells."""
        reader = self.reader(base, True)
        assert reader.lanes is not None
        reader.cover(int(cells.min()), int(cells.max()) + 1)
        stale = cells[reader.epoch[cells] != clock]
        if len(stale):
            reader.lanes[stale] = 0
            reader.epoch[cells] = clock
        reader.site[cells] = site
        if isinstance(lanes, int):
            reader.lanes[cells] |= np.uint32(lanes)
        else:
            np.bitwise_or.at(reader.lanes, cells, np.uint32(1) << lanes.astype(np.uint32))


def _cell(cells: Cells, i: int) -> int:
    return cells.start + i if isinstance(cells, slice) else int(cells[i])


# ------------------------------------------------------------------------------------------------------ global memory

CLOCK_BITS, AGENT_BITS = 26, 18


def stamps(home: int, agents: Any, clock: int) -> Any:
    """Stamps of one cluster's agents as int64: number of the cluster + 1, agent, clock."""
    return (home + 1 << AGENT_BITS + CLOCK_BITS) + (agents << CLOCK_BITS) + clock


def parts(stamp: Any) -> tuple[Any, Any, Any]:
    return ((stamp >> AGENT_BITS + CLOCK_BITS) - 1, stamp >> CLOCK_BITS & (1 << AGENT_BITS) - 1, stamp & (1 << CLOCK_BITS) - 1)


class GlobalShadow:
    """Of one allocation in global memory: the last write and the last two readers of each cell."""

    def __init__(self, start: int, stop: int) -> None:
        self.start = start
        self.shift = 4
        self.bytes = stop - start + 15 & ~15
        count = self.bytes >> 4
        self.write: Array = np.zeros(count, np.int64)
        self.reads: list[Array] = [np.zeros(count, np.int64), np.zeros(count, np.int64)]
        self.site: Array = np.zeros(count, np.int32)
        self.sites: Array = np.zeros(count, np.int32)
        self.strong: Array = np.zeros(count, np.bool_)
        self.touched = False
        """Whether anything but reads has happened."""

    def fit(self, places: Any, size: int) -> None:
        bits = size | (places if isinstance(places, int) else int(np.bitwise_or.reduce(places, axis=None)))
        shift = (bits & -bits).bit_length() - 1
        if shift < self.shift:
            factor = 1 << self.shift - shift
            self.shift = shift
            self.write = np.repeat(self.write, factor)
            self.reads = [np.repeat(a, factor) for a in self.reads]
            self.site, self.sites = np.repeat(self.site, factor), np.repeat(self.sites, factor)
            self.strong = np.repeat(self.strong, factor)

    def cells(self, starts: Any, length: int) -> Array:
        """The cells of `length` bytes from each of the places."""
        at = np.atleast_1d(np.asarray(starts)) - self.start
        self.fit(at, length)
        count = length >> self.shift
        first = at >> self.shift
        if count == 1:
            return first.reshape(-1)
        return (first.reshape(-1)[:, None] + np.arange(count)).reshape(-1)

    def wrote(self, cells: Array, stamp: Any, site: int, strong: bool) -> None:
        self.touched = True
        self.write[cells] = stamp
        self.site[cells] = site
        self.strong[cells] = strong

    def was_read(self, cells: Array, stamp: Any, site: int) -> None:
        newest = self.reads[0][cells]
        other = newest >> CLOCK_BITS != stamp >> CLOCK_BITS
        if other.any():
            self.reads[1][cells[other]] = newest[other]
        self.reads[0][cells] = stamp
        self.sites[cells] = site
