"""Which configuration a dense product of promoted sums gets: the least time by the model of `costs`.

Sums that leave the tensor cores every 128 of K make products longer, and a stage waits for its block scales. Both are counted besides the
causes. No fit has seen such products, so that structures have no factors here. docs/experiments.md says how much slower the choice is than
the fastest structure.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from ptxkit.cards import H200, Card

from ..collective.epilogue_ops import Fusion
from ..config import budget
from ..config.dense import DenseConfig, Operands
from ..config.parts import (
    BlockScaled,
    ConfigError,
    Cooperative,
    Direct,
    Dynamic,
    Loads,
    Promoted,
    Promotion,
    ScaleLoad,
    Static,
    Sums,
    Swizzle,
    Tile,
)
from ..problem.dense import Problem, stored
from .costs import Columns, Parts, Sizes, estimate, of_card, taken
from .space import ONE_BLOCK, Rows, Structure, alike, configured, of_structure
from .waves import fits, splitting, tiles_of

WAYS: dict[Tile, tuple[Promotion, Swizzle]] = {
    **{Tile(64, BN): ("overlap", Swizzle()) for BN in (32, 64, 128)},
    Tile(128, 128): ("overlap", Swizzle()), Tile(128, 192): ("plain", Swizzle(size=16)),
    Tile(192, 128): ("plain", Swizzle("along_n", 16)), Tile(256, 128): ("stagger", Swizzle())}
"""The tiles, how their sums are promoted, and in which order they come."""
FACTORS = {Tile(256, 128): 1.06, Tile(128, 192): 0.97}
"""How many times as long as by the causes products of these tiles take. Over 80 products of more than 1.5 waves on an H200, 46 of them
large, the choice takes 1.010 times as long as the fastest with these, and 1.021 without."""
WAITS: dict[ScaleLoad, float] = {"warp": 100.0, "tensor_map": 30.0, "bulk": 0.0}
"""How many clocks longer a stage takes, by the way its block scales are loaded. With "warp" a warp copies the scales of A and of B, which
cost 70 to 180 clocks more than "bulk" on an H200. With "tensor_map" it copies those of B alone, which cost 10 to 75."""


@functools.cache
def structures() -> tuple[Structure, ...]:
    """Every tile alone and with splits of K; how scales are loaded is not yet told."""
    found = []
    for tile, (how, order) in WAYS.items():
        alone = Structure(tile, Cooperative(sums=Promoted(how)), Static(order))
        found += [alone, alone._replace(scheduler=Dynamic(order)), *splitting(alone)]
    return tuple(found)


@functools.lru_cache(64)
def _columns(operands: Operands, sums: Sums, direct: Direct | None, ragged: bool,
             card: Card) -> tuple[tuple[Structure, ...], Any, Columns, Any, Any]:
    """The structures that such a product can have, which of them draw tiles from a counter, what the model sees of them, and for each how
    many times as long its products take and the clocks that a stage waits for scales. `sums`: those of the product, promoted in any way;
    `direct`, `ragged`: as of `stored`. What is fused changes no ring; `timed` leaves out what it refuses."""
    there, configs = [], []
    for one in structures():
        with suppress(ConfigError):
            wanted = _summed(one, sums)
            store = stored(direct, operands.out, one.tile, one.scheduler, ragged=ragged)
            configs.append(configured(wanted, operands, Fusion(), Rows(256), (Loads(), Loads()), store))
            there.append(one)
    seen = Columns.of(configs, card, of_card(card))
    longer, waits = _longer(configs, card)
    dynamic = np.array([isinstance(one.scheduler, Dynamic) for one in there])
    return tuple(there), dynamic, replace(seen, factor=np.ones_like(seen.factor)), longer, waits


def _summed(one: Structure, sums: Sums) -> Structure:
    """The structure with these sums, promoted in its own way."""
    assert isinstance(sums, Promoted)
    return one._replace(schedule=Cooperative(sums=replace(sums, how=WAYS[one.tile][0])))


def _longer(configs: Sequence[DenseConfig], card: Card) -> tuple[Any, Any]:
    """For each configuration how many times as long its products take, and the clocks that a stage waits for scales."""
    longer = [_promotion(config, card) * FACTORS.get(Tile(config.tile.BM, config.tile.BN), 1.0) for config in configs]
    sums = [budget.sums_of(config.schedule) for config in configs]
    return np.array(longer), np.array([WAITS.get(each.load, 0.0) if isinstance(each, BlockScaled) else 0.0 for each in sums])


def _promotion(one: DenseConfig, card: Card) -> float:
    """How many times as long products take whose sums are promoted."""
    fit, sums = card.fit, budget.sums_of(one.schedule)
    if not isinstance(sums, Promoted):
        return 1.0
    if sums.how != "plain":
        return fit.overlap if sums.how == "overlap" else fit.stagger
    if one.warpgroups == 3:
        return fit.promote_3
    return fit.promote_192 if (one.tile.BM, one.tile.BN) == (128, 192) else fit.promote


def _estimate(problem: Problem, seen: Columns, longer: Any, waits: Any, card: Card) -> Parts:
    """The clocks of one launch, by configuration."""
    costs = of_card(card)
    slower: Any = {"mma": costs.mma * longer, "stage": costs.stage + waits, "stage_1": costs.stage_1 + waits}
    return estimate(replace(costs, **slower), Sizes.of(problem), seen)


def _judged(problem: Problem, card: Card) -> tuple[list[Structure], Any]:
    """The structures that make sense for a problem, and their clocks."""
    every, dynamic, seen, longer, waits = _columns(alike(problem.operands), problem.sums(), problem.store, problem.ragged, card)
    places = np.flatnonzero(_sensible(problem, seen, dynamic, card))
    seen = taken(seen, places)
    if rows := Rows.of(problem).a_rows:
        seen = replace(seen, a_rows=np.full_like(seen.BM, rows))
    return [every[place] for place in places], _estimate(problem, seen, longer[places], waits[places], card).total


def _sensible(problem: Problem, seen: Columns, dynamic: Any, card: Card) -> Any:
    """Whether a structure makes sense for these extents."""
    tall = (seen.BM > ONE_BLOCK) & (problem.m <= ONE_BLOCK)
    in_turn = (seen.splits > 1) | (dynamic == (tiles_of(problem, seen) > card.sms))     # no counter for CTAs that have one tile each
    return fits(problem, seen, np.where(seen.in_cluster > 0, seen.splits, 1), card) & in_turn & ~tall


def timed(problem: Problem, card: Card = H200) -> Iterator[tuple[float, DenseConfig]]:
    """Configurations worth trying for a problem with their clocks, the fastest by the model first."""
    some, times = _judged(problem, card)
    for place in np.argsort(times, kind="stable").tolist():
        with suppress(ConfigError):
            yield float(times[place]), of_structure(_summed(some[place], problem.sums()), problem)


def parts(problem: Problem, config: DenseConfig, card: Card = H200) -> Parts:
    """What the model counts for one configuration."""
    seen = Columns.of([config], card, of_card(card))
    return _estimate(problem, replace(seen, factor=np.ones_like(seen.factor)), *_longer([config], card), card)


def clocks(problem: Problem, config: DenseConfig, card: Card = H200) -> float:
    """The model: SM clocks of one launch."""
    return float(parts(problem, config, card).total[0])


__all__ = ["clocks", "parts", "structures", "timed"]
