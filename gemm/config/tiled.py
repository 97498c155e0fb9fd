"""What dense and grouped configurations have in common: a tile, a ring and a schedule, of which some fields are derived."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import fields, make_dataclass, replace
from typing import Any, ClassVar, Self

from ptxkit.dsl.values import changed
from ptxkit.types import Scalar

from ..collective.mainloop_promoted import MIN_UNROLLED_STAGES
from . import budget
from .parts import Cooperative, Pingpong, Sums, Tile, shares_columns

PINGPONG_BYTES = 16         # the mbarriers of an ordered barrier


class TiledConfig:
    """A dataclass with the fields `tile`, `stages`, `schedule` and `store`."""

    __slots__ = ()

    tile: Tile
    stages: int
    schedule: Cooperative | Pingpong
    FIXED: ClassVar[tuple[str, ...]] = ()
    """Fields that `with_` does not change."""

    def _derive(self, **found: Any) -> None:
        for name, value in found.items():
            object.__setattr__(self, name, value)

    def _derive_tile(self, a: type[Scalar]) -> None:
        """Derive BK and the number of mma warpgroups if they are left out."""
        if not self.tile.BK:
            self._derive(tile=Tile(self.tile.BM, self.tile.BN, budget.STAGE_BYTES * 8 // a.bits))
        if isinstance(self.schedule, Cooperative) and not self.schedule.warpgroups:
            how = self.schedule
            self._derive(schedule=replace(how, warpgroups=budget.default_warpgroups(self.tile.BM, how.share)))

    @property
    def sums(self) -> Sums:
        """Where the sums along K are accumulated."""
        return budget.sums_of(self.schedule)

    @property
    def warpgroups(self) -> int:
        """The number of mma warpgroups."""
        return budget.warpgroups_of(self.schedule)

    @property
    def m64_blocks(self) -> int:
        """The m64 blocks of a tile that one mma warpgroup multiplies."""
        return budget.m64_blocks(self.tile, self.schedule)

    @property
    def own_columns(self) -> int:
        """The columns of a tile that one mma warpgroup multiplies."""
        return budget.own_columns(self.tile, self.schedule)

    def _staging_bytes(self, buffers: int, out: type[Scalar], transposed: bool = False) -> int:
        """Shared memory of the staging buffers and of the barrier of pingpong warpgroups."""
        bytes = budget.staging_bytes(buffers, self.own_columns, out, self.schedule, transposed) if buffers else 0
        return bytes + (PINGPONG_BYTES if isinstance(self.schedule, Pingpong) else 0)

    def _ungrouped_problem(self) -> str | None:
        """The reason if a tile is none of groups: wide, or with warpgroups that share its columns."""
        if shares_columns(self.schedule):
            return "warpgroups share the rows of a tile of groups: take share=\"rows\""
        return f"tiles of groups have up to 256 columns, not {self.tile.BN}" if self.tile.wide else None

    def _promotion_problem(self) -> str | None:
        """The reason if the ring is too short for sums that are promoted by halves."""
        if budget.promoted_by_halves(self.tile, self.schedule) and self.stages < MIN_UNROLLED_STAGES:
            return (f"sums promoted by halves of {self.tile.BN} columns spill in a ring of {self.stages} stages: take "
                    f"{MIN_UNROLLED_STAGES}, or BN={self.tile.BN // 2}")
        return None

    def with_(self, changes: Mapping[str, Any]) -> Self:
        """A copy with the fields at these paths changed (`{"tile.BM": 64}`). Derived fields that are not among them are derived again."""
        kind: Any = type(self)
        draft = _draft(kind)
        values = {field.name: getattr(self, field.name) for field in fields(draft)} | {"stages": 0, "store": None}
        if isinstance(self.schedule, Cooperative):
            values["schedule"] = replace(self.schedule, warpgroups=0)
        bare = draft(**values)
        for path, value in changes.items():
            bare = changed(bare, path, value)
        made: Self = kind(**{field.name: getattr(bare, field.name) for field in fields(bare)})
        return made


@functools.cache
def _draft(kind: type[Any]) -> type[Any]:
    """A class with the fields of a configuration that checks nothing: between two changes they need not fit."""
    changeable = [(field.name, field.type) for field in fields(kind) if field.name not in kind.FIXED]
    draft = make_dataclass(kind.__name__, changeable, frozen=True, slots=True)
    draft.__module__ = kind.__module__          # where the names of its types mean something
    return draft


__all__ = ["TiledConfig"]
