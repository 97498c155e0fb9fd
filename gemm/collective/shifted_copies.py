"""Layer 3: an operand whose lines begin anywhere, copied as widely as one whose lines begin at multiples of 16 bytes.

The producer warpgroup copies the units of 16 bytes that a line touches by cp.async, as they lie, into memory of its own, several stages
ahead. Later it reads two neighbouring units, shifts the bytes that belong together into one, and stores that into the tile, where the
swizzle wants it. Each warp reads only what it has copied itself.

Bytes past the end of a line, and lines past the last one, are zeros and are not read. Of the unit in which a line begins the bytes before
it are copied too, and not used: they lie in memory that the array's own first bytes share a sector with.
"""

from __future__ import annotations

from typing import Any

from ptxkit import Ptr, Reg, Vec, smem
from ptxkit.ptx import add, and_, cp, cvt, ld, mul, selp, setp, shf, shl, st, xor
from ptxkit.ptx import max as max_
from ptxkit.ptx import min as min_
from ptxkit.smem import Tile
from ptxkit.types import b8, b32, pred, u32, u64

from ..config.parts import ShiftedCopies
from .atoms import WARPGROUP
from .source import SPAN, Source, Step, left

UNIT = 16                   # bytes
RAW_LINE = SPAN + UNIT      # bytes that a line of a span touches at most
LINES = WARPGROUP * UNIT // SPAN            # that the warpgroup copies at a time, a unit a thread
BATCH = 4                   # units of a thread that are read before the ones before them are stored


class ShiftedCopy:
    """Fills an operand's tile by the copies of all threads of the producer warpgroup. `lines` and `inner` are the extents of the operand:
    rows and K of a K-major tile, K and rows of an MN-major one."""

    def __init__(self, copies: ShiftedCopies, tile: Tile[Any], source: Source, lines: Reg[u32], inner: Reg[u32], thread: Reg[u32],
                 name: str) -> None:
        layout = tile.layout
        assert layout.span_bytes == SPAN
        self.tile, self.source, self.lines, self.inner, self.size = tile, source, lines, inner, layout.element_bytes
        self.ahead, self.asynchronous = copies.ahead, False
        self.steps = [Step(line, span * layout.span, span * layout.span_stride + line * SPAN, (line & 7) << 4)
                      for line in range(0, layout.outer, LINES) for span in range(layout.spans)]
        self.slot_bytes = len(self.steps) * LINES * RAW_LINE
        raw = smem.array(b32, self.ahead * self.slot_bytes // 4, name=f"{name} as it lies")
        self.own_line, self.place = thread // (SPAN // UNIT), (thread & SPAN // UNIT - 1) * UNIT
        self.own_offset = self.own_line * SPAN + xor.b32(self.place, shl.b32(self.own_line & 7, 4))
        self.raw = raw.register() + self.own_line * RAW_LINE + self.place
        self.last: Reg[pred] = self.place == SPAN - UNIT           # this thread copies the line's last unit too

    def issue(self, slot: Reg[u32], line: Reg[u32], inner: Reg[u32], batch: Reg[u32] | None) -> None:
        """Copy what the tile from `line` and `inner` on touches into a slot."""
        at = line + self.own_line
        near: Any = min_.s32(self.inner - inner, self.tile.layout.rows * self.tile.layout.columns)      # whose bytes a register can count
        lines, rest = left(self.lines, at), near * self.size - self.place
        raw = self.raw + slot * self.slot_bytes
        for number, (step, pointer) in enumerate(self._lines(at, inner, batch)):
            shift = and_.b32(cvt.u32.u64(pointer), UNIT - 1)
            unit = Ptr(add.u64(and_.b64(pointer, -UNIT), cvt.u64.u32(self.place)), b8)
            there = rest + shift - step.inner * self.size if step.inner else rest + shift
            there = selp.b32(there, 0, lines > step.lines)
            own, last = (smem.SharedAddress(number * LINES * RAW_LINE + more, raw) for more in (0, UNIT))
            cp.async_.cg.shared__cta.global_(own, unit, UNIT, src_size=_bytes(there))
            cp.async_.cg.shared__cta.global_(last, unit.at(UNIT), UNIT, src_size=_bytes(there - UNIT), pred=self.last)

    def load(self, slot: Reg[u32], stage: Reg[u32], line: Reg[u32], inner: Reg[u32], batch: Reg[u32] | None) -> None:
        """Shift what is in a slot into the stage."""
        home, raw = self.tile[stage].register() + self.own_offset, self.raw + slot * self.slot_bytes
        flipped: dict[int, Reg[u32]] = {0: home}
        pitch = self.source.line * self.size
        begin = cvt.u32.u64(self._pointer(line + self.own_line, inner, batch))

        def read(number: int, step: Step) -> tuple[Step, Reg[u32], list[Reg[b32]]]:
            own = number * LINES * RAW_LINE
            shift = begin + pitch * step.lines if step.lines else begin
            return step, shift, [word for place in (own, own + UNIT) for word in ld.shared__cta.v4.b32(smem.SharedAddress(place, raw))]

        def store(step: Step, shift: Reg[u32], words: list[Reg[b32]]) -> None:
            if step.flip not in flipped:
                flipped[step.flip] = xor.b32(home, step.flip)
            st.shared__cta.v4.b32(smem.SharedAddress(step.offset, flipped[step.flip]), Vec(tuple(self._shifted(words, shift))))

        numbered, loaded = list(enumerate(self.steps)), list[tuple[Step, Reg[u32], list[Reg[b32]]]]()
        for first in range(0, len(numbered), BATCH):
            following = [read(*one) for one in numbered[first:first + BATCH]]
            for one in loaded:
                store(*one)
            loaded = following
        for one in loaded:
            store(*one)

    def _shifted(self, words: list[Reg[b32]], shift: Reg[u32]) -> list[Reg[b32]]:
        """The four words that begin `shift` bytes, modulo 16, after the first of eight."""
        for unit, distance in ((8, 2), (4, 1)):
            over = setp.ne.b32(and_.b32(shift, unit), 0)
            words = [selp.b32(words[i + distance], words[i], over) for i in range(len(words) - distance)]
        words = words[:5]
        if self.size == 4:
            return words[:4]
        bits = shl.b32(shift, 3)                                    # a funnel shift uses the lowest five bits
        return [shf.r.wrap.b32(words[i], words[i + 1], bits) for i in range(4)]

    def _pointer(self, line: Reg[u32], inner: Reg[u32], batch: Reg[u32] | None) -> Reg[u64]:
        """The address of an element."""
        index = add.u64(mul.wide.u32(line, self.source.line), cvt.u64.u32(inner))
        if batch is not None:
            index = add.u64(index, mul.lo.u64(cvt.u64.u32(batch), self.source.batch))
        return self.source.pointer.at(shl.b64(index, self.size.bit_length() - 1) if self.size > 1 else index).reg

    def _lines(self, line: Reg[u32], inner: Reg[u32], batch: Reg[u32] | None) -> Any:
        """The steps, and where the own line of each begins."""
        pointer = self._pointer(line, inner, batch)
        by_line = mul.wide.u32(self.source.line, self.size)
        previous = 0
        for step in self.steps:
            if step.lines != previous:
                pointer = add.u64(pointer, by_line * (step.lines - previous))
                previous = step.lines
            yield step, add.u64(pointer, step.inner * self.size) if step.inner else pointer


def _bytes(there: Any) -> Reg[u32]:
    """How many of a unit's bytes are there."""
    found: Any = max_.s32(there, 0)
    return min_.u32(found, UNIT)


__all__ = ["LINES", "RAW_LINE", "ShiftedCopy"]
