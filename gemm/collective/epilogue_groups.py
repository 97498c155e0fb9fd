"""Stores that leave the rows of the next group alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ptxkit import Ptr, Reg, TensorMap, Vec, if_
from ptxkit.flow import else_
from ptxkit.ptx import add, mov
from ptxkit.ptx import min as min_
from ptxkit.smem import Tile
from ptxkit.types import u32

from .atoms import ROWS
from .epilogue import DirectStore, Fused, StagedStore
from .tensormaps import acquire


@dataclass(frozen=True, slots=True)
class WholeOrPart:
    """A warpgroup's rows by tensor copies when all of them are the group's, else row by row from the registers."""

    whole: StagedStore
    part: DirectStore
    end: Reg[u32]
    slabs: int

    def tile(self, acc: list[Vec[Any, Any]], row: Reg[u32], column: Reg[u32], BN: int) -> None:
        """Store slabs of 64 x BN to rows `row`.. and columns `column`.. of Y."""
        with if_(row + self.slabs * ROWS <= self.end):
            self.whole.tile(acc, row, column, BN)
        with else_():
            self.part.tile(acc, row, column, BN)

    def tail(self) -> None:
        """Before the warpgroup exits."""
        self.whole.tail()


class RaggedStore(StagedStore):
    """Every box by a tensor copy, the last ones of a group cut off at its end by the map itself.

    Y is described with extents (columns, 64, rows + 1), the strides of both outer ones being a row's, from 64 rows before Y on: element
    (c, i, j) is Y[i + j - 64][c], and the same rows of Y can be had with any i. With r of the group's rows left, at most 64, the box
    begins at i = 64 - r, j = row + r: its r rows end where i does, and what follows is out of bounds, which the copy drops.
    """

    def __init__(self, staging: Tile[Any], y: TensorMap, consumer: Reg[u32], thread: Reg[u32], fused: Fused, end: Reg[u32],
                 **how: Any) -> None:
        super().__init__(staging, y, consumer, thread, fused, **how)
        self.end = end

    def coordinates(self, column: Reg[u32], row: Reg[u32], batch: Reg[u32] | None) -> tuple[Any, ...]:
        """No further rows than the group's last."""
        left = min_.u32(self.end - min_.u32(row, self.end), ROWS)
        return column, ROWS - left, row + left


class UpdatedStore(StagedStore):
    """Every box by a tensor copy through a map of the group alone, which ends where the group does.

    `origin` is the row of Y at which the map begins. The storing thread acquires a map when its warpgroup comes to another group.
    """

    def __init__(self, staging: Tile[Any], y: TensorMap, consumer: Reg[u32], thread: Reg[u32], fused: Fused,
                 **how: Any) -> None:
        super().__init__(staging, y, consumer, thread, fused, **how)
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


__all__ = ["RaggedStore", "UpdatedStore", "WholeOrPart"]
