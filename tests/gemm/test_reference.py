"""The oracle accepts right products and sees one wrong element."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxkit.gemm.tools.reference import EIGHT_BITS, accumulation, product, worst

pytestmark = pytest.mark.pure


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 300), st.integers(0, 2**32 - 1), st.sampled_from(["f16", "f32"]))
def test_a_rounded_product_is_accepted_and_a_lost_term_is_not(m, n, k, seed, out):
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((m, k), (k, n)))
    exact, magnitude = product(a, b)
    kind = {"f16": np.float16, "f32": np.float32}[out]
    right = (a.astype(np.float32) @ b.astype(np.float32)).astype(kind)
    assert worst(right, exact, magnitude, k, out) <= 1
    wrong = right.astype(np.float64)
    wrong[m - 1, n - 1] += 0.1 * magnitude[m - 1, n - 1] + 1e-3
    assert worst(wrong, exact, magnitude, k, out) > 1


def test_what_was_not_written_is_wrong():
    exact, magnitude = product(np.ones((2, 8)), np.ones((8, 2)))
    actual = exact.copy()
    actual[0, 1] = np.nan
    assert worst(actual, exact, magnitude, 8, "f32") == np.inf


@pytest.mark.parametrize("k", [32, 128, 1000, 7168])
@pytest.mark.parametrize("promoted", [False, True])
def test_sums_cut_off_at_14_bits_are_within_the_bound_of_fp8_and_of_no_other_type(k, promoted):
    rng = np.random.default_rng(k)
    p = rng.standard_normal((500, k)) * rng.standard_normal((500, k))
    total, part = np.zeros(500), np.zeros(500)
    for begin in range(0, k, 32):
        if promoted and begin % 128 == 0:
            total, part = total + part, np.zeros(500)
        addends = np.column_stack([part, p[:, begin:begin + 32]])
        step = 2.0 ** (np.floor(np.log2(np.abs(addends).max(1))) - 13)[:, None]
        part = (np.trunc(addends / step) * step).sum(1)
    error = float((np.abs(total + part - p.sum(1)) / np.abs(p).sum(1)).max())
    assert all(accumulation(k, "f16") < error <= accumulation(k, word, promoted) for word in EIGHT_BITS)
    assert error > accumulation(k, "e4m3", promoted) / 100


def test_promotion_allows_less():
    assert accumulation(8192, "e4m3", promoted=True) < accumulation(8192, "e4m3") / 2
    assert accumulation(128, "e5m2", promoted=True) == accumulation(128, "e5m2")
