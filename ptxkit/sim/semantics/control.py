"""What delays a thread or marks a place; branches and calls are the compiler's."""

from __future__ import annotations

from typing import Any

from ..program import Op
from .registry import Run, action


@action("griddepcontrol.wait")
def wait(op: Op) -> Run:
    """One grid is simulated: the one before has always ended, which a checker need not believe."""
    def run(f: Any, mask: int) -> None:
        if f.machine.watch is not None:
            f.machine.watch.previous_ended(f, mask, op)

    return run


@action("nanosleep", "pmevent", "brkpt", "griddepcontrol")
def nothing(op: Op) -> Run:
    return lambda f, mask, *operands: None
