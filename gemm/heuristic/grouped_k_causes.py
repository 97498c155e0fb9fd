"""The configurations of a product with groups along K, and how long each takes by the model. The model is that of dense products
(`costs`): the groups are a batch.

The lengths are on the device. The model counts groups that are all as long as their mean, and groups that differ as experts do. There a
tile of the longest group may take as long as all others together, and smaller tiles share that group out to more SMs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist
from typing import Any, NamedTuple, get_args

import numpy as np

from ptxkit.cards import H200, Card

from ..config.budget import STAGE_BYTES
from ..config.grouped_k import DynamicDepths, GroupedKConfig, OperandsAlongK, StaticDepths
from ..config.parts import ClusterShape, ConfigError, Cooperative, Overlap, Pingpong, Static, Swizzle, Tile
from ..problem.grouped_k import ProblemAlongK
from .costs import Columns, Parts, Sizes, estimate, of_card, taken
from .space import Structure

USUAL = {(128, 256), (256, 128), (256, 192), (192, 192), (128, 192), (192, 128), (128, 128), (128, 64), (64, 256), (64, 128), (64, 64)}
"""The tiles that the model alone chooses from, whose warpgroups share them."""
SIZES = (64, 128, 192, 256)
"""Rows and columns of the tiles that trees choose from: all that registers and shared memory have room for."""
CLUSTERS = (ClusterShape(), ClusterShape(2, 1), ClusterShape(1, 2))
ALIKE = 2
"""How much groups that are alike count, ones that differ 1. Of 36 random products of an H200 the choice takes 1.067 times as long as the
fastest if groups are alike and 1.088 with lengths like 1, 1/2, 1/3, ...; by groups that are alike alone 1.040 and 1.176."""
EMPTY = 0.125
"""The share of groups that are empty where lengths differ; the others are lognormal."""
ORDER = Swizzle("along_n", 8)   # against along_m by 8 and n, m by 4 and 16 with 128 x 256: the best, or within 1 % of it


class Space(NamedTuple):
    """Every configuration of some operands, as the model sees them, and which of them are drawn and are chosen without trees."""

    configs: tuple[GroupedKConfig, ...]
    seen: Columns
    dynamic: Any
    usual: Any


@lru_cache(64)
def _space(operands: OperandsAlongK, card: Card) -> Space:
    """All tiles, schedules and clusters, each with a static and with a dynamic scheduler."""
    found: list[GroupedKConfig] = []
    schedules: tuple[Cooperative | Pingpong, ...] = (Cooperative(), Pingpong())
    for schedule, rows, columns, cluster in itertools.product(schedules, SIZES, SIZES, CLUSTERS):
        with suppress(ConfigError):
            found += [GroupedKConfig(operands, Tile(rows, columns), schedule=schedule, scheduler=scheduler)
                      for scheduler in (StaticDepths(ORDER, cluster), DynamicDepths(ORDER, cluster))]
    usual = [isinstance(one.schedule, Cooperative) and (one.tile.BM, one.tile.BN) in USUAL for one in found]
    return Space(tuple(found), _columns(found, card), np.array([one.dynamic for one in found]), np.array(usual))


def candidates(problem: ProblemAlongK, card: Card = H200) -> list[GroupedKConfig]:
    """Configurations worth trying for a problem: each tile, schedule and cluster, with tiles that CTAs know, and where there is more than a
    wave of them with tiles that CTAs draw."""
    return judged(problem, card).configs


def begins(config: GroupedKConfig) -> tuple[GroupedKConfig, ...]:
    """The configuration with each begin of the next kernel, the product's own first; alone where CTAs draw their tiles."""
    scheduler = config.scheduler
    if not isinstance(scheduler, StaticDepths):
        return (config,)
    return tuple(replace(config, scheduler=replace(scheduler, overlap=when)) for when in get_args(Overlap))


def _columns(configs: Sequence[GroupedKConfig], card: Card) -> Columns:
    """Configurations as the model sees them."""
    return Columns.of_rings([(Structure(made.tile, made.schedule, Static(made.scheduler.order, made.scheduler.cluster)), made.stages)
                             for made in configs], card, of_card(card))


@dataclass(frozen=True, slots=True)
class Modelled:
    """What the model says of some configurations: what it was asked, what it saw, the parts of each, and the clocks [1 or 3,
    configurations] for groups that are alike, and if there are several for groups that differ, and where one has half of all rows."""

    asked: Sizes
    seen: Columns
    parts: Parts
    clocks: Any

    @property
    def blended(self) -> Any:
        """The logarithms of the clocks, of groups that are alike and that differ in one."""
        return (ALIKE * np.log(self.clocks[0]) + np.log(self.differing)) / (ALIKE + 1)

    @property
    def differing(self) -> Any:
        """The clocks for groups that differ."""
        return self.clocks[min(1, len(self.clocks) - 1)]


