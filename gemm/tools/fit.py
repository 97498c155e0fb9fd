"""`python -m ptxkit.gemm fit --card h100 DATA.json.gz`: the constants of a card's cost model, from what `sample` measured on it.

Every other product is held out: the fit never sees it. What counts is the order of the configurations of one product, most of all of its
fast ones; so an error that all of a product's configurations share counts for a third. A factor for each structure of configuration is
what its products take beyond the model in the geometric mean, drawn towards 1 where there are few.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from ptxkit.cards import Card
from ptxkit.cards import named as card_named
from ptxkit.cli.numbers import positive
from ptxkit.errors import PtxkitError
from ptxkit.measure.figures import quantile

from ..config.dense import DenseConfig
from ..heuristic.costs import Columns, Costs, Sizes, estimate, factor, fit_path, of_card, structure, write
from ..heuristic.dense import by_waves
from ..heuristic.tuned import revive
from ..problem.dense import Problem as Asked
from .bench.shapes import problem as parsed
from .problems import described

SHARED = 0.7                    # of an error that all configurations of a product have in common does not count
SMALL = 0.05                    # errors of the logarithm up to which they count by their square
SLOW = 3.0                      # how fast a pair's weight falls with its time over the best
SHORT_US = 10.0                 # products below this weigh less: their times are the least certain
DRAW = 3.0                      # weight of a factor of 1
PAIRS = 25_000                  # of a fit
GROWN, SHRUNK, FIRST_STEP = 1.3, 0.6, 0.3
LIMITS = (1e-6, 1e9)


class DataError(PtxkitError, ValueError):
    """A file of measurements that cannot be used."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Measured configurations of products, an entry for each: its product, what the model sees, its structure, its microseconds and those
    of the product's best."""

    product: Any
    asked: Sizes
    seen: Columns
    structure: Any
    us: Any
    best: Any

    def __len__(self) -> int:
        return len(self.us)

    def where(self, mask: Any) -> Pairs:
        """Some of them, with products numbered from 0."""
        _, product = np.unique(self.product[mask], return_inverse=True)
        return Pairs(product, _masked(self.asked, mask), _masked(self.seen, mask), self.structure[mask], self.us[mask], self.best[mask])

    def weights(self) -> Any:
        """A pair counts by how fast it is among those of its product, and by how long that takes."""
        return (np.exp(-SLOW * (self.us / self.best - 1)) + 0.02) * np.clip(self.best / SHORT_US, 0.2, 1.0)


def _masked(record: Any, mask: Any) -> Any:
    return replace(record, **{field.name: value[mask] for field in fields(record)
                              if isinstance(value := getattr(record, field.name), np.ndarray)})


def pairs(records: Sequence[Mapping[str, Any]], card: Card) -> tuple[Pairs, list[str]]:
    """All pairs of some records but those that another model chooses for, and the products in words."""
    asked: list[tuple[float, ...]] = []
    rows: list[tuple[int, DenseConfig, float, float]] = []
    names: list[str] = []
    for part, row in ((kind, one) for record in records for kind in record["parts"] for one in kind["rows"]):
        problem = described(parsed(row["shape"]))
        if by_waves(problem) or not row["us"]:
            continue
        times = {place: _time(us) for place, *us in row["us"]}
        again = [_time(us) for _, *us in row["us"] if len(us) > 2]
        best = min(again or times.values())
        sizes = Sizes.of(problem)
        asked.append(tuple(float(getattr(sizes, field.name)) for field in fields(sizes)))
        configs = _configs(part["configs"], times, problem)
        rows += [(len(names), configs[place], us, best) for place, us in times.items()]
        names.append(row["shape"])
    if not rows:
        raise DataError("there is no measurement in these files")
    known = {config: place for place, config in enumerate(dict.fromkeys(config for _, config, _, _ in rows))}
    places = np.array([known[config] for _, config, _, _ in rows])
    product = np.array([row[0] for row in rows])
    table = replace(Columns.of(list(known), card, Costs()), factor=np.ones(len(known)))
    words = np.array([structure(config) for config in known])
    sizes = Sizes(*np.array(asked).T[:, product])
    return Pairs(product, sizes, _masked(table, places), words[places], np.array([row[2] for row in rows]),
                 np.array([row[3] for row in rows])), names


def _time(us: Sequence[float]) -> float:
    return statistics.median(us) if len(us) > 2 else us[0]


def _configs(kept: Sequence[Mapping[str, Any]], places: Mapping[int, float], problem: Asked) -> dict[int, DenseConfig]:
    """The configurations of one product: those that a table would make of what was kept."""
    return {place: revive({name: value for name, value in kept[place].items() if name != "m"}, problem) for place in places}


def loss(costs: Costs, some: Pairs, weights: Any, mhz: float) -> float:
    """How far the model is off."""
    error = np.log(estimate(costs, some.asked, some.seen).total / mhz / some.us)
    count = int(some.product.max()) + 1
    common = np.bincount(some.product, weights * error, count) / np.bincount(some.product, weights, count)
    size = np.abs(error - SHARED * common[some.product])
    counted = np.where(size < SMALL, size * size / (2 * SMALL), size - SMALL / 2)
    return float((weights * counted).sum() / weights.sum())


