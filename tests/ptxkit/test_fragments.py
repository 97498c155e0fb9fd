"""Tiles, fragments, reductions, copies and pipelines: each helper against NumPy on the CPU device under its checker."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxkit import Ptr, Reg, Ring, TensorMap, Vec, else_, for_range, if_, kernel, laneid, ring, smem, tid
from ptxkit.copies import copy_async, load_tile, store_tile
from ptxkit.fragments import load_fragment, operands_a, pack, store_fragment, unpack
from ptxkit.layout import Layout
from ptxkit.pipeline import NamedBarrier, Pipeline
from ptxkit.ptx import add, and_, bar, cp, ld, mov, mul, opcode, wgmma
from ptxkit.ptx import st as store
from ptxkit.types import b8, b16, b32, bf16, e4m3, e5m2, f16, f32, u32
from tests.ptxkit.machine import lines, opcodes, trace
from tests.ptxkit.refusal import refused

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
Array = np.ndarray[Any, Any]


def clean(kernel_: Any, *args: Any, **how: Any) -> None:
    report = kernel_.simulate(1, *args, **how)
    assert report.verdict == "clean", report


def bits(x: Array) -> Array:
    """The nearest bf16 below, as bits."""
    return (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def wide(x: Array) -> Array:
    return (x.astype(np.uint32) << 16).view(np.float32)


# ---------------------------------------------------------------------------------------------------- accumulators


@pytest.mark.parametrize("loops", [False, True])
def test_an_accumulator_may_be_bound_to_what_its_products_return(loops: bool) -> None:
    """`acc = mma(acc, ...)` is the same registers, before and after a loop: as an instruction with its destination first returns that."""
    mma = opcode("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16")

    def traced(bound: bool) -> str:
        @kernel(target="sm_90a", block=128)
        def product(out: Ptr[f32], n: Reg[u32]) -> None:
            a, b = (smem.tile(bf16, (1, rows, 64), name=name) for rows, name in ((64, "A"), (8, "B")))
            acc = mma.fragment()
            with for_range(n) if loops else if_(n > 1):
                wgmma.fence.sync.aligned()
                found = mma(acc, a[0].desc(0), b[0].desc(0), True)
                assert found is acc
                if bound:
                    acc = found
                wgmma.commit_group.sync.aligned()
                wgmma.wait_group.sync.aligned(0)
            store.global_.f32(out, acc[0])

        return product.trace().ptx()

    assert traced(True) == traced(False)


# --------------------------------------------------------------------------------------------------- places in a tile


@given(st.sampled_from([bf16, f32, e4m3]), st.sampled_from([128, 64, 32, 16, 0]), st.sampled_from(["k", "mn"]), st.sampled_from([64, 128]))
@settings(deadline=None, max_examples=25)
def test_places_are_those_of_the_layout(type_: Any, swizzle: int, major: Any, along: int) -> None:
    """Law: with registers, constants and one of each, `at` is what `Layout.offset` says, for each stage and in parts of the tile."""
    rows, columns = (16, along) if major == "k" else (along, 16)
    if along * type_.bits // 8 % max(swizzle, 16):
        return
    layout = Layout.of(type_, rows, columns, major=major, swizzle=swizzle)
    constants = [(0, 0), (rows - 1, columns - 1), (rows // 2 + 1, columns // 2 + 3)]

    @kernel(block=32)
    def places(out: Ptr[u32], one: Reg[u32]) -> None:
        tile = smem.tile(type_, (2, rows, columns), major=major, swizzle=swizzle)
        first = tile[0].register()
        with for_range(rows * columns, start=tid.x, step=32) as e:
            row, column = e // columns, e % columns
            store.global_.u32(out.at(e), tile[one].at(row, column).register() - first)
        for n, (r, c) in enumerate(constants):
            row, column = mov.u32(r), mov.u32(c)
            for i, place in enumerate((tile[1].at(r, c), tile[1].at(row, c), tile[1].at(r, column))):
                store.global_.u32(out + (rows * columns + n * 3 + i), place.register() - first)
        part = tile[1].lines(8, 8)
        inner, outer = (mov.u32(3), mov.u32(5)) if major == "k" else (mov.u32(5), mov.u32(3))
        store.global_.u32(out + (rows * columns + 9), part.at(outer, inner).register() - first)

    found = np.zeros(rows * columns + 10, np.uint32)
    clean(places, found, 1)
    stage = -(-layout.bytes // layout.alignment) * layout.alignment
    expected = [layout.offset(e // columns, e % columns) for e in range(rows * columns)]
    expected += [layout.offset(r, c) for r, c in constants for _ in range(3)]
    expected.append(layout.offset(13, 3) if major == "k" else layout.offset(3, 13))
    assert [*found] == [stage + e for e in expected]


def test_what_a_place_costs() -> None:
    def constant(row: Reg[u32]) -> None:
        store.shared__cta.u32(smem.tile(f32, (64, 32)).__getitem__(0).at(9, 5), row)

    def by_row(row: Reg[u32]) -> None:
        tile = smem.tile(bf16, (64, 128))
        for column in (0, 8, 16, 64, 72):
            store.shared__cta.v4.b32(tile[0].at(row, column), (row,) * 4)

    assert lines(trace(constant))[0] == "st.shared::cta.u32 [kernel_smem+1204], %r0;" or "+1" in lines(trace(constant))[0]
    assert opcodes(trace(by_row))[:6] == ["mov.u32", "mul.lo.u32", "shr.u32", "and.b32", "xor.b32", "add.u32"]
    assert opcodes(trace(by_row)).count("xor.b32") == 1 + 2                      # columns 8 and 16; 64 and 72 are the next span


SWIZZLES = [128, 64, 32, 16, 0]


@pytest.mark.parametrize("swizzle", SWIZZLES)
@pytest.mark.parametrize("operand", ["a", "b"])
def test_fragments_load_from_every_column(swizzle: int, operand: Any) -> None:
    """Law: a fragment at each multiple of 8 rows and columns holds the elements that the manual's figure of operand a or b names."""
    rows, columns = 32, 128
    places = [(row, column) for row in range(0, rows - 15, 8) for column in range(0, columns - 15, 8)]

    @kernel(block=32)
    def loaded(source: Ptr[b16], out: Ptr[b32]) -> None:
        tile, lane = smem.tile(bf16, (rows, columns), swizzle=swizzle), mov.u32(laneid)
        with for_range(rows * columns, start=lane, step=32) as e:
            store.shared__cta.b16(tile[0].at(e // columns, e % columns), ld.global_.b16(source.at(e)))
        bar.sync(0)
        for i, (row, column) in enumerate(places):
            store.global_.v4.b32(out.at(lane * 4) + 128 * i, load_fragment(tile[0], row, column, operand, lane=lane))

    source = np.arange(rows * columns, dtype=np.uint16).reshape(rows, columns)
    found = np.zeros((len(places), 32, 4), np.uint32)
    clean(loaded, source, found)
    lane = np.arange(32)
    for of_place, (row, column) in zip(found, places, strict=True):
        for register, (down, right) in enumerate([(0, 0), (8, 0), (0, 8), (8, 8)] if operand == "a" else [(0, 0), (0, 8), (8, 0), (8, 8)]):
            pairs = [source[row + down + lane // 4, column + right + lane % 4 * 2 + i].astype(np.uint32) for i in range(2)]
            assert np.array_equal(of_place[:, register], pairs[0] | pairs[1] << 16), (row, column, register)


@pytest.mark.parametrize("swizzle", SWIZZLES)
def test_fragments_are_stored_at_every_column(swizzle: int) -> None:
    """Law: accumulators of any columns land where wgmma's figure has them, from each column that the tile takes."""
    @kernel(block=128)
    def stored(source: Ptr[f32], out: Ptr[b16]) -> None:
        thread = mov.u32(tid.x)
        for column in range(0, 128, 16):
            tile = smem.tile(bf16, (64, 128), swizzle=swizzle)
            here = source.at(thread * 32)
            store_fragment(tile[0], [ld.global_.f32(here + i) for i in range(min(32, (128 - column) // 2))], thread, column=column)
            bar.sync(0)
            with for_range(64 * 128, start=thread, step=128) as e:
                with if_(e % 128 - column < 64):
                    word = ld.shared__cta.b16(tile[0].at(e // 128, e % 128))
                    store.global_.b16(out.at(e) + 64 * 128 * (column // 16), word)

    values = np.arange(128 * 32, dtype=np.float32).reshape(128, 32) % 251
    found = np.zeros((8, 64, 128), np.uint16)
    clean(stored, values, found)
    thread = np.arange(128)
    for block, column in enumerate(range(0, 128, 16)):
        want = np.zeros((64, 128), np.float32)
        for i in range(min(32, (128 - column) // 2)):
            rows, columns = thread // 32 * 16 + thread % 32 // 4 + 8 * (i // 2 % 2), thread % 4 * 2 + i % 2 + i // 4 * 8
            want[rows, column + columns] = values[:, i]
        assert np.array_equal(wide(found[block]), want), column


@pytest.mark.parametrize("swizzle", SWIZZLES)
@pytest.mark.parametrize("type_", [bf16, f32, e4m3])
@pytest.mark.parametrize("major", ["k", "mn"])
def test_each_constant_beside_a_register(swizzle: int, type_: Any, major: Any) -> None:
    """Law: a register and a constant are the place of two constants, for every constant."""
    rows, columns = (16, 256) if major == "k" else (256, 16)
    layout = Layout.of(type_, rows, columns, major=major, swizzle=swizzle)

    @kernel(block=32)
    def places(out: Ptr[u32]) -> None:
        tile = smem.tile(type_, (rows, columns), major=major, swizzle=swizzle)
        first, lane = tile[0].register(), mov.u32(laneid)
        for column in range(0, columns, 8 if major == "k" else 1):
            store.global_.u32(out.at(lane) + 32 * column, tile[0].at(lane & 15, column).register() - first)
        for row in range(0, rows, 8 if major == "mn" else 1):
            store.global_.u32(out.at(lane) + 32 * (columns + row), tile[0].at(row, lane & 15).register() - first)

    found = np.zeros((columns + rows, 32), np.uint32)
    clean(places, found)
    for column in range(0, columns, 8 if major == "k" else 1):
        assert [*found[column]] == [layout.offset(lane & 15, column) for lane in range(32)], column
    for row in range(0, rows, 8 if major == "mn" else 1):
        assert [*found[columns + row]] == [layout.offset(row, lane & 15) for lane in range(32)], row


def test_what_a_fragment_costs() -> None:
    """Columns that are multiples of 16 share one address; any other takes its own."""
    def loaded(row: Reg[u32]) -> None:
        tile = smem.tile(bf16, (64, 64))
        for column in (0, 16, 32, 48):
            load_fragment(tile[0], 0, column, lane=row)

    found = opcodes(trace(loaded))
    assert found.count("mad.lo.u32") == 1
    assert found.count("xor.b32") == 4


def test_places_outside_and_patterns_that_do_not_repeat() -> None:
    def outside(row: Reg[u32]) -> None:
        smem.tile(bf16, (64, 64))[0].at(64, 0)

    def beyond(row: Reg[u32]) -> None:
        smem.tile(bf16, (64, 64))[0].at(row, 64)

    def odd(row: Reg[u32]) -> None:
        smem.tile(bf16, (4, 128))[0].at(row, 0)

    for wrong, words in ((outside, "row 64 of a tile that has 64"), (beyond, "column 64 of a tile"), (odd, "every 8 lines")):
        refused(wrong, words)


# --------------------------------------------------------------------------------------------------- fragments


def test_coordinates_of_wgmma_and_what_a_fragment_stores() -> None:
    """D = A B^T by one warpgroup. D goes to global memory by coordinates, and through a tile by stmatrix."""
    product = wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16

    @kernel(block=128)
    def multiply(a: Ptr[bf16], b: Ptr[bf16], d: Ptr[f32], rounded: Ptr[bf16]) -> None:
        a_tile, b_tile, d_tile = smem.tile(bf16, (64, 64)), smem.tile(bf16, (96, 64)), smem.tile(bf16, (64, 96), swizzle=64)
        thread = mov.u32(tid.x)
        copy_async(a_tile[0], a, 64, thread, 128)
        load_tile(b_tile[0], b, 64, thread, 128)
        cp.async_.wait_all()
        opcode("fence.proxy.async.shared::cta")()
        bar.sync(0)
        acc = product.fragment()
        wgmma.fence.sync.aligned()
        for k in range(0, 64, 16):
            product(acc, a_tile[0].desc(k), b_tile[0].desc(k), True)
        wgmma.commit_group.sync.aligned()
        wgmma.wait_group.sync.aligned(0)
        here = product.coordinates(thread)
        out = d.at(here.row * 96 + here.column)
        for row, column, pair in here.runs(acc):
            store.global_.v2.f32(out + (row * 96 + column), pair)
        store_fragment(d_tile[0].lines(0, 64), acc, thread)
        bar.sync(0)
        rest = rounded
        for i in range(0, 64, 64):
            with for_range(64 * 96 // 8, start=thread, step=128) as chunk:
                row, column = chunk // 12, chunk % 12 * 8
                store.global_.v4.b32(rest.at(row * 96 + column), ld.shared__cta.v4.b32(d_tile[0].at(row + i, column)))

    generator = np.random.default_rng(0)
    a, b = bits(generator.standard_normal((64, 64))), bits(generator.standard_normal((96, 64)))
    d, rounded = np.zeros((64, 96), np.float32), np.zeros((64, 96), np.uint16)
    clean(multiply, a, b, d, rounded)
    exact = wide(a).astype(np.float64) @ wide(b).astype(np.float64).T
    assert np.allclose(d, exact, atol=1e-4)
    assert np.allclose(wide(rounded), exact, atol=1e-1, rtol=2.0**-8)


@pytest.mark.parametrize(("type_", "accumulator"), [(bf16, "f32"), (f16, "f32"), (f16, "f16")])
def test_coordinates_of_mma(type_: Any, accumulator: str) -> None:
    """A and B by ldmatrix, and by elements at their coordinates: the same registers, and D at its coordinates is the product."""
    name = type_.__name__
    product = opcode(f"mma.sync.aligned.m16n8k16.row.col.{accumulator}.{name}.{name}.{accumulator}")

    @kernel(block=32)
    def multiply(a: Ptr[b16], b: Ptr[b16], d: Ptr[b32], same: Ptr[u32]) -> None:
        a_tile, b_tile = smem.tile(type_, (16, 64)), smem.tile(type_, (16, 64))
        lane = mov.u32(laneid)
        with for_range(16 * 64 // 8, start=lane, step=32) as chunk:
            row, column = chunk // 8, chunk % 8 * 8
            for tile, source in ((a_tile, a), (b_tile, b)):
                store.shared__cta.v4.b32(tile[0].at(row, column), ld.global_.v4.b32(source.at(row * 64 + column)))
        bar.sync(0)
        acc = [product.coordinates(lane), product.coordinates(lane, "a"), product.coordinates(lane, "b")]
        here, of_a, of_b = acc
        kind = f32 if accumulator == "f32" else b32
        sums = [Vec([mov.b32(0) if kind is b32 else mov.f32(0.0) for _ in range(4 if accumulator == "f32" else 2)]) for _ in range(2)]
        differ = mov.u32(0)
        for k in range(0, 64, 16):
            left, right = load_fragment(a_tile[0], 0, k, lane=lane), load_fragment(b_tile[0], 0, k, "b", lane=lane)
            for row, column, word in of_a.elements(left):
                direct = ld.shared__cta.b32(a_tile[0].at(of_a.row + row, of_a.column + (column + k)))
                add.u32(differ, differ, 1, pred=mov.u32(direct) != mov.u32(word))
            for half in range(2):
                for row, column, word in of_b.elements(right[2 * half:2 * half + 2]):
                    direct = ld.shared__cta.b32(b_tile[0].at(of_b.column + (column + 8 * half), of_b.row + (row + k)))
                    add.u32(differ, differ, 1, pred=mov.u32(direct) != mov.u32(word))
                product(sums[half], left, right[2 * half:2 * half + 2], sums[half])
        for half in range(2):
            for row, column, found in here.runs(sums[half]):
                place = (here.row + row) * 16 + here.column + (column + 8 * half)
                if accumulator == "f32":
                    store.global_.v2.f32(d.at(place), found)
                else:
                    store.global_.b32(d.at(place >> 1), found[0])
        store.global_.u32(same.at(lane), differ)

    generator = np.random.default_rng(1)
    values = generator.integers(-3, 4, (2, 16, 64)).astype(np.float32)
    a, b = (bits(v) if type_ is bf16 else v.astype(np.float16).view(np.uint16) for v in values)
    d = np.zeros((16, 16), np.float32 if accumulator == "f32" else np.float16)
    differ = np.ones(32, np.uint32)
    clean(multiply, a, b, d.view(np.uint32), differ)
    assert not differ.any()
    assert np.array_equal(d.astype(np.float64), values[0].astype(np.float64) @ values[1].astype(np.float64).T)


@pytest.mark.parametrize("type_", [bf16, f16])
def test_accumulators_are_operand_a_of_the_next_product(type_: Any) -> None:
    word = type_.__name__
    product = opcode(f"wgmma.mma_async.sync.aligned.m64n64k16.f32.{word}.{word}")
    small: Any = opcode(f"mma.sync.aligned.m16n8k16.row.col.f32.{word}.{word}.f32")

    @kernel(block=128)
    def twice(x: Ptr[f32]) -> None:
        acc, more = product.fragment(), [mov.f32(0.0) for _ in range(4)]
        for a in operands_a(type_, acc):
            product(acc, a, smem.tile(type_, (1, 64, 16), swizzle=32)[0].desc(), True)
            small(more, a, (a[0], a[1]), more)
        store.global_.f32(x, more[0])

    assert [name.partition(".")[0] for name in opcodes(trace(twice.function))].count("wgmma") >= 4


@pytest.mark.parametrize("type_", [bf16, f16, e4m3, e5m2])
def test_a_packed_word_unpacks(type_: Any) -> None:
    count = 4 if type_ in (e4m3, e5m2) else 2

    @kernel(block=32)
    def both(x: Ptr[f32], words: Ptr[b32], back: Ptr[f32]) -> None:
        at = x.at(mov.u32(tid.x) * count)
        word = pack(type_, *(ld.global_.f32(at + i) for i in range(count)))
        store.global_.b32(words.at(tid.x), word)
        for i, value in enumerate(unpack(type_, word)):
            store.global_.f32(back.at(mov.u32(tid.x) * count) + i, value)

    x = np.random.default_rng(2).integers(-8, 9, (32, count)).astype(np.float32)     # exact in all four types
    words, back = np.zeros(32, np.uint32), np.zeros_like(x)
    clean(both, x, words, back)
    assert np.array_equal(back, x)
    if type_ in (bf16, f16):
        assert np.array_equal(words.view(np.uint16).reshape(32, 2), bits(x) if type_ is bf16 else x.astype(np.float16).view(np.uint16))


# --------------------------------------------------------------------------------------------------- copies and pipelines


@given(st.sampled_from([(bf16, 64, 64, 128), (f32, 32, 32, 64), (bf16, 32, 128, 128), (e4m3, 16, 64, 32)]), st.integers(0, 40),
       st.booleans())
@settings(deadline=None, max_examples=10)
def test_all_threads_copy_a_tile(shape: Any, rows: int, constant: bool) -> None:
    type_, lines_, columns, threads = shape
    size = type_.bits // 8

    @kernel(block=threads)
    def there_and_back(source: Ptr[b8], target: Ptr[b8], stride: Reg[u32], rows: Reg[u32]) -> None:
        tile, thread = smem.tile(type_, (2, lines_, columns)), mov.u32(tid.x)
        step = columns + 16 if constant else stride
        copy_async(tile[1], source.cast(type_), step, thread, threads, rows=rows)
        cp.async_.wait_all()
        bar.sync(0)
        store_tile(tile[1], target.cast(type_), step, thread, threads, rows=rows + 4)

    rows = min(rows, lines_)
    source = np.random.default_rng(5).integers(0, 256, (lines_, (columns + 16) * size), dtype=np.uint8)
    target = np.full_like(source, 255)
    clean(there_and_back, source, target, columns + 16, rows)
    expected = np.full_like(source, 255)
    expected[:rows + 4, :columns * size] = 0
    expected[:rows, :columns * size] = source[:rows, :columns * size]
    assert np.array_equal(target, expected)


def test_a_pipeline_and_named_barriers() -> None:
    load = cp.async_.bulk.tensor_2d.shared__cluster.global_.tile.mbarrier__complete_tx__bytes

    @kernel(block=96 + 32)
    def sums(x: TensorMap, out: Ptr[f32], n: Reg[u32], *, STAGES: int = 2) -> None:
        tile = smem.tile(f32, (STAGES, 8, 32))
        stages = Pipeline(STAGES, consumers=96, bytes=tile.layout.bytes, generic=True)
        thread = mov.u32(tid.x)
        readers = NamedBarrier(96)
        with if_(thread == 0):
            stages.init()
        bar.sync(0)
        with if_(thread < 96):
            position = Ring(STAGES)
            with ring(position, n, total=mov.f32(0.0)) as tiles:
                stages.consumer_wait(tiles.stage, tiles.parity)
                tiles.total = add.rn.f32(tiles.total, ld.shared__cta.f32(tile[tiles.stage].at(and_.b32(thread, 7), 5)))
                readers.sync()
                stages.consumer_release(tiles.stage)
            store.global_.f32(out.at(thread), tiles.total)
        with else_(), if_(thread == 96):
            position = Ring(STAGES)
            with ring(position, n) as (k, stage, parity):
                load(tile[stage], x, (0, k * 8), stages.producer_acquire(stage, parity))
                stages.producer_commit(stage)
            stages.producer_tail(position)

    x = np.random.default_rng(6).integers(-9, 9, (40, 32)).astype(np.float32)
    out = np.zeros(96, np.float32)
    clean(sums, x, out, 5)
    assert np.array_equal(out, np.tile(x[:, 5].reshape(5, 8).sum(0), 12))


def test_a_pipeline_that_threads_fill() -> None:
    @kernel(block=64)
    def passed_on(out: Ptr[u32], n: Reg[u32]) -> None:
        words = smem.array(u32, 2 * 32)
        stages = Pipeline(2, producers=32, consumers=32)
        thread = mov.u32(tid.x)
        with if_(thread == 0):
            stages.init()
        bar.sync(0)
        with if_(thread < 32), ring(2, n) as (k, stage, parity):
            stages.producer_acquire(stage, parity)
            store.shared__cta.u32(words.at(stage * 32 + thread), mul.lo.u32(k, 3))
            stages.producer_commit(stage)
        with if_(thread >= 32), ring(2, n) as (k, stage, parity):
            stages.consumer_wait(stage, parity)
            store.global_.u32(out.at(k), ld.shared__cta.u32(words.at(stage * 32) + 31), pred=thread == 32)
            stages.consumer_release(stage)

    out = np.zeros(7, np.uint32)
    clean(passed_on, out, 7)
    assert [*out] == [3 * k for k in range(7)]


@pytest.mark.ptxas
def test_carried_values_and_helpers_make_no_longer_machine_code() -> None:
    """Oracle: the same kernel written by hand, in place and with its own index arithmetic."""
    product = wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16

    @kernel(block=128)
    def by_hand(x: Ptr[f32], d: Ptr[f32], n: Reg[u32]) -> None:
        total, thread = mov.f32(0.0), mov.u32(tid.x)
        with for_range(n) as i:
            add.rn.f32(total, total, ld.global_.f32(x.at(i)))
        out = d.at(((thread >> 5) * 16 + ((thread & 31) >> 2)) * 64 + (thread & 3) * 2)
        for i in range(0, 32, 4):
            store.global_.v2.f32(out + 2 * i, (total, total))
            store.global_.v2.f32(out + 2 * i + 8 * 64, (total, total))

    @kernel(block=128)
    def helped(x: Ptr[f32], d: Ptr[f32], n: Reg[u32]) -> None:
        thread = mov.u32(tid.x)
        with for_range(n, total=mov.f32(0.0)) as values:
            values.total = add.rn.f32(values.total, ld.global_.f32(x.at(values.index)))
        here = product.coordinates(thread)
        out = d.at(here.row * 64 + here.column)
        for row, column, _ in here.runs(Vec([values.total] * 32)):
            store.global_.v2.f32(out + (row * 64 + column), (values.total, values.total))

    assert len(helped.sass().splitlines()) <= len(by_hand.sass().splitlines())
