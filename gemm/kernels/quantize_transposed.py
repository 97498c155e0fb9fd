"""A quantiser of the transposed matrix: x^T in e4m3 or e5m2, with a scale for each 128 rows of a column of x."""

from __future__ import annotations

import functools
from typing import Any

from ptxkit import Vec, ctaid, if_, kernel, smem, tid
from ptxkit.ptx import bar, ld, mov, setp, shfl, st
from ptxkit.types import Scalar, b32, bf16, e4m3, f16, f32

from ..collective.quantizer import ALL, VECTOR, Divisor, Matrices, Tiling, Vectors, quotient, store_scale
from .quantize import BLOCK, THREADS, ctas

WIDTH = 64                  # columns of a tile, whose rows are those of a block
PITCH = BLOCK + 4           # bytes from one column of the tile to the next in shared memory: its words lie in other banks
PARTS = BLOCK // VECTOR     # vectors of a row of the result, which neighbouring threads store


@kernel(target="sm_90a", block=THREADS, min_ctas=None, directives=lambda config: ctas(config, config["source"].bits))
def quantize_transposed(given: Matrices, tiling: Tiling, *, source: type[Scalar] = bf16, out: type[Scalar] = e4m3, wide: bool = True,
                        wide_out: bool = True) -> None:
    """q [K, M] and the scales [K, M/128] of x [M, K]. A CTA has 128 rows by 64 columns of x. A thread reads a vector of each of some
    neighbouring rows. Two warps find the scales, a column a thread; the quotients are turned in shared memory. With `wide_out` q is stored
    in vectors of 16 bytes."""
    elements, thread = Vectors(source, out, given, wide), mov.u32(tid.x)
    count, warps = elements.count, THREADS // 32
    across = WIDTH // count                                                 # vectors of a tile's row
    steps = BLOCK * across // THREADS                                       # rows of a thread
    largest = smem.array(b32, warps * across * 4, align=16, name="largest of a warp")
    divisors = smem.array(f32, (WIDTH + across) * 4, align=16, name="scales")
    gap = 4 if count == 8 else 0                                            # words between the columns of two vectors: other banks
    turned = smem.array(b32, WIDTH * PITCH // 4 + across * gap, name="turned")
    block, before = tiling.place(mov.u32(ctaid.x))
    left = before * WIDTH
    own, group = thread % across, thread // across
    kept = [elements.read(block * BLOCK + (group * steps + step), left + own * count) for step in range(steps)]

    maxima: list[Any] = [elements.largest([words[place] for words in kept]) for place in range(4)]
    distance = across
    while distance < 32:
        maxima = [elements.larger(one, shfl.sync.bfly.b32(one, distance, 31, ALL)) for one in maxima]
        distance *= 2
    st.shared__cta.v4.b32(largest.at(thread // 32 * (across * 4) + own * 4), Vec(maxima), pred=thread % 32 < across)
    bar.sync(0)
    rare = setp.ne.u32(thread, thread)
    with if_(thread < WIDTH):
        column = left + thread
        word = thread * source.bits // 32
        found: list[Any] = [ld.shared__cta.b32(largest.at(word + warp * (across * 4))) for warp in range(warps)]
        divisor = Divisor.of(elements.one(functools.reduce(elements.larger, found), thread & 1), out)
        store_scale(given, column, block, divisor, column < given.columns)
        st.shared__cta.v4.f32(divisors.at((thread + thread // count) * 4),
                              Vec([divisor.grown, divisor.inverse, divisor.growth, divisor.scale]))
        mov.pred(rare, divisor.rare)
    grows = bar.red.or_.pred(0, rare)
    places = [divisors.at((own * (count + 1) + e) * 4) for e in range(count)]
    if source is not f16:
        with if_(grows):
            growths = [ld.shared__cta.f32(place.at(2)) for place in places]
            for words in kept:
                elements.grow(words, growths)
    values = [elements.values(words) for words in kept]
    for e in range(count):
        grown, inverse = ld.shared__cta.v2.f32(places[e])
        for first in range(0, steps, 4):
            packed = elements.packed([quotient(values[step][e], grown, inverse) for step in range(first, first + 4)])
            st.shared__cta.b32(turned.at(own * (count * PITCH // 4 + gap) + e * (PITCH // 4) + group * (steps // 4) + first // 4), packed)
    bar.sync(0)
    part = thread % PARTS
    for first in range(0, WIDTH, THREADS // PARTS):
        line = thread // PARTS + first
        words = [ld.shared__cta.b32(turned.at(line * (PITCH // 4) + line // count * gap + part * (VECTOR // 4) + i))
                 for i in range(VECTOR // 4)]
        elements.store_line(words, left + line, block * BLOCK + part * VECTOR, wide_out)


__all__ = ["WIDTH", "quantize_transposed"]
