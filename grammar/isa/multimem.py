"""Operations on a multicast address, which stands for the same variable on several devices."""

from __future__ import annotations

from typing import Any

from ..schema import ANY, Access, Effects, Form, Per, at, form, r, w

_LANES = Per("vec", {"v2": 2, "v4": 4, "v8": 8}, default=1)

_LD_REDUCE: tuple[Any, ...] = ("multimem.ld_reduce{.weak|.sem.scope}{.space}", "d, [a]", "r", "relaxed acquire")
_ST: tuple[Any, ...] = ("multimem.st{.weak|.sem.scope}{.space}", "[a], b", "w", "relaxed release")
_RED: tuple[Any, ...] = ("multimem.red{.sem.scope}{.space}", "[a], b", "rw", "relaxed release")

_INTEGER = (("min max", "u32 s32 u64 s64"), ("add", "u32 s32 u64"), ("and or xor", "b32 b64"))
# Shapes and types. One access has 32, 64 or 128 bits.
_HALVES = (("{.vec}", "v2 v4", "f16x2 bf16x2"), (".vec", "v2 v4 v8", "f16 bf16"))
_FLOATS = (*_HALVES, ("{.vec}", "v2 v4", "f32"), ("", "", "f64"))


def _row(kind: tuple[Any, ...], modifiers: str, shape: str, lengths: str, types: str, **slots: str) -> Form:
    base, line, mode, sem = kind
    lanes: dict[str, Any] = {"n": _LANES, "scalar": "{" in shape} if shape else {}
    immediate = ANY if not shape and types != "f64" else None
    source = r("type", imm=immediate, float_immediate=True, exact=base.startswith("multimem.st"), **lanes)
    data: dict[str, Any] = {"d": w("type", **lanes)} if mode == "r" else {"b": source}
    return form(f"{base}{modifiers}{shape}.type {line}", since="8.1", needs={"acc::f32": "8.2"} if "acc" in modifiers else None,
                slots={"sem": sem, "scope": "cta cluster gpu sys", "space": "global", **slots,
                       **({"vec": lengths} if lengths else {}), "type": types},
                effects=Effects((Access(mode, "a"),), depends="order"), section="multimem",
                a=at("space", element=base.startswith("multimem.red")), **data)


FORMS: tuple[Form, ...] = (
    *(_row(_LD_REDUCE, ".op", "", "", types, op=ops) for ops, types in _INTEGER),
    *(_row(_LD_REDUCE, ".op", *shape, op="min max") for shape in _HALVES),
    *(_row(_LD_REDUCE, ".op{.acc::f32}", *shape, op="add") for shape in _HALVES),
    *(_row(_LD_REDUCE, ".op", *shape, op="add") for shape in _FLOATS[2:]),
    _row(_ST, "", "", "", "b32 b64 u32 u64 s32 s64"),
    *(_row(_ST, "", *shape) for shape in _FLOATS),
    *(_row(_RED, ".op", "", "", types, op=ops) for ops, types in _INTEGER),
    *(_row(_RED, ".op", *shape, op="add") for shape in _FLOATS),
)
