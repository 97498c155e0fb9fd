"""Sums of the rows of a matrix, tuned at the first launch: warps of a CTA, and how many values a load has."""
from __future__ import annotations

from typing import Any

import numpy as np

from ptxkit import Ptr, Reg, Space, autotune, ctaid, device_array, for_range, if_, kernel, laneid, tid
from ptxkit.ptx import add, ld, mov, st
from ptxkit.reductions import warp_reduce
from ptxkit.runtime import driver
from ptxkit.types import f32, u32

LANES = 32
LOADS: dict[int, Any] = {2: ld.global_.v2.f32, 4: ld.global_.v4.f32}
ON_GPU = driver.available("sm_90a")


def exact(matrix: Any, sums: Any, rows: int, columns: int) -> np.ndarray:
    """What the sums must be."""
    host: np.ndarray = matrix.numpy() if ON_GPU else matrix
    return host.sum(axis=1, dtype=np.float64)


@autotune(Space(WARPS=(1, 4, 8), VALUES=(1, 2, 4)), key=("rows", "columns"), check={"sums": exact}, device="gpu" if ON_GPU else "cpu")
@kernel(block=lambda config: config["WARPS"] * LANES)
def row_sums(matrix: Ptr[f32], sums: Ptr[f32], rows: Reg[u32], columns: Reg[u32], *, WARPS: int = 4, VALUES: int = 1) -> None:
    row = ctaid.x * WARPS + (tid.x >> 5)
    lane = mov.u32(laneid)
    with if_(row < rows):
        start = matrix.at(row * columns)
        total = mov.f32(0.0)
        with for_range(columns, start=lane * VALUES, step=LANES * VALUES) as column:
            place = start.at(column)
            for value in [ld.global_.f32(place)] if VALUES == 1 else LOADS[VALUES](place):      # Python's: VALUES adds
                add.rn.f32(total, total, value)
        st.global_.f32(sums.at(row), warp_reduce(add.rn.f32, total), pred=lane == 0)


def check() -> str:
    """Tune it for one shape, on the GPU or (by instructions) on the CPU device."""
    rows, columns = (16_384, 1024) if ON_GPU else (16, 256)
    matrix = np.random.default_rng(0).standard_normal((rows, columns), dtype=np.float32)
    sums = np.full(rows, np.nan, np.float32)
    given = (device_array(matrix), device_array(sums)) if ON_GPU else (matrix, sums)
    config = row_sums.config(grid := lambda config: -(-rows // config["WARPS"]), *given, rows, columns)
    if ON_GPU:
        row_sums.launch(grid, *given, rows, columns)
        assert np.allclose(given[1].numpy(), matrix.sum(axis=1, dtype=np.float64), atol=1e-3)
    (found,) = row_sums.tuned.values()
    chosen = " ".join(f"{name}={value}" for name, value in config.items())
    return f"{chosen} of {len(found.times)} right points, {found.time:.4g} {found.unit} instead of {found.default:.4g}"


if __name__ == "__main__":
    print(f"tuned_sums: {check()}{'' if ON_GPU else ', on the CPU device: there is no Hopper GPU'}")
