"""Tensor maps: 128 opaque bytes in memory, and the boxes that tensor copies move through them.

The bytes are the simulator's own encoding (the hardware's is not public); kernels may copy them and edit them with
`tensormap.replace`, which is all that the architecture allows.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..dsl.descriptor import TensorMapFields
from ..grammar.operands import width
from ..types import TYPES as SCALARS
from .errors import Fault, UnsupportedError
from .reduction import reduced
from .spaces import GLOBAL
from .tasks import Region
from .values import DTYPES, Array

if TYPE_CHECKING:
    from .memory import Memory
    from .program import Op

BYTES = 128
TYPES = ("u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f32.ftz", "f64", "bf16", "tf32", "tf32.ftz")
"""Element types by their number in `tensormap.replace`."""
SWIZZLES = (0, 32, 64, 128)
INTERLEAVES = (0, 16, 32)
_FORMAT = struct.Struct("<4sQBBBBBxxx5I4Q5I5B")
_MAGIC = b"tmap"
_NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "f32.ftz": 0x7FFFFFFF, "tf32": 0x7FFFFFFF, "tf32.ftz": 0x7FFFFFFF,
        "f64": 0x7FFFFFFFFFFFFFFF}
_STORED_AS = {"s8": "u8", "e4m3": "u8", "e5m2": "u8", "b8": "u8", "s16": "u16", "b16": "u16", "b32": "u32", "b64": "u64"}


@dataclass(frozen=True, slots=True)
class Map:
    """A decoded tensor map. All five dimensions are kept, whatever the rank; extents count elements, contiguous first."""

    address: int
    rank: int
    type: str
    interleave: int
    swizzle: int
    fill: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return width(self.type.partition(".")[0]) // 8

    @property
    def extents(self) -> tuple[int, ...]:
        """Elements that a copy moves along each dimension, contiguous first."""
        return (self.box[0], *(-(-b // s) for b, s in zip(self.box[1:self.rank], self.steps[1:self.rank], strict=True)))

    @property
    def box_bytes(self) -> int:
        """Bytes of a box in shared memory; what complete_tx counts, out-of-bounds elements included."""
        total = self.size
        for extent in self.extents:
            total *= extent
        return total

    @property
    def problem(self) -> str | None:
        """What is wrong with the map, as `cuTensorMapEncodeTiled` would have seen; maps that a kernel has edited are not seen by it."""
        return _problem(self)

    def past(self, coordinate: int) -> int:
        """Bytes by which the innermost coordinate lies behind a multiple of 16: where this is not 0, the hardware traps.

        Interleaved maps, of which it is not known, are not executed anyway.
        """
        return 0 if self.interleave else coordinate * self.size % 16

    def encode(self) -> bytes:
        kind = TYPES.index(self.type)
        return _FORMAT.pack(_MAGIC, self.address, self.rank - 1, kind, INTERLEAVES.index(self.interleave), SWIZZLES.index(self.swizzle),
                            self.fill, *self.dims, *self.strides, *self.box, *self.steps).ljust(BYTES, b"\0")


@lru_cache(maxsize=256)
def _problem(map: Map) -> str | None:
    rank, fill = map.rank, "nan" if map.fill else "zeros"
    fields = TensorMapFields(SCALARS[map.type.partition(".")[0]], map.dims[:rank], map.strides[:rank - 1], map.box[:rank], map.steps[:rank],
                             map.swizzle, map.interleave, fill)
    problem = fields.problem(map.address)
    return None if problem is None else f"cannot be: {problem}"


def of_fields(fields: TensorMapFields, address: int) -> Map:
    """The map that `cuTensorMapEncodeTiled` would make of the fields."""

    def five(values: tuple[int, ...], fill: int, count: int = 5) -> tuple[int, ...]:
        return (*values, *(fill,) * (count - len(values)))

    name = fields.type.__name__
    return Map(address, len(fields.dims), _STORED_AS.get(name, name), fields.interleave, fields.swizzle, int(fields.fill == "nan"),
               five(fields.dims, 1), five(fields.strides, 0, 4), five(fields.box, 1), five(fields.element_strides, 1))


@lru_cache(maxsize=256)
def decode(encoded: bytes) -> Map | None:
    """The map that 128 bytes are; None when they are none."""
    magic, address, rank, kind, interleave, swizzle, fill, *rest = _FORMAT.unpack(encoded[:_FORMAT.size])
    if magic != _MAGIC or kind >= len(TYPES) or rank > 4 or interleave > 2 or swizzle > 3:
        return None
    return Map(address, rank + 1, TYPES[kind], INTERLEAVES[interleave], SWIZZLES[swizzle], fill, tuple(rest[:5]), tuple(rest[5:9]),
               tuple(rest[9:14]), tuple(rest[14:19]))


def replaced(encoded: bytes, field: str, ordinal: int, value: int) -> bytes:
    """The map's bytes after `tensormap.replace`."""
    old = decode(encoded)
    if old is None:
        raise ValueError

    def put(values: tuple[int, ...]) -> tuple[int, ...]:
        return (*values[:ordinal], value, *values[ordinal + 1:])

    changes: dict[str, Any] = {
        "global_address": lambda: {"address": value}, "rank": lambda: {"rank": value + 1}, "box_dim": lambda: {"box": put(old.box)},
        "global_dim": lambda: {"dims": put(old.dims)}, "element_stride": lambda: {"steps": put(old.steps)},
        "global_stride": lambda: {"strides": put(old.strides)}, "elemtype": lambda: {"type": TYPES[value]},
        "interleave_layout": lambda: {"interleave": INTERLEAVES[value]}, "swizzle_mode": lambda: {"swizzle": SWIZZLES[value]},
        "fill_mode": lambda: {"fill": value}}
    return replace(old, **changes[field]()).encode()


