"""Configurations of grouped products to be measured: every tile that the heuristic chooses from, and others that may be worth trying."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from ptxkit.cards import H200, Card

from ...config.grouped import DynamicGroups, GroupedConfig, GroupLoads, StagedGroups, StaticGroups, SwapAB
from ...config.parts import Cooperative, Pingpong, Promotion, Swizzle, Tile
from ...heuristic import grouped_narrow, grouped_overlaps, grouped_stream, grouped_trees
from ...heuristic.group_tile import GroupTile, in_this_order, swapped
from ...heuristic.grouped import SINGLE, alone, heuristic, loads_of, single, untaught, usual_tile
from ...heuristic.grouped_tiles import FEW, THREE_WARPGROUPS, WIDE, tiles_of
from ...problem.grouped import GroupProblem

Candidate = tuple[GroupTile, GroupLoads]
ORDERS = StaticGroups(), DynamicGroups()


SHARED_WAVES = 2
"""Waves of tiles of 128 x 128 up to which CTAs may share their K."""


def each_tile(problem: GroupProblem, card: Card = H200) -> dict[str, GroupedConfig]:
    """The tiles that are chosen from where groups have more than a few tokens, each in a kernel that works whatever the lengths. No CTAs
    share their K."""
    found = {str(each.tile): alone(each.tile, problem) for each in tiles_of(problem, card)}
    return {name: config for name, config in found.items() if config is not None}


def candidates(problem: GroupProblem, card: Card = H200) -> Iterator[GroupedConfig]:
    """Configurations worth trying for a problem on a card, the heuristic's first."""
    first = heuristic(problem, card)
    found = dict.fromkeys((first, *(each.alone for each in first.kernels)))
    yield from found
    seen = set(found)
    for tile, loads in _shapes(problem, card):
        config = alone(tile, problem, loads)
        if config is not None and config not in seen:
            seen.add(config)
            yield config


def taught_candidates(problem: GroupProblem, card: Card = H200) -> Iterator[GroupedConfig]:
    """The heuristic's, the choice without trees, and every tile that trees choose from; none of a problem that they do not learn from."""
    if grouped_trees.takes(problem):
        tiles = (alone(tile, problem) for tile in grouped_trees.tiles(problem, card))
        yield from dict.fromkeys((heuristic(problem, card), untaught(problem, card), *(config for config in tiles if config is not None)))


BEGUN = 4
"""So many tiles are measured with every begin of the next kernel."""


def begun_candidates(problem: GroupProblem, card: Card = H200) -> Iterator[GroupedConfig]:
    """The heuristic's, and with each begin of the next kernel the tiles that are chosen from first, by trees and causes; none of a problem
    whose begin is not learned."""
    if grouped_overlaps.takes(problem):
        some = grouped_trees.tiles(problem, card) if grouped_trees.takes(problem) else ()
        first, _, _ = grouped_trees.ranked(problem, tuple(dict.fromkeys((usual_tile(problem, card), *some))), card)
        every = ([alone(each, problem) for each in grouped_overlaps.begins(tile)] for tile in first)
        begun = itertools.islice((each for each in every if len(each) > 1 and each[0] is not None), BEGUN)
        yield from dict.fromkeys((heuristic(problem, card), *(config for each in begun for config in each if config is not None)))


def _shapes(problem: GroupProblem, card: Card) -> Iterator[Candidate]:
    yield from _of_whole_k(problem, card)
    if grouped_narrow.takes(problem):
        for tile in grouped_narrow.tiles_of(problem):
            yield tile, loads_of(problem)
    if grouped_stream.shares(problem) and GroupTile(Tile(128, 128)).waves(problem, card) <= SHARED_WAVES:
        for tile in grouped_stream.tiles_of(problem):
            yield tile, replace(loads_of(problem), l2_prefetch_stages=0)


