"""Layer 2, tiled operations: an operand's stage filled by copies, and multiplied by wgmma, both from the one layout of its tile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ptxkit import MBarrier, Reg, TensorMap, Vec, if_
from ptxkit.ptx import selp
from ptxkit.smem import Tile, TileView
from ptxkit.types import b64, pred, u16, u32

from ..scheduler.fast_divmod import rounded_up
from .atoms import ROWS, Mma, tensor_copy, tensor_prefetch


@dataclass(frozen=True, slots=True)
class Shares:
    """How the CTAs of a cluster load a tile that they all need: each copies 1/count of it, to every CTA of `mask`; or (`leader`) the first
    of them all of it."""

    count: int = 1
    rank: Reg[u32] | None = None                # of this CTA among them
    mask: Reg[u16] | int | None = None
    leader: bool = False

    def own(self, lines: int) -> tuple[Reg[u32] | int, int]:
        """Of so many lines, or spans, those that this CTA copies: the first one, and how many."""
        each = lines // self.count
        return self.rank * each if self.rank is not None else 0, each


@dataclass(frozen=True, slots=True)
class Pieces:
    """Which lines of a K-major tile that nobody shares are loaded: its first `count`, in copies of `lines` each.

    Of a piece that has fewer only those come, `rest` at a time, by a map with such a box (0: the whole piece). The others, which wgmma
    reads as well, are zeros from the first time on that a stage is filled for the tile: other groups' lines would cost bandwidth and power.
    """

    count: Reg[u32]
    lines: int
    rest: int = 0
    tensormap: TensorMap | None = None

    @property
    def unit(self) -> int:
        """The fewest lines that a copy loads."""
        return self.rest or self.lines


@dataclass(frozen=True, slots=True)
class TiledCopy:
    """Loads one operand's tile: a box per span of its contiguous extent, and of these only this CTA's share."""

    tensormap: TensorMap
    tile: Tile[Any]
    shares: Shares
    policy: Reg[b64] | None = None
    hinted: Reg[pred] | None = None             # whether the copies have the policy (None: always)
    lines: int = 0                              # of a K-major tile that are loaded, from its first on (0: all)
    pieces: Pieces | None = None                # or those that are wanted

    @property
    def fills(self) -> bool:
        """Whether a stage gets more the first time that it is filled for a tile: zeros."""
        return self.pieces is not None and self.pieces.rest > 0

    def bytes(self, first: bool = False) -> Reg[u32] | int:
        """What a stage gets, from all the CTAs that share it; `first`: the first time for a tile."""
        layout, pieces = self.tile.layout, self.pieces
        line = layout.columns * layout.element_bytes
        if pieces is None:
            return self.lines * line if self.lines else layout.bytes
        unit = pieces.lines if first else pieces.unit
        return rounded_up(pieces.count, unit) * (unit * line)

    def load(self, stage: Reg[u32], mn: Reg[u32], k: Reg[u32], barrier: MBarrier, *outer: Any, first: Reg[pred] | None = None) -> None:
        """Copy rows `mn`.. and depth `k`.. (in elements) into the stage; `outer` are the map's further coordinates. `first`, of a copy that
        fills: whether it is the first time for this tile."""
        shares = self.shares
        if self.pieces is not None:
            self._load_pieces(self.pieces, self.tile[stage], mn, k, barrier, first, *outer)
        elif shares.leader and shares.rank is not None:
            with if_(shares.rank == 0):
                self._load(Shares(mask=shares.mask), stage, mn, k, barrier, *outer)
        else:
            self._load(shares, stage, mn, k, barrier, *outer)

    def prefetch(self, mn: Reg[u32], k: Any, *outer: Any) -> None:
        """Bring what this CTA copies of rows `mn`.., depth `k`.., into the L2, of a tile without pieces that no leader loads."""
        if self.tile.layout.major == "k":
            start, _ = self.shares.own(self.lines or self.tile.layout.rows)
            for _, depth in self._depths(k):
                tensor_prefetch(self.tensormap, (depth, mn + start, *outer))
        else:
            for _, line in self._spans(self.shares, mn):
                tensor_prefetch(self.tensormap, (line, k, *outer))

    def _load(self, shares: Shares, stage: Reg[u32], mn: Reg[u32], k: Reg[u32], barrier: MBarrier, *outer: Any) -> None:
        view, layout = self.tile[stage], self.tile.layout
        if layout.major == "k":
            start, lines = shares.own(self.lines or layout.rows)
            self._load_lines(view, start, lines, mn + start, k, barrier, *outer, mask=shares.mask)
        else:
            for span, line in self._spans(shares, mn):
                tensor_copy(view.span(span), self.tensormap, (line, k, *outer), barrier, mask=shares.mask, policy=self.policy,
                            hinted=self.hinted)

    def _load_pieces(self, pieces: Pieces, view: TileView[Any], mn: Reg[u32], k: Reg[u32], barrier: MBarrier, first: Reg[pred] | None,
                     *outer: Any) -> None:
        """Whole pieces, and what is there of the next one; the `first` time also zeros, which a copy of lines before the map's finds."""
        for start in range(0, self.tile.layout.rows, pieces.lines):
            with if_(pieces.count > start + (pieces.lines - pieces.unit)):
                self._load_lines(view, start, pieces.lines, mn + start, k, barrier, *outer)
        if first is None or not pieces.rest:
            return
        begin = (pieces.count + (pieces.rest - 1)) // pieces.lines * pieces.lines
        with if_(pieces.count > begin):
            for offset in range(0, pieces.lines, pieces.rest):
                line = begin + offset
                there = pieces.count > line
                with if_(there | first):
                    at = selp.u32(mn + line, -pieces.rest % 2**32, there)
                    self._load_lines(view, line, pieces.rest, at, k, barrier, *outer, tensormap=pieces.tensormap)

    def _load_lines(self, view: TileView[Any], start: Reg[u32] | int, lines: int, mn: Reg[u32], k: Reg[u32], barrier: MBarrier,
                    *outer: Any, mask: Reg[u16] | int | None = None, tensormap: TensorMap | None = None) -> None:
        for s, depth in self._depths(k):
            tensor_copy(view.span(s).lines(start, lines), tensormap or self.tensormap, (depth, mn, *outer), barrier, mask=mask,
                        policy=self.policy, hinted=self.hinted)

    def _depths(self, k: Any) -> Iterator[tuple[int, Any]]:
        """The spans of a K-major tile, and where each begins."""
        for s in range(self.tile.layout.spans):
            yield s, k + s * self.tile.layout.span if s else k

    def _spans(self, shares: Shares, mn: Reg[u32]) -> Iterator[tuple[Any, Any]]:
        """The spans of an MN-major tile that this CTA copies, and where each begins."""
        first, count = shares.own(self.tile.layout.spans)
        for span in (first + s for s in range(count)):
            yield span, mn + span * self.tile.layout.span


