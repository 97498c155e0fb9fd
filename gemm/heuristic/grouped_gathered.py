"""Which tile a product of gathered rows gets: tokens are rows of a tile, however few, and no CTAs share them. These choices follow those
for rows that tensor copies load; none was measured.
"""

from __future__ import annotations

from ptxkit.cards import Card

from ..collective.atoms import ROWS
from ..collective.thread_scales import BLOCK
from ..config.parts import Tile
from ..problem.grouped import GroupProblem
from .group_tile import LONGEST_FIRST, GroupTile
from .grouped_rows import tokens_as_rows
from .grouped_tiles import FEW, best, ordered, tiles_of

MOST_ROWS = 128
"""Rows of a tile: the copying threads keep where each begins, in a producer's registers."""


def gathered(problem: GroupProblem, card: Card, room: float, *, one_tile: bool) -> GroupTile:
    """The tile for groups that are expected to have room for so many tokens. `one_tile`: most groups have one tile."""
    if problem.promote:
        return ordered(GroupTile(Tile(ROWS if problem.mean <= FEW else MOST_ROWS, BLOCK), scheduler=LONGEST_FIRST), problem)
    if problem.mean > 2 * FEW:
        tiles = tuple(each for each in tiles_of(problem, card)
                      if each.tile.scheduler.cluster.size == 1 and each.tile.tile.BM <= MOST_ROWS)
        return best(tiles, problem, card.sms).tile
    if problem.quantised:
        tile = Tile(ROWS if room <= ROWS else MOST_ROWS, BLOCK * (1 + problem.options.gated))
        return ordered(GroupTile(tile, scheduler=LONGEST_FIRST), problem)
    return ordered(tokens_as_rows(min(room, MOST_ROWS), problem.mean, problem.options.gated, one_tile=one_tile), problem)


__all__ = ["MOST_ROWS", "gathered"]
