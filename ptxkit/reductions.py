"""Reductions over the lanes of a warp, the threads of a block and the CTAs of a cluster. Each docstring says what is emitted."""

from __future__ import annotations

from typing import Any, TypeVar

from . import ptx, smem
from .dsl.ambient import current
from .dsl.bounds import thread_register
from .dsl.reg import Reg
from .dsl.special import tid
from .dsl.trace import Builder
from .errors import TraceError
from .idioms import cluster_sync
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
    _check_operation(operation)
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
    operation between them; inside a loop or a @func one more bar.sync, before the next round may write. It allocates 4 bytes for each warp.
    """
    builder = current()
    threads = _threads(builder, "block_reduce", thread)
    value = _of_block(builder, operation, value, barrier, thread)
    if threads > 32 and builder.repeats():
        ptx.bar.sync(barrier)
    return value


def cluster_reduce(operation: Any, value: Reg[S], *, barrier: int = 0, thread: Reg[u32] | None = None) -> Reg[S]:
    """`operation(x, y)` over all threads of all CTAs of the cluster, in every thread: the same bits in all CTAs. All threads execute it.

    Emits a `block_reduce`, without its last barrier; setp and a st.shared of the CTA's value by thread 0; barrier.cluster.arrive and wait;
    then for 2, 4, 8 or 16 CTAs an and, a mapa, one ld.shared::cluster of a CTA's value and a `warp_reduce` over that many lanes, for others
    a mapa and a ld.shared::cluster for each CTA and the operation between them; at last barrier.cluster.arrive and wait, since no CTA may
    exit or write again while others read. It allocates 4 bytes for each warp and 4 more.
    """
    builder = current()
    threads, ctas = _threads(builder, "cluster_reduce", thread), builder.module.cluster_size
    value = _of_block(builder, operation, value, barrier, thread)
    if ctas == 1:
        if threads > 32 and builder.repeats():
            ptx.bar.sync(barrier)
        return value
    own = smem.array(value.type, 1, name="cluster_reduce")
    word: Any = value
    thread = _number(builder, thread)
    ptx.st.shared__cta.b32(own, word, pred=thread == 0)
    cluster_sync()
    load = ptx.opcode(f"ld.shared::cluster.{_loaded(value)}")
    if ctas & (ctas - 1) == 0:
        found = warp_reduce(operation, load(ptx.mapa.shared__cluster.u32(own, thread & (ctas - 1))), lanes=ctas)
    else:
        found = load(ptx.mapa.shared__cluster.u32(own, 0))
        for cta in range(1, ctas):
            found = operation(found, load(ptx.mapa.shared__cluster.u32(own, cta)))
    cluster_sync()
    return found


def _threads(builder: Builder, what: str, thread: Reg[u32] | None) -> int:
    """The threads of the block. Raises TraceError where it is not fit."""
    threads, block = builder.module.threads, builder.module.block
    if threads is None or threads % 32:
        raise TraceError(f"{what} needs a block of whole warps, and this kernel has {threads or 'no block='}: give "
                         "@kernel(block=...) a multiple of 32")
    if thread is None and block is not None and block[1:] != (1, 1):
        raise TraceError(f"{what} counts threads by %tid.x, and this block has more dimensions: give thread=")
    _whole(builder, what, threads)
    return threads


def _number(builder: Builder, thread: Reg[u32] | None) -> Reg[u32]:
    return builder.memo(("thread",), (), lambda: ptx.mov.u32(tid.x)) if thread is None else thread_register(thread, "a reduction")


def _of_block(builder: Builder, operation: Any, value: Reg[S], barrier: int, thread: Reg[u32] | None) -> Reg[S]:
    """The value of the block, without a barrier after it."""
    value = warp_reduce(operation, value)
    warps = (builder.module.threads or 32) // 32
    if warps == 1:
        return value
    thread = _number(builder, thread)
    word: Any = value
    partial = smem.array(value.type, warps, name="block_reduce")
    ptx.st.shared__cta.b32(partial.at(thread >> 5), word, pred=(thread & 31) == 0)
    ptx.bar.sync(barrier)
    load = ptx.opcode(f"ld.shared::cta.{_loaded(value)}")
    if warps & (warps - 1) == 0:
        return warp_reduce(operation, load(partial.at(thread & (warps - 1))), lanes=warps)
    found: Reg[S] = load(partial.at(0))
    for warp in range(1, warps):
        found = operation(found, load(partial.at(warp)))
    return found


def _loaded(value: Reg[Any]) -> str:
    """The type under which a value is loaded."""
    return value.type.__name__ if value.type.__name__ in ("u32", "s32", "f32") else "b32"


def _check_operation(operation: Any) -> None:
    if not callable(operation) or str(operation).partition(".")[0] in ("sub", "div", "rem", "shl", "shr", "setp"):
        raise TraceError(f"a reduction takes an operation whose order does not matter, as `add.rn.f32` or `max.u32`, not {operation!r}")


def _whole(builder: Builder, what: str, threads: int) -> None:
    """Raise where an `if_` lets fewer threads come here than take part."""
    here = builder.population()
    if here is not None and here < threads:
        group = "all 32 lanes of a warp" if what == "warp_reduce" else "all threads of the block"
        raise TraceError(f"{what} is executed by {group}, and at most {here} threads come here: call it before the `if_`, with a neutral "
                         "value in the threads that have none, and use the result inside")


__all__ = ["block_reduce", "cluster_reduce", "warp_reduce"]
