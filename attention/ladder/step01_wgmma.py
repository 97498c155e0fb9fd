"""Step 1: a warpgroup has 64 queries, and the tensor cores multiply."""

from __future__ import annotations

from ptxkit import Ptr, Reg, ctaid, for_range, kernel, smem, span, tid
from ptxkit.ptx import bar, fence, mov, wgmma
from ptxkit.types import bf16, u32

from .parts import ROWS, WARPGROUP, Queries, blocks_of, copy
from .rung import Rung

BM = ROWS


@kernel(target="sm_90a", block=WARPGROUP)
def tensor_cores(q: Ptr[bf16], k: Ptr[bf16], v: Ptr[bf16], o: Ptr[bf16], rows: Reg[u32], *, HEAD: int = 128, BN: int = 128,
                 causal: bool = False) -> None:
    """The threads copy a block of keys and values into shared memory, and wgmma multiplies them for 64 queries: S = Q K^T, O += P V.

    Scores, weights and outputs stay in registers: BN / 2 + BN / 4 + HEAD / 2 of a thread. The softmax is that of step 0 for BN keys at a
    time: one maximum, one rescaling and two shuffles a row for a whole block.
    Everything takes turns: while the threads copy or compute exponentials, the tensor cores have nothing to do.
    """
    q_tile, k_tile = smem.tile(bf16, (BM, HEAD), name="Q"), smem.tile(bf16, (BN, HEAD), name="K")
    v_tile = smem.tile(bf16, (HEAD, BN), major="mn", name="V")
    thread = mov.u32(tid.x)
    first, head = ctaid.x * BM, ctaid.y * rows
    mine = Queries(HEAD, BN, thread, first, causal)
    copy(q_tile[0], q.at((head + first) * HEAD), HEAD, thread)
    with for_range(blocks_of(rows, first, BM, BN, causal)) as block:
        with span("load"):
            here = (head + block * BN) * HEAD
            copy(k_tile[0], k.at(here), HEAD, thread)
            copy(v_tile[0], v.at(here), HEAD, thread)
            fence.proxy.async_.shared__cta()                # wgmma reads by the async proxy what st.shared wrote by the generic one
            bar.sync(0)                                     # all threads have written their parts, and have fenced them
        with span("products"):
            mine.issue_scores(q_tile[0], k_tile[0])
            wgmma.wait_group.sync.aligned(0)
        with span("softmax"):
            mine.keep(mine.weigh(block))
        with span("products"):
            mine.issue_output(v_tile[0])
            wgmma.wait_group.sync.aligned(0)
            bar.sync(0)                                     # the products of all four warps have read the block
    with span("store"):
        mine.store(o, head)


RUNG = Rung(1, tensor_cores, BM, "wgmma for 64 queries of a warpgroup, whose threads copy keys and values")
