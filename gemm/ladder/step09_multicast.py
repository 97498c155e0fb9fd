"""Step 9: two CTAs with vertically adjacent tiles need the same columns of B. Each loads half of them for both CTAs."""

from __future__ import annotations

from ptxkit import Ptr, Reg, Ring, TensorMap, cluster_ctarank, if_, kernel, ring, role, smem, span, tid
from ptxkit.flow import else_
from ptxkit.idioms import cluster_sync, init_barriers, multicast_mask, remote, wait
from ptxkit.ptx import cp, mbarrier, mov, setmaxnreg, shfl, wgmma
from ptxkit.types import bf16, u32

from .order import grouped
from .parts import store_fragment
from .rung import Rung

BM, BN, BK = 128, 256, 64
STAGES = 4
CLUSTER = 2
SHARE = BN // CLUSTER                               # columns of B that a CTA loads
GROUP = 8                                           # rows of clusters, which are 16 rows of tiles
WARPGROUP = 128
MMA_WARPGROUPS = BM // 64
PRODUCER_REGISTERS, MMA_REGISTERS = 40, 232

load = cp.async_.bulk.tensor_2d.shared__cluster.global_.tile.mbarrier__complete_tx__bytes
multicast = load.multicast__cluster
mma = wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16


@kernel(block=WARPGROUP * (1 + MMA_WARPGROUPS), cluster=CLUSTER)
def multicasting(a: TensorMap, b: TensorMap, d: Ptr[bf16], m: Reg[u32], n: Reg[u32], k: Reg[u32]) -> None:
    """As step 8, in clusters of two. L2 delivers 32 instead of 48 KiB for each stage of 48 KiB.

    full[stage]: 1 arrival, the producer's arrive.expect_tx of the whole stage: the half of B that the other CTA sends counts here.
    empty[stage]: 4, one thread of each mma warpgroup of both CTAs, since both write into it. Two threads of a warpgroup arrive,
    thread c in CTA c.
    Before it exits, the producer waits until every stage is empty: until then the other CTA may arrive here and multicast into this memory.
    """
    a_tile, b_tile = smem.tile(bf16, (STAGES, BM, BK), name="A"), smem.tile(bf16, (STAGES, BN, BK), name="B")
    full, empty = smem.mbarrier(STAGES, name="full"), smem.mbarrier(STAGES, name="empty")
    thread = mov.u32(tid.x)
    warpgroup = shfl.sync.idx.b32(thread >> 7, 0, 31, 0xFFFFFFFF)
    rows, columns, steps = m // BM, n // BN, k // BK
    with if_(thread == 0):
        init_barriers((full, 1), (empty, MMA_WARPGROUPS * CLUSTER))
    cluster_sync()                                                  # all mbarriers are initialised before any arrival

    with if_(thread < WARPGROUP):
        setmaxnreg.dec.sync.aligned.u32(PRODUCER_REGISTERS)
        with if_(thread == 0):
            role("producer")
            start = cluster_ctarank * SHARE
            position = Ring(STAGES)
            with grouped(rows, columns, GROUP=GROUP, CLUSTER=CLUSTER) as (tile_row, tile_column):
                row, column = tile_row * BM, tile_column * BN
                with ring(position, steps) as (step, stage, parity):
                    with span("wait"):
                        wait(empty[stage], parity ^ 1)
                    with span("load"):
                        mbarrier.arrive.expect_tx.shared__cta.b64(full[stage], a_tile.layout.bytes + b_tile.layout.bytes)
                        load(a_tile[stage], a, (step * BK, row), full[stage])
                        multicast(b_tile[stage].lines(start, SHARE), b, (step * BK, column + start), full[stage], multicast_mask(CLUSTER))
            with ring(position, STAGES) as (_, stage, parity):
                wait(empty[stage], parity ^ 1)

    with else_():
        role("consumer")
        setmaxnreg.inc.sync.aligned.u32(MMA_REGISTERS)
        first_row = (warpgroup - 1) * 64
        lane = thread & (WARPGROUP - 1)
        acc = mma.fragment(zero=False)
        released = remote(empty, lane)                              # the barriers of CTA `lane`, used by the first two threads
        position = Ring(STAGES)
        with grouped(rows, columns, GROUP=GROUP, CLUSTER=CLUSTER) as (tile_row, tile_column):
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
                    mbarrier.arrive.shared__cluster.b64(released[stage], pred=lane < CLUSTER)
            with span("store"):
                store_fragment(acc, mma.coordinates(lane, row=tile_row * BM + first_row), d, tile_column * BN, n)


RUNG = Rung(9, multicasting, (BM, BN, BK), "clusters of two CTAs, B multicast", cluster=CLUSTER, persistent=True)
