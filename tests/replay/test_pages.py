"""The page of a replay: one file that needs nothing else, and has every finding. The recorder: it tells of everything that happens."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from ptxkit import Ptr, kernel, smem, tid
from ptxkit.ptx import ld, mov, st
from ptxkit.replay import Choices, Replay, search
from ptxkit.replay.events import crowd
from ptxkit.replay.page import LISTED, made
from ptxkit.replay.picture import MOST_COLUMNS, picture
from ptxkit.replay.record import Recorder
from ptxkit.replay.trace import traced
from ptxkit.sim.observer import Observer, Several
from ptxkit.types import u32
from tests.sim.mutants.subjects import SUBJECTS

from .kernels import CROSSED, LATE, NEIGHBOUR, OVERTAKEN, RACE, trial
from .programs import WORDS, program

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]

VOID = {"meta", "br"}


class Reader(HTMLParser):
    """Holds that tags are balanced; collects the text, the attributes and what of the page refers to anything."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.text: list[str] = []
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            assert not name.startswith("on"), "the page has a handler in an attribute"
            if name in ("href", "src", "xlink:href"):
                self.links.append(value)
            if name == "id":
                self.ids.add(value)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["style"], ["script"]):
            self.text.append(data)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


def holds(replay: Replay) -> tuple[Reader, Recorder]:
    outcome, recorder = replay.record()
    page = made(replay, outcome, recorder)
    reader = read(page)
    assert not re.search(r"https?:|//[a-z]|@import|url\((?!#)", page)
    assert [link for link in reader.links if not (link.startswith("#") and link[1:] in reader.ids)] == []
    text = " ".join("".join(reader.text).split())
    for finding in outcome.report.findings:
        for line in finding.message.splitlines():
            assert " ".join(line.replace("`", "").split()) in text.replace("`", ""), line
        assert finding.rule in text
    svg = page[page.index("<svg"):page.index("</svg>") + 6]
    ElementTree.fromstring(svg)
    return reader, recorder


def of(text: str, grid: int = 1, block: int = 64, arrays: int = 1) -> Replay:
    found = search(text, grid, *[np.zeros(64, np.uint32)] * arrays, block=block)
    assert found.replay is not None
    return found.replay


@pytest.mark.parametrize(("text", "grid", "block", "arrays"), [(RACE, 1, 64, 1), (NEIGHBOUR, 1, 64, 1), (LATE, 2, 32, 1),
                                                               (CROSSED, 1, 64, 0), (OVERTAKEN, 1, 64, 1)])
def test_pages_of_failures(text: str, grid: int, block: int, arrays: int) -> None:
    holds(of(text, grid, block, arrays))


@pytest.mark.parametrize("seed", range(12))
def test_pages_of_random_programs(seed: int) -> None:
    args = [np.arange(WORDS, dtype=np.uint32), np.zeros(64, np.uint32)]
    holds(Replay(trial(program(seed), 2, *args, block=64, max_steps=20_000), Choices()))


@pytest.mark.parametrize("name", ["hgemm", "tile_gemm", "exchange", "nvcc.multistage", "cluster_multicast", "retarget"])
def test_pages_of_whole_kernels(name: str) -> None:
    subject = SUBJECTS[name]
    args, _, how = subject.launch()
    reader, recorder = holds(Replay(trial(subject.original, args=args, entry=subject.entry, **how), Choices()))
    assert recorder.marks == [] or all(mark.finding.severity != "error" for mark in recorder.marks)
    assert f"All {recorder.count:,} events as text" in "".join(reader.text)


def test_the_two_accesses_of_a_race_are_marked() -> None:
    replay = of(NEIGHBOUR)
    reader, recorder = holds(replay)
    assert {"mark1", "mark2"} <= reader.ids
    text = "".join(reader.text)
    assert "nothing orders these two" in text
    mark = next(mark for mark in recorder.marks if mark.finding.rule == "shared-race")
    assert mark.first is not None
    assert mark.second is not None
    lines = NEIGHBOUR.splitlines()
    for event in (mark.first, mark.second):
        assert event.op is not None
        assert event.op.position is not None
        source = lines[event.op.position.line - 1].strip()
        assert re.match(r"(st|ld)\.shared", source)
        assert source in text
    assert mark.first.who != mark.second.who
    assert f"(line {mark.first.op.position.line})" in mark.finding.message


