"""Two kernels that do nothing but use the card: wgmma on operands that stay in shared memory, and a streaming read of memory.

A product cannot be faster than the first allows for its arithmetic and the second for its bytes, at the clocks of the same run.
"""

from __future__ import annotations

from typing import Any

from ptxkit import Ptr, Reg, Ring, TensorMap, ctaid, for_range, if_, kernel, laneid, nctaid, smem, tid
from ptxkit.flow import else_
from ptxkit.idioms import init_barriers, wait
from ptxkit.ptx import bar, cp, fence, ld, mbarrier, mov, opcode, redux, shfl, st, wgmma, xor
from ptxkit.types import Scalar, b32, bf16, f32, u32

BM, BN = 128, 256
"""Rows of A of two warpgroups, and columns of B: m64n256 is the widest wgmma."""
SPAN_BYTES = 128
READ_WARPS = 4


@kernel(block=256)
def resident(a: TensorMap, b: TensorMap, d: Ptr[f32], rounds: Reg[u32], *, TYPE: type[Scalar] = bf16, SLICES: int = 4) -> None:
    """D = rounds A B^T, its operands loaded once: A [grid 128, K], B [256, K], D [grid 128, 256] in float32, K being SLICES spans of
    128 bytes. Two warpgroups of 64 rows; a group of wgmma for all of K is in flight while the next is issued.

    full: 1 arrival, the arrive.expect_tx of thread 0 for all slices.
    """
    span = SPAN_BYTES * 8 // TYPE.bits
    depth = 256 // TYPE.bits
    a_tile, b_tile = smem.tile(TYPE, (SLICES, BM, span), name="A"), smem.tile(TYPE, (SLICES, BN, span), name="B")
    full = smem.mbarrier(1, name="full")
    load = cp.async_.bulk.tensor_2d.shared__cluster.global_.tile.mbarrier__complete_tx__bytes
    thread = mov.u32(tid.x)
    first = mov.u32(ctaid.x) * BM
    with if_(thread == 0):
        init_barriers((full, 1))
        fence.proxy.async_.shared__cta()
        mbarrier.arrive.expect_tx.shared__cta.b64(full[0], SLICES * (a_tile.layout.bytes + b_tile.layout.bytes))
        for s in range(SLICES):
            load(a_tile[s], a, (s * span, first), full[0])
            load(b_tile[s], b, (s * span, 0), full[0])
    bar.sync(0)
    wait(full[0], 0)
    mma: Any = opcode(f"wgmma.mma_async.sync.aligned.m64n{BN}k{depth}.f32.{TYPE.__name__}.{TYPE.__name__}")
    acc = mma.fragment()
    rows = shfl.sync.idx.b32(thread >> 7, 0, 31, 0xFFFFFFFF) * 64     # the same in all lanes, and ptxas can see it
    with for_range(rounds):
        wgmma.fence.sync.aligned()
        for s in range(SLICES):
            for k in range(0, span, depth):
                mma(acc, a_tile[s].desc(k, mn=rows), b_tile[s].desc(k), True)
        wgmma.commit_group.sync.aligned()
        wgmma.wait_group.sync.aligned(1)
    wgmma.wait_group.sync.aligned(0)
    row, column = first + (thread >> 5) * 16 + ((thread & 31) >> 2), (thread & 3) * 2
    out = d.at(row * BN + column)
    for i in range(0, BN // 2, 4):
        st.global_.v2.f32(out + 2 * i, acc[i:i + 2])
        st.global_.v2.f32(out + (2 * i + 8 * BN), acc[i + 2:i + 4])


@kernel(block=READ_WARPS * 32 + 32)
def stream(source: Ptr[b32], total: Ptr[b32], chunks: Reg[u32], *, CHUNK: int = 8192, STAGES: int = 24) -> None:
    """Reads `chunks` pieces of CHUNK bytes, the CTAs in turn; `total` [grid, 4] gets the exclusive or of the words that each warp saw.

    Warp 4 copies (in bulk), up to STAGES pieces ahead; warps 0-3 read what has landed. full[stage]: 1 arrival, the copying thread's
    arrive.expect_tx. empty[stage]: 4, one thread of each reading warp.
    """
    words = CHUNK // 4
    buffer = smem.array(b32, STAGES * words, align=128, name="pieces")
    full, empty = smem.mbarrier(STAGES, name="full"), smem.mbarrier(STAGES, name="empty")
    copy = cp.async_.bulk.shared__cluster.global_.mbarrier__complete_tx__bytes
    thread = mov.u32(tid.x)
    with if_(thread == 0):
        init_barriers((full, 1), (empty, READ_WARPS))
    bar.sync(0)
    position = Ring(STAGES)
    with if_(thread >= READ_WARPS * 32):
        with if_(thread == READ_WARPS * 32), for_range(chunks, start=ctaid.x, step=nctaid.x) as piece:
            wait(empty[position.stage], position.parity ^ 1)
            fence.proxy.async_.shared__cta()                # after the readers' generic loads, before the copy overwrites
            mbarrier.arrive.expect_tx.shared__cta.b64(full[position.stage], CHUNK)
            copy(buffer.at(position.stage * words), source.at(piece * words), CHUNK, full[position.stage])
            position.advance()
    with else_():
        seen = mov.b32(0)
        with for_range(chunks, start=ctaid.x, step=nctaid.x):
            wait(full[position.stage], position.parity)
            place = buffer.at(position.stage * words + thread * 4)
            for i in range(0, words, READ_WARPS * 32 * 4):
                for word in ld.shared__cta.v4.b32(place + i):
                    xor.b32(seen, seen, word)
            bar.warp.sync(0xFFFFFFFF)
            mbarrier.arrive.shared__cta.b64(empty[position.stage], pred=laneid == 0)
            position.advance()
        whole = redux.sync.xor.b32(seen, 0xFFFFFFFF)
        with if_(laneid == 0):
            st.global_.b32(total.at(mov.u32(ctaid.x) * READ_WARPS + (thread >> 5)), whole)


def resident_k(type: type[Scalar], slices: int = 4) -> int:
    """Elements of K that `resident` keeps."""
    return slices * SPAN_BYTES * 8 // type.bits


def resident_flops(grid: int, rounds: int, type: type[Scalar], slices: int = 4) -> int:
    """Floating-point operations of one launch of `resident`."""
    return 2 * grid * rounds * BM * BN * resident_k(type, slices)


__all__ = ["BM", "BN", "READ_WARPS", "resident", "resident_flops", "resident_k", "stream"]
