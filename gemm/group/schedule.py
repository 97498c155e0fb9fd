"""Which tile of which group a CTA works on next, from group lengths that only the device knows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from ptxkit import MBarriers, Ptr, Reg, Ring, clusterid, ctaid, for_range, if_, laneid, loop, nclusterid, nctaid, smem
from ptxkit.idioms import wait
from ptxkit.ptx import add, atom, bar, ld, mbarrier, mov, st
from ptxkit.ptx import min as min_
from ptxkit.smem import Shared
from ptxkit.types import u32

from ..scheduler import Schedule, Work, _shared_out
from .table import GroupTable, Layout

Order = Literal["linear", "search", "across", "ticket"]
Tails = Literal["ragged", "predicated", "updated"]

ORDERS: tuple[Order, ...] = ("linear", "search", "across", "ticket")


@dataclass(frozen=True, slots=True)
class GroupWork(Work):
    """A piece of work in a group: `m` and `n` count its own tiles, its rows of x are `start` to `end`."""

    group: Reg[u32] | None = None
    start: Reg[u32] | None = None
    end: Reg[u32] | None = None


@dataclass(frozen=True, slots=True)
class Tickets:
    """Units handed out as CTAs get to them: the first to each by its number, every further one by a counter in global memory.

    The producer's thread draws a ticket while it loads the tile before, and passes it on through a ring of slots. full[slot]: 1, its
    arrive. empty[slot]: a lane of every warp that multiplies, when the warp has read the slot. As many tickets are drawn as there are
    units, so whoever draws the last sets the counter back to 0 for the next launch.
    """

    counter: Ptr[u32]
    warps: int
    slots: Shared[u32] = field(init=False)
    full: MBarriers = field(init=False)
    empty: MBarriers = field(init=False)

    SLOTS = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "slots", smem.array(u32, self.SLOTS, name="tickets"))
        object.__setattr__(self, "full", smem.mbarrier(self.SLOTS, name="ticket is there"))
        object.__setattr__(self, "empty", smem.mbarrier(self.SLOTS, name="ticket is read"))

    @property
    def counts(self) -> tuple[tuple[MBarriers, int], ...]:
        """For `Pipeline.init`."""
        return (self.full, 1), (self.empty, self.warps)

    @contextmanager
    def drawn(self, units: Reg[u32]) -> Iterator[Reg[u32]]:
        """The producer's loop, in one thread."""
        unit, position = mov.u32(ctaid.x), Ring(self.SLOTS)
        with loop() as more:
            wait(self.empty[position.stage], position.parity ^ 1)
            st.shared__cta.u32(self.slots.at(position.stage), unit)
            mbarrier.arrive.shared__cta.b64(self.full[position.stage])
            position.advance()
            more.break_if(unit >= units)
            drawn = atom.relaxed.gpu.global_.add.u32(self.counter, 1)
            yield unit
            st.relaxed.gpu.global_.u32(self.counter, 0, pred=drawn == units - 1)
            mov.u32(unit, drawn + mov.u32(nctaid.x))

    @contextmanager
    def passed_on(self, units: Reg[u32], turn: Reg[u32] | int, turns: int) -> Iterator[Reg[u32]]:
        """A loop of those who multiply, in whole warps; of every `turns` tickets only number `turn`."""
        position, number = Ring(self.SLOTS), mov.u32(0)
        with loop() as more:
            wait(self.full[position.stage], position.parity)
            unit = ld.shared__cta.u32(self.slots.at(position.stage))
            bar.warp.sync(0xFFFFFFFF)
            mbarrier.arrive.shared__cta.b64(self.empty[position.stage], pred=mov.u32(laneid) == 0)
            position.advance()
            more.break_if(unit >= units)
            if turns > 1:
                mine = number == turn
                mov.u32(number, number ^ 1)
                more.continue_if(~mine)
            yield unit


