"""Layer 3: the producer thread, which fills the stages with tiles of A, tiles of B and their scale factors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ptxkit import Reg, Ring, ring, span
from ptxkit.ptx import selp
from ptxkit.types import u32

from ..scheduler.work import WorkTile
from .pipeline import Pipeline
from .scale_factors import ScaleRing
from .tiled import TiledCopy


@dataclass(frozen=True, slots=True)
class Producer:
    """One thread: loads the stages of one work tile after another, up to a ring ahead of the mma warpgroups."""

    pipeline: Pipeline
    a: TiledCopy
    b: TiledCopy
    position: Ring

    def load(self, work: WorkTile, row: Reg[u32], column: Reg[u32], *outer: Any, a_outer: tuple[Any, ...] = (),
             b_outer: tuple[Any, ...] = (), scales: ScaleRing | None = None, columns: Any = None) -> None:
        """Load a work tile: A from `row` and B from `column`, in elements. `outer` are further coordinates of both tensor maps, `a_outer`
        and `b_outer` of one of them. With `scales`, `columns` is the total number of columns of B."""
        pipeline, depth = self.pipeline, self.a.tile.layout.columns
        scale_bytes = scales.m.bytes + scales.n.bytes if scales is not None else 0
        bytes, fills = self.a.bytes() + self.b.bytes() + scale_bytes, self.a.fills or self.b.fills
        first_bytes = self.a.bytes(True) + self.b.bytes(True) + scale_bytes if fills else bytes
        if scales is not None:
            scales.n.aim(column, columns)
        with ring(self.position, work.stages) as (k, stage, parity):
            number = k if isinstance(work.first, int) and work.first == 0 else k + work.first
            at = number * depth
            with span("wait"):
                pipeline.acquire(stage, parity)
            with span("load"):
                first = k < pipeline.stages if fills else None
                full = pipeline.expect(stage, bytes if first is None else selp.u32(first_bytes, bytes, first))
                self.a.load(stage, row, at, full, *outer, *a_outer, first=first)
                self.b.load(stage, column, at, full, *outer, *b_outer, first=first)
                if scales is not None:
                    scales.m.load(stage, row, number, full)
                    scales.n.load(stage, column, number, full)

    def tail(self) -> None:
        """Before the producer exits: wait until every stage is empty."""
        self.pipeline.producer_tail(self.position)


@dataclass(frozen=True, slots=True)
class ScaleCopier:
    """Another warp of the producer warpgroup: copies the scale factors that the producer thread cannot. It has its own ring position."""

    pipeline: Pipeline
    scales: ScaleRing
    lane: Reg[u32]
    position: Ring

    def begin_rows(self, work: WorkTile, row: Reg[u32], rows: Reg[u32]) -> None:
        """Begin a work tile at `row` of `rows`."""
        self.scales.m.begin(row, rows, self.lane, work.first)

    def begin_columns(self, work: WorkTile, column: Reg[u32], columns: Reg[u32]) -> None:
        """Begin a work tile at `column` of `columns`."""
        self.scales.n.begin(column, columns, self.lane, work.first)

    def copy(self, work: WorkTile) -> None:
        """In all lanes: copy the scales of the work tile's stages."""
        with ring(self.position, work.stages) as (k, stage, parity):
            self.pipeline.acquire(stage, parity)
            self.scales.copy(stage, k, self.lane, self.pipeline.full[stage])


__all__ = ["Producer", "ScaleCopier"]
