"""What trees can ask about the tiles of a grouped product: what the causes say of them, and the kind of the product."""

from __future__ import annotations

import functools
from dataclasses import fields
from math import gcd
from typing import Any

import numpy as np

from ptxkit.cards import Card

from ..problem.grouped import GroupProblem
from ..scheduler.group_table import CONTIGUOUS_ROWS, COUNTED
from . import grouped_kinds
from .corrections import in_rows, log2
from .costs import LINE
from .group_tile import GroupTile
from .grouped_causes import Columns, clocks_of
from .grouped_lines import pitches

Values = Any                    # a number or an array of them


def describe(problem: GroupProblem) -> bool:
    """Whether features tell what a product's time depends on. Its results have 16 bits, and lie as the rows of X do. Its groups are in one
    matrix, and the kernel reads their lengths. It has no scales, one scale for each group, or scales of blocks that producers copy."""
    layout = problem.options.layout
    stored = problem.by_element or problem.scatter or problem.gathered or problem.quantised or problem.out.bits != 16
    if problem.empty or stored or problem.options.order or problem.vectors or not (layout in COUNTED or layout == "contiguous"):
        return False
    return not problem.promote or (problem.scales_in_shared and problem.scales_by_producer)


def operations(problem: GroupProblem) -> float:
    """The multiplications and additions. With a gate there are two products, and both count."""
    return 2 * problem.mean * problem.groups * problem.n * (1 + problem.options.gated) * problem.k


def features(problem: GroupProblem, some: tuple[GroupTile, ...], seen: Columns, clocks: Any) -> dict[str, Values]:
    """What a tree can ask about tiles: a number for each tile, or one for all. `clocks` [lengths, tiles] come from `clocks_of`."""
    mean, groups, n, k, size = problem.mean, problem.groups, problem.n * (1 + problem.options.gated), problem.k, problem.x.bits / 8
    own = {field.name: getattr(seen, field.name)[:, 0] for field in fields(seen)}
    rows, across, total = np.ceil(mean / own["tokens"]), np.ceil(n / own["features"]), clocks.sum(axis=0)
    down, every = rows * groups, mean * groups
    if problem.options.layout == "contiguous":                  # whose number of blocks is known
        every = problem.blocks * CONTIGUOUS_ROWS
        down = every / own["tokens"]
    count = down * across
    waves, moved = count / own["resident"], (every + groups * n) * k * size + every * problem.n * problem.out.bits / 8
    x, w = pitches(problem)
    return {
        "mean": log2(mean), "groups": log2(groups), "n": log2(n), "k": log2(k), "x line": gcd(x, LINE), "w line": gcd(w, LINE),
        "y line": gcd(n * problem.out.bits // 8, LINE), **own, "sorted": np.array([each.longest_first for each in some]),
        "given stages": np.array([each.stages for each in some]), "rows": rows, "across": across,
        "full tokens": mean / (rows * own["tokens"]), "full features": n / (across * own["features"]), "waves": waves,
        "last wave": waves - np.floor(waves), "busy": np.minimum(waves, 1.0), "total": log2(total), "alike": log2(clocks[0] / total),
        "skewed": log2(clocks[-1] / total), "tile": log2(own["tokens"] * own["features"]), "bytes": log2(moved),
        "intensity": log2(2 * every * n * k / moved), "all tiles": log2(count),
        "full clusters": across / (np.ceil(across / own["along_weights"]) * own["along_weights"]),
        **grouped_kinds.kind(problem, some)}


def judged(problem: GroupProblem, some: tuple[GroupTile, ...], card: Card) -> tuple[Any, Any]:
    """The clocks of a launch by the causes, in the mean over the lengths that are counted, and the features [tiles, NAMES]."""
    seen = _columns(some, problem.x.bits, card)
    clocks = clocks_of(problem, seen, card)
    return clocks.mean(axis=0), in_rows(features(problem, some, seen, clocks).values(), len(some))


@functools.lru_cache(256)
def _columns(some: tuple[GroupTile, ...], bits: int, card: Card) -> Columns:
    return Columns.of(some, card, as_they_are=True, bits=bits)


OF_TILES = ("mean", "groups", "n", "k", "x line", "w line", "y line", *(field.name for field in fields(Columns)), "sorted", "given stages",
            "rows", "across", "full tokens", "full features", "waves", "last wave", "busy", "total", "alike", "skewed", "tile", "bytes",
            "intensity", "all tiles", "full clusters")
"""What the trees of every forest can ask about."""
NAMES = (*OF_TILES, *grouped_kinds.NAMES)
"""All features, in the order of the files. The last ones tell the kind of a product."""


__all__ = ["NAMES", "OF_TILES", "describe", "features", "judged", "operations"]
