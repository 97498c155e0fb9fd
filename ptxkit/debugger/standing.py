"""Where a run stands on the machine: stops, and whether a breakpoint is reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..sim.barriers import MBarrier
from ..sim.deadlock import place
from .breaks import Breakpoint, Stop
from .views import goal, next_op

if TYPE_CHECKING:
    from ..sim.fragment import Fragment
    from .events import Phase


def stop_of(reason: str, text: str, f: Fragment | None, **more: Any) -> Stop:
    """A stop before the next instruction of a fragment; None: nobody can go on."""
    if f is None:
        return Stop(reason, text, **more)
    op = next_op(f)
    where = None if op is None else op.python or op.position
    line = op.position.line if op is not None and op.position is not None and op.position.file is None else None
    return Stop(reason, text, f.cta.index, f.warp.index, f.mask, "" if op is None else op.opcode, where, line, **more)


def completes(point: Breakpoint, phase: Phase) -> bool:
    """Whether a breakpoint stops at the end of this phase."""
    barrier = phase.barrier
    cta = barrier.cta.index if hasattr(barrier, "cta") else None
    return is_called(barrier, str(point.at or "")) and point.cta in (None, cta) and point.phase in (None, phase.number)


def is_called(barrier: Any, name: str) -> bool:
    """Whether a barrier has this name: `full[0]`, `full` (any of them), `barrier 1`, `cluster`; "" is any."""
    words = str(barrier).partition(" of ")[0]
    if isinstance(barrier, MBarrier):
        return name in ("", words, words.partition("[")[0])
    return name in ("", words) or (name == "cluster" and "cluster" in str(barrier))


def stands(f: Fragment) -> str:
    """Where a fragment that has had a turn stands now."""
    who = f"CTA {f.cta.index} warp {f.warp.index}"
    if not f.mask or not f.warp.live & f.mask:
        return f"{who} has exited"
    if f.wait is not None:
        return f"{who} waits at {place(f.wait.op)} for {goal(f)}"
    return f"{who} lets other lanes or warps go on"
