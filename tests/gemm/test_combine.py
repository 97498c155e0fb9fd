"""Sums of chosen rows on the CPU device, beside float64 and under the checker."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from ptxkit import gemm
from ptxkit.errors import LaunchError
from ptxkit.gemm.kernels.combine import combine, spread
from ptxkit.gemm.launch.combine import CombineProblem, simulate, simulate_products
from ptxkit.gemm.launch.spread import SpreadProblem, simulate_spread
from ptxkit.runtime.arrays import ArrayView, contiguous_strides
from ptxkit.runtime.toolchain import assemble
from ptxkit.types import f32

ml_dtypes = pytest.importorskip("ml_dtypes")
pytestmark = pytest.mark.pure
Array = np.ndarray[Any, Any]
TYPES: dict[str, Any] = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32}
UNIT = {"bf16": 2.0 ** -8, "f16": 2.0 ** -11, "f32": 2.0 ** -24}


def exact(y: Array, place: Array, weights: Array | None, starts: Array) -> tuple[Array, Array]:
    """The sums in float64, and the sums of the magnitudes."""
    y = y.astype(np.float64)
    out, size = np.zeros((2, len(starts) - 1, y.shape[1]))
    flat, factors = place.reshape(-1), np.ones(place.size) if weights is None else weights.reshape(-1).astype(np.float64)
    for t in range(len(out)):
        for e in range(starts[t], min(starts[t + 1], len(flat))):
            if 0 <= flat[e] < len(y):
                out[t] += factors[e] * y[flat[e]]
                size[t] += abs(factors[e]) * abs(y[flat[e]])
    return out, size


def guarded(rng: np.random.Generator, rows: int, columns: int, type_: str, gap: int = 0) -> Array:
    """Rows with NaN after the last row, and after each if they are apart."""
    whole = np.full((rows + 1, columns + gap), np.nan, np.float32).astype(TYPES[type_])
    whole[:rows, :columns] = rng.standard_normal((rows, columns)).astype(TYPES[type_])
    return whole[:rows, :columns]


def check(seed: int, tokens: int, top: int, columns: int, source: str, out: str, *, weighted: bool = True, ragged: bool = False,
          gap: int = 0, rows: int = 13) -> None:
    rng = np.random.default_rng(seed)
    y, place = guarded(rng, rows, columns, source, gap), rng.integers(-2, rows + 3, (tokens, top)).astype(np.int32)
    weights = rng.standard_normal((tokens, top)).astype(np.float32) if weighted else None
    starts = np.arange(tokens + 1) * top
    given: Array | None = None
    if ragged:
        starts = np.sort(rng.integers(0, place.size + 2, tokens + 1))
        place, given = place.reshape(-1), starts.astype(np.int32)
        weights = None if weights is None else weights.reshape(-1)
    found = guarded(rng, tokens, columns, out, gap)
    report = simulate(y, place, weights, starts=given, out=found)
    assert report.verdict == "clean", str(report)
    right, size = exact(y, place, weights, starts)
    allowed = size * (top + 1) * 2.0 ** -24 + UNIT[out] * np.abs(right) * 1.01 + 1e-30
    assert (np.abs(found.astype(np.float64) - right) <= allowed).all()


@pytest.mark.parametrize(("tokens", "top", "columns", "more"), [
    (5, 2, 64, {}), (3, 9, 40, {}), (9, 1, 24, {"weighted": False}), (4, 3, 37, {}), (3, 4, 64, {"gap": 3}), (6, 3, 48, {"ragged": True}),
    (6, 20, 16, {"ragged": True, "weighted": False}), (2, 2, 2056, {}), (1, 8, 8, {}), (3, 1, 2056, {}),
    (2, 2, 1000, {"weighted": False})])
@pytest.mark.parametrize(("source", "out"), [("bf16", "bf16"), ("f16", "f32"), ("f32", "f16")])
@pytest.mark.thinned(2)
def test_sums(source: str, out: str, tokens: int, top: int, columns: int, more: dict[str, Any]) -> None:
    check(tokens + columns, tokens, top, columns, source, out, **more)


def test_a_rows_bits_depend_on_its_own_choices_alone() -> None:
    rng = np.random.default_rng(1)
    y, weights = rng.standard_normal((40, 64)).astype(np.float32), rng.standard_normal((6, 5)).astype(np.float32)
    place = rng.integers(0, 40, (6, 5)).astype(np.int32)
    whole, one, ragged = np.zeros((6, 64), np.float32), np.zeros((1, 64), np.float32), np.zeros((6, 64), np.float32)
    simulate(y, place, weights, out=whole)
    simulate(y, place[3:4].copy(), weights[3:4].copy(), out=one)
    simulate(y, place.reshape(-1), weights.reshape(-1), starts=np.arange(0, 31, 5, dtype=np.int32), out=ragged)
    assert (whole[3] == one[0]).all()
    assert (whole == ragged).all()
    order = place[:, ::-1].copy(), weights[:, ::-1].copy()
    other = np.zeros_like(whole)
    simulate(y, *order, out=other)
    assert (whole != other).any()                       # the order of the sums is that of the choices


@pytest.mark.parametrize(("tokens", "top", "columns", "gap"), [(5, 2, 64, 0), (3, 9, 40, 0), (4, 3, 37, 0), (3, 4, 64, 3), (2, 2, 2056, 8),
                                                               (1, 1, 8, 0), (3, 8, 1032, 0), (600, 2, 8, 0), (0, 2, 8, 0)])
@pytest.mark.parametrize("source", ["bf16", "f16", "f32"])
@pytest.mark.thinned(2)
def test_rows_are_copied_to_each_of_their_places(source: str, tokens: int, top: int, columns: int, gap: int) -> None:
    """Places of no row are written nowhere, rows that nobody names keep what they have, and so does what lies between rows."""
    rng = np.random.default_rng(tokens + columns)
    count = tokens * top + 3
    x, out = guarded(rng, tokens, columns, source, gap), guarded(rng, count, columns, source, gap)
    place = rng.permutation(count)[:tokens * top].astype(np.int32).reshape(tokens, top)
    place.reshape(-1)[::5] = rng.choice([-1, count, count + 7], place.reshape(-1)[::5].shape)
    right = out.copy()
    for t, k in np.ndindex(place.shape):
        if 0 <= place[t, k] < count:
            right[place[t, k]] = x[t]
    report = simulate_spread(x, place, out=out)
    assert report.verdict == "clean", str(report)
    assert (out.view(np.uint8) == right.view(np.uint8)).all()
    assert np.isnan(cast("Any", out.base).astype(np.float32)[:, columns:]).all()


def test_a_spread_says_what_does_not_fit() -> None:
    """Places of other rows, other columns, other types, and rows that overlap."""
    x, place, out = view("bf16", 4, 64), view("s32", 4, 2), view("bf16", 8, 64)
    with pytest.raises(LaunchError, match=r"place has shape \(3, 2\) and x \(4, 64\): it has a row for each row of x"):
        SpreadProblem(x, view("s32", 3, 2), out)
    with pytest.raises(LaunchError, match="out"):
        SpreadProblem(x, place, view("bf16", 8, 56))
    with pytest.raises(LaunchError, match="out"):
        SpreadProblem(x, place, view("f16", 8, 64))
    with pytest.raises(LaunchError, match="must not overlap"):
        SpreadProblem(x, place, view("bf16", 8, 64, strides=(8, 1)))


@pytest.mark.ptxas
def test_registers_of_a_spread() -> None:
    """Nothing spills, and an SM has four CTAs."""
    for more in ({}, {"across": 1}, {"wide": False, "across": 1}, {"source": f32}):
        found = assemble(spread.trace(**more).ptx()).resources["spread"]
        assert found.spill_stores == 0, more
        assert found.registers <= 64, more


@pytest.mark.parametrize(("source", "columns"), [("bf16", 72), ("f16", 21), ("f32", 132), ("f32", 0)])
def test_products_of_pairs_of_rows(source: str, columns: int) -> None:
    rng = np.random.default_rng(2)
    a, b = guarded(rng, 7, columns, source), guarded(rng, 5, columns, source)
    first, second = (rng.integers(-1, rows + 2, 20).astype(np.int32) for rows in (7, 5))
    out = np.full(20, np.nan, np.float32)
    report = simulate_products(a, first, b, second, out=out)
    assert report.verdict == "clean", str(report)
    x, y = a.astype(np.float64), b.astype(np.float64)
    there = (first >= 0) & (first < 7) & (second >= 0) & (second < 5)
    pairs = [(x[i], y[j]) if ok else (np.zeros(columns),) * 2 for i, j, ok in zip(first, second, there, strict=True)]
    right, size = np.array([p @ q for p, q in pairs]), np.array([abs(p) @ abs(q) for p, q in pairs])
    assert (np.abs(out - right) <= (columns + 8) * 2.0 ** -24 * size).all()
    assert (out[~there] == 0).all()


@pytest.mark.ptxas
def test_registers_leave_room_for_three_ctas() -> None:
    """Nothing spills, and an SM has loads of eight rows of 768 threads under way: 96 KiB."""
    for more in ({}, {"ragged": True}, {"source": f32, "result": f32}, {"weighted": False, "at_once": 1},
                 {"at_once": 1, "across": 4}, {"at_once": 2, "across": 2}, {"once": True}):
        found = assemble(combine.trace(**more).ptx()).resources["combine"]
        assert found.spill_stores == 0, more
        assert found.registers <= 80, more


def view(dtype: str, *shape: int, strides: tuple[int, ...] | None = None) -> ArrayView:
    return ArrayView(0, shape, strides or contiguous_strides(shape), dtype, 0, "other")


def test_rows_are_read_by_16_bytes_where_they_begin_there() -> None:
    def wide(columns: int, row: int, dtype: str = "bf16", out: str = "bf16") -> bool:
        y = view(dtype, 9, columns, strides=(row, 1))
        return CombineProblem(y, view("s32", 3, 2), None, None, view(out, 3, columns)).wide

    assert wide(64, 72)
    assert wide(64, 64, "bf16", "f32")
    assert wide(36, 36, "f32", "bf16")
    assert not wide(64, 70)
    assert not wide(60, 64)


def test_what_is_refused_is_said_in_one_sentence() -> None:
    y, place, out = view("bf16", 9, 64), view("s32", 3, 2), view("bf16", 3, 64)
    cases: list[tuple[tuple[Any, ...], str]] = [
        ((view("e4m3", 9, 64), place, None, None, out), "y has elements of e4m3: it must have bf16 or f16 or f32"),
        ((view("bf16", 64), place, None, None, out), r"it is a matrix, \[rows, columns\]"),
        ((y._replace(strides=(1, 9)), place, None, None, out), "its rows must be contiguous"),
        ((y, view("s64", 3, 2), None, None, out), "place has elements of s64"),
        ((y, view("s32", 6), None, None, out), "place has shape"),
        ((y, place, view("f32", 6), None, out), "weights has shape"),
        ((y, place, view("bf16", 3, 2), None, out), "weights has elements of bf16"),
        ((y, view("s32", 6), None, view("s32"), out), "starts has shape"),
        ((y, place, None, None, view("bf16", 4, 64)), "out has shape"),
        ((y, place, None, None, out._replace(strides=(32, 1))), "must not overlap"),
        ((view("bf16", 9, 1 << 25, strides=(1 << 26, 1)), place, None, None, view("f32", 3, 1 << 25, strides=(1 << 26, 3))),
         "rows must be contiguous"),
    ]
    for given, sentence in cases:
        with pytest.raises(LaunchError, match=sentence) as raised:
            CombineProblem(*given)
        assert len(str(raised.value).splitlines()) == 1
    with pytest.raises(LaunchError, match="y"):
        gemm.combine(cast("Any", object()), place)
