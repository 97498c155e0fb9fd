"""What `fit --further` does: teaches a card's choice with samples that it has not seen, and keeps what it knows.

Constants and trees stay. New factors of the structures that split K, which changed most since, and of those that no fit has seen, and
further trees are learned from what model and trees together leave over. How many trees, of how many questions and how much of their
answers is kept, is decided by halves that have no product in common; a part of the products is seen by none of this, and tells what was
gained.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ptxkit.cards import Card

from ..heuristic.corrections import Trees
from ..heuristic.costs import Costs, factor
from .grow import FAR, Growth, grown, joined, parts, weights
from .measured import Pairs, modelled, regrets

LEVELS, RATES = (5, 8), (0.05, 0.1)
COUNTS = (0, 50, 100, 200, 300, 450, 600)
FOLDS, HELD = 3, 5              # parts of the products in turn; one of so many is held out of everything
DRAW = 3.0                      # weight of a factor that stays
SPLIT = " split "               # in the names of structures that split K


def logarithm(costs: Costs, trees: Trees, some: Pairs) -> Any:
    """What the trees say of pairs."""
    return trees.logarithm(modelled(costs, some)[1])


def new_factors(costs: Costs, trees: Trees, some: Pairs, card: Card) -> Costs:
    """With the factors of structures that split K, and of those that have none, as these pairs have them."""
    clocks, asked = modelled(costs, some)
    error = np.log(some.us * card.clock_mhz / clocks) - trees.logarithm(asked)
    weight = weights(some.us, some.best)
    common = np.bincount(some.product, weight * error) / np.bincount(some.product, weight)
    words, place = np.unique(some.structure, return_inverse=True)
    mean = np.bincount(place, weight * (error - common[some.product])) / (np.bincount(place, weight) + DRAW)
    known = {word: factor(costs.factors, word) for word in map(str, words)}
    changed = {word: known[word] * math.exp(value) for word, value in zip(known, mean, strict=True)
               if SPLIT in word or word not in costs.factors}
    return replace(costs, factors={**costs.factors, **changed})


def further(costs: Costs, trees: Trees, some: Pairs, card: Card, how: Growth, seed: int = 0) -> Trees:
    """Trees for what is left over."""
    some = some.where(some.us < FAR * some.best)
    clocks, asked = modelled(costs, some)
    left = np.log(some.us * card.clock_mhz / clocks) - trees.logarithm(asked)
    return grown(asked, left, weights(some.us, some.best), some.product, bool(some.few.any()), how, seed)


def staged(costs: Costs, trees: Trees, more: Trees, some: Pairs) -> Iterator[tuple[int, Any]]:
    """What the trees say of pairs with so many of the further ones."""
    asked = modelled(costs, some)[1]
    said, before = trees.logarithm(asked), 0
    for count in COUNTS:
        if count > len(more):
            return
        said = said + more[before:count].logarithm(asked) if count else said
        before = count
        yield count, said


def chosen(costs: Costs, trees: Trees, some: Pairs, card: Card, say: Callable[[str], None] = print) -> Growth:
    """How further trees grow best, by the regret of products that they have not seen."""
    part = parts(some.product, FOLDS, 1)
    best, least = Growth(0), math.inf
    for levels, rate in itertools.product(LEVELS, RATES):
        found: dict[int, list[Any]] = {}
        for fold in range(FOLDS):
            train, test = some.where(part != fold), some.where(part == fold)
            own = new_factors(costs, trees, train, card)
            for count, said in staged(own, trees, further(own, trees, train, card, Growth(COUNTS[-1], levels, rate)), test):
                found.setdefault(count, []).append(np.log(regrets(own, test, said)))
        for count, each in found.items():
            every = np.concatenate(each)
            mean = float(every.mean())
            how = Growth(count, levels, rate)
            say(f"{how}: {math.exp(mean):.4f}, 95th percentile {math.exp(float(np.quantile(every, 0.95))):.3f}")
            if mean < least:
                best, least = how, mean
    return best


def taught(costs: Costs, trees: Trees, some: Pairs, card: Card, how: Growth) -> tuple[Costs, Trees]:
    """The constants with new factors, and all trees."""
    own = new_factors(costs, trees, some, card)
    return own, joined(trees, further(own, trees, some, card, how)) if how.rounds else trees


__all__ = ["HELD", "chosen", "logarithm", "new_factors", "taught"]
