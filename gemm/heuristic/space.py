"""The structures that a dense product without promoted sums can have: every tile with every schedule and scheduler. No model knows which
are fast; `costs` judges them, and `python -m ptxkit.gemm sample` measures them.

A structure is cheap, a configuration is not: `rings` says of all structures at once which of them some operands can have, and `configured`
makes the one configuration that is wanted.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from ptxkit.types import Scalar, bf16, e4m3, f16

from ..collective.epilogue_ops import Fusion
from ..config import budget
from ..config.dense import DenseConfig, Operands
from ..config.parts import (
    ClusterShape,
    ConfigError,
    Cooperative,
    CopiedLoads,
    Dynamic,
    Loads,
    Pingpong,
    Schedule,
    Scheduler,
    SplitK,
    Staged,
    Static,
    Store,
    StreamK,
    Swizzle,
    Tile,
)
from ..problem.dense import FEW_ROWS, Problem

NARROW, PINGPONG_FROM = 32, 64  # columns, from which tiles and pingpong tiles are not only for batches
WIDTHS = (32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 256)
BETWEEN = tuple(width for width in range(72, 249, 8) if width not in WIDTHS)
WIDE = tuple(range(272, 385, 16))
STREAMED = (64, 96, 128, 160, 176, 192, 256)
CLUSTERS = (ClusterShape(), ClusterShape(2, 1), ClusterShape(1, 2))
LARGE_CLUSTERS = (ClusterShape(2, 2), ClusterShape(4, 1), ClusterShape(1, 4))   # worth it where copies take long: lines that straddle
CLUSTERS_OF_EIGHT = (ClusterShape(4, 2), ClusterShape(2, 4))      # of few tiles with a long K
MOST_IN_EIGHT = 128 * 176       # elements of their tiles
ALONG_M = (ClusterShape(), ClusterShape(2, 1), ClusterShape(4, 1))  # of narrow tiles with A and B swapped: CTAs share the few rows of D
SPLITS = (2, 3, 4, 5, 6, 8, 12, 16)
SPLITS_IN_CLUSTER = (2, 4, 8)
MOST_OF_THREE = 176             # columns of 192 rows that three warpgroups share: 192 and all that a fusion can add spill
MOST_BETWEEN = 136              # columns of one m64 block, between others
MOST_IN_LARGE = 8               # splits, at most, where CTAs share operands in clusters of four
SHARING_SPLIT = 128 * 96        # elements of a tile from which CTAs that split K also share operands, or A and B are swapped
WHOLE = Swizzle("along_n", 1, serpentine=True)
"""Column after column of tiles, each over all rows. The models take it for `Swizzle()`, in whose place it is."""
MOST_WHOLE = 16                 # rows of clusters for that
THREE_BLOCKS = 192              # rows of a tile of three warpgroups
ONE_BLOCK = 64                  # rows, up to which no tile has more than one m64 block
FEW_COLUMNS = 64                # columns of D, up to which narrow tiles are for single products too
FOR_FEW_COLUMNS = (16, 24)      # columns of tiles that split K only where D has few
LEAST_OF_A_SPLIT = 2            # stages
SHORT_RINGS = (2, 4)            # stages of rings that leave room for other CTAs on an SM
HALF_RING = 7                   # stages of a ring of few rows that leaves room for one more
SHORTER = 3                     # stages of a ring that gives up one for `Staged(4)`


Usual = Loads | CopiedLoads


class Structure(NamedTuple):
    """What a configuration is but for the operands, loads and fusion."""

    tile: Tile
    schedule: Schedule
    scheduler: Scheduler
    store: Staged | None = None
    stages: int = 0                             # 0: the deepest ring
    swap_ab: bool = False

    @property
    def warpgroups(self) -> Literal[1, 2, 3]:
        """The number of mma warpgroups."""
        how = self.schedule
        return 2 if isinstance(how, Pingpong) else how.warpgroups or budget.default_warpgroups(self.tile.BM, how.share)

    @property
    def for_small_products(self) -> bool:
        """Whether it suits only products of a few tiles, many at a time."""
        return bool(self.stages) or (PINGPONG_FROM if isinstance(self.schedule, Pingpong) else NARROW) > self.tile.BN

    @property
    def for_few_columns(self) -> bool:
        """Whether it suits only single products of few columns."""
        narrow = self.tile.BN < NARROW and not self.swap_ab
        return narrow and (self.tile.BM > ONE_BLOCK or isinstance(self.scheduler, SplitK))

    @property
    def cluster(self) -> int:
        """The number of CTAs of a cluster."""
        if isinstance(self.scheduler, SplitK):
            return self.scheduler.together
        return shared_by(self.scheduler).size


def shared_by(scheduler: Scheduler) -> ClusterShape:
    """The CTAs that share operands."""
    return ClusterShape() if isinstance(scheduler, Dynamic) else scheduler.cluster


@dataclass(frozen=True, slots=True)
class Rows:
    """What the number of rows decides of a configuration: which tiles there are, and how operands are read."""

    most: int                                   # rows of a tile
    a_rows: int = 0
    b_evict_first: bool = False

    @classmethod
    def of(cls, problem: Problem) -> Rows:
        few = problem.m <= 56 and problem.a_major == "k"
        once = problem.m <= ONE_BLOCK or (problem.m <= FEW_ROWS and problem.k >= 1024)
        return cls(64 if problem.m <= ONE_BLOCK else 128 if problem.m <= FEW_ROWS else 256, -(-problem.m // 8) * 8 if few else 0, once)

    def loads(self, usual: Loads | CopiedLoads) -> Loads | CopiedLoads:
        """How such a problem's operands are read."""
        if isinstance(usual, CopiedLoads) or not (self.a_rows or self.b_evict_first):
            return usual
        return replace(usual, a_rows=self.a_rows, b_evict_first=self.b_evict_first)