def _of_whole_k(problem: GroupProblem, card: Card) -> Iterator[Candidate]:
    span, loads = 1024 // problem.x.bits, loads_of(problem)     # elements of 128 bytes
    if problem.mean <= 2 * FEW:
        sizes = (8, 16, 32, 48, 64, 96, 128, 192, 256)
        fit = next((i for i, size in enumerate(sizes) if problem.mean <= size), len(sizes) - 1)
        for BN in sizes[max(0, fit - 1):fit + 2]:
            for BM, schedule, BK in ((64, Cooperative(1), span), (64, Cooperative(1), 2 * span), (128, Cooperative(1), span),
                                     (128, Cooperative(2), span), (128, Cooperative(2), 2 * span), (256, Cooperative(2), span)):
                for order in ORDERS:
                    scheduler = replace(order, order=Swizzle(size=1))
                    yield GroupTile(Tile(BM, BN, BK), schedule, tokens=SwapAB(), scheduler=scheduler), loads
    if not problem.promote:
        yield from _swapped_shapes(problem, loads)
    if problem.mean <= FEW:
        for BN in (128, 192, 256):
            kinds = _promotions(64, BN, "plain", "overlap") if problem.promote else _schedules(64, BN, True)
            for tile in kinds:
                for order in ORDERS:
                    for once in (True, False):
                        yield replace(tile, scheduler=order), replace(loads, weights_evict_first=once)
    if problem.mean >= FEW // 2:
        for tile in (each.tile for each in tiles_of(problem, card)):
            yield tile, loads
            dynamic = isinstance(tile.scheduler, DynamicGroups)
            yield replace(tile, scheduler=in_this_order(tile.scheduler, "linear" if dynamic else "dynamic")), loads
            longest = DynamicGroups(True, 0, tile.scheduler.order, tile.scheduler.cluster)
            yield replace(tile, scheduler=longest), loads
            yield tile, replace(loads, weights_evict_first=not single(problem))
        for tile in _promoted_shapes(problem) if problem.promote else _plain_shapes():
            yield replace(tile, scheduler=in_this_order(tile.scheduler, "linear")), loads
            yield replace(tile, scheduler=in_this_order(tile.scheduler, "dynamic")), loads


def _promotions(BM: int, BN: int, *how: Promotion) -> list[GroupTile]:
    return [GroupTile(Tile(BM, BN), promotion=each) for each in how]


def _schedules(BM: int, BN: int, pingpong: bool) -> list[GroupTile]:
    return [GroupTile(Tile(BM, BN)), *[GroupTile(Tile(BM, BN), Pingpong())] * pingpong]


def _plain_shapes() -> Iterator[GroupTile]:
    for BM in (64, 128, 192, 256):
        for BN in (128, 192, 256):
            yield from _schedules(BM, BN, BM < 192)
    yield GroupTile(Tile(128, 256), scheduler=StaticGroups(order=Swizzle(size=16)))
    yield GroupTile(Tile(128, 256), scheduler=StaticGroups(order=Swizzle(size=4)))
    yield GroupTile(Tile(192, 192), stages=4, store=StagedGroups(1))
    yield GroupTile(Tile(192, 128), stages=5, store=StagedGroups(1))


def _swapped_shapes(problem: GroupProblem, loads: GroupLoads) -> Iterator[Candidate]:
    span, few = 1024 // problem.x.bits, problem.mean <= FEW
    if few:
        shapes = [(64, 16), (64, 32), (64, 64), (128, 64)] if problem.mean <= SINGLE else [(64, 64), (64, 128), (128, 128), (128, 192)]
    else:
        shapes = [(256, 192), (192, 192), (128, 256), (128, 192), (256, 128), (128, 128)]
    for BM, BN in shapes:
        for which in (False, True):
            for BK in (span, 2 * span) if problem.mean <= SINGLE else (span,):
                yield swapped(BM, BN, longest_first=which and not few, BK=BK), replace(loads, weights_evict_first=which and few)


def _promoted_shapes(problem: GroupProblem) -> Iterator[GroupTile]:
    for BN in (112, 128, 144, 160, 192):
        yield GroupTile(Tile(128, BN))
    yield GroupTile(Tile(256, 128))
    yield THREE_WARPGROUPS.in_order()
    yield GroupTile(Tile(128, 192), promotion="stagger")
    yield WIDE
    yield replace(WIDE, promotion="stagger", scheduler=replace(WIDE.scheduler, order=replace(WIDE.scheduler.order, serpentine=True)))
    yield GroupTile(Tile(64, 192))
    for BM in (64, 128):
        yield from _promotions(BM, 128, "plain", *(["overlap"] if problem.scales_in_shared else []))  # type: ignore[arg-type]


__all__ = ["begun_candidates", "candidates", "each_tile", "taught_candidates"]
