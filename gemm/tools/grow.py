"""Grows the trees of `heuristic.corrections` from measurements: gradient boosting of oblivious trees on the errors of the cost model.

What counts is the order of the configurations of one product, most of all of its fast ones. So pairs weigh less the slower they are beside
the best of their product, and most of what all pairs of a product have in common is left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..heuristic.corrections import Trees

LEVELS = 4
ROUNDS = 900
RATE = 0.1                      # of a tree's answer that is kept
CUTS = 23                       # of a feature, at equal shares of the pairs
ASKED = 24                      # features that a tree chooses from
PAIRS = 30_000                  # that a tree's questions are chosen on
DRAW = 3.0                      # weight of an answer of 0
COMMON = 0.9                    # of what a product's pairs have in common that is left out
SLOW = 6.0                      # how fast a pair's weight falls with its time over the best


def weights(us: Any, best: Any) -> Any:
    """What a pair counts."""
    return np.exp(-SLOW * (us / best - 1)) + 0.02


def grown(asked: Any, left: Any, weight: Any, product: Any, few: bool, rounds: int = ROUNDS, seed: int = 0) -> Trees:
    """Trees for rows of features `asked` [pairs, features], of which the logarithm of time over model is `left`. `product` numbers the
    products from 0."""
    source = np.random.default_rng(seed)
    shares = np.linspace(0, 1, CUTS + 2)[1:-1]
    cuts = [np.unique(np.quantile(column, shares)) for column in asked.T]
    above = np.stack([np.searchsorted(cut, column) for cut, column in zip(cuts, asked.T, strict=True)], axis=1).astype(np.int32)
    count, total, found = int(product.max()) + 1, np.bincount(product, weight), np.zeros(len(left))
    trees = []
    for _ in range(rounds):
        rest = left - found
        rest = rest - COMMON * (np.bincount(product, weight * rest, count) / total)[product]
        some = source.choice(len(left), min(PAIRS, len(left)), replace=False)
        features = source.permutation(len(cuts))[:ASKED].tolist()
        asks = _asks(above[some], rest[some], weight[some], features, [len(cut) + 1 for cut in cuts])
        leaf = np.zeros(len(left), dtype=np.int64)
        for feature, cut in asks:
            leaf = 2 * leaf + (above[:, feature] > cut)
        leaves = RATE * np.bincount(leaf, weight * rest, 1 << LEVELS) / (np.bincount(leaf, weight, 1 << LEVELS) + DRAW)
        found += leaves[leaf]
        trees.append(([feature for feature, _ in asks], [cuts[feature][cut] for feature, cut in asks], leaves))
    places, at, leaves_of_all = zip(*trees, strict=True)
    return Trees(np.array(places), np.array(at), np.array(leaves_of_all), few)


def _asks(above: Any, rest: Any, weight: Any, features: list[int], bins: list[int]) -> list[tuple[int, int]]:
    """A tree's questions: at each level the one that leaves the least."""
    leaf, asks = np.zeros(len(rest), dtype=np.int64), []
    for level in range(LEVELS):
        best: tuple[float, int, int] = (-1.0, features[0], 0)
        for feature in features:
            count, key = bins[feature], leaf * bins[feature] + above[:, feature]
            sums, sizes = (np.bincount(key, values, count << level).reshape(-1, count).cumsum(axis=1) for values in (weight * rest, weight))
            below, size = sums[:, :-1], sizes[:, :-1]
            gain = (below ** 2 / (size + DRAW) + (sums[:, -1:] - below) ** 2 / (sizes[:, -1:] - size + DRAW)).sum(axis=0)
            cut = int(np.argmax(gain))
            best = max(best, (float(gain[cut]), feature, cut))
        asks.append(best[1:])
        leaf = 2 * leaf + (above[:, best[1]] > best[2])
    return asks


__all__ = ["ROUNDS", "grown", "weights"]
