"""Copies of a tile by all threads of a group, 16 bytes a thread at a time. Each docstring says what is emitted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import ptx
from .dsl.ambient import current
from .dsl.bounds import thread_register
from .dsl.reg import Index, Ptr, Reg
from .errors import TraceError
from .smem import SharedAddress, TileView, check_view

Moved = Callable[[SharedAddress, Ptr[Any], Any], None]


def copy_async(view: TileView[Any], source: Ptr[Any], stride: Index, thread: Reg[Any], threads: int, *,
               rows: Reg[Any] | None = None) -> None:
    """Global memory to a tile: cp.async.cg of 16 bytes for each chunk, which `cp.async.wait_group` or an mbarrier waits for.

    `source` is the tile's first element and `stride` the elements from one line to the next; both keep 16 bytes aligned. `thread` is one of
    `threads` threads. Lines from `rows` on are filled with zeros. Emits the address of a thread's first chunk in the tile (see
    `TileView.at`) and in global memory (shr, and, mad, mad.wide); for each chunk one cp.async, and where `stride` is a register mul
    and mad.wide; with `rows` add, setp and selp.
    """
    def move(place: SharedAddress, there: Ptr[Any], line: Any) -> None:
        if rows is None:
            ptx.cp.async_.cg.shared__cta.global_(place, there, 16)
        else:
            ptx.cp.async_.cg.shared__cta.global_(place, there, 16, src_size=ptx.selp.u32(16, 0, line < rows))

    _chunks(view, source, stride, thread, threads, move, lines=rows is not None)


def load_tile(view: TileView[Any], source: Ptr[Any], stride: Index, thread: Reg[Any], threads: int) -> None:
    """Global memory to a tile by vector loads: for each chunk ld.global.v4.b32 and st.shared.v4.b32; all loads come first. A barrier
    follows. Addresses as in `copy_async`."""
    moves: list[tuple[SharedAddress, Any]] = []
    _chunks(view, source, stride, thread, threads, lambda place, there, _: moves.append((place, ptx.ld.global_.v4.b32(there))))
    for place, words in moves:
        ptx.st.shared__cta.v4.b32(place, words)


def store_tile(view: TileView[Any], target: Ptr[Any], stride: Index, thread: Reg[Any], threads: int, *,
               rows: Reg[Any] | None = None) -> None:
    """A tile to global memory: for each chunk ld.shared.v4.b32 and st.global.v4.b32, and with `rows` only lines before it (add, setp).
    A barrier precedes it. Addresses as in `copy_async`."""
    def move(place: SharedAddress, there: Ptr[Any], line: Any) -> None:
        guard = None if rows is None else line < rows
        ptx.st.global_.v4.b32(there, ptx.ld.shared__cta.v4.b32(place), pred=guard)

    _chunks(view, target, stride, thread, threads, move, lines=rows is not None)


def _chunks(view: TileView[Any], source: Ptr[Any], stride: Index, thread: Reg[Any], threads: int, move: Moved, *,
            lines: bool = False) -> None:
    """Call `move` with the place in the tile, the pointer and the line of each of this thread's chunks of 16 bytes."""
    check_view(view, "a copy of a tile")
    thread = thread_register(thread, "a copy of a tile")
    layout, block = view.layout, current().module.threads
    if type(threads) is not int or threads < 1 or threads > (block or threads):
        raise TraceError(f"{threads!r} threads cannot copy a tile: give the number of those that call, an int"
                         + (f" of 1 to {block}, the threads of the block" if block else ""))
    elements = 16 // layout.element_bytes
    across = view.inner // elements
    if view.inner % elements or across & (across - 1) or threads % across or (view.outer * across) % threads or threads // across % 8:
        raise TraceError(
            f"{threads} threads cannot share a tile of {view.outer} lines of {view.inner * layout.element_bytes} bytes: a line is a power "
            f"of two of 16-byte chunks, and the threads, a multiple of {8 * max(across, 1)}, take whole lines, 8 at least, and divide them")
    if not isinstance(source, Ptr):
        raise TraceError(f"a tile is copied from or to a pointer, `Ptr[{layout.type.__name__}]`, not {source!r}")
    if source.type.bits != layout.type.bits:
        raise TraceError(f"a tile of {layout.type.__name__} is copied from a pointer to elements of its size, not to "
                         f"{source.type.__name__}: `pointer.cast(type)`")
    if isinstance(stride, int) and stride % elements:
        raise TraceError(f"lines {stride} elements of {layout.type.__name__} apart do not keep 16 bytes aligned: a stride is a multiple of "
                         f"{elements} elements")
    line, column = thread // across, (thread % across) * elements
    each = threads // across
    first = view.lines(0, view.outer) if view.outer % 8 == 0 else view
    place = first.at(line, column) if layout.major == "k" else first.at(column, line)
    begin = source.at(line * stride + column)
    for i in range(view.outer // each):
        there = begin if not i else begin + i * each * stride if isinstance(stride, int) else begin.at(stride * (i * each))
        at_line = (line + i * each if i else line) if lines else None
        move(SharedAddress(place.offset + i * each * layout.span_bytes, place.dynamic), there, at_line)


__all__ = ["copy_async", "load_tile", "store_tile"]
