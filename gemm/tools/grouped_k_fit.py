"""`python -m ptxkit.gemm fit --grouped-k --card h200 DATA.json`: the trees of `heuristic.grouped_k_trees`, from what
`benchmarks/weight_gradients.py --sweep` measured.

A fifth of the products is held out of the trees in turn, and what is told of a product comes from trees that have not seen it; the trees
that are kept have seen all. Other trees, of those that were measured with every begin of the next kernel, are kept beside them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ptxkit.cards import Card

from ..heuristic.corrections import write
from ..heuristic.grouped_k import GAIN, risk
from ..heuristic.grouped_k_causes import begins, judged
from ..heuristic.grouped_k_parts import parts_beside
from ..heuristic.grouped_k_trees import NAMES, NAMES_OF_BEGINS, begins_beside, matrix, path_of
from . import held_out
from .bench.grouped_k import product
from .grow import Growth
from .held_out import FOLDS, Entries
from .measured import DataError, best_of, time_of
from .overlaps_fit import FAST, Changes, kept

FAR = 2.5                       # times the best's time, from which one teaches nothing; lengths that differ make many slow
GROWTH = Growth(600, 7, 0.1)


@dataclass(frozen=True, slots=True)
class Measured(Entries):
    """Measured configurations of products, whose clocks are those by the model."""

    risk: Any                                   # what the clocks are raised by where a configuration is chosen
    own: Any                                    # for each product the entry of the choice without trees
    begun: Changes | None                       # those that were measured with every begin of the next kernel


def sweep(path: Path) -> Any:
    """What a sweep wrote. Raises DataError."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        found["device"]["name"], [(row["product"], [(one["config"], one["us"][0]) for one in row["configs"]]) for row in found["rows"]]
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, LookupError, TypeError):
        raise DataError(f"{path} is not what `benchmarks/weight_gradients.py --sweep` writes") from None
    return found


def measured(sweeps: Sequence[Mapping[str, Any]], card: Card) -> Measured:
    """The configurations in some sweeps, of products whose choice without trees was measured. Raises DataError where there is none."""
    found: list[tuple[Any, Any, Any, Any, float]] = []
    changes: list[tuple[int, Any, list[float], float]] = []
    own: list[int] = []
    for row in (row for sweep in sweeps for row in sweep["rows"]):
        problem = product(row["product"]).problem
        times = {one["config"]: time_of(one["us"]) for one in row["configs"]}
        every = judged(problem, card)
        names = [str(config) for config in every.configs]
        some = [place for place, name in enumerate(names) if name in times]
        if every.own not in some:
            continue
        best = best_of([(one["config"], *one["us"]) for one in row["configs"]])
        own.append(some.index(every.own) + sum(len(us) for *_, us, _ in found))
        asked = matrix(every.said, every.dynamic)[some]
        us = np.array([times[names[place]] for place in some])
        for place, told in zip(some, asked, strict=True):
            begun = [times.get(str(each), 0.0) for each in begins(every.configs[place])]
            if len(begun) > 1 and all(begun) and begun[0] < FAST * best:
                changes.append((len(found), told, begun, best))
        found.append((asked, every.said.blended[some], risk(every.said)[some], us, best))
    if not found:
        raise DataError("no product in these files was measured in the configurations that are chosen from")
    rows, clocks, risks, times_of_all, best_us = zip(*found, strict=True)
    sizes = [len(each) for each in times_of_all]
    some_begun = Changes(*map(np.array, zip(*changes, strict=True))) if changes else None
    return Measured(np.repeat(np.arange(len(sizes)), sizes), np.concatenate(rows), np.concatenate(clocks), np.concatenate(times_of_all),
                    np.repeat(best_us, sizes), np.concatenate(risks), np.array(own), some_begun)


def regrets(some: Measured, said: Any) -> tuple[Any, Any]:
    """The time of the choice over that of the best that was measured, by product: without trees, and by what they said."""
    first = np.array([mine[np.argmin(said[mine])] for mine in np.split(np.arange(len(said)), np.flatnonzero(np.diff(some.product)) + 1)])
    chosen = np.where(said[first] < said[some.own] + math.log(1 - GAIN), first, some.own)
    return some.us[some.own] / some.best[some.own], some.us[chosen] / some.best[chosen]


def fit(sweeps: Sequence[Mapping[str, Any]], card: Card, output: Path | None = None) -> int:
    """0: trees were grown and kept. 1: they choose no better than what is chosen without them, and nothing is kept."""
    some = measured(sweeps, card)
    if len(some.own) < FOLDS:
        raise DataError(f"there are {len(some.own)} products in these files, and {FOLDS} are the least")
    before, after = regrets(some, held_out.unseen(some, card, GROWTH, FAR) + some.risk)
    lines = held_out.told(before, after)
    print("\n".join(lines))
    if not np.log(after).mean() < np.log(before).mean():
        print("there is nothing to be gained")
        return 1
    about = {"device": card.name, "products": len(some.own), "configurations": len(some.us), "held_out": lines}
    path = path_of(card, output)
    write(path, held_out.taught(some, np.ones(len(some.us), dtype=bool), card, GROWTH, FAR), about, NAMES)
    beside = begins_beside(path)
    about = {"device": card.name, "products": len(np.unique(some.begun.product)) if some.begun is not None else 0}
    if some.begun is None or kept(some.begun, beside, about, NAMES_OF_BEGINS):
        beside.unlink(missing_ok=True)          # the next kernel begins with the product, whatever older trees said
        print(f"{beside.name}: no trees say when the next kernel begins")
    if (stale := parts_beside(path)).is_file():
        print(f"{stale.name} was learned beside other trees: run `fit --grouped-k --parts` again")
    return 0


__all__ = ["Measured", "fit", "measured", "regrets", "sweep"]
