"""What the lanes of a warp find out about each other: vote, match, redux. The lanes are those of the member mask that execute."""

from __future__ import annotations

from functools import reduce
from operator import and_, or_, xor
from typing import Any

import numpy as np

from ..program import Op
from ..values import lane_list, lane_of, lanes, mask_of, signed
from .registry import Run, action
from .warp import synchronise


def _members(mask: int, members: Any) -> int:
    """The lanes that take part, by the mask of the lowest of them."""
    return mask & (members if isinstance(members, int) else int(members[(mask & -mask).bit_length() - 1]))


@action("vote.sync")
def vote(op: Op) -> Run:
    mode = op.bindings.get("mode", "ballot")

    def run(f: Any, mask: int, a: Any, members: Any) -> Any:
        synchronise(f, mask, op)
        voters = _members(mask, members)
        ballot = mask_of(a) & voters
        match mode:
            case "ballot":
                return ballot
            case "all":
                return ballot == voters
            case "any":
                return ballot != 0
        return ballot in (0, voters)

    return run


@action("match")
def match(op: Op) -> Run:
    """`any`: the lanes with the same value; `all`: all lanes if they have one value, else none."""
    everybody = op.has("all")
    both = op.operand("p") is not None

    def run(f: Any, mask: int, a: Any, members: Any) -> Any:
        synchronise(f, mask, op)
        group = _members(mask, members)
        values = [lane_of(a, lane) for lane in lane_list(group)]
        if everybody:
            same = len(set(values)) <= 1
            return (group if same else 0, same) if both else group if same else 0
        masks: dict[int, int] = {}
        for lane, value in zip(lane_list(group), values, strict=True):
            masks[value] = masks.get(value, 0) | 1 << lane
        if len(masks) == 1:
            return group
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

    def run(f: Any, mask: int, a: Any, members: Any) -> Any:
        synchronise(f, mask, op)
        values = [lane_of(a, lane) for lane in lane_list(_members(mask, members))]
        if type == "s32":
            values = [signed(value, 32) for value in values]
        return reduce(function, values) & 0xFFFFFFFF

    return run