@dataclass(frozen=True, slots=True)
class GroupSchedule:
    """Persistent schedule over the tiles of all groups: cluster c of C works on units c, c + C, ..., or ("ticket") on what it draws.

    "linear", "search" and "ticket" go through the groups one after another, so that the units in flight share one or two groups' weights;
    the group of a unit is found by walking on from the last one, or by a binary search. "across" goes through all groups' rows for each
    column of tiles before the next. Within a group (or a column) `tiles` says the order and what a cluster shares.

    Rows of tiles are those of A, columns those of B: the tokens are rows, or, `transposed`, columns.
    """

    tiles: Schedule
    order: Order
    transposed: bool = False
    tickets: Tickets | None = None

    @contextmanager
    def work(self, table: GroupTable, weight_tiles: Reg[u32], stages: Reg[u32], *, turn: Reg[u32] | int = 0, turns: int = 1,
             draws: bool = False) -> Iterator[GroupWork]:
        """A loop over this CTA's work; of every `turns` pieces only number `turn`. `draws`: in the thread that draws tickets."""
        own_sizes = table.layout == "pointers"
        across = weight_tiles if own_sizes else self._columns(weight_tiles)
        rows = ld.shared__cta.u32(table.before.at(table.capacity))
        units = rows if own_sizes else rows * across
        group = mov.u32(0)
        with self._units(units, turn, turns, draws) as unit:
            column = unit // rows if self.order == "across" else None
            sought = unit if own_sizes else unit - column * rows if column is not None else unit // across
            if self.order in ("linear", "ticket"):
                with loop() as walk:
                    walk.break_if(sought < ld.shared__cta.u32(table.before.at(group + 1)))
                    add.u32(group, group, 1)
            else:
                self._search(table, group, sought)
            before = ld.shared__cta.u32(table.before.at(group))
            if column is not None:
                along, other = sought - before, column
                m, n = (other, along) if self.transposed else (along, other)
            else:
                own = ld.shared__cta.u32(table.before.at(group + 1)) - before
                wide = across
                if own_sizes:
                    wide = ld.shared__cta.u32(table.across.at(group))
                    own, before, stages = own // wide, before, ld.shared__cta.u32(table.stages.at(group))
                within = unit - before if own_sizes else unit - before * wide
                m, n = self.tiles._place(within, *((wide, own) if self.transposed else (own, wide)))
            m, n = self.tiles._in_cluster(m, n)
            yield GroupWork(m, n, 0, stages, unit, None, None, group, ld.shared__cta.u32(table.start.at(group)),
                            ld.shared__cta.u32(table.end.at(group)))

    @contextmanager
    def work_of_rows(self, of_row: Ptr[u32], rows: Reg[u32], tokens: int, weight_tiles: Reg[u32], stages: Reg[u32], *,
                     turn: Reg[u32] | int = 0, turns: int = 1, draws: bool = False) -> Iterator[GroupWork]:
        """The same where the first row of each tile says its group ("rows"); tiles of rows with a negative group are left out."""
        tiles = self.tiles
        across, down = self._columns(weight_tiles), _shared_out(rows, tokens)
        with self._units(across * down, turn, turns, draws) as unit:
            m, n = tiles._place(unit, *((across, down) if self.transposed else (down, across)))
            m, n = tiles._in_cluster(m, n)
            start = (n if self.transposed else m) * tokens
            group = ld.global_.u32(of_row.at(start))
            zero = mov.u32(0)
            with if_(group <= 0x7FFF_FFFF):
                yield GroupWork(m if self.transposed else zero, zero if self.transposed else n, 0, stages, unit, None, None, group, start,
                                min_.u32(start + tokens, rows))

    def _columns(self, weight_tiles: Reg[u32]) -> Reg[u32]:
        return _shared_out(weight_tiles, self.tiles.cluster_m if self.transposed else self.tiles.cluster_n)

    @contextmanager
    def _units(self, units: Reg[u32], turn: Reg[u32] | int, turns: int, draws: bool) -> Iterator[Reg[u32]]:
        if self.tickets is not None:
            with (self.tickets.drawn(units) if draws else self.tickets.passed_on(units, turn, turns)) as unit:
                yield unit
            return
        clustered = self.tiles.cluster_m * self.tiles.cluster_n > 1
        here, all_ = (mov.u32(clusterid.x), mov.u32(nclusterid.x)) if clustered else (mov.u32(ctaid.x), mov.u32(nctaid.x))
        start = here if isinstance(turn, int) and turn == 0 else here + all_ * turn
        with for_range(units, start=start, step=all_ * turns if turns > 1 else all_) as unit:
            yield unit

    @staticmethod
    def _search(table: GroupTable, group: Reg[u32], sought: Reg[u32]) -> None:
        """The last group before which there are at most `sought` units: it has some, if any group behind `sought` does."""
        mov.u32(group, 0)
        step = table.capacity // 2
        while step:
            middle = group + step
            mov.u32(group, middle, pred=ld.shared__cta.u32(table.before.at(middle)) <= sought)
            step //= 2


__all__ = ["ORDERS", "GroupSchedule", "GroupWork", "Layout", "Order", "Tails", "Tickets"]
