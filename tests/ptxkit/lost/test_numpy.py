"""NumPy on registers, and its numbers beside them: each is an error at its line."""

# ruff: noqa: F841

from __future__ import annotations

import numpy as np
import pytest

from ptxkit import Ptr, Reg, for_range, smem
from ptxkit.ptx import add
from ptxkit.types import f32, u32
from tests.ptxkit.lost.kernels import Kernels, N

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
KERNELS = Kernels()
wrong = KERNELS.wrong


@wrong()
def npexp(x: Ptr[u32], v: Reg[f32]) -> None:
    p = np.exp(v)  # wrong


@wrong()
def npmax(x: Ptr[u32], v: N) -> None:
    p = np.maximum(v, 3)  # wrong


@wrong()
def npint(x: Ptr[u32], v: N) -> None:
    p = np.int32(3) < v  # wrong


@wrong()
def npadd(x: Ptr[u32], v: N) -> None:
    p = v + np.float32(3)  # wrong


@wrong("; a number of numpy becomes one of Python with `int(i)`")
def npadd_int(x: Ptr[u32], v: N) -> None:
    p = v + np.int32(5)  # wrong


@wrong("`int(i)`")
def npbelow(x: Ptr[u32], v: N) -> None:
    p = v < np.uint32(9)  # wrong


@wrong("`int(i)`")
def npdiv(x: Ptr[u32], v: N) -> None:
    p = v // np.int64(4)  # wrong


@wrong("`int(i)`")
def npshift(x: Ptr[u32], v: N) -> None:
    p = v << np.int32(1)  # wrong


@wrong("`int(i)`")
def npat(x: Ptr[u32], v: N) -> None:
    p = x.at(np.int64(1))  # wrong


@wrong("`int(i)`")
def npplace(x: Ptr[u32], v: N) -> None:
    p = smem.array(u32, 4).at(np.int64(1))  # wrong


@wrong("`int(i)`")
def nprange(x: Ptr[u32], v: N) -> None:
    with for_range(np.int32(4)):  # wrong
        pass


@wrong("`int(i)` or `float(x)`")
def npoperand(x: Ptr[u32], v: N) -> None:
    add.u32(v, v, np.uint32(4))  # wrong


test_numpy_is_refused, _ = KERNELS.tests()
