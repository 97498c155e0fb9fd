"""Attention and its gradients beside float64 of the same rounded operands."""

from __future__ import annotations

import importlib
import itertools
import math
from typing import Any

import numpy as np
import pytest

from tests.jax import wanted

jax = wanted(__name__)

import jax.numpy as jnp  # noqa: E402

from ptxkit.jax import attention, cpu_device, export  # noqa: E402
from tests.jax.oracle import exact  # noqa: E402
from tests.jax.test_dense import drawn  # noqa: E402

ROUNDED = 2.0 ** -7             # of what is computed out of 16-bit weights and operands, relative to its norm


def plain(q: Any, k: Any, v: Any, *, is_causal: bool, scale: float | None = None) -> tuple[Any, Any, Any]:
    """The result [S, H, D], the log-sum-exps [S, H] and the weights [H, S, Sk] of one batch in float64."""
    group = q.shape[1] // k.shape[1]
    k, v = (np.repeat(each, group, 1) for each in (k, v))
    scores = np.einsum("qhd,khd->hqk", q, k) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if is_causal:
        scores = np.where(np.arange(len(k)) <= np.arange(len(q))[:, None], scores, -np.inf)
    most = scores.max(-1, keepdims=True)
    lse = np.log(np.exp(scores - most).sum(-1)) + most[..., 0]
    weights = np.exp(scores - lse[..., None])
    return np.einsum("hqk,khd->qhd", weights, v), lse.T, weights


def gradients(q: Any, k: Any, v: Any, of_out: Any, of_lse: Any, **more: Any) -> tuple[Any, Any, Any]:
    """Those of q, k and v of one batch in float64."""
    out, _, weights = plain(q, k, v, **more)
    group, scale = q.shape[1] // k.shape[1], more.get("scale") or 1 / math.sqrt(q.shape[-1])
    wide = [np.repeat(each, group, 1) for each in (k, v)]
    of_weights = np.einsum("qhd,khd->hqk", of_out, wide[1])
    of_scores = scale * weights * (of_weights - (of_out * out).sum(-1).T[..., None] + of_lse.T[..., None])
    of_k, of_v = np.einsum("hqk,qhd->khd", of_scores, q), np.einsum("hqk,qhd->khd", weights, of_out)
    of_k, of_v = (each.reshape(len(each), -1, group, q.shape[-1]).sum(2) for each in (of_k, of_v))
    return np.einsum("hqk,khd->qhd", of_scores, wide[0]), of_k, of_v


def close(found: Any, wanted: Any, within: float = ROUNDED) -> None:
    assert found.shape == wanted.shape
    assert np.linalg.norm(exact(found) - wanted) <= within * np.linalg.norm(wanted) + 1e-6


@pytest.mark.parametrize(("shape", "keys", "kv_heads", "is_causal", "scale"), [
    ((2, 70, 2, 64), 50, 2, False, None), ((1, 40, 4, 128), 40, 2, True, 0.2), ((1, 33, 2, 256), 65, 1, True, None),
    ((1, 20, 2, 64), 7, 1, True, 0.05)], ids=str)
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16], ids=["bf16", "f16"])
@pytest.mark.thinned(5)
def test_attention_and_its_gradients(device: Any, shape: Any, keys: int, kv_heads: int, is_causal: bool, scale: Any, dtype: Any) -> None:
    """Heads that share keys, other lengths of keys, masks; of the log-sum-exps, too."""
    batches, count, heads, head = shape
    q, of_out = (drawn(n, shape, dtype) for n in (0, 3))
    k, v = (drawn(n, (batches, keys, kv_heads, head), dtype) for n in (1, 2))
    of_lse = drawn(4, (batches, count, heads), jnp.float32)

    @jax.jit
    def run(q: Any, k: Any, v: Any) -> Any:
        (out, lse), back = jax.vjp(lambda q, k, v: attention(q, k, v, is_causal=is_causal, scale=scale, return_lse=True), q, k, v)
        return out, lse, back((of_out, of_lse))

    out, lse, found = run(q, k, v)
    assert out.dtype == dtype
    assert (out == attention(q, k, v, is_causal=is_causal, scale=scale)).all()
    alone = jax.vjp(lambda *given: attention(*given, is_causal=is_causal, scale=scale), q, k, v)[1](of_out)
    for batch in range(batches):
        one = [exact(each[batch]) for each in (q, k, v)]
        wanted = plain(*one, is_causal=is_causal, scale=scale)
        close(out[batch], wanted[0])
        close(lse[batch], wanted[1], 1e-4)
        for got, given in ((found, exact(of_lse[batch])), (alone, np.zeros((count, heads)))):
            for each, exactly in zip(got, gradients(*one, exact(of_out[batch]), given, is_causal=is_causal, scale=scale), strict=True):
                close(each[batch], exactly, 2 * ROUNDED)


