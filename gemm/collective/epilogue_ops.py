"""Epilogue operations: what is applied to the accumulators before they are stored, in f32 and in registers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ptxkit import Ptr, Reg, Vec
from ptxkit.ptx import abs as abs_
from ptxkit.ptx import add, cvt, ex2, fma, ld, mov, mul, neg, rcp
from ptxkit.ptx import copysign as copysign_
from ptxkit.ptx import max as max_
from ptxkit.types import Scalar, b8, b16, b32, f32, u32, u64

Function = Callable[[Reg[f32]], Reg[f32]]

ScaleKind = Literal["whole", "row", "column", "row_column"]
"""What a product's scales are those of: "whole", one of A and one of B; "row", one of each row of A and one of B; "column", one of A and
one of each column of B; "row_column", one of each row of A and one of each column of B."""


@dataclass(frozen=True, slots=True)
class Fusion:
    """D = activation(alpha * scales * A B + beta * C + bias) + residual. Each part is optional.

    `c`, `bias` and `residual` are element types. `bias_along` "column": the bias has a value for each of N; "row": for each of M.
    `activation` is a name of `ACTIVATIONS` or a function of one register that emits PTX. `scale`: A and B have float32 scales in device
    memory.
    """

    alpha: bool = False
    scale: ScaleKind | None = None
    c: type[Scalar] | None = None
    bias: type[Scalar] | None = None
    bias_along: Literal["column", "row"] = "column"
    activation: str | Function | None = None
    residual: type[Scalar] | None = None

    @property
    def nothing(self) -> bool:
        return self == PLAIN_SUM

    @property
    def swapped(self) -> Fusion:
        """The fusion of D^T = B^T A^T, whose rows are the columns of D."""
        along: Literal["column", "row"] = "column" if self.bias is None or self.bias_along == "row" else "row"
        scale: dict[ScaleKind | None, ScaleKind] = {"row": "column", "column": "row"}
        return replace(self, bias_along=along, scale=scale.get(self.scale, self.scale))


PLAIN_SUM = Fusion()


def relu(x: Reg[f32]) -> Reg[f32]:
    """max(x, 0). A NaN stays one."""
    return max_.NaN.f32(x, 0.0)


def silu(x: Reg[f32]) -> Reg[f32]:
    """x / (1 + exp(-x))"""
    return mul.rn.f32(x, rcp.approx.ftz.f32(add.rn.f32(ex2.approx.ftz.f32(mul.rn.f32(x, -1.4426950408889634)), 1.0)))


def gelu(x: Reg[f32]) -> Reg[f32]:
    """x Phi(x). Phi is formula 7.1.26 of Abramowitz and Stegun, with an error of at most 1.5e-7."""
    z = mul.rn.f32(abs_.f32(x), 0.7071067811865476)
    t = rcp.approx.ftz.f32(fma.rn.f32(z, 0.3275911, 1.0))
    poly = mov.f32(1.061405429)
    for coefficient in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        poly = fma.rn.f32(poly, t, coefficient)
    tail = mul.rn.f32(mul.rn.f32(poly, t), ex2.approx.ftz.f32(mul.rn.f32(mul.rn.f32(z, z), -1.4426950408889634)))
    erf = copysign_.f32(x, add.rn.f32(neg.f32(tail), 1.0))
    return mul.rn.f32(mul.rn.f32(x, 0.5), add.rn.f32(erf, 1.0))


ACTIVATIONS: dict[str, Function] = {"relu": relu, "gelu": gelu, "silu": silu}


@dataclass(frozen=True, slots=True)
class Matrix:
    """A row-major matrix in global memory. Strides are in elements."""

    pointer: Ptr[b8]
    type: type[Scalar]
    row_stride: Reg[u32]
    batch_stride: Reg[u64]

    def at(self, row: Reg[u32], column: Reg[u32], batch: Reg[u32] | None) -> Ptr[Any]:
        """The address of an element."""
        size = self.type.bits // 8
        pointer = self.pointer.cast({1: b8, 2: b16, 4: b32}[size])
        if batch is not None:
            pointer = pointer.at(mul.lo.u64(cvt.u64.u32(batch), self.batch_stride))
        return pointer.at(add.u64(mul.wide.u32(row, self.row_stride), cvt.u64.u32(column)))


@dataclass(frozen=True, slots=True)
class Strided:
    """A row-major matrix as kernel parameters: its address, and the strides from row to row and from batch to batch in elements."""

    pointer: Ptr[b8]
    row: Reg[u32]
    batch: Reg[u64]

    def of(self, type_: type[Scalar]) -> Matrix:
        """The matrix of elements of this type."""
        return Matrix(self.pointer, type_, self.row, self.batch)


@dataclass(frozen=True, slots=True)
class FusionArguments:
    """The operands of a fusion as kernel parameters. `a_scale` has one element or one a row, `b_scale` one or one a column."""

    alpha: Reg[f32]
    beta: Reg[f32]
    c: Strided
    bias: Ptr[b8]
    residual: Strided
    a_scale: Ptr[f32]
    b_scale: Ptr[f32]


@dataclass(slots=True)
class FusionOperands:
    """The operands that the parts of a fusion read. `scales` are those of whole operands."""

    alpha: Reg[f32]
    beta: Reg[f32]
    c: Matrix | None = None
    bias: Ptr[b8] | None = None
    residual: Matrix | None = None
    scales: tuple[Ptr[f32], ...] = ()
    _factor: list[Reg[f32]] = field(default_factory=list)

    @classmethod
    def of(cls, fusion: Fusion, given: FusionArguments) -> FusionOperands:
        """The operands of a fusion. Each thread reads the scales here, once."""
        scales = {"whole": (given.a_scale, given.b_scale), "row": (given.b_scale,), "column": (given.a_scale,)}
        made = cls(given.alpha, given.beta, given.c.of(fusion.c) if fusion.c else None, given.bias if fusion.bias else None,
                   given.residual.of(fusion.residual) if fusion.residual else None, scales.get(fusion.scale or "", ()))
        made.read_scales()
        return made

    def read_scales(self) -> None:
        """Once in each thread: compute alpha times the scales of whole operands."""
        factor = self.alpha
        for pointer in self.scales:
            factor = mul.rn.f32(factor, ld.global_.nc.f32(pointer))
        self._factor = [factor]


def apply(fusion: Fusion, operands: FusionOperands, values: list[Reg[f32]], row: Reg[u32], column: Reg[u32], rows: Reg[u32], inside: Any,
          batch: Reg[u32] | None = None, second: Any = None) -> list[Reg[f32]]:
    """The values of D at (row, column), (row, column + 1), (row + 8, column), (row + 8, column + 1), from the accumulators there.

    `rows` is M. `inside` holds where the columns are below N: nothing is read past the end of an operand. With `second`, operands are read
    element by element, and the second column is below N where `second` holds.
    """
    if fusion.alpha or operands.scales:
        values = [mul.rn.f32(value, operands._factor[0]) for value in values]
    pairs = [(values[0], values[1], row), (values[2], values[3], row + 8)]
    bias: list[Reg[f32]] = []
    if fusion.bias is not None and fusion.bias_along == "column":
        bias = _pair(_bias(operands, fusion.bias).at(column), fusion.bias, inside, second)
    found: list[Reg[f32]] = []
    for low, high, at in pairs:
        pair = [low, high]
        within = (at < rows) & inside
        beside = (at < rows) & second if second is not None else None
        if operands.c is not None:
            c = _pair(operands.c.at(at, column, batch), operands.c.type, within, beside)
            pair = [fma.rn.f32(operands.beta, x, value) for x, value in zip(c, pair, strict=True)]
        if fusion.bias is not None:
            if fusion.bias_along == "row":
                one = _one(_bias(operands, fusion.bias).at(at), fusion.bias, at < rows)
                pair = [add.rn.f32(value, one) for value in pair]
            else:
                pair = [add.rn.f32(value, x) for value, x in zip(pair, bias, strict=True)]
        if fusion.activation is not None:
            function = ACTIVATIONS[fusion.activation] if isinstance(fusion.activation, str) else fusion.activation
            pair = [function(value) for value in pair]
        if operands.residual is not None:
            residual = _pair(operands.residual.at(at, column, batch), operands.residual.type, within, beside)
            pair = [add.rn.f32(value, x) for value, x in zip(pair, residual, strict=True)]
        found += pair
    return found


def _bias(operands: FusionOperands, type_: type[Scalar]) -> Ptr[Any]:
    assert operands.bias is not None
    return operands.bias.cast(b32 if type_ is f32 else b16)


def _pair(pointer: Ptr[Any], type_: type[Scalar], inside: Any, second: Any = None) -> list[Reg[f32]]:
    """Two neighbours as f32; zeros where `inside` does not hold. With `second`, one after the other, the second where `second` holds."""
    if second is not None:
        return [_one(pointer, type_, inside), _one(pointer.at(1), type_, second)]
    if type_ is f32:
        found = Vec((mov.f32(0.0), mov.f32(0.0)))
        ld.global_.v2.f32(found, pointer, pred=inside)
        return list(found)
    packed = mov.b32(0)
    ld.global_.b32(packed, pointer, pred=inside)
    return unpack(packed, type_)


def _one(pointer: Ptr[Any], type_: type[Scalar], inside: Any) -> Reg[f32]:
    if type_ is f32:
        found = mov.f32(0.0)
        ld.global_.f32(found, pointer, pred=inside)
        return found
    bits = mov.b16(0)
    ld.global_.b16(bits, pointer, pred=inside)
    return _widen(bits, type_)


def unpack(packed: Reg[b32], type_: type[Scalar]) -> list[Reg[f32]]:
    """Two 16-bit floats as f32."""
    low, high = mov.b16(0), mov.b16(0)
    mov.b32(Vec([low, high]), packed)
    return [_widen(low, type_), _widen(high, type_)]


def _widen(bits: Reg[b16], type_: type[Scalar]) -> Reg[f32]:
    widen: Any = cvt.f32.f16 if type_.__name__ == "f16" else cvt.f32.bf16
    return widen(bits)  # type: ignore[no-any-return]


__all__ = ["ACTIVATIONS", "PLAIN_SUM", "Function", "Fusion", "FusionArguments", "FusionOperands", "Matrix", "ScaleKind", "Strided",
           "apply", "gelu", "relu", "silu", "unpack"]
