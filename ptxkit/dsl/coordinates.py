"""Where the elements of an mma or wgmma fragment are: rows, columns and registers, as in the manual's figures."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from ..errors import TraceError
from .reg import Index, Reg, Special, Vec

Operand = Literal["d", "a", "b"]
_SHAPE = re.compile(r"\.m(\d+)n(\d+)k(\d+)")
_BITS = {"f64": 64, "f32": 32, "tf32": 32, "s32": 32, "f16": 16, "bf16": 16, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4, "u4": 4,
         "b1": 1}


class Element(NamedTuple):
    """An element of a fragment: its place from the thread's first element, in constants, and its register."""

    row: int
    column: int
    register: Reg[Any]


class Run(NamedTuple):
    """Neighbours in a row: the place of the first one from the thread's first element, in constants, and their registers."""

    row: int
    column: int
    registers: Vec[Any, Any]


class Coordinates:
    """Where a thread's elements of one operand are. `row` and `column` are registers: the place of its first element.

    The others are at constant distances, `places[i]` (row, column) for element i, so that they fold into addresses.
    """

    def __init__(self, row: Reg[Any], column: Reg[Any], places: Sequence[tuple[int, int]], packed: int) -> None:
        self.row, self.column = row, column
        self.places = tuple(places)
        self.packed = packed
        """Elements in one register."""

    def elements(self, fragment: Vec[Any, Any]) -> Iterator[Element]:
        """(row, column, register) of each element. A register with several elements comes with the place of its first one."""
        self._fits(fragment)
        for i, register in enumerate(fragment):
            yield Element(*self.places[i * self.packed], register)

    def runs(self, fragment: Vec[Any, Any]) -> Iterator[Run]:
        """(row, column, registers) of neighbours in a row, for vector loads and stores."""
        self._fits(fragment)
        at, registers = self.places[::self.packed], list(fragment)
        first = 0
        for i in range(1, len(registers) + 1):
            if i == len(registers) or at[i] != (at[i - 1][0], at[i - 1][1] + self.packed):
                yield Run(*at[first], Vec(registers[first:i]))
                first = i

    def _fits(self, fragment: Vec[Any, Any]) -> None:
        if len(fragment) * self.packed != len(self.places):
            raise TraceError(f"these coordinates are of {len(self.places) // self.packed} registers, and the fragment has {len(fragment)}")


def coordinates(opcode: Any, thread: Index, operand: Operand = "d", *, row: Index = 0) -> Coordinates:
    """`opcode.coordinates(thread, operand)`: the elements of operand d, a or b of a wgmma or an mma with m16n8.

    `thread` is the thread's number in the warpgroup (wgmma) or the lane (mma). Emits for wgmma shr, and, shr, mad (row) and and, shl
    (column); for mma shr, and, shl. Rows of b are its depth k. `row` is where the fragment begins: then rows are those of the matrix (one
    add).
    """
    name = str(opcode)
    shape = _SHAPE.search(name)
    wide = name.startswith("wgmma.mma_async")
    if shape is None or not (wide or (name.startswith("mma.sync") and shape[1] == "16" and shape[2] == "8")) or ".sp" in name:
        raise TraceError(f"`{name}` has no coordinates here: a dense wgmma.mma_async and an mma.sync with m16n8 have")
    if wide and operand == "b":
        raise TraceError(f"B of `{name}` is in shared memory: `tile[stage].at(row, column)` is the place of an element")
    if operand not in ("d", "a", "b"):
        raise TraceError(f"coordinates are of operand 'd', 'a' or 'b', not {operand!r}: those of c are those of d")
    kinds = [t for t in name[shape.end():].split(".") if t in _BITS]
    bits = _BITS[kinds[("d", "a", "b").index(operand)]]
    thread = thread.read() if isinstance(thread, Special) else thread
    if not isinstance(thread, Reg) or thread.type.register != "b32":
        raise TraceError(f"coordinates are of a thread in a 32-bit register, as `mov.u32(laneid)`, not of {thread!r}")
    packed = max(1, 32 // bits)
    lane = thread & 31 if wide else thread
    first, second = lane >> 2, (lane & 3) * (2 if operand == "d" else packed)
    moved = type(row) is not int or row
    if wide:
        warp = (thread >> 5) * 16
        first = (row + warp if moved else warp) + first
    elif moved and operand == "b":
        second = row + second
    elif moved:
        first = row + first
    n, k = int(shape[2]), int(shape[3])
    if operand == "d":
        places = [(8 * half, 8 * block + i) for block in range(n // 8) for half in range(2) for i in range(2)]
        return Coordinates(first, second, places, packed)
    step = 4 * packed
    deep = [(half, part, i) for part in range(k // step) for half in range(2 if operand == "a" else 1) for i in range(packed)]
    if operand == "a":
        return Coordinates(first, second, [(8 * half, part * step + i) for half, part, i in deep], packed)
    return Coordinates(second, first, [(part * step + i, 0) for _, part, i in deep], packed)


__all__ = ["Coordinates", "Element", "Operand", "Run", "coordinates"]