def test_the_backward_pass_goes_in_steps(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of as many queries as are given: their number changes nothing but the order of sums."""
    q, k, v = (drawn(n, (1, 50, 2, 64), jnp.float16) for n in range(3))

    def loss(*given: Any) -> Any:
        return jnp.square(attention(*given, is_causal=True).astype(jnp.float32)).sum()

    whole = jax.grad(loss, (0, 1, 2))(q, k, v)
    monkeypatch.setattr(importlib.import_module("ptxkit.jax.attention"), "QUERIES", 16)
    for one, other in zip(jax.grad(loss, (0, 1, 2))(q, k, v), whole, strict=True):
        close(one, exact(other), 1e-3)


@pytest.mark.parametrize("is_causal", [True, False], ids=["causal", "full"])
@pytest.mark.thinned(2)
def test_packed_sequences_and_their_gradients(device: Any, is_causal: bool) -> None:
    """An empty sequence, and rows of none at both ends, whose results and gradients are 0."""
    starts = (0, 30, 30, 47)
    q, of_out = (drawn(n, (52, 2, 64), jnp.bfloat16) for n in (0, 3))
    k, v = (drawn(n, (52, 1, 64), jnp.bfloat16) for n in (1, 2))
    offs = jnp.asarray(starts, jnp.int32)
    (out, lse), back = jax.vjp(lambda *given: attention(*given, is_causal=is_causal, cu_seqlens=offs, return_lse=True), q, k, v)
    found = back((of_out, jnp.zeros_like(lse)))
    assert not out[47:].any()
    assert jnp.isneginf(lse[47:]).all()
    assert not any(each[47:].any() for each in found)
    for begin, end in itertools.pairwise(starts):
        if begin == end:
            continue
        one = [exact(each[begin:end]) for each in (q, k, v)]
        wanted = plain(*one, is_causal=is_causal)
        close(out[begin:end], wanted[0])
        close(lse[begin:end], wanted[1], 1e-4)
        of_lse = np.zeros((end - begin, 2))
        for each, exactly in zip(found, gradients(*one, exact(of_out[begin:end]), of_lse, is_causal=is_causal), strict=True):
            close(each[begin:end], exactly, 2 * ROUNDED)


def test_without_keys_and_without_queries(device: Any) -> None:
    q, none = drawn(0, (1, 5, 2, 64), jnp.bfloat16), jnp.zeros((1, 0, 2, 64), jnp.bfloat16)
    out, lse = attention(q, none, none, return_lse=True)
    assert out.shape == q.shape
    assert not out.any()
    assert jnp.isneginf(lse).all()
    assert attention(none, q, q).shape == none.shape
    found = jax.grad(lambda q: attention(q, none, none).astype(jnp.float32).sum())(q)
    assert not found.any()


@pytest.mark.parametrize("axes", [(0, None, None), (0, 0, 0), (None, 1, 1)], ids=str)
@pytest.mark.thinned(9)
def test_a_mapped_attention_has_more_batches(device: Any, axes: Any) -> None:
    q, k, v = (drawn(n, (2, 12, 2, 64) if axis is None else tuple(np.insert((2, 12, 2, 64), axis, 3)), jnp.float16)
               for n, axis in enumerate(axes))
    mapped = jax.vmap(lambda *given: attention(*given, is_causal=True), axes)
    found = jax.jit(mapped)(q, k, v)
    text = str(jax.make_jaxpr(mapped)(q, k, v))
    assert text.count("ptxkit_product") == 1
    assert "scan" not in text
    for n, one in enumerate(found):
        assert (one == attention(*(each if axis is None else jnp.take(each, n, axis) for each, axis in zip((q, k, v), axes, strict=True)),
                                 is_causal=True)).all()


def test_it_is_exported_and_differentiated_twice(device: Any) -> None:
    q = drawn(0, (1, 6, 1, 64), jnp.float16)

    def loss(q: Any) -> Any:
        return jnp.square(attention(q, q, q).astype(jnp.float32)).sum()

    program = export(lambda q: attention(q, q, q))(q)
    assert (program.call(q) == attention(q, q, q)).all()
    step = jnp.zeros_like(q).at[0, 2, 0, 5].set(0.0625)
    first = (jax.grad(loss)(q + step).astype(jnp.float32) - jax.grad(loss)(q - step).astype(jnp.float32)).sum() / 0.125
    second = jax.grad(lambda q: jax.grad(loss)(q).astype(jnp.float32).sum())(q)[0, 2, 0, 5]
    np.testing.assert_allclose(float(second), float(first), rtol=0.1, atol=0.1)


def test_checked() -> None:
    q = drawn(0, (1, 20, 1, 64), jnp.bfloat16)
    with cpu_device(check=True):
        close(attention(q, q, q), plain(*(exact(q[0]),) * 3, is_causal=False)[0][None])
