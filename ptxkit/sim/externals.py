"""Functions that the driver provides and a module only declares: printf and the failure of an assertion."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .errors import Fault
from .operand import Register, SymbolValue, Vector
from .spaces import SPACE_OF_WINDOW, WINDOW_BITS
from .values import lane_list, lane_of

if TYPE_CHECKING:
    from .fragment import Fragment
    from .memory import Memory
    from .program import Op

_CONVERSION = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+))?(hh|h|ll|l|z|t|j)?([diouxXcsaAeEfFgGp%])")


def _arguments(f: Fragment, op: Op, lane: int) -> list[int]:
    """The lane's call arguments as bits."""
    operand = op.operand("param_list")
    values = []
    for element in operand.elements if isinstance(operand, Vector) else ():
        if isinstance(element, SymbolValue):
            size = element.symbol.size
            memory = f.warp.local
            start = lane * memory.stride + f.frame + element.symbol.address
            values.append(int.from_bytes(memory.data[start:start + size].tobytes(), "little"))
        else:
            values.append(int(lane_of(f.machine.read(f, element, f.R), lane)))
    return values


def _bytes(f: Fragment, lane: int, address: int) -> tuple[Memory, int]:
    """(memory, place) of a generic address."""
    space = SPACE_OF_WINDOW.get(address >> WINDOW_BITS)
    place = address & (1 << WINDOW_BITS) - 1
    if space == "global":
        return f.machine.memory, place
    if space == "local":
        return f.warp.local, lane * f.warp.local.stride + place
    if space == "const":
        return f.machine.const, place
    raise Fault("out-of-bounds", f"{f.warp!r} prints from {address:#x}, where no memory lies", "")


def text_at(f: Fragment, lane: int, address: int) -> str:
    """The string that ends with a zero byte."""
    memory, place = _bytes(f, lane, address)
    stop = place
    while stop < len(memory.data) and memory.data[stop]:
        stop += 1
    return memory.data[place:stop].tobytes().decode("utf-8", "replace")


def formatted(template: str, words: Callable[[int], int], text: Callable[[int], str]) -> str:
    """printf: `words(size)` gives the next argument of 4 or 8 bytes."""

    def one(found: re.Match[str]) -> str:
        flags, wide, precision, length, kind = found.groups()
        if kind == "%":
            return "%"
        width = str(_signed(words(4), 32)) if wide == "*" else wide or ""
        digits = "" if precision is None else "." + (str(_signed(words(4), 32)) if precision == "*" else precision)
        layout = f"%{flags}{width}{digits}"
        if kind in "aAeEfFgG":
            value = struct.unpack("<d", words(8).to_bytes(8, "little"))[0]
            return value.hex() if kind in "aA" else str(f"{layout}{kind}" % value)
        if kind == "s":
            return str(f"{layout}s" % text(words(8)))
        if kind == "p":
            return hex(words(8))
        size = 8 if length in ("l", "ll", "z", "t", "j") else 4
        value = words(size)
        if kind == "c":
            return str(f"%{flags}{width}c" % (value & 0xFF))
        if kind in "di":
            value = _signed(value, 8 * size)
        return str(f"{layout}{'d' if kind in 'diu' else kind}" % value)

    return _CONVERSION.sub(one, template)


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 else value


def _printf(f: Fragment, op: Op) -> None:
    """int vprintf(const char *format, void *arguments); the lanes print one after the other."""
    for lane in lane_list(f.mask):
        template, arguments = _arguments(f, op, lane)
        at = arguments

        def words(size: int, lane: int = lane) -> int:
            nonlocal at
            at = -(-at // size) * size
            memory, place = _bytes(f, lane, at)
            at += size
            return int.from_bytes(memory.data[place:place + size].tobytes(), "little")

        def text(address: int, lane: int = lane) -> str:
            return text_at(f, lane, address)

        f.machine.printed(formatted(text_at(f, lane, template), words, text), op)
    _result(f, op)


def _result(f: Fragment, op: Op) -> None:
    results = op.operand("ret_param")
    for element in results.elements if isinstance(results, Vector) else ():
        if isinstance(element, SymbolValue):
            f.warp.store_local(f.mask, f.frame + element.symbol.address, 1, 8 * element.symbol.size)
        elif isinstance(element, Register):
            f.R[element.index] = 1


def _assertfail(f: Fragment, op: Op) -> None:
    """void __assertfail(const char *message, const char *file, unsigned line, const char *function, size_t size)."""
    lane = lane_list(f.mask)[0]
    message, file, line, function, *_ = _arguments(f, op, lane)
    said = ", ".join(text_at(f, lane, address) for address in (function, message) if address)
    where = f"{text_at(f, lane, file)}:{line}: " if file else ""
    raise Fault("assertion", f"{where}{f.warp!r} lane {lane}: assertion `{said}` failed", "", op)


EXTERNALS: dict[str, Callable[[Any, Any], None]] = {"vprintf": _printf, "__assertfail": _assertfail}
"""By name: called with the fragment and the call; arguments are generic addresses and numbers in `.param` variables or registers."""
