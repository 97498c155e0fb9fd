"""Tile scheduler of grouped products, device side: the group lengths are known only on the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from ptxkit import Ptr, Reg, ctaid, if_, loop
from ptxkit.flow import else_
from ptxkit.idioms import fast_div
from ptxkit.ptx import add, ld, mov, selp
from ptxkit.ptx import min as min_
from ptxkit.types import pred, u32

from .fast_divmod import DivmodTable, ceil_div
from .group_table import CONTIGUOUS_ROWS, MOST_CONTIGUOUS, PIECE, GroupTable, Layout
from .persistent import PersistentLoop
from .stream_k import Part, parts_of
from .tile_order import TileOrder
from .work import WorkTile

Order = Literal["linear", "search", "across", "dynamic"]
"""How work tiles are dealt out: "linear", "search" and "across" are static, "dynamic" draws them from a counter."""
ORDERS = get_args(Order)
NO_GROUP = 1 << 31
"""From which number on a group is none."""


@dataclass(frozen=True, slots=True)
class GroupWorkTile(WorkTile):
    """A work tile of a group. The group has rows `start` to `end` of x, this tile rows `row` to `until`. `m` and `n` count the group's
    tiles."""

    group: Reg[u32] = field(kw_only=True)
    start: Reg[u32] = field(kw_only=True)
    end: Reg[u32] = field(kw_only=True)
    row: Reg[u32] = field(kw_only=True)
    until: Reg[u32] = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class GroupScheduler:
    """Persistent loop over the tiles of all groups: cluster c of C works on tiles c, c + C, ..., or ("dynamic") on tiles that it draws.

    "linear", "search" and "dynamic" finish a group before the next one, so that the tiles in flight share the weights of one or two
    groups. "linear" and "dynamic" find a tile's group by walking on from the previous group, "search" by a binary search. "across" visits
    the tile rows of all groups for one column of tiles before the next column. Within a group (or a column), `tile_order` sets the order.

    Tile rows belong to A and tile columns to B. Tokens are rows, or with `swap_ab` columns. A tile has at most `tokens` tokens, and the
    last tile of a group has the remaining ones. With `even` a group's tiles share its tokens evenly, in multiples of `even`.
    `weights_divmod` is the inverse (`ptxkit.idioms.inverse`) of a group's number of work tiles along the weights.

    With `sharing` over 1 the order is that of "search", CTAs have runs of stages (see `Runs`), and about so many share a tile.
    """

    tile_order: TileOrder
    loop: PersistentLoop
    order: Order
    tokens: int
    divmods: DivmodTable
    weights_divmod: Reg[u32]
    swap_ab: bool = False
    even: int = 0
    sharing: int = 1

    @contextmanager
    def work(self, table: GroupTable, weight_tiles: Reg[u32], stages: Reg[u32], *, turn: Reg[u32] | int = 0, turns: int = 1,
             draws: bool = False, skip: Callable[[Reg[u32]], None] | None = None) -> Iterator[GroupWorkTile]:
        """A loop over this CTA's work tiles. Of every `turns` tiles it yields only number `turn`.

        `draws`: set in the thread that draws tickets of a dynamic scheduler. With "ptr_array", where groups have their own K, `skip` is
        called with the stages of each work tile that another warpgroup computes.
        """
        own_sizes = table.layout == "ptr_array"
        across = weight_tiles if own_sizes else self._columns(weight_tiles)
        rows = ld.shared__cta.u32(table.tiles_before.at(table.capacity))
        count = rows if own_sizes else rows * across
        entry = mov.u32(0)                                      # the table entry of the work tile's group

        def place(index: Reg[u32]) -> Sequence[Reg[u32]]:
            """The cluster's tile, the same for all of its CTAs: row, column and table entry."""
            column = index // rows if self.order == "across" else None
            sought = index if own_sizes else index - column * rows if column is not None else fast_div(index, across, self.weights_divmod)
            if self.order in ("linear", "dynamic") and not self.loop.from_tail:
                with loop() as walk:
                    walk.break_if(sought < ld.shared__cta.u32(table.tiles_before.at(entry + 1)))
                    add.u32(entry, entry, 1)
            else:
                table.search(entry, sought)
            preceding = ld.shared__cta.u32(table.tiles_before.at(entry))
            if column is not None:
                along, other = sought - preceding, column
                m, n = (other, along) if self.swap_ab else (along, other)
            else:
                down, wide = ld.shared__cta.u32(table.tiles_before.at(entry + 1)) - preceding, across
                if own_sizes:
                    wide = ld.shared__cta.u32(table.across.at(entry))
                    down = down // wide
                within = index - preceding if own_sizes else index - preceding * wide
                m, n = self._place(within, down, wide, None if own_sizes else sought - preceding)
            return m, n, entry

        def work_tile(m: Reg[u32], n: Reg[u32], at: Reg[u32], index: Reg[u32], depth: Reg[u32], part: Part | None) -> GroupWorkTile:
            m, n = self.tile_order.in_cluster(m, n)
            start, end = ld.shared__cta.u32(table.start.at(at)), ld.shared__cta.u32(table.end.at(at))
            row, until = self._rows(table, at, n if self.swap_ab else m, start, end)
            group = ld.shared__cta.u32(table.group.at(at)) if table.longest_first else at
            return GroupWorkTile(m, n, 0 if part is None else part.first, depth, index, part=part, group=group, start=start, end=end,
                                 row=row, until=until)

        if self.sharing > 1:
            assert turns == 1
            assert self.order == "search"
            assert not own_sizes
            with parts_of(count, stages, *self.loop.own_index(), most=self.sharing) as (index, depth, part):
                m, n, at = place(index)
                yield work_tile(m, n, at, index, depth, part)
            return
        others = skip if turns > 1 else None
        own = _in_turn(turn, turns) if others else None
        with self.loop.placed(count, place, *((0, 1) if others else (turn, turns)), draws) as (index, m, n, at):
            depth = ld.shared__cta.u32(table.stages.at(at)) if own_sizes else stages
            with if_(own()) if own else nullcontext():
                yield work_tile(m, n, at, index, depth, None)
            if others:
                with else_():
                    others(depth)

    def expected(self, groups: Reg[u32], weight_tiles: Reg[u32]) -> tuple[Reg[u32], Reg[u32]]:
        """The group and the weight tile that this CTA begins with if every group has one tile of tokens. Not for clusters."""
        index = mov.u32(ctaid.x)
        group = fast_div(index, weight_tiles, self.weights_divmod)
        return min_.u32(group, groups - 1), index - group * weight_tiles

    @contextmanager
    def contiguous_work(self, group_of_row: Ptr[u32], rows: Reg[u32], weight_tiles: Reg[u32], stages: Reg[u32], *,
                        leaves_out: bool = False, turn: Reg[u32] | int = 0, turns: int = 1,
                        draws: bool = False) -> Iterator[GroupWorkTile]:
        """As `work`, for "contiguous" rows: the first row of each block of CONTIGUOUS_ROWS gives the group of its tiles. Tiles whose group
        is negative are skipped; `turns` counts only the others. With `leaves_out` padding at the end of a block is left out in pieces."""
        tokens, piece = self.tokens, min(self.tokens, PIECE)
        across, down = self._columns(weight_tiles), ceil_div(rows, tokens)
        own = _in_turn(turn, turns) if turns > 1 else None

        def group_of(row: Reg[u32], to: int) -> Reg[u32]:
            """The group of the first row of the aligned rows that this one is among."""
            return ld.global_.u32(group_of_row.at(row if tokens % to == 0 else row - row % to))

        def place(index: Reg[u32]) -> Sequence[Reg[u32]]:
            m, n = self.tile_order.in_cluster(*self._place(index, down, across, fast_div(index, across, self.weights_divmod)))
            row = (n if self.swap_ab else m) * tokens
            group = group_of(row, CONTIGUOUS_ROWS)
            if not leaves_out:
                return m, n, group
            own = group if tokens % CONTIGUOUS_ROWS == 0 else group_of(row, PIECE)
            firsts = own, *(group_of(min_.u32(row + first, rows - 1), PIECE) for first in range(piece, tokens, piece))
            pieces = mov.u32(0)                                 # as far as the last one that has a row
            for number, first in enumerate(firsts, 1):
                mov.u32(pieces, number, pred=first < NO_GROUP)
            return m, n, selp.u32(group | pieces * MOST_CONTIGUOUS, NO_GROUP, pieces > 0)      # no group has its highest bit set

        with self.loop.placed(across * down, place, draws=draws) as (index, m, n, group):
            start, zero = (n if self.swap_ab else m) * tokens, mov.u32(0)
            works = group < NO_GROUP
            with if_(works & own(works) if own else works):
                used: Any = tokens
                if leaves_out:
                    used, group = group // MOST_CONTIGUOUS * piece, group & (MOST_CONTIGUOUS - 1)
                end = min_.u32(start + used, rows)
                yield GroupWorkTile(m if self.swap_ab else zero, zero if self.swap_ab else n, 0, stages, index, group=group, start=start,
                                    end=end, row=start, until=end)

    def _rows(self, table: GroupTable, group: Reg[u32], tile: Reg[u32], start: Reg[u32], end: Reg[u32]) -> tuple[Reg[u32], Reg[u32]]:
        """First row and end of a tile of a group. The end is at most the first row if the group ends before this CTA's tile. Of tiles that
        share evenly, the first ones have more rows."""
        if not self.even:
            row = start + tile * self.tokens
            return row, min_.u32(row + self.tokens, end)
        if table.layout == "ptr_array":
            tiles = ceil_div(end - start, self.tokens)
        else:
            tiles = ld.shared__cta.u32(table.tiles_before.at(group + 1)) - ld.shared__cta.u32(table.tiles_before.at(group))
        parts = ceil_div(end - start, self.even)
        each = fast_div(parts, tiles, self.divmods.of_any(tiles))
        longer = parts - each * tiles
        row = start + (tile * each + min_.u32(tile, longer)) * self.even
        return row, min_.u32(row + selp.u32(each + 1, each, tile < longer) * self.even, end)

    def _place(self, index: Reg[u32], down: Reg[u32], across: Reg[u32], token_row: Reg[u32] | None) -> tuple[Reg[u32], Reg[u32]]:
        """Row and column of a group's tile number `index`, in `down` tiles along the tokens by `across` along the weights. `token_row` is
        index / across, if it is known."""
        if (self.tile_order.raster == "along_m") == self.swap_ab:
            lines, line_tiles, line = across, down, fast_div(index, down, self.divmods.of_any(down))
        else:
            lines, line_tiles, line = down, across, index // across if token_row is None else token_row
        small = self.tile_order.swizzle.size <= DivmodTable.MAX_DIVISOR
        return self.tile_order.in_panel(index, line, lines, line_tiles, self.divmods.of if small else self.divmods.of_any)

    def _columns(self, weight_tiles: Reg[u32]) -> Reg[u32]:
        return ceil_div(weight_tiles, self.tile_order.cluster.m if self.swap_ab else self.tile_order.cluster.n)


def _in_turn(turn: Reg[u32] | int, turns: int) -> Callable[..., Reg[pred]]:
    """A function to call once for each work tile: whether the tile belongs to the warpgroup with number `turn` of `turns`. A tile for which
    its argument does not hold is not counted."""
    left = mov.u32(turn)                                        # tiles until this warpgroup's next one

    def own(counts: Reg[pred] | None = None) -> Reg[pred]:
        found = left == 0
        mov.u32(left, selp.u32(turns - 1, left - 1, found), pred=counts)
        return found

    return own


__all__ = ["ORDERS", "GroupScheduler", "GroupWorkTile", "Layout", "Order"]
