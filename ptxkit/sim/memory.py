"""Memories, and loads and stores of a fragment's lanes in any state space.

A `Memory` is a byte array. Accesses resolve to *places*: byte offsets into `data`, an int when all lanes have the same, else an
array of 32 (those of inactive lanes repeat an active one's, so that nothing outside the mask is touched).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import Fault
from .spaces import GLOBAL, OFFSET_MASK, RANK_BITS, RESERVED_SHARED, SHARED, SPACE_OF_WINDOW, WINDOW_BITS, WINDOWS
from .values import DTYPES, FULL, LANE, Array, indices, lanes, merge, uniform

if TYPE_CHECKING:
    from .fragment import Fragment
    from .program import Op

Places = Any


class Allocation:
    """A buffer in global memory: offsets `start` to `stop` of the arena, named after its argument or variable."""

    __slots__ = ("name", "start", "stop")

    def __init__(self, name: str, start: int, stop: int) -> None:
        self.name, self.start, self.stop = name, start, stop


class Memory:
    """`stride` bytes belong to each CTA (shared) or lane (local), `limit` of them exist. `shadow` is the checker's."""

    def __init__(self, data: Array, space: str, *, stride: int = 0, limit: int = 0) -> None:
        self.data = data
        self.space = space
        self.stride = stride
        self.limit = limit or stride
        self.allocations: list[Allocation] = []
        self.last: Allocation | None = None
        self.traffic = [0, 0]
        """Bytes read and written by the lanes of loads, stores and copies."""
        self.words: dict[int, Array] = {1: data}
        usable = len(data) & ~15
        for size in (2, 4, 8):
            self.words[size] = data[:usable].view(DTYPES[8 * size])
        self.shadow: Any = None

    def release(self) -> None:
        """Hold nothing any more."""
        self.data = np.empty(0, np.uint8)
        self.words = {}
        self.shadow = None

    def allocation(self, low: int, high: int) -> Allocation | None:
        """The allocation that holds the bytes `low` to `high`, None when there is none."""
        last = self.last
        if last is not None and last.start <= low and high <= last.stop:
            return last
        for found in self.allocations:
            if found.start <= low and high <= found.stop:
                self.last = found
                return found
        return None


# ----------------------------------------------------------------------------------------------------- resolution


def resolve(f: Fragment, mask: int, op: Op, space: str, address: Any, size: int, reach: int | None = None) -> tuple[Memory, Places]:
    """Where an access of `size` bytes goes; a fault when it is misaligned or out of bounds. `reach`: the bytes of it in global memory that
    are accessed at all (None: all)."""
    if space[:6] == "shared":
        return _shared(f, mask, op, address, size, own=space != "shared::cluster")
    if space == "global":
        return _global(f, mask, op, address, size, reach)
    if not space:
        return _generic(f, mask, op, address, size)
    return _private(f, mask, op, space, address, size)


def _generic(f: Fragment, mask: int, op: Op, address: Any, size: int) -> tuple[Memory, Places]:
    windows = address >> WINDOW_BITS
    if type(address) is not int:
        found = set(windows[lanes(mask)].tolist())
        if len(found) > 1:
            raise Mixed({int(w): mask_where(windows, w, mask) for w in found})
        windows = found.pop()
    space = SPACE_OF_WINDOW.get(int(windows))
    if space is None:
        raise _fault(f, mask, op, address, size, "no memory lies")
    if space == "global":
        return _global(f, mask, op, address, size)
    named = {"param": "param::entry", "shared": "shared::cluster"}.get(space, space)
    return resolve(f, mask, op, named, address & (1 << WINDOW_BITS) - 1, size)


class Mixed(Exception):
    """The lanes of one access go to several spaces: the mask of each window."""

    def __init__(self, masks: dict[int, int]) -> None:
        super().__init__()
        self.masks = masks


def mask_where(values: Array, value: int, mask: int) -> int:
    found = np.packbits(values == value, bitorder="little").tobytes()
    return int.from_bytes(found, "little") & mask


def _shared(f: Fragment, mask: int, op: Op, address: Any, size: int, *, own: bool = False) -> tuple[Memory, Places]:
    """`own`: the address must be one of the executing CTA's."""
    cluster = f.cta.cluster
    memory = cluster.shared
    if type(address) is int:
        rank, offset = address >> RANK_BITS, address & OFFSET_MASK
        if offset < RESERVED_SHARED or offset + size > memory.limit or rank >= len(cluster.ctas) or offset & size - 1:
            raise _fault(f, mask, op, address, size, "shared memory does not reach")
        if rank != f.cta.rank:
            remote(f, op, rank, own=own)
        return memory, rank * memory.stride + offset
    places = address.astype(np.intp)
    if mask != FULL:
        places = np.where(lanes(mask), places, places[f.first() if mask == f.mask else (mask & -mask).bit_length() - 1])
    ranks = places >> RANK_BITS
    places &= OFFSET_MASK
    low, high = int(places.min()), int(places.max())
    if low < RESERVED_SHARED or high + size > memory.limit or int(np.bitwise_or.reduce(places)) & size - 1:
        raise _fault(f, mask, op, address, size, "shared memory does not reach")
    top = int(ranks.max())
    if top >= len(cluster.ctas):
        raise _fault(f, mask, op, address, size, "no CTA of the cluster lies")
    if top or f.cta.rank:
        for rank in set(ranks.tolist()) - {f.cta.rank}:
            remote(f, op, rank, own=own)
        places += ranks * memory.stride
    return memory, places


