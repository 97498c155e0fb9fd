"""Copies an operand to lines that tensor copies can load. It runs before a product whose configuration asks for that (`Loads.align`)."""

from __future__ import annotations

from typing import Any, Literal

from ptxkit import Ptr, Reg, ctaid, for_range, kernel, nctaid, smem, tid
from ptxkit.ptx import add, bar, cvt, griddepcontrol, ld, mov, mul, opcode, prmt, shl, st
from ptxkit.types import b8, b32, pred, u32, u64

from ..collective.source import Source
from ..scheduler.fast_divmod import ceil_div

THREADS = 256
WARPS = THREADS // 32
WORD = 4
UNROLLED = 8                # words of a thread that are under way at once
SIDE = 32                   # of a square that is turned in shared memory


@kernel(target="sm_90a", block=THREADS)
def align_lines(source: Source, to: Ptr[b8], lines: Reg[u32], inner: Reg[u32], batches: Reg[u32], pitch: Reg[u32], *,
                size: Literal[1, 2, 4] = 2, across: bool = False) -> None:
    """to[batch][line][inner] = the operand, in elements of `size` bytes, lines `pitch` bytes apart. What lies past the end of a line within
    its last word is zeros or not written.

    A warp copies line after line, a word a thread. `across`: the operand's lines are not contiguous, its neighbouring lines may be; a CTA
    then turns squares of 32 x 32 elements in shared memory, so that it reads along the lines' neighbours and writes along the lines.

    Nothing is read or written before griddepcontrol.wait: the workspace may still be read by the previous product.
    """
    thread = mov.u32(tid.x)
    lane, warp = thread & 31, thread >> 5
    shift = size.bit_length() - 1
    square = smem.array(b32, SIDE * (SIDE + 1), name="square") if across else None
    griddepcontrol.wait()
    griddepcontrol.launch_dependents()

    def place(batch: Reg[u32], line: Reg[u32], at: Reg[u32]) -> Reg[u64]:
        """The address of an element of the operand."""
        index = add.u64(mul.wide.u32(line, source.line), mul.lo.u64(cvt.u64.u32(batch), source.batch))
        return source.pointer.at(shl.b64(add.u64(index, mul.wide.u32(at, source.inner)), shift)).reg

    def aligned(row: Reg[u32], at: Reg[u32]) -> Ptr[Any]:
        """The address of an element of the copy, in line `row` of all batches together."""
        return to.at(mul.wide.u32(row, pitch)).at(at * size)

    if square is None:
        words, rows = ceil_div(inner * size, WORD), lines * batches
        with for_range(rows, start=mov.u32(ctaid.x) * WARPS + warp, step=mov.u32(nctaid.x) * WARPS) as row:
            batch = row // lines
            own = mov.u32(lane)
            first, target = place(batch, row - batch * lines, mov.u32(0)), aligned(row, mov.u32(0))
            with for_range(ceil_div(words, 32 * UNROLLED)):
                found = []
                for step in range(UNROLLED):
                    word = own + 32 * step if step else own
                    found.append((word, _word(Ptr(first, b8), word, inner, size)))
                for word, value in found:
                    st.global_.b32(target.at(word * WORD), value, pred=word < words)
                add.u32(own, own, 32 * UNROLLED)
        return
    tall, wide = ceil_div(lines, SIDE), ceil_div(inner, SIDE)
    each = tall * wide
    loads: Any = {1: ld.global_.nc.u8, 2: ld.global_.nc.u16, 4: ld.global_.nc.u32}[size]
    stores: Any = {1: st.global_.b8, 2: opcode("st.global.b16"), 4: st.global_.b32}[size]
    with for_range(each * batches, start=mov.u32(ctaid.x), step=mov.u32(nctaid.x)) as number:
        batch = number // each
        within = number - batch * each
        down = within // wide
        line, column = down * SIDE, (within - down * wide) * SIDE
        for step in range(0, SIDE, WARPS):
            at, mine = column + warp + step, line + lane
            inside: Reg[pred] = (at < inner) & (mine < lines)
            value = mov.u32(0)
            loads(value, Ptr(place(batch, mine, at), b8), pred=inside)
            st.shared__cta.b32(square.at((warp + step) * (SIDE + 1) + lane), value)
        bar.sync(0)
        for step in range(0, SIDE, WARPS):
            at, mine = column + lane, line + warp + step
            value = ld.shared__cta.u32(square.at(lane * (SIDE + 1) + warp + step))
            kept: Any = value if size != 2 else cvt.u16.u32(value)
            stores(aligned(batch * lines + mine, at), kept, pred=(at < inner) & (mine < lines))
        bar.sync(0)


def _word(first: Ptr[b8], word: Reg[u32], inner: Reg[u32], size: int) -> Reg[u32]:
    """A word of a line that begins there, of elements at any address; zeros past its end."""
    per_word = WORD // size
    parts = []
    for e in range(per_word):
        found = mov.u32(0)
        number = word * per_word + e if e else word * per_word
        loads: Any = {1: ld.global_.nc.u8, 2: ld.global_.nc.u16, 4: ld.global_.nc.u32}[size]
        loads(found, first.at(number * size), pred=number < inner)
        parts.append(found)
    if size == WORD:
        return parts[0]
    if size == 2:
        return prmt.b32(parts[0], parts[1], 0x5410)
    low, high = (prmt.b32(parts[i], parts[i + 1], 0x1140) for i in (0, 2))
    return prmt.b32(low, high, 0x5410)


__all__ = ["THREADS", "align_lines"]