def fitted(some: Pairs, card: Card, start: Costs = Costs(), turns: int = 12, seed: int = 0) -> Costs:
    """Constants for these pairs: each in turn is made larger or smaller for as long as that helps, on a sample of the pairs."""
    source = np.random.default_rng(seed)
    chance = np.minimum(1.0, PAIRS * some.weights() / some.weights().sum())
    picked = source.random(len(some)) < chance
    sample, weights = some.where(picked), some.weights()[picked] / chance[picked]
    steps = dict.fromkeys(start.constants(), FIRST_STEP)
    best, least = start, loss(start, sample, weights, card.clock_mhz)
    for _ in range(turns):
        for name in source.permutation(list(steps)):
            for sign in (1, -1):
                value = getattr(best, name) * math.exp(sign * steps[name])
                changed = replace(best, **{name: min(max(value, LIMITS[0]), LIMITS[1])})
                seen = loss(changed, sample, weights, card.clock_mhz)
                if seen < least:
                    best, least = changed, seen
                    steps[name] *= GROWN
                    break
            else:
                steps[name] *= SHRUNK
    return replace(best, factors=factors(best, some, card))


def factors(costs: Costs, some: Pairs, card: Card) -> dict[str, float]:
    """By structure, how many times as long its products take as by the model, beyond what a product's configurations have in common."""
    weights = some.weights()
    error = np.log(some.us * card.clock_mhz / estimate(costs, some.asked, some.seen).total)
    count = int(some.product.max()) + 1
    common = np.bincount(some.product, weights * error, count) / np.bincount(some.product, weights, count)
    own = np.clip(error - common[some.product], -0.4, 0.4)
    words, place = np.unique(some.structure, return_inverse=True)
    mean = np.bincount(place, weights * own) / (np.bincount(place, weights) + DRAW)
    return {str(word): math.exp(value) for word, value in zip(words, mean, strict=True)}


def regrets(costs: Costs, some: Pairs) -> Any:
    """By product: the time of the configuration that the model takes for the fastest of those measured, over the best one's."""
    clocks = estimate(costs, some.asked, some.seen).total * np.array([factor(costs.factors, word) for word in some.structure])
    order = np.lexsort((clocks, some.product))
    first = order[np.unique(some.product[order], return_index=True)[1]]
    return some.us[first] / some.best[first]


def told(costs: Costs, some: Pairs) -> Iterator[str]:
    """The regret in words, by how long the products take."""
    found = regrets(costs, some)
    best = some.best[np.unique(some.product, return_index=True)[1]]
    for low, high in ((0.0, 8.0), (8.0, 20.0), (20.0, 60.0), (60.0, math.inf), (8.0, math.inf)):
        here = found[(best >= low) & (best < high)]
        if len(here):
            where = f"{low:g} us and more" if math.isinf(high) else f"{low:g} to {high:g} us"
            yield (f"{where}: {len(here)} products, geometric mean {math.exp(float(np.log(here).mean())):.3f}, "
                   f"median {quantile(list(here), 0.5):.3f}, 95th percentile {quantile(list(here), 0.95):.3f}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options, and `run` for the command line."""
    parser.add_argument("data", nargs="+", type=Path, metavar="DATA", help="records of `sample`, of one card")
    parser.add_argument("--card", required=True, metavar="NAME", help="the card of the records, such as h100")
    parser.add_argument("--turns", type=positive, default=12, help="turns through the constants (default 12)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where to keep them (default: with the shipped ones)")
    parser.set_defaults(run=command)


def command(options: argparse.Namespace) -> int:
    """0: fitted and kept."""
    card = card_named(options.card)
    records = [json.loads(gzip.decompress(path.read_bytes())) for path in options.data]
    other = [record["device"]["name"] for record in records if record["device"]["name"] != card.name]
    if other:
        raise DataError(f"--card {options.card} is {card.name}, and a record is of {other[0]}")
    everything, names = pairs(records, card)
    held = everything.product % 2 == 1
    train, test = everything.where(~held), everything.where(held)
    known = of_card(card) if fit_path(card.name).is_file() else Costs()
    costs = fitted(train, card, start=replace(known, factors={}), turns=options.turns)
    said = {"fitted": list(told(costs, train)), "held out": list(told(costs, test))}
    for which, lines in said.items():
        for line in lines:
            print(f"{which}: {line}")
    about = {"device": card.name, "pairs": len(everything), "products": len(names), "seeds": [record["seed"] for record in records],
             "held_out": said["held out"][-1]}
    write(options.output or fit_path(card.name), costs, about)
    return 0


__all__ = ["DataError", "Pairs", "add_arguments", "command", "factors", "fitted", "loss", "pairs", "regrets", "told"]
