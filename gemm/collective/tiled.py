"""Layer 2, tiled operations: copies that fill an operand's stage and wgmma that multiply it, both derived from the tile's layout."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ptxkit import MBarrier, Reg, TensorMap, Vec, if_
from ptxkit.ptx import selp
from ptxkit.smem import Tile, TileView
from ptxkit.types import b64, pred, u16, u32

from ..scheduler.fast_divmod import ceil_div
from .atoms import MAX_BOX, ROWS, Mma, tensor_copy, tensor_prefetch


@dataclass(frozen=True, slots=True)
class Multicast:
    """How CTAs of a cluster load a tile that they share: each copies 1/count of it to every CTA of `mask`."""

    count: int = 1
    rank: Reg[u32] | None = None                # this CTA's rank among them
    mask: Reg[u16] | int | None = None

    def own(self, lines: int) -> tuple[Reg[u32] | int, int]:
        """This CTA's share of `lines` lines or spans: the first one, and their number."""
        each = lines // self.count
        return self.rank * each if self.rank is not None else 0, each


@dataclass(frozen=True, slots=True)
class PartialBoxes:
    """Loads only the first `count` rows of a K-major tile, in boxes of `rows` each. No other CTA may share the tile.

    The last box is partial if `count` is not a multiple of `rows`. It loads `tail_rows` rows at a time by `tensormap`, which has a box of
    that size (0: it loads the whole box). wgmma reads the missing rows too: they are zeroed when a stage is first filled for the tile.
    Loading another group's rows instead would cost bandwidth and power.
    """

    count: Reg[u32]
    rows: int
    tail_rows: int = 0
    tensormap: TensorMap | None = None

    @property
    def granularity(self) -> int:
        """The fewest rows that a copy loads."""
        return self.tail_rows or self.rows


@dataclass(frozen=True, slots=True)
class TiledCopy:
    """Loads one operand's tile: one box for each span of its contiguous extent. With multicast, this CTA loads its part of each box; of an
    MN-major tile its spans, or its part of the depth of each where the CTAs cannot share the spans out."""

    tensormap: TensorMap
    tile: Tile[Any]
    multicast: Multicast
    policy: Reg[b64] | None = None              # L2 cache hint
    hinted: Reg[pred] | None = None             # whether the copies have the hint (None: always)
    rows: int = 0                               # the number of rows of a K-major tile that are loaded (0: all)
    boxes: PartialBoxes | None = None           # if the number of rows changes from tile to tile

    @property
    def fills(self) -> bool:
        """Whether copies also zero rows when a stage is first filled for a tile."""
        return self.boxes is not None and self.boxes.tail_rows > 0

    def bytes(self, first: bool = False) -> Reg[u32] | int:
        """The bytes that all CTAs together copy into a stage. `first`: the stage is filled for the first time for a tile."""
        layout, boxes = self.tile.layout, self.boxes
        row = layout.columns * layout.element_bytes
        if boxes is None:
            return self.rows * row if self.rows else layout.bytes
        rows = boxes.rows if first else boxes.granularity
        return ceil_div(boxes.count, rows) * (rows * row)

    def load(self, stage: Reg[u32], mn: Reg[u32], k: Reg[u32], barrier: MBarrier, *outer: Any, first: Reg[pred] | None = None) -> None:
        """Copy the tile at row `mn` and depth `k` (in elements) into the stage. `outer` are the map's further coordinates. `first` matters
        only for a copy that `fills`: whether the stage is filled for the first time for this tile."""
        view, layout, multicast = self.tile[stage], self.tile.layout, self.multicast
        if self.boxes is not None:
            self._load_boxes(self.boxes, view, mn, k, barrier, first, *outer)
        elif layout.major == "k":
            start, lines = multicast.own(self.rows or layout.rows)
            self._load_lines(view, start, lines, mn + start, k, barrier, *outer, mask=multicast.mask)
        else:
            start, lines = self._depth()
            for span, line in self._spans(mn):
                box = view.span(span) if lines == layout.columns else view.span(span).lines(start, lines)
                tensor_copy(box, self.tensormap, (line, k + start if lines < layout.columns else k, *outer), barrier, mask=multicast.mask,
                            policy=self.policy, hinted=self.hinted)

    def prefetch(self, mn: Reg[u32], k: Any, *outer: Any) -> None:
        """Bring this CTA's part of the tile at row `mn` and depth `k` into the L2. Not for partial boxes."""
        if self.tile.layout.major == "k":
            start, lines = self.multicast.own(self.rows or self.tile.layout.rows)
            for (_, depth), (after, _) in itertools.product(self._depths(k), _boxes(lines)):
                tensor_prefetch(self.tensormap, (depth, mn + start + after if after else mn + start, *outer))
        else:
            start, lines = self._depth()
            for _, line in self._spans(mn):
                tensor_prefetch(self.tensormap, (line, k + start if lines < self.tile.layout.columns else k, *outer))

    def _load_boxes(self, boxes: PartialBoxes, view: TileView[Any], mn: Reg[u32], k: Reg[u32], barrier: MBarrier, first: Reg[pred] | None,
                    *outer: Any) -> None:
        """Load the whole boxes, then the rows of the partial one. The `first` time also zero its other rows: a copy at negative rows is out
        of bounds and writes zeros."""
        for start in range(0, self.tile.layout.rows, boxes.rows):
            with if_(boxes.count > start + (boxes.rows - boxes.granularity)):
                self._load_lines(view, start, boxes.rows, mn + start, k, barrier, *outer)
        if first is None or not boxes.tail_rows:
            return
        begin = (boxes.count + (boxes.tail_rows - 1)) // boxes.rows * boxes.rows
        with if_(boxes.count > begin):
            for offset in range(0, boxes.rows, boxes.tail_rows):
                row = begin + offset
                exists = boxes.count > row
                with if_(exists | first):
                    at = selp.u32(mn + row, -boxes.tail_rows % 2**32, exists)
                    self._load_lines(view, row, boxes.tail_rows, at, k, barrier, *outer, tensormap=boxes.tensormap)

    def _load_lines(self, view: TileView[Any], start: Reg[u32] | int, lines: int, mn: Reg[u32], k: Reg[u32], barrier: MBarrier,
                    *outer: Any, mask: Reg[u16] | int | None = None, tensormap: TensorMap | None = None) -> None:
        for (s, depth), (after, box) in itertools.product(self._depths(k), _boxes(lines)):
            tensor_copy(view.span(s).lines(start + after if after else start, box), tensormap or self.tensormap,
                        (depth, mn + after if after else mn, *outer), barrier, mask=mask, policy=self.policy, hinted=self.hinted)

    def _depths(self, k: Any) -> Iterator[tuple[int, Any]]:
        """The spans of a K-major tile, and the depth of each."""
        for s in range(self.tile.layout.spans):
            yield s, k + s * self.tile.layout.span if s else k

    @property
    def _by_spans(self) -> bool:
        """Whether the CTAs that share an MN-major tile load whole spans each."""
        return self.tile.layout.spans % self.multicast.count == 0

    def _spans(self, mn: Reg[u32]) -> Iterator[tuple[Any, Any]]:
        """The spans of an MN-major tile of which this CTA copies something, and the row of each."""
        spans = self.tile.layout.spans
        first, count = self.multicast.own(spans) if self._by_spans else (0, spans)
        for span in (first + s for s in range(count)):
            yield span, mn + span * self.tile.layout.span

    def _depth(self) -> tuple[Reg[u32] | int, int]:
        """Of each such span the lines of K that this CTA copies: the first one, and their number."""
        depth = self.tile.layout.columns
        return (0, depth) if self._by_spans else self.multicast.own(depth)


