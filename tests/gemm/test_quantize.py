"""Quantisers on the CPU device, bit for bit those of NumPy and ml_dtypes."""

from __future__ import annotations

from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxkit import gemm
from ptxkit.cards import H200
from ptxkit.errors import LaunchError
from ptxkit.gemm.kernels.quantize import largest_magnitudes, quantize_blocks, quantize_row_blocks, quantize_rows, quantize_tensor
from ptxkit.gemm.launch.quantize import Kind, QuantiseProblem, scale_shape, simulate
from ptxkit.gemm.launch.simulate import simulate as multiply
from ptxkit.runtime.arrays import ArrayView, contiguous_strides
from ptxkit.runtime.toolchain import assemble
from ptxkit.types import bf16, f16, f32

pytestmark = pytest.mark.pure
Array = np.ndarray[Any, Any]
SOURCES: dict[str, Any] = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32}
RESULTS: dict[str, tuple[Any, float]] = {"e4m3": (ml_dtypes.float8_e4m3fn, 448.0), "e5m2": (ml_dtypes.float8_e5m2, 57344.0)}
KINDS: tuple[Kind, ...] = ("tensor", "row", "1x128", "128x128")


def oracle(x: Array, kind: Kind, out: str) -> tuple[Array, Array]:
    """q and the scales, with divisions of NumPy and roundings of ml_dtypes."""
    (type_, top), (m, k), wide = RESULTS[out], x.shape, x.astype(np.float32)
    tall, depth = -(-m // 128), -(-k // 128)
    padded = np.zeros((tall * 128, depth * 128), np.float32)
    padded[:m, :k] = np.abs(wide)
    if kind in ("tensor", "row"):
        largest = np.abs(wide).max(initial=0).reshape(1) if kind == "tensor" else np.abs(wide).max(1, initial=0, keepdims=True)
    else:
        largest = padded[:m].reshape(m, depth, 128).max(2) if kind == "1x128" else padded.reshape(tall, 128, depth, 128).max((1, 3))
    with np.errstate(all="ignore"):
        scale = (largest / np.float32(top)).astype(np.float32)
        scale[scale == 0] = 1
        each = np.repeat(scale, 128, 1)[:, :k] if "x" in kind else scale
        each = np.repeat(each, 128, 0)[:m] if kind == "128x128" else each
        return np.clip(wide / each, -top, top).astype(type_), scale


def same(actual: Array, expected: Array) -> bool:
    """The same bits, and NaN where NaN is expected."""
    bits = np.dtype(f"u{expected.itemsize}")
    missing = np.isnan(expected.astype(np.float32))
    return bool(((actual.view(bits) == expected.view(bits)) | missing).all()) and \
        np.array_equal(np.isnan(actual.astype(np.float32)), missing)


def check(x: Array, kind: Kind, out: str, *, q: Array | None = None, scale: Array | None = None, sms: int = 1,
          transposed: bool = False) -> None:
    shape = x.shape[::-1] if transposed else x.shape
    q = np.full(shape, np.nan, np.float32).astype(RESULTS[out][0]) if q is None else q
    scale = np.full(scale_shape(kind, *shape), np.nan, np.float32) if scale is None else scale
    for report in simulate(x, kind, out=q, out_scale=scale, card=H200.with_sms(sms), transposed=transposed):
        assert report.verdict == "clean", str(report)
    expected, scales = oracle(x.T if transposed else x, kind, out)
    assert same(np.ascontiguousarray(scale).reshape(scales.shape), scales)
    assert same(np.ascontiguousarray(q), expected)


def spread(rng: np.random.Generator, source: str, m: int, k: int) -> Array:
    """Rows of several magnitudes, with zeros among them."""
    made = rng.standard_normal((m, k)) * np.exp2(rng.integers(-12, 9, (m, 1))) * (rng.random((m, k)) < 0.9)
    return made.astype(SOURCES[source])


@pytest.mark.thinned(10)
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("m", "k"), [(5, 256), (3, 77), pytest.param(130, 136, marks=pytest.mark.sweep), (1, 1), (2, 1040)])
def test_the_bits_are_those_of_numpy(source: str, kind: Kind, m: int, k: int) -> None:
    check(spread(np.random.default_rng(m + k), source, m, k), kind, ("e4m3", "e5m2")[(m + k) % 2])


