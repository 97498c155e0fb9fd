"""Which configuration a dense product gets: the one that takes the least time by the model of `costs`, or by that of `waves` where no
measurement of few rows corrects the former (`corrections`)."""

from __future__ import annotations

import functools
import heapq
import itertools
import operator
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ptxkit.cards import H200, Card

from ..config.budget import STAGE_BYTES
from ..config.dense import DenseConfig, Operands
from ..config.parts import MAX_CLUSTER, MOST_COLUMNS, ConfigError, Overlap, Static
from ..problem.dense import Problem
from . import copied, corrections, overlaps, promoted, rings, waves
from .costs import SWAPPED, Columns, Costs, Parts, Sizes, estimate, of_card, remainder, structure, taken
from .space import (
    LEAST_OF_A_SPLIT,
    NARROW,
    ONE_BLOCK,
    PINGPONG_FROM,
    THREE_BLOCKS,
    Rows,
    Structure,
    alike,
    few_columns,
    of_structure,
    structures,
    swappable,
)

SHALLOW = 5
"""Stages of K up to which stream-K makes no sense. Of 316 products of a sample of H100s with no more, the best configuration without it was
the faster one in all (least 1.006, in the geometric mean 1.34)."""
CORRECTED_ROWS = 9
"""Rows from which few rows were measured: `sample` has 16 at least, whose kernels are those of 9 to 16."""
TOO_FEW_SWAPPED = 24
"""Columns of D up to which A and B are not swapped in a single product of few columns. A copy of B would ask for 64 rows, and each one that
does not exist costs a stage some 3 clocks (4096 x 8 x 4096 nt on an H200: 18.0 us, by the model 12.3)."""
TOO_WIDE = 24
"""How many columns wider than D a tile may be, where D has few columns."""
MOST_HELD = 4 / 3
"""How many times the columns of a tile a stage may hold of B. An operand that is not contiguous along K is copied in whole spans."""
MOST_ROWS = 256
"""Rows of the tallest tile."""

MOST_SPLIT_WORK = 1.02
"""Work tiles of a K that is split in the workspace, over the CTAs at work at a time: its CTAs wait for each other."""

NOT_MEASURED = 1.03
"""How many times as long as by the model a structure is taken to need that no fit has seen: the factors of others spread about so much."""

@dataclass(frozen=True, slots=True)
class Judged:
    """The structures that make sense for a problem, and what the model says of each."""

    problem: Problem
    every: Sequence[Structure]
    """Those that its operands can have."""
    places: Any
    """Which of them make sense."""
    parts: Parts
    clocks: Any
    """The model's total with what measurements say beyond it."""
    corrected: Set[int]
    """The places of those that the trees corrected."""
    overlaps: Mapping[int, Overlap]
    """By place, when the next kernel begins where it does not begin with the product."""

    @property
    def structures(self) -> list[Structure]:
        return [self.every[place] for place in self.places]

    def config(self, place: int) -> DenseConfig:
        """The configuration of one structure."""
        one, when = self.every[self.places[place]], self.overlaps.get(place)
        if when is not None and isinstance(one.scheduler, Static):
            one = one._replace(scheduler=replace(one.scheduler, overlap=when))
        return of_structure(one, self.problem)

    def without_overlaps(self) -> Judged:
        """The same where the next kernel begins with each product; the clocks and their order stay."""
        return replace(self, overlaps={})

    def timed(self) -> Iterator[tuple[float, DenseConfig]]:
        """The possible configurations with their clocks, the fastest first."""
        for place, config in self.fastest_first():
            yield float(self.clocks[place]), config

    def fastest_first(self) -> Iterator[tuple[int, DenseConfig]]:
        """The possible ones with their places."""
        for place in np.argsort(self.clocks, kind="stable"):
            with suppress(ConfigError):
                yield int(place), self.config(int(place))

    @property
    def fastest(self) -> tuple[DenseConfig, float]:
        """The one of the least clocks, and these."""
        place = int(np.argmin(self.clocks))
        try:
            config = self.config(place)
        except ConfigError:
            place, config = next(self.fastest_first())
        return config, float(self.clocks[place])

    @property
    def best(self) -> DenseConfig:
        return self.fastest[0]


