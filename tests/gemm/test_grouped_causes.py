"""The tiles of grouped products whose lines straddle those of the L2: chosen by causes, possible for any extents, and near the fastest."""

from __future__ import annotations

import itertools
import statistics
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxkit.cards import CARDS, H100, H200
from ptxkit.gemm.config.grouped import DynamicGroups, GroupedConfig
from ptxkit.gemm.heuristic import grouped_causes as causes
from ptxkit.gemm.heuristic.grouped import alone, heuristic
from ptxkit.gemm.launch.grouped import check_config
from ptxkit.gemm.problem.grouped import GroupProblem
from ptxkit.gemm.tools.bench.grouped_cases import Case, case
from ptxkit.gemm.tools.grouped_example import example
from ptxkit.gemm.tools.problems import problem_of
from tests.gemm.groups import results

pytest.importorskip("ml_dtypes")
pytestmark = pytest.mark.pure


@settings(deadline=None)
@given(st.integers(4, 1024), st.integers(129, 9999), st.integers(1, 300), st.integers(20, 300), st.sampled_from(list(CARDS)))
def test_every_extent_has_a_tile_on_every_card(groups, tokens, columns, depth, card):
    problem = problem_of(Case(groups, tokens, 8 * columns, 8 * (depth | 1)))
    assert causes.chooses(problem)
    config = heuristic(problem, CARDS[card])
    assert len(config.kernels) == 1
    check_config(config, problem)
    assert config == heuristic(problem, CARDS[card])


def test_results_may_have_tiles_of_an_even_share_of_their_features():
    """Not where other tiles are as wide, or wide results have many tiles."""
    found = {n: causes.widths_of(problem_of(Case(8, 512, n, 4104))) for n in (8, 72, 128, 176, 248, 256, 400, 888, 1288, 2048, 4104)}
    assert found == {8: (16,), 72: (80,), 128: (), 176: (176,), 248: (), 256: (), 400: (208, 144), 888: (224,), 1288: (224,),
                     2048: (), 4104: ()}


def test_a_pair_that_shares_what_it_copies_is_faster_the_more_lines_straddle():
    """The same product twice, the second with rows that begin anywhere in a line."""
    found = causes.tiles()
    single, pair = (next(i for i, each in enumerate(found) if each.tile.BM == 256 and each.scheduler.cluster.n == n
                         and not each.swap_ab and isinstance(each.scheduler, DynamicGroups) == (n == 2)) for n in (1, 2))
    gains = []
    for k in (4096, 4104):
        times = causes.clocks(problem_of(Case(32, 1024, 4096, k)), causes.Columns.of(found, H200), causes.Lengths.of((1024,) * 32), H200)[0]
        gains.append(times[single] / times[pair])
    assert gains[0] < gains[1]


def test_more_tokens_and_deeper_rows_take_longer():
    seen = causes.Columns.of(causes.tiles(), H100)
    times = [causes.clocks(problem_of(Case(8, tokens, 4096, k)), seen, causes.Lengths.of((tokens,) * 8), H100)
             for tokens, k in ((256, 1032), (512, 1032), (512, 4104), (2048, 4104))]
    assert all((b > a).all() for a, b in itertools.pairwise(times))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(st.integers(0, 3000), min_size=1, max_size=40).filter(any), min_size=1, max_size=5), st.integers(1, 64),
       st.booleans())
def test_sets_of_lengths_are_counted_each_for_itself(sets, k, shared):
    seen, problem = causes.Columns.of(causes.tiles(), H200), problem_of(Case(40, 100, 1288, 8 * k))
    most = np.full(len(causes.tiles()), 4.0) if shared else None
    together = causes.clocks(problem, seen, causes.Lengths.of(*sets), H200, most)
    each = np.concatenate([causes.clocks(problem, seen, causes.Lengths.of(one), H200, most) for one in sets])
    np.testing.assert_allclose(together, each, rtol=1e-12)


def test_the_choice_is_near_the_fastest_tile_that_was_measured():
    """Random products on an H100, each measured with every tile but those of even shares. The host does not know the lengths of a case."""
    measured = results("2026-11-27-h100-grouped-tiles.json")
    beside, gained = [], []
    for word, times in measured["cases"].items():
        one = case(word)
        problem = problem_of(one)
        chosen = alone(causes.fastest(problem, H100), problem)
        assert chosen is not None
        us = times[measured["tiles"].index(named(chosen))] if named(chosen) in measured["tiles"] else None
        if us is not None:
            beside.append(us / min(filter(None, times)))
            gained.append(measured["before"][word] / us)
    assert len(beside) >= 50
    assert statistics.geometric_mean(beside) < 1.03
    assert statistics.geometric_mean(gained) > 1.06


def named(config: GroupedConfig) -> str:
    """As the record calls a tile."""
    tile, cluster = config.tile, config.scheduler.cluster
    words = [f"{tile.BM}x{tile.BN}", "pingpong" if "pingpong" in str(config) else "", "swap AB" if config.swap_ab else "",
             f"{cluster.m}x{cluster.n}" if cluster.size > 1 else "", "counter" if config.dynamic and not config.n_granularity else ""]
    return " ".join(word for word in words if word)


@pytest.mark.parametrize("place", range(len(causes.tiles((80,)))))
def test_every_tile_is_right(place):
    """Empty groups, groups within a tile and over several, and N and K that end within one."""
    tile = causes.tiles((80,))[place]

    def configure(problem: GroupProblem) -> GroupedConfig:
        config = alone(tile, problem)
        assert config is not None
        return config

    share, report, _ = example([3, 0, 260], 72, 72, card=H200.with_sms(4), configure=configure)
    assert share <= 1
    assert report.verdict != "error", report.findings


def test_a_card_without_room_for_a_cluster_gets_tiles_of_one_cta():
    """And nothing is printed about it: a warning is an error here."""
    problem = problem_of(Case(4, 300, 512, 72 * 8 + 8))
    assert causes.chooses(problem)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert causes.fastest(problem, H200.with_sms(1)).scheduler.cluster.size == 1
