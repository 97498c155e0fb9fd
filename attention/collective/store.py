"""The epilogue: normalised outputs by staged tensor copies, and the log-sum-exp of each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ptxkit import Ptr, Reg, Vec, if_
from ptxkit.flow import else_
from ptxkit.gemm.collective.atoms import ROWS, Mma
from ptxkit.gemm.collective.epilogue import StagedStore
from ptxkit.gemm.collective.epilogue_ops import Matrix
from ptxkit.gemm.collective.warpgroups import MmaThread
from ptxkit.ptx import mad, mov, mul, opcode, st
from ptxkit.types import b32, f32, u32

from .work import Shape, Work


@dataclass(slots=True)
class Normalised:
    """The visitor of the epilogue: multiplies each of a thread's two rows by its factor."""

    mma: Mma
    factors: list[Reg[f32]]

    def block(self, values: list[Reg[f32]], row: Reg[u32], column: Reg[u32], batch: Reg[u32] | None) -> list[Reg[f32]]:
        """The first two values are of row r, the others of row r + 8."""
        return [mul.rn.f32(value, self.factors[i // 2]) for i, value in enumerate(values)]


class HeadStore(StagedStore):
    """Stores 64 rows of one head by a tensor map of rank 4."""

    head: Any = None

    def coordinates(self, column: Reg[u32], row: Reg[u32], batch: Reg[u32] | None) -> tuple[Any, ...]:
        return column, row, self.head, batch

    def rows(self, output: Vec[f32, Any], work: Work, here: MmaThread, columns: int) -> None:
        """Store this warpgroup's rows of a tile."""
        self.head = work.head
        self.tile([output], here.tile_row(work.row) + work.start, mov.u32(0), columns, work.batch)


@dataclass(frozen=True, slots=True)
class PackedStore:
    """Stores 64 rows of one head of a sequence: whole ones as `HeadStore` does. The last ones are stored from the registers, because the
    rows after them are another sequence's."""

    whole: HeadStore
    out: Matrix                                 # its batches are heads
    normalised: Normalised

    def rows(self, output: Vec[f32, Any], work: Work, here: MmaThread, columns: int) -> None:
        """Store this warpgroup's rows of a tile, as far as the sequence has them."""
        first = here.tile_row(work.row)
        with if_(first + ROWS <= work.queries):
            self.whole.rows(output, work, here, columns)
        with else_():
            self._last(output, work, first + here.row, here.column, columns)

    def _last(self, output: Vec[f32, Any], work: Work, row: Reg[u32], column: Reg[u32], columns: int) -> None:
        pack = opcode(f"cvt.rn.{self.out.type.__name__}x2.f32")
        place = self.out.at(row + work.start, column, work.head).cast(b32)
        for half in range(2):
            inside = row + 8 * half < work.queries
            line = Ptr(mad.wide.u32(self.out.row_stride, self.out.type.bits, place), b32) if half else place    # 8 rows: a byte a bit
            for block in range(columns // 8):
                values = self.normalised.block(self.normalised.mma.block(output, block), row, column, None)[2 * half:2 * half + 2]
                word: Reg[b32] = pack(values[1], values[0])
                st.global_.b32(line + 4 * block, word, pred=inside)

    def tail(self) -> None:
        """Before the warpgroup exits: wait until its stores have completed."""
        self.whole.tail()


def store_lse(lse: Ptr[f32], values: list[Reg[f32]], work: Work, here: MmaThread, shape: Shape) -> None:
    """Store the log-sum-exp of the warpgroup's rows, one lane a row. `lse` is [batches, heads, queries]."""
    first = work.row + here.first_row + here.row
    place = lse.at((work.batch * shape.heads + work.head) * shape.queries + (first + work.start))
    with if_((here.column == 0) & (first < work.queries)):
        st.global_.f32(place, values[0])
        with if_(first + 8 < work.queries):
            st.global_.f32(place + 8, values[1])


__all__ = ["HeadStore", "Normalised", "PackedStore", "store_lse"]
