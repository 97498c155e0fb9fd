"""What measurements say of the tiles of grouped products beyond `grouped_causes` and `grouped_tiles`: on a card that has trees, the tile
that they put first, if it gains enough.

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
from dataclasses import dataclass, field, fields
from math import gcd
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from ptxkit.cards import Card, known

from ..config.grouped import DynamicGroups, GroupOperands, StaticGroups
from ..config.parts import ClusterShape, Pingpong, Tile
from ..problem.grouped import GroupProblem
from ..scheduler.group_table import CONTIGUOUS_ROWS, COUNTED
from . import corrections, grouped_few, grouped_kinds
from .corrections import NONE, Trees, log2
from .costs import LINE, fit_path
from .group_tile import GroupTile
from .grouped_causes import Columns, bare, clocks_of, widths_of
from .grouped_causes import tiles as tiles_of_causes
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
GAIN_OF_KINDS, GAIN_OF_BLOCKS = 0.05, 0.01
"""The same of other kinds; and of contiguous groups, whose number of blocks is known."""
MOST_WEIGHTS = 5e8
"""Bytes of all groups' weights in the largest random products by which GAIN_OF_WHOLE was set."""
STEPS = 4
"""Each doubling of the tokens a group has 2 ** STEPS steps, for which trees are asked once."""
MOST_ANSWERS = 8
"""How many tiles an answer has at most. The first of them that the problem can have is taken."""
WIDEST_STEP, LEAST = 64, 2.0 ** -20
"""The most tokens in a step: tiles of 64, 128, 192 and 256 tokens have a whole number of such steps. And the fewest tokens that trees are
asked about."""
Values = Any                    # a number or an array of them


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
    of_few = grouped_few.tiles(problem.mean, problem.x.bits) if few(problem) else ()
    if problem.mean <= FEW or forest_of(problem) == "few-kinds":
        return of_few
    costed = () if of_few else (each.tile for each in tiles_of(problem, card))
    return tuple(dict.fromkeys((*of_few, *tiles_of_causes(widths_of(problem)), *further(), *costed)))


