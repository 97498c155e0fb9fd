"""Operands of decoded instructions."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TypeAlias, Union


@dataclass(frozen=True, slots=True)
class Symbol:
    """A variable: `address` counts bytes from the start of its region.

    `region`: "shared", "dynamic" (shared memory that the launch sizes), "global", "const", "param" (of the entry), "frame" (of the
    activation: local variables and parameters of device functions).
    """

    name: str
    space: str
    region: str
    address: int
    size: int
    element: int
    type: str


@dataclass(frozen=True, slots=True)
class Register:
    index: int
    bits: int
    type: str

    def registers(self) -> tuple[int, ...]:
        return (self.index,)


@dataclass(frozen=True, slots=True)
class Immediate:
    """A literal: an integer of any sign, or the bits of a float of `width` bits."""

    value: int
    width: int = 0

    def bits(self, width: int, type: str) -> int:
        """The literal as an operand of that type and width."""
        if not self.width or self.width == width:
            return self.value & (1 << width) - 1 if width else self.value
        wide, narrow = ("<Q", "<d"), ("<I", "<f")
        (take, read), (give, write) = (wide, narrow) if self.width == 64 else (narrow, wide)
        number = struct.unpack(read, struct.pack(take, self.value))[0]
        try:
            packed = struct.pack(write, number)
        except OverflowError:
            packed = struct.pack(write, float("inf") if number > 0 else float("-inf"))
        return int(struct.unpack(give, packed)[0])

    def registers(self) -> tuple[int, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class SpecialRegister:
    name: str

    def registers(self) -> tuple[int, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class SymbolValue:
    """The address of a variable, plus bytes."""

    symbol: Symbol
    offset: int = 0

    def registers(self) -> tuple[int, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class Sink:
    """`_`: the lane or result is not wanted."""

    def registers(self) -> tuple[int, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class Word:
    """A label or function name; of a branch, the indices of its target blocks, separated by commas."""

    text: str

    def registers(self) -> tuple[int, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class Negated:
    operand: Operand

    def registers(self) -> tuple[int, ...]:
        return self.operand.registers()


@dataclass(frozen=True, slots=True)
class Vector:
    elements: tuple[Operand, ...]

    def registers(self) -> tuple[int, ...]:
        return tuple(index for element in self.elements for index in element.registers())


@dataclass(frozen=True, slots=True)
class Address:
    """`[base+offset]`."""

    base: Register | SymbolValue | Immediate
    offset: int = 0

    def registers(self) -> tuple[int, ...]:
        return self.base.registers()


@dataclass(frozen=True, slots=True)
class Indexed:
    """`array[register+n]`: the element size scales the index."""

    base: SymbolValue
    index: Register
    scale: int

    def registers(self) -> tuple[int, ...]:
        return self.index.registers()


Operand: TypeAlias = Union[Register, Immediate, SpecialRegister, SymbolValue, Sink, Word, Negated, Vector, Address, Indexed]
