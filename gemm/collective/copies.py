"""Layer 3: the producer warpgroup whose threads copy operands that tensor copies cannot load.

Every line of a span is 128 bytes. A thread has one place of a line, and the same place of lines that are as many apart as the warpgroup
copies at a time. What lies past the end of a line or past the last line is zeros, which add nothing to sums. Nothing is read there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ptxkit import Ptr, Reg, Ring, for_range, if_, ring, smem
from ptxkit.ptx import add, bar, cp, cvt, ld, mbarrier, mov, mul, prmt, selp, shl, st, xor
from ptxkit.smem import Tile
from ptxkit.types import b8, b32, pred, u32, u64

from ..config.parts import AsyncCopies, ElementCopies
from ..scheduler.work import WorkTile
from .atoms import WARPGROUP
from .pipeline import Pipeline
from .shifted_copies import ShiftedCopy
from .source import SPAN, Source, Step, left
from .tiled import TiledCopy

WORD = 4                    # bytes that are stored at once where elements are copied one by one
TILE_LINES = 32             # across lines: a warp copies 8 lines by 4 words, the warpgroup 32 lines by 4 words
BATCH = 12                  # words of a thread that are loaded at once where they pass through registers; twice as many are under way


class LineCopy:
    """Fills an operand's tile by the copies of all threads of the producer warpgroup. `lines` and `inner` are the extents of the operand:
    rows and K of a K-major tile, K and rows of an MN-major one."""

    def __init__(self, copies: AsyncCopies | ElementCopies, tile: Tile[Any], source: Source, lines: Reg[u32], inner: Reg[u32],
                 thread: Reg[u32]) -> None:
        layout = tile.layout
        assert layout.span_bytes == SPAN
        self.tile, self.source, self.lines, self.inner, self.size = tile, source, lines, inner, layout.element_bytes
        self.across = isinstance(copies, ElementCopies) and copies.across
        self.bytes = copies.bytes if isinstance(copies, AsyncCopies) else WORD
        self.asynchronous = isinstance(copies, AsyncCopies) or self.size == WORD
        if self.across:
            self.own_line = (thread >> 5) * 8 + (thread & 7)
            place = (thread >> 3 & 3) * WORD
        else:
            per_line = SPAN // self.bytes
            self.own_line = thread // per_line
            place = (thread & per_line - 1) * self.bytes
        self.own_inner = place // self.size
        self.own_offset = self.own_line * SPAN + xor.b32(place, shl.b32(self.own_line & 7, 4))

    def steps(self) -> Iterator[Step]:
        """The copies of a thread that fill a stage."""
        layout = self.tile.layout
        if self.across:
            for line in range(0, layout.outer, TILE_LINES):
                for span in range(layout.spans):
                    for chunk in range(SPAN // 16):
                        yield Step(line, (span * SPAN + chunk * 16) // self.size, span * layout.span_stride + line * SPAN, chunk << 4)
            return
        lines = WARPGROUP * self.bytes // SPAN
        for line in range(0, layout.outer, lines):
            for span in range(layout.spans):
                yield Step(line, span * layout.span, span * layout.span_stride + line * SPAN, (line & 7) << 4)

    def load(self, stage: Reg[u32], line: Reg[u32], inner: Reg[u32], batch: Reg[u32] | None) -> None:
        """Copy the tile from `line` and `inner` on, in elements, into the stage."""
        at, along = line + self.own_line, inner + self.own_inner
        lines, rest = left(self.lines, at), left(self.inner, along)
        pointer = self._pointer(at, along, batch)
        home = self.tile[stage].register() + self.own_offset
        flipped: dict[int, Reg[u32]] = {0: home}
        places = list(self._places(pointer))
        elements = 1 if self.asynchronous else WORD // self.size
        valid = {(inner, e): selp.u32(lines, 0, rest > inner + e)
                 for inner in dict.fromkeys(step.inner for step, _ in places) for e in range(elements)}

        def target(step: Step) -> smem.SharedAddress:
            if step.flip not in flipped:
                flipped[step.flip] = xor.b32(home, step.flip)
            return smem.SharedAddress(step.offset, flipped[step.flip])

        if self.asynchronous:
            copy: Any = cp.async_.cg.shared__cta.global_ if self.bytes == 16 else cp.async_.ca.shared__cta.global_
            for step, place in places:
                copy(target(step), place, self.bytes, valid[step.inner, 0] <= step.lines)
            return
        loaded: list[tuple[Step, Reg[b32]]] = []
        for first in range(0, len(places), BATCH):                         # the next words are under way while these are stored
            following = [(step, self._word(place, [valid[step.inner, e] > step.lines for e in range(elements)]))
                         for step, place in places[first:first + BATCH]]
            for step, word in loaded:
                st.shared__cta.b32(target(step), word)
            loaded = following
        for step, word in loaded:
            st.shared__cta.b32(target(step), word)

    def _pointer(self, line: Reg[u32], inner: Reg[u32], batch: Reg[u32] | None) -> Reg[u64]:
        """The address of an element."""
        index = mul.wide.u32(line, self.source.line)
        index = add.u64(index, mul.wide.u32(inner, self.source.inner) if self.across else cvt.u64.u32(inner))
        if batch is not None:
            index = add.u64(index, mul.lo.u64(cvt.u64.u32(batch), self.source.batch))
        return self.source.pointer.at(shl.b64(index, self.size.bit_length() - 1) if self.size > 1 else index).reg

    def _places(self, pointer: Reg[u64]) -> Iterator[tuple[Step, Ptr[Any]]]:
        """The steps and their addresses in global memory. From one line to the next there is one addition."""
        by_line = mul.wide.u32(self.source.line, self.size)
        by_inner = mul.wide.u32(self.source.inner, self.size) if self.across else None
        previous, line = 0, pointer
        for step in self.steps():
            if step.lines != previous:
                line = add.u64(line, by_line * (step.lines - previous))
                previous = step.lines
            if by_inner is None:
                yield step, Ptr(line, b8, offset=step.inner * self.size)
            else:
                yield step, Ptr(add.u64(line, by_inner * step.inner) if step.inner else line, b8)

    def _word(self, place: Ptr[Any], inside: list[Reg[pred]]) -> Reg[b32]:
        """Neighbouring elements of a line as one word, zeros where they are not inside."""
        by_inner = mul.wide.u32(self.source.inner, self.size) if self.across else None
        parts = []
        for e, p in enumerate(inside):
            found = mov.u32(0)
            from_ = place + e * self.size if by_inner is None else Ptr(add.u64(place.reg, by_inner * e), b8) if e else place
            (ld.global_.nc.u16 if self.size == 2 else ld.global_.nc.u8)(found, from_, pred=p)
            parts.append(found)
        if self.size == 2:
            return prmt.b32(parts[0], parts[1], 0x5410)
        pairs = [prmt.b32(parts[i], parts[i + 1], 0x1140) for i in (0, 2)]
        return prmt.b32(pairs[0], pairs[1], 0x5410)


class Ahead:
    """The operands of a work tile that are shifted: what is copied before its stage has its turn."""

    def __init__(self, work: WorkTile, copies: Sequence[tuple[ShiftedCopy, Reg[u32]]], depth: int) -> None:
        self.work, self.copies, self.depth, self.slots = work, copies, depth, copies[0][0].ahead
        self.filled, self.taken = mov.u32(0), mov.u32(0)
        with for_range(self.slots - 1) as number:
            self._issue(number)

    def advance(self, k: Reg[u32]) -> None:
        """Copy the last stage that has room, and wait for stage `k`, which is to be loaded next."""
        self._issue(k + (self.slots - 1))
        cp.async_.wait_group(self.slots - 1)
        bar.warp.sync(0xFFFFFFFF)

    def load(self, stage: Reg[u32], at: Reg[u32]) -> None:
        """Shift what was copied for the stage that begins at `at` of K."""
        for copy, mn in self.copies:
            copy.load(self.taken, stage, *self._begin(copy, mn, at), self.work.batch)
        self._next(self.taken)

    def _issue(self, k: Reg[u32]) -> None:
        with if_(k < self.work.stages):
            first = self.work.first
            at = (k if isinstance(first, int) and first == 0 else k + first) * self.depth
            for copy, mn in self.copies:
                copy.issue(self.filled, *self._begin(copy, mn, at), self.work.batch)
            self._next(self.filled)
        cp.async_.commit_group()

    def _begin(self, copy: ShiftedCopy, mn: Reg[u32], at: Reg[u32]) -> tuple[Reg[u32], Reg[u32]]:
        return (mn, at) if copy.tile.layout.major == "k" else (at, mn)

    def _next(self, slot: Reg[u32]) -> None:
        add.u32(slot, slot, 1)
        mov.u32(slot, selp.u32(0, slot, slot == self.slots))


@dataclass(frozen=True, slots=True)
class CopyProducer:
    """All threads of the producer warpgroup: they load the stages of one work tile after another, up to a ring ahead of the mma warpgroups.

    Where one operand has tensor copies, the first thread issues them. A thread arrives on full[stage] once its cp.async have landed
    (cp.async.mbarrier.arrive.noinc), a warp once its stores are made.
    """

    pipeline: Pipeline
    a: TiledCopy | LineCopy | ShiftedCopy
    b: TiledCopy | LineCopy | ShiftedCopy
    thread: Reg[u32]
    position: Ring

    def load(self, work: WorkTile, row: Reg[u32], column: Reg[u32]) -> None:
        """Load a work tile: A from `row` and B from `column`, in elements."""
        pipeline, depth = self.pipeline, self.a.tile.layout.columns
        both = (self.a, row), (self.b, column)
        mapped = [(copy, mn) for copy, mn in both if isinstance(copy, TiledCopy)]
        copied = [(copy, mn) for copy, mn in both if isinstance(copy, LineCopy)]
        shifted = [(copy, mn) for copy, mn in both if isinstance(copy, ShiftedCopy)]
        ahead = Ahead(work, [(copy, mn) for copy, mn in shifted], depth) if shifted else None
        with ring(self.position, work.stages) as (k, stage, parity):
            number = k if isinstance(work.first, int) and work.first == 0 else k + work.first
            at = number * depth
            if ahead is not None:
                ahead.advance(k)
            pipeline.acquire(stage, parity)
            if mapped:
                with if_(self.thread == 0):
                    full = pipeline.expect(stage, sum(copy.tile.layout.bytes for copy, _ in mapped))
                    for tensor, mn in mapped:
                        tensor.load(stage, mn, at, full, *work.outer)
            for lines, mn in copied:
                line, inner = (mn, at) if lines.tile.layout.major == "k" else (at, mn)
                lines.load(stage, line, inner, work.batch)
            if ahead is not None:
                ahead.load(stage, at)
            self._arrive(stage, [*(lines for lines, _ in copied), *(lines for lines, _ in shifted)])

    def tail(self) -> None:
        """Before the producer exits: wait until every stage is empty."""
        self.pipeline.producer_tail(self.position)

    def _arrive(self, stage: Reg[u32], copied: Sequence[LineCopy | ShiftedCopy]) -> None:
        full = self.pipeline.full[stage]
        if any(lines.asynchronous for lines in copied):
            cp.async_.mbarrier.arrive.noinc.shared__cta.b64(full)
        if any(not lines.asynchronous for lines in copied):
            bar.warp.sync(0xFFFFFFFF)
            mbarrier.arrive.shared__cta.b64(full, pred=(self.thread & 31) == 0)


__all__ = ["CopyProducer", "LineCopy"]
