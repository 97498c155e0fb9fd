"""Grouped products whose rows straddle lines of the L2: the choice knows that, any K is right, and nothing else changes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxkit.cards import CARDS, H200
from ptxkit.errors import LaunchError
from ptxkit.gemm.config.grouped import GroupedConfig, StaticGroups, SwapAB
from ptxkit.gemm.config.parts import ClusterShape, ConfigError, Direct, Tile
from ptxkit.gemm.heuristic.group_tile import GroupTile
from ptxkit.gemm.heuristic.grouped import alone, heuristic
from ptxkit.gemm.heuristic.grouped_lines import longer, straddles
from ptxkit.gemm.heuristic.grouped_tiles import TALL_PAIR, tiles_of
from ptxkit.gemm.launch.grouped import check_config
from ptxkit.gemm.problem.grouped import GroupArrays, GroupProblem
from ptxkit.gemm.tools.bench.grouped_cases import Case
from ptxkit.gemm.tools.grouped_example import example
from ptxkit.gemm.tools.problems import problem_of
from ptxkit.gemm.tools.verify.grouped import trials
from tests.gemm.groups import made, view, with_defaults

pytest.importorskip("ml_dtypes")
pytestmark = pytest.mark.pure

EXTENTS = ((20, 534, 3072), (8, 512, 4096), (4, 2048, 4096), (32, 192, 6144), (16, 300, 2048), (8, 4096, 4096))


def lines_of(config: GroupedConfig) -> float:
    """Rows that a CTA copies for each element of its tile."""
    tile, cluster = config.tile, config.scheduler.cluster
    return (tile.BM / cluster.n + tile.BN / cluster.m) / (tile.BM * tile.BN)


@pytest.mark.parametrize("kind", ["bf16", "fp8", "fp8-block"])
@pytest.mark.parametrize("card", list(CARDS))
def test_where_lines_straddle_no_tile_reads_more_of_them(kind, card):
    """Two products that differ by 16 bytes of a row of thousands: the second never gets tiles that read more lines of the L2, where these
    limit it: not on a card that multiplies a seventh of what others do."""
    if CARDS[card].tensor < 0.5 and kind == "bf16":
        return
    more = 8 if kind == "bf16" else 16
    for groups, tokens, n in EXTENTS:
        whole, straddling = (heuristic(problem_of(Case(groups, tokens, n, k, kind)), CARDS[card]) for k in (4096, 4096 + more))
        assert lines_of(straddling) <= lines_of(whole) * 1.001, (groups, tokens, n)


def test_the_20_groups_of_5128_get_tiles_that_read_a_quarter_fewer():
    """The product that was 0.775 times as fast as torch's with the tile that 5120 has."""
    whole, straddling = (heuristic(problem_of(Case(20, 534, 3072, k, skewed=True))) for k in (5120, 5128))
    assert lines_of(straddling) < 0.75 * lines_of(whole)


@pytest.mark.parametrize("kind", ["bf16", "fp8", "fp8-block"])
def test_costs_where_no_line_straddles_are_those_that_were_measured(kind):
    for groups, tokens, n in EXTENTS:
        for k in (512, 1088 if kind == "bf16" else 1152, 4096):
            problem = problem_of(Case(groups, tokens, n, k, kind))
            assert not straddles(problem)
            assert all(tiles_of(problem, card) == tiles_of(problem) for card in CARDS.values())
            assert all(each.tile != TALL_PAIR.tile for each in tiles_of(problem))


@given(st.sampled_from([Tile(128, 256), Tile(128, 128), Tile(256, 192), Tile(192, 192)]), st.integers(1, 600))
def test_a_stage_takes_longer_the_more_lines_it_touches(tile, k16):
    problem = problem_of(Case(8, 512, 4096, 8 * (k16 + 8)))
    alone_, pair, four = (longer(GroupTile(tile, scheduler=StaticGroups(cluster=cluster)), problem, H200)
                          for cluster in (ClusterShape(), ClusterShape(1, 2), ClusterShape(2, 2)))
    assert 1 <= four <= pair <= alone_ < 2
    assert (alone_ > 1) == straddles(problem)


def test_pairs_of_the_tallest_tile_are_right():
    """What only products with straddling lines take; in every schedule."""
    problem: Any = problem_of(Case(4, 2048, 4096, 5128))
    pairs = alone(TALL_PAIR.tile, problem)
    assert pairs is not None
    share, report, _ = example([3, 0, 260], 200, 72, card=H200.with_sms(4), configure=with_defaults(
        {"tile": pairs.tile, "schedule": pairs.schedule, "scheduler": pairs.scheduler, "stages": pairs.stages, "store": pairs.store}))
    assert share <= 1
    assert report.verdict == "clean", report.findings


