"""A tile of D in the registers of 256 threads, for the steps on the CUDA cores."""

from __future__ import annotations

from typing import cast

from ptxkit import Ptr, Reg, Shared, tid
from ptxkit.ptx import and_, cvt, fma, ld, mov, shl, st
from ptxkit.types import b32, bf16, f32, u32

BM = BN = 128
BK = 16
THREADS = 256
CHUNK = 4                   # elements of K that a thread reads at once: two words
ROW = BK // 2 + 4           # words of a row in shared memory: 8 of data and 4 of padding, so 8 rows start in 8 different groups of banks
TILE = BM * ROW             # words of a tile

Words = list[tuple[Reg[b32], Reg[b32]]]


class ThreadTile:
    """8 x 8 elements per thread, 64 x 32 per warp, 128 x 128 per block.

    A warp has 8 x 4 lanes. The eight lanes of a column read eight rows of A from different banks; the four lanes of a row read the same row
    of A. A value read from shared memory serves eight multiplications.
    """

    def __init__(self) -> None:
        thread = mov.u32(tid.x)
        lane, warp = thread & 31, thread >> 5
        self.row = (warp & 1) * 64 + (lane & 7)                  # and every eighth row from there
        self.column = (warp >> 1) * 32 + (lane >> 3) * 2         # and the next one; the same in every 8 columns
        self.acc = [[mov.f32(0.0) for _ in range(8)] for _ in range(8)]

    def read(self, a: Shared[b32], b: Shared[b32], chunk: int) -> tuple[Words, Words]:
        """Read this thread's rows of A and of B, `CHUNK` elements of K each."""
        a_rows, b_rows = a.at(self.row * ROW), b.at(self.column * ROW)
        return ([_pair(a_rows, i * 8 * ROW + chunk * 2) for i in range(8)],
                [_pair(b_rows, (j // 2 * 8 + j % 2) * ROW + chunk * 2) for j in range(8)])

    def multiply(self, words: tuple[Words, Words]) -> None:
        """Add the outer products of what `read` returned."""
        for e in range(CHUNK):
            a, b = ([_element(pair, e) for pair in side] for side in words)
            for i in range(8):
                for j in range(8):
                    fma.rn.f32(self.acc[i][j], a[i], b[j], self.acc[i][j])

    def store(self, d: Ptr[bf16], row: Reg[u32], column: Reg[u32], n: Reg[u32]) -> None:
        """Store the tile at (row, column) of D."""
        line = d.at((row + self.row) * n + column + self.column)
        for i in range(8):
            for j in range(0, 8, 2):
                st.global_.b32(line + j * 4, cvt.rn.bf16x2.f32(self.acc[i][j + 1], self.acc[i][j]))
            line = line.at(n * 8) if i < 7 else line


def _pair(place: Shared[b32], offset: int) -> tuple[Reg[b32], Reg[b32]]:
    two = ld.shared__cta.v2.b32(place + offset)
    return two[0], two[1]


def _element(pair: tuple[Reg[b32], Reg[b32]], index: int) -> Reg[f32]:
    """Element 0 to 3 of two words, as f32: the bits of a bf16 are the upper half of an f32."""
    word = pair[index // 2]
    bits = and_.b32(word, 0xFFFF0000) if index % 2 else shl.b32(word, 16)
    return cast("Reg[f32]", bits)
