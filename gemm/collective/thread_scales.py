"""Block scales of fp8 operands that the mma threads read from global memory one stage ahead, and apply to each stage's product."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gcd
from typing import Any

from ptxkit import Ptr, Reg
from ptxkit.ptx import ld, mov, mul
from ptxkit.ptx import min as min_
from ptxkit.types import f32, u32

BLOCK = 128                 # of K for both operands, and of N for B


@dataclass(frozen=True, slots=True)
class ScaleArray:
    """float32 scales and their strides in elements along M or N, and along K."""

    pointer: Ptr[f32]
    mn_stride: Reg[u32]
    k_stride: Reg[u32]

    def at(self, index: Any) -> ScaleArray:
        """The scales from element `index` on."""
        return ScaleArray(self.pointer.at(index), self.mn_stride, self.k_stride)


@dataclass(slots=True)
class Scales:
    """The factors of one warpgroup's accumulators. Without arrays every factor is 1: sums are promoted, but not scaled.

    A has a scale for each row and 128 of K, B for each 128 columns and 128 of K. A thread needs the scales of two rows per m64 block, and
    of every block of columns that a tile of BN columns can touch.
    """

    a: ScaleArray | None
    b: ScaleArray | None
    m64_blocks: int
    BN: int
    step: int = BLOCK                           # with a gate: the number of features is a multiple of it
    _a_rows: list[Ptr[f32]] = field(default_factory=list)
    _b_columns: list[Ptr[f32]] = field(default_factory=list)
    _next: list[Reg[f32]] = field(default_factory=list)
    _now: list[Reg[f32]] = field(default_factory=list)
    _factors: dict[Any, Reg[f32]] = field(default_factory=dict)

    @property
    def group(self) -> int:
        """The number of adjacent columns of a tile that always share a scale."""
        return gcd(self.BN, BLOCK)

    def begin(self, row: Reg[u32], column: Reg[u32], rows: Reg[u32], columns: Reg[u32], first: Any = 0) -> None:
        """Begin a tile: this thread's row in the first m64 block, the tile's first column, and the extents of the problem."""
        self._a_rows, self._b_columns = [], []
        if self.a is not None:
            for m64 in range(self.m64_blocks):
                for half in (0, 8):
                    at = min_.u32(row + (m64 * 64 + half), rows - 1)
                    self._a_rows.append(self._start(self.a, at, first))
        if self.b is not None:
            last = (columns - 1) // BLOCK
            for group in range(self.BN // self.group):
                block = min_.u32((column + group * self.group) // BLOCK, last)
                self._b_columns.append(self._start(self.b, block, first))
        count = len(self._a_rows) + len(self._b_columns)
        self._next = [mov.f32(1.0) for _ in range(count)]

    def _start(self, array: ScaleArray, index: Reg[u32], first: Any) -> Ptr[f32]:
        pointer = array.pointer.at(mul.wide.u32(index, array.mn_stride))
        return pointer if isinstance(first, int) and first == 0 else pointer.at(mul.wide.u32(first, array.k_stride))

    def prefetch(self, k: Reg[u32] | int) -> None:
        """Begin to read the scales of stage `k`."""
        for i, pointer in enumerate([*self._a_rows, *self._b_columns]):
            array = self.a if i < len(self._a_rows) else self.b
            assert array is not None
            at = pointer if isinstance(k, int) and k == 0 else pointer.at(mul.wide.u32(k, array.k_stride))
            ld.global_.nc.f32(self._next[i], at)

    def take(self) -> None:
        """Begin a stage: use the scales that were prefetched last."""
        self._now = [mov.f32(register) for register in self._next]
        self._factors = {}

    def factor(self, m64: int, index: int) -> Reg[f32] | float:
        """The factor of accumulator `index` of an m64 block."""
        rows, columns = len(self._a_rows), len(self._b_columns)
        if not rows and not columns:
            return 1.0
        row = 2 * m64 + (index % 4) // 2
        column = index // 4 * 8 // self.group
        key = (row if rows else None, column if columns else None)
        if key not in self._factors:
            factors = ([self._now[row]] if rows else []) + ([self._now[rows + column]] if columns else [])
            self._factors[key] = factors[0] if len(factors) == 1 else mul.rn.f32(*factors)
        return self._factors[key]


__all__ = ["BLOCK", "ScaleArray", "Scales"]
