"""More groups than a table has room for: launches of some of the groups each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ptxkit.runtime.arrays import ArrayView
from ptxkit.types import TYPES

from ..config.grouped_parts import CAPACITIES

if TYPE_CHECKING:
    from .grouped import GroupArrays, GroupOptions

MOST = CAPACITIES[-1]
"""The most groups of one launch."""
UNIT = 32
"""Every part but the last has a multiple of this many groups, so that scales of groups begin at multiples of 16 bytes in each."""


def spans(groups: int) -> Iterator[tuple[int, int]]:
    """The first group and the number of groups of each launch: as few launches as there can be, of about as many groups each."""
    launches = max(1, -(-groups // MOST))
    each = -(-groups // launches // UNIT) * UNIT if launches > 1 else max(1, groups)
    for first in range(0, groups, each):
        yield first, min(each, groups - first)


def part(array: ArrayView, first: int, count: int) -> ArrayView:
    """`count` elements of an array's first extent, from `first` on."""
    bytes = TYPES[array.dtype].bits // 8
    return array._replace(pointer=array.pointer + first * array.strides[0] * bytes, shape=(count, *array.shape[1:]))


def parts(arrays: GroupArrays, options: GroupOptions, groups: int, mean: float) -> list[tuple[GroupArrays, GroupOptions]]:
    """The arrays and options of each launch. All of them expect as many rows a group."""
    masked = options.layout == "masked"
    of_groups = ("x", "w", "out", "x_scale", "w_scale", "out_scale") if masked else ("w", "w_scale")
    found = []
    for first, count in spans(groups):
        own = {name: part(array, first, count) for name, array in arrays.named() if name in of_groups and array.shape[:1] == (groups,)}
        own["lengths"] = part(arrays.lengths, first, count if masked else count + 1)
        found.append((arrays._replace(**own), replace(options, mean_tokens=mean)))
    return found


__all__ = ["MOST", "part", "parts", "spans"]
