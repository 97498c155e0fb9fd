"""Block scales of group products in every layout of theirs, on the CPU device, against float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxkit.cards import H200
from ptxkit.errors import LaunchError
from ptxkit.gemm.config.grouped import SwapAB, TokensAsRows
from ptxkit.gemm.config.parts import BlockScaled, ClusterShape, ConfigError, ThreadScaled, Tile
from ptxkit.gemm.heuristic.grouped import heuristic
from ptxkit.gemm.launch.simulate_grouped import simulate
from ptxkit.gemm.problem.grouped import GroupArrays, GroupOptions, GroupProblem
from ptxkit.gemm.tools.grouped_example import _apart, example
from ptxkit.types import e4m3
from tests.gemm.groups import made, view, with_defaults

ml_dtypes = pytest.importorskip("ml_dtypes")
pytestmark = pytest.mark.pure

BY_MAP, BY_WARP, BULK = (BlockScaled(load=load) for load in ("tensor_map", "warp", "bulk"))     # type: ignore[arg-type]
WAYS: tuple[dict[str, Any], ...] = (
    {"tile": Tile(64, 64), "schedule.sums": BY_MAP}, {"tile": Tile(128, 64), "schedule.sums": BULK, "tokens": TokensAsRows(True)},
    {"tile": Tile(192, 64), "schedule.sums": BULK}, {"tile": Tile(64, 64), "schedule.sums": BY_WARP}, {"tile": Tile(64, 64)},
    {"tile": Tile(64, 16), "tokens": SwapAB()})


@pytest.mark.thinned(4)
@pytest.mark.parametrize("parameters", WAYS, ids=str)
def test_scales_of_masked_groups_may_lie_as_deep_gemm_lays_them_out(parameters):
    """Each group's along its rows, in lines of a multiple of 16 bytes: taken as they are, in every way that scales are loaded."""
    share, report, _ = example([3, 0, 70, 202], 136, 512, dtype="e4m3", scales="block", layout="masked", apart=4, card=H200.with_sms(2),
                               configure=with_defaults(parameters))
    assert share <= 1
    assert report.verdict == "clean", report.findings


@settings(deadline=None, max_examples=3)
@given(st.lists(st.integers(0, 140), min_size=1, max_size=5), st.sampled_from([128, 272, 512]), st.sampled_from([1, 4]), st.booleans(),
       st.integers(0, 99))
def test_random_masked_groups_with_scales_that_lie_apart(lengths, k, unit, gated, seed):
    """What the heuristic chooses, also for rows that are no multiple of 4, whose lines no tensor map has."""
    share, _, _ = example(lengths, 256, k, dtype="e4m3", scales="block", layout="masked", apart=unit, gated=gated, seed=seed,
                          card=H200.with_sms(2), check=False)
    assert share <= 1


def test_scales_that_lie_apart_are_loaded_by_as_many_copies():
    """One tensor copy a stage for those of x, however far apart the groups' are."""
    copies = []
    for layout, apart in (("cu_seqlens", 0), ("masked", 4)):
        _, report, _ = example([128, 128], 128, 512, dtype="e4m3", scales="block", layout=layout, pad=0, apart=apart,
                               card=H200.with_sms(2), configure=with_defaults({"tile": Tile(128, 64), "schedule.sums": BULK}))
        copies.append({name: count for name, count in report.stats.opcodes.items() if "bulk" in name and "mbarrier" in name})
    assert sum(copies[1].values()) == sum(copies[0].values()) > 0
    assert not any("cp.async.ca" in name for name in copies[1])


def test_quantised_results_of_masked_groups_may_have_scales_that_lie_apart():
    """What the next product of DeepGEMM's layout takes; and nothing is written between the groups."""
    rng = np.random.default_rng(3)
    lengths, rows, k, kind = np.array([5, 0, 70], np.int32), 72, 272, ml_dtypes.float8_e4m3fn
    x, w = rng.standard_normal((3, rows, k)).astype(kind), rng.standard_normal((3, 128, k)).astype(kind)
    x_scale, w_scale = (rng.random((3, n, 3), np.float32) + 0.5 for n in (rows, 1))
    results = []
    for unit in (0, 100):
        out, scales = np.full((3, rows, 128), np.nan, kind), np.full((3, rows, 1), np.nan, np.float32)
        scales = _apart(scales, unit) if unit else scales
        report = simulate(x, w, lengths, out, x_scale=x_scale, w_scale=w_scale, out_scale=scales, layout="masked", card=H200.with_sms(2))
        assert report.verdict != "error"
        results.append((out.astype(np.float32), scales.copy()))
        if unit:
            assert np.isnan(np.lib.stride_tricks.as_strided(scales[0, rows - 1:], (unit - rows + 1,), (4,))[1:]).all()
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)
    assert np.isfinite(results[1][1][2, :70]).all()


