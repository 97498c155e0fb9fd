"""Which tile a product of gathered rows gets: tokens are rows of a tile, however few, and no CTAs share them. These choices follow those
for rows that tensor copies load, but for what the layers of docs/grouped.md were measured to gain on an H100.
"""

from __future__ import annotations

from dataclasses import replace

from ptxkit.cards import Card

from ..collective.atoms import ROWS
from ..collective.thread_scales import BLOCK
from ..config.grouped import GroupedConfig
from ..config.parts import Cooperative, Pingpong, Tile
from ..problem.grouped import GroupProblem
from .group_tile import LONGEST_FIRST, GroupTile
from .grouped_rows import tokens_as_rows
from .grouped_tiles import FEW, PREFILL, SEVERAL, best, ordered, tiles_of

MOST_ROWS = 128
"""Rows of a tile: the copying threads keep where each begins, in a producer's registers."""

LONG = GroupTile(Tile(128, 256), scheduler=LONGEST_FIRST)
"""The tile of few long groups. Where CTAs have their tiles in advance, they drift apart, and 128 x 256 takes up to 11 % longer. Of 24 and
32 groups it takes no longer alone, but layers with the product after it took 10 % longer."""
COPIES_WAIT = 1.06
"""How many times as long tiles take whose warpgroups all wait for the same copies, over pingpong ones, of which one still multiplies."""
SHORT = GroupTile(Tile(128, 128), Pingpong())
"""With a gate, the tile of groups that have about as many rows as it."""

GATHERING, COPYING = 0.07, 1.16
"""What gathering adds to a product of long groups, as a share of its time at the rate of `Fit.group_flops_16`, and how much longer a copy
takes than its bytes at `Card.memory_gbs`: on an H100 16 x 1,040 tokens of llama-4 lost 92 us of 1,840 by it, and their copy takes 124."""
KEPT = 0.5
"""The share of the L2 that rows may have which are read once, however many copies they have."""


def gathered(problem: GroupProblem, card: Card, room: float, *, one_tile: bool) -> GroupTile:
    """The tile for groups that are expected to have room for so many tokens. `one_tile`: most groups have one tile."""
    if problem.promote:
        return ordered(GroupTile(Tile(ROWS if problem.mean <= FEW else MOST_ROWS, BLOCK), scheduler=LONGEST_FIRST), problem)
    if problem.mean >= 2 * PREFILL and problem.groups <= SEVERAL and not problem.quantised:
        return LONG
    if problem.mean > 2 * FEW:
        tiles = tuple(replace(each, cost=each.cost * COPIES_WAIT) if isinstance(each.tile.schedule, Cooperative) else each
                      for each in tiles_of(problem, card)
                      if each.tile.scheduler.cluster.size == 1 and each.tile.tile.BM <= MOST_ROWS)
        return best(tiles, problem, card.sms).tile
    if problem.mean > FEW and problem.options.gated and not (problem.quantised or problem.by_element):
        return SHORT
    if problem.quantised:
        tile = Tile(ROWS if room <= ROWS else MOST_ROWS, BLOCK * (1 + problem.options.gated))
        return ordered(GroupTile(tile, scheduler=LONGEST_FIRST), problem)
    return ordered(tokens_as_rows(min(room, MOST_ROWS), problem.mean, problem.options.gated, one_tile=one_tile), problem)


def pays_to_copy(problem: GroupProblem, plain: GroupedConfig, card: Card) -> bool:
    """Whether a product of gathered rows takes longer than a copy of its rows and a product of that, which would have this configuration.

    Where tokens are rows of both, or few, gathering loses less than a copy takes. Long groups may have swapped tiles once they are copied.
    """
    if problem.mean < PREFILL or not all(each.swap_ab for each in plain.kernels):
        return False
    fit, line = card.fit, problem.k * problem.x.bits // 8
    stay = problem.x_rows * line <= KEPT * card.l2_mib * 2**20
    copied = (problem.rows + (min(problem.rows, problem.x_rows) if stay else problem.rows)) * line / (1e3 * card.memory_gbs)
    features = problem.n * (1 + problem.options.gated)
    product = 2 * problem.rows * problem.k * features / (fit.group_flops_16 if problem.x.bits == 16 else fit.group_flops_8)
    return GATHERING * product > COPYING * copied


__all__ = ["MOST_ROWS", "gathered", "pays_to_copy"]
