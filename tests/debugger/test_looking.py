"""What a session shows of registers, tiles, memory, barriers and operations in flight."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

from examples.tile_gemm import tile_gemm
from ptxkit import Ptr, Reg, TensorMap, else_, for_range, func, if_, kernel, loop, smem, tid
from ptxkit.debugger import debug
from ptxkit.debugger.live import LiveSession
from ptxkit.debugger.values import compact, numbers
from ptxkit.layout import Layout
from ptxkit.proof.given import launch_of
from ptxkit.ptx import add, bar, cp, fence, ld, mbarrier, mov, mul, opcode, st
from ptxkit.sim import SimulationError, UnsupportedError
from ptxkit.types import TYPES, f32, u32

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
ROOT = Path(__file__).parents[2]
NUMPY: dict[str, Any] = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32, "e4m3": ml_dtypes.float8_e4m3fn, "u8": np.uint8,
                         "s32": np.int32}
load = cp.async_.bulk.tensor_2d.shared__cluster.global_.tile.mbarrier__complete_tx__bytes


@kernel(block=32)
def copied(a: TensorMap, row: Reg[u32], column: Reg[u32], *, TYPE: Any = TYPES["bf16"], ROWS: int = 64, COLUMNS: int = 64, MAJOR: Any = "k",
           SWIZZLE: Any = None) -> None:
    """One box for each span of a tile's second stage."""
    tile = smem.tile(TYPE, (2, ROWS, COLUMNS), major=MAJOR, swizzle=SWIZZLE)
    full = smem.mbarrier(1, name="full")
    with if_(mov.u32(tid.x) == 0):
        mbarrier.init.shared__cta.b64(full[0], 1)
        fence.mbarrier_init.release.cluster()
        mbarrier.arrive.expect_tx.shared__cta.b64(full[0], tile.layout.bytes)
        inner, outer = (column, row) if MAJOR == "k" else (row, column)
        for span in range(tile.layout.spans):
            load(tile[1].span(span), a, (inner + span * tile.layout.span, outer), full[0])
        with loop() as spin:
            spin.break_if(mbarrier.try_wait.parity.shared__cta.b64(full[0], 0))
    bar.sync(0)


@pytest.mark.thinned(8)
@pytest.mark.parametrize("seed", range(24))
def test_a_tile_is_what_was_copied(seed: int) -> None:
    """For any type, shape, order and swizzle, at any place of an array; by the tile's name and, as a box, by its address."""
    choice = random.Random(seed)
    name = choice.choice(list(NUMPY))
    type_ = TYPES[name]
    major = choice.choice(("k", "mn"))
    swizzle = choice.choice((128, 64, 32, 16, 0))
    size = type_.bits // 8
    inner = max(swizzle, 16) // size * choice.randint(1, 3)
    outer = 8 * choice.randint(1, 6)
    rows, columns = (outer, inner) if major == "k" else (inner, outer)
    if (swizzle or inner * size) // size > 256:
        inner = 256
    values = np.random.default_rng(seed).integers(0, 100, (rows + 40, columns + 48)).astype(NUMPY[name])
    at = choice.randint(0, 20), 16 * choice.randint(0, 2)
    if major == "mn":
        at = at[1], at[0]
        values = np.random.default_rng(seed).integers(0, 100, (columns + 48, rows + 48)).astype(NUMPY[name]).T
    given = values if major == "k" else values.T
    given = np.ascontiguousarray(np.pad(given, ((0, 0), (0, -given.shape[1] % 16))))
    given = given.view(np.uint8) if name == "e4m3" else given
    session = copied.debug(1, given, *at, TYPE=type_, ROWS=rows, COLUMNS=columns, MAJOR=major, SWIZZLE=swizzle)
    session.phase("full[0]")
    wanted = values[at[0]:at[0] + rows, at[1]:at[1] + columns].astype(np.float64)
    tile = session.tile("tile", 1)
    np.testing.assert_array_equal(tile.values.astype(np.float64), wanted)
    assert tile.values.shape == (rows, columns)
    layout = Layout.of(type_, rows, columns, major=major, swizzle=swizzle)  # type: ignore[arg-type]
    offset, content = session.memory.tiles()["tile"]
    place = f"+{offset - 1024 + content.stage_bytes:#x}"  # type: ignore[union-attr]
    np.testing.assert_array_equal(session.tile(place, layout=layout).values.astype(np.float64), wanted)
    boxes = [session.tile(f"+{offset - 1024 + content.stage_bytes + span * layout.span_stride:#x}").values  # type: ignore[union-attr]
             for span in range(layout.spans)]
    if name != "e4m3":                                       # the map's type is u8
        found = np.concatenate(boxes, axis=1).astype(np.float64)
        np.testing.assert_array_equal(found if major == "k" else found.T, wanted)
    assert not (session.tile("tile", 0).values.astype(np.float64) == wanted).all()


