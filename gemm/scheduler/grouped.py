"""Which tile of which group a CTA works on next, from group lengths that only the device knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Literal, get_args

from ptxkit import Ptr, Reg, ctaid, if_, loop
from ptxkit.flow import else_
from ptxkit.idioms import quotient
from ptxkit.ptx import add, ld, mov, selp
from ptxkit.ptx import min as min_
from ptxkit.types import pred, u32

from .fast_divmod import SmallInverses, rounded_up
from .group_table import GroupTable, Layout
from .persistent import PersistentLoop
from .tile_order import TileOrder
from .work import WorkTile

Order = Literal["linear", "search", "across", "dynamic"]
"""How work tiles are dealt out: three ways in advance, or as CTAs get to them."""
ORDERS = get_args(Order)


@dataclass(frozen=True, slots=True)
class GroupWorkTile(WorkTile):
    """A work tile of a group, whose rows of x are `start` to `end`: `m` and `n` count the group's tiles; rows `row` to `until` are this
    tile's."""

    group: Reg[u32] = field(kw_only=True)
    start: Reg[u32] = field(kw_only=True)
    end: Reg[u32] = field(kw_only=True)
    row: Reg[u32] = field(kw_only=True)
    until: Reg[u32] = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class GroupScheduler:
    """Persistent loop over the tiles of all groups: cluster c of C works on tiles c, c + C, ..., or ("dynamic") on what it draws.

    "linear", "search" and "dynamic" go through the groups one after another, so that the tiles in flight share one or two groups' weights;
    the group of a tile is found by walking on from the last one, or by a binary search. "across" goes through all groups' rows for each
    column of tiles before the next. Within a group (or a column) `tile_order` says the order and what a cluster shares.

    Rows of tiles are those of A, columns those of B: the tokens are rows, or with `swap_ab` columns. A tile has `tokens` of them at most,
    the last one of a group what is left; or a group's tiles share its rows evenly, by `even` of them at a time. `weights_divmod` is the
    inverse of the number of work tiles that the weights of a group are (`ptxkit.idioms.inverse`).
    """

    tile_order: TileOrder
    loop: PersistentLoop
    order: Order
    tokens: int
    inverses: SmallInverses
    weights_divmod: Reg[u32]
    swap_ab: bool = False
    even: int = 0

    @contextmanager
    def work(self, table: GroupTable, weight_tiles: Reg[u32], stages: Reg[u32], *, turn: Reg[u32] | int = 0, turns: int = 1,
             draws: bool = False, skip: Callable[[Reg[u32]], None] | None = None) -> Iterator[GroupWorkTile]:
        """A loop over this CTA's work; of every `turns` pieces only number `turn`. `draws`: in the thread that draws tickets. `skip` hears
        of the stages of each piece that is another warpgroup's, where groups have their own."""
        own_sizes = table.layout == "ptr_array"
        across = weight_tiles if own_sizes else self._columns(weight_tiles)
        rows = ld.shared__cta.u32(table.before.at(table.capacity))
        units = rows if own_sizes else rows * across
        here = mov.u32(0)

        def place(unit: Reg[u32]) -> Sequence[Reg[u32]]:
            """For all CTAs of a cluster, to which tickets pass it on."""
            column = unit // rows if self.order == "across" else None
            sought = unit if own_sizes else unit - column * rows if column is not None else quotient(unit, across, self.weights_divmod)
            if self.order in ("linear", "dynamic") and not self.loop.from_tail:
                with loop() as walk:
                    walk.break_if(sought < ld.shared__cta.u32(table.before.at(here + 1)))
                    add.u32(here, here, 1)
            else:
                self._search(table, here, sought)
            before = ld.shared__cta.u32(table.before.at(here))
            if column is not None:
                along, other = sought - before, column
                m, n = (other, along) if self.swap_ab else (along, other)
            else:
                own, wide = ld.shared__cta.u32(table.before.at(here + 1)) - before, across
                if own_sizes:
                    wide = ld.shared__cta.u32(table.across.at(here))
                    own = own // wide
                within = unit - before if own_sizes else unit - before * wide
                m, n = self._place(within, own, wide, None if own_sizes else sought - before)
            return m, n, here

        others = skip if turns > 1 else None
        own = _in_turn(turn, turns) if others else None
        with self.loop.placed(units, place, *((0, 1) if others else (turn, turns)), draws) as (unit, m, n, of):
            depth = ld.shared__cta.u32(table.stages.at(of)) if own_sizes else stages
            with if_(own()) if own else nullcontext():
                m, n = self.tile_order.in_cluster(m, n)
                start, end = ld.shared__cta.u32(table.start.at(of)), ld.shared__cta.u32(table.end.at(of))
                row, until = self._rows(table, of, n if self.swap_ab else m, start, end)
                group = ld.shared__cta.u32(table.group.at(of)) if table.longest_first else of
                yield GroupWorkTile(m, n, 0, depth, unit, group=group, start=start, end=end, row=row, until=until)
            if others:
                with else_():
                    others(depth)

    def expected(self, groups: Reg[u32], weight_tiles: Reg[u32]) -> tuple[Reg[u32], Reg[u32]]:
        """Where this CTA, of no cluster, begins if every group has one tile of tokens: the group, and which of its tiles of weights."""
        unit = mov.u32(ctaid.x)
        group = quotient(unit, weight_tiles, self.weights_divmod)
        return min_.u32(group, groups - 1), unit - group * weight_tiles

    @contextmanager
    def work_of_rows(self, of_row: Ptr[u32], rows: Reg[u32], weight_tiles: Reg[u32], stages: Reg[u32], *,
                     turn: Reg[u32] | int = 0, turns: int = 1, draws: bool = False) -> Iterator[GroupWorkTile]:
        """The same where the first row of each tile says its group ("contiguous"). Tiles of rows with a negative group are left out; the
        `turns` take the others one after another."""
        tokens = self.tokens
        across, down = self._columns(weight_tiles), rounded_up(rows, tokens)
        own = _in_turn(turn, turns) if turns > 1 else None

        def place(unit: Reg[u32]) -> Sequence[Reg[u32]]:
            m, n = self.tile_order.in_cluster(*self._place(unit, down, across, quotient(unit, across, self.weights_divmod)))
            return m, n, ld.global_.u32(of_row.at((n if self.swap_ab else m) * tokens))

        with self.loop.placed(across * down, place, draws=draws) as (unit, m, n, group):
            start, zero = (n if self.swap_ab else m) * tokens, mov.u32(0)
            works = group <= 0x7FFF_FFFF
            with if_(works & own(works) if own else works):
                end = min_.u32(start + tokens, rows)
                yield GroupWorkTile(m if self.swap_ab else zero, zero if self.swap_ab else n, 0, stages, unit, group=group, start=start,
                                    end=end, row=start, until=end)

    def _rows(self, table: GroupTable, group: Reg[u32], tile: Reg[u32], start: Reg[u32], end: Reg[u32]) -> tuple[Reg[u32], Reg[u32]]:
        """First row and end of a tile of a group, before the first row where a CTA of a cluster has none. Of tiles that share evenly the
        first ones have more."""
        if not self.even:
            row = start + tile * self.tokens
            return row, min_.u32(row + self.tokens, end)
        if table.layout == "ptr_array":
            tiles = rounded_up(end - start, self.tokens)
        else:
            tiles = ld.shared__cta.u32(table.before.at(group + 1)) - ld.shared__cta.u32(table.before.at(group))
        slabs = rounded_up(end - start, self.even)
        each = quotient(slabs, tiles, self.inverses.of_any(tiles))
        longer = slabs - each * tiles
        row = start + (tile * each + min_.u32(tile, longer)) * self.even
        return row, min_.u32(row + selp.u32(each + 1, each, tile < longer) * self.even, end)

    def _place(self, unit: Reg[u32], down: Reg[u32], across: Reg[u32], before: Reg[u32] | None) -> tuple[Reg[u32], Reg[u32]]:
        """Row and column of a tile: of a unit, where `down` units have other tokens and `across` other weights. `before`: how many times
        `across` units come before it, if that is known."""
        if (self.tile_order.raster == "along_m") == self.swap_ab:
            lines, of_line, line = across, down, quotient(unit, down, self.inverses.of_any(down))
        else:
            lines, of_line, line = down, across, unit // across if before is None else before
        small = self.tile_order.swizzle.size <= SmallInverses.MOST
        return self.tile_order.in_panel(unit, line, lines, of_line, self.inverses.of if small else self.inverses.of_any)

    def _columns(self, weight_tiles: Reg[u32]) -> Reg[u32]:
        return rounded_up(weight_tiles, self.tile_order.cluster.m if self.swap_ab else self.tile_order.cluster.n)

    @staticmethod
    def _search(table: GroupTable, group: Reg[u32], sought: Reg[u32]) -> None:
        """The last group before which there are at most `sought` units: it has some, if any group behind `sought` does."""
        mov.u32(group, 0)
        step = table.capacity // 2
        while step:
            middle = group + step
            mov.u32(group, middle, pred=ld.shared__cta.u32(table.before.at(middle)) <= sought)
            step //= 2


def _in_turn(turn: Reg[u32] | int, turns: int) -> Callable[..., Reg[pred]]:
    """Of what `turns` take one after another: a function that says of each whether it is this one's, who has number `turn`; where its
    argument does not hold, it is nobody's."""
    before = mov.u32(turn)

    def own(counts: Reg[pred] | None = None) -> Reg[pred]:
        found = before == 0
        mov.u32(before, selp.u32(turns - 1, before - 1, found), pred=counts)
        return found

    return own


__all__ = ["ORDERS", "GroupScheduler", "GroupWorkTile", "Layout", "Order"]