def racing() -> Any:
    @kernel(target="sm_90a", block=64)
    def swap(out: Ptr[u32]) -> None:
        words = smem.array(u32, 64, name="words")
        thread = mov.u32(tid.x)
        st.shared.u32(words.at(thread), thread)
        st.global_.u32(out.at(thread), ld.shared.u32(words.at(thread ^ 32)))

    return swap


def test_python_lines_are_shown() -> None:
    found = search(racing(), 1, np.zeros(64, np.uint32))
    assert found.replay is not None
    reader, _ = holds(found.replay)
    text = "".join(reader.text)
    assert "st.shared.u32(words.at(thread), thread)" in text
    assert "ld.shared.u32(words.at(thread ^ 32))" in text
    assert "test_pages.py" in text
    assert re.search(r"PTX:\d+", text)


def test_a_deadlock_says_who_waits_for_whom() -> None:
    reader, recorder = holds(of(CROSSED, arrays=0))
    text = " ".join("".join(reader.text).split())
    assert "CTA 0 warp 1 waits for phase 0 of one of CTA 0 at line 26: 0 of 1 arrivals, would come from CTA 0 warp 0" in text
    assert "CTA 0 warp 0 waits for phase 0 of two of CTA 0 at line 32: 0 of 1 arrivals, would come from CTA 0 warp 1" in text
    ends = [asleep for asleep in recorder.sleeps if asleep.end is None]
    assert {(asleep.who, asleep.missing) for asleep in ends} == {((0, 0), ((0, 1),)), ((0, 1), ((0, 0),))}
    reader, recorder = holds(of(OVERTAKEN))
    assert "0 of 1 arrivals, missing: CTA 0 warp 0 lane 0" in "".join(reader.text)


def test_crowds() -> None:
    assert crowd([(0, 3)]) == "CTA 0 warp 3"
    assert crowd([(1, 7), (0, 4), (0, 5), (0, 6), (0, 9), (1, 7)]) == "CTA 0 warps 4-6, 9, CTA 1 warp 7"


def test_other_memory_is_marked_where_it_was_written() -> None:
    reader, _ = holds(of(LATE, 2, 32))
    text = "".join(reader.text)
    assert "In this schedule out[1] is 0, first come first run gives 7" in text
    assert "st.global.u32 [%rd0+4], %r2;" in text
    assert "mark!" in reader.ids


def test_texts_are_escaped() -> None:
    """A file's name is the one text in PTX that may hold anything."""
    evil = "<img src=x onerror=alert(1)>&\\u0022.cu"
    text = RACE.replace(".visible", f'.file 1 "{evil}"\n.visible').replace("\tst.shared", "\t.loc 1 3 0\n\tst.shared")
    replay = Replay(trial(text, 1, np.zeros(64, np.uint32), block=64), Choices())
    outcome, recorder = replay.record()
    page = made(replay, outcome, recorder)
    assert "<img" in str(outcome.report)
    assert "img" not in read(page).tags


def test_a_page_of_very_many_events_says_what_it_leaves_out() -> None:
    from tests.sim.kernels import OUT
    from tests.sim.kernels import kernel as text

    loop = text(OUT + """mov.u32 %r5, 0;
TOP:
st.global.u32 [%rd1], %r5;
add.u32 %r5, %r5, 1;
setp.lt.u32 %p1, %r5, 6000;
@%p1 bra TOP;
st.shared.u32 [word], %r0;
ld.shared.u32 %r6, [word];
st.global.u32 [%rd1], %r6;""", before=".shared .align 4 .b32 word;\n")
    replay = Replay(trial(loop, 1, np.zeros(64, np.uint32), block=64), Choices())
    outcome, recorder = replay.record(limit=10_000)
    assert recorder.count > 12_000
    assert len(recorder.events) == recorder.limit
    page = made(replay, outcome, recorder)
    assert len(page) < 2_000_000
    reader = read(page)
    text_of_page = "".join(reader.text)
    assert f"Only the last 10,000 of {recorder.count:,} events were kept." in text_of_page
    assert f"The last {LISTED:,} of them:" in text_of_page
    assert {"mark1", "mark2"} <= reader.ids
    assert len(picture(recorder).columns) <= MOST_COLUMNS + 20
    check_trace(traced(outcome, recorder, name="loop"))


# ----------------------------------------------------------------------------------------------------- the recorder


