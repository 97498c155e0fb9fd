"""Asynchronous copies without a tensor map: cp.async by threads, bulk copies, st.async, red.async."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...grammar.operands import width
from ..errors import Fault
from ..fragment import Wait
from ..memory import resolve
from ..milestones import DONE
from ..operand import Immediate
from ..program import Op
from ..reduction import reduced
from ..tasks import Region, Task, commit, due, join_group
from ..values import lane_list, lane_of, mask_of
from .bulk import bulk_targets, check_peer, check_shared, load_targets, own_offset
from .mbarrier import each
from .registry import BLOCKED, Run, action, blocking


def places_of(f: Any, mask: int, op: Op, space: str, address: Any, size: int) -> tuple[Any, Any]:
    """(memory, the place of each lane of the mask, in order)."""
    memory, places = resolve(f, mask, op, space, address, size)
    return memory, np.array([lane_of(places, lane) for lane in lane_list(mask)], np.intp)


def _sources(f: Any, mask: int, op: Op, space: str, address: Any, size: int, counts: Any) -> tuple[Any, Any]:
    """(memory, the place of each lane): of fewer bytes than the whole only these must be there."""
    if int(counts.min()) == size:
        return places_of(f, mask, op, space, address, size)
    found = [resolve(f, 1 << lane, op, space, int(lane_of(address, lane)), size, count)
             for lane, count in zip(lane_list(mask), counts.tolist(), strict=True)]
    return found[0][0], np.array([place for _, place in found], np.intp)


# ----------------------------------------------------------------------------------------------------- by threads


@action("cp.async.ca", "cp.async.cg")
def copy(op: Op) -> Run:
    """The bytes that the source does not give are zero."""
    operand = op.operand("cp_size")
    assert isinstance(operand, Immediate)
    size = operand.value
    to, source = op.space("dst"), op.space("src")
    names = [p.name for p, o in op.parameters() if p.operand.access == "r"]

    def run(f: Any, mask: int, *operands: Any) -> None:
        given = dict(zip(names, operands, strict=True))
        shared, targets = places_of(f, mask, op, to, given["dst"], size)
        lanes = lane_list(mask)
        if given.get("src_size") is not None:
            counts = np.array([lane_of(given["src_size"], lane) for lane in lanes])
        else:
            ignored = mask_of(given["ignore_src"]) if given.get("ignore_src") is not None else 0
            counts = np.array([0 if ignored >> lane & 1 else size for lane in lanes])
        if counts.max() > size:
            raise Fault("cp-async-size", f"{f.warp!r}: `{op.opcode}` copies {size} bytes, its src_size is {counts.max()}", "", op)
        reading = sum(1 << lane for lane, count in zip(lanes, counts.tolist(), strict=True) if count)
        data = np.zeros((len(lanes), size), np.uint8)
        column = np.arange(size)
        inside = counts[counts > 0]
        memory, sources = _sources(f, reading, op, source, given["src"], size, inside) if reading else (None, np.zeros(0, np.intp))

        def fetch() -> Any:
            if memory is not None:
                there = column < inside[:, None]
                data[counts > 0] = np.where(there, memory.data[np.where(there, sources[:, None] + column, 0)], 0)
            return data

        def deliver(data: Any) -> None:
            shared.data[targets[:, None] + column] = data
            lost = np.flatnonzero((shared.data[targets[:, None] + column] != data).any(axis=1))
            if len(lost) and f.machine.watch is not None:
                f.machine.watch.overwritten(f, op, shared, int(targets[lost[0]]), lanes[int(lost[0])])

        task = Task("copy", op, f.warp, mask, fetch, deliver, bytes=size)
        if f.machine.watch is not None:
            for count in np.unique(inside).tolist():
                assert memory is not None
                task.reads.append(Region(memory, sources[inside == count], count))
                task.readers.append(sum(1 << lane for lane, each in zip(lanes, counts.tolist(), strict=True) if each == count))
            task.writes = [Region(shared, targets, size)]
        join_group(f.warp.copies, task)
        f.machine.issue(f, task)

    return run


@action("cp.async.commit_group")
def copy_commit(op: Op) -> Run:
    def run(f: Any, mask: int) -> None:
        group = commit(f.warp.copies, mask)
        if f.machine.watch is not None:
            f.machine.watch.group_commit(f, mask, op, group)

    return run


@blocking("cp.async.wait_group", "cp.async.wait_all")
def copy_wait(op: Op) -> Run:
    keep = op.operand("n")
    newest = keep.value if isinstance(keep, Immediate) else 0
    everything = op.has("wait_all")

    def run(f: Any, mask: int, *_: Any) -> Any:
        warp = f.warp
        if everything and f.token is None:
            f.token = commit(warp.copies, mask)
        groups = due(warp.copies, mask, newest)
        for group in groups:
            for task in group.tasks:
                if task.state < DONE:
                    f.machine.sleep(f, task.waiters, Wait("copies", op, task, DONE))
                    return BLOCKED
        f.token = None
        if f.machine.watch is not None:
            f.machine.watch.group_wait(f, mask, op, groups, DONE)
        warp.copies = [g for g in warp.copies if g.open or g.mask & ~mask or g not in groups]
        return None

    return run


@action("cp.async.mbarrier.arrive")
def copy_arrive(op: Op) -> Run:
    """Arrives when all copies that the lane has issued are done; without `.noinc` the phase awaits one arrival more."""
    counted = op.has("noinc")

    def run(f: Any, mask: int, address: Any) -> None:
        machine = f.machine
        for lane, place in each(f, mask, op, address):
            barrier = machine.mbarrier(f, op, place)
            if machine.watch is not None:
                machine.watch.copies_counted(f, lane, op, barrier)
            if not counted:
                barrier.pending += 1
            before = [t for group in f.warp.copies for t in group.tasks if t.mask >> lane & 1 and t.state < DONE]

            def fetch(before: Any = before) -> None:
                for task in before:
                    if task.state < DONE:
                        machine.land(task)

            task = Task("copy arrive", op, f.warp, 1 << lane, fetch, lambda _: None)

            def deliver(_: Any, task: Task = task, barrier: Any = barrier) -> None:
                if machine.watch is not None:
                    machine.watch.copies_arrive(task, barrier)
                barrier.arrive(1, op, f.warp)

            task.deliver = deliver
            machine.issue(f, task)

    return run


# ----------------------------------------------------------------------------------------------------- bulk


def _size(f: Any, op: Op, size: int) -> int:
    if size % 16:
        raise Fault("misaligned", f"{f.warp!r}: `{op.opcode}` of {size} bytes: it must be a multiple of 16",
                    "round the size up to 16 bytes, in the copy and in what its mbarrier expects", op)
    return size


def _buffer(f: Any, lane: int, op: Op, address: Any, size: int) -> tuple[Any, int]:
    """(global memory, place) of all bytes of a bulk copy."""
    memory, place = resolve(f, 1 << lane, op, "global", lane_of(address, lane), 16)
    if memory.allocation(place, place + size) is None:
        raise Fault("out-of-bounds", f"{f.warp!r}: `{op.opcode}` of {size} bytes at {lane_of(address, lane):#x} leaves the buffer", "", op)
    return memory, int(place)


@action("cp.async.bulk.shared::cta.global", "cp.async.bulk.shared::cluster.global")
def bulk_load(op: Op) -> Run:
    names = [p.name for p, o in op.parameters() if p.operand.access == "r"]
    space = op.space("dstMem")

    def run(f: Any, mask: int, *operands: Any) -> None:
        given = dict(zip(names, operands, strict=True))
        for lane in lane_list(mask):
            size = _size(f, op, lane_of(given["size"], lane))
            memory, source = _buffer(f, lane, op, given["srcMem"], size)
            targets, signal = load_targets(f, lane, op, space, given)
            _load(f, lane, op, memory, source, targets, signal, size)

    return run


def _load(f: Any, lane: int, op: Op, memory: Any, source: int, targets: list[tuple[Any, int]], signal: int, size: int) -> None:
    for _, offset in targets:
        check_shared(f, op, offset, size, 16)

    def deliver(data: Any) -> None:
        for cta, offset in targets:
            check_peer(task, cta)
            cta.shared[offset:offset + size] = data

    task = Task("bulk load", op, f.warp, 1 << lane, lambda: memory.data[source:source + size].copy(), deliver, bytes=size,
                signals=[cta.start + signal % f.machine.shared_stride for cta, _ in targets])
    if f.machine.watch is not None:
        task.reads = [Region(memory, source, size)]
        task.writes = [Region(f.cta.cluster.shared, cta.start + offset, size) for cta, offset in targets]
    f.machine.issue(f, task)


@action("cp.async.bulk.shared::cluster.shared::cta", "cp.reduce.async.bulk.shared::cluster.shared::cta")
def bulk_peer(op: Op) -> Run:
    """From this CTA's shared memory to one of the cluster; the barrier is the destination's."""
    reduces = op.tokens[1] == "reduce"
    kind = (op.bindings["redOp"], op.bindings["type"]) if reduces else None

    def run(f: Any, mask: int, to: Any, source: Any, size: Any, mbar: Any) -> None:
        shared = f.cta.cluster.shared
        for lane in lane_list(mask):
            count = _size(f, op, lane_of(size, lane))
            _, target = resolve(f, 1 << lane, op, "shared::cluster", lane_of(to, lane), 16)
            _, begin = resolve(f, 1 << lane, op, "shared::cta", lane_of(source, lane), 16)
            _, signal = resolve(f, 1 << lane, op, "shared::cluster", lane_of(mbar, lane), 8)
            (peer, offset), = bulk_targets(f, op, target, signal, None)
            if peer is f.cta:
                raise Fault("bulk-destination", f"{f.warp!r}: `{op.opcode}` to the shared memory of its own CTA: it is for that of another",
                            "mapa the destination and its mbarrier to another CTA of the cluster, or copy with loads and stores", op)
            check_shared(f, op, offset, count, 16)
            check_shared(f, op, own_offset(f, op, begin), count, 16)
            _to_bytes(f, lane, op, "bulk peer", shared, begin, shared, target, count, kind, peer, [signal])

    return run


@action("cp.async.bulk.global.shared::cta", "cp.reduce.async.bulk.global.shared::cta")
def bulk_store(op: Op) -> Run:
    names = [p.name for p, o in op.parameters() if p.operand.access == "r"]
    kind = (op.bindings["redOp"], op.bindings["type"]) if op.tokens[1] == "reduce" else None

    def run(f: Any, mask: int, *operands: Any) -> None:
        given = dict(zip(names, operands, strict=True))
        for lane in lane_list(mask):
            size = _size(f, op, lane_of(given["size"], lane))
            memory, target = _buffer(f, lane, op, given["dstMem"], size)
            _, begin = resolve(f, 1 << lane, op, "shared::cta", lane_of(given["srcMem"], lane), 16)
            check_shared(f, op, own_offset(f, op, begin), size, 16)
            _to_bytes(f, lane, op, "bulk store", f.cta.cluster.shared, begin, memory, target, size, kind, None, [])

    return run


def _to_bytes(f: Any, lane: int, op: Op, what: str, source: Any, begin: int, memory: Any, target: int, size: int,
              kind: tuple[str, str] | None, peer: Any, signals: list[int]) -> None:
    def deliver(data: Any) -> None:
        if peer is not None:
            check_peer(task, peer)
        there = memory.data[target:target + size]
        there[:] = data if kind is None else reduced(*kind, there, data)

    task = Task(what if kind is None else "bulk reduce", op, f.warp, 1 << lane, lambda: source.data[begin:begin + size].copy(), deliver,
                bytes=size, signals=signals)
    if f.machine.watch is not None:
        task.reads = [Region(source, begin, size)]
        task.writes = [Region(memory, target, size)]
    if not signals:
        join_group(f.warp.bulk, task)
    f.machine.issue(f, task)


@action("cp.async.bulk.prefetch.L2")
def bulk_prefetch(op: Op) -> Run:
    """Moves nothing that a program can see, and may reach beyond a buffer; what it is given must be aligned all the same."""
    names = [p.name for p, o in op.parameters() if p.operand.access == "r"]

    def run(f: Any, mask: int, *operands: Any) -> None:
        given = dict(zip(names, operands, strict=True))
        for lane in lane_list(mask):
            _size(f, op, lane_of(given["size"], lane))
            address = lane_of(given["srcMem"], lane)
            if address % 16:
                raise Fault("misaligned", f"{f.warp!r}: `{op.opcode}` at {address:#x}, which is not a multiple of 16 bytes",
                            "prefetch from the multiple of 16 before it", op)

    return run


# ----------------------------------------------------------------------------------------------------- words


@action("st.async", "red.async")
def word(op: Op) -> Run:
    """A word, or a few, to a CTA of the cluster; each lane's bytes complete on its barrier."""
    size = width(op.bindings["type"]) // 8
    reduces = op.tokens[0] == "red"
    dtype = np.dtype(f"u{size}")

    def run(f: Any, mask: int, address: Any, *rest: Any) -> None:
        values, mbar = (rest[0], rest[1]) if isinstance(op.signature.parameters[1].name, str) and op.signature.parameters[1].name == "b" \
            else (rest[1], rest[0])
        words = values if isinstance(values, (tuple, list)) else (values,)
        total = size * len(words)
        shared = f.cta.cluster.shared
        for lane in lane_list(mask):
            _, target = resolve(f, 1 << lane, op, "shared::cluster", lane_of(address, lane), total)
            _, signal = resolve(f, 1 << lane, op, "shared::cluster", lane_of(mbar, lane), 8)
            if len(f.cta.cluster.ctas) == 1:
                raise Fault("bulk-destination", f"{f.warp!r}: `{op.opcode}` in a cluster of one CTA: it is for clusters of several",
                            "launch a cluster, or use st.shared and mbarrier.arrive", op)
            bulk_targets(f, op, target, signal, None)
            data = np.array([lane_of(value, lane) for value in words], dtype).view(np.uint8)
            _word(f, lane, op, shared, target, data, (op.bindings["op"], op.bindings["type"]) if reduces else None, signal)

    return run


def _word(f: Any, lane: int, op: Op, shared: Any, target: int, data: Any, kind: tuple[str, str] | None, signal: int) -> None:
    peer = f.cta.cluster.ctas[target // f.machine.shared_stride]

    def deliver(data: Any) -> None:
        check_peer(task, peer)
        there = shared.data[target:target + len(data)]
        there[:] = data if kind is None else reduced(*kind, there, data)

    task = Task("store" if kind is None else "reduce", op, f.warp, 1 << lane, lambda: data, deliver, bytes=len(data), signals=[signal])
    if f.machine.watch is not None:
        task.writes = [Region(shared, target, len(data))]
    f.machine.issue(f, task)
