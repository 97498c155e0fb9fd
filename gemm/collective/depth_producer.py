"""Layer 3: the producer of a product with groups along K. The first stage of a group has zeros before the group's first row."""

from __future__ import annotations

from dataclasses import dataclass

from ptxkit import Reg, ring, span
from ptxkit.ptx import selp
from ptxkit.types import u32

from ..scheduler.grouped_k import DepthWorkTile
from .producer import Producer


@dataclass(frozen=True, slots=True)
class DepthProducer(Producer):
    """One thread: loads the stages of one work tile after another. Both operands are contiguous along M and N, with MN-major tiles.

    A stage has BK rows of a matrix. The stages end where the group ends, so it is the first one that may have fewer. The matrix's map has
    extents (columns, BK, rows), and both outer strides are one row, so element (c, i, j) is row i + j. The box of a first stage with r rows
    begins at i = r - BK and j = the group's first row: its last r rows are the group's, and for the negative i the copy writes zeros. Rows
    of the group before must not enter a product even where the other operand is 0: they may be NaN.

    The map begins where the matrix does. A copy touches that address for what is out of bounds (measured: without memory there it faults).
    """

    def load_group(self, work: DepthWorkTile, row: Reg[u32], column: Reg[u32]) -> None:
        """Load a work tile: columns of A from `row` on, columns of B from `column` on."""
        pipeline, depth = self.pipeline, self.a.tile.layout.columns
        bytes = self.a.bytes() + self.b.bytes()
        spare = work.stages * depth - (work.end - work.start)
        with ring(self.position, work.stages) as (k, stage, parity):
            before = selp.u32(spare, 0, k == 0)                             # rows of this stage before the group
            with span("wait"):
                pipeline.acquire(stage, parity)
            with span("load"):
                full = pipeline.expect(stage, bytes)
                first = work.start + k * depth - spare + before
                self.a.load(stage, row, 0 - before, full, first)
                self.b.load(stage, column, 0 - before, full, first)


__all__ = ["DepthProducer"]
