"""What `fit --grouped` does: trees for the tiles of grouped products (`heuristic.grouped_trees`), from what `grouped --sweep --variants
tiles` measured.

A fifth of the products is held out of the trees in turn, and what is told of a product comes from trees that have not seen it; the trees
that are kept have seen all. `--further` keeps the trees that the card has, and grows more for what they leave over: from products that
these have not seen either.
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

from ..heuristic.corrections import NONE, Trees, write
from ..heuristic.grouped import alone, untaught, usual_tile
from ..heuristic.grouped_features import judged
from ..heuristic.grouped_tiles import FEW
from ..heuristic.grouped_trees import FORESTS, Forest, forest_of, gains, names_of, of_card, path_of, takes, tiles
from ..problem.grouped import GroupProblem
from . import held_out
from .bench.grouped_cases import case
from .grow import Growth, joined
from .held_out import FOLDS, Entries
from .measured import DataError
from .problems import problem_of

FAR = 1.6                       # times the best's time, from which a tile teaches nothing that matters
LATER = "next kernel after"      # in the words of a tile with another begin of the next kernel, which `overlaps` are about
GROWTH = Growth(900, 7, 0.1)
PRODUCTS: dict[Forest, str] = {
    "straddling": f"16 bits, more than {2 * FEW} tokens a group, rows that straddle lines",
    "few": f"16 bits, up to {2 * FEW} tokens a group",
    "kinds": f"other kinds of more than {2 * FEW} tokens a group, and contiguous groups",
    "few-kinds": f"other kinds of up to {2 * FEW} tokens a group"}
"""What each forest is about."""


@dataclass(frozen=True, slots=True)
class Tiles(Entries):
    """Measured tiles of products, whose clocks are those by causes and by the trees that are kept. `own`: for each product, it, and the
    microseconds of the choice without trees and its entry or -1."""

    own: Any
    names: Sequence[str]


def sweep(path: Path) -> Any:
    """What `grouped --sweep` wrote. Raises DataError."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        found["device"]["name"], [(row["case"], [(one["config"], one["us"]) for one in row["configs"]]) for row in found["rows"]]
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, LookupError, TypeError):
        raise DataError(f"{path} is not what `grouped --sweep` writes") from None
    return found


def problem_in(row: Mapping[str, Any]) -> GroupProblem:
    """The problem of a row of a sweep."""
    return problem_of(case(row["case"]), row.get("layout", "cu_seqlens"), row.get("w_major", "k"))


def measured(sweeps: Sequence[Mapping[str, Any]], card: Card, kept: Trees = NONE, forest: Forest = "straddling") -> Tiles | None:
    """The tiles in some sweeps, of products that a forest is about and whose K no CTAs share. None where no product is such a one."""
    found: list[tuple[Any, ...]] = []
    own: list[tuple[GroupProblem, float, int]] = []
    names: list[str] = []
    for row in (row for sweep in sweeps for row in sweep["rows"]):
        problem = problem_in(row)
        times = {one["config"]: float(one["us"]) for one in row["configs"] if LATER not in one["config"]}
        config = untaught(problem, card)
        chosen = str(config)
        if not takes(problem) or forest_of(problem) != forest or config.streams or chosen not in times:
            continue
        usual = usual_tile(problem, card)
        some = {str(each): tile for tile in dict.fromkeys((usual, *tiles(problem, card))) if (each := alone(tile, problem)) is not None}
        swept = {name: tile for name, tile in some.items() if name in times}
        clocks, asked = judged(problem, tuple(swept.values()), card)
        asked = asked[:, :len(names_of(forest))]
        said = np.log(clocks) + kept.logarithm(asked)
        best = min(times.values())
        start = len(found)
        found += [(len(names), asks, logarithm, times[name], best, tile == usual)
                  for (name, tile), asks, logarithm in zip(swept.items(), asked, said, strict=True) if math.isfinite(logarithm)]
        place = next((place for place in range(start, len(found)) if found[place][-1]), -1)
        own.append((problem, times[chosen], place))
        names.append(row["case"])
    if not found:
        return None
    product, rows, counts, us, least, _ = zip(*found, strict=True)
    return Tiles(np.array(product), np.stack(rows), np.array(counts), np.array(us), np.array(least), own, names)


def taught(some: Tiles, which: Any, card: Card) -> Trees:
    """Trees of some entries."""
    return held_out.taught(some, which, card, GROWTH, FAR)


def unseen(some: Tiles, card: Card) -> Any:
    """The logarithm of the clocks of each entry, from trees that have not seen its product."""
    return held_out.unseen(some, card, GROWTH, FAR)


def regrets(some: Tiles, said: Any) -> tuple[list[float], list[float]]:
    """The time of the choice over that of the best that was measured, by product: without trees, and by what they said."""
    before, after = [], []
    for number, (problem, us, place) in enumerate(some.own):
        mine = np.flatnonzero(some.product == number)
        first = mine[np.argmin(said[mine])]
        taken = some.us[first] if place < 0 or gains(problem, said[first], said[place]) else us
        before.append(us / some.best[first])
        after.append(taken / some.best[first])
    return before, after


def fit(sweeps: Sequence[Mapping[str, Any]], card: Card, output: Path | None = None, *, further: bool = False) -> int:
    """0: some forest was grown and kept. 1: the trees choose no better than what is chosen without them, or
    than those that the card has, and nothing is kept. Raises DataError where no product is one that trees learn from."""
    found = {forest: some for forest in FORESTS
             if (some := measured(sweeps, card, of_card(card, forest) if further else NONE, forest)) is not None}
    if not found:
        raise DataError("no product was swept that trees learn from, such as random ones in bf16: `grouped --sweep --variants tiles` on "
                        "the card measures some, as of --cases random:1:200")
    lacking = [path_of(card, forest).name for forest in found if further and not len(of_card(card, forest))]
    if lacking:
        raise DataError(f"{card.name} has no trees of groups that could stay, {' and '.join(lacking)}: leave out --further")
    kept = [_fit(some, card, forest, path_of(card, forest, output), further) for forest, some in found.items()]
    return int(not any(kept))


def _fit(some: Tiles, card: Card, forest: Forest, path: Path, further: bool) -> bool:
    """Whether trees of these tiles are grown and kept."""
    what = PRODUCTS[forest]
    if len(some.own) < FOLDS:
        print(f"{what}: {len(some.own)} products, and {FOLDS} are the least")
        return False
    said = unseen(some, card)
    before, after = regrets(some, said)
    lines = held_out.told(before, after)
    if further:
        before = regrets(some, some.clocks)[1]
        lines.insert(1, f"with the trees that stay: regret {math.exp(float(np.log(before).mean())):.4f}")
    print("\n".join([what, *lines]))
    if not np.log(after).mean() < np.log(before).mean():
        print("there is nothing to be gained")
        return False
    about = {"device": card.name, "products": len(some.names), "tiles": len(some.us), "held_out": lines}
    trees = taught(some, np.ones(len(some.us), dtype=bool), card)
    if further:
        known = json.loads(path_of(card, forest).read_text(encoding="utf-8"))
        about |= {name: known[name] + about[name] for name in ("products", "tiles")}
        trees = joined(of_card(card, forest), trees)
    write(path, trees, about, names_of(forest))
    return True


__all__ = ["Tiles", "fit", "measured", "problem_in", "regrets", "sweep", "taught", "unseen"]
