"""Results in e4m3 with a scale for every 128 columns of a row: the input format of the next block-scaled product."""

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

E4M3_MAX = 448.0
MIN_MAGNITUDE = 1e-10       # lower bound of the magnitude that a scale is computed from: a row of zeros needs a scale too
MAX_REGISTERS = {1: 224, 2: 160, 3: 0}      # of a thread for accumulators and kept values, by the number of mma warpgroups
SCALE_EIGHTS = BLOCK // 8   # blocks of 8 columns that share a scale


def passes(columns: int) -> int:
    """The number of consecutive tiles of `columns` that one CTA computes to complete a block of 128 columns."""
    return max(1, BLOCK // columns)


def kept_bytes(tile: Tile, m64_blocks: int, mma_warpgroups: int, accumulators: int, gated: bool) -> int:
    """Shared memory for the values that a tile keeps for the next one: none if the threads have enough registers."""
    columns = tile.BN // (1 + gated)
    kept = m64_blocks * columns // 2                            # registers of a thread
    return tile.BM * columns * 4 if accumulators + kept > MAX_REGISTERS[mma_warpgroups] else 0


class QuantisedStore:
    """Quantises and stores directly from the registers. Four lanes share a row of the accumulator and reduce its largest magnitude.

    A tile narrower than 128 columns keeps its values until the next tile completes the block. They stay in registers or, with `places`,
    in shared memory, where each `thread` of `threads` has its own places.
    """

    def __init__(self, out: Matrix, scales: ScaleArray, fused: Fused, places: Shared[f32] | None, thread: Reg[u32], threads: int) -> None:
        self.out, self.scales, self.fused = out, scales, fused
        self.mine, self.threads = None if places is None else places.at(thread * 4), threads
        self.lane = fused.lane_column >> 1                      # among the four lanes that share a row
        self.kept: dict[int, list[Callable[[], list[Reg[f32]]]]] = {}

    @classmethod
    def of(cls, epilogue: GroupEpilogue, scales: ScaleArray, places: Shared[f32] | None) -> QuantisedStore:
        """The store of an mma warpgroup of a grouped product."""
        mma_thread, count = epilogue.mma_thread, epilogue.config.warpgroups
        return cls(epilogue.matrix, scales, epilogue.fused, places, mma_thread.warpgroup * WARPGROUP + mma_thread.thread, count * WARPGROUP)

    def tile(self, acc: list[Vec[Any, Any]], row: Reg[u32], column: Reg[u32], BN: int) -> None:
        """Store m64 blocks by BN columns to Y, from `row` and `column` on."""
        for m64, fragment in enumerate(acc):
            at_row = row + m64 * ROWS if m64 else row
            kept = self.kept.pop(m64, [])
            reads = kept + [functools.partial(self._values, fragment, m64, number, at_row, column) for number in range(BN // 8)]
            whole = len(reads) // SCALE_EIGHTS * SCALE_EIGHTS
            for first in range(0, whole, SCALE_EIGHTS):
                self.block([read() for read in reads[first:first + SCALE_EIGHTS]], at_row, column + 8 * (first - len(kept)))
            rest = reads[whole:]
            if rest:
                self.kept[m64] = [self._keep(m64 * len(rest) + number, read()) for number, read in enumerate(rest)]

    def _values(self, fragment: Vec[Any, Any], m64: int, number: int, row: Reg[u32], column: Reg[u32]) -> list[Reg[f32]]:
        return self.fused.block(self.fused.mma.block(fragment, number, m64), row, column + 8 * number, None)

    def _keep(self, number: int, four: list[Reg[f32]]) -> Callable[[], list[Reg[f32]]]:
        """Copy four values for the next tile. They may be accumulators, which that tile overwrites."""
        if self.mine is None:
            kept = [mov.f32(value) for value in four]
            return lambda: kept
        place = self.mine + number * self.threads * 4
        st.shared__cta.v4.f32(place, Vec(four))
        return lambda: list(ld.shared__cta.v4.f32(place))

    def block(self, values: list[list[Reg[f32]]], row: Reg[u32], column: Reg[u32]) -> None:
        """Store 64 rows x 128 columns: the scales, and the scaled values in e4m3."""
        fused = self.fused
        inside, first_lane = column < fused.edges.n, fused.lane_column == 0
        for half in range(2):
            at = row + (fused.lane_row + 8 * half)
            pairs = [four[2 * half:2 * half + 2] for four in values]
            largest = abs_.f32(pairs[0][0])
            for value in [pairs[0][1], *(value for pair in pairs[1:] for value in pair)]:
                largest = max_.f32(largest, abs_.f32(value))
            for distance in (1, 2):
                largest = max_.f32(largest, shfl.sync.bfly.b32(largest, distance, 31, 0xFFFFFFFF))
            scale = mul.rn.f32(max_.f32(largest, MIN_MAGNITUDE), 1 / E4M3_MAX)
            inverse = rcp.rn.f32(scale)
            written = (at < fused.edges.m) & inside
            place = self.scales.pointer.at(mul.wide.u32(at, self.scales.mn_stride)).at(mul.wide.u32(column // BLOCK, self.scales.k_stride))
            st.global_.f32(place, scale, pred=written & first_lane)
            packed = [cvt.rn.satfinite.e4m3x2.f32(mul.rn.f32(high, inverse), mul.rn.f32(low, inverse)) for low, high in pairs]
            place = self.out.at(at, column + self.lane * 32, None)
            for number, four in enumerate(self._of_lane(packed)):
                st.global_.v4.b32(place + 16 * number if number else place, Vec(four), pred=written)

    def _of_lane(self, pairs: Sequence[Any]) -> list[list[Reg[Any]]]:
        """The 32 bytes that this lane stores, as two vectors of 16 bytes.

        Each of the four lanes of a row has a pair of each of the row's 16 blocks of 8 columns. After the exchange it has four whole blocks.
        """
        words = [mov.b32(Vec(pairs[first:first + 2])) for first in range(0, len(pairs), 2)]
        found = []
        for which in range(2):                                  # even words, then odd words: each is exchanged among the four lanes
            one, two, three, four = self._exchanged(words[which::2])
            found.append([prmt.b32(a, b, halves) for halves in (0x5410, 0x7632) for a, b in ((one, two), (three, four))])
        return found

    def _exchanged(self, words: list[Reg[Any]]) -> list[Reg[Any]]:
        """Transpose four words among a row's four lanes: lane i gets word i of each lane."""
        for distance, pairs in ((1, ((0, 1), (2, 3))), (2, ((0, 2), (1, 3)))):
            other, found = (self.lane & distance) != 0, list(words)
            for low, high in pairs:
                given = shfl.sync.bfly.b32(selp.b32(words[low], words[high], other), distance, 31, 0xFFFFFFFF)
                found[low], found[high] = selp.b32(given, words[low], other), selp.b32(words[high], given, other)
            words = found
        return words

    def tail(self) -> None:
        """No store needs to be waited for."""


__all__ = ["E4M3_MAX", "MIN_MAGNITUDE", "QuantisedStore", "passes"]
