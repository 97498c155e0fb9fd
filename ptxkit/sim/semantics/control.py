"""What delays a thread or marks a place; branches and calls are the compiler's."""

from __future__ import annotations

from ..program import Op
from .registry import Run, action


@action("nanosleep", "pmevent", "brkpt", "griddepcontrol")
def nothing(op: Op) -> Run:
    return lambda f, mask, *operands: None
