"""What products and their gradients are, in float64 of the same rounded operands, and how far a result may be from it.

A product of M x K by K x N is within S (16 + sqrt K) 2^-23 of the exact one, S = |A| |B|; f32 operands are cut to 10 bits of fraction,
and sums of fp8 keep 14 bits (docs/gemm.md). A gradient that enters a product is rounded to the operands' type before. Every result is
rounded once.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ptxkit.gemm.tools.reference import accumulation

UNIT = {"bfloat16": 2.0 ** -8, "float16": 2.0 ** -11, "float32": 2.0 ** -24, "float8_e4m3fn": 0.0, "float8_e5m2": 0.0}
CUT = 2.0 ** -9                 # of both factors together, where f32 is multiplied as tf32
DERIVATIVES = {None: (1.0, 0.0), "relu": (1.0, 0.0), "silu": (1.1, 0.51), "gelu": (1.13, 0.8)}
"""The largest magnitudes of an activation's first and second derivatives."""
APPROXIMATE = 4e-6              # of the functions in an epilogue, relative

_erf = np.vectorize(math.erf, otypes=[float])


def exact(array: Any) -> Any:
    """An array in float64."""
    return np.asarray(array).astype(np.float64)


def unit(dtype: Any) -> float:
    """The relative error of rounding to a type."""
    return UNIT[np.dtype(dtype).name]


def sums(k: int, dtype: Any) -> float:
    """The error of a product with this K, in units of S."""
    name = np.dtype(dtype).name
    return accumulation(k, "e4m3" if name.startswith("float8") else "bf16") + (CUT if name == "float32" else 0.0)


def activated(name: str | None, z: Any) -> tuple[Any, Any]:
    """An activation and its derivative."""
    if name is None:
        return z, np.ones_like(z)
    if name == "relu":
        return np.maximum(z, 0), (z > 0).astype(float)
    if name == "silu":
        s = 1 / (1 + np.exp(-z))
        return z * s, s * (1 + z * (1 - s))
    p = 0.5 * (1 + _erf(z / math.sqrt(2)))
    return z * p, p + z * np.exp(-z * z / 2) / math.sqrt(2 * math.pi)


def near(got: Any, wanted: Any, off: Any, dtype: Any) -> None:
    """Fail unless each element is within `off` before it is rounded to its type."""
    assert np.dtype(got.dtype) == np.dtype(dtype)
    assert got.shape == wanted.shape
    allowed = off + 1.05 * unit(dtype) * (np.abs(wanted) + off) + 1e-30
    excess = np.abs(exact(got) - wanted) / allowed
    assert got.size == 0 or excess.max() <= 1, excess.max()


def turned(array: Any) -> Any:
    return np.swapaxes(array, -1, -2)


def summed(array: Any, shape: tuple[int, ...]) -> Any:
    """The sum over batches that an operand has not."""
    array = array.sum(tuple(range(array.ndim - len(shape))))
    return array.sum(tuple(i for i, (x, y) in enumerate(zip(array.shape, shape, strict=True)) if x != y), keepdims=True)


def check(given: dict[str, Any], how: dict[str, Any], gradient: Any, y: Any, found: dict[str, Any] | None = None) -> None:
    """A dense product of matrices and batches, and its gradients where they are given."""
    operands = {name: exact(array) for name, array in given.items()}
    a = turned(operands["a"]) if how.get("transpose_a") else operands["a"]
    b = turned(operands["b"]) if how.get("transpose_b") else operands["b"]
    alpha, beta, dtype = how.get("alpha", 1.0), how.get("beta", 0.0), given["a"].dtype
    size = abs(alpha) * (np.abs(a) @ np.abs(b))
    z = alpha * (a @ b) + beta * operands.get("c", 0.0) + operands.get("bias", 0.0)
    z_off = size * sums(a.shape[-1], dtype) + 2.0 ** -22 * (size + np.abs(z))
    value, slope = activated(how.get("activation"), z)
    first, second = DERIVATIVES[how.get("activation")]
    approximate = APPROXIMATE if how.get("activation") else 0.0
    wanted = value + operands.get("residual", 0.0)
    near(y, wanted, first * z_off + approximate * (1 + np.abs(value)) + 2.0 ** -22 * np.abs(wanted), how.get("out_dtype", dtype))
    if found is None:
        return
    dy = exact(gradient)
    dz = dy * slope
    jumps = np.abs(dy) * (np.abs(z) <= z_off) if how.get("activation") == "relu" else 0.0
    dz_off = np.abs(dy) * (second * z_off + approximate * (1 + np.abs(z))) + jumps
    entering = dz_off + 1.01 * unit(dtype) * (np.abs(dz) + dz_off)
    for name, of, left in (("a", turned(b), False), ("b", turned(a), True)):
        def product(array: Any, of: Any = of, left: bool = left) -> Any:
            return of @ array if left else array @ of

        def size_of(array: Any, of: Any = of, left: bool = left) -> Any:
            return np.abs(of) @ array if left else array @ np.abs(of)

        shape = (a if name == "a" else b).shape
        exactly, whole = alpha * product(dz), abs(alpha) * size_of(np.abs(dz))
        depth = of.shape[-1 if left else -2] * max(1, whole.size // math.prod(shape))
        off = summed(abs(alpha) * size_of(entering) + sums(depth, dtype) * whole, shape)
        exactly = summed(exactly, shape)
        if how.get(f"transpose_{name}"):
            off, exactly = turned(off), turned(exactly)
        near(found[name], exactly, off, given[name].dtype)
    if "bias" in given:
        total = tuple(range(dz.ndim - 2))
        shape = operands["bias"].shape
        column = len(shape) == 2 and shape[1] == 1
        axes = (*total, dz.ndim - (1 if column else 2))
        near(found["bias"], dz.sum(axes).reshape(shape), (dz_off + 2.0 ** -20 * np.abs(dz)).sum(axes).reshape(shape), given["bias"].dtype)
    if "c" in given:
        near(found["c"], beta * dz, abs(beta) * (dz_off + 2.0 ** -22 * np.abs(dz)), given["c"].dtype)
    if "residual" in given:
        near(found["residual"], dy, 0 * dy, given["residual"].dtype)
