"""Logic, shifts and byte permutation."""

from __future__ import annotations

from ..schema import ANY, Form, Range, form, imm, r, w

_BITS = "b16 b32 b64"

_D = w("type")
_A = r("type", imm=ANY)
_P = w("pred")
_Q = r("pred", negate=True, imm=ANY)
_LUT = imm(Range(0, 255))
_SHIFT = r("u32", imm=ANY)

FORMS: tuple[Form, ...] = (
    *(row for opcode in ("and", "or", "xor") for row in (
        form(f"{opcode}.pred d, a, b", section=opcode, d=_P, a=_Q, b=_Q),
        form(f"{opcode}.type d, a, b", slots={"type": _BITS}, section=opcode, d=_D, a=_A, b=_A))),
    form("not.pred d, a", section="not", d=_P, a=_Q),
    form("not.type d, a", slots={"type": _BITS}, section="not", d=_D, a=_A),
    form("cnot.type d, a", slots={"type": _BITS}, section="cnot", d=_D, a=_A),
    form("lop3.b32 d, a, b, c, immLut", section="lop3",
         d=w("b32"), a=r("b32", imm=ANY), b=r("b32", imm=ANY), c=r("b32", imm=ANY), immLut=_LUT),
    form("lop3.BoolOp.b32 d|p, a, b, c, immLut, q", slots={"BoolOp": "or and"}, since="8.2", section="lop3",
         d=w("b32", sink=True), p=_P, a=r("b32", imm=ANY), b=r("b32", imm=ANY), c=r("b32", imm=ANY), immLut=_LUT, q=_Q),
    form("shf.direction.mode.b32 d, a, b, c", slots={"direction": "l r", "mode": "clamp wrap"}, section="shf",
         d=w("b32"), a=r("b32", imm=ANY), b=r("b32", imm=ANY), c=_SHIFT),
    form("shl.type d, a, b", slots={"type": _BITS}, section="shl", d=_D, a=_A, b=_SHIFT),
    form("shr.type d, a, b", slots={"type": f"{_BITS} u16 u32 u64 s16 s32 s64"}, section="shr", d=_D, a=_A, b=_SHIFT),
    form("prmt.b32{.mode} d, a, b, c", slots={"mode": "f4e b4e rc8 ecl ecr rc16"}, section="prmt",
         d=w("b32"), a=r("b32", imm=ANY), b=r("b32", imm=ANY), c=r("b32", imm=ANY)),
)
