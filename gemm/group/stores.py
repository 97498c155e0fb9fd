"""Stores that leave the rows of the next group alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ptxkit import Reg, Vec, if_
from ptxkit.flow import else_
from ptxkit.types import u32

from ..atoms import ROWS
from ..epilogue import DirectStore, StagedStore


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

    def drain(self) -> None:
        """Before the warpgroup exits."""
        self.whole.drain()


__all__ = ["WholeOrPart"]