@settings(max_examples=8, deadline=None, derandomize=True)
@given(st.integers(1, 40), st.integers(1, 700), st.sampled_from(sorted(SOURCES)), st.sampled_from(KINDS), st.sampled_from(sorted(RESULTS)),
       st.integers(0, 99))
def test_random_matrices(m: int, k: int, source: str, kind: Kind, out: str, seed: int) -> None:
    check(spread(np.random.default_rng(seed), source, m, k), kind, out)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("source", SOURCES)
def test_values_that_are_not_usual(source: str, kind: Kind) -> None:
    """Zeros, subnormal and huge values, infinities and NaN; each in rows of its own."""
    info = np.finfo(np.float32) if source == "f32" else ml_dtypes.finfo(SOURCES[source])
    tiny, top = float(info.smallest_subnormal), float(info.max)
    special = (0.0, tiny, 3 * tiny, 449 * tiny, float(info.tiny), top, np.inf, np.nan)
    for value in special:
        x = np.zeros((3, 136), np.float64)
        x[1, ::3], x[1, 1::3], x[1, 5], x[2] = value / 2, -value, value, 1.0
        x[1, 9:40:7] = value / 3
        check(x.astype(SOURCES[source]), kind, "e5m2" if value in special[::3] else "e4m3")


@pytest.mark.parametrize("out", RESULTS)
def test_every_quotient_of_a_row_is_rounded_as_a_division(out: str) -> None:
    """Values beside each tie between two results, for scales whose reciprocals round up and down."""
    type_, top = RESULTS[out]
    every = np.arange(256, dtype=np.uint8).view(type_).astype(np.float32)
    finite = np.unique(np.abs(every[np.isfinite(every)]))
    ties = (finite[1:] + finite[:-1]) / 2
    rows = []
    for scale in np.float32([1.1, 0.7, 3e-30, 1 / 3, 1.9999999, 1e20 if out == "e4m3" else 1e10]):
        near = (ties * scale).astype(np.float32)
        beside = [np.nextafter(near, np.float32(end)) for end in (0, np.inf)]
        rows.append(np.concatenate([[np.float32(top) * scale], near, *beside]))
    check(np.stack(rows).astype(np.float32), "row", out)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("out", RESULTS)
@pytest.mark.parametrize(("source", "count"), [("bf16", 512), ("f16", 512), *(pytest.param(source, 1 << 15, marks=pytest.mark.sweep)
                                                                               for source in ("bf16", "f16"))])
def test_every_scale_is_rounded_as_a_division(source: str, count: int, out: str) -> None:
    """Values of 16 bits, in a sweep all, are the largest magnitude of a column each, with those beside 3/4 and 1/3 of it."""
    every = np.random.default_rng(count + len(out)).permutation(np.arange(1 << 15, dtype=np.uint16)).view(SOURCES[source])[:count]
    with np.errstate(all="ignore"):
        x = np.stack([every, *((every.astype(np.float32) * share).astype(SOURCES[source]) for share in (-0.75, 1 / 3))])
    check(x, "1x128", out, transposed=True)


@pytest.mark.parametrize("k", [2 * 512 * 8 * 8 + 40, 40_000])
def test_long_rows(k: int) -> None:
    check(spread(np.random.default_rng(k), "bf16", 1, k), "row", "e4m3")


