"""Products of groups and their gradients beside float64 of the same rounded operands."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tests.jax import wanted

jax = wanted(__name__)

import jax.numpy as jnp  # noqa: E402

from ptxkit.jax import grouped_gemm, scaled_grouped_gemm, weight_gradient  # noqa: E402
from tests.jax.oracle import activated, exact, near, sums, unit  # noqa: E402
from tests.jax.test_dense import drawn, quantised, wide  # noqa: E402

STARTS = (0, 9, 9, 30)                  # of 40 rows: an empty group, and rows after the last one
SLOPE = 1.1                             # the largest magnitude of silu's derivative


def by_group(of: Any, rows: int, starts: Any = STARTS) -> Any:
    """Rows of each group by `of(group, rows)`, zeros elsewhere."""
    spans = [slice(*span) for span in itertools.pairwise(starts)]
    width = of(0, spans[0]).shape[1]
    found = np.zeros((rows, width))
    for group, span in enumerate(spans):
        found[span] = of(group, span)
    return found


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16], ids=["bf16", "f16"])
@pytest.mark.parametrize("ends", [True, False], ids=["ends", "starts"])
@pytest.mark.parametrize("turned", [True, False], ids=["transpose_b", "swapaxes"])
@pytest.mark.thinned(4)
def test_groups_and_their_gradients(device: Any, dtype: Any, ends: bool, turned: bool) -> None:
    x, w, dy = drawn(0, (40, 32), dtype), drawn(1, (3, 48, 32), dtype), drawn(2, (40, 48), dtype)
    offs = jnp.asarray(STARTS[1:] if ends else STARTS, jnp.int32)

    @jax.jit
    def both(x: Any, w: Any, offs: Any) -> Any:
        def run(x: Any, w: Any) -> Any:
            return grouped_gemm(x, w, offs, transpose_b=True) if turned else grouped_gemm(x, jnp.swapaxes(w, 1, 2), offs)

        y, back = jax.vjp(run, x, w)
        return y, *back(dy)

    y, dx, dw = both(x, w, offs)
    assert "transpose(" not in jax.jit(lambda x, w: grouped_gemm(x, jnp.swapaxes(w, 1, 2), offs)).lower(x, w).compile().as_text()
    a, b, g = exact(x), exact(w), exact(dy)
    of = [np.abs(each) for each in (a, b, g)]
    near(y, by_group(lambda n, s: a[s] @ b[n].T, 40), by_group(lambda n, s: of[0][s] @ of[1][n].T, 40) * sums(32, dtype), dtype)
    near(dx, by_group(lambda n, s: g[s] @ b[n], 40), by_group(lambda n, s: of[2][s] @ of[1][n], 40) * sums(48, dtype), dtype)
    spans = [slice(*span) for span in itertools.pairwise(STARTS)]
    near(dw, np.stack([g[s].T @ a[s] for s in spans]), np.stack([of[2][s].T @ of[0][s] for s in spans]) * sums(40, dtype), dtype)


@pytest.mark.parametrize("turned", [True, False], ids=["transpose_b", "plain"])
@pytest.mark.parametrize(("k", "n"), [(35, 48), (32, 47), (13, 20)], ids=str)
@pytest.mark.thinned(3)
def test_groups_of_any_k_and_n_and_their_gradients(device: Any, k: int, n: int, turned: bool) -> None:
    dtype = jnp.bfloat16
    x, w, dy, offs = drawn(0, (40, k), dtype), drawn(1, (3, n, k), dtype), drawn(2, (40, n), dtype), jnp.asarray(STARTS, jnp.int32)
    given = w if turned else jnp.swapaxes(w, 1, 2)
    y, back = jax.vjp(lambda x, w: grouped_gemm(x, w, offs, transpose_b=turned), x, given)
    dx, dw = back(dy)
    assert dw.shape == given.shape
    a, b, g = exact(x), exact(w), exact(dy)
    of, spans = [np.abs(each) for each in (a, b, g)], [slice(*span) for span in itertools.pairwise(STARTS)]
    near(y, by_group(lambda n, s: a[s] @ b[n].T, 40), by_group(lambda n, s: of[0][s] @ of[1][n].T, 40) * sums(k, dtype), dtype)
    near(dx, by_group(lambda n, s: g[s] @ b[n], 40), by_group(lambda n, s: of[2][s] @ of[1][n], 40) * sums(n, dtype), dtype)
    near(dw if turned else jnp.swapaxes(dw, 1, 2), np.stack([g[s].T @ a[s] for s in spans]),
         np.stack([of[2][s].T @ of[0][s] for s in spans]) * sums(40, dtype), dtype)


def test_the_gate_and_its_gradient(device: Any) -> None:
    dtype = jnp.bfloat16
    x, w, dy = drawn(0, (40, 32), dtype), drawn(1, (3, 48, 32), dtype) / 4, drawn(2, (40, 24), dtype)
    offs = jnp.asarray(STARTS, jnp.int32)
    y, back = jax.vjp(lambda x, w: grouped_gemm(x, w, offs, activation="silu_and_mul", transpose_b=True), x, w)
    dx, dw = back(dy)
    a, b, g = exact(x), exact(w), exact(dy)
    z, size = (by_group(lambda n, s, a=a, b=b: a[s] @ b[n].T, 40) for a, b in ((a, b), (np.abs(a), np.abs(b))))
    off = 1e-4 * size + 4e-6
    (gate, up), (gate_off, up_off) = np.split(z, 2, 1), np.split(off, 2, 1)
    value, slope = activated("silu", gate)
    near(y, value * up, SLOPE * gate_off * (np.abs(up) + up_off) + np.abs(value) * up_off, dtype)
    inside = by_group(lambda n, s: np.ones((s.stop - s.start, 1)), 40)
    dz = np.concatenate([g * up * slope, g * value], 1) * inside
    rounded = 2 * unit(dtype) * np.abs(dz) + 1e-3 * np.abs(np.tile(g, 2)) * inside * (1 + np.abs(z))
    near(dx, by_group(lambda n, s: dz[s] @ b[n], 40), by_group(lambda n, s: rounded[s] @ np.abs(b[n]), 40), dtype)
    spans = [slice(*span) for span in itertools.pairwise(STARTS)]
    near(dw, np.stack([dz[s].T @ a[s] for s in spans]), np.stack([rounded[s].T @ np.abs(a[s]) for s in spans]) + 1e-6, dtype)


def test_rows_outside_of_groups_need_not_be_cleared(device: Any) -> None:
    x, w = drawn(0, (40, 32), jnp.bfloat16), drawn(1, (3, 48, 32), jnp.bfloat16)
    offs = jnp.asarray(STARTS[1:], jnp.int32)
    cleared, not_cleared = (grouped_gemm(x, w, offs, transpose_b=True, clear_rest=clear) for clear in (True, False))
    assert not cleared[30:].any()
    assert (cleared[:30] == not_cleared[:30]).all()


@pytest.mark.parametrize("starts", [(3, 3, 20, 38), (0, 40)], ids=str)
@pytest.mark.thinned(2)
def test_weight_gradients_and_theirs(device: Any, starts: Any) -> None:
    a, b, offs = drawn(0, (40, 16), jnp.float16), drawn(1, (40, 24), jnp.float16), jnp.asarray(starts, jnp.int32)
    dy = drawn(2, (len(starts) - 1, 16, 24), jnp.float16)
    y, back = jax.vjp(lambda a, b: weight_gradient(a, b, offs, out_dtype=jnp.float32), a, b)
    found = back(dy.astype(jnp.float32))
    x, z, g = exact(a), exact(b), exact(dy)
    spans = [slice(*span) for span in itertools.pairwise(starts)]
    near(y, np.stack([x[s].T @ z[s] for s in spans]), np.stack([np.abs(x[s]).T @ np.abs(z[s]) for s in spans]) * sums(40, a.dtype),
         jnp.float32)
    near(found[0], by_group(lambda n, s: z[s] @ g[n].T, 40, starts),
         by_group(lambda n, s: np.abs(z[s]) @ np.abs(g[n].T), 40, starts) * sums(24, a.dtype), a.dtype)
    near(found[1], by_group(lambda n, s: x[s] @ g[n], 40, starts),
         by_group(lambda n, s: np.abs(x[s]) @ np.abs(g[n]), 40, starts) * sums(16, a.dtype), a.dtype)


def test_weight_gradients_of_any_columns(device: Any) -> None:
    a, b, offs = drawn(0, (40, 13), jnp.bfloat16), drawn(1, (40, 7), jnp.bfloat16), jnp.asarray((0, 40), jnp.int32)
    y = jax.jit(weight_gradient)(a, b, offs)
    near(y, (exact(a).T @ exact(b))[None], (np.abs(exact(a)).T @ np.abs(exact(b)))[None] * sums(40, a.dtype), a.dtype)


@pytest.mark.parametrize("kind", ["whole", "row", "block"])
@pytest.mark.thinned(3)
def test_scales(device: Any, kind: str) -> None:
    starts = (0, 10, 24)
    x, scale_x = quantised((24, 256), "a" if kind == "block" else kind)
    groups = [quantised((128, 256), "b" if kind == "block" else kind) for _ in range(2)]
    w, scale_w = jnp.stack([values for values, _ in groups]), jnp.stack([scale * (1 + n) for n, (_, scale) in enumerate(groups)])
    scale_b = jnp.swapaxes(scale_w, 1, 2) if kind == "block" else scale_w if kind == "row" else scale_w.reshape(-1)
    offs = jnp.asarray(starts, jnp.int32)
    y = jax.jit(lambda x, w: scaled_grouped_gemm(x, w, scale_x, scale_b, offs, transpose_b=True, out_dtype=jnp.float32))(x, w)
    a, b = exact(x) * wide(scale_x, x.shape), np.stack([exact(w[n]) * wide(scale_w[n], w[n].shape) for n in range(2)])
    near(y, by_group(lambda n, s: a[s] @ b[n].T, 24, starts),
         by_group(lambda n, s: np.abs(a[s]) @ np.abs(b[n]).T, 24, starts) * 2 * sums(256, x.dtype), jnp.float32)
