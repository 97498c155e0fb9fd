"""Matrix multiply-accumulate by one warp with every fragment in registers: mma.sync, dense and sparse."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..schema import Effects, Form, Operand, Per, Range, form, imm, r, w

_Shapes = dict[str, tuple[int, int, int]]

_SHAPE = ".sync.aligned.shape.row.col"
_HALF: _Shapes = {"m16n8k8": (2, 1, 2), "m16n8k16": (4, 2, 2)}
_SINGLE: _Shapes = {"m16n8k8": (2, 1, 4), "m16n8k16": (4, 2, 4)}
_F8: dict[str, Any] = {"atype": "e4m3 e5m2", "btype": "e4m3 e5m2"}
_LAYOUTS: dict[str, Any] = {"alayout": "row col", "blayout": "row col"}


def _row(opcode: str, shapes: _Shapes, d: str, *, ab: str = "b32", c: Operand | None = None, since: str = "8.0",
         needs: dict[str, str] | None = None, **slots: str) -> Form:
    """`shapes` gives the registers per thread of A, of B, and of C and D. Several small elements share a register."""
    a_lanes, b_lanes, lanes = (Per("shape", {shape: registers[i] for shape, registers in shapes.items()}) for i in range(3))
    return form(f"mma{opcode} d, a, b, c", slots={"shape": " ".join(shapes), **slots}, since=since, needs=needs,
                effects=Effects(convergence="warp"), section="mma",
                d=w(d, n=lanes), a=r(ab, n=a_lanes, float_immediate=ab == "f64"), b=r(ab, n=b_lanes, float_immediate=ab == "f64"),
                c=c or r(d, n=lanes, float_immediate=d in ("f32", "f64"), exact=True))


# m8n8k4 of f16 is four products at once, one for each quarter of the warp.
_QUARTERS = ".sync.aligned.shape.alayout.blayout"

_DENSE = (
    _row(f"{_QUARTERS}.f16.f16.f16.f16", {"m8n8k4": (2, 2, 4)}, "f16x2", ab="f16x2", **_LAYOUTS),
    _row(f"{_QUARTERS}.f32.f16.f16.f16", {"m8n8k4": (2, 2, 8)}, "f32", ab="f16x2", c=r("f16x2", n=4), **_LAYOUTS),
    _row(f"{_QUARTERS}.f32.f16.f16.f32", {"m8n8k4": (2, 2, 8)}, "f32", ab="f16x2", **_LAYOUTS),
    _row(f"{_SHAPE}.f16.f16.f16.f16", _HALF, "f16x2", ab="f16x2"),
    _row(f"{_SHAPE}.f32.f16.f16.f32", _SINGLE, "f32", ab="f16x2"),
    _row(f"{_SHAPE}.f32.bf16.bf16.f32", _SINGLE, "f32", ab="bf16x2"),
    _row(f"{_SHAPE}.f32.tf32.tf32.f32", {"m16n8k4": (2, 1, 4), "m16n8k8": (4, 2, 4)}, "f32", ab="tf32"),
    _row(f"{_SHAPE}.f16.atype.btype.f16", {"m16n8k16": (2, 1, 2), "m16n8k32": (4, 2, 2)}, "f16x2", since="8.7", **_F8),
    _row(f"{_SHAPE}.f32.atype.btype.f32", {"m16n8k16": (2, 1, 4), "m16n8k32": (4, 2, 4)}, "f32",
         since="8.4", needs={"m16n8k16": "8.7"}, **_F8),
    _row(f"{_SHAPE}.f64.f64.f64.f64", {"m8n8k4": (1, 1, 2), "m16n8k4": (2, 1, 4), "m16n8k8": (4, 2, 4), "m16n8k16": (8, 4, 4)},
         "f64", ab="f64"),
    _row(f"{_SHAPE}{{.satfinite}}.s32.atype.btype.s32", {"m8n8k16": (1, 1, 2), "m16n8k16": (2, 1, 4), "m16n8k32": (4, 2, 4)},
         "s32", atype="u8 s8", btype="u8 s8"),
    _row(f"{_SHAPE}{{.satfinite}}.s32.atype.btype.s32", {"m8n8k32": (1, 1, 2), "m16n8k32": (2, 1, 4), "m16n8k64": (4, 2, 4)},
         "s32", atype="u4 s4", btype="u4 s4"),
    _row(f"{_SHAPE}.s32.b1.b1.s32.bitOp.popc", {"m8n8k128": (1, 1, 2), "m16n8k128": (2, 1, 4), "m16n8k256": (4, 2, 4)},
         "s32", bitOp="xor and"),
)


_SPARSE = ".spvariant.sync.aligned.shape.row.col"
_HALF_SPARSE: _Shapes = {"m16n8k16": (2, 2, 2), "m16n8k32": (4, 4, 2)}
_SINGLE_SPARSE: _Shapes = {"m16n8k16": (2, 2, 4), "m16n8k32": (4, 4, 4)}


def _sparse(opcode: str, shapes: _Shapes, d: str, selectors: dict[str, int], *, ab: str = "b32", since: str = "8.0", **slots: Any) -> Form:
    """A sparse product: A holds half of its elements. `e` says which; `f` (less than `selectors`) says which threads provide `e`."""
    row = _row(f"{_SPARSE}{opcode}", shapes, d, ab=ab, since=since, needs={"sp::ordered_metadata": "8.5"},
               spvariant="sp sp::ordered_metadata", **slots)
    below = Per("shape", {shape: Range(choices=tuple(range(count))) for shape, count in selectors.items()})
    return replace(row, syntax=f"{row.syntax}, e, f", section="mma.sp", effects=replace(row.effects, semantics="mma.sp"),
                   operands={**row.operands, "e": r("b32"), "f": imm(below)})


_SPARSE_ROWS = (
    _sparse(".f16.f16.f16.f16", _HALF_SPARSE, "f16x2", {"m16n8k16": 4, "m16n8k32": 2}, ab="f16x2"),
    _sparse(".f32.f16.f16.f32", _SINGLE_SPARSE, "f32", {"m16n8k16": 4, "m16n8k32": 2}, ab="f16x2"),
    _sparse(".f32.bf16.bf16.f32", _SINGLE_SPARSE, "f32", {"m16n8k16": 4, "m16n8k32": 2}, ab="bf16x2"),
    _sparse(".f32.tf32.tf32.f32", {"m16n8k8": (2, 2, 4), "m16n8k16": (4, 4, 4)}, "f32", {"m16n8k8": 4, "m16n8k16": 2}, ab="tf32"),
    _sparse(".f32.atype.btype.f32", {"m16n8k64": (4, 4, 4)}, "f32", {"m16n8k64": 1}, since="8.4", **_F8),
    _sparse("{.satfinite}.s32.atype.btype.s32", {"m16n8k32": (2, 2, 4), "m16n8k64": (4, 4, 4)}, "s32", {"m16n8k32": 2, "m16n8k64": 1},
            atype="u8 s8", btype="u8 s8"),
    _sparse("{.satfinite}.s32.atype.btype.s32", {"m16n8k64": (2, 2, 4), "m16n8k128": (4, 4, 4)}, "s32", {"m16n8k64": 2, "m16n8k128": 1},
            atype="u4 s4", btype="u4 s4"),
)

FORMS: tuple[Form, ...] = (*_DENSE, *_SPARSE_ROWS)
