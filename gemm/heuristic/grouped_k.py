"""Which configuration a product with groups along K gets: the least time by the model; on a card that has trees the one that they put
first, if it gains enough. Where a group may be longer than a CTA's fair share of all rows, CTAs share its tiles if that gains enough."""

from __future__ import annotations

import copy
import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ptxkit.cards import H200, Card

from ..config.grouped_k import GroupedKConfig, OperandsAlongK
from ..problem.grouped_k import ProblemAlongK
from .grouped_k_causes import Judged, Modelled, begins, judged, untaught
from .grouped_k_parts import Shared, parts_of_card, shared
from .grouped_k_parts import clocks as clocks_with
from .grouped_k_parts import matrix as matrix_of_parts
from .grouped_k_trees import begins_of_card, matrix, of_card
from .grouped_trees import rounded
from .overlaps import LATER
from .overlaps import matrix as of_begins

ASKED = 8
"""For so many configurations, the fastest ones, trees say when the next kernel begins."""
GAIN = 0.01
"""The share of the time that another configuration must gain by the trees. Times of one configuration differ by about as much."""
RISK, NEAR = 0.2, 0.2
"""Where one group has half of all rows, a candidate may take several times as long as others. Trees have seen too few of these to know how
long. The logarithm of its clocks over the least ones there counts by RISK beyond NEAR: of 1,571 products the 99th percentile of the time
over the best is 1.53, without that 1.84."""
GAIN_OF_BEGINS = 0.01
"""What a later begin must gain."""
ASKED_OF_PARTS = 24
"""Of candidates whose CTAs share tiles, trees are asked about so many, those that promise most."""
GAIN_OF_PARTS = 0.05
"""What sharing must gain by the trees."""
GAIN_ALONE, GAIN_OF_ONE = 0.2, 0.1
"""What sharing must gain by the model, where there are no trees: of several groups, whose lengths it does not know, and of one group. Of
109 products of one group and 41 with thin results the model's choice takes 0.86 and 0.93 times as long as without parts. 9 and 3 of them
take more than 3 % longer."""
LARGEST, LEAST, FEWEST_ROWS, MOST_GROUPS = 2.5e12, 64, 8, 1024
"""What was measured: the operations of the largest product, the least M and N, the fewest rows of a group in the mean, and the most
groups."""


@dataclass(frozen=True, slots=True)
class Question:
    """All that a choice depends on; of the `problem` itself nothing else counts."""

    groups: int
    mean: float
    m: int
    n: int
    operands: OperandsAlongK
    pitches: tuple[tuple[int, ...], ...]
    card: Card
    problem: ProblemAlongK = field(compare=False)

    @classmethod
    def of(cls, problem: ProblemAlongK, card: Card) -> Question:
        pitches = tuple(lines.strides for lines in (problem.a_lines, problem.b_lines))
        return cls(problem.groups, rounded(problem.mean), problem.m, problem.n, problem.operands, pitches, card, problem)

    @property
    def asked(self) -> ProblemAlongK:
        """The problem with the mean length of the question."""
        problem = copy.copy(self.problem)
        problem.rows = round(self.mean * self.groups)
        return problem


def chooses(problem: ProblemAlongK, card: Card) -> bool:
    """Whether the card has trees that choose for such products. They have seen bf16, whose results are bf16 or are accumulated in f32, and
    choose for f16 and for other results as well."""
    measured = 2 * problem.rows * problem.m * problem.n <= LARGEST and min(problem.m, problem.n) >= LEAST
    return measured and 1 < problem.groups <= MOST_GROUPS and problem.mean >= FEWEST_ROWS and len(of_card(card)) > 0


def risk(said: Modelled) -> Any:
    """What the logarithms of the clocks are raised by, since lengths may differ that much."""
    over = np.log(said.clocks[-1] / said.clocks[-1].min())
    return RISK * np.maximum(over - NEAR, 0.0)


