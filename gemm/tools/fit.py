"""`python -m ptxkit.gemm fit --card h100 DATA.json.gz`: the constants of a card's cost model, and the trees that correct it, from what
`sample` measured on it.

Every other product is held out of the fit of the constants. Of the trees a quarter of the products is held out in turn, and what is told
of a product comes from trees that have not seen it; the trees that are kept have seen all. What counts is the order of the configurations
of one product, most of all of its fast ones; so an error that all of a product's configurations share counts for a third. A factor for
each structure of configuration is what its products take beyond the model in the geometric mean, drawn towards 1 where there are few.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import statistics
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from ptxkit.cards import Card
from ptxkit.cards import named as card_named
from ptxkit.cli.numbers import count
from ptxkit.cli.paths import output_path
from ptxkit.errors import PtxkitError
from ptxkit.measure.figures import quantile

from ..config.dense import DenseConfig
from ..heuristic.corrections import CORRECTED, Trees, matrix, trees_beside
from ..heuristic.corrections import write as write_trees
from ..heuristic.costs import Columns, Costs, Sizes, estimate, factor, fit_path, of_card, structure, taken, write
from ..heuristic.dense import few_rows
from ..heuristic.tuned import revive
from ..problem.dense import Problem as Asked
from .bench.shapes import problem as parsed
from .grow import FAR, ROUNDS, grown, weights
from .problems import described

SHARED = 0.7                    # of an error that all configurations of a product have in common does not count
SMALL = 0.05                    # errors of the logarithm up to which they count by their square
SLOW = 3.0                      # how fast a pair's weight falls with its time over the best
SHORT_US = 10.0                 # products below this weigh less: their times are the least certain
DRAW = 3.0                      # weight of a factor of 1
PAIRS = 25_000                  # of a fit
GROWN, SHRUNK, FIRST_STEP = 1.3, 0.6, 0.3
LIMITS = (1e-6, 1e9)
FOLDS = 4                       # of the products, each held out of the trees once


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
    along_k: Any                                # whether A and B are contiguous along K, two columns
    few: Any                                    # whether it is a single product of few rows

    def __len__(self) -> int:
        return len(self.us)

    def where(self, mask: Any) -> Pairs:
        """Some of them, with products numbered from 0."""
        _, product = np.unique(self.product[mask], return_inverse=True)
        return Pairs(product, taken(self.asked, mask), taken(self.seen, mask), self.structure[mask], self.us[mask],
                     self.best[mask], self.along_k[mask], self.few[mask])

    def weights(self) -> Any:
        """A pair counts by how fast it is among those of its product, and by how long that takes."""
        return (np.exp(-SLOW * (self.us / self.best - 1)) + 0.02) * np.clip(self.best / SHORT_US, 0.2, 1.0)


def pairs(records: Sequence[Mapping[str, Any]], card: Card) -> tuple[Pairs, list[str]]:
    """All pairs of some records but those of promoted sums, which have another model, and the products in words."""
    asked: list[tuple[float, ...]] = []
    kinds: list[tuple[bool, bool, bool]] = []
    rows: list[tuple[int, DenseConfig, float, float]] = []
    names: list[str] = []
    for part, row in ((kind, one) for record in records for kind in record["parts"] for one in kind["rows"]):
        problem = described(parsed(row["shape"]))
        if problem.promote or not row["us"]:
            continue
        times = {place: _time(us) for place, *us in row["us"]}
        again = [_time(us) for _, *us in row["us"] if len(us) > 2]
        best = min(again or times.values())
        sizes = Sizes.of(problem)
        asked.append(tuple(float(getattr(sizes, field.name)) for field in fields(sizes)))
        kinds.append((problem.a_major == "k", problem.b_major == "k", few_rows(problem)))
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
    kind = np.array(kinds)[product]
    return Pairs(product, sizes, taken(table, places), words[places], np.array([row[2] for row in rows]),
                 np.array([row[3] for row in rows]), kind[:, :2], kind[:, 2]), names


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


def modelled(costs: Costs, some: Pairs) -> tuple[Any, Any]:
    """The clocks of pairs by the model with its factors, and what the trees ask of them."""
    seen = replace(some.seen, factor=np.array([factor(costs.factors, word) for word in some.structure]))
    parts = estimate(costs, some.asked, seen)
    return parts.total, matrix(some.asked, seen, parts, *some.along_k.T)


def corrections(costs: Costs, some: Pairs, card: Card, rounds: int = ROUNDS) -> Trees:
    """The trees of these pairs, but for those that are far slower than the best of their product."""
    some = some.where(some.us < FAR * some.best)
    clocks, asked = modelled(costs, some)
    left = np.log(some.us * card.clock_mhz / clocks)
    return grown(asked, left, weights(some.us, some.best), some.product, bool(some.few.any()), rounds)


def unseen(costs: Costs, some: Pairs, card: Card, rounds: int = ROUNDS) -> Any:
    """The logarithms of the corrections of pairs, each from trees that have not seen its product."""
    _, asked = modelled(costs, some)
    found = np.zeros(len(some))
    for fold in range(FOLDS):
        mine = some.product % FOLDS == fold
        found[mine] = corrections(costs, some.where(~mine), card, rounds).logarithm(asked[mine])
    return found


def regrets(costs: Costs, some: Pairs, logarithm: Any = None) -> Any:
    """By product: the time of the configuration that the model takes for the fastest of those measured, over the best one's. `logarithm`:
    of the corrections of the model's first candidates."""
    clocks = modelled(costs, some)[0]
    if logarithm is not None:
        order = np.lexsort((clocks, some.product))
        place = np.empty(len(some), dtype=np.int64)
        place[order] = np.arange(len(some)) - np.searchsorted(some.product[order], some.product[order])
        clocks = np.where(place < CORRECTED, clocks * np.exp(logarithm), np.inf)
    order = np.lexsort((clocks, some.product))
    first = order[np.unique(some.product[order], return_index=True)[1]]
    return some.us[first] / some.best[first]


