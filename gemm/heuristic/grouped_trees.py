"""What measurements say of the tiles of grouped products beyond `grouped_causes` and `grouped_tiles`: on a card that has trees, the tile
that they put first, if it gains enough. When the next kernel begins counts in that, too (`grouped_overlaps`).

The trees have the form of those in `corrections`. Their answers are added up to the logarithm of a factor, which corrects the clocks that
`grouped_causes` gives a tile. There are four forests. Products in 16 bits with nothing fused have one for groups of up to 2 FEW tokens,
with tiles of their own (`grouped_few`), and one for rows that straddle lines. Other kinds have one for such groups of few tokens, and one
for longer groups and for contiguous ones (`grouped_kinds`). The host does not know the lengths, so the trees ask about the mean length
alone. They hold for the card that was measured: on an H100 those of an H200 chose worse than no trees.

`python -m ptxkit.gemm fit --grouped` grows them from what `grouped --sweep --variants tiles` measured, and keeps them in
`gemm/cards/fits/NAME.grouped.json`, and in files beside it that end in `-few.json`, `-kinds.json` and `-few-kinds.json`.
"""

from __future__ import annotations

import copy
import functools
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from ptxkit.cards import Card

from ..config.grouped import DynamicGroups, GroupOperands, StaticGroups
from ..config.parts import ClusterShape, Pingpong, Tile
from ..problem.grouped import GroupProblem
from . import corrections, grouped_features, grouped_few, grouped_kinds, grouped_overlaps
from .corrections import Trees
from .costs import fit_path
from .group_tile import GroupTile
from .grouped_causes import bare, widths_of
from .grouped_causes import tiles as tiles_of_causes
from .grouped_features import describe, judged, operations
from .grouped_kinds import LARGEST, LEAST_STEP
from .grouped_lines import pitches, straddles
from .grouped_tiles import FEW, tiles_of

Forest = Literal["straddling", "few", "kinds", "few-kinds"]
FORESTS: tuple[Forest, ...] = get_args(Forest)
OF_KINDS = ("kinds", "few-kinds")
"""The forests that are told the kind of a product."""
GAIN, GAIN_OF_WHOLE, GAIN_OF_LARGE = 0.02, 0.03, 0.08
"""What a tile must gain by the trees to take the place of the one that is chosen without them: where lines straddle; and of few tokens
where none does, up to FEW of them and MOST_WEIGHTS bytes, and beyond."""
GAIN_OF_KINDS, GAIN_OF_FEW_KINDS, GAIN_OF_BLOCKS = 0.03, 0.07, 0.01
"""The same of other kinds, of those with few tokens, and of contiguous groups, whose number of blocks is known."""
MOST_WEIGHTS = 5e8
"""GAIN_OF_WHOLE was set by random products. The weights of all groups of the largest one have so many bytes."""
STEPS = 4
"""Each doubling of the tokens a group has 2 ** STEPS steps, for which trees are asked once."""
WIDEST_STEP, LEAST = 64, 2.0 ** -20
"""The most tokens in a step: tiles of 64, 128, 192 and 256 tokens have a whole number of such steps. And the fewest tokens that trees are
asked about."""


@functools.cache
def further() -> tuple[GroupTile, ...]:
    """Tiles that are the fastest of some random products, and in no list of the other choices."""
    share_tokens = StaticGroups(cluster=ClusterShape(1, 2))
    return (*(GroupTile(tile, scheduler=share_tokens) for tile in (Tile(256, 160), Tile(128, 256))),
            *map(GroupTile, (Tile(256, 128), Tile(192, 192), Tile(192, 128), Tile(128, 192))),
            GroupTile(Tile(128, 160), Pingpong()), GroupTile(Tile(128, 256), scheduler=DynamicGroups()))


def few(problem: GroupProblem) -> bool:
    """Whether groups have few tokens, for which there are other tiles and other trees."""
    return problem.mean <= 2 * FEW


def forest_of(problem: GroupProblem) -> Forest:
    """The trees that know such products, if any do."""
    if not bare(problem) or problem.w_major != "k":
        return "few-kinds" if few(problem) and problem.options.layout != "contiguous" else "kinds"
    return "few" if few(problem) else "straddling" if straddles(problem) else "kinds"


def tiles(problem: GroupProblem, card: Card) -> tuple[GroupTile, ...]:
    """What is chosen from, each once."""
    if forest_of(problem) == "kinds":
        counted = () if problem.options.layout == "contiguous" else (each.tile for each in tiles_of(problem, card))
        return tuple(dict.fromkeys((*grouped_kinds.tiles(problem), *counted)))
    of_few = grouped_few.tiles(problem.mean, problem.x.bits, promoted=problem.promote) if few(problem) else ()
    if problem.mean <= FEW or forest_of(problem) == "few-kinds":
        return of_few
    costed = () if of_few else (each.tile for each in tiles_of(problem, card))
    return tuple(dict.fromkeys((*of_few, *tiles_of_causes(widths_of(problem)), *further(), *costed)))


def path_of(card: Card, forest: Forest, output: Path | None = None) -> Path:
    """The file that has a forest of a card. A fit may write to an `output` instead. The forest of straddling rows has that very path, the
    others have files beside it."""
    path = fit_path(card.name)
    path = path.with_name(f"{path.stem}.grouped.json") if output is None else output
    return path if forest == "straddling" else path.with_name(f"{path.stem}-{forest}{path.suffix}")


@functools.lru_cache(48)
def of_card(card: Card, forest: Forest) -> Trees:
    """The trees of a card; none where it was not measured whole."""
    return corrections.measured_whole(card, path_of(card, forest), names_of(forest))


