"""Dense products and their gradients beside float64 of the same rounded operands, eager and under jax.jit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.jax import wanted

jax = wanted(__name__)

import jax.numpy as jnp  # noqa: E402

from ptxkit.jax import cpu_device, gemm, scaled_gemm  # noqa: E402
from tests.jax.oracle import check, exact, near, sums  # noqa: E402

FUSIONS: tuple[dict[str, Any], ...] = (
    {"alpha": -0.5}, {"bias": (48,)}, {"bias": (40, 1), "activation": "relu"}, {"beta": 0.75}, {"residual": jnp.float32},
    {"activation": "gelu"}, {"activation": "silu", "bias": (1, 48)}, {"out_dtype": jnp.float32},
    {"bias": (48,), "activation": "gelu", "residual": jnp.bfloat16, "alpha": 1.5, "beta": -0.5, "out_dtype": jnp.float16})
SHAPES = (((3, 8, 32), (3, 32, 16)), ((2, 3, 8, 16), (16, 24)), ((3, 1, 8, 16), (2, 16, 8)), ((40, 8), (2, 8, 16)))
"""Batches, a batch by one matrix, batches that are broadcast, one matrix by a batch."""


def drawn(seed: int, shape: tuple[int, ...], dtype: Any) -> Any:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype)


def law(shapes: Any, dtype: Any, fusion: dict[str, Any], turned: str = "") -> None:
    """A product and its gradients, compiled."""
    shape = (*np.broadcast_shapes(shapes[0][:-2], shapes[1][:-2]), shapes[0][-2], shapes[1][-1])
    how = {name: value for name, value in fusion.items() if name in ("alpha", "beta", "activation", "out_dtype")}
    given = {name: drawn(number, (*of[:-2], of[-1], of[-2]) if name in turned else of, dtype)
             for number, (name, of) in enumerate(zip("ab", shapes, strict=True))}
    how |= {f"transpose_{name}": True for name in turned}
    if "bias" in fusion:
        given["bias"] = drawn(3, fusion["bias"], jnp.float32)
    if "residual" in fusion:
        given["residual"] = drawn(4, shape, fusion["residual"])
    if "beta" in fusion:
        given["c"] = drawn(5, shape, dtype)
    gradient = drawn(6, shape, how.get("out_dtype", dtype))

    @jax.jit
    def both(given: dict[str, Any]) -> tuple[Any, Any]:
        y, back = jax.vjp(lambda given: gemm(**given, **how), given)
        return y, back(gradient)[0]

    y, found = both(given)
    check(given, how, gradient, y, found)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float32], ids=["bf16", "f16", "f32"])
@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
@pytest.mark.thinned(8)
def test_every_layout(device: Any, dtype: Any, turned: str) -> None:
    law(((40, 24), (24, 48)), dtype, {}, turned)


@pytest.mark.parametrize("fusion", FUSIONS, ids=str)
@pytest.mark.thinned(3)
def test_every_fusion(device: Any, fusion: dict[str, Any]) -> None:
    law(((40, 24), (24, 48)), jnp.bfloat16, fusion, "b")


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.thinned(2)
def test_every_shape(device: Any, shapes: Any) -> None:
    law(shapes, jnp.float16, {})


def test_batches_with_exchanged_extents(device: Any) -> None:
    law(((2, 8, 16), (16, 24)), jnp.bfloat16, {"activation": "silu"}, "ab")


def test_vectors(device: Any) -> None:
    a, b = drawn(0, (40, 24), jnp.float16), drawn(1, (24,), jnp.float16)
    residual = drawn(2, (40,), jnp.float32)
    near(gemm(a, b, residual=residual), exact(a) @ exact(b) + exact(residual), np.abs(exact(a)) @ np.abs(exact(b)) * 1e-5, jnp.float16)
    found = jax.grad(lambda b: gemm(b, a.T).astype(jnp.float32).sum())(b)
    near(found, exact(a).sum(0), np.abs(exact(a)).sum(0) * 1e-5, jnp.float16)
    near(gemm(b, b), exact(b) @ exact(b), np.float64(1e-4), jnp.float16)


def test_an_exchanged_extent_is_no_copy(device: Any) -> None:
    a, w = drawn(0, (8, 16), jnp.bfloat16), drawn(1, (24, 16), jnp.bfloat16)
    texts = [jax.jit(how).lower(a, w).compile().as_text() for how in (lambda a, w: gemm(a, w, transpose_b=True), lambda a, w: gemm(a, w.T))]
    assert ["transpose(" in text for text in texts] == [False, True]


def test_nothing_to_multiply(device: Any) -> None:
    a, b = drawn(0, (40, 24), jnp.bfloat16), drawn(1, (24, 48), jnp.bfloat16)
    assert gemm(a[:0], b).shape == (0, 48)
    assert not gemm(a[:, :0], b[:0]).any()
    assert not jax.grad(lambda b: gemm(a[:0], b).astype(jnp.float32).sum())(b).any()


def test_second_derivatives(device: Any) -> None:
    """Of sum(f(a b)^2): the gradient of <grad, v> is the Hessian's product with v, which differences of gradients approach."""
    a, b, v = (drawn(seed, shape, jnp.float32) / 4 for seed, shape in enumerate([(8, 16), (16, 8), (8, 16)]))

    def first(a: Any) -> Any:
        return jax.grad(lambda a: jnp.square(gemm(a, b, activation="silu")).sum())(a)

    found, step = jax.grad(lambda a: (first(a) * v).sum())(a), 2.0 ** -3
    numeric = (exact(first(a + step * v)) - exact(first(a - step * v))) / (2 * step)
    assert np.linalg.norm(exact(found) - numeric) <= 0.03 * np.linalg.norm(numeric)