@functools.lru_cache(16)
def _columns(most: int, card: Card) -> tuple[Columns, Any, Any, Costs]:
    """All structures of up to `most` rows as the model sees them, still without their rings; which of them the fit has seen, if only
    without A and B swapped; and which it has seen just so."""
    costs, found = of_card(card), structures(most)
    own = np.array([structure(one) in costs.factors for one in found])
    return Columns.of_structures(found, card, costs), np.array([_known(one, costs) for one in found]), own, costs


def _known(one: DenseConfig | Structure, costs: Costs) -> bool:
    """Whether the fit has seen a structure, or the same without A and B swapped."""
    name = structure(one)
    return not costs.factors.keys().isdisjoint((name, name.removesuffix(SWAPPED)))


def _held_back(seen: Columns, known: Any, most: int) -> Columns:
    """With `NOT_MEASURED` for what no fit has seen, of products of up to `most` rows."""
    unlike = (seen.splits > 1) & ((seen.swapped > 0) | (seen.cluster_m * seen.cluster_n > 1))
    shared_out = remainder(seen.BN, 8 * seen.cluster_m) > 0
    doubtful = (_of_batches(seen) | (seen.BM == THREE_BLOCKS) | unlike | _odd_widths(seen) | shared_out) & ~known & (most > ONE_BLOCK)
    return replace(seen, factor=np.where(doubtful, seen.factor * NOT_MEASURED, seen.factor))


def _odd_widths(seen: Columns) -> Any:
    """Tiles whose columns are no multiple of 16, or more than one instruction has. Of an operand that is copied in whole spans they are not
    worth it if more is copied than they have: of 672 products those took up to 1.2 times as long as the model says."""
    return (remainder(seen.BN, 16) > 0) | (seen.BN > MOST_COLUMNS)


class Candidates(NamedTuple):
    """Structures as the model sees them, and what does not depend on a problem's extents."""

    every: tuple[Structure, ...]
    seen: Columns
    costs: Costs
    cuts_k: Any                                 # whether it splits K or shares it out
    long_store: Any                             # whether storing a tile takes long for its short ring
    of_batches: Any                             # whether only batches and products of few rows or columns may have it
    of_few_columns: Any                         # whether only products of few columns may


@functools.lru_cache(64)
def _candidates(operands: Operands, swaps: bool, most: int, card: Card, untried: bool) -> Candidates:
    """The structures that such operands can have, as the model sees them; with A and B swapped too if the problem can have that.
    `untried`: also those that `only_measured` would leave out, since no fit has seen them."""
    columns, known, own, costs = _columns(most, card)
    there, fitting = rings.fitting(structures(most), columns, operands)
    together = np.where(fitting.in_cluster > 0, fitting.splits, fitting.cluster_m * fitting.cluster_n)
    kept = ((fitting.swapped == 0) | swaps) & (fitting.resident >= together)
    kept &= fitting.held <= np.where(_odd_widths(fitting), 1, MOST_HELD) * fitting.BN
    kept &= untried | own[there] | ~only_measured(fitting, most == ONE_BLOCK)
    there[there] = kept
    seen = _held_back(taken(fitting, kept), known[there], most)
    long_store = (seen.BM == 128) & (seen.BN == 256) & (seen.stages < 4) & (seen.staged > 0)
    every = tuple(itertools.compress(structures(most), there))
    of_few_columns = np.array([one.for_few_columns for one in every], bool)
    return Candidates(every, seen, costs, (seen.splits > 1) | (seen.stream > 0), long_store, _of_batches(seen), of_few_columns)


