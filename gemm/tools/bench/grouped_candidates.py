"""Configurations of group products to be measured beside each other: every tile that is chosen from, and what else may be worth trying."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...config.grouped import GroupConfig
from ...heuristic.grouped import SINGLE, alone, heuristic, single
from ...heuristic.grouped_tiles import FEW, FITTED_BY_TICKET, OF_THREE, WIDE, scale_ring, tile_name, tiles_of
from ...problem.grouped import GroupProblem


def each_tile(problem: GroupProblem) -> dict[str, GroupConfig]:
    """The tiles that are chosen from where groups have more than a few tokens, each in a kernel that works whatever the lengths."""
    ways = scale_ring(problem)
    found = {tile_name(kind.tile): alone({**kind.tile, **ways}, problem) for kind in tiles_of(problem)}
    return {name: config for name, config in found.items() if config is not None}


def candidates(problem: GroupProblem) -> Iterator[GroupConfig]:
    """Configurations worth trying for a problem, the heuristic's first."""
    first = heuristic(problem)
    found = dict.fromkeys((first, *(each.alone for each in first.kernels)))
    yield from found
    seen = set(found)
    for each in _shapes(problem):
        config = alone(each, problem)
        if config is not None and config not in seen:
            seen.add(config)
            yield config


def _shapes(problem: GroupProblem) -> Iterator[dict[str, Any]]:
    span = 1024 // problem.x.bits                               # elements of 128 bytes
    if problem.mean <= 2 * FEW:
        sizes = (8, 16, 32, 48, 64, 96, 128, 192, 256)
        fit = next((i for i, size in enumerate(sizes) if problem.mean <= size), len(sizes) - 1)
        for BN in sizes[max(0, fit - 1):fit + 2]:
            for BM, CONSUMERS, BK in ((64, 1, span), (64, 1, 2 * span), (128, 1, span), (128, 2, span), (128, 2, 2 * span), (256, 2, span)):
                for order in ("linear", "ticket"):
                    yield {"TRANSPOSED": True, "BM": BM, "BN": BN, "BK": BK, "CONSUMERS": CONSUMERS, "GROUP": 1, "ORDER": order}
    if not problem.promote:
        yield from _fitted_shapes(problem)
    ways = scale_ring(problem)
    if problem.mean <= FEW:
        for BN in (128, 192, 256):
            for more in ({}, {"OVERLAP": True}) if problem.promote else ({}, {"PINGPONG": True}):
                for order in ("linear", "ticket"):
                    for stream in (True, False):
                        yield {"BM": 64, "BN": BN, "ORDER": order, "STREAM_W": stream, **more, **ways}
    if problem.mean >= FEW // 2:
        for tile in (kind.tile for kind in tiles_of(problem)):
            yield {**tile, **ways}
            yield {**tile, **ways, "ORDER": "linear" if "ORDER" in tile else "ticket"}
            yield {**tile, **ways, "ORDER": "ticket", "LONGEST_FIRST": True, "FROM_END": 0}
            yield {**tile, **ways, "STREAM_W": not single(problem)}
        for order in ("linear", "ticket"):
            yield from ({**tile, **ways, "ORDER": order} for tile in (_promoted_shapes(problem) if problem.promote else _fast_shapes()))


def _fast_shapes() -> Iterator[dict[str, Any]]:
    for BM in (64, 128, 192, 256):
        for BN in (128, 192, 256):
            yield {"BM": BM, "BN": BN}
            if BM < 192:
                yield {"BM": BM, "BN": BN, "PINGPONG": True}
    yield {"BM": 128, "BN": 256, "GROUP": 16}
    yield {"BM": 128, "BN": 256, "GROUP": 4}
    yield {"BM": 192, "BN": 192, "STAGES": 4, "BUFFERS": 1}
    yield {"BM": 192, "BN": 128, "STAGES": 5, "BUFFERS": 1}


def _fitted_shapes(problem: GroupProblem) -> Iterator[dict[str, Any]]:
    span, few = 1024 // problem.x.bits, problem.mean <= FEW
    if few:
        shapes = [(64, 16), (64, 32), (64, 64), (128, 64)] if problem.mean <= SINGLE else [(64, 64), (64, 128), (128, 128), (128, 192)]
    else:
        shapes = [(256, 192), (192, 192), (128, 256), (128, 192), (256, 128), (128, 128)]
    for BM, BN in shapes:
        for which in (False, True):
            for BK in (span, 2 * span) if problem.mean <= SINGLE else (span,):
                yield {**FITTED_BY_TICKET, "BM": BM, "BN": BN, "BK": BK, "LONGEST_FIRST": which and not few, "STREAM_W": which and few}


def _promoted_shapes(problem: GroupProblem) -> Iterator[dict[str, Any]]:
    for BN in (112, 128, 144, 160, 192):
        yield {"BM": 128, "BN": BN}
    yield {"BM": 256, "BN": 128}
    yield {**OF_THREE, "LONGEST_FIRST": False}
    yield {"BM": 128, "BN": 192, "STAGGER": True}
    yield {**WIDE, "STAGGER": False}
    yield {**WIDE, "STAGGER": True, "SERPENTINE": True}
    yield {"BM": 64, "BN": 192}
    for BM in (64, 128):
        yield {"BM": BM, "BN": 128}
        if problem.block_scales:
            yield {"BM": BM, "BN": 128, "OVERLAP": True}


__all__ = ["candidates", "each_tile"]
