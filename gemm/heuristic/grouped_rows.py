"""Tiles of batch-invariant group products of few tokens: tokens are rows whatever their number, since swapped tiles multiply weights by
tokens, and whether the tensor cores add up both alike is not measured. Weights are read as often as by the swapped tiles they stand for.
"""

from __future__ import annotations

from ..config.grouped import DynamicGroups
from ..config.parts import Swizzle, Tile
from .group_tile import LONGEST_FIRST, GroupTile

ROWS_OF_TILES = (64, 128, 192)
WIDE_FROM = 16
"""With more tokens a group a tile has 128 features, with fewer 64: more CTAs read the weights of a group at a time."""
IN_ORDER = DynamicGroups(order=Swizzle(size=1))


def tokens_as_rows(room: float, mean: float, gated: bool, *, one_tile: bool) -> GroupTile:
    """The tile for groups of `mean` tokens with room for `room`. `one_tile`: most groups have one tile."""
    BM = next((rows for rows in ROWS_OF_TILES if room <= rows), ROWS_OF_TILES[-1])
    features = 64 if mean <= WIDE_FROM or (gated and ROWS_OF_TILES[-1] == BM) else 128
    return GroupTile(Tile(BM, features * (1 + gated)), scheduler=IN_ORDER if one_tile else LONGEST_FIRST)


__all__ = ["tokens_as_rows"]