def only_measured(seen: Columns, few: Any) -> Any:
    """A card has these structures only if its fit has seen just them: clusters of eight, clusters of narrow swapped tiles, swapped tiles of
    16 and 24 columns for batches, and of 40 and 56 for single products of few rows (`few`). The model takes them for better than they are.
    Of 13 random products clusters of eight were the fastest for 3. Chosen by the model without a fit they made one faster and four
    slower."""
    size = seen.cluster_m * seen.cluster_n
    narrow = (seen.swapped > 0) & (seen.BN < PINGPONG_FROM)
    odd = (seen.BN > NARROW) & (remainder(seen.BN, 16) > 0)
    whole_k = (seen.splits == 1) & ((size > 1) | ((seen.BN < NARROW) & np.logical_not(few)))
    return (size == MAX_CLUSTER) | (narrow & (odd | whole_k))


MOST_ALIGNED = 400
"""Candidates that copy operands first, of which those with tensor copies have as many as other products."""


def by_waves(problem: Problem, card: Card = H200) -> bool:
    """Whether the model of `waves` chooses: for few rows of a single product where no measurement corrects the other model: batch-invariant
    ones, those below `CORRECTED_ROWS`, and all on a card without trees of few rows. Up to eight rows that lie along M are chosen as more of
    them are: every CTA asks for the same few lines of A, 16 bytes at a time, which only the trees know."""
    if problem.promote or not few_rows(problem):
        return False
    fewer = problem.m < CORRECTED_ROWS and problem.a_major == "k"
    return problem.invariant or fewer or not corrections.of_card(card).few


def few_rows(problem: Problem) -> bool:
    """Whether it is a single product of few rows. The tiles of a batch of few rows are many."""
    return problem.m <= ONE_BLOCK and problem.batches is None


def judged(problem: Problem, card: Card = H200, *, untried: bool = False) -> Judged:
    """Every sensible structure of a problem without promoted sums, with its estimate by `costs`. `untried`: also those that a card has only
    once a fit has seen them."""
    most = _most(problem)
    found = _candidates(alike(problem.operands), swappable(problem), most, card, untried)
    columns, costs, rows = found.seen, found.costs, Rows.of(problem)
    if rows.a_rows:
        whole = (columns.swapped > 0) | (columns.pingpong > 0) | (columns.cluster_n > 1)
        columns = replace(columns, a_rows=np.where(whole, 0.0, rows.a_rows))
    places = np.flatnonzero(_possible(problem, found))
    columns, asked = taken(columns, places), Sizes.of(problem)
    parts = estimate(costs, asked, columns)
    trees = corrections.of_card(card)
    by_trees = corrections.corrected(trees, problem, asked, columns, parts, costs.memory)
    later, clocks = overlaps.chosen(overlaps.of_card(card), columns, by_trees)
    return Judged(problem, found.every, places, parts, clocks, set(by_trees.places.tolist()), later)


def _most(problem: Problem) -> int:
    return ONE_BLOCK if few_rows(problem) else MOST_ROWS


