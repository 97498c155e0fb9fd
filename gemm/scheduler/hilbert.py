"""The order of tiles along a Hilbert curve, computed on the host: neighbours in time are neighbours in D, on every scale."""

from __future__ import annotations

from typing import Any

import numpy as np

MOST = 1 << 16              # rows or columns that an entry has room for


def hilbert(rows: int, columns: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Every place of a grid once, row << 16 | column, along the Hilbert curve through a square that holds the grid; a long grid is a
    chain of squares as wide as it is, each of which begins beside the end of the one before."""
    narrow, long = min(rows, columns), max(rows, columns)
    side = 1 << (narrow - 1).bit_length()
    across, along = _square(side)
    blocks = np.arange(-(-long // side), dtype=np.uint32)[:, None] * np.uint32(side)
    across, along = np.broadcast_to(across, (len(blocks), side * side)).reshape(-1), (blocks + along).reshape(-1)
    inside = (across < narrow) & (along < long)
    across, along = across[inside], along[inside]
    row, column = (across, along) if rows == narrow else (along, across)
    return np.asarray(row << np.uint32(16) | column, np.uint32)


def _square(side: int) -> tuple[Any, Any]:
    """The curve through a square of `side`, a power of two, from (0, 0) to (0, side - 1): two bits of the index a scale."""
    index = np.arange(side * side, dtype=np.uint32)
    x, y = np.zeros_like(index), np.zeros_like(index)
    scale = 1
    while scale < side:
        right, up = index >> 1 & 1, (index ^ index >> 1) & 1
        flipped = (up == 0) & (right == 1)
        x, y = np.where(flipped, scale - 1 - x, x), np.where(flipped, scale - 1 - y, y)
        x, y = np.where(up == 0, y, x), np.where(up == 0, x, y)
        x, y = (x + scale * right).astype(np.uint32), (y + scale * up).astype(np.uint32)
        index >>= 2
        scale *= 2
    return (y, x) if side > 1 and x[-1] else (x, y)


__all__ = ["MOST", "hilbert"]
