"""Epilogue of grouped products whose rows are stored, or added, to rows of the result by number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ptxkit import Ptr, Reg, Vec
from ptxkit.fragments import pack
from ptxkit.ptx import ld, mov, red, st
from ptxkit.types import bf16, f32, pred, u32

from .atoms import ROWS
from .epilogue import Fused, rounded, store_one
from .epilogue_ops import Matrix

NOWHERE = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Scattered:
    """Where rows go, as kernel parameters: for each row of the product the number of its row of Y, and how many rows Y has."""

    numbers: Ptr[u32]
    rows: Reg[u32]


class ScatteredStore:
    """Stores accumulators directly to the rows of Y that the numbers say; those of no row go nowhere. `add`: they are added to what is
    there by atomic additions of two neighbours, in no particular order.

    A thread has two rows of each m64 block, whose numbers it reads once a tile.
    """

    def __init__(self, out: Matrix, fused: Fused, scattered: Scattered, *, add: bool) -> None:
        self.out, self.fused, self.scattered, self.add = out, fused, scattered, add

    def tile(self, acc: list[Vec[Any, Any]], row: Reg[u32], column: Reg[u32], BN: int) -> None:
        """Store m64 blocks by BN columns, of the product's rows from `row` and columns from `column` on."""
        fused, first = self.fused, column + self.fused.lane_column
        for m64, fragment in enumerate(acc):
            begins = row + m64 * ROWS if m64 else row
            lines = [self._line(begins + fused.lane_row + half if half else begins + fused.lane_row, first) for half in (0, 8)]
            for block in range(BN // 8):
                at = column + 8 * block if block else column
                values = fused.block(fused.mma.block(fragment, block, m64), begins, at, None)
                for (line, there), pair in zip(lines, (values[:2], values[2:]), strict=True):
                    self._pair(line.at(8 * block) if block else line, pair, first + 8 * block if block else first, there)

    def _line(self, row: Reg[u32], column: Reg[u32]) -> tuple[Ptr[Any], Reg[pred]]:
        """Where a row of the product goes, from this column on, and whether it goes anywhere."""
        number = mov.u32(NOWHERE)
        ld.global_.nc.u32(number, self.scattered.numbers.at(row), pred=row < self.fused.edges.m)
        return self.out.at(number, column, None), number < self.scattered.rows

    def _pair(self, place: Ptr[Any], pair: list[Reg[f32]], column: Reg[u32], there: Reg[pred]) -> None:
        """Store or add two neighbouring values."""
        type_, n = self.out.type, self.fused.edges.n
        if self.fused.elements == 1:
            for at, value in enumerate(pair if self.add else rounded(pair, type_)):
                where = there & (column + at < n if at else column < n)
                target = place.at(at) if at else place
                red.relaxed.gpu.global_.add.f32(target, value, pred=where) if self.add else store_one(target, value, type_, where)
            return
        where, word = there & (column < n), self._word(pair)
        if type_ is f32:
            (red.relaxed.gpu.global_.add.v2.f32 if self.add else st.global_.v2.f32)(place, word, pred=where)
        elif self.add:
            of = red.relaxed.gpu.global_.add.noftz
            (of.bf16x2 if type_ is bf16 else of.f16x2)(place, word, pred=where)
        else:
            st.global_.b32(place, word, pred=where)

    def _word(self, pair: list[Reg[f32]]) -> Any:
        return Vec(pair) if self.out.type is f32 else pack(self.out.type, *pair)

    def tail(self) -> None:
        """No store needs to be waited for."""


__all__ = ["Scattered", "ScatteredStore"]
