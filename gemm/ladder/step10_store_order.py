"""Step 10: stores write whole sectors, with the L2 hint evict-first, and the first wgmma overwrites the accumulators."""

from __future__ import annotations

from typing import Any

from ptxkit import Ptr, Reg, Ring, TensorMap, Vec, cluster_ctarank, if_, kernel, ring, role, smem, span, tid
from ptxkit.flow import else_
from ptxkit.idioms import cluster_sync, init_barriers, multicast_mask, remote, wait
from ptxkit.ptx import cp, createpolicy, cvt, mbarrier, mov, selp, setmaxnreg, shfl, st, wgmma
from ptxkit.types import bf16, u32

from .order import grouped
from .rung import Rung

BM, BN, BK = 128, 256, 64
STAGES = 4
CLUSTER = 2
SHARE = BN // CLUSTER
GROUP = 8
WARPGROUP = 128
MMA_WARPGROUPS = BM // 64
PRODUCER_REGISTERS, MMA_REGISTERS = 40, 232

load = cp.async_.bulk.tensor_2d.shared__cluster.global_.tile.mbarrier__complete_tx__bytes
multicast = load.multicast__cluster
mma = wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16


@kernel(block=WARPGROUP * (1 + MMA_WARPGROUPS), cluster=CLUSTER)
def store_order(a: TensorMap, b: TensorMap, d: Ptr[bf16], m: Reg[u32], n: Reg[u32], k: Reg[u32]) -> None:
    """As step 9. The wgmma of a tile's first 16 elements of K has scale-d = 0, which saves 128 moves per tile. The store is below.

    full[stage]: 1 arrival, the producer's arrive.expect_tx of the whole stage. empty[stage]: 4, one thread of each mma warpgroup
    of both CTAs. Before it exits, the producer waits until every stage is empty.
    """
    a_tile, b_tile = smem.tile(bf16, (STAGES, BM, BK), name="A"), smem.tile(bf16, (STAGES, BN, BK), name="B")
    full, empty = smem.mbarrier(STAGES, name="full"), smem.mbarrier(STAGES, name="empty")
    thread = mov.u32(tid.x)
    warpgroup = shfl.sync.idx.b32(thread >> 7, 0, 31, 0xFFFFFFFF)
    rows, columns, steps = m // BM, n // BN, k // BK
    with if_(thread == 0):
        init_barriers((full, 1), (empty, MMA_WARPGROUPS * CLUSTER))
    cluster_sync()

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
        released = remote(empty, lane)
        position = Ring(STAGES)
        with grouped(rows, columns, GROUP=GROUP, CLUSTER=CLUSTER) as (tile_row, tile_column):
            with ring(position, steps) as (step, stage, parity):
                with span("wait"):
                    wait(full[stage], parity)
                with span("mma"):
                    wgmma.fence.sync.aligned()
                    for kk in range(0, BK, 16):
                        mma(acc, a_tile[stage].desc(kk, mn=first_row), b_tile[stage].desc(kk), step != 0 if kk == 0 else True)
                    wgmma.commit_group.sync.aligned()
                    wgmma.wait_group.sync.aligned(0)
                    mbarrier.arrive.shared__cluster.b64(released[stage], pred=lane < CLUSTER)
            with span("store"):
                store_sectors(acc, d, tile_row * BM + first_row, tile_column * BN, n, lane)


def store_sectors(acc: Vec[Any, Any], d: Ptr[bf16], row: Reg[u32], column: Reg[u32], n: Reg[u32], lane: Reg[u32]) -> None:
    """Store a warpgroup's fragment row by row, in sectors of 32 bytes.

    Four lanes hold 8 columns of a row, which are 16 bytes or half a sector. For 16 columns, lanes 2q and 2q + 1 exchange values: the even
    lane gets four adjacent columns of the first 8, the odd lane four of the second 8. A store then writes whole sectors of eight rows.
    evict_first: D is not read again here, but A and B are.
    """
    keep = createpolicy.fractional.L2__evict_first.b64()
    write = st.global_.L2__cache_hint.v2.b32
    odd = (lane & 1) == 1
    first = row + (lane >> 5) * 16 + ((lane & 31) >> 2)
    corner = d.at(first * n + column + (lane & 1) * 8 + (lane & 2) * 2)
    for half, line in ((0, corner), (2, corner.at(n * 8))):
        for i in range(0, len(acc), 8):
            one, two = (cvt.rn.bf16x2.f32(acc[j + half + 1], acc[j + half]) for j in (i, i + 4))
            received = shfl.sync.bfly.b32(selp.b32(one, two, odd), 1, 31, 0xFFFFFFFF)
            write(line + 2 * i, (selp.b32(received, one, odd), selp.b32(two, received, odd)), keep)


RUNG = Rung(10, store_order, (BM, BN, BK), "stores of whole sectors, evict-first; no accumulator reset", cluster=CLUSTER, persistent=True)
