"""Which configuration a problem gets: the least time by a model of one SM's stages, waves of tiles and the last epilogue."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any


from .config import Config, ConfigError

if TYPE_CHECKING:
    from .problem import Problem

STAGE_BYTES = 128           # of depth
# Bytes a clock: what the L2 gives one SM, and what the memory gives all of them (4.6 TB/s at 1.75 GHz).
L2_BYTES, MEMORY_BYTES = 42.0, 2600.0
# Clocks: before the first stage arrives; a tile's epilogue that nothing hides, for each 64 x 8 of a warpgroup's share; a reduction.
PROLOGUE, EPILOGUE, REDUCTION = 1500.0, 14.0, {"cluster": 1500.0, "workspace": 3500.0}


def candidates(problem: Problem, sms: int = 132) -> Iterator[Config]:
    """Configurations worth trying for a problem."""
    fp8 = problem.a.bits == 8
    fixed: dict[str, Any] = {"a": problem.a, "b": problem.b, "out": problem.out, "accumulator": problem.accumulator,
                             "a_major": problem.a_major, "b_major": problem.b_major, "PROMOTE": problem.promote,
                             "BLOCK_SCALES": problem.block_scales, "BATCHED": problem.batches is not None, "FUSION": problem.fusion}
    depth = max(1, -(-problem.k * problem.a.bits // 8 // STAGE_BYTES))
    small = problem.m <= 64
    shapes: list[dict[str, Any]] = []
    for BM in (64, 128, 256):
        if BM > 64 and small:
            continue
        for BN in (32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256):
            if BN > max(32, -(-problem.n // 8) * 8 + 31) or BM * BN > 256 * 192:
                continue
            shapes.append({"BM": BM, "BN": BN})
            if BM <= 128 and BN >= 64 and not problem.promote and not small:
                shapes.append({"BM": BM, "BN": BN, "PINGPONG": True})
    for shape in shapes:
        tiles = -(-problem.m // shape["BM"]) * -(-problem.n // shape["BN"]) * (problem.batches or 1)
        ways: list[dict[str, Any]] = [{}]
        if not shape.get("PINGPONG") and tiles * 2 <= 2 * sms and not fp8:
            for splits in (2, 3, 4, 5, 6, 7, 8, 12, 14, 16):
                if depth < 4 * splits or tiles * splits > sms * 1.02:
                    continue
                ways.append({"SPLITS": splits, "REDUCE": "workspace"})
                if splits in (2, 4, 8) and problem.batches is None:
                    ways.append({"SPLITS": splits, "REDUCE": "cluster"})
        if problem.m > shape["BM"] and shape["BN"] >= 64:
            ways.append({"CLUSTER_M": 2})
        if problem.n > shape["BN"] and shape["BM"] >= 128:
            ways.append({"CLUSTER_N": 2})
        for way in ways:
            try:
                yield Config(**fixed, **shape, **way)
            except ConfigError:
                continue


def clocks(problem: Problem, config: Config, sms: int) -> float:
    """The model: SM clocks of one launch."""
    depth = max(1, -(-problem.k * problem.a.bits // 8 // STAGE_BYTES))
    rows, columns = -(-problem.m // config.BM), -(-problem.n // config.BN)
    clusters = -(-rows // config.CLUSTER_M) * -(-columns // config.CLUSTER_N) * (problem.batches or 1)
    in_cluster = config.SPLITS > 1 and config.REDUCE == "cluster"
    ctas = clusters * config.CLUSTER_M * config.CLUSTER_N * config.SPLITS
    resident = sms if config.cluster <= 2 else sms - sms % (4 * config.cluster // 2)
    waves = ctas / resident
    waves = math.ceil(waves - 1e-9) if waves <= 6 else waves + 0.5
    a_rows = min(config.BM, problem.m)
    loaded = (a_rows / config.CLUSTER_N + config.BN / config.CLUSTER_M) * STAGE_BYTES
    read = max(1.0, (64 + 4096 / config.BN) / 128)
    multiplied = config.BM / 64 * config.BN / 2 * 4 * read
    if config.PROMOTE:
        multiplied *= 1.15
    stage = max(multiplied, loaded / L2_BYTES) + (40 if config.CONSUMERS == 1 else 8)
    steps = -(-depth // config.SPLITS)
    epilogue = EPILOGUE * config.slabs * config.BN / 8
    if config.PINGPONG:
        tile = steps * stage + 100
        total = PROLOGUE + waves * tile + epilogue
    else:
        total = PROLOGUE + waves * (steps * stage + epilogue)
    if config.SPLITS > 1:
        total += REDUCTION[config.REDUCE] + waves * config.SPLITS * 60
    if in_cluster:
        total += 300
    size = problem.a.bits / 8
    bytes = (problem.m * problem.k + problem.n * problem.k) * size + problem.m * problem.n * problem.out.bits / 8
    streaming = min(1.0, ctas / sms)
    return max(total, PROLOGUE + bytes * (problem.batches or 1) / (MEMORY_BYTES * streaming))


def heuristic(problem: Problem, sms: int = 132) -> Config:
    """The configuration for a problem on a device with `sms` SMs."""
    best, least = None, math.inf
    for config in candidates(problem, sms):
        time = clocks(problem, config, sms)
        if time < least * 0.995:
            best, least = config, time
    assert best is not None
    return best


__all__ = ["candidates", "clocks", "heuristic"]
