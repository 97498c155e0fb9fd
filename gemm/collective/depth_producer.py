"""Layer 3: the producer of a product with groups along K. The last stage of a group has zeros after the group's last row."""

from __future__ import annotations

from dataclasses import dataclass

from ptxkit import Reg, ring, span
from ptxkit.ptx import min as min_
from ptxkit.types import u32

from ..scheduler.grouped_k import DepthWorkTile
from .producer import Producer


@dataclass(frozen=True, slots=True)
class DepthProducer(Producer):
    """One thread: loads the stages of one work tile after another. Both operands are contiguous along M and N, with MN-major tiles.

    A stage has BK rows of a matrix. The matrix's map begins BK rows before it. Its extents are (columns, BK, rows + 1), and both outer
    strides are one row, so element (c, i, j) is row i + j - BK. If r <= BK rows of the group are left from `row` on, the box begins at
    i = BK - r and j = row + r. Its first r rows are the group's; the others are past the extent of i, and the copy writes zeros. Rows of
    the next group must not enter a product even where the other operand is 0: they may be NaN.
    """

    def load_group(self, work: DepthWorkTile, row: Reg[u32], column: Reg[u32]) -> None:
        """Load a work tile: columns of A from `row` on, columns of B from `column` on."""
        pipeline, depth = self.pipeline, self.a.tile.layout.columns
        bytes = self.a.bytes() + self.b.bytes()
        with ring(self.position, work.stages) as (k, stage, parity):
            first = work.start + k * depth
            left = min_.u32(work.end - first, depth)
            with span("wait"):
                pipeline.acquire(stage, parity)
            with span("load"):
                full = pipeline.expect(stage, bytes)
                self.a.load(stage, row, depth - left, full, first + left)
                self.b.load(stage, column, depth - left, full, first + left)


__all__ = ["DepthProducer"]
