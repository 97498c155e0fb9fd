"""Dense products whose sums leave the tensor cores: every choice is legal, and the causes say what promotion and scales cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxkit.cards import CARDS, H200, Card
from ptxkit.gemm.config.dense import DenseConfig
from ptxkit.gemm.config.parts import BlockScaled, Cooperative, Dynamic, SplitK, Static, Tile
from ptxkit.gemm.heuristic import dense, promoted, waves
from ptxkit.gemm.heuristic.costs import Parts
from ptxkit.gemm.launch.dense import check_config
from ptxkit.gemm.problem.dense import Problem
from ptxkit.gemm.tools.explain import explained, lines
from ptxkit.gemm.tools.problems import asked

pytestmark = pytest.mark.pure


def product(m: int, n: int, k: int, block: bool, invariant: bool = False) -> Problem:
    options: dict[str, Any] = {} if block else {"scaled": True, "fast_accum": False}
    return asked(m, n, k, "e4m3", out="bf16", block=block, batch_invariant=invariant, **options)


@settings(deadline=None, max_examples=150)
@given(st.integers(1, 5000), st.integers(1, 500), st.integers(1, 900), st.booleans(), st.booleans(), st.sampled_from(list(CARDS)),
       st.sampled_from([None, 1, 16, 78]))
def test_every_choice_is_legal(m: int, columns: int, depth: int, block: bool, invariant: bool, name: str, sms: int | None) -> None:
    """It is the first candidate, has a counter only if CTAs have several tiles, and K is whole where the order of sums counts."""
    problem = product(m, 16 * columns, 16 * depth, block, invariant)
    card: Card = CARDS[name] if sms is None else CARDS[name].with_sms(sms)
    config = dense.heuristic(problem, card)
    check_config(config, problem)
    clocks, first = next(dense.timed(problem, card))
    assert first == config
    assert clocks == pytest.approx(dense.clocks(problem, config, card))
    tiles = -(-m // config.tile.BM) * -(-problem.n // config.tile.BN)
    assert not (invariant and config.splits > 1)
    if config.splits > 1:
        assert isinstance(config.scheduler, SplitK)
        assert tiles * config.splits <= waves.MOST_SPLIT_WORK * card.sms
    else:
        assert isinstance(config.scheduler, Dynamic if tiles > card.sms else Static)


def test_a_stage_waits_for_scales_by_the_way_they_are_loaded() -> None:
    """And its products take longer, by the way they are promoted."""
    problem = product(4096, 4096, 7168, True)
    config = DenseConfig(problem.operands, Tile(128, 128), stages=3, schedule=Cooperative(sums=BlockScaled("overlap", "bulk")))

    def parts(**changed: Any) -> Parts:
        sums = replace(BlockScaled("overlap", "bulk"), **changed)
        return promoted.parts(problem, replace(config, schedule=Cooperative(sums=sums)))

    for load, clocks in promoted.WAITS.items():
        assert parts(load=load).stage[0] == pytest.approx(parts().stage[0] + clocks)
    fit = H200.fit
    for how, longer in (("plain", fit.promote), ("stagger", fit.stagger)):
        assert parts(how=how).multiply[0] == pytest.approx(parts().multiply[0] * longer / fit.overlap)


def test_lines_that_straddle_count() -> None:
    """768 x 448 x 7280 took 18.4 us with K whole, and 13.4 us split: its lines touch two of the L2."""
    assert dense.heuristic(product(768, 448, 7280, True)).splits > 1
    config = dense.heuristic(product(768, 448, 7168, True))
    clocks = [dense.clocks(product(768, 448, k, True), config) for k in (7168, 7280)]
    assert clocks[1] > 1.2 * clocks[0]


def test_explain_says_what_the_causes_count() -> None:
    told = "\n".join(lines(explained(product(300, 512, 7168, True), H200, 4)))
    assert "chosen by the model of costs; the model puts it first of" in told
