"""Which configuration a product with groups along K gets: the least time by the model; on a card that has trees the one that they put
first, if it gains enough."""

from __future__ import annotations

import copy
import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ptxkit.cards import H200, Card

from ..config.grouped_k import GroupedKConfig, OperandsAlongK
from ..problem.grouped_k import ProblemAlongK
from .grouped_k_causes import Modelled, begins, judged, untaught
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


def ranked(problem: ProblemAlongK, card: Card) -> Iterator[tuple[float, GroupedKConfig]]:
    """All candidates with the logarithms of their clocks by the model and the trees: at first the one that is chosen without trees, then
    all of them, the fastest first. Those that come first, and that one, have the begin of the next kernel that is best for them."""
    found = judged(problem, card)
    told = matrix(found.said, found.dynamic)
    clocks = found.said.blended + of_card(card).logarithm(told) + risk(found.said)
    first = np.unique([found.own, *np.argsort(clocks, kind="stable")[:ASKED].tolist()])
    first = first[found.dynamic[first] == 0]
    begin = np.zeros(len(clocks), dtype=np.int64)
    if len(first):
        changes = np.zeros((len(first), 1 + len(LATER)))
        changes[:, 1:] = begins_of_card(card).logarithm(of_begins(told[first])).reshape(-1, len(LATER))
        begin[first] = (changes + GAIN_OF_BEGINS * (np.arange(1 + len(LATER)) > 0)).argmin(axis=1)
        clocks[first] += changes[np.arange(len(first)), begin[first]]
    for place in (found.own, *np.argsort(clocks, kind="stable").tolist()):
        config = found.configs[place]
        yield float(clocks[place]), begins(config)[begin[place]] if begin[place] else config


@functools.lru_cache(4096)
def _answer(question: Question) -> GroupedKConfig:
    """Each question is answered once."""
    (usual, own), (least, config) = itertools.islice(ranked(question.asked, question.card), 2)
    return config if least < usual + math.log(1 - GAIN) else own


def heuristic(problem: ProblemAlongK, card: Card = H200) -> GroupedKConfig:
    """The configuration for a problem on a card."""
    return _answer(Question.of(problem, card)) if chooses(problem, card) else untaught(problem, card)


__all__ = ["GAIN", "LARGEST", "chooses", "heuristic", "ranked", "risk"]
