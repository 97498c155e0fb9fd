"""What products and their gradients are: float64 autograd of the same rounded operands, and how far a result may be from it.

A product of M x K by K x N is within S (16 + sqrt K) 2^-23 of the exact one, S = |A| |B|, and f32 operands are cut to 10 bits of fraction
(docs/gemm.md). A gradient that enters a product is rounded to the operands' type before. Every result is rounded once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

UNIT = {"bfloat16": 2.0 ** -8, "float16": 2.0 ** -11, "float32": 2.0 ** -24}
CUT = 2.0 ** -9                 # of both factors together, where f32 is multiplied as tf32
DERIVATIVES = {None: (1.0, 0.0), "relu": (1.0, 0.0), "silu": (1.1, 0.51), "gelu": (1.13, 0.8)}
"""The largest magnitudes of an activation's first and second derivatives."""


def unit(dtype: Any) -> float:
    """The relative error of rounding to a torch type."""
    return UNIT[str(dtype).removeprefix("torch.")]


def sums(k: int, dtype: Any) -> float:
    """The error of a product with this K, in units of S."""
    return (16 + math.sqrt(k)) * 2.0 ** -23 + (CUT if unit(dtype) < 2.0 ** -20 else 0.0)


@dataclass
class Case:
    """A product with a fusion: its operands are tensors that require grad."""

    a: Any
    b: Any
    bias: Any = None
    residual: Any = None
    c: Any = None
    alpha: float = 1.0
    beta: float = 0.0
    activation: str | None = None
    out_dtype: Any = None
    leaves: dict[str, Any] = field(default_factory=dict)

    def call(self, operator: Any) -> Any:
        """The operator on this case; defaults are left out."""
        plain = Case(self.a, self.b)
        named = {name: value for name in ("bias", "residual", "c", "alpha", "beta", "activation", "out_dtype")
                 if (value := getattr(self, name)) is not getattr(plain, name)}
        return operator(self.a, self.b, **named)

    def exact(self, torch: Any) -> tuple[Any, Any]:
        """What the activation is applied to, and the result."""
        z = self.alpha * (self.a @ self.b)
        if self.c is not None:
            z = z + self.beta * self.c
        if self.bias is not None:
            z = z + self.bias
        y = z if self.activation is None else getattr(torch.nn.functional, self.activation)(z)
        return z, y if self.residual is None else y + self.residual


def far(got: Any, exact: Any, allowed: Any) -> float:
    """The largest error in units of what is allowed."""
    error = (got.double() - exact).abs()
    return float((error / allowed.clamp(min=1e-300)).max()) if error.numel() else 0.0


def like(found: Any, shape: Any) -> Any:
    """A sum over the batches that an operand has not."""
    return found.sum_to_size(shape)


def check(torch: Any, case: Case, exact: Case, gradient: Any, y: Any) -> dict[str, float]:
    """The errors of y and of the gradients, in units of what is allowed. `exact` is the case in float64."""
    z, wanted = exact.exact(torch)
    names = [name for name in ("a", "b", "bias", "residual", "c") if getattr(exact, name) is not None]
    leaves = [getattr(exact, name) for name in names]
    found = dict(zip(names, torch.autograd.grad(wanted, leaves, gradient.double(), retain_graph=True), strict=True))
    with torch.no_grad():
        a, b, dtype = exact.a, exact.b, case.a.dtype
        vector_a, vector_b = a.ndim == 1, b.ndim == 1
        a, b = (a[None] if vector_a else a), (b[:, None] if vector_b else b)
        size = abs(exact.alpha) * (a.abs() @ b.abs())
        z_off = size * sums(a.shape[-1], dtype) + 2.0 ** -22 * (size + z.abs().reshape(size.shape))
        first, second = DERIVATIVES[case.activation]
        z, dy = z.reshape(size.shape), gradient.double().abs().reshape(size.shape)
        errors = {"y": far(y.reshape(size.shape), wanted.reshape(size.shape),
                           1.05 * unit(y.dtype) * (wanted.abs().reshape(size.shape) + z_off) + first * z_off
                           + 4e-6 * (1 + wanted.abs().reshape(size.shape)))}
        if case.activation == "relu":                           # its derivative jumps where z is 0
            dz_off = dy * (z.abs() <= z_off)
        else:
            dz_off = dy * (second * z_off + (4e-6 if case.activation else 0.0))
        dz = dy * first
        entering = dz_off + 1.01 * unit(dtype) * (dz + dz_off)  # rounded to the operands' type
        for name, (left, right), k in (("a", (None, b.abs().mT), b.shape[-1]), ("b", (a.abs().mT, None), a.shape[-2])):
            def product(of: Any, left: Any = left, right: Any = right) -> Any:
                return abs(case.alpha) * (of @ right if left is None else left @ of)

            shape = (a if name == "a" else b).shape
            depth = k * max(1, product(dz).numel() // math.prod(shape))
            allowed = like(product(entering) + sums(depth, dtype) * product(dz), shape)
            allowed = allowed + 1.05 * unit(dtype) * (found[name].abs().reshape(shape) + allowed) + 1e-30
            got = getattr(case, name).grad.cpu()
            errors[name] = far(got.reshape(shape), found[name].reshape(shape), allowed)
        for name, scale in (("bias", 1.0), ("residual", None), ("c", abs(case.beta))):
            if name not in found:
                continue
            got, shape = getattr(case, name).grad.cpu(), getattr(case, name).shape
            off = dy * 0 if scale is None else scale * (dz_off + 2.0 ** -20 * dz)
            allowed = like(off, shape) + 1.05 * unit(got.dtype) * (found[name].abs() + like(off, shape)) + 1e-30
            errors[name] = far(got, found[name], allowed)
    return errors
