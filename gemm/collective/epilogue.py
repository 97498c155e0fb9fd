"""Layer 3, collective epilogue: stores one warpgroup's accumulators to D, by staged tensor copies or directly from the registers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from ptxkit import Ptr, Reg, TensorMap, Vec, if_, laneid, smem
from ptxkit.layout import Layout
from ptxkit.ptx import add, bar, cp, cvt, fence, ld, mad, mov, mul, opcode, prmt, selp, shr, st, stmatrix, xor
from ptxkit.ptx import max as max_
from ptxkit.ptx import min as min_
from ptxkit.smem import Tile, TileView
from ptxkit.types import Scalar, b8, b16, b32, f32, u32, u64

from ..config.parts import Direct, Rows, Staged, Store, Transposed
from .atoms import ROWS, WARPGROUP, Mma
from .epilogue_ops import Fusion, FusionOperands, Matrix, apply
from .warpgroups import MmaThread

BUFFERS = 2                 # staging buffers of a warpgroup by default; each has 64 rows of one swizzle span
TRANSPOSED_ROWS = 64        # of D, at most, in a buffer of transposed sums


def span_bytes(BN: int, out: type[Scalar]) -> int:
    """The width of a store box: the widest swizzle span that divides a tile's row."""
    return next(span for span in (128, 64, 32) if BN * out.bits // 8 % span == 0)


def transposed_rows(BN: int) -> int:
    """The rows of D in a buffer of transposed sums: the most that divide the columns of a tile of D^T."""
    return next(rows for rows in range(TRANSPOSED_ROWS, 0, -8) if BN % rows == 0)


@dataclass(frozen=True, slots=True)
class Edges:
    """The extents of D, in elements."""

    m: Reg[u32]
    n: Reg[u32]


class Visitor(Protocol):
    """Turns the accumulators of a tile into the values that are stored, block by block. GEMMs use `Fused`."""

    @property
    def mma(self) -> Mma: ...

    def block(self, values: list[Reg[f32]], row: Reg[u32], column: Reg[u32], batch: Reg[u32] | None) -> list[Reg[f32]]:
        """A thread's four values in 8 columns from `column` of the m64 block from `row`. See `Mma.block`."""
        ...


@dataclass(frozen=True, slots=True)
class Fused:
    """Applies a fusion to the accumulators of a tile, 8 columns at a time."""

    mma: Mma
    fusion: Fusion
    operands: FusionOperands
    edges: Edges
    lane_row: Reg[u32]                          # this thread's first row in an m64 block
    lane_column: Reg[u32]                       # this thread's first column in a block of 8 columns
    elements: int = 2                           # neighbours that are read at a time

    def block(self, values: list[Reg[f32]], row: Reg[u32], column: Reg[u32], batch: Reg[u32] | None) -> list[Reg[f32]]:
        """Apply the fusion to a thread's four accumulators in 8 columns from `column` of the m64 block from `row`."""
        if self.fusion.nothing:
            return values
        if self.elements == 1:
            first = column + self.lane_column
            return apply(self.fusion, self.operands, values, row + self.lane_row, first, self.edges.m, first < self.edges.n, batch,
                         first + 1 < self.edges.n)
        return apply(self.fusion, self.operands, values, row + self.lane_row, column + self.lane_column, self.edges.m,
                     column < self.edges.n, batch)


@dataclass(frozen=True, slots=True)
class PlainSums:
    """Stores the accumulators of a tile as they are."""

    mma: Mma

    def block(self, values: list[Reg[f32]], row: Reg[u32], column: Reg[u32], batch: Reg[u32] | None) -> list[Reg[f32]]:
        """The values."""
        return values


class StagedWriter:
    """Writes a warp's 16 of 64 rows of accumulators to swizzled rows in shared memory."""

    def __init__(self, layout: Layout, view: TileView[Any], thread: Reg[u32]) -> None:
        self.layout = layout
        span = layout.span_bytes
        warp_row = (thread >> 5) * 16
        in_warp = mov.u32(laneid)
        # stmatrix: lane l addresses row l % 16 of the warp's 16 rows, 16-byte column l / 16. The swizzle XORs the column with the row's
        # place in the pattern. For f32, lane l writes rows l / 4 and l / 4 + 8, columns 2 (l % 4) and the next one.
        if layout.type is f32:
            row, chunk, rest = in_warp >> 2, (in_warp & 3) >> 1, (in_warp & 1) * 8
        else:
            row, chunk, rest = in_warp & 15, in_warp >> 4, None
        pattern = row & 7 if span == 128 else row >> 1 & 3 if span == 64 else row >> 2 & 1
        address = view.register() + (warp_row + row) * span + ((pattern ^ chunk) << 4)
        address = address if rest is None else address + rest
        # The staging is aligned to the swizzle pattern, so 16-byte columns 2i and 2i + 1 are reached by XOR with a constant at bit 5.
        self.addresses = [address if i == 0 else xor.b32(address, i << 5) for i in range(span // 32)]

    def write(self, blocks: list[list[Reg[f32]]], offset: int) -> None:
        """Write a thread's four values of each 8 columns of a span, `offset` bytes after the view."""
        if self.layout.type is f32:
            self._f32(blocks, offset)
        else:
            self._16(blocks, offset)

    def _16(self, blocks: list[list[Reg[f32]]], offset: int) -> None:
        """Each stmatrix writes 16 rows x 16 columns of the warp."""
        pack = opcode(f"cvt.rn.{self.layout.type.__name__}x2.f32")
        for i in range(0, len(blocks), 2):
            packed = Vec([pack(four[2 * half + 1], four[2 * half]) for four in blocks[i:i + 2] for half in range(2)])
            stmatrix.sync.aligned.m8n8.x4.shared__cta.b16(smem.SharedAddress(offset, self.addresses[i // 2]), packed)

    def _f32(self, blocks: list[list[Reg[f32]]], offset: int) -> None:
        """One 8-byte store for each block of 8 columns and each row."""
        for i, four in enumerate(blocks):
            for half in range(2):
                place = smem.SharedAddress(offset + half * 8 * self.layout.span_bytes, self.addresses[i])
                st.shared__cta.v2.f32(place, Vec(four[2 * half:2 * half + 2]))


class StagedStore:
    """Writes accumulators to swizzled rows in shared memory, and these to D by tensor copies that overlap the next tile.

    Each warpgroup has `buffers` of 64 rows by one span: at least two, unless they are written `together`. Before a buffer is written, the
    leader thread waits until the previous store from it has read it. Every writer executes fence.proxy.async before the barrier that
    precedes the store. `together`: all buffers are written between two barriers, after their previous stores have read them. If all
    warpgroups store at the same time, a tile waits mainly for barriers, and this saves some (192 x 128 in three warpgroups gains 1.8 %).
    A warpgroup that stores while another one multiplies loses 0.5 %.
    """

    Writer: ClassVar[type[StagedWriter] | type[TransposedWriter]] = StagedWriter

    def __init__(self, staging: Tile[Any], d: TensorMap, warpgroup: Reg[u32], thread: Reg[u32], fused: Visitor, *,
                 buffers: int = BUFFERS, together: bool = False) -> None:
        self.layout, self.staging, self.d, self.fused = staging.layout, staging, d, fused
        self.barrier, self.buffers, self.together = warpgroup + 1, buffers, together
        self.leader = thread == 0
        self.view = staging[warpgroup * buffers]
        self.writer = self.Writer(self.layout, self.view, thread)

    def tile(self, acc: list[Vec[Any, Any]], row: Reg[u32], column: Reg[u32], BN: int, batch: Reg[u32] | None = None) -> None:
        """Store m64 blocks by BN columns to D, from `row` and `column` on."""
        per_box, at_once = self.box_columns, self.buffers if self.together else 1
        boxes = [(m64, j) for m64 in range(len(acc)) for j in range(BN // per_box)]
        for first in range(0, len(boxes), at_once):
            under_way = 0 if self.together or (not first and len(boxes) % self.buffers) else 1
            cp.async_.bulk.wait_group.read(under_way, pred=self.leader)
            bar.sync(self.barrier, b=WARPGROUP)
            stores = []
            for number, (m64, j) in enumerate(boxes[first:first + at_once], first):
                offset = number % self.buffers * self.staging.stage_bytes
                at_row = row + m64 * ROWS if m64 else row
                at_column = column + j * per_box if j else column
                blocks = [self.fused.block(self.fused.mma.block(acc[m64], j * per_box // 8 + i, m64), at_row, at_column + 8 * i, batch)
                          for i in range(per_box // 8)]
                self.writer.write(blocks, offset)
                stores.append((offset, at_column, at_row))
            fence.proxy.async_.shared__cta()
            bar.sync(self.barrier, b=WARPGROUP)
            with if_(self.leader):
                for offset, at_column, at_row in stores:
                    self.copy(offset, at_column, at_row, batch)
                cp.async_.bulk.commit_group()

    @property
    def box_columns(self) -> int:
        """The columns of a tile that a buffer has."""
        return self.layout.columns

    def copy(self, offset: int, column: Reg[u32], row: Reg[u32], batch: Reg[u32] | None) -> None:
        """Copy the buffer at `offset` to D. Only the leader calls it."""
        source: TileView[Any] = TileView(self.layout, self.view.offset + offset, self.view.dynamic, self.layout.columns, ROWS)
        self.store(source, self.coordinates(column, row, batch))

    def store(self, source: TileView[Any], coordinates: tuple[Any, ...]) -> None:
        """Copy one box to D. Only the leader calls it."""
        store: Any = opcode(f"cp.async.bulk.tensor.{len(coordinates)}d.global.shared::cta.tile.bulk_group")
        store(self.tensormap(), coordinates, source)

    def coordinates(self, column: Reg[u32], row: Reg[u32], batch: Reg[u32] | None) -> tuple[Any, ...]:
        """The tensor map's coordinates of the box of 64 rows that begins at this element of D. Only the leader calls it."""
        return (column, row) if batch is None else (column, row, batch)

    def tensormap(self) -> Any:
        """The tensor map of D. Only the leader calls it."""
        return self.d

    def tail(self) -> None:
        """Before the warpgroup exits: wait until its stores have completed."""
        cp.async_.bulk.wait_group(0, pred=self.leader)


class AddingStore(StagedStore):
    """Adds f32 accumulators to D: as `StagedStore`, but for copies that add. An element is read and written in the L2."""

    def store(self, source: TileView[Any], coordinates: tuple[Any, ...]) -> None:
        add_box: Any = opcode(f"cp.reduce.async.bulk.tensor.{len(coordinates)}d.global.shared::cta.add.tile.bulk_group")
        add_box(self.tensormap(), coordinates, source)


class TransposedWriter:
    """Writes a warp's 16 of 64 rows of accumulators to shared memory as 16 of 64 columns: a buffer's rows are columns of the tile."""

    def __init__(self, layout: Layout, view: TileView[Any], thread: Reg[u32]) -> None:
        self.layout = layout
        warp, lane = thread >> 5, mov.u32(laneid)
        # stmatrix.trans: lane l addresses row l % 8 of 8 columns of the tile, 8 of the warp's 16 columns of the buffer by l / 8 % 2, and by
        # l / 16 the first or the second 8 rows. The swizzle XORs the 16-byte column with the row modulo 8. For f32, lane l writes columns
        # l / 4 and l / 4 + 8 of rows 2 (l % 4) and the next one. A span has the columns of two warps.
        if layout.type is f32:
            row, chunk = (lane & 3) * 2, (warp & 1) * 4 + (lane >> 4)
            address = view.register() + (warp >> 1) * layout.span_stride + row * 128 + ((row ^ chunk) << 4) + ((lane >> 2) & 3) * 4
            self.addresses = [address, *(xor.b32(address, flip << 4) for flip in (1, 2, 3))]
        else:
            row, chunk = lane & 7, warp * 2 + ((lane >> 3) & 1)
            self.addresses = [view.register() + ((lane >> 4) * 8 + row) * 128 + ((row ^ chunk) << 4)]

    def write(self, blocks: list[list[Reg[f32]]], offset: int) -> None:
        """Write a thread's four values of each 8 columns of the tile, `offset` bytes after the view."""
        if self.layout.type is f32:
            self._f32(blocks, offset)
        else:
            self._16(blocks, offset)

    def _16(self, blocks: list[list[Reg[f32]]], offset: int) -> None:
        """Each stmatrix writes 16 rows x 16 columns of the buffer, the last one 8 rows if their number is odd."""
        pack = opcode(f"cvt.rn.{self.layout.type.__name__}x2.f32")
        for i in range(0, len(blocks), 2):
            packed = Vec([pack(four[2 * half + 1], four[2 * half]) for four in blocks[i:i + 2] for half in range(2)])
            write: Any = opcode(f"stmatrix.sync.aligned.m8n8.x{len(packed)}.trans.shared::cta.b16")
            write(smem.SharedAddress(offset + i * 8 * 128, self.addresses[0]), packed)

    def _f32(self, blocks: list[list[Reg[f32]]], offset: int) -> None:
        """Each st writes 8 columns of 4 rows."""
        for i, four in enumerate(blocks):
            for half, below in itertools.product(range(2), range(2)):
                place = smem.SharedAddress(offset + (8 * i + below) * 128, self.addresses[2 * half + below])
                st.shared__cta.f32(place, four[2 * half + below])


class TransposedStore(StagedStore):
    """Stores tiles of D^T = B^T A^T to D: m64 blocks are 64 columns of D. `fused.edges` are those of D^T."""

    Writer = TransposedWriter

    @property
    def box_columns(self) -> int:
        return self.layout.rows

    def copy(self, offset: int, column: Reg[u32], row: Reg[u32], batch: Reg[u32] | None) -> None:
        view: TileView[Any] = TileView(self.layout, self.view.offset + offset, self.view.dynamic, self.layout.columns, self.layout.rows)
        for span in range(self.layout.spans):
            self.store(view.span(span), self.coordinates(row + span * self.layout.span if span else row, column, batch))


class RowStore:
    """Writes accumulators to swizzled rows in shared memory, and stores these to D row by row: 128 bytes at a time by a warp, of one row
    or of two or four if spans are narrower.

    A warp reads the 16 rows that it has written itself, so that it waits for no other warp. Thread l of a row stores the word of columns 2l
    and 2l + 1, or of 2l + 1 and 2l + 2 in a row that begins in the middle of a word; what is left over at the ends are elements.
    """

    def __init__(self, staging: Tile[Any], out: Matrix, warpgroup: Reg[u32], thread: Reg[u32], fused: Fused) -> None:
        self.layout, self.out, self.fused = staging.layout, out, fused
        self.writer = StagedWriter(staging.layout, staging[warpgroup], thread)
        span, lane = self.layout.span_bytes, mov.u32(laneid)
        self.at_once = 128 // span
        self.word = lane & span // 4 - 1
        self.row = (thread >> 5) * 16 + (lane // (span // 4) if self.at_once > 1 else 0)        # the thread's first
        self.place = staging[warpgroup].register() + self.row * span + self.word * 4

    def tile(self, acc: list[Vec[Any, Any]], row: Reg[u32], column: Reg[u32], BN: int, batch: Reg[u32] | None = None) -> None:
        """Store m64 blocks by BN columns to D, from `row` and `column` on."""
        per_box = self.layout.columns
        for m64, fragment in enumerate(acc):
            for j in range(BN // per_box):
                at_row = row + m64 * ROWS if m64 else row
                at_column = column + j * per_box if j else column
                blocks = [self.fused.block(self.fused.mma.block(fragment, j * per_box // 8 + i, m64), at_row, at_column + 8 * i, batch)
                          for i in range(per_box // 8)]
                bar.warp.sync(0xFFFFFFFF)
                self.writer.write(blocks, 0)
                bar.warp.sync(0xFFFFFFFF)
                self._rows(at_row + self.row, at_column, batch)

    def _rows(self, row: Reg[u32], column: Reg[u32], batch: Reg[u32] | None) -> None:
        """Store this warp's 16 rows of a box, of which the thread's first begins there."""
        edges, size = self.fused.edges, self.layout.element_bytes
        there: Any = max_.s32(min_.s32(edges.n - column, self.layout.columns), 0)
        pitch, span = mul.wide.u32(self.out.row_stride, size * self.at_once), self.layout.span_bytes
        pointer: Reg[u64] = self.out.at(row, column, batch).cast(b8).at(self.word * 4).reg
        for step, r in enumerate(range(0, 16, self.at_once)):
            pointer = add.u64(pointer, pitch) if r else pointer
            columns = selp.u32(there, 0, row + r < edges.m if r else row < edges.m)
            flip = (step & span // 16 - 1) << 4                             # the swizzle of all rows of a step
            at = xor.b32(self.place, flip) if flip else self.place
            word: Any = ld.shared__cta.b32(smem.SharedAddress(r * span, at))
            if size == 4:
                st.global_.b32(Ptr(pointer, b32), word, pred=self.word < columns)
            else:
                self._halves(pointer, word, columns)

    def _halves(self, pointer: Reg[u64], word: Any, columns: Reg[u32]) -> None:
        """Store a row of 16-bit elements, of which each thread has two."""
        odd = shr.u32(cvt.u32.u64(pointer), 1) & 1
        following: Any = opcode("shfl.sync.down.b32")(word, 1, 31, 0xFFFFFFFF)
        shifted = prmt.b32(word, following, odd * 0x2222 + 0x3210)
        aligned = opcode("and.b64")(add.u64(pointer, 2), 0xFFFFFFFFFFFFFFFC)
        after = self.word * 2 + odd + 1                                     # the second column of a thread's word
        st.global_.b32(Ptr(aligned, b32), shifted, pred=after < columns)
        st.global_.b16(Ptr(aligned, b16), cvt.u16.u32(shifted), pred=after == columns)
        st.global_.b16(Ptr(pointer, b16), cvt.u16.u32(word), pred=self.word < min_.u32(odd, columns))

    def tail(self) -> None:
        """No store needs to be waited for."""


class DirectStore:
    """Stores accumulators directly to D, two neighbours per store. For small tiles, where staging would only add latency."""

    def __init__(self, out: Matrix, fused: Fused) -> None:
        self.out, self.fused = out, fused

    def tile(self, acc: list[Vec[Any, Any]], row: Reg[u32], column: Reg[u32], BN: int, batch: Reg[u32] | None = None) -> None:
        """Store m64 blocks by BN columns to D, from `row` and `column` on."""
        for m64, fragment in enumerate(acc):
            for block in range(BN // 8):
                self.block(self.fused.mma.block(fragment, block, m64), row + m64 * ROWS if m64 else row, column + 8 * block, batch)

    def block(self, values: list[Reg[f32]], row: Reg[u32], column: Reg[u32], batch: Reg[u32] | None = None) -> None:
        """Store 64 rows x 8 columns."""
        values = self.fused.block(values, row, column, batch)
        inside = column < self.fused.edges.n
        at = row + self.fused.lane_row
        first = self.out.at(at, column + self.fused.lane_column, batch)
        second = Ptr(mad.wide.u32(self.out.row_stride, self.out.type.bits, first), first.type)      # eight rows: a byte for each bit
        if self.fused.elements == 1:
            self._elements(values, at, column + self.fused.lane_column, first, second)
            return
        for pointer, pair, p in ((first, values[:2], (at < self.fused.edges.m) & inside),
                                 (second, values[2:], (at + 8 < self.fused.edges.m) & inside)):
            if self.out.type is f32:
                st.global_.v2.f32(pointer, Vec((pair[0], pair[1])), pred=p)
            elif self.out.type.bits == 16:
                packed: Reg[b32] = opcode(f"cvt.rn.{self.out.type.__name__}x2.f32")(pair[1], pair[0])
                st.global_.b32(pointer, packed, pred=p)
            else:
                narrow = opcode(f"cvt.rn.satfinite.{self.out.type.__name__}x2.f32")(pair[1], pair[0])
                st.global_.b16(pointer, narrow, pred=p)

    def _elements(self, values: list[Reg[f32]], row: Reg[u32], column: Reg[u32], first: Any, second: Any) -> None:
        """Store a thread's four values of a block one by one."""
        edges = self.fused.edges
        columns = column < edges.n, column + 1 < edges.n
        for pointer, pair, within in ((first, values[:2], row < edges.m), (second, values[2:], row + 8 < edges.m)):
            for place, (value, inside) in enumerate(zip(rounded(pair, self.out.type), columns, strict=True)):
                store_one(pointer.at(place) if place else pointer, value, self.out.type, within & inside)

    def tail(self) -> None:
        """No store needs to be waited for."""


def rounded(pair: Sequence[Reg[f32]], type_: type[Scalar]) -> Sequence[Reg[Any]]:
    """Two values rounded to `type_`, each for `store_one`.

    They are rounded together: ptxas moves a conversion of one value under the store's predicate, past the end of the products, and
    serialises them for that (C7514).
    """
    if type_ is f32:
        return pair
    if type_.bits == 16:
        halves = Vec([mov.b16(0), mov.b16(0)])
        mov.b32(halves, opcode(f"cvt.rn.{type_.__name__}x2.f32")(pair[1], pair[0]))
        return list(halves)
    both = cvt.u32.u16(mov.b16(opcode(f"cvt.rn.satfinite.{type_.__name__}x2.f32")(pair[1], pair[0])))
    return [both, shr.u32(both, 8)]


def store_one(pointer: Any, value: Reg[Any], type_: type[Scalar], p: Any) -> None:
    """Store one value of `rounded` where `p` holds."""
    (st.global_.f32 if type_ is f32 else st.global_.b16 if type_.bits == 16 else st.global_.b8)(pointer, value, pred=p)


def allocate_staging(store: Store | None, mma_warpgroups: int, columns: int, out: type[Scalar],
                     name: str = "D staging") -> Tile[Any] | None:
    """The staging buffers of all mma warpgroups, for tiles with this number of columns. None for direct stores."""
    if not isinstance(store, Staged | Rows):
        return None
    if isinstance(store, Transposed):
        return smem.tile(out, (mma_warpgroups * store.buffers, transposed_rows(columns), ROWS), swizzle=128, name=name)
    span, buffers = span_bytes(columns, out), store.buffers if isinstance(store, Staged) else 1
    return smem.tile(out, (mma_warpgroups * buffers, ROWS, span * 8 // out.bits), swizzle=span, name=name)


def elements_of(store: Store | None) -> int:
    """The neighbours that an epilogue reads and stores at a time."""
    return store.elements if isinstance(store, Direct) else 1 if isinstance(store, Rows | Transposed) else 2


def tile_store(store: Store | None, staging: Tile[Any] | None, d: TensorMap, out: Matrix, thread: MmaThread, fused: Fused,
               together: bool) -> StagedStore | DirectStore | RowStore:
    """The store of a configuration."""
    if staging is not None and isinstance(store, Rows):
        return RowStore(staging, out, thread.warpgroup, thread.thread, fused)
    if staging is None or not isinstance(store, Staged):
        return DirectStore(out, fused)
    kind = TransposedStore if isinstance(store, Transposed) else StagedStore
    return kind(staging, d, thread.warpgroup, thread.thread, fused, buffers=store.buffers, together=together)


def sums_store(staging: Tile[Any] | None, d: TensorMap, thread: MmaThread, sums: PlainSums, buffers: int, *, adds: bool,
               together: bool) -> StagedStore:
    """The store of sums alone; it `adds` them to D, or replaces what is there."""
    assert staging is not None
    kind = AddingStore if adds else StagedStore
    return kind(staging, d, thread.warpgroup, thread.thread, sums, buffers=buffers, together=together)


__all__ = [
    "BUFFERS",
    "AddingStore",
    "DirectStore",
    "Edges",
    "Fused",
    "PlainSums",
    "RowStore",
    "StagedStore",
    "StagedWriter",
    "TransposedStore",
    "Visitor",
    "allocate_staging",
    "elements_of",
    "span_bytes",
    "sums_store",
    "tile_store",
    "transposed_rows",
]