def told(costs: Costs, some: Pairs, logarithm: Any = None) -> Iterator[str]:
    """The regret in words, by how long the products take; that of few rows by itself."""
    found = regrets(costs, some, logarithm)
    first = np.unique(some.product, return_index=True)[1]
    best, few = some.best[first], some.few[first]
    for low, high in ((0.0, 8.0), (8.0, 20.0), (20.0, 60.0), (60.0, math.inf), (8.0, math.inf), (0.0, math.inf)):
        where = f"{low:g} us and more" if math.isinf(high) else f"{low:g} to {high:g} us"
        yield from _line(where, found[(best >= low) & (best < high) & ~few])
    yield from _line("few rows", found[few])


def _line(where: str, found: Any) -> Iterator[str]:
    if len(found):
        yield (f"{where}: {len(found)} products, geometric mean {math.exp(float(np.log(found).mean())):.3f}, "
               f"median {quantile(list(found), 0.5):.3f}, 95th percentile {quantile(list(found), 0.95):.3f}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options, and `run` for the command line."""
    parser.add_argument("data", nargs="+", type=Path, metavar="DATA", help="records of `sample`, of one card")
    parser.add_argument("--card", required=True, metavar="NAME", help="the card of the records, such as h100")
    parser.add_argument("--turns", type=count, default=12, help="turns through the constants (default 12); 0 keeps them")
    parser.add_argument("--rounds", type=count, default=ROUNDS, metavar="N", help=f"trees (default {ROUNDS}); 0: none, old ones go")
    parser.add_argument("--output", type=output_path, metavar="FILE", help="where to keep them (default: with the shipped ones)")
    parser.set_defaults(run=command)


def command(options: argparse.Namespace) -> int:
    """0: fitted and kept."""
    card = card_named(options.card)
    records = [_record(path) for path in options.data]
    other = [record["device"]["name"] for record in records if record["device"]["name"] != card.name]
    if other:
        raise DataError(f"--card {options.card} is {card.name}, and a record is of {other[0]}")
    everything, names = pairs(records, card)
    costs = of_card(card) if fit_path(card.name).is_file() else Costs()
    path = options.output or fit_path(card.name)
    about = {"device": card.name, "pairs": len(everything), "products": len(names), "seeds": [record["seed"] for record in records]}
    if options.turns:
        many = everything.where(~everything.few)
        held = many.product % 2 == 1
        train, test = many.where(~held), many.where(held)
        costs = fitted(train, card, start=replace(costs, factors={}), turns=options.turns)
        _say("fitted", told(costs, train))
        write(path, costs, {**about, "held_out": _say("held out", told(costs, test))})
    trees = trees_beside(path)
    if options.rounds:
        _say("without trees", told(costs, everything))
        lines = _say("with trees, held out", told(costs, everything, unseen(costs, everything, card, options.rounds)))
        write_trees(trees, corrections(costs, everything, card, options.rounds), {**about, "held_out": lines})
    else:
        trees.unlink(missing_ok=True)           # they corrected other constants
    return 0


def _record(path: Path) -> Any:
    """What `sample` wrote."""
    try:
        with gzip.open(path) as file:
            record = json.loads(file.read())
        record["device"]["name"], record["seed"], record["parts"]
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None
    except (EOFError, ValueError, LookupError, TypeError, zlib.error):
        raise DataError(f"{path} is no record of `sample`") from None
    return record


def _say(what: str, lines: Iterator[str]) -> list[str]:
    said = list(lines)
    for line in said:
        print(f"{what}: {line}")
    return said


__all__ = ["DataError", "Pairs", "add_arguments", "command", "corrections", "factors", "fitted", "loss", "modelled", "pairs", "regrets",
           "told", "unseen"]
