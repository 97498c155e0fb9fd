"""Narrower tiles of groups with few tiles: legal, right in every layout, taken only where SMs are left without a tile, and faster than the
tiles before them on products that no limit was set by."""

from __future__ import annotations

import math
from collections import defaultdict
from statistics import geometric_mean
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxkit.cards import CARDS, H200
from ptxkit.gemm.collective.thread_scales import BLOCK
from ptxkit.gemm.config.grouped import CONTIGUOUS_ROWS, DynamicGroups
from ptxkit.gemm.heuristic import grouped, grouped_narrow
from ptxkit.gemm.heuristic.grouped import alone, heuristic, untaught
from ptxkit.gemm.heuristic.grouped_tiles import FEW, without_cost
from ptxkit.gemm.launch.grouped import check_config
from ptxkit.gemm.problem.grouped import GroupOptions, GroupProblem
from ptxkit.gemm.tools.bench.grouped_cases import KINDS, Case, case
from ptxkit.gemm.tools.grouped_example import example
from ptxkit.gemm.tools.problems import array, arrays_of, problem_of
from tests.gemm.groups import results

pytest.importorskip("ml_dtypes")
pytestmark = pytest.mark.pure

MEASURED = "2026-11-30-h200-grouped-narrow.json"
SCALES: dict[str, dict[str, Any]] = {
    "bf16": {}, "fp8": {"dtype": "e4m3", "scales": "group"}, "fp8-block": {"dtype": "e4m3", "scales": "block"}}
EXTENTS = st.builds(
    lambda groups, tokens, columns, depth, kind, gated: Case(groups, tokens, 16 * columns, 16 * depth, kind, gated=gated),
    st.integers(1, 32), st.integers(1, 600), st.integers(1, 100), st.integers(1, 600), st.sampled_from(KINDS), st.booleans())


def own(problem: GroupProblem) -> Any:
    """The tile that there is without narrower ones."""
    return without_cost((grouped._promoted if problem.promote else grouped._plain)(problem, H200))


@settings(deadline=None, max_examples=60)
@given(EXTENTS, st.sampled_from(list(CARDS)))
def test_every_choice_is_legal(extents: Case, card: str) -> None:
    problem = problem_of(extents)
    check_config(heuristic(problem, CARDS[card]), problem)


@settings(deadline=None, max_examples=60)
@given(EXTENTS)
def test_tiles_take_the_place_of_those_that_leave_sms_without_one(extents: Case) -> None:
    """They are the fastest by the clocks first, gain enough, and come from a counter if there are more than SMs."""
    problem = problem_of(extents)
    tile = own(problem)
    found = list(grouped_narrow.faster(tile, problem, H200))
    most = grouped_narrow.WAVES if problem.promote or problem.mean > FEW else grouped_narrow.WAVES_FEW
    assert not found or tile.waves(problem, H200) <= most
    if found:
        clocks = grouped_narrow.clocks(problem, (tile, *found), H200)
        assert (clocks[1:] < 0.99 * clocks[0]).all()            # the answer is that of about as many tokens
        assert isinstance(found[0].scheduler, DynamicGroups) == (found[0].waves(problem, H200) > 1)


def test_which_products_have_none() -> None:
    """Those whose other tile fills the card, and those whose order of tiles, rows or results are given."""
    few = Case(8, 66, 512, 4992, "fp8-block")
    assert heuristic(problem_of(few)).tile.BN < BLOCK
    for full in (Case(8, 128, 4096, 7168, "fp8-block"), Case(64, 66, 4096, 4992, "fp8-block"), Case(32, 512, 4096, 7168)):
        assert not list(grouped_narrow.faster(own(problem_of(full)), problem_of(full), H200))
    problem = problem_of(few)
    problem.options = GroupOptions(order="dynamic")
    assert not grouped_narrow.takes(problem)
    assert not grouped_narrow.takes(problem_of(Case(8, 66, 512, 4992, "fp8", quantised=True)))


def test_tokens_are_rows_where_they_must_be() -> None:
    for kind in ("bf16", "fp8"):
        problem = problem_of(Case(4, 100, 384, 4096, kind))
        assert heuristic(problem).swap_ab
        problem.options = GroupOptions(batch_invariant=True)
        assert not any(tile.swap_ab for tile in grouped_narrow.tiles_of(problem))
        assert not heuristic(problem).swap_ab


@settings(deadline=None, max_examples=12)
@given(st.lists(st.integers(0, 140), min_size=1, max_size=5), st.integers(2, 20), st.integers(1, 40), st.sampled_from(list(SCALES)),
       st.sampled_from(["cu_seqlens", "masked"]), st.booleans(), st.integers(0, 10**6))
def test_random_groups(lengths: list[int], columns: int, depth: int, kind: str, layout: Any, gated: bool, draw: int) -> None:
    """Any tile that the problem can have."""
    def configure(problem: GroupProblem) -> Any:
        some = [config for tile in grouped_narrow.tiles_of(problem) if (config := alone(tile, problem)) is not None]
        return some[draw % len(some)]

    n = 64 * (1 + columns % 3) if gated else 16 * columns
    share, report, _ = example(lengths, n, 16 * depth, layout=layout, gated=gated, card=H200.with_sms(3), configure=configure,
                               **SCALES[kind])
    assert share <= 1
    assert report.verdict != "error", report.findings


@pytest.mark.parametrize("kind", list(SCALES))
def test_contiguous_groups(kind: str) -> None:
    """Tiles of their aligned blocks, of a divisor of as many rows."""
    share, report, config = example([128, 0, 256], 256, 512, layout="contiguous", card=H200.with_sms(16), **SCALES[kind])
    assert share <= 1
    assert report.verdict != "error", report.findings
    assert config.tile.BM * config.tile.BN <= CONTIGUOUS_ROWS * BLOCK
    one = Case(4, 128, 256, 4096, kind)
    problem = GroupProblem(arrays_of(one)._replace(lengths=array("s32", one.rows)), GroupOptions("contiguous"))
    chosen = heuristic(problem)
    assert CONTIGUOUS_ROWS % chosen.tile.BM == 0
    assert not chosen.swap_ab
    assert math.ceil(one.rows / chosen.tile.BM) * math.ceil(one.n / chosen.tile.BN) > 4 * 2


def test_the_choice_is_faster_than_before_on_products_that_set_no_limit() -> None:
    """What is recorded is what is chosen; in the mean of each kind it takes less, and few products lose."""
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    other = 0
    for drawn, word, before, now, _, tile in results(MEASURED)["rows"]:
        config = heuristic(problem_of(case(word)))
        other += not tile.startswith(f"{config.tile.BM}x{config.tile.BN}{' swapped' * config.swap_ab}")
        times[drawn, word.split(":")[1]].append(now / before)
    assert other <= 0.05 * sum(map(len, times.values()))
    assert {drawn for drawn, _ in times} == {"any8", "aligned", "few", "deep"}
    for (drawn, _), found in times.items():
        assert geometric_mean(found) < (1.0 if drawn == "deep" else 0.94)
    everywhere = [each for found in times.values() for each in found]
    assert geometric_mean(everywhere) < 0.86
    assert sum(each > 1.03 for each in everywhere) < 0.15 * len(everywhere)


def test_cards_without_trees_have_narrower_tiles_too() -> None:
    for card in CARDS.values():
        assert untaught(problem_of(Case(8, 66, 512, 4992, "fp8-block")), card).tile.BN <= 96