@settings(deadline=None, max_examples=5)
@given(st.lists(st.integers(0, 150), min_size=1, max_size=4), st.integers(1, 40), st.integers(1, 24),
       st.sampled_from([("bf16", "none"), ("f16", "none"), ("e4m3", "group"), ("e4m3", "none")]), st.integers(0, 99))
def test_any_depth_of_16_bytes_and_any_8_columns_are_right(lengths, units, columns, kind, seed):
    """What the heuristic chooses, down to K of 16 bytes."""
    dtype, scales = kind
    share, _, _ = example(lengths, 8 * columns, units * (16 if dtype == "e4m3" else 8), dtype=dtype, scales=scales, seed=seed,
                          card=H200.with_sms(2), check=False)
    assert share <= 1


@pytest.mark.sweep
@settings(deadline=None, max_examples=400)
@given(st.lists(st.integers(0, 700), min_size=1, max_size=8), st.integers(1, 90), st.integers(1, 60),
       st.sampled_from([("bf16", "none"), ("f16", "one"), ("e4m3", "group"), ("e5m2", "none"), ("e4m3", "block")]),
       st.sampled_from(["cu_seqlens", "masked", "contiguous"]), st.booleans(), st.integers(0, 999))
def test_many_random_depths(lengths, units, columns, kind, layout, gated, seed):
    dtype, scales = kind
    share, report, _ = example(lengths, 8 * columns * (1 + gated), units * (16 if dtype[0] == "e" else 8), dtype=dtype, scales=scales,
                               gated=gated, layout=layout, seed=seed, card=H200.with_sms(3))
    assert share <= 1
    assert report.verdict != "error", report.findings


@settings(deadline=None, max_examples=5)
@given(st.lists(st.integers(0, 150), min_size=1, max_size=4), st.integers(1, 150), st.integers(1, 9),
       st.sampled_from([("bf16", "none"), ("f16", "one"), ("e4m3", "group"), ("e4m3", "block")]), st.booleans(),
       st.sampled_from(["bf16", "f32"]), st.sampled_from(["cu_seqlens", "masked", "contiguous"]), st.integers(0, 99))
def test_any_number_of_columns_is_right(lengths, n, units, kind, gated, out, layout, seed):
    """Rows of y begin anywhere, and are stored element by element; rows of no group stay as they are."""
    dtype, scales = kind
    features = 8 * n if gated and scales == "block" else n
    share, _, config = example(lengths, features * (1 + gated), 16 * units, dtype=dtype, scales=scales, gated=gated, out=out, layout=layout,
                               seed=seed, card=H200.with_sms(2), check=False)
    assert share <= 1
    assert config.elements == (1 if features % 8 else 2)


def test_results_may_have_any_address_and_pitch():
    """What a tensor map or a vector cannot have is stored element by element; the address counts where the shapes are the same."""
    w, lengths = view("bf16", 4, 72, 64), view("s32", 5)
    for out, by_element in ((view("bf16", 100, 72), False), (view("bf16", 100, 72, pointer=8), True),
                            (view("bf16", 100, 72, strides=(73, 1)), True), (view("bf16", 100, 72, strides=(80, 1)), False)):
        problem = GroupProblem(GroupArrays(view("bf16", 100, 64), w, lengths, out))
        assert problem.by_element == by_element
        for each in heuristic(problem).kernels:
            assert (each.elements == 1) == by_element
            assert not (by_element and each.swap_ab)
    with pytest.raises(LaunchError, match="rows of quantised results"):
        GroupProblem(GroupArrays(view("bf16", 100, 64), view("bf16", 4, 128, 64), lengths, view("e4m3", 100, 128, strides=(136, 1)),
                                 out_scale=view("f32", 100, 1)))
    with pytest.raises(ConfigError, match="single elements"):
        made({"tile": Tile(64, 16), "tokens": SwapAB(), "store": Direct(1)})


def test_what_is_verified_on_a_card_has_every_layout_of_scales_and_results():
    """Random trials are launches that the library takes, and none of the kinds is missing."""
    seen = set()
    for trial in trials(240, 9):
        problem, config = trial.problem(), trial.config()
        for each in config.kernels if config is not None else ():
            assert (each.elements == 1) == problem.by_element
            if not problem.in_parts:
                check_config(each, problem)
        seen |= {name for name, there in (("parts", problem.in_parts), ("apart", problem.scales_apart), ("elements", problem.by_element),
                                          ("gate", problem.gate_step < 128), (problem.scale_load, problem.block_scales)) if there}
    assert seen == {"parts", "apart", "elements", "gate", "warp", "lines", "bulk"}
