"""Results in e4m3, every 128 columns of a row with a scale of their own: what the next product with block scales reads."""

from __future__ import annotations

from typing import Any

from ptxkit import Reg, Vec
from ptxkit.ptx import abs as abs_
from ptxkit.ptx import cvt, mul, rcp, shfl, st
from ptxkit.ptx import max as max_
from ptxkit.types import f32, u32

from ..atoms import ROWS
from ..epilogue import Fused
from ..fusion import Matrix
from ..scales import BLOCK, ScaleArray

LARGEST = 448.0             # of e4m3
LEAST = 1e-10               # magnitude that a row's scale stands for, so that a row of zeros has one


def passes(columns: int) -> int:
    """Tiles of so many columns that one CTA works on in turn, until it has whole blocks of 128."""
    return max(1, BLOCK // columns)


class QuantisedStore:
    """Straight from the registers: the largest magnitude of 128 columns lies in the four lanes that have a row of the accumulator.

    Of narrower tiles the values are kept until those of the next one complete the block.
    """

    def __init__(self, out: Matrix, scales: ScaleArray, fused: Fused) -> None:
        self.out, self.scales, self.fused = out, scales, fused
        self.kept: dict[int, list[list[Reg[f32]]]] = {}

    def tile(self, acc: list[Vec[Any, Any]], row: Reg[u32], column: Reg[u32], BN: int) -> None:
        """Slabs of 64 x BN, rows `row`.. and columns `column`.. of Y."""
        for slab, fragment in enumerate(acc):
            at_row = row + slab * ROWS if slab else row
            kept = self.kept.setdefault(slab, [])
            for number in range(BN // 8):
                at = column + 8 * number
                kept.append(self.fused.block(self.fused.mma.block(fragment, number), at_row, at, None))
                if 8 * len(kept) == BLOCK:
                    self.block(kept, at_row, at - (BLOCK - 8))
                    kept.clear()

    def block(self, values: list[list[Reg[f32]]], row: Reg[u32], column: Reg[u32]) -> None:
        """64 rows x 128 columns: scales, and what is left in e4m3."""
        fused = self.fused
        inside, first_lane = column < fused.edges.n, fused.lane_column == 0
        for half in range(2):
            at = row + (fused.lane_row + 8 * half)
            pairs = [four[2 * half:2 * half + 2] for four in values]
            most = abs_.f32(pairs[0][0])
            for value in [pairs[0][1], *(value for pair in pairs[1:] for value in pair)]:
                most = max_.f32(most, abs_.f32(value))
            for distance in (1, 2):
                most = max_.f32(most, shfl.sync.bfly.b32(most, distance, 31, 0xFFFFFFFF))
            scale = mul.rn.f32(max_.f32(most, LEAST), 1 / LARGEST)
            inverse = rcp.rn.f32(scale)
            written = (at < fused.edges.m) & inside
            place = self.scales.pointer.at(mul.wide.u32(at, self.scales.mn_stride)).at(mul.wide.u32(column // BLOCK, self.scales.k_stride))
            st.global_.f32(place, scale, pred=written & first_lane)
            line = self.out.at(at, column + fused.lane_column, None)
            for number, (low, high) in enumerate(pairs):
                packed = cvt.rn.satfinite.e4m3x2.f32(mul.rn.f32(high, inverse), mul.rn.f32(low, inverse))
                st.global_.b16(line + 8 * number if number else line, packed, pred=written)

    def drain(self) -> None:
        """Nothing is under way."""


__all__ = ["LARGEST", "LEAST", "QuantisedStore", "passes"]
