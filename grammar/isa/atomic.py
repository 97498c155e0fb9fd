"""Atomic operations on memory: with the old value (atom) and without (red)."""

from __future__ import annotations

from typing import Any

from ..schema import ANY, Access, Effects, Form, Operand, Per, at, form, r, w

_SEM = {"atom": "relaxed acquire release acq_rel", "red": "relaxed release"}
_SHARED = "shared shared::cta shared::cluster"
_POLICY = r("b64", imm=ANY, tag="policy", when="L2::cache_hint", float_ok=False)
_VALUE = r("type", imm=ANY, float_immediate=True)
_128 = {"since": "8.3", "needs": {"sys": "8.4"}}

# Which operations exist for which types. Subnormal 16-bit floats are never flushed, and 16-bit floats have no literals.
_SCALAR = (
    (".op", "and or xor", "b32 b64", _VALUE),
    (".op", "add", "u32 s32 u64 f32 f64", _VALUE),
    (".op", "inc dec", "u32", _VALUE),
    (".op", "min max", "u32 s32 u64 s64", _VALUE),
    (".op.noftz", "add", "f16 f16x2 bf16 bf16x2", r("type")),
)
_VECTOR = (
    (".op", "add", "v2 v4", "f32"),
    (".op.noftz", "add min max", "v2 v4 v8", "f16 bf16"),
    (".op.noftz", "add min max", "v2 v4", "f16x2 bf16x2"),
)


def _row(mnemonic: str, place: str, sources: str, slots: dict[str, str], d: Operand, gates: dict[str, Any] | None = None,
         **operands: Operand) -> Form:
    """One operation. `place` is the part of the opcode between scope and type. `L2::cache_hint` in it adds a cache policy."""
    present: dict[str, Any] = {**({"d": d} if mnemonic == "atom" else {}), "a": at("space"), **operands}
    line = f"{'d, ' * (mnemonic == 'atom')}[a], {sources}"
    if "L2::cache_hint" in place:
        line, present = f"{line}, cache_policy", {**present, "cache_policy": _POLICY}
    return form(f"{mnemonic}{{.sem}}{{.scope}}{place}.type {line}", section=mnemonic,
                effects=Effects((Access("rw", "a"),), depends="order"),
                slots={"sem": _SEM[mnemonic], "scope": "cta cluster gpu sys", **slots}, **(gates or {}), **present)


def _scalar(mnemonic: str, op: str, ops: str, types: str, b: Operand, gates: dict[str, Any] | None = None) -> tuple[Form, Form]:
    """One row for global memory, which takes a cache policy, and one for shared memory. ptxas crashes on a sink `_` of type bf16."""
    slots, d = {"op": ops, "type": types}, w("type", sink="noftz" not in op)
    return (_row(mnemonic, f"{{.space}}{op}{{.L2::cache_hint}}", "b", {"space": "global", **slots}, d, gates, b=b),
            _row(mnemonic, f".space{op}", "b", {"space": _SHARED, **slots}, d, gates, b=b))


def _compare(types: str, value: Operand, gates: dict[str, Any] | None = None) -> Form:
    return _row("atom", "{.space}.op", "b, c", {"space": f"global {_SHARED}", "op": "cas", "type": types}, w("type", sink=True), gates,
                b=value, c=value)


def _vector(mnemonic: str, op: str, ops: str, vec: str, types: str) -> Form:
    """One row for two to eight neighbours in global memory. Each of them is atomic by itself."""
    lanes = Per("vec", {"v2": 2, "v4": 4, "v8": 8})
    return _row(mnemonic, f"{{.space}}{op}{{.L2::cache_hint}}.vec", "b", {"space": "global", "op": ops, "vec": vec, "type": types},
                w("type", n=lanes), {"since": "8.1"}, b=r("type", n=lanes, float_immediate=True))


FORMS: tuple[Form, ...] = (
    *(row for operation in _SCALAR for row in _scalar("atom", *operation)),
    *_scalar("atom", ".op", "exch", "b32 b64", _VALUE),
    *_scalar("atom", ".op", "exch", "b128", r("type"), _128),
    _compare("b16 b32 b64", _VALUE),
    _compare("b128", r("type"), _128),
    *(_vector("atom", *operation) for operation in _VECTOR),
    *(row for operation in _SCALAR for row in _scalar("red", *operation)),
    *(_vector("red", *operation) for operation in _VECTOR),
)
