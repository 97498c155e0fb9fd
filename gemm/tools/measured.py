"""Measurements of `sample` as arrays, and how far a choice is from the best that was measured."""

from __future__ import annotations

import gzip
import json
import math
import statistics
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ptxkit.cards import Card
from ptxkit.errors import PtxkitError
from ptxkit.measure.figures import quantile

from ..config.dense import DenseConfig
from ..heuristic.corrections import CORRECTED, matrix
from ..heuristic.costs import Columns, Costs, Sizes, estimate, factor, structure, taken
from ..heuristic.dense import few_rows
from ..heuristic.tuned import revive
from ..problem.dense import Problem as Asked
from .bench.shapes import problem as parsed
from .problems import described

SLOW = 3.0                      # how fast a pair's weight falls with its time over the best
SHORT_US = 10.0                 # products below this weigh less: their times are the least certain


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
    kind: Any                                   # in words: "M > 64", "few rows", "batched", "long", "e4m3" or "f32"

    def __len__(self) -> int:
        return len(self.us)

    def where(self, mask: Any) -> Pairs:
        """Some of them, with products numbered from 0."""
        _, product = np.unique(self.product[mask], return_inverse=True)
        return Pairs(product, taken(self.asked, mask), taken(self.seen, mask), self.structure[mask], self.us[mask],
                     self.best[mask], self.along_k[mask], self.few[mask], self.kind[mask])

    def weights(self) -> Any:
        """A pair counts by how fast it is among those of its product, and by how long that takes."""
        return (np.exp(-SLOW * (self.us / self.best - 1)) + 0.02) * np.clip(self.best / SHORT_US, 0.2, 1.0)


def pairs(records: Sequence[Mapping[str, Any]], card: Card) -> tuple[Pairs, list[str]]:
    """The pairs of some records, and the products in words. Left out are products with promoted sums, which have another model, and
    ways of candidates, which no model judges by themselves."""
    problems: list[Asked] = []
    said: list[str] = []
    rows: list[tuple[int, DenseConfig, float, float]] = []
    names: list[str] = []
    for part, row in ((kind, one) for record in records for kind in record["parts"] for one in kind["rows"]):
        problem = described(parsed(row["shape"]))
        measured = [one for one in row["us"] if not part["configs"][one[0]].get("way")]
        if problem.promote or not measured:
            continue
        times, best = {place: time_of(us) for place, *us in measured}, best_of(measured)
        problems.append(problem)
        said.append(_kind(part["part"], few_rows(problem)))
        configs = configs_of(part["configs"], times, problem)
        rows += [(len(names), configs[place], us, best) for place, us in times.items()]
        names.append(row["shape"])
    if not rows:
        raise DataError("there is no measurement in these files")
    known = {config: place for place, config in enumerate(dict.fromkeys(config for _, config, _, _ in rows))}
    places = np.array([known[config] for _, config, _, _ in rows])
    product = np.array([row[0] for row in rows])
    table = replace(Columns.of(list(known), card, Costs()), factor=np.ones(len(known)))
    words = np.array([structure(config) for config in known])
    sizes = taken(Sizes.of_all(problems), product)
    kind = np.array([(one.a_major == "k", one.b_major == "k", few_rows(one)) for one in problems])[product]
    return Pairs(product, sizes, taken(table, places), words[places], np.array([row[2] for row in rows]),
                 np.array([row[3] for row in rows]), kind[:, :2], kind[:, 2], np.array(said)[product]), names


def _kind(part: str, few: bool) -> str:
    """What regrets are told apart by."""
    dtype, _, *special = part.split()
    return dtype if dtype != "bf16" else "few rows" if few else special[0] if special else "M > 64"


def time_of(us: Sequence[float]) -> float:
    """The microseconds of what one configuration took in turn: the median once it was measured again, else the first."""
    return statistics.median(us) if len(us) > 2 else us[0]


def best_of(measured: Sequence[Sequence[Any]]) -> float:
    """The microseconds of a product's fastest configuration, of its entries "us" in a record. Once some were measured again only these
    count: the others' single times may be lucky."""
    again = [time_of(us) for _, *us in measured if len(us) > 2]
    return min(again or [time_of(us) for _, *us in measured])


def configs_of(kept: Sequence[Mapping[str, Any]], places: Mapping[int, float], problem: Asked) -> dict[int, DenseConfig]:
    """The configurations of one product: those that a table would make of what was kept."""
    return {place: revive({name: value for name, value in kept[place].items() if name not in ("m", "way")}, problem) for place in places}


def record(path: Path) -> Any:
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


def modelled(costs: Costs, some: Pairs) -> tuple[Any, Any]:
    """The clocks of pairs by the model with its factors, and what the trees ask of them."""
    seen = replace(some.seen, factor=np.array([factor(costs.factors, word) for word in some.structure]))
    parts = estimate(costs, some.asked, seen)
    return parts.total, matrix(some.asked, seen, parts, *some.along_k.T)


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
    for kind in np.unique(some.kind).tolist():
        yield from _line(kind, found[some.kind[first] == kind])


def _line(where: str, found: Any) -> Iterator[str]:
    if len(found):
        yield (f"{where}: {len(found)} products, geometric mean {math.exp(float(np.log(found).mean())):.3f}, "
               f"median {quantile(list(found), 0.5):.3f}, 95th percentile {quantile(list(found), 0.95):.3f}")


__all__ = ["DataError", "Pairs", "best_of", "configs_of", "modelled", "pairs", "record", "regrets", "time_of", "told"]
