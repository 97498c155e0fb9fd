"""What the adapter of TileLang reads of the host function, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.foreign.cases import bf16, normal
from ptxkit import PtxkitError, prove
from ptxkit.adapters import for_tilelang as adapter
from ptxkit.dsl.tensormap import TensorMap

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(300)]


def test_the_launch_of_a_product() -> None:
    from benchmarks.foreign.tilelang_kernels import matmul

    arrays = [np.zeros(shape, bf16()) for shape in ((128, 192), (192, 64), (128, 64))]
    launch = adapter.launch_of(matmul(128, 64, 192), None, arrays, {})
    assert (launch.grid, launch.block, launch.dynamic_smem) == ((1, 2, 1), (256, 1, 1), 32768)
    left, right, made = launch.args
    assert isinstance(left, TensorMap)
    assert isinstance(right, TensorMap)
    assert (left.shape, left.strides, left.box, left.swizzle) == ((128, 192), (192, 1), (64, 64), 128)
    assert made is arrays[2]


@pytest.mark.parametrize("rows", [1, 33, 64])
def test_symbols_are_extents_of_the_arrays(rows: int) -> None:
    from benchmarks.foreign.tilelang_kernels import scale_rows

    a, b = normal(rows, 64), np.zeros((rows, 64), np.float32)
    proof = prove(scale_rows(), a, b, 3.0, schedules=1)
    assert proof.proven
    assert np.array_equal(b, 3 * a)


def test_what_does_not_fit_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.foreign.tilelang_kernels import matmul, scale_rows

    a, b = normal(32, 64), np.zeros((32, 64), np.float32)
    x, y, z = (np.zeros((64, 64), bf16()) for _ in range(3))
    cases: list[tuple[Any, str]] = [
        (lambda: prove(scale_rows(), a, b), "`scale` takes A, B, factor: 2 arguments were given"),
        (lambda: prove(scale_rows(), a, b[:8].copy(), 1.0), "`B`: rows is 32 and 8"),
        (lambda: prove(scale_rows(), a, b.astype(np.float64), 1.0), "`B` has 2 dimensions of float32, the array 2 of float64"),
        (lambda: prove(scale_rows(), a, 3, 1.0), "`B` is a tensor: pass an array, not 3"),
        (lambda: prove(scale_rows(), a, b, 1.0, rows=3), "`scale` takes A, B, factor: there is no rows"),
        (lambda: prove(scale_rows(), a, b, "2"), "`factor` is a number (float32): pass one, not '2'"),
        (lambda: prove(scale_rows(), a, b, factor=a), "`factor` is a number (float32): pass one, not an array"),
        (lambda: prove(scale_rows(), a, b, 1e300), "`factor`: 1e+300 is beyond the largest f32"),
        (lambda: prove(scale_rows(), a[:0], b[:0], 1.0), "`scale` launches a grid of 0 x 1 x 1 CTAs where rows is 0"),
        (lambda: prove(scale_rows(), a.astype(object), b, 1.0), "`A` has elements of object"),
        (lambda: prove(scale_rows(), a, b, 1.0, previous={"reads": ["C"]}), "names 'C'; the parameters are A, B, factor, rows"),
        (lambda: prove(scale_rows(), a, np.zeros((64, 32), np.float32).T, 1.0), "`B` is not contiguous"),
        (lambda: prove(matmul(64, 64, 128), x, y, z), "`A` is 64 x 128, the array 64 x 64")]
    for call, message in cases:
        with pytest.raises(PtxkitError) as error:
            call()
        assert message in str(error.value)
    monkeypatch.setattr(adapter, "_nvcc", lambda: Path("/bin/false"))
    with pytest.raises(PtxkitError, match="nvcc cannot compile"):
        prove(scale_rows(), a, b, 1.0)
