"""Tensor copies, reductions and prefetches: boxes of a tensor map."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ..errors import Fault, UnsupportedError
from ..memory import resolve
from ..program import Op
from ..reduction import combines, takes
from ..spaces import GLOBAL, SPACE_OF_WINDOW, WINDOW_BITS
from ..tasks import Region, Task, join_group
from ..tensormap import BYTES, Box, Map, decode, gather, scatter
from ..values import lane_list, lane_of
from .bulk import check_peer, check_shared, load_targets, own_offset
from .registry import Run, action

ALIGNED = 64
"""Bytes that a tensor map is aligned to."""


def named(f: Any, address: int) -> str:
    """The tensor map at a generic address, as the author knows it: the parameter or the buffer that it is in."""
    machine, space, offset = f.machine, SPACE_OF_WINDOW.get(address >> WINDOW_BITS), address & (1 << WINDOW_BITS) - 1
    if space == "param":
        symbols = [symbol for symbol in machine.program.entry.parameters if symbol.address <= offset < symbol.address + symbol.size]
        return f"the tensor map `{symbols[0].name}`" if symbols else f"the tensor map at {address:#x}"
    found = machine.memory.allocation(address - GLOBAL, address - GLOBAL + 1) if space == "global" else None
    if found is None:
        return f"the tensor map at {address:#x}"
    return f"the tensor map in `{found.name}`" + (f" +{address - GLOBAL - found.start}" if address - GLOBAL > found.start else "")


def box_of(f: Any, lane: int, op: Op, address: int, coordinates: Any) -> Box:
    """The box at a lane's coordinates of the tensor map at a generic address; a fault where the hardware traps or PTX defines nothing."""
    memory, place = resolve(f, 1 << lane, op, "", address, 16)
    if f.machine.watch is not None:
        f.machine.watch.tensormap(f, lane, op, memory, place)
    map, problem = _decoded(memory.data[place:place + BYTES].tobytes())
    if map is None:
        raise Fault("bad-tensormap", f"{f.warp!r}: `{op.opcode}` with a tensor map at {address:#x}, where there is none",
                    "pass a TensorMap argument, or copy one before editing it", op)
    at = tuple(_signed(lane_of(c, lane)) for c in coordinates)
    _check_map(f, op, address, map, problem, len(at))
    past = map.past(at[0])
    if past:
        raise _between(f, op, address, map, at, past)
    return Box(map, at)


@lru_cache(maxsize=256)
def _decoded(encoded: bytes) -> tuple[Map | None, str | None]:
    """The map that 128 bytes are, and what is wrong with it."""
    map = decode(encoded)
    return map, None if map is None else map.problem


def _check_map(f: Any, op: Op, address: int, map: Map, problem: str | None, rank: int) -> None:
    space = SPACE_OF_WINDOW.get(address >> WINDOW_BITS)
    fix = "tensormap.replace the fields so that the driver could have encoded such a map"
    if space not in ("param", "const", "global"):
        problem, fix = f"lies in {space} memory", "copy it to global memory with tensormap.cp_fenceproxy: a copy takes it from there"
    elif address % ALIGNED:
        problem, fix = f"lies at {address:#x}, which is not a multiple of {ALIGNED} bytes", f"align it to {ALIGNED} bytes, better to 128"
    elif rank != map.rank:
        problem = f"has {map.rank} dimension{'s' * (map.rank > 1)}, the instruction gives {rank} coordinate{'s' * (rank > 1)}"
        fix = f"the .{map.rank}d form, with a coordinate for each dimension"
    if problem is not None:
        raise Fault("bad-tensormap", f"{f.warp!r}: `{op.opcode}`: {named(f, address)} {problem}", fix, op)


def _between(f: Any, op: Op, address: int, map: Map, at: tuple[int, ...], past: int) -> Fault:
    elements = past // map.size
    start = at[0] - elements
    where = "{" + ", ".join(str(c) for c in at) + "}"
    shifted = f", and use it from element {elements} of each line on" if op.operand("srcMem") is None else ""
    return Fault("tensor-coordinate", f"{f.warp!r}: `{op.opcode}` through {named(f, address)} at {where}: the innermost coordinate {at[0]} "
                 f"of its {map.type} elements is {at[0] * map.size:,} bytes, {past} beyond a multiple of 16, where no box can begin",
                 f"begin the box at element {start} (a multiple of {16 // map.size}){shifted}; or describe the array so that the "
                 "coordinate which may be anything is an outer one", op)


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


def _tiled(op: Op) -> None:
    if op.has("im2col") or op.has("im2col_no_offs"):
        raise UnsupportedError(f"the simulator does not execute im2col copies: `{op.opcode}`")


@action("cp.async.bulk.tensor")
def tensor(op: Op) -> Run:
    _tiled(op)
    return _load(op) if op.operand("dstMem") is not None else _store(op)


