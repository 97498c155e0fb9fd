"""Swap-AB epilogue for few tokens: D^T = W X^T. Tokens are columns of the product, so few tokens fill a narrow tile."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from ptxkit import Ptr, Reg, Vec, if_
from ptxkit.ptx import ld, mov, movmatrix, mul, opcode, selp, shfl, st
from ptxkit.ptx import min as min_
from ptxkit.types import f32, u32

from .atoms import ROWS
from .epilogue import Fused
from .epilogue_ops import Matrix
from .thread_scales import BLOCK, ScaleArray, Scales
from .warpgroups import MmaThread


class SwapABStore:
    """Stores accumulators of W X^T transposed, one row of D per token.

    16-bit results are transposed within a warp (movmatrix, and one exchange between neighbouring lanes). Four lanes then store the 32
    bytes of a token's 16 features together. `fused.edges` are the ends of the features (m) and of the group's tokens (n).
    """

    def __init__(self, out: Matrix, fused: Fused, lane: Reg[u32], warp: Reg[u32], step: int = 0) -> None:
        self.out, self.fused, self.step = out, fused, step
        self.lane, self.first = lane, warp * 16
        self.odd = (lane & 1) != 0
        self.quarter = (lane & 1) * 8 + (lane & 2) * 2          # the first of the four features, of 16, that this lane stores

    def tile(self, acc: list[Vec[Any, Any]], row: Reg[u32], column: Reg[u32], BN: int) -> None:
        """Store blocks of 64 features by BN tokens, from feature `row` and token `column` on."""
        step = self.step or BN
        for m64, values in enumerate(self.blocks_of(acc, row, column)):
            feature = row + (self.first + m64 * ROWS)
            for first in range(0, BN, step):
                with if_(column + first < self.fused.edges.n) if first else nullcontext():
                    for block in range(first // 8, (first + step) // 8):
                        self.block(values(block), feature, column + 8 * block if block else column)

    def blocks_of(self, acc: list[Vec[Any, Any]], row: Reg[u32], column: Reg[u32]) -> list[Callable[[int], list[Reg[f32]]]]:
        """For each stored m64 block, a function from the number of 8 columns to their results."""
        return [functools.partial(self._values, part, m64, row, column) for m64, part in enumerate(acc)]

    def _values(self, part: Vec[Any, Any], m64: int, row: Reg[u32], column: Reg[u32], block: int) -> list[Reg[f32]]:
        return self.fused.block(self.fused.mma.block(part, block, m64), row, column, None)

    def block(self, values: list[Reg[f32]], feature: Reg[u32], token: Reg[u32], batch: Reg[u32] | None = None) -> None:
        """Store a warp's 16 features x 8 tokens, from `feature` and `token` on."""
        edges, type_ = self.fused.edges, self.out.type
        if type_ is f32:
            at = token + (self.lane & 3) * 2
            for half in range(2):
                own = (feature + 8 * half if half else feature) + (self.lane >> 2)
                place = self.out.at(at, own, batch)
                for i, value in enumerate(values[2 * half:2 * half + 2]):
                    st.global_.f32(place.at(self.out.row_stride) if i else place, value, pred=(own < edges.m) & (at + i < edges.n))
            return
        pack, turn = opcode(f"cvt.rn.{type_.__name__}x2.f32"), movmatrix.sync.aligned.m8n8.trans.b16
        low, high = (turn(pack(values[i + 1], values[i])) for i in (0, 2))
        other = shfl.sync.bfly.b32(selp.b32(low, high, self.odd), 1, 31, 0xFFFFFFFF)
        at, begin = token + (self.lane >> 2), feature + self.quarter
        four: Any = Vec((selp.b32(other, low, self.odd), selp.b32(high, other, self.odd)))
        st.global_.v2.b32(self.out.at(at, begin, batch), four, pred=(begin < edges.m) & (at < edges.n))

    def tail(self) -> None:
        """No store needs to be waited for."""


@dataclass(frozen=True, slots=True)
class TransposedBlocks:
    """Stores blocks of D^T = B^T A^T to D, of the sums that CTAs share: a block's rows are columns of D."""

    stores: SwapABStore

    @classmethod
    def of(cls, out: Matrix, fused: Fused, thread: MmaThread) -> TransposedBlocks:
        """The stores of an mma thread."""
        return cls(SwapABStore(out, fused, thread.lane, thread.warp))

    def block(self, values: list[Reg[f32]], row: Reg[u32], column: Reg[u32], batch: Reg[u32] | None = None) -> None:
        """Store 64 rows x 8 columns of D^T."""
        stores = self.stores
        stores.block(stores.fused.block(values, row, column, batch), row + stores.first, column, batch)


@dataclass(slots=True)
class TokenScales(Scales):
    """Block scales if tokens are columns. Each token and each m64 block of features has a scale for every 128 of K.

    `a` has the scales of the tokens, `b` the scales of the weights. `row` is the thread's first row of an m64 block; it has a scale of its
    own where a block of scales may begin within an m64 block (`by_row`).
    """

    row: Any = 0
    _offsets: list[Reg[u32]] = field(default_factory=list)
    _blocks: list[Ptr[f32]] = field(default_factory=list)

    def begin(self, row: Reg[u32], column: Reg[u32], rows: Reg[u32], columns: Reg[u32], first: Any = 0) -> None:
        """Begin a tile: the warpgroup's first feature, this thread's first token, and the ends of both."""
        feature, features, weights = row, rows, _given(self.b)
        self._tokens(column, columns)
        blocks = (features - 1) // BLOCK
        self._blocks = [weights.pointer.at(mul.wide.u32(min_.u32((feature + m64 * ROWS) // BLOCK, blocks), weights.mn_stride))
                       for m64 in range(self.m64_blocks)]
        self._ready()

    def _tokens(self, token: Reg[u32], end: Reg[u32]) -> None:
        last, stride = end - 1, _given(self.a).mn_stride
        self._offsets = [min_.u32(token + (block * 8 + i), last) * stride for block in range(self.BN // 8) for i in range(2)]

    def _ready(self) -> None:
        self._next = [mov.f32(1.0) for _ in range(len(self._offsets) + len(self._blocks))]

    @property
    def by_row(self) -> bool:
        """Whether an m64 block may have rows of two blocks of scales."""
        return self.step < ROWS

    def prefetch(self, k: Reg[u32] | int) -> None:
        """Begin to read the scales of stage `k`."""
        tokens, weights = _given(self.a), _given(self.b)
        first = tokens.pointer
        first = first if isinstance(k, int) and k == 0 else first.at(mul.wide.u32(k, tokens.k_stride))
        for i, offset in enumerate(self._offsets):
            ld.global_.nc.f32(self._next[i], first.at(offset))
        for i, pointer in enumerate(self._blocks):
            at = pointer if isinstance(k, int) and k == 0 else pointer.at(mul.wide.u32(k, weights.k_stride))
            ld.global_.nc.f32(self._next[len(self._offsets) + i], at)

    def factor(self, m64: int, index: int) -> Reg[f32]:
        """The factor of accumulator `index` of an m64 block."""
        column = index // 4 * 2 + index % 2
        weights = 2 * m64 + index % 4 // 2 if self.by_row else m64
        key = weights, column
        if key not in self._factors:
            self._factors[key] = mul.rn.f32(self._now[column], self._now[len(self._offsets) + weights])
        return self._factors[key]


def _given(array: ScaleArray | None) -> ScaleArray:
    assert array is not None
    return array


__all__ = ["SwapABStore", "TokenScales"]
