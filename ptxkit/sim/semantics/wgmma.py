"""wgmma.*"""

from __future__ import annotations

from typing import Any

from ..errors import Fault
from ..fragment import Wait
from ..operand import Immediate
from ..program import Op
from ..warpgroup import Shape, Warpgroup
from .registry import BLOCKED, Run, action, blocking


def _whole(f: Any, mask: int, op: Op) -> Warpgroup:
    """The warpgroup, of which the whole warp is here."""
    group: Warpgroup = f.warp.group
    if mask != f.warp.lanes or len(group.warps) != 4:
        raise Fault("wgmma-participation", f"{f.warp!r} executes `{op.opcode}` with lanes {mask:#010x} only: all 128 threads of a "
                    "warpgroup must", "keep it out of divergent code", op)
    if f.machine.watch is not None:
        f.machine.watch.warp_sync(f, mask, op)
    return group


@action("wgmma.mma_async", "wgmma.mma_async.sp")
def mma_async(op: Op) -> Run:
    tokens = op.tokens
    shape_at = next(i for i, t in enumerate(tokens) if t.startswith("m64"))
    n, k = (int(x) for x in tokens[shape_at][4:].split("k"))
    d_type, a_type, b_type = [t for t in tokens[shape_at + 1:] if t not in ("satfinite", "and", "popc")]

    def immediate(name: str, default: int) -> int:
        found = op.operand(name)
        return found.value if isinstance(found, Immediate) else default

    from_registers = op.operand("a") is not None
    shape = Shape(op, n, k, d_type, a_type, b_type, immediate("imm_scale_a", 1), immediate("imm_scale_b", 1),
                  immediate("imm_trans_a", 0), immediate("imm_trans_b", 0), op.has("satfinite"), op.registers("d"), from_registers,
                  immediate("sp_sel", 0) if op.has("sp") else None)

    def run(f: Any, mask: int, a: Any, b: Any, accumulate: Any, *immediates: Any) -> None:
        product = _whole(f, mask, op).issue(f, shape, a, b, accumulate)
        if f.machine.watch is not None:
            f.machine.watch.wgmma_issue(f, op, product)

    def sparse(f: Any, mask: int, a: Any, b: Any, metadata: Any, _: Any, accumulate: Any, *immediates: Any) -> None:
        product = _whole(f, mask, op).issue(f, shape, a, b, accumulate, metadata)
        if f.machine.watch is not None:
            f.machine.watch.wgmma_issue(f, op, product)

    return run if shape.selector is None else sparse


@action("wgmma.fence")
def fence(op: Op) -> Run:
    def run(f: Any, mask: int) -> None:
        _whole(f, mask, op)
        if f.machine.watch is not None:
            f.machine.watch.wgmma_fence(f, op)

    return run


@action("wgmma.commit_group")
def commit(op: Op) -> Run:
    def run(f: Any, mask: int) -> None:
        group = _whole(f, mask, op).commit(f)
        if f.machine.watch is not None:
            f.machine.watch.wgmma_commit(f, op, group)

    return run


@blocking("wgmma.wait_group")
def wait(op: Op) -> Run:
    """Waits until all but the newest N groups of the warpgroup are done: other warps may still have to commit them."""
    keep = op.operand("n")
    assert isinstance(keep, Immediate)
    newest = keep.value

    def run(f: Any, mask: int, _: Any) -> Any:
        group = f.warp.group
        last = group.committed[f.warp.index & 3] - newest - 1
        if last >= group.ran:
            if not group.ready(last):
                f.machine.sleep(f, group.waiters, Wait("wgmma", op, group, last))
                return BLOCKED
            group.run(last)
        _whole(f, mask, op)
        group.retire(f, newest)
        if f.machine.watch is not None:
            f.machine.watch.wgmma_wait(f, op, last + 1)
        return None

    return run
