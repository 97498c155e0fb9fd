"""Step 4: a tile of 128 x 128, four times the work for twice the loads."""

from __future__ import annotations

from ptxkit import Ptr, Reg, TensorMap, ctaid, if_, kernel, nctaid, ring, smem, tid
from ptxkit.idioms import init_barriers, wait
from ptxkit.ptx import bar, cp, mbarrier, mov, wgmma
from ptxkit.types import b64, bf16, u32

from .parts import Clocks, store_fragment
from .rung import Rung

BM, BN, BK = 128, 128, 64
M64_BLOCKS = BM // 64            # wgmma multiplies 64 rows

load = cp.async_.bulk.tensor_2d.shared__cluster.global_.tile.mbarrier__complete_tx__bytes
mma = wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16


@kernel(block=128)
def larger_tile(a: TensorMap, b: TensorMap, d: Ptr[bf16], marks: Ptr[b64], m: Reg[u32], n: Reg[u32], k: Reg[u32], *,
                PROFILE: bool = False) -> None:
    """As step 3; the warpgroup has two m64 blocks, 128 accumulators a thread.

    full: 1 arrival, thread 0's arrive.expect_tx of both tiles.
    """
    a_tile, b_tile = smem.tile(bf16, (BM, BK), name="A"), smem.tile(bf16, (BN, BK), name="B")
    full = smem.mbarrier(1, name="full")
    thread = mov.u32(tid.x)
    row, column = ctaid.y * BM, ctaid.x * BN
    with if_(thread == 0):
        init_barriers((full, 1))
    bar.sync(0)

    acc = [mma.fragment() for _ in range(M64_BLOCKS)]
    clocks = Clocks(PROFILE)
    with ring(1, k // BK) as (step, _, parity):
        with if_(thread == 0):
            mbarrier.arrive.expect_tx.shared__cta.b64(full[0], a_tile.layout.bytes + b_tile.layout.bytes)
            load(a_tile[0], a, (step * BK, row), full[0])
            load(b_tile[0], b, (step * BK, column), full[0])
        wait(full[0], parity)
        clocks.lap("load")
        wgmma.fence.sync.aligned()
        for kk in range(0, BK, 16):
            for block in range(M64_BLOCKS):
                mma(acc[block], a_tile[0].desc(kk, mn=block * 64), b_tile[0].desc(kk), True)
        wgmma.commit_group.sync.aligned()
        wgmma.wait_group.sync.aligned(0)
        bar.sync(0)
        clocks.lap("mma")
    for block in range(M64_BLOCKS):
        store_fragment(acc[block], d, row + block * 64, column, n, thread)
    clocks.lap("store")
    clocks.write(marks, ctaid.y * nctaid.x + ctaid.x, thread == 0)


RUNG = Rung(4, larger_tile, (BM, BN, BK), "a tile of 128 x 128")
