"""Step 0: a warp has one query and goes over the keys in a loop, on the CUDA cores."""

from __future__ import annotations

import math

from ptxkit import Ptr, Reg, ctaid, for_range, kernel, span, tid
from ptxkit.fragments import pack, unpack
from ptxkit.ptx import add, ex2, fma, ld, mov, mul, rcp, st
from ptxkit.ptx import max as max_
from ptxkit.reductions import warp_reduce
from ptxkit.types import bf16, f32, u32

from .rung import Rung

BM = 8                      # queries of a CTA, one for each warp
WARP = 32


@kernel(block=BM * WARP)
def loop(q: Ptr[bf16], k: Ptr[bf16], v: Ptr[bf16], o: Ptr[bf16], rows: Reg[u32], *, HEAD: int = 128, BN: int = 128,
         causal: bool = False) -> None:
    """q, k, v and o are [heads, rows, HEAD]. A lane has HEAD / 32 elements of the query and of the output. BN does not matter here.

    The softmax is online: no row of scores is kept. After each key the warp has the largest score so far, and, relative to it, the sum of
    the weights and the weighted sum of the values. A key that raises the maximum scales both sums down.
    """
    thread = mov.u32(tid.x)
    query, own = ctaid.x * BM + (thread >> 5), HEAD // WARP
    first = ctaid.y * rows * HEAD + (thread & 31) * own             # of the head's first row: what this lane has of it
    scale = math.log2(math.e) / math.sqrt(HEAD)                     # exp(x / sqrt(HEAD)) = exp2(x scale): ex2 is what the hardware has

    def read(array: Ptr[bf16], row: Reg[u32]) -> list[Reg[f32]]:
        words = [ld.global_.b32(array.at(row * HEAD + first + at)) for at in range(0, own, 2)]
        return [value for word in words for value in unpack(bf16, word)]

    mine = [mul.rn.f32(value, scale) for value in read(q, query)]
    output = [mov.f32(0.0) for _ in range(own)]
    top, total = mov.f32(-math.inf), mov.f32(0.0)
    with span("products"):                                          # loads, products and exponentials take turns at every key
        with for_range(query + 1 if causal else rows) as key:       # under the mask the loop ends at the query's own key
            part = mov.f32(0.0)
            for x, y in zip(mine, read(k, key), strict=True):
                fma.rn.f32(part, x, y, part)
            score = warp_reduce(add.rn.f32, part)                   # five shuffles for HEAD products: most of the loop
            highest = max_.f32(top, score)
            factor = ex2.approx.ftz.f32(add.rn.f32(top, mul.rn.f32(highest, -1.0)))      # 0 at the first key, where top is -inf
            weight = ex2.approx.ftz.f32(add.rn.f32(score, mul.rn.f32(highest, -1.0)))
            mov.f32(top, highest)
            fma.rn.f32(total, total, factor, weight)
            for held, value in zip(output, read(v, key), strict=True):
                fma.rn.f32(held, held, factor, mul.rn.f32(weight, value))
    with span("store"):
        inverse = rcp.approx.ftz.f32(total)
        for at in range(0, own, 2):
            word = pack(bf16, *(mul.rn.f32(value, inverse) for value in output[at:at + 2]))
            st.global_.b32(o.at(query * HEAD + first + at), word)


RUNG = Rung(0, loop, BM, "a warp for each query, online softmax, on the CUDA cores")
