"""Step 11: TMA also stores D, from staging buffers, while the next tile is multiplied."""

from __future__ import annotations

from typing import Any

from ptxkit import NamedBarriers, Reg, Ring, TensorMap, Tile, Vec, cluster_ctarank, if_, kernel, ring, role, smem, span, tid
from ptxkit.flow import else_
from ptxkit.fragments import store_fragment
from ptxkit.idioms import cluster_sync, init_barriers, multicast_mask, remote, wait
from ptxkit.ptx import cp, fence, mbarrier, mov, setmaxnreg, shfl, wgmma
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
BOX = 64                                            # columns of a staging buffer: 128 bytes, one span of the swizzle
BUFFERS = 2                                         # staging buffers of a mma warpgroup

load = cp.async_.bulk.tensor_2d.shared__cluster.global_.tile.mbarrier__complete_tx__bytes
multicast = load.multicast__cluster
store = cp.async_.bulk.tensor_2d.global_.shared__cta.tile.bulk_group
mma = wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16


@kernel(block=WARPGROUP * (1 + MMA_WARPGROUPS), cluster=CLUSTER)
def staged_store(a: TensorMap, b: TensorMap, d: TensorMap, m: Reg[u32], n: Reg[u32], k: Reg[u32]) -> None:
    """As step 10, but a warpgroup stores its 64 x 256 elements as four boxes of 64 x 64 through two staging buffers.

    full[stage]: 1 arrival, the producer's arrive.expect_tx of the whole stage. empty[stage]: 4, one thread of each mma warpgroup
    of both CTAs. Before they exit, the producer waits until every stage is empty and each storing thread until its stores are complete.
    """
    a_tile, b_tile = smem.tile(bf16, (STAGES, BM, BK), name="A"), smem.tile(bf16, (STAGES, BN, BK), name="B")
    d_tile = smem.tile(bf16, (MMA_WARPGROUPS, BUFFERS * 64, BOX), name="D staging")
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
        index = warpgroup - 1
        lane = thread & (WARPGROUP - 1)
        acc = mma.fragment(zero=False)
        released = remote(empty, lane)
        stores = Stores(d_tile, d, index, lane)
        position = Ring(STAGES)
        with grouped(rows, columns, GROUP=GROUP, CLUSTER=CLUSTER) as (tile_row, tile_column):
            with ring(position, steps) as (step, stage, parity):
                with span("wait"):
                    wait(full[stage], parity)
                with span("mma"):
                    wgmma.fence.sync.aligned()
                    for kk in range(0, BK, 16):
                        mma(acc, a_tile[stage].desc(kk, mn=index * 64), b_tile[stage].desc(kk), step != 0 if kk == 0 else True)
                    wgmma.commit_group.sync.aligned()
                    wgmma.wait_group.sync.aligned(0)
                    mbarrier.arrive.shared__cluster.b64(released[stage], pred=lane < CLUSTER)
            with span("store"):
                stores.tile(acc, tile_row * BM + index * 64, tile_column * BN)
        stores.tail()


class Stores:
    """The staged store of one mma warpgroup: registers, stmatrix, staging, tensor copy."""

    def __init__(self, staging: Tile[bf16], d: TensorMap, warpgroup: Reg[u32], lane: Reg[u32]) -> None:
        self.staging, self.d, self.lane = staging[warpgroup], d, lane
        self.barrier = NamedBarriers(MMA_WARPGROUPS, WARPGROUP)[warpgroup]      # the warpgroup's own
        self.leader = lane == 0

    def tile(self, acc: Vec[Any, Any], row: Reg[u32], column: Reg[u32]) -> None:
        """For each box: wait until the buffer is free, write it, and start its copy. The last two copies are still in flight at the end."""
        for j in range(BN // BOX):
            buffer = j % BUFFERS
            cp.async_.bulk.wait_group.read(BUFFERS - 1, pred=self.leader)       # the previous store from this buffer has read it
            self.barrier.sync()
            view = self.staging.lines(buffer * 64, 64)
            store_fragment(view, acc[j * 32:j * 32 + 32], self.lane)            # 16 rows x 16 columns of a warp at a time
            fence.proxy.async_.shared__cta()                                    # every writer: make the writes visible to TMA
            self.barrier.sync()
            with if_(self.leader):
                store(self.d, (column + j * BOX, row), view)
                cp.async_.bulk.commit_group()

    def tail(self) -> None:
        """Before the warpgroup exits: wait until its stores are complete."""
        cp.async_.bulk.wait_group(0, pred=self.leader)


RUNG = Rung(11, staged_store, (BM, BN, BK), "D staged in shared memory and stored by TMA", cluster=CLUSTER, persistent=True)
