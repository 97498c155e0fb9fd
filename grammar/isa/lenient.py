"""What ptxas 13.0 takes although the manual does not have it: accepted in text that is not read strictly, never offered by the DSL."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from ..schema import ANY, Effects, Form, Per, Range, at, form, imm, r, w
from . import cluster, matrix, texture, wgmma

_SHARED = at("shared::cluster")
_MBAR = at("shared::cluster", tag="mbarrier")
_POINTER = {"space": "shared::cluster", "type": "s32 s64"}
_VARIABLE = r("type", variable=True, space="shared", imm=ANY)
_WHERE = "(.cluster{.shared::cluster}|{.weak}{.space})"
_STORED = "b32 b64 u32 u64 s32 s64 f32 f64"
_D, _A = w("type"), r("type", imm=ANY)
_VALUE = r("type", imm=ANY, float_immediate=True)


def _with(row: Form, old: str, new: str) -> Form:
    return replace(row, syntax=row.syntax.replace(old, new, 1))


FORMS: tuple[Form, ...] = (
    # 16-bit types of what has a carry in; without a carry out.
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

    # Without an mbarrier or the word for it, in the CTA's own memory, or one value for all lanes.
    *(form(f"st.async{opcode}.type {operands}", slots={"space": "shared::cluster shared::cta", "vec": "v2 v4", "type": types},
           since="8.1", section="st.async", effects=Effects(sync=("mbarrier.complete_tx",)), a=_SHARED, b=_VALUE,
           **cast(Any, {"mbar": _MBAR} if "[mbar]" in operands else {}))
      for opcode, types, operands in (
          (f"{_WHERE}.mbarrier::complete_tx::bytes", _STORED, "[a], b, [mbar]"),
          (f"{_WHERE}.mbarrier::complete_tx::bytes", _STORED, "[a], b"), ("{.weak}", _STORED, "[a], b"),
          (f"{_WHERE}.mbarrier::complete_tx::bytes.vec", "b32 u32 s32 f32", "[a], b, [mbar]"),
          (f"{_WHERE}.mbarrier::complete_tx::bytes.v2", "b64 u64 s64 f64", "[a], b, [mbar]"))),
    form("st.async{.weak}.shared::cta.mbarrier::complete_tx::bytes.vec.type [a], b, [mbar]",
         slots={"vec": "v2 v4", "type": "b32 u32 s32 f32"}, since="8.1", section="st.async",
         effects=Effects(sync=("mbarrier.complete_tx",)), a=_SHARED, mbar=_MBAR,
         b=r("type", n=Per("vec", {"v2": 2, "v4": 4}), imm=ANY, float_immediate=True)),
    *(_with(row, ", [mbar]", "{, [mbar]}") for row in cluster.FORMS if row.syntax.startswith("red.async")),
    form("red.async.relaxed.cluster{.space}.mbarrier::complete_tx::bytes.add.s64 [a], b{, [mbar]}", slots={"space": "shared::cluster"},
         since="8.1", section="red.async", effects=Effects(sync=("mbarrier.complete_tx",)), a=_SHARED, b=r("s64", imm=ANY), mbar=_MBAR),

    *(_with(row, ".sync.aligned", ".sync") for row in wgmma.FORMS),
    *(replace(row, slots={**row.slots, "num": ("x8",)},
              operands={**row.operands, "r": replace(row.operands["r"], count=Per("num", {"x8": 1}))})
      for row in matrix.FORMS if "num" in row.slots),
    form("rcp.rnd.ftz.f64 d, a", slots={"rnd": "rn rz rm rp"}, section="rcp", d=w("f64"), a=r("f64", float_immediate=True)),

    # As many lanes as the operand has.
    *(replace(row, syntax=row.syntax.replace(".vec", "") if lanes > 1 else row.syntax,
              operands={**row.operands, name: replace(row.operands[name], kind="vector" if lanes > 1 else "register", count=lanes,
                                                      float_immediate=lanes == 1 and row.operands[name].float_immediate)})
      for row in texture.FORMS if row.mnemonic in ("suld", "sust") for name in ("d" if row.mnemonic == "suld" else "c",)
      for lanes in ((2, 4) if "vec" not in row.slots else (1,) if row.mnemonic == "sust" else ())),
)
