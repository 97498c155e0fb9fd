"""c = a + b in f32: one element a thread, guarded at the end."""
from __future__ import annotations

import numpy as np

from ptxkit import Ptr, Reg, ctaid, device_array, if_, kernel, tid
from ptxkit.ptx import add, ld, mad, mov, st
from ptxkit.runtime import driver
from ptxkit.types import f32, u32

BLOCK = 256


@kernel(block=BLOCK)
def vector_add(a: Ptr[f32], b: Ptr[f32], c: Ptr[f32], n: Reg[u32]) -> None:
    i = mad.lo.u32(mov.u32(ctaid.x), BLOCK, mov.u32(tid.x))
    with if_(i < n):                                 # runs on the GPU, in the threads where it holds
        x = ld.global_.f32(a.at(i))                  # no destination: a fresh register
        y = ld.global_.f32(b.at(i))
        st.global_.f32(c.at(i), add.rn.f32(x, y))


def check() -> str:
    """Run it on the GPU and compare with NumPy."""
    n = 1_000_003
    generator = np.random.default_rng(0)
    a, b = generator.standard_normal((2, n), dtype=np.float32)
    c = device_array(np.full(n, np.nan, np.float32))
    vector_add.launch(-(-n // BLOCK), device_array(a), device_array(b), c, n)
    assert np.array_equal(c.numpy(), a + b)
    return f"{n:,} sums, equal to NumPy's to the bit"


if __name__ == "__main__":
    print("vector_add:", check() if driver.available("sm_90a") else f"{vector_add.summary()}; not executed, there is no Hopper GPU")