def masked(**scales: Any) -> GroupProblem:
    x, w, out = view("e4m3", 4, 100, 512), view("e4m3", 4, 128, 512), view("bf16", 4, 100, 128)
    return GroupProblem(GroupArrays(x, w, view("s32", 4), out, **scales), GroupOptions("masked"))


def test_what_loads_scales_of_masked_groups_goes_by_their_strides():
    w_scale = view("f32", 4, 1, 4)

    def load(*strides: int) -> tuple[bool, str, Any]:
        problem = masked(x_scale=view("f32", 4, 100, 4, strides=strides), w_scale=w_scale)
        return problem.scales_apart, problem.scale_load, problem.s_lines.dims

    assert load(400, 1, 100) == (True, "bulk", (100, 4, 4))             # DeepGEMM's
    assert load(100, 1, 400) == (False, "bulk", (400, 4))               # one after another along all rows
    assert load(400, 4, 1) == (False, "warp", ())                       # along K
    assert load(404, 1, 101) == (True, "warp", ())                      # no multiples of 16 bytes
    assert load(402, 1, 100) == (True, "warp", ())
    with pytest.raises(LaunchError, match="not negative"):
        load(-400, 1, 100)


def test_only_the_scales_of_masked_groups_lie_apart():
    with pytest.raises(ConfigError, match="masked groups lie apart"):
        made({}, e4m3, e4m3, scales_apart=True)


LINES: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    ({"n": 136, "k": 192}, {"tile": Tile(64, 64), "schedule.sums": BlockScaled(load="lines")}),
    ({"n": 336, "k": 288}, {"tile": Tile(128, 192), "schedule.sums": BlockScaled("stagger", "lines")}),
    ({"n": 264, "k": 768}, {"tile": Tile(128, 128), "schedule.sums": BlockScaled("overlap", "lines"), "tokens": TokensAsRows(True, 32)}),
    ({"n": 264, "k": 656, "apart": 4, "layout": "masked"}, {"tile": Tile(192, 128), "schedule.sums": BlockScaled(load="lines")}),
    ({"n": 136, "k": 400}, {"tile": Tile(64, 64), "schedule.sums": BlockScaled(load="lines"), "scheduler.cluster": ClusterShape(2, 1)}),
    ({"n": 384, "k": 192, "gated": True}, {"tile": Tile(64, 128), "schedule.sums": BlockScaled(load="lines")}),
    ({"n": 384, "k": 512, "gated": True}, {"tile": Tile(128, 128), "schedule.sums": BlockScaled(load="bulk")}),
    ({"n": 576, "k": 288, "gated": True}, {"tile": Tile(128, 192), "schedule.sums": BlockScaled("stagger", "lines")}),
    ({"n": 176, "k": 192, "gated": True}, {"tile": Tile(64, 64), "schedule.sums": BlockScaled(load="lines")}),
    ({"n": 176, "k": 192, "gated": True}, {"tile": Tile(64, 64)}),
    ({"n": 176, "k": 192, "gated": True}, {"tile": Tile(128, 16), "tokens": SwapAB(), "schedule.warpgroups": 1}),
    ({"n": 384, "k": 272, "gated": True}, {"tile": Tile(128, 16), "tokens": SwapAB(), "schedule.warpgroups": 1}))
