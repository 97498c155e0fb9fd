"""On the hardware: what a tensor copy wrote, wgmma reads back through the descriptors, for every major, swizzle and operand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxkit import Ptr, Reg, TensorMap, device_array, if_, kernel, smem, tid
from ptxkit.idioms import wait
from ptxkit.ptx import bar, cp, fence, mbarrier, mov, opcode, st, wgmma
from ptxkit.types import TYPES, b32, u32

pytestmark = pytest.mark.timeout(120)

load = cp.async_.bulk.tensor_2d.shared__cluster.global_.tile.mbarrier__complete_tx__bytes
ROWS, DEPTH_BYTES, STAGES = 128, 256, 2
INSTRUCTIONS = {"bf16": "f32.bf16.bf16", "tf32": "f32.tf32.tf32", "s8": "s32.s8.s8"}
MAJORS = {"bf16": ("k", "mn"), "tf32": ("k",), "s8": ("k",)}
CASES = [(name, major, swizzle, operand) for name, majors in MAJORS.items() for major in majors for swizzle in (128, 64, 32, 16)
         for operand in "ab"]


@kernel(block=128)
def read_back(tile_map: TensorMap, identity_map: TensorMap, out: Ptr[b32], stage: Reg[u32], row: Reg[u32], *,
              TYPE: str, MAJOR: Any, SWIZZLE: int, OPERAND: str) -> None:
    """out[step, 64, N]: the product of 64 (or N) rows of the tile from `row`, at each depth, with an identity matrix.

    full: 1 arrival, the first thread's arrive.expect_tx of both tiles.
    """
    type_ = TYPES[TYPE]
    columns, depth = DEPTH_BYTES * 8 // type_.bits, 256 // type_.bits
    n = 64 if OPERAND == "b" else depth
    tile = smem.tile(type_, (STAGES, ROWS, columns), major=MAJOR, swizzle=SWIZZLE)
    identity = smem.tile(type_, (64, depth))
    full = smem.mbarrier(1)
    thread = mov.u32(tid.x)
    with if_(thread == 0):
        mbarrier.init.shared__cta.b64(full[0], 1)
        fence.mbarrier_init.release.cluster()
        mbarrier.arrive.expect_tx.shared__cta.b64(full[0], tile.layout.bytes + identity.layout.bytes)
        for span in range(tile.layout.spans):
            load(tile[stage].span(span), tile_map, (span * tile.layout.span, 0), full[0])
        load(identity[0], identity_map, (0, 0), full[0])
    bar.sync(0)
    wait(full[0], 0)
    mma = opcode(f"wgmma.mma_async.sync.aligned.m64n{n}k{depth}.{INSTRUCTIONS[TYPE]}")
    place = out.at(((thread >> 5) * 16 + ((thread & 31) >> 2)) * n + (thread & 3) * 2)
    for step in range(columns // depth):
        accumulator = mma.fragment()
        read, other = tile[stage].desc(step * depth, mn=row), identity[0].desc()
        wgmma.fence.sync.aligned()
        mma(accumulator, *((read, other) if OPERAND == "a" else (other, read)), False)
        wgmma.commit_group.sync.aligned()
        wgmma.wait_group.sync.aligned(0)
        for i, value in enumerate(accumulator):
            st.global_.b32(place + step * 64 * n + i // 4 * 8 + i % 2 + i // 2 % 2 * 8 * n, value)


def config(case: tuple[str, str, int, str]) -> dict[str, Any]:
    return dict(zip(("TYPE", "MAJOR", "SWIZZLE", "OPERAND"), case, strict=True))


@pytest.mark.ptxas
@pytest.mark.parametrize("case", CASES[::3], ids=str)
def test_the_kernel_assembles(case: tuple[str, str, int, str]) -> None:
    assembly = read_back.assemble(**config(case))
    assert assembly.resources["read_back"].spills == 0
    assert assembly.findings == ()


def stored(values: Any, name: str) -> tuple[Any, str]:
    """(array to copy to the device, its type there) of small integers."""
    if name == "bf16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16), "bf16"
    return (values.astype(np.float32), "f32") if name == "tf32" else (values.astype(np.int8), "s8")


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES, ids=str)
def test_wgmma_reads_what_the_copy_wrote(case: tuple[str, str, int, str]) -> None:
    name, major, _, operand = case
    bits = TYPES[name].bits
    columns, depth = DEPTH_BYTES * 8 // bits, 256 // bits
    n = 64 if operand == "b" else depth
    tile = np.random.default_rng(0).integers(-100, 100, (ROWS, columns))
    tile_array = device_array(*stored(np.ascontiguousarray(tile if major == "k" else tile.T), name))
    identity_array = device_array(*stored(np.eye(64, depth), name))
    for stage in range(STAGES):
        for row in (0, 64):
            out = device_array(np.zeros((columns // depth, 64, n), np.int32 if name == "s8" else np.float32))
            read_back.launch(1, tile_array, identity_array, out, stage, row, **config(case))
            for step, product in enumerate(out.numpy()):
                seen = product if operand == "a" else product[:depth].T
                assert np.array_equal(seen, tile[row:row + 64, step * depth:(step + 1) * depth]), (stage, row, step)
