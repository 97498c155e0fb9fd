"""A tiny evaluator of what the DSL emits for one thread, and numpy models of TMA and wgmma: the oracles of these tests.

Written from the PTX manual, not from ptxkit's code: it knows a few integer instructions, and records every other one with its
operands' values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxkit import Ptr, Reg
from ptxkit.dsl.kernel import Dim, kernel
from ptxkit.dsl.traced import Traced
from ptxkit.grammar import tree
from ptxkit.types import TYPES

Array = np.ndarray[Any, Any]


def trace(function: Callable[..., None], *, block: Dim | None = 128, **how: Any) -> Traced:
    """The trace of a function as a kernel, which is called `kernel` when the function has no name."""
    if function.__name__ == "<lambda>":
        how.setdefault("name", "kernel")
    return kernel(block=block, **how)(function).trace()


def statements(traced: Traced) -> list[tree.Statement]:
    """The body of the kernel's entry."""
    (entry,) = traced.module.entries
    assert entry.body is not None
    return list(entry.body)


def instructions(traced: Traced) -> list[tree.Instruction]:
    return [s for s in statements(traced) if isinstance(s, tree.Instruction)]


def kernel_of(type_name: str, body: Callable[..., Any]) -> Any:
    """A kernel over two registers of a type and a pointer for results."""

    def kernel(out: Any, x: Any, y: Any) -> None:
        body(out, x, y)

    type_ = TYPES[type_name]
    kernel.__annotations__ = {"out": Ptr[type_], "x": Reg[type_], "y": Reg[type_]}  # type: ignore[valid-type]
    return trace(kernel)


def opcodes(traced: Traced) -> list[str]:
    """Opcodes of the user's instructions: without what loads the parameters, and without the last `ret`."""
    found = [i.opcode for i in instructions(traced) if not i.opcode.startswith(("ld.param", "cvta"))]
    return found[:-1] if found[-1] == "ret" else found


def lines(traced: Traced) -> list[str]:
    """The entry's body as text: without declarations and without what loads the parameters."""
    body = traced.ptx().split(f".entry {traced.name}", 1)[1].split("{", 1)[1].rsplit("}", 1)[0]
    return [line.strip() for line in body.splitlines() if line.strip() and not line.strip().startswith((".", "ld.param", "cvta"))]


@dataclass(frozen=True)
class Event:
    """An instruction that the machine does not compute: its opcode and its operands' values."""

    opcode: str
    operands: tuple[Any, ...]


_RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}
_BINARY: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "and": lambda a, b: a & b,
    "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "shl": lambda a, b: a << b, "shr": lambda a, b: a >> b,
    "div": lambda a, b: quotient(a, b), "rem": lambda a, b: a - b * quotient(a, b), "min": min, "max": max,
}
_BITS = {"pred": 1, "u16": 16, "s16": 16, "b16": 16, "u32": 32, "s32": 32, "b32": 32, "u64": 64, "s64": 64, "b64": 64}


def run(traced: Traced, parameters: Mapping[str, int] | None = None, symbols: Mapping[str, int] | None = None,
        limit: int = 200_000) -> list[Event]:
    """Execute the entry in one thread; every effect in order. `symbols` are addresses of variables, 1024 for shared memory if not said."""
    known = {traced.shared.symbol: 1024, **(parameters or {}), **(symbols or {})}
    body = statements(traced)
    places = {s.name: i for i, s in enumerate(body) if isinstance(s, tree.Label)}
    values: dict[str, Any] = {}
    events: list[Event] = []

    def value(operand: tree.Operand) -> Any:
        match operand:
            case tree.Name(name):
                return values[name] if name in values else known.get(name, name)
            case tree.Integer(number):
                return number
            case tree.Float():
                return operand.value
            case tree.Vector(elements):
                return tuple(value(e) for e in elements)
            case tree.Address(base, offset) | tree.Offset(base, offset):
                return value(base) + offset
            case tree.TensorAddress(tensormap, coordinates):
                return values.get(tensormap.name), value(coordinates)
            case tree.Not(inner):
                return 1 - value(inner)
            case tree.Pair(first, second):
                return value(first), value(second)
        raise AssertionError(f"the machine does not know the operand {operand!r}")

    at = steps = 0
    while at < len(body):
        statement = body[at]
        at += 1
        if not isinstance(statement, tree.Instruction):
            continue
        steps += 1
        assert steps < limit, "the program does not end"
        guard = statement.guard
        if guard is not None and bool(values[guard.predicate]) == guard.negated:
            continue
        name, *modifiers = statement.opcode.split(".")
        bits = _BITS.get(modifiers[-1], 32) if modifiers else 32
        operands = statement.operands
        if name == "ret":
            return events
        if name == "bra":
            assert isinstance(operands[0], tree.Name)
            at = places[operands[0].name]
            continue
        result: Any = None
        if statement.opcode.startswith("ld.param"):
            address = operands[1]
            assert isinstance(address, tree.Address)
            assert isinstance(address.base, tree.Name)
            result = known[address.base.name]
        elif name in ("mov", "cvta", "cvt"):
            result = value(operands[1])
        elif name == "setp" and len(operands) == 3:
            signed = modifiers[1][0] == "s"
            result = int(_RELATIONS[modifiers[0]](*(_as(value(o), _BITS[modifiers[1]], signed) for o in operands[1:])))
        elif name == "selp":
            result = value(operands[1]) if value(operands[3]) else value(operands[2])
        elif name == "mad":
            result = value(operands[1]) * value(operands[2]) + value(operands[3])
            bits = 64 if modifiers[0] == "wide" else bits
        elif name == "bfe":
            result = value(operands[1]) >> value(operands[2]) & ((1 << value(operands[3])) - 1)
        elif name in ("not", "neg"):
            result = ~value(operands[1]) if name == "not" else -value(operands[1])
        elif name in _BINARY and len(operands) == 3 and len(modifiers) <= 2:
            high = modifiers[0] == "hi"
            signed = modifiers[-1][0] == "s" and (high or name in ("shr", "div", "rem", "min", "max"))
            result = _BINARY[name](*(_as(value(o), bits, signed) for o in operands[1:])) >> (bits if high else 0)
        elif name == "mbarrier" and "try_wait" in modifiers:
            events.append(Event(statement.opcode, tuple(value(o) for o in operands[1:])))
            result, bits = 1, 1
        if result is None:
            events.append(Event(statement.opcode, tuple(value(o) for o in operands)))
            continue
        assert isinstance(operands[0], tree.Name)
        values[operands[0].name] = result if isinstance(result, float) else result & ((1 << bits) - 1)
    raise AssertionError("the program ran past its end")


