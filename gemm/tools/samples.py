"""Configurations to verify: those that users get, and valid ones in which every pair of choices that can stand together does."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterable, Iterator
from typing import Any

from ptxkit.runtime.arrays import ArrayView
from ptxkit.types import bf16, e4m3, e5m2, f16, f32

from ..collective.scale_factors import ALIGNED
from ..collective.stream_k import LEAST
from ..config.dense import Config, ConfigError
from ..heuristic import table as tables
from ..heuristic.dense import heuristic
from ..problem.dense import Arrays, Options, Problem

CHOICES: dict[str, list[Any]] = {
    "types": [(bf16, bf16), (f16, f16), (f32, f32), (e4m3, e4m3), (e5m2, e4m3)],
    "out": [bf16, f16, f32, e4m3],
    "majors": [("k", "k"), ("mn", "k"), ("k", "mn"), ("mn", "mn")],
    "tile": [{"BM": 128, "BN": 256}, {"BM": 128, "BN": 128, "PINGPONG": True}, {"BM": 64, "BN": 64}, {"BM": 256, "BN": 128},
             {"BM": 192, "BN": 64}, {"BM": 128, "BN": 176}, {"BM": 64, "BN": 56}, {"BM": 64, "BN": 192, "PINGPONG": True},
             {"BM": 64, "BN": 128, "A_ROWS": 24}, {"BM": 128, "BN": 128, "CONSUMERS": 1}],
    "sharing": [{}, {"CLUSTER_M": 2}, {"CLUSTER_N": 2}, {"CLUSTER_M": 2, "CLUSTER_N": 2}, {"CLUSTER_N": 4},
                {"CLUSTER_M": 2, "CLUSTER_N": 2, "MULTICAST": "leader"},
                {"SPLITS": 2, "REDUCE": "cluster"}, {"SPLITS": 3, "REDUCE": "workspace"}],
    "raster": [{"GROUP": 2}, {"GROUP": 3, "RASTER": "along_n"}, {"GROUP": 2, "SERPENTINE": True}, {"RASTER": "hilbert"}],
    "work": [{}, {"TICKET": True}, {"STREAM_K": True}, {"A_REGISTERS": True}],
    "promote": [False, True],
    "batched": [False, True],
    "stages": [0, 2],
}
# Extents around the choices of the heuristic: below, at and above tiles, a wave and many waves.
GRID = ((1, 16, 40, 64, 100, 128, 256, 400, 512, 1024, 2048, 4096, 8192), (16, 64, 128, 256, 512, 576, 1024, 2112, 4096, 7168, 24576),
        (64, 512, 2048, 7168, 16384))
COARSE = ((1, 64, 128, 1024, 4096), (16, 576, 2112, 7168), (64, 2048, 16384))
KINDS = (("bf16", "bf16", None), ("bf16", "f32", None), ("e4m3", "bf16", None), ("e4m3", "bf16", False))


def asked(m: int, n: int, k: int, a: str = "bf16", b: str | None = None, out: str | None = None, layout: str = "nt",
          batches: int | None = None, block: bool = False, scaled: bool = False, **options: Any) -> Problem:
    """A product of arrays without memory. `layout` is BLAS's: A then B, n row-major and t column-major; scales are those of blocks, or
    (`scaled`) one an operand."""
    def matrix(rows: int, columns: int, dtype: str, letter: str = "n") -> ArrayView:
        shape, strides = (rows, columns), (columns, 1) if letter == "n" else (1, rows)
        if batches is not None:
            shape, strides = (batches, *shape), (rows * columns, *strides)  # type: ignore[assignment]
        return ArrayView(0, shape, strides, dtype, 0, "other")

    scales: tuple[ArrayView | None, ...] = (ArrayView(0, (), (), "f32", 0, "other"),) * 2 if scaled else (None, None)
    if block:
        scales = matrix(m, -(-k // 128), "f32", "t"), matrix(-(-k // 128), -(-n // 128), "f32", "t")
    arrays = Arrays(matrix(m, k, a, layout[0]), matrix(k, n, b or a, layout[1]), matrix(m, n, out or a), None, None, None, *scales)
    return Problem(arrays, Options(**options))


def build(row: tuple[Any, ...]) -> Config | None:
    """The configuration of one choice of each, if there is one."""
    choice = dict(zip(CHOICES, row, strict=True))
    (a, b), (a_major, b_major) = choice["types"], choice["majors"]
    try:
        return Config(a, choice["out"], b, a_major=a_major, b_major=b_major, **choice["tile"], **choice["sharing"], **choice["raster"],
                      **choice["work"], PROMOTE=choice["promote"], BATCHED=choice["batched"], STAGES=choice["stages"])
    except ConfigError:
        return None


@functools.cache
def pairwise(tries: int = 6000) -> tuple[Config, ...]:
    """A greedy cover of the pairs that occur among `tries` random choices: each time the configuration with the most missing ones."""
    sizes = [len(values) for values in CHOICES.values()]
    bits = {pair: 1 << number for number, pair in enumerate(
        (i, x, j, y) for i, j in itertools.combinations(range(len(sizes)), 2) for x in range(sizes[i]) for y in range(sizes[j]))}
    rng = random.Random(0)
    pool: list[tuple[int, Config]] = []
    for _ in range(tries):
        row = [rng.randrange(size) for size in sizes]
        config = build(tuple(values[at] for values, at in zip(CHOICES.values(), row, strict=True)))
        if config is not None:
            pool.append((sum(bits[i, row[i], j, row[j]] for i, j in itertools.combinations(range(len(row)), 2)), config))
    missing = functools.reduce(int.__or__, (mask for mask, _ in pool))
    found: list[Config] = []
    while missing:
        mask, config = max(pool, key=lambda entry: (entry[0] & missing).bit_count())
        found.append(config)
        missing &= ~mask
    return tuple(found)


def picked(kinds: Iterable[tuple[str, str, bool | None]] = KINDS, sms: int = 132, *,
           grid: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] = COARSE) -> Iterator[Config]:
    """What the heuristic gives over a grid of extents, and for block scales."""
    for (a, out, fast), m, n, k in itertools.product(kinds, grid[0], grid[1], grid[2]):
        yield heuristic(asked(m, n, k, a, out=out, fast_accum=fast), sms)
    for m, n, k in itertools.product((1, 64, 512, 4096), (128, 576, 4096), (512, 7168)):
        yield heuristic(asked(m, n, k, "e4m3", out="bf16", block=True), sms)


def shipped() -> Iterator[Config]:
    """What the tables of the package hold."""
    from ..heuristic.tuned import revive
    from .bench.shapes import problem
    from .tune import described

    for path in sorted(tables.FOLDER.glob("*.json")):
        for kind, entries in tables.Table.read(path).entries.items():
            operands, _, layout = kind.split("/")
            for shape, entry in entries.items():
                yield revive(entry["config"], described(problem(f"{shape}:{operands}:{layout}")))


def structure(config: Config, *, of_types: bool = False) -> tuple[Any, ...]:
    """What decides the code: two configurations of one structure differ in constants, and in types unless `of_types`."""
    shared = (config.BM, config.BN, config.CONSUMERS, config.PINGPONG, config.CLUSTER_M, config.CLUSTER_N, config.MULTICAST, config.SPLITS,
              config.REDUCE if config.SPLITS > 1 else "", config.STORE, config.A_ROWS > 0, config.PROMOTE, config.BLOCK_SCALES,
              config.TICKET, config.STREAM_K, config.A_REGISTERS, config.OVERLAP, config.STAGGER)
    return (*shared, config.a, config.b, config.out, config.a_major, config.b_major, config.BATCHED) if of_types else shared


def distinct(configs: Iterable[Config], *, of_types: bool = False) -> tuple[Config, ...]:
    """The first configuration of each structure."""
    found: dict[tuple[Any, ...], Config] = {}
    for config in configs:
        found.setdefault(structure(config, of_types=of_types), config)
    return tuple(found.values())


def small(config: Config) -> tuple[int, int, int]:
    """M, N, K of a product of one tile for each CTA of a cluster (one for each warpgroup that takes turns), not quite full, whose depth
    goes once round the ring, and is one that its copies of scales can have."""
    unit = 128 // min(config.a.bits, config.out.bits, 16)
    m = config.A_ROWS or config.BM * config.CLUSTER_M * (2 if config.PINGPONG else 1) - unit
    n = max(unit, config.BN * config.CLUSTER_N // unit * unit - (unit if unit < config.BN else 0))
    stages = max(config.STAGES + 1, config.SPLITS + 1, 2 * LEAST * config.STREAM_K)
    return m, n, config.BK * (-(-stages // ALIGNED) * ALIGNED if config.SCALE_BULK else stages) - 16


def name(config: Config) -> str:
    """A configuration in a word."""
    assert config.b is not None
    words = [config.a.__name__, config.b.__name__, config.out.__name__, config.a_major + config.b_major, str(config).replace(" ", "")]
    return "-".join(words + ["promoted"] * config.PROMOTE + ["scaled"] * config.BLOCK_SCALES + ["batched"] * config.BATCHED)


__all__ = ["COARSE", "GRID", "asked", "distinct", "name", "pairwise", "picked", "shipped", "small", "structure"]
