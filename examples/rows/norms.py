"""RMS norm and layer norm of each row, with and without a residual, bf16 in and out, f32 between.

    rms norm     y = h / sqrt(mean of h^2 + eps) * weight
    layer norm   y = (h - mean) / sqrt(mean of (h - mean)^2 + eps) * weight + bias
    h = x, or with a residual h = x + residual, rounded to bf16 and stored for the next layer

The row stays in registers. So the variance is that of differences from the mean, which loses nothing, and costs no second read. Squares are
f32, as torch's are: a row whose squares add up to more than 2^128 becomes zeros.

    python -m examples.rows.norms
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from examples.host.problem import Array, Problem, Step, apart, extents, narrow, normal, poison, report, taken, ulps, wide
from examples.rows.held import Row, block, ctas
from ptxkit import Ptr, Reg, kernel
from ptxkit.fragments import pack, unpack
from ptxkit.ptx import add, fma, mul, rsqrt, sub
from ptxkit.types import bf16, f32, u32

EPS = 1e-5


def added(row: Row, x: Ptr[bf16], residual: Ptr[bf16] | None, h: Ptr[bf16] | None) -> list[list[Reg[f32]]]:
    """The row of x, or of h = x + residual, which is stored, as it is after rounding to bf16: the norm is of what the next layer reads."""
    values = row.load(x)
    if residual is None or h is None:
        return values
    other = row.load(residual)
    rounded = []
    for mine, theirs in zip(values, other, strict=True):
        sums = [add.rn.f32(a, b) for a, b in zip(mine, theirs, strict=True)]
        words = [pack(bf16, sums[i], sums[i + 1]) for i in range(0, len(sums), 2)]
        rounded.append([value for word in words for value in unpack(bf16, word)])
    row.store(h, rounded)
    return rounded


def root(row: Row, values: list[list[Reg[f32]]], eps: Reg[f32]) -> Reg[f32]:
    """1 / sqrt(mean of squares + eps), one a row: rsqrt.approx is good to 2^-22."""
    total = row.reduce(add.rn.f32, [[mul.rn.f32(v, v) for v in eight] for eight in values])
    return rsqrt.approx.ftz.f32(fma.rn.f32(total, 1 / row.columns, eps))


def rms(x: Ptr[bf16], residual: Ptr[bf16] | None, h: Ptr[bf16] | None, weight: Ptr[bf16], y: Ptr[bf16], rows: Reg[u32], eps: Reg[f32],
        columns: int) -> None:
    """The body of both kernels. The weights are asked for before the sums, so that they arrive meanwhile."""
    row = Row(rows, columns)
    values = added(row, x, residual, h)
    weights = row.weights(weight)
    scale = root(row, values, eps)
    row.store(y, [[mul.rn.f32(mul.rn.f32(v, scale), w) for v, w in zip(*pair, strict=True)] for pair in zip(values, weights, strict=True)])


def layer(x: Ptr[bf16], residual: Ptr[bf16] | None, h: Ptr[bf16] | None, weight: Ptr[bf16], bias: Ptr[bf16], y: Ptr[bf16],
          rows: Reg[u32], eps: Reg[f32], columns: int) -> None:
    """The body of both kernels. Columns after the end are left out of the squares: they hold 0, and 0 - mean is not 0."""
    row = Row(rows, columns)
    values = added(row, x, residual, h)
    weights, biases = row.weights(weight), row.weights(bias)
    mean = mul.rn.f32(row.reduce(add.rn.f32, values), 1 / columns)
    for i, eight in enumerate(values):
        guard = row.guard(i)
        for value in eight:
            sub.rn.f32(value, value, mean, pred=guard)
    scale = root(row, values, eps)
    row.store(y, [[fma.rn.f32(mul.rn.f32(v, scale), w, b) for v, w, b in zip(*three, strict=True)]
                  for three in zip(values, weights, biases, strict=True)])


@kernel(target="sm_90a", block=block, min_ctas=None)
def rms_norm(x: Ptr[bf16], weight: Ptr[bf16], y: Ptr[bf16], rows: Reg[u32], eps: Reg[f32], *, COLUMNS: int = 4096) -> None:
    rms(x, None, None, weight, y, rows, eps, COLUMNS)


@kernel(target="sm_90a", block=block, min_ctas=None)
def add_rms_norm(x: Ptr[bf16], residual: Ptr[bf16], h: Ptr[bf16], weight: Ptr[bf16], y: Ptr[bf16], rows: Reg[u32], eps: Reg[f32], *,
                 COLUMNS: int = 4096) -> None:
    """residual and h are two arrays: `ld.global.nc` is for memory that nobody writes while the kernel runs."""
    rms(x, residual, h, weight, y, rows, eps, COLUMNS)


@kernel(target="sm_90a", block=block, min_ctas=None)
def layer_norm(x: Ptr[bf16], weight: Ptr[bf16], bias: Ptr[bf16], y: Ptr[bf16], rows: Reg[u32], eps: Reg[f32], *,
               COLUMNS: int = 4096) -> None:
    layer(x, None, None, weight, bias, y, rows, eps, COLUMNS)


@kernel(target="sm_90a", block=block, min_ctas=None)
def add_layer_norm(x: Ptr[bf16], residual: Ptr[bf16], h: Ptr[bf16], weight: Ptr[bf16], bias: Ptr[bf16], y: Ptr[bf16], rows: Reg[u32],
                   eps: Reg[f32], *, COLUMNS: int = 4096) -> None:
    layer(x, residual, h, weight, bias, y, rows, eps, COLUMNS)


KERNELS = {("rms", False): rms_norm, ("rms", True): add_rms_norm, ("layer", False): layer_norm, ("layer", True): add_layer_norm}


def steps(kind: str, x: Any, weight: Any, y: Any, *, bias: Any = None, residual: Any = None, h: Any = None, eps: float = EPS) -> list[Step]:
    """The launch of a norm, "rms" or "layer", for x and y [rows, columns], weight and bias [columns]; with residual and h [rows, columns],
    h = x + residual is stored too."""
    rows, columns = extents("x [rows, columns]", x)
    grid = ctas(rows, columns)
    if kind not in ("rms", "layer") or (kind == "rms" and bias is not None):
        raise ValueError(f"a norm is \"rms\", without a bias, or \"layer\", not {kind!r}" + (" with one" if bias is not None else ""))
    taken(x=(x, (rows, columns)), y=(y, (rows, columns)), weight=(weight, (columns,)))
    if kind == "layer":
        taken(bias=(bias, (columns,)))
    if residual is not None or h is not None:
        taken(residual=(residual, (rows, columns)), h=(h, (rows, columns)))
    given = {"x": x, "weight": weight, "y": y, "bias": bias, "residual": residual, "h": h}
    apart("y", "h", **{name: array for name, array in given.items() if array is not None})
    ordered = [x, *((residual, h) if residual is not None else ()), weight, *((bias,) if kind == "layer" else ()), y]
    return [Step(KERNELS[kind, residual is not None], grid, (*ordered, rows, eps), {"COLUMNS": columns}, ())]


def problem(rows: int, columns: int, kind: str = "rms", residual: bool = False, seed: int = 0) -> Problem:
    """Normal rows away from zero, weights near 1."""
    operands = {"x": ("bf16", narrow(wide("bf16", normal(seed, rows, columns)) + 0.5)), "y": ("bf16", poison("bf16", rows, columns)),
                "weight": ("bf16", narrow(1 + 0.1 * normal(seed + 1, columns, kind="f32")))}
    right: dict[str, tuple[Array, Any]] = {}
    h = wide("bf16", operands["x"][1])
    if kind == "layer":
        operands["bias"] = "bf16", normal(seed + 2, columns)
    if residual:
        operands |= {"residual": ("bf16", normal(seed + 3, rows, columns)), "h": ("bf16", poison("bf16", rows, columns))}
        total = h + wide("bf16", operands["residual"][1])
        h = wide("bf16", narrow(total))
        right["h"] = total, 1.01 * ulps(total)
    weight, bias = wide("bf16", operands["weight"][1]), wide("bf16", operands["bias"][1]) if kind == "layer" else 0.0
    middle = h - h.mean(1, keepdims=True) if kind == "layer" else h
    scaled = middle / np.sqrt((middle**2).mean(1, keepdims=True) + EPS) * weight
    # One rounding to bf16; the f32 steps before it are good to 2^-19 of the terms, which the bias may cancel.
    right["y"] = scaled + bias, 1.01 * ulps(scaled + bias) + 2.0**-19 * (np.abs(scaled) + np.abs(bias) + 1)

    def made(a: Mapping[str, Any]) -> list[Step]:
        return steps(kind, a["x"], a["weight"], a["y"], bias=a.get("bias"), residual=a.get("residual"), h=a.get("h"))

    return Problem(operands, made, right, bytes=rows * columns * (8 if residual else 4), library=_library(kind, residual))


def _library(kind: str, residual: bool) -> Callable[[Any, Mapping[str, Any]], Callable[[], Any]]:
    def of(torch: Any, a: Mapping[str, Any]) -> Callable[[], Any]:
        def norm(x: Any) -> Any:
            shape = (x.shape[1],)
            if kind == "rms":
                return torch.nn.functional.rms_norm(x, shape, a["weight"], EPS)
            return torch.nn.functional.layer_norm(x, shape, a["weight"], a["bias"], EPS)

        def both(x: Any, other: Any) -> Any:
            h = x + other
            return h, norm(h)

        compiled = torch.compile(both if residual else norm)
        return (lambda: compiled(a["x"], a["residual"])) if residual else (lambda: compiled(a["x"]))

    return of


if __name__ == "__main__":
    print(report("norms", problem(4096, 8192, "layer", True), problem(3, 1160, "layer", True)))
