"""What a tile scheduler is asked about, and what it answers: extents in tiles, and one work tile after another."""

from __future__ import annotations

from dataclasses import dataclass, field

from ptxkit import Reg
from ptxkit.idioms import inverse
from ptxkit.types import u32

from .stream_k import Part


@dataclass(frozen=True, slots=True)
class TileDivmod:
    """Inverses of the divisors with which a tile's index becomes its place (`ptxkit.idioms.inverse`): cluster tiles of a line, which is a
    row of them ("along_n": a column); lines of the last panel; cluster tiles of a batch. On the host, or in registers."""

    line: Reg[u32] | int
    panel: Reg[u32] | int
    batch: Reg[u32] | int

    @classmethod
    def of(cls, rows: int, columns: int, size: int, along_m: bool) -> TileDivmod:
        """On the host, of so many rows and columns of cluster tiles, in panels of `size` lines."""
        lines, count = (rows, columns) if along_m else (columns, rows)
        return cls(inverse(count), inverse((lines - 1) % size + 1), inverse(rows * columns))


@dataclass(frozen=True, slots=True)
class Extents:
    """A problem counted in tiles, in registers."""

    m: Reg[u32]
    n: Reg[u32]
    k: Reg[u32]
    divmod: TileDivmod
    batches: Reg[u32] | None = None


@dataclass(frozen=True, slots=True)
class WorkTile:
    """What one CTA works on next: tile (m, n) of a batch, stages `first` to `first + stages` of its depth. `tile` is the index of the whole
    tile; `split` says which part of its depth is this CTA's; `part` is there where the depth is dealt out in runs of stages."""

    m: Reg[u32]
    n: Reg[u32]
    first: Reg[u32] | int
    stages: Reg[u32]
    tile: Reg[u32]
    split: Reg[u32] | None = None
    batch: Reg[u32] | None = None
    part: Part | None = field(default=None, kw_only=True)

    @property
    def outer(self) -> tuple[Reg[u32], ...]:
        """The map's coordinate of the batch, if there is one."""
        return () if self.batch is None else (self.batch,)


__all__ = ["Extents", "TileDivmod", "WorkTile"]
