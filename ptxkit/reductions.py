"""Reductions over the lanes of a warp and the threads of a block. Each docstring says what is emitted."""

from __future__ import annotations

from typing import Any, TypeVar

from . import ptx, smem
from .dsl.ambient import current
from .dsl.reg import Reg
from .dsl.special import tid
from .dsl.trace import Builder
from .errors import TraceError
from .types import Scalar, u32

S = TypeVar("S", bound=Scalar)

ALL = 0xFFFFFFFF
IN_HARDWARE = ("add.u32", "add.s32", "min.u32", "min.s32", "max.u32", "max.s32", "and.b32", "or.b32", "xor.b32")


def warp_reduce(operation: Any, value: Reg[S], *, lanes: int = 32) -> Reg[S]:
    """`operation(x, y)` over each group of `lanes` neighbours of a whole warp, in every lane. `operation` is an opcode, as `add.rn.f32`.

    Emits one redux.sync for 32-bit integers over 32 lanes. Else for each of log2(lanes) distances, the largest first, a shfl.sync.bfly and
    the operation, in one order for every lane: lane 0 and lane 31 get the same bits.
    """
    if lanes not in (1, 2, 4, 8, 16, 32):
        raise TraceError(f"warp_reduce works on groups of 1, 2, 4, 8, 16 or 32 lanes, not {lanes}")
    if not isinstance(value, Reg) or value.type.bits != 32:
        raise TraceError(f"warp_reduce takes a 32-bit register, not {value!r}: `shfl.sync` moves 32 bits")
    _whole(current(), "warp_reduce", 32)
    if lanes == 32 and str(operation) in IN_HARDWARE:
        found: Reg[S] = ptx.opcode(f"redux.sync.{operation}")(value, ALL)
        return found
    distance = lanes // 2
    while distance:
        moved: Any = value
        value = operation(value, ptx.shfl.sync.bfly.b32(moved, distance, 31, ALL))
        distance //= 2
    return value


def block_reduce(operation: Any, value: Reg[S], *, barrier: int = 0, thread: Reg[u32] | None = None) -> Reg[S]:
    """`operation(x, y)` over all threads of the block, in every thread. All threads execute it; a block is 1 to 32 whole warps.

    Emits a `warp_reduce`; and, setp, shr and a st.shared of each warp's value by its first lane; bar.sync; then for 2, 4, 8, 16 or 32 warps
    an and and one ld.shared of a warp's value and a `warp_reduce` over that many lanes, for others a ld.shared for each warp and the
    operation between them; inside a loop one more bar.sync, before the next round may write. It allocates 4 bytes for each warp.
    """
    builder = current()
    threads = builder.module.threads
    if threads is None or threads % 32:
        raise TraceError(f"block_reduce needs a block of whole warps, and this kernel has {threads or 'no block='}: give "
                         "@kernel(block=...) a multiple of 32")
    block = builder.module.block
    if thread is None and block is not None and block[1:] != (1, 1):
        raise TraceError("block_reduce counts threads by %tid.x, and this block has more dimensions: give thread=")
    _whole(builder, "block_reduce", threads)
    value = warp_reduce(operation, value)
    word: Any = value
    warps = threads // 32
    if warps == 1:
        return value
    partial = smem.array(value.type, warps, name="block_reduce")
    thread = ptx.mov.u32(tid.x) if thread is None else thread
    ptx.st.shared__cta.b32(partial.at(thread >> 5), word, pred=(thread & 31) == 0)
    ptx.bar.sync(barrier)
    load = ptx.opcode(f"ld.shared::cta.{value.type.__name__ if value.type.__name__ in ('u32', 's32', 'f32') else 'b32'}")
    if warps & (warps - 1) == 0:
        found = warp_reduce(operation, load(partial.at(thread & (warps - 1))), lanes=warps)
    else:
        found = load(partial.at(0))
        for warp in range(1, warps):
            found = operation(found, load(partial.at(warp)))
    if builder.repeats():
        ptx.bar.sync(barrier)
    return found


def _whole(builder: Builder, what: str, threads: int) -> None:
    """Raise where an `if_` lets fewer threads come here than take part."""
    here = builder.population()
    if here is not None and here < threads:
        group = "all threads of the block" if what == "block_reduce" else "all 32 lanes of a warp"
        raise TraceError(f"{what} is executed by {group}, and at most {here} threads come here: call it before the `if_`, with a neutral "
                         "value in the threads that have none, and use the result inside")


__all__ = ["block_reduce", "warp_reduce"]
