"""wgmma: every type, accumulator and operand; descriptors of every swizzle and major, by a kernel that an H200 has run."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxkit import Ptr, TensorMap, if_, kernel, smem, tid
from ptxkit.gemm.config.dense import DenseConfig, Operands
from ptxkit.gemm.config.parts import Tile
from ptxkit.gemm.launch.simulate import simulate
from ptxkit.idioms import wait
from ptxkit.ptx import bar, cp, fence, ld, mbarrier, mov, opcode, st, wgmma
from ptxkit.types import TYPES, b32, f32
from tests.ptxkit.test_layout_gpu import CASES, DEPTH_BYTES, ROWS, config, read_back

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]

load = cp.async_.bulk.tensor_2d.shared__cluster.global_.tile.mbarrier__complete_tx__bytes
ARRAYS: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "e4m3": ml_dtypes.float8_e4m3fn,
                          "e5m2": ml_dtypes.float8_e5m2, "s8": np.int8, "u8": np.uint8}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_descriptors(case: tuple[str, str, int, str]) -> None:
    name, major, _, operand = case
    bits = TYPES[name].bits
    columns, depth = DEPTH_BYTES * 8 // bits, 256 // bits
    n = 64 if operand == "b" else depth
    tile = np.random.default_rng(0).integers(-100, 100, (ROWS, columns))
    given = np.ascontiguousarray(tile if major == "k" else tile.T).astype(ARRAYS[name])
    identity = np.eye(64, depth).astype(ARRAYS[name])
    for stage, row in ((0, 64), (1, 0)):
        out = np.zeros((columns // depth, 64, n), np.int32 if name == "s8" else np.float32)
        report = read_back.simulate(1, given, identity, out, stage, row, check=False, **config(case))
        assert not report.findings, report
        for step, product in enumerate(out):
            seen = product if operand == "a" else product[:depth].T
            np.testing.assert_array_equal(seen, tile[row:row + 64, step * depth:(step + 1) * depth])


@kernel(block=128)
def multiply(a_map: TensorMap, b_map: TensorMap, a_rows: Ptr[b32], out: Ptr[b32], *, TYPES_: str, N: int, A: str, B: str, START: int,
             SCALE: int, REGISTERS: bool) -> None:
    """One wgmma of depth 32 bytes on top of START in every register of D, whose bits go to out[thread, register]."""
    depth_a, depth_b = 256 // TYPES[A].bits, 256 // TYPES[B].bits
    a, b = smem.tile(TYPES[A], (64, depth_a), name="a"), smem.tile(TYPES[B], (N, depth_b), name="b")
    full = smem.mbarrier(1)
    thread = mov.u32(tid.x)
    with if_(thread == 0):
        mbarrier.init.shared__cta.b64(full[0], 1)
        fence.mbarrier_init.release.cluster()
        mbarrier.arrive.expect_tx.shared__cta.b64(full[0], a.layout.bytes + b.layout.bytes)
        load(a[0], a_map, (0, 0), full[0])
        load(b[0], b_map, (0, 0), full[0])
    bar.sync(0)
    wait(full[0], 0)
    mma = opcode(f"wgmma.mma_async.sync.aligned.m64n{N}k{depth_a}.{TYPES_}")
    accumulator = mma.fragment()
    for register in accumulator:
        mov.b32(register, START)
    scales = {} if "s32" in TYPES_ else {"imm_scale_a": SCALE}
    lane = thread & 31
    row = a_rows.at(((thread >> 5) * 16 + (lane >> 2)) * 8 + (lane & 3))
    fragment = [ld.global_.b32(row + offset) for offset in (0, 64, 4, 68)]
    wgmma.fence.sync.aligned()
    mma(accumulator, fragment if REGISTERS else a[0].desc(), b[0].desc(), True, **scales)
    wgmma.commit_group.sync.aligned()
    wgmma.wait_group.sync.aligned(0)
    place = out.at(thread * len(accumulator))
    for i, value in enumerate(accumulator):
        st.global_.b32(place + i, value)


def unscrambled(out: Any, n: int, kind: Any) -> Any:
    """The 64 x n matrix behind the registers of 128 threads."""
    matrix = np.zeros((64, n), kind)
    for thread in range(128):
        warp, lane = divmod(thread, 32)
        values = out[thread].view(kind)
        for i, value in enumerate(values):
            high = i >> 1 & 1
            row = 16 * warp + lane // 4 + 8 * high
            matrix[row, 8 * (i >> 2) + 2 * (lane & 3) + (i & 1)] = value
    return matrix


KINDS = [("f32.f16.f16", "f16", "f16"), ("f16.f16.f16", "f16", "f16"), ("f32.bf16.bf16", "bf16", "bf16"), ("f32.tf32.tf32", "tf32", "tf32"),
         ("f32.e4m3.e4m3", "e4m3", "e4m3"), ("f32.e4m3.e5m2", "e4m3", "e5m2"), ("f16.e5m2.e5m2", "e5m2", "e5m2"),
         ("s32.s8.s8", "s8", "s8"), ("s32.u8.s8", "u8", "s8"), ("s32.s8.u8", "s8", "u8"), ("s32.u8.u8", "u8", "u8")]


@pytest.mark.parametrize("REGISTERS", [False, True])
@pytest.mark.parametrize(("TYPES_", "A", "B"), KINDS, ids=lambda value: value if "." in value else "")
@pytest.mark.parametrize("N", [8, 96])
def test_types(TYPES_: str, A: str, B: str, N: int, REGISTERS: bool) -> None:
    generator = np.random.default_rng(N)
    depth = 256 // TYPES[A].bits
    a = generator.integers(0 if A == "u8" else -4, 5, (64, depth))
    b = generator.integers(0 if B == "u8" else -4, 5, (N, depth))
    kind = {"f32": np.float32, "f16": np.float16, "s32": np.int32}[TYPES_[:3]]
    start = {"f32": 0x40A00000, "f16": 0x45004500, "s32": 5}[TYPES_[:3]]
    scale = 1 if TYPES_.startswith("s32") else -1
    out = np.zeros((128, N // (4 if kind is np.float16 else 2)), np.uint32)
    given = a.astype(ARRAYS[A])
    report = multiply.simulate(1, given, b.astype(ARRAYS[B]), given.view(np.uint32), out, TYPES_=TYPES_, N=N, A=A, B=B, START=start,
                               SCALE=scale, REGISTERS=REGISTERS, check=False)
    assert not report.findings, report
    np.testing.assert_array_equal(unscrambled(out, N, kind), scale * a @ b.T + 5)


@pytest.mark.parametrize(("satfinite", "expected"), [(True, 2**31 - 1), (False, -(2**31) + 32 * 127 * 127 - 5)])
def test_integer_overflow(satfinite: bool, expected: int) -> None:
    a = np.full((64, 32), 127, np.int8)
    out = np.zeros((128, 4), np.uint32)
    types = f"{'satfinite.' if satfinite else ''}s32.s8.s8"
    report = multiply.simulate(1, a, a[:8], a.view(np.uint32), out, TYPES_=types, N=8, A="s8", B="s8", START=2**31 - 5, SCALE=1,
                               REGISTERS=False, check=False)
    assert not report.findings, report
    assert set(out.view(np.int32).ravel().tolist()) == {expected}


def cut(values: Any, bits: int) -> Any:
    """What is left of numbers that are added at once when each keeps only so many bits below the largest of them."""
    largest = np.abs(values).max(axis=-1, keepdims=True)
    step = np.exp2(np.floor(np.log2(np.where(largest, largest, 1))) - (bits - 1))
    return np.trunc(values / step) * step


@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
@pytest.mark.parametrize("k", [64, 512])
def test_fp8_sums_are_within_what_is_stated_of_both_devices(name: str, k: int) -> None:
    """The CPU device sums fp8 products in f32; an H200 cuts 32 products and the sum so far off 13 bits below the largest. Each is within
    its bound of the exact sum, so they differ by no more than both together; what the second loses would not do for the first.
    """
    generator = np.random.default_rng(k)
    a, b = (generator.standard_normal((64, k), np.float32).astype(ARRAYS[name]) for _ in range(2))
    products = a.astype(np.float64)[:, None, :] * b.astype(np.float64)[None]
    exact, magnitude = products.sum(axis=-1), np.abs(products).sum(axis=-1)
    hardware = np.zeros((64, 64))
    for first in range(0, k, 32):
        hardware = cut(np.concatenate([products[..., first:first + 32], hardware[..., None]], axis=-1), 14).sum(axis=-1)
    out = np.zeros((64, 64), np.float32)
    config = DenseConfig(Operands(TYPES[name], TYPES[name], f32), Tile(64, 64))
    simulate(a.view(np.uint8), b.view(np.uint8).T, out, config=config, check=False, dtype=name)
    narrow = 2.0**-23 * (16 + np.sqrt(k)) * magnitude
    wide = narrow + 2.0**-13 * (2 + np.sqrt(k) / 16) * magnitude
    assert (np.abs(out - exact) <= narrow).all()
    assert (np.abs(hardware - exact) <= wide).all()
    assert not (np.abs(hardware - exact) <= narrow).all()
