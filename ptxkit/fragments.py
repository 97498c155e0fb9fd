"""Fragments: packing, and ldmatrix and stmatrix between tiles and fragments. Each docstring says what is emitted.

`opcode.coordinates(thread)` says where the elements of a fragment are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeVar

from . import ptx
from .dsl.ambient import current
from .dsl.bounds import thread_register
from .dsl.convert import shown
from .dsl.reg import Reg, Vec
from .dsl.special import laneid
from .errors import TraceError
from .smem import TileView, check_view
from .types import Scalar, bf16, bits32, e4m3, e5m2, f16, f32, s32, u32

S = TypeVar("S", bound=Scalar)


def pack(type: type[Scalar], *values: Reg[f32]) -> Reg[bits32]:
    """A word of 2 (bf16, f16) or 4 (e4m3, e5m2) f32 values, the first one in the lowest bits.

    Emits cvt.rn.bf16x2.f32; for 8 bits two cvt.rn.satfinite.e4m3x2.f32 and a mov.b32.
    """
    name, count = getattr(type, "__name__", repr(type)), 4 if type in (e4m3, e5m2) else 2
    if type not in (bf16, f16, e4m3, e5m2) or len(values) != count:
        raise TraceError(f"pack takes 2 values for bf16 or f16 and 4 for e4m3 or e5m2, not {len(values)} for {name}")
    if count == 2:
        pair = ptx.opcode(f"cvt.rn.{name}x2.f32")(values[1], values[0])
        return Reg(pair.builder, pair.name, bits32)                     # a product takes no register of type f16x2
    narrow = ptx.opcode(f"cvt.rn.satfinite.{name}x2.f32")
    word: Reg[bits32] = ptx.mov.b32((narrow(values[1], values[0]), narrow(values[3], values[2])))
    return word


def unpack(type: type[Scalar], word: Reg[Any]) -> tuple[Reg[f32], ...]:
    """The f32 values of a word, the one in the lowest bits first.

    Emits for bf16 shl and and; for f16 a mov.b32 and two cvt.f32.f16; for 8 bits three mov.b32, two cvt.rn.f16x2 and four cvt.f32.f16.
    """
    builder = current()
    if not isinstance(word, Reg):
        raise TraceError(f"unpack takes one word, a register of 32 bits, not {shown(word)}: unpack the words of a Vec one by one")
    if type is bf16:
        low, high = builder.register(f32), builder.register(f32)
        ptx.shl.b32(low, word, 16)
        ptx.and_.b32(high, word, 0xFFFF0000)
        return low, high
    if type is f16:
        return tuple(ptx.cvt.f32.f16(half) for half in _halves(word, f16))
    if type in (e4m3, e5m2):
        wide = ptx.opcode(f"cvt.rn.f16x2.{type.__name__}x2")
        pairs = [wide(half) for half in _halves(word, type)]
        return tuple(ptx.cvt.f32.f16(half) for pair in pairs for half in _halves(pair, f16))
    raise TraceError(f"unpack takes bf16, f16, e4m3 or e5m2, not {getattr(type, '__name__', repr(type))}")


def _halves(word: Reg[Any], type: type[Scalar]) -> tuple[Reg[Any], Reg[Any]]:
    from .types import b16

    builder = current()
    low, high = (builder.register(f16 if type is f16 else b16) for _ in range(2))
    ptx.mov.b32((low, high), word)
    return low, high


def load_fragment(view: TileView[Any], row: int, column: int, operand: Literal["a", "b"] = "a", *,
                  lane: Reg[u32] | None = None) -> Vec[bits32, Literal[4]]:
    """Operand a (16 x 16) or b (16 rows of N, 16 of the depth) of mma.m16n8k16 from a K-major tile of 16-bit elements, by one ldmatrix.x4.

    Of b the first two registers are those of the first 8 rows. The address is computed once for all rows and columns that are multiples of
    16, as `TileView.at` says, and under a swizzle once more for each other column.
    """
    check_view(view, "load_fragment")
    _of_16_bits(view)
    if operand not in ("a", "b"):
        raise TraceError(f"ldmatrix loads operand 'a' or 'b' of an mma, not {operand!r}: accumulators are not in a tile before the product")
    if not (type(row) is type(column) is int and 0 <= row <= view.outer - 16 and 0 <= column <= view.inner - 16) or column % 8:
        raise TraceError(f"a fragment of 16 x 16 at row {row!r}, column {column!r} is not within a tile of {view.outer} x {view.inner}: "
                         "give ints, and a column in steps of 8")
    lane = ptx.mov.u32(laneid) if lane is None else thread_register(lane, "load_fragment")
    builder = current()
    if operand == "a":
        rows = builder.memo(("lane row",), (lane,), lambda: lane & 15)
        columns = builder.memo(("lane column",), (lane,), lambda: (lane >> 4) * 8)
    else:
        rows = builder.memo(("lane row of b",), (lane,), lambda: (lane & 7) | (lane >> 4) * 8)
        columns = builder.memo(("lane column of b",), (lane,), lambda: lane & 8)
    place = view.near(rows, columns, row, column)
    return ptx.ldmatrix.sync.aligned.m8n8.x4.shared__cta.b16(place)


def store_fragment(view: TileView[Any], fragment: Sequence[Reg[f32]] | Vec[f32, Any], thread: Reg[u32], *, columns: int | None = None,
                   column: int = 0) -> None:
    """The accumulators of wgmma (`thread` in the warpgroup) to a K-major tile of 64 rows of bf16 or f16, from `column` on.

    For each 16 columns four cvt and one stmatrix.x4. The address is computed once: and, shr, shl, shr, mad, and `TileView.at`; then one
    xor for each further 16 columns of a swizzle span.
    """
    check_view(view, "store_fragment")
    _of_16_bits(view)
    thread = thread_register(thread, "store_fragment")
    values = list(fragment)
    count = len(values) * 2 if columns is None else columns
    known = type(column) is type(count) is int
    if not known or len(values) * 2 != count or count % 16 or column % 16 or not 0 <= column <= view.layout.columns - count:
        raise TraceError(f"{len(values)} accumulators are {len(values) * 2} columns: a tile of {view.layout.columns} columns takes them in "
                         f"steps of 16 from column {column!r}")
    if view.outer < 64:
        raise TraceError(f"the accumulators of wgmma have 64 rows, and this tile has {view.outer}: give it 64")
    builder = current()
    lane = builder.memo(("lane",), (thread,), lambda: ptx.mov.u32(laneid))
    rows = builder.memo(("stmatrix row",), (thread, lane), lambda: (thread >> 5) * 16 + (lane & 15))
    chunk = builder.memo(("lane column",), (lane,), lambda: (lane >> 4) * 8)
    for first in range(0, count, 16):
        eight = values[first // 2:first // 2 + 8]
        words = Vec([pack(view.layout.type, eight[i], eight[i + 1]) for i in range(0, 8, 2)])
        ptx.stmatrix.sync.aligned.m8n8.x4.shared__cta.b16(view.near(rows, chunk, 0, column + first), words)


def rows_of(accumulators: Vec[S, Any]) -> tuple[Vec[S, Any], Vec[S, Any]]:
    """The registers of rows r and r + 8, the two rows of f32 or s32 accumulators that a thread of wgmma or of mma.m16n8 holds a part of.

    Four neighbouring lanes hold a row: `warp_reduce(operation, x, lanes=4)` goes over it. Emits nothing.
    """
    registers = list(accumulators)
    if len(registers) % 4 or not all(isinstance(reg, Reg) and reg.type in (f32, s32) for reg in registers):
        raise TraceError(f"rows_of takes f32 or s32 accumulators, pairs of columns in rows r and r + 8, not {accumulators!r}")
    first, second = ([reg for i, reg in enumerate(registers) if i // 2 % 2 == half] for half in range(2))
    return Vec(first), Vec(second)


def operands_a(type: type[Scalar], accumulators: Vec[f32, Any]) -> list[Vec[bits32, Literal[4]]]:
    """The accumulators of one product as operand A of the next one, in registers: a fragment of depth 16 for each 16 columns.

    Emits four cvt for each. A wgmma.fence follows before wgmma reads them.
    """
    registers = list(accumulators)
    if type not in (bf16, f16) or len(registers) % 8:
        raise TraceError(f"operands_a makes bf16 or f16 of accumulators of 16, 32, ... columns, not "
                         f"{getattr(type, '__name__', repr(type))} of "
                         f"{len(registers) * 2}")
    words = [pack(type, *registers[i:i + 2]) for i in range(0, len(registers), 2)]
    return [Vec((words[i], words[i + 1], words[i + 2], words[i + 3])) for i in range(0, len(words), 4)]


def _of_16_bits(view: TileView[Any]) -> None:
    if view.layout.type.bits != 16 or view.layout.major != "k":
        raise TraceError(f"ldmatrix and stmatrix move rows of 16-bit elements; this tile is {view.layout.major}-major "
                         f"{view.layout.type.__name__}: use `tile[stage].at(row, column)`")


__all__ = ["load_fragment", "operands_a", "pack", "rows_of", "store_fragment", "unpack"]
