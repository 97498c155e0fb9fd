"""Parts that several steps share: a warpgroup's products and softmax in registers, the mask, the copies and the direct store."""

from __future__ import annotations

import math
from typing import Any

from ptxkit import Ptr, Reg, Vec, if_
from ptxkit.fragments import pack
from ptxkit.ptx import ld, mov, mul, opcode, st, wgmma
from ptxkit.smem import TileView
from ptxkit.types import b32, bf16, f32, s32, u32

from ..collective.softmax import OnlineSoftmax, mask_columns, pack_weights, rescale

WARPGROUP = 128
ROWS = 64                   # queries of a warpgroup: the m64 of wgmma
CHUNK = 8                   # elements that a thread copies at a time: 16 bytes
IN_FLIGHT = 8               # loads of a thread before it stores the first


def blocks_of(rows: Reg[u32], first: Reg[u32], BM: int, BN: int, causal: bool) -> Reg[u32]:
    """The blocks of BN keys that BM queries from `first` on see."""
    return (first + (BM + BN - 1)) // BN if causal else rows // BN


class Queries:
    """64 queries of a warpgroup, from row `first` of the head on: their scores, weights and outputs, in registers.

    `thread` is the thread's index in the warpgroup. `lines` is the queries' first line in the tile of Q.
    """

    def __init__(self, HEAD: int, BN: int, thread: Reg[u32], first: Reg[u32], causal: bool, lines: Reg[u32] | int = 0) -> None:
        self.HEAD, self.BN, self.first, self.causal, self.lines = HEAD, BN, first, causal, lines
        self.by_keys = opcode(f"wgmma.mma_async.sync.aligned.m64n{BN}k16.f32.bf16.bf16")
        self.by_values = opcode(f"wgmma.mma_async.sync.aligned.m64n{HEAD}k16.f32.bf16.bf16")
        self.scores: Vec[f32, Any] = self.by_keys.fragment(zero=False)              # BN / 2 registers
        self.output: Vec[f32, Any] = self.by_values.fragment()                      # HEAD / 2 registers, cleared
        self.weights: list[Vec[Any, Any]] = [Vec([mov.b32(0) for _ in range(4)]) for _ in range(BN // 16)]
        self.at = self.by_values.coordinates(thread, row=first)
        # exp(x / sqrt(HEAD)) = exp2(x scale): ex2 is what the hardware has, and the scale is free in the fma that subtracts the maximum.
        self.softmax = OnlineSoftmax(mov.f32(math.log2(math.e) / math.sqrt(HEAD)))

    def issue_scores(self, q: TileView[Any], k: TileView[Any]) -> None:
        """S = Q K^T for a block of keys, as a group of wgmma. Both operands are K-major: HEAD is the depth of the product."""
        wgmma.fence.sync.aligned()                  # the registers of S were read by the softmax before
        for depth in range(0, self.HEAD, 16):
            self.by_keys(self.scores, q.desc(depth, mn=self.lines), k.desc(depth), depth > 0)       # the first one overwrites S
        wgmma.commit_group.sync.aligned()

    def issue_output(self, v: TileView[Any]) -> None:
        """O += P V for a block of keys, as a group of wgmma. P is in registers, so it never goes through shared memory. The keys are the
        depth of this product: V lies across it (MN-major), as it is in memory."""
        wgmma.fence.sync.aligned()                  # the weights and the scaled outputs were written by other instructions
        for number, weights in enumerate(self.weights):
            self.by_values(self.output, weights, v.desc(number * 16), True)
        wgmma.commit_group.sync.aligned()

    def weigh(self, block: Reg[u32] | int) -> list[Reg[f32]]:
        """Scores become weights, in place. Returns the factors that scale earlier outputs to the new maxima."""
        if self.causal:
            with if_((block + 1) * self.BN > self.first + 1):                       # only blocks that reach beyond the first query
                self._hide(block)
        return self.softmax.weigh(self.scores)

    def keep(self, factors: list[Reg[f32]]) -> None:
        """Scale the outputs, and pack the weights as operand A: an accumulator's registers are already in its order."""
        rescale(self.output, factors)
        pack_weights(bf16, self.scores, self.weights)

    def _hide(self, block: Reg[u32] | int) -> None:
        """-inf for the scores of keys after a query's own. Key 0 is visible to all, so no maximum is -inf after the first block."""
        limits: list[Reg[s32]] = [mov.b32(self.at.row + (half * 8 + 1) - (self.at.column + block * self.BN)) for half in range(2)]
        mask_columns(self.scores, limits)

    def store(self, o: Ptr[bf16], head: Reg[u32]) -> None:
        """Divide the outputs by the sums of weights and store them, two neighbours at a time. `head` is the head's first row in o."""
        factors, _ = self.softmax.finish()
        line = o.at((head + self.at.row) * self.HEAD + self.at.column)
        for row, column, pair in self.at.runs(self.output):
            st.global_.b32(line + (row * self.HEAD + column), pack(bf16, *(mul.rn.f32(value, factors[row // 8]) for value in pair)))


def copy(view: TileView[Any], source: Ptr[bf16], HEAD: int, thread: Reg[u32]) -> None:
    """128 threads copy contiguous rows from `source` into a tile, K-major or MN-major along HEAD, 16 bytes a thread at a time.

    wgmma expects the swizzle of the tile's layout, and `view.at` has it. Neighbouring threads read neighbouring chunks of a row.
    """
    across = HEAD // CHUNK                          # chunks of a row
    lines = WARPGROUP // across                     # rows at a time
    line, chunk = thread // across, thread % across * CHUNK
    steps = range(0, view.outer, lines)
    for first in range(0, len(steps), IN_FLIGHT):
        some = steps[first:first + IN_FLIGHT]
        words = [ld.global_.v4.b32(source.at((line + start) * HEAD + chunk).cast(b32)) for start in some]
        for start, word in zip(some, words, strict=True):
            part = view.lines(start, lines)
            st.shared__cta.v4.b32(part.at(line, chunk) if view.layout.major == "k" else part.at(chunk, line), word)


__all__ = ["ROWS", "WARPGROUP", "Queries", "blocks_of", "copy"]
