"""What a run has not written: a store box or a grid that is too small shows in the report."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxkit import TensorMap, sim

from .kernels import OUT, kernel
from .test_gpu_chunks import STORE

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]
EACH = kernel("mov.u32 %r5, %ctaid.x;\n" + OUT + "mad.lo.u32 %r6, %r5, 128, 0;\ncvt.u64.u32 %rd2, %r6;\nadd.u64 %rd1, %rd1, %rd2;\n"
              "st.global.u32 [%rd1], %r0;")


def test_a_grid_that_is_too_small() -> None:
    out = np.zeros((8, 32), np.uint32)
    report = sim.run(EACH, grid=6, block=32, args=(out,))
    mask = report.unwritten(out)
    assert mask.shape == out.shape
    assert not mask[:6].any()
    assert mask[6:].all()
    assert report.unwritten(out[5:7, ::2]).tolist() == [[False] * 16, [True] * 16]
    assert report.unwritten(out.T).tolist() == mask.T.tolist()
    assert report.partly_written == ("`out`: 256 of 1,024 bytes were never written",)
    assert "partly written: `out`: 256 of 1,024" in str(report)
    whole = sim.run(EACH, grid=8, block=32, args=(out,))
    assert not whole.unwritten(out).any()
    assert whole.partly_written == ()


def test_a_store_box_that_is_too_small() -> None:
    """A tensor store of 8 lines of 16 halves into an array of 24 columns; the first word is also written by a byte."""
    array = np.zeros((8, 24), np.uint16)
    text = kernel(STORE + "@%p1 bra G;\ncp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\nG:\n",
                  ".param .align 64 .b8 map[128], .param .u64 out", before=".shared .align 128 .b8 tile[512];\n")
    report = sim.run(text, grid=1, block=64, args=(TensorMap(array, box=(8, 16)), array))
    mask = report.unwritten(array)
    assert not mask[:, :16].any()
    assert mask[:, 16:].all()


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_words_of_every_size(size: int) -> None:
    out = np.zeros(40, np.uint8)
    register = {1: '%h1', 2: '%h1', 4: '%r1', 8: '%rd1'}[size]
    body = f"ld.param.u64 %rd0, [out];\nst.global.b{8 * size} [%rd0+{2 * size}], {register};"
    report = sim.run(kernel(body), grid=1, block=1, args=(out,))
    assert np.flatnonzero(~report.unwritten(out)).tolist() == list(range(2 * size, 3 * size))


@pytest.mark.parametrize(("array", "words"), [(np.zeros(3), "in the memory of no argument"), ([1], "takes a NumPy array")])
def test_what_is_no_argument(array: Any, words: str) -> None:
    report = sim.run(EACH, grid=1, block=32, args=(np.zeros((8, 32), np.uint32),))
    with pytest.raises(sim.SimulationError, match=words):
        report.unwritten(array)


def test_without_the_checker_nobody_knows() -> None:
    out = np.zeros((8, 32), np.uint32)
    report = sim.run(EACH, grid=1, block=32, args=(out,), check=False)
    assert report.partly_written == ()
    with pytest.raises(sim.SimulationError, match="only a run with check=True"):
        report.unwritten(out)
