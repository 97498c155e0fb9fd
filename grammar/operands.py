"""Type compatibility: which registers and which numbers an operand of an instruction accepts."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from .schema import ANY, Operand, Range

_BITS = {"pred": 1, "b8": 8, "u8": 8, "s8": 8, "e4m3": 8, "e5m2": 8, "b16": 16, "u16": 16, "s16": 16, "f16": 16, "bf16": 16,
         "e4m3x2": 16, "e5m2x2": 16, "b32": 32, "u32": 32, "s32": 32, "f32": 32, "f16x2": 32, "bf16x2": 32, "tf32": 32,
         "u16x2": 32, "s16x2": 32, "u8x4": 32, "s8x4": 32, "b64": 64, "u64": 64, "s64": 64, "f64": 64, "b128": 128}
_FLOAT = {"f32", "f64"}
_INTEGER = {"u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"}


def width(type: str) -> int:
    """Bits of a scalar type's register; 0 when the name is not a type."""
    return _BITS.get(type, 0)


def accepts(operand: Operand, register: str) -> bool:
    """Whether the operand accepts a register of type `register`: its declared type, or in the DSL the type that it holds.

    A bit-size type accepts any register of its width. An integer type accepts signed and unsigned integers and bits of its width. A float
    type accepts its own type and bits of its width. `operand.wide` (ld, st, cvt) accepts wider registers: an integer or bit type wider
    integers and bits, a float type wider bits.
    """
    if operand.integer_ok and register in {"f32": ("u32", "s32"), "bf16": ("u16", "s16")}.get(str(operand.type), ()):
        return True
    return _accepts(str(operand.type), register, operand.wide, operand.float_ok)


def alike(one: str, other: str) -> bool:
    """Whether a register of one type may stand for one of the other: an operand of either type accepts the other."""
    return _accepts(one, other, True, True) or _accepts(other, one, True, True)


def layer(coordinates: Operand) -> Operand:
    """The first lane of coordinates with an `index`, the layer of an array, as an operand by itself."""
    return replace(coordinates, kind="register", type="u32", immediate=ANY, float_immediate=False, integer_ok=False, float_ok=False)


def within(allowed: Range, value: int) -> bool:
    """Whether the value is in the range."""
    if allowed.choices:
        return value in allowed.choices
    return ((allowed.low is None or value >= allowed.low) and (allowed.high is None or value <= allowed.high)
            and (value - (allowed.low or 0)) % allowed.multiple == 0)


def legal(allowed: Range) -> str:
    """The range in words: "24 to 256 in steps of 8", "-1 or 1"."""
    if allowed.choices:
        *others, last = map(str, allowed.choices)
        return f"{', '.join(others)} or {last}" if others else last
    steps = f" in steps of {allowed.multiple}" if allowed.multiple != 1 else ""
    if allowed.high is None:
        return f"{'any integer' if allowed.low is None else f'{allowed.low} or more'}{steps}"
    return f"{'up to' if allowed.low is None else f'{allowed.low} to'} {allowed.high}{steps}"


@cache
def _accepts(type: str, register: str, wide: bool, float_ok: bool) -> bool:
    if type == register:
        return True
    if "pred" in (type, register):
        return False
    bits, given = width(type), width(register)
    if not bits or not given or given < bits or (given > bits and not wide):
        return False
    untyped = register.startswith("b") and register in ("b8", "b16", "b32", "b64", "b128")
    if type in ("b8", "b16", "b32", "b64", "b128"):
        return float_ok or register not in _FLOAT | {"f16", "f16x2"}
    if type in ("u16x2", "s16x2") and register == "f16x2":
        return True
    if type in _INTEGER:
        return untyped or register in _INTEGER or (float_ok and register == "f16x2")
    if given > bits:
        return untyped and type in _FLOAT | {"f16", "f16x2"}
    return untyped
