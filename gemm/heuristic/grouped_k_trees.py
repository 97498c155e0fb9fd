"""What measurements say of configurations of products with groups along K beyond `grouped_k_causes`: on a card that has trees, the
configuration that they put first, if it gains enough. Other trees say when the next kernel begins, as `overlaps` does for dense products.

The trees have the form of those in `corrections`. The host does not know the lengths, so they ask about the mean length alone. They hold
for the card that was measured. `python -m ptxkit.gemm fit --grouped-k` grows them from what `benchmarks/weight_gradients.py --sweep`
measured, and keeps them in `gemm/cards/fits/NAME.grouped-k.json` and `NAME.grouped-k-overlaps.json`.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from ptxkit.cards import Card

from ..config.budget import STAGE_BYTES
from . import corrections
from .corrections import Trees, log2
from .costs import fit_path
from .grouped_k_causes import Modelled

NAMES = (*corrections.NAMES, "out size", "added", "dynamic", "differing", "one", "depth")
"""What a tree can ask about: all that the trees of `corrections` can; the bytes of an element of the result, and of what it is added to;
whether CTAs draw their tiles; how many times as long groups that differ take by the model, and ones of which one has half of all rows; and
the stages of a group."""
NAMES_OF_BEGINS = (*NAMES, "later")
"""The same for the trees of begins, and which later one it is (its index in `overlaps.LATER`)."""


def path_of(card: Card, output: Path | None = None) -> Path:
    """Where the trees of a card are kept, if a fit does not write to an `output`."""
    path = fit_path(card.name)
    return output or path.with_name(f"{path.stem}.grouped-k.json")


def begins_beside(path: Path) -> Path:
    """Where the trees of begins are kept, beside those at this path."""
    return path.with_name(f"{path.stem}-overlaps{path.suffix}")


@functools.lru_cache(16)
def of_card(card: Card) -> Trees:
    """The trees of a card; none where it was not measured whole."""
    return corrections.measured_whole(card, path_of(card), NAMES)


@functools.lru_cache(16)
def begins_of_card(card: Card) -> Trees:
    """The trees of begins of a card; none where it was not measured whole."""
    return corrections.measured_whole(card, begins_beside(path_of(card)), NAMES_OF_BEGINS)


def matrix(said: Modelled, dynamic: Any) -> Any:
    """What trees are told of configurations [configurations, NAMES]: what the model says of them, and whether CTAs draw their tiles."""
    asked = said.asked
    found = corrections.features(asked, said.seen, said.parts, False, False) | {
        "out size": asked.out_size, "added": asked.added, "dynamic": dynamic, "differing": log2(said.differing / said.clocks[0]),
        "one": log2(said.clocks[-1] / said.clocks[0]), "depth": log2(asked.k * asked.size / STAGE_BYTES)}
    return corrections.in_rows(found.values(), len(dynamic))


__all__ = ["NAMES", "NAMES_OF_BEGINS", "begins_beside", "begins_of_card", "matrix", "of_card", "path_of"]
