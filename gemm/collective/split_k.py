"""Split-K: CTAs that share an output tile add their partial sums in a fixed order, and each stores its share of the columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ptxkit import MBarriers, Ptr, Reg, Vec, cluster_ctarank, if_, loop, smem
from ptxkit.idioms import remote, wait
from ptxkit.ptx import add, atom, bar, ld, mapa, mbarrier, mov, opcode, st
from ptxkit.ptx import max as max_
from ptxkit.ptx import min as min_
from ptxkit.smem import Shared
from ptxkit.types import f32, u32

from ..config.parts import SplitK
from ..scheduler.work import WorkTile
from .atoms import ROWS, WARPGROUP, Mma
from .epilogue import DirectStore
from .vector_scales import VectorScales
from .warpgroups import MmaThread

# A thread's four accumulators in 8 columns are 16 bytes. A warpgroup's are stored in thread order: the accesses of a warp are contiguous,
# and each thread reads the sums of the same elements that it has computed itself.
BLOCK_BYTES = WARPGROUP * 16


def columns_per_split(BN: int, splits: int) -> int:
    """The number of blocks of 8 columns that each CTA adds up and stores. The last CTAs may have fewer or none."""
    return -(-BN // 8 // splits)


@dataclass(frozen=True, slots=True)
class ClusterReduction:
    """Reduction through distributed shared memory: every thread sends its partial sums to the CTAs that own the columns, with st.async.

    landed: 1 arrival, of one thread of this CTA. It expects the bytes of every CTA of the cluster, including its own. A CTA works on one
    tile, so its buffer is free from the start. It waits for all bytes that are sent to it, so it may exit afterwards.
    """

    buffer: Shared[f32]
    landed: MBarriers
    splits: int
    m64_blocks: int                             # of the whole tile

    @classmethod
    def allocate(cls, splits: int, BM: int, BN: int) -> ClusterReduction:
        count = splits * columns_per_split(BN, splits) * 8 * BM
        return cls(smem.array(f32, count, align=128, name="partial sums"), smem.mbarrier(1, name="landed"), splits, BM // ROWS)

    def expect(self, first: Reg[Any], BN: int) -> None:
        """In the one thread of each CTA where `first` holds: expect the bytes that will be sent to the CTA."""
        per, rank = columns_per_split(BN, self.splits), mov.u32(cluster_ctarank)
        blocks = min_.s32(max_.s32(BN // 8 - rank * per, 0), per)
        mbarrier.arrive.expect_tx.shared__cta.b64(self.landed[0], blocks * (self.splits * self.m64_blocks * BLOCK_BYTES), pred=first)

    def store(self, mma: Mma, acc: list[Vec[Any, Any]], block: Reg[u32], thread: Reg[u32], store: DirectStore, scales: VectorScales,
              row: Reg[u32], column: Reg[u32], BN: int, batch: Reg[u32] | None = None) -> None:
        """Send the partial sums, wait, add up this CTA's columns and store them. `block` is the warpgroup's first m64 block in the tile."""
        per, rank = columns_per_split(BN, self.splits), mov.u32(cluster_ctarank)
        scales.begin_part(row, column, rank, per)
        send = opcode("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32")
        stride = self.m64_blocks * per * BLOCK_BYTES                       # bytes of one CTA's sums
        place = rank * stride + block * (per * BLOCK_BYTES) + thread * 16
        for owner in range(self.splits):
            if owner * per * 8 >= BN:
                break
            peer = mapa.shared__cluster.u32(self.buffer.register(), owner) + place
            barrier = remote(self.landed[0], owner)
            for s, fragment in enumerate(acc):
                for j in range(min(per, BN // 8 - owner * per)):
                    to = smem.SharedAddress((s * per + j) * BLOCK_BYTES, peer)
                    send(to, Vec(mma.block(fragment, owner * per + j)), barrier)
        wait(self.landed[0], 0)
        own = self.buffer.register() + block * (per * BLOCK_BYTES) + thread * 16
        for s in range(len(acc)):
            for j in range(per):
                eight = rank * per + j
                with if_(eight < BN // 8):
                    parts = [ld.shared__cta.v4.f32(smem.SharedAddress(source * stride + (s * per + j) * BLOCK_BYTES, own))
                             for source in range(self.splits)]
                    store.block(scales.scaled(added(parts), s, j), row + s * ROWS, column + eight * 8, batch)


@dataclass(frozen=True, slots=True)
class WorkspaceReduction:
    """Reduction through global memory: partial sums in a workspace, and a counter for each tile and warpgroup.

    A warpgroup writes its sums, adds 1 to the counter (release) and waits until all splits have done so (acquire). It adds up its share
    and adds 1 again. The last to do so resets the counter for the next launch. The CTAs of a tile wait for each other, so they must be
    resident at once: the grid is no larger than what the device holds, and work tiles are processed in order.
    """

    workspace: Ptr[f32]
    counters: Ptr[u32]
    splits: int
    m64_blocks: int                             # of the whole tile
    mma_warpgroups: int

    def store(self, mma: Mma, acc: list[Vec[Any, Any]], block: Reg[u32], thread: Reg[u32], store: DirectStore, scales: VectorScales,
              row: Reg[u32], column: Reg[u32], BN: int, *, tile: Reg[u32], split: Reg[u32], warpgroup: Reg[u32],
              batch: Reg[u32] | None) -> None:
        """Write the partial sums, wait, add up this split's columns and store them."""
        per, blocks = columns_per_split(BN, self.splits), BN // 8
        scales.begin_part(row, column, split, per)
        stride = self.m64_blocks * blocks * WARPGROUP * 4                  # elements of one split
        base = self.workspace.at(opcode("mul.wide.u32")(tile, stride * self.splits)).at(block * (blocks * WARPGROUP * 4) + thread * 4)
        mine = base.at(split * stride)
        for s, fragment in enumerate(acc):
            for j in range(blocks):
                st.global_.v4.f32(mine + (s * blocks + j) * WARPGROUP * 4, Vec(mma.block(fragment, j)))
        counter = self.counters.at(tile * self.mma_warpgroups + warpgroup)
        bar.sync(warpgroup + 1, b=WARPGROUP)
        first = thread == 0
        with if_(first):
            opcode("red.release.gpu.global.add.u32")(counter, 1)
            with loop() as spin:
                spin.break_if(opcode("ld.acquire.gpu.global.u32")(counter) >= self.splits)
        bar.sync(warpgroup + 1, b=WARPGROUP)
        shared = base.at(split * (per * WARPGROUP * 4))
        for s in range(len(acc)):
            for j in range(per):
                eight = split * per + j
                with if_(eight < blocks):
                    parts = [ld.global_.v4.f32(shared + (source * stride + (s * blocks + j) * WARPGROUP * 4))
                             for source in range(self.splits)]
                    store.block(scales.scaled(added(parts), s, j), row + s * ROWS, column + eight * 8, batch)
        bar.sync(warpgroup + 1, b=WARPGROUP)
        with if_(first):
            arrived = atom.acq_rel.gpu.global_.add.u32(counter, 1)
            opcode("st.relaxed.gpu.global.u32")(counter, 0, pred=arrived == 2 * self.splits - 1)


