"""Large misaligned operands in slabs: every term of the product once, each slab with its rows and columns of all arrays."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from ptxkit.cards import H200
from ptxkit.gemm.heuristic.dense import clocks, heuristic
from ptxkit.gemm.launch import slabs
from ptxkit.gemm.problem.dense import PLAIN, Arrays, Options, Problem
from ptxkit.gemm.problem.lines import copied_bytes
from ptxkit.runtime.arrays import ArrayView

from .test_matmul import everything, seen

pytestmark = pytest.mark.pure


def product(m: int, n: int, k: int, layout: str = "nt", **more: ArrayView) -> Arrays:
    a = seen((m, k)) if layout[0] == "n" else seen((m, k), (1, m))
    b = seen((k, n)) if layout[1] == "n" else seen((k, n), (1, k))
    return Arrays(a, b, seen((m, n)), **more)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slabs are worth it, of a few lines, from the first byte on."""
    monkeypatch.setattr(slabs, "LEAST", 0)
    monkeypatch.setattr(slabs, "LINES", 4)
    monkeypatch.setattr(slabs, "clocks", lambda problem, config, card: float(problem.m * problem.n) ** 2)


@pytest.mark.parametrize("number", range(12))
def test_every_term_once(small: None, number: int) -> None:
    rng = random.Random(number)
    arrays = product(rng.randint(5, 14), rng.randint(5, 14), rng.choice((3, 5, 7)), rng.choice(("nt", "nn", "tn", "tt")))
    parts = slabs.slabs(arrays, PLAIN, lambda: replace(H200, l2_mib=300 / (1 << 20)))
    got = [everything(part) for part in parts]
    assert len(parts) > 1
    assert set().union(*got) == everything(arrays)
    assert sum(map(len, got)) == len(everything(arrays))


def test_what_is_added_is_cut_too(small: None) -> None:
    m, n = 10, 11
    for bias in (seen((n,), pointer=64), seen((1, n), pointer=64), seen((m, 1), pointer=64)):
        arrays = product(m, n, 7, c=seen((m, n), pointer=128), residual=seen((m, n), (13, 1), 256), bias=bias)
        for part in slabs.slabs(arrays, Options(beta=1.0), lambda: replace(H200, l2_mib=300 / (1 << 20))):
            top, left = divmod(part.out.pointer // 2, n)
            assert part.out.shape == part.c.shape == part.residual.shape
            assert (part.c.pointer, part.residual.pointer) == (128 + 2 * (top * n + left), 256 + 2 * (top * 13 + left))
            along = top if bias.shape == (m, 1) else left
            assert part.bias.pointer == 64 + 2 * along
            assert part.bias.shape == tuple(extent if extent == 1 else part.out.shape[(bias.shape == (m, 1) and -2) or -1]
                                            for extent in bias.shape)


@pytest.mark.parametrize(("m", "n", "shape", "rows"), [(40, 1, (40, 1), True), (40, 1, (1, 1), False), (40, 1, (1,), False),
                                                     (1, 40, (1, 1), True), (1, 40, (1, 40), False), (1, 40, (40,), False)])
def test_the_bias_of_one_row_or_column_is_cut_as_it_lies(small: None, m: int, n: int, shape: tuple[int, ...], rows: bool) -> None:
    arrays = product(m, n, 7, bias=seen(shape, pointer=64))
    parts = slabs.slabs(arrays, PLAIN, lambda: replace(H200, l2_mib=300 / (1 << 20)))
    assert len(parts) > 1
    for part in parts:
        assert Problem(part).fusion.bias_along == Problem(arrays).fusion.bias_along == ("row" if rows else "column")
        assert part.bias.pointer == 64 + (part.out.pointer if math.prod(shape) > 1 else 0)


def test_no_copy_is_larger_than_the_l2_and_what_is_aligned_stays_whole() -> None:
    large = product(9999, 16000, 15001)
    parts = slabs.slabs(large, PLAIN, lambda: H200)
    assert len(parts) > 10
    time = 0.0
    for part in parts:
        problem = Problem(part)
        config = heuristic(problem, H200)
        time += clocks(problem, config, H200)
        assert config.loads.align == "ab"
        assert max(copied_bytes(one, 2) for one in (problem.of_a, problem.of_b)) <= H200.l2_mib * (1 << 20)
    assert time < clocks(Problem(large), heuristic(Problem(large), H200), H200)
    for alone in (product(9999, 16000, 15008), product(700, 701, 703)):
        assert slabs.slabs(alone, PLAIN, lambda: H200) == [alone]
