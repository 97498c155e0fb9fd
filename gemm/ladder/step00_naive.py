"""Step 0: one thread, one element of D."""

from __future__ import annotations

from ptxkit import Ptr, Reg, ctaid, for_range, kernel, span, tid
from ptxkit.ptx import cvt, fma, ld, mov, st
from ptxkit.types import bf16, u32

from .rung import Rung

BM, BN = 8, 32      # a warp is 32 columns of one row: it reads one row of A and 32 of B


@kernel(block=BM * BN)
def naive(a: Ptr[bf16], b: Ptr[bf16], d: Ptr[bf16], m: Reg[u32], n: Reg[u32], k: Reg[u32]) -> None:
    """A thread walks along a row of A and a row of B. N threads read each element of A and M threads each element of B: only the caches
    reuse them."""
    thread = mov.u32(tid.x)
    row, column = ctaid.y * BM + (thread >> 5), ctaid.x * BN + (thread & 31)
    a_row, b_row = a.at(row * k), b.at(column * k)
    total = mov.f32(0.0)
    with span("mma"):               # loads and multiplications are interleaved here
        with for_range(k) as i:
            fma.rn.f32(total, cvt.f32.bf16(ld.global_.b16(a_row.at(i))), cvt.f32.bf16(ld.global_.b16(b_row.at(i))), total)
    with span("store"):
        st.global_.b16(d.at(row * n + column), cvt.rn.bf16.f32(total))


RUNG = Rung(0, naive, (BM, BN, 1), "one thread per element, on the CUDA cores")
