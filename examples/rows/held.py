"""A row of bf16 in the registers of a warp or of a CTA: one read, one write, whatever lies between.

A row kernel is bound by memory: a softmax has about 10 instructions for an element that costs 4 bytes, and an SM has time for 35. So three
things decide. The row is read once and held. Accesses have 16 bytes. Enough of them are under way: 1 MB per card and more, which four
vectors of 16 bytes in each of 2,048 threads of an SM make several times over.
"""
from __future__ import annotations

from typing import Any

from ptxkit import Ptr, Reg, ctaid, tid
from ptxkit.fragments import pack, unpack
from ptxkit.ptx import griddepcontrol, ld, mad, mov, mul, st
from ptxkit.reductions import block_reduce, warp_reduce
from ptxkit.types import bf16, f32, u32

VECTOR = 8                     # elements of 16 bytes
HELD = 4                       # vectors that a thread holds: 32 values
WARPS = 4                      # of a CTA, where a warp has a row
MOST = VECTOR * HELD * 1024    # columns of a row in one CTA

read = ld.global_.nc.v4.b32    # a row is used once, but L1::no_allocate makes a kernel that stores as much as it reads 2 to 6 % slower
write = st.global_.v4.b32


def threads_of_row(columns: int) -> int:
    """How many threads share a row, so that each holds at most HELD vectors: a warp up to 1,024 columns, then whole warps."""
    if columns % VECTOR or not VECTOR <= columns <= MOST:
        raise ValueError(f"a row has a multiple of {VECTOR} elements, {VECTOR} to {MOST:,}, so that each access has 16 bytes and the row "
                         f"fits into registers, not {columns:,}: pad it, or split it")
    return max(32, 1 << (-(-columns // (VECTOR * HELD)) - 1).bit_length())


def block(config: dict[str, Any]) -> int:
    """Threads of a CTA: one row, or the rows of some warps."""
    threads = threads_of_row(config["COLUMNS"])
    return 32 * WARPS if threads == 32 else threads


def ctas(rows: int, columns: int) -> int:
    """CTAs of a launch."""
    return -(-rows // WARPS) if threads_of_row(columns) == 32 else rows


class Row:
    """This thread's part of its row: vector i is at columns (i * threads + thread) * 8. Only the last vector may be cut off, which
    is known while tracing, so that full vectors have no guard.

    The kernel begins while the launch before it ends, and lets the next one begin: CTAs of both are at work at the end of each, where SMs
    run empty otherwise. Rows of 1,024 take 3 % less time with it on an H100.
    """

    def __init__(self, rows: Reg[u32], columns: int) -> None:
        self.columns, self.threads = columns, threads_of_row(columns)
        thread = mov.u32(tid.x)
        griddepcontrol.wait()                     # what the launch before wrote is there
        griddepcontrol.launch_dependents()
        if self.threads == 32:
            self.row = mad.lo.u32(mov.u32(ctaid.x), WARPS, thread >> 5)
            self.lane = thread & 31
        else:
            self.row, self.lane = mov.u32(ctaid.x), thread
        self.inside = self.row < rows if self.threads == 32 else None
        self.vectors = -(-columns // (VECTOR * self.threads))
        self.column = self.lane * VECTOR

    def guard(self, vector: int) -> Any:
        """Where this vector exists, or None if it does in every thread that has a row."""
        first = vector * self.threads * VECTOR
        return None if first + self.threads * VECTOR <= self.columns else self.column < self.columns - first

    def load(self, matrix: Ptr[bf16], filler: float = 0.0) -> list[list[Reg[f32]]]:
        """The row of a matrix, as f32: eight values for each vector. All loads come before the first use. What lies after the end is
        `filler`. A warp without a row reads row 0, so that all warps take part in reductions."""
        row = self.row
        if self.inside is not None:
            row = mov.u32(0)
            mov.u32(row, self.row, pred=self.inside)
        return self._values(matrix.at(mul.wide.u32(row, self.columns)), filler)

    def weights(self, vector: Ptr[bf16]) -> list[list[Reg[f32]]]:
        """A vector that all rows use."""
        return self._values(vector, 0.0)

    def _values(self, start: Ptr[bf16], filler: float) -> list[list[Reg[f32]]]:
        words = []
        for i in range(self.vectors):
            place, guard = start.at(self.column) + i * self.threads * VECTOR, self.guard(i)
            if guard is None:
                words.append(read(place))
            else:
                vector = [mov.b32(_both_halves(filler)) for _ in range(4)]
                read(vector, place, pred=guard)
                words.append(vector)
        return [[value for word in vector for value in unpack(bf16, word)] for vector in words]

    def store(self, matrix: Ptr[bf16], values: list[list[Reg[f32]]]) -> None:
        """Write the row, rounded to bf16."""
        start = matrix.at(mul.wide.u32(self.row, self.columns)).at(self.column)
        for i, eight in enumerate(values):
            guard = self.inside if self.guard(i) is None else self.guard(i)
            if self.inside is not None and self.guard(i) is not None:
                guard = self.inside & self.guard(i)
            write(start + i * self.threads * VECTOR, [pack(bf16, eight[k], eight[k + 1]) for k in range(0, VECTOR, 2)], pred=guard)

    def reduce(self, operation: Any, values: list[list[Reg[f32]]]) -> Reg[f32]:
        """Over the whole row, in every thread: pairs within the thread (short chains, small errors), then lanes, then warps."""
        mine = tree([value for eight in values for value in eight], operation)
        return warp_reduce(operation, mine) if self.threads == 32 else block_reduce(operation, mine)


def tree(values: list[Reg[f32]], operation: Any) -> Reg[f32]:
    """Reduce in pairs: log2(n) roundings for each value instead of n."""
    while len(values) > 1:
        values = [operation(*values[i:i + 2]) if i + 1 < len(values) else values[i] for i in range(0, len(values), 2)]
    return values[0]


def _both_halves(value: float) -> int:
    """Two bf16 of a value, 0 or -inf, as a word."""
    return {0.0: 0, float("-inf"): 0xFF80FF80}[value]


__all__ = ["Row", "block", "ctas", "threads_of_row", "tree"]
