"""Layer 2, tiled operations: an operand's stage filled by copies, and multiplied by wgmma, both from the one layout of its tile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ptxkit import MBarrier, Reg, TensorMap, Vec, if_
from ptxkit.ptx import selp
from ptxkit.smem import Tile, TileView
from ptxkit.types import b64, pred, u16, u32

from ..scheduler.fast_divmod import ceil_div
from .atoms import ROWS, Mma, tensor_copy, tensor_prefetch


@dataclass(frozen=True, slots=True)
class Multicast:
    """How the CTAs of a cluster load a tile that they all need: each copies 1/count of it, to every CTA of `mask`."""

    count: int = 1
    rank: Reg[u32] | None = None                # of this CTA among them
    mask: Reg[u16] | int | None = None

    def own(self, lines: int) -> tuple[Reg[u32] | int, int]:
        """The lines, or spans, of so many that this CTA copies: the first one, and how many."""
        each = lines // self.count
        return self.rank * each if self.rank is not None else 0, each


@dataclass(frozen=True, slots=True)
class PartialBoxes:
    """The rows of a K-major tile that are loaded, where no other CTA shares it: its first `count`, in boxes of `rows` each.

    The last box is partial where `count` is no multiple. It loads `tail_rows` rows at a time by a map with such a box (0: the whole box).
    wgmma reads the missing rows as well: they are zeroed when a stage is filled for the tile for the first time. Loading another group's
    rows instead would cost bandwidth and power.
    """

    count: Reg[u32]
    rows: int
    tail_rows: int = 0
    tensormap: TensorMap | None = None

    @property
    def unit(self) -> int:
        """The fewest rows that a copy loads."""
        return self.tail_rows or self.rows


@dataclass(frozen=True, slots=True)
class TiledCopy:
    """Loads one operand's tile: a box for each span of its contiguous extent, and of each box this CTA's part."""

    tensormap: TensorMap
    tile: Tile[Any]
    multicast: Multicast
    policy: Reg[b64] | None = None              # L2 cache hint
    hinted: Reg[pred] | None = None             # whether the copies have the hint (None: always)
    rows: int = 0                               # of a K-major tile that are loaded, from its first on (0: all)
    boxes: PartialBoxes | None = None           # or those that a tile has

    @property
    def fills(self) -> bool:
        """Whether a stage gets zeros too, the first time that it is filled for a tile."""
        return self.boxes is not None and self.boxes.tail_rows > 0

    def bytes(self, first: bool = False) -> Reg[u32] | int:
        """The bytes that a stage gets, from all the CTAs that share it; `first`: the first time for a tile."""
        layout, boxes = self.tile.layout, self.boxes
        row = layout.columns * layout.element_bytes
        if boxes is None:
            return self.rows * row if self.rows else layout.bytes
        unit = boxes.rows if first else boxes.unit
        return ceil_div(boxes.count, unit) * (unit * row)

    def load(self, stage: Reg[u32], mn: Reg[u32], k: Reg[u32], barrier: MBarrier, *outer: Any, first: Reg[pred] | None = None) -> None:
        """Copy rows `mn`.. and depth `k`.. (in elements) into the stage; `outer` are the map's further coordinates. `first`, for a copy
        that fills: whether it is the first time for this tile."""
        view, layout, multicast = self.tile[stage], self.tile.layout, self.multicast
        if self.boxes is not None:
            self._load_boxes(self.boxes, view, mn, k, barrier, first, *outer)
        elif layout.major == "k":
            start, lines = multicast.own(self.rows or layout.rows)
            self._load_lines(view, start, lines, mn + start, k, barrier, *outer, mask=multicast.mask)
        else:
            for span, line in self._spans(mn):
                tensor_copy(view.span(span), self.tensormap, (line, k, *outer), barrier, mask=multicast.mask, policy=self.policy,
                            hinted=self.hinted)

    def prefetch(self, mn: Reg[u32], k: Any, *outer: Any) -> None:
        """Bring what this CTA copies of rows `mn`.., depth `k`.., into the L2, of a tile without partial boxes."""
        if self.tile.layout.major == "k":
            start, _ = self.multicast.own(self.rows or self.tile.layout.rows)
            for _, depth in self._depths(k):
                tensor_prefetch(self.tensormap, (depth, mn + start, *outer))
        else:
            for _, line in self._spans(mn):
                tensor_prefetch(self.tensormap, (line, k, *outer))

    def _load_boxes(self, boxes: PartialBoxes, view: TileView[Any], mn: Reg[u32], k: Reg[u32], barrier: MBarrier, first: Reg[pred] | None,
                    *outer: Any) -> None:
        """The whole boxes, and the rows of the partial one. The `first` time also zeros, which a copy of rows before the map's finds."""
        for start in range(0, self.tile.layout.rows, boxes.rows):
            with if_(boxes.count > start + (boxes.rows - boxes.unit)):
                self._load_lines(view, start, boxes.rows, mn + start, k, barrier, *outer)
        if first is None or not boxes.tail_rows:
            return
        begin = (boxes.count + (boxes.tail_rows - 1)) // boxes.rows * boxes.rows
        with if_(boxes.count > begin):
            for offset in range(0, boxes.rows, boxes.tail_rows):
                row = begin + offset
                there = boxes.count > row
                with if_(there | first):
                    at = selp.u32(mn + row, -boxes.tail_rows % 2**32, there)
                    self._load_lines(view, row, boxes.tail_rows, at, k, barrier, *outer, tensormap=boxes.tensormap)

    def _load_lines(self, view: TileView[Any], start: Reg[u32] | int, lines: int, mn: Reg[u32], k: Reg[u32], barrier: MBarrier,
                    *outer: Any, mask: Reg[u16] | int | None = None, tensormap: TensorMap | None = None) -> None:
        for s, depth in self._depths(k):
            tensor_copy(view.span(s).lines(start, lines), tensormap or self.tensormap, (depth, mn, *outer), barrier, mask=mask,
                        policy=self.policy, hinted=self.hinted)

    def _depths(self, k: Any) -> Iterator[tuple[int, Any]]:
        """The spans of a K-major tile, and where each begins."""
        for s in range(self.tile.layout.spans):
            yield s, k + s * self.tile.layout.span if s else k

    def _spans(self, mn: Reg[u32]) -> Iterator[tuple[Any, Any]]:
        """The spans of an MN-major tile that this CTA copies, and where each begins."""
        first, count = self.multicast.own(self.tile.layout.spans)
        for span in (first + s for s in range(count)):
            yield span, mn + span * self.tile.layout.span


