"""Arguments of a simulated launch: arrays become global buffers, scalars parameter bytes, tensor maps their 128 bytes."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..dsl.tensormap import TensorMap, encodable
from ..grammar import tree
from ..grammar.operands import width
from ..types import TYPES
from .errors import SimulationError, UnsupportedError
from .memory import Allocation, Memory
from .operand import Symbol
from .spaces import GLOBAL
from .symbols import round_up
from .tensormap import BYTES, of_fields

if TYPE_CHECKING:
    from ..dsl.traced import Traced
    from .program import Program

RED_ZONE = 256
"""Bytes between buffers that belong to none, so that an access past the end of one does not reach the next."""

NAMES = {"uint8": "u8", "int8": "s8", "bool": "u8", "uint16": "u16", "int16": "s16", "uint32": "u32", "int32": "s32", "uint64": "u64",
         "int64": "s64", "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "float8_e4m3fn": "e4m3",
         "float8_e5m2": "e5m2"}


class Arguments:
    """Global memory and the parameter bytes. `copy_back` writes what the program left in the buffers into the arrays."""

    def __init__(self, program: Program, given: Sequence[Any], traced: Traced | None) -> None:
        self.program = program
        self.traced = traced
        function = program.entry.function
        symbols = program.entry.parameters
        if len(given) != len(symbols):
            names = ", ".join(s.name for s in symbols) or "none"
            raise SimulationError(f"`{function.name}` has {len(symbols)} parameters ({names}), {len(given)} arguments were given")
        self.buffers: dict[int, tuple[Any, int]] = {}
        self.size = 0
        self._allocations: list[Allocation] = []
        self._kinds(given)
        self._variables()
        placed = [self._place(symbol.name, value) for symbol, value in zip(symbols, given, strict=True)]
        self.memory = self._fill()
        self.parameters = bytearray(max((s.address + s.size for s in symbols), default=0))
        for symbol, variable, value, address in zip(symbols, function.parameters, given, placed, strict=True):
            data = self._encode(symbol, variable, value, address)
            self.parameters[symbol.address:symbol.address + len(data)] = data

    def _kinds(self, given: Sequence[Any]) -> None:
        """A kernel object says more of its parameters than PTX does: which are pointers, and to elements of which width."""
        for parameter, value in zip(() if self.traced is None else self.traced.parameters, given, strict=False):
            name = parameter.name
            if parameter.kind == "pointer":
                if not isinstance(value, np.ndarray):
                    raise SimulationError(f"`{name}` is a pointer: pass a NumPy array, not {value!r}")
                bits = 8 * value.dtype.itemsize
                if parameter.type is not None and parameter.type.bits != bits:
                    raise SimulationError(f"`{name}` points to {parameter.type.__name__}, of {parameter.type.bits} bits; the array's "
                                          f"{value.dtype} has {bits}")
            elif parameter.kind == "scalar" and isinstance(value, np.ndarray) and value.ndim:
                raise SimulationError(f"`{name}` is a number of type {parameter.type.__name__ if parameter.type else 'int'}, not an array")

    # ------------------------------------------------------------------------------------------- buffers

    def _variables(self) -> None:
        layout = self.program.layout
        self.size = layout.sizes["global"]
        for symbol in layout.symbols.values():
            if symbol.region == "global" and symbol.size:
                self._allocations.append(Allocation(symbol.name, symbol.address, symbol.address + symbol.size))

    def _place(self, name: str, value: Any) -> int:
        """The address of the buffer that an argument needs, 0 when it needs none. An array given twice has one buffer."""
        array = value.array if isinstance(value, TensorMap) else value
        if not isinstance(array, np.ndarray) or (array.ndim == 0 and not isinstance(value, TensorMap)):
            return 0
        base, low, _ = _extent(array)
        key = id(base) if base is not None else id(array)
        if array.dtype.hasobject:
            raise SimulationError(f"`{name}`: an array of Python objects has no bytes for a kernel")
        if key not in self.buffers:
            start = round_up(self.size + RED_ZONE, 256)
            owner = base if base is not None else array
            _, first, last = _extent(owner)
            self.buffers[key] = owner, start
            self.size = start + last - first
            self._allocations.append(Allocation(name, start, self.size))
        owner, start = self.buffers[key]
        return GLOBAL + start + low - _extent(owner)[1]

    def _fill(self) -> Memory:
        data = np.zeros(round_up(self.size, 16) + RED_ZONE, np.uint8)
        contents = self.program.layout.contents("global")
        data[:len(contents)] = np.frombuffer(bytes(contents), np.uint8)
        for owner, start in self.buffers.values():
            view = _bytes_of(owner)
            data[start:start + len(view)] = view
        memory = Memory(data, "global")
        memory.allocations = self._allocations
        return memory

    def copy_back(self) -> None:
        for owner, start in self.buffers.values():
            view = _bytes_of(owner)
            if owner.flags.writeable:
                view[:] = self.memory.data[start:start + len(view)]

    # ------------------------------------------------------------------------------------------- parameters

    def _encode(self, symbol: Symbol, variable: tree.Variable, value: Any, address: int) -> bytes:
        if symbol.size == BYTES and variable.shape and isinstance(value, TensorMap | np.ndarray):
            return self._tensormap(symbol.name, value, address)
        if variable.shape or variable.vector > 1:
            if isinstance(value, bytes | bytearray | np.ndarray | np.void):
                data = bytes(value) if isinstance(value, bytes | bytearray) else value.tobytes()
                if len(data) != symbol.size:
                    raise SimulationError(f"`{symbol.name}` is {symbol.size} bytes, {len(data)} were given")
                return data
            raise SimulationError(f"`{symbol.name}` is {symbol.size} bytes: pass bytes, or a NumPy record of that size")
        bits = width(variable.type)
        if isinstance(value, TensorMap):
            raise SimulationError(f"`{symbol.name}` is .{variable.type}, not a tensor map")
        if isinstance(value, np.ndarray) and value.ndim:
            if bits != 64:
                raise SimulationError(f"`{symbol.name}` is .{variable.type}: an array needs a 64-bit parameter")
            return struct.pack("<Q", address)
        return _scalar(symbol.name, variable.type, bits, value)

    def _tensormap(self, name: str, value: Any, address: int) -> bytes:
        array = value.array if isinstance(value, TensorMap) else value
        kind = NAMES.get(array.dtype.name)
        if kind is None:
            raise SimulationError(f"`{name}`: elements of {array.dtype} have no PTX type")
        item = array.dtype.itemsize
        strides = tuple(s // item for s in array.strides)
        if isinstance(value, TensorMap):
            fields = value.fields(array.shape, strides, TYPES[kind])
            address += value.offset
            if fields.type.bits != 8 * item:
                raise SimulationError(f"`{name}`: the tensor map's {fields.type.__name__} has {fields.type.bits} bits, the array's "
                                      f"{array.dtype} {8 * item}")
        else:
            record = None if self.traced is None else self.traced.copies.records.get(name)
            if record is None:
                raise SimulationError(f"`{name}` is a tensor map: pass ptxkit.TensorMap(array, box=...); a plain array will do where a "
                                      "kernel object says which tile it copies")
            if record.type.bits != 8 * item:
                raise SimulationError(f"`{name}`: the kernel copies {record.type.__name__}, the array has {array.dtype}")
            dims, steps = _contiguous_first(name, array)
            fields = encodable(record.fields(dims, steps), address, f"the tensor map of `{name}`")
        if fields.interleave:
            raise UnsupportedError(f"`{name}`: the simulator has no interleaved tensor maps")
        problem = fields.problem(address)
        if problem:
            raise SimulationError(f"the tensor map of `{name}` cannot be encoded: {problem}")
        return of_fields(fields, address).encode()


def _contiguous_first(name: str, array: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(extents, byte strides of all but the contiguous dimension), fastest dimension first."""
    item = array.dtype.itemsize
    order = sorted(range(array.ndim), key=lambda axis: (array.strides[axis], -axis))
    if array.strides[order[0]] != item and array.shape[order[0]] > 1:
        raise SimulationError(f"`{name}` has strides {array.strides}: one dimension must be contiguous")
    return tuple(array.shape[axis] for axis in order), tuple(array.strides[axis] for axis in order[1:])