"""Depths whose scales of w lie on no 16-byte lines, and gates whose up projection begins within a block of scales."""


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("what", "parameters"), LINES, ids=str)
def test_any_depth_and_any_gate_has_block_scales(what, parameters):
    lengths = [3, 0, 20] if what["n"] < 200 else [3, 0, 70, 130]
    rows = -(-(sum(lengths) + 1) // 4) * 4 - sum(lengths)
    share, report, _ = example(lengths, dtype="e4m3", scales="block", pad=rows, card=H200.with_sms(2), configure=with_defaults(parameters),
                               **what)
    assert share <= 1
    assert report.verdict == "clean", report.findings


@pytest.mark.sweep
@settings(deadline=None, max_examples=300)
@given(st.lists(st.integers(0, 260), min_size=1, max_size=5), st.integers(1, 60), st.integers(1, 80), st.booleans(), st.integers(0, 3),
       st.sampled_from(["cu_seqlens", "masked", "contiguous"]), st.sampled_from([0, 1, 4]), st.integers(0, 999))
def test_many_random_block_scales(lengths, features, depth, gated, pad, layout, apart, seed):
    """What the heuristic chooses for any K of a multiple of 16 and any number of features of a multiple of 8."""
    share, report, _ = example(lengths, 8 * features * (1 + gated), 16 * depth, dtype="e4m3", scales="block", gated=gated, pad=pad,
                               layout=layout, apart=apart, seed=seed, card=H200.with_sms(2))
    assert share <= 1
    assert report.verdict != "error", report.findings


def blocks(n: int, k: int, rows: int = 400, gated: bool = False, strides: Any = None, mean: float | None = None) -> GroupProblem:
    """A problem whose x_scale lies along the rows."""
    lines, depth = n * (1 + gated), -(-k // 128)
    x, w, out = view("e4m3", rows, k), view("e4m3", 4, lines, k), view("bf16", rows, n)
    x_scale = view("f32", rows, depth, strides=(1, -(-rows // 4) * 4))
    w_scale = view("f32", 4, -(-lines // 128), depth, strides=strides)
    return GroupProblem(GroupArrays(x, w, view("s32", 5), out, x_scale, w_scale), GroupOptions(gated=gated, mean_tokens=mean))


@pytest.mark.parametrize("gated", [False, True])
def test_the_producer_copies_the_scales_of_every_depth(gated):
    """Four stages at once where K is a multiple of 512, one by one elsewhere; never by another warp, nor by the threads."""
    for depth in range(1, 60):
        problem = blocks(256, 128 * depth - 16 * (depth % 3), gated=gated)
        assert problem.scale_load == ("lines" if -(-problem.k // 128) % 4 else "bulk")
        assert problem.scales_in_shared
    assert blocks(256, 512, strides=(8, 1, 2)).scale_load == "lines"                                # along N
    assert blocks(256, 512, strides=(1 << 29, 4, 1)).scale_load == "bulk"
    assert blocks(256, 192, strides=(1 << 30, 4, 1)).scale_load == "tensor_map"                     # farther than a coordinate reaches


@pytest.mark.parametrize("features", [8, 24, 96, 144, 192, 320, 1536])
@pytest.mark.parametrize("mean", [2, 30, 100, 300, 2000])
def test_every_gate_has_a_configuration(features, mean):
    config = heuristic(blocks(features, 768, gated=True, mean=mean))
    for each in config.kernels:
        assert each.operands.gate_step == math.gcd(features, 128)
        assert each.swap_ab or isinstance(each.sums, BlockScaled)


def test_a_tile_that_has_scales_of_too_many_blocks_is_refused():
    for load in (BlockScaled(load="lines"), ThreadScaled()):
        with pytest.raises(ConfigError, match="smaller BN"):
            made({"tile": Tile(64, 128), "schedule.sums": load}, e4m3, e4m3, gated=True, gate_step=8)
    with pytest.raises(ConfigError, match="second projection"):
        made({}, e4m3, e4m3, gate_step=64)
    with pytest.raises(ConfigError, match="gate_step is"):
        made({}, e4m3, e4m3, gated=True, gate_step=4)


def test_copies_of_single_scales_take_few_instructions_more():
    """In the loop over stages: those of four at once, and one by one, per tile and stage."""
    def executed(load: str, k: int) -> int:
        _, report, _ = example([128], 128, k, dtype="e4m3", scales="block", pad=0, card=H200.with_sms(1), check=False,
                               configure=with_defaults({"tile": Tile(128, 128), "schedule.sums": BlockScaled(load=load)}))  # type: ignore[arg-type]
        return sum(report.stats.opcodes.values())

    bulk, lines = ((executed(load, 1024) - executed(load, 512)) / 4 for load in ("bulk", "lines"))
    assert lines <= 1.05 * bulk
