"""Step 5: one warpgroup loads and another multiplies, with a ring of buffers between them."""

from __future__ import annotations

from ptxkit import Pipeline, Ptr, Reg, TensorMap, ctaid, if_, kernel, ring, role, smem, span, tid
from ptxkit.flow import else_
from ptxkit.ptx import bar, cp, mov, wgmma
from ptxkit.types import bf16, u32

from .parts import store_fragment
from .rung import Rung

BM, BN, BK = 128, 128, 64
M64_BLOCKS = BM // 64
STAGES = 5
WARPGROUP = 128

load = cp.async_.bulk.tensor_2d.shared__cluster.global_.tile.mbarrier__complete_tx__bytes
mma = wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16


@kernel(block=2 * WARPGROUP)
def specialised(a: TensorMap, b: TensorMap, d: Ptr[bf16], m: Reg[u32], n: Reg[u32], k: Reg[u32]) -> None:
    """One thread of warpgroup 0 loads up to five tiles ahead. Warpgroup 1 multiplies. Neither waits for the other's instructions.

    full[stage]: 1 arrival, the producer's arrive.expect_tx. empty[stage]: 128, every mma thread, after it has read the stage.
    """
    a_tile, b_tile = smem.tile(bf16, (STAGES, BM, BK), name="A"), smem.tile(bf16, (STAGES, BN, BK), name="B")
    stages = Pipeline(STAGES, consumers=WARPGROUP, bytes=a_tile.layout.bytes + b_tile.layout.bytes)
    thread = mov.u32(tid.x)
    row, column = ctaid.y * BM, ctaid.x * BN
    with if_(thread == 0):
        stages.init()
    bar.sync(0)

    with if_(thread < WARPGROUP):
        with if_(thread == 0):
            role("producer")
            with ring(STAGES, k // BK) as (step, stage, parity):
                with span("wait"):
                    full = stages.producer_acquire(stage, parity)                          # does not wait in the first round
                with span("load"):
                    load(a_tile[stage], a, (step * BK, row), full)
                    load(b_tile[stage], b, (step * BK, column), full)

    with else_():
        role("consumer")
        acc = [mma.fragment() for _ in range(M64_BLOCKS)]
        lane = thread - WARPGROUP
        with ring(STAGES, k // BK) as (_, stage, parity):
            with span("wait"):
                stages.consumer_wait(stage, parity)
            with span("mma"):
                wgmma.fence.sync.aligned()
                for kk in range(0, BK, 16):
                    for m64 in range(M64_BLOCKS):
                        mma(acc[m64], a_tile[stage].desc(kk, mn=m64 * 64), b_tile[stage].desc(kk), True)
                wgmma.commit_group.sync.aligned()
                wgmma.wait_group.sync.aligned(0)
                stages.consumer_release(stage)
        with span("store"):
            for m64 in range(M64_BLOCKS):
                store_fragment(acc[m64], mma.coordinates(lane, row=row + m64 * 64), d, column, n)


RUNG = Rung(5, specialised, (BM, BN, BK), "a producer warpgroup, a consumer warpgroup, a ring of five stages")
