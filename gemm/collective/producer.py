"""Layer 3: the producer thread, which fills a stage with a tile of A, a tile of B and their scale factors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ptxkit import Reg, Ring, ring
from ptxkit.ptx import selp
from ptxkit.types import u32

from ..scheduler.work import WorkTile
from .pipeline import Pipeline
from .scale_factors import ScaleRing
from .tiled import TiledCopy


@dataclass(frozen=True, slots=True)
class Producer:
    """One thread: loads the stages of one work tile after another, a ring ahead of the consumers."""

    pipeline: Pipeline
    a: TiledCopy
    b: TiledCopy
    position: Ring

    def load(self, work: WorkTile, row: Reg[u32], column: Reg[u32], *outer: Any, a_outer: tuple[Any, ...] = (),
             b_outer: tuple[Any, ...] = (), scales: ScaleRing | None = None, columns: Any = None) -> None:
        """Rows `row`.. of A and `column`.. of B (in elements); `outer` are further coordinates of both maps, the others of one. With
        `scales`, `columns` are all of B's."""
        pipeline, depth = self.pipeline, self.a.tile.layout.columns
        of_scales = scales.m.bytes + scales.n.bytes if scales is not None else 0
        bytes, fills = self.a.bytes() + self.b.bytes() + of_scales, self.a.fills or self.b.fills
        at_first = self.a.bytes(True) + self.b.bytes(True) + of_scales if fills else bytes
        if scales is not None:
            scales.n.aim(column, columns)
        with ring(self.position, work.stages) as (k, stage, parity):
            number = k if isinstance(work.first, int) and work.first == 0 else k + work.first
            at = number * depth
            pipeline.acquire(stage, parity)
            first = k < pipeline.stages if fills else None
            full = pipeline.expect(stage, bytes if first is None else selp.u32(at_first, bytes, first))
            self.a.load(stage, row, at, full, *outer, *a_outer, first=first)
            self.b.load(stage, column, at, full, *outer, *b_outer, first=first)
            if scales is not None:
                scales.m.load(stage, row, number, full)
                scales.n.load(stage, column, number, full)

    def tail(self) -> None:
        """Before the producer exits: every stage is empty."""
        self.pipeline.producer_tail(self.position)


@dataclass(frozen=True, slots=True)
class ScaleCopier:
    """A warp beside the producer, with a ring position of its own: copies scale factors that the producer cannot copy."""

    pipeline: Pipeline
    scales: ScaleRing
    lane: Reg[u32]
    position: Ring

    def begin_rows(self, work: WorkTile, row: Reg[u32], rows: Reg[u32]) -> None:
        """A work tile that begins at `row` of `rows`."""
        self.scales.m.begin(row, rows, self.lane, work.first)

    def begin_columns(self, work: WorkTile, column: Reg[u32], columns: Reg[u32]) -> None:
        """A work tile that begins at `column` of `columns`."""
        self.scales.n.begin(column, columns, self.lane, work.first)

    def copy(self, work: WorkTile) -> None:
        """In all lanes: the scales of the work tile's stages, a ring ahead."""
        with ring(self.position, work.stages) as (k, stage, parity):
            self.pipeline.acquire(stage, parity)
            self.scales.copy(stage, k, self.lane, self.pipeline.full[stage])


__all__ = ["Producer", "ScaleCopier"]
