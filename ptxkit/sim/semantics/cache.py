"""Cache control: policies, which change no value, and discarded lines."""

from __future__ import annotations

from typing import Any

from ..memory import resolve
from ..program import Op
from ..values import lane_list, lane_of
from .registry import Run, action, pure

ANYTHING = 0xDD
"""The bytes of a discarded line."""
_LEVELS = {"evict_last": 1, "evict_normal": 2, "evict_first": 3, "evict_unchanged": 4}


@pure("createpolicy")
def createpolicy(op: Op) -> Run:
    """Some number that tells policies apart: its bits have no meaning that a program may know."""
    level = next((n for name, n in _LEVELS.items() if op.has(f"L2::{name}")), 0)

    def run(*sources: Any) -> Any:
        return 0x1000000000000000 | level << 48

    return run


@action("discard")
def discard(op: Op) -> Run:
    """Afterwards the bytes hold anything."""
    size = 128

    def run(f: Any, mask: int, address: Any, _: Any = None) -> None:
        memory, places = resolve(f, mask, op, op.space("a") or "global", address, size)
        if f.machine.watch is not None:
            f.machine.watch.access(f, mask, op, "w", memory, places, size, False)
        for place in {lane_of(places, lane) for lane in lane_list(mask)}:
            memory.data[place:place + size] = ANYTHING

    return run
