"""The products with their gradients, out of the products themselves: they can be differentiated again.

What a fusion adds after the product is differentiated in float32. Where that needs what the activation was applied to, the product is
computed again with a float32 result: nothing is kept for it but the operands.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ptxkit.dsl.arguments import WORDS
from ptxkit.errors import LaunchError
from ptxkit.types import TYPES

from . import rows
from .framework import jax, jnp
from .primitive import multiply
from .product import Product, dtype_of
from .tangents import differentiable, none

Operands = dict[str, Any]
ROWS = 8                        # elements, of which rows of groups have multiples


@dataclass(frozen=True, slots=True)
class Dense:
    """What is static of a dense product. `out`: ptxkit's name of the result's type."""

    alpha: float = 1.0
    beta: float = 0.0
    activation: str | None = None
    out: str = "f32"
    batch_invariant: bool = False
    transpose_a: bool = False
    transpose_b: bool = False
    fast_accum: bool | None = None


@dataclass(frozen=True, slots=True)
class Groups:
    """What is static of a product of groups."""

    gated: bool = False
    out: str = "f32"
    batch_invariant: bool = False
    clears: bool = True
    transpose_b: bool = False
    fast_accum: bool | None = None


def _dense(how: Dense, operands: Operands) -> Any:
    options = {name: getattr(how, name) for name in ("alpha", "beta", "activation", "fast_accum", "batch_invariant")}
    turned = frozenset(name for name, there in (("a", how.transpose_a), ("b", how.transpose_b)) if there)
    return multiply(Product("dense", (), how.out, tuple(options.items()), turned), **operands)


def _groups(how: Groups, operands: Operands, offs: Any, gather: Any = None, back: Any = None, *, whole: bool = False) -> Any:
    options = {"gated": how.gated, "fast_accum": how.fast_accum, "batch_invariant": how.batch_invariant}
    turned = set() if how.transpose_b else {"w"}                # the kernels have weights [G, N, K]
    scale = operands.get("w_scale")
    if scale is not None and scale.ndim == 3:                   # blocks [G, N/128, K/128], columns [G, N, 1]
        turned.add("w_scale")
    product = Product("groups", (), how.out, tuple(options.items()), frozenset(turned), how.clears, whole)
    return multiply(product, lengths=offs, gather=gather, **_lined(operands, 2 if how.transpose_b else 1))


def _lined(operands: Operands, along: int) -> Operands:
    """Operands of 16 bits with further zeros of K up to a multiple of 8. `along`: which axis of w is K."""
    x, w = operands["x"], operands["w"]
    missing = -x.shape[1] % ROWS
    if not missing or x.dtype.itemsize != 2 or x.shape[1] != w.shape[along]:
        return operands
    of_w = [(0, missing if axis == along else 0) for axis in range(3)]
    return {**operands, "x": jnp.pad(x, ((0, 0), (0, missing))), "w": jnp.pad(w, of_w)}


# -------------------------------------------------------------------------------------------------------------- dense


def _dense_forward(how: Dense, operands: Operands) -> tuple[Any, Operands]:
    _refuse_fp8("gemm", *operands.values(), out=how.out)
    return dense(how, operands), operands


def _dense_backward(how: Dense, operands: Operands, gradient: Any) -> tuple[Operands]:
    a, b = operands["a"], operands["b"]
    dz, found = gradient, {}
    if how.activation is not None:
        inner = {name: operand for name, operand in operands.items() if name != "residual"}
        z = dense(replace(how, activation=None, out="f32"), inner)
        dz = _activated(how.activation, gradient.astype(jnp.float32), z)
    if "residual" in operands:
        found["residual"] = gradient.astype(operands["residual"].dtype)
    if "c" in operands:
        found["c"] = (how.beta * dz.astype(jnp.float32)).astype(operands["c"].dtype)
    if "bias" in operands:
        found["bias"] = _of_bias(dz, operands["bias"])
    dz = dz.astype(a.dtype)
    plain = Dense(alpha=how.alpha, batch_invariant=how.batch_invariant)
    if how.transpose_a:
        found["a"] = _like(a, plain, b, dz, how.transpose_b, True)
    else:
        found["a"] = _like(a, plain, dz, b, False, not how.transpose_b)
    if how.transpose_b:
        found["b"] = _like(b, plain, dz, a, True, how.transpose_a)
    elif a.ndim > 2 and b.ndim == 2 and not how.transpose_a:               # all batches are one product
        found["b"] = _like(b, plain, a.reshape(-1, a.shape[-1]), dz.reshape(-1, dz.shape[-1]), True, False)
    else:
        found["b"] = _like(b, plain, a, dz, not how.transpose_a, False)
    return ({name: found[name] for name in operands},)


def _like(operand: Any, plain: Dense, a: Any, b: Any, transpose_a: bool, transpose_b: bool) -> Any:
    """A product with the shape and type of an operand: summed over batches that the operand has not."""
    def product(out: Any) -> Any:
        how = replace(plain, out=WORDS[jnp.dtype(out).name], transpose_a=transpose_a, transpose_b=transpose_b)
        return dense(how, {"a": a, "b": b})

    batches = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if batches == operand.shape[:-2]:
        return product(operand.dtype)
    return _summed(product(jnp.float32), operand.shape).astype(operand.dtype)


def _summed(found: Any, shape: tuple[int, ...]) -> Any:
    """The sum over extents that were broadcast from this shape."""
    missing = found.ndim - len(shape)
    found = found.sum(tuple(range(missing))) if missing else found
    axes = tuple(axis for axis, (extent, had) in enumerate(zip(shape, found.shape, strict=True)) if extent != had)
    return found.sum(axes, keepdims=True) if axes else found


def _of_bias(dz: Any, bias: Any) -> Any:
    rows = bias.ndim == 2 and not (bias.shape[0] == 1 and bias.shape[1] == dz.shape[-1])
    kept = dz.ndim - (2 if rows else 1)
    total = dz.astype(jnp.float32).sum(tuple(axis for axis in range(dz.ndim) if axis != kept))
    return total.reshape(bias.shape).astype(bias.dtype)


def _activated(activation: str, gradient: Any, z: Any) -> Any:
    """The gradient of z, in float32, from that of activation(z)."""
    if activation == "relu":
        return jnp.where(z > 0, gradient, 0)
    function = {"gelu": functools.partial(jax.nn.gelu, approximate=False), "silu": jax.nn.silu}[activation]
    return jax.vjp(function, z)[1](gradient)[0]


# ------------------------------------------------------------------------------------------------------------- groups


def _groups_forward(how: Groups, operands: Operands, offs: Any, gather: Any, back: Any) -> tuple[Any, tuple[Any, ...]]:
    _refuse_fp8("grouped_gemm", *operands.values())
    return groups(how, operands, offs, gather, back), (operands, offs, gather, back)


def _groups_backward(how: Groups, kept: tuple[Any, ...], gradient: Any) -> tuple[Any, ...]:
    """Rows of x outside of all groups have zeros."""
    operands, offs, gather, back = kept
    x, w = operands["x"], operands["w"]
    dz = gradient
    if how.gated:
        z = groups(replace(how, gated=False, out="f32", clears=True), operands, offs, gather, back)
        dz = _of_gate(z, gradient)
    dz, word = dz.astype(x.dtype), WORDS[x.dtype.name]
    of_rows = Groups(out=word, batch_invariant=how.batch_invariant, transpose_b=not how.transpose_b)
    dx = groups(of_rows, {"x": dz, "w": w}, offs)
    if gather is not None:
        dx, x = rows.of_rows(dx, x.shape[0], word, gather[:, None], back=back), rows.taken(x, gather)
    dw = along_k(word, dz, x, offs) if how.transpose_b else along_k(word, x, dz, offs)
    return {"x": dx, "w": dw}, *map(none, (offs, gather, back))


def _gated(how: Groups, x: Any, w: Any) -> Any:
    """A product with a gate, as one group of all rows."""
    return _groups(how, {"x": x, "w": w[None]}, jnp.asarray((0, x.shape[0]), jnp.int32), whole=True)


def _gated_forward(how: Groups, x: Any, w: Any) -> tuple[Any, tuple[Any, Any]]:
    _refuse_fp8("gated_gemm", x, w)
    return gated(how, x, w), (x, w)


def _gated_backward(how: Groups, kept: tuple[Any, Any], gradient: Any) -> tuple[Any, Any]:
    """Of dense products, which take any K and N: of the argument of silu in float32, then of the operands."""
    x, w = kept
    z = dense(Dense(out="f32", transpose_b=how.transpose_b), {"a": x, "b": w})
    found = _dense_backward(Dense(out="f32", transpose_b=how.transpose_b), {"a": x, "b": w}, _of_gate(z, gradient))[0]
    return found["a"], found["b"]


def _of_gate(z: Any, gradient: Any) -> Any:
    """The gradient of z, gate and up, in float32, from that of silu(gate) * up."""
    _, back = jax.vjp(lambda z: jax.nn.silu(z[:, :z.shape[1] // 2]) * z[:, z.shape[1] // 2:], z)
    return back(gradient.astype(jnp.float32))[0]


def _along_k(out: str, a: Any, b: Any, offs: Any) -> Any:
    """Rows whose columns are no multiple of 8 are padded for the kernel."""
    (_, m), (_, n) = a.shape, b.shape
    a, b = (jnp.pad(each, ((0, 0), (0, -each.shape[1] % ROWS))) if each.shape[1] % ROWS else each for each in (a, b))
    return multiply(Product("groups_along_k", (), out), a=a, b=b, lengths=offs)[:, :m, :n]


def _along_k_forward(out: str, a: Any, b: Any, offs: Any) -> tuple[Any, tuple[Any, Any, Any]]:
    return along_k(out, a, b, offs), (a, b, offs)


def _along_k_backward(out: str, kept: tuple[Any, Any, Any], gradient: Any) -> tuple[Any, Any, Any]:
    a, b, offs = kept
    dz, word = gradient.astype(a.dtype), WORDS[a.dtype.name]
    of_a = groups(Groups(out=word, transpose_b=True), {"x": b, "w": dz}, offs)
    return of_a, groups(Groups(out=word), {"x": a, "w": dz}, offs), none(offs)


# ------------------------------------------------------------------------------------------------------ no gradients


def _refused(what: str, instead: str) -> Any:
    def forward(*given: Any) -> Any:
        raise LaunchError(f"{what} has no gradients: multiply dequantised operands with {instead}, or put jax.lax.stop_gradient around its "
                          "operands")

    return forward


def _refuse_fp8(what: str, *operands: Any, out: str = "f32") -> None:
    """Raise LaunchError for operands, or a result of type `out`, that cannot hold gradients: these would be rounded to 8 bits."""
    kind = next((jnp.dtype(operand.dtype).name for operand in operands if jnp.dtype(operand.dtype).itemsize == 1), None)
    if kind is not None:
        raise LaunchError(f"{what} has operands of {kind}, and there are gradients of float32, bfloat16 and float16: multiply dequantised "
                          "operands, or put jax.lax.stop_gradient around its operands")
    if TYPES[out].bits == 8:
        raise LaunchError(f"{what} has a result of {dtype_of(out).name}, whose gradient would be rounded to 8 bits: take another "
                          "out_dtype, or put jax.lax.stop_gradient around its operands")


def _no_backward(*given: Any) -> Any:
    raise AssertionError("the forward pass is refused")


dense = differentiable(_dense, _dense_forward, _dense_backward, 0)
groups = differentiable(_groups, _groups_forward, _groups_backward, 0)
along_k = differentiable(_along_k, _along_k_forward, _along_k_backward, 0)
gated = differentiable(_gated, _gated_forward, _gated_backward, 0)
scaled = differentiable(_dense, _refused("scaled_gemm", "gemm"), _no_backward, 0)
scaled_groups = differentiable(_groups, _refused("scaled_grouped_gemm", "grouped_gemm"), _no_backward, 0)

__all__ = ["Dense", "Groups", "along_k", "dense", "gated", "groups", "scaled", "scaled_groups"]
