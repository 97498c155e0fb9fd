"""Tensor copies and reductions, and the groups of bulk copies."""

from __future__ import annotations

from typing import Any

from ..errors import Fault, UnsupportedError
from ..fragment import Wait
from ..memory import load_bytes, resolve
from ..operand import Immediate
from ..program import Op
from ..tasks import DONE, READ, Region, Task, commit, due, join_group
from ..tensormap import BYTES, Box, Map, decode, gather, scatter
from ..values import lane_list, lane_of
from .registry import BLOCKED, Run, action, blocking


def _map(f: Any, lane: int, op: Op, address: int) -> Map:
    """The tensor map at a generic address."""
    if f.machine.watch is not None:
        f.machine.watch.tensormap(f, lane, op, *resolve(f, 1 << lane, op, "", address, 16))
    encoded = load_bytes(f, 1 << lane, op, "", address, BYTES)
    found = decode(encoded)
    if found is None:
        raise Fault("bad-tensormap", f"{f.warp!r}: `{op.opcode}` with a tensor map at {address:#x}, where there is none",
                    "pass a TensorMap argument, or copy one before editing it", op)
    return found


def bulk_targets(f: Any, op: Op, place: int, mask: Any) -> list[tuple[Any, int]]:
    """(CTA, offset in its shared memory) of each destination of a copy to `place`: all of the mask when there is one."""
    cluster = f.cta.cluster
    stride = f.machine.shared_stride
    if mask is None:
        return [(cluster.ctas[place // stride], place % stride)]
    ranks = [rank for rank in range(16) if mask >> rank & 1]
    if ranks and ranks[-1] >= len(cluster.ctas):
        raise Fault("multicast-mask", f"{f.warp!r}: `{op.opcode}` to CTA {ranks[-1]} of a cluster of {len(cluster.ctas)}", "",
                    op)
    return [(cluster.ctas[rank], place % stride) for rank in ranks]


def check_shared(f: Any, op: Op, offset: int, size: int, align: int) -> None:
    """A fault where an asynchronous copy may not begin at this offset of a CTA's shared memory, or does not fit behind it."""
    if offset % align:
        raise Fault("misaligned", f"{f.warp!r}: `{op.opcode}` with shared memory at +{offset:#x}: it must be a multiple of {align} bytes",
                    "", op)
    if offset + size > f.machine.shared_bytes:
        raise Fault("out-of-bounds", f"{f.warp!r}: `{op.opcode}` of {size} bytes of shared memory at +{offset:#x}, of "
                    f"{f.machine.shared_bytes}", "", op)


def check_peer(task: Task, cta: Any) -> None:
    """A fault when what lands in another CTA's shared memory finds it gone."""
    if cta is not task.warp.cta and not cta.live:
        raise Fault("dsmem-lifetime", f"`{task.op.opcode}` of {task.warp!r} writes to the shared memory of {cta!r}, which has exited",
                    "end the kernel with a cluster barrier behind the last wait for it", task.op)


@action("cp.async.bulk.tensor")
def tensor(op: Op) -> Run:
    if op.has("im2col") or op.has("im2col_no_offs"):
        raise UnsupportedError(f"the simulator does not execute im2col copies: `{op.opcode}`")
    return _tensor_load(op) if op.operand("dstMem") is not None else _tensor_store(op)


def _tensor_load(op: Op) -> Run:
    names = [p.name for p, o in op.parameters() if p.operand.access == "r"]
    space = op.space("dstMem")

    def run(f: Any, mask: int, *operands: Any) -> None:
        given = dict(zip(names, operands, strict=True))
        for lane in lane_list(mask):
            m = _map(f, lane, op, lane_of(given["tensorMap"], lane))
            at = tuple(_signed(lane_of(c, lane)) for c in given["tensorCoords"])
            _, place = resolve(f, 1 << lane, op, space, lane_of(given["dstMem"], lane), 16)
            _, signal = resolve(f, 1 << lane, op, space, lane_of(given["mbar"], lane), 8)
            chosen = given.get("ctaMask")
            targets = bulk_targets(f, op, place, None if chosen is None else lane_of(chosen, lane))
            _issue_load(f, lane, op, Box(m, at), targets, signal)

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
                signals=[cta.start + signal % stride for cta, _ in targets], swizzle=span or 16)
    if machine.watch is not None:
        task.reads = [box.region(memory)]
        task.writes = [Region(shared, cta.start + offset, size) for cta, offset in targets]
    machine.issue(f, task)


@action("cp.reduce.async.bulk.tensor")
def tensor_reduce(op: Op) -> Run:
    if op.has("im2col") or op.has("im2col_no_offs"):
        raise UnsupportedError(f"the simulator does not execute im2col copies: `{op.opcode}`")
    return _tensor_store(op)


def _tensor_store(op: Op) -> Run:
    names = [p.name for p, o in op.parameters() if p.operand.access == "r"]

    def run(f: Any, mask: int, *operands: Any) -> None:
        given = dict(zip(names, operands, strict=True))
        machine = f.machine
        memory, shared = machine.memory, f.cta.cluster.shared
        for lane in lane_list(mask):
            m = _map(f, lane, op, lane_of(given["tensorMap"], lane))
            box = Box(m, tuple(_signed(lane_of(c, lane)) for c in given["tensorCoords"]))
            _, place = resolve(f, 1 << lane, op, "shared::cta", lane_of(given["srcMem"], lane), 16)
            _, offset = bulk_targets(f, op, place, None)[0]
            check_shared(f, op, offset, m.box_bytes, 128)
            _issue_store(f, lane, op, box, place, offset, memory, shared)

    return run


def _issue_store(f: Any, lane: int, op: Op, box: Box, place: int, offset: int, memory: Any, shared: Any) -> None:
    size, span = box.map.box_bytes, box.map.swizzle
    machine, cta = f.machine, f.cta
    operation = op.bindings.get("redOp")
    kind = "tensor reduce" if operation else "tensor store"
    task = Task(kind, op, f.warp, 1 << lane, lambda: gather(cta.chunks, offset >> 4, size, span),
                lambda data: box.put(memory, op, data, operation), bytes=size)
    if machine.watch is not None:
        task.reads = [Region(shared, place, size)]
        task.writes = [box.region(memory)]
    join_group(f.warp.bulk, task)
    machine.issue(f, task)


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


@action("cp.async.bulk.commit_group")
def bulk_commit(op: Op) -> Run:
    def run(f: Any, mask: int) -> None:
        group = commit(f.warp.bulk, mask)
        if f.machine.watch is not None:
            f.machine.watch.group_commit(f, mask, op, group)

    return run


@blocking("cp.async.bulk.wait_group")
def bulk_wait(op: Op) -> Run:
    milestone = READ if op.has("read") else DONE
    keep = op.operand("n")
    assert isinstance(keep, Immediate)
    newest = keep.value

    def run(f: Any, mask: int, _: Any) -> Any:
        groups = due(f.warp.bulk, mask, newest)
        for group in groups:
            for task in group.tasks:
                if task.state < milestone:
                    f.machine.sleep(f, task.waiters, Wait("bulk", op, task, milestone))
                    return BLOCKED
        if f.machine.watch is not None:
            f.machine.watch.group_wait(f, mask, op, groups, milestone)
        f.warp.bulk = [g for g in f.warp.bulk if g.open or any(task.state < DONE for task in g.tasks) or g not in groups]
        return None

    return run


@action("cp.async.bulk.prefetch")
def prefetch(op: Op) -> Run:
    return lambda f, mask, *operands: None


