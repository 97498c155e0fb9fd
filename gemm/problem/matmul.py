"""Products as torch.matmul has them, as matrices and batches of matrices: vectors, broadcast batches, any number of batch extents.

A vector is a matrix of one row or column. Batch extents that follow one another in memory are one; of what is left, the longest stays a
batch, and the products differ in the others. A result that is contiguous along its columns is the transposed one of the transposed product.
The stride of an extent of 1 has no meaning: here it becomes 0, so that nothing depends on it.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from ptxkit.errors import LaunchError
from ptxkit.runtime.arrays import ArrayView
from ptxkit.types import TYPES

from .folded import folded
from .lines import check_columns, settled_strides
from .scales import along_matrices

if TYPE_CHECKING:
    from .dense import Arrays

BATCHED = ("a", "b", "out", "c", "residual")
"""The arrays that have the batches of a product."""


def result_shape(a: ArrayView, b: ArrayView) -> tuple[int, ...]:
    """The shape of a @ b. Raises LaunchError where there is none."""
    for name, array in (("a", a), ("b", b)):
        if not array.shape:
            raise LaunchError(f"{name} is a number: it must be a vector, a matrix, or a batch of matrices")
    k = b.shape[-2] if len(b.shape) > 1 else b.shape[0]
    if a.shape[-1] != k:
        raise LaunchError(f"a has shape {a.shape} and b {b.shape}: a is [M, K] and b [K, N]; pass a weight w of shape [N, K] as w.T")
    return (*_outer(a, b), *a.shape[-2:-1], *(b.shape[-1:] if len(b.shape) > 1 else ()))


def _outer(a: ArrayView, b: ArrayView) -> tuple[int, ...]:
    """The batch extents of a product."""
    found = []
    for x, y in itertools.zip_longest(reversed(a.shape[:-2]), reversed(b.shape[:-2]), fillvalue=1):
        if x != y and 1 not in (x, y):
            raise LaunchError(f"a has shape {a.shape} and b {b.shape}: their batches are as many, or one of them has 1")
        found.append(y if x == 1 else x)
    return tuple(reversed(found))


def products(arrays: Arrays) -> list[Arrays]:
    """The same product as products of matrices or of batches of matrices. There is more than one only if there are several batch extents
    that are none together."""
    a, b, out = arrays.a, arrays.b, arrays.out
    if not 2 <= len(a.shape) <= 3 or len(a.shape) != len(b.shape) or a.shape[:-2] != b.shape[:-2] or len(out.shape) != len(a.shape):
        shape = result_shape(a, b)
        for name in ("out", "c", "residual"):
            array = getattr(arrays, name)
            if array is not None and array.shape != shape:
                raise LaunchError(f"{name} has shape {array.shape}: a {a.shape} times b {b.shape} gives {shape}")
        if len(b.shape) > 1 and (out.shape[-1] < 2 or out.strides[-1] == 1):
            for name, array in (("c", arrays.c), ("residual", arrays.residual)):
                if array is not None and 0 not in shape and array.strides[-1] >= 0:     # with the strides that the caller sees
                    check_columns(name, array)
        found = _matrices(arrays, _outer(a, b))
    else:
        found = [arrays]
    return [settled(upright(settled(one))) for one in found]


def settled(arrays: Arrays) -> Arrays:
    """The arrays, each with its `settled_strides`."""
    return arrays._replace(**{name: array._replace(strides=settled_strides(array)) for name, array in arrays.named()})


def _matrices(arrays: Arrays, outer: tuple[int, ...]) -> list[Arrays]:
    column, row = len(arrays.a.shape) > 1, len(arrays.b.shape) > 1
    seen: dict[str, ArrayView] = {}
    for name, array in arrays.named():
        if name not in BATCHED:
            continue
        shape, strides = list(array.shape), list(array.strides)
        if name != "b" and not column:
            place = len(shape) - (row or name == "a")
            shape.insert(place, 1)
            strides.insert(place, 1)
        if name != "a" and not row:
            shape.append(1)
            strides.append(1)
        missing = len(outer) + 2 - len(shape)
        shape, strides = [1] * missing + shape, [0] * missing + strides
        strides = [0 if extent == 1 and want != 1 else stride for extent, want, stride in zip(shape, (*outer, 0, 0), strides, strict=True)
                   ][:len(outer)] + strides[len(outer):]
        seen[name] = array._replace(shape=(*outer, *shape[-2:]), strides=tuple(strides))
    arrays = arrays._replace(a_scale=_of_one_batch(arrays.a_scale, outer))
    if 0 in outer:
        return [arrays._replace(**{name: array._replace(shape=(0, *array.shape[-2:]), strides=(0, *array.strides[-2:]))
                                   for name, array in seen.items()})]
    return _launches(arrays, seen, _together(seen, outer))


def _of_one_batch(scale: ArrayView | None, outer: tuple[int, ...]) -> ArrayView | None:
    """Scales of rows or blocks with several batch extents, as scales with one such extent, or with none where there is a single product.
    If the scales of the products do not lie one after another, the axes stay as they are."""
    size = len(outer)
    if scale is None or not size or scale.shape[:size] != outer or len(scale.shape) == size:
        return scale
    batches, apart = 1, 0
    for extent, stride in zip(reversed(outer), reversed(scale.strides[:size]), strict=True):
        if extent == 1:
            continue
        if batches > 1 and stride != batches * apart:
            return scale
        batches, apart = batches * extent, apart if batches > 1 else stride
    first, far = ((), ()) if math.prod(outer) == 1 else ((batches,), (apart,))
    return scale._replace(shape=(*first, *scale.shape[size:]), strides=(*far, *scale.strides[size:]))


def _together(seen: dict[str, ArrayView], outer: tuple[int, ...]) -> list[tuple[int, dict[str, int]]]:
    """The batch extents with every array's stride along them, without those of 1, and as one where they follow one another."""
    found: list[tuple[int, dict[str, int]]] = []
    for place, extent in enumerate(outer):
        strides = {name: array.strides[place] for name, array in seen.items()}
        if extent == 1:
            continue
        if found and all(found[-1][1][name] == extent * stride for name, stride in strides.items()):
            found[-1] = found[-1][0] * extent, strides
        else:
            found.append((extent, strides))
    return found


