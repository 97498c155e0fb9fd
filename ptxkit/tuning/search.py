"""How the fastest of several entries is found by measuring: the slower half is dropped, and the rest measured for twice as long."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
FINALISTS = 4


def halving(entries: Sequence[T], times_of: Callable[[Sequence[T], int], Sequence[float]], *, keep: int = FINALISTS, rounds: int = 2,
            late: Callable[[], bool] = lambda: False) -> list[tuple[float, T]]:
    """(time, entry) of the `keep` fastest, fastest first: measured over `rounds`, the slower half dropped, over twice as many, and on; no
    further turn begins when it is `late`."""
    rest = list(entries)
    while True:
        ranked = sorted(zip(times_of(rest, rounds), range(len(rest)), strict=True))
        if len(rest) <= keep or late():
            return [(time_, rest[place]) for time_, place in ranked[:keep]]
        rest = [rest[place] for _, place in ranked[:max(keep, len(rest) // 2)]]
        rounds *= 2


def score(times: Sequence[Sequence[float]]) -> int:
    """Of entries with a time in each regime, the place of the best: the least geometric mean of the times over the regimes' least."""
    least = [min(column) for column in zip(*times, strict=True)]
    means = [math.prod(own / best for own, best in zip(row, least, strict=True)) for row in times]
    return means.index(min(means))


__all__ = ["FINALISTS", "halving", "score"]