def modelled(problem: ProblemAlongK, configs: Sequence[GroupedKConfig], card: Card) -> Modelled:
    """What the model says of configurations."""
    return _modelled(problem, _columns(configs, card), card)


def _modelled(problem: ProblemAlongK, seen: Columns, card: Card) -> Modelled:
    c, size, out = of_card(card), problem.source.bits / 8, problem.out.bits / 8
    a_pitch, b_pitch = (lines.strides[0] if lines.strides else size for lines in (problem.a_lines, problem.b_lines))
    asked = Sizes(problem.m, problem.n, max(1.0, problem.mean), problem.groups, size, out, a_pitch, b_pitch,
                  out if problem.accumulate else 0.0)
    parts = estimate(c, asked, seen)
    if problem.groups == 1:
        return Modelled(asked, seen, parts, parts.total[None])
    tiles, found = tiles_of(problem, seen), [parts.total]
    for shares in (shares_that_differ(problem.groups), shares_with_one(problem.groups)):
        stages = np.maximum(1, np.ceil(problem.mean * shares * size / STAGE_BYTES))
        work = parts.cluster + _longest_first(stages[:, None] * parts.stage + parts.store, tiles, seen.resident)
        found.append((c.launch + (work ** c.overlap + parts.memory ** c.overlap) ** (1 / c.overlap)) * parts.factor)
    return Modelled(asked, seen, parts, np.stack(found))


def tiles_of(problem: ProblemAlongK, seen: Columns) -> Any:
    """The tiles of a group, rounded up to whole clusters."""
    along = (np.ceil(extent / (size * by)) * by for extent, size, by in ((problem.m, seen.BM, seen.cluster_m),
                                                                         (problem.n, seen.BN, seen.cluster_n)))
    return math.prod(along)


@dataclass(frozen=True, slots=True)
class Judged:
    """The candidates of a problem, what the model says of them, and which one is chosen without trees."""

    configs: list[GroupedKConfig]
    said: Modelled
    dynamic: Any
    usual: Any                                  # which ones are chosen from without trees
    own: int


def judged(problem: ProblemAlongK, card: Card) -> Judged:
    """All candidates. Without trees more than a wave of tiles is drawn, and what counts is how far a candidate is from the fastest one for
    groups that are alike, and for groups that differ."""
    space = _space(problem.operands, card)
    tiles = tiles_of(problem, space.seen)
    drawn = (problem.groups > 1) & (tiles * problem.groups > space.seen.resident)
    places = np.flatnonzero(drawn | ~space.dynamic)
    said = _modelled(problem, taken(space.seen, places), card)
    allowed = (space.usual & (space.dynamic == drawn))[places]
    usual = np.flatnonzero(allowed)
    alike, differing = (clocks[usual] / clocks[usual].min() for clocks in (said.clocks[0], said.differing))
    own = usual[np.argmin(ALIKE * alike + differing)]
    return Judged([space.configs[place] for place in places.tolist()], said, space.dynamic[places], allowed, int(own))


def _longest_first(each: Any, tiles: Any, resident: Any) -> Any:
    """The time of all tiles if CTAs take those of the longest groups first. It is the larger of two times. One is that of all tiles, shared
    out evenly among the CTAs. The other is what one CTA needs for its share of the tiles of the longest group, of the two longest, and so
    on; the largest of these counts.

    `each` [groups, configurations]: the time of one tile, in falling order; `tiles`: the number of tiles of a group.
    """
    so_far = np.arange(1, len(each) + 1)[:, None] * tiles
    return np.maximum(each.sum(axis=0) * tiles / resident, (np.ceil(so_far / resident) * each).max(axis=0))


@lru_cache(256)
def shares_that_differ(groups: int) -> Any:
    """Lengths that differ as parts of their mean, in falling order. They depend on the number of groups alone: a model's rows change from
    call to call, and each choice is another kernel."""
    filled = max(1, round(groups * (1 - EMPTY)))
    places = (np.arange(filled, 0, -1) - 0.5) / filled
    lengths = np.concatenate([np.exp([NormalDist().inv_cdf(float(place)) for place in places]), np.zeros(groups - filled)])
    return lengths * groups / lengths.sum()


@lru_cache(256)
def shares_with_one(groups: int) -> Any:
    """The same where one group has half of all rows, and the others are alike."""
    return np.array([groups / 2, *[groups / 2 / (groups - 1)] * (groups - 1)])


def clocks(problem: ProblemAlongK, config: GroupedKConfig, card: Card = H200) -> float:
    """The model: SM clocks of one launch of groups that are alike."""
    return float(modelled(problem, [config], card).clocks[0, 0])


def untaught(problem: ProblemAlongK, card: Card = H200) -> GroupedKConfig:
    """The configuration that the model alone chooses."""
    found = judged(problem, card)
    return found.configs[found.own]


__all__ = [
    "Judged",
    "Modelled",
    "begins",
    "candidates",
    "clocks",
    "judged",
    "modelled",
    "shares_that_differ",
    "shares_with_one",
    "tiles_of",
    "untaught",
]
