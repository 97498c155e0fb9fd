"""Products in words as the kernels' problems, of arrays without memory, and the configuration that a card gives each."""

from __future__ import annotations

from typing import Any

from ptxkit.cards import H200, Card
from ptxkit.errors import PtxkitError
from ptxkit.layout import Major
from ptxkit.runtime.arrays import ArrayView, contiguous_strides

from ..config.dense import DenseConfig
from ..heuristic.dense import heuristic
from ..heuristic.tuned import tuned
from ..problem.dense import Arrays, Options, Problem
from ..problem.folded import folded
from ..problem.grouped import GroupArrays, GroupOptions, GroupProblem
from ..scheduler.group_table import Layout
from .bench.grouped_cases import Case
from .bench.shapes import BYTES
from .bench.shapes import Problem as Shape


def array(dtype: str, *shape: int) -> ArrayView:
    """One without gaps, without its memory."""
    return ArrayView(0, shape, contiguous_strides(shape), dtype, 0, "other")


def scales_by_rows(rows: int, blocks: int) -> ArrayView:
    """Block scales [rows, blocks] that are contiguous along the rows. Each line begins at a multiple of 16 bytes, so that the producer can
    copy those of x."""
    return ArrayView(0, (rows, blocks), (1, -(-rows // 4) * 4), "f32", 0, "other")


def asked(m: int, n: int, k: int, a: str = "bf16", b: str | None = None, out: str | None = None, layout: str = "nt",
          batches: int | None = None, shared: str = "", block: bool = False, scaled: bool = False, offset: int = 0, rowcol: bool = False,
          **options: Any) -> Problem:
    """A product of arrays without memory, as `arrays_asked` makes them."""
    return Problem(arrays_asked(m, n, k, a, b, out, layout, batches, shared, block, scaled, offset, rowcol), Options(**options))


def arrays_asked(m: int, n: int, k: int, a: str = "bf16", b: str | None = None, out: str | None = None, layout: str = "nt",
                 batches: int | None = None, shared: str = "", block: bool = False, scaled: bool = False, offset: int = 0,
                 rowcol: bool = False) -> Arrays:
    """The arrays of a product, without their memory. `layout` is BLAS's: A then B, n row-major and t column-major. `shared`: the operand,
    "a" or "b", of which all products of a batch have the same. `block`: operands have block scales; `scaled`: one scale each; `rowcol`: one
    of each row and column. `offset`: elements after an aligned address, at which the arrays begin."""
    def matrix(rows: int, columns: int, dtype: str, letter: str = "n") -> ArrayView:
        shape, strides = (rows, columns), (columns, 1) if letter == "n" else (1, rows)
        if batches is not None:
            shape, strides = (batches, *shape), (rows * columns, *strides)  # type: ignore[assignment]
        return ArrayView(offset * BYTES[dtype], shape, strides, dtype, 0, "other")

    scales: tuple[ArrayView | None, ...] = (array("f32"),) * 2 if scaled else (None, None)
    if block:
        scales = matrix(m, -(-k // 128), "f32", "t"), matrix(-(-k // 128), -(-n // 128), "f32", "t")
    if rowcol:
        scales = array("f32", m, 1), array("f32", 1, n)
    arrays = Arrays(matrix(m, k, a, layout[0]), matrix(k, n, b or a, layout[1]), matrix(m, n, out or a), None, None, None, *scales)
    if shared:
        given: ArrayView = getattr(arrays, shared)
        arrays = folded(arrays._replace(**{shared: given._replace(strides=(0, *given.strides[1:]))}))
    return arrays


def arrays_described(shape: Shape) -> Arrays:
    """The arrays of a shape of the bench, without their memory."""
    return arrays_asked(shape.m, shape.n, shape.k, shape.dtype, out=shape.out, layout=shape.layout, batches=shape.batch, block=shape.block,
                        scaled=shape.scales == "one" and BYTES[shape.dtype] == 1, offset=shape.offset, rowcol=shape.rowcol)


def described(shape: Shape, batch_invariant: bool = False) -> Problem:
    """A shape of the bench as the kernels' problem."""
    return asked(shape.m, shape.n, shape.k, shape.dtype, out=shape.out, layout=shape.layout, batches=shape.batch, block=shape.block,
                 scaled=shape.scales == "one" and BYTES[shape.dtype] == 1, offset=shape.offset, rowcol=shape.rowcol,
                 batch_invariant=batch_invariant)


def chosen(shape: Shape, card: Card = H200, batch_invariant: bool = False) -> DenseConfig | None:
    """The configuration that the package chooses for a shape on a card; None where it has no product for it."""
    try:
        problem = described(shape, batch_invariant)
        return tuned(problem, card) or heuristic(problem, card)
    except PtxkitError:
        return None


def problem_of(case: Case, layout: Layout = "cu_seqlens", w_major: Major = "k") -> GroupProblem:
    """The problem of a case without its arrays."""
    return GroupProblem(arrays_of(case, layout, w_major), GroupOptions(layout, case.gated))


def arrays_of(case: Case, layout: Layout = "cu_seqlens", w_major: Major = "k") -> GroupArrays:
    """The arrays of a case, without their memory. `layout`: "cu_seqlens", or "contiguous", where groups fill whole blocks."""
    contiguous = layout == "contiguous"
    rows, scales = case.filled_rows if contiguous else case.rows, (None, None)  # type: tuple[int, tuple[Any, Any]]
    if case.kind == "fp8":
        scales = array("f32", 1), array("f32", case.groups)
    if case.kind == "fp8-block":
        blocks = -(-case.k // 128)
        scales = scales_by_rows(rows, blocks), array("f32", case.groups, -(-case.n // 128), blocks)
    w = array(case.dtype, case.groups, case.n, case.k)
    return GroupArrays(array(case.dtype, rows, case.k), w if w_major == "k" else w._replace(strides=(case.n * case.k, 1, case.n)),
                       array("s32", rows if contiguous else case.groups + 1),
                       array("e4m3" if case.quantised else "bf16", rows, case.columns), *scales,
                       scales_by_rows(rows, case.columns // 128) if case.quantised else None)


__all__ = ["array", "arrays_asked", "arrays_described", "arrays_of", "asked", "chosen", "described", "problem_of", "scales_by_rows"]
