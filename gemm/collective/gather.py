"""Layer 3: rows of X anywhere in memory, which warps of the producer warpgroup copy into a tile. Tensor copies load no such rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ptxkit import Ptr, Reg, Ring, TensorMap, ring, smem, span
from ptxkit.ptx import cp, createpolicy, ld, mad, mov, selp, shl, xor
from ptxkit.smem import Tile
from ptxkit.types import b8, pred, u32

from ..config.grouped import GroupedConfig
from ..scheduler.grouped import GroupWorkTile
from .atoms import WARPGROUP
from .group_producer import weights_copy
from .pipeline import Pipeline
from .tiled import Multicast

THREADS = WARPGROUP - 32    # that copy: warps 1 to 3 of the producer warpgroup; a thread of warp 0 loads the weights
WARPS = THREADS // 32
SPAN = 128                  # bytes of a row of a span: eight chunks of 16, which the swizzle permutes
CHUNK = 16
PER_SPAN = SPAN // CHUNK    # chunks, one for each of as many neighbouring threads
AT_ONCE = THREADS // PER_SPAN
"""Rows that are copied at a time. It is an odd multiple of four, so that the swizzle of a thread's rows alternates between two."""
NOWHERE = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Gathered:
    """X as kernel parameters: its address, the numbers of the rows that the product has, the chunks of 16 bytes from row to row, how many
    rows there are, and the bytes of a row."""

    pointer: Ptr[b8]
    numbers: Ptr[u32]
    pitch: Reg[u32]
    rows: Reg[u32]
    depth: Reg[u32]


class RowGather:
    """Fills a K-major tile with rows of X, by cp.async of 16 bytes in all threads of the copying warps.

    A thread has one chunk of every 12th row. It keeps where its rows begin for a whole work tile. Rows past the tile's end and numbers of
    no row, and what lies past K, are zeros: nothing is read there.
    """

    def __init__(self, tile: Tile[Any], source: Gathered, thread: Reg[u32]) -> None:
        layout = tile.layout
        assert layout.span_bytes == SPAN
        assert layout.major == "k"
        self.tile, self.source, self.size, self.count = tile, source, layout.element_bytes, layout.rows
        self.line, place = thread // PER_SPAN, (thread & PER_SPAN - 1) * CHUNK
        self.place = place
        self.home = self.line * SPAN + xor.b32(place, shl.b32(self.line & 7, 4))
        self.begins = [mov.u32(NOWHERE) for _ in range(0, self.count, AT_ONCE)]

    def begin(self, row: Reg[u32], until: Reg[u32]) -> None:
        """Begin a work tile of the product's rows `row` to `until`."""
        source, found = self.source, []
        for first in range(0, self.count, AT_ONCE):
            at, number = row + self.line + first if first else row + self.line, mov.u32(NOWHERE)
            ld.global_.nc.u32(number, source.numbers.at(at), pred=at < until)
            found.append(number)
        for begin, number in zip(self.begins, found, strict=True):
            mov.u32(begin, selp.u32(number * source.pitch, NOWHERE, number < source.rows))

    def load(self, stage: Reg[u32], k: Reg[u32]) -> None:
        """Copy what the work tile's rows have from depth `k` on, in elements, into the stage."""
        layout, along = self.tile.layout, k * self.size + self.place
        base = self.source.pointer.at(along).reg
        home = self.tile[stage].register() + self.home
        flipped = xor.b32(home, 4 * CHUNK)
        most = [selp.u32(NOWHERE, 0, along + s * SPAN < self.source.depth) for s in range(layout.spans)]
        copy: Any = cp.async_.cg.shared__cta.global_
        for number, begin in enumerate(self.begins):
            place = Ptr(mad.wide.u32(begin, CHUNK, base), b8)
            line = number * AT_ONCE
            inside = {} if line + AT_ONCE <= self.count else {"pred": self.line + line < self.count}
            for s, limit in enumerate(most):
                target = smem.SharedAddress(s * layout.span_stride + line * SPAN, flipped if number % 2 else home)
                copy(target, place + s * SPAN if s else place, CHUNK, begin >= limit, **inside)


@dataclass(frozen=True, slots=True)
class GatherProducer:
    """The copying warps: they load the rows of each work tile, up to a ring ahead of the mma warpgroups. A thread arrives on full[stage]
    once its cp.async have landed (cp.async.mbarrier.arrive.noinc)."""

    pipeline: Pipeline
    rows: RowGather
    position: Ring

    def load(self, work: GroupWorkTile) -> None:
        """Load the stages of a work tile."""
        pipeline, depth = self.pipeline, self.rows.tile.layout.columns
        with ring(self.position, work.stages) as (k, stage, parity):
            with span("wait"):
                pipeline.acquire(stage, parity)
            with span("load"):
                self.rows.load(stage, k * depth)
                cp.async_.mbarrier.arrive.noinc.shared__cta.b64(pipeline.full[stage])

    def tail(self) -> None:
        """Before the warps exit: wait until every stage is empty."""
        self.pipeline.producer_tail(self.position)


class WeightsProducer:
    """The producer's thread beside copying warps: it loads the weights of each work tile by tensor copies."""

    def __init__(self, config: GroupedConfig, pipeline: Pipeline, multicast: Multicast, w: TensorMap, tile: Tile[Any]) -> None:
        self.config, self.pipeline, self.position = config, pipeline, Ring(config.stages)
        first = config.loads.weights_evict_first
        hint = createpolicy.fractional.L2__evict_first.b64() if first else None
        self.hinted: Reg[pred] | None = mov.pred(False) if first else None
        self.copy = weights_copy(config, w, tile, multicast, hint, self.hinted)

    def load(self, work: GroupWorkTile, column: Reg[u32]) -> None:
        """Load the weights of a work tile from `column` on. Those that a second tile of tokens reads too get no evict_first hint."""
        pipeline, layout = self.pipeline, self.copy.tile.layout
        if self.hinted is not None:
            mov.pred(self.hinted, work.end - work.start <= self.config.tile_tokens * self.config.along_tokens)
        with ring(self.position, work.stages) as (k, stage, parity):
            with span("wait"):
                pipeline.acquire(stage, parity)
            with span("load"):
                self.copy.load(stage, column, k * layout.columns, pipeline.expect(stage, layout.bytes), work.group)

    def tail(self) -> None:
        """Before the thread exits: wait until every stage is empty."""
        self.pipeline.producer_tail(self.position)


__all__ = ["AT_ONCE", "CHUNK", "THREADS", "WARPS", "GatherProducer", "Gathered", "RowGather", "WeightsProducer"]