@functools.cache
def structures(most: int = 256) -> tuple[Structure, ...]:
    """Tiles of up to `most` rows with their schedules and schedulers."""
    return tuple(_structures(most))


def _structures(most: int) -> Iterator[Structure]:
    for BM, BN in itertools.product([rows for rows in (64, 128, THREE_BLOCKS, 256) if rows <= most], WIDTHS):
        if BM == THREE_BLOCKS and BN > MOST_OF_THREE:
            continue
        tile = Tile(BM, BN)
        ways: list[Schedule] = [Cooperative()]
        if BM <= 128 and BN >= 64 and most > ONE_BLOCK:
            ways.append(Pingpong())
        for how in ways:
            for cluster in _sharing(tile) if BN >= 64 and most > ONE_BLOCK else CLUSTERS[:1]:
                yield Structure(tile, how, Static(cluster=cluster))
                if cluster.size <= 2 and (64 * 128 if cluster.size == 1 else 128 * 128) <= BM * BN and BN in STREAMED:
                    yield Structure(tile, how, StreamK(cluster=cluster))
        if BM * BN >= 128 * 128:
            for order in (Swizzle(size=1), Swizzle(size=16), Swizzle(size=32), Swizzle("along_n")):
                yield Structure(tile, ways[-1], Static(order))
        if (BM, BN) == (128, 256):
            for cluster in CLUSTERS:            # a warpgroup that stores all its boxes at once is worth a stage of the ring
                yield Structure(tile, Cooperative(), Static(cluster=cluster), Staged(4))
        for splits in SPLITS if BN <= 192 else ():
            yield Structure(tile, Cooperative(), SplitK(splits))
            if splits in SPLITS_IN_CLUSTER:
                yield Structure(tile, Cooperative(), SplitK(splits, "cluster"))
            if BM * BN >= SHARING_SPLIT and most > ONE_BLOCK:
                for cluster in (*CLUSTERS[1:], *(LARGE_CLUSTERS if splits <= MOST_IN_LARGE else ())):
                    yield Structure(tile, Cooperative(), SplitK(splits, cluster=cluster))
    yield from (*_swapped((16, 24, *WIDTHS)), *_between()) if most > ONE_BLOCK else _few_swapped()
    for BN in (16, 24):
        yield Structure(Tile(64, BN), Cooperative(), Static())
    yield from _of_few_columns() if most > ONE_BLOCK else ()
    for BN in (16, 24, 32, 48) if most > ONE_BLOCK else ():
        yield Structure(Tile(64, BN), Pingpong(), Static())
    for BN, stages in itertools.product((16, 24, 32, 48, 64), SHORT_RINGS if most > ONE_BLOCK else (*SHORT_RINGS, HALF_RING)):
        yield Structure(Tile(64, BN), Cooperative(), Static(), None, stages)


