"""The host side without a GPU: what hgemm accepts, how strides choose the layout, and its errors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gemm
from gemm.device import Problem, operand
from ptxkit.arrays import ArrayView, contiguous_strides
from ptxkit.errors import LaunchError

pytestmark = pytest.mark.pure


def array(shape, dtype="bf16", strides=None, pointer=0x10000, device=0):
    return ArrayView(pointer, shape, strides or contiguous_strides(shape), dtype, device, "ptxkit")


@settings(deadline=None)
@given(st.integers(1, 64), st.integers(1, 64), st.integers(0, 5), st.booleans(), st.booleans())
def test_an_operand_is_read_with_the_strides_it_has(eights, lines, pad, transposed, rows_are_mn):
    inner, stride = 8 * eights, 8 * (eights + pad)
    shape, strides = ((lines, inner), (stride, 1)) if not transposed else ((inner, lines), (1, stride))
    major, (contiguous, strided, step) = operand("a", array(shape, strides=strides), rows_are_mn=rows_are_mn)
    if lines > 1:
        assert (contiguous, strided, step) == (inner, lines, 2 * stride)
        assert (major == "k") == (rows_are_mn != transposed)
    assert contiguous % 8 == 0
    assert step % 16 == 0


@pytest.mark.parametrize(("a", "b", "out", "word"), [
    (array((16, 24)), array((32, 8)), array((16, 8)), r"a is \[M, K\] and b \[K, N\].*w\.T"),
    (array((16,)), array((32, 8)), array((16, 8)), "a has shape .* must be a matrix"),
    (array((16, 32), "f32"), array((32, 8), "f32"), array((16, 8)), "a has elements of f32: hgemm multiplies f16 or bf16"),
    (array((16, 32)), array((32, 8), "f16"), array((16, 8)), "of bf16 and b of f16"),
    (array((16, 32)), array((32, 8)), array((16, 16)), r"out has shape .* gives \(16, 8\)"),
    (array((16, 32)), array((32, 8)), array((16, 8), "u32"), "out has elements of u32"),
    (array((16, 32), pointer=0x10002), array((32, 8)), array((16, 8)), "a starts at address 0x10002.*16 bytes"),
    (array((16, 20)), array((20, 8)), array((16, 8)), "a has 20 contiguous elements a line.*multiple of 8.*pad"),
    (array((16, 32), strides=(36, 1)), array((32, 8)), array((16, 8)), "lines of a are 36 elements apart"),
    (array((16, 32), strides=(64, 2)), array((32, 8)), array((16, 8)), "a has strides .* one of them must be 1"),
    (array((16, 32)), array((32, 8)), array((16, 8), strides=(1, 16)), "out has strides .* row-major"),
    (array((16, 32)), array((32, 12), strides=(16, 1)), array((16, 12)), "multiple of 8"),
    (array((16, 32)), array((32, 8)), array((16, 8), strides=(4, 1)), "rows of out are 4 elements apart"),
])
def test_a_problem_that_cannot_be_is_refused(a, b, out, word):
    with pytest.raises(LaunchError, match=word):
        Problem(a, b, out)


def test_arrays_of_one_device():
    with pytest.raises(LaunchError, match="b is on device 1 and a on device 0"):
        gemm.hgemm(array((16, 32)), array((32, 8), device=1), array((16, 8)))


def test_a_numpy_array_is_not_on_a_device():
    with pytest.raises(LaunchError, match=r"a is .*device_array"):
        gemm.hgemm(np.zeros((16, 32), np.float16), np.zeros((32, 8), np.float16))


def test_out_dtype_is_one_that_the_kernel_writes():
    with pytest.raises(LaunchError, match="f16, bf16 or f32"):
        gemm.hgemm(array((16, 32)), array((32, 8)), out_dtype="s8")
    with pytest.raises(LaunchError, match="out_dtype says f32"):
        gemm.hgemm(array((16, 32)), array((32, 8)), array((16, 8)), out_dtype=np.dtype("float32"))
