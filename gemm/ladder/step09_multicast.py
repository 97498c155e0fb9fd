"""Step 9: two CTAs with tiles below one another need the same columns of B: each loads half of them, for both."""

from __future__ import annotations

from ptxkit import Ptr, Reg, Ring, TensorMap, cluster_ctarank, ctaid, if_, kernel, ring, smem, tid
from ptxkit.flow import else_
from ptxkit.idioms import cluster_sync, init_barriers, multicast_mask, remote, wait
from ptxkit.ptx import cp, mbarrier, mov, setmaxnreg, shfl, wgmma
from ptxkit.types import b64, bf16, u32

from .order import grouped
from .parts import Clocks, store_fragment
from .rung import Rung

BM, BN, BK = 128, 256, 64
STAGES = 4
CLUSTER = 2
SHARE = BN // CLUSTER                               # columns of B that a CTA loads
GROUP = 8                                           # rows of clusters: 16 rows of tiles
WARPGROUP = 128
CONSUMERS = BM // 64
PRODUCER_REGISTERS, CONSUMER_REGISTERS = 40, 232

load = cp.async_.bulk.tensor_2d.shared__cluster.global_.tile.mbarrier__complete_tx__bytes
multicast = load.multicast__cluster
mma = wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16


@kernel(block=WARPGROUP * (1 + CONSUMERS), cluster=CLUSTER)
def multicasting(a: TensorMap, b: TensorMap, d: Ptr[bf16], marks: Ptr[b64], m: Reg[u32], n: Reg[u32], k: Reg[u32], *,
                 PROFILE: bool = False) -> None:
    """As step 8 in clusters of two. L2 delivers 32 instead of 48 KiB for each stage of 48.

    full[stage]: 1 arrival, the producer's arrive.expect_tx of the whole stage: the half of B that the other CTA sends counts here.
    empty[stage]: 4, one thread of each consumer warpgroup of both CTAs, since both write into it. Two threads of a warpgroup arrive,
    thread c in CTA c.
    At its end the producer waits until every stage is empty: the other CTA arrives here, and multicasts into this memory, for as
    long as it works.
    """
    a_tile, b_tile = smem.tile(bf16, (STAGES, BM, BK), name="A"), smem.tile(bf16, (STAGES, BN, BK), name="B")
    full, empty = smem.mbarrier(STAGES, name="full"), smem.mbarrier(STAGES, name="empty")
    thread = mov.u32(tid.x)
    warpgroup = shfl.sync.idx.b32(thread >> 7, 0, 31, 0xFFFFFFFF)
    rows, columns, steps = m // BM, n // BN, k // BK
    with if_(thread == 0):
        init_barriers((full, 1), (empty, CONSUMERS * CLUSTER))
    cluster_sync()                                                  # nobody arrives at a barrier that is not there yet

    with if_(thread < WARPGROUP):
        setmaxnreg.dec.sync.aligned.u32(PRODUCER_REGISTERS)
        with if_(thread == 0):
            start = cluster_ctarank * SHARE
            position = Ring(STAGES)
            with grouped(rows, columns, GROUP=GROUP, CLUSTER=CLUSTER) as (tile_row, tile_column):
                row, column = tile_row * BM, tile_column * BN
                with ring(position, steps) as (step, stage, parity):
                    wait(empty[stage], parity ^ 1)
                    mbarrier.arrive.expect_tx.shared__cta.b64(full[stage], a_tile.layout.bytes + b_tile.layout.bytes)
                    load(a_tile[stage], a, (step * BK, row), full[stage])
                    multicast(b_tile[stage].lines(start, SHARE), b, (step * BK, column + start), full[stage], multicast_mask(CLUSTER))
            with ring(position, STAGES) as (_, stage, parity):
                wait(empty[stage], parity ^ 1)

    with else_():
        setmaxnreg.inc.sync.aligned.u32(CONSUMER_REGISTERS)
        first_row = (warpgroup - 1) * 64
        lane = thread & (WARPGROUP - 1)
        acc = mma.fragment(zero=False)
        released = remote(empty, lane)                              # the barriers of CTA `lane`, used by the first two threads
        position = Ring(STAGES)
        clocks = Clocks(PROFILE)
        with grouped(rows, columns, GROUP=GROUP, CLUSTER=CLUSTER) as (tile_row, tile_column):
            for register in acc:
                mov.f32(register, 0.0)
            with ring(position, steps) as (_, stage, parity):
                wait(full[stage], parity)
                clocks.lap("load")
                wgmma.fence.sync.aligned()
                for kk in range(0, BK, 16):
                    mma(acc, a_tile[stage].desc(kk, mn=first_row), b_tile[stage].desc(kk), True)
                wgmma.commit_group.sync.aligned()
                wgmma.wait_group.sync.aligned(0)
                mbarrier.arrive.shared__cluster.b64(released[stage], pred=lane < CLUSTER)
                clocks.lap("mma")
            store_fragment(acc, d, tile_row * BM + first_row, tile_column * BN, n, lane)
            clocks.lap("store")
        clocks.write(marks, mov.u32(ctaid.x), thread == WARPGROUP)


RUNG = Rung(9, multicasting, (BM, BN, BK), "clusters of two CTAs, B multicast", cluster=CLUSTER, persistent=True)
