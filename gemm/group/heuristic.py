"""Which configuration a group product gets, from the expected number of tokens of a group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..config import ConfigError
from .config import GroupConfig
from .problem import GroupProblem

FEW = 128
"""Tokens of a group up to which weights take longer to read than to multiply: then tokens are columns, as few as there are."""


def fixed(problem: GroupProblem) -> dict[str, Any]:
    """What the problem leaves no choice in."""
    return {"x": problem.x, "w": problem.w, "out": problem.out, "GROUPS": problem.capacity, "LAYOUT": problem.options.layout,
            "SCALED": problem.scaled, "GATED": problem.options.gated, "PROMOTE": problem.promote, "BLOCK_SCALES": problem.block_scales}


def heuristic(problem: GroupProblem, sms: int = 132) -> GroupConfig:
    """The configuration for a problem."""
    choice = fixed(problem)
    few = 96 if choice["GATED"] and problem.promote else FEW       # both projections and their promoted sums are one thread's
    if problem.mean <= few:
        tokens = next((size for size in (8, 16, 24, 32, 48, 64, 96) if problem.mean <= size), 128)
        return GroupConfig.of(**choice, TRANSPOSED=True, BM=128, BN=tokens, CONSUMERS=1 if choice["GATED"] else 2, STREAM_W=True)
    if problem.promote:
        BN = 128
    else:
        BN = 256
    return GroupConfig.of(**choice, BM=128, BN=BN)


def candidates(problem: GroupProblem) -> Iterator[GroupConfig]:
    """Configurations worth trying for a problem, the heuristic's first."""
    choice = fixed(problem)
    first = heuristic(problem)
    yield first
    seen = {first}
    for each in _shapes(problem):
        try:
            config = GroupConfig.of(**choice, **each)
        except ConfigError:
            continue
        if config not in seen:
            seen.add(config)
            yield config


def _shapes(problem: GroupProblem) -> Iterator[dict[str, Any]]:
    span = 1024 // problem.x.bits                               # elements of 128 bytes
    if problem.mean <= 512:
        sizes = (8, 16, 32, 48, 64, 96, 128, 192, 256)
        fit = next((i for i, size in enumerate(sizes) if problem.mean <= size), len(sizes) - 1)
        for BN in sizes[max(0, fit - 1):fit + 2]:
            for BM, CONSUMERS, BK in ((64, 1, span), (64, 1, 2 * span), (128, 1, span), (128, 2, span), (128, 2, 2 * span), (256, 2, span)):
                for stream in (True, False) if BM == 128 and span == BK else (True,):
                    yield {"TRANSPOSED": True, "BM": BM, "BN": BN, "BK": BK, "CONSUMERS": CONSUMERS, "STREAM_W": stream}
    if problem.mean >= 64:
        wide = (112, 128, 144, 160, 192) if problem.promote else (128, 192, 256)
        for BM in (64, 128, 256):
            for BN in wide:
                for cluster in ({}, {"CLUSTER_M": 2}, {"CLUSTER_N": 2}):
                    if BM < 256 or BN <= 128:
                        yield {"BM": BM, "BN": BN, **cluster}
                    if not problem.promote and BM < 256 and "CLUSTER_N" not in cluster:
                        yield {"BM": BM, "BN": BN, "PINGPONG": True, **cluster}
        yield {"BM": 128, "BN": 128 if problem.promote else 256, "GROUP": 16}
        yield {"BM": 128, "BN": 128 if problem.promote else 256, "GROUP": 4}


__all__ = ["candidates", "fixed", "heuristic"]
