"""What the registers that loops count stay below: a stage beyond those of a tile or of barriers is an error where it is indexed."""

from __future__ import annotations

from typing import Any

from ..errors import TraceError
from .reg import Reg, Special


def below(index: Any, count: int, what: str, of: str) -> None:
    """Raise where an index is the register of a loop that counts further, and no branch in the loop stands before."""
    bound, depth = index.builder.bounds.get(index.name, (0, 0)) if isinstance(index, Reg) else (0, 0)
    if bound > count and not index.builder.regions.branched(depth):
        raise TraceError(f"this register counts to {bound - 1}, and {what} {count} {of}: give both the same number, or reduce the index, "
                         f"as `i % {count}`")


def thread_register(thread: Any, what: str) -> Reg[Any]:
    """The number of a thread in a register; a special register is read. Raises TraceError for anything else, which all threads share."""
    thread = thread.read() if isinstance(thread, Special) else thread
    if not isinstance(thread, Reg) or thread.type.register != "b32":
        raise TraceError(f"{what} takes the number of a thread in a 32-bit register, as `mov.u32(tid.x)`, not {thread!r}")
    return thread


__all__ = ["below", "thread_register"]
