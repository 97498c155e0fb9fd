"""Attention and its gradients. The forward pass is one kernel; the backward pass is made of jax's products, some queries at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from ptxkit.attention.problem.refusals import check_scale, flag
from ptxkit.errors import LaunchError

from .framework import jax, jnp
from .primitive import compute, varying_alike
from .product import Product, arrays, check_integers, word_of
from .tangents import differentiable, none

QUERIES = 256                   # of a step of the backward pass, which holds their scores with all keys


@dataclass(frozen=True, slots=True)
class How:
    """What is static of attention."""

    is_causal: bool = False
    scale: float = 1.0
    return_lse: bool = False


def attention(q: Any, k: Any, v: Any, *, is_causal: bool = False, scale: float | None = None, cu_seqlens: Any = None,
              return_lse: bool = False) -> Any:
    """softmax(scale q k^T) v of q [B, S, H, D], k and v [B, Sk, Hkv, D], as `jax.nn.dot_product_attention` has them, with gradients.

    float16 or bfloat16; D is 64, 128 or 256. k and v may have fewer heads, which divide those of q. `scale` is positive (None:
    1 / sqrt(D)) and static. With `is_causal` query i sees the keys j <= i. With `return_lse` the result is (out, lse): lse float32
    [B, S, H] is the logarithm of the sum of the exponentials of each row's scaled scores.

    `cu_seqlens`: int32 [sequences + 1], rising from 0. Then q is [T, H, D], k and v [T, Hkv, D], and rows cu_seqlens[s] to
    cu_seqlens[s + 1] attend to one another. Rows that no sequence has are 0, and their lse is -inf.
    """
    q, k, v, *more = arrays({"q": q, "k": k, "v": v}, {"cu_seqlens": cu_seqlens}).values()
    if isinstance(scale, jax.core.Tracer):
        raise LaunchError("scale is an array that jax traces: it is a number that is known when attention is traced; multiply q by it")
    check_scale(scale)
    if scale is None:
        scale = 1 / math.sqrt(math.prod(q.shape[-1:]) or 1)
    how = How(flag("is_causal", is_causal), float(scale), flag("return_lse", return_lse))
    if not more:
        return _attend(how, *varying_alike(q, k, v), None)
    check_integers("cu_seqlens", *more)
    return _attend(how, *varying_alike(q, k, v, *more))


def _run(how: How, q: Any, k: Any, v: Any, cu_seqlens: Any) -> Any:
    options = {"is_causal": how.is_causal, "scale": how.scale, "return_lse": how.return_lse}
    product = Product("attention", (), word_of(q.dtype, "q"), tuple(options.items()), clears=cu_seqlens is not None)
    out, *lses = compute(product, q=q, k=k, v=v, cu_seqlens=cu_seqlens)
    if not how.return_lse:
        return out
    (lse,) = lses
    lse = jnp.moveaxis(lse, -2, -1)                     # heads last
    if not math.prod(k.shape):
        return out, jnp.full_like(lse, -jnp.inf)
    if cu_seqlens is not None:
        lse = jnp.where(_sequence(q.shape[0], cu_seqlens)[:, None] >= 0, lse, -jnp.inf)
    return out, lse


def _forward(how: How, q: Any, k: Any, v: Any, cu_seqlens: Any) -> tuple[Any, tuple[Any, ...]]:
    out, lse = _attend(replace(how, return_lse=True), q, k, v, cu_seqlens)
    return (out, lse) if how.return_lse else out, (q, k, v, cu_seqlens, out, lse)


def _backward(how: How, kept: tuple[Any, ...], gradient: Any) -> tuple[Any, ...]:
    """The weights are computed again from q, k and the log-sum-exps. Products have operands of q's type and sums in float32."""
    q, k, v, cu_seqlens, out, lse = kept
    of_out, of_lse = gradient if how.return_lse else (gradient, jnp.zeros_like(lse))
    if not math.prod(k.shape) or not math.prod(q.shape):
        return *map(jnp.zeros_like, (q, k, v)), none(cu_seqlens)
    packed = cu_seqlens is not None
    rows = [each[None] if packed else each for each in (q, out, of_out, lse, of_lse)]
    keys = [each[None] if packed else each for each in (k, v)]
    sequence = _sequence(q.shape[0], cu_seqlens) if packed else None
    of_q, of_k, of_v = _in_steps(how, rows, keys, sequence)
    found = (each[0] if packed else each for each in (of_q, of_k, of_v))
    return *(each.astype(like.dtype) for each, like in zip(found, (q, k, v), strict=True)), none(cu_seqlens)


