"""Arguments of a simulated launch: arrays become global buffers, scalars parameter bytes, tensor maps their 128 bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..dsl.arguments import counted, host, map_fields, native, needed, packed, pointed
from ..dsl.parameters import Parameter
from ..dsl.tensormap import TensorMap
from ..errors import LaunchError
from ..grammar import tree
from ..grammar.operands import width
from .errors import SimulationError, UnsupportedError
from .limits import Limits
from .memory import Allocation, Memory
from .operand import Symbol
from .spaces import GLOBAL
from .storage import bytes_of, extent, refuse_elements
from .struct import Struct, placed
from .symbols import round_up
from .tensormap import BYTES, of_fields

if TYPE_CHECKING:
    from ..dsl.traced import Traced
    from .program import Program

RED_ZONE = 256
"""Bytes between buffers that belong to none, so that an access past the end of one does not reach the next."""


class Arguments:
    """Global memory and the parameter bytes. `copy_back` writes what the program left in the buffers into the arrays."""

    def __init__(self, program: Program, given: Sequence[Any], traced: Traced | None, limits: Limits,
                 names: Sequence[str] | None = None) -> None:
        self.program = program
        self.limits = limits
        self.traced = traced
        function = program.entry.function
        symbols = program.entry.parameters
        self.author = bool(names)
        self.names = list(names) if names else [symbol.name for symbol in symbols]
        if len(self.names) != len(symbols):
            raise SimulationError(f"`{self.program.entry.name}` has {len(symbols)} parameters, and {len(self.names)} names are given")
        self.given = given
        self.buffers: dict[int, tuple[Any, int]] = {}
        self.size = 0
        self._allocations: list[Allocation] = []
        self._variables()
        try:
            self._take(function.parameters, symbols)
        except LaunchError as error:
            raise error if isinstance(error, SimulationError) else SimulationError(str(error)) from None

    def _take(self, variables: Sequence[tree.Variable], symbols: Sequence[Symbol]) -> None:
        declared: Sequence[Parameter | None] = [None] * len(symbols) if self.traced is None else self.traced.parameters
        needs = [_needed(name, symbol, variable) if parameter is None else needed(parameter)
                 for name, symbol, variable, parameter in zip(self.names, symbols, variables, declared, strict=True)]
        counted(self.program.entry.name, needs, len(self.given))
        placed = [self._place(name, value) for name, value in zip(self.names, self.given, strict=True)]
        self.memory = self._fill()
        self.parameters = bytearray(max((s.address + s.size for s in symbols), default=0))
        for i, (symbol, variable, value) in enumerate(zip(symbols, variables, self.given, strict=True)):
            data = self._encode(self.names[i], symbol, variable, declared[i], value, placed[i])
            self.parameters[symbol.address:symbol.address + len(data)] = data

    # ------------------------------------------------------------------------------------------- buffers

    def _variables(self) -> None:
        layout = self.program.layout
        self.size = layout.sizes["global"]
        for symbol in layout.placed:
            if symbol.region == "global" and symbol.size:
                self._allocations.append(Allocation(symbol.name, symbol.address, symbol.address + symbol.size))

    def _place(self, name: str, value: Any) -> Any:
        """The address of the first element of an array, 0 of other arguments, of a struct those of its parts. An array given twice has one
        buffer.
        """
        if isinstance(value, Struct):
            parts = list(value.parts())
            named = self.author and len(parts) == 1             # an author's name of the one array in it
            return [self._place(name if named else f"{name}+{at}", part) + more for at, part, more in parts]
        array = value.array if isinstance(value, TensorMap) else value
        if not isinstance(array, np.ndarray) or (array.ndim == 0 and not isinstance(value, TensorMap)):
            return 0
        if array.dtype.hasobject:
            raise SimulationError(f"`{name}`: an array of Python objects has no bytes for a kernel")
        native(name, array.dtype)
        base, _, _ = extent(array)
        key = id(base) if base is not None else id(array)
        if key not in self.buffers:
            start = round_up(self.size + RED_ZONE, 256)
            owner = base if base is not None else array
            _, first, last = extent(owner)
            self.buffers[key] = owner, start
            self.size = start + last - first
            self._allocations.append(Allocation(name, start, self.size))
        owner, start = self.buffers[key]
        return GLOBAL + start + int(array.__array_interface__["data"][0]) - extent(owner)[1]

    def regions(self) -> Iterator[tuple[str, int, int, int]]:
        """(name, first byte in global memory, bytes, address on the host) of each buffer."""
        names = {allocation.start: allocation.name for allocation in self._allocations}
        for owner, start in self.buffers.values():
            _, low, high = extent(owner)
            yield names[start], start, high - low, low

    def allocation(self, name: str) -> Allocation:
        """The memory of the argument of that name."""
        found = next((allocation for allocation in self._allocations if allocation.name == name), None)
        if found is None:
            there = ", ".join(allocation.name for allocation in self._allocations)
            raise SimulationError(f"{name!r} is no argument with memory of its own: there are {there or 'none'}")
        return found

    def part_of(self, index: int) -> tuple[int, int] | None:
        """The bytes of global memory (first, behind the last) of an argument; None where it is no array."""
        value = self.given[index]
        if isinstance(value, Struct) and len(parts := list(value.parts())) == 1:
            value = parts[0][1]
        place = self.place_of(value.array if isinstance(value, TensorMap) else value)
        return None if place is None else place[1:]

    def place_of(self, array: Any) -> tuple[str, int, int] | None:
        """(the buffer's name, first byte, byte behind the last) of an array in the memory of an argument."""
        if not isinstance(array, np.ndarray):
            return None
        base, low, high = extent(array)
        kept = self.buffers.get(id(base) if base is not None else id(array))
        if kept is None:
            return None
        owner, start = kept
        first = start + low - extent(owner)[1]
        name = next(a.name for a in self._allocations if a.start == start)
        return name, first, first + high - low

    def _fill(self) -> Memory:
        if self.size > self.limits.memory:
            raise SimulationError(f"the arguments and the .global variables take {self.size:,} bytes of global memory: "
                                  f"{self.limits.says('memory')}")
        data = np.zeros(round_up(self.size, 16) + RED_ZONE, np.uint8)
        contents = self.program.layout.contents("global")
        data[:len(contents)] = np.frombuffer(bytes(contents), np.uint8)
        for owner, start in self.buffers.values():
            view = bytes_of(owner)
            data[start:start + len(view)] = view
        memory = Memory(data, "global")
        memory.allocations = self._allocations
        return memory

    def variables(self) -> dict[str, bytes]:
        """What the module's own variables in global memory hold, by name."""
        return {symbol.name: self.memory.data[symbol.address:symbol.address + symbol.size].tobytes()
                for symbol in self.program.layout.symbols.values() if symbol.region == "global" and symbol.size}

    def copy_back(self) -> None:
        """What the program left in memory, into the arrays. Raises SimulationError, after that, where it wrote to a read-only array."""
        lost = []
        names = {allocation.start: allocation.name for allocation in self._allocations}
        for owner, start in self.buffers.values():
            view = bytes_of(owner)
            left = self.memory.data[start:start + len(view)]
            if owner.flags.writeable:
                view[:] = left
            elif not np.array_equal(view, left):
                lost.append(names[start])
        if lost:
            raise SimulationError(f"the kernel wrote to `{lost[0]}`, and that array is read-only: pass a copy of it, `array.copy()`")

    # ------------------------------------------------------------------------------------------- parameters

    def _encode(self, name: str, symbol: Symbol, variable: tree.Variable, parameter: Parameter | None, value: Any, address: Any) -> bytes:
        """The bytes of an argument. A kernel object says more of its parameters than PTX does: `parameter`."""
        refuse_elements(name, value)
        if isinstance(value, Struct):
            return self._struct(name, symbol, variable, value, address)
        if symbol.size == BYTES and variable.shape and isinstance(value, TensorMap | np.ndarray):
            return self._tensormap(name, value, address)
        if variable.shape or variable.vector > 1:
            return _block(name, symbol.size, value)
        if parameter is not None and parameter.kind == "pointer":
            if not isinstance(value, np.ndarray):
                raise SimulationError(f"`{name}` is a pointer: pass a NumPy array, not {value!r}")
            if parameter.type is not None:
                pointed(parameter, host(name, value, address))
        elif parameter is not None and parameter.kind == "scalar" and isinstance(value, np.ndarray) and value.ndim:
            raise SimulationError(f"`{name}` is a number of type {variable.type}, not an array")
        if isinstance(value, TensorMap):
            raise SimulationError(f"`{name}` is .{variable.type}, not a tensor map")
        if isinstance(value, np.ndarray) and value.ndim:
            if width(variable.type) != 64:
                raise SimulationError(f"`{name}` is .{variable.type}: an array needs a 64-bit parameter")
            return struct.pack("<Q", address)
        return packed(name, variable.type, value, signed=parameter is None)

    def _struct(self, called: str, symbol: Symbol, variable: tree.Variable, value: Struct, addresses: list[Any]) -> bytes:
        if not variable.shape:
            raise SimulationError(f"`{called}` is .{variable.type}, not a block of bytes: pass a number or an array, not a Struct")
        data = value.bytes(called, symbol.size)
        for (at, part, _), address in zip(value.parts(), addresses, strict=True):
            name = f"{called}+{at}"
            if isinstance(part, TensorMap):
                encoded = self._tensormap(name, part, address)
            elif isinstance(part, np.ndarray) and part.ndim:
                encoded = struct.pack("<Q", address)
            elif isinstance(part, np.generic | np.ndarray | bytes):
                encoded = part if isinstance(part, bytes) else part.tobytes()
            else:
                raise SimulationError(f"`{name}`: {part!r} has no size: pass an array, a TensorMap, bytes, or a NumPy number such as "
                                      "np.int32(5)")
            placed(called, at, part, data, encoded)
        return bytes(data)

    def _tensormap(self, name: str, value: Any, address: int) -> bytes:
        explicit = value if isinstance(value, TensorMap) else None
        record = None if self.traced is None else self.traced.copies.records.get(name)
        if record is None and explicit is None:
            raise SimulationError(f"`{name}` is a tensor map: pass ptxkit.TensorMap(array, box=...); a plain array will do where a "
                                  "kernel object says which tile it copies")
        fields = map_fields(self.program.entry.name, record, name, host(name, value if explicit is None else explicit.array, address),
                            explicit)
        if fields.interleave:
            raise UnsupportedError(f"`{name}`: the simulator has no interleaved tensor maps")
        return of_fields(fields, address + (0 if explicit is None else explicit.offset)).encode()


def _needed(name: str, symbol: Symbol, variable: tree.Variable) -> tuple[str, str]:
    if variable.shape or variable.vector > 1:
        other = ": a TensorMap, or bytes" if symbol.size == BYTES else ": bytes, a NumPy record or a sim.Struct"
        return name, f"{symbol.size} bytes{other}"
    return name, f"{'an array or ' * (width(variable.type) == 64)}a number (.{variable.type})"


def _block(name: str, size: int, value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | np.ndarray | np.void):
        raise SimulationError(f"`{name}` is {size} bytes: pass bytes, a NumPy record of that size, or a sim.Struct, not {value!r}")
    data = bytes(value) if isinstance(value, bytes | bytearray) else value.tobytes()
    if len(data) != size:
        raise SimulationError(f"`{name}` is {size} bytes, {len(data)} were given")
    return data