def features(problem: GroupProblem, some: tuple[GroupTile, ...], seen: Columns, clocks: Any) -> dict[str, Values]:
    """What a tree can ask about tiles: a number for each tile, or one for all. `clocks` [lengths, tiles] come from `clocks_of`."""
    mean, groups, n, k, size = problem.mean, problem.groups, problem.n * (1 + problem.options.gated), problem.k, problem.x.bits / 8
    own = {field.name: getattr(seen, field.name)[:, 0] for field in fields(seen)}
    rows, across, total = np.ceil(mean / own["tokens"]), np.ceil(n / own["features"]), clocks.sum(axis=0)
    down, every = rows * groups, mean * groups
    if problem.options.layout == "contiguous":                  # whose number of blocks is known
        every = problem.blocks * CONTIGUOUS_ROWS
        down = every / own["tokens"]
    count = down * across
    waves, moved = count / own["resident"], (every + groups * n) * k * size + every * problem.n * problem.out.bits / 8
    x, w = pitches(problem)
    return {
        "mean": log2(mean), "groups": log2(groups), "n": log2(n), "k": log2(k), "x line": gcd(x, LINE), "w line": gcd(w, LINE),
        "y line": gcd(n * problem.out.bits // 8, LINE), **own, "sorted": np.array([each.longest_first for each in some]),
        "given stages": np.array([each.stages for each in some]), "rows": rows, "across": across,
        "full tokens": mean / (rows * own["tokens"]), "full features": n / (across * own["features"]), "waves": waves,
        "last wave": waves - np.floor(waves), "busy": np.minimum(waves, 1.0), "total": log2(total), "alike": log2(clocks[0] / total),
        "skewed": log2(clocks[-1] / total), "tile": log2(own["tokens"] * own["features"]), "bytes": log2(moved),
        "intensity": log2(2 * every * n * k / moved), "all tiles": log2(count),
        "full clusters": across / (np.ceil(across / own["along_weights"]) * own["along_weights"]),
        **(grouped_kinds.kind(problem, some) if forest_of(problem) in OF_KINDS else {})}


def judged(problem: GroupProblem, some: tuple[GroupTile, ...], card: Card) -> tuple[Any, Any]:
    """The clocks of a launch by the causes, in the mean over the lengths that are counted, and the features [tiles, NAMES]."""
    seen = _columns(some, problem.x.bits, card)
    clocks = clocks_of(problem, seen, card)
    found, names = features(problem, some, seen, clocks), names_of(forest_of(problem))
    return clocks.mean(axis=0), corrections.in_rows([found[name] for name in names], len(some))


@functools.lru_cache(256)
def _columns(some: tuple[GroupTile, ...], bits: int, card: Card) -> Columns:
    return Columns.of(some, card, as_they_are=True, bits=bits)


def path_of(card: Card, forest: Forest, output: Path | None = None) -> Path:
    """The file that has a forest of a card. A fit may write to an `output` instead. The forest of straddling rows has that very path, the
    others have files beside it."""
    path = fit_path(card.name)
    path = path.with_name(f"{path.stem}.grouped.json") if output is None else output
    return path if forest == "straddling" else path.with_name(f"{path.stem}-{forest}{path.suffix}")


@functools.lru_cache(48)
def of_card(card: Card, forest: Forest) -> Trees:
    """The trees of a card that was measured whole; none of others, whosever constants they have, and of parts of a card."""
    path, whole = path_of(card, forest), known(card.name)
    return corrections.read(path, names_of(forest)) if whole is not None and whole.sms == card.sms and path.is_file() else NONE


def takes(problem: GroupProblem) -> bool:
    """Whether trees learn from such products, and choose for them: results of 16 bits, without scales, with one of each group or with those
    of blocks that producers copy, and with a gate or not. Weights of contiguous groups lie along K. So do those of few tokens, which have
    no scales of blocks."""
    options, layout = problem.options, problem.options.layout
    stored = problem.by_element or problem.scatter or problem.gathered or problem.quantised or problem.out.bits != 16
    if problem.empty or stored or options.order or not (layout in COUNTED or layout == "contiguous"):
        return False
    if forest_of(problem) not in OF_KINDS:
        return True
    if 2 * problem.mean * problem.groups * problem.n * (1 + options.gated) * problem.k > LARGEST:
        return False
    if problem.vectors or problem.gate_step < LEAST_STEP:
        return False
    if forest_of(problem) == "few-kinds":                       # whose tiles may have the tokens as columns
        return problem.w_major == "k" and not (problem.promote or problem.as_rows)
    if problem.promote and not (problem.scales_in_shared and problem.scales_by_producer):
        return False
    return problem.w_major == "k" or layout != "contiguous"


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


@functools.lru_cache(4096)
def _answer(question: Question) -> tuple[GroupTile, ...]:
    """The tiles that gain enough over the own one by the trees, the fastest first. Each question is answered once."""
    problem = question.asked
    some = tuple(dict.fromkeys((question.own, *tiles(problem, question.card))))
    clocks, told = judged(problem, some, question.card)
    said = np.log(clocks) + of_card(question.card, forest_of(problem)).logarithm(told)
    return tuple(some[place] for place in np.argsort(said, kind="stable")[:MOST_ANSWERS] if gains(problem, said[place], said[0]))


def better(problem: GroupProblem, own: GroupTile, card: Card) -> tuple[GroupTile, ...]:
    """The tiles that gain enough by the trees over the one that is chosen without them, the fastest first. A problem may not be able to
    have some of them."""
    return _answer(Question.of(own, problem, card)) if chooses(problem, card) else ()


def gains(problem: GroupProblem, said: float, own: float) -> bool:
    """Whether the logarithm of a tile's clocks is enough below that of the choice without trees."""
    return said < own + math.log(1 - _gain(problem))


def _gain(problem: GroupProblem) -> float:
    """The share of the time that another tile must gain."""
    if problem.options.layout == "contiguous":
        return GAIN_OF_BLOCKS
    if forest_of(problem) in OF_KINDS:
        return GAIN_OF_KINDS
    if straddles(problem):
        return GAIN
    weights = problem.groups * problem.n * problem.k * problem.w.bits / 8
    return GAIN_OF_WHOLE if problem.mean <= FEW and weights <= MOST_WEIGHTS else GAIN_OF_LARGE


def names_of(forest: Forest) -> tuple[str, ...]:
    """What the trees of a forest can ask about, in the order of the files."""
    return (*NAMES, *grouped_kinds.NAMES) if forest in OF_KINDS else NAMES


NAMES = ("mean", "groups", "n", "k", "x line", "w line", "y line", *(field.name for field in fields(Columns)), "sorted", "given stages",
         "rows", "across", "full tokens", "full features", "waves", "last wave", "busy", "total", "alike", "skewed", "tile", "bytes",
         "intensity", "all tiles", "full clusters")
"""What the trees of every forest can ask about."""


__all__ = ["FORESTS", "NAMES", "Forest", "Question", "better", "features", "few", "forest_of", "further", "gains", "judged",
           "names_of", "of_card", "path_of", "rounded", "takes", "tiles"]
