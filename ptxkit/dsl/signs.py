"""Comparisons and divisions whose two sides have different signs. PTX takes both sides as one type."""

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


__all__ = ["check_signs"]
