"""`python -m ptxkit.gemm fit --overlaps --card h200 DATA.json.gz`: the trees of `heuristic.overlaps`, from what `sample --overlaps`
measured.

What counts is the time with a later begin of the next kernel over that of the same configuration without. A fifth of the products is held
out in turn; what is told of a product comes from trees that have not seen it. Trees are kept if they choose better than the best begin for
all does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ptxkit.cards import Card
from ptxkit.measure.figures import quantile

from ..config.dense import DenseConfig
from ..config.parts import Static
from ..heuristic import corrections
from ..heuristic.corrections import Trees
from ..heuristic.costs import Columns, Sizes, estimate, fit_path, of_card
from ..heuristic.overlaps import LATER, NAMES, at_the_start, matrix, other_begins, path_of
from ..problem.dense import Problem
from .bench.shapes import problem as parsed
from .grow import Growth, grown, parts, weights
from .measured import DataError, best_of, configs_of, time_of
from .problems import described

GROWTH = Growth(400, 5, 0.1)
FOLDS = 5
FAST = 1.12                     # over the best of its product, up to which a configuration teaches anything
MOST = 0.15                     # of the logarithm of a change that is believed: one measurement can be disturbed


@dataclass(frozen=True, slots=True)
class Changes:
    """Configurations that were measured with every begin, an entry for each: its product, what the trees are told, its microseconds by
    begin (the first: with the product), and the best of its product."""

    product: Any
    told: Any                                   # [entries, features of the kind of product]
    us: Any                                     # [entries, 1 + later begins]
    best: Any

    def __len__(self) -> int:
        return len(self.product)

    @property
    def left(self) -> Any:
        """The logarithms of the changes, [entries, later begins]."""
        return np.clip(np.log(self.us[:, 1:] / self.us[:, :1]), -MOST, MOST)


def changes(records: Sequence[Mapping[str, Any]], card: Card) -> tuple[Changes, int]:
    """The changes in some records, and the number of products. Products with promoted sums are left out: they have another model."""
    found: list[tuple[int, Problem, DenseConfig, list[float], float]] = []
    products = 0
    for part, row in ((kind, one) for record in records for kind in record["parts"] for one in kind["rows"]):
        problem = described(parsed(row["shape"]))
        if problem.promote or not row["us"]:
            continue
        times, best, before = _times(part, row, problem), best_of(row["us"]), len(found)
        for config, us in times.items():
            later = [times[one] for one in other_begins(config) if one in times]
            if config == at_the_start(config) and us < FAST * best and isinstance(config.scheduler, Static) and len(later) == len(LATER):
                found.append((products, problem, config, [us, *later], best))
        products += len(found) > before
    if not found:
        raise DataError("no configuration in these files was measured with every begin of the next kernel: "
                        "`sample --most N --overlaps N` does that")
    problems, configs = [one[1] for one in found], [one[2] for one in found]
    costs, asked = of_card(card), Sizes.of_all(problems)
    columns = Columns.of(configs, card, costs)
    majors = (np.array([getattr(problem, name) == "k" for problem in problems]) for name in ("a_major", "b_major"))
    told = corrections.matrix(asked, columns, estimate(costs, asked, columns), *majors)
    return Changes(np.array([one[0] for one in found]), told, np.array([one[3] for one in found]),
                   np.array([one[4] for one in found])), products


def _times(part: Mapping[str, Any], row: Mapping[str, Any], problem: Problem) -> dict[DenseConfig, float]:
    """The microseconds of each configuration of a product. One that is a candidate may also be a way of another candidate: the lesser time
    counts."""
    seen = {place: time_of(us) for place, *us in row["us"]}
    times: dict[DenseConfig, float] = {}
    for place, config in configs_of(part["configs"], seen, problem).items():
        times[config] = min(seen[place], times.get(config, math.inf))
    return times


def taught(some: Changes, which: Any) -> Trees:
    """The trees of some entries, given by a mask."""
    _, product = np.unique(some.product[which], return_inverse=True)
    weight = weights(some.us[which, 0], some.best[which])
    return grown(matrix(some.told[which]), some.left[which].ravel(), np.repeat(weight, len(LATER)), np.repeat(product, len(LATER)), True,
                 GROWTH, common=0.0)


def unseen(some: Changes) -> Any:
    """The logarithms of the changes, [entries, later begins], from trees that have not seen the product."""
    part = parts(some.product, FOLDS, 0)
    found = np.zeros_like(some.left)
    for fold in range(FOLDS):
        mine = part == fold
        if mine.any() and not mine.all():
            found[mine] = taught(some, ~mine).logarithm(matrix(some.told[mine])).reshape(-1, len(LATER))
    return found


def gains(some: Changes, said: Any) -> Any:
    """By entry, the time with the begin that `said` puts first over that where the next kernel begins with the product."""
    place = np.column_stack([np.zeros(len(some)), said]).argmin(axis=1)
    return some.us[np.arange(len(some)), place] / some.us[:, 0]


def one_for_all(some: Changes) -> tuple[str, Any]:
    """The begin that is the best one for all, and what it gains by entry."""
    names = ("start", *LATER)
    ratios = some.us / some.us[:, :1]
    best = int(np.log(ratios).mean(axis=0).argmin())
    return names[best], ratios[:, best]


def told(some: Changes, said: Any) -> Iterator[str]:
    """The gains in words."""
    name, constant = one_for_all(some)
    for what, found in ((f"{name!r} for all", constant), ("begins chosen by trees that have not seen the product", gains(some, said)),
                        ("the best begin of each", gains(some, some.left))):
        mean = math.exp(float(np.log(found).mean()))
        yield (f"{what}: {len(found)} configurations, {mean:.4f} of the time with the next kernel at the start, "
               f"95th percentile {quantile(list(found), 0.95):.3f}, worst {max(found):.3f}")


def kept(some: Changes, path: Path, about: Mapping[str, Any], names: Sequence[str]) -> int:
    """0: trees are grown and kept at `path`, with what the file says `about` them. 1: they choose no better than the best begin for all,
    and nothing is kept."""
    said = unseen(some)
    lines = list(told(some, said))
    print("\n".join(lines))
    if np.log(gains(some, said)).mean() >= np.log(one_for_all(some)[1]).mean():
        print("there is nothing to be gained")
        return 1
    about = {**about, "configurations": len(some), "held_out": lines}
    corrections.write(path, taught(some, np.ones(len(some), dtype=bool)), about, names)
    return 0


def fit(records: Sequence[Mapping[str, Any]], card: Card, output: Path | None = None) -> int:
    """What `kept` returns."""
    if not fit_path(card.name).is_file():
        raise DataError(f"{card.name} has no constants of its own, whose trees these would be: run `fit` first")
    some, products = changes(records, card)
    about = {"device": card.name, "products": products, "seeds": [one["seed"] for one in records]}
    return kept(some, output or path_of(card), about, NAMES)


__all__ = ["Changes", "changes", "fit", "gains", "kept", "one_for_all", "taught", "told", "unseen"]
