"""`python -m ptxkit.gemm fit --card h100 DATA.json.gz`: the constants of a card's cost model, and the trees that correct it, from what
`sample` measured on it.

`--further` teaches what a card has (`further.py`); with `--start h100` it begins with what the H100 has, but for the
memory, L2 and clock.

Every other product is held out of the fit of the constants. Of the trees a quarter of the products is held out in turn, and what is told
of a product comes from trees that have not seen it; the trees that are kept have seen all. What counts is the order of the configurations
of one product, most of all of its fast ones; so an error that all of a product's configurations share counts for a third. A factor for
each structure of configuration is what its products take beyond the model in the geometric mean, drawn towards 1 where there are few.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ptxkit.cards import CARDS, Card
from ptxkit.cards import named as card_named
from ptxkit.cli.errors import UsageError
from ptxkit.cli.numbers import count
from ptxkit.cli.paths import output_path

from ..heuristic.corrections import Trees, trees_beside
from ..heuristic.corrections import of_card as trees_of_card
from ..heuristic.corrections import write as write_trees
from ..heuristic.costs import Costs, estimate, fit_path, following, of_card, write
from ..heuristic.dense import only_measured
from ..heuristic.overlaps import overlaps_beside
from . import further, grouped_fit, grouped_k_fit, grouped_k_parts_fit, grouped_overlaps_fit, overlaps_fit
from .grow import FAR, ROUNDS, Growth, grown, parts, weights
from .measured import DataError, Pairs, modelled, pairs, record, regrets, told

SHARED = 0.7                    # of an error that all configurations of a product have in common does not count
SMALL = 0.05                    # errors of the logarithm up to which they count by their square
DRAW = 3.0                      # weight of a factor of 1
PAIRS = 25_000                  # of a fit
GROWN, SHRUNK, FIRST_STEP = 1.3, 0.6, 0.3
LIMITS = (1e-6, 1e9)
TURNS = 12                      # through the constants
FOLDS = 4                       # of the products, each held out of the trees once


def loss(costs: Costs, some: Pairs, weights: Any, mhz: float) -> float:
    """How far the model is off."""
    error = np.log(estimate(costs, some.asked, some.seen).total / mhz / some.us)
    count = int(some.product.max()) + 1
    common = np.bincount(some.product, weights * error, count) / np.bincount(some.product, weights, count)
    size = np.abs(error - SHARED * common[some.product])
    counted = np.where(size < SMALL, size * size / (2 * SMALL), size - SMALL / 2)
    return float((weights * counted).sum() / weights.sum())


def fitted(some: Pairs, card: Card, start: Costs = Costs(), turns: int = TURNS, seed: int = 0) -> Costs:
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


def corrections(costs: Costs, some: Pairs, card: Card, how: Growth = Growth()) -> Trees:
    """The trees of these pairs, but for those that are far slower than the best of their product."""
    some = some.where(some.us < FAR * some.best)
    clocks, asked = modelled(costs, some)
    left = np.log(some.us * card.clock_mhz / clocks)
    return grown(asked, left, weights(some.us, some.best), some.product, bool(some.few.any()), how)


def unseen(costs: Costs, some: Pairs, card: Card, how: Growth = Growth()) -> Any:
    """The logarithms of the corrections of pairs, each from trees that have not seen its product."""
    _, asked = modelled(costs, some)
    found = np.zeros(len(some))
    for fold in range(FOLDS):
        mine = some.product % FOLDS == fold
        found[mine] = corrections(costs, some.where(~mine), card, how).logarithm(asked[mine])
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options, and `run` for the command line."""
    parser.add_argument("data", nargs="+", type=Path, metavar="DATA", help="records of `sample`, of one card")
    parser.add_argument("--card", required=True, metavar="NAME", help="the card of the records, such as h100")
    parser.add_argument("--turns", type=count, default=TURNS, help=f"turns through the constants (default {TURNS}); 0 keeps them")
    parser.add_argument("--rounds", type=count, metavar="N",
                        help=f"trees (default {ROUNDS}; of --further those that help most); 0: none, old ones go")
    parser.add_argument("--further", action="store_true", help="keep constants and trees; learn further trees, and factors of a split K "
                        "and of structures that have none, from products that they have not seen; with --grouped trees alone")
    parser.add_argument("--keep", type=count, metavar="N", help="with --further: only the first N trees stay (default: all)")
    parser.add_argument("--start", metavar="NAME", help="with --further: begin with the constants and trees of this card, not with the "
                        "card's own")
    parser.add_argument("--grouped", action="store_true", help="the trees of grouped products instead, from what `grouped --sweep "
                        "--variants tiles` measured: JSON")
    parser.add_argument("--grouped-k", action="store_true", help="the trees of products with groups along K instead, from what "
                        "`benchmarks/weight_gradients.py --sweep` measured: JSON")
    parser.add_argument("--parts", action="store_true", help="with --grouped-k: the trees of parts of long groups instead, from what "
                        "`benchmarks/weight_gradients.py --sweep SEED:COUNT --parts` measured")
    parser.add_argument("--overlaps", action="store_true", help="the trees that say when the next kernel begins instead, from what "
                        "`sample --overlaps` measured, or with --grouped `grouped --sweep --variants overlaps`")
    parser.add_argument("--output", type=output_path, metavar="FILE",
                        help="where to keep them (default: with the shipped ones); of --grouped, other forests lie beside t.json: "
                        "t-few.json, t-kinds.json, t-few-kinds.json; of --grouped-k, those of begins in t-overlaps.json")
    parser.set_defaults(run=command)


