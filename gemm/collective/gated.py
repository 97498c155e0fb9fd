"""silu(gate) * up in the epilogue. A tile has the same features of the gate and the up projection, in the same threads."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import gcd
from typing import Any

from ptxkit import MBarrier, Reg, Vec
from ptxkit.ptx import min as min_
from ptxkit.ptx import mov, mul
from ptxkit.types import f32, pred, u32

from .atoms import ROWS, Mma, tensor_copy, tensor_prefetch
from .epilogue_ops import silu
from .epilogue_swap_ab import SwapABStore, TokenScales
from .thread_scales import BLOCK, Scales
from .tiled import TiledCopy


@dataclass(frozen=True, slots=True)
class GatedCopy(TiledCopy):
    """Loads a tile of weights in boxes of `box_rows` rows, alternately of the gate and of the up projection.

    The projection is a dimension of the tensor map (0: gate, 1: up), before the group.
    """

    box_rows: int = ROWS

    def load(self, stage: Reg[u32], mn: Reg[u32], k: Reg[u32], barrier: MBarrier, *outer: Any, first: Reg[pred] | None = None) -> None:
        """Copy rows from `mn` of both projections, at depth `k`, into the stage."""
        view, multicast = self.tile[stage], self.multicast
        start, lines = multicast.own(self.box_rows)
        for s, box, depth, at in self._boxes(mn, k):
            part = view.span(s).lines(start + box * self.box_rows, lines)
            tensor_copy(part, self.tensormap, (depth, at + start, box % 2, *outer), barrier,
                        mask=multicast.mask, policy=self.policy, hinted=self.hinted)

    def prefetch(self, mn: Reg[u32], k: int, *outer: Any) -> None:
        """Bring rows from `mn` of both projections, at depth `k`, into the L2."""
        for _, box, depth, at in self._boxes(mn, k):
            tensor_prefetch(self.tensormap, (depth, at, box % 2, *outer))

    def _boxes(self, mn: Reg[u32], k: Any) -> Iterator[tuple[int, int, Any, Reg[u32]]]:
        """For each box: its span, its number (even: gate, odd: up), and its depth and row in the map."""
        for s, depth in self._depths(k):
            for box in range(self.tile.layout.rows // self.box_rows):
                yield s, box, depth, mn + box // 2 * self.box_rows if box // 2 else mn


def gated(gate: list[Reg[f32]], up: list[Reg[f32]], factor: Reg[f32] | None) -> list[Reg[f32]]:
    """silu(gate) * up. Both are multiplied by `factor` first."""
    if factor is not None:
        gate, up = ([mul.rn.f32(value, factor) for value in values] for values in (gate, up))
    return [mul.rn.f32(silu(x), y) for x, y in zip(gate, up, strict=True)]


@dataclass(frozen=True, slots=True)
class GatedMma(Mma):
    """An accumulator with the gate in the first half of its columns and the up projection in the second."""

    sums: Mma | None = None                     # of both halves
    factor: Reg[f32] | None = None

    def block(self, acc: Vec[Any, Any], index: int, m64: int = 0) -> list[Reg[f32]]:
        """The gated values of 8 columns, from both halves."""
        assert self.sums is not None
        return gated(self.sums.block(acc, index, m64), self.sums.block(acc, index + self.n // 16, m64), self.factor)


class GatedSwapABStore(SwapABStore):
    """Stores one m64 block for each two: the first of the two is the gate, the second the up projection."""

    factor: Reg[f32] | None = None

    def blocks_of(self, acc: list[Vec[Any, Any]], row: Reg[u32], column: Reg[u32]) -> list[Callable[[int], list[Reg[f32]]]]:
        """The gated results of each two m64 blocks."""
        pairs = enumerate(zip(acc[::2], acc[1::2], strict=True))
        return [functools.partial(self._gated, gate, up, 2 * number) for number, (gate, up) in pairs]

    def _gated(self, gate: Vec[Any, Any], up: Vec[Any, Any], m64: int, block: int) -> list[Reg[f32]]:
        mma = self.fused.mma
        return gated(mma.block(gate, block, m64), mma.block(up, block, m64 + 1), self.factor)


def block_of(feature: Reg[u32], features: Reg[u32], up: bool, step: int) -> Reg[u32]:
    """The block of weights that has a feature of the gate or of the up projection, which follows the gate after `features`, a multiple of
    `step`. Features past the last one have its block."""
    if step == BLOCK:
        each = features // BLOCK
        block = min_.u32(feature // BLOCK, each - 1)
        return block + each if up else block
    return min_.u32((feature + features if up else feature) // BLOCK, ((features + features if up else features) - 1) // BLOCK)


class GatedScales(Scales):
    """Block scales of a tile with the gate in its first half of columns. The weights of the up projection follow those of the gate."""

    @property
    def group(self) -> int:
        return gcd(self.BN // 2, self.step)

    def begin(self, row: Reg[u32], column: Reg[u32], rows: Reg[u32], columns: Reg[u32], first: Any = 0) -> None:
        """`column` and `columns` count features of one projection."""
        assert self.a is not None
        assert self.b is not None
        self._a_rows = [self._start(self.a, min_.u32(row + (m64 * ROWS + half), rows - 1), first)
                        for m64 in range(self.m64_blocks) for half in (0, 8)]
        self._b_columns = []
        for half in range(2):
            for group in range(self.BN // 2 // self.group):
                self._b_columns.append(self._start(self.b, block_of(column + group * self.group, columns, half > 0, self.step), first))
        self._next = [mov.f32(1.0) for _ in range(len(self._a_rows) + len(self._b_columns))]


class GatedTokenScales(TokenScales):
    """Block scales if m64 blocks alternate between the gate and the up projection."""

    def begin(self, row: Reg[u32], column: Reg[u32], rows: Reg[u32], columns: Reg[u32], first: Any = 0) -> None:
        """`row` and `rows` count features of one projection."""
        assert self.b is not None
        self._tokens(column, columns)
        weights, within = self.b, (self.row, self.row + 8) if self.by_row else (0,)
        self._blocks = []
        for m64, own in itertools.product(range(self.m64_blocks), within):
            feature = row if isinstance(own, int) else row + own
            block = block_of(feature + m64 // 2 * ROWS, rows, m64 % 2 > 0, self.step)
            self._blocks.append(weights.pointer.at(mul.wide.u32(block, weights.mn_stride)))
        self._ready()


__all__ = ["GatedCopy", "GatedMma", "GatedScales", "GatedSwapABStore", "GatedTokenScales", "block_of", "gated"]
