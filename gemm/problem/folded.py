"""Batches that are one product: those that share an operand and lie one after another in the others, and a batch of one.

With B shared and the rows of A and of D that follow one another, L products of M rows are one product of L M rows: B is read once, and
tiles go across the borders of batches. With A shared it is one product of L N columns.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ptxkit.errors import LaunchError
from ptxkit.runtime.arrays import ArrayView

from ..collective.thread_scales import BLOCK
from .scales import check_contiguous_rows

if TYPE_CHECKING:
    from .dense import Arrays


BATCHED = ("a", "b", "out", "c", "residual")
"""The arrays of a batch that have its products."""
RESULTS = ("out", "c", "residual")
"""The arrays of a batch whose rows must stay contiguous."""


def folded(arrays: Arrays) -> Arrays:
    """The same products as arrays of one, if they are one; else the arrays as they are, also where their shapes do not fit."""
    a, b = arrays.a, arrays.b
    if not _fitting(arrays):
        return arrays
    if not _whole_scales(arrays):
        return _with_scales(arrays)
    if a.shape[0] == 1:
        batched = {name: array for name, array in arrays.named() if name in BATCHED}
        return arrays._replace(**{name: _first(array) for name, array in batched.items()})
    if a.shape[0] > 1 and b.strides[0] == 0 and _bias_is(arrays, (b.shape[2],), (1, b.shape[2])):
        return _along(arrays, "b", 1)
    if a.shape[0] > 1 and a.strides[0] == 0 and _bias_is(arrays, (a.shape[1], 1)):
        return _along(arrays, "a", 2)
    return arrays


def _fitting(arrays: Arrays) -> bool:
    """Whether these are batches of as many products, and what is added to D has its shape."""
    a, b, out = arrays.a, arrays.b, arrays.out
    if not len(a.shape) == len(b.shape) == 3 or out.shape != (a.shape[0], a.shape[1], b.shape[2]) or a.shape[0] != b.shape[0]:
        return False
    return all(array is None or array.shape == out.shape for array in (arrays.c, arrays.residual))


def _with_scales(arrays: Arrays) -> Arrays:
    """One product of all rows of a batch whose products have the same b, with its scales of rows, columns or blocks. The arrays as they are
    where that cannot be."""
    scale, columns, n = arrays.a_scale, arrays.b_scale, arrays.b.shape[2]
    if scale is None or columns is None:
        return arrays
    made = folded(arrays._replace(a_scale=None, b_scale=None))
    if len(made.a.shape) == 3 or made.b.shape[1] != n:
        return arrays
    of_rows = _scales_of_rows(scale, arrays.a) if math.prod(columns.shape) == 1 or columns.shape in ((n,), (1, n)) else None
    found = of_rows or _scales_of_blocks(scale, arrays.a)
    return arrays if found is None else made._replace(a_scale=found, b_scale=columns)


def _scales_of_rows(scale: ArrayView, a: ArrayView) -> ArrayView | None:
    """Scales of the rows of all products of a batch, or the one that all have. None: they are neither."""
    batches, m, _ = a.shape
    if math.prod(scale.shape) == 1:
        return scale
    if scale.shape not in ((batches, m, 1), (batches, m), (batches * m,), (batches * m, 1)):
        return None
    check_contiguous_rows("a_scale", scale)
    return scale._replace(shape=(batches * m,), strides=(1,))


def _scales_of_blocks(scale: ArrayView, a: ArrayView) -> ArrayView | None:
    """Block scales of the rows of all products of a batch. None: they are none. Raises LaunchError where they do not follow one another."""
    batches, m, k = a.shape
    depth = -(-k // BLOCK)
    if scale.shape != (batches, m, depth):
        return scale if scale.shape == (batches * m, depth) else None
    found = _joined(scale, 1)
    if found is None:
        raise LaunchError(f"a_scale has strides {scale.strides}: block scales of a batch that is one product follow one another as its "
                          "rows do; pass a contiguous copy")
    return found


def _whole_scales(arrays: Arrays) -> bool:
    """Whether scales are those of whole operands."""
    return all(scale is None or math.prod(scale.shape) == 1 for scale in (arrays.a_scale, arrays.b_scale))


def _bias_is(arrays: Arrays, *shapes: tuple[int, ...]) -> bool:
    """Whether a bias, if there is one, is the same for all products."""
    return arrays.bias is None or arrays.bias.shape in shapes


def _along(arrays: Arrays, shared: str, axis: int) -> Arrays:
    """With the products one after another along this axis of every array but the shared one; unchanged where they are not."""
    found: dict[str, ArrayView] = {}
    for name, array in arrays.named():
        if name not in BATCHED:
            continue
        made = _first(array) if name == shared else _joined(array, axis)
        if made is None or (name in RESULTS and made.strides[-1] != 1):
            return arrays
        found[name] = made
    return arrays._replace(**found)


def _joined(array: ArrayView, axis: int) -> ArrayView | None:
    """The matrix whose parts along `axis` are the matrices of a batch; None if they do not follow one another."""
    batches, extent = array.shape[0], array.shape[axis]
    if batches > 1 and extent > 1 and array.strides[0] != extent * array.strides[axis]:
        return None
    shape, strides = list(array.shape[1:]), list(array.strides[1:])
    shape[axis - 1] *= batches
    if extent == 1:                             # its stride has no meaning
        strides[axis - 1] = array.strides[0]
    return array._replace(shape=tuple(shape), strides=tuple(strides))


def _first(array: ArrayView) -> ArrayView:
    return array._replace(shape=array.shape[1:], strides=array.strides[1:])


__all__ = ["folded"]
