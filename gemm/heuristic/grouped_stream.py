"""Groups with few tiles and a long K: whether CTAs share the K of tiles, which tile they then have, and how many share one.

The rest of the choice fills the card by smaller tiles (`grouped_narrow`), which multiply less for each byte that they load. Where even
these are about as many as SMs or fewer, most of the time is that of one CTA with a whole K. `grouped_causes` says the clocks of both.

The limits below were found on an H200, with results of 16 bits. They hold for every card and for f32 results, where they were not
measured.
"""

from __future__ import annotations

import functools

import numpy as np

from ptxkit.cards import Card

from ..config.grouped import MN_SPAN, StreamGroups
from ..config.parts import Swizzle, Tile
from ..problem.grouped import GroupProblem
from ..scheduler.group_table import COUNTED
from . import grouped_narrow
from .group_tile import GroupTile
from .grouped_causes import STEP, Columns, clocks_of

WAVES = 0.75
"""The most waves of the tiles of the other choice. With up to 1.5, twice as many products of a sample would share K, and six times as many
of them would lose."""
SHARED = 0.95
"""How many times as long as by the clocks tiles whose K CTAs share take beside others."""
MOST = (2, 4, 8)
"""How many CTAs share a tile at most."""
SHORT, TALL = 200, 48
"""Tiles of 64 rows are tried up to SHORT tokens a group, tiles of 128 rows from TALL tokens on."""
LARGEST = 128 * 256
"""Elements of the largest tile."""


@functools.lru_cache(64)
def tiles(lines: int, short: bool, tall: bool) -> tuple[GroupTile, ...]:
    """What is chosen from for so many lines of weights of a group: tiles of 64 rows where groups are `short`, of 128 where they are
    `tall`."""
    own = -(-lines // STEP) * STEP
    widths = sorted({64, 128, 192, 256, *([own] if own < 256 else [])})
    return tuple(GroupTile(Tile(BM, BN), scheduler=StreamGroups(Swizzle(), most))
                 for BM in ([64] if short else []) + ([128] if tall else [])
                 for BN in widths if max(64, -(-lines // 64) * 64) >= BN for most in MOST)


def tiles_of(problem: GroupProblem) -> tuple[GroupTile, ...]:
    """What is chosen from for a problem. Weights that lie along N have 64 features at a time."""
    some = tiles(problem.n * (1 + problem.options.gated), problem.mean <= SHORT, problem.mean >= TALL)
    return some if problem.w_major == "k" else tuple(each for each in some if each.tile.BN % MN_SPAN == 0)


@functools.lru_cache(64)
def _columns(some: tuple[GroupTile, ...], card: Card) -> Columns:
    return Columns.of(some, card)


def shares(problem: GroupProblem) -> bool:
    """Whether CTAs can share the K of tiles of such a problem."""
    options = problem.options
    free = not (options.batch_invariant or options.order or problem.gathered or problem.scatter or problem.quantised or problem.promote)
    return free and options.layout in COUNTED and not problem.empty


def better(own: GroupTile, problem: GroupProblem, card: Card) -> GroupTile | None:
    """A tile whose K CTAs share, if that takes less than the tile `own`; else None."""
    if not shares(problem) or own.waves(problem, card) > WAVES:
        return None
    some = tiles_of(problem)
    most = np.array([each.scheduler.most for each in some], np.float64)
    shared = clocks_of(problem, _columns(some, card), card, most).mean(axis=0)
    first = int(np.argmin(shared))
    alone = grouped_narrow.clocks(problem, (own,), card)[0]
    return some[first] if SHARED * shared[first] < alone else None


__all__ = ["LARGEST", "better", "shares", "tiles", "tiles_of"]
