"""Input and output of a tile scheduler: a problem's extents in tiles, and work tiles."""

from __future__ import annotations

from dataclasses import dataclass, field

from ptxkit import Reg
from ptxkit.idioms import inverse
from ptxkit.types import u32

from .stream_k import Part


@dataclass(frozen=True, slots=True)
class TileDivmod:
    """The inverses (`ptxkit.idioms.inverse`) that turn a tile's index into its place without a division, on the host or in registers.

    Their divisors: `line`, the cluster tiles of a row ("along_n": of a column); `panel`, the lines of the last panel; `batch`, the cluster
    tiles of a batch.
    """

    line: Reg[u32] | int
    panel: Reg[u32] | int
    batch: Reg[u32] | int

    @classmethod
    def of(cls, rows: int, columns: int, size: int, along_m: bool) -> TileDivmod:
        """On the host, for `rows` x `columns` cluster tiles in panels of `size` lines."""
        lines, count = (rows, columns) if along_m else (columns, rows)
        return cls(inverse(count), inverse((lines - 1) % size + 1), inverse(rows * columns))


@dataclass(frozen=True, slots=True)
class Extents:
    """A problem's extents in tiles, in registers."""

    m: Reg[u32]
    n: Reg[u32]
    k: Reg[u32]
    divmod: TileDivmod
    batches: Reg[u32] | None = None


@dataclass(frozen=True, slots=True)
class WorkTile:
    """A work tile: stages `first` to `first + stages` along K of tile (m, n) of a batch.

    `tile` is the index of the output tile. With split-K, `split` is the number of this part of K. With stream-K, `part` is the run's part.
    """

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
        """The tensor map's coordinate of the batch; empty without batches."""
        return () if self.batch is None else (self.batch,)


__all__ = ["Extents", "TileDivmod", "WorkTile"]
