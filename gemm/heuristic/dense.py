"""Which configuration a problem gets: the least time by a model of one SM's stages, waves of tiles and the last epilogue."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ..collective.mainloop import PROMOTED
from ..collective.thread_scales import BLOCK
from ..config.dense import Config, ConfigError
from ..problem.dense import FEW_ROWS, Problem

STAGE_BYTES = 128           # of depth
# Fitted to some 900 measurements over 43 shapes on an H200 (docs/performance.md). Bytes a clock: what the L2 gives one SM, and what the
# memory gives all of them. Clocks: before the first stage arrives; a stage beside its products, with one consumer and with more; an
# epilogue for each 64 x 8 of a warpgroup's share; a cluster's start; a reduction at once, and bytes a clock of partial sums.
MODEL = {"l2": 100.0, "memory": 3280.0, "prologue": 5300.0, "stage_1": 92.0, "stage": 44.0, "epilogue": 132.0, "cluster": 13.0,
         "reduce_cluster": 1190.0, "reduce_workspace": 3210.0, "sums_cluster": 6.6, "sums_workspace": 7.2, "promote": 1.45, "overlap": 1.15,
         "stagger": 1.14, "promote_3": 1.125, "promote_192": 1.125}

RESIDENT = {1: 132, 2: 132, 3: 117, 4: 120, 6: 102, 8: 120}
"""CTAs at work at a time by the size of their clusters, each on an SM of its own, of 132: those of a cluster are on SMs of one GPC."""
WORTH_SPLITTING = 0.99
"""Share of the time that a depth in more parts may take at most to be chosen."""


def candidates(problem: Problem, sms: int = 132) -> Iterator[Config]:
    """Configurations worth trying for a problem."""
    fixed = {**problem.fixed, **problem.reading}
    depth = max(1, -(-problem.k * problem.a.bits // 8 // STAGE_BYTES))
    small = problem.m <= 64
    if small or (problem.m <= FEW_ROWS and problem.k >= 1024):
        fixed["STREAM_B"] = True                # of few rows the weights are read once: they need not stay in the L2
    if problem.m <= 56 and problem.a_major == "k":
        fixed["A_ROWS"] = -(-problem.m // 8) * 8
    shapes: list[dict[str, Any]] = []
    for BM in (64, 128, 192, 256):
        if (BM > 64 and small) or (BM == 192 and not problem.promote):
            continue
        for BN in (32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256):
            if max(32 if problem.b_major == "k" else 64, -(-problem.n // 8) * 8 + 31) < BN or BM * BN > 256 * 192:
                continue
            if BM == 192 and BN != 128:
                continue
            if problem.promote and ((BLOCK % BN and BN % 64) or (BM > 64 and BN < 128) or BN > PROMOTED):
                continue                        # many factors for a thread; more reading of A than work; 256 x 128 is faster
            shapes.append({"BM": BM, "BN": BN, **(_promoted(BM, BN) if problem.promote else {})})
            if (BM, BN) == (128, 256) and not problem.promote and problem.out.bits == 16 and problem.m * problem.n > sms * BM * BN:
                shapes[-1] |= {"STAGES": 3, "BUFFERS": 4}       # all boxes of a warpgroup stored at once are worth a stage of the ring
            if BM <= 128 and BN >= 64 and not problem.promote and not small:
                shapes.append({"BM": BM, "BN": BN, "PINGPONG": True})
    for shape in shapes:
        tiles = -(-problem.m // shape["BM"]) * -(-problem.n // shape["BN"]) * (problem.batches or 1)
        ways: list[dict[str, Any]] = [{"TICKET": True} if problem.promote else {}]
        if not shape.get("PINGPONG") and tiles <= sms:
            for splits in (2, 3, 4, 5, 6, 7, 8, 12, 14, 16):
                if depth < 4 * splits or tiles * splits > sms * 1.02:
                    continue
                ways.append({"SPLITS": splits, "REDUCE": "workspace"})
                if splits in (2, 4, 8) and problem.batches is None:
                    ways.append({"SPLITS": splits, "REDUCE": "cluster"})
        if problem.m > shape["BM"] and shape["BN"] >= 64 and not problem.promote:
            ways.append({"CLUSTER_M": 2})
        if problem.n > shape["BN"] and shape["BM"] >= 128 and not problem.promote:
            ways.append({"CLUSTER_N": 2})
        for way in ways:
            try:
                yield Config(**fixed, **shape, **way)
            except ConfigError:
                continue


def _promoted(BM: int, BN: int) -> dict[str, Any]:
    """How a tile whose sums are promoted is worked on."""
    if BM * BN <= 128 * 128:
        return {"OVERLAP": True}
    if BM == 192:
        return {"RASTER": "along_n", "GROUP": 16}
    return {"GROUP": 16} if (BM, BN) == (128, 192) else {"STAGGER": True}


def clocks(problem: Problem, config: Config, sms: int) -> float:
    """The model: SM clocks of one launch."""
    depth = max(1, -(-problem.k * problem.a.bits // 8 // STAGE_BYTES))
    rows, columns = -(-problem.m // config.BM), -(-problem.n // config.BN)
    clusters = -(-rows // config.CLUSTER_M) * -(-columns // config.CLUSTER_N) * (problem.batches or 1)
    ctas = clusters * config.CLUSTER_M * config.CLUSTER_N * config.SPLITS
    resident = sms * RESIDENT.get(config.cluster, 120) // 132
    waves = ctas / resident
    if not config.STREAM_K:
        waves = math.ceil(waves - 1e-9) if waves <= (16 if config.TICKET else 6) else waves + 0.5
    a_rows = min(config.BM, problem.m)
    loaded = (a_rows / config.CLUSTER_N + config.BN / config.CLUSTER_M) * STAGE_BYTES
    read = max(1.0, (64 + 4096 / config.BN) / 128)
    multiplied = config.BM / 64 * config.BN / 2 * 4 * read * (MODEL[_promotion(config)] if config.PROMOTE else 1.0)
    stage = max(multiplied, loaded / MODEL["l2"]) + MODEL["stage_1" if config.CONSUMERS == 1 else "stage"]
    steps = -(-depth // config.SPLITS)
    epilogue = MODEL["epilogue"] * config.slabs * config.BN / 8
    total = MODEL["prologue"] + (MODEL["cluster"] if config.cluster > 1 else 0.0)
    if config.PINGPONG:
        total += waves * (steps * stage + 100) + epilogue
    else:
        total += waves * (steps * stage + epilogue)
    if config.SPLITS > 1:
        total += MODEL[f"reduce_{config.REDUCE}"] + waves * config.BM * config.BN * 4 / MODEL[f"sums_{config.REDUCE}"]
    if config.STREAM_K:                         # a trip of one tile's sums for each CTA, taken to be as long as that of a split depth
        total += MODEL["reduce_workspace"] + config.BM * config.BN * 4 / MODEL["sums_workspace"]
    size = problem.a.bits / 8
    bytes = (problem.m * problem.k + problem.n * problem.k) * size + problem.m * problem.n * problem.out.bits / 8
    streaming = min(1.0, ctas / sms)
    return max(total, MODEL["prologue"] + bytes * (problem.batches or 1) / (MODEL["memory"] * streaming) + 0.1 * total)


def _promotion(config: Config) -> str:
    """The way of promotion that says how much longer a stage takes."""
    if config.OVERLAP:
        return "overlap"
    if config.STAGGER:
        return "stagger"
    return "promote_3" if config.CONSUMERS == 3 else "promote_192" if (config.BM, config.BN) == (128, 192) else "promote"


def heuristic(problem: Problem, sms: int = 132) -> Config:
    """The configuration for a problem on a device with `sms` SMs."""
    best, least = None, math.inf
    for config in candidates(problem, sms):
        time = clocks(problem, config, sms)
        if best is None or time < least * (WORTH_SPLITTING if config.SPLITS > best.SPLITS else 0.995):
            best, least = config, time
    assert best is not None
    return best


__all__ = ["candidates", "clocks", "heuristic"]