def hooks() -> list[str]:
    """All but questions."""
    return [name for name, value in vars(Observer).items() if callable(value) and value.__annotations__["return"] == "None"]


def test_the_recorder_has_every_hook_of_an_observer() -> None:
    assert [name for name in hooks() if getattr(Recorder, name) is getattr(Observer, name)] == []
    assert len(hooks()) > 30
    assert "follows" not in hooks()


class Counting(Observer):
    """Counts each hook's calls."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}


def _counted(name: str) -> Any:
    def hook(self: Counting, *args: Any) -> None:
        if name != "access" or args[4].space in ("shared", "global"):
            self.calls[name] = self.calls.get(name, 0) + 1

    return hook


for _name in hooks():
    setattr(Counting, _name, _counted(_name))


@pytest.mark.parametrize("name", ["hgemm", "exchange", "nvcc.multistage", "retarget", "named", "staged_mma", "mail", "bulk_sum"])
def test_each_event_of_an_observer_is_written_down(name: str) -> None:
    subject = SUBJECTS[name]
    args, _, how = subject.launch()
    counting, recorder = Counting(), Recorder()
    report = trial(subject.original, args=args, entry=subject.entry, **how).run("random", 1, observers=[counting, recorder]).report
    recorder.close(report)
    said = dict(recorder.said)
    said["landed"] = said.get("landed", 0) + said.pop("read", 0)
    counting.calls.pop("begin")
    assert {kind: count for kind, count in said.items() if count} == counting.calls
    assert sum(recorder.said.values()) == recorder.count
    numbers = [event.number for event in recorder.events]
    assert numbers == sorted(numbers)
    steps = [event.step for event in recorder.events if event.op is not None and event.who is not None and event.kind == "access"]
    assert steps == sorted(steps), "steps are numbers of warp instructions, in order"


def test_several_observers_are_told_the_same() -> None:
    one, two = Counting(), Counting()
    trial(RACE, 1, np.zeros(64, np.uint32), block=64).run(check=False, observers=[one, two])
    assert one.calls == two.calls
    assert one.calls["access"] == 6
    alone = Several([one])
    alone.touch(None, None)  # type: ignore[arg-type]
    assert one.calls["touch"] == 1


def test_phases_count_what_came() -> None:
    subject = SUBJECTS["tile_gemm"]
    args, _, how = subject.launch()
    _, recorder = Replay(trial(subject.original, args=args, entry=subject.entry, **how), Choices()).record()
    complete = [phase for name, phases in recorder.phases.items() if name.startswith("full") for phase in phases if phase.end is not None]
    assert complete
    for phase in complete:
        assert phase.announced == phase.came > 0
        assert sum(count for _, _, _, count in phase.arrivals) == phase.wanted == 1
    assert all(flight.landed is not None for flight in recorder.flights)


# ----------------------------------------------------------------------------------------------------- the trace


def check_trace(trace: Any) -> None:
    """The rules of the trace event format that a viewer relies on, written from its description."""
    trace = json.loads(json.dumps(trace))
    assert trace["displayTimeUnit"] in ("ms", "ns")
    rows = trace["traceEvents"]
    slices: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for row in rows:
        assert {"name", "ph", "pid", "tid", "ts"} <= row.keys()
        assert isinstance(row["name"], str)
        assert all(isinstance(row[name], int) and row[name] >= 0 for name in ("pid", "tid", "ts"))
        match row["ph"]:
            case "X":
                assert isinstance(row["dur"], int)
                assert row["dur"] >= 1
                slices.setdefault((row["pid"], row["tid"]), []).append((row["ts"], row["ts"] + row["dur"]))
            case "M":
                assert row["name"] in ("process_name", "thread_name", "process_sort_index", "thread_sort_index")
                assert set(row["args"]) <= {"name", "sort_index"}
            case "s" | "f" | "b" | "e":
                assert "cat" in row
                assert "id" in row
            case "i":
                assert row["s"] == "g"
            case other:
                raise AssertionError(other)
    for spans in slices.values():
        nested(spans)
    for kind, start, end in (("flow", "s", "f"), ("wait", "b", "e")):
        ids = [[(row["cat"], row["id"], row["name"]) for row in rows if row["ph"] == ph] for ph in (start, end)]
        assert sorted(ids[0]) == sorted(ids[1]), kind
        assert len(set(ids[0])) == len(ids[0])
    when = {(row["cat"], row["id"], row["ph"]): row for row in rows if row["ph"] in "sfbe"}
    for (cat, number, ph), row in when.items():
        if ph in "fe":
            assert when[cat, number, "s" if ph == "f" else "b"]["ts"] <= row["ts"]
    named = {(row["pid"], row["tid"]) for row in rows if row["name"] == "thread_name"}
    assert {(row["pid"], row["tid"]) for row in rows if row["ph"] != "M" and row["ph"] != "i"} <= named
    assert {row["pid"] for row in rows} == {row["pid"] for row in rows if row["name"] == "process_name"}
    bound(rows, slices)


def nested(spans: list[tuple[int, int]]) -> None:
    """Slices of one thread lie within each other, or apart."""
    open_: list[int] = []
    for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
        while open_ and open_[-1] <= start:
            open_.pop()
        assert not open_ or end <= open_[-1], "two slices of one thread overlap in part"
        open_.append(end)


def bound(rows: list[Any], slices: dict[tuple[int, int], list[tuple[int, int]]]) -> None:
    """Both ends of an arrow lie in a slice, else no viewer draws it."""
    for place, found in slices.items():
        slices[place] = sorted(found)
    for row in rows:
        if row["ph"] in "sf":
            assert any(start <= row["ts"] < end for start, end in _near(slices.get((row["pid"], row["tid"]), []), row["ts"])), row


def _near(spans: list[tuple[int, int]], at: int) -> Iterator[tuple[int, int]]:
    from bisect import bisect_right

    i = bisect_right(spans, (at, 1 << 60))
    yield from spans[max(i - 40, 0):i]
    yield from spans[:1]


@pytest.mark.parametrize("name", ["hgemm", "exchange", "nvcc.multistage", "staged_mma", "cluster_multicast"])
@pytest.mark.parametrize("schedule", ["fifo", "random"])
def test_traces_of_whole_kernels(name: str, schedule: str) -> None:
    from ptxkit.replay.policies import Recording
    from ptxkit.sim.policy import policy_of

    subject = SUBJECTS[name]
    args, _, how = subject.launch()
    recorder = Recorder()
    policy = Recording(policy_of(schedule, 2), recorder.turned)
    outcome = trial(subject.original, args=args, entry=subject.entry, **how).run(policy, observers=[recorder])
    recorder.close(outcome.report)
    check_trace(traced(outcome, recorder, name=name))


@pytest.mark.parametrize(("text", "grid", "block", "arrays"), [(NEIGHBOUR, 1, 64, 1), (LATE, 2, 32, 1), (CROSSED, 1, 64, 0)])
def test_traces_of_failures(tmp_path: Path, text: str, grid: int, block: int, arrays: int) -> None:
    replay = of(text, grid, block, arrays)
    trace = json.loads(replay.trace(tmp_path / "trace.json").read_text())
    check_trace(trace)
    findings = replay.run().report.findings
    assert [row["name"] for row in trace["traceEvents"] if row["ph"] == "i"] == [f"[{finding.rule}]" for finding in findings]
    if text == NEIGHBOUR:
        assert any(row["name"] == "shared-race" and row["ph"] == "s" for row in trace["traceEvents"])
    if text == CROSSED:
        assert any("lacks" in row["args"] for row in trace["traceEvents"] if row["ph"] == "b")


def test_the_rules_of_a_trace_can_fail(tmp_path: Path) -> None:
    good = json.loads(of(NEIGHBOUR).trace(tmp_path / "trace.json").read_text())
    for spoil in ({"ph": "X", "dur": 0}, {"ph": "Q"}, {"ph": "s", "id": 99, "cat": "flow"}, {"ph": "X", "tid": 77, "dur": 1}):
        row = {"name": "n", "pid": 1, "tid": 1, "ts": 1, **spoil}
        with pytest.raises((AssertionError, KeyError)):
            check_trace({**good, "traceEvents": [*good["traceEvents"], row]})


def test_replays_are_saved(tmp_path: Path) -> None:
    replay = of(LATE, 2, 32)
    path = replay.save(tmp_path / "replay.json")
    again = Choices.load(path)
    assert again == replay.choices
    assert Replay(replay.trial, again).run().bytes() == replay.run().bytes()
    assert json.loads(path.read_text())["failure"]["rule"] == "memory"
