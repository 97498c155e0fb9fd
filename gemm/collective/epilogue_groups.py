"""Epilogues of grouped products: stores that do not write into the rows of the next group."""

from __future__ import annotations

from typing import Any, Literal

from ptxkit import Ptr, Reg, TensorMap
from ptxkit.ptx import add, ld, mov
from ptxkit.ptx import min as min_
from ptxkit.smem import Tile
from ptxkit.types import b8, u32, u64

from ..config import budget
from ..config.grouped import GroupedConfig
from ..config.parts import Pingpong
from ..scheduler.grouped import GroupWorkTile
from .atoms import ROWS, Mma
from .epilogue import DirectStore, Edges, Fused, StagedStore
from .epilogue_ops import Fusion, FusionOperands, Matrix, Strided
from .epilogue_swap_ab import SwapABStore
from .gated import GatedMma, GatedSwapABStore
from .tensormaps import acquire, map_of, maps_of
from .vector_scales import ScaledMma, VectorScales
from .warpgroups import MmaThread


class RaggedStore(StagedStore):
    """Stores every box by a tensor copy. The tensor map cuts off a group's last boxes at the group's end.

    The map begins 64 rows before Y. Its extents are (columns, 64, rows + 1), and both outer strides are one row, so element (c, i, j) is
    Y[i + j - 64][c]. If r <= 64 rows of the group are left, the box begins at i = 64 - r and j = row + r. Its first r rows are the
    group's; the others are past the extent of i, and the copy drops them.
    """

    def __init__(self, staging: Tile[Any], y: TensorMap, warpgroup: Reg[u32], thread: Reg[u32], fused: Fused, end: Reg[u32],
                 **how: Any) -> None:
        super().__init__(staging, y, warpgroup, thread, fused, **how)
        self.end = end

    def coordinates(self, column: Reg[u32], row: Reg[u32], batch: Reg[u32] | None) -> tuple[Any, ...]:
        """The box ends at the group's last row."""
        left = min_.u32(self.end - min_.u32(row, self.end), ROWS)
        return column, ROWS - left, row + left


class UpdatedStore(StagedStore):
    """Stores every box by a tensor copy through the group's own map, which ends with the group.

    `origin` is the row of Y at which the map begins. The leader thread acquires a map when its warpgroup starts another group.
    """

    def __init__(self, staging: Tile[Any], y: TensorMap, warpgroup: Reg[u32], thread: Reg[u32], fused: Fused,
                 **how: Any) -> None:
        super().__init__(staging, y, warpgroup, thread, fused, **how)
        self.at, self.origin, self.group = mov.u64(0), mov.u32(0), mov.u32(0xFFFF_FFFF)

    def turn_to(self, group: Reg[u32], map_: Ptr[u32], origin: Reg[u32]) -> None:
        """Use this group's map for the next tiles."""
        acquire(map_, pred=self.leader & (group != self.group))
        mov.u64(self.at, map_.reg if not map_.offset else add.u64(map_.reg, map_.offset))
        mov.u32(self.group, group)
        mov.u32(self.origin, origin)

    def coordinates(self, column: Reg[u32], row: Reg[u32], batch: Reg[u32] | None) -> tuple[Any, ...]:
        """Coordinates relative to the map's first row."""
        return column, row - self.origin

    def tensormap(self) -> Any:
        """The group's map."""
        return Ptr(self.at, u32)


class GroupEpilogue:
    """The epilogue of one mma warpgroup: it scales or gates the sums of a group's tile, and stores only the group's rows.

    `end` is the end of the tile's rows within the group (with `swap_ab`: of its columns). `factor` is the group's scale, `vectors` are
    those of rows of X and of the group's features. With "ptr_array" and a store without a map, the address and number of columns of Y are
    read for each tile.
    """

    def __init__(self, config: GroupedConfig, atom: Mma, n: Reg[u32], out: Strided, mma_thread: MmaThread) -> None:
        operands, swap_ab = config.operands, config.swap_ab
        self.config, self.mma_thread = config, mma_thread
        self.end, self.factor = mov.u32(0), mov.f32(1.0)
        self.scaled = operands.scaled and operands.vectors not in ("row_column", "weight")      # by a factor
        fusion = Fusion(alpha=self.scaled and not operands.gated)
        reads = FusionOperands(self.factor, self.factor)
        reads.read_scales()
        self.by_address = operands.layout == "ptr_array" and not config.staged
        self.columns = mov.u32(0) if self.by_address else n
        edges = Edges(self.columns, self.end) if swap_ab else Edges(self.end, self.columns)
        parts: Literal["", "rows", "columns"] = "" if not operands.gated else "rows" if swap_ab else "columns"
        when = budget.when_scales_are_read(config.tile, config.schedule, parts=2 if parts == "columns" else 1)
        self.vectors = VectorScales(None, None, mma_thread, config.tile.BN, edges.m, edges.n, when, parts, n)
        gates: Mma = ScaledMma.of(atom, self.vectors)
        if parts == "columns":
            gates = GatedMma(atom.a, atom.b, atom.n, sums=gates, factor=self.factor if self.scaled else None)
        self.fused = Fused(gates, fusion, reads, edges, mma_thread.row, mma_thread.column, config.elements)
        self.out = out
        self.matrix = Matrix(Ptr(mov.u64(0), b8), operands.out, self.columns, out.batch) if self.by_address else out.of(operands.out)

    def store(self, staging: Tile[Any] | None, y: TensorMap) -> Any:
        """The store of tiles whose tokens are rows and whose results are not quantised."""
        if staging is None:
            return DirectStore(self.matrix, self.fused)
        how: dict[str, Any] = {"buffers": self.config.buffers, "together": not isinstance(self.config.schedule, Pingpong)}
        if self.config.updates_maps:
            return UpdatedStore(staging, y, self.mma_thread.warpgroup, self.mma_thread.thread, self.fused, **how)
        return RaggedStore(staging, y, self.mma_thread.warpgroup, self.mma_thread.thread, self.fused, self.end, **how)

    def turn_to_group(self, store: Any, work: GroupWorkTile, workspace: Ptr[u32]) -> None:
        """Before a tile is stored: the group's own map, if groups have maps of their own."""
        if isinstance(store, UpdatedStore):
            operands = self.config.operands
            own_map = map_of(workspace, operands.max_groups, operands.layout, work.group, maps_of(operands.layout) - 1)
            store.turn_to(work.group, own_map, work.start)

    def swap_ab_store(self) -> SwapABStore:
        """The store of tiles whose tokens are columns."""
        kind = GatedSwapABStore if self.config.operands.gated else SwapABStore
        made = kind(self.matrix, self.fused, self.mma_thread.lane, self.mma_thread.warp, self.config.n_granularity)
        if isinstance(made, GatedSwapABStore) and self.scaled:
            made.factor = self.factor
        return made

    def begin(self, work: GroupWorkTile, lengths: Ptr[u32]) -> None:
        """Begin a work tile."""
        mov.u32(self.end, work.until)
        if self.by_address:
            ld.global_.u32(self.columns, lengths.at(work.group * 3 + 1))
            ld.global_.u64(self.matrix.pointer.reg, self.out.pointer.cast(u64).at(work.group))


__all__ = ["GroupEpilogue", "RaggedStore", "UpdatedStore"]
