"""The oracle accepts right products and sees one wrong element."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemm.reference import product, worst

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