@dataclass(frozen=True, slots=True)
class SplitKStore:
    """Adds up the partial sums of the CTAs that share an output tile, and stores this CTA's share of the columns."""

    split: SplitK
    atom: Mma
    direct: DirectStore
    scales: VectorScales
    mma_thread: MmaThread
    BM: int
    BN: int
    mma_warpgroups: int
    cluster: ClusterReduction | None            # else through the workspace
    workspace: Ptr[f32]
    counters: Ptr[u32]

    def begin(self) -> None:
        """Before the first work tile."""
        if self.cluster is not None:
            self.cluster.expect((self.mma_thread.thread == 0) & (self.mma_thread.warpgroup == 0), self.BN)

    def tile(self, sums: list[Vec[Any, Any]], work: WorkTile, row: Reg[u32], column: Reg[u32]) -> None:
        """Reduce and store the warpgroup's m64 blocks of a work tile. They begin at `row` and `column` of D."""
        mma_thread = self.mma_thread
        block = mov.u32(0) if isinstance(mma_thread.first, int) else mma_thread.first
        if self.cluster is not None:
            self.cluster.store(self.atom, sums, block, mma_thread.thread, self.direct, self.scales, row, column, self.BN, work.batch)
            return
        assert work.split is not None
        shared = WorkspaceReduction(self.workspace, self.counters, self.split.splits, self.BM // ROWS, self.mma_warpgroups)
        shared.store(self.atom, sums, block, mma_thread.thread, self.direct, self.scales, row, column, self.BN, tile=work.tile,
                     split=work.split, warpgroup=mma_thread.warpgroup, batch=work.batch)

    def tail(self) -> None:
        """No store needs to be waited for."""


def added(parts: list[Vec[Any, Any]]) -> list[Reg[f32]]:
    """The element-wise sums of the parts, added from the first to the last."""
    total = list(parts[0])
    for part in parts[1:]:
        total = [add.rn.f32(sum_, value) for sum_, value in zip(total, part, strict=True)]
    return total


__all__ = ["BLOCK_BYTES", "ClusterReduction", "SplitKStore", "WorkspaceReduction", "added", "columns_per_split"]