def _boxes(lines: int) -> Iterator[tuple[int, int]]:
    """The boxes in which lines are copied: the first line of each, and their number, which is the same in all."""
    count = -(-lines // MAX_BOX)
    for number in range(count):
        yield number * (lines // count), lines // count


@dataclass(frozen=True, slots=True)
class TiledMma:
    """The wgmma of one warpgroup over one stage: `m64_blocks` blocks of 64 rows by all columns of the tile."""

    atom: Mma
    m64_blocks: int
    rows: Reg[u32] | int = 0                    # the tile's row at which the warpgroup begins
    columns: Reg[u32] | int = 0                 # and the column

    @property
    def registers(self) -> int:
        """Accumulator registers per thread of an m64 block."""
        return self.atom.registers(self.atom.n)

    def of_columns(self, columns: int) -> TiledMma:
        """The same operation on fewer columns of the tile."""
        return replace(self, atom=replace(self.atom, n=columns))

    def fragments(self) -> list[Vec[Any, Any]]:
        """Accumulators: one fragment per m64 block, not cleared."""
        opcodes = [self.atom.opcode(columns) for _, columns in self.atom.parts]
        return [Vec([register for opcode in opcodes for register in opcode.fragment(zero=False)]) for _ in range(self.m64_blocks)]

    def issue(self, acc: list[Vec[Any, Any]], a: TileView[Any], b: TileView[Any], accumulate: Reg[pred] | bool, first: int = 0,
              column: int = 0) -> None:
        """Multiply the whole depth of a stage, for one m64 block per fragment, from block `first` and column `column` on.

        Without `accumulate` the first instruction of a block overwrites its fragment.
        """
        for block, fragment in enumerate(acc, first):
            for at, columns in self.atom.parts:
                opcode = self.atom.opcode(columns)
                part = fragment[self.atom.registers(at):self.atom.registers(at + columns)]
                beside = self.columns + (column + at) if column + at else self.columns
                for k in range(0, a.layout.columns, self.atom.k):
                    opcode(part, a.desc(k, mn=self.rows + block * ROWS), b.desc(k, mn=beside), accumulate if k == 0 else True)

    def issue_from_registers(self, acc: list[Vec[Any, Any]], a: list[list[Vec[Any, Any]]], b: TileView[Any],
                             accumulate: Reg[pred] | bool) -> None:
        """As `issue`, with A in registers: for each m64 block its fragments along the depth, 4 registers each."""
        opcode = self.atom.opcode()
        for fragment, operands in zip(acc, a, strict=True):
            for number, operand in enumerate(operands):
                opcode(fragment, operand, b.desc(number * self.atom.k), accumulate if number == 0 else True)


__all__ = ["Multicast", "PartialBoxes", "TiledCopy", "TiledMma"]
