"""Parts that several steps share: what the marks of a step say of a tile, and the direct store of a wgmma fragment."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ptxkit import Ptr, Reg, Vec
from ptxkit.dsl.coordinates import Coordinates
from ptxkit.fragments import pack
from ptxkit.ptx import st
from ptxkit.types import bf16, u32

PHASES = ("load", "mma", "store")
SPANS = {"load": ("load", "wait"), "mma": ("mma",), "store": ("store",)}
"""The spans of each phase. Where others load, the multiplying warps wait."""
MULTIPLIES = ("", "consumer")
"""The roles of warps that multiply."""

Warp = tuple[int, str, Callable[[str], "np.ndarray[Any, Any]"]]
"""A warp in a role: its CTA, the role, and the clocks of its spans of a name."""


def of_tiles(warps: Iterable[Warp]) -> dict[str, float]:
    """The mean clocks of each phase of a tile, and the number of tiles, of the first multiplying warp of each CTA. A store ends a tile."""
    sums, tiles, seen = dict.fromkeys(PHASES, 0), 0, set[int]()
    for cta, role, clocks in warps:
        stores = len(clocks("store"))
        if role in MULTIPLIES and stores and cta not in seen:
            seen.add(cta)
            tiles += stores
            for phase, names in SPANS.items():
                sums[phase] += sum(int(clocks(name).sum(dtype=np.uint64)) for name in names)
    return {**{phase: value / tiles for phase, value in sums.items()}, "tiles": float(tiles)}


def store_fragment(acc: Vec[Any, Any], here: Coordinates, d: Ptr[bf16], column: Reg[u32], n: Reg[u32]) -> None:
    """Store a warpgroup's m64 fragment from this column of D on, in the order of its registers. `here` says where its elements are.

    For every 8 columns a thread holds two neighbours of row r and two of row r + 8. Each store of a warp writes 16 bytes of eight rows.
    """
    upper = d.at(here.row * n + column + here.column)
    lower = upper.at(n * 8)
    for line, at, pair in here.runs(acc):
        st.global_.b32((lower if line else upper) + at, pack(bf16, *pair))
