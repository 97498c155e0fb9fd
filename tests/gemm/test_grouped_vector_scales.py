"""Scales of the rows of x and of the features of each group, on the CPU device, against float64."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxkit.cards import H200
from ptxkit.errors import LaunchError
from ptxkit.gemm.config.grouped import DynamicGroups, StagedGroups, SwapAB, TokensAsRows
from ptxkit.gemm.config.parts import ClusterShape, ConfigError, Cooperative, Direct, Pingpong, Promoted, Tile
from ptxkit.gemm.heuristic.grouped import untaught
from ptxkit.gemm.launch.simulate_grouped import simulate
from ptxkit.gemm.problem.grouped import GroupArrays, GroupOptions, GroupProblem
from ptxkit.gemm.problem.scales import group_scale_kind
from ptxkit.gemm.tools.grouped_example import example
from ptxkit.gemm.tools.verify.grouped import VECTORS, trials
from ptxkit.types import e4m3
from tests.gemm.groups import made, view, with_defaults
from tests.gemm.test_grouped_quantised import hold, quantised

ml_dtypes = pytest.importorskip("ml_dtypes")
pytestmark = pytest.mark.pure

WAYS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "warpgroups share": ({"tile": Tile(128, 64), "tokens": TokensAsRows(True)}, {}),
    "two blocks of rows": ({"tile": Tile(128, 64), "schedule": Cooperative(1)}, {"layout": "masked"}),
    "pingpong": ({"tile": Tile(64, 64), "schedule": Pingpong()}, {}),
    "contiguous": ({"tile": Tile(64, 40), "store": Direct()}, {"layout": "contiguous"}),
    "a map of each group": ({"tile": Tile(64, 64), "store": StagedGroups(2, "tensormap")}, {}),
    "dynamic": ({"tile": Tile(64, 64), "scheduler": DynamicGroups()}, {}),
    "promoted": ({"tile": Tile(64, 64), "schedule": Cooperative(1, Promoted())}, {"fast_accum": False}),
    "gated": ({"tile": Tile(64, 96)}, {"gated": True}),
    "gated, halves of chunks": ({"tile": Tile(64, 160), "store": Direct()}, {"gated": True, "layout": "masked"}),
    "swap AB": ({"tile": Tile(128, 16), "tokens": SwapAB()}, {}),
    "swap AB, many tokens": ({"tile": Tile(64, 72), "tokens": SwapAB()}, {"layout": "masked"}),
    "swap AB by steps": ({"tile": Tile(64, 48), "tokens": SwapAB(16, partial_boxes=True)}, {}),
    "swap AB, gated": ({"tile": Tile(128, 16), "schedule": Cooperative(1), "tokens": SwapAB(8)}, {"gated": True})}
ONE = [("warpgroups share", "row"), ("gated", "column"), ("swap AB", "row"), ("swap AB, gated", "column")]


@pytest.mark.thinned(4)
@pytest.mark.parametrize(("which", "kind"), [(which, "row_column") for which in WAYS] + ONE)
def test_every_way_to_compute_a_tile(which: str, kind: str) -> None:
    parameters, more = WAYS[which]
    gated = more.get("gated", False)
    features = 72 if "swap" in which else 136
    share, report, _ = example([3, 0, 70], features * (1 + gated), 144, dtype="e4m3", out="f32", scales=kind, card=H200.with_sms(2),
                               configure=with_defaults(parameters), **more)
    assert share <= 1
    assert report.verdict in ("clean", *(["incomplete"] if which == "dynamic" else [])), str(report)
    assert report.findings == report.reasons, str(report)


@settings(deadline=None, max_examples=4, derandomize=True)
@given(st.lists(st.integers(0, 90), min_size=1, max_size=5), st.integers(1, 60), st.sampled_from([32, 160]), st.sampled_from(VECTORS),
       st.booleans(), st.sampled_from(["cu_seqlens", "masked"]), st.sampled_from([None, 4.0, 300.0]), st.integers(0, 99))
def test_random_groups_as_the_heuristic_chooses(lengths, n, k, kind, gated, layout, mean, seed):
    share, _, _ = example(lengths, 2 * n, k, dtype="e4m3", w_dtype="e5m2", scales=kind, gated=gated, layout=layout, mean_tokens=mean,
                          seed=seed, card=H200.with_sms(2), check=False)
    assert share <= 1


@pytest.mark.parametrize(("gated", "parameters"), [
    (False, {"tile": Tile(64, 128)}), (False, {"tile": Tile(64, 64)}), (True, {"tile": Tile(64, 128)})], ids=str)
def test_quantised_results_are_scaled_before(gated: bool, parameters: dict[str, Any]) -> None:
    """Also where two tiles complete 128 columns: each has the scales of its own."""
    report, found = quantised([3, 0, 70], 256, 144, "e4m3", "row_column", gated, parameters)
    assert report.verdict == "clean", str(report)
    hold(found)


@pytest.mark.parametrize(("x", "w", "kind"), [
    ((1,), (1,), "whole"), ((), (4,), "whole"), ((100,), (4,), "row"), ((100, 1), (1,), "row"), ((1,), (4, 72), "column"),
    ((100,), (4, 72), "row_column"), ((100, 1), (4, 1, 72), "row_column"), ((100,), (4, 72, 1), "row_column"),
    ((100, 3), (4, 1, 3), "block"), ((100, 2), (4, 72), None), ((99,), (4, 72), None), ((100,), (4, 36), None), ((100,), (3,), None),
    ((100, 3), (4,), None), ((1,), (72,), None)])
def test_which_scales_shapes_are(x: tuple[int, ...], w: tuple[int, ...], kind: str | None) -> None:
    assert group_scale_kind(x, w, (100,), 4, 72, 300) == kind


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("dtype", ["f16", "e4m3"])
def test_one_element_of_any_shape_scales_all(dtype: str, rows: int) -> None:
    """Also where a row of one block has that shape: 16-bit operands have none."""
    rng = np.random.default_rng(rows)
    kind = {"f16": np.float16, "e4m3": ml_dtypes.float8_e4m3fn}[dtype]
    x, w = (rng.standard_normal(shape).astype(np.float32).astype(kind) for shape in ((rows, 64), (2, 16, 64)))
    cu = np.array([0, 0, rows], np.int32)
    for x_shape, w_shape in itertools.product(((), (1,), (1, 1)), ((), (1,), (1, 1), (2,))):
        out = np.full((rows, 16), np.nan, np.float32)
        report = simulate(x, w, cu, out, x_scale=np.full(x_shape, 0.5, np.float32), w_scale=np.full(w_shape, 4, np.float32),
                          card=H200.with_sms(2))
        assert report.verdict in ("clean", "incomplete"), str(report)
        assert np.allclose(out, x.astype(np.float64) @ w[1].astype(np.float64).T * 2, rtol=1e-3, atol=1e-3)


def test_one_block_of_each_row_may_be_summed_in_the_tensor_cores() -> None:
    """Of one group, or of groups with one feature, it is a scale of the row."""
    for groups, lines, kind in ((1, 72, "row"), (4, 1, "row_column")):
        shapes = (100, 1), (groups, 1, 1), (100,), groups, lines, 128
        assert group_scale_kind(*shapes) == "block"
        assert group_scale_kind(*shapes, blocks=False) == kind
        arrays = GroupArrays(view("e4m3", 100, 128), view("e4m3", groups, lines, 128), view("s32", groups + 1), view("bf16", 100, lines),
                             view("f32", 100, 1), view("f32", groups, 1, 1))
        for fast in (None, False, True):
            problem = GroupProblem(arrays, GroupOptions(fast_accum=fast))
            assert (problem.block_scales, problem.vectors) == ((False, kind) if fast else (True, ""))


def test_rows_of_masked_groups_have_theirs_by_group() -> None:
    for x in ((4, 25), (4, 25, 1)):
        assert group_scale_kind(x, (4, 72), (4, 25), 4, 72, 300) == "row_column"
    assert group_scale_kind((100,), (4, 72), (4, 25), 4, 72, 300) is None


ARRAYS = GroupArrays(view("e4m3", 100, 256), view("e4m3", 4, 72, 256), view("s32", 5), view("bf16", 100, 72), view("f32", 100),
                     view("f32", 4, 72))


@pytest.mark.parametrize(("changes", "words"), [
    ({"x_scale": view("f32", 99)}, r"x_scale has shape \(99,\) and w_scale has shape \(4, 72\).*\(100,\) or \(100, 1\).*of 4 groups.*"
                                   r"\(4, 72\), \(4, 1, 72\) or \(4, 72, 1\).*\(100, 2\) and w_scale \(4, 1, 2\)"),
    ({"w_scale": view("f32", 72)}, r"w_scale has shape \(72,\)"),
    ({"x_scale": view("f32", 100, strides=(2,))}, "x_scale has strides .* contiguous copy"),
    ({"w_scale": view("f32", 4, 72, strides=(1, 4))}, "w_scale has strides .* contiguous copy"),
    ({"w_scale": None}, "w_scale is missing"), ({"x_scale": view("f64", 100)}, "x_scale has elements"),
    ({"x": view("bf16", 100, 256), "w": view("bf16", 4, 72, 256)}, "those of fp8 operands, x has elements of bf16")], ids=str)
def test_other_scales_are_refused_in_a_sentence(changes: dict[str, Any], words: str) -> None:
    assert GroupProblem(ARRAYS).vectors == "row_column"
    with pytest.raises(LaunchError, match=words):
        GroupProblem(ARRAYS._replace(**changes))


def test_groups_with_matrices_of_their_own_have_none() -> None:
    with pytest.raises(ConfigError, match="scales of rows and features"):
        made({}, e4m3, e4m3, scaled=True, vectors="row", layout="ptr_array")
    with pytest.raises(ConfigError, match="take scaled=True"):
        made({}, e4m3, e4m3, vectors="row")


@pytest.mark.parametrize("mean", [2.0, 30.0, 128.0, 1000.0])
@pytest.mark.parametrize("gated", [False, True])
def test_the_choice_is_that_of_one_scale(mean: float, gated: bool) -> None:
    """Without trees, which know products of one scale alone."""
    rows, lines = int(8 * mean), 4096 * (1 + gated)
    arrays = GroupArrays(view("e4m3", rows, 7168), view("e4m3", 8, lines, 7168), view("s32", 9), view("bf16", rows, 4096))
    options = GroupOptions(gated=gated, mean_tokens=mean)
    one, each = (untaught(GroupProblem(arrays._replace(x_scale=x, w_scale=w), options))
                 for x, w in ((view("f32", 1), view("f32", 8)), (view("f32", rows), view("f32", 8, lines))))
    for first, second in zip(one.kernels, each.kernels, strict=True):
        assert second == replace(first, operands=second.operands, second=second.second)
        assert second.operands == replace(first.operands, vectors="row_column")


def test_what_is_verified_on_a_card_has_every_kind() -> None:
    drawn = trials(1200, 1)
    assert {(trial.scales, trial.gated) for trial in drawn} >= {(kind, gated) for kind in VECTORS for gated in (False, True)}
    assert {trial.problem().vectors for trial in drawn[::8]} >= {"", *VECTORS}
    assert {trial.layout for trial in drawn if "row" in trial.scales} == {"cu_seqlens", "masked", "contiguous"}


def test_pairs_that_share_tokens() -> None:
    share, report, _ = example([130, 5], 144, 144, dtype="e4m3", scales="row_column", card=H200.with_sms(2),
                               configure=with_defaults({"tile": Tile(64, 72), "scheduler.cluster": ClusterShape(1, 2), "store": Direct()}))
    assert share <= 1
    assert report.verdict == "clean", str(report)
