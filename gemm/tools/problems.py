"""Products in words as the kernels' problems, of arrays without memory, and the configuration that a card gives each."""

from __future__ import annotations

from typing import Any

from ptxkit.cards import H200, Card
from ptxkit.errors import PtxkitError
from ptxkit.runtime.arrays import ArrayView

from ..config.dense import DenseConfig
from ..heuristic.dense import heuristic
from ..heuristic.tuned import tuned
from ..problem.dense import Arrays, Options, Problem
from .bench.shapes import BYTES
from .bench.shapes import Problem as Shape


def asked(m: int, n: int, k: int, a: str = "bf16", b: str | None = None, out: str | None = None, layout: str = "nt",
          batches: int | None = None, block: bool = False, scaled: bool = False, **options: Any) -> Problem:
    """A product of arrays without memory. `layout` is BLAS's: A then B, n row-major and t column-major. `block`: operands have block
    scales; `scaled`: one scale each."""
    def matrix(rows: int, columns: int, dtype: str, letter: str = "n") -> ArrayView:
        shape, strides = (rows, columns), (columns, 1) if letter == "n" else (1, rows)
        if batches is not None:
            shape, strides = (batches, *shape), (rows * columns, *strides)  # type: ignore[assignment]
        return ArrayView(0, shape, strides, dtype, 0, "other")

    scales: tuple[ArrayView | None, ...] = (ArrayView(0, (), (), "f32", 0, "other"),) * 2 if scaled else (None, None)
    if block:
        scales = matrix(m, -(-k // 128), "f32", "t"), matrix(-(-k // 128), -(-n // 128), "f32", "t")
    arrays = Arrays(matrix(m, k, a, layout[0]), matrix(k, n, b or a, layout[1]), matrix(m, n, out or a), None, None, None, *scales)
    return Problem(arrays, Options(**options))


def described(shape: Shape) -> Problem:
    """A shape of the bench as the kernels' problem."""
    return asked(shape.m, shape.n, shape.k, shape.dtype, out=shape.out, layout=shape.layout, block=shape.block,
                 scaled=not shape.block and BYTES[shape.dtype] == 1)


def chosen(shape: Shape, card: Card = H200) -> DenseConfig | None:
    """The configuration that the package chooses for a shape on a card; None where it has no product for it."""
    try:
        problem = described(shape)
        return tuned(problem, card.name) or heuristic(problem, card)
    except PtxkitError:
        return None


__all__ = ["asked", "chosen", "described"]