def test_the_pipeline_of_a_product() -> None:
    """Barriers, copies in flight and tiles of a warp-specialised kernel, with what lands when."""
    a, b = (np.random.default_rng(i).integers(-3, 4, (rows, 384)).astype(ml_dtypes.bfloat16) for i, rows in ((0, 64), (1, 256)))
    session = tile_gemm.debug(1, a, b, c := np.full((64, 256), np.nan, np.float32), 6)
    session.late()
    session.break_at("tile_gemm.py:50", skip=2)
    session.go()
    copies = session.flight()
    assert [(row.what, row.bytes, row.target.partition(" ")[0]) for row in copies] == [
        ("tensor load", 8192, "A"), ("tensor load", 32768, "B"), ("tensor load", 8192, "A+8192"), ("tensor load", 32768, "B+32768"),
        ("tensor load", 8192, "A+16384")]
    (full, *_) = session.barriers()
    assert (full.barrier, full.phase, full.pending, full.bytes_outstanding) == ("full[0] of CTA 0", 0, 0, 40960)
    session.land(1)
    assert [row.bytes_outstanding for row in session.barriers()][:2] == [32768, 40960]
    assert [row.number for row in session.flight()] == ["2", "3", "4", "5"]
    np.testing.assert_array_equal(session.tile("A").values, a[:, :64].astype(np.float32))
    session.land(4)
    np.testing.assert_array_equal(session.tile("B", 1).values, b[:, 64:128].astype(np.float32))
    with pytest.raises(SimulationError, match="has no operation 4 in flight"):
        session.land(4)
    waiting = [row for row in session.warps() if row.state == "waits"]
    assert all("full[0]" in row.waits_for and "32,768 bytes outstanding" in row.waits_for for row in waiting)
    assert waiting
    session.delete(1)
    stop = session.phase("empty[1]")
    assert "phase 0 of empty[1] of CTA 0 is complete" in stop.text
    assert session.finish().verdict == "clean"
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32).T)


def test_groups_of_wgmma_in_flight() -> None:
    a, b = np.ones((64, 64), ml_dtypes.bfloat16), np.ones((256, 64), ml_dtypes.bfloat16)
    session = tile_gemm.debug(1, a, b, np.zeros((64, 256), np.float32), 1, schedule="lazy")
    session.break_at("tile_gemm.py:60")                      # commit_group
    session.go()
    rows = [row for row in session.flight() if "wgmma" in row.what]
    assert [(row.what, row.state) for row in rows] == [("4 wgmma", "issued, not committed")]
    session.step()
    assert [(row.what, row.state) for row in session.flight()] == [("wgmma group of 4", "committed by 1 of 4 warps")]
    session.break_at("tile_gemm.py:62")                      # behind the wait
    session.delete(1)
    session.go()
    assert len(session.flight()) == 0


# ----------------------------------------------------------------------------------------------------- names


@func
def scaled(x: Reg[f32], factor: Reg[f32]) -> Reg[f32]:
    return mul.rn.f32(x, factor)