def _extent(array: Any) -> tuple[Any, int, int]:
    """(the array that owns the memory or None, first byte, byte after the last)."""
    base = array.base
    while isinstance(getattr(base, "base", None), np.ndarray):
        base = base.base
    low, high = np.lib.array_utils.byte_bounds(array) if hasattr(np.lib, "array_utils") else np.byte_bounds(array)  # type: ignore[attr-defined]
    return (base if isinstance(base, np.ndarray) else None), low, high


def _bytes_of(array: Any) -> Any:
    """All bytes of an array that owns its memory, as a view."""
    low, high = _extent(array)[1:]
    if array.flags.c_contiguous or array.flags.f_contiguous:
        return array.reshape(-1, order="A").view(np.uint8)
    return np.ctypeslib.as_array((ctypes.c_uint8 * (high - low)).from_address(low))


def _scalar(name: str, type: str, bits: int, value: Any) -> bytes:
    if isinstance(value, np.generic | np.ndarray):
        value = value.item() if value.dtype.kind in "iufb" else value
    if not isinstance(value, int | float):
        raise SimulationError(f"`{name}` is .{type}: pass a number, not {value!r}")
    if type[0] == "f" and bits in (32, 64):
        return struct.pack("<f" if bits == 32 else "<d", value)
    if isinstance(value, float):
        if type == "b32":
            return struct.pack("<f", value)
        if type == "b64":
            return struct.pack("<d", value)
        raise SimulationError(f"`{name}` is .{type}: pass an int, not {value!r}")
    if not -(1 << bits - 1) <= value < 1 << bits:
        raise SimulationError(f"`{name}` is .{type}: {value} does not fit its {bits} bits")
    return (int(value) & (1 << bits) - 1).to_bytes(bits // 8, "little")
