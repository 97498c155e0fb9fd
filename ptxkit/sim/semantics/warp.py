"""Shuffles, elections, warp barriers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..program import Op
from ..values import LANE, lanes, spread, truth, uniform
from .registry import Run, action


def synchronise(f: Any, mask: int, op: Op) -> None:
    """Tell the observer that the lanes have met."""
    if f.machine.watch is not None:
        f.machine.watch.warp_sync(f, mask, op)


@action("shfl.sync")
def shfl(op: Op) -> Run:
    mode = op.bindings["mode"]
    with_predicate = op.operand("p") is not None

    def run(f: Any, mask: int, a: Any, b: Any, c: Any, members: Any) -> Any:
        synchronise(f, mask, op)
        if isinstance(a, int) and not with_predicate:
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
        found = uniform(spread(a, 32)[source])
        return (found, truth(valid)) if with_predicate else found

    return run


@action("elect.sync")
def elect(op: Op) -> Run:
    def run(f: Any, mask: int, members: Any) -> Any:
        synchronise(f, mask, op)
        lane = f.machine.policy.elect(mask & int(members))
        return lane, (lanes(1 << lane) if f.lane is None else True)

    return run


@action("bar.warp.sync")
def bar_warp_sync(op: Op) -> Run:
    return lambda f, mask, members: synchronise(f, mask, op)


@action("activemask")
def activemask(op: Op) -> Run:
    return lambda f, mask: mask


