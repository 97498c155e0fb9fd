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
    if problem.mean <= FEW:
        tokens = next((size for size in (8, 16, 24, 32, 48, 64, 96) if problem.mean <= size), 128)
        return GroupConfig.of(**choice, TRANSPOSED=True, BM=128, BN=tokens, CONSUMERS=1 if choice["GATED"] else 2, STREAM_W=True)
    if problem.promote:
        BN = 128
    else:
        BN = 256
    return GroupConfig.of(**choice, BM=128, BN=BN)


def candidates(problem: GroupProblem) -> Iterator[GroupConfig]:
    """Configurations worth trying for a problem."""
    choice = fixed(problem)
    found: list[dict[str, Any]] = []
    if problem.mean <= 512:
        sizes = [size for size in (8, 16, 24, 32, 48, 64, 96, 128, 192, 256) if problem.mean / 4 <= size <= max(8.0, 2 * problem.mean)]
        for BN in sizes:
            for BM in (64, 128, 256):
                for BK in (128, 256) if problem.x.bits == 8 else (64, 128):
                    for CONSUMERS in (1, 2):
                        for stream in (False, True):
                            found.append({"TRANSPOSED": True, "BM": BM, "BN": BN, "BK": BK, "CONSUMERS": CONSUMERS, "STREAM_W": stream})
    if problem.mean >= 48:
        for BM in (64, 128, 256):
            for BN in (64, 96, 112, 128, 160, 192, 224, 256):
                for cluster in ({}, {"CLUSTER_M": 2}, {"CLUSTER_N": 2}):
                    for pingpong in (False, True):
                        for raster in ({}, {"GROUP": 16}, {"GROUP": 4}) if problem.mean > 2048 else ({},):
                            found.append({"BM": BM, "BN": BN, "PINGPONG": pingpong, **cluster, **raster})
    for each in found:
        try:
            yield GroupConfig.of(**choice, **each)
        except ConfigError:
            continue


__all__ = ["candidates", "fixed", "heuristic"]
