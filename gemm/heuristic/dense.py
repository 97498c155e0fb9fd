"""Which configuration a dense product gets: the least time by a model of one SM's stages, waves of tiles and the last epilogue."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ptxkit.cards import H200, Card

from ..collective.epilogue_ops import Fusion
from ..collective.mainloop_promoted import PROMOTED
from ..collective.thread_scales import BLOCK
from ..config.budget import STAGE_BYTES
from ..config.dense import DenseConfig, Operands
from ..config.parts import (
    ClusterShape,
    ConfigError,
    Cooperative,
    Dynamic,
    Loads,
    Pingpong,
    Promoted,
    Promotion,
    Schedule,
    Scheduler,
    SplitK,
    Staged,
    Static,
    StreamK,
    Swizzle,
    Tile,
)
from ..problem.dense import FEW_ROWS, Problem

WORTH_SPLITTING = 0.99
"""The time of a candidate that splits K further, relative to the best one before it, at most, to be chosen."""
WIDTHS = (32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256)
SPLITS = (2, 3, 4, 5, 6, 7, 8, 12, 14, 16)


@dataclass(frozen=True, slots=True)
class _Shape:
    """A tile and how its warpgroups work on it."""

    tile: Tile
    schedule: Schedule
    order: Swizzle = Swizzle()
    stages: int = 0
    store: Staged | None = None


def candidates(problem: Problem, card: Card = H200) -> Iterator[DenseConfig]:
    """Configurations worth trying for a problem."""
    operands, fusion = problem.operands, problem.fusion
    changes: dict[str, Any] = {}
    if problem.m <= 64 or (problem.m <= FEW_ROWS and problem.k >= 1024):
        changes["b_evict_first"] = True         # with few rows the weights are read once: they need not stay in the L2
    if problem.m <= 56 and problem.a_major == "k":
        changes["a_rows"] = -(-problem.m // 8) * 8
    for shape in _shapes(problem, card):
        for scheduler in _schedulers(problem, shape, card):
            loads = problem.loads(scheduler)
            config = _legal(operands, shape, scheduler, replace(loads, **changes) if changes else loads, fusion)
            if config is not None:
                yield config


@functools.lru_cache(4096)
def _legal(operands: Operands, shape: _Shape, scheduler: Scheduler, loads: Loads, fusion: Fusion) -> DenseConfig | None:
    """The configuration of these parts, if it is legal. Problems of other sizes have the same ones."""
    try:
        return DenseConfig(operands, shape.tile, shape.stages, shape.schedule, scheduler, shape.store, loads, fusion)
    except ConfigError:
        return None


def _shapes(problem: Problem, card: Card) -> Iterator[_Shape]:
    small = problem.m <= 64
    widest = max(32 if problem.b_major == "k" else 64, -(-problem.n // 8) * 8 + 31)
    for BM in (64, 128, 192, 256):
        if (BM > 64 and small) or (BM == 192 and not problem.promote):
            continue
        for BN in WIDTHS:
            if widest < BN or BM * BN > 256 * 192 or (BM == 192 and BN != 128):
                continue
            if problem.promote:                 # many factors for a thread; more reading of A than work; 256 x 128 is faster
                if not ((BLOCK % BN and BN % 64) or (BM > 64 and BN < 128) or BN > PROMOTED):
                    yield _promoted(problem, BM, BN)
                continue
            large = (BM, BN) == (128, 256) and problem.out.bits == 16 and problem.m * problem.n > card.sms * BM * BN
            # A warpgroup that stores all its boxes at once is worth a stage of the ring.
            yield _Shape(Tile(BM, BN), Cooperative(), stages=3, store=Staged(4)) if large else _Shape(Tile(BM, BN), Cooperative())
            if BM <= 128 and BN >= 64 and not small:
                yield _Shape(Tile(BM, BN), Pingpong())


def _promoted(problem: Problem, BM: int, BN: int) -> _Shape:
    """How a tile whose sums are promoted is worked on."""
    how: Promotion = "plain"
    order = Swizzle()
    if BM * BN <= 128 * 128:
        how = "overlap"
    elif BM == 192:
        order = Swizzle("along_n", 16)
    elif (BM, BN) == (128, 192):
        order = Swizzle(size=16)
    else:
        how = "stagger"
    return _Shape(Tile(BM, BN), Cooperative(sums=problem.sums(how)), order)


def _schedulers(problem: Problem, shape: _Shape, card: Card) -> Iterator[Scheduler]:
    """How the tiles may be shared out."""
    tile, order = shape.tile, shape.order
    depth = max(1, -(-problem.k * problem.a.bits // 8 // STAGE_BYTES))
    tiles = -(-problem.m // tile.BM) * -(-problem.n // tile.BN) * (problem.batches or 1)
    yield Dynamic(order) if problem.promote else Static(order)
    if isinstance(shape.schedule, Cooperative) and tiles <= card.sms:
        for splits in SPLITS:
            if depth < 4 * splits or tiles * splits > card.sms * 1.02:
                continue
            yield SplitK(splits, "workspace", order)
            if splits in (2, 4, 8) and problem.batches is None:
                yield SplitK(splits, "cluster", order)
    if problem.m > tile.BM and tile.BN >= 64 and not problem.promote:
        yield Static(order, ClusterShape(2, 1))
    if problem.n > tile.BN and tile.BM >= 128 and not problem.promote:
        yield Static(order, ClusterShape(1, 2))


def clocks(problem: Problem, config: DenseConfig, card: Card = H200) -> float:
    """The model: SM clocks of one launch."""
    fit, tile, cluster, scheduler = card.fit, config.tile, config.multicast, config.scheduler
    depth = max(1, -(-problem.k * problem.a.bits // 8 // STAGE_BYTES))
    rows, columns = -(-problem.m // tile.BM), -(-problem.n // tile.BN)
    clusters = -(-rows // cluster.m) * -(-columns // cluster.n) * (problem.batches or 1)
    ctas = clusters * cluster.size * config.splits
    waves = ctas / card.resident(config.cluster)
    if not isinstance(scheduler, StreamK):
        whole = 16 if isinstance(scheduler, Dynamic) else 6
        waves = math.ceil(waves - 1e-9) if waves <= whole else waves + 0.5
    a_rows = min(tile.BM, problem.m)
    loaded = (a_rows / cluster.n + tile.BN / cluster.m) * STAGE_BYTES
    read = max(1.0, (64 + 4096 / tile.BN) / 128)
    multiplied = tile.BM / 64 * tile.BN / 2 * 4 * read * _promotion(config, card)
    stage = max(multiplied, loaded / fit.l2) + (fit.stage_1 if config.warpgroups == 1 else fit.stage)
    steps = -(-depth // config.splits)
    epilogue = fit.epilogue * config.m64_blocks * tile.BN / 8
    total = fit.prologue + (fit.cluster if config.cluster > 1 else 0.0)
    if isinstance(config.schedule, Pingpong):
        total += waves * (steps * stage + 100) + epilogue
    else:
        total += waves * (steps * stage + epilogue)
    sums = tile.BM * tile.BN * 4
    if isinstance(scheduler, SplitK):
        once, rate = (fit.reduce_cluster, fit.sums_cluster) if scheduler.reduce == "cluster" else (fit.reduce_workspace, fit.sums_workspace)
        total += once + waves * tile.BM * tile.BN * 4 / rate
    if isinstance(scheduler, StreamK):          # a trip of one tile's sums for each CTA, taken to be as long as that of a split K
        total += fit.reduce_workspace + sums / fit.sums_workspace
    size = problem.a.bits / 8
    bytes = (problem.m * problem.k + problem.n * problem.k) * size + problem.m * problem.n * problem.out.bits / 8
    streaming = min(1.0, ctas / card.sms)
    return max(total, fit.prologue + bytes * (problem.batches or 1) / (fit.memory * streaming) + 0.1 * total)


def _promotion(config: DenseConfig, card: Card) -> float:
    """How many times as long a stage takes with promoted sums."""
    fit, sums = card.fit, config.sums
    if not isinstance(sums, Promoted):
        return 1.0
    if sums.how != "plain":
        return fit.overlap if sums.how == "overlap" else fit.stagger
    if config.warpgroups == 3:
        return fit.promote_3
    return fit.promote_192 if (config.tile.BM, config.tile.BN) == (128, 192) else fit.promote


def heuristic(problem: Problem, card: Card = H200) -> DenseConfig:
    """The configuration for a problem on a card."""
    best, least = None, math.inf
    for config in candidates(problem, card):
        time = clocks(problem, config, card)
        if best is None or time < least * (WORTH_SPLITTING if config.splits > best.splits else 0.995):
            best, least = config, time
    assert best is not None
    return best


__all__ = ["candidates", "clocks", "heuristic"]
