"""Groups whose tiles CTAs share along K: right for any lengths and depths, with a clean report and flags that are left cleared; what they
cannot be combined with; and where they are chosen."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from statistics import geometric_mean
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxkit.cards import CARDS, H200
from ptxkit.errors import LaunchError
from ptxkit.gemm.collective.stream_k import RunReduction
from ptxkit.gemm.collective.tensormaps import COUNTERS_WORDS, FLAGS_WORDS
from ptxkit.gemm.config.grouped import GroupedConfig, GroupLoads, GroupOperands, StagedGroups, StreamGroups, SwapAB, TokensAsRows
from ptxkit.gemm.config.grouped_parts import MOST_SHARING
from ptxkit.gemm.config.parts import BlockScaled, ConfigError, Cooperative, Direct, Pingpong, Promoted, Swizzle, Tile
from ptxkit.gemm.heuristic import grouped_stream
from ptxkit.gemm.heuristic.grouped import heuristic
from ptxkit.gemm.launch.grouped import check_config
from ptxkit.gemm.problem.grouped import GroupProblem
from ptxkit.gemm.scheduler.tile_cost import TileCost
from ptxkit.gemm.tools.bench.grouped_cases import Case, case
from ptxkit.gemm.tools.grouped_example import example
from ptxkit.gemm.tools.problems import problem_of
from ptxkit.types import e4m3
from tests.gemm.groups import lengths, results, with_defaults, without_begins

pytest.importorskip("ml_dtypes")
pytestmark = pytest.mark.pure

TILES: tuple[dict[str, Any], ...] = (
    {"tile": Tile(64, 32), "stages": 2},
    {"tile": Tile(128, 72)},
    {"tile": Tile(64, 48), "store": Direct(1)},
    {"tile": Tile(128, 64), "tokens": TokensAsRows(True)},
    {"tile": Tile(192, 32), "tokens": TokensAsRows(True, 32)},
    {"tile": Tile(128, 64), "stages": 3, "schedule.warpgroups": 1, "loads": GroupLoads(weights_evict_first=True)},
)


@st.composite
def launches(draw: st.DrawFn) -> dict[str, Any]:
    parameters = draw(st.sampled_from(TILES))
    order = Swizzle(draw(st.sampled_from(["along_m", "along_n"])), draw(st.sampled_from([1, 2])))
    scheduler = StreamGroups(order, draw(st.sampled_from([2, 3, 8])))
    return {"configure": with_defaults({**parameters, "scheduler": scheduler}), "lengths": draw(lengths(parameters["tile"].BM)),
            "layout": draw(st.sampled_from(["cu_seqlens", "masked"])), "card": H200.with_sms(draw(st.sampled_from([2, 6, 13]))),
            "n": draw(st.sampled_from([8, 72, 136])), "k": 8 * draw(st.integers(1, 90)), "seed": draw(st.integers(0, 99))}


@settings(deadline=None, max_examples=15)
@given(launches(), st.sampled_from(["fifo", "random", "reverse", "delay-cta"]))
def test_random_groups(launch, schedule):
    share, report, _ = example(schedule=schedule, **launch)
    assert share <= 1
    assert report.verdict == "clean", report.findings


@pytest.mark.sweep
@settings(deadline=None, max_examples=400)
@given(launches(), st.sampled_from(["bf16", "f16", "e4m3"]), st.booleans(), st.sampled_from(["bf16", "f32"]),
       st.sampled_from(["fifo", "random", "reverse", "delay-cta"]))
def test_many_random_groups(launch, dtype, scaled, out, schedule):
    launch["k"] = launch["k"] * 2 if dtype == "e4m3" else launch["k"]
    share, report, _ = example(dtype=dtype, scales="group" if scaled else "none", out=out, schedule=schedule, **launch)
    assert share <= 1
    assert report.verdict == "clean", report.findings


@pytest.mark.parametrize("what", [{"gated": True, "n": 144}, {"dtype": "e4m3", "scales": "row_column", "k": 1040}, {"out": "f32"}])
def test_gates_scales_and_wide_results(what):
    configure = with_defaults({"tile": Tile(64, 64), "scheduler": StreamGroups(most=4)})
    share, report, _ = example(**{"lengths": [3, 0, 130, 64], "n": 72, "k": 520, "card": H200.with_sms(9), "configure": configure, **what})
    assert share <= 1
    assert report.verdict == "clean", report.findings


def one(monkeypatch: pytest.MonkeyPatch, most: int) -> tuple[float, np.ndarray[Any, Any]]:
    """Five tiles among nine CTAs: the error, and the workspace afterwards. A kernel is traced once for each `most`."""
    seen: list[Any] = []
    arguments = GroupProblem.arguments

    def watched(self: GroupProblem, arrays: Any, config: GroupedConfig, pointer: Any) -> dict[str, Any]:
        seen.append(pointer("workspace"))
        return arguments(self, arrays, config, pointer)

    monkeypatch.setattr(GroupProblem, "arguments", watched)
    configure = with_defaults({"tile": Tile(64, 64), "scheduler": StreamGroups(most=most)})
    share, _, _ = example([3, 0, 130, 64], 64, 520, card=H200.with_sms(9), configure=configure, check=False)
    return share, seen[-1]


def test_sums_go_through_the_workspace_and_flags_are_left_cleared(monkeypatch):
    share, workspace = one(monkeypatch, 4)
    assert share <= 1
    assert not workspace[:COUNTERS_WORDS].any()
    assert workspace[COUNTERS_WORDS:].any()


def test_sums_that_are_not_collected_are_missed(monkeypatch):
    monkeypatch.setattr(RunReduction, "collect", lambda self, *_: None)
    share, _ = one(monkeypatch, 5)
    assert share > 1


@pytest.mark.parametrize("change", [
    {"operands": GroupOperands(layout="contiguous")}, {"operands": GroupOperands(layout="ptr_array")},
    {"operands": GroupOperands(gathered=True)}, {"operands": GroupOperands(scatter="rows"), "store": Direct()},
    {"operands": GroupOperands(e4m3, e4m3, e4m3)}, {"tokens": SwapAB()}, {"schedule": Pingpong()},
    {"operands": GroupOperands(e4m3, e4m3), "schedule": Cooperative(2, Promoted())},
    {"operands": GroupOperands(e4m3, e4m3), "schedule": Cooperative(2, BlockScaled())},
    {"store": StagedGroups(ends="tensormap")}, {"loads": GroupLoads(l2_prefetch_stages=2)}])
def test_what_ctas_cannot_share_k_with_is_a_sentence(change):
    given: dict[str, Any] = {"operands": GroupOperands(), "tile": Tile(128, 128), "scheduler": StreamGroups(), **change}
    with pytest.raises(ConfigError, match=r"stream-K needs groups .*: take StaticGroups\(\) or DynamicGroups\(\)"):
        GroupedConfig(**given)


def test_two_kernels_share_no_k():
    config, cost = GroupedConfig(tile=Tile(128, 128), scheduler=StreamGroups()), TileCost(128, 128, 128, 1)
    with pytest.raises(ConfigError, match="no stream-K"):
        config.or_(cost, GroupedConfig(tile=Tile(64, 128)), cost)


@pytest.mark.parametrize("most", [1, MOST_SHARING + 1])
def test_how_many_ctas_share_a_tile_is_bounded(most):
    with pytest.raises(ConfigError, match=re.escape(f"2 to {MOST_SHARING} CTAs share a tile, not most={most}")):
        StreamGroups(most=most)


def test_a_row_does_not_have_the_same_bits_whatever_the_batch():
    problem = problem_of(Case(6, 82, 152, 8816))
    config = replace(heuristic(problem, H200), operands=problem.operands)
    assert config.streams
    problem.options = replace(problem.options, batch_invariant=True)
    assert not heuristic(problem, H200).streams
    with pytest.raises(LaunchError, match=r"the lengths of all groups decide where K is cut; take .* a whole K for each CTA"):
        check_config(config, problem)


EXTENTS = st.builds(lambda groups, tokens, columns, depth: Case(groups, tokens, 8 * columns, 8 * depth), st.integers(1, 64),
                    st.integers(1, 1024), st.integers(1, 400), st.integers(1, 2000))


@settings(deadline=None, max_examples=80)
@given(EXTENTS, st.sampled_from(list(CARDS)), st.sampled_from(["bf16", "fp8"]), st.booleans())
def test_every_choice_is_legal_and_shares_only_few_tiles(extents, card, kind, gated):
    extents = replace(extents, kind=kind, gated=gated, n=2 * extents.n if gated else extents.n, k=16 * -(-extents.k // 16))
    problem = problem_of(extents)
    config = heuristic(problem, CARDS[card])
    check_config(config, problem)
    if config.streams:
        tiles = extents.groups * math.ceil(extents.tokens / config.tile_tokens) * math.ceil(problem.n / config.features)
        assert tiles < 5 * CARDS[card].sms
        assert problem.grid(config, CARDS[card].sms) <= CARDS[card].sms


@pytest.mark.parametrize("extents", [(8, 66, 168, 14344), (9, 109, 152, 10480), (6, 18, 280, 12160), (4, 1, 4096, 128),
                                     (8, 64, 4096, 7168), (64, 512, 2048, 4096)])
def test_few_tiles_with_a_long_k_are_shared_and_others_are_not(extents):
    problem = problem_of(Case(*extents))
    few = extents[2] < 300
    assert heuristic(problem, H200).streams == few
    problem.options = replace(problem.options, order="dynamic")
    assert not heuristic(problem, H200).streams
    assert grouped_stream.shares(problem_of(Case(*extents)))
    assert not grouped_stream.shares(problem)


MEASURED = "2026-11-29-h200-grouped-stream-k.json"


def gained(kind: str) -> tuple[int, list[float]]:
    """How many products of a kind were measured; of those for which CTAs share K, the time over that without."""
    measured = results(MEASURED)
    rows = measured["sample"] if kind == "the sample" else \
        [row for row in measured["fresh"] if ("gated" in row[0], "fp8" in row[0]) == ("gate" in kind, "fp8" in kind)]
    return len(rows), [shared / without for word, without, shared, *_ in rows if heuristic(problem_of(case(word)), H200).streams]


@pytest.mark.parametrize(("kind", "mean", "slower"), [
    ("the sample", 0.74, 0.1), ("fresh, bf16", 0.8, 0.08), ("fresh, with a gate", 0.8, 0.25), ("fresh, fp8", 0.8, 0.25)])
def test_the_choice_is_faster_than_the_one_without_it(kind, mean, slower):
    """Than the tile that there was before narrower ones, in the mean; few products lose. What is recorded of that is what follows from the
    measurements."""
    with without_begins():
        products, found = gained(kind)
    assert geometric_mean(found) < mean
    assert sum(each > 1.03 for each in found) < slower * len(found)
    told = [products, len(found), geometric_mean(found), min(found), max(found), sum(each > 1.03 for each in found)]
    assert told == pytest.approx(results(MEASURED)["summary"][kind], abs=1e-3)


def test_more_warpgroups_than_flags_are_refused():
    config = GroupedConfig(tile=Tile(128, 128), scheduler=StreamGroups())
    assert config.workspace_bytes(FLAGS_WORDS // 2) > 4 * FLAGS_WORDS
    with pytest.raises(ConfigError, match=f"stream-K has flags for {FLAGS_WORDS} warpgroups, and 513 CTAs have 1026"):
        config.workspace_bytes(FLAGS_WORDS // 2 + 1)
