"""Group products whose results are e4m3 with a scale for every 128 columns of a row, on the CPU device, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxkit.cards import H200
from ptxkit.dsl.values import FieldError
from ptxkit.errors import LaunchError
from ptxkit.gemm.config.grouped import DynamicGroups, GroupedConfig, StagedGroups, StaticGroups, SwapAB
from ptxkit.gemm.config.parts import BlockScaled, ClusterShape, Cooperative, Pingpong, TensorCoreSums, ThreadScaled, Tile
from ptxkit.gemm.heuristic.grouped import heuristic
from ptxkit.gemm.heuristic.grouped_tiles import QUANTISED, QUANTISED_PINGPONG
from ptxkit.gemm.launch.group_kernels import kernel_of
from ptxkit.gemm.launch.simulate_grouped import simulate
from ptxkit.gemm.problem.grouped import GroupArrays, GroupOptions, GroupProblem
from ptxkit.gemm.tools.grouped_example import _scaled
from ptxkit.gemm.tools.reference import accumulation, silu_and_mul
from ptxkit.runtime.arrays import ArrayView, contiguous_strides
from ptxkit.types import TYPES, e4m3, e5m2
from tests.gemm.groups import made

ml_dtypes = pytest.importorskip("ml_dtypes")
pytestmark = pytest.mark.pure

E4M3, BF16 = ml_dtypes.float8_e4m3fn, ml_dtypes.bfloat16
HALF_STEP = 16.0            # of e4m3 at its largest, 448


def quantised(lengths: list[int], n: int, k: int, dtype: str, scales: str, gated: bool, parameters: dict[str, Any] | None = None,
              masked: bool = False, seed: int = 0, check: bool = True, mean: float | None = None) -> Any:
    """(the report; for each group its exact result, its scales and its e4m3 values). Other rows hold NaN, and are found so."""
    rng = np.random.default_rng(seed)
    groups, lines, kind = len(lengths), 2 * n if gated else n, E4M3 if dtype == "e4m3" else BF16
    longest = max(lengths) + 2
    starts = np.arange(groups) * longest if masked else np.concatenate([[0], np.cumsum(lengths)])[:groups]
    rows = groups * longest if masked else sum(lengths) + 3
    x, w = (rng.standard_normal(shape, np.float32).astype(kind) for shape in ((rows, k), (groups, lines, k)))
    x_scale, w_scale, exact_x, exact_w = _scaled(rng, x, w, scales)
    out = np.full((rows, n), np.nan, E4M3)
    out_scale = np.full((rows, n // 128), np.nan, np.float32) if masked else np.full((n // 128, rows + 5), np.nan, np.float32)[:, :rows].T
    config = None
    if parameters is not None:
        sums = ThreadScaled() if scales == "block" else TensorCoreSums()
        config = made({"schedule": Cooperative(sums=sums), **parameters}, TYPES[dtype], TYPES[dtype], e4m3, gated=gated,
                      scaled=scales in ("group", "row_column"), vectors="row_column" if scales == "row_column" else "", max_groups=32,
                      layout="masked" if masked else "cu_seqlens")
    given_lengths = np.array(lengths if masked else (*starts, sum(lengths)), np.int32)
    shaped = [array if array is None or not masked or array.size == 1 else np.ascontiguousarray(array).reshape(groups, longest, -1)
              for array in (x, out, x_scale, out_scale)]
    report = simulate(shaped[0], w, given_lengths, shaped[1], x_scale=shaped[2], w_scale=w_scale, out_scale=shaped[3], gated=gated,
                      layout="masked" if masked else "cu_seqlens", config=config, mean_tokens=mean, card=H200.with_sms(3), check=check)
    values, factors = shaped[1].reshape(rows, n).astype(np.float64), shaped[3].reshape(rows, n // 128).astype(np.float64)
    found, outside = [], np.ones(rows, bool)
    for group, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        own = slice(start, start + length)
        outside[own] = False
        exact, size = exact_x[own] @ exact_w[group].T, np.abs(exact_x[own]) @ np.abs(exact_w[group]).T
        loss = size * accumulation(k, dtype, scales == "block")
        if gated:
            exact, loss = silu_and_mul(exact, loss, lambda gate: gate / (1 + np.exp(-gate)))
        found.append((exact, loss, factors[own], values[own]))
    assert np.isnan(values[outside]).all()
    assert np.isnan(factors[outside]).all()
    return report, found


def hold(found: list[Any]) -> None:
    """Scales are those of the largest magnitudes, and values the nearest e4m3 (both as far as the sums are exact)."""
    for exact, loss, factors, values in found:
        blocks = exact.shape[0], exact.shape[1] // 128, 128
        largest = np.abs(exact).reshape(blocks).max(2)
        room = loss.reshape(blocks).max(2) + 1e-6 * largest + 1e-12
        assert (np.abs(factors * 448 - largest) <= room).all()
        scale = np.repeat(factors, 128, 1)
        allowed = loss + scale * np.maximum(np.abs(values) / 16, 2.0**-10) * 1.001
        assert (np.abs(values * scale - exact) <= allowed).all()
        assert (np.abs(values) <= 448).all()


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("kind", "parameters"), [
    (("bf16", "none", False), {"tile": Tile(64, 128)}),
    (("bf16", "none", True), {"tile": Tile(128, 256)}), (("e4m3", "group", False), {"tile": Tile(64, 128), "schedule": Pingpong()}),
    (("e4m3", "group", True), {"tile": Tile(64, 128)}),
    (("e4m3", "block", False), {"tile": Tile(128, 128), "schedule.sums": BlockScaled("overlap")}),
    (("e4m3", "block", True), {"tile": Tile(128, 128)}),
    (("e4m3", "block", True),
     {"tile": Tile(128, 128), "schedule.sums": ThreadScaled(True), "scheduler": StaticGroups(cluster=ClusterShape(2, 1))}),
    (("e4m3", "block", True), {"tile": Tile(64, 128), "scheduler": DynamicGroups()}), (("e4m3", "block", True), None)], ids=str)
def test_results_have_scales_of_their_own(kind, parameters):
    report, found = quantised([3, 0, 70], 256, 272, *kind, parameters)
    assert report.findings == report.reasons, str(report)
    dynamic = parameters is None or isinstance(parameters.get("scheduler"), DynamicGroups)
    assert report.verdict in (("clean", "incomplete") if dynamic else ("clean",))
    hold(found)


@pytest.mark.thinned(20)
@pytest.mark.parametrize(("gated", "tile"), [
    (False, {"tile": Tile(128, 64)}), (False, {"tile": Tile(192, 64), "schedule.sums": BlockScaled(load="bulk")}),
    (False, {"tile": Tile(192, 128), "schedule.sums": BlockScaled(load="bulk")}),
    (True, {"tile": Tile(256, 128), "schedule.sums": BlockScaled("stagger", "bulk")}),
    (True, {"tile": Tile(192, 128), "schedule.sums": BlockScaled(load="bulk")}),
    (True, {"tile": Tile(128, 128), "schedule.sums": BlockScaled("overlap", "bulk")}),
    (True, {"tile": Tile(64, 128), "schedule.sums": BlockScaled("overlap", "bulk")}),
    (False, {"tile": Tile(128, 256), "schedule.sums": BlockScaled(load="bulk")}),
    (True, {"tile": Tile(128, 256), "schedule.sums": BlockScaled("stagger", "bulk")})], ids=str)
def test_results_of_block_scales(gated, tile):
    """Half blocks are kept in accumulators that the next tile overwrites, unless they are copied; in registers, or in shared memory."""
    report, found = quantised([3, 0, 202], 256, 512, "e4m3", "block", gated, tile)
    assert report.verdict == "clean", report.findings
    hold(found)


@pytest.mark.thinned(12)
@pytest.mark.parametrize("scales", ["block", "group"])
@pytest.mark.parametrize("mean", [3, 16, 48, 96, 192, 512])
def test_what_the_heuristic_chooses_is_right(scales, mean):
    for gated in (False, True):
        lengths = [4 * int(np.random.default_rng(mean).integers(1, 55)) + 1, 0, mean]       # with 3 rows more, scales on lines of 16 bytes
        hold(quantised(lengths, 256, 512, "e4m3", scales, gated, mean=mean)[1])


@pytest.mark.thinned(9)
@pytest.mark.parametrize("costed", [*QUANTISED, QUANTISED_PINGPONG], ids=lambda costed: str(costed.tile))
def test_every_tile_that_is_chosen_from_where_sums_stay_in_the_tensor_cores(costed):
    tile = costed.tile
    settings = {"tile": tile.tile, "scheduler": tile.scheduler, **({"schedule": Pingpong()} if tile.schedule == Pingpong() else {})}
    for dtype, scales in (("bf16", "none"), ("e4m3", "group")):
        for gated in (False, True) if costed in QUANTISED else (False,):
            report, found = quantised([3, 0, 202], 256, 512, dtype, scales, gated, settings)
            assert report.verdict == ("incomplete" if isinstance(tile.scheduler, DynamicGroups) else "clean"), report.findings
            hold(found)


@settings(deadline=None, max_examples=8)
@given(st.lists(st.sampled_from([0, 1, 7, 63, 64, 65, 130]), min_size=1, max_size=4).filter(any), st.booleans(), st.booleans(),
       st.integers(0, 99))
def test_any_lengths(lengths, masked, gated, seed):
    hold(quantised(lengths, 128, 64, "bf16", "none", gated, {"tile": Tile(64, 128)}, masked, seed, check=False)[1])


def test_a_row_of_zeros_has_a_scale():
    x, w, out = np.zeros((2, 64), BF16), np.ones((1, 128, 64), BF16), np.full((2, 128), np.nan, E4M3)
    scale = np.full((2, 1), np.nan, np.float32)
    simulate(x, w, np.array([0, 2], np.int32), out, out_scale=scale, card=H200.with_sms(1))
    assert not out.astype(np.float32).any()
    assert (scale > 0).all()


def test_a_wrong_scale_and_a_wrong_value_are_noticed():
    _, found = quantised([5], 128, 64, "bf16", "none", False, {"tile": Tile(64, 128)})
    exact, loss, factors, values = found[0]
    for which in (2, 3):
        spoiled = [array.copy() for array in (exact, loss, factors, values)]
        spoiled[which][3, -1] += 2 * HALF_STEP if which == 3 else factors[3, -1] * 1e-3
        with pytest.raises(AssertionError):
            hold([spoiled])


def view(dtype: str, *shape: int) -> ArrayView:
    return ArrayView(0, shape, contiguous_strides(shape), dtype, 0, "other")


@pytest.mark.parametrize(("change", "sentence"), [
    ({"out_scale": None}, "give out_scale as well"), ({"out": view("bf16", 100, 256)}, "out has elements"),
    ({"w": view("bf16", 4, 272, 64), "out": view("e4m3", 100, 272), "out_scale": view("f32", 100, 2)}, "a multiple of 128"),
    ({"out_scale": view("f32", 100, 3)}, "out_scale has shape"),
    ({"out_scale": view("f64", 100, 2)}, "out_scale has elements")], ids=str)
def test_bad_input_is_a_sentence(change, sentence):
    arrays = GroupArrays(view("bf16", 100, 64), view("bf16", 4, 256, 64), view("s32", 5), view("e4m3", 100, 256),
                         out_scale=view("f32", 100, 2))
    with pytest.raises(LaunchError, match=sentence):
        GroupProblem(arrays._replace(**change), GroupOptions())


@pytest.mark.parametrize("wrong", [
    {"tile.BN": 64, "tokens": SwapAB()}, {"tile.BN": 192}, {"tile.BN": 32}, {"operands.out": e5m2}, {"operands.layout": "ptr_array"},
    {"store": StagedGroups(ends="tensormap")}, {"tile": Tile(64, 128), "schedule": Pingpong(), "operands.gated": True}], ids=str)
def test_what_does_not_go_together_is_refused(wrong):
    with pytest.raises(FieldError):
        made({"operands.out": e4m3, "tile.BN": 128, **wrong})


def chosen_for(dtype: str, scales: str, gated: bool, mean: int) -> GroupedConfig:
    rows, n, k = 8 * mean, 2048, 2048
    lines = 2 * n if gated else n
    pair: dict[str, Any] = {"group": (view("f32", 1), view("f32", 8)), "none": (None, None),
                            "block": (view("f32", rows, k // 128), view("f32", 8, lines // 128, k // 128))}
    arrays = GroupArrays(view(dtype, rows, k), view(dtype, 8, lines, k), view("s32", 9), view("e4m3", rows, n), *pair[scales],
                         view("f32", rows, n // 128))
    return heuristic(GroupProblem(arrays, GroupOptions(gated=gated)))


@pytest.mark.ptxas
@pytest.mark.parametrize(("dtype", "scales", "gated"), [("e4m3", "block", True), ("e4m3", "group", False)])
def test_what_the_heuristic_chooses_does_not_spill(dtype, scales, gated):
    for mean in (16, 512):
        config = chosen_for(dtype, scales, gated, mean)
        kernel = kernel_of(config)
        assert not kernel.assemble(**config.parameters).resources[kernel.name].spill_stores
