"""Divisions: exact where they are not divisions any more, and none left in the way of a product."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxkit import Ptr, Reg, if_, kernel, laneid
from ptxkit.gemm.config.dense import DenseConfig, Operands
from ptxkit.gemm.config.parts import ClusterShape, Dynamic, Hilbert, Pingpong, SplitK, Static, StreamK, Swizzle, Tile
from ptxkit.gemm.launch.grid import kernel_of
from ptxkit.gemm.scheduler.fast_divmod import DivmodTable
from ptxkit.idioms import fast_div
from ptxkit.ptx import bar, mov
from ptxkit.ptx import st as store
from ptxkit.types import u32

pytestmark = pytest.mark.pure


@kernel(block=32)
def divided(n: Reg[u32], by: Reg[u32], out: Ptr[u32]) -> None:
    """n // by; and, of `by` up to 32, its inverse."""
    inverses, lane = DivmodTable(), mov.u32(laneid)
    inverses.make(lane)
    bar.sync(0)
    store.global_.u32(out, fast_div(n, by, inverses.of_any(by)), pred=lane == 0)
    with if_((lane == 0) & (by <= 32)):
        store.global_.u32(out + 1, inverses.of(by))


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 0xFFFF_FFFF), st.integers(1, 70) | st.integers(1, 0xFFFF_FFFF))
def test_numbers_are_divided_by_small_ones_and_others(n, by):
    out = np.zeros(2, np.uint32)
    report = divided.simulate(1, n, by, out)
    assert report.verdict == "clean", report.findings
    assert out.tolist() == [n // by, 0xFFFF_FFFF // by if by <= 32 else 0]


def divisions(ptx: str) -> list[str]:
    """Those of a kernel, but for inverses that are made at its beginning or where there are none in shared memory."""
    return [line for line in re.findall(r"(?:div|rem)\.\w+ .*;", ptx) if ", 4294967295, " not in line]


@pytest.mark.parametrize("config", [
    DenseConfig(), DenseConfig(tile=Tile(128, 192), schedule=Pingpong()), DenseConfig(scheduler=Static(Swizzle(size=12, serpentine=True))),
    DenseConfig(scheduler=Static(Swizzle("along_n"), ClusterShape(1, 2))), DenseConfig(Operands(batched=True)),
    DenseConfig(scheduler=SplitK(3)), DenseConfig(scheduler=Dynamic()), DenseConfig(scheduler=Static(Hilbert()))], ids=str)
def test_the_dense_kernels_do_not_divide(config: DenseConfig):
    assert not divisions(kernel_of(config).ptx(**config.parameters))


def test_a_division_is_seen():
    config = DenseConfig(scheduler=StreamK())
    assert divisions(kernel_of(config).ptx(**config.parameters))


@pytest.mark.parametrize("name", [
    "8x8x4096x7168:fp8", "64x16x4096x2048:bf16", "8x64x4096x7168:fp8-block", "8x128x4096x7168:fp8-block:gated", "8x512x4096x7168:fp8-block",
    "8x512x4096x7168:bf16", "32x192x6144x7168:fp8-block", "4x8192x4096x7168:fp8-block", "6x1024x7168x3072:fp8-block:quantised"])
def test_kernels_of_groups_do_not_divide(name):
    from ptxkit.gemm.heuristic.grouped import heuristic
    from ptxkit.gemm.kernels.grouped import group_gemm
    from ptxkit.gemm.tools.bench.grouped_cases import case
    from ptxkit.gemm.tools.problems import problem_of

    for config in heuristic(problem_of(case(name))).kernels:
        assert not divisions(group_gemm.ptx(**config.parameters))
