"""Integer arithmetic. The extended-precision forms pass a carry from one instruction to the next."""

from __future__ import annotations

from ..schema import ANY, PURE, Effects, Form, Per, Range, form, r, w

_TYPES = "u16 u32 u64 s16 s32 s64"
_PACKED = "u16x2 s16x2"
_SIGNED = "s16 s32 s64"
_32_64 = "u32 s32 u64 s64"
_WIDE = Per("type", {"u16": "u32", "u32": "u64", "s16": "s32", "s32": "s64"})

_D = w("type")
_A = r("type", imm=Per("type", {"u16x2": None, "s16x2": None}, default=ANY))


def _two(opcode: str, section: str, type: str, effects: Effects = PURE, **slots: str) -> Form:
    """`d, a, b`, all of the opcode's type."""
    return form(f"{opcode} d, a, b", slots={"type": type, **slots}, effects=effects, section=section, d=_D, a=_A, b=_A)


def _three(opcode: str, section: str, type: str, effects: Effects = PURE, **slots: str) -> Form:
    """`d, a, b, c`, all of the opcode's type."""
    return form(f"{opcode} d, a, b, c", slots={"type": type, **slots}, effects=effects, section=section, d=_D, a=_A, b=_A, c=_A)


def _count(opcode: str, section: str, type: str) -> Form:
    """`d, a` with a 32-bit result."""
    return form(f"{opcode} d, a", slots={"type": type}, section=section, d=w("u32"), a=_A)


_ARITHMETIC = (
    _two("add.type", "add", f"{_TYPES} {_PACKED}"),
    _two("add.sat.type", "add", "s32"),
    _two("sub.type", "sub", _TYPES),
    _two("sub.sat.type", "sub", "s32"),
    _two("mul.mode.type", "mul", _TYPES, mode="hi lo"),
    form("mul.wide.type d, a, b", slots={"type": "u16 u32 s16 s32"}, section="mul", d=w(_WIDE), a=_A, b=_A),
    _three("mad.mode.type", "mad", _TYPES, mode="hi lo"),
    form("mad.wide.type d, a, b, c", slots={"type": "u16 u32 s16 s32"}, section="mad", d=w(_WIDE), a=_A, b=_A, c=r(_WIDE, imm=ANY)),
    _three("mad.hi.sat.type", "mad", "s32"),
    _two("mul24.mode.type", "mul24", "u32 s32", mode="hi lo"),
    _three("mad24.mode.type", "mad24", "u32 s32", mode="hi lo"),
    _three("mad24.hi.sat.type", "mad24", "s32"),
    _three("sad.type", "sad", _TYPES),
    _two("div.type", "div", _TYPES),
    _two("rem.type", "rem", _TYPES),
    form("abs.type d, a", slots={"type": _SIGNED}, section="abs", d=_D, a=_A),
    form("neg.type d, a", slots={"type": _SIGNED}, section="neg", d=_D, a=_A),
    *(_two(f"{opcode}.type", opcode, f"{_TYPES} {_PACKED}") for opcode in ("min", "max")),
    *(_two(f"{opcode}.relu.type", opcode, "s16x2 s32") for opcode in ("min", "max")),
)

_BITS = (
    _count("popc.type", "popc", "b32 b64"),
    _count("clz.type", "clz", "b32 b64"),
    _count("bfind{.shiftamt}.type", "bfind", "u32 u64 s32 s64"),
    form("brev.type d, a", slots={"type": "b32 b64"}, section="brev", d=_D, a=_A),
    form("bfe.type d, a, b, c", slots={"type": "u32 u64 s32 s64"}, section="bfe",
         d=_D, a=_A, b=r("u32", imm=Range(0, 255)), c=r("u32", imm=Range(0, 255))),
    form("bfi.type f, a, b, c, d", slots={"type": "b32 b64"}, section="bfi",
         f=_D, a=_A, b=_A, c=r("u32", imm=Range(0, 255)), d=r("u32", imm=Range(0, 255))),
    form("szext.mode.type d, a, b", slots={"mode": "clamp wrap", "type": "u32 s32"}, section="szext", d=_D, a=_A, b=r("u32", imm=ANY)),
    form("bmsk.mode.b32 d, a, b", slots={"mode": "clamp wrap"}, section="bmsk",
         d=w("b32", float_ok=False), a=r("u32", imm=ANY), b=r("u32", imm=ANY)),
    form("fns.b32 d, mask, base, offset", section="fns",
         d=w("b32"), mask=r("b32", imm=ANY), base=r("b32", imm=ANY), offset=r("s32", imm=ANY)),
)

# The sum of four (dp4a) or two (dp2a) products of packed elements. It is signed unless both sources are unsigned.
_DOT = tuple(
    form(f"{opcode}.atype.btype d, a, b, c", slots=mode | {"atype": atype, "btype": btype}, section=opcode.partition(".")[0],
         d=w(total), a=r("atype", imm=ANY), b=r("btype", imm=ANY), c=r(total, imm=ANY))
    for opcode, mode in (("dp4a", {}), ("dp2a.mode", {"mode": "lo hi"}))
    for atype, btype, total in (("u32", "u32", "u32"), ("u32", "s32", "s32"), ("s32", "u32 s32", "s32")))

_WRITES, _READS, _BOTH = Effects(carry="w"), Effects(carry="r"), Effects(carry="rw")

_EXTENDED = (
    _two("add.cc.type", "add.cc", _32_64, _WRITES),
    _two("addc.type", "addc", _32_64, _READS),
    _two("addc.cc.type", "addc", _32_64, _BOTH),
    _two("sub.cc.type", "sub.cc", _32_64, _WRITES),
    _two("subc.type", "subc", _32_64, _READS),
    _two("subc.cc.type", "subc", _32_64, _BOTH),
    _three("mad.mode.cc.type", "mad.cc", _32_64, _WRITES, mode="hi lo"),
    _three("madc.mode.type", "madc", _32_64, _READS, mode="hi lo"),
    _three("madc.mode.cc.type", "madc", _32_64, _BOTH, mode="hi lo"),
)

FORMS: tuple[Form, ...] = (*_ARITHMETIC, *_BITS, *_DOT, *_EXTENDED)
