"""Tensor maps: 128 opaque bytes in memory, and the boxes that tensor copies move through them.

The bytes are the simulator's own encoding (the hardware's is not public); kernels may copy them and edit them with
`tensormap.replace`, which is all that the architecture allows.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import gcd, prod
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
CHUNK = 16
"""Bytes that a tensor copy moves at a time."""
TYPES = ("u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f32.ftz", "f64", "bf16", "tf32", "tf32.ftz")
"""Element types by their number in `tensormap.replace`."""
SWIZZLES = (0, 32, 64, 128)
INTERLEAVES = (0, 16, 32)
_FORMAT = struct.Struct("<4sQBBBBBxxx5I4Q5I5B")
_MAGIC = b"tmap"
_NAN = 0x7FF77FF77FF77FF7
"""What fills elements with NaN, as an H200 does it: the lowest bits of this in every floating type (measured)."""
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

    size: int = field(init=False, compare=False)
    """Bytes of an element."""
    extents: tuple[int, ...] = field(init=False, compare=False)
    """Elements that a copy moves along each dimension, contiguous first."""
    box_bytes: int = field(init=False, compare=False)
    """Bytes of a box in shared memory; what complete_tx counts, out-of-bounds elements included."""

    def __post_init__(self) -> None:
        size = width(self.type.partition(".")[0]) // 8
        extents = (self.box[0], *(-(-b // max(s, 1)) for b, s in zip(self.box[1:self.rank], self.steps[1:self.rank], strict=True)))
        for name, value in (("size", size), ("extents", extents), ("box_bytes", size * prod(extents))):
            object.__setattr__(self, name, value)

    @property
    def problem(self) -> str | None:
        """What is wrong with the map, as `cuTensorMapEncodeTiled` would have seen; maps that a kernel has edited are not seen by it."""
        return _problem(self)

    @property
    def lines(self) -> int:
        """Elements of a line that a tensor store may write: it moves whole chunks of 16 bytes, also where the last is not all inside."""
        return -(-self.dims[0] * self.size // CHUNK) * CHUNK // self.size

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


_ZEROS = Map(0, 1, TYPES[0], INTERLEAVES[0], SWIZZLES[0], 0, (0,) * 5, (0,) * 4, (0,) * 5, (0,) * 5)


def replaced(encoded: bytes, field: str, ordinal: int, value: int) -> bytes:
    """The map's bytes after `tensormap.replace`. It may be 128 zeros at first, of which compilers replace every field."""
    old = decode(encoded) or (None if any(encoded) else _ZEROS)
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