@dataclass(frozen=True, slots=True)
class TiledMma:
    """The wgmma of one warpgroup over one stage: `m64_blocks` blocks of 64 rows by all columns of the tile."""

    atom: Mma
    m64_blocks: int
    rows: Reg[u32] | int = 0                    # of the tile at which the warpgroup begins

    @property
    def registers(self) -> int:
        """Accumulators of an m64 block, a thread."""
        return self.atom.n * self.atom.accumulator.bits // 64

    def of_columns(self, columns: int) -> TiledMma:
        """The same of fewer columns of the tile."""
        return replace(self, atom=replace(self.atom, n=columns))

    def fragments(self) -> list[Vec[Any, Any]]:
        """Accumulators: one fragment an m64 block, not cleared."""
        opcode = self.atom.opcode()
        return [opcode.fragment(zero=False) for _ in range(self.m64_blocks)]

    def issue(self, acc: list[Vec[Any, Any]], a: TileView[Any], b: TileView[Any], accumulate: Reg[pred] | bool, first: int = 0,
              column: int = 0) -> None:
        """Multiply the whole depth of a stage, of as many m64 blocks as there are fragments, from block `first` and column `column` on.

        Without `accumulate` the first instruction of a block overwrites.
        """
        opcode = self.atom.opcode()
        for block, fragment in enumerate(acc, first):
            for k in range(0, a.layout.columns, self.atom.k):
                opcode(fragment, a.desc(k, mn=self.rows + block * ROWS), b.desc(k, mn=column), accumulate if k == 0 else True)

    def issue_from_registers(self, acc: list[Vec[Any, Any]], a: list[list[Vec[Any, Any]]], b: TileView[Any],
                             accumulate: Reg[pred] | bool) -> None:
        """The same with A in registers: for each m64 block its fragments along the depth, 4 registers each."""
        opcode = self.atom.opcode()
        for fragment, operands in zip(acc, a, strict=True):
            for number, operand in enumerate(operands):
                opcode(fragment, operand, b.desc(number * self.atom.k), accumulate if number == 0 else True)


__all__ = ["Multicast", "PartialBoxes", "TiledCopy", "TiledMma"]
