"""The tiles that trees choose from where groups have few tokens (`grouped_trees`).

Such a product spends most of its time on reading weights, which every tile must. Tiles differ in the rest: how many columns without a token
they multiply, whether CTAs ask a counter for their next tile, and how much of K a stage has.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace

from ..config.budget import STAGE_BYTES
from ..config.grouped import DynamicGroups, StaticGroups, SwapAB
from ..config.parts import Cooperative, Pingpong, Swizzle, Tile
from .group_tile import GroupTile

TOKENS = (8, 16, 32, 48, 64, 96, 128, 192, 256)
"""Tokens of swapped tiles."""
SHAPES = ((64, Cooperative(1), 256), (128, Cooperative(1), 128), (128, Cooperative(2), 256), (256, Cooperative(2), 192))
"""Features of swapped tiles, the warpgroups that share them, and the most tokens that these have registers for."""
ROUNDED_FROM, WHOLE_TO = 32, 64
"""Swapped tiles multiply only the columns that have tokens, in steps of 16, from 32 tokens on; all of them up to 64."""
DEEP_TO = 32
"""The most tokens of tiles whose stages have twice as much of K."""
LEAST_ROOM, MOST_ROOM = 0.5, 4
"""A tile has room for at least half the tokens of a group, and for at most four times as many; tiles of 16 tokens are always tried."""
TALL, TALLEST = 24, 48
"""Tokens a group from which tiles have 128 rows of tokens, and 192."""
TALL_PROMOTED, LONG_PROMOTED, SWAPPED_PROMOTED = 16, 32, 40
"""Where sums are promoted: tokens a group from which tiles have 128 rows of tokens, beyond which the longest groups may come first, and up
to which tokens may be columns."""
COLUMNS_PROMOTED = (16, 32, 64)
"""Tokens of swapped tiles whose sums are promoted; others were not measured."""


def tokens_of(mean: float) -> tuple[int, ...]:
    """The tokens of swapped tiles for groups of so many."""
    return tuple(size for size in TOKENS if LEAST_ROOM * mean <= size <= max(16, MOST_ROOM * mean))


def tiles(mean: float, bits: int = 16, *, promoted: bool = False) -> tuple[GroupTile, ...]:
    """What is chosen from for operands of so many bits, whose sums stay in the tensor cores or are `promoted`."""
    if promoted:
        return _promoted(tokens_of(mean) if mean <= SWAPPED_PROMOTED else (), mean >= TALL_PROMOTED, mean > LONG_PROMOTED, mean >= TALLEST)
    return _tiles(tokens_of(mean), bits, mean >= TALL, mean >= TALLEST)


@functools.lru_cache(64)
def _tiles(tokens: tuple[int, ...], bits: int, tall: bool, tallest: bool) -> tuple[GroupTile, ...]:
    return (*_swapped(tokens, bits), *_rows(tall, tallest))


def _swapped(tokens: tuple[int, ...], bits: int) -> Iterator[GroupTile]:
    in_turn = Swizzle(size=1)
    orders = StaticGroups(order=in_turn), DynamicGroups(order=in_turn), DynamicGroups(True, order=in_turn)
    every, rounded = SwapAB(), SwapAB(16)
    for BN in tokens:
        for BM, how in ((BM, how) for BM, how, most in SHAPES if most >= BN):
            for columns in (every,) if BN < ROUNDED_FROM else (every, rounded) if BN <= WHOLE_TO else (rounded,):
                for scheduler in orders[:3 if BN > WHOLE_TO else 2]:
                    for spans in (1, 2) if BN <= DEEP_TO and BM < 256 else (1,):
                        yield GroupTile(Tile(BM, BN, spans * STAGE_BYTES * 8 // bits), how, tokens=columns, scheduler=scheduler)


def _rows(tall: bool, tallest: bool) -> Iterator[GroupTile]:
    for BM, BN in ((64, 128), (64, 192), (64, 256), *(((128, 128), (128, 192), (128, 256)) if tall else ()),
                   *(((192, 128), (192, 192)) if tallest else ())):
        for how in (Cooperative(), Pingpong()) if BM == 64 or (BM == 128 and BN <= 192) else (Cooperative(),):
            for scheduler in (StaticGroups(), DynamicGroups()):
                yield GroupTile(Tile(BM, BN), how, scheduler=scheduler)


@functools.lru_cache(64)
def _promoted(tokens: tuple[int, ...], tall: bool, long: bool, tallest: bool) -> tuple[GroupTile, ...]:
    """Tiles whose sums are promoted: rows of tokens, and columns of so many `tokens`."""
    found, in_turn = [], Swizzle(size=1)
    for scheduler in (StaticGroups(), DynamicGroups()):
        found += [GroupTile(Tile(64, BN), promotion="overlap", scheduler=scheduler) for BN in (32, 64, 96, 128)]
        found += [GroupTile(Tile(64, 192), scheduler=scheduler)]
        if tall:
            found += [GroupTile(Tile(128, BN), scheduler=scheduler) for BN in (64, 96, 128, 192)]
            found += [GroupTile(Tile(128, 128), promotion="overlap", scheduler=scheduler)]
        if tallest:
            found += [GroupTile(Tile(192, 128), scheduler=scheduler)]
        found += [GroupTile(Tile(128, BN), Cooperative(1), tokens=SwapAB(), scheduler=replace(scheduler, order=in_turn), stages=6)
                  for BN in tokens if BN in COLUMNS_PROMOTED]
    if long:
        found += [GroupTile(Tile(*tile), scheduler=DynamicGroups(True)) for tile in ((192, 128), (128, 192))]
        found += [GroupTile(Tile(128, 256), promotion="stagger", scheduler=DynamicGroups())]
    return tuple(found)


__all__ = ["tiles", "tokens_of"]
