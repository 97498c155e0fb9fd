"""Matrix multiply-accumulate by one warp on opaque fragments. Only wmma loads and stores them."""

from __future__ import annotations

from dataclasses import replace

from ..schema import ANY, Access, Effects, Form, Operand, Per, at, form, r, w

_16 = "m16n16k16 m8n32k16 m32n8k16"
_SS = {"ss": "global shared shared::cta"}
_BOTH = "row col"
_STRIDE = r("u32", imm=ANY)

_TALL = Per("shape", {"m16n16k16": 4, "m8n32k16": 2, "m32n8k16": 8})
_WIDE = Per("shape", {"m16n16k16": 4, "m8n32k16": 8, "m32n8k16": 2})
_BYTES_TALL = Per("shape", {"m16n16k16": 2, "m8n32k16": 1, "m32n8k16": 4})
_BYTES_WIDE = Per("shape", {"m16n16k16": 2, "m8n32k16": 4, "m32n8k16": 1})

# For A and B: element types, shapes, layouts of A, layouts of B, the type of a register, the registers of A, the registers of B.
_FACTORS = (
    ("f16", _16, _BOTH, _BOTH, "f16x2", 8, 8),
    ("bf16", _16, _BOTH, _BOTH, "bf16x2", _TALL, _WIDE),
    ("s8 u8", _16, _BOTH, _BOTH, "u32", _BYTES_TALL, _BYTES_WIDE),
    ("tf32", "m16n16k8", _BOTH, _BOTH, "tf32", 4, 4),
    ("f64", "m8n8k4", _BOTH, _BOTH, "f64", 1, 1),
    ("s4 u4", "m8n8k32", "row", "col", "u32", 1, 1),
    ("b1", "m8n8k128", "row", "col", "u32", 1, 1),
)
# For C and D: element type, shapes, the type of a register, registers.
_SUMS = (
    ("f16", _16, "f16x2", 4),
    ("f32", f"{_16} m16n16k8", "f32", 8),
    ("s32", _16, "s32", 8),
    ("s32", "m8n8k32 m8n8k128", "s32", 2),
    ("f64", "m8n8k4", "f64", 2),
)


def _load(matrix: str, types: str, shapes: str, layouts: str, register: str, lanes: int | Per) -> Form:
    return form(f"wmma.load.{matrix}.sync.aligned.layout.shape{{.ss}}.type r, [p]{{, stride}}", section="wmma.load",
                slots={"layout": layouts, "shape": shapes, **_SS, "type": types},
                effects=Effects((Access("r", "p", "tile"),), convergence="warp", depends="never"),
                r=w(register, n=lanes, sink=True), p=at("ss"), stride=_STRIDE)


def _store(types: str, shapes: str, register: str, lanes: int) -> Form:
    return form("wmma.store.d.sync.aligned.layout.shape{.ss}.type [p], r{, stride}", section="wmma.store",
                slots={"layout": _BOTH, "shape": shapes, **_SS, "type": types},
                effects=Effects((Access("w", "p", "tile"),), convergence="warp", depends="never"),
                p=at("ss"), r=r(register, n=lanes), stride=_STRIDE)


def _mma(opcode: str, shapes: str, ab: str, a: int | Per, b: int | Per, d: Operand, c: Operand, **slots: str) -> Form:
    return form(f"wmma.mma{opcode} d, a, b, c", slots={"shape": shapes, **slots}, effects=Effects(convergence="warp"), section="wmma.mma",
                d=d, a=r(ab, n=a, float_immediate=ab == "f64"), b=r(ab, n=b, float_immediate=ab == "f64"),
                c=replace(c, float_immediate=True, exact=True))


_ANY = ".sync.aligned.alayout.blayout.shape"
_FIXED = ".sync.aligned.row.col.shape"
_LAYOUTS = {"alayout": _BOTH, "blayout": _BOTH}
_REGISTER = {"f16": "f16x2", "f32": "f32"}
_COUNT = {"f16": 4, "f32": 8}

_MMA = (
    _mma(f"{_ANY}.dtype.ctype", _16, "f16x2", 8, 8, w(Per("dtype", _REGISTER), n=Per("dtype", _COUNT)),
         r(Per("ctype", _REGISTER), n=Per("ctype", _COUNT)), **_LAYOUTS, dtype="f16 f32", ctype="f16 f32"),
    _mma(f"{_ANY}.f32.bf16.bf16.f32", _16, "bf16x2", _TALL, _WIDE, w("f32", n=8), r("f32", n=8), **_LAYOUTS),
    *(_mma(f"{_ANY}.s32.{type}.{type}.s32{{.satfinite}}", _16, "u32", _BYTES_TALL, _BYTES_WIDE, w("s32", n=8), r("s32", n=8), **_LAYOUTS)
      for type in ("s8", "u8")),
    _mma(f"{_ANY}.f32.tf32.tf32.f32", "m16n16k8", "tf32", 4, 4, w("f32", n=8), r("f32", n=8), **_LAYOUTS),
    _mma(f"{_ANY}{{.rnd}}.f64.f64.f64.f64", "m8n8k4", "f64", 1, 1, w("f64", n=2), r("f64", n=2), **_LAYOUTS, rnd="rn rz rm rp"),
    *(_mma(f"{_FIXED}.s32.{type}.{type}.s32{{.satfinite}}", "m8n8k32", "u32", 1, 1, w("s32", n=2), r("s32", n=2)) for type in ("s4", "u4")),
    _mma(f".op.popc{_FIXED}.s32.b1.b1.s32", "m8n8k128", "u32", 1, 1, w("s32", n=2), r("s32", n=2), op="xor and"),
)

FORMS: tuple[Form, ...] = (
    *(_load("a", types, shapes, layouts, register, lanes) for types, shapes, layouts, _, register, lanes, _ in _FACTORS),
    *(_load("b", types, shapes, layouts, register, lanes) for types, shapes, _, layouts, register, _, lanes in _FACTORS),
    *(_load("c", types, shapes, _BOTH, register, lanes) for types, shapes, register, lanes in _SUMS),
    *(_store(*row) for row in _SUMS),
    *_MMA,
)
