"""Grows the trees of `heuristic.corrections` from measurements: gradient boosting of oblivious trees on the errors of the cost model.

What counts is the order of the configurations of one product, most of all of its fast ones. So pairs weigh less the slower they are beside
the best of their product, and most of what all pairs of a product have in common is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..heuristic.corrections import NONE, Trees

ROUNDS = 600
MOST_LEVELS = 8                 # a leaf's number is a byte
CUTS = 31                       # of a feature, at equal shares of the pairs
ASKED = 0.4                     # of the features, that a tree chooses from
PAIRS = 25_000                  # that a tree's questions are chosen on
DRAW = 3.0                      # weight of an answer of 0
COMMON = 0.9                    # of what a product's pairs have in common that is left out
SLOW = 6.0                      # how fast a pair's weight falls with its time over the best
NEVER = 1e30                    # a cut that no feature is above
FAR = 1.4                       # times the best's time, from which a pair teaches nothing that matters


@dataclass(frozen=True, slots=True)
class Growth:
    """How trees grow: how many, with how many questions each, and the share of a tree's answer that is kept."""

    rounds: int = ROUNDS
    levels: int = MOST_LEVELS
    rate: float = 0.2

    def __str__(self) -> str:
        return f"{self.rounds} trees of {self.levels} questions, {self.rate:g} of an answer kept"


def weights(us: Any, best: Any) -> Any:
    """What a pair counts."""
    return np.exp(-SLOW * (us / best - 1)) + 0.02


def parts(product: Any, count: int, seed: int) -> Any:
    """By entry, which of `count` random parts its product is in: what a part learns is told of the products of another one."""
    return np.random.default_rng(seed).permutation(int(product.max()) + 1)[product] % count


def grown(asked: Any, left: Any, weight: Any, product: Any, few: bool, how: Growth = Growth(), seed: int = 0,
          common: float = COMMON) -> Trees:
    """Trees for rows of features `asked` [pairs, features], of which the logarithm of time over model is `left`. `product` numbers the
    products from 0. `common`: of what a product's pairs have in common, the share that is left out."""
    if not how.rounds:
        return replace(NONE, few=few)
    source = np.random.default_rng(seed)
    chance = np.minimum(1.0, PAIRS * weight / weight.sum())
    usual = source.random(len(left)) < chance
    shares = np.linspace(0, 1, CUTS + 2)[1:-1]
    cuts = [np.unique(np.quantile(column[usual], shares)) for column in asked.T]
    above = np.stack([np.searchsorted(cut, column) for cut, column in zip(cuts, asked.T, strict=True)]).astype(np.uint8)
    count, total, found = int(product.max()) + 1, np.bincount(product, weight), np.zeros(len(left))
    varied = np.array([feature for feature, cut in enumerate(cuts) if len(cut)])
    trees = []
    for _ in range(how.rounds):
        rest = left - found
        rest = rest - common * (np.bincount(product, weight * rest, count) / total)[product]
        some = np.flatnonzero(source.random(len(left)) < chance)        # each counts as much as those like it that were not drawn
        features = source.permutation(varied)[:max(1, round(ASKED * len(varied)))].tolist()
        asks = _asks(above[:, some], rest[some], weight[some] / chance[some], features, [len(cut) + 1 for cut in cuts], how.levels)
        leaf = np.zeros(len(left), dtype=np.uint8)
        for feature, cut in asks:
            leaf = 2 * leaf + (above[feature] > cut)
        leaves = how.rate * np.bincount(leaf, weight * rest, 1 << how.levels) / (np.bincount(leaf, weight, 1 << how.levels) + DRAW)
        found += leaves[leaf]
        trees.append(([feature for feature, _ in asks], [cuts[feature][cut] for feature, cut in asks], leaves))
    places, at, leaves_of_all = zip(*trees, strict=True)
    return Trees(np.array(places), np.array(at), np.array(leaves_of_all), few)


def _asks(above: Any, rest: Any, weight: Any, features: list[int], bins: list[int], levels: int) -> list[tuple[int, int]]:
    """A tree's questions: at each level the one that leaves the least."""
    leaf, asks, weighed = np.zeros(len(rest), dtype=np.int64), [], weight * rest
    for level in range(levels):
        best: tuple[float, int, int] = (-1.0, features[0], 0)
        for feature in features:
            count = bins[feature]
            key = leaf * count + above[feature]
            sums, sizes = (np.bincount(key, values, count << level).reshape(-1, count).cumsum(axis=1) for values in (weighed, weight))
            below, size = sums[:, :-1], sizes[:, :-1]
            gain = (below ** 2 / (size + DRAW) + (sums[:, -1:] - below) ** 2 / (sizes[:, -1:] - size + DRAW)).sum(axis=0)
            cut = int(np.argmax(gain))
            best = max(best, (float(gain[cut]), feature, cut))
        asks.append(best[1:])
        leaf = 2 * leaf + (above[best[1]] > best[2])
    return asks


def joined(one: Trees, other: Trees) -> Trees:
    """The trees of both. Those of fewer questions get others that are always answered no."""
    levels = max(one.places.shape[1], other.places.shape[1])
    places, cuts, leaves = (np.concatenate(both) for both in zip(_deepened(one, levels), _deepened(other, levels), strict=True))
    return Trees(places, cuts, leaves, one.few or other.few)


def _deepened(trees: Trees, levels: int) -> tuple[Any, Any, Any]:
    more = ((0, 0), (levels - trees.places.shape[1], 0))
    return (np.pad(trees.places, more), np.pad(trees.cuts, more, constant_values=NEVER),
            np.pad(trees.leaves, ((0, 0), (0, (1 << levels) - trees.leaves.shape[1]))))


__all__ = ["FAR", "ROUNDS", "Growth", "grown", "joined", "parts", "weights"]
