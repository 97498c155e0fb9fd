"""`python -m ptxkit.gemm fit --grouped --overlaps --card h200 DATA.json`: the trees of `heuristic.grouped_overlaps`, from what
`grouped --sweep --variants overlaps` measured. What counts, and how it is held out, is as in `overlaps_fit`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ptxkit.cards import Card

from ..heuristic.group_tile import GroupTile
from ..heuristic.grouped import alone, usual_tile
from ..heuristic.grouped_features import judged
from ..heuristic.grouped_overlaps import NAMES, begins, path_of, takes
from ..heuristic.grouped_trees import tiles
from ..problem.grouped import GroupProblem
from .grouped_fit import problem_in
from .measured import DataError
from .overlaps_fit import FAST, Changes, kept


def changes(sweeps: Sequence[Mapping[str, Any]], card: Card) -> tuple[Changes, int]:
    """The changes in some sweeps, and the number of products."""
    found: list[tuple[int, Any, list[float], float]] = []
    products = 0
    for row in (row for sweep in sweeps for row in sweep["rows"]):
        problem = problem_in(row)
        if not takes(problem):
            continue
        times = {one["config"]: float(one["us"]) for one in row["configs"]}
        every = dict(_measured(problem, times, card))
        if not every:
            continue
        clocks, asked = judged(problem, tuple(every), card)
        best = min(us[0] for us in every.values())
        near = [(products, told, us, best) for told, total, us in zip(asked, clocks, every.values(), strict=True)
                if math.isfinite(total) and us[0] < FAST * best]
        found, products = found + near, products + bool(near)
    if not found:
        raise DataError("no tile in these files was measured with every begin of the next kernel: `grouped --sweep --variants overlaps` "
                        "does that")
    product, told, us, least = zip(*found, strict=True)
    return Changes(np.array(product), np.stack(told), np.array(us), np.array(least)), products


def _measured(problem: GroupProblem, times: Mapping[str, float], card: Card) -> Iterator[tuple[GroupTile, list[float]]]:
    """The tiles that were measured with every begin, and their times by begin."""
    for tile in dict.fromkeys((usual_tile(problem, card), *tiles(problem, card))):
        names = [str(alone(each, problem)) for each in begins(tile)]
        if len(names) > 1 and all(name in times for name in names):
            yield tile, [times[name] for name in names]


def fit(sweeps: Sequence[Mapping[str, Any]], card: Card, output: Path | None = None) -> int:
    """What `overlaps_fit.kept` returns."""
    some, products = changes(sweeps, card)
    return kept(some, output or path_of(card), {"device": card.name, "products": products}, NAMES)


__all__ = ["changes", "fit"]