def _of_few_columns() -> Iterator[Structure]:
    """Tiles of one or two m64 blocks whose sums are few, so that splitting K costs little."""
    for BM, BN in itertools.product((64, 128), FOR_FEW_COLUMNS):
        if BM > 64:
            yield Structure(Tile(BM, BN), Cooperative(), Static())
        for splits in SPLITS:
            yield Structure(Tile(BM, BN), Cooperative(), SplitK(splits))
            if splits in SPLITS_IN_CLUSTER:
                yield Structure(Tile(BM, BN), Cooperative(), SplitK(splits, "cluster"))


def _sharing(tile: Tile) -> tuple[ClusterShape, ...]:
    """How CTAs may share operands of such tiles."""
    return (*CLUSTERS, *LARGE_CLUSTERS, *(CLUSTERS_OF_EIGHT if tile.BM * tile.BN <= MOST_IN_EIGHT else ()))


def _between() -> Iterator[Structure]:
    """Tiles that fit extents which no other fits: 1,169 x 1,600 is 130 tiles of 128 columns of D by 120 rows, one wave."""
    for BM, BN in itertools.product((64, 128, THREE_BLOCKS, 256), BETWEEN):
        if {ONE_BLOCK: MOST_BETWEEN, THREE_BLOCKS: MOST_OF_THREE}.get(BM, BN) < BN:
            continue
        for how in (Cooperative(), Pingpong()) if BM <= 128 else (Cooperative(),):
            for cluster in _sharing(Tile(BM, BN)):
                yield Structure(Tile(BM, BN), how, Static(cluster=cluster), swap_ab=True)
    for BN, cluster, swaps in itertools.product(WIDE, CLUSTERS, (False, True)):
        yield Structure(Tile(128, BN), Cooperative(), Static(cluster=cluster), swap_ab=swaps)
    for BN, cluster, swaps in itertools.product(range(MOST_OF_THREE, 257, 16), CLUSTERS, (False, True)):
        if swaps or BN % 32 == 0:
            yield Structure(Tile(THREE_BLOCKS, BN), Cooperative(share="columns"), Static(cluster=cluster), swap_ab=swaps)


def _few_swapped() -> Iterator[Structure]:
    """Those of few rows of D, which are one tile high: the widths that they have, and rings that leave room for other CTAs on an SM."""
    widths = (16, 24, 32, 40, 48, 56, 64)
    yield from _swapped(widths)
    for BM, BN, stages in itertools.product((64, 128), widths, (SHORT_RINGS[-1], HALF_RING)):
        yield Structure(Tile(BM, BN), Cooperative(), Static(), None, stages, swap_ab=True)


def _swapped(widths: tuple[int, ...]) -> Iterator[Structure]:
    """Tiles of BM columns of D by BN rows. The number of rows of D does not bound BM."""
    for BM, BN in itertools.product((64, 128, THREE_BLOCKS, 256), widths):
        if BM == THREE_BLOCKS and BN > MOST_OF_THREE:
            continue
        tile = Tile(BM, BN)
        for how in (Cooperative(), Pingpong()) if BM <= 128 and BN >= 64 else (Cooperative(),):
            for cluster in _sharing(tile) if BN >= 64 else ALONG_M:
                yield Structure(tile, how, Static(cluster=cluster), swap_ab=True)
                if cluster.size <= 2 and (64 * 128 if cluster.size == 1 else 128 * 128) <= BM * BN and BN in STREAMED:
                    yield Structure(tile, how, StreamK(cluster=cluster), swap_ab=True)
            if BM * BN >= 128 * 128 and (BM > 128 or isinstance(how, Pingpong)):
                yield Structure(tile, how, Static(Swizzle("along_n")), swap_ab=True)
        for splits, cluster in itertools.product(SPLITS, (*CLUSTERS, *LARGE_CLUSTERS)) if SHARING_SPLIT <= BM * BN and BN <= 192 else ():
            if cluster.size <= 2 or splits <= MOST_IN_LARGE:
                yield Structure(tile, Cooperative(), SplitK(splits, cluster=cluster), swap_ab=True)


def few_columns(problem: Problem) -> bool:
    """Whether it is a single product of few columns, and not of few rows. Where B lies along N its copies have spans of 64 columns, however
    narrow a tile is: then CTAs that share them are faster."""
    return problem.n <= FEW_COLUMNS and problem.m > ONE_BLOCK and problem.batches is None and problem.b_major == "k"