@dataclass(frozen=True, slots=True)
class Weighed:
    """All candidates of a problem, what trees are told of them, and the logarithms of their clocks by the model and the trees."""

    found: Judged
    told: Any
    clocks: Any

    @classmethod
    def of(cls, problem: ProblemAlongK, card: Card) -> Weighed:
        found = judged(problem, card)
        told = matrix(found.said, found.dynamic)
        return cls(found, told, found.said.blended + of_card(card).logarithm(told) + risk(found.said))

    def ranked(self, card: Card) -> Iterator[tuple[float, GroupedKConfig]]:
        """All candidates with the logarithms of their clocks: at first the one that is chosen without trees, then all of them, the fastest
        first. Those that come first, and that one, have the begin of the next kernel that is best for them."""
        found, clocks = self.found, self.clocks.copy()
        first = np.unique([found.own, *np.argsort(clocks, kind="stable")[:ASKED].tolist()])
        first = first[found.dynamic[first] == 0]
        begin = np.zeros(len(clocks), dtype=np.int64)
        if len(first):
            changes = np.zeros((len(first), 1 + len(LATER)))
            changes[:, 1:] = begins_of_card(card).logarithm(of_begins(self.told[first])).reshape(-1, len(LATER))
            begin[first] = (changes + GAIN_OF_BEGINS * (np.arange(1 + len(LATER)) > 0)).argmin(axis=1)
            clocks[first] += changes[np.arange(len(first)), begin[first]]
        for place in (found.own, *np.argsort(clocks, kind="stable").tolist()):
            config = found.configs[place]
            yield float(clocks[place]), begins(config)[begin[place]] if begin[place] else config

    def whole(self, card: Card) -> tuple[float, GroupedKConfig]:
        """What is chosen of these: the one without trees, if the first does not gain enough; and the logarithm of its clocks."""
        own, first = itertools.islice(self.ranked(card), 2)
        return first if first[0] < own[0] + math.log(1 - GAIN) else own

    def shared(self, problem: ProblemAlongK, card: Card) -> Shared | None:
        """The candidates whose CTAs share tiles, those first that promise most; none if no group can be long."""
        found = shared(problem, self.found, card, self.clocks - self.found.said.blended + np.log(self.found.said.clocks[0]))
        return None if found is None else found.some(np.argsort(self.clocks[found.places] + found.change, kind="stable"))

    def shared_config(self, some: Shared, entry: int) -> GroupedKConfig:
        """The configuration of an entry."""
        config: GroupedKConfig = self.found.configs[some.places[entry]]
        return replace(config, part=int(some.part[entry]))

    def parts(self, problem: ProblemAlongK, card: Card) -> tuple[float, GroupedKConfig] | None:
        """The one of these that trees put first, and the logarithm of its clocks; none if the card has no trees of parts."""
        trees = parts_of_card(card)
        found = self.shared(problem, card) if len(trees) else None
        if found is None:
            return None
        some = found.some(slice(ASKED_OF_PARTS))
        clocks = self.clocks[some.places] + some.change + trees.logarithm(matrix_of_parts(problem, self.told, some))
        best = int(np.argmin(clocks))
        return float(clocks[best]), self.shared_config(some, best)


def ranked(problem: ProblemAlongK, card: Card) -> Iterator[tuple[float, GroupedKConfig]]:
    """All candidates of a problem whose CTAs share no tiles; see `Weighed.ranked`."""
    yield from Weighed.of(problem, card).ranked(card)


def alone(problem: ProblemAlongK, card: Card) -> GroupedKConfig:
    """What is chosen without trees: the model's choice, or the best of its tiles for CTAs that share them, if the model says that it gains
    enough."""
    found = judged(problem, card)
    some = shared(problem, found, card, np.where(found.usual, found.said.clocks[0], np.inf))
    own = found.configs[found.own]
    if some is None:
        return own
    clocks = np.log(some.clocks).mean(axis=0)
    best = int(np.argmin(clocks))
    before = np.log(clocks_with(problem, found, card, np.array([found.own]), np.array([np.inf]))).mean()
    gain = GAIN_OF_ONE if problem.groups == 1 else GAIN_ALONE
    return replace(found.configs[some.places[best]], part=int(some.part[best])) if clocks[best] < before + math.log(1 - gain) else own


@functools.lru_cache(4096)
def _answer(question: Question) -> GroupedKConfig:
    """Each question is answered once."""
    problem, card = question.asked, question.card
    every = Weighed.of(problem, card)
    (clocks, own), parts = every.whole(card), every.parts(problem, card)
    return parts[1] if parts is not None and parts[0] < clocks + math.log(1 - GAIN_OF_PARTS) else own


def whole(problem: ProblemAlongK, card: Card = H200) -> GroupedKConfig:
    """The configuration if CTAs share no tiles."""
    asked = Question.of(problem, card).asked
    return Weighed.of(asked, card).whole(card)[1] if chooses(problem, card) else untaught(asked, card)


@functools.lru_cache(4096)
def _alone(question: Question) -> GroupedKConfig:
    return alone(question.asked, question.card)


def heuristic(problem: ProblemAlongK, card: Card = H200) -> GroupedKConfig:
    """The configuration for a problem on a card."""
    question = Question.of(problem, card)
    return _answer(question) if chooses(problem, card) else _alone(question)


__all__ = ["GAIN", "GAIN_OF_PARTS", "LARGEST", "Weighed", "alone", "chooses", "heuristic", "ranked", "risk", "whole"]
