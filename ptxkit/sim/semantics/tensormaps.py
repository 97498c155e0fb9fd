"""Editing a tensor map in memory, and handing it over."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from ..errors import Fault
from ..memory import resolve
from ..program import Op
from ..tensormap import BYTES, replaced
from ..values import lane_list, lane_of
from .registry import Run, action
from .warp import synchronise


def _line(f: Any, lane: int, op: Op, space: str, address: Any) -> tuple[Any, int]:
    """(memory, place) of the 128 bytes."""
    at = lane_of(address, lane)
    memory, place = resolve(f, 1 << lane, op, space, at, BYTES)
    return memory, int(place)


@action("tensormap.replace")
def replace(op: Op) -> Run:
    field, space = op.bindings["field"], op.space("addr")

    def run(f: Any, mask: int, address: Any, *rest: Any) -> None:
        ordinal, value = rest if len(rest) == 2 else (0, rest[0])
        for lane in lane_list(mask):
            memory, place = _line(f, lane, op, space, address)
            if f.machine.watch is not None:
                f.machine.watch.access(f, 1 << lane, op, "r", memory, place, BYTES, False)
                f.machine.watch.access(f, 1 << lane, op, "w", memory, place, BYTES, False)
            try:
                made = replaced(memory.data[place:place + BYTES].tobytes(), field, lane_of(ordinal, lane), lane_of(value, lane))
            except (ValueError, IndexError, struct.error):
                raise Fault("bad-tensormap", f"{f.warp!r}: `{op.opcode}` with {lane_of(value, lane):#x}: no tensor map is at "
                            f"{lane_of(address, lane):#x}, or the field cannot hold the value", "copy a tensor map first", op) from None
            memory.data[place:place + BYTES] = np.frombuffer(made, np.uint8)

    return run


@action("tensormap.cp_fenceproxy")
def cp_fenceproxy(op: Op) -> Run:
    """Copies the map, and releases it to the tensormap proxy."""

    def run(f: Any, mask: int, dst: Any, src: Any, size: Any = None) -> None:
        synchronise(f, mask, op)
        lane = lane_list(mask)[0]
        source, begin = _line(f, lane, op, op.space("src"), src)
        memory, place = _line(f, lane, op, op.space("dst"), dst)
        if f.machine.watch is not None:
            f.machine.watch.access(f, 1 << lane, op, "r", source, begin, BYTES, False)
            f.machine.watch.access(f, 1 << lane, op, "w", memory, place, BYTES, False)
        memory.data[place:place + BYTES] = source.data[begin:begin + BYTES]
        if f.machine.watch is not None:
            f.machine.watch.map_published(f, mask, op, memory, place)

    return run
