"""Shadow memory: who wrote and who read each cell last.

Cells are as large as the accesses allow: 16 bytes at first, finer once something smaller is accessed. Of weak writes the last is kept:
who is ordered after it is ordered after those before it, or they have been reported. Reads, and strong writes (which may be unordered
among themselves), are kept of every warp (its epoch and lanes) and asynchronous agent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..tasks import Region
from ..values import Array
from .older import LANE_BITS, Older

Cells = Any
"""A slice or an array of cells."""
PAGE = 10
"""Bits of an offset within a page, of 1 KB."""
READ, POLL, ATOMIC, SAME = "read", "poll", "atomic", "same"
OVER = "over"
"""Kinds of accesses that are remembered for all who make them: weak reads, strong reads, strong writes, weak writes before an equal one;
weak writes before a strong one."""


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
        self.older = Older()

    def refine(self, factor: int) -> None:
        """Smaller cells."""
        self.epoch, self.site = np.repeat(self.epoch, factor), np.repeat(self.site, factor)
        self.low, self.high = self.low * factor, self.high * factor
        if self.lanes is not None:
            self.lanes = np.repeat(self.lanes, factor)
        self.older = self.older.refined(factor)

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

    def mark(self, cells: Array, low: int, high: int, clock: int, site: int) -> None:
        """`add` of an asynchronous agent, whose cells lie from `low` to `high`."""
        self.low, self.high = min(self.low, low), max(self.high, high + 1)
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
                self.older.add(gone, epoch[lost], self.lanes[gone], self.site[gone])
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
            return self.older.unknown(every, theirs, own)
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


class Written(NamedTuple):
    """Who wrote some cells last: the newest clock of each agent. The cells lie in `pages`, from `low` to `high`; `unwritten` says that
    some have no writer, `site` is the instruction that wrote the first cell, or -1.
    """

    pages: list[Any]
    cells: Array
    low: int
    high: int
    agents: tuple[tuple[int, int], ...]
    unwritten: bool
    site: int


class Shadow:
    """Of the shared memory of one cluster. `pages` has per page the (agent, clock, site) that wrote all of it, or an object that stands
    for its last write.
    """

    def __init__(self, size: int, shift: int = 4) -> None:
        self.size = size
        self.shift = shift
        count = size >> shift
        self.pages: list[Any] = [None] * ((size >> PAGE) + 1)
        self.version = 0
        """How often something has been written, or cells have got smaller."""
        self._written: dict[Any, Written] = {}
        self.agent: Array = np.zeros(count, np.int32)
        self.epoch: Array = np.zeros(count, np.int32)
        self.site: Array = np.zeros(count, np.int32)
        self.strong: Array = np.zeros(count, np.int8)
        """0, or the scope of a strong write + 1."""
        self.stores: set[int] = set()
        """The bytes that strong stores wrote."""
        self.kinds: dict[str, dict[int, Reader]] = {READ: {}, POLL: {}, ATOMIC: {}, SAME: {}, OVER: {}}

    def refine(self, shift: int) -> None:
        """Smaller cells from now on."""
        factor = 1 << self.shift - shift
        self.shift = shift
        self.version += 1
        self._written.clear()
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
        if isinstance(cells, slice) and self._pages_known(cells, known):
            return None
        bad = known[self.agent[cells]] < self.epoch[cells]
        return np.flatnonzero(bad) if bad.any() else None

    def _pages_known(self, cells: slice, known: Array) -> bool:
        """Whether nothing has written the pages of these cells, or one write, which is known, all of them."""
        bits = PAGE - self.shift
        pages = self.pages[cells.start >> bits:(cells.stop - 1 >> bits) + 1]
        first = pages[0] if pages else None
        return pages.count(first) == len(pages) and (first is None or (type(first) is tuple and known.item(first[0]) >= first[1]))

    def write_at(self, cells: Cells, i: int, lane: int = -1) -> Prior:
        cell = _cell(cells, i)
        return Prior(cell, int(self.agent[cell]), int(self.epoch[cell]), int(self.site[cell]), True, lane)

    def unknown(self, kinds: tuple[str, ...], cells: Cells, known: Array, lanes: Array | None, base: int, copies: int = -1,
                left: Array | None = None) -> Prior | None:
        """An access of these kinds that is not known. `lanes` are the lanes (of the warp at `base`, whose cp.async is at `copies`) that
        access the cells. `left`: the cells (indices) of which atomics must be known; None: all of them.
        """
        if left is not None:
            assert lanes is not None
            found = self.unknown((ATOMIC,), cells[left], known, lanes[left], base, copies) if len(left) else None
            return found or self.unknown(tuple(kind for kind in kinds if kind != ATOMIC), cells, known, lanes, base, copies)
        low, high = (cells.start, cells.stop) if isinstance(cells, slice) else (int(cells.min()), int(cells.max()) + 1)
        for kind in kinds:
            for key, reader in self.kinds[kind].items():
                if reader.low >= high or reader.high <= low:
                    continue
                warp = reader.lanes is not None
                own = lanes if warp and key in (base, copies) else None
                access = reader.unknown(cells, known[key:key + 32] if warp else known[key], own)
                if access is not None:
                    i, lane, clock, site = access
                    who = -1 if lanes is None else int(lanes[i])
                    return Prior(_cell(cells, i), key + lane, clock, site, writes(kind), who)
        return None

    def unwritten(self, cells: Cells) -> bool:
        return not self.epoch[cells].all()

    def written(self, key: tuple[Any, ...], chunks: Callable[..., tuple[Array, int, int]]) -> Written | None:
        """Who wrote the chunks of 16 bytes `chunks(*key)` (they, the first, the last); None where they lie beyond this memory."""
        found = self._written.get(key)
        bits = PAGE - self.shift
        if found is not None:
            pages = self.pages[found.low >> bits:(found.high >> bits) + 1]
            if pages == found.pages:
                return found
            cells, low, high = found.cells, found.low, found.high
        else:
            cells, low, high = chunks(*key)
            if self.shift < 4:
                count = 1 << 4 - self.shift
                cells, low, high = (cells[:, None] * count + np.arange(count)).reshape(-1), low * count, high * count + count - 1
            if high >= len(self.agent):
                return None
            pages = self.pages[low >> bits:(high >> bits) + 1]
        made = self._written[key] = self._summary(pages, cells, low, high)
        return made

    def _summary(self, pages: list[Any], cells: Array, low: int, high: int) -> Written:
        first = pages[0]
        if type(first) is tuple and pages.count(first) == len(pages):
            return Written(pages, cells, low, high, (first[:2],), False, first[2])
        newest: dict[int, int] = {}
        for page in set(pages):
            if type(page) is not tuple:
                break
            newest[page[0]] = max(page[1], newest.get(page[0], 0))
        else:
            first = pages[(int(cells[0]) >> PAGE - self.shift) - (low >> PAGE - self.shift)]
            return Written(pages, cells, low, high, tuple(newest.items()), False, first[2])
        agents, epochs = self.agent[cells], self.epoch[cells]
        each = tuple((agent, int(epochs[agents == agent].max())) for agent in np.unique(agents).tolist())
        return Written(pages, cells, low, high, each, not epochs.all(), int(self.site[cells[0]]) if epochs[0] else -1)

    # ------------------------------------------------------------------------------------------- records

    def wrote(self, cells: Cells, agents: Any, clock: int, site: int, strong: int = 0) -> None:
        self.version += 1
        bits = PAGE - self.shift
        whole = isinstance(cells, slice) and not (cells.start | cells.stop) & (1 << bits) - 1
        low, high = (cells.start, cells.stop - 1) if isinstance(cells, slice) else (int(cells.min()), int(cells.max()))
        pages = slice(low >> bits, (high >> bits) + 1)
        self.pages[pages] = [(agents, clock, site) if whole and type(agents) is int else object()] * (pages.stop - pages.start)
        self.agent[cells] = agents
        self.epoch[cells] = clock
        self.site[cells] = site
        self.strong[cells] = strong

    def accessed(self, kind: str, key: int, cells: Cells, clock: int, site: int, lanes: Array | int | None = None, floor: int = 0) -> None:
        """By the lanes of the warp whose first is `key`, or (`lanes` None) by an asynchronous agent."""
        self.reader(kind, key, lanes is not None).add(cells, clock, site, 0 if lanes is None else lanes, floor)

    def reader(self, kind: str, key: int, warp: bool = False) -> Reader:
        """The accesses of a kind by the warp whose first lane is `key`, or by an asynchronous agent."""
        readers = self.kinds[kind]
        found = readers.get(key)
        if found is None:
            found = readers[key] = Reader(len(self.agent), warp)
        return found


def _cell(cells: Cells, i: int) -> int:
    return cells.start + i if isinstance(cells, slice) else int(cells[i])


def writes(kind: str) -> bool:
    """Whether accesses of a kind write."""
    return not kind.startswith((READ, POLL, "asked"))


def bytes_of(at: Array | int, size: int) -> set[int]:
    """The bytes of accesses at these places."""
    return {place + i for place in np.atleast_1d(at).tolist() for i in range(size)}


def kind_of(mode: str, strong: bool) -> str:
    return ATOMIC if mode != "r" else POLL if strong else READ


def against(mode: str, strong: bool) -> tuple[str, ...]:
    """What must come before an access, besides the last write and those before an equal one: strong accesses are not ordered among
    themselves.
    """
    if strong:
        return (OVER,) if mode == "r" else (READ, OVER)
    return (ATOMIC, OVER) if mode == "r" else (READ, POLL, ATOMIC, OVER)


def region_cells(shadow: Shadow, region: Region) -> Any:
    """The cells of a region."""
    if isinstance(region.starts, int):
        return shadow.span(region.starts, region.length)
    shadow.fit(region.starts, region.length)
    first = region.starts >> shadow.shift
    count = region.length >> shadow.shift
    return first if count == 1 else (first[:, None] + np.arange(count)).reshape(-1)
