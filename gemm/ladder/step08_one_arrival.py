"""Step 8: a warpgroup arrives once after it has read a stage, not 128 times."""

from __future__ import annotations

from ptxkit import Ptr, Reg, Ring, TensorMap, if_, kernel, ring, role, smem, span, tid
from ptxkit.flow import else_
from ptxkit.idioms import init_barriers, wait
from ptxkit.ptx import bar, cp, mbarrier, mov, setmaxnreg, shfl, wgmma
from ptxkit.types import bf16, u32

from .order import grouped
from .parts import store_fragment
from .rung import Rung

BM, BN, BK = 128, 256, 64
STAGES = 4
GROUP = 16
WARPGROUP = 128
MMA_WARPGROUPS = BM // 64
PRODUCER_REGISTERS, MMA_REGISTERS = 40, 232

load = cp.async_.bulk.tensor_2d.shared__cluster.global_.tile.mbarrier__complete_tx__bytes
mma = wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16


@kernel(block=WARPGROUP * (1 + MMA_WARPGROUPS))
def one_arrival(a: TensorMap, b: TensorMap, d: Ptr[bf16], m: Reg[u32], n: Reg[u32], k: Reg[u32]) -> None:
    """As step 7. Arrivals on an mbarrier are atomic operations on one word of shared memory, and 256 of them take long.

    full[stage]: 1 arrival, the producer's arrive.expect_tx. empty[stage]: 2, one thread of each mma warpgroup. A wgmma is one
    operation of all four warps: when a thread has waited for it, it has read the stage.
    """
    a_tile, b_tile = smem.tile(bf16, (STAGES, BM, BK), name="A"), smem.tile(bf16, (STAGES, BN, BK), name="B")
    full, empty = smem.mbarrier(STAGES, name="full"), smem.mbarrier(STAGES, name="empty")
    thread = mov.u32(tid.x)
    warpgroup = shfl.sync.idx.b32(thread >> 7, 0, 31, 0xFFFFFFFF)
    rows, columns, steps = m // BM, n // BN, k // BK
    with if_(thread == 0):
        init_barriers((full, 1), (empty, MMA_WARPGROUPS))
    bar.sync(0)

    with if_(thread < WARPGROUP):
        setmaxnreg.dec.sync.aligned.u32(PRODUCER_REGISTERS)
        with if_(thread == 0):
            role("producer")
            position = Ring(STAGES)
            with grouped(rows, columns, GROUP=GROUP) as (tile_row, tile_column):
                row, column = tile_row * BM, tile_column * BN
                with ring(position, steps) as (step, stage, parity):
                    with span("wait"):
                        wait(empty[stage], parity ^ 1)
                    with span("load"):
                        mbarrier.arrive.expect_tx.shared__cta.b64(full[stage], a_tile.layout.bytes + b_tile.layout.bytes)
                        load(a_tile[stage], a, (step * BK, row), full[stage])
                        load(b_tile[stage], b, (step * BK, column), full[stage])

    with else_():
        role("consumer")
        setmaxnreg.inc.sync.aligned.u32(MMA_REGISTERS)
        first_row = (warpgroup - 1) * 64
        lane = thread & (WARPGROUP - 1)
        acc = mma.fragment(zero=False)
        position = Ring(STAGES)
        with grouped(rows, columns, GROUP=GROUP) as (tile_row, tile_column):
            for register in acc:
                mov.f32(register, 0.0)
            with ring(position, steps) as (_, stage, parity):
                with span("wait"):
                    wait(full[stage], parity)
                with span("mma"):
                    wgmma.fence.sync.aligned()
                    for kk in range(0, BK, 16):
                        mma(acc, a_tile[stage].desc(kk, mn=first_row), b_tile[stage].desc(kk), True)
                    wgmma.commit_group.sync.aligned()
                    wgmma.wait_group.sync.aligned(0)
                    mbarrier.arrive.shared__cta.b64(empty[stage], pred=lane == 0)
            with span("store"):
                store_fragment(acc, mma.coordinates(lane, row=tile_row * BM + first_row), d, tile_column * BN, n)


RUNG = Rung(8, one_arrival, (BM, BN, BK), "one arrival per warpgroup on the empty barrier instead of one per thread", persistent=True)
