"""The order of tiles: where the tile with a given index lies, and which tile of its cluster a CTA works on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ptxkit import Ptr, Reg, cluster_ctarank
from ptxkit.idioms import fast_div, inverse
from ptxkit.ptx import ld, mov, selp
from ptxkit.ptx import min as min_
from ptxkit.types import u32

from ..config.parts import ClusterShape, Hilbert, Raster, Swizzle
from .work import TileDivmod


@dataclass(frozen=True, slots=True)
class TileOrder:
    """The order in which clusters go through the output. A cluster tile is `cluster.m` x `cluster.n` tiles, one for each CTA.

    A panel is `swizzle.size` rows of cluster tiles; the last panel may have fewer. The order goes down a panel's first column, then down
    its next column. The tiles in flight thus touch few rows of A and few columns of B, and both stay in L2. "along_n" exchanges rows and
    columns. A serpentine order walks every other panel backwards. A Hilbert order reads places from the table `curve` (see `hilbert`);
    the upper half of a word is the row. A CTA of a cluster may get a tile past the end of D: its loads read zeros and its stores write
    nothing.
    """

    swizzle: Swizzle = Swizzle()
    cluster: ClusterShape = ClusterShape()
    curve: Ptr[u32] | None = None

    @classmethod
    def of(cls, order: Swizzle | Hilbert, cluster: ClusterShape, curve: Ptr[u32]) -> TileOrder:
        """The tile order of a configuration. Only a Hilbert order reads `curve`."""
        return cls(cluster=cluster, curve=curve) if isinstance(order, Hilbert) else cls(order, cluster)

    @property
    def raster(self) -> Raster:
        return self.swizzle.raster

    def place(self, index: Reg[u32], rows: Reg[u32], columns: Reg[u32], divmod: TileDivmod) -> tuple[Reg[u32], Reg[u32]]:
        """Row and column of a cluster tile."""
        if self.curve is not None:
            entry = ld.global_.nc.u32(self.curve.at(index))
            return entry >> 16, entry & 0xFFFF
        lines, line_tiles = (rows, columns) if self.raster == "along_m" else (columns, rows)
        line = fast_div(index, line_tiles, divmod.line)
        return self.in_panel(index, line, lines, line_tiles, lambda width: (
            selp.u32(divmod.panel, inverse(self.swizzle.size), width < self.swizzle.size)))

    def in_panel(self, index: Reg[u32], line: Reg[u32], lines: Reg[u32], line_tiles: Reg[u32],
                 inverse_of: Callable[[Reg[u32]], Reg[u32]]) -> tuple[Reg[u32], Reg[u32]]:
        """Row and column of cluster tile `index`. There are `lines` lines (rows; "along_n": columns) of `line_tiles` cluster tiles, and
        `line` = index / line_tiles. `inverse_of` returns the inverse of a panel's number of lines."""
        size = self.swizzle.size
        panel = fast_div(line, size)
        first = panel * size
        within = index - first * line_tiles
        if size == 1:
            near, far = line, within
        else:
            width = min_.u32(lines - first, size)
            far = fast_div(within, width, inverse_of(width))
            near = first + (within - far * width)
        if self.swizzle.serpentine:
            far = selp.u32(line_tiles - 1 - far, far, (panel & 1) != 0)
        return (near, far) if self.raster == "along_m" else (far, near)

    def in_cluster(self, m: Reg[u32], n: Reg[u32]) -> tuple[Reg[u32], Reg[u32]]:
        """This CTA's tile of a cluster tile: rank = row in the cluster + column * cluster.m."""
        cluster = self.cluster
        rank = mov.u32(cluster_ctarank) if cluster.size > 1 else None
        if rank is None:
            return m, n
        if cluster.n == 1:
            return m * cluster.m + rank, n
        if cluster.m == 1:
            return m, n * cluster.n + rank
        return m * cluster.m + rank % cluster.m, n * cluster.n + rank // cluster.m


__all__ = ["TileOrder"]
