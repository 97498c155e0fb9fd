"""D = A B for 16-bit A and B with fp32 accumulation: one persistent, warp-specialised kernel."""

from __future__ import annotations

from typing import Any

from ptxkit import MBarrier, Reg, Ring, TensorMap, Vec, cluster_ctarank, if_, kernel, laneid, ring, smem, tid
from ptxkit.flow import else_
from ptxkit.idioms import cluster_sync, elect, init_barriers, multicast_mask, prefetch_tensormaps, remote, wait
from ptxkit.layout import Layout, Major
from ptxkit.ptx import bar, cp, fence, mbarrier, mov, opcode, setmaxnreg, shfl, st, stmatrix, wgmma, xor
from ptxkit.smem import Tile, TileView
from ptxkit.types import Scalar, bf16, f32, pred, u32

from .scheduler import grouped

WARPGROUP = 128
CONSUMERS = 2                       # warpgroups, 64 rows of the tile each
THREADS = WARPGROUP * (1 + CONSUMERS)
PRODUCER_REGISTERS, CONSUMER_REGISTERS = 40, 232   # 128 * 40 + 256 * 232 = 64,512 = 384 * 168
BM, BK = 64 * CONSUMERS, 64         # a row of BK 16-bit elements is one 128-byte swizzle span
STORE_BYTES = 128                   # a store box is 64 rows of one span


