"""Accesses of a warp's lanes that a newer access to the same cell does not imply: per cell the newest clock of each lane."""

from __future__ import annotations

import numpy as np

from ..values import Array

LANE_BITS = np.arange(32, dtype=np.uint32)


class Older:
    """`cells` in order, `clocks` (cells x 32 lanes; 0: none) and the instruction (`sites`) that accessed each cell last."""

    __slots__ = ("cells", "clocks", "sites")

    def __init__(self, cells: Array | None = None, clocks: Array | None = None, sites: Array | None = None) -> None:
        self.cells: Array = np.zeros(0, np.int64) if cells is None else cells
        self.clocks: Array = np.zeros((0, 32), np.int32) if clocks is None else clocks
        self.sites: Array = np.zeros(0, np.int32) if sites is None else sites

    def __bool__(self) -> bool:
        return len(self.cells) > 0

    def add(self, cells: Array, clocks: Array, lanes: Array, sites: Array) -> None:
        """Lanes (per cell a mask) have accessed the cells at these clocks. Who knows a lane's newest clock knows those before it."""
        missing = np.setdiff1d(cells, self.cells)
        if len(missing):
            order = np.argsort(every := np.concatenate([self.cells, missing]), kind="stable")
            self.cells = every[order]
            self.clocks = np.concatenate([self.clocks, np.zeros((len(missing), 32), np.int32)])[order]
            self.sites = np.concatenate([self.sites, np.zeros(len(missing), np.int32)])[order]
        rows = np.searchsorted(self.cells, cells)
        each = np.where(lanes[:, None] >> LANE_BITS & 1, clocks[:, None], 0).astype(np.int32)
        np.maximum.at(self.clocks, rows, each)
        self.sites[rows] = sites

    def unknown(self, cells: Array, theirs: Array, own: Array | None) -> tuple[int, int, int, int] | None:
        """As `Reader.unknown`: (index into `cells`, lane, clock, site)."""
        rows = np.minimum(np.searchsorted(self.cells, cells), len(self.cells) - 1)
        here = np.flatnonzero(self.cells[rows] == cells)
        if not len(here):
            return None
        rows = rows[here]
        clocks = self.clocks[rows]
        bad = clocks > theirs[None, :]
        if own is not None:
            bad[np.arange(len(here)), own[here]] = False
        if not bad.any():
            return None
        row, lane = (int(x[0]) for x in np.nonzero(bad))
        return int(here[row]), lane, int(clocks[row, lane]), int(self.sites[rows[row]])

    def of(self, cells: Array, lane: int, clock: int) -> Array:
        """Of which cells the lane's newest access is the one at this clock."""
        if not len(self.cells):
            return np.zeros(len(cells), bool)
        rows = np.minimum(np.searchsorted(self.cells, cells), len(self.cells) - 1)
        its: Array = (self.cells[rows] == cells) & (self.clocks[rows, lane] == clock)
        return its

    def refined(self, factor: int) -> Older:
        """The same in cells that are smaller by this factor."""
        cells = (self.cells[:, None] * factor + np.arange(factor)).reshape(-1)
        return Older(cells, np.repeat(self.clocks, factor, axis=0), np.repeat(self.sites, factor))

    def part(self, first: int, count: int) -> Older:
        """Of `count` cells from `first` on, counted from there."""
        inside = (self.cells >= first) & (self.cells < first + count)
        return Older(self.cells[inside] - first, self.clocks[inside], self.sites[inside])
