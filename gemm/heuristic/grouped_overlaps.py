"""When the kernel after a grouped product begins, as `overlaps` says it for dense products.

It is a matter of kernels whose CTAs know their tiles (`StaticGroups`). Trees say of a tile how many times as long it takes with each later
begin. They are asked about the tiles that are fastest so far, and a tile has the begin that is best for it by them. Results do not depend
on it. On a card without such trees the next kernel begins with the product.

`python -m ptxkit.gemm fit --grouped --overlaps` grows them from what `grouped --sweep --variants overlaps` measured, and keeps them in
`gemm/cards/fits/NAME.grouped-overlaps.json`. They hold for the card that was measured.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from ptxkit.cards import Card

from ..config.grouped import GroupedConfig, StaticGroups
from ..config.parts import Overlap
from ..problem.grouped import GroupProblem
from ..scheduler.group_table import CONTIGUOUS_ROWS
from . import corrections, grouped_features
from .corrections import Trees
from .costs import fit_path
from .group_tile import GroupTile
from .grouped_features import describe, operations
from .grouped_kinds import LARGEST
from .grouped_tiles import FEW
from .overlaps import LATER, matrix

NAMES = (*grouped_features.NAMES, "later")
"""What a tree can ask about: all that the trees of tiles can, and which later begin it is (its index in `LATER`)."""
ASKED = 8
"""Tiles that the trees are asked about, the fastest ones."""
GAIN = 0.01
"""What a later begin must gain. Up to FEW tokens a group never wait for the end. What both cost and save is in
docs/grouped-performance.md."""


def takes(problem: GroupProblem) -> bool:
    """Whether trees learn from such products, and choose for them. Where groups have one block of contiguous rows, nobody knows how many of
    these are padding."""
    one_block = problem.options.layout == "contiguous" and problem.mean <= CONTIGUOUS_ROWS
    return describe(problem) and not one_block and operations(problem) <= LARGEST


def path_of(card: Card) -> Path:
    """Where the trees of a card are kept."""
    path = fit_path(card.name)
    return path.with_name(f"{path.stem}.grouped-overlaps.json")


@functools.lru_cache(16)
def of_card(card: Card) -> Trees:
    """The trees of a card; none where it was not measured whole."""
    return corrections.measured_whole(card, path_of(card), NAMES)


def chooses(problem: GroupProblem, card: Card) -> bool:
    """Whether the card has trees that choose the begin for such products."""
    return takes(problem) and len(of_card(card)) > 0


def begins(tile: GroupTile) -> tuple[GroupTile, ...]:
    """The tile with each begin of the next kernel, the product's own first; alone where CTAs draw their tiles."""
    scheduler = tile.scheduler
    if not isinstance(scheduler, StaticGroups):
        return (tile,)
    return tuple(replace(tile, scheduler=replace(scheduler, overlap=when)) for when in get_args(Overlap))


def at_the_start(config: GroupedConfig) -> GroupedConfig:
    """The same configuration where the next kernel begins with it."""
    scheduler = config.scheduler
    return replace(config, scheduler=replace(scheduler, overlap="start")) if isinstance(scheduler, StaticGroups) else config


def begun(problem: GroupProblem, some: Sequence[GroupTile], told: Any, card: Card) -> tuple[list[GroupTile], Any]:
    """The tiles with the begin that is best for each, and the logarithms of what that changes. `told`: rows of `judged`."""
    changes = np.zeros((len(some), 1 + len(LATER)))
    which = np.array([isinstance(each.scheduler, StaticGroups) for each in some])
    if which.any():
        changes[which, 1:] = of_card(card).logarithm(matrix(told[which])).reshape(-1, len(LATER))
    needed = np.array([0.0, *[GAIN] * len(LATER)])
    if problem.mean <= FEW:
        needed[1 + LATER.index("end")] = math.inf
    best = (changes + needed).argmin(axis=1)
    return [begins(each)[at] if at else each for each, at in zip(some, best.tolist(), strict=True)], changes[np.arange(len(some)), best]


__all__ = ["ASKED", "NAMES", "at_the_start", "begins", "begun", "chooses", "of_card", "path_of", "takes"]
