"""One layout object feeds TMA and wgmma: what tensor copies write, descriptors read, against numpy models of both."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ptxkit import Reg, TensorMap, if_, smem
from ptxkit.dsl.descriptor import template
from ptxkit.dsl.traced import Traced
from ptxkit.layout import Layout, swizzled
from ptxkit.ptx import cp, opcode
from ptxkit.types import TYPES, bf16, f32, tf32, u32
from tests.ptxkit import machine

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
LAW = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])

# Element types that wgmma reads, the numpy type of their width, and the instruction that reads them.
OPERANDS = {
    "bf16": (np.uint16, "wgmma.mma_async.sync.aligned.m64n{n}k16.f32.bf16.bf16"),
    "f16": (np.uint16, "wgmma.mma_async.sync.aligned.m64n{n}k16.f16.f16.f16"),
    "tf32": (np.uint32, "wgmma.mma_async.sync.aligned.m64n{n}k8.f32.tf32.tf32"),
    "e4m3": (np.uint8, "wgmma.mma_async.sync.aligned.m64n{n}k32.f32.e4m3.e4m3"),
    "s8": (np.uint8, "wgmma.mma_async.sync.aligned.m64n{n}k32.s32.s8.s8"),
}
load = cp.async_.bulk.tensor_2d.shared__cluster.global_.tile.mbarrier__complete_tx__bytes


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Any layout that a tensor copy can fill, small enough to look at every element."""
    type = TYPES[draw(st.sampled_from(["u8", "e4m3", "bf16", "f16", "f32", "u32", "tf32", "f64"]))]
    swizzle = draw(st.sampled_from([128, 64, 32, 16, 0]))
    unit = (swizzle or 16) * 8 // type.bits
    inner, outer = unit * draw(st.integers(1, 4)), draw(st.integers(1, 40))
    major: Any = draw(st.sampled_from(["k", "mn"]))
    rows, columns = (outer, inner) if major == "k" else (inner, outer)
    return Layout.of(type, rows, columns, major=major, swizzle=swizzle)


@given(layouts())
@LAW
def test_offsets_are_a_bijection_onto_the_bytes(layout: Layout) -> None:
    offsets = {layout.offset(row, column) for row in range(layout.rows) for column in range(layout.columns)}
    assert offsets == set(range(0, layout.bytes, layout.element_bytes))
    assert layout.bytes == layout.rows * layout.columns * layout.type.bits // 8