def test_rows_may_lie_anywhere_and_scales_too() -> None:
    rng = np.random.default_rng(0)
    for kind in KINDS:
        for offset in (0, 1):
            x = spread(rng, "bf16", 5, 300)[:, offset:offset + 272]
            whole = np.full((7, 290), np.nan, np.float32).astype(RESULTS["e4m3"][0])
            shape = scale_shape(kind, 5, 272)
            transposed = np.full((*shape[1:][::-1], shape[0] + 3), np.nan, np.float32)[..., :shape[0]].T
            check(x, kind, "e4m3", q=whole[1:6, offset:offset + 272], scale=transposed if len(shape) > 1 else None)
            outside = np.ones(whole.shape, bool)
            outside[1:6, offset:offset + 272] = False
            assert np.isnan(whole.astype(np.float32)[outside]).all()


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("m", "k", "source"), [(128, 64, "bf16"), (5, 8, "f16"), (131, 72, "f32"), (33, 65, "bf16"), (1, 1, "f32")])
def test_the_transposed_matrix_has_blocks_of_its_own_rows(m: int, k: int, source: str) -> None:
    x = spread(np.random.default_rng(m), source, m, k)
    x[m // 2, ::3] = np.inf
    check(x, "1x128", "e4m3", transposed=True)
    whole = np.full((k + 1, m + 7), np.nan, np.float32).astype(RESULTS["e5m2"][0])
    check(np.ones_like(x), "1x128", "e5m2", transposed=True, q=whole[:k, 3:m + 3])
    assert np.isnan(whole[:, [0, 1, 2, -1]].astype(np.float32)).all()
    assert np.isnan(whole[k].astype(np.float32)).all()


def test_a_tile_is_turned_without_conflicts_of_banks() -> None:
    x = spread(np.random.default_rng(3), "bf16", 128, 64)
    q, scale = np.zeros((64, 128), RESULTS["e4m3"][0]), np.zeros((64, 1), np.float32)
    assert [report.stats.bank_conflicts for report in simulate(x, "1x128", out=q, out_scale=scale, transposed=True)] == [0]


def test_several_tiles_of_a_matrix_with_one_scale() -> None:
    for sms in (1, 2):
        check(spread(np.random.default_rng(1), "f32", 120, 600), "tensor", "e4m3", sms=sms)


def test_nothing_to_quantise() -> None:
    for kind in KINDS:
        x, q = np.zeros((0, 64), np.float32), np.zeros((0, 64), RESULTS["e4m3"][0])
        scale = np.full(scale_shape(kind, 0, 64), np.nan, np.float32)
        simulate(x, kind, out=q, out_scale=scale)
        assert (scale == 1).all()


def test_products_take_what_was_quantised() -> None:
    """x w^T of both quantised is near that of the originals, with each kind that a product takes."""
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((40, 256)).astype(np.float32), rng.standard_normal((48, 256)).astype(np.float32)
    for left, right in (("row", "row"), ("row", "tensor"), ("1x128", "128x128")):
        made = []
        for array, kind in cast(list[tuple[Array, Kind]], [(x, left), (w, right)]):
            q, scale = np.zeros(array.shape, RESULTS["e4m3"][0]), np.zeros(scale_shape(kind, *array.shape), np.float32)
            simulate(array, kind, out=q, out_scale=scale, check=False)
            made.append((q, scale))
        (a, a_scale), (b, b_scale) = made
        out = np.full((40, 48), np.nan, np.float32)
        multiply(a, b.T, out, a_scale=a_scale, b_scale=b_scale.T if right != "tensor" else b_scale, card=H200.with_sms(1), check=False)
        exact = x.astype(np.float64) @ w.astype(np.float64).T
        assert np.linalg.norm(out - exact) < 0.05 * np.linalg.norm(exact)


def seen(shape: tuple[int, ...], dtype: str = "bf16", strides: tuple[int, ...] | None = None, pointer: int = 0) -> ArrayView:
    return ArrayView(pointer, shape, strides or contiguous_strides(shape), dtype, 0, "other")


@pytest.mark.parametrize(("changes", "words"), [
    ({"x": seen((16, 64), "e4m3")}, "x has elements of e4m3: quantize takes bf16, f16, f32"),
    ({"x": seen((2, 16, 64))}, r"x has shape \(2, 16, 64\): it is a matrix"),
    ({"x": seen((16, 64), strides=(1, 16))}, "x has strides .* rows"),
    ({"x": seen((16, 64), strides=(-64, 1))}, "x has strides .* not negative"), ({"q": seen((16, 64), "bf16")}, "out has elements of bf16"),
    ({"q": seen((64, 16), "e4m3")}, "out has shape"), ({"q": seen((16, 64), "e4m3", (32, 1))}, "rows of out are 32 elements apart"),
    ({"scale": seen((16, 2), "f32")}, r"out_scale has shape \(16, 2\): with kind='row' x \(16, 64\) has scales of shape \(16, 1\)"),
    ({"scale": seen((16, 1), "f16")}, "out_scale has elements of f16"),
    ({"kind": "column"}, "kind='column': it is tensor, row, 1x128, 128x128"),
    ({"transposed": True}, "only '1x128' has a transposed result")])
def test_what_cannot_be_is_refused_in_a_sentence(changes: dict[str, Any], words: str) -> None:
    right: dict[str, Any] = {"x": seen((16, 64)), "q": seen((16, 64), "e4m3"), "scale": seen((16, 1), "f32"), "kind": "row"}
    QuantiseProblem(**right)
    with pytest.raises(LaunchError, match=words):
        QuantiseProblem(**{**right, **changes})


def test_strides_along_extents_of_1_mean_nothing() -> None:
    x, q, scale = seen((1, 64), strides=(-64, 1)), seen((1, 64), "e4m3", (1 << 40, 1)), seen((1, 1), "f32", (-1, -1))
    plain = QuantiseProblem(seen((1, 64)), seen((1, 64), "e4m3"), seen((1,), "f32"), "row")
    assert QuantiseProblem(x, q, scale, "row").strides == plain.strides


def test_other_arguments_are_refused_before_anything_is_allocated() -> None:
    with pytest.raises(LaunchError, match="dtype='bf16': it is e4m3 or e5m2"):
        gemm.quantize(seen((16, 64)), dtype="bf16")
    with pytest.raises(LaunchError, match="out has elements of e5m2 and out_dtype says e4m3"):
        gemm.quantize(seen((16, 64)), dtype="e4m3", out=seen((16, 64), "e5m2"), out_scale=seen((16, 1), "f32"))
    with pytest.raises(LaunchError, match="it is a matrix"):
        gemm.quantize(seen((64,)))


@pytest.mark.ptxas
@pytest.mark.parametrize("wide", [True, False])
def test_registers_leave_room_for_loads_under_way(wide: bool) -> None:
    """Nothing spills, and an SM holds loads of 48 KiB: what the memory's latency takes at 4 TB/s on 132 SMs, twice."""
    shapes = [(quantize_rows, {"source": source, "threads": threads, "vectors": vectors}, max(256, threads), vectors)
              for source in (bf16, f32) for threads, vectors in ((32, 4), (256, 4), (512, 8))]
    shapes += [(kernel, {"source": source}, 256, vectors) for source in (bf16, f16, f32)
               for kernel, vectors in ((quantize_row_blocks, 4), (quantize_blocks, source.bits // 2))]
    shapes += [(largest_magnitudes, {}, 256, 4), (quantize_tensor, {}, 256, 4)]
    for kernel, parameters, threads, vectors in shapes:
        found = assemble(kernel.trace(**parameters, wide=wide).ptx()).resources[kernel.name]
        assert found.spill_stores == 0, (kernel, parameters)
        resident = min(2048, (1 << 16) // (-(-found.registers // 8) * 8)) // threads * threads
        assert not wide or resident * vectors * 16 >= 48 << 10, (kernel, parameters, found.registers)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_the_card_gives_the_same_bits(kind: Kind) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(1)
    for source, out in (("bf16", "e4m3"), ("f16", "e5m2"), ("f32", "e4m3")):
        for m, k in ((300, 4096), (77, 1000), (5, 33), (1, 70_000), (2048, 7168)):
            x = spread(rng, source, m, k)
            for row, share in ((1, 2.0**-100), (2, 2.0**-128)):      # small scales, and subnormal values
                x[row::5] = (x[row::5].astype(np.float64) * share).astype(x.dtype)
            if kind != "tensor":                                        # where one of these decides all
                x[3::50, ::7], x[4::70, 5] = np.inf, np.nan
            bits = torch.from_numpy(x.view(f"i{x.itemsize}")).cuda().view(getattr(torch, x.dtype.name))
            for _ in range(2):
                q, scale = gemm.quantize(bits, kind, dtype=out)
            expected, scales = oracle(x, kind, out)
            assert same(scale.cpu().numpy(), scales)
            assert same(q.view(torch.uint8).cpu().numpy().view(RESULTS[out][0]), expected), (source, m, k)
            if kind == "1x128":
                q, scale = gemm.quantize(bits, kind, dtype=out, transposed=True)
                expected, scales = oracle(x.T, kind, out)
                assert same(scale.cpu().numpy(), scales)
                assert same(q.view(torch.uint8).cpu().numpy().view(RESULTS[out][0]), expected), (source, m, k)


@pytest.mark.gpu
def test_a_graph_quantises_again() -> None:
    torch = pytest.importorskip("torch")
    for kind in KINDS:
        x = torch.randn((256, 512), device="cuda", dtype=torch.bfloat16)
        q, scale = gemm.quantize(x, kind)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            gemm.quantize(x, kind, out=q, out_scale=scale)
        x.copy_(3 * torch.randn_like(x))
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(q.view(torch.uint8), gemm.quantize(x, kind)[0].view(torch.uint8))
