"""Cache control, which changes no value: policies, discarded lines (whose bytes stay as they are)."""

from __future__ import annotations

from typing import Any

from ..program import Op
from .registry import Run, action, pure

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
    return lambda f, mask, *operands: None
