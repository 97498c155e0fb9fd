"""Which tile a product of gathered rows gets: tokens are rows of a tile, however few, and no CTAs share them. These choices follow those
for rows that tensor copies load, but for what the layers of docs/grouped.md were measured to gain on an H100.

Groups of few tokens have square tiles, which take one expert's weights in many narrow parts: layers with 1 to 32 tokens an expert took 1
to 3 % less with 64 x 64 than with 64 x 128 or 64 x 256, and 64 tokens an expert 2 % less with 128 x 128 than with 128 x 256.
"""

from __future__ import annotations

from dataclasses import replace

from ptxkit.cards import Card

from ..collective.atoms import ROWS
from ..collective.thread_scales import BLOCK
from ..config.parts import ClusterShape, Cooperative, Pingpong, Tile
from ..problem.grouped import GroupProblem
from .group_tile import LONGEST_FIRST, GroupTile
from .grouped_rows import IN_ORDER
from .grouped_tiles import FEW, PREFILL, CostedTile, CostedTiles, best, ordered, tiles_of

MOST_ROWS = 128
"""Rows of a tile: the copying threads keep where each begins, in a producer's registers."""

LONG = GroupTile(Tile(128, 256), scheduler=replace(LONGEST_FIRST, cluster=ClusterShape(2, 1)))
"""The tile of long groups, for pairs of CTAs that share the weights: whole layers of 4 to 32 experts of 1,024 to 8,192 tokens took 2 to 7 %
less than with 128 x 256 alone, or with 128 x 192 pingpong."""
COPIES_WAIT = 1.06
"""How many times as long tiles take whose warpgroups all wait for the same copies, over pingpong ones, of which one still multiplies."""
SHORT: CostedTiles = (CostedTile(1.0, GroupTile(Tile(128, 192), Pingpong())), CostedTile(1.12, GroupTile(Tile(128, 128), Pingpong())))
"""With a gate, the tiles of groups that have about as many rows as they. The wider one takes 10 to 13 % less for each feature, where its
features are full and its waves are."""


def gathered(problem: GroupProblem, card: Card, room: float, *, one_tile: bool) -> GroupTile:
    """The tile for groups that are expected to have room for so many tokens. `one_tile`: most groups have one tile."""
    if problem.promote:
        return ordered(GroupTile(Tile(ROWS if problem.mean <= FEW else MOST_ROWS, BLOCK), scheduler=LONGEST_FIRST), problem)
    if problem.mean >= 2 * PREFILL and not problem.quantised:
        return LONG
    if problem.mean > 2 * FEW:
        tiles = tuple(replace(each, cost=each.cost * COPIES_WAIT) if isinstance(each.tile.schedule, Cooperative) else each
                      for each in tiles_of(problem, card)
                      if each.tile.scheduler.cluster.size == 1 and each.tile.tile.BM <= MOST_ROWS)
        return best(tiles, problem, card.sms).tile
    if problem.mean > FEW and problem.options.gated and not (problem.quantised or problem.by_element):
        return best(SHORT, problem, card.sms).tile
    if problem.quantised:
        tile = Tile(ROWS if room <= ROWS else MOST_ROWS, BLOCK * (1 + problem.options.gated))
        return ordered(GroupTile(tile, scheduler=LONGEST_FIRST), problem)
    rows = ROWS if room <= ROWS else MOST_ROWS
    return ordered(GroupTile(Tile(rows, rows), scheduler=IN_ORDER if one_tile else LONGEST_FIRST), problem)


__all__ = ["MOST_ROWS", "gathered"]
