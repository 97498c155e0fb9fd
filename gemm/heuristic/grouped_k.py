"""Which configuration a product with groups along K gets: the least time by a model of one SM's stages and of waves of tiles.

The lengths are on the device, so all groups are taken to be as long as their mean. The constants are those of the card (`cards.Fit`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import suppress

from ptxkit.cards import H200, Card

from ..config.grouped_k import DynamicDepths, GroupedKConfig, StaticDepths
from ..config.parts import ClusterShape, ConfigError, Cooperative, Swizzle, Tile
from ..problem.grouped_k import ProblemAlongK

TILES = (Tile(128, 256), Tile(256, 128), Tile(128, 192), Tile(192, 128), Tile(128, 128), Tile(128, 64), Tile(64, 256), Tile(64, 128),
         Tile(64, 64))
CLUSTERS = (ClusterShape(), ClusterShape(2, 1), ClusterShape(1, 2))
PANEL = 8                       # rows or columns of tiles whose operands tiles in flight share
CLOCKS_OF_8_COLUMNS = 16        # of 64 rows and 64 of K: 65,536 operations of 16 bits, 4,096 in a clock of an SM


def candidates(problem: ProblemAlongK, card: Card = H200) -> Iterator[GroupedKConfig]:
    """Configurations worth trying for a problem."""
    for tile, cluster in itertools.product(TILES, CLUSTERS):
        order = Swizzle("along_m" if problem.m >= problem.n else "along_n", PANEL)
        with suppress(ConfigError):
            static = GroupedKConfig(problem.operands, tile, schedule=Cooperative(), scheduler=StaticDepths(order, cluster))
            one_wave = problem.work_tiles(static) * cluster.size <= card.resident(cluster.size)
            yield static if one_wave or problem.groups == 1 else GroupedKConfig(problem.operands, tile, schedule=Cooperative(),
                                                         scheduler=DynamicDepths(order, cluster))


def clocks(problem: ProblemAlongK, config: GroupedKConfig, card: Card = H200) -> float:
    """The model: SM clocks of one launch.

    Causes: a stage takes as long as its products, or as its bytes from the L2, of which a cluster shares some; a tile has the stages of
    the mean length and an epilogue; tiles come in whole waves. All operands and results go through the memory once.
    """
    fit, tile, cluster = card.fit, config.tile, config.scheduler.cluster
    size = problem.source.bits // 8
    multiplied = tile.BM / 64 * tile.BN / 8 * CLOCKS_OF_8_COLUMNS / card.tensor * tile.BK / 64
    loaded = (tile.BM / cluster.n + tile.BN / cluster.m) * tile.BK * size
    stage = max(multiplied, loaded / fit.l2) + (fit.stage_1 if config.warpgroups == 1 else fit.stage)
    stages = max(1, math.ceil(problem.mean / tile.BK))
    epilogue = fit.epilogue * config.m64_blocks * tile.BN / 8 * (2 if config.operands.accumulate else 1)
    waves = math.ceil(problem.work_tiles(config) * cluster.size / max(1, card.resident(cluster.size)))
    total = fit.prologue + (fit.cluster if cluster.size > 1 else 0.0) + waves * (stages * stage + epilogue)
    out = problem.groups * problem.m * problem.n * problem.out.bits // 8
    bytes = problem.rows * (problem.m + problem.n) * size + out * (2 if config.operands.accumulate else 1)
    return max(total, fit.prologue + bytes / fit.memory)


def heuristic(problem: ProblemAlongK, card: Card = H200) -> GroupedKConfig:
    """The configuration for a problem on a card."""
    return min(candidates(problem, card), key=lambda config: clocks(problem, config, card))


__all__ = ["candidates", "clocks", "heuristic"]
