"""The order of tiles: where the tile with a given index lies, and which of a cluster's tiles is this CTA's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ptxkit import Ptr, Reg, cluster_ctarank
from ptxkit.idioms import inverse, quotient
from ptxkit.ptx import ld, mov, selp
from ptxkit.ptx import min as min_
from ptxkit.types import u32

from ..config.parts import ClusterShape, Hilbert, Raster, Swizzle
from .work import TileDivmod


@dataclass(frozen=True, slots=True)
class TileOrder:
    """The order in which clusters go through the output. A cluster tile is `cluster.m` x `cluster.n` tiles, one a CTA.

    Cluster tiles go down `swizzle.size` rows, a panel, then on to the next column of it, so that those in flight touch few rows of A and
    few columns of B and both stay in L2; "along_n" exchanges rows and columns. A serpentine order walks every other panel backwards. The
    last panel has what is left. A Hilbert order takes places from the table `curve` (see `hilbert`), a row in the upper half of a word.
    A CTA of a cluster may get a tile past the end of D: its copies are out of bounds, which reads zeros and writes nothing.
    """

    swizzle: Swizzle = Swizzle()
    cluster: ClusterShape = ClusterShape()
    curve: Ptr[u32] | None = None

    @classmethod
    def of(cls, order: Swizzle | Hilbert, cluster: ClusterShape, curve: Ptr[u32]) -> TileOrder:
        """`curve` is read for a Hilbert order alone."""
        return cls(cluster=cluster, curve=curve) if isinstance(order, Hilbert) else cls(order, cluster)

    @property
    def raster(self) -> Raster:
        return self.swizzle.raster

    def place(self, index: Reg[u32], rows: Reg[u32], columns: Reg[u32], divmod: TileDivmod) -> tuple[Reg[u32], Reg[u32]]:
        """Row and column of a cluster tile."""
        if self.curve is not None:
            entry = ld.global_.nc.u32(self.curve.at(index))
            return entry >> 16, entry & 0xFFFF
        lines, of_line = (rows, columns) if self.raster == "along_m" else (columns, rows)
        line = quotient(index, of_line, divmod.line)
        return self.in_panel(index, line, lines, of_line, lambda width: (
            selp.u32(divmod.panel, inverse(self.swizzle.size), width < self.swizzle.size)))

    def in_panel(self, index: Reg[u32], line: Reg[u32], lines: Reg[u32], of_line: Reg[u32],
                 inverse_of: Callable[[Reg[u32]], Reg[u32]]) -> tuple[Reg[u32], Reg[u32]]:
        """Row and column of a cluster tile that has so many whole lines before it. `inverse_of` is asked for the inverse of a panel's
        lines."""
        size = self.swizzle.size
        panel = quotient(line, size)
        first = panel * size
        within = index - first * of_line
        if size == 1:
            near, far = line, within
        else:
            width = min_.u32(lines - first, size)
            far = quotient(within, width, inverse_of(width))
            near = first + (within - far * width)
        if self.swizzle.serpentine:
            far = selp.u32(of_line - 1 - far, far, (panel & 1) != 0)
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
