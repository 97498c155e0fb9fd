"""Block quantisation: bf16 to e4m3 with an f32 scale for each 128 neighbours of a row, as block-scaled fp8 products take them.

    scale = largest magnitude / 448        q = x / scale, rounded to e4m3

A block of zeros has the scale 1, no other one a scale below 2^-126. A block with a NaN or an infinity is NaN.

Sixteen lanes have a block, 16 bytes each: four shuffles find its largest magnitude. bf16 is compared as integers: without the sign its bits
are in the order of its values, and two of them are compared at once in a word. One quotient a block; each element costs a product.
`gemm.quantize` of the package has all kinds of blocks, the bits of a true division, and any shape; this page shows the idea.

    python -m examples.rows.quantise
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from examples.host.problem import Array, Problem, Step, apart, extents, narrow, normal, poison, report, taken, wide
from ptxkit import Ptr, Reg, ctaid, if_, kernel, tid
from ptxkit.fragments import pack, unpack
from ptxkit.ptx import div, ld, mad, max, mov, mul, selp, setp, st
from ptxkit.reductions import warp_reduce
from ptxkit.types import bf16, e4m3, f32, u32

THREADS = 256
BLOCK, VECTOR = 128, 8
LANES = BLOCK // VECTOR
EACH = 4                                                             # vectors of a thread, under way at once
TOP = 448.0                                                          # the largest e4m3
LEAST = 2.0**-126                                                    # of a scale: f32 has the quotient 1 / scale


@kernel(target="sm_90a", block=THREADS, min_ctas=4)
def quantise(x: Ptr[bf16], q: Ptr[e4m3], scale: Ptr[f32], blocks: Reg[u32]) -> None:
    """x and q [blocks, 128], scale [blocks]. A thread has a vector in each of EACH blocks, THREADS / 16 blocks apart."""
    thread = mov.u32(tid.x)
    first = mad.lo.u32(mov.u32(ctaid.x), THREADS // LANES * EACH, thread // LANES)
    lane = thread % LANES
    numbers = [first + i * (THREADS // LANES) for i in range(EACH)]
    vectors = []
    for number in numbers:
        vector = [mov.b32(0) for _ in range(4)]                      # a block that is not there is zeros
        ld.global_.nc.v4.b32(vector, x.at(mul.wide.u32(number, BLOCK)).at(lane * VECTOR), pred=number < blocks)
        vectors.append(vector)
    for number, vector in zip(numbers, vectors, strict=True):
        values = [value for word in vector for value in unpack(bf16, word)]
        bits = [word & 0x7FFF7FFF for word in vector]
        while len(bits) > 1:
            bits = [max.u16x2(*bits[i:i + 2]) for i in range(0, len(bits), 2)]
        pair = mov.u32(mov.b32(bits[0]))
        largest = warp_reduce(max.u32, max.u32(pair << 16, pair & 0xFFFF0000), lanes=LANES)
        top = mov.f32(mov.b32(largest))                              # the bits of bf16 above 16 zeros are those of an f32
        empty = setp.eq.f32(top, 0.0)                                # a block of zeros has the scale 1
        divisor = selp.f32(1.0, max.NaN.f32(mul.rn.f32(top, 1 / TOP), LEAST), empty)
        factor = div.full.f32(1.0, divisor)
        words = [pack(e4m3, *(mul.rn.f32(value, factor) for value in values[i:i + 4])) for i in (0, 4)]
        with if_(number < blocks):
            st.global_.v2.b32(q.at(mul.wide.u32(number, BLOCK)).at(lane * VECTOR), words)
            st.global_.f32(scale.at(number), divisor, pred=lane == 0)


def steps(x: Any, q: Any, scale: Any) -> list[Step]:
    """The launch for x and q [rows, columns] and scale [rows, columns / 128]."""
    rows, columns = extents("x [rows, columns]", x)
    if columns % BLOCK:
        raise ValueError(f"columns are whole blocks of {BLOCK}, not {columns}: `ptxkit.gemm.quantize` takes any number")
    taken(x=(x, (rows, columns)), q=(q, (rows, columns)), scale=(scale, (rows, columns // BLOCK)))
    apart("q", "scale", x=x, q=q, scale=scale)
    blocks = rows * columns // BLOCK
    return [Step(quantise, -(-blocks // (THREADS // LANES * EACH)), (x, q, scale, blocks))]


def problem(rows: int, columns: int, size: float = 1.0, seed: int = 0) -> Problem:
    """Normal values, times `size`, and one block of zeros."""
    x = narrow(size * normal(seed, rows, columns, kind="f32"))
    x[0, :BLOCK] = 0
    values = wide("bf16", x)
    tops = np.abs(values).reshape(rows, -1, BLOCK).max(2)
    scales = np.where(tops == 0, 1.0, np.maximum(tops / TOP, LEAST))
    each = np.repeat(scales, BLOCK, 1)
    # q scale is x but for one rounding to 4 bits: half of 2^-3 of a value, and of 2^-9 below 2^-6, in units of the scale.
    allowed = 1.001 * np.maximum(2.0**-4 * np.abs(values), 2.0**-10 * each)

    def decode(bits: Array, arrays: Mapping[str, Array]) -> Array:
        found: Array = wide("e4m3", bits) * np.repeat(arrays["scale"].astype(np.float64), BLOCK, 1)
        return found

    operands = {"x": ("bf16", x), "q": ("e4m3", poison("e4m3", rows, columns)), "scale": ("f32", poison("f32", *scales.shape))}
    return Problem(operands, lambda a: steps(a["x"], a["q"], a["scale"]), {"q": (values, allowed), "scale": (scales, 2.0**-22 * scales)},
                   bytes=3 * x.size + 4 * scales.size, library=_library, decode={"q": decode})


def _library(torch: Any, a: Mapping[str, Any]) -> Any:
    def quantised(x: Any) -> Any:
        parts = x.float().view(x.shape[0], -1, BLOCK)
        scale = parts.abs().amax(2) / TOP
        scale = torch.where(scale == 0, 1.0, scale)
        return (parts / scale[..., None]).view(x.shape).to(torch.float8_e4m3fn), scale

    compiled = torch.compile(quantised)
    return lambda: compiled(a["x"])


if __name__ == "__main__":
    print(report("quantise", problem(16_384, 8192), problem(3, 768)))
