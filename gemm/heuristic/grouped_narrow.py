"""Narrower tiles for groups with few tiles.

The other tiles are chosen for a full card. Where a product has fewer of them than the card has SMs, some SMs have nothing to do, and the
product takes as long as one CTA with a whole K. Narrower tiles are more, and each takes less time. `grouped_causes` says the clocks of all.

The limits below were found on an H200, by random products of 2 to 48 groups in bf16 and e4m3, with one scale and with block scales
(docs/grouped-performance.md). They hold for every card.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ptxkit.cards import Card

from ..collective.atoms import ROWS
from ..collective.thread_scales import BLOCK
from ..config.grouped import CONTIGUOUS_ROWS, MN_SPAN, DynamicGroups, StaticGroups, SwapAB
from ..config.parts import Cooperative, Pingpong, Swizzle, Tile
from ..problem.grouped import GroupProblem
from ..scheduler.group_table import COUNTED
from . import grouped_causes, grouped_few
from .group_tile import GroupTile
from .grouped_kinds import LEAST_STEP
from .grouped_tiles import FEW
from .grouped_trees import Question

WAVES, WAVES_FEW = 0.8, 0.5
"""The most waves of the tiles of the other choice; and for few tokens, whose tiles are narrow, if they are not promoted."""
GAIN = 0.03
"""What a tile must gain over the other choice."""
SIZE, SQUARE = 0.06, 128 * 128
"""The clocks are multiplied by (elements of a tile / SQUARE) ** SIZE: 4 % for each doubling."""
SWAPPED = 0.95
"""How many times as long as by the clocks swapped tiles take here."""
WAVES_BY_NUMBER, GAIN_BY_THREADS = 0.9, 0.05
"""The most waves of gathered and scattered rows; and what a tile must gain where threads copy rows of x, or write or scale results."""
WAVES_OF_BLOCKS, SIZE_OF_BLOCKS = 4, 0.14
"""The most waves and SIZE of blocks of contiguous rows, whose number says how many tiles there are."""
WIDTH_OF_BLOCKS, LEAST_OF_BLOCKS = 160, 64
"""A further width of tiles for them, and the least one of several waves."""
TALL, TALL_SCATTERED = 1.2, 1.1
"""How many times as long as the clocks say tiles of 128 rows take, for gathered rows and quantised results, and for scattered rows: their
threads do more for each tile, all at the same time."""
ROWS_WIDTHS, PINGPONG_WIDTHS = (32, 64, 96, 128, 160, 192, 256), (64, 96, 128, 160)
"""The widths of tiles for gathered and scattered rows: cooperative ones, and pingpong ones. Wider pingpong tiles have too few stages: with
K = 9344, 64 x 256 took 1.46 times as long as 128 x 128."""


@functools.cache
def tiles_of_rows(step: int) -> tuple[GroupTile, ...]:
    """What is chosen from where threads copy gathered rows or write scattered ones. The number of columns is a multiple of `step`."""
    ways = [(Cooperative(), BN) for BN in ROWS_WIDTHS] + [(Pingpong(), BN) for BN in PINGPONG_WIDTHS]
    return _both_ways([GroupTile(Tile(BM, BN), how) for BM in (ROWS, 2 * ROWS) for how, BN in ways if BN % step == 0])


@functools.cache
def tiles_quantised(gated: bool, promoted: bool) -> tuple[GroupTile, ...]:
    """The same of quantised results: a block of scales in each tile, which is of 64 rows."""
    return _both_ways([GroupTile(Tile(ROWS, BLOCK * (1 + gated)), promotion="overlap" if promoted and not gated else "plain")])


def _both_ways(found: Sequence[GroupTile]) -> tuple[GroupTile, ...]:
    """Each tile with CTAs that know their tiles, and with ones that ask a counter."""
    return (*found, *(replace(each, scheduler=DynamicGroups(order=each.scheduler.order)) for each in found))


@functools.cache
def tiles(promoted: bool, as_rows: bool) -> tuple[GroupTile, ...]:
    """What is chosen from, each with CTAs that know their tiles and with ones that ask a counter. The promotion of tiles of 64 rows
    overlaps the products of the next stage, which gains 4 %; in taller ones warpgroups take turns. `as_rows`: tokens must be rows."""
    rows = (ROWS, (32, 64, 96, 128)), (2 * ROWS, (32, 64, 96, 128, 192))
    found = [GroupTile(Tile(BM, BN), promotion="overlap" if promoted and BM == ROWS else "plain") for BM, widths in rows for BN in widths]
    if not promoted:
        found.append(GroupTile(Tile(ROWS, 192)))
    if not (promoted or as_rows):
        found += [GroupTile(Tile(BM, BN), Cooperative(), tokens=SwapAB(16), scheduler=StaticGroups(order=Swizzle(size=1)))
                 for BM, widths in ((64, (16, 32, 64, 128)), (128, (32, 64, 128, 192)), (256, (64, 128))) for BN in widths]
    return _both_ways(found)


def tiles_of(problem: GroupProblem) -> tuple[GroupTile, ...]:
    """What is chosen from for a problem. Groups of few tokens also have the tiles of `grouped_few`. Those are for 16 bits; with operands of
    8 bits a stage has the same bytes of K."""
    step = MN_SPAN if problem.w_major == "mn" else 1
    if problem.gathered or problem.scatter:
        return tiles_of_rows(step)
    if problem.quantised:
        return tiles_quantised(problem.options.gated, problem.promote)
    if _plain_blocks(problem):
        return tiles_plain_blocks(step)
    as_rows = problem.as_rows or problem.options.layout == "contiguous"
    few = problem.mean <= FEW and not (problem.promote or problem.options.gated or as_rows)
    return _tiles(problem.promote, as_rows, step, grouped_few.tiles(problem.mean) if few else (), problem.x.bits)


def _plain_blocks(problem: GroupProblem) -> bool:
    """Whether groups are contiguous, and their sums stay in the tensor cores until they are stored in 16 or 32 bits."""
    return problem.options.layout == "contiguous" and not (problem.promote or problem.quantised)


@functools.cache
def tiles_plain_blocks(step: int) -> tuple[GroupTile, ...]:
    """What is chosen from for blocks of contiguous rows: their tiles count as full, so that CTAs know theirs."""
    found = *tiles(promoted=False, as_rows=True), *(GroupTile(Tile(BM, WIDTH_OF_BLOCKS)) for BM in (ROWS, 2 * ROWS))
    return tuple(each for each in found if isinstance(each.scheduler, StaticGroups) and each.tile.BN % step == 0)


@functools.lru_cache(64)
def _tiles(promoted: bool, as_rows: bool, step: int, few: tuple[GroupTile, ...], bits: int) -> tuple[GroupTile, ...]:
    found = *tiles(promoted, as_rows), *(each.sized(BK=each.tile.BK * 16 // bits) for each in few)
    return tuple(each for each in dict.fromkeys(found) if each.features(gated=False, quantised=False) % step == 0)


@functools.lru_cache(256)
def _columns(some: tuple[GroupTile, ...], bits: int, card: Card, tall: float, size: float) -> grouped_causes.Columns:
    """The tiles as the clocks know them, but for what was not measured to hold here: the time of the counter, and factors of tiles."""
    seen = grouped_causes.Columns.of(some, card, as_they_are=True, bits=bits)
    factor = np.where(seen.swapped > 0, SWAPPED, np.where(seen.tokens > ROWS, tall, 1.0))
    return replace(seen, factor=factor * (seen.tokens * seen.features / SQUARE) ** size, dynamic=np.zeros_like(seen.dynamic))


def clocks(problem: GroupProblem, some: tuple[GroupTile, ...], card: Card) -> Any:
    """The clocks of a launch with each tile. The number of contiguous blocks is known; of other groups it is the mean over some lengths."""
    tall = TALL_SCATTERED if problem.scatter else TALL if _by_threads(problem) else 1.0
    seen = _columns(some, problem.x.bits, card, tall, SIZE_OF_BLOCKS if _plain_blocks(problem) else SIZE)
    if problem.quantised:                       # a narrow tile takes its features in several passes
        gated = problem.options.gated
        features = [[each.features(gated, quantised=True) * (1 + gated)] for each in some]
        seen = replace(seen, features=np.array(features, np.float64))
    return grouped_causes.clocks_of(problem, seen, card).mean(axis=0)


def _by_threads(problem: GroupProblem) -> bool:
    """Whether threads copy gathered rows, or write scattered or quantised ones."""
    return problem.gathered or bool(problem.scatter) or problem.quantised


@functools.lru_cache(4096)
def _answer(question: Question) -> tuple[GroupTile, ...]:
    """The tiles that gain enough, the fastest first."""
    problem, card = question.asked, question.card
    gain = GAIN_BY_THREADS if _by_threads(problem) else GAIN
    some, enough = tiles_of(problem), (1 - gain) * float(clocks(problem, (question.own,), card)[0])
    found = clocks(problem, some, card)
    return tuple(some[place] for place in np.argsort(found, kind="stable")
                 if found[place] < enough and _in_turn(some[place], problem, card))


def _in_turn(tile: GroupTile, problem: GroupProblem, card: Card) -> bool:
    """Whether CTAs take such tiles in the faster way: a counter pays from the second wave on. Blocks of contiguous rows count as
    full and need none, and have the narrowest tiles in one wave alone: with 128 bytes of K more took up to 1.36 times as long as
    128 x 128."""
    waves = tile.waves(problem, card)
    if _plain_blocks(problem):
        return waves <= 1 or tile.tile.BN >= LEAST_OF_BLOCKS
    return isinstance(tile.scheduler, DynamicGroups) == (waves > 1)


def takes(problem: GroupProblem) -> bool:
    """Whether tiles are chosen here for such a problem."""
    options = problem.options
    if options.order or problem.empty or options.layout not in (*COUNTED, "contiguous"):
        return False
    if problem.block_scales:
        return problem.scales_in_shared and problem.gate_step >= LEAST_STEP
    return not (problem.promote and _by_threads(problem))


def _seen(problem: GroupProblem) -> GroupProblem:
    """The problem as tiles are chosen for it: aligned blocks of contiguous rows are groups of as many rows."""
    if problem.options.layout != "contiguous":
        return problem
    problem = copy.copy(problem)
    problem.groups, problem.mean = problem.blocks, float(CONTIGUOUS_ROWS)
    return problem


def faster(own: GroupTile, problem: GroupProblem, card: Card) -> Iterator[GroupTile]:
    """Tiles that gain enough over the tile `own`, the fastest first; none where that one fills the card."""
    problem = _seen(problem)
    if takes(problem) and own.waves(problem, card) <= _most(problem):
        yield from _answer(Question.of(own, problem, card))


def _most(problem: GroupProblem) -> float:
    """The most waves of the other choice."""
    if _plain_blocks(problem):
        return WAVES_OF_BLOCKS
    if problem.gathered or problem.scatter:
        return WAVES_BY_NUMBER
    return WAVES if problem.promote or problem.mean > FEW else WAVES_FEW


__all__ = ["clocks", "faster", "takes", "tiles", "tiles_of"]
