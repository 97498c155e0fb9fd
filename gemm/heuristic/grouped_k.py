"""Which configuration a product with groups along K gets: the least time by the model of dense products (`costs`), of which it is a batch.

The lengths are on the device. The model counts groups that are all as long as their mean, and groups that differ as experts do. There a
tile of the longest group may take as long as all others together, and smaller tiles share that group out to more SMs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np

from ptxkit.cards import H200, Card

from ..config.budget import STAGE_BYTES
from ..config.grouped_k import DynamicDepths, GroupedKConfig, OperandsAlongK, StaticDepths
from ..config.parts import ClusterShape, ConfigError, Cooperative, Static, Swizzle, Tile
from ..problem.grouped_k import ProblemAlongK
from .costs import Columns, Sizes, estimate, of_card
from .space import Structure

TILES = (Tile(128, 256), Tile(256, 128), Tile(256, 192), Tile(192, 192), Tile(128, 192), Tile(192, 128), Tile(128, 128), Tile(128, 64),
         Tile(64, 256), Tile(64, 128), Tile(64, 64))
CLUSTERS = (ClusterShape(), ClusterShape(2, 1), ClusterShape(1, 2))
ALIKE = 2
"""How much groups that are alike count, ones that differ 1. Of 36 random products of an H200 the choice takes 1.067 times as long as the
fastest if groups are alike and 1.088 with lengths like 1, 1/2, 1/3, ...; by groups that are alike alone 1.040 and 1.176."""
EMPTY = 0.125
"""The share of groups that are empty where lengths differ; the others are lognormal."""
ORDER = Swizzle("along_n", 8)   # against along_m by 8 and n, m by 4 and 16 with 128 x 256: the best, or within 1 % of it


def candidates(problem: ProblemAlongK, card: Card = H200) -> Iterator[GroupedKConfig]:
    """Configurations worth trying for a problem."""
    for made in _configs(problem.operands):
        one_wave = problem.work_tiles(made) * made.cluster <= card.resident(made.cluster)
        yield _static(made) if one_wave or problem.groups == 1 else made


@lru_cache(64)
def _configs(operands: OperandsAlongK) -> tuple[GroupedKConfig, ...]:
    """Those of all tiles and clusters, with a dynamic scheduler."""
    found = []
    for tile, cluster in itertools.product(TILES, CLUSTERS):
        with suppress(ConfigError):
            found.append(GroupedKConfig(operands, tile, schedule=Cooperative(), scheduler=DynamicDepths(ORDER, cluster)))
    return tuple(found)


@lru_cache(512)
def _static(made: GroupedKConfig) -> GroupedKConfig:
    """The same with a static scheduler."""
    return GroupedKConfig(made.operands, made.tile, schedule=made.schedule,
                          scheduler=StaticDepths(made.scheduler.order, made.scheduler.cluster))


@lru_cache(64)
def _columns(configs: tuple[GroupedKConfig, ...], card: Card) -> Columns:
    """Configurations as the model sees them."""
    return Columns.of_rings([(Structure(made.tile, made.schedule, Static(made.scheduler.order, made.scheduler.cluster)), made.stages)
                             for made in configs], card, of_card(card))


def _clocks(problem: ProblemAlongK, configs: Sequence[GroupedKConfig], card: Card) -> Any:
    """The clocks of each configuration for groups that are alike, and for groups that differ if there are several."""
    c, size, out = of_card(card), problem.source.bits / 8, problem.out.bits / 8
    a_pitch, b_pitch = (lines.strides[0] if lines.strides else size for lines in (problem.a_lines, problem.b_lines))
    asked = Sizes(problem.m, problem.n, max(1.0, problem.mean), problem.groups, size, out, a_pitch, b_pitch,
                  out if problem.accumulate else 0.0)
    seen = _columns(tuple(configs), card)
    parts = estimate(c, asked, seen)
    if problem.groups == 1:
        return parts.total[None]
    tiles = np.array([problem.work_tiles(config) * config.cluster for config in configs]) / problem.groups
    stages = np.maximum(1, np.ceil(problem.mean * _shares(problem.groups) * size / STAGE_BYTES))
    work = parts.cluster + _longest_first(stages[:, None] * parts.stage + parts.store, tiles, seen.resident)
    differing = (c.launch + (work ** c.overlap + parts.memory ** c.overlap) ** (1 / c.overlap)) * parts.factor
    return np.stack([parts.total, differing])


def _longest_first(each: Any, tiles: Any, resident: Any) -> Any:
    """The time of all tiles if CTAs take those of the longest groups first. It is the larger of two times. One is that of all tiles, shared
    out evenly among the CTAs. The other is what one CTA needs for its share of the tiles of the longest group, of the two longest, and so
    on; the largest of these counts.

    `each` [groups, configurations]: the time of one tile, in falling order; `tiles`: the number of tiles of a group.
    """
    so_far = np.arange(1, len(each) + 1)[:, None] * tiles
    return np.maximum(each.sum(axis=0) * tiles / resident, (np.ceil(so_far / resident) * each).max(axis=0))


@lru_cache(256)
def _shares(groups: int) -> Any:
    """Lengths that differ as parts of their mean, in falling order. They depend on the number of groups alone: a model's rows change from
    call to call, and each choice is another kernel."""
    filled = max(1, round(groups * (1 - EMPTY)))
    places = (np.arange(filled, 0, -1) - 0.5) / filled
    lengths = np.concatenate([np.exp([NormalDist().inv_cdf(float(place)) for place in places]), np.zeros(groups - filled)])
    return lengths * groups / lengths.sum()


def clocks(problem: ProblemAlongK, config: GroupedKConfig, card: Card = H200) -> float:
    """The model: SM clocks of one launch of groups that are alike."""
    return float(_clocks(problem, [config], card)[0, 0])


def heuristic(problem: ProblemAlongK, card: Card = H200) -> GroupedKConfig:
    """The configuration for a problem on a card."""
    found = list(candidates(problem, card))
    times = _clocks(problem, found, card)
    over = times / times.min(axis=1, keepdims=True)             # the fastest for these lengths
    return found[int(np.argmin(ALIKE * over[0] + over[-1]))]


__all__ = ["candidates", "clocks", "heuristic"]
