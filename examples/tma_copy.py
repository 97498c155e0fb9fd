"""Copy a matrix through shared memory by TMA: a tensor copy in, an mbarrier to wait on, a tensor copy out.

The tensor maps are made at the launch from what the kernel copies through them, so plain arrays are passed. Boxes that
stick out of the matrix read zeros there and write nothing.
"""
from __future__ import annotations

import numpy as np

from ptxkit import TensorMap, ctaid, device_array, if_, kernel, loop, smem, tid
from ptxkit.ptx import cp, fence, mbarrier
from ptxkit.runtime import driver
from ptxkit.types import f32

ROWS, COLUMNS = 64, 32                               # a line of 32 floats is 128 bytes, one swizzle span

load = cp.async_.bulk.tensor_2d.shared__cluster.global_.tile.mbarrier__complete_tx__bytes
store = cp.async_.bulk.tensor_2d.global_.shared__cta.tile.bulk_group


@kernel(block=32)
def tma_copy(source: TensorMap, target: TensorMap) -> None:
    """One CTA a box; its first thread does everything. full: 1 arrival, the thread's own arrive.expect_tx."""
    box = smem.tile(f32, (ROWS, COLUMNS), name="box")
    full = smem.mbarrier(1, name="full")
    with if_(tid.x == 0):
        column, row = ctaid.x * COLUMNS, ctaid.y * ROWS
        mbarrier.init.shared__cta.b64(full[0], 1)
        fence.proxy.async_.shared__cta()             # the copy engine sees the barrier that was just written
        mbarrier.arrive.expect_tx.shared__cta.b64(full[0], box.layout.bytes)
        load(box[0], source, (column, row), full[0])
        with loop() as spin:                         # until phase 0 is complete: one arrival and all bytes
            spin.break_if(mbarrier.try_wait.parity.shared__cta.b64(full[0], 0))
        store(target, (column, row), box[0])
        cp.async_.bulk.commit_group()
        cp.async_.bulk.wait_group(0)                 # shared memory must live until the store has read it


def check() -> str:
    """Run it on the GPU; the copy equals the source, to its ragged edges."""
    shape = 1_001, 516
    source = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    target = device_array(np.full(shape, np.nan, np.float32))
    tma_copy.launch((-(-shape[1] // COLUMNS), -(-shape[0] // ROWS)), device_array(source), target)
    assert np.array_equal(target.numpy(), source)
    return f"{shape[0]} x {shape[1]} floats in boxes of {ROWS} x {COLUMNS}, equal"


if __name__ == "__main__":
    print("tma_copy:", check() if driver.available("sm_90a") else f"{tma_copy.summary()}; not executed, there is no Hopper GPU")
