"""The products of `ptxkit.gemm` as functions of jax arrays. docs/jax.md shows how each is used."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

from ptxkit.errors import LaunchError
from ptxkit.gemm.collective.epilogue_ops import ACTIVATIONS
from ptxkit.gemm.problem.dense import type_name
from ptxkit.gemm.problem.options import flag, number, refuse_scaled_result
from ptxkit.types import TYPES

from . import gradients, rows
from .framework import jax, jnp
from .gradients import Dense, Groups
from .primitive import varying_alike
from .product import arrays, check_integers, dtype_of, word_of

_SCALES = {"scale_a": "a_scale", "scale_b": "b_scale"}


def gemm(a: Any, b: Any, bias: Any = None, *, residual: Any = None, c: Any = None, alpha: float = 1.0, beta: float = 0.0,
         activation: str | None = None, out_dtype: Any = None, batch_invariant: bool = False, transpose_a: bool = False,
         transpose_b: bool = False) -> Any:
    """activation(alpha a @ b + beta c + bias) + residual, as `gemm.gemm`, with gradients of all arrays.

    a [..., M, K] and b [..., K, N], or vectors, of float16, bfloat16 or float32 (multiplied as tf32). With `transpose_a` a is
    [..., K, M], with `transpose_b` b is [..., N, K]: nothing is copied, where XLA copies `w.T`. `bias` has N elements, or shape (M, 1); c
    and residual have the shape of the result. alpha, beta and the rest are static. The result has the type of a unless `out_dtype` is
    given. jax.vmap adds a batch.
    """
    how = Dense(_number("alpha", alpha), _number("beta", beta), _named(activation), _result(a, out_dtype),
                **_flags(batch_invariant=batch_invariant, transpose_a=transpose_a, transpose_b=transpose_b))
    return _dense(gradients.dense, how, arrays({"a": a, "b": b}, {"bias": bias, "residual": residual, "c": c}))


def scaled_gemm(a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any = None, *, out_dtype: Any = None, use_fast_accum: bool = False,
                residual: Any = None, activation: str | None = None, batch_invariant: bool = False, transpose_a: bool = False,
                transpose_b: bool = False) -> Any:
    """activation(scales a @ b + bias) + residual of float8_e4m3fn and float8_e5m2 operands. There are no gradients.

    Scales are float32: one element each; rows [M] or [M, 1] and columns [N] or [1, N], of which one may have one element; or blocks,
    scale_a [M, K/128] and scale_b [K/128, N/128], also with `transpose_a` and `transpose_b`. The kernels read operands along K, so XLA is
    asked for a and b in that order. The result is bfloat16 unless `out_dtype` is given. The rest is as in `gemm`.
    """
    how = Dense(1.0, 0.0, _named(activation), _result(a, out_dtype), fast_accum=flag("use_fast_accum", use_fast_accum),
                **_flags(batch_invariant=batch_invariant, transpose_a=transpose_a, transpose_b=transpose_b))
    given = arrays({"a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b}, {"bias": bias, "residual": residual})
    return _dense(gradients.scaled, how, {_SCALES.get(name, name): array for name, array in given.items()})


def gated_gemm(a: Any, b: Any, *, out_dtype: Any = None, transpose_b: bool = False) -> Any:
    """silu(a @ gate) * (a @ up) of a [..., K] and b [K, 2 N], which has the gate and then the up projection; [..., N], with gradients.

    float16 or bfloat16. With `transpose_b` b is [2 N, K]: nothing is copied. The gradients compute the argument of silu again.
    jax.vmap over a alone adds rows to one product; products of mapped weights run one after another.
    """
    a, b = arrays({"a": a, "b": b}).values()
    transpose_b = flag("transpose_b", transpose_b)
    columns, k = b.shape[::-1] if b.ndim == 2 and not transpose_b else b.shape if b.ndim == 2 else (0, 0)
    if not a.ndim or b.ndim != 2 or a.shape[-1] != k or columns % 2:
        shapes = "[2 N, K] with transpose_b=True" if transpose_b else "[K, 2 N]; pass a weight [2 N, K] with transpose_b=True"
        raise LaunchError(f"a has shape {a.shape} and b {b.shape}: a is [..., K] and b {shapes}, the gate and then the up projection")
    flat = a.reshape(-1, k) if k else a.reshape(math.prod(a.shape[:-1]), 0)
    how = Groups(True, _result(a, out_dtype), transpose_b=transpose_b, clears=False)
    _refuse_fp8_result(how.out)
    found = gradients.gated(how, *varying_alike(flat, b))
    return found.reshape(*a.shape[:-1], columns // 2)


def grouped_gemm(a: Any, b: Any, offs: Any, *, out_dtype: Any = None, activation: str | None = None, batch_invariant: bool = False,
                 clear_rest: bool = True, transpose_b: bool = False, gather: Any = None, back: Any = None) -> Any:
    """Rows of each group of a [M, K] by weights b [G, K, N] of their own, as `gemm.group_gemm`, with gradients of a and b.

    offs is int32 [G], where each group ends, or [G + 1] that begins with where the first one begins. With `transpose_b` b is [G, N, K]. The
    kernels read weights along K: XLA is asked for b in that order, and pads a K of no multiple of 8.
    `activation="silu_and_mul"` takes twice as many columns of b, the gate and then the up projection. Rows outside of all groups are 0;
    with `clear_rest=False` they are not written, and anything may be there.

    With `gather`, int32 [M], a is [rows, K] and row i of the product is row gather[i] of a: tokens are not copied to their experts first.
    Numbers of no row stand for rows of zeros. The gradient of a sorts them, unless `back`, int32 [rows, choices of a row], has the rows of
    the product that take each row of a, and -1 for none. Nothing checks that `back` is true.
    """
    how = _of_groups(activation, _result(a, out_dtype), batch_invariant, clear_rest, transpose_b)
    given = arrays({"a": a, "b": b, "offs": offs}, {"gather": gather, "back": back})
    return _groups(gradients.groups, how, {"x": given["a"], "w": given["b"]}, given["offs"], given.get("gather"), given.get("back"))


def combine(y: Any, place: Any, weights: Any = None, *, starts: Any = None, back: Any = None, out_dtype: Any = None) -> Any:
    """out[t] = the sum over k of weights[t, k] * y[place[t, k]], k from 0 on, in float32, rounded once; [T, N], as `gemm.combine`, with
    gradients of y and of the weights.

    y is [S, N] of float16, bfloat16 or float32. place is int32 [T, K] and weights float32 [T, K]; without weights they are 1. Numbers of
    no row of y add nothing. With `starts`, int32 [T + 1], rows have any number of choices: place and weights are [choices], and those of
    row t are starts[t] to starts[t + 1] - 1. The gradient of y sorts the numbers, unless `back`, int32 [S, choices of a row], has the
    choices (t K + k) that take each row of y, and -1 for none. Nothing checks that `back` is true.
    """
    given = arrays({"y": y, "place": place}, {"weights": weights, "starts": starts, "back": back})
    if "back" in given:
        _check_back(given["back"], given["y"], "y")
    given = dict(zip(given, varying_alike(*given.values()), strict=True))
    return rows.combine(_result(y, out_dtype), *(given.get(name) for name in ("y", "place", "weights", "starts", "back")))


def scaled_grouped_gemm(a: Any, b: Any, scale_a: Any, scale_b: Any, offs: Any, *, out_dtype: Any = None, use_fast_accum: bool = False,
                        activation: str | None = None, batch_invariant: bool = False, clear_rest: bool = True,
                        transpose_b: bool = False) -> Any:
    """`grouped_gemm` of float8_e4m3fn and float8_e5m2 operands. There are no gradients.

    Scales are float32: one element for a, and one for b or for each group; rows [M] and columns [G, N] or [G, 1, N]; or blocks, scale_a
    [M, K/128] and scale_b [G, K/128, N/128], also with `transpose_b`.
    """
    how = _of_groups(activation, _result(a, out_dtype), batch_invariant, clear_rest, transpose_b, flag("use_fast_accum", use_fast_accum))
    *operands, offs = arrays({"a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b, "offs": offs}).values()
    return _groups(gradients.scaled_groups, how, dict(zip(("x", "w", "x_scale", "w_scale"), operands, strict=True)), offs)


def weight_gradient(a: Any, b: Any, offs: Any, *, out_dtype: Any = None) -> Any:
    """out[g] = a[offs[g]:offs[g + 1]].T @ b[offs[g]:offs[g + 1]]: a [T, M] and b [T, N] give [G, M, N], with gradients of a and b.

    float16 or bfloat16. offs is int32 [G + 1]. A group may have any length, also 0. The kernel reads rows of multiples of 8 elements:
    others are padded by XLA.
    """
    a, b, offs = arrays({"a": a, "b": b, "offs": offs}).values()
    if a.ndim != 2 or b.ndim != 2 or a.shape[0] != b.shape[0]:
        raise LaunchError(f"a has shape {a.shape} and b {b.shape}: groups along K are rows of both, as many in a as in b")
    if offs.ndim != 1 or not offs.shape[0]:
        raise LaunchError(f"offs has shape {offs.shape}: it is int32 [G + 1], where each group begins, and the end of the last")
    check_integers("offs", offs)
    return gradients.along_k(_result(a, out_dtype), *varying_alike(a, b, offs))


# ----------------------------------------------------------------------------------------------------------- arguments


def _number(name: str, value: Any) -> float:
    """A number, or the one of an array without extents that is not traced."""
    if isinstance(value, Real):
        return number(name, value)
    try:
        if value.shape == ():
            return number(name, value.item())
    except (AttributeError, jax.errors.JAXTypeError):
        pass
    raise LaunchError(f"{name} is {type(value).__name__}: it is a number that is known when the product is traced; multiply the result by "
                      "an array, or name the argument in static_argnames")


def _flags(**given: Any) -> dict[str, bool]:
    return {name: flag(name, value) for name, value in given.items()}


def _of_groups(activation: str | None, out: str, batch_invariant: Any, clear_rest: Any, transpose_b: Any,
               fast_accum: bool | None = None) -> Groups:
    _refuse_fp8_result(out)
    return Groups(_silu_and_mul(activation), out, flag("batch_invariant", batch_invariant), flag("clear_rest", clear_rest),
                  flag("transpose_b", transpose_b), fast_accum)


def _refuse_fp8_result(out: str) -> None:
    if TYPES[out].bits == 8:
        refuse_scaled_result(f"out_dtype is {dtype_of(out).name}")


def _named(activation: str | None) -> str | None:
    if activation is not None and not (isinstance(activation, str) and activation in ACTIVATIONS):
        raise LaunchError(f"activation={activation!r}: it is one of {', '.join(ACTIVATIONS)}; apply another function to the result")
    return activation


def _result(a: Any, out_dtype: Any) -> str:
    """ptxkit's name of the result's type: the one asked for, that of the operands, or bfloat16 for fp8."""
    dtype = arrays({"a": a})["a"].dtype
    if out_dtype is not None:
        try:
            return str(type_name(jnp.dtype(out_dtype)))
        except TypeError:                       # no type of NumPy: ptxkit's name of one, or none
            return str(type_name(out_dtype))
    return "bf16" if dtype.itemsize == 1 else word_of(dtype, "a")


def _silu_and_mul(activation: str | None) -> bool:
    if activation is not None and not (isinstance(activation, str) and activation == "silu_and_mul"):
        raise LaunchError(f"activation={activation!r}: it is 'silu_and_mul' or None")
    return activation is not None


def _dense(product: Any, how: Dense, given: dict[str, Any]) -> Any:
    """A dense product. Vectors are matrices of one row or column within."""
    a, b = given["a"], given["b"]
    for name, operand, turned in (("a", a, how.transpose_a), ("b", b, how.transpose_b)):
        if not operand.ndim:
            raise LaunchError(f"{name} is a number: it must be a vector, a matrix, or a batch of matrices")
        if turned and operand.ndim == 1:
            raise LaunchError(f"{name} is a vector, and transpose_{name} says that its extents are exchanged: leave it out")
    row, column = a.ndim == 1, b.ndim == 1
    given["a"], given["b"] = a[None] if row else a, b[:, None] if column else b
    axes = tuple(axis for axis, there in ((-2, row), (-1, column)) if there)
    for name in {"residual", "c"} & given.keys() if axes else ():
        given[name] = jnp.expand_dims(given[name], axes)
    out = product(how, dict(zip(given, varying_alike(*given.values()), strict=True)))
    return jnp.squeeze(out, axes) if axes else out


def _groups(product: Any, how: Groups, given: dict[str, Any], offs: Any, gather: Any = None, back: Any = None) -> Any:
    x, w = given["x"], given["w"]
    if x.ndim != 2 or w.ndim != 3:
        raise LaunchError(f"a has shape {x.shape} and b {w.shape}: groups of rows are a [M, K] and b [G, K, N]; a batch of products is "
                          "ptxkit.jax.gemm, groups along K are ptxkit.jax.weight_gradient")
    if offs.shape not in ((w.shape[0],), (w.shape[0] + 1,)):
        raise LaunchError(f"offs has shape {offs.shape}: for {w.shape[0]} groups it is ({w.shape[0]},), where each group ends, or "
                          f"({w.shape[0] + 1},) that begins with where the first one begins")
    check_integers("offs", offs)
    starts = offs if offs.shape[0] == w.shape[0] + 1 else jnp.pad(offs, (1, 0))
    numbers = {name: array for name, array in (("gather", gather), ("back", back)) if array is not None}
    if "back" in numbers:
        if "gather" not in numbers:
            raise LaunchError("back says which rows of the product take each row of a that is gathered: give gather as well")
        _check_back(numbers["back"], x, "a")
    if "gather" in numbers and (numbers["gather"].ndim != 1 or numbers["gather"].dtype != jnp.int32):
        raise LaunchError(f"gather is {numbers['gather'].dtype.name} {numbers['gather'].shape}: it is int32 [M], the row of a for each row "
                          "of the product")
    alike = varying_alike(*given.values(), starts, *numbers.values())
    operands, others = dict(zip(given, alike, strict=False)), dict(zip(numbers, alike[len(given) + 1:], strict=True))
    return product(how, operands, alike[len(given)], *(others.get(name) for name in (("gather", "back") if others else ())))


def _check_back(back: Any, rows: Any, name: str) -> None:
    if back.ndim != 2 or back.dtype != jnp.int32 or back.shape[:1] != rows.shape[:1]:
        raise LaunchError(f"back is {back.dtype.name} {back.shape}: it is int32 [{rows.shape[0]}, choices of a row], the numbers of the "
                          f"choices that take each row of {name}, -1 for none")


__all__ = ["combine", "gated_gemm", "gemm", "grouped_gemm", "scaled_gemm", "scaled_grouped_gemm", "weight_gradient"]