def swappable(problem: Problem) -> bool:
    """Whether structures with A and B swapped are for a problem: 16-bit results that tensor copies can store, and no part of an epilogue
    that such a configuration does not have."""
    fusion = problem.fusion
    stored = problem.store is None and problem.out.bits == 16
    return stored and fusion.c is None and fusion.residual is None and not (problem.promote or problem.invariant)


def alike(operands: Operands) -> Operands:
    """Operands that can have just the same structures: f16 as bf16 unless its sums are f16, e5m2 as e4m3."""
    def same(kind: type[Scalar]) -> type[Scalar]:
        return kind if kind.bits == 32 else bf16 if kind.bits == 16 else e4m3

    if operands.accumulator is f16:
        return operands if operands.out.bits != 16 else replace(operands, out=bf16)
    return replace(operands, a=same(operands.a), b=same(operands.b), out=same(operands.out))


def configured(one: Structure, operands: Operands, fusion: Fusion, rows: Rows, loads: tuple[Usual, Usual],
               store: Store | None) -> DenseConfig:
    """The configuration of a structure. `loads`: of a scheduler whose first tile a CTA knows in advance, and of another; `store`: None is
    derived. Raises ConfigError where it is refused."""
    read = loads[1] if one.swap_ab else rows.loads(loads[isinstance(one.scheduler, StreamK)])
    if isinstance(read, Loads) and read.a_rows and (isinstance(one.schedule, Pingpong) or shared_by(one.scheduler).n > 1):
        read = replace(read, a_rows=0)          # whose copies of A are those of whole tiles
    stages = one.stages if one.store is None else SHORTER
    return DenseConfig(operands, one.tile, stages, one.schedule, one.scheduler, store, read, fusion, one.swap_ab)


def ordered(one: Structure, problem: Problem) -> Structure:
    """With the order of its tiles that suits the extents: of up to `MOST_WHOLE` rows of clusters, a panel of `Swizzle().size` would leave a
    few for a second one, for which all of B is read again."""
    scheduler = one.scheduler
    if not isinstance(scheduler, Static) or scheduler.order != Swizzle() or problem.batches is not None:
        return one
    rows = -(-(problem.n if one.swap_ab else problem.m) // (one.tile.BM * scheduler.cluster.m))
    return one._replace(scheduler=replace(scheduler, order=WHOLE)) if Swizzle().size < rows <= MOST_WHOLE else one


def of_structure(one: Structure, problem: Problem) -> DenseConfig:
    """The configuration of a structure for a problem."""
    return configured(ordered(one, problem), problem.operands, problem.fusion, Rows.of(problem), usual_loads(problem),
                      problem.stored(one.tile, one.scheduler, one.store))


def usual_loads(problem: Problem) -> tuple[Usual, Usual]:
    """How a problem's operands are read: by a scheduler whose first tile a CTA knows in advance, and by another."""
    return problem.loads(Static()), problem.loads(StreamK())


def of_problem(problem: Problem) -> list[DenseConfig]:
    """Every configuration for a problem. Batches of few rows have the schedules of many: their tiles are many."""
    rows, loads, batched, swaps = Rows.of(problem), usual_loads(problem), problem.batches is not None, swappable(problem)
    narrow = few_columns(problem)
    few = problem.m <= ONE_BLOCK or narrow
    found: dict[DenseConfig, None] = {}
    for one in structures() if batched else structures(rows.most):
        if (one.for_small_products and not (batched or few)) or (one.for_few_columns and not narrow):
            continue
        if (one.swap_ab and not swaps) or (not one.swap_ab and rows.most < one.tile.BM):
            continue
        with suppress(ConfigError):
            found[configured(one, problem.operands, problem.fusion, rows, loads, problem.stored(one.tile, one.scheduler, one.store))] = None
    return list(found)


__all__ = ["CLUSTERS_OF_EIGHT", "LEAST_OF_A_SPLIT", "MOST_WHOLE", "NARROW", "ONE_BLOCK", "PINGPONG_FROM", "SHORTER", "SHORT_RINGS",
           "SPLITS_IN_CLUSTER", "THREE_BLOCKS", "WHOLE", "Rows", "Structure", "alike", "configured", "few_columns", "of_problem",
           "of_structure", "ordered", "shared_by", "structures", "swappable", "usual_loads"]
