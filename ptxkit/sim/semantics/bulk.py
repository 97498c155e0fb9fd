"""What all bulk copies share: the places they go to, and the groups that they are waited for in."""

from __future__ import annotations

from typing import Any

from ..errors import Fault
from ..fragment import Wait
from ..memory import resolve
from ..milestones import DONE, READ
from ..operand import Immediate
from ..program import Op
from ..spaces import RESERVED_SHARED
from ..tasks import Task, commit, due
from ..values import lane_of
from .registry import BLOCKED, Run, action, blocking


def bulk_targets(f: Any, op: Op, place: int, signal: int, mask: Any) -> list[tuple[Any, int]]:
    """(CTA, offset in its shared memory) of each destination of a copy to `place`: all of the mask when there is one.

    `signal` is the place of its mbarrier, of which each destination has one.
    """
    cluster = f.cta.cluster
    stride = f.machine.shared_stride
    if mask is None:
        if place // stride != signal // stride:
            raise Fault("bulk-barrier", f"{f.warp!r}: `{op.opcode}` to {cluster.ctas[place // stride]!r} signals an mbarrier of "
                        f"{cluster.ctas[signal // stride]!r}", "the mbarrier of the CTA that the bytes go to", op)
        return [(cluster.ctas[place // stride], place % stride)]
    ranks = [rank for rank in range(16) if mask >> rank & 1]
    if not ranks or ranks[-1] >= len(cluster.ctas):
        whom = f"CTA {ranks[-1]} of a cluster of {len(cluster.ctas)}" if ranks else "no CTA at all"
        raise Fault("multicast-mask", f"{f.warp!r}: the mask {mask:#x} of `{op.opcode}` names {whom}",
                    "a mask of the cluster's own CTAs: bits 0 to the cluster's size minus 1", op)
    return [(cluster.ctas[rank], place % stride) for rank in ranks]


def load_targets(f: Any, lane: int, op: Op, space: str, given: dict[str, Any]) -> tuple[list[tuple[Any, int]], int]:
    """(the destinations of a lane's copy from global memory, the place of its mbarrier), from the destination's space and the instruction's
    operands by name.
    """
    chosen = given.get("ctaMask")
    _, place = resolve(f, 1 << lane, op, space, lane_of(given["dstMem"], lane), 16)
    _, signal = resolve(f, 1 << lane, op, space, lane_of(given["mbar"], lane), 8)
    if space == "shared::cta":
        own_offset(f, op, place)
    return bulk_targets(f, op, place, signal, None if chosen is None else lane_of(chosen, lane)), signal


def own_offset(f: Any, op: Op, place: int) -> int:
    """The offset of a place in the executing CTA's shared memory; a fault where it is another's."""
    rank, offset = divmod(place, f.machine.shared_stride)
    if rank != f.cta.rank:
        raise Fault("out-of-bounds", f"{f.warp!r}: `{op.opcode}` takes an address in the shared memory of {f.cta.cluster.ctas[rank]!r} for "
                    "one of its own, .shared::cta", "the address in the executing CTA, not one from mapa", op)
    return int(offset)


def check_shared(f: Any, op: Op, offset: int, size: int, align: int) -> None:
    """A fault where an asynchronous copy may not begin at this offset of a CTA's shared memory, or does not fit behind it."""
    if offset % align:
        raise Fault("misaligned", f"{f.warp!r}: `{op.opcode}` with shared memory at +{offset - RESERVED_SHARED:#x}: it must be a multiple "
                    f"of {align} bytes", f"align the buffer to {align} bytes, and step through it by multiples of {align}", op)
    if offset + size > f.machine.shared_bytes:
        raise Fault("out-of-bounds", f"{f.warp!r}: `{op.opcode}` of {size} bytes of shared memory at +{offset - RESERVED_SHARED:#x}, of "
                    f"{f.machine.shared_bytes - RESERVED_SHARED}", "ask for more shared memory, or copy less", op)


def check_peer(task: Task, cta: Any) -> None:
    """A fault when what lands in another CTA's shared memory finds it gone."""
    if cta is not task.warp.cta and not cta.live:
        raise Fault("dsmem-lifetime", f"`{task.op.opcode}` of {task.warp!r} writes to the shared memory of {cta!r}, which has exited",
                    "end the kernel with a cluster barrier behind the last wait for it", task.op)


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
