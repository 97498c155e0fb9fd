"""Split-K: CTAs that share an output tile add their partial sums in a fixed order, and each stores its share of the columns."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, Protocol

from ptxkit import MBarriers, Ptr, Reg, Vec, cluster_ctarank, if_, loop, smem
from ptxkit.idioms import remote, wait
from ptxkit.ptx import add, atom, bar, ld, mapa, mbarrier, mov, opcode, selp, st
from ptxkit.ptx import max as max_
from ptxkit.ptx import min as min_
from ptxkit.smem import Shared
from ptxkit.types import f32, u32

from ..config.parts import SplitK
from ..scheduler.work import WorkTile
from .atoms import ROWS, WARPGROUP, Mma
from .epilogue import Edges
from .vector_scales import VectorScales
from .warpgroups import MmaThread

# A thread's four accumulators in 8 columns are 16 bytes. A warpgroup's are stored in thread order: the accesses of a warp are contiguous,
# and each thread reads the sums of the same elements that it has computed itself.
BLOCK_BYTES = WARPGROUP * 16


IN_FLIGHT = 64              # registers that a thread loads sums into at a time
SPARE = 32                  # registers besides these and its sums that a thread needs to keep sums


class BlockStore(Protocol):
    """Stores blocks of 64 rows x 8 columns."""

    def block(self, values: list[Reg[f32]], row: Reg[u32], column: Reg[u32], batch: Reg[u32] | None = None) -> None: ...


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

    def store(self, mma: Mma, acc: list[Vec[Any, Any]], block: Reg[u32], thread: Reg[u32], store: BlockStore, scales: VectorScales,
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

    A warpgroup writes its sums, adds 1 to the counter (release) and waits until all splits have done so (acquire). Then it adds 1 again:
    the last to do so resets the counter for the next launch. It adds up its share of the columns. Sums past the end of D are neither
    written nor read. The CTAs of a tile wait for each other, so they must be resident at once: the grid is no larger than what the device
    holds, and work tiles are processed in order.

    `keeps`: a warpgroup's own share of its own sums stays in registers, where there are enough.
    """

    workspace: Ptr[f32]
    counters: Ptr[u32]
    splits: int
    m64_blocks: int                             # of the whole tile
    mma_warpgroups: int
    keeps: bool

    def store(self, mma: Mma, acc: list[Vec[Any, Any]], block: Reg[u32], mma_thread: MmaThread, store: BlockStore, edges: Edges,
              scales: VectorScales, row: Reg[u32], column: Reg[u32], BN: int, *, tile: Reg[u32], split: Reg[u32],
              batch: Reg[u32] | None) -> None:
        """Write the partial sums, wait, add up this split's columns and store them."""
        per, blocks, thread, warpgroup = columns_per_split(BN, self.splits), BN // 8, mma_thread.thread, mma_thread.warpgroup
        scales.begin_part(row, column, split, per)
        stride = self.m64_blocks * blocks * WARPGROUP * 4                  # elements of one split
        base = self.workspace.at(opcode("mul.wide.u32")(tile, stride * self.splits)).at(block * (blocks * WARPGROUP * 4) + thread * 4)
        inside = self._inside(len(acc), mma_thread, edges, row, column, BN)
        own = self._write(mma, acc, base.at(split * stride), split, inside, BN)
        counter = self.counters.at(tile * self.mma_warpgroups + warpgroup)
        first, arrived = thread == 0, mov.u32(0)
        bar.sync(warpgroup + 1, b=WARPGROUP)
        with if_(first):
            opcode("red.release.gpu.global.add.u32")(counter, 1)
            with loop() as spin:
                spin.break_if(opcode("ld.acquire.gpu.global.u32")(counter) >= self.splits)
            atom.relaxed.gpu.global_.add.u32(arrived, counter, 1)
        bar.sync(warpgroup + 1, b=WARPGROUP)
        shared = base.at(split * (per * WARPGROUP * 4))
        for some in self._batches(len(acc), per):
            found = [self._parts(shared, s, j, own, split, inside, blocks) for s, j in some] if self.keeps else []
            for place, (s, j) in enumerate(some):
                eight = split * per + j
                with if_(eight < inside[s]):
                    parts = found[place] if self.keeps else [ld.global_.v4.f32(part) for part in self._places(shared, s, j, blocks)]
                    store.block(scales.scaled(added(parts), s, j), row + s * ROWS, column + eight * 8, batch)
        opcode("st.relaxed.gpu.global.u32")(counter, 0, pred=arrived == 2 * self.splits - 1)

    def _batches(self, m64_blocks: int, per: int) -> list[list[tuple[int, int]]]:
        """The m64 blocks and blocks of 8 columns of a share, as many at a time as are loaded before the first is stored."""
        places = list(itertools.product(range(m64_blocks), range(per)))
        at_once = max(1, IN_FLIGHT // (4 * self.splits)) if self.keeps else 1
        return [places[begin:begin + at_once] for begin in range(0, len(places), at_once)]

    def _places(self, shared: Ptr[f32], s: int, j: int, blocks: int) -> list[Ptr[f32]]:
        """Where a thread's sums of each split are, in a block of this CTA's share."""
        stride = self.m64_blocks * blocks * WARPGROUP * 4
        return [shared + (source * stride + (s * blocks + j) * WARPGROUP * 4) for source in range(self.splits)]

    def _parts(self, shared: Ptr[f32], s: int, j: int, own: list[list[list[Reg[f32]]]], split: Reg[u32], inside: list[Reg[u32]],
               blocks: int) -> list[Vec[Any, Any]]:
        """A thread's sums of all splits in a block of this CTA's share, of which its own are in registers."""
        found: list[Vec[Any, Any]] = []
        there = split * columns_per_split(blocks * 8, self.splits) + j < inside[s]
        for source, place in enumerate(self._places(shared, s, j, blocks)):
            found.append(Vec([mov.f32(value) for value in own[s][j]]))
            ld.global_.v4.f32(found[-1], place, pred=there & (split != source))
        return found

    def _inside(self, m64_blocks: int, mma_thread: MmaThread, edges: Edges, row: Reg[u32], column: Reg[u32], BN: int) -> list[Reg[u32]]:
        """For each m64 block of the warpgroup, the blocks of 8 columns of which this warp has elements of D."""
        columns: Any = min_.s32(max_.s32(edges.n - column, 0) + 7 >> 3, BN // 8)
        first = row + mma_thread.warp * 16
        return [selp.u32(columns, 0, first + s * ROWS < edges.m) for s in range(m64_blocks)]

    def _write(self, mma: Mma, acc: list[Vec[Any, Any]], mine: Ptr[f32], split: Reg[u32], inside: list[Reg[u32]],
               BN: int) -> list[list[list[Reg[f32]]]]:
        """Write the sums that are read from the workspace. Returns those that are kept, by m64 block and block of 8 columns."""
        per, blocks = columns_per_split(BN, self.splits), BN // 8
        found: list[list[list[Reg[f32]]]] = []
        for s, fragment in enumerate(acc):
            own: list[list[Reg[f32]]] = []
            for owner in range(self.splits):
                here = split == owner
                others = selp.u32(0, inside[s], here) if self.keeps else inside[s]
                for j in range(owner * per, min(owner * per + per, blocks)):
                    values = mma.block(fragment, j)
                    st.global_.v4.f32(mine + (s * blocks + j) * WARPGROUP * 4, Vec(values), pred=others > j)
                    if not self.keeps:
                        continue
                    if owner == 0:
                        own.append([mov.f32(value) for value in values])
                        continue
                    for kept, value in zip(own[j - owner * per], values, strict=True):
                        mov.f32(kept, value, pred=here)
            found.append(own)
        return found


@dataclass(frozen=True, slots=True)
class SplitKStore:
    """Adds up the partial sums of the CTAs that share an output tile, and stores this CTA's share of the columns."""

    split: SplitK
    atom: Mma
    blocks: BlockStore
    edges: Edges
    scales: VectorScales
    mma_thread: MmaThread
    BM: int
    BN: int
    mma_warpgroups: int
    cluster: ClusterReduction | None            # else through the workspace
    workspace: Ptr[f32]
    counters: Ptr[u32]
    registers: int                              # of an mma thread

    def begin(self) -> None:
        """Before the first work tile."""
        if self.cluster is not None:
            self.cluster.expect((self.mma_thread.thread == 0) & (self.mma_thread.warpgroup == 0), self.BN)

    def tile(self, sums: list[Vec[Any, Any]], work: WorkTile, row: Reg[u32], column: Reg[u32]) -> None:
        """Reduce and store the warpgroup's m64 blocks of a work tile. They begin at `row` and `column` of D."""
        mma_thread = self.mma_thread
        block = mov.u32(0) if isinstance(mma_thread.first, int) else mma_thread.first
        if self.cluster is not None:
            self.cluster.store(self.atom, sums, block, mma_thread.thread, self.blocks, self.scales, row, column, self.BN, work.batch)
            return
        assert work.split is not None
        tile, sharing = work.tile, self.split.cluster.size
        if sharing > 1:                         # a tile of the workspace for each CTA of a cluster tile
            tile = tile * sharing + mov.u32(cluster_ctarank)
        shared = WorkspaceReduction(self.workspace, self.counters, self.split.splits, self.BM // ROWS, self.mma_warpgroups,
                                    len(sums) * self.BN // 2 + IN_FLIGHT + SPARE <= self.registers)
        shared.store(self.atom, sums, block, mma_thread, self.blocks, self.edges, self.scales, row, column, self.BN, tile=tile,
                     split=work.split, batch=work.batch)

    def tail(self) -> None:
        """No store needs to be waited for."""


def added(parts: list[Vec[Any, Any]]) -> list[Reg[f32]]:
    """The element-wise sums of the parts, added from the first to the last."""
    total = list(parts[0])
    for part in parts[1:]:
        total = [add.rn.f32(sum_, value) for sum_, value in zip(total, part, strict=True)]
    return total


__all__ = ["BLOCK_BYTES", "ClusterReduction", "SplitKStore", "WorkspaceReduction", "added", "columns_per_split"]
