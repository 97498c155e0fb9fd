"""Which configuration a product gets whose operands tensor copies cannot load.

There are two ways. Another kernel copies them first, if each fits the L2, to lines that tensor copies can load: the product is then one of
those with tensor copies. Or the producer warpgroup copies them. Hardly anybody else needs the load and store units of an SM, so a stage
takes as long as by the model of `costs`, or as long as the requests to these units. What these take is counted from the instructions, not
measured.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ptxkit.cards import H200, Card
from ptxkit.types import Scalar

from ..collective.atoms import ROWS
from ..collective.epilogue_ops import Fusion
from ..config.budget import STAGE_BYTES
from ..config.dense import DenseConfig, Operands
from ..config.parts import (
    ConfigError,
    Cooperative,
    CopiedLoads,
    Direct,
    ElementCopies,
    Loads,
    OperandCopies,
    Scheduler,
    ShiftedCopies,
    SplitK,
    Static,
    Sums,
    TensorCopies,
    Tile,
)
from ..problem.dense import Problem, stored
from ..problem.lines import copied_bytes
from .costs import Columns, Costs, Parts, Sizes, estimate, of_card

TILES = ((64, 64), (64, 128), (64, 256), (128, 64), (128, 128), (128, 192), (128, 256), (256, 128))
NARROW = tuple((64, BN) for BN in (32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256))
"""Tiles of up to 64 rows whose operands are shifted."""
UNDER_WAY, MOST_AHEAD = 40_000, 6
"""Bytes that a CTA copies ahead where they are shifted, and the most stages that it holds."""
SPLITS = (2, 3, 4, 6, 8, 12, 16)
SPLITS_IN_CLUSTER = (2, 4, 8)
LEAST_OF_A_SPLIT = 4        # stages
REQUEST = 4.0               # clocks of the load and store units for a request of a warp
ELEMENTS = {1: 5.0, 2: 3.0, 4: 1.0}
"""Requests for 128 bytes that are copied by element, by the size of one: the loads of a word, and its store."""
ACROSS = 2.0                # times as many where neighbouring threads have neighbouring lines
SHIFTED = 1.5               # requests for 128 bytes that are shifted
LATENCY = 30.0              # clocks of a line of 128 bytes whose elements pass through registers, of which 24 are under way at once
COPY = 3000.0               # of a launch more, which begins while the one before ends
BY_ELEMENT = 50.0           # further clocks of a warpgroup to store 64 x 8 of a tile by element


@dataclass(frozen=True, slots=True)
class Table:
    """Configurations of some operands, and what is known of each whatever the extents."""

    configs: tuple[DenseConfig, ...]
    seen: Columns
    costs: Costs
    copied: Any                                 # clocks of the load and store units in a stage
    single: Any                                 # further clocks of a tile that is stored by element

    @classmethod
    def of(cls, configs: Sequence[DenseConfig], card: Card) -> Table:
        costs = of_card(card)
        return cls(tuple(configs), Columns.of(configs, card, costs), costs, np.array([_copied(config) for config in configs]),
                   np.array([_single(config) for config in configs]))

    def parts(self, problem: Problem) -> tuple[Parts, Any]:
        """What the model counts for each configuration, and the further clocks of threads that copy operands and store elements."""
        parts = estimate(self.costs, Sizes.of(problem), self.seen)
        return parts, np.maximum(1.0, parts.waves) * (parts.steps * np.maximum(0.0, self.copied - parts.stage) + self.single)

    def clocks(self, problem: Problem) -> Any:
        """The model: SM clocks of one launch, by configuration."""
        parts, further = self.parts(problem)
        return parts.total + further


def timed(problem: Problem, card: Card = H200) -> Iterator[tuple[float, DenseConfig]]:
    """Configurations whose producer warpgroup copies, with their clocks, the fastest by the model first."""
    table, clocks = _timed(problem, card)
    for place in np.argsort(clocks, kind="stable"):
        if np.isfinite(clocks[place]):
            yield float(clocks[place]), table.configs[place]


def fastest(problem: Problem, card: Card = H200) -> tuple[DenseConfig, float]:
    """The first of them, and its clocks by the model."""
    table, clocks = _timed(problem, card)
    place = int(np.argmin(clocks))
    return table.configs[place], float(clocks[place])


def _timed(problem: Problem, card: Card) -> tuple[Table, Any]:
    """The configurations of a problem with their clocks, which are infinite where one makes no sense."""
    loads = problem.loads(Static())
    assert isinstance(loads, CopiedLoads)
    table = _table(problem.operands, loads, problem.fusion, problem.sums(), problem.store, problem.out, problem.ragged, problem.m <= ROWS,
                   card)
    return table, np.where(_fits(problem, table.seen), table.clocks(problem), np.inf)


def _fits(problem: Problem, seen: Columns) -> Any:
    """Whether a configuration makes sense for these extents."""
    depth = max(1, -(-problem.k * problem.a.bits // 8 // STAGE_BYTES))
    tiles = np.ceil(problem.m / seen.BM) * np.ceil(problem.n / seen.BN) * (problem.batches or 1)
    deep = (depth >= LEAST_OF_A_SPLIT * seen.splits) & (not problem.invariant)
    return (seen.splits == 1) | (deep & (tiles * seen.splits <= seen.resident / seen.ctas))


@functools.lru_cache(64)
def _table(operands: Operands, loads: CopiedLoads, fusion: Fusion, sums: Sums, store: Direct | None, out: type[Scalar], ragged: bool,
           few: bool, card: Card) -> Table:
    """Those of any extents, of `few` rows or of many."""
    return Table.of([config for which in (loads, loads.shifted(2)) if which is not None
                     for config in _configs(operands, which, fusion, sums, store, out, ragged, few)], card)


def _configs(operands: Operands, loads: CopiedLoads, fusion: Fusion, sums: Sums, store: Direct | None,
             out: type[Scalar], ragged: bool, few: bool) -> Iterator[DenseConfig]:
    """Those whose operands are loaded in one way."""
    shifts = loads.ahead > 0
    schedulers: list[Scheduler] = [Static(), *map(SplitK, SPLITS), *(SplitK(each, "cluster") for each in SPLITS_IN_CLUSTER)]
    for BM, BN in NARROW if few and shifts else TILES:
        tile = Tile(BM, BN)
        for scheduler in schedulers:
            for each in _ahead(loads, BM + BN) if shifts else (loads,):
                with suppress(ConfigError):
                    direct = stored(store, out, tile, scheduler, ragged=ragged)
                    yield DenseConfig(operands, tile, 0, Cooperative(0, sums), scheduler, direct, each, fusion)
                    break


def _ahead(loads: CopiedLoads, lines: int) -> Iterator[CopiedLoads]:
    """The same with as many stages held as bring enough bytes under way, then with fewer, which leave the ring more room."""
    enough = 1 + -(-UNDER_WAY // (lines * STAGE_BYTES))
    for ahead in range(max(2, min(MOST_AHEAD, enough)), 1, -1):
        if (found := loads.shifted(ahead)) is not None:
            yield found


def requests(copies: OperandCopies, lines: int, size: int) -> float:
    """The requests of a warp for the lines of a stage."""
    if isinstance(copies, TensorCopies):
        return 0.0
    if isinstance(copies, ElementCopies):
        return lines * ELEMENTS[size] * (ACROSS if copies.across else 1.0)
    if isinstance(copies, ShiftedCopies):
        return lines * SHIFTED
    return lines * STAGE_BYTES / 32 / copies.bytes


def _waits(copies: OperandCopies, lines: int, size: int) -> int:
    """The lines of a stage whose elements a thread must wait for, to store them; a warp has a fourth of them."""
    return lines // 4 if isinstance(copies, ElementCopies) and size < 4 else 0


def _copied(config: DenseConfig) -> float:
    """Clocks of the load and store units in a stage."""
    loads, tile, size = config.loads, config.tile, config.operands.a.bits // 8
    return REQUEST * (requests(loads.a, tile.BM, size) + requests(loads.b, tile.BN, size)) + \
        LATENCY * (_waits(loads.a, tile.BM, size) + _waits(loads.b, tile.BN, size))


def _single(config: DenseConfig) -> float:
    """Further clocks of a tile that is stored by element."""
    return BY_ELEMENT * config.m64_blocks * config.tile.BN / 8 / config.splits if config.store == Direct(1) else 0.0


def clocks(problem: Problem, config: DenseConfig, card: Card = H200) -> float:
    """The model: SM clocks of one launch."""
    return float(Table.of([config], card).clocks(problem)[0])


def parts(problem: Problem, config: DenseConfig, card: Card = H200) -> tuple[Parts, float]:
    """What the model counts for one configuration, and the further clocks of its threads."""
    found, further = Table.of([config], card).parts(problem)
    return found, float(further[0])


def realigned(problem: Problem, card: Card = H200) -> Problem | None:
    """The problem after a copy of its operands to lines that tensor copies can load; None if one is larger than the L2."""
    size, names = problem.a.bits // 8, problem.misaligned
    largest = max(copied_bytes(one, size) for name, one in (("a", problem.of_a), ("b", problem.of_b)) if name in names)
    return problem.aligned(names) if largest <= card.l2_mib * (1 << 20) else None


def aligning(problem: Problem, config: DenseConfig) -> DenseConfig:
    """The same configuration with that copy before it."""
    assert isinstance(config.loads, Loads)
    return replace(config, loads=replace(config.loads, align=problem.misaligned))  # type: ignore[arg-type]


def copying(problem: Problem, names: str, card: Card = H200) -> float:
    """The model: SM clocks of copies before a product. They are read and written once; each word takes the requests of its elements."""
    size, total = problem.a.bits // 8, 0.0
    for name, one in (("a", problem.of_a), ("b", problem.of_b)):
        if name in names:
            bytes = copied_bytes(one, size)
            total += COPY + max(2 * bytes / card.fit.memory, REQUEST * ELEMENTS[size] * bytes / STAGE_BYTES / card.sms)
    return total


__all__ = ["aligning", "clocks", "copying", "fastest", "parts", "realigned", "requests", "timed"]
