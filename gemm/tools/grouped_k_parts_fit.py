"""`python -m ptxkit.gemm fit --grouped-k --parts --card h200 DATA.json`: the trees of `heuristic.grouped_k_parts`, from what
`benchmarks/weight_gradients.py --sweep SEED:COUNT --parts` measured.

They learn what is left of the times of candidates whose CTAs share tiles, beyond the trees of configurations. A fifth of the products is
held out in turn; what is told of a product comes from trees that have not seen it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ptxkit.cards import Card

from ..heuristic.corrections import write
from ..heuristic.grouped_k import GAIN_OF_PARTS, Weighed, chooses
from ..heuristic.grouped_k_parts import NAMES_OF_PARTS, matrix, parts_beside
from ..heuristic.grouped_k_trees import path_of
from . import held_out
from .bench.grouped_k import product
from .grow import Growth
from .held_out import FOLDS, Entries
from .measured import DataError, time_of

FAR = 3.0                       # times the best's time, from which one teaches nothing
GROWTH = Growth(600, 6, 0.1)


@dataclass(frozen=True, slots=True)
class Measured(Entries):
    """Measured candidates of products."""

    own_clocks: Any                             # for each product the logarithm of the clocks of what is chosen without parts
    own_us: Any                                 # and its microseconds


def measured(sweeps: Sequence[Mapping[str, Any]], card: Card) -> Measured:
    """The candidates in some sweeps, of products whose choice without parts was measured. Raises DataError where there is none."""
    found: list[tuple[Any, Any, Any]] = []      # what trees are told, the logarithms of clocks, microseconds
    own: list[tuple[float, float]] = []
    for row in (row for sweep in sweeps for row in sweep["rows"]):
        problem = product(row["product"]).problem
        times = {one["config"]: time_of(one["us"]) for one in row["configs"]}
        if not chooses(problem, card):
            continue
        every = Weighed.of(problem, card)
        clocks, config = every.whole(card)
        some = every.shared(problem, card)
        if some is None or str(config) not in times:
            continue
        us = np.array([times.get(str(every.shared_config(some, place)), math.nan) for place in range(len(some.part))])
        there = np.flatnonzero(np.isfinite(us))
        if len(there):
            some = some.some(there)
            found.append((matrix(problem, every.told, some), every.clocks[some.places] + some.change, us[there]))
            own.append((clocks, times[str(config)]))
    if not found:
        raise DataError("no product in these files was measured with parts beside what is chosen without: `benchmarks/weight_gradients.py "
                        "--sweep SEED:COUNT --parts` does that")
    sizes = [len(us) for *_, us in found]
    asked, clocks_of_all, us_of_all = (np.concatenate([each[place] for each in found]) for place in range(3))
    best = np.repeat([float(us.min()) for *_, us in found], sizes)
    return Measured(np.repeat(np.arange(len(sizes)), sizes), asked, clocks_of_all, us_of_all, best, *np.array(own).T)


def changes(some: Measured, said: Any) -> tuple[Any, Any]:
    """The time of the choice over that of the choice without parts, by product: by what was said, and at best."""
    every = np.split(np.arange(len(said)), np.flatnonzero(np.diff(some.product)) + 1)
    first = np.array([mine[np.argmin(said[mine])] for mine in every])
    chosen = np.where(said[first] < some.own_clocks + math.log(1 - GAIN_OF_PARTS), some.us[first], some.own_us)
    return chosen / some.own_us, np.minimum(1.0, some.best[first] / some.own_us)


def fit(sweeps: Sequence[Mapping[str, Any]], card: Card, output: Path | None = None) -> int:
    """0: trees were grown and kept. 1: they choose no better than what is chosen without parts, and nothing is kept."""
    some = measured(sweeps, card)
    if len(some.own_us) < FOLDS:
        raise DataError(f"there are {len(some.own_us)} products in these files, and {FOLDS} are the least")
    taken, best = changes(some, held_out.unseen(some, card, GROWTH, FAR))
    mean, least = (math.exp(float(np.log(each).mean())) for each in (taken, best))
    lines = [f"{len(taken)} products, over the time without parts: {mean:.4f} where trees choose that have not seen the product "
             f"({float((taken != 1).mean()):.2f} of all get parts; most {taken.max():.3f}), {least:.4f} with the best"]
    print("\n".join(lines))
    if not np.log(taken).mean() < 0:
        print("there is nothing to be gained")
        return 1
    about = {"device": card.name, "products": len(some.own_us), "candidates": len(some.us), "held_out": lines}
    trees = held_out.taught(some, np.ones(len(some.us), dtype=bool), card, GROWTH, FAR)
    write(output or parts_beside(path_of(card)), trees, about, NAMES_OF_PARTS)
    return 0


__all__ = ["Measured", "changes", "fit", "measured"]
