"""Which configuration a dense product of few rows gets that no measurement corrects: the least time by a model of one SM's stages, waves of
tiles and the last epilogue. `dense` says which products these are. Configurations of other structures come from callers and tables."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxkit.cards import H200, Card

from ..config.budget import STAGE_BYTES
from ..config.dense import DenseConfig
from ..config.parts import (
    MAX_CLUSTER,
    ConfigError,
    Cooperative,
    Dynamic,
    Pingpong,
    SplitK,
    Static,
    StreamK,
    Tile,
)
from ..problem.dense import Problem
from .costs import Parts
from .space import ONE_BLOCK, SPLITS_IN_CLUSTER, Structure, of_structure, shared_by

WORTH_SPLITTING = 0.99
"""The time of a candidate that splits K further, relative to the best one before it, at most, to be chosen."""
WORTH_CHANGING = 0.995
"""The same of a candidate that does not."""
DRAINED = 0.1
"""The share of a launch in which memory has nothing to do."""
LEAST_OF_A_SPLIT = 4            # stages
MOST_SPLIT_WORK = 1.02          # work tiles of a split K over the SMs
BEYOND = 31                     # how many columns wider than D a tile may be
WHOLE_WAVES, WHOLE_WAVES_DYNAMIC = 6, 16
NARROW_WIDTHS = (16, 24)
"""Further widths for few rows of a batch-invariant product, whose K is not split: narrow tiles put more SMs to work instead. Where B lies
along N its copies have spans of 64 columns: 48 x 1152 x 3200 nn took 9.6 us with 16 columns and 8.0 with 32 on an H200."""
WIDTHS = (32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256)
SPLITS = (2, 3, 4, 5, 6, 7, 8, 12, 14, 16)
Values = Any                    # a number or an array of them


@dataclass(frozen=True, slots=True)
class Columns:
    """Configurations as the model sees them, an array for each property."""

    BM: Values
    BN: Values
    warpgroups: Values
    blocks: Values
    pingpong: Values
    cluster_m: Values
    cluster_n: Values
    together: Values                            # CTAs of a cluster, also of one that splits K
    splits: Values
    stream: Values
    dynamic: Values
    resident: Values

    @classmethod
    def of(cls, some: Sequence[DenseConfig | Structure], card: Card) -> Columns:
        rows, resident = [], [card.resident(size) for size in range(MAX_CLUSTER + 1)]
        for one in some:
            tile, how, scheduler, warpgroups = one.tile, one.schedule, one.scheduler, one.warpgroups
            shared, pingpong = shared_by(scheduler), isinstance(how, Pingpong)
            rows.append((tile.BM, tile.BN, warpgroups, tile.BM // 64 // (1 if pingpong else warpgroups), pingpong, shared.m, shared.n,
                         one.cluster, scheduler.splits if isinstance(scheduler, SplitK) else 1, isinstance(scheduler, StreamK),
                         isinstance(scheduler, Dynamic), resident[one.cluster]))
        return cls(*np.array(rows, dtype=np.float64).T)


@functools.cache
def structures() -> tuple[Structure, ...]:
    """Tiles of one m64 block with their schedulers."""
    found = []
    for BN in (*NARROW_WIDTHS, *WIDTHS):
        alone = Structure(Tile(ONE_BLOCK, BN), Cooperative(), Static())
        found += [alone, *splitting(alone)]
    return tuple(found)


def splitting(alone: Structure) -> Iterator[Structure]:
    """The same tile, schedule and order with K split in all ways."""
    for splits in SPLITS:
        yield alone._replace(scheduler=SplitK(splits, "workspace", alone.scheduler.order))
        if splits in SPLITS_IN_CLUSTER:
            yield alone._replace(scheduler=SplitK(splits, "cluster", alone.scheduler.order))


@functools.lru_cache(32)
def _columns(card: Card) -> Columns:
    return Columns.of(structures(), card)


def _sensible(problem: Problem, seen: Columns, card: Card) -> Any:
    """Whether a structure makes sense for these extents."""
    narrow = (WIDTHS[0] > seen.BN) & (not (problem.invariant and problem.b_major == "k"))
    return fits(problem, seen, seen.together, card) & ~narrow


def fits(problem: Problem, seen: Any, together: Any, card: Card) -> Any:
    """Whether a tile is not much wider than D, a cluster of so many CTAs has room, and K has enough stages for its splits and the card
    enough SMs. `seen` has BM, BN, splits and resident, by structure."""
    widest = max(32 if problem.b_major == "k" else 64, -(-problem.n // 8) * 8 + BEYOND)
    tiles = tiles_of(problem, seen)
    split = (tiles <= card.sms) & (_depth(problem) >= LEAST_OF_A_SPLIT * seen.splits) & (tiles * seen.splits <= card.sms * MOST_SPLIT_WORK)
    return (seen.resident >= together) & (widest >= seen.BN) & ((seen.splits == 1) | (split & (not problem.invariant)))


def tiles_of(problem: Problem, seen: Any) -> Any:
    """The number of work tiles without splits, by structure."""
    return np.ceil(problem.m / seen.BM) * np.ceil(problem.n / seen.BN) * (problem.batches or 1)


def timed(problem: Problem, card: Card = H200) -> Iterator[tuple[float, DenseConfig]]:
    """Configurations worth trying for a problem with their clocks, the fastest by the model first."""
    seen = _columns(card)
    sensible, times = _sensible(problem, seen, card), estimate(problem, seen, card).total
    for place in np.argsort(times, kind="stable").tolist():
        if sensible[place]:
            with suppress(ConfigError):
                yield float(times[place]), of_structure(structures()[place], problem)


def _depth(problem: Problem) -> int:
    """The stages of 128 bytes of K."""
    return max(1, -(-problem.k * problem.a.bits // 8 // STAGE_BYTES))


def clocks(problem: Problem, config: DenseConfig, card: Card = H200) -> float:
    """The model: SM clocks of one launch."""
    return float(parts(problem, config, card).total[0])


def parts(problem: Problem, config: DenseConfig, card: Card = H200) -> Parts:
    """What the model counts for one configuration."""
    return estimate(problem, Columns.of([config], card), card)


def estimate(problem: Problem, seen: Columns, card: Card) -> Parts:
    """The SM clocks of one launch, by configuration. They are the longer of launch, cluster, tiles and reduction, and of launch, memory
    and `DRAINED` of the former."""
    fit = card.fit
    split, stream, pingpong = seen.splits > 1, seen.stream > 0, seen.pingpong > 0
    in_cluster = split & (seen.together > 1)
    rows, columns = np.ceil(problem.m / seen.BM), np.ceil(problem.n / seen.BN)
    clusters = np.ceil(rows / seen.cluster_m) * np.ceil(columns / seen.cluster_n) * (problem.batches or 1)
    ctas = clusters * seen.cluster_m * seen.cluster_n * seen.splits
    waves = ctas / np.maximum(1, seen.resident)
    whole = np.where(seen.dynamic > 0, WHOLE_WAVES_DYNAMIC, WHOLE_WAVES)
    waves = np.where(stream, waves, np.where(waves <= whole, np.ceil(waves - 1e-9), waves + 0.5))
    a_rows = np.minimum(seen.BM, problem.m)
    loaded = (a_rows / seen.cluster_n + seen.BN / seen.cluster_m) * STAGE_BYTES
    read = np.maximum(1.0, (64 + 4096 / seen.BN) / 128)        # what shared memory is read for, which does not wait for wgmma
    multiplied = seen.BM / 64 * seen.BN / 2 * 4 * np.maximum(1 / card.tensor, read)
    copy = loaded / fit.l2
    stage = np.maximum(multiplied, copy) + np.where(seen.warpgroups == 1, fit.stage_1, fit.stage)
    steps = np.ceil(_depth(problem) / seen.splits)
    epilogue = fit.epilogue * seen.blocks * seen.BN / 8
    cluster = np.where(seen.together > 1, fit.cluster, 0.0)
    tiles = np.where(pingpong, waves * (steps * stage + 100) + epilogue, waves * (steps * stage + epilogue))
    sums = seen.BM * seen.BN * 4
    once = np.where(in_cluster, fit.reduce_cluster, fit.reduce_workspace)
    rate = np.where(in_cluster, fit.sums_cluster, fit.sums_workspace)
    reduction = np.where(split, once + waves * sums / rate, 0.0)
    # of stream-K a trip of one tile's sums for each CTA, taken to be as long as that of a split K
    reduction = reduction + np.where(stream, fit.reduce_workspace + sums / fit.sums_workspace, 0.0)
    size = problem.a.bits / 8
    bytes = (problem.m * problem.k + problem.n * problem.k) * size + problem.m * problem.n * problem.out.bits / 8
    streaming = np.minimum(1.0, ctas / card.sms)
    memory = bytes * (problem.batches or 1) / (fit.memory * streaming)
    total = fit.prologue + cluster + tiles + reduction
    total = np.maximum(total, fit.prologue + memory + DRAINED * total)
    return Parts(total, waves, steps, copy, multiplied, stage, epilogue, tiles, reduction, memory, np.full_like(total, bytes), cluster,
                 np.ones_like(total))


def heuristic(problem: Problem, card: Card = H200) -> DenseConfig:
    """The configuration for a problem on a card."""
    seen = _columns(card)
    sensible, times = _sensible(problem, seen, card), estimate(problem, seen, card).total
    best, fewest, least = None, 0, math.inf
    for one, makes_sense, splits, time in zip(structures(), sensible.tolist(), seen.splits.tolist(), times.tolist(),
                                              strict=True):
        if makes_sense and (best is None or time < least * (WORTH_SPLITTING if splits > fewest else WORTH_CHANGING)):
            with suppress(ConfigError):         # made only where it would be chosen
                best, fewest, least = of_structure(one, problem), splits, time
    assert best is not None
    return best


__all__ = ["DRAINED", "MOST_SPLIT_WORK", "clocks", "fits", "heuristic", "parts", "splitting", "structures", "tiles_of", "timed"]
