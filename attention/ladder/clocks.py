"""What the marks of a launch say of a tile: the clocks of its phases."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

PHASES = ("load", "products", "softmax", "turn", "store")
SPANS = {"load": ("load", "wait"), "products": ("products",), "softmax": ("softmax", "mask"), "turn": ("turn",), "store": ("store",)}
"""The spans of each phase in the warps that multiply. Where another warp loads, these wait."""
MULTIPLIES = ("", "consumer")
"""The roles of warps that multiply."""

Warp = tuple[int, str, Callable[[str], "np.ndarray[Any, Any]"]]
"""A warp in a role: its CTA, the role, and the clocks of its spans of a name."""


def of_tiles(warps: Iterable[Warp]) -> dict[str, float]:
    """The mean clocks of each phase of a tile, and the number of tiles, of the first multiplying warp of each CTA. A store ends a tile.

    The final kernel has no span of its products but one of the whole tile: what the other phases leave of it are the products, with the
    scaling and packing between them.
    """
    sums, tiles, whole, seen = dict.fromkeys(PHASES, 0), 0, 0, set[int]()
    for cta, role, clocks in warps:
        stores = len(clocks("store"))
        if role in MULTIPLIES and stores and cta not in seen:
            seen.add(cta)
            tiles += stores
            whole += _total(clocks("tile"))
            for phase, names in SPANS.items():
                sums[phase] += sum(_total(clocks(name)) for name in names)
    if not tiles:
        return {"tiles": 0.0}
    if whole:
        sums["products"] = whole - sum(sums[phase] for phase in PHASES if phase != "products")
    return {**{phase: value / tiles for phase, value in sums.items()}, "tiles": float(tiles)}


def _total(clocks: np.ndarray[Any, Any]) -> int:
    return int(clocks.sum(dtype=np.uint64))


__all__ = ["PHASES", "Warp", "of_tiles"]
