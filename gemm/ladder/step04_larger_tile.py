"""Step 4: a tile of 128 x 128: four times the work for twice the loads."""

from __future__ import annotations

from ptxkit import Ptr, Reg, TensorMap, ctaid, if_, kernel, ring, smem, span, tid
from ptxkit.idioms import init_barriers, wait
from ptxkit.ptx import bar, cp, mbarrier, mov, wgmma
from ptxkit.types import bf16, u32

from .parts import store_fragment
from .rung import Rung

BM, BN, BK = 128, 128, 64
M64_BLOCKS = BM // 64            # one wgmma multiplies 64 rows

load = cp.async_.bulk.tensor_2d.shared__cluster.global_.tile.mbarrier__complete_tx__bytes
mma = wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16


@kernel(block=128)
def larger_tile(a: TensorMap, b: TensorMap, d: Ptr[bf16], m: Reg[u32], n: Reg[u32], k: Reg[u32]) -> None:
    """As step 3, with two m64 blocks: 128 accumulators per thread.

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
    with ring(1, k // BK) as (step, _, parity):
        with span("load"):
            with if_(thread == 0):
                mbarrier.arrive.expect_tx.shared__cta.b64(full[0], a_tile.layout.bytes + b_tile.layout.bytes)
                load(a_tile[0], a, (step * BK, row), full[0])
                load(b_tile[0], b, (step * BK, column), full[0])
            wait(full[0], parity)
        with span("mma"):
            wgmma.fence.sync.aligned()
            for kk in range(0, BK, 16):
                for m64 in range(M64_BLOCKS):
                    mma(acc[m64], a_tile[0].desc(kk, mn=m64 * 64), b_tile[0].desc(kk), True)
            wgmma.commit_group.sync.aligned()
            wgmma.wait_group.sync.aligned(0)
            bar.sync(0)
    with span("store"):
        for m64 in range(M64_BLOCKS):
            store_fragment(acc[m64], mma.coordinates(thread, row=row + m64 * 64), d, column, n)


RUNG = Rung(4, larger_tile, (BM, BN, BK), "a tile of 128 x 128")
