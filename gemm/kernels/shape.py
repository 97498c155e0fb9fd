"""The shape parameters of every dense kernel, and the prefetch of a CTA's first tile."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from ptxkit import Reg, TensorMap, if_, smem
from ptxkit.smem import Tile
from ptxkit.types import u32

from ..collective.cluster import Cluster
from ..collective.tiled import TiledCopy
from ..config import budget, parts
from ..config.dense import Operands
from ..scheduler.dense import TileScheduler
from ..scheduler.work import Extents, TileDivmod

PREFETCHING_THREAD = 64     # the first thread of warp 2, which is idle before the CTA starts


@dataclass(frozen=True, slots=True)
class Shape:
    """The extents of D in elements, and of the product in tiles and stages."""

    m: Reg[u32]
    n: Reg[u32]
    m_tiles: Reg[u32]
    n_tiles: Reg[u32]
    k_tiles: Reg[u32]
    batches: Reg[u32]

    def extents(self, divmod: TileDivmod, batched: bool) -> Extents:
        """The extents for a tile scheduler."""
        return Extents(self.m_tiles, self.n_tiles, self.k_tiles, divmod, self.batches if batched else None)


def prefetch_first_tile(tiles: TileScheduler, b: TensorMap, b_tile: Tile[Any], BN: int, cluster: Cluster, thread: Reg[u32],
                        n: Reg[u32], stages: int) -> Sequence[Reg[u32]] | None:
    """In one thread: bring the first stages of B, of `n` lines, for this CTA's first tile into the L2. Returns what the scheduler takes as
    `first`, so that it does not compute the tile again."""
    if not stages:
        return None
    first, begins_at = tiles.begins_at()
    with if_(thread == PREFETCHING_THREAD):
        copy = TiledCopy(b, b_tile, cluster.of_b())
        prefetch_stages(copy, first.n * BN, BN, n, stages, tiles.extents.k, first.first, *first.outer)
    return begins_at


def prefetch_stages(copy: TiledCopy, line: Reg[u32], lines: int, end: Reg[u32], stages: int, depth: Reg[u32], first: Reg[u32] | int,
                    *outer: Any) -> None:
    """Bring `stages` stages from `first` on into the L2, or as many as K has if its `depth` is less. The tile has `lines` lines from `line`
    on. If it goes past the `end`, nothing is prefetched: outside of a tensor that takes the copy unit longer than copies would
    (docs/experiments.md)."""
    with if_(line + lines <= end):
        for stage in range(stages):
            with if_(depth > first + stage) if stage else nullcontext():
                copy.prefetch(line, (first + stage) * copy.tile.layout.columns, *outer)


def stage_tiles(operands: Operands, tile: parts.Tile, stages: int) -> tuple[Tile[Any], Tile[Any]]:
    """Shared memory of the ring: the tiles of A and of B, `stages` of each."""
    held = budget.spanned(tile, operands.b_major)
    return (smem.tile(operands.a, (stages, held.BM, held.BK), major=operands.a_major, name="A"),
            smem.tile(operands.b, (stages, held.BN, held.BK), major=operands.b_major, name="B"))


__all__ = ["PREFETCHING_THREAD", "Shape", "prefetch_first_tile", "prefetch_stages", "stage_tiles"]
