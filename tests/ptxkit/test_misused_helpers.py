"""What helpers are given by mistake: each is one sentence at the author's line, and no error of Python's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxkit import NamedBarrier, NamedBarriers, Pipeline, Ptr, Reg, kernel, smem, tid
from ptxkit.copies import copy_async, load_tile, store_tile
from ptxkit.errors import LaunchError, PtxkitError, TraceError
from ptxkit.fragments import load_fragment, operands_a, pack, rows_of, store_fragment, unpack
from ptxkit.ptx import add, ld, mov, st, wgmma
from ptxkit.reductions import block_reduce
from ptxkit.tuning.space import Space, SpaceError
from ptxkit.types import bf16, f32, u32
from tests.ptxkit.machine import trace
from tests.ptxkit.refusal import refused

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
N = Reg[u32]
P = Ptr[bf16]
CASES: list[tuple[Callable[..., None], str]] = []


def wrong(words: str) -> Callable[[Any], Any]:
    def kept(function: Any) -> Any:
        CASES.append((function, words))
        return function

    return kept


def tile() -> Any:
    return smem.tile(bf16, (64, 64))


# --------------------------------------------------------------------------------------------------- tiles


@wrong("`at` is that of one stage of a tile: write `tile[0].at`, or `tile[stage].at`")
def place_in_a_whole_tile(n: N) -> None:
    tile().at(0, 0)


@wrong("`desc` is that of one stage of a tile: write `tile[0].desc`")
def descriptor_of_a_whole_tile(n: N) -> None:
    tile().desc()


@wrong("`lines` is that of one stage of a tile")
def lines_of_a_whole_tile(n: N) -> None:
    tile().lines(0, 8)


@wrong("load_fragment takes one stage of a tile, as `tile[0]`")
def fragment_of_a_whole_tile(n: N) -> None:
    load_fragment(tile(), 0, 0)


@wrong("store_fragment takes one stage of a tile, as `tile[0]`")
def fragment_to_a_whole_tile(n: N) -> None:
    store_fragment(tile(), [], n)


@wrong("a copy of a tile takes one stage of a tile, as `tile[0]`")
def copy_of_a_whole_tile(x: P, n: N) -> None:
    load_tile(tile(), x, 64, n, 128)


@wrong("load_fragment takes one stage of a tile, as `tile[0]` or `tile[stage].lines(0, 64)`, not Reg[u32]")
def fragment_of_a_register(n: N) -> None:
    load_fragment(n, 0, 0)  # type: ignore[arg-type] # wrong


@wrong("indexed with an int or a 32-bit register, not 1.5")
def column_with_a_fraction(n: N) -> None:
    tile()[0].at(0, 1.5)


@wrong("indexed with an int or a 32-bit register, not 1.5")
def column_with_a_fraction_beside_a_register(n: N) -> None:
    tile()[0].at(n, 1.5)


@wrong("indexed with an int or a 32-bit register, not 'a'")
def word_as_a_row(n: N) -> None:
    tile()[0].at("a", n)


@wrong("becomes one of Python with `int(i)`")
def row_of_numpy(n: N) -> None:
    tile()[0].at(np.int64(3), 0)


@wrong("not Reg[u64](%rd0): write `cvt.u32.u64(i)`")
def wide_column(n: N) -> None:
    tile()[0].at(n, mov.u64(1))


@wrong("write `cvt.u32.u64(i)`")
def wide_row(n: N) -> None:
    tile()[0].at(mov.u64(1), 1)


@wrong("write `cvt.rzi.u32.f32(i)`")
def row_of_a_float(n: N) -> None:
    tile()[0].at(mov.f32(1.0), 1)


@wrong("write `cvt.rzi.u32.f32(i)`")
def element_of_a_float(n: N) -> None:
    smem.array(f32, 4).at(mov.f32(1.0))


@wrong("a TileView is one place and has no items: `tile[stage].at(row, column)`")
def item_of_a_stage(n: N) -> None:
    tile()[0][3, 4]


@wrong("a tile is indexed with a stage alone, not (3, 4): `tile[stage].at(row, column)`")
def element_of_a_tile(n: N) -> None:
    tile()[3, 4]


@wrong("a MBarrier is one place and has no items")
def item_of_a_barrier(n: N) -> None:
    smem.mbarrier(3)[0][1]


@wrong("`barriers[i]` is a barrier of this CTA")
def barrier_at_a_number(n: N) -> None:
    smem.mbarrier(3).at(0)  # type: ignore[arg-type] # wrong


@wrong("a descriptor at row 0, depth -16 begins outside of its tile, which has 64 rows and a depth of 64")
def depth_before_the_tile(n: N) -> None:
    tile()[0].desc(-16)


@wrong("a descriptor at row -8, depth 0 begins outside of its tile")
def row_before_the_tile(n: N) -> None:
    tile()[0].desc(0, -8)


@wrong("a descriptor at row 64, depth 0 begins outside of its tile")
def row_after_the_tile(n: N) -> None:
    tile()[0].desc(0, 64)


@wrong("a descriptor at row 0, depth 64 begins outside of its tile")
def depth_after_the_tile(n: N) -> None:
    tile()[0].desc(64)


@wrong("lines 0 to 0+8.0 of a tile with 64: both are multiples of 8 within it, an index and an int")
def lines_with_a_fraction(n: N) -> None:
    tile()[0].lines(0, 8.0)


@wrong("a view of 20 of 64 lines is for a copy: `at` and `desc` need a multiple of 8")
def a_descriptor_of_lines_for_a_copy(n: N) -> None:
    tile()[0].lines(4, 20).desc()


@wrong("a view of 20 of 64 lines is for a copy: `at` and `desc` need a multiple of 8")
def an_element_of_lines_for_a_copy(n: N) -> None:
    tile()[0].lines(n, 20).at(0, 0)


@wrong("lines 0 to 0+18 of a tile with 64: both are multiples of 4 within it")
def lines_of_160_bytes_that_do_not_end_at_128(n: N) -> None:
    smem.tile(f32, (1, 64, 40), swizzle=0)[0].lines(0, 18)


@wrong("lines 1 to 1+4 of a tile with 64: both are multiples of 4 within it")
def a_line_that_does_not_begin_at_128_bytes(n: N) -> None:
    smem.tile(f32, (1, 64, 8), swizzle=32)[0].lines(1, 4)


@wrong("lines 4 to 4+8 of a tile with 64")
def eight_lines_in_the_middle_of_the_pattern(n: N) -> None:
    tile()[0].lines(4, 8)


@wrong("lines 0 to 0+Reg[u32](%r0) of a tile")
def lines_by_a_register(n: N) -> None:
    tile()[0].lines(0, n)


@wrong("a tile of 0 stages: ask for at least one")
def no_stages(n: N) -> None:
    smem.tile(bf16, (0, 64, 64))


@wrong("a tile of -1 stages: ask for at least one")
def fewer_stages_than_none(n: N) -> None:
    smem.tile(bf16, (-1, 64, 64))


@wrong("a power-of-two alignment, not 4 and 'a'")
def alignment_in_words(n: N) -> None:
    smem.array(f32, 4, align="a")  # type: ignore[arg-type] # wrong


# --------------------------------------------------------------------------------------------------- copies and fragments


@wrong("256 threads cannot copy a tile: give the number of those that call, an int of 1 to 128, the threads of the block")
def more_threads_than_the_block(x: P, n: N) -> None:
    load_tile(tile()[0], x, 64, n, 256)


@wrong("256 threads cannot copy a tile")
def more_threads_than_the_block_store(x: P, n: N) -> None:
    store_tile(tile()[0], x, 64, n, 256)


@wrong("-128 threads cannot copy a tile")
def fewer_threads_than_none(x: P, n: N) -> None:
    copy_async(tile()[0], x, 64, n, -128)


@wrong("0 threads cannot copy a tile")
def no_threads(x: P, n: N) -> None:
    copy_async(tile()[0], x, 64, n, 0)


@wrong("takes the number of a thread in a 32-bit register, as `mov.u32(tid.x)`, not 3")
def the_same_thread(x: P, n: N) -> None:
    copy_async(tile()[0], x, 64, 3, 128)  # type: ignore[arg-type] # wrong


@wrong("copied from or to a pointer, `Ptr[bf16]`, not Reg[u32]")
def copy_from_a_register(n: N) -> None:
    load_tile(tile()[0], n, 64, n, 128)  # type: ignore[arg-type] # wrong


@wrong("load_fragment takes the number of a thread in a 32-bit register")
def the_same_lane(n: N) -> None:
    load_fragment(tile()[0], 0, 0, lane=3)  # type: ignore[arg-type] # wrong


@wrong("in steps of 16 from column -16")
def column_before_the_tile(n: N) -> None:
    store_fragment(tile()[0], [mov.f32(1.0)] * 32, n, column=-16)


@wrong("not 2 for 'bf16'")
def packed_by_name(x: Reg[f32]) -> None:
    pack("bf16", x, x)  # type: ignore[arg-type] # wrong


@wrong("not 'bf16'")
def unpacked_by_name(x: N) -> None:
    unpack("bf16", x)  # type: ignore[arg-type] # wrong


@wrong("rows_of takes f32 or s32 accumulators")
def rows_of_numbers(x: N) -> None:
    rows_of([1, 2, 3, 4])  # type: ignore[arg-type] # wrong


@wrong("not 'bf16' of 16")
def operands_by_name(x: N) -> None:
    operands_a("bf16", [x] * 8)  # type: ignore[arg-type] # wrong


@wrong("a reduction takes the number of a thread in a 32-bit register, as `mov.u32(tid.x)`, not 3")
def the_same_thread_reduces(n: N) -> None:
    block_reduce(add.u32, n, thread=3)  # type: ignore[arg-type] # wrong


@wrong("coordinates are of a thread in a 32-bit register, as `mov.u32(laneid)`, not of Reg[u64]")
def coordinates_of_a_wide_thread(n: N) -> None:
    wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16.coordinates(mov.u64(1))  # type: ignore[arg-type] # wrong


# --------------------------------------------------------------------------------------------------- pipelines and named barriers


@wrong("NamedBarriers(0, 64): ask for 1 to 15 barriers")
def no_named_barriers(n: N) -> None:
    NamedBarriers(0, 64)


@wrong("NamedBarriers(-1, 64): ask for 1 to 15 barriers")
def fewer_named_barriers_than_none(n: N) -> None:
    NamedBarriers(-1, 64)


@wrong("ask for 1 to 15 barriers, an int")
def named_barriers_by_register(n: N) -> None:
    NamedBarriers(n, 64)  # type: ignore[arg-type] # wrong


@wrong("32 to 1024 threads, not 63")
def named_barriers_of_no_whole_warps(n: N) -> None:
    NamedBarriers(2, 63)


@wrong("32 to 1024 threads, not Reg[u32]")
def named_barrier_for_a_register(n: N) -> None:
    NamedBarrier(n)  # type: ignore[arg-type] # wrong


@wrong("a named barrier is called by an int or a 32-bit register, not 1.5")
def named_barrier_with_a_fraction(n: N) -> None:
    NamedBarrier(64, 1.5)  # type: ignore[arg-type] # wrong


@wrong("named barriers are indexed with an int or a 32-bit register, not 1.5")
def named_barriers_with_a_fraction(n: N) -> None:
    NamedBarriers(2, 64)[1.5]  # type: ignore[index] # wrong


@wrong("bytes=-5: copies bring 0 to 1,048,575 bytes to a stage")
def fewer_bytes_than_none(n: N) -> None:
    Pipeline(2, consumers=32, bytes=-5)


@wrong("bytes=2097152: copies bring 0 to 1,048,575 bytes")
def more_bytes_than_a_phase_counts(n: N) -> None:
    Pipeline(2, consumers=32, bytes=1 << 21)


@wrong("consumers=0: a phase waits for 1 to 1,048,575 arrivals")
def no_consumers(n: N) -> None:
    Pipeline(2, consumers=0)


@wrong("producers=-1: a phase waits for 1 to 1,048,575 arrivals")
def fewer_producers_than_none(n: N) -> None:
    Pipeline(2, consumers=32, producers=-1)


@pytest.mark.parametrize(("function", "words"), CASES, ids=lambda each: getattr(each, "__name__", ""))
def test_a_mistake_is_one_sentence(function: Callable[..., None], words: str) -> None:
    refused(function, words)


def test_what_is_right_stays_so() -> None:
    def kernel(x: P, n: N) -> None:
        assert not hasattr(tile(), "at")
        tile()[0].at(tid.x, 0)
        load_tile(tile()[0], x, 64, tid.x, 128)  # type: ignore[arg-type]
        NamedBarriers(2, 64)[n]
        Pipeline(2, consumers=32, bytes=0)
        ld.shared__cta.u32(smem.array(u32, 4)[tid.x])

    trace(kernel)


# --------------------------------------------------------------------------------------------------- blocks, grids and conditions


def empty(x: Ptr[u32], *, BM: int = 64) -> None:
    st.global_.u32(x, BM)


def test_a_block_is_at_most_64_threads_deep() -> None:
    with pytest.raises(TraceError, match="a block has at most 64 threads along z, not 65: give `empty` those along x or y"):
        kernel(block=(1, 1, 65))(empty).ptx()
    assert "reqntid 1, 1, 64" in kernel(block=(1, 1, 64))(empty).ptx()


@pytest.mark.parametrize("what", ["block", "cluster", "directives"])
def test_a_function_of_the_configuration_that_raises(what: str) -> None:
    unknown = lambda config: config["X"]  # noqa: E731
    divided = lambda config: config["BM"] // 0  # noqa: E731
    for function, words in ((unknown, f"{what} asks for 'X', and the configuration has BM: take one of these, or give the kernel a "
                             "keyword-only parameter of that name"),
                            (divided, f"{what} raised ZeroDivisionError for the configuration BM=64: ")):
        how: Any = {"block": 128, what: function}
        with pytest.raises(TraceError) as caught:
            kernel(**how)(empty).ptx()
        assert str(caught.value).startswith(f"{__file__}:{function.__code__.co_firstlineno}: {words}"), str(caught.value)


def test_a_grid_that_raises() -> None:
    made: Any = kernel(block=32)(empty)
    grid = lambda config: config["X"]  # noqa: E731
    with pytest.raises(PtxkitError) as caught:
        made.bench(grid=grid, args=(np.zeros(1, np.uint32),), device="cpu")
    assert isinstance(caught.value, LaunchError)
    assert str(caught.value).startswith(f"{__file__}:{grid.__code__.co_firstlineno}: grid asks for 'X', and the configuration has BM: ")
    with pytest.raises(PtxkitError, match="grid asks for 'X'"):
        made.tune(Space(BM=(64, 128)), grid=grid, args=(np.zeros(1, np.uint32),), device="cpu")


def test_a_condition_that_raises() -> None:
    condition = lambda BM: 128 // (BM - 64)  # noqa: E731
    with pytest.raises(SpaceError) as caught:
        Space(BM=(32, 64)).where(condition, "some").points()
    assert str(caught.value).startswith(f"{__file__}:{condition.__code__.co_firstlineno}: a condition of the space raised "
                                        "ZeroDivisionError for the configuration BM=64: ")


# --------------------------------------------------------------------------------------------------- files of a benchmark


def test_files_of_a_benchmark_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is refused before anything is measured."""
    made: Any = kernel(block=32)(empty)

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("it was measured")

    monkeypatch.setattr("ptxkit.measure.bench._Bench", never)
    for options, words in (({"json": tmp_path / "none" / "b.json"}, "b.json' cannot be written, because there is no folder"),
                           ({"plot": tmp_path / "none" / "b.svg"}, "b.svg' cannot be written, because there is no folder"),
                           ({"json": tmp_path}, "cannot be written, because it is a folder"),
                           ({"json": None}, "json= is the path of a file to write, as json='bench.json', not None"),
                           ({"plot": 3}, "plot= is the path of a file to write, as plot='bench.svg', not 3"),
                           ({"plot": tmp_path / "b.xyz"}, "b.xyz: ")):
        with pytest.raises(PtxkitError) as caught:
            made.bench(grid=1, args=(np.zeros(1, np.uint32),), device="cpu", **options)
        assert words in str(caught.value)
        assert "--plot" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
