"""Trees of what was measured in groups, and what they say of products that they have not seen: a part of the products is held out of them
in turn. See `grouped_fit` and `grouped_k_fit`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxkit.cards import Card
from ptxkit.measure.figures import quantile

from ..heuristic.corrections import Trees
from .grow import Growth, grown, parts, weights

FOLDS = 5                       # of the products, each held out of the trees once


@dataclass(frozen=True, slots=True)
class Entries:
    """What was measured, an entry for each tile or configuration of a product: its product, the features, the logarithm of the clocks by
    the model, its microseconds and those of the product's best."""

    product: Any
    asked: Any
    clocks: Any
    us: Any
    best: Any


def taught(some: Entries, which: Any, card: Card, how: Growth, far: float) -> Trees:
    """Trees of some entries, but for those that take `far` times as long as the best of their product or longer."""
    near = which & (some.us < far * some.best)
    left = np.log(some.us * card.clock_mhz) - some.clocks
    _, product = np.unique(some.product[near], return_inverse=True)
    return grown(some.asked[near], left[near], weights(some.us, some.best)[near], product, False, how)


def unseen(some: Entries, card: Card, how: Growth, far: float) -> Any:
    """The logarithm of the clocks of each entry, from trees that have not seen its product."""
    part = parts(some.product, FOLDS, 0)
    found = some.clocks.copy()
    for fold in range(FOLDS):
        mine = part == fold
        found[mine] += taught(some, ~mine, card, how, far).logarithm(some.asked[mine])
    return found


def told(before: Sequence[float], after: Sequence[float]) -> list[str]:
    """Regrets in words: without trees, and with trees that have not seen the product."""
    return [f"{what}: {len(found)} products, regret {math.exp(float(np.log(found).mean())):.4f}, "
            f"95th percentile {quantile(list(found), 0.95):.3f}, worst {max(found):.3f}"
            for what, found in (("without trees", before), ("with trees that have not seen the product", after))]


__all__ = ["FOLDS", "Entries", "taught", "told", "unseen"]
