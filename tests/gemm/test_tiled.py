"""What copies leave in shared memory of a tile of which not all lines are wanted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ptxkit import Ptr, Reg, TensorMap, if_, kernel, smem, tid
from ptxkit.gemm.collective.tiled import Multicast, PartialBoxes, TiledCopy
from ptxkit.idioms import elect, init_barriers, wait
from ptxkit.ptx import bar, fence, ld, mbarrier, mov
from ptxkit.ptx import st as store
from ptxkit.types import f32, u32

pytestmark = pytest.mark.pure
LINES, DEPTH, OLD = 128, 32, 7.0


@kernel(target="sm_90a", block=32)
def loaded(x: TensorMap, x_rest: TensorMap, count: Reg[u32], at: Reg[u32], out: Ptr[u32], *, ROWS: int, TAIL_ROWS: int) -> None:
    """A tile full of OLD, after the first `count` lines of x from `at` on were loaded: the first time for a tile, and then from 4 further
    along its depth."""
    tile, full = smem.tile(f32, (1, LINES, DEPTH), name="tile"), smem.mbarrier(2, name="full")
    thread, old = mov.u32(tid.x), mov.f32(OLD)
    words = tile[0].register()
    for word in range(LINES):
        store.shared__cta.f32(words + (word * DEPTH + thread) * 4, old)
    with if_(thread == 0):
        init_barriers((full, 1))
    fence.proxy.async_.shared__cta()
    bar.sync(0)
    copy = TiledCopy(x, tile, Multicast(), boxes=PartialBoxes(count, ROWS, TAIL_ROWS, x_rest))
    for time in range(2):
        first = mov.u32(time) == 0
        with if_(elect()):
            mbarrier.arrive.expect_tx.shared__cta.b64(full[time], copy.bytes(time == 0))
            copy.load(mov.u32(0), at, mov.u32(4 * time), full[time], first=first if copy.fills else None)
        wait(full[time], 0)
        for line in range(LINES):                               # back from the swizzled places
            place = words + (line * 128 + ((thread // 4) ^ (line % 8)) * 16 + thread % 4 * 4)
            store.global_.b32(out.at((time * LINES + line) * DEPTH + thread), ld.shared__cta.b32(place))
        fence.proxy.async_.shared__cta()
        bar.sync(0)


def around(count: int, by: int) -> int:
    return -(-count // by) * by


@settings(deadline=None, max_examples=2)
@given(st.integers(0, LINES), st.integers(0, 40), st.sampled_from([(64, 32), (64, 16), (128, 32), (64, 0)]))
@example(32, 0, (64, 32))
@example(33, 5, (64, 32))
@example(97, 3, (64, 16))
def test_of_a_partial_box_its_rows_come_and_zeros(count, at, sizes):
    rows, tail = sizes
    x = np.random.default_rng(count).standard_normal((200, DEPTH + 4), np.float32)
    out = np.zeros((2, LINES, DEPTH), np.float32)
    none = TensorMap(x, box=(8, DEPTH), swizzle=128)
    report = loaded.simulate(1, x, x if tail else none, count, at, out.view(np.uint32), ROWS=rows, TAIL_ROWS=tail)
    assert report.verdict == "clean", report.findings
    wanted = np.full_like(out, OLD)
    there, whole = around(count, tail or rows), around(count, rows)
    for time in range(2):
        wanted[time, there:whole] = 0
        wanted[time, :there] = x[at:at + there, 4 * time:4 * time + DEPTH]
    np.testing.assert_array_equal(out, wanted)
