"""The order of tiles along a Hilbert curve, computed on the host: neighbours in time are neighbours in D, on every scale."""

from __future__ import annotations

from typing import Any

import numpy as np

MAX_PLACES = 1 << 16        # rows or columns of tiles: an entry has 16 bits for each


def hilbert(rows: int, columns: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Every tile of a grid once, as row << 16 | column, in the order of a Hilbert curve.

    The curve runs through a chain of squares along the longer axis. The squares' side is the shorter axis rounded up to a power of two.
    Each square begins at a neighbour of the tile where the previous one ends. Places outside the grid are left out.
    """
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
    """The curve through a square from (0, 0) to (0, side - 1). `side` is a power of two. Each scale takes two bits of the index."""
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


__all__ = ["MAX_PLACES", "hilbert"]
