"""Marks of a kernel: they are nothing when off; what they say is what ran; and they change nothing of what a run proves."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from ptxkit import Ptr, Reg, ctaid, for_range, func, if_, kernel, loop, mark, role, span, tid
from ptxkit.dsl import raw
from ptxkit.dsl.marks import EVENT, HEADER
from ptxkit.errors import LaunchError, TraceError
from ptxkit.flow import else_
from ptxkit.idioms import cluster_sync
from ptxkit.ptx import add, bar, exit, ld, mov, st
from ptxkit.types import b32, u32
from tests.ptxkit.marked import Nothing, counts, nothing, run, written

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]


def test_marks_that_are_off_are_not_in_the_text() -> None:
    assert written(mark, span, role).ptx(locs=False) == written(nothing, Nothing, nothing).ptx(locs=False)
    assert "clock" in written(mark, span, role).ptx(marks=True)


@pytest.mark.parametrize(("ctas", "n", "m", "schedule"),
                         [(1, 0, 0, "fifo"), (3, 4, 2, "fifo"), (2, 5, 9, "random"), (5, 1, 0, "adversarial")])
def test_every_line_is_counted_as_often_as_it_runs(ctas: int, n: int, m: int, schedule: str) -> None:
    timeline = run(written(mark, span, role), ctas, n, m, schedule=schedule, seed=5)
    assert {track.role for track in timeline.tracks} == {"", "idle", "producer", "consumer"}
    assert counts(timeline.of_role("idle")) == {"leaves": ctas}
    assert counts(timeline.of_role("producer")) == {name: count for name, count in (("load", n * ctas), ("end", ctas)) if count}
    wanted = {"all": 1, "stage": n, "step": 2 * n, "twice": 2 * n, "few": min(n, m), "end": 1}
    assert counts(timeline.of_role("consumer")) == {name: count * ctas for name, count in wanted.items() if count}
    assert counts(timeline.of_role(""))["begin"] == 3 * ctas


@pytest.mark.parametrize("schedule", ["fifo", "random"])
def test_spans_nest_and_lie_within_their_warps(schedule: str) -> None:
    timeline = run(written(mark, span, role), 3, 4, 2, schedule=schedule, seed=1)
    inside = {"stage": "all", "step": "stage", "twice": "step"}
    for track in timeline.tracks:
        spans = list(track.spans())
        assert track.ended
        assert all(track.begin <= each.begin < each.end <= track.end for each in spans)
        assert all(track.begin <= time <= track.end for _, time in track.points)
        for each in spans:
            around = [other.name for other in spans if other.begin < each.begin and each.end < other.end]
            assert len(around) == each.depth
            assert inside.get(each.name) in (*around, None)
        for one in spans:
            for two in spans:
                assert one.end <= two.begin or two.end <= one.begin or one.begin <= two.begin <= two.end <= one.end \
                    or two.begin <= one.begin <= one.end <= two.end
    spans = [span for track in timeline.of_role("consumer") for span in track.spans("stage")]
    whole = [span for track in timeline.of_role("consumer") for span in track.spans("all")]
    assert sum(each.clocks for each in spans) < sum(each.clocks for each in whole)


def test_a_span_takes_the_instructions_of_its_body() -> None:
    """On the CPU device a clock counts warp instructions: of one warp alone, those between the two clocks, and the later clock itself."""

    @kernel(block=32)
    def counted(x: Ptr[u32], *, N: int) -> None:
        value = mov.u32(0)
        with span("body"):
            for _ in range(N):
                add.u32(value, value, 1)
        st.global_.u32(x, value)

    taken = {}
    for count in (0, 1, 7, 100):
        timeline = counted.simulate(1, np.zeros(1, np.uint32), N=count, marks=True).timeline
        (taken[count],) = timeline.clocks("body").tolist()
    assert [taken[count] - taken[0] for count in (1, 7, 100)] == [1, 7, 100]


def test_a_full_slice_is_said_and_not_overrun() -> None:
    marked = written(mark, span, role)
    whole = run(marked, 2, 6, 6)
    assert whole.most == 1 + 6 + 12 + 12 + 6 + 1
    assert whole.dropped == 0
    assert whole.notes() == []
    for room in (1, 5, whole.most - 1):
        timeline = run(marked, 2, 6, 6, events=room)
        assert all(len(track.ids) + len(track.points) <= room for track in timeline.tracks)
        assert timeline.dropped == sum(max(0, len(track.ids) + len(track.points) - room) for track in whole.tracks)
        assert f"{timeline.dropped:,} events are not here; events={whole.most} would hold them all" in str(timeline)
        for few, all_ in zip(timeline.tracks, whole.tracks, strict=True):       # the first ones are there
            assert list(few.ids) == list(all_.ids[:len(few.ids)])
    assert run(marked, 2, 6, 6, events=whole.most).notes() == []


def test_grids_and_blocks_of_three_extents_and_parts_of_warps() -> None:
    @kernel(block=(5, 3, 3))
    def deep(x: Ptr[u32]) -> None:
        with span("s"):
            st.global_.u32(x.at(ctaid.x), 1)

    timeline = deep.simulate((2, 3, 2), np.zeros(2, np.uint32), marks=True).timeline
    assert [(track.cta, track.warp) for track in timeline.tracks] == [(cta, warp) for cta in range(12) for warp in range(2)]
    assert {track.sm for track in timeline.tracks} == set(range(12))
    assert counts(timeline.tracks) == {"s": 24}


def test_only_the_names_that_are_asked_for() -> None:
    marked = written(mark, span, role)
    text = marked.ptx(marks=("stage",))
    assert text.count("st.global.v4.b32") == 1 + 4                          # one event, and the header of each role
    timeline = marked.simulate(1, np.zeros(1024, np.uint32), 3, 1, marks=("stage", "few")).timeline
    assert counts(timeline.tracks) == {"stage": 3, "few": 1}
    with pytest.raises(TraceError, match=r"no mark or span 'stages': it has all, begin, end, few, leaves, load, stage, step, twice"):
        marked.ptx(marks=("stages",))
    with pytest.raises(TraceError, match=r"marks is True, or names of marks and spans"):
        marked.ptx(marks="stage")


def test_marks_of_threads_that_write_none_are_said() -> None:
    @kernel(block=32)
    def single(x: Ptr[u32]) -> None:
        thread = mov.u32(tid.x)
        mark("here")
        with if_(thread == 7):
            mark("there")
            st.global_.u32(x, 1)
        with if_(thread == 0):
            mark("first")

    timeline = single.simulate(1, np.zeros(1, np.uint32), marks=True).timeline
    assert counts(timeline.tracks) == {"here": 1, "first": 1}
    assert timeline.lost == 1
    assert "say role(...) in its body" in str(timeline)

    @kernel(block=32)
    def uneven(x: Ptr[u32]) -> None:
        thread = mov.u32(tid.x)
        with for_range(thread >> 3):
            mark("round")
        st.global_.u32(x.at(thread), 1)

    timeline = uneven.simulate(1, np.zeros(32, np.uint32), marks=True).timeline
    assert [track.more for track in timeline.tracks] == [3]
    assert "another lane ran up to 3 marks more" in str(timeline)


def test_a_way_out_under_a_guard_ends_the_marks() -> None:
    @kernel(block=64)
    def leaving(x: Ptr[u32]) -> None:
        thread = mov.u32(tid.x)
        mark("one")
        exit(pred=thread >= 32)
        mark("two")
        with loop() as again:
            again.break_if(thread < 32)
        st.global_.u32(x.at(thread), 1)

    timeline = leaving.simulate(1, np.zeros(64, np.uint32), marks=True).timeline
    assert [(track.warp, track.ended, [name for name, _ in track.points]) for track in timeline.tracks] == \
        [(0, True, ["one", "two"]), (1, True, ["one"])]


def test_the_certificate_and_the_results_are_those_without_marks() -> None:
    """The marks are outside: clocks in what a kernel stores itself still withhold the certificate."""
    from ptxkit import clock64

    @kernel(block=64)
    def sums(x: Ptr[u32], y: Ptr[u32], *, TIME: bool = False) -> None:
        thread = mov.u32(tid.x)
        with span("load"):
            value = ld.global_.u32(x.at(thread))
        bar.sync(0)
        with span("store"):
            now = mov.u64(clock64)
            st.global_.u32(y.at(thread), add.u32(value, 1))
            if TIME:
                st.global_.u64(y.at(64), now, pred=thread == 0)

    x = np.arange(64, dtype=np.uint32)
    results = []
    for marks in (False, True):
        y = np.zeros(66, np.uint32)
        report = sums.simulate(1, x, y, marks=marks)
        assert (report.verdict, report.every_schedule) == ("clean", True), str(report)
        assert report.partly_written == ("`y`: 8 of 264 bytes were never written",)
        results.append(y)
        timed = sums.simulate(1, x, y.copy(), marks=marks, TIME=True)
        assert timed.verdict == "incomplete"
        assert all(finding.rule == "order-dependence" and "`%clock64`" in finding.message for finding in timed.findings)
    assert (results[0] == results[1]).all()


def test_a_race_is_found_with_marks_on() -> None:
    @kernel(block=64)
    def racy(x: Ptr[u32]) -> None:
        with span("store"):
            st.global_.u32(x, mov.u32(tid.x))

    assert "global-race" in {finding.rule for finding in racy.simulate(1, np.zeros(1, np.uint32), marks=True).findings}


@pytest.mark.parametrize(("body", "words"), [
    (lambda: mark(""), "marks, spans and roles have names"), (lambda: _twice(), "is said twice"), (lambda: _looped(), "stands in a loop")])
def test_what_is_no_mark_says_the_way_out(body: Any, words: str) -> None:
    @kernel(block=32)
    def wrong(x: Ptr[u32]) -> None:
        body()

    with pytest.raises(TraceError, match=words):
        wrong.ptx(marks=True)


def _twice() -> None:
    role("one")
    role("one")


def _looped() -> None:
    with for_range(3):
        role("one")


@pytest.mark.parametrize("marks", [False, True])
def test_an_else_does_not_follow_a_mark(marks: bool) -> None:
    @kernel(block=32)
    def wrong(x: Ptr[u32]) -> None:
        with if_(mov.u32(tid.x) == 0):
            st.global_.u32(x, 1)
        mark("between")
        with else_():
            st.global_.u32(x, 2)

    with pytest.raises(TraceError, match="else_"):
        wrong.ptx(marks=marks)


def test_functions_within_functions_and_clusters() -> None:
    @func
    def inner(x: Reg[u32]) -> Reg[u32]:
        mark("inner")
        with if_(x > 2):
            mark("big")
        return add.u32(x, 1)

    @func
    def outer(x: Reg[u32]) -> Reg[u32]:
        with span("outer"):
            y = inner(inner(x))
            with for_range(y):
                mark("round")
        return y

    @kernel(block=64, cluster=2)
    def nested(x: Ptr[u32], n: Reg[u32]) -> None:
        thread = mov.u32(tid.x)
        with if_(thread >= 32):
            role("second")
            st.global_.u32(x.at(ctaid.x * 64 + thread), outer(n))
        with else_():
            st.global_.u32(x.at(ctaid.x * 64 + thread), outer(n))
        cluster_sync()
        mark("end")

    for n in (1, 2, 3):
        timeline = nested.simulate(4, np.zeros(256, np.uint32), n, marks=True).timeline
        wanted = {"outer": 1, "inner": 2, "big": sum(x > 2 for x in (n, n + 1)), "round": n + 2, "end": 1}
        for name in ("", "second"):
            seen = counts(tuple(track for track in timeline.of_role(name) if (track.warp == 1) == (name == "second")))
            assert seen == {word: 4 * count for word, count in wanted.items() if count}
    assert nested.check(marks=True) == ()


def test_what_is_missing_is_said_of_the_kernels_own_parameters() -> None:
    marked = written(mark, span, role)
    for args, words in (((np.zeros(8, np.uint32), 1), "takes 3 arguments .x, n, m., 2 were given: `m` needs"),
                        ((np.zeros(8, np.uint32), 1, 2, 3), "takes 3 arguments .x, n, m., 4 were given")):
        with pytest.raises(LaunchError, match=words):
            marked.simulate(1, *args, marks=True)
    with pytest.raises(LaunchError, match=r"a launch with marks is marked.timeline\(grid, ...\)"):
        marked.launch(1, 1, 2, 3, marks=True)


def test_functions_of_a_module_have_no_marks() -> None:
    module = raw.Module()

    @raw.function(".func plain (.reg .b32 value)", module)
    def plain(value: Reg[b32]) -> None:
        mark("here")

    @kernel(block=32, module=module)
    def calls(x: Ptr[u32]) -> None:
        mark("there")

    assert "clock" not in calls.ptx()
    with pytest.raises(TraceError, match="'here' stands in `plain`, whose signature is written as PTX"):
        calls.ptx(marks=True)


def test_entries_that_share_a_function_with_marks_are_refused() -> None:
    @func
    def both(x: Reg[u32]) -> Reg[u32]:
        mark("both")
        return add.u32(x, 1)

    module = raw.Module()
    made = []
    for name in ("one", "two"):
        def entry(x: Ptr[u32]) -> None:
            st.global_.u32(x, both(mov.u32(tid.x)))

        made.append(kernel(block=32, module=module, name=name)(entry))
    assert made[0].ptx().count(".entry") == 2
    with pytest.raises(TraceError, match="entries of `one`'s module share the function `both`"):
        made[0].ptx(marks=True)


def test_a_mark_outside_of_a_kernel_is_an_error() -> None:
    with pytest.raises(TraceError, match="while a @kernel function is being traced"):
        mark("here")


def test_a_buffer_that_is_too_large_is_refused() -> None:
    marked = written(mark, span, role)
    for events, words in ((1 << 28, "give events= a smaller number"), (0, "a positive number of events")):
        with pytest.raises(LaunchError, match=words):
            marked.simulate(1, np.zeros(1024, np.uint32), 1, 1, marks=True, events=events)


def test_a_compile_time_parameter_is_not_called_marks() -> None:
    with pytest.raises(TraceError, match="cannot be called `marks`"):
        @kernel(block=32)
        def wrong(x: Ptr[u32], *, marks: int = 1) -> None: ...


def test_the_layout_is_what_the_text_writes() -> None:
    text = written(mark, span, role).ptx(marks=True)
    assert HEADER == 64
    assert f"add.u64 %marks_cursor, %marks_cursor, {EVENT};" in text
    body = text[text.index(".entry"):]
    through = set(re.findall(r"(?:st.global|red)\S* \[(%marks_\w+)", body))
    assert through == {"%marks_cursor", "%marks_at"}


@pytest.mark.ptxas
def test_marks_assemble_without_spills() -> None:
    assembly = written(mark, span, role).assemble(marks=True)
    assert assembly.findings == ()
    assert assembly.resources["marked"].spills == 0
