"""atom and red. Lanes that meet at one place are served in ascending order; f32 sums are flushed (`red.f32`, `atom.f32` in global
memory), f64 sums and the halves are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...grammar.operands import width
from ..errors import Fault
from ..memory import Mixed, read, resolve, write
from ..operand import Vector
from ..program import Op
from ..rounding import FORMATS, add_odd, canonical, decode, encode, flush, quiet
from ..values import DTYPES, SIGNED, Array, lane_list, lanes, merge, spread, wide_lanes
from .floating import choose
from .registry import Run, action

Update = Callable[..., Array]


@action("atom", "red")
def atomic(op: Op) -> Run:
    type = op.bindings["type"]
    b = op.operand("b")
    count = len(b.elements) if isinstance(b, Vector) else 1
    size = width(type) // 8
    update = updates(op.bindings["op"], type, op)
    returns = op.tokens[0] == "atom"
    space = op.space("a")
    vector = isinstance(b, Vector)

    def at(f: Any, mask: int, address: Any, values: list[Any], swapped: Any) -> list[Any]:
        try:
            memory, places = resolve(f, mask, op, space, address, size * count)
        except Mixed as mixed:
            return both(f, mixed, address, values, swapped)
        if memory.space not in ("shared", "global"):
            raise Fault("read-only" if memory.space != "local" else "out-of-bounds", f"{f.warp!r}: `{op.opcode}` in {memory.space} memory",
                        "atomics are for global and shared memory", op)
        moved = size * count * mask.bit_count()
        memory.traffic[0] += moved
        memory.traffic[1] += moved
        if f.machine.watch is not None:
            f.machine.watch.access(f, mask, op, "a", memory, places, size * count, True, values)
        found = [np.zeros((32, 2) if size == 16 else 32, DTYPES[min(8 * size, 64)]) for _ in range(count)]
        for group in ranks(places, mask):
            for i, value in enumerate(values):
                old = _read(memory, places, size, i * size)
                new = update(old, value) if swapped is None else np.where(_equal(old, value), swapped, old)
                found[i][lanes(group)] = old[lanes(group)]
                _write(memory, places, new, size, group, i * size)
        return found

    def both(f: Any, mixed: Mixed, address: Any, values: list[Any], swapped: Any) -> list[Any]:
        found: list[Any] = [0] * count
        for part in mixed.masks.values():
            near = np.where(lanes(part), address, address[part.bit_length() - 1])
            found = [merge(part, new, old, 8 * size) for new, old in zip(at(f, part, near, values, swapped), found, strict=True)]
        return found

    @quiet
    def run(f: Any, mask: int, address: Any, b: Any, c: Any = None, *_: Any) -> Any:
        swapped = _spread(c, size) if op.bindings["op"] == "cas" else None
        found = at(f, mask, address, [_spread(value, size) for value in (b if vector else (b,))], swapped)
        if not returns:
            return None
        results = [_narrowed(f, value) for value in found]
        return results if vector else results[0]

    return run


def _narrowed(f: Any, value: Array) -> Any:
    """A single lane holds ints."""
    if f.lane is None:
        return value
    lane = value[f.lane].tolist() if isinstance(value, np.ndarray) else value
    return lane[0] | lane[1] << 64 if isinstance(lane, list) else lane


def ranks(places: Any, mask: int) -> list[int]:
    """The lanes in groups whose members have different places; a place's lanes are in ascending groups."""
    if mask & mask - 1 == 0:
        return [mask]
    if isinstance(places, int):
        return [1 << lane for lane in lane_list(mask)]
    seen: dict[int, int] = {}
    groups: list[int] = []
    listed = places.tolist()
    for lane in lane_list(mask):
        rank = seen.get(listed[lane], 0)
        seen[listed[lane]] = rank + 1
        if rank == len(groups):
            groups.append(0)
        groups[rank] |= 1 << lane
    return groups


def _spread(value: Any, size: int) -> Array:
    return np.ascontiguousarray(wide_lanes(value)) if size == 16 else spread(value, 8 * size)


def _equal(a: Array, b: Array) -> Array:
    same: Array = a == b
    return np.all(same, axis=1, keepdims=True) if same.ndim == 2 else same


def _read(memory: Any, places: Any, size: int, offset: int) -> Array:
    if size < 16:
        return spread(read(memory, places, size, offset), 8 * size)
    return np.stack([spread(read(memory, places, 8, offset + half), 64) for half in (0, 8)], 1)


def _write(memory: Any, places: Any, value: Array, size: int, mask: int, offset: int) -> None:
    if size < 16:
        write(memory, places, value, size, mask, offset)
        return
    for half in (0, 1):
        write(memory, places, np.ascontiguousarray(value[:, half]), 8, mask, offset + 8 * half)


def updates(name: str, type: str, op: Op | None = None) -> Update:
    """The new value of a word, from the old one and the operand, as arrays of bits."""
    bits = min(width(type), 64)
    of = type.removesuffix("x2")
    if name in ("exch", "cas"):
        return lambda old, new: new
    if name in ("and", "or", "xor"):
        return {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[name]
    if name == "inc":
        return lambda old, top: np.where(old >= top, np.uint32(0), old + np.uint32(1))
    if name == "dec":
        return lambda old, top: np.where((old == 0) | (old > top), top, old - np.uint32(1))
    if of in FORMATS:
        return _floating(name, type, of)
    if name == "add":
        return np.add
    ufunc = np.minimum if name == "min" else np.maximum
    if type[0] == "u":
        return ufunc
    return lambda old, new: ufunc(old.view(SIGNED[bits]), new.view(SIGNED[bits])).view(DTYPES[bits])


def _floating(name: str, type: str, of: str) -> Update:
    packed = type.endswith("x2")

    def one(old: Array, new: Array) -> Array:
        if name != "add":
            return choose(name, old, new, of)
        if of == "f64":
            return (old.view(np.float64) + new.view(np.float64)).view(np.uint64)
        if of == "f32":
            x, y = flush(old, of), flush(new, of)
            return flush(canonical((x.view(np.float32) + y.view(np.float32)).view(np.uint32), of), of)
        return encode(add_odd(decode(old, of), decode(new, of)), of)

    if not packed:
        return one
    return lambda old, new: one(old.view(np.uint16), np.ascontiguousarray(new).view(np.uint16)).view(np.uint32)
