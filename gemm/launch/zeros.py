"""Products with K = 0: the launch that clears D."""

from __future__ import annotations

from ptxkit.runtime import driver
from ptxkit.runtime.arrays import ArrayView
from ptxkit.types import TYPES


class Zeros:
    """A product with K = 0: D is cleared."""

    __slots__ = ("like", "out", "settled")

    def __init__(self, out: ArrayView) -> None:
        self.like = self.out = out
        self.settled = True

    def run(self, stream: int) -> None:
        """Clear D on a stream."""
        with driver.on(self.out.device):
            for start, pitch, width, height in self.fills():
                driver.call("cuMemsetD2D8Async", start, pitch, 0, width, height, stream)

    def fills(self) -> list[tuple[int, int, int, int]]:
        """(address, bytes from line to line, bytes of a line, lines) of what each call clears: as few calls as the strides of D allow."""
        out = self.out
        size = TYPES[out.dtype].bits // 8
        *outer, m, n = out.shape
        batches, row = (outer[0] if outer else 1), out.strides[-2]
        apart = out.strides[0] if batches > 1 else m * row
        if batches == 1 or m == 1 or apart == m * row:              # all lines are as far from one another
            return [(out.pointer, size * (row if m > 1 else apart if batches > 1 else n), size * n, batches * m)]
        if row == batches * apart:                                  # batches lie between the rows
            return [(out.pointer, size * apart, size * n, batches * m)]
        if m < batches:
            return [(out.pointer + size * row * at, size * apart, size * n, batches) for at in range(m)]
        return [(out.pointer + size * apart * at, size * row, size * n, m) for at in range(batches)]


__all__ = ["Zeros"]
