"""Gathered rows, sums of chosen rows and their gradients beside float64 of the same rounded operands."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tests.jax import wanted

jax = wanted(__name__)

import jax.numpy as jnp  # noqa: E402

from ptxkit.jax import combine, grouped_gemm  # noqa: E402
from tests.jax.oracle import exact, near, sums, unit  # noqa: E402
from tests.jax.test_dense import drawn  # noqa: E402
from tests.jax.test_groups import STARTS, by_group  # noqa: E402


def rows_of(array: Any, numbers: Any) -> Any:
    """The rows with these numbers in float64; zeros for numbers of no row."""
    there = (numbers >= 0) & (numbers < len(array))
    return np.where(there[..., None], array[np.clip(numbers, 0, len(array) - 1)], 0.0)


def scattered(rows: Any, numbers: Any, count: int) -> Any:
    """The sums of the rows that have each number below `count`."""
    found = np.zeros((count, rows.shape[-1]))
    for row, number in zip(rows.reshape(-1, rows.shape[-1]), numbers.reshape(-1), strict=True):
        if 0 <= number < count:
            found[number] += row
    return found


def back_of(numbers: Any, count: int) -> Any:
    """The places that have each number below `count`, and -1 for none."""
    taking = [np.flatnonzero(numbers.reshape(-1) == number) for number in range(count)]
    most = max(1, max(map(len, taking)))
    return jnp.asarray([[*each, *(-1,) * (most - len(each))] for each in taking], jnp.int32)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.thinned(2)
def test_sums_of_rows_and_their_gradients(device: Any, seed: int) -> None:
    """For any type, weights or none, choices in rows or ragged, with `back` and without; numbers of no row are among them."""
    random = np.random.default_rng(seed)
    dtype = (jnp.bfloat16, jnp.float16, jnp.float32)[seed % 3]
    rows, count, top, columns = (int(random.integers(*span)) for span in ((3, 30), (1, 20), (1, 5), (1, 40)))
    y, dy = drawn(seed, (rows, columns), dtype), drawn(seed + 99, (count, columns), dtype)
    ragged, weighted = bool(seed & 1), bool(seed & 2)
    place = random.integers(-2, rows + 2, (count * top,) if ragged else (count, top)).astype(np.int32)
    starts = np.sort(random.integers(0, count * top + 1, count + 1)).astype(np.int32) if ragged else None
    weights = random.normal(size=place.shape).astype(np.float32) if weighted else None
    choice = np.arange(place.size)
    owner = choice // top if starts is None else np.where(choice < starts[0], -1, np.searchsorted(starts, choice, "right") - 1)
    factors = (np.ones(place.size) if weights is None else exact(weights).reshape(-1)) * ((owner >= 0) & (owner < count))
    back = back_of(place, rows) if seed % 4 < 2 else None

    @jax.jit
    def run(y: Any, weights: Any, dy: Any) -> Any:
        def of(y: Any, weights: Any) -> Any:
            return combine(y, place, weights, starts=starts, back=back)

        found, backward = jax.vjp(of, y, weights)
        return found, backward(dy)

    found, (of_y, of_weights) = run(y, weights, dy)
    a, g, flat = exact(y), exact(dy), place.reshape(-1)
    taken, given = rows_of(a, flat), rows_of(g, owner)
    near(found, scattered(taken * factors[:, None], owner, count), 1e-5 * scattered(np.abs(taken * factors[:, None]), owner, count), dtype)
    near(of_y, scattered(given * factors[:, None], flat, rows), 1e-5 * scattered(np.abs(given * factors[:, None]), flat, rows), dtype)
    if weights is not None:
        near(of_weights, (taken * given).sum(-1).reshape(place.shape), 1e-5 * np.abs(taken * given).sum(-1).reshape(place.shape),
             jnp.float32)


@pytest.mark.parametrize("back", [True, False], ids=["back", "sorted"])
@pytest.mark.parametrize("k", [32, 35])
@pytest.mark.thinned(2)
def test_groups_of_gathered_rows_and_their_gradients(device: Any, k: int, back: bool) -> None:
    dtype = jnp.bfloat16
    x, w, dy = drawn(0, (14, k), dtype), drawn(1, (3, 48, k), dtype), drawn(2, (40, 48), dtype)
    numbers = np.random.default_rng(k).integers(-1, 15, 40).astype(np.int32)
    offs = jnp.asarray(STARTS, jnp.int32)

    @jax.jit
    def run(x: Any, w: Any, dy: Any) -> Any:
        def of(x: Any, w: Any) -> Any:
            return grouped_gemm(x, w, offs, transpose_b=True, gather=numbers, back=back_of(numbers, 14) if back else None)

        y, backward = jax.vjp(of, x, w)
        return y, *backward(dy)

    y, dx, dw = run(x, w, dy)
    a, b, g = rows_of(exact(x), numbers), exact(w), exact(dy)
    of = [np.abs(each) for each in (a, b, g)]
    near(y, by_group(lambda n, s: a[s] @ b[n].T, 40), by_group(lambda n, s: of[0][s] @ of[1][n].T, 40) * sums(k, dtype), dtype)
    whole, size = (by_group(lambda n, s, g=g, b=b: g[s] @ b[n], 40) for g, b in ((g, b), (of[2], of[1])))
    off = size * sums(48, dtype) + 1.05 * unit(dtype) * np.abs(whole)           # rounded before the rows are added
    near(dx, scattered(whole, numbers, 14), scattered(off, numbers, 14) + 1e-5 * scattered(np.abs(whole), numbers, 14), dtype)
    spans = [slice(*span) for span in itertools.pairwise(STARTS)]
    near(dw, np.stack([g[s].T @ a[s] for s in spans]), np.stack([of[2][s].T @ of[0][s] for s in spans]) * sums(40, dtype), dtype)


def test_a_gate_over_gathered_rows(device: Any) -> None:
    """As the same product of rows that were gathered before, and so are its gradients."""
    x, w, offs = drawn(0, (14, 32), jnp.float16), drawn(1, (3, 32, 32), jnp.float16) / 4, jnp.asarray(STARTS[1:], jnp.int32)
    numbers = jnp.asarray(np.random.default_rng(1).integers(0, 14, 40), jnp.int32)

    def total(x: Any, w: Any, gather: Any) -> Any:
        y = grouped_gemm(x if gather is not None else x[numbers], w, offs, activation="silu_and_mul", transpose_b=True, gather=gather)
        return jnp.square(y.astype(jnp.float32)).sum()

    for one, other in zip(*(jax.grad(total, (0, 1))(x, w, gather) for gather in (numbers, None)), strict=True):
        np.testing.assert_allclose(exact(one), exact(other), rtol=1e-2, atol=1e-2)


def test_sums_are_mapped_and_differentiated_twice(device: Any) -> None:
    y, place = drawn(0, (2, 9, 8), jnp.float32), jnp.asarray([[0, 3], [8, 3], [-1, 1]], jnp.int32)
    weights = drawn(1, (3, 2), jnp.float32)
    mapped = jax.jit(jax.vmap(lambda y: combine(y, place, weights)))(y)
    for one, rows in zip(mapped, y, strict=True):
        assert (one == combine(rows, place, weights)).all()
    def energy(weights: Any) -> Any:
        return jnp.square(combine(y[0], place, weights)).sum()

    hessian = jax.jacrev(jax.grad(energy))(weights).reshape(6, 6)
    taken = rows_of(exact(y[0]), np.asarray(place)).reshape(6, 8)
    same = np.arange(6)[:, None] // 2 == np.arange(6) // 2
    np.testing.assert_allclose(exact(hessian), 2 * same * (taken @ taken.T), rtol=1e-5, atol=1e-5)


def test_a_mixture_of_experts_learns(device: Any) -> None:
    """Route, gather, two products, combine: the gradients are those of jax's own operators."""
    tokens, experts, width = 12, 3, 16
    x = drawn(0, (tokens, width), jnp.float32) / 4
    up, down = drawn(1, (experts, 2 * width, width), jnp.float32) / 4, drawn(2, (experts, width, width), jnp.float32) / 4
    router = drawn(3, (width, experts), jnp.float32)

    def own(x: Any, up: Any, down: Any, router: Any) -> Any:
        weights, chosen = jax.lax.top_k(jax.nn.softmax(x @ router), 2)
        order = jnp.argsort(chosen.reshape(-1), stable=True).astype(jnp.int32)
        offs = jnp.searchsorted(chosen.reshape(-1)[order], jnp.arange(1, experts + 1)).astype(jnp.int32)
        place = jnp.argsort(order).astype(jnp.int32).reshape(tokens, 2)
        up, down, rows = (each.astype(jnp.float16) for each in (up, down, x))
        hidden = grouped_gemm(rows, up, offs, activation="silu_and_mul", transpose_b=True, gather=order // 2, back=place)
        y = grouped_gemm(hidden, down, offs, transpose_b=True)
        return jnp.square(combine(y, place, weights, back=order[:, None], out_dtype=jnp.float32)).sum()

    def plain(x: Any, up: Any, down: Any, router: Any) -> Any:
        weights, chosen = jax.lax.top_k(jax.nn.softmax(x @ router), 2)
        z = jnp.einsum("tk,tjnk->tjn", x, up[chosen])
        hidden = jax.nn.silu(z[..., :width]) * z[..., width:]
        return jnp.square((jnp.einsum("tjn,tjkn->tjk", hidden, down[chosen]) * weights[..., None]).sum(1)).sum()

    found, wanted = (jax.jit(jax.grad(of, (0, 1, 2, 3)))(x, up, down, router) for of in (own, plain))
    for one, other in zip(found, wanted, strict=True):
        assert np.linalg.norm(exact(one) - exact(other)) <= 2e-2 * np.linalg.norm(exact(other))
