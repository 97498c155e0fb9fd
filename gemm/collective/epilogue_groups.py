"""Stores that leave the rows of the next group alone."""

from __future__ import annotations

from typing import Any

from ptxkit import Ptr, Reg, TensorMap
from ptxkit.ptx import add, ld, mov
from ptxkit.ptx import min as min_
from ptxkit.smem import Tile
from ptxkit.types import b8, u32, u64

from ..config.grouped import GroupedConfig
from ..config.parts import Pingpong
from ..scheduler.grouped import GroupWorkTile
from .atoms import ROWS, Mma
from .epilogue import DirectStore, Edges, Fused, StagedStore
from .epilogue_ops import Fusion, FusionOperands, Matrix, Strided
from .epilogue_swap_ab import SwapABStore
from .gated import GatedMma, GatedSwapABStore
from .tensormaps import acquire
from .warpgroups import MmaThread


class RaggedStore(StagedStore):
    """Every box by a tensor copy, the last ones of a group cut off at its end by the map itself.

    Y is described with extents (columns, 64, rows + 1), the strides of both outer ones being a row's, from 64 rows before Y on: element
    (c, i, j) is Y[i + j - 64][c], and the same rows of Y can be had with any i. With r of the group's rows left, at most 64, the box
    begins at i = 64 - r, j = row + r: its r rows end where i does, and what follows is out of bounds, which the copy drops.
    """

    def __init__(self, staging: Tile[Any], y: TensorMap, warpgroup: Reg[u32], thread: Reg[u32], fused: Fused, end: Reg[u32],
                 **how: Any) -> None:
        super().__init__(staging, y, warpgroup, thread, fused, **how)
        self.end = end

    def coordinates(self, column: Reg[u32], row: Reg[u32], batch: Reg[u32] | None) -> tuple[Any, ...]:
        """No further rows than the group's last."""
        left = min_.u32(self.end - min_.u32(row, self.end), ROWS)
        return column, ROWS - left, row + left


class UpdatedStore(StagedStore):
    """Every box by a tensor copy through a map of the group alone, which ends where the group does.

    `origin` is the row of Y at which the map begins. The storing thread acquires a map when its warpgroup comes to another group.
    """

    def __init__(self, staging: Tile[Any], y: TensorMap, warpgroup: Reg[u32], thread: Reg[u32], fused: Fused,
                 **how: Any) -> None:
        super().__init__(staging, y, warpgroup, thread, fused, **how)
        self.at, self.origin, self.group = mov.u64(0), mov.u32(0), mov.u32(0xFFFF_FFFF)

    def turn_to(self, group: Reg[u32], map_: Ptr[u32], origin: Reg[u32]) -> None:
        """The tiles that follow are this group's."""
        acquire(map_, pred=self.leader & (group != self.group))
        mov.u64(self.at, map_.reg if not map_.offset else add.u64(map_.reg, map_.offset))
        mov.u32(self.group, group)
        mov.u32(self.origin, origin)

    def coordinates(self, column: Reg[u32], row: Reg[u32], batch: Reg[u32] | None) -> tuple[Any, ...]:
        """Counted from the group's first row."""
        return column, row - self.origin

    def tensormap(self) -> Any:
        """The group's."""
        return Ptr(self.at, u32)


class GroupEpilogue:
    """What an mma warpgroup does with the sums of a group's tile: scale or gate them, and store the rows of the group alone.

    `end` is the end of the group's rows (with swapped operands: of its columns), `factor` the group's scale. Groups with matrices of their
    own that are stored without a map have their address and columns read for each tile.
    """

    def __init__(self, config: GroupedConfig, atom: Mma, n: Reg[u32], out: Strided, here: MmaThread) -> None:
        operands, swap_ab = config.operands, config.swap_ab
        self.config, self.here = config, here
        self.end, self.factor = mov.u32(0), mov.f32(1.0)
        scaled = operands.scaled
        gates: Mma = atom
        if operands.gated and not swap_ab:
            gates = GatedMma(atom.a, atom.b, atom.n, factor=self.factor if scaled else None)
        fusion = Fusion(alpha=scaled and not operands.gated)
        reads = FusionOperands(self.factor, self.factor)
        reads.read_scales(fusion)
        self.by_address = operands.layout == "ptr_array" and not config.staged
        self.columns = mov.u32(0) if self.by_address else n
        edges = Edges(self.columns, self.end) if swap_ab else Edges(self.end, self.columns)
        self.fused = Fused(gates, fusion, reads, edges, here.row, here.column)
        self.out = out
        self.matrix = Matrix(Ptr(mov.u64(0), b8), operands.out, self.columns, out.batch) if self.by_address else out.of(operands.out)

    def store(self, staging: Tile[Any] | None, y: TensorMap) -> Any:
        """How tiles are stored whose tokens are rows and whose results are not quantised."""
        if staging is None:
            return DirectStore(self.matrix, self.fused)
        how: dict[str, Any] = {"buffers": self.config.buffers, "together": not isinstance(self.config.schedule, Pingpong)}
        if self.config.updates_maps:
            return UpdatedStore(staging, y, self.here.warpgroup, self.here.thread, self.fused, **how)
        return RaggedStore(staging, y, self.here.warpgroup, self.here.thread, self.fused, self.end, **how)

    def swap_ab_store(self) -> SwapABStore:
        """How tiles are stored whose tokens are columns."""
        kind = GatedSwapABStore if self.config.operands.gated else SwapABStore
        made = kind(self.matrix, self.fused, self.here.lane, self.here.warp, self.config.n_granularity)
        if isinstance(made, GatedSwapABStore) and self.config.operands.scaled:
            made.factor = self.factor
        return made

    def begin(self, work: GroupWorkTile, lengths: Ptr[u32]) -> None:
        """A new work tile."""
        mov.u32(self.end, work.until)
        if self.by_address:
            ld.global_.u32(self.columns, lengths.at(work.group * 3 + 1))
            ld.global_.u64(self.matrix.pointer.reg, self.out.pointer.cast(u64).at(work.group))


__all__ = ["GroupEpilogue", "RaggedStore", "UpdatedStore"]