def takes(problem: GroupProblem) -> bool:
    """Whether trees learn from such products, and choose for them. Features describe these. Where groups are contiguous or have few tokens,
    the weights lie along K."""
    if not describe(problem):
        return False
    if forest_of(problem) not in OF_KINDS:
        return True
    if operations(problem) > LARGEST or problem.gate_step < LEAST_STEP:
        return False
    if forest_of(problem) == "few-kinds":                       # whose tiles may have the tokens as columns
        return problem.w_major == "k" and not problem.as_rows
    return problem.w_major == "k" or problem.options.layout != "contiguous"


def chooses(problem: GroupProblem, card: Card) -> bool:
    """Whether the card has trees that choose for such products."""
    return takes(problem) and len(of_card(card, forest_of(problem))) > 0


def rounded(mean: float) -> float:
    """The tokens that trees are asked about: about so many, and in as many tiles. The number of rows may be another one at each call of a
    model, and a choice takes as long as a small product."""
    mean = max(mean, LEAST)
    step = min(2.0 ** (math.floor(math.log2(mean)) - STEPS), WIDEST_STEP)
    return math.ceil(mean / step) * step


@dataclass(frozen=True, slots=True)
class Question:
    """All that an answer about tiles depends on: the tile that is chosen without it, and the product's tokens, extents, operands and
    pitches. Of the `problem` itself nothing else counts, so that products with the same question share an answer."""

    own: GroupTile
    mean: float
    groups: int
    n: int
    k: int
    operands: GroupOperands
    promoted: bool
    as_rows: bool
    pitches: tuple[int, int]
    blocks: int
    card: Card
    problem: GroupProblem = field(compare=False)

    @classmethod
    def of(cls, own: GroupTile, problem: GroupProblem, card: Card) -> Question:
        return cls(own, rounded(problem.mean), problem.groups, problem.n, problem.k, problem.operands, problem.promote, problem.as_rows,
                   pitches(problem), problem.blocks if problem.options.layout == "contiguous" else 0, card, problem)

    @property
    def asked(self) -> GroupProblem:
        """The problem with the tokens of the question."""
        problem = copy.copy(self.problem)
        problem.mean = self.mean
        return problem


@dataclass(frozen=True, slots=True)
class Answer:
    """The tile that is chosen without trees, with the begin of the next kernel that is best for it; and the tiles that gain enough over it
    by the trees, the fastest first."""

    own: GroupTile
    better: tuple[GroupTile, ...] = ()


def ranked(problem: GroupProblem, some: tuple[GroupTile, ...], card: Card) -> tuple[list[GroupTile], Any, Any]:
    """Some tiles, the fastest first by the causes and the trees that the card has; the logarithms of their clocks, and what trees are told
    of them [tiles, NAMES]."""
    forest = forest_of(problem)
    clocks, told = judged(problem, some, card)
    said = np.log(clocks)
    if chooses(problem, card):
        said = said + of_card(card, forest).logarithm(told[:, :len(names_of(forest))])
    order = np.argsort(said, kind="stable")
    return [some[place] for place in order.tolist()], said[order], told[order]


@functools.lru_cache(4096)
def _answer(question: Question) -> Answer:
    """Each question is answered once."""
    problem, card, own = question.asked, question.card, question.own
    others = tiles(problem, card) if chooses(problem, card) else ()
    some, said, told = ranked(problem, tuple(dict.fromkeys((own, *others))), card)
    first = list(dict.fromkeys((some.index(own), *range(min(len(some), grouped_overlaps.ASKED)))))
    found, said = [some[place] for place in first], said[first]
    if grouped_overlaps.chooses(problem, card):
        found, changes = grouped_overlaps.begun(problem, found, told[first], card)
        said = said + changes
    better = [found[place] for place in np.argsort(said, kind="stable").tolist() if place and gains(problem, said[place], said[0])]
    return Answer(found[0], tuple(better))


def answer(problem: GroupProblem, own: GroupTile, card: Card) -> Answer:
    """What the trees of the card say of a problem whose tile is `own` without them. A problem may not be able to have some of the tiles."""
    if not (chooses(problem, card) or grouped_overlaps.chooses(problem, card)):
        return Answer(own)
    return _answer(Question.of(own, problem, card))


def gains(problem: GroupProblem, said: float, own: float) -> bool:
    """Whether the logarithm of a tile's clocks is enough below that of the choice without trees."""
    return said < own + math.log(1 - _gain(problem))


def _gain(problem: GroupProblem) -> float:
    """The share of the time that another tile must gain."""
    if problem.options.layout == "contiguous":
        return GAIN_OF_BLOCKS
    if forest_of(problem) in OF_KINDS:
        return GAIN_OF_FEW_KINDS if few(problem) else GAIN_OF_KINDS
    if straddles(problem):
        return GAIN
    weights = problem.groups * problem.n * problem.k * problem.w.bits / 8
    return GAIN_OF_WHOLE if problem.mean <= FEW and weights <= MOST_WEIGHTS else GAIN_OF_LARGE


def names_of(forest: Forest) -> tuple[str, ...]:
    """What the trees of a forest can ask about, in the order of the files."""
    return grouped_features.NAMES if forest in OF_KINDS else grouped_features.OF_TILES


__all__ = ["FORESTS", "Answer", "Forest", "Question", "answer", "few", "forest_of", "further", "gains", "names_of", "of_card", "path_of",
           "ranked", "rounded", "takes", "tiles"]
