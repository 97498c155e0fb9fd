"""What a report's text says of many findings."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ptxkit import Ptr, kernel, smem
from ptxkit.ptx import st, wgmma
from ptxkit.sim.report import ALIKE
from ptxkit.types import bf16, f32

pytestmark = pytest.mark.pure
mma = wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16


@kernel(block=128)
def early(out: Ptr[f32]) -> None:
    """It stores its accumulators while the product is in flight."""
    a, b = smem.tile(bf16, (64, 64)), smem.tile(bf16, (16, 64))
    acc = mma.fragment()
    wgmma.fence.sync.aligned()
    mma(acc, a[0].desc(0), b[0].desc(0), True)
    wgmma.commit_group.sync.aligned()
    for i, value in enumerate(acc):
        st.global_.f32(out + i, value)


def test_a_text_is_not_flooded_by_one_mistake() -> None:
    """Each register of an accumulator is a finding. The text has the first ones of a line, and says how many more there are."""
    report = early.simulate(1, np.zeros(8, np.float32))
    found = [each for each in report.findings if each.rule == "wgmma-in-flight"]
    told = [line for line in str(report).splitlines() if "[wgmma-in-flight]" in line]
    assert len(found) == 8
    assert told[:-1] == list(map(str, found[:ALIKE]))
    assert re.fullmatch(rf"\.\.\. and {8 - ALIKE} more \[wgmma-in-flight\] at .*test_told\.py:\d+:\d+", told[-1])
