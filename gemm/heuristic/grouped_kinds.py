"""The tiles that trees choose from where groups have more than a few tokens (`grouped_trees`), and what the trees are told of a kind of
product: its layout, its types, a gate, block scales.

A list has what was at most 1.5 % slower than the fastest of some random product on an H200, among some 90 tiles.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ..config.grouped import MN_SPAN, DynamicGroups, StaticGroups
from ..config.parts import ClusterShape, Cooperative, Pingpong, Tile
from ..problem.grouped import GroupProblem
from .group_tile import LONGEST_FIRST, GroupTile, swapped
from .grouped_tiles import SHORT

PAIRS = StaticGroups(cluster=ClusterShape(1, 2))
"""Two CTAs next to each other share the tokens of their tiles."""
LEAST_STEP = 32
"""With a gate and block scales: the fewest features that the number of features must be a multiple of for tiles of any width."""
LARGEST = 5e11
"""Operations of the largest products that were measured. Larger ones have many waves of any tile."""
DRAWN, DRAWN_IN_PAIRS = DynamicGroups(), DynamicGroups(cluster=ClusterShape(1, 2))


def tiles(problem: GroupProblem) -> tuple[GroupTile, ...]:
    """What is chosen from for a product."""
    step, contiguous = MN_SPAN if problem.w_major == "mn" else 1, problem.options.layout == "contiguous"
    return _tiles(problem.promote, contiguous, contiguous and problem.mean <= SHORT, problem.as_rows, step)


@functools.cache
def _tiles(promoted: bool, contiguous: bool, short: bool, as_rows: bool, step: int) -> tuple[GroupTile, ...]:
    """`short`: only tiles that can leave padding out, however much of the rows it is."""
    found = [*(_promoted() if promoted else _plain())]
    if not contiguous:                                          # whose tiles count as full
        found += [*(_promoted_by_lengths() if promoted else _by_lengths())]
    if short:
        found = [each for each in found if isinstance(each.schedule, Cooperative) and each.scheduler.cluster.size == 1]
    return tuple(each for each in found if not (each.swap_ab and as_rows) and each.features(gated=False, quantised=False) % step == 0)


def _plain() -> Iterator[GroupTile]:
    for BN in (64, 96, 112, 128, 160, 192, 224, 256):
        yield GroupTile(Tile(128, BN))
    for BN in (96, 128, 160, 192):
        yield GroupTile(Tile(128, BN), Pingpong())
        yield GroupTile(Tile(128, BN), Pingpong(), scheduler=PAIRS)
    for BN in (96, 128, 160, 192, 256):
        yield GroupTile(Tile(128, BN), scheduler=PAIRS)
    yield from (GroupTile(Tile(64, 96)), GroupTile(Tile(64, 192)), GroupTile(Tile(64, 192), Pingpong()))


def _by_lengths() -> Iterator[GroupTile]:
    for BN in (128, 160, 192):
        yield GroupTile(Tile(128, BN), Pingpong(), scheduler=DRAWN)
    for tile, ways in ((Tile(128, 128), (DRAWN,)), (Tile(128, 256), (DRAWN, DRAWN_IN_PAIRS)), (Tile(256, 192), (StaticGroups(),)),
                       (Tile(256, 128), (StaticGroups(), DRAWN, PAIRS, DRAWN_IN_PAIRS)), (Tile(256, 160), (PAIRS,)),
                       (Tile(192, 160), (StaticGroups(),)), (Tile(64, 160), (StaticGroups(),)), (Tile(64, 256), (StaticGroups(),))):
        for way in ways:
            yield GroupTile(tile, scheduler=way)
    yield GroupTile(Tile(64, 256), Pingpong())
    for BM, BN in ((128, 192), (128, 256), (192, 192), (256, 128), (256, 192)):
        for longest in (False, True):
            yield swapped(BM, BN, longest_first=longest)
    for BM, BN in ((64, 128), (128, 64), (128, 128)):
        yield swapped(BM, BN, longest_first=False)


def _promoted() -> Iterator[GroupTile]:
    overlapped = GroupTile(Tile(128, 128), promotion="overlap")
    for BN in (64, 96, 128, 160, 192, 256):
        yield GroupTile(Tile(128, BN))
    yield from (overlapped, *(GroupTile(Tile(128, BN), promotion="stagger") for BN in (192, 256)))
    for BN in (96, 128, 160, 192):
        yield GroupTile(Tile(128, BN), scheduler=PAIRS)
    yield replace(overlapped, scheduler=PAIRS)
    yield from (GroupTile(Tile(64, BN), promotion="overlap") for BN in (96, 128))


def _promoted_by_lengths() -> Iterator[GroupTile]:
    for way in (StaticGroups(), LONGEST_FIRST, PAIRS, DRAWN_IN_PAIRS):
        yield GroupTile(Tile(192, 128), scheduler=way)
    for way in (StaticGroups(), LONGEST_FIRST):
        yield GroupTile(Tile(256, 128), promotion="stagger", scheduler=way)
    for tile in (GroupTile(Tile(128, 160)), GroupTile(Tile(128, 192)), GroupTile(Tile(128, 128), promotion="overlap"),
                 GroupTile(Tile(128, 256), promotion="stagger")):
        yield replace(tile, scheduler=LONGEST_FIRST)
    yield GroupTile(Tile(64, 128), promotion="overlap", scheduler=DRAWN)


def kind(problem: GroupProblem, some: tuple[GroupTile, ...]) -> dict[str, Any]:
    """What trees can ask about a kind of product: a number for all tiles, or one for each."""
    return {"bits": problem.x.bits, "promoted": problem.promote, "gated": problem.options.gated,
            "contiguous": problem.options.layout == "contiguous", "w mn": problem.w_major == "mn",
            "overlaps": np.array([each.promotion == "overlap" for each in some]),
            "staggers": np.array([each.promotion == "stagger" for each in some])}


NAMES = ("bits", "promoted", "gated", "contiguous", "w mn", "overlaps", "staggers")
"""What `kind` tells, in the order of the files."""


__all__ = ["LARGEST", "LEAST_STEP", "NAMES", "kind", "tiles"]
