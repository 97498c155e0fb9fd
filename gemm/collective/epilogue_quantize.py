"""Results in e4m3, every 128 columns of a row with a scale of their own: what the next product with block scales reads."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ptxkit import Reg, Vec
from ptxkit.ptx import abs as abs_
from ptxkit.ptx import cvt, ld, mov, mul, prmt, rcp, selp, shfl, st
from ptxkit.ptx import max as max_
from ptxkit.smem import Shared
from ptxkit.types import f32, u32

from ..config.parts import Tile
from .atoms import ROWS, WARPGROUP
from .epilogue import Fused
from .epilogue_ops import Matrix
from .thread_scales import BLOCK, ScaleArray

if TYPE_CHECKING:
    from .epilogue_groups import GroupEpilogue

LARGEST = 448.0             # of e4m3
LEAST = 1e-10               # magnitude that a row's scale stands for, so that a row of zeros has one
ROOM = {1: 224, 2: 160, 3: 0}       # registers of a thread for sums and what is kept, by consumer warpgroups
EIGHTS = BLOCK // 8         # blocks of 8 columns that have a scale together


def passes(columns: int) -> int:
    """Tiles of so many columns that one CTA works on in turn, until it has whole blocks of 128."""
    return max(1, BLOCK // columns)


def kept_bytes(tile: Tile, m64_blocks: int, mma_warpgroups: int, accumulators: int, gated: bool) -> int:
    """Shared memory for what a tile keeps for the next one: none where its threads have registers for it next to their sums."""
    columns = tile.BN // (1 + gated)
    kept = m64_blocks * columns // 2                            # registers of a thread
    return tile.BM * columns * 4 if accumulators + kept > ROOM[mma_warpgroups] else 0


class QuantisedStore:
    """Straight from the registers: the largest magnitude of 128 columns lies in the four lanes that have a row of the accumulator.

    Of narrower tiles the values are kept until those of the next one complete the block: in registers, or in shared memory, where each
    `thread` of `threads` has places of its own.
    """

    def __init__(self, out: Matrix, scales: ScaleArray, fused: Fused, places: Shared[f32] | None, thread: Reg[u32], threads: int) -> None:
        self.out, self.scales, self.fused = out, scales, fused
        self.mine, self.threads = None if places is None else places.at(thread * 4), threads
        self.lane = fused.lane_column >> 1                      # of the four that have a row
        self.kept: dict[int, list[Callable[[], list[Reg[f32]]]]] = {}

    @classmethod
    def of(cls, epilogue: GroupEpilogue, scales: ScaleArray, places: Shared[f32] | None) -> QuantisedStore:
        """What an mma warpgroup of a grouped product stores with."""
        here, count = epilogue.here, epilogue.config.warpgroups
        return cls(epilogue.matrix, scales, epilogue.fused, places, here.warpgroup * WARPGROUP + here.thread, count * WARPGROUP)

    def tile(self, acc: list[Vec[Any, Any]], row: Reg[u32], column: Reg[u32], BN: int) -> None:
        """m64 blocks by BN columns, rows `row`.. and columns `column`.. of Y."""
        for m64, fragment in enumerate(acc):
            at_row = row + m64 * ROWS if m64 else row
            before = self.kept.pop(m64, [])
            reads = before + [functools.partial(self._values, fragment, number, at_row, column) for number in range(BN // 8)]
            whole = len(reads) // EIGHTS * EIGHTS
            for first in range(0, whole, EIGHTS):
                self.block([read() for read in reads[first:first + EIGHTS]], at_row, column + 8 * (first - len(before)))
            rest = reads[whole:]
            if rest:
                self.kept[m64] = [self._keep(m64 * len(rest) + number, read()) for number, read in enumerate(rest)]

    def _values(self, fragment: Vec[Any, Any], number: int, row: Reg[u32], column: Reg[u32]) -> list[Reg[f32]]:
        return self.fused.block(self.fused.mma.block(fragment, number), row, column + 8 * number, None)

    def _keep(self, number: int, four: list[Reg[f32]]) -> Callable[[], list[Reg[f32]]]:
        """Four values, for later: they may be accumulators, which the next tile overwrites."""
        if self.mine is None:
            kept = [mov.f32(value) for value in four]
            return lambda: kept
        place = self.mine + number * self.threads * 4
        st.shared__cta.v4.f32(place, Vec(four))
        return lambda: list(ld.shared__cta.v4.f32(place))

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
            packed = [cvt.rn.satfinite.e4m3x2.f32(mul.rn.f32(high, inverse), mul.rn.f32(low, inverse)) for low, high in pairs]
            place = self.out.at(at, column + self.lane * 32, None)
            for number, four in enumerate(self._of_lane(packed)):
                st.global_.v4.b32(place + 16 * number if number else place, Vec(four), pred=written)

    def _of_lane(self, pairs: Sequence[Any]) -> list[list[Reg[Any]]]:
        """Four lanes have a row, and of each of its 16 blocks of 8 columns a pair: the four blocks that this one stores, twice 16 bytes."""
        words = [mov.b32(Vec(pairs[first:first + 2])) for first in range(0, len(pairs), 2)]
        found = []
        for which in range(2):                                  # of the two words of each four blocks: from all lanes
            one, two, three, four = self._exchanged(words[which::2])
            found.append([prmt.b32(a, b, halves) for halves in (0x5410, 0x7632) for a, b in ((one, two), (three, four))])
        return found

    def _exchanged(self, words: list[Reg[Any]]) -> list[Reg[Any]]:
        """Of words 0 to 3 of a row's four lanes, in lane i word i of each."""
        for distance, pairs in ((1, ((0, 1), (2, 3))), (2, ((0, 2), (1, 3)))):
            other, found = (self.lane & distance) != 0, list(words)
            for low, high in pairs:
                given = shfl.sync.bfly.b32(selp.b32(words[low], words[high], other), distance, 31, 0xFFFFFFFF)
                found[low], found[high] = selp.b32(given, words[low], other), selp.b32(words[high], given, other)
            words = found
        return words

    def tail(self) -> None:
        """Nothing is under way."""


__all__ = ["LARGEST", "LEAST", "QuantisedStore", "passes"]
