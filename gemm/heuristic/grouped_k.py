"""Which configuration a product with groups along K gets: the least time by the model of dense products (`costs`), of which it is a batch.

The lengths are on the device, so all groups are taken to be as long as their mean.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import numpy as np

from ptxkit.cards import H200, Card

from ..config.grouped_k import DynamicDepths, GroupedKConfig, OperandsAlongK, StaticDepths
from ..config.parts import ClusterShape, ConfigError, Cooperative, Static, Swizzle, Tile
from ..problem.grouped_k import ProblemAlongK
from .costs import Columns, Sizes, estimate, of_card
from .space import Structure

TILES = (Tile(128, 256), Tile(256, 128), Tile(256, 192), Tile(192, 192), Tile(128, 192), Tile(192, 128), Tile(128, 128), Tile(128, 64),
         Tile(64, 256), Tile(64, 128), Tile(64, 64))
CLUSTERS = (ClusterShape(), ClusterShape(2, 1), ClusterShape(1, 2))
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
    size, out = problem.source.bits / 8, problem.out.bits / 8
    a_pitch, b_pitch = (lines.strides[0] if lines.strides else size for lines in (problem.a_lines, problem.b_lines))
    asked = Sizes(problem.m, problem.n, max(1.0, problem.mean), problem.groups, size, out, a_pitch, b_pitch,
                  out if problem.accumulate else 0.0)
    return estimate(of_card(card), asked, _columns(tuple(configs), card)).total


def clocks(problem: ProblemAlongK, config: GroupedKConfig, card: Card = H200) -> float:
    """The model: SM clocks of one launch."""
    return float(_clocks(problem, [config], card)[0])


def heuristic(problem: ProblemAlongK, card: Card = H200) -> GroupedKConfig:
    """The configuration for a problem on a card."""
    found = list(candidates(problem, card))
    return found[int(np.argmin(_clocks(problem, found, card)))]


__all__ = ["candidates", "clocks", "heuristic"]