@kernel(target="sm_90a", block=THREADS, cluster=lambda config: config["CLUSTER"])
def hgemm(a: TensorMap, b: TensorMap, d: TensorMap, m_tiles: Reg[u32], n_tiles: Reg[u32], k_tiles: Reg[u32], *,
          TYPE: type[Scalar] = bf16, OUT: type[Scalar] = bf16, A_MAJOR: Major = "k", B_MAJOR: Major = "k",
          BN: int = 256, STAGES: int = 4, CLUSTER: int = 2, GROUP: int = 8) -> None:
    """Persistent HGEMM: D[M, N] = A[M, K] B[K, N], tiles of 128 x BN x 64.

    Roles. Warpgroup 0 keeps 40 registers a thread; one lane of its first warp issues every load. Warpgroups 1 and 2 take 232;
    each multiplies 64 rows of the tile by all BN columns and stores them. CTAs of a cluster work on tiles below one another:
    each loads its A, and 1/CLUSTER of the B that they share, multicast to all of them.

    Arrivals a phase. full[stage]: 1, the producer's arrive.expect_tx of the whole stage (the parts of B that the peers
    multicast count here too). empty[stage]: CLUSTER * 2, one thread of each consumer warpgroup of each CTA in the cluster,
    after the wgmma that read the stage have completed; it arrives in every CTA, since the stage's B comes from all of them.

    Ring. Stage and parity run on from tile to tile, so that the producer loads the next tile while the consumers store this one. At
    its end the producer waits until every stage is empty: nobody arrives in, or multicasts into, a CTA that has exited.

    Staging. Two buffers per consumer warpgroup, 64 rows of 128 bytes. Before a buffer is written the storing thread waits
    until the store before last has read it; every writer fences (generic to async proxy) before the barrier that
    precedes the store.
    """
    a_tile = smem.tile(TYPE, (STAGES, BM, BK), major=A_MAJOR, name="A")
    b_tile = smem.tile(TYPE, (STAGES, BN, BK), major=B_MAJOR, name="B")
    d_tile = smem.tile(OUT, (CONSUMERS * 2, 64, STORE_BYTES * 8 // OUT.bits), swizzle=STORE_BYTES, name="D staging")
    full, empty = smem.mbarrier(STAGES, name="full"), smem.mbarrier(STAGES, name="empty")

    thread = mov.u32(tid.x)
    warpgroup = shfl.sync.idx.b32(thread >> 7, 0, 31, 0xFFFFFFFF)   # the same in all lanes, and ptxas can see it
    with if_(thread == 0):
        prefetch_tensormaps(a, b, d)
        init_barriers((full, 1), (empty, CLUSTER * CONSUMERS))
    if CLUSTER > 1:
        cluster_sync()
    else:
        bar.sync(0)

    with if_(thread < WARPGROUP):
        setmaxnreg.dec.sync.aligned.u32(PRODUCER_REGISTERS)
        with if_(thread < 32), if_(elect()):
            position = Ring(STAGES)
            with grouped(m_tiles, n_tiles, GROUP=GROUP, CLUSTER=CLUSTER) as (m, n):
                row, column = m * BM, n * BN
                with ring(position, k_tiles) as (k, stage, parity):
                    wait(empty[stage], parity ^ 1)
                    mbarrier.arrive.expect_tx.shared__cta.b64(full[stage], a_tile.layout.bytes + b_tile.layout.bytes)
                    load(a_tile[stage], a, row, k * BK, full[stage])
                    load_shared(b_tile[stage], b, column, k * BK, full[stage], CLUSTER=CLUSTER)
            with ring(position, STAGES) as (_, stage, parity):
                wait(empty[stage], parity ^ 1)

    with else_():
        setmaxnreg.inc.sync.aligned.u32(CONSUMER_REGISTERS)
        consumer = warpgroup - 1
        rows = consumer * 64
        lane = thread & (WARPGROUP - 1)
        mma = opcode(f"wgmma.mma_async.sync.aligned.m64n{BN}k16.f32.{TYPE.__name__}.{TYPE.__name__}")
        acc = mma.fragment(zero=False)
        released = remote(empty, lane) if CLUSTER > 1 else empty
        releases = lane < CLUSTER
        stores = Stores(d_tile, d, consumer, lane)
        position = Ring(STAGES)
        previous = mov.u32(0)
        with grouped(m_tiles, n_tiles, GROUP=GROUP, CLUSTER=CLUSTER) as (m, n):
            with ring(position, k_tiles) as (k, stage, parity):
                accumulate = k != 0
                wait(full[stage], parity)
                wgmma.fence.sync.aligned()
                for kk in range(0, BK, 16):
                    mma(acc, a_tile[stage].desc(kk, mn=rows), b_tile[stage].desc(kk), accumulate if kk == 0 else True)
                wgmma.commit_group.sync.aligned()
                wgmma.wait_group.sync.aligned(1)                     # all but the group just issued: `previous` has been read
                release(released[previous], releases & accumulate, CLUSTER=CLUSTER)
                mov.u32(previous, stage)
            wgmma.wait_group.sync.aligned(0)
            release(released[previous], releases, CLUSTER=CLUSTER)
            stores.tile(acc, m * BM + rows, n * BN, BN)
        stores.drain()


def load(view: TileView[Any], tensormap: TensorMap, mn: Reg[u32], k: Reg[u32], barrier: MBarrier) -> None:
    """Copy a whole tile, one box per span: a K-major tile is one box of all rows, an MN-major one a box per 64 rows."""
    copy = cp.async_.bulk.tensor_2d.shared__cluster.global_.tile.mbarrier__complete_tx__bytes
    layout = view.layout
    if layout.major == "k":
        copy(view, tensormap, (k, mn), barrier)
    else:
        for s in range(layout.spans):
            copy(view.span(s), tensormap, (mn + s * layout.span, k), barrier)


def load_shared(view: TileView[Any], tensormap: TensorMap, mn: Reg[u32], k: Reg[u32], barrier: MBarrier, *, CLUSTER: int) -> None:
    """Copy this CTA's share of a tile that the whole cluster needs, to all of its CTAs."""
    if CLUSTER == 1:
        load(view, tensormap, mn, k, barrier)
        return
    copy = cp.async_.bulk.tensor_2d.shared__cluster.global_.tile.mbarrier__complete_tx__bytes.multicast__cluster
    layout, mask = view.layout, multicast_mask(CLUSTER)
    rank = mov.u32(cluster_ctarank)
    if layout.major == "k":
        lines = layout.rows // CLUSTER
        start = rank * lines
        copy(view.lines(start, lines), tensormap, (k, mn + start), barrier, mask)
    else:
        share = layout.spans // CLUSTER
        for s in range(share):
            span = rank * share + s if s else rank * share
            copy(view.span(span), tensormap, (mn + span * layout.span, k), barrier, mask)


def release(barrier: MBarrier, p: Reg[pred], *, CLUSTER: int) -> None:
    """Where `p` holds, say that this warpgroup has read the stage; each of the first CLUSTER threads says it to one CTA."""
    arrive = mbarrier.arrive.shared__cluster.b64 if CLUSTER > 1 else mbarrier.arrive.shared__cta.b64
    arrive(barrier, pred=p)


class Stores:
    """The epilogue of one consumer warpgroup: accumulators to staged, swizzled rows in shared memory, to D by tensor copies."""

    def __init__(self, staging: Tile[Any], d: TensorMap, consumer: Reg[u32], lane: Reg[u32]) -> None:
        self.layout: Layout = staging.layout
        self.staging = staging
        self.d = d
        self.barrier = consumer + 1
        self.leader = lane == 0
        self.view = staging[consumer * 2]
        self.columns = self.layout.columns
        warp_row = (lane >> 5) * 16
        in_warp = mov.u32(laneid)
        # stmatrix: lane l addresses row l % 16 of the warp's 16, 16-byte column l / 16; the swizzle XORs the column with row % 8.
        # Direct stores of f32: lane l has row l / 4 (and l / 4 + 8), columns 2 (l % 4) and the next, so 16-byte column (l % 4) / 2.
        if self.layout.type is f32:
            row, chunk, rest = in_warp >> 2, (in_warp & 3) >> 1, (in_warp & 1) * 8
        else:
            row, chunk, rest = in_warp & 15, in_warp >> 4, None
        swizzled = (row & 7 ^ chunk) << 4
        address = self.view.register() + (warp_row + row) * STORE_BYTES + swizzled
        address = address if rest is None else address + rest
        # 16-byte columns 2i and 2i + 1 lie at bits 5 and 6: XOR by a constant, since the staging is aligned to 1,024 bytes.
        self.addresses = [address if i == 0 else xor.b32(address, i << 5) for i in range(4)]

    def tile(self, acc: Vec[Any, Any], row: Reg[u32], column: Reg[u32], BN: int) -> None:
        """Store the warpgroup's 64 x BN accumulators to rows `row`.. and columns `column`.. of D."""
        boxes = BN // self.columns
        for j in range(boxes):
            buffer = j % 2
            cp.async_.bulk.wait_group.read(1 if boxes % 2 == 0 or j else 0, pred=self.leader)
            bar.sync(self.barrier, b=WARPGROUP)
            offset = buffer * self.staging.stage_bytes
            part = acc[j * self.columns // 2:(j + 1) * self.columns // 2]
            if self.layout.type is f32:
                self._write_f32(part, offset)
            else:
                self._write_16(part, offset)
            fence.proxy.async_.shared__cta()
            bar.sync(self.barrier, b=WARPGROUP)
            with if_(self.leader):
                source: TileView[Any] = TileView(self.layout, self.view.offset + offset, self.view.dynamic, self.columns, 64)
                cp.async_.bulk.tensor_2d.global_.shared__cta.tile.bulk_group(self.d, (column + j * self.columns, row), source)
                cp.async_.bulk.commit_group()

    def _write_16(self, part: Vec[Any, Any], offset: int) -> None:
        """64 columns: four stmatrix of 16 rows x 16 columns."""
        pack = opcode(f"cvt.rn.{self.layout.type.__name__}x2.f32")
        for i in range(4):
            eight = part[8 * i:8 * i + 8]
            packed = Vec([pack(eight[2 * q + 1], eight[2 * q]) for q in range(4)])
            stmatrix.sync.aligned.m8n8.x4.shared__cta.b16(smem.SharedAddress(offset, self.addresses[i]), packed)

    def _write_f32(self, part: Vec[Any, Any], offset: int) -> None:
        """32 columns: two 8-byte stores for each 8 columns, rows r and r + 8."""
        for i in range(4):
            four = part[4 * i:4 * i + 4]
            for half in range(2):
                st.shared__cta.v2.f32(smem.SharedAddress(offset + half * 8 * STORE_BYTES, self.addresses[i]), four[2 * half:2 * half + 2])

    def drain(self) -> None:
        """Before the warpgroup exits: its stores have read the staging and reached D."""
        cp.async_.bulk.wait_group(0, pred=self.leader)


__all__ = ["hgemm"]
