"""Step 11: TMA also stores D, from staging buffers, while the next tile is multiplied."""

from __future__ import annotations

from typing import Any

from ptxkit import Ptr, Reg, Ring, TensorMap, Tile, Vec, cluster_ctarank, ctaid, if_, kernel, laneid, ring, smem, tid
from ptxkit.flow import else_
from ptxkit.idioms import cluster_sync, init_barriers, multicast_mask, remote, wait
from ptxkit.ptx import bar, cp, cvt, fence, mbarrier, mov, setmaxnreg, shfl, stmatrix, wgmma, xor
from ptxkit.types import b64, bf16, u32

from .order import grouped
from .parts import Clocks
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
def staged_store(a: TensorMap, b: TensorMap, d: TensorMap, marks: Ptr[b64], m: Reg[u32], n: Reg[u32], k: Reg[u32], *,
                 PROFILE: bool = False) -> None:
    """As step 10, but a warpgroup stores its 64 x 256 elements as four boxes of 64 x 64 through two staging buffers.

    full[stage]: 1 arrival, the producer's arrive.expect_tx of the whole stage. empty[stage]: 4, one thread of each mma warpgroup
    of both CTAs. Before they exit, the producer waits until every stage is empty and each storing thread until its stores are complete.
    """
    a_tile, b_tile = smem.tile(bf16, (STAGES, BM, BK), name="A"), smem.tile(bf16, (STAGES, BN, BK), name="B")
    d_tile = smem.tile(bf16, (MMA_WARPGROUPS * BUFFERS, 64, BOX), name="D staging")
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
        setmaxnreg.inc.sync.aligned.u32(MMA_REGISTERS)
        index = warpgroup - 1
        lane = thread & (WARPGROUP - 1)
        acc = mma.fragment(zero=False)
        released = remote(empty, lane)
        stores = Stores(d_tile, d, index, lane)
        position = Ring(STAGES)
        clocks = Clocks(PROFILE)
        with grouped(rows, columns, GROUP=GROUP, CLUSTER=CLUSTER) as (tile_row, tile_column):
            with ring(position, steps) as (step, stage, parity):
                wait(full[stage], parity)
                clocks.lap("load")
                wgmma.fence.sync.aligned()
                for kk in range(0, BK, 16):
                    mma(acc, a_tile[stage].desc(kk, mn=index * 64), b_tile[stage].desc(kk), step != 0 if kk == 0 else True)
                wgmma.commit_group.sync.aligned()
                wgmma.wait_group.sync.aligned(0)
                mbarrier.arrive.shared__cluster.b64(released[stage], pred=lane < CLUSTER)
                clocks.lap("mma")
            stores.tile(acc, tile_row * BM + index * 64, tile_column * BN)
            clocks.lap("store")
        stores.tail()
        clocks.write(marks, mov.u32(ctaid.x), thread == WARPGROUP)


class Stores:
    """The staged store of one mma warpgroup: registers, stmatrix, staging, tensor copy."""

    def __init__(self, staging: Tile[bf16], d: TensorMap, warpgroup: Reg[u32], lane: Reg[u32]) -> None:
        self.staging, self.d = staging, d
        self.first = warpgroup * BUFFERS
        self.barrier = warpgroup + 1                                 # the warpgroup's own barrier; 0 is the CTA's
        self.leader = lane == 0
        # stmatrix: lane l gives the address of row l % 16 of the warp's 16 rows, 16-byte column l / 16. The swizzle XORs the column with
        # row % 8. The staging is aligned to 1,024 bytes, so XOR of the address with i << 5 leads to columns 2i and 2i + 1.
        in_warp = mov.u32(laneid)
        row, chunk = in_warp & 15, in_warp >> 4
        offset = ((lane >> 5) * 16 + row) * (BOX * 2) + ((row & 7 ^ chunk) << 4)
        address = staging[self.first].register() + offset
        self.addresses = [address, *(xor.b32(address, i << 5) for i in range(1, 4))]

    def tile(self, acc: Vec[Any, Any], row: Reg[u32], column: Reg[u32]) -> None:
        """For each box: wait until the buffer is free, write it, and start its copy. The last two copies are still in flight at the end."""
        for j in range(BN // BOX):
            buffer = j % BUFFERS
            cp.async_.bulk.wait_group.read(BUFFERS - 1, pred=self.leader)       # the previous store from this buffer has read it
            bar.sync(self.barrier, b=WARPGROUP)
            for i in range(4):                                                  # 16 rows x 16 columns per warp
                eight = acc[j * 32 + i * 8:j * 32 + i * 8 + 8]
                packed = Vec([cvt.rn.bf16x2.f32(eight[2 * q + 1], eight[2 * q]) for q in range(4)])
                place = smem.SharedAddress(buffer * self.staging.stage_bytes, self.addresses[i])
                stmatrix.sync.aligned.m8n8.x4.shared__cta.b16(place, packed)
            fence.proxy.async_.shared__cta()                                    # every writer: make the writes visible to TMA
            bar.sync(self.barrier, b=WARPGROUP)
            with if_(self.leader):
                store(self.d, (column + j * BOX, row), self.staging[self.first + buffer])
                cp.async_.bulk.commit_group()

    def tail(self) -> None:
        """Before the warpgroup exits: wait until its stores are complete."""
        cp.async_.bulk.wait_group(0, pred=self.leader)


RUNG = Rung(11, staged_store, (BM, BN, BK), "D staged in shared memory and stored by TMA", cluster=CLUSTER, persistent=True)
