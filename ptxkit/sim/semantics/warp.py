"""Shuffles, elections, warp barriers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import Fault
from ..meeting import Gathering
from ..program import Op
from ..values import FULL, LANE, lanes, mask_of, spread, truth, uniform
from .registry import Run, action

UNDEFINED = 0xDEADBEEF
"""What a lane gets of a lane that does not take part."""


def synchronise(f: Any, mask: int, op: Op) -> None:
    """Tell the observer that the lanes have met."""
    if f.machine.watch is not None:
        f.machine.watch.warp_sync(f, mask, op)


def whole(f: Any, mask: int, op: Op) -> None:
    """At a matrix instruction: all 32 lanes are there."""
    if mask != FULL:
        raise Fault("warp-participation", f"{f.warp!r} executes `{op.opcode}` with lanes {mask:#010x}: it is for the 32 threads of a warp, "
                    "none of which has exited", "keep all threads of a warp until its last one, and launch whole warps", op)
    synchronise(f, mask, op)


@action("shfl.sync")
def shfl(op: Op) -> Run:
    mode = op.bindings["mode"]
    with_predicate = op.operand("p") is not None

    def run(f: Any, mask: int, a: Any, b: Any, c: Any, members: int) -> Any:
        if isinstance(a, int) and not with_predicate and mask == FULL and not _follows(f, op):
            return a
        lane, clamp = spread(b, 32), spread(c, 32)
        segment = clamp >> 8 & 31
        limit = LANE & segment | clamp & 31 & ~segment
        low = LANE & segment
        here = LANE.astype(np.int64)
        if mode == "up":
            source = here - (lane & 31)
            valid = source >= limit
        elif mode == "down":
            source = here + (lane & 31)
            valid = source <= limit
        elif mode == "bfly":
            source = here ^ (lane & 31)
            valid = source <= limit
        else:
            source = (low | lane & 31 & ~segment).astype(np.int64)
            valid = source <= limit
        source = np.where(valid, source, here)
        absent = mask & ~mask_of(lanes(mask)[source])
        if absent or _follows(f, op):
            _undefined(f, op, mask, source, absent)
        found = uniform(np.where(lanes(absent), np.uint32(UNDEFINED), spread(a, 32)[source]))
        if f.lane is not None:
            one = found if isinstance(found, int) else int(found[f.lane])
            return (one, bool(valid[f.lane])) if with_predicate else one
        return (found, truth(valid)) if with_predicate else found

    return run


def _parts(f: Any, op: Op, mask: int) -> list[tuple[Any, Op, int]]:
    return f.parts if isinstance(f, Gathering) else [(f, op, mask)]


def _follows(f: Any, op: Op) -> bool:
    """Whether a checker follows the values of this shuffle."""
    watch = f.machine.watch
    return watch is not None and any(watch.follows(of) for _, of, _ in _parts(f, op, 0))


def _undefined(f: Any, op: Op, mask: int, source: Any, absent: int) -> None:
    """Tell the observer which lane each lane reads; `absent`: the lanes that read one that does not take part."""
    if f.machine.watch is not None:
        f.machine.watch.shuffled([(part, of, lanes & mask) for part, of, lanes in _parts(f, op, mask)], source, absent)


@action("elect.sync")
def elect(op: Op) -> Run:
    def run(f: Any, mask: int, members: int) -> Any:
        """The same lane whenever the same lanes elect."""
        leaders = f.warp.leaders
        lane = leaders.get(members, -1)
        if lane < 0 or not mask >> lane & 1:
            lane = leaders[members] = f.machine.policy.elect(mask)
        if f.machine.watch is not None:
            f.machine.watch.elected(_parts(f, op, mask), members, lane)
        return lane, (lanes(1 << lane) if f.lane is None else True)

    return run


@action("bar.warp.sync")
def bar_warp_sync(op: Op) -> Run:
    return lambda f, mask, members: None


@action("activemask")
def activemask(op: Op) -> Run:
    return lambda f, mask: mask


