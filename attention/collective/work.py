"""The tile scheduler of the forward kernel, in device code: it gives a CTA its next tile, some queries of one head."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ptxkit import Ptr, Reg, ctaid, laneid, loop, nctaid
from ptxkit.flow import Loop
from ptxkit.gemm.collective.epilogue_ops import Strided
from ptxkit.gemm.scheduler.fast_divmod import ceil_div
from ptxkit.idioms import fast_div
from ptxkit.ptx import add, brev, clz, ld, mov, selp, shfl, sub, vote
from ptxkit.ptx import min as min_
from ptxkit.types import u32

ALL = 0xFFFFFFFF
WARP = 32


@dataclass(frozen=True, slots=True)
class Shape:
    """Rows of queries and of keys in a batch, heads of queries, those that share a head of keys, batches x heads, tiles of queries in a
    head, heads that are worked on together, whether every other round is dealt backwards (0 or 1), and all tiles."""

    queries: Reg[u32]
    keys: Reg[u32]
    heads: Reg[u32]
    group: Reg[u32]
    outer: Reg[u32]
    m_tiles: Reg[u32]
    section: Reg[u32]
    turning: Reg[u32]
    tiles: Reg[u32]


@dataclass(frozen=True, slots=True)
class Packed:
    """Sequences that lie one after another: where each begins, and the end of the last; their number; and the outputs, heads as batches."""

    cu_seqlens: Ptr[u32]
    count: Reg[u32]
    out: Strided


@dataclass(frozen=True, slots=True)
class Work:
    """A tile of queries from `row` of `head` in `batch`. Its sequence has `queries` and `keys`, and begins at row `start` of the arrays."""

    row: Reg[u32]
    head: Reg[u32]
    batch: Reg[u32]
    start: Reg[u32] | int
    queries: Reg[u32]
    keys: Reg[u32]

    def blocks(self, BM: int, BN: int, causal: bool) -> Reg[u32]:
        """The blocks of BN keys that the tile's rows see."""
        return ceil_div(min_.u32(self.keys, self.row + BM) if causal else self.keys, BN)

    def clear_blocks(self, first_row: Reg[u32], BN: int, causal: bool) -> Reg[u32]:
        """How many blocks, from the first one on, rows from `first_row` of the tile on see as a whole: these need no mask."""
        return fast_div(min_.u32(self.keys, self.row + first_row + 1) if causal else self.keys, BN)


@dataclass(frozen=True, slots=True)
class TileScheduler:
    """Tiles in the order of sections of heads, whose keys and values fit into the L2 together. Under a causal mask the last queries see the
    most keys. In the last section they come first, for all of its heads, in the section before it they come last, and so on: lengths rise
    and fall without a jump.

    CTAs are dealt tiles in rounds, with `turning` every other round backwards. `heuristic.order` chooses what keeps all CTAs busy for
    nearly equal times: who got a longer tile gets a shorter one later.
    """

    shape: Shape
    BM: int
    causal: bool

    @contextmanager
    def work(self) -> Iterator[Work]:
        """A loop over this CTA's tiles."""
        shape, cta, ctas = self.shape, mov.u32(ctaid.x), mov.u32(nctaid.x)
        base, turned = mov.u32(0), mov.u32(0)
        with loop() as rounds:
            index = base + selp.u32(ctas - 1 - cta, cta, turned != 0)
            rounds.break_if(index >= shape.tiles)
            add.u32(base, base, ctas)
            mov.u32(turned, turned ^ shape.turning)
            yield self._tile(index, rounds)

    def _tile(self, index: Reg[u32], rounds: Loop) -> Work:
        shape = self.shape
        section = index // (shape.section * shape.m_tiles)
        first = section * shape.section
        within = index - first * shape.m_tiles
        heads = min_.u32(shape.section, shape.outer - first)
        m = within // heads
        outer = first + (within - m * heads)
        if self.causal:
            after = ceil_div(shape.outer - first, shape.section)
            m = selp.u32(shape.m_tiles - 1 - m, m, (after & 1) != 0)
        batch = outer // shape.heads
        return Work(m * self.BM, outer - batch * shape.heads, batch, 0, shape.queries, shape.keys)


@dataclass(frozen=True, slots=True)
class PackedScheduler(TileScheduler):
    """Tiles of sequences that lie one after another: sequence s has rows cu_seqlens[s] to cu_seqlens[s + 1].

    A head has as many places for tiles as its sequences can need; places that are left over have no tile. Each warp finds the sequence of
    a place by itself, 32 sequences at a time. All 32 lanes execute the loop. Ends past the rows of the arrays are cut off.
    """

    packed: Packed

    def _tile(self, index: Reg[u32], rounds: Loop) -> Work:
        shape = self.shape
        head = index // shape.m_tiles
        place, number, begin, rows, tiles = (mov.u32(0) for _ in range(5))
        mov.u32(place, index - head * shape.m_tiles)
        with loop() as search:
            rounds.continue_if(number >= self.packed.count)
            first, length, own = self._lane(number)
            upto = self._upto(own)
            holds = mov.b32(vote.sync.ballot.b32(upto > place, ALL))
            source = clz.b32(brev.b32(holds)) & (WARP - 1)
            for kept, value in ((begin, first), (rows, length), (tiles, own)):
                mov.b32(kept, shfl.sync.idx.b32(value, source, 31, ALL))
            before = shfl.sync.idx.b32(upto - own, source, 31, ALL)
            every = shfl.sync.idx.b32(upto, WARP - 1, 31, ALL)
            sub.u32(place, place, selp.u32(before, every, holds != 0))
            search.break_if(holds != 0)
            add.u32(number, number, WARP)
        m = tiles - 1 - place if self.causal else place
        return Work(m * self.BM, head, mov.u32(0), begin, rows, rows)

    def _lane(self, number: Reg[u32]) -> tuple[Reg[u32], Reg[u32], Reg[u32]]:
        """Of the sequence that this lane looks at: where it begins, its rows and its tiles; none past the last sequence."""
        sequence = number + mov.u32(laneid)
        begin, end = mov.u32(0), mov.u32(0)
        place = self.packed.cu_seqlens.at(sequence)
        there = sequence < self.packed.count
        ld.global_.nc.u32(begin, place, pred=there)
        ld.global_.nc.u32(end, place + 1, pred=there)
        end = min_.u32(end, self.shape.queries)
        begin = min_.u32(begin, end)
        return begin, end - begin, ceil_div(end - begin, self.BM)

    def _upto(self, own: Reg[u32]) -> Reg[u32]:
        """The sum over the lanes up to this one."""
        total, lane = mov.u32(own), mov.u32(laneid)
        for distance in (1, 2, 4, 8, 16):
            below = shfl.sync.up.b32(total, distance, 0, ALL)
            add.u32(total, total, selp.u32(below, 0, lane >= distance))
        return total


def tile_scheduler(shape: Shape, BM: int, causal: bool, packed: Packed | None) -> TileScheduler:
    """The tile scheduler of a configuration."""
    return TileScheduler(shape, BM, causal) if packed is None else PackedScheduler(shape, BM, causal, packed)


__all__ = ["Packed", "Shape", "TileScheduler", "Work", "tile_scheduler"]
