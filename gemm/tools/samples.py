"""Configurations to verify: those that users get, and legal ones that cover every pair of choices that go together."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from ptxkit.cards import H200, Card
from ptxkit.types import bf16, e4m3, e5m2, f16, f32

from ..collective.scale_factors import ALIGNED
from ..config import budget
from ..config.dense import DenseConfig, Operands
from ..config.parts import (
    BlockScaled,
    ClusterShape,
    ConfigError,
    Cooperative,
    Dynamic,
    Hilbert,
    Loads,
    Pingpong,
    Promoted,
    SplitK,
    Static,
    StreamK,
    Swizzle,
    TensorCoreSums,
    Tile,
)
from ..heuristic import table as tables
from ..heuristic.dense import heuristic
from ..heuristic.tuned import revive
from ..scheduler.stream_k import MIN_STAGES_OF_PART
from .bench.shapes import problem
from .problems import asked, described

CLUSTERS = (ClusterShape(), ClusterShape(2, 1), ClusterShape(1, 2), ClusterShape(2, 2), ClusterShape(1, 4))
CHOICES: dict[str, list[Any]] = {
    "types": [(bf16, bf16), (f16, f16), (f32, f32), (e4m3, e4m3), (e5m2, e4m3)],
    "out": [bf16, f16, f32, e4m3],
    "majors": [("k", "k"), ("mn", "k"), ("k", "mn"), ("mn", "mn")],
    "tile": [(Tile(128, 256), Cooperative(), 0), (Tile(128, 128), Pingpong(), 0), (Tile(64, 64), Cooperative(), 0),
             (Tile(256, 128), Cooperative(), 0), (Tile(192, 64), Cooperative(), 0), (Tile(128, 176), Cooperative(), 0),
             (Tile(64, 56), Cooperative(), 0), (Tile(64, 192), Pingpong(), 0), (Tile(64, 128), Cooperative(), 24),
             (Tile(128, 128), Cooperative(1), 0)],
    "scheduler": [*(Static(cluster=cluster) for cluster in CLUSTERS), Dynamic(), *(StreamK(cluster=cluster) for cluster in CLUSTERS),
                  SplitK(2, "cluster"), SplitK(3, "workspace"),
                  SplitK(2, cluster=ClusterShape(2, 1)), SplitK(2, cluster=ClusterShape(1, 2))],
    "order": [Swizzle(size=2), Swizzle("along_n", 3), Swizzle(size=2, serpentine=True), Hilbert()],
    "sums": [TensorCoreSums(), Promoted()],
    "batched": [False, True],
    "stages": [0, 2],
    "swap_ab": [False, True],
}
# Extents around the choices of the heuristic: below, at and above tiles, a wave and many waves.
GRID = ((1, 16, 40, 64, 100, 128, 256, 400, 512, 1024, 2048, 4096, 8192), (16, 64, 128, 256, 512, 576, 1024, 2112, 4096, 7168, 24576),
        (64, 512, 2048, 7168, 16384))
COARSE = ((1, 64, 128, 1024, 4096), (16, 576, 2112, 7168), (64, 2048, 16384))
KINDS = (("bf16", "bf16", None), ("bf16", "f32", None), ("e4m3", "bf16", None), ("e4m3", "bf16", False))


def build(row: tuple[Any, ...]) -> DenseConfig | None:
    """The configuration of one choice of each, if there is one."""
    choice = dict(zip(CHOICES, row, strict=True))
    (a, b), (a_major, b_major), (tile, schedule, a_rows) = choice["types"], choice["majors"], choice["tile"]
    if isinstance(schedule, Pingpong) and choice["sums"] != TensorCoreSums():
        return None
    schedule = schedule if isinstance(schedule, Pingpong) else replace(schedule, sums=choice["sums"])
    try:
        operands = Operands(a, b, choice["out"], f32, a_major, b_major, choice["batched"])
        return DenseConfig(operands, tile, choice["stages"], schedule, replace(choice["scheduler"], order=choice["order"]),
                           loads=Loads(a_rows), swap_ab=choice["swap_ab"])
    except ConfigError:
        return None


@functools.cache
def pairwise(tries: int = 10_000) -> tuple[DenseConfig, ...]:
    """A greedy cover of the pairs that occur among `tries` random choices: each time the configuration with the most missing ones."""
    sizes = [len(values) for values in CHOICES.values()]
    bits = {pair: 1 << number for number, pair in enumerate(
        (i, x, j, y) for i, j in itertools.combinations(range(len(sizes)), 2) for x in range(sizes[i]) for y in range(sizes[j]))}
    rng = random.Random(0)
    pool: list[tuple[int, DenseConfig]] = []
    for _ in range(tries):
        row = [rng.randrange(size) for size in sizes]
        config = build(tuple(values[at] for values, at in zip(CHOICES.values(), row, strict=True)))
        if config is not None:
            pool.append((sum(bits[i, row[i], j, row[j]] for i, j in itertools.combinations(range(len(row)), 2)), config))
    missing = functools.reduce(int.__or__, (mask for mask, _ in pool))
    found: list[DenseConfig] = []
    while missing:
        mask, config = max(pool, key=lambda entry: (entry[0] & missing).bit_count())
        found.append(config)
        missing &= ~mask
    return tuple(found)


def picked(kinds: Iterable[tuple[str, str, bool | None]] = KINDS, card: Card = H200, *,
           grid: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] = COARSE) -> Iterator[DenseConfig]:
    """What the heuristic gives over a grid of extents, and for block scales."""
    for (a, out, fast), m, n, k in itertools.product(kinds, grid[0], grid[1], grid[2]):
        yield heuristic(asked(m, n, k, a, out=out, fast_accum=fast), card)
    for m, n, k in itertools.product((1, 64, 512, 4096), (128, 576, 4096), (512, 7168)):
        yield heuristic(asked(m, n, k, "e4m3", out="bf16", block=True), card)


def shipped() -> Iterator[DenseConfig]:
    """What the tables of the package hold."""
    for path in sorted(tables.FOLDER.glob("*.json")):
        for kind, entries in tables.Table.read(path).entries.items():
            operands, _, layout = kind.split("/")
            for shape, entry in entries.items():
                yield revive(entry["config"], described(problem(f"{shape}:{operands}:{layout}")))


def structure(config: DenseConfig, *, of_types: bool = False) -> tuple[Any, ...]:
    """What decides the code: two configurations of one structure differ in constants, and in types unless `of_types`."""
    scheduler = replace(config.scheduler, order=Swizzle())
    shared = config.tile.BM, config.tile.BN, config.schedule, scheduler, config.staged, config.loads.a_rows > 0, config.swap_ab
    return (*shared, replace(config.operands, accumulator=f32)) if of_types else shared


def distinct(configs: Iterable[DenseConfig], *, of_types: bool = False) -> tuple[DenseConfig, ...]:
    """The first configuration of each structure."""
    found: dict[tuple[Any, ...], DenseConfig] = {}
    for config in configs:
        found.setdefault(structure(config, of_types=of_types), config)
    return tuple(found.values())


def small(config: DenseConfig) -> tuple[int, int, int]:
    """M, N, K of a product of one tile for each CTA of a cluster (of two for pingpong warpgroups), not quite full, whose K goes once round
    the ring, and is one that its copies of scales can have."""
    tile, cluster, operands, sums = config.tile, config.multicast, config.operands, config.sums
    unit = 128 // min(operands.a.bits, operands.out.bits, 16)
    m = config.loads.a_rows or tile.BM * cluster.m * (2 if isinstance(config.schedule, Pingpong) else 1) - unit
    n = max(unit, tile.BN * cluster.n // unit * unit - (unit if unit < tile.BN else 0))
    stages = max(config.stages + 1, config.splits + 1, 2 * MIN_STAGES_OF_PART if isinstance(config.scheduler, StreamK) else 0)
    bulk = isinstance(sums, BlockScaled) and sums.load == "bulk"
    m, n = (n, m) if config.swap_ab else (m, n)
    return m, n, tile.BK * (-(-stages // ALIGNED) * ALIGNED if bulk else stages) - 16


def name(config: DenseConfig) -> str:
    """A configuration in a word."""
    operands = config.operands
    words = [operands.a.__name__, operands.b.__name__, operands.out.__name__, operands.a_major + operands.b_major,
             str(config).replace(" ", "")]
    scaled = isinstance(config.sums, BlockScaled)
    return "-".join(words + ["promoted"] * budget.promoted(config.sums) + ["scaled"] * scaled + ["batched"] * operands.batched)


__all__ = ["COARSE", "GRID", "distinct", "name", "pairwise", "picked", "shipped", "small", "structure"]