# ------------------------------------------------------------------------------------------------ boxes


@dataclass(frozen=True, slots=True)
class Box:
    """A box at coordinates (contiguous first) of a map's array."""

    map: Map
    at: tuple[int, ...]

    def _part(self, memory: Memory, op: Op, part: tuple[slice, ...]) -> Array:
        """What the box covers of the array, slowest dimension first. The rest need not be memory: the array may begin before a buffer."""
        m = self.map
        if m.interleave:
            raise UnsupportedError(f"`{op.opcode}` with an interleaved tensor map")
        dtype = np.dtype(DTYPES[8 * m.size])
        strides = (*m.strides[:m.rank - 1][::-1], m.size)
        place = m.address - GLOBAL + sum(each.start * stride for each, stride in zip(part, strides, strict=True))
        shape = tuple(-(-(each.stop - each.start) // each.step) for each in part)
        if 0 in shape:
            return np.empty(shape, dtype)
        steps = tuple(stride * each.step for each, stride in zip(part, strides, strict=True))
        last = place + sum((n - 1) * s for n, s in zip(shape, steps, strict=True)) + m.size
        if memory.allocation(place, last) is None:
            raise Fault("out-of-bounds", f"a box of `{op.opcode}` covers {last - place} bytes at {place + GLOBAL:#x}, where no buffer lies "
                        f"(the tensor map's array begins at {m.address:#x})", "", op)
        return np.ndarray(shape, dtype, memory.data, place, steps)

    def _clip(self) -> tuple[tuple[slice, ...], tuple[slice, ...], bool]:
        """(where in the array, where in the box, whether all of the box is inside), slowest dimension first."""
        m = self.map
        source, target, whole = [], [], True
        for axis in range(m.rank - 1, -1, -1):
            step = m.steps[axis] if axis else 1
            count = m.extents[axis]
            start = self.at[axis]
            first = max(0, -(start // step)) if start < 0 else 0
            stop = min(count, -(-(m.dims[axis] - start) // step))
            stop = max(stop, first)
            whole = whole and first == 0 and stop == count
            source.append(slice(start + first * step, max(start + (stop - 1) * step + 1, 0), step) if stop > first else slice(0, 0, step))
            target.append(slice(first, stop))
        return tuple(source), tuple(target), whole

    def fetch(self, memory: Memory, op: Op) -> Array:
        """The box's elements as bytes in rows of 16, out-of-bounds ones filled."""
        m = self.map
        source, target, whole = self._clip()
        view = self._part(memory, op, source)
        if whole:
            found = np.ascontiguousarray(view)
            if found.base is not None:
                found = found.copy()
        else:
            found = np.full(m.extents[::-1], _NAN.get(m.type, 0) if m.fill else 0, view.dtype)
            found[target] = view
        return found.reshape(-1).view(np.uint8)

    def put(self, memory: Memory, op: Op, data: Array, operation: str | None = None) -> None:
        """Write the box, or combine it with what is there; what is out of bounds is dropped."""
        source, target, _ = self._clip()
        view = self._part(memory, op, source)
        new = data.view(view.dtype).reshape(self.map.extents[::-1])[target]
        if operation is not None:
            old = np.ascontiguousarray(view)
            made = reduced(operation, self.map.type, old.reshape(-1).view(np.uint8), np.ascontiguousarray(new).reshape(-1).view(np.uint8))
            new = made.view(view.dtype).reshape(new.shape)
        view[...] = new

    def region(self, memory: Memory) -> Region:
        """The global bytes that the box covers inside the array: a run per line."""
        m = self.map
        source, _, _ = self._clip()
        starts = np.zeros(1, np.int64) + (m.address - GLOBAL)
        for axis in range(m.rank - 1, 0, -1):
            part = source[m.rank - 1 - axis]
            steps = np.arange(part.start, part.stop, part.step, dtype=np.int64) * m.strides[axis - 1]
            starts = (starts[:, None] + steps[None, :]).reshape(-1)
        inner = source[-1]
        return Region(memory, starts + inner.start * m.size, (inner.stop - inner.start) * m.size)


@lru_cache(maxsize=512)
def swizzle_order(chunks: int, start: int, span: int) -> Array | None:
    """Where chunk i of a box goes, relative to its first chunk, which lies at `start` (in chunks, modulo 64); None: in order."""
    if not span:
        return None
    places = np.arange(chunks) + start
    places ^= (places >> 3) & (span // 16 - 1)
    return (places - start).astype(np.intp)


def scatter(chunks: Array, first: int, data: Array, span: int) -> None:
    """Write a box's bytes to shared memory from chunk `first` on, swizzled."""
    rows = data.view(np.complex128)
    order = swizzle_order(len(rows), first & 63, span)
    if order is None:
        chunks[first:first + len(rows)] = rows
    else:
        chunks[order + first] = rows


def gather(chunks: Array, first: int, size: int, span: int) -> Array:
    """The inverse of `scatter`: `size` bytes."""
    count = -(-size // 16)
    order = swizzle_order(count, first & 63, span)
    rows = chunks[first:first + count].copy() if order is None else chunks[order + first]
    return rows.view(np.uint8)[:size]
