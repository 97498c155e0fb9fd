"""Lengths of groups as a router of experts makes them: they differ much."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence


def skewed(groups: int, total: int, sigma: float = 1.0, empty: float = 0.125, number: int = 0) -> tuple[int, ...]:
    """Lognormal lengths with this sum, an eighth of them 0. The same arguments give the same lengths; each `number` gives others."""
    rng = random.Random(groups * 1_000_003 + total + number * 7_919_000_003)
    weights = [math.exp(rng.gauss(0.0, sigma)) for _ in range(groups)]
    for group in rng.sample(range(groups), round(groups * empty)):
        weights[group] = 0.0
    return shared_out(weights, total)


def shared_out(weights: Sequence[float], total: int) -> tuple[int, ...]:
    """Whole numbers about in proportion to these weights, with this sum."""
    scale, found, so_far, given = total / sum(weights), [], 0.0, 0
    for weight in weights:
        so_far += weight * scale
        found.append(max(0, round(so_far) - given) if weight else 0)
        given += found[-1]
    busiest = max(range(len(found)), key=found.__getitem__)
    found[busiest] += total - sum(found)
    return tuple(found)


__all__ = ["shared_out", "skewed"]