def _launches(arrays: Arrays, seen: dict[str, ArrayView], batches: list[tuple[int, dict[str, int]]]) -> list[Arrays]:
    """One product for each place along all batch extents but the longest."""
    longest = max(range(len(batches)), key=lambda place: batches[place][0], default=0)
    batch, others = batches[longest:longest + 1], [one for place, one in enumerate(batches) if place != longest]
    made = []
    for place in itertools.product(*(range(extent) for extent, _ in others)):
        changed = {}
        for name, array in seen.items():
            skipped = sum(at * strides[name] for at, (_, strides) in zip(place, others, strict=True)) * TYPES[array.dtype].bits // 8
            changed[name] = array._replace(pointer=array.pointer + skipped, shape=(*(extent for extent, _ in batch), *array.shape[-2:]),
                                           strides=(*(strides[name] for _, strides in batch), *array.strides[-2:]))
        made.append(arrays._replace(**changed))
    return made


def upright(arrays: Arrays) -> Arrays:
    """The transposed product if D is contiguous along its columns and not along its rows, or one row of elements that lie apart; block
    scales have no transposed kernel. A batch of columns that shares A is turned too where that makes it one product."""
    out, bias = arrays.out, arrays.bias
    if len(out.shape) < 2 or not along_matrices(arrays) or (bias is not None and len(bias.shape) > 2):
        return arrays
    if out.strides[-1] == 1 or out.shape[-1] < 2:
        return _row_of_columns(arrays)
    if out.strides[-2] != 1 and out.shape[-2] != 1:
        return arrays
    for name in ("c", "residual"):
        array = getattr(arrays, name)
        if array is not None and not _lies_along_columns(array):
            raise LaunchError(f"{name} has strides {array.strides} and out {out.strides}: out is contiguous along its columns, so {name} "
                              "must be, too; pass a copy of one of them that lies as the other does")
    return _transposed(arrays)


def _row_of_columns(arrays: Arrays) -> Arrays:
    """Products of one A and a column each as one product of these columns as rows, where they follow one another."""
    a, out = arrays.a, arrays.out
    if len(out.shape) != 3 or out.shape[-1] != 1 or out.shape[0] < 2 or a.shape[0] != out.shape[0] or a.strides[0]:
        return arrays
    if not all(_lies_along_columns(array) for array in (out, arrays.c, arrays.residual) if array is not None):
        return arrays
    turned = settled(_transposed(arrays))
    return turned if len(folded(turned).a.shape) == 2 else arrays


def _lies_along_columns(array: ArrayView) -> bool:
    return array.shape[-2] == 1 or array.strides[-2] == 1


def _transposed(arrays: Arrays) -> Arrays:
    """D^T = B^T A^T."""
    bias = arrays.bias
    a_scale, b_scale = (scale and _turned(scale) if scale and len(scale.shape) == 2 else scale
                        for scale in (arrays.a_scale, arrays.b_scale))
    turned = {name: _turned(array) for name, array in arrays.named() if name in BATCHED}
    if bias is not None:
        bias = _turned(bias) if len(bias.shape) == 2 else bias._replace(shape=(*bias.shape, 1), strides=(*bias.strides, 1))
    return arrays._replace(**{**turned, "a": turned["b"], "b": turned["a"]}, bias=bias, a_scale=b_scale, b_scale=a_scale)


def _turned(array: ArrayView) -> ArrayView:
    """The transposed matrices."""
    (*outer, m, n), (*apart, row, column) = array.shape, array.strides
    return array._replace(shape=(*outer, n, m), strides=(*apart, column, row))


__all__ = ["products", "result_shape", "settled", "upright"]
