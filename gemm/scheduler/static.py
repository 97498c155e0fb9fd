"""Tile schedulers, device side: which output tile, and which part of its depth, a CTA works on next."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ptxkit import Ptr, Reg, cluster_ctarank, clusterid, ctaid, for_range, if_, loop, nclusterid, nctaid
from ptxkit.idioms import inverse, quotient
from ptxkit.ptx import add, ld, mov, selp
from ptxkit.ptx import min as min_
from ptxkit.types import u32

from ..collective.stream_k import Part, Runs
from .dynamic import Tickets
from .fast_divmod import rounded_up

Raster = Literal["along_m", "along_n", "hilbert"]


class Inverses(NamedTuple):
    """Of what a unit's number is divided by to find its place (`ptxkit.idioms.inverse`): units of a line, that is a row of them ("along_n":
    a column); lines of the last panel; units of a batch. On the host, or in registers."""

    line: Reg[u32] | int
    panel: Reg[u32] | int
    batch: Reg[u32] | int

    @classmethod
    def of(cls, rows: int, columns: int, group: int, raster: Raster) -> Inverses:
        """On the host, of so many rows and columns of units that a `Schedule` of this `group` and `raster` goes through."""
        lines, units = (rows, columns) if raster == "along_m" else (columns, rows)
        return cls(inverse(units), inverse((lines - 1) % group + 1), inverse(rows * columns))


@dataclass(frozen=True, slots=True)
class Extents:
    """A problem counted in tiles, in registers."""

    m: Reg[u32]
    n: Reg[u32]
    k: Reg[u32]
    inverses: Inverses
    batches: Reg[u32] | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """One CTA's next piece: tile (m, n) of a batch, stages `first` to `first + stages` of its depth. `tile` numbers the whole tile; `part`
    is there where tiles lie in runs of stages."""

    m: Reg[u32]
    n: Reg[u32]
    first: Reg[u32] | int
    stages: Reg[u32]
    tile: Reg[u32]
    split: Reg[u32] | None = None
    batch: Reg[u32] | None = None
    part: Part | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Persistent schedule: cluster c of C works on units c, c + C, ..., or on what it draws from `tickets`; a unit is `cluster_m` x
    `cluster_n` tiles, one a CTA.

    Units go down GROUP rows, a panel, then on to the next column of it, so that the units in flight touch few rows of A and few
    columns of B and both stay in L2; "along_n" exchanges rows and columns. `serpentine` walks every other panel backwards. The
    last panel has what is left. "hilbert" takes them from the table `order` (see `gemm.curve`), a row in the upper half of a word.
    A CTA of a cluster may get a tile past the end of D: its copies are out of bounds, which reads zeros and writes nothing.

    With `splits`, a tile's depth is shared out: among consecutive units ("workspace"), or among the CTAs of a cluster ("cluster"). With
    `stream`, each cluster first has a run of the first units' stages (see `Runs`), then whole units.
    """

    group: int = 8
    raster: Raster = "along_m"
    serpentine: bool = False
    cluster_m: int = 1
    cluster_n: int = 1
    splits: int = 1
    split_in_cluster: bool = False
    order: Ptr[u32] | None = None
    tickets: Tickets | None = None
    stream: bool = False

    @contextmanager
    def work(self, extents: Extents, *, turn: Reg[u32] | int = 0, turns: int = 1, draws: bool = False,
             skip: Callable[[Reg[u32]], None] | None = None, first: Sequence[Reg[u32]] | None = None) -> Iterator[Work]:
        """A loop over this CTA's work; of every `turns` pieces only number `turn`, for warpgroups that take turns. `draws`: in the thread
        that draws tickets. `skip` hears of the stages of each piece of a run that is another warpgroup's. `first` is where the first piece
        has been found to be (`begins_at`): units that are dealt out then begin there, which takes no time any more."""
        if self.stream:
            rows, columns, tiles, units = self._units(extents)
            with self._streamed(extents, units, turn, turns, skip) as (tile, stages, part):
                m, n, batch = self._tile(extents, tile, tiles, rows, columns)
                yield Work(m, n, part.first, stages, tile, None, batch, part=part)
            return
        units, place, piece = self._whole(extents)
        with self.placed(units, place, turn, turns, draws) if first is None else self._going_on(units, place, first) as found:
            yield piece(*found)

    def begins_at(self, extents: Extents) -> tuple[Work, Sequence[Reg[u32]] | None]:
        """The piece of work that this CTA begins with, where none is a run; and for `work` where it is, if units are dealt out and found
        without a table."""
        unit, _ = self._cluster()
        _, place, piece = self._whole(extents)
        found = unit, *place(unit)
        return piece(*found), found if self.tickets is None and self.raster != "hilbert" else None

    @contextmanager
    def placed(self, count: Reg[u32], place: Callable[[Reg[u32]], Sequence[Reg[u32]]], turn: Reg[u32] | int = 0, turns: int = 1,
               draws: bool = False) -> Iterator[Sequence[Reg[u32]]]:
        """A loop over this cluster's units of `count`: each, and what `place` says of it; with tickets the thread that draws asks, and
        passes it on."""
        if self.tickets is not None:
            with (self.tickets.drawn(count, place) if draws else self.tickets.passed_on(count, turn, turns)) as found:
                yield found
            return
        with self.units(count, turn, turns) as unit:
            yield unit, *place(unit)

    @contextmanager
    def units(self, count: Reg[u32], turn: Reg[u32] | int = 0, turns: int = 1) -> Iterator[Reg[u32]]:
        """A loop over the units of `count` that are dealt out to this cluster; the rest as `work` has it."""
        here, all_ = self._cluster()
        start = here if isinstance(turn, int) and turn == 0 else here + all_ * turn
        with for_range(count, start=start, step=all_ * turns if turns > 1 else all_) as unit:
            yield unit

    @contextmanager
    def _going_on(self, count: Reg[u32], place: Callable[[Reg[u32]], Sequence[Reg[u32]]],
                  first: Sequence[Reg[u32]]) -> Iterator[Sequence[Reg[u32]]]:
        """A loop over the units of `count` that are dealt out to this cluster from the first on, which has been found; each is found at the
        end of the one before."""
        _, step = self._cluster()
        found = [mov.u32(word) for word in first]
        with loop() as more:
            more.break_if(found[0] >= count)
            yield found
            add.u32(found[0], found[0], step)
            for word, following in zip(found[1:], place(found[0]), strict=True):
                mov.u32(word, following)

    @property
    def from_end(self) -> bool:
        """Whether units do not come in the order of their numbers."""
        return self.tickets is not None and self.tickets.from_end > 0

    def _cluster(self) -> tuple[Reg[u32], Reg[u32]]:
        """The number of this cluster, and how many there are."""
        if self.cluster_m * self.cluster_n > 1 or self.split_in_cluster:
            return mov.u32(clusterid.x), mov.u32(nclusterid.x)
        return mov.u32(ctaid.x), mov.u32(nctaid.x)

    def _units(self, extents: Extents) -> tuple[Reg[u32], Reg[u32], Reg[u32], Reg[u32]]:
        """Rows and columns of units, units of a batch, and of all: whole tiles."""
        rows, columns = rounded_up(extents.m, self.cluster_m), rounded_up(extents.n, self.cluster_n)
        tiles = rows * columns
        return rows, columns, tiles, tiles if extents.batches is None else tiles * extents.batches

    def _whole(self, extents: Extents) -> tuple[Reg[u32], Callable[[Reg[u32]], Sequence[Reg[u32]]], Callable[..., Work]]:
        """Of units that are no runs: how many there are, where one is, and the piece of work that this makes."""
        rows, columns, tiles, units = self._units(extents)
        spread = self.splits if self.splits > 1 and not self.split_in_cluster else 1

        def place(unit: Reg[u32]) -> Sequence[Reg[u32]]:
            tile = quotient(unit, spread) if spread > 1 else unit
            m, n, batch = self._tile(extents, tile, tiles, rows, columns)
            return m, n, *([batch] if batch is not None else []), *([tile] if spread > 1 else [])

        def piece(unit: Reg[u32], m: Reg[u32], n: Reg[u32], *rest: Reg[u32]) -> Work:
            tile = rest[-1] if spread > 1 else unit
            batch = rest[0] if extents.batches is not None else None
            split = unit - tile * spread if spread > 1 else mov.u32(cluster_ctarank) if self.splits > 1 else None
            first: Reg[u32] | int = 0
            stages = extents.k
            if split is not None:
                first = quotient(extents.k * split, self.splits)
                stages = quotient(extents.k * (split + 1), self.splits) - first
            return Work(m, n, first, stages, tile, split, batch)

        return units * spread if spread > 1 else units, place, piece

    @contextmanager
    def _streamed(self, extents: Extents, units: Reg[u32], turn: Reg[u32] | int, turns: int,
                  skip: Callable[[Reg[u32]], None] | None) -> Iterator[tuple[Reg[u32], Reg[u32], Part]]:
        """A loop over this cluster's run, then over its whole units: tile, stages, and which part of the tile they are."""
        here, all_ = self._cluster()
        runs = Runs.of(units, extents.k, all_)
        run = all_ - 1 - here                   # clusters of lower numbers have the later runs, and begin first
        at, end = mov.u32(runs.start(run)), runs.start(run + 1)
        whole, number = runs.tiles + here, mov.u32(0)
        with loop() as more:
            streams = at < end
            more.break_if((at >= end) & (whole >= units))
            tile = selp.u32(at // extents.k, whole, streams)
            first = selp.u32(at - tile * extents.k, 0, streams)
            behind = extents.k - first
            stages = selp.u32(min_.u32(behind, end - at), behind, streams)
            add.u32(at, at, stages, pred=streams)
            add.u32(whole, whole, all_, pred=~streams)
            if turns > 1:
                other = number != turn
                mov.u32(number, number ^ 1)
                if skip is not None:
                    with if_(other):
                        skip(stages)
                more.continue_if(other)
            yield tile, stages, Part(runs, run, first, behind - stages)

    def _tile(self, extents: Extents, unit: Reg[u32], units: Reg[u32], rows: Reg[u32],
              columns: Reg[u32]) -> tuple[Reg[u32], Reg[u32], Reg[u32] | None]:
        """Row, column and batch of this CTA's tile of a unit, where a batch has `units`."""
        batch, within = None, unit
        if extents.batches is not None:
            batch = quotient(unit, units, extents.inverses.batch)
            within = unit - batch * units
        m, n = self._in_cluster(*self._place(within, rows, columns, extents.inverses))
        return m, n, batch

    def _place(self, unit: Reg[u32], rows: Reg[u32], columns: Reg[u32], inverses: Inverses) -> tuple[Reg[u32], Reg[u32]]:
        """Row and column of a unit."""
        if self.raster == "hilbert":
            assert self.order is not None
            entry = ld.global_.nc.u32(self.order.at(unit))
            return entry >> 16, entry & 0xFFFF
        lines, of_line = (rows, columns) if self.raster == "along_m" else (columns, rows)
        line = quotient(unit, of_line, inverses.line)
        return self._in_panel(unit, line, lines, of_line, lambda width: (
            selp.u32(inverses.panel, inverse(self.group), width < self.group)))

    def _in_panel(self, unit: Reg[u32], line: Reg[u32], lines: Reg[u32], of_line: Reg[u32],
                  inverse_of: Callable[[Reg[u32]], Reg[u32]]) -> tuple[Reg[u32], Reg[u32]]:
        """Row and column of a unit that has so many whole lines of units before it. `inverse_of` a panel's lines is asked for."""
        panel = quotient(line, self.group)
        first = panel * self.group
        within = unit - first * of_line
        if self.group == 1:
            near, far = line, within
        else:
            width = min_.u32(lines - first, self.group)
            far = quotient(within, width, inverse_of(width))
            near = first + (within - far * width)
        if self.serpentine:
            far = selp.u32(of_line - 1 - far, far, (panel & 1) != 0)
        return (near, far) if self.raster == "along_m" else (far, near)

    def _in_cluster(self, m: Reg[u32], n: Reg[u32]) -> tuple[Reg[u32], Reg[u32]]:
        """This CTA's tile of the unit: rank = row in the cluster + column * cluster_m."""
        rank = mov.u32(cluster_ctarank) if self.cluster_m * self.cluster_n > 1 else None
        if rank is None:
            return m, n
        if self.cluster_n == 1:
            return m * self.cluster_m + rank, n
        if self.cluster_m == 1:
            return m, n * self.cluster_n + rank
        return m * self.cluster_m + rank % self.cluster_m, n * self.cluster_n + rank // self.cluster_m


__all__ = ["Extents", "Inverses", "Raster", "Schedule", "Work"]
