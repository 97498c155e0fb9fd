"""bar, barrier, barrier.cluster, fences, setmaxnreg."""

from __future__ import annotations

from typing import Any

from ..errors import Fault
from ..fragment import Wait
from ..memory import resolve
from ..operand import Immediate
from ..program import Op
from ..values import lane_of
from .registry import BLOCKED, Run, action, blocking

ALIGNED = 64
"""Bytes that a tensor map is aligned to."""


@blocking("bar", "barrier")
def cta_barrier(op: Op) -> Run:
    """`.sync` and `.red` wait for the generation; a warp counts once all its lanes that live have come."""
    waits = not op.has("arrive")
    reduction = next((word for word in ("popc", "and", "or") if op.has(word)), None)

    def run(f: Any, mask: int, index: Any, threads: Any = None, c: Any = None) -> Any:
        machine = f.machine
        if f.token is None:
            barrier = f.cta.named_barrier(lane_of(index, f.first()))
            count = None if threads is None else lane_of(threads, f.first()) or None
            if machine.watch is not None:
                machine.watch.barrier_arrive(f, mask, op, barrier, count, waits)
            generation = barrier.generation
            if reduction is not None:
                barrier.vote(generation, reduction, mask, c)
            barrier.arrive(f, mask, op, count)
            machine.progress += 1
            barrier.check()
            if not waits:
                return None
            f.token = barrier, generation
        barrier, generation = f.token
        if barrier.generation == generation:
            machine.sleep(f, barrier.waiters, Wait("barrier", op, barrier, generation))
            return BLOCKED
        f.token = None
        if machine.watch is not None:
            machine.watch.barrier_pass(f, mask, op, barrier, generation)
        return barrier.result(generation) if reduction is not None else None

    return run


@action("barrier.cluster.arrive")
def cluster_arrive(op: Op) -> Run:
    def run(f: Any, mask: int) -> None:
        cluster = f.cta.cluster
        if f.machine.watch is not None:
            f.machine.watch.cluster_arrive(f, mask, op, cluster)
        f.warp.cluster_phase = cluster.barrier.phase
        f.warp.cluster_arrived |= mask
        f.machine.progress += 1
        cluster.barrier.arrive(f, mask, op)

    return run


@blocking("barrier.cluster.wait")
def cluster_wait(op: Op) -> Run:
    def run(f: Any, mask: int) -> Any:
        barrier = f.cta.cluster.barrier
        phase = f.warp.cluster_phase
        if phase is None or mask & ~f.warp.cluster_arrived:
            raise Fault("cluster-barrier-wait", f"{f.warp!r} waits at the cluster barrier without having arrived",
                        "pair each barrier.cluster.wait with a barrier.cluster.arrive before it", op)
        if barrier.phase == phase:
            f.machine.sleep(f, barrier.waiters, Wait("cluster", op, barrier, phase))
            return BLOCKED
        if f.machine.watch is not None:
            f.machine.watch.cluster_pass(f, mask, op, f.cta.cluster, phase)
        f.warp.cluster_arrived &= ~mask
        return None

    return run


@action("fence", "membar")
def fence(op: Op) -> Run:
    def run(f: Any, mask: int, *operands: Any) -> None:
        if f.machine.watch is not None:
            f.machine.watch.fence(f, mask, op)

    def acquire(f: Any, mask: int, address: Any, _: Any) -> None:
        memory, places = resolve(f, mask, op, op.space("addr"), address, ALIGNED)
        run(f, mask)
        if f.machine.watch is not None:
            f.machine.watch.map_acquired(f, mask, op, memory, places)

    return acquire if op.operand("addr") is not None else run


@blocking("setmaxnreg")
def setmaxnreg(op: Op) -> Run:
    """Registers go back to the CTA's pool, or come from it when it has them."""
    operand = op.operand("imm_reg_count")
    assert isinstance(operand, Immediate)
    count = operand.value

    def run(f: Any, mask: int, _: Any) -> Any:
        cta, warp = f.cta, f.warp
        if mask != warp.live:
            raise Fault("setmaxnreg-participation", f"{warp!r} executes `{op.opcode}` with lanes {mask:#010x} only: all threads of a "
                        "warpgroup must", "keep it out of divergent code", op)
        if not f.machine.honours_setmaxnreg:
            return None
        before = warp.registers
        more = (count - before) * 32
        if more > cta.free:
            f.machine.sleep(f, cta.register_waiters, Wait("registers", op, cta, more))
            return BLOCKED
        if f.machine.watch is not None:
            f.machine.watch.warp_sync(f, mask, op)
            f.machine.watch.registers(f, op, before, count)
        cta.free -= more
        warp.registers = count
        if more < 0:
            f.machine.progress += 1
            f.machine.wake(cta.register_waiters)
        return None

    return run


