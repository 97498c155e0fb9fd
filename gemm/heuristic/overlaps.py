"""When the kernel after a dense product begins: with it, after its loads, or after its end.

A kernel that begins early takes room and copies from the product before it, and one that begins late makes the card wait for its launch.
Which counts more is in no cause of the cost model. Trees, in the form of those in `corrections`, say of the model's first candidates how
many times as long they take with each later begin, and a candidate has the begin that is best for it by them. Results do not depend on it.

`python -m ptxkit.gemm fit --overlaps` grows the trees from what `sample --overlaps` measured, and keeps them in
`gemm/cards/fits/NAME.overlaps.json`. They hold for the card that was measured and for cards with its constants. Without trees the next
kernel begins with the product.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from ptxkit.cards import Card

from ..config.dense import DenseConfig
from ..config.parts import Overlap, Scheduler, Static
from . import corrections
from .corrections import NONE, Corrected, Trees
from .costs import Columns, fit_path, fitted_as

LATER: tuple[Overlap, ...] = ("loads", "end")
ASKED = 8
"""Candidates that the trees are asked about, the fastest ones."""
NAMES = (*corrections.NAMES, "later")
"""What a tree can ask about: all that the trees of `corrections` can, and which later begin it is (its index in `LATER`)."""


def other_begins(config: DenseConfig) -> list[DenseConfig]:
    """The same configuration with each other begin of the next kernel; none for a scheduler that has no choice of it."""
    scheduler = config.scheduler
    begins = [when for when in get_args(Overlap) if when != scheduler.overlap] if isinstance(scheduler, Static) else []
    return [replace(config, scheduler=replace(scheduler, overlap=when)) for when in begins]


def at_the_start(config: DenseConfig) -> DenseConfig:
    """The same configuration where the next kernel begins with it."""
    scheduler = config.scheduler
    return replace(config, scheduler=replace(scheduler, overlap="start")) if isinstance(scheduler, Static) else config


def matrix(told: Any) -> Any:
    """Rows of `corrections.matrix` with each later begin in turn: [rows x begins, NAMES]."""
    begins = np.tile(np.arange(len(LATER), dtype=np.float64), len(told))
    return np.column_stack([np.repeat(told, len(LATER), axis=0), begins])


def overlaps_beside(path: Path) -> Path:
    """Where the trees are kept that were learned with the constants at this path."""
    return path.with_name(f"{path.stem}.overlaps.json")


def path_of(card: Card) -> Path:
    """Where the trees of a card are kept."""
    return overlaps_beside(fit_path(card.name))


@functools.lru_cache(16)
def of_card(card: Card) -> Trees:
    """The trees of the card whose constants a card has; none where that has none."""
    path = path_of(fitted_as(card))
    return corrections.read(path, NAMES) if path.is_file() else NONE


def chosen(trees: Trees, seen: Columns, by_trees: Corrected) -> tuple[Mapping[int, Overlap], Any]:
    """By place, which of the candidates have a later begin, and the clocks of all with that. `by_trees`: what `corrections` say of them."""
    clocks, places = by_trees.clocks, by_trees.places
    if not len(trees):
        return {}, clocks
    first = np.argsort(clocks[places], kind="stable")[:ASKED]
    there = places[first]
    first = first[(seen.stream[there] == 0) & (seen.splits[there] == 1)]        # of the schedulers among them only Static has a choice
    said = trees.logarithm(matrix(by_trees.told[first])).reshape(-1, len(LATER))
    best, least = said.argmin(axis=1), said.min(axis=1)
    changed = clocks.copy()
    changed[places[first]] *= np.exp(np.minimum(least, 0.0))
    return {int(places[at]): LATER[when] for at, when, gain in zip(first, best, least, strict=True) if gain < 0}, changed


def factor(trees: Trees, scheduler: Scheduler, told: Any) -> float:
    """How many times as long one configuration takes with the begin that it has, by its row of `corrections.matrix` (none: 1)."""
    if not len(trees) or not len(told) or not isinstance(scheduler, Static) or scheduler.overlap not in LATER:
        return 1.0
    return float(np.exp(trees.logarithm(matrix(told))[LATER.index(scheduler.overlap)]))


__all__ = ["ASKED", "LATER", "NAMES", "at_the_start", "chosen", "factor", "matrix", "of_card", "other_begins", "overlaps_beside", "path_of"]
