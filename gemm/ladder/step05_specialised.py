"""Step 5: one warpgroup loads, another multiplies, and a ring of buffers between them."""

from __future__ import annotations

from ptxkit import Ptr, Reg, TensorMap, ctaid, if_, kernel, nctaid, ring, smem, tid
from ptxkit.flow import else_
from ptxkit.idioms import init_barriers, wait
from ptxkit.ptx import bar, cp, mbarrier, mov, wgmma
from ptxkit.types import b64, bf16, u32

from .parts import Clocks, store_fragment
from .rung import Rung

BM, BN, BK = 128, 128, 64
M64_BLOCKS = BM // 64
STAGES = 5
WARPGROUP = 128

load = cp.async_.bulk.tensor_2d.shared__cluster.global_.tile.mbarrier__complete_tx__bytes
mma = wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16


@kernel(block=2 * WARPGROUP)
def specialised(a: TensorMap, b: TensorMap, d: Ptr[bf16], marks: Ptr[b64], m: Reg[u32], n: Reg[u32], k: Reg[u32], *,
                PROFILE: bool = False) -> None:
    """Warpgroup 0 loads up to five tiles ahead (one thread of it), warpgroup 1 multiplies: neither waits for the other's instructions.

    full[stage]: 1 arrival, the producer's arrive.expect_tx. empty[stage]: 128, every consumer thread when the stage has been read.
    """
    a_tile, b_tile = smem.tile(bf16, (STAGES, BM, BK), name="A"), smem.tile(bf16, (STAGES, BN, BK), name="B")
    full, empty = smem.mbarrier(STAGES, name="full"), smem.mbarrier(STAGES, name="empty")
    thread = mov.u32(tid.x)
    row, column = ctaid.y * BM, ctaid.x * BN
    with if_(thread == 0):
        init_barriers((full, 1), (empty, WARPGROUP))
    bar.sync(0)

    with if_(thread < WARPGROUP):
        with if_(thread == 0), ring(STAGES, k // BK) as (step, stage, parity):
            wait(empty[stage], parity ^ 1)                          # passes at once in the first round
            mbarrier.arrive.expect_tx.shared__cta.b64(full[stage], a_tile.layout.bytes + b_tile.layout.bytes)
            load(a_tile[stage], a, (step * BK, row), full[stage])
            load(b_tile[stage], b, (step * BK, column), full[stage])

    with else_():
        acc = [mma.fragment() for _ in range(M64_BLOCKS)]
        lane = thread - WARPGROUP
        clocks = Clocks(PROFILE)
        with ring(STAGES, k // BK) as (_, stage, parity):
            wait(full[stage], parity)
            clocks.lap("load")
            wgmma.fence.sync.aligned()
            for kk in range(0, BK, 16):
                for block in range(M64_BLOCKS):
                    mma(acc[block], a_tile[stage].desc(kk, mn=block * 64), b_tile[stage].desc(kk), True)
            wgmma.commit_group.sync.aligned()
            wgmma.wait_group.sync.aligned(0)
            mbarrier.arrive.shared__cta.b64(empty[stage])
            clocks.lap("mma")
        for block in range(M64_BLOCKS):
            store_fragment(acc[block], d, row + block * 64, column, n, lane)
        clocks.lap("store")
        clocks.write(marks, ctaid.y * nctaid.x + ctaid.x, lane == 0)


RUNG = Rung(5, specialised, (BM, BN, BK), "a producer warpgroup, a consumer warpgroup, a ring of five stages")
