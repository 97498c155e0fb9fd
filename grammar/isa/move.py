"""Moves, conversions between types, and conversions between address spaces."""

from __future__ import annotations

from ..schema import ANY, Form, Operand, Per, form, r, w

# The type that a vector of registers packs into and unpacks from, the type of its lanes, and how many lanes it has.
_PACKS = (("b16", "b8", 2), ("b32", "b8", 4), ("b32", "b16", 2), ("b64", "b16", 4), ("b64", "b32", 2),
          ("b128", "b32", 4), ("b128", "b64", 2))
_WORDS = {type: f"u{type[1:]}" for type in ("b32", "u32", "s32", "b64", "u64", "s64")}

_MOV = (
    form("mov.pred d, a", section="mov", d=w("pred"), a=r("pred", negate=True, imm=ANY)),
    form("mov.type d, a", slots={"type": "b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64"}, section="mov",
         d=w("type"), a=r("type", imm=ANY, float_immediate=True)),
    form("mov.b128 d, a", since="8.3", section="mov", d=w("b128"), a=r("b128")),
    form("mov.pred d, sreg", section="mov", d=w("pred"), sreg=Operand("special", "pred")),
    form("mov.type d, sreg", slots={"type": "b16 u16 s16"}, section="mov", d=w("type"), sreg=Operand("special", "u32", tag="half")),
    form("mov.type d, sreg", slots={"type": "b32 u32 s32 b64 u64 s64"}, section="mov",
         d=w("type"), sreg=Operand("special", Per("type", _WORDS))),
    form("mov.type d, avar", slots={"type": " ".join(_WORDS)}, section="mov", d=w("type"), avar=Operand("symbol", "type")),
    form("mov.type d, fname", slots={"type": " ".join(_WORDS)}, section="mov", d=w("type"), fname=Operand("function", "type")),
    *(form(f"mov.{type} d, a", since="8.3" if type == "b128" else "8.0", section="mov", d=w(type), a=r(lane, n=lanes, imm=ANY))
      for type, lane, lanes in _PACKS),
    *(form(f"mov.{type} d, a", since="8.3" if type == "b128" else "8.0", section="mov", d=w(lane, n=lanes, sink=True), a=r(type))
      for type, lane, lanes in _PACKS),
)

INTEGERS = "u8 s8 u16 s16 u32 s32 u64 s64"
_TO_INTEGER = "rni rzi rmi rpi"
_TO_FLOAT = "rn rz rm rp"


def _fits(source: str, destination: str) -> bool:
    """Whether every value of one integer type is a value of another. Then there is nothing to saturate."""
    bits, room = int(source[1:]), int(destination[1:]) - (destination[0] == "s" and source[0] == "u")
    return bits <= room and not (source[0] == "s" and destination[0] == "u")


SATURATED = tuple((dtype, " ".join(atype for atype in INTEGERS.split() if not _fits(atype, dtype))) for dtype in INTEGERS.split())
"""Each integer type with those whose values it does not hold all."""


def _cvt(modifiers: str, dtype: str, atype: str, *, irnd: str = _TO_INTEGER, frnd: str = _TO_FLOAT, wide: bool = True,
         needs: dict[str, str] | None = None) -> Form:
    """`d, a`. With bf16 both registers have exactly the widths of the types."""
    rounding = {"irnd": irnd} if ".irnd" in modifiers else {"frnd": frnd} if ".frnd" in modifiers else {}
    return form(f"cvt{modifiers}.dtype.atype d, a", slots={**rounding, "dtype": dtype, "atype": atype}, needs=needs, section="cvt",
                d=w("dtype", wide=wide), a=r("atype", wide=wide, imm=ANY, float_immediate=True))


