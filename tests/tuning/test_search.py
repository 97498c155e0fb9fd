"""Halving against theory: how often the best of a space survives noise is computed beforehand, by integrals instead of by trying."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxkit.tuning.search import FINALISTS, halving

pytestmark = pytest.mark.pure


def survives(others: int, places: int, gap: float, sigma: float) -> float:
    """The probability that one value, less by `gap`, is among the `places` least of `others` more, all with Gaussian noise."""
    x = np.linspace(-9, 9, 4001)
    density = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    below = np.array([0.5 * math.erfc(-(sigma * value - gap) / (sigma * math.sqrt(2))) for value in x])      # of one other
    found = np.zeros_like(x)
    for k in range(min(places, others + 1)):
        found += math.comb(others, k) * below ** k * (1 - below) ** (others - k)
    return float((found * density).sum() * (x[1] - x[0]))


def predicted(count: int, gap: float, sigma: float) -> float:
    """Of halving: the product over its turns, of which each has noise of its own."""
    chance, rounds = 1.0, 2
    while True:
        last = count <= FINALISTS
        places = 1 if last else max(FINALISTS, count // 2)
        chance *= survives(count - 1, places, gap, sigma / math.sqrt(rounds))
        if last:
            return chance
        count, rounds = places, 2 * rounds


@pytest.mark.parametrize(("count", "gap", "sigma"), [(64, 0.05, 0.05), (64, 0.02, 0.1), (24, 0.1, 0.4), (6, 0.05, 0.1)])
def test_the_best_is_found_as_often_as_theory_says(count, gap, sigma):
    source, trials, wins = np.random.default_rng(count), 600, 0
    for _ in range(trials):
        best = int(source.integers(count))

        def times(some, rounds, best=best):
            return [1 - gap * (each == best) + source.normal(0, sigma / math.sqrt(rounds)) for each in some]

        wins += halving(range(count), times)[0][1] == best
    expected = predicted(count, gap, sigma)
    assert 0.1 < expected < 0.9999
    assert abs(wins / trials - expected) <= 4 * math.sqrt(expected * (1 - expected) / trials) + 0.01


def test_theory_would_notice_a_search_that_forgets():
    """One that keeps the slower half of what it has seen is far from it."""
    def forgetful(entries, times):
        rest = list(entries)
        while len(rest) > FINALISTS:
            ranked = sorted(zip(times(rest, 2), rest, strict=True))
            rest = [one for _, one in ranked[len(rest) // 2:]]
        return rest

    source = random.Random(1)
    wins = sum(7 in forgetful(range(64), lambda some, rounds: [1 - 0.05 * (each == 7) + source.gauss(0, 0.03) for each in some])
               for _ in range(100))
    assert wins / 100 < predicted(64, 0.05, 0.05) - 0.2


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=120, unique=True))
def test_without_noise_the_best_is_never_dropped(times):
    turns = []

    def measured(some, rounds):
        turns.append(set(some))
        return [times[each] for each in some]

    found = halving(range(len(times)), measured)
    best = times.index(min(times))
    assert found[0][1] == best
    assert all(best in turn for turn in turns)