def command(options: argparse.Namespace) -> int:
    """0: fitted and kept. 1: nothing was to be gained by `--further`, `--grouped`, `--grouped-k` or `--overlaps`, and nothing is kept."""
    _check(options)
    card = card_named(options.card)
    read = grouped_fit.sweep if options.grouped else grouped_k_fit.sweep if options.grouped_k else record
    records = [read(path) for path in options.data]
    other = [one["device"]["name"] for one in records if one["device"]["name"] != card.name]
    if other:
        raise DataError(f"--card {options.card} is {card.name}, and a record is of {other[0]}")
    if options.grouped and options.overlaps:
        return grouped_overlaps_fit.fit(records, card, options.output)
    if options.grouped:
        return grouped_fit.fit(records, card, options.output, further=options.further)
    if options.grouped_k and options.parts:
        return grouped_k_parts_fit.fit(records, card, options.output)
    if options.grouped_k:
        return grouped_k_fit.fit(records, card, options.output)
    if options.overlaps:
        return overlaps_fit.fit(records, card, options.output)
    start = card_named(options.start) if options.start else card
    if options.start and not fit_path(start.name).is_file():
        raise DataError(f"--start {options.start}: {start.name} has no constants of its own; " +
                        f"{' and '.join(sorted(one.name for one in CARDS.values() if fit_path(one.name).is_file()))} have")
    everything, names = pairs(records, card)
    costs = following(of_card(start), start, card) if fit_path(start.name).is_file() else Costs()
    path = options.output or fit_path(card.name)
    about = {"device": card.name, "pairs": len(everything), "products": len(names), "seeds": [one["seed"] for one in records]}
    if options.further:
        known = trees_of_card(start)
        kept = known[:options.keep]
        return _further(costs, kept, everything, card, start, path, about, options.rounds)
    if options.turns:
        many = everything.where(~everything.few)
        held = many.product % 2 == 1
        train, test = many.where(~held), many.where(held)
        costs = fitted(train, card, start=replace(costs, factors={}), turns=options.turns)
        _say("fitted", told(costs, train))
        write(path, costs, {**about, "held_out": _say("held out", told(costs, test))})
        _say_stale(path)
    trees = trees_beside(path)
    how = Growth(ROUNDS if options.rounds is None else options.rounds)
    if how.rounds:
        _say("without trees", told(costs, everything))
        lines = _say("with trees, held out", told(costs, everything, unseen(costs, everything, card, how)))
        write_trees(trees, corrections(costs, everything, card, how), {**about, "held_out": lines})
    else:
        trees.unlink(missing_ok=True)           # they corrected other constants
    return 0


