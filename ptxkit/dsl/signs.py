"""Comparisons and divisions whose two sides have different signs. PTX takes both sides as one type.

An operator takes its type from its left side. An opcode says its type: there two registers of other signs are what is asked for, and
constants that the type does not have, or that decide the result alone, are errors.
"""

from __future__ import annotations

from typing import Any

from ..errors import TraceError

_SIGNS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=", "div": "//", "rem": "%"}


def check_signs(reg: Any, other: Any, relation: str) -> None:
    """Raise for a comparison or division of which PTX takes one side in another sense than Python: bits have no sign there."""
    sign, bits, kind = _SIGNS[relation], reg.type.bits, reg.type.__name__
    bare = kind[0] == "b"
    if not isinstance(other, int):
        given = other.type.__name__
        differ = {kind[0], given[0]} in ({"u", "s"}, {"b", "s"}) and not ((bare or given[0] == "b") and relation in ("eq", "ne"))
        if differ and other.type.bits == bits and given[0] in "usb":
            raise TraceError(f"`x {sign} y` of a .{kind} and a .{given} register: PTX takes both as one type, so that a number above "
                             f"{(1 << bits - 1) - 1} and a negative one are the same; say which is meant, as `mov.s{bits}(x) {sign} "
                             f"mov.s{bits}(y)` or `mov.u{bits}(x) {sign} mov.u{bits}(y)`")
    elif not isinstance(other, bool):
        if kind[0] == "s" and other >> bits - 1 == 1:
            raise TraceError(f"{reg!r} {sign} {other}: a .{kind} register is at most {(1 << bits - 1) - 1}, and these bits are "
                             f"{other - (1 << bits)}; write {other - (1 << bits)}, or `mov.u{bits}(x) {sign} {other}`")
        if kind[0] in "ub" and other < 0 and not (bare and relation in ("eq", "ne")):
            raise TraceError(f"{reg!r} {sign} {other}: a .{kind} register is never negative, and PTX would take {other + (1 << bits)}; for "
                             f"signed numbers write `mov.s{bits}(x) {sign} {other}`, for these bits {other + (1 << bits)}")
        if kind[0] in "ub" and other == 0 and relation in ("lt", "ge"):
            always = relation == "ge"
            raise TraceError(f"{reg!r} {sign} 0 is always {always}: a .{kind} register is never negative; for signed numbers write "
                             f"`mov.s{bits}(x) {sign} 0`")


ORDERED = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=", "hi": ">", "hs": ">="}
"""The relations of setp and set for which the sign matters."""


_TURNED = {"lt": "gt", "le": "ge", "lo": "hi", "ls": "hs"}
_TURNED |= {other: relation for relation, other in _TURNED.items()}


def check_constant(opcode: str, operand: str, value: int) -> None:
    """Raise for a constant of setp, set, min, max, div or rem that is not of the opcode's type, or that decides the result alone."""
    if sentence := strange(opcode, operand, value):
        raise TraceError(sentence)


def strange(opcode: str, operand: str, value: int) -> str | None:
    """Why this constant is not one for this operand, `a` or `b`; None if it is. `raw("-1")` writes it all the same."""
    mnemonic, *tokens = opcode.split(".")
    if operand == "b":
        return _strange(opcode, value)
    if operand != "a" or (mnemonic in ("div", "rem") and not value):
        return None
    if mnemonic not in ("setp", "set") or tokens[0] not in _TURNED:
        return _strange(opcode, value)
    turned = ".".join((mnemonic, _TURNED[tokens[0]], *tokens[1:]))
    found = _strange(turned, value)
    return found and f"`{opcode}({value}, x)` is `{turned}(x, {value})`: {found}"


def _strange(opcode: str, value: int) -> str | None:
    mnemonic, *tokens = opcode.split(".")
    kind = tokens[-1] if tokens else ""
    compares = mnemonic in ("setp", "set")
    relation = tokens[0] if compares and tokens else ""
    if kind not in ("u16", "u32", "u64", "s16", "s32", "s64") or (compares and relation not in ORDERED):
        return None
    bits = int(kind[1:])
    signed, unsigned = (opcode.removesuffix(kind) + sign + kind[1:] for sign in "su")
    if compares:
        signed, unsigned = (_signless(word, relation) for word in (signed, unsigned))
    if kind[0] == "s":
        if value >> bits - 1 != 1:
            return None
        return (f"`{opcode}` with {value}: a .{kind} register is at most {(1 << bits - 1) - 1}, and these bits are {value - (1 << bits)}; "
                f"write {value - (1 << bits)}, or `{unsigned}`")
    if value < 0:
        return (f"`{opcode}` with {value}: a .{kind} register is never negative, and PTX takes {value + (1 << bits)}; for signed numbers "
                f"write `{signed}`, for these bits {value + (1 << bits)}")
    if value == 0 and (ORDERED.get(relation) in ("<", ">=") or mnemonic in ("min", "max")):
        result = f"always {ORDERED[relation] == '>='}" if compares else "always 0" if mnemonic == "min" else "the other operand"
        return f"`{opcode}` with 0 is {result}: a .{kind} register is never negative; for signed numbers write `{signed}`"
    return None


def _signless(opcode: str, relation: str) -> str:
    """The opcode with the relation's name that fits signed numbers, too."""
    return opcode.replace(f".{relation}.", f".{ {'lo': 'lt', 'ls': 'le', 'hi': 'gt', 'hs': 'ge'}.get(relation, relation)}.", 1)


__all__ = ["check_constant", "check_signs", "strange"]
