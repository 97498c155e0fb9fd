"""Quantisers: a matrix in e4m3 or e5m2 with a scale for the whole, for each row, or for each block of 1 x 128 or 128 x 128."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ptxkit import Ptr, Reg, ctaid, for_range, kernel, nctaid, tid
from ptxkit.ptx import ld, mov, st
from ptxkit.ptx import max as max_
from ptxkit.types import Scalar, b32, bf16, e4m3, pred, u32

from ..collective.quantizer import VECTOR, Divisor, Matrices, Tiling, Vectors, over_lanes, over_warps, store_scale
from ..scheduler.fast_divmod import ceil_div

THREADS = 256
MOST_VECTORS = 8            # that a thread of a row holds
BLOCK = 128
SEGMENT = 512               # columns of a tile with blocks of one row, and of a tile of a matrix with one scale
REGISTERS = 1 << 16         # of an SM
SPARE = 32                  # registers of a thread besides the words that it holds
STEPS = 4                   # vectors of a thread of such a tile
LANES = 8                   # that share a block of one row: the fewer they are, the less a vector costs of what is done once a block


def ctas(config: Mapping[str, Any], words: int, threads: int = THREADS) -> str:
    """How many CTAs an SM must hold, so that the loads under way cover the latency of memory: a thread has this many words and the
    registers that a quotient and addresses take."""
    return f".minnctapersm {REGISTERS // (threads * (words + (SPARE if config['wide'] else 2 * SPARE)))}"


@kernel(target="sm_90a", block=lambda config: max(THREADS, config["threads"]), min_ctas=None,
        directives=lambda config: ctas(config, 4 * config["vectors"], max(THREADS, config["threads"])))
def quantize_rows(given: Matrices, *, source: type[Scalar] = bf16, out: type[Scalar] = e4m3, threads: Literal[32, 128, 256, 512] = 256,
                  vectors: int = 4, held: bool = True, wide: bool = True) -> None:
    """Each row has a scale. `threads` share a row; each holds `vectors` of it at a time. `held`: these are all, so that X is read once.
    Else the row is read twice, the second time from a cache."""
    elements, cta = Vectors(source, out, given, wide), max(THREADS, threads)
    thread = mov.u32(tid.x)
    warp, within = thread >> 5, thread & (threads - 1)
    row = mov.u32(ctaid.x) * (cta // threads) + thread // threads
    span = threads * elements.count

    def read(first: Reg[u32] | int) -> list[tuple[Reg[u32], list[Reg[b32]]]]:
        columns = [first + (within * elements.count + span * i) for i in range(vectors)]
        return [(column, elements.read(row, column)) for column in columns]

    chunks = ceil_div(given.columns, span * vectors)
    if held:
        kept = read(0)
        largest = None
        for _, words in kept:
            largest = elements.largest(words, largest)
    else:
        largest = mov.b32(0)
        with for_range(chunks) as chunk:
            for _, words in read(chunk * (span * vectors)):
                mov.b32(largest, elements.largest(words, largest))
    bits = over_lanes(elements.magnitude(largest), 32)
    bits = over_warps(bits, warp, threads // 32, cta // 32)
    divisor = Divisor.of(mov.b32(bits), out)
    store_scale(given, row, 0, divisor, (row < given.rows) & (within == 0))

    def store(vectors: list[tuple[Reg[u32], list[Reg[b32]]]]) -> None:
        elements.grow_all([words for _, words in vectors], divisor)
        for column, words in vectors:
            elements.store(words, row, column, divisor)

    if held:
        store(kept)
    else:
        with for_range(chunks) as chunk:
            store(read(chunk * (span * vectors)))


@kernel(target="sm_90a", block=THREADS, min_ctas=None, directives=lambda config: ctas(config, config["source"].bits * 2))
def quantize_blocks(given: Matrices, tiling: Tiling, *, source: type[Scalar] = bf16, out: type[Scalar] = e4m3, wide: bool = True) -> None:
    """Each block of 128 rows by 128 columns has a scale, and a CTA."""
    elements, thread, tile = Vectors(source, out, given, wide), mov.u32(tid.x), mov.u32(ctaid.x)
    rows, column = places(elements, thread, tiling.place(tile), BLOCK, BLOCK)
    kept = [elements.read(row, column) for row in rows]
    largest = None
    for words in kept:
        largest = elements.largest(words, largest)
    bits = over_warps(over_lanes(elements.magnitude(largest), 32), thread >> 5, THREADS // 32, THREADS // 32)
    divisor = Divisor.of(mov.b32(bits), out)
    store_scale(given, rows[0] // BLOCK, column // BLOCK, divisor, thread == 0)
    elements.grow_all(kept, divisor)
    for row, words in zip(rows, kept, strict=True):
        elements.store(words, row, column, divisor)


@kernel(target="sm_90a", block=THREADS, min_ctas=None, directives=lambda config: ctas(config, 4 * STEPS))
def quantize_row_blocks(given: Matrices, tiling: Tiling, *, source: type[Scalar] = bf16, out: type[Scalar] = e4m3,
                        wide: bool = True) -> None:
    """Each block of a row's 128 columns has a scale. A CTA has 512 columns of some rows. Eight neighbouring lanes share a block and take
    its vectors in turn."""
    elements, thread = Vectors(source, out, given, wide), mov.u32(tid.x)
    across = SEGMENT // BLOCK * LANES                                       # threads of a tile's row
    count = BLOCK // (LANES * elements.count)                               # vectors of a thread in a block
    above, before = tiling.place(mov.u32(ctaid.x))
    left = before * SEGMENT + thread % across // LANES * BLOCK
    top = above * tile_rows(source) + thread // across
    own = left + thread % LANES * elements.count
    rows = [top + step if step else top for step in range(0, tile_rows(source), THREADS // across)]
    columns = [own + i * (LANES * elements.count) if i else own for i in range(count)]
    kept = [[elements.read(row, column) for column in columns] for row in rows]
    for row, vectors in zip(rows, kept, strict=True):
        words = [word for vector in vectors for word in vector]
        divisor = Divisor.of(mov.b32(over_lanes(elements.magnitude(elements.largest(words)), LANES)), out)
        inside: Reg[pred] = (row < given.rows) & (left < given.columns)
        store_scale(given, row, left // BLOCK, divisor, inside & (thread % LANES == 0))
        elements.grow_all(vectors, divisor)
        for column, vector in zip(columns, vectors, strict=True):
            elements.store(vector, row, column, divisor)


@kernel(target="sm_90a", block=THREADS, min_ctas=None, directives=lambda config: ctas(config, 4 * STEPS))
def largest_magnitudes(given: Matrices, tiling: Tiling, partial: Ptr[u32], tiles: Reg[u32], *, source: type[Scalar] = bf16,
                       out: type[Scalar] = e4m3, wide: bool = True) -> None:
    """partial[c] = the bits of the largest magnitude in the tiles c, c + C, ... of X, for each CTA c of C. The first of two kernels that
    quantise a matrix with one scale."""
    elements, thread = Vectors(source, out, given, wide), mov.u32(tid.x)
    largest = mov.b32(0)
    with for_range(tiles, start=mov.u32(ctaid.x), step=mov.u32(nctaid.x)) as tile:
        rows, column = places(elements, thread, tiling.place(tile), SEGMENT, tile_rows(source))
        for words in [elements.read(row, column) for row in rows]:
            mov.b32(largest, elements.largest(words, largest))
    bits = over_warps(over_lanes(elements.magnitude(largest), 32), thread >> 5, THREADS // 32, THREADS // 32)
    st.global_.u32(partial.at(ctaid.x), bits, pred=thread == 0)


@kernel(target="sm_90a", block=THREADS, min_ctas=None, directives=lambda config: ctas(config, 4 * STEPS))
def quantize_tensor(given: Matrices, tiling: Tiling, partial: Ptr[u32], tiles: Reg[u32], *, source: type[Scalar] = bf16,
                    out: type[Scalar] = e4m3, wide: bool = True) -> None:
    """All of X has one scale, of the largest of the partial ones: as many as this kernel has CTAs."""
    elements, thread = Vectors(source, out, given, wide), mov.u32(tid.x)
    largest = mov.u32(0)
    with for_range(mov.u32(nctaid.x), start=thread, step=THREADS) as cta:
        max_.u32(largest, largest, ld.global_.nc.u32(partial.at(cta)))
    bits = over_warps(over_lanes(largest, 32), thread >> 5, THREADS // 32, THREADS // 32)
    divisor = Divisor.of(mov.b32(bits), out)
    store_scale(given, mov.u32(0), 0, divisor, (thread == 0) & (mov.u32(ctaid.x) == 0))
    with for_range(tiles, start=mov.u32(ctaid.x), step=mov.u32(nctaid.x)) as tile:
        rows, column = places(elements, thread, tiling.place(tile), SEGMENT, tile_rows(source))
        kept = [elements.read(row, column) for row in rows]
        elements.grow_all(kept, divisor)
        for row, words in zip(rows, kept, strict=True):
            elements.store(words, row, column, divisor)


def places(elements: Vectors, thread: Reg[u32], tile: tuple[Reg[u32], Reg[u32]], width: int, high: int) -> tuple[list[Reg[u32]], Reg[u32]]:
    """The rows and the column of a thread's vectors. `tile` says how many tiles lie above this one and how many to its left; each has
    `width` columns and `high` rows."""
    across = width // elements.count                                        # vectors of a tile's row
    column = tile[1] * width + thread % across * elements.count
    top = tile[0] * high + thread // across
    return [top + step if step else top for step in range(0, high, THREADS // across)], column


def tile_rows(source: type[Scalar]) -> int:
    """The rows of a tile of 512 columns: as many as keep `STEPS` vectors of each thread under way."""
    return STEPS * THREADS * VECTOR * 8 // source.bits // SEGMENT


__all__ = ["BLOCK", "MOST_VECTORS", "SEGMENT", "THREADS", "largest_magnitudes", "quantize_blocks", "quantize_row_blocks", "quantize_rows",
           "quantize_tensor", "tile_rows"]
