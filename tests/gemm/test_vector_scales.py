"""Scales of rows and of columns on the CPU device: exact against the product without them, and against float64 with every fusion."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxkit.cards import H200
from ptxkit.errors import LaunchError
from ptxkit.gemm.collective.epilogue_ops import Fusion
from ptxkit.gemm.config.dense import DenseConfig, Operands
from ptxkit.gemm.config.parts import (
    ClusterShape,
    Cooperative,
    CopiedLoads,
    Direct,
    Dynamic,
    ElementCopies,
    Pingpong,
    Promoted,
    Rows,
    SplitK,
    Staged,
    Static,
    StreamK,
    Tile,
)
from ptxkit.gemm.heuristic.dense import heuristic
from ptxkit.gemm.launch import slabs
from ptxkit.gemm.launch.adapter import Adapter
from ptxkit.gemm.launch.grid import kernel_of
from ptxkit.gemm.launch.simulate import simulate
from ptxkit.gemm.problem.dense import PLAIN, Arrays, Problem
from ptxkit.gemm.problem.folded import folded
from ptxkit.gemm.problem.scales import scale_kind
from ptxkit.gemm.tools import reference
from ptxkit.gemm.tools.problems import asked
from ptxkit.gemm.tools.verify.dense import FUSIONS as VERIFIED
from ptxkit.gemm.tools.verify.dense import VECTORS, cases
from ptxkit.runtime.arrays import ArrayView
from ptxkit.types import bf16, e4m3, f32

from .test_matmul import seen
from .test_products import DYNAMIC, FUSIONS, NUMPY, normal, polls

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
Array = np.ndarray[Any, Any]
FP8 = Operands(e4m3, e4m3, f32)
KINDS = {"row": ((0,), ()), "column": ((1,), (0,)), "row_column": ((0, 1), (1, 0))}
"""Of each kind, the shapes of both scales: 0 stands for an extent of D."""
CONFIGS = {
    "staged": DenseConfig(FP8, Tile(128, 64), store=Staged(2)),
    "two blocks of rows": DenseConfig(FP8, Tile(256, 32), schedule=Cooperative(2), store=Direct()),
    "narrow": DenseConfig(FP8, Tile(64, 24), store=Direct()),
    "wide": DenseConfig(FP8, Tile(64, 200), store=Rows()),
    "pingpong": DenseConfig(replace(FP8, out=bf16), Tile(64, 128), schedule=Pingpong()),
    "three warpgroups": DenseConfig(FP8, Tile(192, 72), scheduler=Static(cluster=ClusterShape(1, 2))),
    "by columns": DenseConfig(FP8, Tile(64, 144), schedule=Cooperative(share="columns")),
    "two instructions": DenseConfig(FP8, Tile(64, 272)),
    "split in a cluster": DenseConfig(FP8, Tile(64, 72), scheduler=SplitK(3, "cluster")),
    "split through a workspace": DenseConfig(FP8, Tile(128, 40), scheduler=SplitK(2)),
    "stream-K": DenseConfig(FP8, Tile(64, 64), scheduler=StreamK()),
    "dynamic": DenseConfig(FP8, Tile(64, 64), scheduler=Dynamic()),
    "promoted": DenseConfig(FP8, Tile(128, 96), schedule=Cooperative(1, Promoted("plain"))),
    "overlapped": DenseConfig(FP8, Tile(64, 128), schedule=Cooperative(1, Promoted("overlap"))),
    "copied": DenseConfig(FP8, Tile(64, 64), store=Direct(1), loads=CopiedLoads(ElementCopies(), ElementCopies())),
    "copied and split": DenseConfig(FP8, Tile(64, 64), scheduler=SplitK(2, "cluster"), store=Direct(1),
                                    loads=CopiedLoads(ElementCopies(), ElementCopies()))}


def scales(rng: np.random.Generator, kind: str, m: int, n: int, *, powers: bool = True) -> dict[str, Array]:
    found = {}
    for name, shape, extent in zip(("a_scale", "b_scale"), KINDS[kind], (m, n), strict=True):
        real = tuple(size or extent for size in shape)
        found[name] = np.exp2(rng.integers(-4, 5, real)).astype(np.float32) if powers else rng.random(real, np.float32) + np.float32(0.5)
    return found


def outer(given: dict[str, Array]) -> Array:
    a, b = (given[name].astype(np.float64).ravel() for name in ("a_scale", "b_scale"))
    return a[:, None] * b[None, :]


BOTH = [(which, "row_column") for which in CONFIGS]
ONE = [(which, kind) for which in ("staged", "split in a cluster") for kind in ("row", "column")]
SMALL = 10_000              # elements of a tile, above which D has less than one: the simulator takes a second for as many


@pytest.mark.thinned(6)
@pytest.mark.parametrize(("which", "kind"), BOTH + ONE)
def test_powers_of_two_scale_exactly(which: str, kind: str) -> None:
    """Whatever the structure, D is that of the product without scales times them, bit for bit: once, each with its own row and column."""
    config = CONFIGS[which]
    promoted = False if isinstance(config.sums, Promoted) else None
    BM, BN = config.tile.BM, config.tile.BN
    k = 135 if config.by_threads else 1040 if isinstance(config.scheduler, StreamK) else 272
    m, n = (BM + 6, 24) if BM * BN < SMALL and not config.by_threads else (BM - 9, min(BN, 66))
    n = 60 if config.by_threads else -(-n // 8) * 8
    rng = np.random.default_rng(3)
    x, y, given = normal(rng, "e4m3", m, k), normal(rng, "e4m3", n, k).T, scales(rng, kind, m, n)
    out = NUMPY[config.operands.out.__name__]
    results = []
    for more in ({}, given):
        d, fusion = np.full((m, n), np.nan, out), replace(config.fusion, scale=kind if more else None)
        report = simulate(x, y, d, config=replace(config, fusion=fusion), card=H200.with_sms(config.cluster), fast_accum=promoted, **more)
        assert report.verdict in (DYNAMIC if polls(config) else ("clean",)), str(report)
        assert report.findings == report.reasons, str(report)
        results.append(d.astype(np.float64))
    assert np.array_equal(results[1], results[0] * outer(given))
    assert not np.array_equal(results[1], results[0] * outer({**given, "b_scale": np.roll(given["b_scale"], 1)}
                                                             if kind != "row" else {**given, "a_scale": np.roll(given["a_scale"], 1)}))


@pytest.mark.parametrize(("fusion", "kind", "out"), [
    (fusion, *(("row_column", "bf16"), ("row", "f32"), ("column", "e4m3"))[number % 3]) for number, fusion in enumerate(FUSIONS)])
def test_scales_come_before_the_rest_of_a_fusion(fusion: str, kind: str, out: str) -> None:
    more, then = FUSIONS[fusion]
    rng = np.random.default_rng(5)
    made = {word: normal(rng, value[0], *value[1:]) if isinstance(value, tuple) else value for word, value in more.items()}
    wide = {word: value.astype(np.float64) for word, value in made.items() if isinstance(value, np.ndarray)}
    m, n, k = 70, 72, 48
    x, y, given = normal(rng, "e4m3", m, k), normal(rng, "e4m3", n, k).T, scales(rng, kind, m, n, powers=False)
    d = np.full((m, n), np.nan, np.float32).astype(NUMPY[out])
    assert simulate(x, y, d, card=H200.with_sms(2), **given, **made).verdict == "clean"
    exact, magnitude = reference.product(x, y)
    factor = outer(given)
    expected = np.clip(then(exact * factor * made.get("alpha", 1.0), wide), *((-448, 448) if out == "e4m3" else (None, None)))
    allowed = reference.tolerance(expected, magnitude * factor, k, out, "e4m3") + 1e-4 * (1 + abs(expected))
    allowed += 0.1 * (fusion == "a function")
    assert (np.abs(d.astype(np.float64) - expected) <= allowed).all()


@settings(max_examples=4, deadline=None, derandomize=True)
@given(st.integers(1, 80), st.integers(1, 80), st.integers(1, 200), st.sampled_from(sorted(KINDS)), st.sampled_from(["e4m3", "e5m2"]),
       st.sampled_from(["f32", "bf16", "f16"]), st.integers(0, 99))
def test_any_extents_as_the_heuristic_chooses(m: int, n: int, k: int, kind: str, b: str, out: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y, given = normal(rng, "e4m3", m, k), normal(rng, b, n, k).T, scales(rng, kind, m, n, powers=False)
    d = np.full((m, n), np.nan, NUMPY[out])
    report = simulate(x, y, d, card=H200.with_sms(2), **given)
    assert report.verdict in DYNAMIC
    exact, magnitude = reference.product(x, y)
    expected, magnitude = exact * outer(given), magnitude * outer(given) * 1.001 + 1e-7
    assert reference.worst(d.astype(np.float64), expected, magnitude, k, out, "e4m3") <= 1


def test_rows_of_a_batch_and_transposed_results() -> None:
    """[B, M, K] times one weight is one product of B M rows; a result that is contiguous along M exchanges the scales."""
    rng = np.random.default_rng(7)
    x, w = normal(rng, "e4m3", 3, 20, 64), normal(rng, "e4m3", 40, 64)
    rows, columns = scales(rng, "row_column", 60, 40, powers=False).values()
    expected = (x.reshape(60, 64).astype(np.float64) @ w.T.astype(np.float64)) * outer({"a_scale": rows, "b_scale": columns})
    for shape in ((60,), (60, 1), (3, 20), (3, 20, 1)):
        d = np.full((3, 20, 40), np.nan, np.float32)
        assert simulate(x, w.T, d, a_scale=rows.reshape(shape), b_scale=columns, card=H200.with_sms(2)).verdict == "clean"
        assert np.allclose(d.reshape(60, 40), expected, rtol=1e-3, atol=1e-3)
    for a, b in (((60,), (40,)), ((60, 1), (1, 40))):
        d = np.full((40, 60), np.nan, np.float32).T
        assert simulate(x.reshape(60, 64), w.T, d, a_scale=rows.reshape(a), b_scale=columns.reshape(b),
                        card=H200.with_sms(2)).verdict == "clean"
        assert np.allclose(d, expected, rtol=1e-3, atol=1e-3)


def test_batches_with_weights_of_their_own_stay_refused() -> None:
    arrays = Arrays(seen((3, 20, 64), dtype="e4m3"), seen((3, 64, 40), (2560, 1, 64), dtype="e4m3"), seen((3, 20, 40)),
                    a_scale=seen((3, 20, 1), dtype="f32"), b_scale=seen((40,), dtype="f32"))
    assert folded(arrays) is arrays
    with pytest.raises(LaunchError, match="scales of 3 products have one element each, unless all have the same b"):
        Problem(arrays)


def test_blocks_of_a_batch_that_lie_apart_are_refused() -> None:
    arrays = Arrays(seen((3, 20, 256), dtype="e4m3"), seen((3, 256, 40), (0, 1, 256), dtype="e4m3"), seen((3, 20, 40)),
                    a_scale=seen((3, 20, 2), (40, 1, 20), dtype="f32"), b_scale=seen((2, 1), dtype="f32"))
    with pytest.raises(LaunchError, match=r"a_scale has strides \(40, 1, 20\): block scales of a batch .* pass a contiguous copy"):
        folded(arrays)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("kind", ["one", "row", "rows", "block", "blocks"])
@pytest.mark.parametrize("outer", [(1,), (3,), (2, 3), (1, 2, 1)], ids=str)
def test_scales_of_batches_with_one_weight(outer: tuple[int, ...], kind: str) -> None:
    """Each kind of a_scale [*batches, M, ...] or of all rows, beside the scales of columns or blocks of b."""
    rng = np.random.default_rng(len(outer))
    m, n, k, batches = 5, 136, 256, math.prod(outer)
    x, y = normal(rng, "e4m3", *outer, m, k), normal(rng, "e4m3", n, k).T
    shape = {"one": (1,), "row": (*outer, m), "rows": (*outer, m, 1), "block": (*outer, m, 2), "blocks": (batches * m, 2)}[kind]
    a_scale = (rng.random(shape) + 0.5).astype(np.float32)
    b_scale = (rng.random((2, 2) if "block" in kind else (n,)) + 0.5).astype(np.float32)
    d = np.full((*outer, m, n), np.nan, np.float32)
    assert simulate(x, y, d, a_scale=a_scale, b_scale=b_scale, card=H200.with_sms(2)).verdict in DYNAMIC
    rows, x64, y64 = a_scale.reshape(-1, shape[-1] if "block" in kind else 1), x.reshape(-1, k).astype(np.float64), y.astype(np.float64)
    if "block" in kind:
        halves = (slice(128), slice(128, 256))
        exact = sum(x64[:, half] @ y64[half] * rows[:, i:i + 1] * np.repeat(b_scale[i], 128)[:n] for i, half in enumerate(halves))
    else:
        exact = x64 @ y64 * rows * b_scale
    assert np.allclose(d.reshape(-1, n), exact, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("a", "b", "kind"), [
    ((16,), (24,), "row_column"), ((16, 1), (1, 24), "row_column"), ((16,), (), "row"), ((16, 1), (1, 1), "row"), ((), (24,), "column"),
    ((1, 1), (1, 24), "column"), ((), (1,), "whole"), ((16, 3), (3, 1), "block"), ((24,), (16,), None), ((1, 16), (1, 24), None),
    ((16, 1), (24, 1), None), ((16, 2), (3, 1), None), ((16, 1, 1), (24,), None)])
def test_which_scales_shapes_are(a: tuple[int, ...], b: tuple[int, ...], kind: str | None) -> None:
    assert scale_kind(a, b, 16, 24, 300) == kind


def test_one_block_of_each_row_is_a_block() -> None:
    assert scale_kind((16, 1), (1, 1), 16, 24, 128) == "block"
    assert scale_kind((16, 1), (1, 1), 16, 24, 128, blocks=False) == "row"
    assert scale_kind((16, 1), (1, 24), 16, 24, 128) == "row_column"


@pytest.mark.parametrize("dtype", ["f16", "e4m3"])
@pytest.mark.parametrize(("outer", "shape"), [((), (1, 1)), ((3,), (1, 1)), ((3,), (1,)), ((3,), ())])
def test_one_element_scales_the_whole_of_any_product(dtype: str, outer: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """Also of one row, where it has the shape of one block: 16-bit operands and batches have no blocks."""
    rng = np.random.default_rng(3)
    x, y = normal(rng, dtype, *outer, 1, 64), np.swapaxes(normal(rng, dtype, *outer, 40, 64), -1, -2)
    d = np.full((*outer, 1, 40), np.nan, np.float32)
    report = simulate(x, y, d, a_scale=np.full(shape, 0.5, np.float32), b_scale=np.full((1, 1), 4, np.float32), card=H200.with_sms(2))
    assert report.verdict in DYNAMIC
    assert np.allclose(d, x.astype(np.float64) @ y.astype(np.float64) * 2, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("changed", "words"), [
    ({"a_scale": seen((40, 2), (-2, 1), dtype="f32")}, r"a_scale has strides \(-2, 1\): .* not negative"),
    ({"b_scale": seen((2, 2), (2, -1), dtype="f32")}, r"b_scale has strides \(2, -1\): .* not negative"),
    ({"a_scale": seen((40, 2), (1, 1 << 32), dtype="f32")}, r"a_scale has strides \(1, 4294967296\): .* less than 2\^32 elements apart"),
    ({"out": seen((40, 136), (1, 40), dtype="f32")}, r"out has strides \(1, 40\): with block scales its rows must be contiguous; pass a")])
def test_blocks_that_no_kernel_reads_are_refused_in_a_sentence(changed: dict[str, ArrayView], words: str) -> None:
    arrays = {"a": seen((40, 256), dtype="e4m3"), "b": seen((256, 136), (1, 256), dtype="e4m3"), "out": seen((40, 136), dtype="f32"),
              "a_scale": seen((40, 2), dtype="f32"), "b_scale": seen((2, 2), dtype="f32"), **changed}
    with pytest.raises(LaunchError, match=words) as refused:
        Problem(Arrays(**arrays))
    assert Adapter.can_implement(**arrays) == str(refused.value)


@pytest.mark.parametrize(("m", "n", "k"), [(40, 24, 128), (1, 128, 48), (40, 1, 64)])
def test_one_block_of_each_row_may_be_summed_in_the_tensor_cores(m: int, n: int, k: int) -> None:
    """It is a scale of the row, also where D lies along its columns, which no kernel of blocks stores."""
    rng = np.random.default_rng(9)
    x, y, rows = normal(rng, "e4m3", m, k), normal(rng, "e4m3", n, k).T, np.exp2(rng.integers(-4, 5, (m, 1))).astype(np.float32)
    one = np.full((1, 1), 0.5, np.float32)
    for fast, turned in ((True, False), (True, True), (None, True), (False, True)):
        found, expected = (np.full((n, m), np.nan, np.float32).T if turned else np.full((m, n), np.nan, np.float32) for _ in range(2))
        assert simulate(x, y, found, a_scale=rows, b_scale=one, fast_accum=fast, card=H200.with_sms(2)).verdict in DYNAMIC
        assert simulate(x, y, expected, a_scale=rows[:, 0], b_scale=one[0], fast_accum=fast, card=H200.with_sms(2)).verdict in DYNAMIC
        assert np.array_equal(found, expected)
        assert np.allclose(found, x.astype(np.float64) @ y.astype(np.float64) * rows * 0.5, rtol=1e-3, atol=1e-3)


def test_blocks_that_are_no_rows_are_not_summed_in_the_tensor_cores() -> None:
    for n, k in ((24, 129), (129, 128)):
        scales = {"a_scale": seen((16, -(-k // 128)), dtype="f32"), "b_scale": seen((-(-k // 128), -(-n // 128)), dtype="f32")}
        k16 = -(-k // 16) * 16
        arrays = Arrays(seen((16, k), (k16, 1), dtype="e4m3"), seen((k, n), (1, k16), dtype="e4m3"), seen((16, n)), **scales)
        with pytest.raises(LaunchError, match="fast_accum=True sums the whole depth"):
            Problem(arrays, replace(PLAIN, fast_accum=True))


RIGHT = {"a_scale": seen((16,), dtype="f32"), "b_scale": seen((48,), dtype="f32")}
SHAPES = {"a": seen((16, 256), dtype="e4m3"), "b": seen((256, 48), (1, 256), dtype="e4m3"), "out": seen((16, 48))}


@pytest.mark.parametrize(("changes", "words"), [
    ({"a_scale": seen((15,), dtype="f32")}, r"a_scale has shape \(15,\) and b_scale \(48,\).*\(16,\) or \(16, 1\).*\(48,\) or \(1, 48\).*"
                                            r"may have one element.*\(16, 2\) and b_scale \(2, 1\)"),
    ({"a_scale": seen((16, 1), dtype="f32"), "b_scale": seen((48, 1), dtype="f32")}, r"b_scale \(48, 1\)"),
    ({"a_scale": seen((16,), (2,), dtype="f32")}, "a_scale has strides .* contiguous copy"),
    ({"b_scale": seen((1, 48), (48, 3), dtype="f32")}, "b_scale has strides .* contiguous copy"),
    ({"a_scale": seen((16,), dtype="bf16")}, "a_scale has elements of bf16"), ({"b_scale": None}, "b_scale is missing"),
    ({"a": seen((16, 256)), "b": seen((256, 48), (1, 256))}, "those of fp8 operands, a has elements of f16")])
def test_other_scales_are_refused_in_a_sentence(changes: dict[str, Any], words: str) -> None:
    arguments: dict[str, Any] = {**SHAPES, **RIGHT, **changes}
    assert Adapter.can_implement(**SHAPES, **RIGHT) is None
    with pytest.raises(LaunchError, match=words):
        Adapter(**arguments)


def test_the_choice_is_that_of_one_scale() -> None:
    for m, n, k in ((1, 4096, 4096), (64, 7168, 2048), (300, 776, 1040), (4096, 4096, 7168), (8192, 13312, 16384), (333, 335, 337)):
        one = asked(m, n, k, "e4m3", out="bf16", scaled=True)
        assert one.fusion == Fusion(scale="whole")
        rows = Problem(_with_vectors(one, m, n, k))
        chosen = heuristic(rows, H200)
        assert chosen == replace(heuristic(one, H200), fusion=Fusion(scale="row_column" if m > 1 else "column"))


def _with_vectors(one: Problem, m: int, n: int, k: int) -> Arrays:
    return Arrays(ArrayView(0, (m, k), (k, 1), "e4m3", 0, "other"), ArrayView(0, (k, n), (1, k), "e4m3", 0, "other"),
                  ArrayView(0, (m, n), (n, 1), one.out.__name__, 0, "other"), a_scale=seen((m,), dtype="f32"),
                  b_scale=seen((n,), dtype="f32"))


def test_what_is_verified_on_a_card_has_every_kind_and_fusion() -> None:
    drawn = list(cases(600, 1))
    assert {case.scales for case in drawn} >= {*VECTORS, "one", "block", "none"}
    assert {case.fused for case in drawn if case.scales == "row_column"} >= set(VERIFIED)


def test_a_product_without_them_reads_none() -> None:
    for config in CONFIGS.values():
        text = kernel_of(config).trace(**config.parameters).ptx()
        assert "ld.global.nc.f32" not in text
        scaled = replace(config, fusion=Fusion(scale="row_column"))
        assert "ld.global.nc.f32" in kernel_of(scaled).trace(**scaled.parameters).ptx()


def test_slabs_have_the_scales_of_their_rows_and_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slabs, "LEAST", 0)
    monkeypatch.setattr(slabs, "LINES", 4)
    monkeypatch.setattr(slabs, "clocks", lambda problem, config, card: float(problem.m * problem.n) ** 2)
    m, n, k = 10, 11, 7
    arrays = Arrays(seen((m, k), dtype="e4m3"), seen((k, n), (1, k), dtype="e4m3"), seen((m, n)), a_scale=seen((m, 1), dtype="f32"),
                    b_scale=seen((1, n), dtype="f32"))
    parts = slabs.slabs(arrays, PLAIN, lambda: replace(H200, l2_mib=300 / (1 << 20)))
    assert len(parts) > 1
    for part in parts:
        top, left = divmod(part.out.pointer // 2, n)
        assert part.a_scale is not None
        assert part.b_scale is not None
        assert (part.a_scale.pointer, part.b_scale.pointer) == (4 * top, 4 * left)
        assert (part.a_scale.shape[0], part.b_scale.shape[1]) == part.out.shape
