"""Forms that ptxas 13.0 accepts and the manual does not have. The checker accepts them unless it is strict; the DSL never offers them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, cast

from ..schema import ANY, Effects, Form, Operand, Per, Range, at, form, imm, r, w
from . import atomic, barrier, bulk, cluster, compare, control, logic, matrix, memory, mma, move, multimem, tensormap, texture, wgmma, wmma

_SHARED = at("shared::cluster")
_MBAR = at("shared::cluster", tag="mbarrier")
_POINTER = {"space": "shared::cluster", "type": "s32 s64"}
_VARIABLE = r("type", variable=True, space="shared", imm=ANY)
_PLACES = "shared::cluster shared::cta shared"
_WHERE = "(.cluster{.shared::cluster}|{.weak}{.space})"
_STORED, _NUMBERS = "b32 b64 u32 u64 s32 s64 f32 f64", "u32 u64 s32 s64 f32 f64"
_D, _A = w("type"), r("type", imm=ANY)
_B32 = r("b32", imm=ANY, float_immediate=True)
_VALUE = r("type", imm=ANY, float_immediate=True)


def _with(row: Form, old: str, new: str) -> Form:
    return replace(row, syntax=row.syntax.replace(old, new, 1))


def _taking(row: Form, **operands: Operand) -> Form:
    """The row with some of its operands replaced."""
    return replace(row, operands={**row.operands, **operands})


def _generic(row: Form) -> Form:
    """The row without a state space: it accesses what a generic address points to."""
    return _taking(replace(row, syntax=row.syntax.replace("{.space}", "").replace(_WHERE, "{.cluster|.weak}")),
                   **{name: at() for name in ("a", "mbar") if name in row.operands})


# The type of each lane of a surface's element that is written as a list of lanes.
_PARTS = {2: {"b8": "b8", "b16": "b8", "b32": "b16", "b64": "b32"}, 4: {"b8": "b8", "b16": "b8", "b32": "b8", "b64": "b16"}}


def _listed(row: Form, name: str, lanes: int) -> Form:
    """The row of a surface with a list of `lanes` instead of one register. With 1 lane: one register instead of a list."""
    old = row.operands[name]
    if lanes == 1:
        return _taking(row, **{name: replace(old, kind="register", count=1, sink=False)})
    part = Per("type", _PARTS[lanes]) if "type" in row.slots else _PARTS[lanes][str(old.type)]
    return _taking(row, **{name: replace(old, kind="vector", type=part, count=lanes, sink=name == "d", float_immediate=False)})


def _without(row: Form, *names: str) -> Form:
    """The row without some of its optional operands."""
    syntax = row.syntax
    for name in names:
        syntax = syntax.replace(f"{{, {name}}}", "").replace(f"{{{name},}} ", "").replace(f", {name}", "")
    return replace(row, syntax=syntax, operands={name: operand for name, operand in row.operands.items() if name not in names})


def _product(row: Form) -> Form:
    """The row with a sink `_` for D, unless A and B are 8-bit floats, and with integer literals for C."""
    d, c = row.operands["d"], row.operands["c"]
    return _taking(row, d=replace(d, sink=not _EIGHT_BITS.issubset(row.slots.get("atype", ()))), c=replace(c, immediate=ANY))


def _untyped(row: Form) -> Form:
    """The row of a sparse product with any 32-bit register where ptxas checks no type, and with a literal for the metadata."""
    loose = ("ab" if ".f16.f16" not in row.syntax else "") + ("dc" if re.search(r"\.f32\.(f16|bf16|tf32)", row.syntax) else "")
    loosened = {name: replace(row.operands[name], type="b32", float_immediate=name != "d") for name in loose}
    halves = {"f": imm(Range(0, 3))} if ".f32.f16" in row.syntax else {}
    return _product(_taking(row, **loosened, **halves, e=r("b32", float_immediate=True)))


_SURFACES = tuple(
    _listed(row, name, lanes)
    for row in texture.FORMS if row.mnemonic in ("suld", "sust") for name in ("d" if row.mnemonic == "suld" else "c",)
    for lanes in ((2, 4) if "vec" not in row.slots else (1,) if row.mnemonic == "sust" else ()))
_EIGHT_BITS = frozenset(("e4m3", "e5m2"))
_SPARSE = tuple(row for row in mma.FORMS if "spvariant" in row.slots)
_PAIRS = tuple(row for row in multimem.FORMS if "{.vec}" in row.syntax and "bf16x2" in row.slots["type"])
_F32 = r("f32", float_immediate=True)


FORMS: tuple[Form, ...] = (
    # Instructions that read a carry and do not write one take 16-bit types.
    *(form(f"{opcode}.type d, a, b", slots={"type": "u16 s16"}, effects=Effects(carry="r"), section=opcode, d=_D, a=_A, b=_A)
      for opcode in ("addc", "subc")),
    form("madc.mode.type d, a, b, c", slots={"mode": "hi lo", "type": "u16 s16"}, effects=Effects(carry="r"), section="madc",
         d=_D, a=_A, b=_A, c=_A),
    form("testp.type p, a", slots={"type": "f32 f64"}, section="testp", p=w("pred"), a=r("type", float_immediate=True)),
    form("prefetch.level [a]", slots={"level": "L2::evict_last L2::evict_normal"}, section="prefetch, prefetchu", a=at()),
    form("setmaxnreg.action.sync.aligned.s32 imm_reg_count", slots={"action": "inc dec"}, target="sm_90a", section="setmaxnreg",
         effects=Effects(sync=("registers",), convergence="warpgroup"), imm_reg_count=imm(Range(24, 256, 8), "s32")),
    form("mapa{.space}.type d, a, b", slots=_POINTER, section="mapa", d=_D, a=_VARIABLE, b=r("u32", imm=ANY)),
    form("getctarank{.space}.type d, a", slots=_POINTER, section="getctarank", d=w("u32"), a=_VARIABLE),

    # `st.async` and `red.async` without an mbarrier, without the modifier for it, in the CTA's own memory, or with one value for all lanes.
    *(form(f"st.async{opcode}.type {operands}", slots={"space": _PLACES, "vec": "v2 v4", "type": types},
           since="8.1", section="st.async", effects=Effects(sync=("mbarrier.complete_tx",)), a=_SHARED, b=_VALUE,
           **cast(Any, {"mbar": _MBAR} if "[mbar]" in operands else {}))
      for opcode, types, operands in (
          (f"{_WHERE}.mbarrier::complete_tx::bytes", _STORED, "[a], b, [mbar]"),
          (f"{_WHERE}.mbarrier::complete_tx::bytes", _STORED, "[a], b"), ("{.weak}", _STORED, "[a], b"),
          (f"{_WHERE}.mbarrier::complete_tx::bytes.vec", "b32 u32 s32 f32", "[a], b, [mbar]"),
          (f"{_WHERE}.mbarrier::complete_tx::bytes.v2", "b64 u64 s64 f64", "[a], b, [mbar]"))),
    *(form(f"st.async{_WHERE}.mbarrier::complete_tx::bytes{vec}.type [a], b, [mbar]",
           slots={"space": _PLACES, "vec": "v2 v4", "type": types}, since="8.1", section="st.async",
           effects=Effects(sync=("mbarrier.complete_tx",)), a=_SHARED, mbar=_MBAR, b=r("type", n=lanes, imm=ANY, float_immediate=True))
      for vec, lanes, types in (
          (".v2", 2, _STORED), (".v4", 4, "b32 u32 s32 f32"), ("", 2, _NUMBERS), ("", 4, _NUMBERS))),
    *(form(f"st.async{_WHERE}.mbarrier::complete_tx::bytes{vec}.type [a], b, [mbar]",
           slots={"space": _PLACES, "type": types}, since="8.1", section="st.async", effects=Effects(sync=("mbarrier.complete_tx",)),
           a=_SHARED, mbar=_MBAR, b=r(Per("type", {"f32": "u32", "f64": "u64"}), n=lanes, float_ok=False))
      for vec, lanes, types in ((".v2", 2, "f32 f64"), (".v4", 4, "f32"), ("", 2, "f32 f64"), ("", 4, "f32 f64"))),
    *(each for row in cluster.FORMS if row.syntax.startswith("red.async") for wanted in (_with(row, ", [mbar]", "{, [mbar]}"),)
      for each in (wanted, _generic(wanted))),
    form("red.async.relaxed.cluster{.space}.mbarrier::complete_tx::bytes.add.s64 [a], b{, [mbar]}", slots={"space": "shared::cluster"},
         since="8.1", section="red.async",
         effects=Effects(sync=("mbarrier.complete_tx",), depends="order"), a=_SHARED, b=r("s64", imm=ANY), mbar=_MBAR),

    *(_with(row, ".sync.aligned", ".sync") for row in wgmma.FORMS),

    # Any register of the width where the manual asks for a type, lists that are too long, and lists of one register without braces.
    *map(_untyped, _SPARSE),
    *(_taking(_untyped(row), a=r("b32")) for row in _SPARSE if "s8" in row.slots.get("atype", ())),
    *(_product(row) for row in (*mma.FORMS, *wmma.FORMS) if {"c", "d"} <= row.operands.keys() and row not in _SPARSE),
    *(replace(row, slots={**row.slots, "shape": ("m8n8k32", "m8n8k128")},
              operands={**row.operands, "r": replace(row.operands["r"], count=2)})
      for row in wmma.FORMS if row.slots.get("type") == ("f32",) and "r" in row.operands),
    *(_taking(replace(row, slots={**row.slots, "shape": ("m16n8k16",)}), b=r("b32", n=lanes)) for row in mma.FORMS
      if "e4m3" in row.slots.get("atype", ()) and "m16n8k16" in row.slots["shape"] for lanes in (2, 4)),
    *(_taking(replace(row, syntax=row.syntax.replace("{.vec}", ""), slots={**row.slots, "type": ("bf16x2",)}), b=_B32)
      for row in _PAIRS if row.syntax.startswith("multimem.st")),
    *(_taking(replace(row, slots={**row.slots, "type": ("bf16x2",)}), **{
        name: replace(row.operands[name], type="b32", float_immediate=row.syntax.startswith("multimem.st")) for name in ("d", "b")
        if name in row.operands}) for row in _PAIRS),
    *(_taking(replace(bare, syntax=f"{bare.syntax.replace('{.L2::cache_hint}', '')}, c", slots={**bare.slots, "type": (type,)}),
              c=replace(bare.operands["b"], immediate=None))
      for row in atomic.FORMS if row.mnemonic == "atom" and {"exch", "and"}.intersection(row.slots["op"])
      for type in ("b32", "b128") if type in row.slots["type"] for bare in (_without(row, "cache_policy"),)),

    *(_taking(replace(row, slots={**row.slots, "type": (type,)}),
              d=replace(row.operands["d"], sink=True, open=row.mnemonic == "multimem" or type != "bf16"))
      for row in (*atomic.FORMS, *multimem.FORMS) if "vec" in row.slots and "d" in row.operands for type in row.slots["type"]),

    # Any rounding.
    form("fma.rn.oob.sat.type d, a, b, c", slots={"type": "f16 f16x2"}, since="8.1", section="fma",
         d=_D, a=r("type"), b=r("type"), c=r("type")),
    *(form(f"fma.rnd{oob}{{.relu}}.type d, a, b, c", slots={"rnd": "rz rm rp", "type": "bf16 bf16x2"}, since=since, section="fma",
           d=_D, a=r("type"), b=r("type"), c=r("type")) for oob, since in (("", "8.0"), (".oob", "8.1"))),
    *(replace(row, slots={**row.slots, "num": ("x8",)},
              operands={**row.operands, "r": replace(row.operands["r"], count=Per("num", {"x8": 1}))})
      for row in matrix.FORMS if "num" in row.slots),
    form("rcp.rnd.ftz.f64 d, a", slots={"rnd": "rn rz rm rp"}, section="rcp", d=w("f64"), a=r("f64", float_immediate=True)),

    # Subnormal numbers of bf16 and f32 are flushed, too.
    form("cvt{.frnd}.ftz.f32.bf16 d, a", slots={"frnd": "rn rz rm rp"}, section="cvt", d=w("f32"), a=r("bf16", imm=ANY)),
    form("cvt.frnd.ftz.bf16.f32 d, a", slots={"frnd": "rn rz rm rp"}, section="cvt", d=w("bf16"), a=r("f32", float_immediate=True)),
    *(form(f"cvt{sat}.dtype.atype d, sreg", slots={"dtype": dtype, "atype": atype}, section="cvt",
           d=w("dtype", wide=True), sreg=Operand("special", "atype", tag="converted"))
      for sat, dtype, atype in (("", move.INTEGERS, "u8 s8 u16 s16"), *((".sat", *types) for types in move.SATURATED))),

    # As many lanes as the operand has.
    *_SURFACES,
    *(replace(row, syntax=row.syntax.replace(".geom", ".geom.cop", 1), slots={**row.slots, "cop": ("wb", "cg", "cs", "wt")})
      for row in (*texture.FORMS, *_SURFACES) if row.syntax.startswith("sust.p")),

    *(replace(row, operands={**row.operands, "f": r("s32", imm=ANY)}) for row in texture.FORMS
      if row.mnemonic in ("tex", "tld4") and "f" in row.operands and "e" not in row.operands),
    *(_taking(_with(_without(row, "b", "e"), "{, f}", ", f"), c=r("s64"), f=_F32) for row in texture.FORMS
      if row.mnemonic in ("tex", "tld4") and "f" in row.operands and "dPdx" not in row.operands),

    # cuda_bf16.hpp compares like this.
    *(_taking(replace(row, slots={**row.slots, "dtype": ("bf16",)}), d=replace(row.operands["d"], integer_ok=True))
      for row in compare.FORMS if row.mnemonic == "set" and row.slots["stype"] == ("bf16",)),

    # Bit types where the manual has integer types, and another spelling of a barrier.
    form("shfl.sync.mode.b32 d{|p}, a, b, c, membermask", slots={"mode": "up down bfly idx"}, effects=Effects(convergence="warp"),
         section="shfl.sync", d=w("b32"), p=w("pred", sink=True), a=_B32, b=_B32, c=_B32,
         membermask=r("b32", imm=ANY, tag="members", float_ok=False)),
    form("movmatrix.sync.aligned.m8n8.trans.b16 d, a", effects=Effects(convergence="warp"), section="movmatrix", d=w("b32"),
         a=r("b32", float_immediate=True)),
    form("lop3.b32 d, a, b, c, immLut", section="lop3", d=w("b32", sink=True), a=_B32, b=_B32, c=_B32, immLut=imm(ANY, "b8")),
    *(_taking(row, immLut=imm(ANY, "b8")) for row in logic.FORMS if row.syntax.startswith("lop3.BoolOp")),
    form("fns.b32 d, mask, base, offset", section="fns", d=w("b32"), mask=_B32, base=_B32, offset=_B32),
    form("barrier{.cta}.aligned.sync a{, b}", effects=Effects(sync=("cta.barrier",), convergence="warp"), section="bar, barrier",
         a=r("u32", imm=Range(0, 15, wraps=True)), b=r("u32", imm=Range(0, multiple=32, wraps=True))),
    *(_taking(row, b=r("u32", imm=Range(choices=(0,), wraps=True)))
      for row in barrier.FORMS if "b" in row.operands and ".arrive" not in row.syntax),

    # An address in a space that cannot hold the object.
    *(_generic(row) for row in cluster.FORMS if row.mnemonic in ("st", "red")),
    form("cp.async.mbarrier.arrive{.noinc}.b64 [addr]", section="cp.async.mbarrier.arrive", addr=at(),
         effects=Effects(sync=("mbarrier.arrive_async",))),
    *(form("fence.proxy.tensormap::generic.acquire.scope [addr], size", slots={"scope": "cta cluster gpu sys"}, since="8.3",
           effects=Effects(sync=("fence",)), section="membar, fence", addr=at(space, tag="tensormap"), size=imm(Range(choices=(128,))))
      for space in ("const", "param")),

    # An address of 32 bits, which ptxas extends.
    *(_taking(row, **{name: replace(operand, narrow=True) for name, operand in row.operands.items() if operand.kind == "address"})
      for row in (*bulk.FORMS, *tensormap.FORMS, *barrier.FORMS, *matrix.FORMS, *wmma.FORMS, *memory.FORMS)
      if any(operand.kind == "address" for operand in row.operands.values())
      and row.mnemonic in ("cp", "tensormap", "fence", "ldmatrix", "stmatrix", "wmma", "createpolicy")),

    # Empty lists in a call, and the address of a function in 32 bits or in a register that cannot hold an address.
    form("call{.uni} (ret_param), func", effects=Effects(control="call"), section="call",
         ret_param=Operand("arguments", access="w"), func=Operand("function")),
    form("call{.uni} (ret_param), fptr, fproto", effects=Effects(control="call"), section="call",
         ret_param=Operand("arguments", access="w"), fptr=r("u64"), fproto=Operand("label")),
    *(_taking(row, fptr=r("u32")) for row in control.FORMS if "fptr" in row.operands),
    form("mov.type d, fname", slots={"type": "pred b16 u16 s16 f32 f64"}, section="mov", d=_D, fname=Operand("function", "type")),

    # The address of a variable cut off, taken apart into lanes, or in place of a generic address.
    form("mov.type d, avar", slots={"type": "b16 u16 s16"}, section="mov", d=_D, avar=Operand("symbol", "type")),
    *(form(f"mov.{type} d, a", since="8.3" if type == "b128" else "8.0", section="mov", d=w(lane, n=lanes, sink=True), a=source)
      for type, lane, lanes in (("b16", "b8", 2), ("b32", "b8", 4), ("b32", "b16", 2), ("b64", "b16", 4), ("b64", "b32", 2))
      for source in (r(type, imm=ANY, float_immediate=True), Operand("symbol", type))),
    *(form("mov.b128 d, a", since="8.3", section="mov", d=w(lane, n=lanes, sink=True), a=source)
      for lane, lanes in (("b32", 4), ("b64", 2)) for source in (imm(ANY, "b64"), Operand("symbol", "b64"))),
    form("mov.b128 d, avar", since="8.3", section="mov", d=w("b128"), avar=Operand("symbol", "b64")),
    form("mov.b128 d, a", since="8.3", section="mov", d=w("b128"), a=imm(ANY, "b64")),
    *(form(f"mov.{type} d, a", section="mov", d=w(type), a=r(lane, n=lanes, sink=True, imm=ANY))
      for type, lane, lanes in (("b32", "b8", 4), ("b32", "b16", 2))),
    # A move of a whole vector. The manual names mov among the instructions with vector operands, but gives no form.
    *(form("mov.vec.type d, a", slots={"vec": vec, "type": types}, section="mov", d=w("type", n=lanes, sink=True),
           a=r("type", n=lanes, imm=ANY, float_immediate=True, tag=tag))
      for vec, lanes, types, tag in (("v2", 2, "b16 u16 s16 b32 u32 s32 f32 b64 u64 s64 f64", ""),
                                     ("v4", 4, "b16 u16 s16 b32 u32 s32", "whole"), ("v4", 4, "f32", ""))),
    *(form("mov.vec.type d, a", slots={"vec": vec, "type": types}, section="mov", d=w("type", n=lanes, sink=True),
           a=r("type", imm=ANY, float_immediate=True))
      for vec, lanes, types in (("v2", 2, "b16 u16 s16 b32 u32 s32 f32 b64 u64 s64 f64"), ("v4", 4, "b16 u16 s16 b32 u32 s32 f32"))),
    *(form(f"mov.{type} d, a", since="8.3" if type == "b128" else "8.0", section="mov", d=d, a=a) for type in ("b16", "b32", "b64", "b128")
      for d, a in ((w(type), r(type, n=1, imm=ANY, float_immediate=True)), (w(type, n=1), r(type, imm=ANY, float_immediate=True)))),
    *(form("mov.vec.type d, sreg", slots={"vec": vec, "type": f"b{bits} u{bits} s{bits}"}, section="mov",
           d=w("type", n=int(vec[1]), sink=True), sreg=Operand("special", "u32" if bits == 16 else f"u{bits}", tag="half" * (bits == 16)))
      for vec, bits in (("v2", 16), ("v2", 32), ("v2", 64), ("v4", 16), ("v4", 32))),
    form("mov.b16 d, sreg", section="mov", d=w("b8", n=2, sink=True), sreg=Operand("special", "u32", tag="half")),
    *(form(f"mov.{type} d, sreg", section="mov", d=w(lane, n=lanes, sink=True), sreg=Operand("special", f"u{type[1:]}"))
      for type, lane, lanes in (
          ("b32", "b8", 4), ("b32", "b16", 2), ("b64", "b16", 4), ("b64", "b32", 2), ("b32", "b32", 1), ("b64", "b64", 1))),
    form("mov.b128 d, sreg", since="8.3", section="mov", d=w("b128"), sreg=Operand("special", "b128", tag="whole")),
    form("mov.pred d, sreg", section="mov", d=w("pred"), sreg=Operand("special", "pred", negate=True)),
    form("mapa.type d, a, b", slots={"type": "u32 u64"}, section="mapa", d=_D,
         a=Operand("symbol", "type", space="shared"), b=r("u32", imm=ANY)),
    form("getctarank.type d, a", slots={"type": "u32 u64"}, section="getctarank", d=w("u32"),
         a=Operand("symbol", "type", space="shared")),
)
