"""Proofs of the kernels: `pytest` runs them on the CPU. The fixture `prove` comes with ptxkit."""

import numpy as np
import pytest
from kernels import reverse, total


def test_reverse(prove):
    source, target = np.arange(128, dtype=np.float32), np.full(128, np.nan, np.float32)
    prove(reverse, 1, source, target)
    assert np.array_equal(target, source[::-1])


@pytest.mark.parametrize("count", [1, 31, 100, 128])
def test_total(prove, count):
    source, target = np.arange(128, dtype=np.float32), np.full(1, np.nan, np.float32)
    prove(total, 1, source, target, count)
    assert target[0] == source[:count].sum()
