"""Group products whose rows go to rows of the result by number, on the CPU device: stored, and added by atomic additions."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from ptxkit import gemm
from ptxkit.cards import H200
from ptxkit.errors import LaunchError
from ptxkit.gemm.config.grouped import DynamicGroups, GroupedConfig, GroupOperands, StagedGroups, SwapAB
from ptxkit.gemm.config.parts import ConfigError, Direct, Pingpong, Tile
from ptxkit.gemm.heuristic.grouped import heuristic
from ptxkit.gemm.kernels.grouped_scattered import group_gemm_scattered
from ptxkit.gemm.launch.simulate_grouped import simulate
from ptxkit.gemm.problem.grouped import GroupArrays, GroupOptions, GroupProblem
from ptxkit.runtime.toolchain import assemble
from ptxkit.types import bf16, f16, f32
from tests.gemm.groups import made, view

ml_dtypes = pytest.importorskip("ml_dtypes")
pytestmark = pytest.mark.pure
Array = np.ndarray[Any, Any]
ENDS = np.array([0, 5, 5, 75, 80], np.int32)


def run(x: Array, w: Array, out: Array, scatter: Array, settings: dict[str, Any] | None, *, add: bool = False,
        weights: Array | None = None) -> Any:
    types = {"float16": f16, "bfloat16": bf16, "float32": f32}
    operands = types[x.dtype.name], types[w.dtype.name], types[out.dtype.name]
    weighted: dict[str, Any] = {"scaled": True, "vectors": "weight"} if weights is not None else {}
    config = None if settings is None else made(settings, *operands, max_groups=32, scatter="add" if add else "rows", **weighted)
    return simulate(x, w, ENDS, out, scatter=scatter, add=add, weights=weights, config=config, card=H200.with_sms(2))


@pytest.mark.parametrize("pitch", [9, 10, 24])
def test_one_row_is_stored_at_any_row(pitch: int) -> None:
    """How far the rows of the result are apart says how one can be stored, also if the product has one."""
    rng = np.random.default_rng(2)
    x, w = rng.standard_normal((1, 64)).astype(np.float16), rng.standard_normal((1, 8, 64)).astype(np.float16)
    whole = np.full((5, pitch), np.nan, np.float16)
    report = simulate(x, w, np.array([0, 1], np.int32), whole[:, :8], scatter=np.array([3], np.int32), card=H200.with_sms(2))
    assert report.verdict == "clean", str(report)
    assert np.abs(whole[3, :8] - w[0].astype(np.float64) @ x[0]).max() < 0.05
    whole[3, :8] = np.nan
    assert np.isnan(whole).all()


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("dtype", "out_dtype", "n", "settings"), [
    ("bfloat16", "bfloat16", 72, {"tile": Tile(64, 64)}), ("float16", "float32", 72, {"tile": Tile(64, 64), "schedule": Pingpong()}),
    ("float16", "float16", 37, {"tile": Tile(128, 64), "store": Direct(1)}), ("bfloat16", "float32", 72, None)])
def test_rows_are_stored_by_number(dtype: str, out_dtype: str, n: int, settings: dict[str, Any] | None) -> None:
    """Those of no row of the result nowhere; and nothing else is written."""
    types = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float32": np.float32}
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal(shape).astype(np.float32).astype(types[dtype]) for shape in ((84, 96), (4, n, 96)))
    numbers = rng.permutation(100)[:84].astype(np.int32)
    numbers[[2, 40]] = -1, 100
    out = np.full((100, n), np.nan, np.float32).astype(types[out_dtype])
    report = run(x, w, out, numbers, settings)
    assert report.verdict == ("incomplete" if settings is None else "clean"), str(report)
    ordered = np.full((84, n), np.nan, np.float32).astype(types[out_dtype])
    simulate(x, w, ENDS, ordered, config=made({"tile": Tile(64, 64), "store": Direct(1)}, *([f16] if dtype == "float16" else [bf16]) * 2,
                                              {"float16": f16, "float32": f32}.get(out_dtype, bf16), max_groups=32),
             card=H200.with_sms(2))
    expected = np.full_like(out, np.nan)
    for row in range(80):
        if 0 <= numbers[row] < 100:
            expected[numbers[row]] = ordered[row]
    assert np.array_equal(out.astype(np.float64), expected.astype(np.float64), equal_nan=True)


@pytest.mark.parametrize("out_dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_rows_are_added_with_weights(out_dtype: Any) -> None:
    """Small integers, whose sums are exact in every order."""
    rng = np.random.default_rng(2)
    x, w = rng.integers(-1, 2, (84, 64)).astype(np.float16), rng.integers(-1, 2, (4, 40, 64)).astype(np.float16)
    weights, numbers = np.where(rng.random(84) < 0.5, 1, -1).astype(np.float32), rng.integers(-1, 21, 84).astype(np.int32)
    out = np.ones((20, 40), np.float32).astype(out_dtype)
    report = run(x, w, out, numbers, {"tile": Tile(64, 64)}, add=True, weights=weights)
    assert report.verdict != "error", str(report)
    expected = np.ones((20, 40))
    for group, (a, b) in enumerate(itertools.pairwise(ENDS)):
        for row in range(a, b):
            if 0 <= numbers[row] < 20:
                expected[numbers[row]] += weights[row] * (x[row].astype(np.float64) @ w[group].astype(np.float64).T)
    assert np.abs(expected).max() < 256
    assert np.array_equal(out.astype(np.float64), expected)


@pytest.mark.ptxas
def test_no_register_is_spilled() -> None:
    for scatter, schedule in (("rows", {}), ("add", {"schedule": Pingpong(), "tile": Tile(128, 128)})):
        config = GroupedConfig(GroupOperands(scatter=scatter), scheduler=DynamicGroups(True),  # type: ignore[arg-type]
                               **{"tile": Tile(128, 256), **schedule})
        found = assemble(group_gemm_scattered.trace(**config.parameters).ptx()).resources["group_gemm_scattered"]
        assert found.spill_stores == 0, str(config)


def test_every_number_of_tokens_has_a_tile() -> None:
    for mean in (1, 16, 96, 512, 4096):
        rows = 32 * mean
        arrays = GroupArrays(view("bf16", rows, 2048), view("bf16", 32, 7168, 2048), view("s32", 33), view("f32", 100, 7168),
                             scatter=view("s32", rows))
        config = heuristic(GroupProblem(arrays, GroupOptions(add=True)))
        assert not config.swap_ab
        assert not config.staged
        assert config.operands.scatter == "add"


def test_what_is_refused_is_said_in_one_sentence() -> None:
    x, w, lengths, out, numbers = view("bf16", 9, 64), view("bf16", 2, 16, 64), view("s32", 3), view("bf16", 30, 16), view("s32", 9)
    odd = view("bf16", 2, 15, 64), lengths, view("bf16", 30, 15)
    cases: list[tuple[tuple[Any, ...], dict[str, Any], dict[str, Any], str]] = [
        ((x, w, lengths, out), {"scatter": view("s32", 8)}, {}, "scatter has shape"),
        ((x, w, lengths, out), {"scatter": view("s64", 9)}, {}, "scatter has elements of s64"),
        ((x, w, lengths, view("bf16", 30, 8)), {"scatter": numbers}, {}, "out has shape"),
        ((x, w, lengths, view("bf16", 9, 16)), {}, {"add": True}, "give scatter as well"),
        ((x, w, lengths, out), {"scatter": numbers, "gather": numbers}, {}, "neither gathered rows"),
        ((x, *odd), {"scatter": numbers}, {"add": True}, "take a float32 result"),
        ((view("bf16", 9, 0), view("bf16", 2, 16, 0), lengths, out), {"scatter": numbers}, {}, "nothing to scatter"),
    ]
    for given, more, options, sentence in cases:
        with pytest.raises(LaunchError, match=sentence) as raised:
            GroupProblem(GroupArrays(*given, **more), GroupOptions(**options))
        assert len(str(raised.value).splitlines()) == 1
    for more in ({"tokens": SwapAB()}, {"store": StagedGroups(2)}):
        with pytest.raises(ConfigError, match="tokens as rows"):
            GroupedConfig(GroupOperands(scatter="rows"), **{"tile": Tile(128, 64), **more})
    with pytest.raises(ConfigError, match="groups with offsets"):
        GroupOperands(layout="masked", scatter="rows")
    with pytest.raises(LaunchError, match="in no particular order"):
        gemm.group_gemm(x, w, lengths, combine="sorted")  # type: ignore[arg-type]
    with pytest.raises(LaunchError, match="give out"):
        gemm.group_gemm(x, w, lengths, scatter=numbers)