def remote(f: Fragment, op: Op, rank: int, *, own: bool = False) -> None:
    """An access to another CTA's shared memory: the instruction must be for such, and that CTA must still be there."""
    cta = f.cta.cluster.ctas[rank]
    if own:
        raise Fault("out-of-bounds", f"{f.warp!r}: `{op.opcode}` takes an address in the shared memory of {cta!r} for one of its own, "
                    ".shared::cta", ".shared::cluster, or the address in the executing CTA instead of one from mapa", op)
    if not cta.live:
        raise Fault("dsmem-lifetime", f"{f.warp!r} accesses the shared memory of {cta!r}, which has exited",
                    "end the kernel with a cluster barrier after the last remote access", op)


def _global(f: Fragment, mask: int, op: Op, address: Any, size: int, reach: int | None = None) -> tuple[Memory, Places]:
    memory, reach = f.machine.memory, size if reach is None else reach
    if type(address) is int:
        place = address - GLOBAL
        if place & size - 1 or memory.allocation(place, place + reach) is None:
            raise _fault(f, mask, op, address, size, "no buffer lies")
        return memory, place
    places = address.view(np.int64) - GLOBAL
    if mask != FULL:
        places = np.where(lanes(mask), places, places[(mask & -mask).bit_length() - 1])
    low, high = int(places.min()), int(places.max())
    if int(np.bitwise_or.reduce(places)) & size - 1:
        raise _fault(f, mask, op, address, size, "no buffer lies")
    if memory.allocation(low, high + reach) is None:
        for place in places.tolist():
            if memory.allocation(place, place + reach) is None:
                raise _fault(f, mask, op, place + GLOBAL, size, "no buffer lies")
    return memory, places


def _private(f: Fragment, mask: int, op: Op, space: str, address: Any, size: int) -> tuple[Memory, Places]:
    """Constant memory, parameters, and local memory, which also holds the parameters of device functions."""
    machine = f.machine
    if space == "param" and (f.stack is not None or op_is_call_parameter(op)):
        space = "local"
    memory = {"const": machine.const, "param": machine.parameters, "param::entry": machine.parameters}.get(space)
    local = memory is None
    if memory is None:
        memory = f.warp.local
    limit = memory.stride if local else len(memory.data)
    if type(address) is int:
        if address & size - 1 or not 0 <= address <= limit - size:
            raise _fault(f, mask, op, address, size, f"{space} memory does not reach")
        if not local:
            return memory, address
        return memory, address + LANE.astype(np.intp) * limit if f.lane is None else address + f.lane * limit
    places = address.astype(np.intp)
    if mask != FULL:
        places = np.where(lanes(mask), places, places[(mask & -mask).bit_length() - 1])
    if int(np.bitwise_or.reduce(places)) & size - 1 or int(places.min()) < 0 or int(places.max()) + size > limit:
        raise _fault(f, mask, op, address, size, f"{space} memory does not reach")
    return memory, places + LANE.astype(np.intp) * limit if local else places


def op_is_call_parameter(op: Op) -> bool:
    """Whether a `.param` access names a parameter of a call rather than one of the entry."""
    from .operand import Address, SymbolValue

    for operand in op.operands:
        if isinstance(operand, Address) and isinstance(operand.base, SymbolValue):
            return operand.base.symbol.region == "frame"
    return False


def _fault(f: Fragment, mask: int, op: Op, address: Any, size: int, why: str) -> Fault:
    reached: list[int] = [address] if isinstance(address, int) else address[lanes(mask)].tolist()
    first = reached[0]
    wrong = [place for place in reached if place & size - 1]
    if wrong:
        return Fault("misaligned", f"{f.warp!r}: `{op.opcode}` at {wrong[0]:#x}, which is not a multiple of its {size} bytes",
                     f"an address that is a multiple of {size}: pad what lies before it, or access less at once", op)
    return Fault("out-of-bounds", f"{f.warp!r}: `{op.opcode}` of {size} bytes at {first:#x}{_range(address, mask)}, where {why}", "",
                 op)


def _range(address: Any, mask: int) -> str:
    if type(address) is int:
        return ""
    chosen = address[lanes(mask)]
    return f" (lanes' addresses {int(chosen.min()):#x} to {int(chosen.max()):#x})"


# ------------------------------------------------------------------------------------------------ words of memory