@action("cp.reduce.async.bulk.tensor")
def tensor_reduce(op: Op) -> Run:
    _tiled(op)
    return _store(op)


@action("cp.async.bulk.prefetch.tensor")
def tensor_prefetch(op: Op) -> Run:
    """Moves nothing that a program can see; what it is given must be right all the same."""
    _tiled(op)
    names = [p.name for p, o in op.parameters() if p.operand.access == "r"]

    def run(f: Any, mask: int, *operands: Any) -> None:
        given = dict(zip(names, operands, strict=True))
        for lane in lane_list(mask):
            box_of(f, lane, op, lane_of(given["tensorMap"], lane), given["tensorCoords"])

    return run


def _load(op: Op) -> Run:
    names = [p.name for p, o in op.parameters() if p.operand.access == "r"]
    space = op.space("dstMem")

    def run(f: Any, mask: int, *operands: Any) -> None:
        given = dict(zip(names, operands, strict=True))
        for lane in lane_list(mask):
            box = box_of(f, lane, op, lane_of(given["tensorMap"], lane), given["tensorCoords"])
            targets, signal = load_targets(f, lane, op, space, given)
            _issue_load(f, lane, op, box, targets, signal)

    return run


def _issue_load(f: Any, lane: int, op: Op, box: Box, targets: list[tuple[Any, int]], signal: int) -> None:
    machine = f.machine
    size, span, stride = box.map.box_bytes, box.map.swizzle, machine.shared_stride
    memory, shared = machine.memory, f.cta.cluster.shared
    for _, offset in targets:
        check_shared(f, op, offset, size, 128)

    def fetch() -> Any:
        return box.fetch(memory, op)

    def deliver(data: Any) -> None:
        for cta, offset in targets:
            check_peer(task, cta)
            scatter(cta.chunks, offset >> 4, data, span)

    task = Task("tensor load", op, f.warp, 1 << lane, fetch, deliver, bytes=size,
                signals=[cta.start + signal % stride for cta, _ in targets], swizzle=span or 16, box=box)
    if machine.watch is not None:
        task.reads = [box.region(memory)]
        task.writes = [Region(shared, cta.start + offset, size) for cta, offset in targets]
    machine.issue(f, task)


def _store(op: Op) -> Run:
    names = [p.name for p, o in op.parameters() if p.operand.access == "r"]
    operation = op.bindings.get("redOp")

    def run(f: Any, mask: int, *operands: Any) -> None:
        given = dict(zip(names, operands, strict=True))
        for lane in lane_list(mask):
            address = lane_of(given["tensorMap"], lane)
            box = box_of(f, lane, op, address, given["tensorCoords"])
            _not_before(f, op, address, box)
            if operation is not None and not combines(operation, box.map.type):
                raise Fault("reduction-type", f"{f.warp!r}: `{op.opcode}`: {named(f, address)} has {box.map.type} elements, which "
                            f"`{operation}` does not combine", f"`{operation}` takes {takes(operation)} elements", op)
            _, place = resolve(f, 1 << lane, op, "shared::cta", lane_of(given["srcMem"], lane), 16)
            offset = own_offset(f, op, place)
            check_shared(f, op, offset, box.map.box_bytes, 128)
            _issue_store(f, lane, op, box, place, offset, operation)
            if box.beyond is not None and f.machine.watch is not None:
                f.machine.watch.stored_beyond(f, op, named(f, address), box.map, box.beyond)

    return run


def _not_before(f: Any, op: Op, address: int, box: Box) -> None:
    """An H200 traps at stores and reductions of boxes that begin before the array, in any dimension; loads may (measured)."""
    if min(box.at) < 0:
        where = "{" + ", ".join(str(c) for c in box.at) + "}"
        raise Fault("tensor-coordinate", f"{f.warp!r}: `{op.opcode}` through {named(f, address)} at {where}: a box that is stored may not "
                    "begin before the array: the hardware traps", "begin the box inside the array, or store the part that is inside with "
                    "st.global", op)


def _issue_store(f: Any, lane: int, op: Op, box: Box, place: int, offset: int, operation: str | None) -> None:
    machine, cta = f.machine, f.cta
    memory, shared = machine.memory, cta.cluster.shared
    size, span = box.map.box_bytes, box.map.swizzle
    kind = "tensor reduce" if operation else "tensor store"
    task = Task(kind, op, f.warp, 1 << lane, lambda: gather(cta.chunks, offset >> 4, size, span),
                lambda data: box.put(memory, op, data, operation), bytes=size, element=box.map.type, box=box)
    if machine.watch is not None:
        task.reads = [Region(shared, place, size)]
        task.lands = lambda: box.lands(offset >> 4)
        task.writes = [box.region(memory, chunks=True)]
    join_group(f.warp.bulk, task)
    machine.issue(f, task)
