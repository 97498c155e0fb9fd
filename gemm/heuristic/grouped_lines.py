"""What a tile of a grouped product costs where lines of X or W straddle those of the L2, by the causes of the dense model (`costs`).

A copy brings 128 bytes of each row of a tile. Where rows are no multiple of 128 bytes apart, they lie in two lines of the L2, which then
limits the SMs. Larger tiles, and tiles whose CTAs share what they copy, read fewer lines for each product.
"""

from __future__ import annotations

from math import gcd

from ptxkit.cards import Card

from ..config.budget import STAGE_BYTES
from ..problem.grouped import GroupProblem
from .costs import LINE, of_card
from .group_tile import GroupTile


def pitches(problem: GroupProblem) -> tuple[int, int]:
    """Bytes from row to row of X and of W."""
    return problem.x_lines.strides[0], problem.w_lines.strides[0]


def straddles(problem: GroupProblem) -> bool:
    """Whether rows are no multiple of a line of the L2 apart. A single row, or the weights of one stage, are not seen so."""
    return not problem.empty and problem.k * problem.x.bits // 8 > STAGE_BYTES and any(pitch % LINE for pitch in pitches(problem))


def longer(tile: GroupTile, problem: GroupProblem, card: Card) -> float:
    """How many times as long a stage of this tile takes as where no line straddles."""
    costs, shape, cluster = of_card(card), tile.tile, tile.scheduler.cluster
    x, w = pitches(problem)
    a, b = (w, x) if tile.swap_ab else (x, w)
    shared = 1.0 + costs.narrow * max(0.0, (64 + 4096 / shape.BN) / LINE - 1)
    multiply = costs.mma * shape.BM / 64 * shape.BN * 2 * max(1 / costs.tensor, shared)

    def stage(a_lines: float, b_lines: float) -> float:
        touched = LINE * (shape.BM * a_lines / cluster.n + shape.BN * b_lines / cluster.m)
        copy = max(LINE * (shape.BM + shape.BN) / costs.ingest, touched * (1 / costs.l2 + card.sms / costs.l2_all))
        return float((multiply ** costs.sharpness + copy ** costs.sharpness) ** (1 / costs.sharpness) + costs.stage)

    def lines(pitch: int) -> float:
        return 1.0 + costs.straddle * (1.0 - gcd(pitch, LINE) / LINE)

    return stage(lines(a), lines(b)) / stage(1.0, 1.0)


__all__ = ["longer", "pitches", "straddles"]