_CVT = (
    _cvt("", INTEGERS, INTEGERS),
    *(_cvt(".sat", dtype, atype) for dtype, atype in SATURATED),
    form("cvt.dtype.atype d, sreg", slots={"dtype": INTEGERS, "atype": "u32 s32 u64 s64"}, section="cvt",
         d=w("dtype", wide=True), sreg=Operand("special", Per("atype", _WORDS), tag="converted")),
    _cvt(".irnd{.sat}", INTEGERS, "f16 f64"),
    _cvt(".irnd{.ftz}{.sat}", INTEGERS, "f32"),
    _cvt(".irnd", INTEGERS, "bf16", wide=False),
    _cvt(".frnd{.sat}", "f16 f64", INTEGERS),
    _cvt(".frnd{.ftz}{.sat}", "f32", INTEGERS),
    _cvt(".frnd", "bf16", INTEGERS, wide=False),
    _cvt(".frnd{.sat}", "f16", "f64"),
    _cvt(".frnd{.ftz}{.sat}", "f32", "f64"),
    _cvt(".frnd{.ftz}{.sat}", "f16", "f32"),
    _cvt(".frnd", "bf16", "f32 f64", wide=False),
    *(_cvt(".frnd(.relu{.satfinite}|.satfinite)", dtype, "f32", frnd="rn rz", wide=dtype == "f16", needs={"satfinite": "8.1"})
      for dtype in ("f16", "bf16")),
    _cvt("{.sat}", "f64", "f16"),
    _cvt("{.ftz}{.sat}", "f32", "f16"),
    _cvt("{.ftz}{.sat}", "f64", "f32"),
    _cvt("{.irnd}{.sat}", "f16", "f16"),
    _cvt("{.irnd}{.sat}", "f64", "f64"),
    _cvt("{.irnd}{.ftz}{.sat}", "f32", "f32"),
    _cvt("{.irnd}", "bf16", "bf16", wide=False),
    _cvt("{.frnd}", "bf16", "f16", wide=False),
    _cvt("{.frnd}", "f16 f32 f64", "bf16", wide=False),
)

_F32 = r("f32", float_immediate=True)
_FP8 = "e4m3x2 e5m2x2"

# Two results in one register: `a` becomes the upper half, `b` the lower half.
_CVT_PACKED = (
    *(form("cvt.frnd{.relu}{.satfinite}.dtype.f32 d, a, b", slots={"frnd": "rn rz", "dtype": dtype}, section="cvt",
           needs={"satfinite": "8.1"}, d=w("dtype", wide=dtype == "f16x2"), a=_F32, b=_F32) for dtype in ("f16x2", "bf16x2")),
    form("cvt.rna{.satfinite}.tf32.f32 d, a", needs={"satfinite": "8.1"}, section="cvt", d=w("tf32"), a=_F32),
    form("cvt.frnd{.relu}.tf32.f32 d, a", slots={"frnd": "rn rz"}, section="cvt", d=w("tf32"), a=_F32),
    form("cvt.rn.satfinite{.relu}.dtype.f32 d, a, b", slots={"dtype": _FP8}, section="cvt", d=w("dtype"), a=_F32, b=_F32),
    form("cvt.rn.satfinite{.relu}.dtype.f16x2 d, a", slots={"dtype": _FP8}, section="cvt", d=w("dtype"), a=r("f16x2")),
    form("cvt.rn{.relu}.f16x2.atype d, a", slots={"atype": _FP8}, section="cvt", d=w("f16x2"), a=r("atype")),
    form("cvt.pack.sat.dtype.s32 d, a, b", slots={"dtype": "u16 s16"}, section="cvt.pack",
         d=w("u32", wide=True), a=r("s32", wide=True, imm=ANY), b=r("s32", wide=True, imm=ANY)),
    form("cvt.pack.sat.dtype.s32.b32 d, a, b, c", slots={"dtype": "u2 s2 u4 s4 u8 s8"}, section="cvt.pack",
         d=w("u32", wide=True), a=r("s32", wide=True, imm=ANY), b=r("s32", wide=True, imm=ANY), c=r("b32", wide=True, imm=ANY)),
)

_SPACES = "const global local shared shared::cta shared::cluster param param::entry"
_ENTRY = {"param::entry": "8.3"}

_ADDRESSES = (
    form("cvta.space.size p, a", slots={"space": _SPACES, "size": "u32 u64"}, needs=_ENTRY, section="cvta",
         p=w("size"), a=r("size", imm=ANY)),
    form("cvta.space.size p, var", slots={"space": _SPACES, "size": "u32 u64"}, needs=_ENTRY, section="cvta",
         p=w("size"), var=Operand("symbol", "size", space="space")),
    form("cvta.to.space.size p, a", slots={"space": _SPACES, "size": "u32 u64"}, needs=_ENTRY, section="cvta",
         p=w("size"), a=r("size", imm=ANY)),
    form("isspacep.space p, a", slots={"space": _SPACES}, needs=_ENTRY, section="isspacep", p=w("pred"), a=r("u64", imm=ANY)),
    form("isspacep.space p, a", slots={"space": _SPACES}, needs=_ENTRY, section="isspacep", p=w("pred"), a=r("u32")),
)

FORMS: tuple[Form, ...] = (*_MOV, *_CVT, *_CVT_PACKED, *_ADDRESSES)
