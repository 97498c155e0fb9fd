"""Distributed shared memory, dependent launches, and the register budget of a warpgroup."""

from __future__ import annotations

from ..schema import ANY, Access, Effects, Form, Per, Range, at, form, imm, r, w

_MBAR = at("shared::cluster", tag="mbarrier")
_COMPLETES = ("mbarrier.complete_tx",)
_STORE = Effects((Access("w", "a", "type", "async"), Access("rw", "mbar", 8, "async")), sync=_COMPLETES, depends="never")
_REDUCE = Effects((Access("rw", "a", "type", "async"), Access("rw", "mbar", 8, "async")), sync=_COMPLETES, depends="order")
_SPACE = {"space": "shared::cluster"}
_VARIABLE = r("type", variable=True, space="shared", imm=ANY)
_POINTER = {"type": "u32 u64"}


def _store(vector: str, types: str) -> Form:
    value = r("type", n=Per("vec", {"v2": 2, "v4": 4}, 1), scalar=True, imm=ANY, float_immediate=True)
    return form(f"st.async{{.weak}}{{.space}}.mbarrier::complete_tx::bytes{vector}.type [a], b, [mbar]",
                slots={"vec": "v2" if "{" in vector else "v4", "type": types, **_SPACE}, since="8.1", effects=_STORE, section="st.async",
                a=at("shared::cluster"), b=value, mbar=_MBAR)


def _reduce(operations: str, types: str) -> Form:
    return form("red.async.relaxed.cluster{.space}.mbarrier::complete_tx::bytes.op.type [a], b, [mbar]",
                slots={"op": operations, "type": types, **_SPACE}, since="8.1", effects=_REDUCE, section="red.async",
                a=at("shared::cluster"), mbar=_MBAR, b=r("type", imm=ANY))


FORMS: tuple[Form, ...] = (
    form("mapa.space.type d, a, b", slots=_SPACE | _POINTER, section="mapa", d=w("type"), a=_VARIABLE, b=r("u32", imm=ANY)),
    form("mapa.type d, a, b", slots=_POINTER, section="mapa", d=w("type"), a=r("type", imm=ANY), b=r("u32", imm=ANY)),
    form("getctarank.space.type d, a", slots=_SPACE | _POINTER, section="getctarank", d=w("u32"), a=_VARIABLE),
    form("getctarank.type d, a", slots=_POINTER, section="getctarank", d=w("u32"), a=r("type", imm=ANY)),

    _store("{.vec}", "b32 b64 u32 u64 s32 s64 f32 f64"),
    _store(".vec", "b32 u32 s32 f32"),
    _reduce("inc dec", "u32"),
    _reduce("min max", "u32 s32"),
    _reduce("and or xor", "b32"),
    _reduce("add", "u32 s32 u64"),

    form("griddepcontrol.launch_dependents", effects=Effects(sync=("grid.launch_dependents",)), section="griddepcontrol"),
    form("griddepcontrol.wait", effects=Effects(sync=("grid.wait",)), section="griddepcontrol"),
    form("setmaxnreg.action.sync.aligned.u32 imm_reg_count", slots={"action": "inc dec"}, target="sm_90a",
         effects=Effects(sync=("registers",), convergence="warpgroup"), section="setmaxnreg",
         imm_reg_count=imm(Range(24, 256, 8), "u32")),
)
