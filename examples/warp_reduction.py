"""Sums of the rows of a matrix: a warp a row, lanes combined by shuffles."""
from __future__ import annotations

import numpy as np

from ptxkit import Ptr, Reg, ctaid, device_array, for_range, if_, kernel, laneid, tid
from ptxkit.ptx import add, ld, mov, st
from ptxkit.reductions import warp_reduce
from ptxkit.runtime import driver
from ptxkit.types import f32, u32

WARPS = 8
LANES = 32


@kernel(block=WARPS * LANES)
def row_sums(matrix: Ptr[f32], sums: Ptr[f32], rows: Reg[u32], columns: Reg[u32]) -> None:
    row = ctaid.x * WARPS + (tid.x >> 5)
    lane = mov.u32(laneid)
    with if_(row < rows):                            # the same in all lanes of a warp
        start = matrix.at(row * columns)
        total = mov.f32(0.0)
        with for_range(columns, start=lane, step=LANES) as column:      # a loop on the GPU
            add.rn.f32(total, total, ld.global_.f32(start.at(column)))  # destination first: in place
        st.global_.f32(sums.at(row), warp_reduce(add.rn.f32, total), pred=lane == 0)


def check() -> str:
    """Run it on the GPU and compare with NumPy in double precision."""
    rows, columns = 1_000, 777
    matrix = np.random.default_rng(0).standard_normal((rows, columns), dtype=np.float32)
    sums = device_array(np.full(rows, np.nan, np.float32))
    row_sums.launch(-(-rows // WARPS), device_array(matrix), sums, rows, columns)
    exact = matrix.sum(axis=1, dtype=np.float64)
    # An element passes through at most columns / 32 + 5 roundings, each of at most 2^-24 of the sum of magnitudes so far.
    bound = (columns / LANES + 5) * 2.0**-24 * np.abs(matrix).sum(axis=1, dtype=np.float64)
    share = (np.abs(sums.numpy() - exact) / bound).max()
    assert share <= 1, share
    return f"{rows} sums of {columns} elements, within {share:.2f} of the rounding bound"


if __name__ == "__main__":
    print("warp_reduction:", check() if driver.available("sm_90a") else f"{row_sums.summary()}; not executed, there is no Hopper GPU")
