"""A quantiser of the transposed matrix: x^T in e4m3 or e5m2, with a scale for each 128 rows of a column of x."""

from __future__ import annotations

from typing import Any

from ptxkit import Reg, Vec, ctaid, kernel, smem, tid
from ptxkit.ptx import bar, ld, mov, shfl, st
from ptxkit.types import Scalar, b32, bf16, e4m3, f32, pred

from ..collective.quantizer import ALL, VECTOR, Divisor, Matrices, Vectors, store_scale
from ..scheduler.fast_divmod import ceil_div
from .quantize import BLOCK, THREADS, ctas

WIDTH = 64                  # columns of a tile, whose rows are those of a block
PITCH = BLOCK + 4           # bytes from one column of the tile to the next in shared memory: its words lie in other banks
PARTS = BLOCK // VECTOR     # vectors of a row of the result, which neighbouring threads store


@kernel(target="sm_90a", block=THREADS, min_ctas=None, directives=lambda config: ctas(config, config["source"].bits))
def quantize_transposed(given: Matrices, *, source: type[Scalar] = bf16, out: type[Scalar] = e4m3, wide: bool = True,
                        wide_out: bool = True) -> None:
    """q [K, M] and the scales [K, M/128] of x [M, K]. A CTA has 128 rows by 64 columns of x. A thread reads a vector of each of some
    neighbouring rows. 64 threads find the scales of a column each; the quotients are turned in shared memory. With `wide_out` q is stored
    in vectors of 16 bytes."""
    elements, thread, tile = Vectors(source, out, given, wide), mov.u32(tid.x), mov.u32(ctaid.x)
    count, warps = elements.count, THREADS // 32
    across = WIDTH // count                                                 # vectors of a tile's row
    steps = BLOCK * across // THREADS                                       # rows of a thread
    largest = smem.array(b32, warps * across * 4, align=16, name="largest of a warp")
    divisors = smem.array(f32, (WIDTH + across) * 4, align=16, name="scales")
    gap = 4 if count == 8 else 0                                            # words between the columns of two vectors: other banks
    turned = smem.array(b32, WIDTH * PITCH // 4 + across * gap, name="turned")
    tiles = ceil_div(given.columns, WIDTH)
    block = tile // tiles
    left = (tile - block * tiles) * WIDTH
    own, group = thread % across, thread // across
    kept = [elements.read(block * BLOCK + (group * steps + step), left + own * count) for step in range(steps)]

    maxima: list[Any] = [elements.largest([words[place] for words in kept]) for place in range(4)]
    distance = across
    while distance < 32:
        maxima = [elements.largest([one, shfl.sync.bfly.b32(one, distance, 31, ALL)]) for one in maxima]
        distance *= 2
    st.shared__cta.v4.b32(largest.at(thread // 32 * (across * 4) + own * 4), Vec(maxima), pred=thread % 32 < across)
    bar.sync(0)
    column = left + thread
    mine: Reg[pred] = thread < WIDTH
    word = (thread & (WIDTH - 1)) * source.bits // 32
    found: Any = elements.largest([ld.shared__cta.b32(largest.at(word + warp * (across * 4))) for warp in range(warps)])
    divisor = Divisor.of(elements.one(found, thread & 1), out)
    store_scale(given, column, block, divisor, mine & (column < given.columns))
    own_column = thread & (WIDTH - 1)
    st.shared__cta.v4.f32(divisors.at((own_column + own_column // count) * 4),
                          Vec([divisor.scale, divisor.growth, divisor.grown, divisor.inverse]), pred=mine)
    bar.sync(0)
    values = [elements.values(words) for words in kept]
    for e in range(count):
        scaled = Divisor(*ld.shared__cta.v4.f32(divisors.at((own * (count + 1) + e) * 4)))
        for first in range(0, steps, 4):
            packed = elements.packed([scaled.quotient(values[step][e]) for step in range(first, first + 4)])
            st.shared__cta.b32(turned.at(own * (count * PITCH // 4 + gap) + e * (PITCH // 4) + group * (steps // 4) + first // 4), packed)
    bar.sync(0)
    part = thread % PARTS
    for first in range(0, WIDTH, THREADS // PARTS):
        line = thread // PARTS + first
        words = [ld.shared__cta.b32(turned.at(line * (PITCH // 4) + line // count * gap + part * (VECTOR // 4) + i))
                 for i in range(VECTOR // 4)]
        elements.store_line(words, left + line, block * BLOCK + part * VECTOR, wide_out)

__all__ = ["WIDTH", "quantize_transposed"]