def _check(options: argparse.Namespace) -> None:
    """Refuse options that do not go together."""
    fixed = options.start or options.keep is not None or options.rounds is not None
    if options.grouped_k and (fixed or options.grouped or options.further or options.overlaps or options.turns != TURNS):
        raise UsageError("--grouped-k takes no other option than --parts and --output: it grows a fixed number of trees anew")
    if options.parts and not options.grouped_k:
        raise UsageError("--parts is for --grouped-k: only groups along K have parts")
    if options.grouped and (fixed or options.turns != TURNS):
        raise UsageError("--grouped takes no --start, --keep, --rounds or --turns: it grows a fixed number of trees, --further beside "
                         "those of its card")
    if options.overlaps and (fixed or options.further or options.turns != TURNS):
        raise UsageError("--overlaps takes no --further, --start, --keep, --rounds or --turns: it grows a fixed number of trees anew")
    if options.further and options.turns != TURNS:
        raise UsageError("--further keeps the constants: --turns is for a fit of them anew")
    if options.keep is not None and not options.further:
        raise UsageError("--keep is for --further: a fit anew keeps no trees")
    if options.start and not options.further:
        raise UsageError(f"--start {options.start} is for --further: constants that are fitted anew begin with those of {options.card}")


def _say_stale(path: Path) -> None:
    """The trees of overlaps ask what these constants and factors say."""
    beside = overlaps_beside(path)
    if beside.is_file():
        print(f"{beside.name} was learned with other constants or factors: run `fit --overlaps` again")


def _further(costs: Costs, trees: Trees, everything: Pairs, card: Card, start: Card, path: Path, about: Mapping[str, Any],
             rounds: int | None) -> int:
    """Teaches what is there, of the card `start`; keeps it, taught by all pairs, if what some taught has less regret of the others."""
    held = parts(everything.product, further.HELD, 0) == 0
    some, test = everything.where(~held), everything.where(held)
    how = further.chosen(costs, trees, some, card) if rounds is None else Growth(rounds, rate=further.RATES[-1])
    was = test.where(~only_measured(test.seen, test.few) | np.isin(test.structure, list(costs.factors)))      # what could be chosen
    before = further.logarithm(costs, trees, was)
    own, more = further.taught(costs, trees, some, card, how)
    after = further.logarithm(own, more, test)
    _say("held out, as it was", told(costs, was, before))
    lines = _say(f"held out, {how}", told(own, test, after))
    if np.log(regrets(own, test, after)).mean() >= np.log(regrets(costs, was, before)).mean():
        print("there is nothing to be gained")
        return 1
    own, more = further.taught(costs, trees, everything, card, how)
    kept = fit_path(start.name)
    learned = _said(trees_beside(kept))
    both = {name: learned[name] + about[name] for name in ("pairs", "products", "seeds")} if learned else about
    begun = {} if start == card else {"start": f"constants and {len(trees):,} trees of {start.name}"}
    factors = f"factors of a split K and of structures that had none: seeds {about['seeds']}"
    write(path, own, {**_said(kept), "device": card.name, **begun, "splits": factors})
    _say_stale(path)
    write_trees(trees_beside(path), more, {**both, "device": card.name, **begun, "further": f"{how}: seeds {about['seeds']}",
                                           "held_out": lines})
    return 0


def _said(path: Path) -> dict[str, Any]:
    """What a file says about its constants or trees; nothing if there is none."""
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return {name: value for name, value in known.items() if name not in ("constants", "factors", "few", "features", "trees")}


def _say(what: str, lines: Iterator[str]) -> list[str]:
    said = list(lines)
    for line in said:
        print(f"{what}: {line}")
    return said


__all__ = ["add_arguments", "command", "corrections", "factors", "fitted", "loss", "unseen"]
