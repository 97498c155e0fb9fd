"""Which scales of operands are given: one of each operand, one of each row or column, or one of each block."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from ptxkit.errors import LaunchError
from ptxkit.runtime.arrays import ArrayView

from ..collective.epilogue_ops import ScaleKind
from ..collective.thread_scales import BLOCK
from .lines import MOST_STRIDE, check_forwards

if TYPE_CHECKING:
    from .dense import Arrays

Shape = tuple[int, ...]


def scale_kind(a: Shape, b: Shape, m: int, n: int, k: int, *, blocks: bool = True) -> ScaleKind | Literal["block"] | None:
    """What scales of these shapes are those of, in a product of M x N x K; None if they are of nothing. Shapes that may be those of
    `blocks` or of rows, as they can with K <= 128, are those of blocks."""
    depth = -(-k // BLOCK)
    blocks = blocks and a == (m, depth) and b == (depth, -(-n // BLOCK))
    one_a, one_b = math.prod(a) == 1, math.prod(b) == 1
    if one_a and one_b and not blocks:
        return "whole"
    if blocks:
        return "block"
    rows, columns = a in ((m,), (m, 1)), b in ((n,), (1, n))
    if rows and one_b:
        return "row"
    if one_a and columns:
        return "column"
    return "row_column" if rows and columns else None


def taken(m: int, n: int, k: int, batches: int | None = None) -> str:
    """The shapes that are taken, in words."""
    depth = -(-k // BLOCK)
    if batches is not None:
        return (f"scales of {batches} products have one element each, unless all have the same b and follow one another in a and out; then "
                f"a_scale may be ({batches}, {m}, 1) for the rows, b_scale ({n},) or (1, {n}) for the columns; or a_scale is "
                f"({batches}, {m}, {depth}) and b_scale ({depth}, {-(-n // BLOCK)}) for blocks of {BLOCK}")
    return (f"scales have one element each; or a_scale is ({m},) or ({m}, 1) for the rows, b_scale ({n},) or (1, {n}) for the columns, and "
            f"either may have one element; or a_scale is ({m}, {depth}) and b_scale ({depth}, {-(-n // BLOCK)}) for blocks of {BLOCK}")


def group_scale_kind(x: Shape, w: Shape, rows: Shape, groups: int, lines: int, k: int, *,
                     blocks: bool = True) -> ScaleKind | Literal["block"] | None:
    """The same of scales of a grouped product of `rows` (masked: groups and their rows), whose groups have weights of lines x K."""
    depth = -(-k // BLOCK)
    if blocks and x == (*rows, depth) and w == (groups, -(-lines // BLOCK), depth):
        return "block"
    each_group = math.prod(w) == 1 or w == (groups,)
    each_feature = w in ((groups, lines), (groups, 1, lines), (groups, lines, 1))
    if math.prod(x) == 1:
        return "whole" if each_group else "column" if each_feature else None
    if x in (rows, (*rows, 1)):
        return "row" if each_group else "row_column" if each_feature else None
    return None


def taken_by_groups(rows: Shape, groups: int, lines: int, k: int) -> str:
    """The shapes that are taken, in words."""
    depth = -(-k // BLOCK)
    return (f"x_scale has one element, or is {rows} or {(*rows, 1)} for the rows; w_scale has one element or one for each of {groups} "
            f"groups, or is {(groups, lines)}, {(groups, 1, lines)} or {(groups, lines, 1)} for the features; or both are those of blocks "
            f"of {BLOCK}, x_scale {(*rows, depth)} and w_scale {(groups, -(-lines // BLOCK), depth)}")


def check_contiguous_vector(name: str, scale: ArrayView) -> None:
    """Raise LaunchError unless the scales of rows or of columns are next to each other."""
    if any(stride != 1 and extent > 1 for stride, extent in zip(scale.strides, scale.shape, strict=True)):
        raise LaunchError(f"{name} has strides {scale.strides}: scales of rows or columns are next to each other; pass a contiguous copy")


def check_contiguous_rows(name: str, scale: ArrayView) -> None:
    """The same of scales of the rows of a batch."""
    following = 1
    for stride, extent in zip(reversed(scale.strides), reversed(scale.shape), strict=True):
        if stride != following and extent > 1:
            raise LaunchError(f"{name} has strides {scale.strides}: scales of rows are next to each other; pass a contiguous copy")
        following *= extent


def check_near(name: str, scale: ArrayView) -> None:
    """Raise LaunchError unless the strides of block scales are those that a kernel takes: not negative, and of 32 bits."""
    check_forwards(name, scale)
    if any(stride >= MOST_STRIDE and extent > 1 for stride, extent in zip(scale.strides, scale.shape, strict=True)):
        raise LaunchError(f"{name} has strides {scale.strides}: scales are less than 2^32 elements apart; pass a contiguous copy")


def along_matrices(arrays: Arrays) -> bool:
    """Whether the scales of one product, if it has any, are those of whole operands, of rows or of columns."""
    a, b, out = arrays.a_scale, arrays.b_scale, arrays.out
    if a is None or b is None:
        return all(scale is None or math.prod(scale.shape) == 1 for scale in (a, b))
    return scale_kind(a.shape, b.shape, out.shape[-2], out.shape[-1], arrays.a.shape[-1], blocks=False) is not None


__all__ = ["along_matrices", "check_contiguous_rows", "check_contiguous_vector", "check_near", "group_scale_kind", "scale_kind",
           "taken", "taken_by_groups"]