class Two(NamedTuple):
    first: Reg[u32]
    second: Reg[u32]


@dataclass
class Kept:
    only: Reg[u32]


@kernel(block=64)
def named(out: Ptr[f32], n: Reg[u32]) -> None:
    words = smem.array(f32, 64)
    thread = Kept(mov.u32(tid.x)).only
    pair = [*Two(mov.u32(1), thread + 2)]
    with for_range(n, total=mov.f32(0.0)) as loop_:
        index = loop_.index if hasattr(loop_, "index") else thread
        loop_.total = add.rn.f32(loop_.total, 1.5)
    with if_(thread < 32):
        small = thread * 2
        st.shared.u32(words.at(thread), small + pair[1])
    with else_():
        st.shared.u32(words.at(thread), pair[0])
    st.global_.f32(out.at(thread), scaled(loop_.total, loop_.total))
    assert index is not None


def test_registers_have_the_authors_names() -> None:
    out = np.zeros(64, np.float32)
    session = named.debug(1, out, 3)
    line = named.function.__code__.co_firstlineno
    session.break_at(line + 9, warp=0)
    session.go()
    (thread,) = session.registers("thread")
    assert (thread.type, thread.value) == ("u32", "lane")
    np.testing.assert_array_equal(thread.of_values, np.arange(32))
    assert [row.value for row in session.registers("pair")][-1] == "2 + lane"
    assert [row.value for row in session.registers("loop_.total")] == ["4.5"]
    assert [row.name for row in session.registers(thread.register)] == ["thread"]
    session.line()
    assert {row.value for row in session.registers("small")} == {"2 * lane"}
    with pytest.raises(SimulationError, match=r"no register of `named` is called nothing"):
        session.registers("nothing")
    session.break_at(scaled.function.__code__.co_firstlineno + 2, warp=1)
    session.go()
    assert [row.value for row in session.registers("x")] == ["4.5"]
    assert "words" in session.memory.tiles()
    assert session.shared("words", 2, "u32").values.tolist() == [2, 5]
    assert session.array("out")[[0, 63]].tolist() == [20.25, 0]          # what the device has; the caller's array has it at the end
    assert out[0] == 0
    session.finish()
    np.testing.assert_array_equal(out, np.full(64, 20.25, np.float32))