def read(memory: Memory, places: Places, size: int, offset: int = 0) -> Any:
    """A word of `size` bytes (1, 2, 4, 8) per lane."""
    words = memory.words[size]
    if type(places) is int:
        return words.item((places + offset) // size)
    return words[(places + offset) >> size.bit_length() - 1]


def write(memory: Memory, places: Places, value: Any, size: int, mask: int, offset: int = 0) -> None:
    """Store a word per active lane; where lanes have one place the highest lane's stays."""
    words = memory.words[size]
    if type(places) is int:
        words[(places + offset) // size] = value if type(value) is int else value[mask.bit_length() - 1]
        return
    index = (places + offset) >> size.bit_length() - 1
    if mask == FULL:
        words[index] = value
    else:
        chosen = indices(mask)
        words[index[chosen]] = value if type(value) is int else value[chosen]


def load(f: Fragment, mask: int, op: Op, space: str, address: Any, size: int, count: int, strong: bool = False) -> Any:
    """`count` neighbouring words of `size` bytes: one value, or a list of them."""
    try:
        memory, places = resolve(f, mask, op, space, address, size * count)
    except Mixed as mixed:
        return _load_mixed(f, mixed, op, address, size, count, strong)
    machine = f.machine
    memory.traffic[0] += size * count * mask.bit_count()
    if machine.watch is not None:
        machine.watch.access(f, mask, op, "r", memory, places, size * count, strong)
    if memory is f.cta.cluster.shared and type(places) is not int:
        machine.bank_conflicts += conflicts(places, size * count)
    if type(places) is int:
        if count == 1:
            return memory.words[size].item(places // size)
        return memory.words[size][places // size:places // size + count].tolist()
    if count == 1:
        return uniform(memory.words[size][places >> size.bit_length() - 1])
    index = places >> size.bit_length() - 1
    words = memory.words[size]
    return [words[index + i] for i in range(count)]


def store(f: Fragment, mask: int, op: Op, space: str, address: Any, values: Any, size: int, strong: bool = False) -> None:
    """Neighbouring words of `size` bytes, one per value."""
    try:
        memory, places = resolve(f, mask, op, space, address, size * len(values))
    except Mixed as mixed:
        for part in mixed.masks.values():
            store(f, part, op, space, _one_of(address, part), values, size, strong)
        return
    machine = f.machine
    memory.traffic[1] += size * len(values) * mask.bit_count()
    if machine.watch is not None:
        machine.storing = places, values, size
        machine.watch.access(f, mask, op, "w", memory, places, size * len(values), strong, values if strong else None)
        machine.storing = None
    if memory is f.cta.cluster.shared and type(places) is not int:
        machine.bank_conflicts += conflicts(places, size * len(values))
    if memory is machine.const or memory is machine.parameters:
        raise Fault("read-only", f"{f.warp!r}: `{op.opcode}` to {memory.space} memory", "copy what it holds, and write there", op)
    for i, value in enumerate(values):
        write(memory, places, value, size, mask, i * size)
    if machine.watch is not None and mask & mask - 1 and memory.space != "local":
        _collisions(f, mask, op, memory, places, values, size)


def _collisions(f: Fragment, mask: int, op: Op, memory: Memory, places: Places, values: Any, size: int) -> None:
    """Tell the observer where a lane's value is gone because another lane has written a different one."""
    watch = f.machine.watch
    assert watch is not None
    for i, value in enumerate(values):
        if type(places) is int and type(value) is int:
            continue
        lost = np.flatnonzero((read(memory, places, size, i * size) != value) & lanes(mask))
        if len(lost):
            lane = int(lost[0])
            watch.overwritten(f, op, memory, (places if isinstance(places, int) else int(places[lane])) + i * size, lane)
            return


def conflicts(places: Array, size: int) -> int:
    """The passes that an access of shared memory takes beyond those that its size needs: lanes at one bank but not one word."""
    return _passes(np.subtract(places, int(places[0]) & ~127, dtype=np.intp).tobytes(), size)


@lru_cache(maxsize=4096)
def _passes(encoded: bytes, size: int) -> int:
    places = np.frombuffer(encoded, np.intp)
    together = 128 // max(size, 4)
    extra = 0
    for first in range(0, len(places), together):
        words = np.unique((places[first:first + together, None] + np.arange(0, max(size, 4), 4)) >> 2)
        extra += int(np.bincount(words & 31).max()) - 1
    return extra


def _one_of(address: Array, mask: int) -> Array:
    """The addresses, those outside the mask replaced by one inside."""
    return np.where(lanes(mask), address, address[mask.bit_length() - 1])


def _load_mixed(f: Fragment, mixed: Mixed, op: Op, address: Any, size: int, count: int, strong: bool) -> Any:
    found: list[Any] = [0] * count
    for part in mixed.masks.values():
        values = load(f, part, op, "", _one_of(address, part), size, count, strong)
        for i, value in enumerate([values] if count == 1 else values):
            found[i] = merge(part, value, found[i], 8 * size)
    return found[0] if count == 1 else found


def to_generic(space: str, address: Any) -> Any:
    return address + WINDOWS[space.partition("::")[0] if space.startswith("shared") else space]


def shared_place(f: Fragment, address: int, size: int, op: Op) -> int:
    """The place in the cluster's shared memory of one address, shared or generic."""
    if address >> WINDOW_BITS == SHARED >> WINDOW_BITS:
        address &= (1 << WINDOW_BITS) - 1
    return int(_shared(f, f.mask, op, address, size)[1])