@dataclass(frozen=True, slots=True)
class TiledMma:
    """The wgmma of one warpgroup over one stage: `slabs` of 64 rows by all columns of the tile."""

    atom: Mma
    slabs: int
    rows: Reg[u32] | int = 0                    # of the tile at which the warpgroup begins

    @property
    def registers(self) -> int:
        """Of a slab's accumulators, a thread."""
        return self.atom.n * self.atom.accumulator.bits // 64

    def of_columns(self, columns: int) -> TiledMma:
        """The same of fewer columns of the tile."""
        return replace(self, atom=replace(self.atom, n=columns))

    def fragments(self) -> list[Vec[Any, Any]]:
        """Accumulators: one fragment a slab, not cleared."""
        opcode = self.atom.opcode()
        return [opcode.fragment(zero=False) for _ in range(self.slabs)]

    def issue(self, acc: list[Vec[Any, Any]], a: TileView[Any], b: TileView[Any], accumulate: Reg[pred] | bool, first: int = 0,
              column: int = 0) -> None:
        """Multiply the whole depth of the stage, of as many slabs as there are fragments, from slab `first` and column `column` on.

        Without `accumulate` the first instruction of a slab overwrites.
        """
        opcode = self.atom.opcode()
        for slab, fragment in enumerate(acc, first):
            for k in range(0, a.layout.columns, self.atom.k):
                opcode(fragment, a.desc(k, mn=self.rows + slab * ROWS), b.desc(k, mn=column), accumulate if k == 0 else True)


__all__ = ["Pieces", "Shares", "TiledCopy", "TiledMma"]