@dataclass(slots=True, eq=False)
class Box:
    """A box at coordinates (contiguous first) of a map's array."""

    map: Map
    at: tuple[int, ...]
    _clipped: tuple[tuple[slice, ...], tuple[slice, ...], bool] | None = None

    def _part(self, memory: Memory, op: Op, part: tuple[slice, ...], chunks: tuple[slice, ...] | None = None) -> Array:
        """What the box covers of the array, slowest dimension first. The rest need not be memory: the array may begin before a buffer.

        `chunks` is the part with the ends of the last chunks, which may lie behind the buffer.
        """
        m = self.map
        if m.interleave:
            raise UnsupportedError(f"`{op.opcode}` with an interleaved tensor map")
        dtype = np.dtype(DTYPES[8 * m.size])
        strides = (*m.strides[:m.rank - 1][::-1], m.size)
        place = m.address - GLOBAL + sum(each.start * stride for each, stride in zip(part, strides, strict=True))
        shape, steps = _shape(part), tuple(stride * each.step for each, stride in zip(part, strides, strict=True))
        if 0 in shape:
            return np.empty(_shape(chunks or part), dtype)
        last = place + sum((n - 1) * s for n, s in zip(shape, steps, strict=True)) + m.size
        if memory.allocation(place, last) is None:
            raise Fault("out-of-bounds", f"a box of `{op.opcode}` covers {last - place} bytes at {place + GLOBAL:#x}, where no buffer lies "
                        f"(the tensor map's array begins at {m.address:#x})", "", op)
        return np.ndarray(_shape(chunks or part), dtype, memory.data, place, steps)

    def _clip(self, chunks: bool = False) -> tuple[tuple[slice, ...], tuple[slice, ...], bool]:
        """(where in the array, where in the box, whether all of the box is inside), slowest dimension first. With `chunks`, lines end
        where their last chunk ends.
        """
        chunks = chunks and self.map.lines != self.map.dims[0]
        if self._clipped is not None and not chunks:
            return self._clipped
        m = self.map
        source, target, whole = [], [], True
        for axis in range(m.rank - 1, -1, -1):
            step = m.steps[axis] if axis else 1
            count = m.extents[axis]
            start = self.at[axis]
            first = max(0, -(start // step)) if start < 0 else 0
            extent = m.lines if chunks and not axis else m.dims[axis]
            stop = min(count, -(-(extent - start) // step))
            stop = max(stop, first)
            whole = whole and first == 0 and stop == count
            source.append(slice(start + first * step, max(start + (stop - 1) * step + 1, 0), step) if stop > first else slice(0, 0, step))
            target.append(slice(first, stop))
        found = tuple(source), tuple(target), whole
        if not chunks:
            self._clipped = found
        return found

    def fetch(self, memory: Memory, op: Op) -> Array:
        """The box's elements as bytes in rows of 16, out-of-bounds ones filled."""
        m = self.map
        source, target, whole = self._clip()
        view = self._part(memory, op, source)
        if not view.size and memory.allocation(m.address - GLOBAL, m.address - GLOBAL + m.size) is None:
            raise Fault("out-of-bounds", f"all of a box of `{op.opcode}` is out of bounds, and no buffer lies at {m.address:#x}, where the "
                        "tensor map's array begins: a GPU looks there for such a box", "", op)
        if whole:
            found = np.ascontiguousarray(view)
            if found.base is not None:
                found = found.copy()
        else:
            found = np.full(m.extents[::-1], _NAN & (1 << 8 * m.size) - 1 if m.fill else 0, view.dtype)
            found[target] = view
        return found.reshape(-1).view(np.uint8)

    def put(self, memory: Memory, op: Op, data: Array, operation: str | None = None) -> None:
        """Write the box, or combine it with what is there; what is out of bounds is dropped, but for the rest of a line's last chunk."""
        chunks, target, _ = self._clip(chunks=True)
        view = self._part(memory, op, self._clip()[0], chunks)
        new = data.view(view.dtype).reshape(self.map.extents[::-1])[target]
        if operation is not None:
            old = np.ascontiguousarray(view)
            made = reduced(operation, self.map.type, old.reshape(-1).view(np.uint8), np.ascontiguousarray(new).reshape(-1).view(np.uint8))
            new = made.view(view.dtype).reshape(new.shape)
        view[...] = new

    def lands(self, first: int) -> Array:
        """Of the bytes of shared memory from chunk `first` on, which are those of elements that a store of the box writes."""
        m = self.map
        inside = np.zeros(m.extents[::-1], bool)
        inside[self._clip(chunks=True)[1]] = True
        each = np.repeat(inside.reshape(-1), m.size)
        rows = np.pad(each, (0, -len(each) % CHUNK)).reshape(-1, CHUNK)
        order = swizzle_order(len(rows), first & 63, m.swizzle)
        if order is not None:
            rows[order] = rows.copy()
        return rows.reshape(-1)

    @property
    def beyond(self) -> tuple[int, int] | None:
        """The columns, first and last, behind the array's inner extent that a store of the box writes; None: none."""
        if self.map.lines == self.map.dims[0]:
            return None
        chunks = self._clip(chunks=True)[0]
        written = chunks[-1].stop
        if written <= self.map.dims[0] or 0 in _shape(chunks):
            return None
        return self.map.dims[0], written - 1

    def region(self, memory: Memory, chunks: bool = False) -> Region:
        """The global bytes that the box covers inside the array: a run per line. With `chunks`, what a store of it writes."""
        m = self.map
        source, _, _ = self._clip(chunks)
        *outer, inner = source
        strides = m.strides[:m.rank - 1][::-1]
        length = (inner.stop - inner.start) * m.size
        first = m.address - GLOBAL + inner.start * m.size
        first += sum(part.start * stride for part, stride in zip(outer, strides, strict=True))
        steps = tuple(part.step * stride for part, stride in zip(outer, strides, strict=True))
        lines = _lines(tuple(len(range(part.start, part.stop, part.step)) for part in outer), steps)
        return Region(memory, lines + first, length, gcd(first, length, *steps))


@lru_cache(maxsize=512)
def _lines(counts: tuple[int, ...], steps: tuple[int, ...]) -> Array:
    """Where the lines of a box begin, relative to the first one; slowest dimension first."""
    starts = np.zeros(1, np.int64)
    for count, step in zip(counts, steps, strict=True):
        starts = (starts[:, None] + np.arange(count, dtype=np.int64) * step).reshape(-1)
    return starts


def _shape(part: tuple[slice, ...]) -> tuple[int, ...]:
    return tuple(-(-(each.stop - each.start) // each.step) for each in part)


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
