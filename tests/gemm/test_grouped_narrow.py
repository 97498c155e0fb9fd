"""Narrower tiles of groups with few tiles: legal, right in every layout, taken only where SMs are left without a tile, and faster than the
tiles before them on products that no limit was set by."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from statistics import geometric_mean
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxkit.cards import CARDS, H200
from ptxkit.gemm.collective.thread_scales import BLOCK
from ptxkit.gemm.config.grouped import CONTIGUOUS_ROWS, DynamicGroups, GroupedConfig, GroupOperands
from ptxkit.gemm.config.parts import Tile
from ptxkit.gemm.heuristic import grouped, grouped_narrow, grouped_trees
from ptxkit.gemm.heuristic.grouped import alone, heuristic, untaught
from ptxkit.gemm.heuristic.grouped_gathered import gathered
from ptxkit.gemm.heuristic.grouped_tiles import FEW, without_cost
from ptxkit.gemm.launch.grouped import check_config
from ptxkit.gemm.launch.simulate_grouped import simulate
from ptxkit.gemm.problem.grouped import GroupOptions, GroupProblem
from ptxkit.gemm.tools.bench.grouped_cases import KINDS, Case, case
from ptxkit.gemm.tools.grouped_example import example
from ptxkit.gemm.tools.problems import array, arrays_of, problem_of
from tests.gemm.groups import by_number, results, without_begins

ml_dtypes = pytest.importorskip("ml_dtypes")
pytestmark = pytest.mark.pure

MEASURED = "2026-11-30-h200-grouped-narrow.json"
SCALES: dict[str, dict[str, Any]] = {
    "bf16": {}, "fp8": {"dtype": "e4m3", "scales": "group"}, "fp8-block": {"dtype": "e4m3", "scales": "block"}}
EXTENTS = st.builds(
    lambda groups, tokens, columns, depth, kind, gated: Case(groups, tokens, 16 * columns, 16 * depth, kind, gated=gated),
    st.integers(1, 32), st.integers(1, 600), st.integers(1, 100), st.integers(1, 600), st.sampled_from(KINDS), st.booleans())


def own(problem: GroupProblem) -> Any:
    """The tile that there is without narrower ones."""
    if problem.gathered:
        return gathered(problem, H200, problem.mean * grouped.ROOM, one_tile=grouped.single(problem))
    chosen = grouped._quantised if problem.quantised else grouped._promoted if problem.promote else grouped._plain
    return without_cost(chosen(problem, H200))


@settings(deadline=None, max_examples=80)
@given(EXTENTS, st.sampled_from(["cu_seqlens", "masked", "contiguous"]), st.booleans(), st.booleans(), st.sampled_from(list(CARDS)),
       st.sampled_from([None, 1, 16, 78]))
def test_every_choice_is_legal(extents: Case, layout: Any, invariant: bool, wide: bool, card: str, sms: int | None) -> None:
    """In every layout, with f32 results, batch-invariant, and on parts of cards."""
    arrays = arrays_of(extents)
    given_out = array("f32", extents.rows, extents.n // (1 + extents.gated)) if wide else arrays.out
    if layout == "masked":
        def by_group(rows: Any) -> Any:
            if rows is None or len(rows.shape) < 2:
                return rows
            return rows._replace(shape=(extents.groups, extents.tokens, rows.shape[1]),
                                 strides=(extents.tokens * rows.strides[0], *rows.strides))

        arrays = arrays._replace(x=by_group(arrays.x), out=by_group(given_out), x_scale=by_group(arrays.x_scale),
                                 lengths=array("s32", extents.groups))
    else:
        arrays = arrays._replace(out=given_out, lengths=array("s32", extents.rows) if layout == "contiguous" else arrays.lengths)
    problem = GroupProblem(arrays, GroupOptions(layout, extents.gated, batch_invariant=invariant))
    of = CARDS[card] if sms is None else CARDS[card].with_sms(sms)
    check_config(heuristic(problem, of), problem)


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
    assert not grouped_narrow.takes(by_number(Case(8, 66, 512, 4992, "fp8"), "gather", fast_accum=False))


@settings(deadline=None, max_examples=120)
@given(EXTENTS, st.sampled_from(["", "gather", "scatter"]), st.booleans(), st.booleans(), st.sampled_from(list(CARDS)))
def test_choices_for_rows_by_number_and_quantised_results_fit(extents: Case, numbers: Any, quantised: bool, fast: bool, card: str) -> None:
    """Narrower tiles too; quantised results have a whole number of blocks of scales."""
    quantised = quantised and not numbers
    if quantised:
        extents = replace(extents, n=-(-extents.n // 256) * 256, quantised=True)
    if extents.kind == "fp8-block" and numbers:
        extents = replace(extents, kind="fp8")
    problem = by_number(extents, numbers, fast_accum=None if fast or extents.kind != "fp8" else False)
    config = heuristic(problem, CARDS[card])
    check_config(config, problem)
    tile, most = own(problem), grouped_narrow.WAVES_BY_NUMBER if numbers else grouped_narrow.WAVES
    found = list(grouped_narrow.faster(tile, problem, H200))
    assert not found or tile.waves(problem, H200) <= most
    assert not (found and problem.promote and not problem.block_scales and (quantised or numbers))
    if quantised:
        assert {(each.tile.BM, each.tile.BN) for each in found} <= {(64, BLOCK * (1 + extents.gated))}


def test_few_tiles_of_rows_by_number_and_of_quantised_results_are_narrower() -> None:
    """Each of these took 1.4 to 2.2 times as long as the fastest before."""
    for extents, numbers in ((Case(6, 318, 256, 5120, "fp8", gated=True), "gather"), (Case(5, 674, 256, 4864, gated=True), "gather"),
                          (Case(3, 386, 384, 216), "scatter"), (Case(3, 196, 1704, 2688, "fp8"), "scatter"),
                          (Case(13, 138, 256, 5504, gated=True, quantised=True), ""),
                          (Case(9, 75, 256, 9152, "fp8-block", gated=True, quantised=True), "")):
        problem = by_number(extents, numbers)
        config = heuristic(problem)
        assert config.tile.BM == 64
        assert own(problem).tile.BM == 128


@settings(deadline=None, max_examples=8)
@given(st.lists(st.integers(0, 140), min_size=1, max_size=4), st.integers(2, 12), st.integers(1, 30), st.sampled_from(["bf16", "fp8"]),
       st.booleans(), st.integers(0, 10**6))
def test_random_groups_of_gathered_rows(lengths: list[int], columns: int, depth: int, kind: str, gated: bool, draw: int) -> None:
    """Any tile that the problem can have."""
    def configure(problem: GroupProblem) -> Any:
        some = [config for tile in grouped_narrow.tiles_of(problem) if (config := alone(tile, problem)) is not None]
        return some[draw % len(some)]

    n = 64 * (1 + columns % 3) if gated else 16 * columns
    share, report, _ = example(lengths, n, 16 * depth, gated=gated, gather=True, card=H200.with_sms(3), configure=configure, **SCALES[kind])
    assert share <= 1
    assert report.verdict != "error", report.findings


def test_few_tokens_have_no_counter_where_each_cta_has_one_tile() -> None:
    """Trees choose that for plain products; those of others, and of gathered rows, are dealt out at once."""
    for problem in (by_number(Case(9, 12, 512, 1024, gated=True), "gather"), problem_of(Case(9, 12, 512, 1024, "fp8", gated=True)),
                    problem_of(Case(9, 12, 1024, 1024, "fp8", quantised=True))):
        assert not heuristic(problem).dynamic
    assert heuristic(by_number(Case(64, 12, 2048, 1024, gated=True), "gather")).dynamic
    plain = problem_of(Case(34, 29, 72, 1344))
    assert not heuristic(plain, CARDS["h100"]).dynamic                  # a card without trees


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
@pytest.mark.parametrize("lengths", [[128, 0, 256], [40], [64, 130, 1]], ids=str)
def test_contiguous_groups(kind: str, lengths: list[int]) -> None:
    """Each aligned block of 128 rows belongs to the group of its first row. A block has a whole number of tiles."""
    share, report, config = example(lengths, 256, 512, layout="contiguous", card=H200.with_sms(16), **SCALES[kind])
    assert share <= 1
    assert report.verdict != "error", report.findings
    assert CONTIGUOUS_ROWS % config.tile.BM == 0
    assert not config.swap_ab


def test_contiguous_groups_have_narrower_tiles_too() -> None:
    for kind in SCALES:
        one = Case(4, 128, 256, 4096, kind)
        problem = GroupProblem(arrays_of(one)._replace(lengths=array("s32", one.rows)), GroupOptions("contiguous"))
        chosen = heuristic(problem)
        assert chosen.tile.BM * chosen.tile.BN < CONTIGUOUS_ROWS * BLOCK


@pytest.mark.parametrize("others", [-1, 1, 12345])
def test_a_block_belongs_to_the_group_of_its_first_row_whatever_its_tiles(others: int) -> None:
    """Also its second tile of 64 rows, which begins with a row of another group, of none, or of one that is not there."""
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape, np.float32).astype(ml_dtypes.bfloat16) for shape in ((256, 256), (2, 128, 256)))
    out, groups = np.full((256, 128), np.nan, ml_dtypes.bfloat16), np.full(256, -1, np.int32)
    groups[:40], groups[40:128] = 1, others
    config = GroupedConfig(GroupOperands(layout="contiguous"), tile=Tile(64, 64))
    assert simulate(x, w, groups, out, layout="contiguous", card=H200.with_sms(4), config=config).verdict == "clean"
    np.testing.assert_allclose(out[:128].astype(np.float32), x[:128].astype(np.float32) @ w[1].astype(np.float32).T, rtol=0.02, atol=0.2)
    assert np.isnan(out[128:].astype(np.float32)).all()


@pytest.fixture
def gain_of_then(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The 8 % that a tile of few tokens had to gain by trees in whole lines when the record was made. No answer is left over."""
    monkeypatch.setattr(grouped_trees, "GAIN_OF_WHOLE", 0.08)
    grouped_trees._answer.cache_clear()
    yield
    grouped_trees._answer.cache_clear()


