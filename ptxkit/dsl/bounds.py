"""Indices into shared memory: what may be one, and how large one can become. A loop's register that counts past the stages of a tile, or
past the barriers of an array, is an error where it indexes them."""

from __future__ import annotations

from typing import Any

from ..errors import TraceError
from .refused import int_of_numpy
from .reg import Reg, Special


def below(index: Any, count: int, what: str, of: str) -> None:
    """Raise where an index is the register of a loop that counts further, and no branch in the loop stands before."""
    bound, depth = index.builder.bounds.get(index.name, (0, 0)) if isinstance(index, Reg) else (0, 0)
    if bound > count and not index.builder.regions.branched(depth):
        raise TraceError(f"this register counts to {bound - 1}, and {what} {count} {of}: give both the same number, or reduce the index, "
                         f"as `i % {count}`")


_CONVERTED = {"b64": "`cvt.u32.u64(i)`", "b16": "`cvt.u32.u16(i)`", "f32": "`cvt.rzi.u32.f32(i)`", "f64": "`cvt.rzi.u32.f64(i)`",
              "pred": "`selp.u32(1, 0, p)`"}


def check_index(index: Any) -> None:
    """Raise TraceError unless `index` is an int or a 32-bit register that holds no float."""
    kind = index.type.register if isinstance(index, Reg | Special) else None
    if kind != "b32" and not isinstance(index, int):
        way = f": write {_CONVERTED[kind]}" if kind in _CONVERTED else int_of_numpy(index)
        raise TraceError(f"shared memory is indexed with an int or a 32-bit register, not {index!r}{way}")


def thread_register(thread: Any, what: str) -> Reg[Any]:
    """The number of a thread in a register; a special register is read. Raises TraceError for anything else, which all threads share."""
    thread = thread.read() if isinstance(thread, Special) else thread
    if not isinstance(thread, Reg) or thread.type.register != "b32":
        raise TraceError(f"{what} takes the number of a thread in a 32-bit register, as `mov.u32(tid.x)`, not {thread!r}")
    return thread


__all__ = ["below", "check_index", "thread_register"]