def quotient(a: int, b: int) -> int:
    """PTX's integer division, towards zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _as(number: int, bits: int, signed: bool) -> int:
    number &= (1 << bits) - 1
    return number - (1 << bits) if signed and number >> (bits - 1) else number


def stored(events: list[Event]) -> list[Any]:
    """The values of the global stores, in order."""
    return [e.operands[1] for e in events if e.opcode.startswith("st.global")]


# --------------------------------------------------------------------------------------------------- TMA and wgmma


def swizzle(address: Array, span_bytes: int) -> Array:
    """Swizzle<B, 4, 3> on byte addresses, B = 3, 2, 1 for spans of 128, 64, 32 bytes."""
    return address ^ (((address >> 7) & {128: 7, 64: 3, 32: 1}.get(span_bytes, 0)) << 4)


def tensor_load(memory: Array, address: int, array: Array, coordinates: tuple[int, int], box: tuple[int, int], swizzle_bytes: int) -> None:
    """What a 2-d tensor copy writes: box (inner, outer) of `array` from (inner, outer) `coordinates`, zeros outside it."""
    inner, outer = np.meshgrid(np.arange(box[0]), np.arange(box[1]))
    x, y = inner + coordinates[0], outer + coordinates[1]
    inside = (x >= 0) & (x < array.shape[1]) & (y >= 0) & (y < array.shape[0])
    values = np.where(inside, array[np.where(inside, y, 0), np.where(inside, x, 0)], 0).astype(array.dtype)
    size = array.dtype.itemsize
    first = address + (outer * box[0] + inner) * size
    for byte in range(size):
        memory[swizzle(first + byte, swizzle_bytes)] = values.view(np.uint8).reshape(*values.shape, size)[..., byte]


def descriptor_fields(descriptor: int) -> tuple[int, int, int, int]:
    """(start, leading byte offset, stride byte offset, swizzle in bytes) of a matrix descriptor; all other bits must be zero."""
    start, leading, stride = ((descriptor >> shift & 0x3FFF) << 4 for shift in (0, 16, 32))
    mode = descriptor >> 62
    assert descriptor & ~(0x3FFF | 0x3FFF << 16 | 0x3FFF << 32 | 3 << 62) == 0, f"bits outside the fields: {descriptor:#x}"
    return start, leading, stride, {0: 0, 1: 128, 2: 64, 3: 32}[mode]


def matrix_read(memory: Array, descriptor: int, rows: int, depth: int, dtype: Any, transposed: bool) -> Array:
    """The rows x depth operand (M or N by K) that wgmma reads: the manual's canonical layouts, strides in elements, then the swizzle."""
    start, leading_bytes, stride_bytes, span = descriptor_fields(descriptor)
    size = np.dtype(dtype).itemsize
    T, LBO, SBO = 16 // size, leading_bytes // size, stride_bytes // size
    i, j = np.meshgrid(np.arange(rows), np.arange(depth), indexing="ij")
    units = {0: 1, 32: 2, 64: 4, 128: 8}[span]
    if not transposed:
        if span == 0:                       # ((8,m),(T,2k)):((T,SBO),(1,LBO))
            offset = i % 8 * T + i // 8 * SBO + j % T + j // T * LBO
        else:                               # ((8,m),(T,2k)):((units T,SBO),(1,T))
            offset = i % 8 * units * T + i // 8 * SBO + j % T + j // T * T
    else:
        inner, column, block = i % T, i // T % units, i // (T * units)
        if span == 0:                       # ((T,1,m),(8,k)):((1,T,SBO),(T,LBO))
            offset = inner + block * SBO + j % 8 * T + j // 8 * LBO
        else:                               # ((T,units,m),(8,k)):((1,T,LBO),(units T,SBO))
            offset = inner + column * T + block * LBO + j % 8 * units * T + j // 8 * SBO
    first = start + offset * size
    raw = np.stack([memory[swizzle(first + byte, span)] for byte in range(size)], axis=-1)
    return np.ascontiguousarray(raw).view(dtype)[..., 0]