@given(layouts(), st.data())
@LAW
def test_offsets_are_where_tensor_copies_put_the_elements(layout: Layout, data: st.DataObject) -> None:
    base = layout.alignment * data.draw(st.integers(0, 20))
    memory = np.zeros(base + layout.bytes + layout.alignment, np.uint8)
    tile = np.arange(layout.outer * layout.inner, dtype=np.uint64).reshape(layout.outer, layout.inner) + 1
    size = layout.element_bytes
    lines = (tile % 251).astype({1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[size])
    for span in range(layout.spans):
        machine.tensor_load(memory, base + span * layout.span_stride, lines, (span * layout.span, 0), layout.box, layout.swizzle)
    for row in range(layout.rows):
        for column in range(layout.columns):
            at = base + layout.offset(row, column)
            expected = lines[row, column] if layout.major == "k" else lines[column, row]
            assert memory[at:at + size].view(lines.dtype)[0] == expected


@given(st.integers(0, 1 << 20), st.sampled_from([0, 16, 32, 64, 128]))
def test_the_swizzle_is_its_own_inverse_and_stays_within_eight_lines(address: int, span: int) -> None:
    once = swizzled(address, span)
    assert swizzled(once, span) == address
    block = max(8 * span, 16)
    assert once // block == address // block
    assert once % 16 == address % 16
    assert once == int(machine.swizzle(np.array([address]), span)[0])


@st.composite
def operands(draw: st.DrawFn) -> tuple[str, Layout, int]:
    """(element type, layout of a wgmma operand, columns N that the instruction reads)."""
    name = draw(st.sampled_from(sorted(OPERANDS)))
    type = TYPES[name]
    major: Any = draw(st.sampled_from(["k", "mn"] if type.bits == 16 else ["k"]))
    swizzle = draw(st.sampled_from([128, 64, 32, 16]))
    depth, unit = 256 // type.bits, swizzle * 8 // type.bits
    n = draw(st.sampled_from([8, 16, 24, 64]))
    if major == "k":
        step = max(unit, depth)
        rows, columns = n + 8 * draw(st.integers(0, 5)), step * draw(st.integers(1, 3))
    else:
        rows = -(-n // unit) * unit + unit * draw(st.integers(0, 2))
        columns = depth * draw(st.integers(1, 4))
    return name, Layout.of(type, rows, columns, major=major, swizzle=swizzle), n


def reader(name: str, layout: Layout, n: int, stages: int, places: list[tuple[int, int]], *, dynamic: bool) -> Traced:
    """A kernel that copies one stage of the tile, then reads it as B of an instruction at every (row, depth)."""

    def kernel(a: TensorMap, stage: Reg[u32], zero: Reg[u32]) -> None:
        smem.array(u32, 5)                                   # so that the tile is not the first thing
        tile = smem.tile(layout.type, (stages, layout.rows, layout.columns), major=layout.major, swizzle=layout.swizzle)
        barrier = smem.mbarrier(1, check=False)
        view = tile[stage] if dynamic else tile[stages - 1]
        for span in range(layout.spans):
            load(view.span(span), a, (span * layout.span, 0), barrier[0])
        mma = opcode(OPERANDS[name][1].format(n=n))
        accumulator = mma.fragment(zero=False)
        depth = 256 // layout.type.bits
        lower = Layout.of(layout.type, 64, depth, swizzle=16)
        other = smem.tile(layout.type, (lower.rows, lower.columns), swizzle=16)
        for row, k in places:
            mma(accumulator, other[0].desc(), view.desc(k, mn=zero + row if dynamic else row), True)

    return machine.trace(kernel, name="reader")


@given(operands(), st.data())
@LAW
def test_descriptors_read_the_tile_that_copies_wrote(operand: tuple[str, Layout, int], data: st.DataObject) -> None:
    name, layout, n = operand
    depth = 256 // layout.type.bits
    row_step = 8 if layout.major == "k" else layout.span
    places = [(row, k) for row in range(0, layout.rows - n + 1, row_step) for k in range(0, layout.columns - depth + 1, depth)]
    places = data.draw(st.permutations(places))[:10]
    stages, dynamic = data.draw(st.integers(1, 3)), data.draw(st.booleans())
    traced = reader(name, layout, n, stages, places, dynamic=dynamic)

    (record,) = traced.copies.records.values()
    assert record.box == layout.box
    dtype = OPERANDS[name][0]
    tile = np.random.default_rng(0).integers(0, np.iinfo(dtype).max, (layout.rows, layout.columns), dtype=dtype)
    lines = tile if layout.major == "k" else tile.T
    memory = np.zeros(232_448, np.uint8)
    reads = []
    base = layout.alignment * data.draw(st.integers(0, 3))
    for event in machine.run(traced, {"a": 7, "stage": stages - 1, "zero": 0}, {"reader_smem": base}):
        if event.opcode.startswith("cp.async.bulk.tensor"):
            address, (tensormap, corner), _ = event.operands
            assert tensormap == 7
            assert address % layout.alignment == 0 or layout.spans > 1
            machine.tensor_load(memory, address, lines, corner, record.box, record.swizzle)
        else:
            transposed = len(event.operands) == 8 and event.operands[7] == 1
            reads.append(machine.matrix_read(memory, event.operands[2], n, depth, dtype, transposed))
    assert len(reads) == len(places)
    for (row, k), read in zip(places, reads, strict=True):
        assert np.array_equal(read, tile[row:row + n, k:k + depth]), (row, k)


def test_the_model_sees_a_wrong_descriptor() -> None:
    """The law can fail: a stride that is off by one line is found."""
    layout = Layout.of(bf16, 64, 64)
    tile = np.arange(64 * 64, dtype=np.uint16).reshape(64, 64)
    memory = np.zeros(layout.bytes, np.uint8)
    machine.tensor_load(memory, 0, tile, (0, 0), layout.box, layout.swizzle)
    right = template(layout)
    assert np.array_equal(machine.matrix_read(memory, right, 64, 16, np.uint16, False), tile[:, :16])
    for wrong in (right - (1 << 32), right ^ (3 << 62), right + 8):
        assert not np.array_equal(machine.matrix_read(np.resize(memory, 1 << 18), wrong, 64, 16, np.uint16, False), tile[:, :16])


@pytest.mark.parametrize(("layout", "leading", "stride", "mode"), [
    # In units of 16 bytes. The first is the manual's own example: 16-byte columns 64 tf32 apart, eight rows 32 tf32 apart. The
    # others are the packed layouts of its table: eight lines of a span are 256, 512 or 1,024 bytes.
    (Layout(tf32, 16, 8, "k", 16), 16, 8, 0),
    (Layout(bf16, 64, 8, "mn", 64), 32, 32, 2),
    (Layout(bf16, 64, 64, "k", 128), 1, 64, 1),
    (Layout(bf16, 128, 64, "k", 64), 1, 32, 2),
    (Layout(bf16, 8, 16, "k", 32), 1, 16, 3),
    (Layout(bf16, 256, 64, "mn", 128), 512, 64, 1),
    (Layout(bf16, 16, 16, "mn", 16), 8, 16, 0),
])
def test_descriptor_fields(layout: Layout, leading: int, stride: int, mode: int) -> None:
    assert template(layout) == leading << 16 | stride << 32 | mode << 62


@given(operands(), st.data())
@LAW
def test_lines_and_spans_fill_the_same_memory_as_the_whole(operand: tuple[str, Layout, int], data: st.DataObject) -> None:
    _, layout, _ = operand
    eighths = layout.outer // 8
    if layout.outer % 8 or not eighths:
        return
    cuts = sorted({0, eighths, *data.draw(st.lists(st.integers(0, eighths), max_size=3))})
    runtime = data.draw(st.booleans())

    def kernel(a: TensorMap, b: TensorMap, zero: Reg[u32]) -> None:
        whole = smem.tile(layout.type, (layout.rows, layout.columns), major=layout.major, swizzle=layout.swizzle)
        parts = smem.tile(layout.type, (layout.rows, layout.columns), major=layout.major, swizzle=layout.swizzle)
        barrier = smem.mbarrier(1, check=False)
        for span in range(layout.spans):
            load(whole[0].span(zero + span if runtime else span), a, (span * layout.span, 0), barrier[0])
            for start, end in itertools.pairwise(cuts):
                place = parts[0].span(span).lines(zero + 8 * start if runtime else 8 * start, 8 * (end - start))
                cp.async_.bulk.shared__cluster.global_.mbarrier__complete_tx__bytes(place, b_pointer(b), place.bytes, barrier[0])

    traced = machine.trace(kernel)
    copies: list[tuple[int, int]] = []
    wholes = []
    for event in machine.run(traced, {"a": 0, "b": 0, "zero": 0}, {"kernel_smem": 0}):
        if "tensor" in event.opcode:
            wholes.append(event.operands[0])
        else:
            copies.append((event.operands[0], event.operands[2]))
    second = -(-layout.bytes // layout.alignment) * layout.alignment
    assert wholes == [span * layout.span_stride for span in range(layout.spans)]
    assert [address for address, _ in copies] == list(np.cumsum([second, *(size for _, size in copies)])[:-1])
    assert sum(size for _, size in copies) == layout.bytes


def b_pointer(tensormap: Any) -> Any:
    """Any generic 64-bit register: the address does not matter to the machine."""
    return tensormap.reg


def test_a_tensor_map_record_has_the_box_of_what_is_copied() -> None:
    def kernel(a: TensorMap, b: TensorMap, c: TensorMap, p: Reg[u32]) -> None:
        tile = smem.tile(bf16, (4, 128, 64))
        plain = smem.tile(f32, (8, 24), swizzle=0)
        barrier = smem.mbarrier(1, check=False)
        with if_(p == 0):
            load(tile[0], a, (0, 0), barrier[0])
            load(tile[p].lines(64, 32), b, (0, 0), barrier[0])
            load(plain[0], c, (0, 0), barrier[0])

    records = machine.trace(kernel).copies.records
    boxes = ["box 64x128 bf16, swizzle 128", "box 64x32 bf16, swizzle 128", "box 24x8 f32, swizzle none"]
    assert [str(records[name]) for name in "abc"] == boxes