def _possible(problem: Problem, found: Candidates) -> Any:
    """Whether a configuration makes sense for these extents."""
    seen = found.seen
    depth = max(1, -(-problem.k * problem.a.bits // 8 // STAGE_BYTES))
    m, n = (np.where(seen.swapped > 0, *pair) for pair in ((problem.n, problem.m), (problem.m, problem.n)))
    clusters = np.ceil(m / (seen.BM * seen.cluster_m)) * np.ceil(n / (seen.BN * seen.cluster_n))
    tiles = clusters * seen.cluster_m * seen.cluster_n * (problem.batches or 1)
    units = tiles * seen.splits
    waits = (seen.in_cluster == 0) & (units > MOST_SPLIT_WORK * seen.resident)
    there = (seen.splits == 1) | (depth >= LEAST_OF_A_SPLIT * seen.splits) & ~waits
    there &= ~found.long_store | (tiles > seen.resident)
    most = Rows.of(problem).most
    if most < MOST_ROWS:
        there &= (most >= seen.BM) | (seen.swapped > 0)
    if problem.invariant:
        there &= ~found.cuts_k
    if few_columns(problem):
        there &= np.where(seen.swapped > 0, problem.n > TOO_FEW_SWAPPED, problem.n + TOO_WIDE >= seen.BN)
    else:
        there &= ~found.of_few_columns
        if problem.batches is None and not few_rows(problem):
            there &= ~found.of_batches
    return there if depth > SHALLOW else there & (seen.stream == 0)


def _of_batches(seen: Columns) -> Any:
    """Structures that only batches and products of few rows or columns may have, and that are not yet measured for others. Narrow ones
    leave less of a small product's tile empty. Pingpong stores a tile while the next one is multiplied, and so do several CTAs on an SM,
    whose waits for copies, products and barriers overlap besides."""
    narrow = (seen.BN < NARROW) | ((seen.pingpong > 0) & (seen.BN < PINGPONG_FROM))
    return narrow | (seen.ctas > 1)


def candidates(problem: Problem, card: Card = H200) -> Iterator[DenseConfig]:
    """Configurations worth trying for a problem, the fastest by the model first."""
    for _, config in timed(problem, card):
        yield config


def timed(problem: Problem, card: Card = H200) -> Iterator[tuple[float, DenseConfig]]:
    """Configurations worth trying, with the clocks that the heuristic compares, the fastest first. The heuristic takes the first one. Only
    `waves` may take a later one that is about as fast."""
    if problem.by_threads:
        yield from heapq.merge(copied.timed(problem, card), _aligning(problem, card), key=operator.itemgetter(0))
    elif problem.promote:
        yield from promoted.timed(problem, card)
    elif by_waves(problem, card):
        yield from waves.timed(problem, card)
    else:
        yield from judged(problem, card).timed()


def _aligning(problem: Problem, card: Card) -> Iterator[tuple[float, DenseConfig]]:
    """Those that copy operands before the product, if the L2 holds the copies."""
    there = copied.realigned(problem, card)
    if there is not None:
        further = copied.copying(problem, problem.misaligned, card)
        for each, config in itertools.islice(timed(there, card), MOST_ALIGNED):
            yield each + further, copied.aligning(problem, config)


def clocks(problem: Problem, config: DenseConfig, card: Card = H200) -> float:
    """The model: SM clocks of one launch."""
    if config.loads.align and problem.misaligned:
        return clocks(problem.aligned(config.loads.align), config, card) + copied.copying(problem, config.loads.align, card)
    if problem.by_threads:
        return copied.clocks(problem, config, card)
    if problem.promote:
        return promoted.clocks(problem, config, card)
    if by_waves(problem, card):
        return waves.clocks(problem, config, card)
    return by_causes(problem, config, card)[1]


def by_causes(problem: Problem, config: DenseConfig, card: Card) -> tuple[Parts, float]:
    """What the model of `costs` counts for one configuration, and the clocks with what measurements say beyond it."""
    costs, asked = of_card(card), Sizes.of(problem)
    seen = _held_back(Columns.of([config], card, costs), np.array([_known(config, costs)]), _most(problem))
    parts = estimate(costs, asked, seen)
    trees = corrections.of_card(card)
    by_trees = corrections.corrected(trees, problem, asked, seen, parts, costs.memory)
    return parts, float(by_trees.clocks[0]) * overlaps.factor(overlaps.of_card(card), config.scheduler, by_trees.told)


def heuristic(problem: Problem, card: Card = H200) -> DenseConfig:
    """The configuration for a problem on a card."""
    return _fastest(problem, card)[0]


def _fastest(problem: Problem, card: Card) -> tuple[DenseConfig, float]:
    """The configuration for a problem, and its clocks by the model."""
    if problem.by_threads:
        best, there = copied.fastest(problem, card), copied.realigned(problem, card)
        if there is None:
            return best
        config, clocks = _fastest(there, card)
        aligned = copied.aligning(problem, config)
        return min(best, (aligned, clocks + copied.copying(problem, problem.misaligned, card)), key=lambda pair: pair[1])
    if problem.promote:
        least, config = next(promoted.timed(problem, card))
        return config, least
    if by_waves(problem, card):
        config = waves.heuristic(problem, card)
        return config, waves.clocks(problem, config, card)
    return judged(problem, card).fastest


__all__ = ["CORRECTED_ROWS", "SHALLOW", "Judged", "by_causes", "by_waves", "candidates", "clocks", "few_rows", "heuristic", "judged",
           "only_measured", "timed"]
