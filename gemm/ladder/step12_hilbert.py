"""Step 12: tiles in the order of a Hilbert curve."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ptxkit import Ptr, Reg, Ring, TensorMap, cluster_ctarank, clusterid, for_range, if_, kernel, nclusterid, ring, role, smem, span, tid
from ptxkit.flow import else_
from ptxkit.idioms import cluster_sync, init_barriers, multicast_mask, remote, wait
from ptxkit.ptx import cp, ld, mbarrier, mov, setmaxnreg, shfl, wgmma
from ptxkit.types import b32, bf16, u32

from .rung import Rung
from .step11_staged_store import BOX, BUFFERS, Stores

BM, BN, BK = 128, 256, 64
STAGES = 4
CLUSTER = 2
SHARE = BN // CLUSTER
WARPGROUP = 128
MMA_WARPGROUPS = BM // 64
PRODUCER_REGISTERS, MMA_REGISTERS = 40, 232

load = cp.async_.bulk.tensor_2d.shared__cluster.global_.tile.mbarrier__complete_tx__bytes
multicast = load.multicast__cluster
mma = wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16


@kernel(block=WARPGROUP * (1 + MMA_WARPGROUPS), cluster=CLUSTER)
def hilbert(a: TensorMap, b: TensorMap, d: TensorMap, m: Reg[u32], n: Reg[u32], k: Reg[u32], order: Ptr[b32]) -> None:
    """As step 11, with tiles from a table: cluster c takes entries c, c + clusters, ... Entries that are close in the table are close in D,
    in both directions and at every scale. The tiles in flight thus share rows of A and columns of B.

    full[stage]: 1 arrival, the producer's arrive.expect_tx of the whole stage. empty[stage]: 4, one thread of each mma warpgroup
    of both CTAs. Before they exit, the producer waits until every stage is empty and each storing thread until its stores are complete.
    """
    a_tile, b_tile = smem.tile(bf16, (STAGES, BM, BK), name="A"), smem.tile(bf16, (STAGES, BN, BK), name="B")
    d_tile = smem.tile(bf16, (MMA_WARPGROUPS, BUFFERS * 64, BOX), name="D staging")
    full, empty = smem.mbarrier(STAGES, name="full"), smem.mbarrier(STAGES, name="empty")
    thread = mov.u32(tid.x)
    warpgroup = shfl.sync.idx.b32(thread >> 7, 0, 31, 0xFFFFFFFF)
    tiles, steps = m // (BM * CLUSTER) * (n // BN), k // BK
    with if_(thread == 0):
        init_barriers((full, 1), (empty, MMA_WARPGROUPS * CLUSTER))
    cluster_sync()

    with if_(thread < WARPGROUP):
        setmaxnreg.dec.sync.aligned.u32(PRODUCER_REGISTERS)
        with if_(thread == 0):
            role("producer")
            start = cluster_ctarank * SHARE
            position = Ring(STAGES)
            with listed(order, tiles) as (tile_row, tile_column):
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
        with listed(order, tiles) as (tile_row, tile_column):
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


@contextmanager
def listed(order: Ptr[b32], tiles: Reg[u32]) -> Iterator[tuple[Reg[u32], Reg[u32]]]:
    """A loop over this CTA's tiles (row, column) from the table. The upper half of a word is a cluster's row, the lower half its column."""
    with for_range(tiles, start=clusterid.x, step=nclusterid.x) as i:
        entry = ld.global_.nc.u32(order.at(i))
        yield (entry >> 16) * CLUSTER + cluster_ctarank, entry & 0xFFFF


def curve(m: int, n: int) -> list[int]:
    """The table: the cluster tiles of an m x n D, along the Hilbert curve through the smallest square that holds them."""
    rows, columns = m // (BM * CLUSTER), n // BN
    side = 1 << (max(rows, columns) - 1).bit_length()
    places = (place(side, i) for i in range(side * side))
    return [row << 16 | column for row, column in places if row < rows and column < columns]


def place(side: int, index: int) -> tuple[int, int]:
    """(row, column) of point `index` on the Hilbert curve through a square of `side`, a power of two. Each scale takes two bits."""
    row = column = 0
    scale = 1
    while scale < side:
        down, right = index >> 1 & 1, (index ^ index >> 1) & 1
        if not right:
            if down:
                row, column = scale - 1 - row, scale - 1 - column
            row, column = column, row
        row, column = row + scale * down, column + scale * right
        index >>= 2
        scale *= 2
    return row, column


RUNG = Rung(12, hilbert, (BM, BN, BK), "tiles along a Hilbert curve", cluster=CLUSTER, persistent=True, order=curve)