def test_lanes_in_few_words() -> None:
    lanes = np.arange(32, dtype=np.uint32)
    for value, mask, words in ((7, 0xFFFFFFFF, "7"), (lanes, 0xFFFFFFFF, "lane"), (lanes * 4 + 3, 0xF0, "3 + 4 * lane"),
                               (lanes // 16, 0xFFFFFFFF, "lanes 0-15: 0, lanes 16-31: 1"), (lanes, 0, "no lanes"),
                               (lanes % 3, 0xFF, "0 1 2 0 1 2 0 1"), (lanes, 1 << 9, "9")):
        assert compact(numbers(value, 32, "u32"), mask) == words
    assert compact(numbers(0xFFFFFFFF, 32, "s32"), 1) == "-1"
    assert compact(numbers(0x3FC00000, 32, "f32"), 1) == "1.5"
    assert compact(numbers(lanes < 3, 1, "pred"), 0xFFFFFFFF) == "true in lanes 0-2"
    assert compact(numbers(True, 1, "pred"), 3) == "true"
    assert compact(numbers(1 << 100, 128, "b128"), 3) == str(1 << 100)


# ----------------------------------------------------------------------------------------------------- what goes wrong


@kernel(block=64)
def stuck(out: Ptr[u32]) -> None:
    full = smem.mbarrier(1, name="full", check=False)
    words = smem.array(u32, 64, name="words")
    thread = mov.u32(tid.x)
    with if_(thread == 0):
        mbarrier.init.shared__cta.b64(full[0], 2)
    bar.sync(0)
    with if_(thread < 32):
        st.shared.u32(words.at(thread), thread)
        with if_(thread == 0):
            mbarrier.arrive.shared__cta.b64(full[0])
    with else_():
        with loop() as spin:
            spin.break_if(mbarrier.try_wait.parity.shared__cta.b64(full[0], 0))
        st.global_.u32(out.at(thread), ld.shared.u32(words.at(thread - 32)))


def test_a_deadlock_can_be_looked_at() -> None:
    session = stuck.debug(1, np.zeros(64, np.uint32))
    stop = session.go()
    assert stop.reason == "deadlock"
    assert "1 of 2 arrivals are missing on full[0]" in stop.text
    waits = [row for row in session.warps() if row.state == "waits"]
    assert [(row.warp, row.waits_for) for row in waits] == [(1, "phase 0 (parity 0) of full[0] of CTA 0: 1 arrivals pending")]
    (full, *_) = session.barriers()
    assert (full.arrived, full.waiting) == ("CTA 0 warp 0", "CTA 0 warp 1")
    assert session.registers("thread", warp=1)[0].value == "32 + lane"
    assert session.shared("words", 32).values.tolist() == list(range(32))
    assert session.report is not None
    assert session.report.verdict == "error"
    for again in (session.go, session.step, session.late):
        with pytest.raises(SimulationError, match="the run has ended"):
            again()
    session.back(2)
    assert session.report is None
    assert session.go().reason == "deadlock"


def test_a_fault_stands_where_it_was() -> None:
    text = """.version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 out)\n{\n .reg .b64 %rd<3>;\n .reg .b32 %r<2>;
 ld.param.u64 %rd1, [out];\n mov.u32 %r1, 5;\n st.global.u32 [%rd1+400], %r1;\n ret;\n}\n"""
    session = debug(text, 1, np.zeros(4, np.uint32), block=32)
    assert session.go().reason == "fault"
    assert session.registers("%r1")[0].value == "5"
    assert "out-of-bounds" in str(session.stop)


def test_what_cannot_be_simulated_is_named() -> None:
    text = """.version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 out)\n{\n .reg .b64 %rd<3>;\n .reg .b32 %r<9>;
 tex.1d.v4.u32.s32 {%r1, %r2, %r3, %r4}, [%rd1, {%r5}];\n ret;\n}\n"""
    with pytest.raises((UnsupportedError, SimulationError), match=r"line 8: the simulator does not execute `tex\.1d"):
        debug(text, 1, np.zeros(4, np.uint32), block=32)


def test_what_cannot_be_simulated_is_named_at_the_authors_line() -> None:
    @kernel(block=32)
    def added(x: Ptr[u32]) -> None:
        opcode("multimem.red.relaxed.sys.global.add.u32")(x, mov.u32(1))

    place = rf"test_looking\.py:{added.function.__code__.co_firstlineno + 2}:.* does not execute `multimem\.red"
    for run in (added.debug, added.simulate):
        with pytest.raises(UnsupportedError, match=place):
            run(1, np.zeros(4, np.uint32))


def test_what_is_asked_wrong_is_said() -> None:
    session = stuck.debug(1, np.zeros(64, np.uint32))
    for asked, says in ((lambda: session.break_at("x.py:3"), "names no files of the kernel; they are"),
                        (lambda: session.break_at(99999), "has no instruction, nor has a line after it; the last that has one is"),
                        (lambda: session.break_at("here"), "write a line as 12, file.py:12 or ptx:12"),
                        (lambda: session.break_phase("fuull"), "there is no barrier `fuull`; there are full[0], barrier N and cluster"),
                        (lambda: session.delete(7), "there is no breakpoint 7"),
                        (lambda: session.switch(9), "CTA 0 warp 9 is not there"),
                        (lambda: session.tile("nope"), "there is nothing called `nope` in shared memory; there are words"),
                        (lambda: session.tile("words+4"), "no tensor copy has landed there"),
                        (lambda: session.shared("words", 99999), "are beyond the shared memory"),
                        (lambda: session.array("inn"), "no argument is called `inn`; the arrays are out"),
                        (lambda: session.step(0), "at least 1"), (lambda: session.cta(5), "CTA 5 is not on the device")):
        with pytest.raises(SimulationError) as caught:
            asked()
        assert says in str(caught.value)
    session.phase("barrier 0")
    session.switch(1)
    session.run_warp()
    with pytest.raises(SimulationError, match=r"CTA 0 warp 1 waits at .* others must go on first"):
        session.switch(1)
    unchecked = LiveSession(launch_of(stuck.trace(), 1, [np.zeros(64, np.uint32)]), check=False)
    with pytest.raises(SimulationError, match="the checker does not run"):
        unchecked.break_finding()


def test_numbers_that_this_launch_has_not_are_said() -> None:
    """Each would stop nowhere, or show nothing."""
    a, b = (np.ones(shape, ml_dtypes.bfloat16) for shape in ((64, 128), (256, 128)))
    session = tile_gemm.debug(1, a, b, np.zeros((64, 256), np.float32), 2)
    line = tile_gemm.function.__code__.co_firstlineno + 20
    for wrong, words in ((lambda: session.break_at(line, warp=99), "warp is 0 to 7 in this launch, not 99"),
                         (lambda: session.break_at(line, cta=1), "cta is 0 in this launch, not 1"),
                         (lambda: session.break_at(line, skip=-1), "skip is a number from 0 on, not -1"),
                         (lambda: session.break_phase("full", phase=-1), "phase is a number from 0 on, not -1"),
                         (lambda: session.break_phase("full", cta=-1), "cta is 0 in this launch, not -1"),
                         (lambda: session.break_at(0), "lines count from 1"), (lambda: session.break_at(f"ptx:{0}"), "lines count from 1"),
                         (lambda: session.break_phase("full[9]"), "there are full[0] to [3], empty[0] to [3]"),
                         (lambda: session.tile("A", "first"), "stages, 0 to 3, not 'first'"),              # type: ignore[arg-type]
                         (lambda: session.shared("A", -4), "the number of elements is at least 1, not -4"),
                         (lambda: session.shared("A+x"), "is no place in shared memory")):
        with pytest.raises(SimulationError) as caught:
            wrong()
        assert words in str(caught.value)
    assert len(session.breakpoints()) == 0
    same = [str(session.break_at(line, warp=kind(7), cta=kind(0), skip=kind(1))).partition(":")[2] for kind in (int, np.int64, np.uint8)]
    assert len(set(same)) == 1                  # numbers of numpy count too
    assert session.tile("A", np.int64(1)).what == session.tile("A", 1).what    # type: ignore[arg-type]


def test_lines_of_what_was_inlined() -> None:
    """nvcc inlines `square` and `norm`: their own lines can be stopped at, and the line of the call has it all."""
    text = (ROOT / "tests" / "corpus" / "lines.ptx").read_text()
    arrays = [np.arange(96, dtype=np.float32), np.ones(96, np.float32), np.zeros(32, np.float32)]
    session = debug(text, 1, *arrays, 3, entry="lines", block=32)
    source = (ROOT / "tests" / "corpus" / "lines.cu").read_text().splitlines()
    call = next(i for i, line in enumerate(source, 1) if "norm(a +" in line)
    inlined = next(i for i, line in enumerate(source, 1) if "s += square" in line)
    assert str(session.lines.find("lines.cu:1")) == f"lines.cu:{min(session.lines.files['lines.cu'])}"
    inner, outer = session.break_at(f"lines.cu:{inlined}"), session.break_at(f"lines.cu:{call}")
    assert str(inner) == f"break 1 at lines.cu:{inlined}"
    positions = set()
    while session.report is None:
        stop = session.go()
        if stop.number == inner.number:
            positions.add(stop.position.line if stop.position is not None else 0)
    assert inner.hits > outer.hits > 0
    assert call in positions                                 # where the author called it
