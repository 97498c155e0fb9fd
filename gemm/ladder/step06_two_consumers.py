"""Step 6: a tile of 128 x 256 for two mma warpgroups, which get the registers that they need."""

from __future__ import annotations

from ptxkit import Pipeline, Ptr, Reg, TensorMap, ctaid, if_, kernel, ring, role, smem, span, tid
from ptxkit.flow import else_
from ptxkit.ptx import bar, cp, mov, setmaxnreg, shfl, wgmma
from ptxkit.types import bf16, u32

from .parts import store_fragment
from .rung import Rung

BM, BN, BK = 128, 256, 64
STAGES = 4
WARPGROUP = 128
MMA_WARPGROUPS = BM // 64                                # 64 rows each: 128 accumulators per thread
PRODUCER_REGISTERS, MMA_REGISTERS = 40, 232    # 128 * 40 + 256 * 232 = 64,512 = 384 * 168, the registers at entry

load = cp.async_.bulk.tensor_2d.shared__cluster.global_.tile.mbarrier__complete_tx__bytes
mma = wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16


@kernel(block=WARPGROUP * (1 + MMA_WARPGROUPS))
def two_consumers(a: TensorMap, b: TensorMap, d: Ptr[bf16], m: Reg[u32], n: Reg[u32], k: Reg[u32]) -> None:
    """m64n256k16 reads A from shared memory least often. One warpgroup cannot hold 128 x 256 accumulators, so two share the columns of B.

    The producer warpgroup gives up registers, and the mma warpgroups take them (setmaxnreg).
    full[stage]: 1 arrival, the producer's arrive.expect_tx. empty[stage]: 256, every mma thread, after it has read the stage.
    """
    a_tile, b_tile = smem.tile(bf16, (STAGES, BM, BK), name="A"), smem.tile(bf16, (STAGES, BN, BK), name="B")
    stages = Pipeline(STAGES, consumers=MMA_WARPGROUPS * WARPGROUP, bytes=a_tile.layout.bytes + b_tile.layout.bytes)
    thread = mov.u32(tid.x)
    warpgroup = shfl.sync.idx.b32(thread >> 7, 0, 31, 0xFFFFFFFF)   # uniform across the warp, and ptxas can see it
    row, column = ctaid.y * BM, ctaid.x * BN
    with if_(thread == 0):
        stages.init()
    bar.sync(0)

    with if_(thread < WARPGROUP):
        setmaxnreg.dec.sync.aligned.u32(PRODUCER_REGISTERS)
        with if_(thread == 0):
            role("producer")
            with ring(STAGES, k // BK) as (step, stage, parity):
                with span("wait"):
                    full = stages.producer_acquire(stage, parity)
                with span("load"):
                    load(a_tile[stage], a, (step * BK, row), full)
                    load(b_tile[stage], b, (step * BK, column), full)

    with else_():
        role("consumer")
        setmaxnreg.inc.sync.aligned.u32(MMA_REGISTERS)
        rows = (warpgroup - 1) * 64                                 # this warpgroup's rows of the tile
        lane = thread & (WARPGROUP - 1)
        acc = mma.fragment()
        with ring(STAGES, k // BK) as (_, stage, parity):
            with span("wait"):
                stages.consumer_wait(stage, parity)
            with span("mma"):
                wgmma.fence.sync.aligned()
                for kk in range(0, BK, 16):
                    mma(acc, a_tile[stage].desc(kk, mn=rows), b_tile[stage].desc(kk), True)
                wgmma.commit_group.sync.aligned()
                wgmma.wait_group.sync.aligned(0)
                stages.consumer_release(stage)
        with span("store"):
            store_fragment(acc, mma.coordinates(lane, row=row + rows), d, column, n)


RUNG = Rung(6, two_consumers, (BM, BN, BK), "a tile of 128 x 256, two consumer warpgroups, setmaxnreg")
