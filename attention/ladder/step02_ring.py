"""Step 2: the tensor memory accelerator (TMA) copies into a ring of blocks."""

from __future__ import annotations

from ptxkit import Ptr, Reg, TensorMap, ctaid, if_, kernel, ring, smem, span, tid
from ptxkit.gemm.collective.tiled import Multicast, TiledCopy
from ptxkit.idioms import init_barriers, wait
from ptxkit.ptx import bar, mbarrier, mov, wgmma
from ptxkit.types import bf16, u32

from .parts import ROWS, WARPGROUP, Queries, blocks_of
from .rung import Rung

BM = ROWS
STAGES = 2


@kernel(target="sm_90a", block=WARPGROUP)
def copied_ahead(q: TensorMap, k: TensorMap, v: TensorMap, o: Ptr[bf16], rows: Reg[u32], *, HEAD: int = 128, BN: int = 128,
                 causal: bool = False) -> None:
    """One thread starts the copy of a block while the block before it is multiplied. A copy in flight takes no registers and no other
    instructions; the hardware writes the swizzle. The price is shared memory: 144 KiB, so an SM holds one CTA, and holds two of step 1.

    landed: 1 arrival, thread 0's arrive.expect_tx of Q. full[stage]: 1, thread 0's arrive.expect_tx of a block of keys and values. All
    threads wait for both. Named barrier 0: the 128 threads, when a stage has been read and may be filled again.
    """
    q_tile, k_tile = smem.tile(bf16, (BM, HEAD), name="Q"), smem.tile(bf16, (STAGES, BN, HEAD), name="K")
    v_tile = smem.tile(bf16, (STAGES, HEAD, BN), major="mn", name="V")
    landed, full = smem.mbarrier(1, name="landed"), smem.mbarrier(STAGES, name="full")
    thread, zero = mov.u32(tid.x), mov.u32(0)
    first, head = ctaid.x * BM, mov.u32(ctaid.y)
    blocks = blocks_of(rows, first, BM, BN, causal)
    to_q, to_k, to_v = (TiledCopy(tensor, tile, Multicast()) for tensor, tile in ((q, q_tile), (k, k_tile), (v, v_tile)))
    mine = Queries(HEAD, BN, thread, first, causal)
    with if_(thread == 0):
        init_barriers((landed, 1), (full, 1))
    bar.sync(0)

    def load(block: Reg[u32], stage: Reg[u32]) -> None:
        mbarrier.arrive.expect_tx.shared__cta.b64(full[stage], to_k.bytes() + to_v.bytes())     # counts the bytes of all its copies
        to_k.load(stage, block * BN, zero, full[stage], head)
        to_v.load(stage, zero, block * BN, full[stage], head)

    with if_(thread == 0):
        mbarrier.arrive.expect_tx.shared__cta.b64(landed[0], to_q.bytes())
        to_q.load(zero, first, zero, landed[0], head)
        for early in range(STAGES):
            with if_(blocks > early):
                load(mov.u32(early), mov.u32(early))
    wait(landed[0], 0)
    with ring(STAGES, blocks) as (block, stage, parity):
        with span("load"):
            wait(full[stage], parity)
        with span("products"):
            mine.issue_scores(q_tile[0], k_tile[stage])
            wgmma.wait_group.sync.aligned(0)
        with span("softmax"):
            mine.keep(mine.weigh(block))
        with span("products"):
            mine.issue_output(v_tile[stage])
            wgmma.wait_group.sync.aligned(0)
            bar.sync(0)                                     # the products of all four warps have read the stage
        with if_((thread == 0) & (block + STAGES < blocks)):
            load(block + STAGES, stage)
    with span("store"):
        mine.store(o, head * rows)


RUNG = Rung(2, copied_ahead, BM, "TMA copies a block ahead, into a ring of two stages")
