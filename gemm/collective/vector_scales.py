"""Scales of whole rows and columns of a product: one float32 for each row of A, one for each column of B, or both.

They multiply the sums of a tile before everything else of the epilogue. Nothing is emitted for a product without them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from ptxkit import Ptr, Reg, Vec
from ptxkit.ptx import ld, mul, shfl
from ptxkit.ptx import min as min_
from ptxkit.types import f32, u32

from .atoms import ROWS, Mma
from .epilogue_ops import Fusion, FusionArguments
from .warpgroups import MmaThread

CHUNK = 64                  # columns whose scales the 32 lanes of a warp hold, two each
BLOCKS = CHUNK // 8         # of 8 columns in a chunk
OWN_QUARTER = 3 << 8 | 31   # operand c of shfl.idx: the source keeps the two low bits of the lane, operand b gives the others

When = Literal["before", "after", "parts"]


def held(m64_blocks: int, BN: int, parts: int = 1) -> int:
    """The registers of a thread for the scales of a tile's rows, and of its columns, which are those of so many projections."""
    return 2 * m64_blocks + parts * 2 * -(-BN // parts // CHUNK)


@dataclass(slots=True)
class VectorScales:
    """The scales of the rows and columns of a tile, in the registers of one warpgroup.

    A thread holds the scales of its two rows of each m64 block. Of the columns, lane l holds 64 j + 2 l and 64 j + 2 l + 1 for each chunk j
    of 64. In block i of 8 columns lane l needs those that lane 4 (i % 8) + l % 4 holds: two shuffles. Loads past the end of D are those of
    its last row or column.

    `when` the scales of a tile are read: "before" its products, so that no thread waits for them, or "after" them, where the sums leave too
    few registers; "parts": by the split-K reduction, for the columns that the CTA stores.

    `gated`: the second half of the columns, or every other m64 block of the rows, has the features of the up projection, whose scales
    follow those of the gate after `features`.
    """

    rows: Ptr[f32] | None
    columns: Ptr[f32] | None
    thread: MmaThread
    BN: int
    m: Reg[u32]
    n: Reg[u32]
    when: When = "before"
    gated: Literal["", "rows", "columns"] = ""
    features: Reg[u32] | None = None
    _rows: list[Reg[f32]] = field(default_factory=list)
    _columns: list[list[Reg[f32]]] = field(default_factory=list)

    @classmethod
    def of(cls, fusion: Fusion, given: FusionArguments, thread: MmaThread, BN: int, m: Reg[u32], n: Reg[u32], when: When) -> VectorScales:
        """Those of a fusion; without vectors of scales nothing is read."""
        return cls(given.a_scale if fusion.scale in ("row", "row_column") else None,
                   given.b_scale if fusion.scale in ("column", "row_column") else None, thread, BN, m, n, when)

    @contextmanager
    def read(self, row: Reg[u32], column: Reg[u32]) -> Iterator[None]:
        """Around the products of a tile whose rows of this warpgroup begin at `row`, and whose columns at `column`."""
        if self.when == "before":
            self.begin(row, column)
        yield
        if self.when == "after":
            self.begin(row, column)

    def begin(self, row: Reg[u32], column: Reg[u32], count: int = 0) -> None:
        """Read the scales of the rows from `row` on, and those of `count` columns (0: a tile's) from `column` on."""
        if self.rows is not None:
            first, last = row + self.thread.row, self.m - 1
            projections = 2 if self.gated == "rows" else 1
            self._rows = [self._scale(self.rows, first, m64 // projections * ROWS + half, last, m64 % projections)
                          for m64 in range(self.thread.m64_blocks) for half in (0, 8)]
        if self.columns is not None:
            first, last = column + self.thread.lane * 2, self.n - 1
            self._columns = [[self._scale(self.columns, first, chunk + at, last, up) for at in (0, 1)]
                             for up in range(self.parts) for chunk in range(0, (count or self.BN) // self.parts, CHUNK)]

    @property
    def parts(self) -> int:
        """The projections of which the columns of a tile have features."""
        return 2 if self.gated == "columns" else 1

    def _scale(self, scales: Ptr[f32], first: Reg[u32], at: int, last: Reg[u32], up: int) -> Reg[f32]:
        index = min_.u32(first + at if at else first, last)
        return ld.global_.nc.f32(scales.at(index + self.features if up and self.features is not None else index))

    def begin_part(self, row: Reg[u32], column: Reg[u32], part: Reg[u32], blocks: int) -> None:
        """Read those of the rows, and of the columns of one part of the tile, which has this many blocks of 8."""
        if self.rows is not None or self.columns is not None:
            self.begin(row, column + part * (8 * blocks), 8 * blocks)

    def scaled(self, values: list[Reg[f32]], m64: int, block: int) -> list[Reg[f32]]:
        """A thread's four sums in the 8 columns of this block, times their scales."""
        if self._rows:
            values = [mul.rn.f32(value, self._rows[2 * m64 + i // 2]) for i, value in enumerate(values)]
        if self._columns:
            up, block = divmod(block, self.BN // 8 // self.parts) if self.parts > 1 else (0, block)
            chunk, place = divmod(block, BLOCKS)
            chunk += up * len(self._columns) // 2
            pair: Any = [shfl.sync.idx.b32(scale, 4 * place, OWN_QUARTER, 0xFFFFFFFF) for scale in self._columns[chunk]]
            values = [mul.rn.f32(value, pair[i % 2]) for i, value in enumerate(values)]
        return values


@dataclass(frozen=True, slots=True)
class ScaledMma(Mma):
    """An accumulator whose sums have scales of their rows and columns."""

    scales: VectorScales | None = None

    @classmethod
    def of(cls, atom: Mma, scales: VectorScales) -> ScaledMma:
        """The accumulator of an atom."""
        return cls(atom.a, atom.b, atom.n, atom.accumulator, scales)

    def block(self, acc: Vec[Any, Any], index: int, m64: int = 0) -> list[Reg[f32]]:
        """The scaled sums of 8 columns."""
        values = Mma.block(self, acc, index)
        return values if self.scales is None else self.scales.scaled(values, m64, index)


__all__ = ["ScaledMma", "VectorScales", "When", "held"]
