"""Group products whose rows have weights, on the CPU device: against float64, in every kernel that has them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from ptxkit.cards import H200
from ptxkit.errors import LaunchError
from ptxkit.gemm.config.grouped import GroupedConfig, GroupOperands, SwapAB
from ptxkit.gemm.config.parts import ConfigError, Pingpong, Tile
from ptxkit.gemm.launch.simulate_grouped import simulate
from ptxkit.gemm.problem.grouped import GroupArrays, GroupOptions, GroupProblem
from ptxkit.types import bf16, e4m3, f16
from tests.gemm.groups import made, view

ml_dtypes = pytest.importorskip("ml_dtypes")
pytestmark = pytest.mark.pure


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("dtype", "settings"), [
    ("bf16", {"tile": Tile(64, 64)}), ("f16", {"tile": Tile(64, 32), "tokens": SwapAB(16)}),
    ("bf16", {"tile": Tile(64, 64), "schedule": Pingpong()}), ("e4m3", {"tile": Tile(128, 64)}), ("f16", None)])
@pytest.mark.parametrize("gather", [False, True])
def test_rows_are_weighted_before_they_are_rounded(dtype: str, settings: dict[str, Any] | None, gather: bool) -> None:
    if gather and settings and "tokens" in settings:
        return
    kind = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "e4m3": ml_dtypes.float8_e4m3fn}[dtype]
    rng, ends = np.random.default_rng(0), np.array([0, 5, 5, 75, 80], np.int32)
    x, w = (rng.standard_normal(shape).astype(np.float32).astype(kind) for shape in ((84, 96), (4, 72, 96)))
    weights, out = rng.standard_normal(84).astype(np.float32), np.full((84, 72), np.nan, np.float16)
    numbers = rng.permutation(84).astype(np.int32) if gather else None
    operand = {"bf16": bf16, "f16": f16, "e4m3": e4m3}[dtype]
    config = None if settings is None else made(settings, operand, operand, f16, scaled=True, vectors="weight", max_groups=32,
                                                gathered=gather)
    report = simulate(x, w, ends, out, weights=weights, gather=numbers, config=config, card=H200.with_sms(2))
    assert report.verdict == ("incomplete" if settings is None else "clean"), str(report)
    rows = (x if numbers is None else x[numbers]).astype(np.float64)
    for group, (a, b) in enumerate(itertools.pairwise(ends)):
        exact = rows[a:b] @ w[group].astype(np.float64).T * weights[a:b, None].astype(np.float64)
        size = np.abs(rows[a:b]) @ np.abs(w[group].astype(np.float64)).T * np.abs(weights[a:b, None])
        assert (np.abs(out[a:b] - exact) <= 2.0 ** -11 * np.abs(exact) + 26 * 2.0 ** -23 * size + 1e-7).all()
    assert np.isnan(out[80:]).all()


def test_what_has_no_weights_is_said_in_one_sentence() -> None:
    x, w, lengths, out, weights = view("bf16", 9, 64), view("bf16", 2, 16, 64), view("s32", 3), view("bf16", 9, 16), view("f32", 9)
    weighted = GroupOptions(weighted=True)
    cases: list[tuple[GroupArrays, GroupOptions, str]] = [
        (GroupArrays(x, w, lengths, out, view("f32", 8)), weighted, "weights has shape"),
        (GroupArrays(x, w, lengths, out, view("bf16", 9)), weighted, "weights has elements of bf16"),
        (GroupArrays(x, w, lengths, out, weights, view("f32", 2)), weighted, "multiply x_scale, of rows, by them"),
        (GroupArrays(x, w, lengths, view("bf16", 9, 8), weights), GroupOptions(gated=True, weighted=True), "a gate comes after them"),
    ]
    for arrays, options, sentence in cases:
        with pytest.raises(LaunchError, match=sentence) as raised:
            GroupProblem(arrays, options)
        assert len(str(raised.value).splitlines()) == 1
    with pytest.raises(ConfigError, match="a gate comes after them"):
        GroupedConfig(GroupOperands(gated=True, scaled=True, vectors="weight"))
