"""Comparison and selection."""

from __future__ import annotations

from typing import Any

from ..schema import ANY, Form, Per, form, r, w

_BOOL = "and or xor"
_ORDERED = "eq ne lt le gt ge"
_FLOAT = f"{_ORDERED} equ neu ltu leu gtu geu num nan"
_INTEGER = (
    ("eq ne", "b16 b32 b64"),
    (f"{_ORDERED} lo ls hi hs", "u16 u32 u64"),
    (_ORDERED, "s16 s32 s64"),
)
_HALVES = ("f16", "f16x2", "bf16", "bf16x2")
_TYPES = "b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64"

_P = w("pred", sink=True)
_TRUTH = ANY  # zero is false, anything else true
_EITHER: dict[str, Any] = {"imm": ANY, "float_immediate": True}
_NEITHER: dict[str, Any] = {}


def _set(compare: str, dtype: str, stype: str, ftz: str = "") -> Form:
    """`d` is all ones (an integer) or 1.0 if the comparison is true, and zero if not. Packed types compare each half."""
    how = _NEITHER if stype in _HALVES else _EITHER
    truth = None if "bf16" in stype else Per("dtype", {"bf16": None}, default=_TRUTH)
    return form(f"set.CmpOp{{.BoolOp}}{ftz}.dtype.stype d, a, b, c", section="set",
                slots={"CmpOp": compare, "BoolOp": _BOOL, "dtype": dtype, "stype": stype},
                d=w("dtype", integer_ok=dtype == "bf16"), a=r("stype", **how), b=r("stype", **how),
                c=r("pred", negate=True, imm=truth, when="BoolOp"))


def _setp(compare: str, types: str, ftz: str = "", p: str = "p{|q}") -> Form:
    """`q` is the negated comparison, or for a packed type the result of the upper half."""
    how = _NEITHER if types in _HALVES else _EITHER
    results = {"p": _P, "q": _P} if "q" in p else {"p": w("pred")}
    operands: dict[str, Any] = {**results, "a": r("type", **how), "b": r("type", **how),
                                "c": r("pred", negate=True, imm=None if "bf16" in types else _TRUTH, when="BoolOp")}
    return form(f"setp.CmpOp{{.BoolOp}}{ftz}.type {p}, a, b, c", section="setp",
                slots={"CmpOp": compare, "BoolOp": _BOOL, "type": types}, **operands)


_SET = (
    *(_set(compare, dtype, types) for compare, types in _INTEGER for dtype in ("u32 s32 f32 f16", "bf16")),
    _set(_FLOAT, "u32 s32 f32 f16", "f32", "{.ftz}"),
    _set(_FLOAT, "bf16", "f32"),
    _set(_FLOAT, "u32 s32 f32 f16", "f64"),
    _set(_FLOAT, "bf16", "f64"),
    _set(_FLOAT, "u16 s16 u32 s32 f16", "f16", "{.ftz}"),
    _set(_FLOAT, "bf16", "f16"),
    _set(_FLOAT, "u16 s16 u32 s32", "bf16"),
    _set(_FLOAT, "f16x2 u32 s32", "f16x2", "{.ftz}"),
    _set(_FLOAT, "bf16x2 u32 s32", "bf16x2"),
)

_SETP = (
    *(_setp(compare, types) for compare, types in _INTEGER),
    _setp(_FLOAT, "f32", "{.ftz}"),
    _setp(_FLOAT, "f64"),
    _setp(_FLOAT, "f16", "{.ftz}", "p"),
    _setp(_FLOAT, "bf16", "", "p"),
    _setp(_FLOAT, "f16x2", "{.ftz}"),
    _setp(_FLOAT, "bf16x2"),
)

_A = r("type", imm=ANY, float_immediate=True)

_SELECT = (
    form("selp.type d, a, b, c", slots={"type": _TYPES}, section="selp", d=w("type"), a=_A, b=_A, c=r("pred", negate=True, imm=_TRUTH)),
    form("slct.type.s32 d, a, b, c", slots={"type": _TYPES}, section="slct", d=w("type"), a=_A, b=_A, c=r("s32", imm=ANY)),
    form("slct{.ftz}.type.f32 d, a, b, c", slots={"type": _TYPES}, section="slct",
         d=w("type"), a=_A, b=_A, c=r("f32", float_immediate=True)),
)

FORMS: tuple[Form, ...] = (*_SET, *_SETP, *_SELECT)
