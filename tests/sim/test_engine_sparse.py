"""wgmma.mma_async.sp: every type, both places of A and both selectors, against the dense product."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from ptxkit import Ptr, TensorMap, if_, kernel, smem, tid
from ptxkit.dsl.raw import register
from ptxkit.errors import TraceError
from ptxkit.idioms import wait
from ptxkit.ptx import bar, cp, fence, ld, mbarrier, mov, opcode, st, wgmma
from ptxkit.sim import UnsupportedError
from ptxkit.sim.warpgroup import chunks
from ptxkit.types import TYPES, b32
from tests.sim.test_engine_wgmma import ARRAYS, unscrambled

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]

load = cp.async_.bulk.tensor_2d.shared__cluster.global_.tile.mbarrier__complete_tx__bytes


@kernel(block=128)
def multiply(a_map: TensorMap, b_map: TensorMap, a_rows: Ptr[b32], metadata: Ptr[b32], out: Ptr[b32], *, TYPES_: str, A: str, B: str,
             SELECTOR: int, REGISTERS: bool, TRANSPOSED: bool = False, SWIZZLE: int = 64, PAIR: int | None = None) -> None:
    """One sparse wgmma with 16 columns, whose accumulators go to out[thread, register]. A has 32 bytes a row and B 64.

    Only the lanes 4 r + 2 PAIR + 0 and 1 get metadata; None: all do.
    """
    kept = 256 // TYPES[A].bits
    a = smem.tile(TYPES[A], (64, kept), name="a")
    b = smem.tile(TYPES[B], (16, 2 * kept), name="b", major="mn" if TRANSPOSED else "k", swizzle=32 if TRANSPOSED else SWIZZLE)
    full = smem.mbarrier(1)
    thread = mov.u32(tid.x)
    with if_(thread == 0):
        mbarrier.init.shared__cta.b64(full[0], 1)
        fence.mbarrier_init.release.cluster()
        mbarrier.arrive.expect_tx.shared__cta.b64(full[0], a.layout.bytes + b.layout.bytes)
        load(a[0], a_map, (0, 0), full[0])
        for part in range(b.layout.spans):
            load(b[0].span(part), b_map, (part * b.layout.span, 0), full[0])
    bar.sync(0)
    wait(full[0], 0)
    mma = opcode(f"wgmma.mma_async.sp.sync.aligned.m64n16k{2 * kept}.{TYPES_}")
    sums = mma.fragment()
    lane = thread & 31
    row = a_rows.at(((thread >> 5) * 16 + (lane >> 2)) * 8 + (lane & 3))
    fragment = [ld.global_.b32(row + offset) for offset in (0, 64, 4, 68)]
    word = register(b32)
    ld.global_.b32(word, metadata.at(thread), pred=None if PAIR is None else (thread & 2) == 2 * PAIR)
    wgmma.fence.sync.aligned()
    mma(sums, fragment if REGISTERS else a[0].desc(), b[0].desc(), word, SELECTOR, True)
    wgmma.commit_group.sync.aligned()
    wgmma.wait_group.sync.aligned(0)
    for i, value in enumerate(sums):
        st.global_.b32(out.at(thread * len(sums)) + i, value)


def sparse(kind: str, seed: int, rows: int = 64) -> tuple[Any, Any, Any]:
    """A random sparse matrix, what is stored of it, and the four bits of each chunk."""
    generator = np.random.default_rng(seed)
    kept = 256 // TYPES[kind].bits
    chunk, full = (2, 1) if kind == "tf32" else (4, 2), 2 * kept
    width, count = chunk
    dense, stored = np.zeros((rows, full)), np.zeros((rows, kept))
    bits = np.zeros((rows, full // width), np.uint32)
    for r, c in np.ndindex(*bits.shape):
        places = sorted(generator.choice(width, count, replace=False))
        values = generator.integers(1, 5, count)
        dense[r, c * width + np.array(places)] = values
        stored[r, c * count:(c + 1) * count] = values
        bits[r, c] = places[0] | places[1] << 2 if count == 2 else (0b0100, 0b1110)[places[0]]
    return dense, stored, bits


WIDE = (((2, 1024), (2, 0), (8, 1), (4, 16)), ((16, 64), (2, 8)), 4)
LAYOUTS: dict[int, Any] = {16: WIDE, 32: (((2, 512), (2, 0), (8, 1), (4, 16)), ((8, 64), (2, 8)), 2),
                           8: (((2, 8), (2, 2048), (8, 1), (4, 16)), ((32, 64),), 4)}
"""By bits of a type: the place row + 64 column in A of a thread and of its values, as (extent, stride); and the values of a chunk."""


def words(bits: Any, kind: str, selector: int) -> Any:
    """The metadata of 128 threads. Those that are not selected hold what no metadata may be."""
    threads, values, width = LAYOUTS[TYPES[kind].bits]
    found = np.zeros(128, np.uint32)
    for thread in range(128):
        if TYPES[kind].bits > 8 and thread >> 1 & 1 != selector:
            continue
        left, start = thread, 0
        for extent, stride in threads:
            start, left = start + left % extent * stride, left // extent
        places = [start + sum(i * stride for i, (_, stride) in zip(at[::-1], values, strict=True))
                  for at in product(*(range(extent) for extent, _ in values[::-1]))]
        for i, place in enumerate(places[::width]):
            found[thread] |= bits[place % 64, place // 64 // width] << np.uint32(4 * i)
    return found


KINDS = [("f32.bf16.bf16", "bf16", "bf16"), ("f16.f16.f16", "f16", "f16"), ("f32.tf32.tf32", "tf32", "tf32"),
         ("f32.e4m3.e5m2", "e4m3", "e5m2"), ("s32.s8.u8", "s8", "u8")]


def run(types: str, a: str, b: str, selector: int = 0, *, spoil: Any = None, **config: Any) -> tuple[Any, Any, Any]:
    dense, stored, bits = sparse(a, 0)
    if spoil is not None:
        bits[spoil] = 0
    right = np.random.default_rng(1).integers(0, 5, (16, dense.shape[1]))
    kind = {"f32": np.float32, "f16": np.float16, "s32": np.int32}[types[:3]]
    out = np.zeros((128, 4 if kind is np.float16 else 8), np.uint32)
    given = stored.astype(ARRAYS[a])
    of_b = np.ascontiguousarray(right.T if config.get("TRANSPOSED") else right).astype(ARRAYS[b])
    report = multiply.simulate(1, given, of_b, given.view(np.uint32), words(bits, a, selector), out, TYPES_=types, A=a, B=b,
                               SELECTOR=selector, **config)
    return unscrambled(out, 16, kind), dense @ right.T, report


@pytest.mark.parametrize("registers", [False, True])
@pytest.mark.parametrize(("types", "a", "b"), KINDS, ids=lambda value: value if "." in value else "")
def test_a_sparse_product_is_the_dense_one(types: str, a: str, b: str, registers: bool) -> None:
    for selector in range(1 if TYPES[a].bits == 8 else 2):
        found, expected, report = run(types, a, b, selector, REGISTERS=registers)
        assert report.verdict == "clean", report
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("config", [{"TRANSPOSED": True}, {"SWIZZLE": 16}], ids=str)
def test_b_lies_in_other_ways(config: dict[str, Any]) -> None:
    found, expected, report = run("f32.bf16.bf16", "bf16", "bf16", REGISTERS=False, **config)
    assert report.verdict == "clean", report
    np.testing.assert_array_equal(found, expected)


def test_metadata_that_is_none_is_a_finding() -> None:
    _, _, report = run("f32.bf16.bf16", "bf16", "bf16", REGISTERS=False, spoil=(9, 5))
    assert [finding.rule for finding in report.findings] == ["wgmma-metadata"]
    assert "for row 9, chunk 5 is 0b0000, and must be two indices, the lower one in the low bits" in report.findings[0].message


def test_only_the_selected_lanes_need_metadata() -> None:
    for selector in range(2):
        found, expected, report = run("f32.bf16.bf16", "bf16", "bf16", selector, REGISTERS=False, PAIR=selector)
        assert report.verdict == "clean", report
        np.testing.assert_array_equal(found, expected)
        _, _, report = run("f32.bf16.bf16", "bf16", "bf16", selector, REGISTERS=False, PAIR=1 - selector)
        assert "register-uninitialised" in {finding.rule for finding in report.findings}


def test_rows_of_b_in_two_spans_are_refused() -> None:
    with pytest.raises(TraceError, match="reads 64 contiguous bytes from byte 0 of a 32-byte span"):
        run("f32.bf16.bf16", "bf16", "bf16", REGISTERS=False, SWIZZLE=32)
    with pytest.raises(UnsupportedError, match="64 bytes of a row are in two spans; give the tile a swizzle of 64 or 128 bytes"):
        chunks((3 << 62,), 16, 0, 64)                                                # as foreign text may have it