@pytest.mark.usefixtures("gain_of_then")
@without_begins()
def test_the_choice_is_faster_than_before_on_products_that_set_no_limit() -> None:
    """What is recorded is what is chosen without the trees of kinds and without later begins of the next kernel; in the mean of each kind
    it takes less, and few products lose."""
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    for drawn, word, before, now, _, tile in results(MEASURED)["rows"]:
        problem = problem_of(case(word))
        config = (untaught if grouped_trees.forest_of(problem) in grouped_trees.OF_KINDS else heuristic)(problem)
        words = [" swapped"] * config.swap_ab + [f" shared by {config.sharing}"] * config.streams
        assert tile == f"{config.tile.BM}x{config.tile.BN}{''.join(words)}", word
        times[drawn, word.split(":")[1]].append(now / before)
    assert {drawn for drawn, _ in times} == {"any8", "aligned", "few", "deep"}
    for (drawn, _), found in times.items():
        assert geometric_mean(found) < (1.0 if drawn == "deep" else 0.94)
    everywhere = [each for found in times.values() for each in found]
    assert geometric_mean(everywhere) < 0.86
    assert sum(each > 1.03 for each in everywhere) < 0.15 * len(everywhere)


def test_cards_without_trees_have_narrower_tiles_too() -> None:
    for card in CARDS.values():
        assert untaught(problem_of(Case(8, 66, 512, 4992, "fp8-block")), card).tile.BN <= 96
