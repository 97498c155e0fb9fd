"""Layer 3, collective epilogue: stores one warpgroup's accumulators to D, by staged tensor copies or directly from the registers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from ptxkit import Reg, TensorMap, Vec, if_, laneid, smem
from ptxkit.ptx import bar, cp, fence, mov, opcode, st, stmatrix, xor
from ptxkit.smem import Tile, TileView
from ptxkit.types import Scalar, b32, f32, u32

from ..config.parts import Staged, Store
from .atoms import ROWS, WARPGROUP, Mma
from .epilogue_ops import Fusion, FusionOperands, Matrix, apply
from .warpgroups import MmaThread

BUFFERS = 2                 # staging buffers of a warpgroup by default; each has 64 rows of one swizzle span


def span_bytes(BN: int, out: type[Scalar]) -> int:
    """The width of a store box: the widest swizzle span that divides a tile's row."""
    return next(span for span in (128, 64, 32) if BN * out.bits // 8 % span == 0)


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

    def block(self, values: list[Reg[f32]], row: Reg[u32], column: Reg[u32], batch: Reg[u32] | None) -> list[Reg[f32]]:
        """Apply the fusion to a thread's four accumulators in 8 columns from `column` of the m64 block from `row`."""
        if self.fusion.nothing:
            return values
        return apply(self.fusion, self.operands, values, row + self.lane_row, column + self.lane_column, self.edges.m,
                     column < self.edges.n, batch)


class StagedStore:
    """Writes accumulators to swizzled rows in shared memory, and these to D by tensor copies that overlap the next tile.

    Each warpgroup has `buffers` of 64 rows by one span: at least two, unless they are written `together`. Before a buffer is written, the
    leader thread waits until the previous store from it has read it. Every writer executes fence.proxy.async before the barrier that
    precedes the store. `together`: all buffers are written between two barriers, after their previous stores have read them. If all
    warpgroups store at the same time, a tile waits mainly for barriers, and this saves some (192 x 128 in three warpgroups gains 1.8 %).
    A warpgroup that stores while another one multiplies loses 0.5 %.
    """

    def __init__(self, staging: Tile[Any], d: TensorMap, warpgroup: Reg[u32], thread: Reg[u32], fused: Visitor, *,
                 buffers: int = BUFFERS, together: bool = False) -> None:
        self.layout, self.staging, self.d, self.fused = staging.layout, staging, d, fused
        self.barrier, self.buffers, self.together = warpgroup + 1, buffers, together
        self.leader = thread == 0
        self.view = staging[warpgroup * buffers]
        span = self.layout.span_bytes
        warp_row = (thread >> 5) * 16
        in_warp = mov.u32(laneid)
        # stmatrix: lane l addresses row l % 16 of the warp's 16 rows, 16-byte column l / 16. The swizzle XORs the column with the row's
        # place in the pattern. For f32, lane l writes rows l / 4 and l / 4 + 8, columns 2 (l % 4) and the next one.
        if self.layout.type is f32:
            row, chunk, rest = in_warp >> 2, (in_warp & 3) >> 1, (in_warp & 1) * 8
        else:
            row, chunk, rest = in_warp & 15, in_warp >> 4, None
        pattern = row & 7 if span == 128 else row >> 1 & 3 if span == 64 else row >> 2 & 1
        address = self.view.register() + (warp_row + row) * span + ((pattern ^ chunk) << 4)
        address = address if rest is None else address + rest
        # The staging is aligned to the swizzle pattern, so 16-byte columns 2i and 2i + 1 are reached by XOR with a constant at bit 5.
        self.addresses = [address if i == 0 else xor.b32(address, i << 5) for i in range(span // 32)]

    def tile(self, acc: list[Vec[Any, Any]], row: Reg[u32], column: Reg[u32], BN: int, batch: Reg[u32] | None = None) -> None:
        """Store m64 blocks by BN columns to D, from `row` and `column` on."""
        per_box, at_once = self.layout.columns, self.buffers if self.together else 1
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
                blocks = [self.fused.block(self.fused.mma.block(acc[m64], j * per_box // 8 + i), at_row, at_column + 8 * i, batch)
                          for i in range(per_box // 8)]
                if self.layout.type is f32:
                    self._write_f32(blocks, offset)
                else:
                    self._write_16(blocks, offset)
                stores.append((offset, at_column, at_row))
            fence.proxy.async_.shared__cta()
            bar.sync(self.barrier, b=WARPGROUP)
            with if_(self.leader):
                for offset, at_column, at_row in stores:
                    source: TileView[Any] = TileView(self.layout, self.view.offset + offset, self.view.dynamic, per_box, ROWS)
                    coordinates = self.coordinates(at_column, at_row, batch)
                    store: Any = opcode(f"cp.async.bulk.tensor.{len(coordinates)}d.global.shared::cta.tile.bulk_group")
                    store(self.tensormap(), coordinates, source)
                cp.async_.bulk.commit_group()

    def coordinates(self, column: Reg[u32], row: Reg[u32], batch: Reg[u32] | None) -> tuple[Any, ...]:
        """The tensor map's coordinates of the box of 64 rows that begins at this element of D. Only the leader calls it."""
        return (column, row) if batch is None else (column, row, batch)

    def tensormap(self) -> Any:
        """The tensor map of D. Only the leader calls it."""
        return self.d

    def _write_16(self, blocks: list[list[Reg[f32]]], offset: int) -> None:
        """Each stmatrix writes 16 rows x 16 columns of the warp."""
        pack = opcode(f"cvt.rn.{self.layout.type.__name__}x2.f32")
        for i in range(0, len(blocks), 2):
            packed = Vec([pack(four[2 * half + 1], four[2 * half]) for four in blocks[i:i + 2] for half in range(2)])
            stmatrix.sync.aligned.m8n8.x4.shared__cta.b16(smem.SharedAddress(offset, self.addresses[i // 2]), packed)

    def _write_f32(self, blocks: list[list[Reg[f32]]], offset: int) -> None:
        """One 8-byte store for each block of 8 columns and each row."""
        for i, four in enumerate(blocks):
            for half in range(2):
                place = smem.SharedAddress(offset + half * 8 * self.layout.span_bytes, self.addresses[i])
                st.shared__cta.v2.f32(place, Vec(four[2 * half:2 * half + 2]))

    def tail(self) -> None:
        """Before the warpgroup exits: wait until its stores have completed."""
        cp.async_.bulk.wait_group(0, pred=self.leader)


class DirectStore:
    """Stores accumulators directly to D, two neighbours per store. For small tiles, where staging would only add latency."""

    def __init__(self, out: Matrix, fused: Fused) -> None:
        self.out, self.fused = out, fused

    def tile(self, acc: list[Vec[Any, Any]], row: Reg[u32], column: Reg[u32], BN: int, batch: Reg[u32] | None = None) -> None:
        """Store m64 blocks by BN columns to D, from `row` and `column` on."""
        for m64, fragment in enumerate(acc):
            for block in range(BN // 8):
                self.block(self.fused.mma.block(fragment, block), row + m64 * ROWS if m64 else row, column + 8 * block, batch)

    def block(self, values: list[Reg[f32]], row: Reg[u32], column: Reg[u32], batch: Reg[u32] | None = None) -> None:
        """Store 64 rows x 8 columns."""
        values = self.fused.block(values, row, column, batch)
        inside = column < self.fused.edges.n
        at = row + self.fused.lane_row
        first = self.out.at(at, column + self.fused.lane_column, batch)
        second = first.at(self.out.row_stride * 8)
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

    def tail(self) -> None:
        """No store needs to be waited for."""


def allocate_staging(store: Store | None, mma_warpgroups: int, columns: int, out: type[Scalar],
                     name: str = "D staging") -> Tile[Any] | None:
    """The staging buffers of all mma warpgroups, for tiles with this number of columns. None for direct stores."""
    if not isinstance(store, Staged):
        return None
    span = span_bytes(columns, out)
    return smem.tile(out, (mma_warpgroups * store.buffers, ROWS, span * 8 // out.bits), swizzle=span, name=name)


def tile_store(store: Store | None, staging: Tile[Any] | None, d: TensorMap, out: Matrix, thread: MmaThread, fused: Fused,
               together: bool) -> StagedStore | DirectStore:
    """The store of a configuration."""
    if staging is None or not isinstance(store, Staged):
        return DirectStore(out, fused)
    return StagedStore(staging, d, thread.warpgroup, thread.thread, fused, buffers=store.buffers, together=together)


__all__ = ["BUFFERS", "DirectStore", "Edges", "Fused", "StagedStore", "Visitor", "allocate_staging", "span_bytes", "tile_store"]