def test_the_checker_watches_where_it_is_asked_to() -> None:
    a, b = drawn(0, (8, 64), jnp.bfloat16), drawn(1, (64, 16), jnp.bfloat16)
    plain = jax.jit(gemm)
    with jax.default_device(jax.devices("cpu")[0]), cpu_device():
        assert r'checked\22: false' in plain.lower(a, b).as_text()
        with cpu_device(check=True):
            assert r'checked\22: true' in plain.lower(a, b).as_text()
            with cpu_device():
                assert r'checked\22: true' in plain.lower(a, b).as_text()


# ------------------------------------------------------------------------------------------------------------------ fp8


def quantised(shape: tuple[int, int], kind: str) -> tuple[Any, Any]:
    """Values and scales: of the whole, of rows, or of blocks of 128 along K for rows (a) or 128 lines (b, which is [N, K])."""
    values, blocks = drawn(sum(shape), shape, jnp.float8_e4m3fn), -(-shape[1] // 128)
    scales = {"whole": (1,), "row": (shape[0],), "a": (shape[0], blocks), "b": (-(-shape[0] // 128), blocks)}[kind]
    return values, jnp.asarray(np.random.default_rng(7).uniform(0.5, 2.0, scales), jnp.float32)


def wide(scale: Any, shape: tuple[int, int]) -> Any:
    """Scales for each element."""
    scale = exact(scale)
    if scale.ndim == 1:
        return np.broadcast_to(scale[:, None] if scale.size > 1 else scale, shape)
    rows = 1 if scale.shape[0] == shape[0] else 128
    return np.repeat(np.repeat(scale, rows, 0), 128, 1)[:shape[0], :shape[1]]


@pytest.mark.parametrize("kind", ["whole", "row", "block"])
@pytest.mark.parametrize("given", ["w.T", "transpose_b"])
@pytest.mark.thinned(6)
def test_scales(device: Any, kind: str, given: str) -> None:
    a, scale_a = quantised((24, 256), "a" if kind == "block" else kind)
    w, scale_w = quantised((144, 256), "b" if kind == "block" else kind)
    scale_b = scale_w.T if kind == "block" else scale_w
    residual = drawn(1, (24, 144), jnp.bfloat16)

    @jax.jit
    def run(a: Any, w: Any, scale_a: Any, scale_b: Any) -> Any:
        more = {"out_dtype": jnp.float32, "residual": residual}
        return scaled_gemm(a, w.T, scale_a, scale_b, **more) if given == "w.T" else scaled_gemm(a, w, scale_a, scale_b, transpose_b=True,
                                                                                             **more)

    assert "transpose(" not in run.lower(a, w, scale_a, scale_b).compile().as_text()        # a bitcast: nothing is copied
    left, right = exact(a) * wide(scale_a, a.shape), (exact(w) * wide(scale_w, w.shape)).T
    size = np.abs(left) @ np.abs(right)
    near(run(a, w, scale_a, scale_b), left @ right + exact(residual), size * 2 * sums(256, a.dtype), jnp.float32)
    assert scaled_gemm(a, w, scale_a, scale_b, transpose_b=True, use_fast_accum=kind != "block").dtype == jnp.bfloat16


@pytest.mark.parametrize("kind", ["row", "block"])
def test_scales_of_a_batch_are_those_of_its_rows(device: Any, kind: str) -> None:
    """With one weight they are one product: [2, 3, M, K/128] or [2, 3, M, 1] say what [6 M, K/128] or [6 M, 1] do."""
    a, scale_a = quantised((24, 256), "a" if kind == "block" else kind)
    w, scale_w = quantised((144, 256), "b" if kind == "block" else kind)
    scale_b = scale_w.T if kind == "block" else scale_w
    whole = scaled_gemm(a, w, scale_a, scale_b, transpose_b=True)
    batch = scaled_gemm(a.reshape(2, 3, 4, 256), w, scale_a.reshape(2, 3, 4, -1), scale_b, transpose_b=True)
    assert np.array_equal(exact(batch).reshape(24, 144), exact(whole))