_attend = differentiable(_run, _forward, _backward, 0)


def _sequence(count: int, cu_seqlens: Any) -> Any:
    """The sequence of each of `count` rows, -1 for none."""
    row = jnp.arange(count, dtype=jnp.int32)
    found = jnp.searchsorted(cu_seqlens, row, side="right") - 1
    return jnp.where((found >= 0) & (found < cu_seqlens.shape[0] - 1), found, -1)


def _in_steps(how: How, rows: list[Any], keys: list[Any], sequence: Any) -> tuple[Any, Any, Any]:
    """The gradients of q, k and v in float32. `rows` are q, out and its gradient [B, S, H, D], the log-sum-exp and its gradient [B, S, H];
    `keys` are k and v [B, Sk, Hkv, D]. `sequence`: that of each row, of packed sequences."""
    batches, count, heads, head = rows[0].shape
    kv_heads, steps = keys[0].shape[2], -(-count // QUERIES)
    size = min(QUERIES, count)
    positions = jnp.arange(keys[0].shape[1], dtype=jnp.int32)

    def by_step(each: Any, index: int) -> Any:
        """[steps, B, queries of a step, Hkv, heads that share, ..]; rows past the last one have a weight of 0."""
        fill = jnp.inf if index == 3 else 0
        padded = jnp.pad(each, [(0, 0), (0, steps * size - count), *((0, 0),) * (each.ndim - 2)], constant_values=fill)
        return jnp.moveaxis(padded.reshape(batches, steps, size, kv_heads, heads // kv_heads, *each.shape[3:]), 1, 0)

    def step(sums: tuple[Any, Any], some: tuple[Any, ...]) -> tuple[tuple[Any, Any], Any]:
        first, q, out, of_out, lse, of_lse = some
        k, v = keys
        scores = how.scale * jnp.einsum("bqhgd,bkhd->bhgqk", q, k, preferred_element_type=jnp.float32)
        seen = jnp.ones((size, positions.shape[0]), bool)
        row = first + jnp.arange(size, dtype=jnp.int32)
        if how.is_causal:
            seen &= positions[None] <= row[:, None]
        if sequence is not None:
            own = sequence.at[row].get(mode="fill", fill_value=-1)
            seen &= (own[:, None] == sequence[None]) & (own[:, None] >= 0)
        lse, of_lse = (jnp.moveaxis(each, 1, -1)[..., None] for each in (lse, of_lse))
        weights = jnp.where(seen, jnp.exp(scores - jnp.where(jnp.isneginf(lse), jnp.inf, lse)), 0)
        of_weights = jnp.einsum("bqhgd,bkhd->bhgqk", of_out.astype(v.dtype), v, preferred_element_type=jnp.float32)
        shift = jnp.moveaxis((of_out.astype(jnp.float32) * out.astype(jnp.float32)).sum(-1), 1, -1)[..., None]
        of_scores = (how.scale * weights * (of_weights - shift + of_lse)).astype(q.dtype)
        of_q = jnp.einsum("bhgqk,bkhd->bqhgd", of_scores, k, preferred_element_type=jnp.float32)
        of_k = jnp.einsum("bhgqk,bqhgd->bkhd", of_scores, q, preferred_element_type=jnp.float32)
        of_v = jnp.einsum("bhgqk,bqhgd->bkhd", weights.astype(v.dtype), of_out.astype(v.dtype), preferred_element_type=jnp.float32)
        return (sums[0] + of_k, sums[1] + of_v), of_q

    starts = jnp.arange(steps, dtype=jnp.int32) * size
    zeros = tuple(jnp.zeros_like(each, jnp.float32) for each in keys)
    (of_k, of_v), of_q = jax.lax.scan(step, zeros, (starts, *(by_step(each, index) for index, each in enumerate(rows))))
    of_q = jnp.moveaxis(of_q, 0, 1).reshape(batches, steps * size, heads, head)[:, :count]
    return of_q, of_k, of_v


__all__ = ["attention"]
