"""Group products of rows of x anywhere, on the CPU device: against float64, with rows of NaN that no number names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxkit.cards import H100, H200
from ptxkit.errors import LaunchError
from ptxkit.gemm.config.grouped import DynamicGroups, GroupedConfig, GroupLoads, GroupOperands, StaticGroups, SwapAB, TokensAsRows
from ptxkit.gemm.config.parts import ClusterShape, ConfigError, Cooperative, Direct, Pingpong, Tile
from ptxkit.gemm.heuristic.grouped import heuristic
from ptxkit.gemm.kernels.grouped_gathered import group_gemm_gathered
from ptxkit.gemm.launch.simulate_grouped import simulate
from ptxkit.gemm.problem.grouped import GroupArrays, GroupOptions, GroupProblem
from ptxkit.gemm.tools.grouped_example import example
from ptxkit.runtime.toolchain import assemble
from tests.gemm.groups import lengths, view, with_defaults

pytest.importorskip("ml_dtypes")
pytestmark = pytest.mark.pure

TILES: tuple[dict[str, Any], ...] = (
    {"tile": Tile(64, 32)}, {"tile": Tile(64, 80), "stages": 2}, {"tile": Tile(128, 64), "schedule": Pingpong()},
    {"tile": Tile(128, 128), "store": Direct()}, {"tile": Tile(64, 64, 128), "loads": GroupLoads(True, 2)}, {"tile": Tile(192, 64)},
    {"tile": Tile(64, 64), "scheduler.cluster.m": 2})


@st.composite
def launches(draw: st.DrawFn) -> dict[str, Any]:
    parameters = draw(st.sampled_from(TILES))
    find = draw(st.sampled_from(["linear", "search", "across"]))
    return {"configure": with_defaults({**parameters, "scheduler.find": find}), "lengths": draw(lengths(parameters["tile"].BM, 4)),
            "card": H200.with_sms(draw(st.sampled_from([2, 6]))), "seed": draw(st.integers(0, 99))}


@settings(deadline=None, max_examples=25)
@given(launches())
def test_random_groups(launch: dict[str, Any]) -> None:
    share, _, _ = example(n=72, k=72, check=False, gather=True, **launch)
    assert share <= 1


@pytest.mark.sweep
@settings(deadline=None, max_examples=300)
@given(launches(), st.sampled_from(["bf16", "f16", "e4m3", "e5m2"]), st.booleans(), st.sampled_from(["bf16", "f32"]))
def test_many_random_groups(launch: dict[str, Any], dtype: str, gated: bool, out: str) -> None:
    share, report, _ = example(n=144, k=144, dtype=dtype, gated=gated, out=out, gather=True, **launch)
    assert share <= 1
    assert report.verdict == "clean"


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("what", "parameters"), [
    ({"lengths": [0, 1, 7, 65, 20], "n": 136, "k": 128}, {"tile": Tile(64, 64)}),
    ({"lengths": [1, 64, 130], "n": 136, "k": 200}, {"tile": Tile(128, 64)}),
    ({"lengths": [0, 1, 70], "n": 136, "k": 192}, {"tile": Tile(64, 64), "schedule": Pingpong()}),
    ({"lengths": [3, 70], "n": 144, "k": 72, "gated": True, "out": "f16", "dtype": "f16"}, {"tile": Tile(64, 96)}),
    ({"lengths": [3, 0, 70], "n": 72, "k": 272, "dtype": "e4m3", "w_dtype": "e5m2", "scales": "row_column"}, {"tile": Tile(64, 64)}),
    ({"lengths": [3, 0, 70], "n": 72, "k": 272, "dtype": "e4m3", "fast_accum": False}, {"tile": Tile(64, 64)}),
    ({"lengths": [5, 66], "n": 37, "k": 64}, {"tile": Tile(64, 64), "store": Direct(1)}),
    ({"lengths": [0, 1, 70, 300], "n": 136, "k": 192}, {"tile": Tile(64, 64), "schedule": Pingpong(), "scheduler.cluster.m": 2}),
    ({"lengths": [3, 200, 7], "n": 144, "k": 136, "gated": True}, {"tile": Tile(128, 64), "schedule": Cooperative(2),
                                                                   "scheduler.cluster.m": 2}),
])
def test_every_schedule_is_equivalent(what: dict[str, Any], parameters: dict[str, Any]) -> None:
    """The checker vouches for it, whatever the order in which warps run."""
    share, report, _ = example(gather=True, configure=with_defaults(parameters), schedule="random", **what)
    assert share <= 1
    assert report.verdict == "clean", str(report)
    assert report.every_schedule


@pytest.mark.parametrize("lengths", [[0, 1, 7, 20], [200, 3, 0, 130]])
def test_what_the_heuristic_takes(lengths: list[int]) -> None:
    """Its tiles are drawn by ticket, so that the checker vouches for what was executed."""
    share, report, config = example(lengths, n=136, k=144, gather=True)
    assert share <= 1
    assert report.verdict in ("clean", "incomplete"), str(report)
    assert config.operands.gathered


def problem(mean: int, groups: int, n: int, k: int, dtype: str = "bf16", gated: bool = False, **more: Any) -> GroupProblem:
    rows = mean * groups
    arrays = GroupArrays(view(dtype, rows // 4 + 1, k), view(dtype, groups, n * (1 + gated), k), view("s32", groups + 1),
                         view("bf16", rows, n), gather=view("s32", rows), **more)
    return GroupProblem(arrays, GroupOptions(gated=gated, fast_accum=True))


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("dtype", ["bf16", "e4m3"])
def test_every_number_of_tokens_has_a_tile(gated: bool, dtype: str) -> None:
    """Tokens are rows, alone; and the more there are, the more rows a tile has."""
    rows = []
    for mean in (1, 4, 16, 20, 64, 96, 192, 512, 1024, 4096):
        config = heuristic(problem(mean, 32, 4096, 7168, dtype, gated))
        assert not config.swap_ab
        assert config.cluster == (2 if mean >= 1024 else 1)
        assert len(config.kernels) == 1
        rows.append(config.tile.BM)
    assert rows[0] == 64
    assert rows[-1] == 128
    assert rows == sorted(rows)


def test_tiles_of_layers_of_experts() -> None:
    """As they were fastest on an H100: square ones of few tokens; with a gate of 65 to 128 those whose features and waves are full; and
    pairs for long groups, on every card."""
    def tile(mean: int, groups: int, n: int, k: int) -> tuple[int, int]:
        config = heuristic(problem(mean, groups, n, k, gated=True), H100)
        return config.tile.BM, config.tile.BN

    assert {tile(mean, 128, 768, 2048) for mean in (1, 4, 16, 32)} == {(64, 64)}
    assert tile(64, 24, 2048, 7168) == (128, 128)
    assert tile(128, 128, 2880, 2880) == (128, 192)
    assert {tile(128, *each) for each in ((8, 2048, 7168), (4, 2048, 7168), (256, 512, 2048))} == {(128, 128)}
    for card in (H100, H200, H200.with_sms(78)):
        config = heuristic(problem(1024, 32, 2048, 7168, gated=True), card)
        assert (config.cluster, config.along_tokens, config.dynamic) == (2, 2, True)


@pytest.mark.ptxas
def test_no_register_is_spilled() -> None:
    """The copying threads keep where their rows begin in the registers that a producer has."""
    gathered, pairs = GroupOperands(gathered=True), DynamicGroups(True, cluster=ClusterShape(2, 1))
    for config in (GroupedConfig(gathered, tile=Tile(128, 256), scheduler=DynamicGroups(True)),
                   GroupedConfig(replace(gathered, gated=True), tile=Tile(128, 256), scheduler=pairs),
                   GroupedConfig(replace(gathered, gated=True), tile=Tile(64, 64), scheduler=DynamicGroups()),
                   GroupedConfig(gathered, tile=Tile(128, 192), schedule=Pingpong(), scheduler=DynamicGroups(True)),
                   GroupedConfig(GroupOperands(gated=True, gathered=True), tile=Tile(64, 128), scheduler=DynamicGroups())):
        found = assemble(group_gemm_gathered.trace(**config.parameters).ptx()).resources["group_gemm_gathered"]
        assert found.spill_stores == 0, str(config)


def test_a_number_of_no_row_is_a_row_of_zeros() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((3, 64)).astype(np.float16), rng.standard_normal((2, 16, 64)).astype(np.float16)
    numbers, out = np.array([2, -1, 0, 3, 2**31 - 1, 2], np.int32), np.full((6, 16), np.nan, np.float16)
    simulate(x, w, np.array([0, 4, 6], np.int32), out, gather=numbers, card=H200.with_sms(2))
    assert (out[[1, 3, 4]] == 0).all()
    one = np.zeros((1, 16), np.float16)
    simulate(x[2:], w[1:], np.array([0, 1], np.int32), one, card=H200.with_sms(2))
    assert (out[5] == one[0]).all()
    assert np.isfinite(out).all()
    empty = np.full((6, 16), np.nan, np.float16)
    simulate(x[:0], w, np.array([0, 4, 6], np.int32), empty, gather=numbers, card=H200.with_sms(2))
    assert (empty == 0).all()


def test_what_is_refused_is_said_in_one_sentence() -> None:
    x, w, lengths, out, numbers = view("bf16", 9, 64), view("bf16", 2, 16, 64), view("s32", 3), view("bf16", 6, 16), view("s32", 6)
    q, v, blocks = view("e4m3", 9, 256), view("e4m3", 2, 256, 256), {"x_scale": view("f32", 6, 2), "w_scale": view("f32", 2, 2, 2)}
    cases: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
        ((x, w, lengths, view("bf16", 9, 16)), {"gather": numbers}, "out has shape"),
        ((x, w, lengths, out), {"gather": view("s64", 6)}, "gather has elements of s64"),
        ((x, w, lengths, out), {"gather": view("s32", 6, 1)}, r"it is int32 \[M\]"),
        ((x, w, lengths, out), {"gather": view("s32", 6, strides=(2,))}, "gather has strides"),
        ((view("bf16", 1 << 30, 64, strides=(1 << 6, 1)), w, lengths, out), {"gather": numbers}, "within 64 GiB"),
        ((q, v, lengths, view("bf16", 6, 256)), {"gather": numbers, **blocks}, "no block scales"),
    ]
    for arrays, more, sentence in cases:
        with pytest.raises(LaunchError, match=sentence) as raised:
            GroupProblem(GroupArrays(*arrays, **more))
        assert len(str(raised.value).splitlines()) == 1
    with pytest.raises(LaunchError, match="take group_gemm with cu_seqlens"):
        GroupProblem(GroupArrays(x, w, numbers, out, gather=numbers), GroupOptions("contiguous"))
    for more in ({"tokens": SwapAB()}, {"tokens": TokensAsRows(True), "tile": Tile(128, 64)},
                 {"scheduler": StaticGroups(cluster=ClusterShape(1, 2))}):
        with pytest.raises(ConfigError, match="gathered rows need tokens as rows"):
            GroupedConfig(GroupOperands(gathered=True), **{"tile": Tile(128, 64), "schedule": Cooperative(2), **more})
    with pytest.raises(ConfigError, match="groups with offsets"):
        GroupOperands(layout="masked", gathered=True)
