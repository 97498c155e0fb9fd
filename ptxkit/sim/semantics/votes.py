"""What the lanes of a warp find out about each other: vote, match, redux. The lanes are those of the member mask that execute."""

from __future__ import annotations

from functools import reduce
from operator import and_, or_, xor
from typing import Any

import numpy as np

from ..program import Op
from ..values import lane_list, lane_of, lanes, mask_of, signed
from .registry import Run, action


@action("vote.sync")
def vote(op: Op) -> Run:
    mode = op.bindings.get("mode", "ballot")

    def run(f: Any, mask: int, a: Any, members: int) -> Any:
        ballot = mask_of(a) & mask
        match mode:
            case "ballot":
                return ballot
            case "all":
                return ballot == mask
            case "any":
                return ballot != 0
        return ballot in (0, mask)

    return run


@action("match")
def match(op: Op) -> Run:
    """`any`: the lanes with the same value; `all`: all lanes if they have one value, else none."""
    everybody = op.has("all")
    both = op.operand("p") is not None

    def run(f: Any, mask: int, a: Any, members: int) -> Any:
        values = [lane_of(a, lane) for lane in lane_list(mask)]
        if everybody:
            same = len(set(values)) <= 1
            return (mask if same else 0, same) if both else mask if same else 0
        masks: dict[int, int] = {}
        for lane, value in zip(lane_list(mask), values, strict=True):
            masks[value] = masks.get(value, 0) | 1 << lane
        if len(masks) == 1:
            return mask
        found = np.zeros(32, np.uint32)
        for value in masks.values():
            found[lanes(value)] = value
        return found

    return run


@action("redux.sync")
def redux(op: Op) -> Run:
    name, type = op.bindings["op"], op.bindings.get("type", "b32")
    functions: dict[str, Any] = {"and": and_, "or": or_, "xor": xor, "add": int.__add__, "min": min, "max": max}
    function = functions[name]

    def run(f: Any, mask: int, a: Any, members: int) -> Any:
        values = [lane_of(a, lane) for lane in lane_list(mask)]
        if type == "s32":
            values = [signed(value, 32) for value in values]
        return reduce(function, values) & 0xFFFFFFFF

    return run

