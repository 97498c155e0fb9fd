"""Timelines of launches with marks: how they are launched, and the trace, the page, the sums and the clocks that they show."""

from __future__ import annotations

import contextlib
import json
import re
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from ptxkit import Ptr, if_, kernel, mark, role, sim, span, tid
from ptxkit.errors import LaunchError
from ptxkit.ptx import mov
from ptxkit.timeline import Timeline, launched
from ptxkit.types import u32
from tests.ptxkit.marked import counts, run, written

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]

# A launch, on a driver that is the CPU device.


class Memory:
    """In place of an array in device memory."""

    held: ClassVar[dict[int, np.ndarray[Any, Any]]] = {}

    def __init__(self, shape: tuple[int, ...], dtype: str, device: int | None = None) -> None:
        self.pointer = 4096 * (1 + len(self.held))
        self.held[self.pointer] = np.full(shape, 7, np.uint64)

    @property
    def nbytes(self) -> int:
        return self.held[self.pointer].nbytes

    def numpy(self) -> np.ndarray[Any, Any]:
        return self.held[self.pointer]


class Driver:
    """What a timeline asks of a driver. An event's time is a ms later than the one before."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def call(self, name: str, *what: Any) -> Any:
        self.asked.append(name)
        if name == "cuMemsetD8":
            Memory.held[what[0]].view(np.uint8)[:what[2]] = what[1]
        return {"cuEventCreate": 1, "cuEventElapsedTime": 2.0}.get(name)

    def synchronize(self, ordinal: int) -> None:
        self.asked.append("wait")

    def on(self, ordinal: int) -> Any:
        return contextlib.nullcontext()

    def device(self, ordinal: int) -> Any:
        return SimpleNamespace(name="a card")


class Loaded:
    """In place of a compiled kernel: it runs on the CPU device."""

    ordinal = 0

    def __init__(self, kernel: Any, marks: Any, launches: list[bool]) -> None:
        self.traced, self.launches = kernel.trace(marks=marks), launches

    def __call__(self, grid: Any, *args: Any, stream: Any = None, **named: Any) -> None:
        given = [*args, *(Memory.held[value] if name == "ptxkit_marks" else value for name, value in named.items())]
        self.launches.append(bool(named))
        sim.run(self.traced, grid=grid, args=given)


def test_a_launch_with_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    monkeypatch.setattr(launched, "driver", driver)
    monkeypatch.setattr(launched, "DeviceArray", Memory)
    marked, launches = written(mark, span, role), list[bool]()
    monkeypatch.setattr(type(marked), "compile", lambda self, marks=False: Loaded(self, marks, launches))
    args = (np.zeros(1024, np.uint32), 3, 1)
    timeline = marked.timeline(2, *args, stream=5, rounds=2)
    assert counts(timeline.tracks) == counts(run(marked, 2, 3, 1).tracks)
    assert timeline.device == "a card"
    assert str(timeline.overhead) == "overhead +0.0 %: 500 us without marks, 500 us with them, medians of 2 rounds in turn"
    assert launches == [True, *([False] * 5 + [True] * 5) * 3]
    assert driver.asked[:3] == ["wait", "cuMemsetD8", "wait"]
    assert driver.asked.count("cuEventDestroy") == 2
    del launches[:]
    assert marked.timeline(2, *args, rounds=0, marks=("stage",), events=2).dropped == 2 * (3 - 2)
    assert launches == [True]

    @kernel(block=32)
    def single(x: Ptr[u32]) -> None:
        with if_(mov.u32(tid.x) == 7):
            mark("there")

    assert single.timeline(1, args[0], stream=5, rounds=1).lost == 1              # of one launch, not of all rounds
    with pytest.raises(LaunchError, match="2 were given: `m` needs"):
        marked.timeline(2, *args[:2])
    with pytest.raises(LaunchError, match="was compiled without marks"):
        marked.timeline(2, *args, marks=False)


# The trace and the page.


@pytest.fixture(scope="module")
def shown() -> Timeline:
    timeline: Timeline = run(written(mark, span, role), 4, 3, 1)
    return timeline


def test_the_trace_holds_every_span_once(shown: Timeline, tmp_path: Any) -> None:
    shown.trace(tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    named = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert len(named) == 12
    assert named[1, 2] == "CTA 0 warp 1 consumer"
    spans = [event for event in events if event.get("cat") == "span"]
    assert len(spans) == sum(len(track.ids) for track in shown.tracks)
    assert {(event["pid"], event["tid"]) for event in spans} <= set(named)
    assert sum(event["args"]["clocks"] for event in spans if event["name"] == "stage") == shown.clocks("stage").sum()
    assert len([event for event in events if event.get("cat") == "mark"]) == sum(len(track.points) for track in shown.tracks)
    shown.trace(tmp_path / "t.json", sms=1)
    assert {event["pid"] for event in json.loads((tmp_path / "t.json").read_text())["traceEvents"]} == {1}


def test_the_page_shows_rows_of_sms_and_roles(shown: Timeline, tmp_path: Any) -> None:
    shown.page(tmp_path / "t.html", sms=2)
    text = (tmp_path / "t.html").read_text()
    assert re.findall(r">(SM \d CTA \d \w+)", text).count("SM 1 CTA 1 consumer") == 1
    assert "SM 2" not in text
    assert text.count("<title>load: ") == 2 * 3
    assert text.count("<title>stage: ") == 2 * 3
    assert "<script" not in text
    assert "the CPU device" in text
    cell = shown._repr_html_()
    assert all(word in cell for word in ("SM 1 CTA 1 consumer", "<title>load: ", "<title>stage: ", "the CPU device"))


def test_sums_are_those_of_the_spans(shown: Timeline) -> None:
    for total in shown.totals():
        each = [span.clocks for track in shown.of_role(total.role) for span in track.spans(total.name)]
        assert total.count == len(each)
        assert total.mean == pytest.approx(np.mean(each))
        assert 0 < total.part <= 1


# Clocks of SMs.


def test_clocks_of_sms_are_aligned_by_globaltimer() -> None:
    """Three SMs with clocks of their own, 1.5 clocks a ns, and a globaltimer in steps of 32 ns: each warp is where it was, within two."""
    from ptxkit.dsl.marks import Named
    from ptxkit.timeline.buffer import EVENT_TYPE, Plan, Slice

    generator = np.random.default_rng(1)
    zero, offsets = 5_000_000_000, (10**6, 77, 123_456_789_000)
    slices, true = [], []
    for warp in range(30):
        sm = warp % 3
        begin = int(generator.integers(0, 50_000))
        end = begin + int(generator.integers(40_000, 90_000))
        clock = tuple(int(offsets[sm] + 1.5 * at) for at in (begin, end))
        middle = (begin + end) // 2
        events = np.array([(int(offsets[sm] + 1.5 * middle), 300, 0)], EVENT_TYPE)
        slices.append(Slice(warp, 0, 0, sm, clock, tuple((zero + at) // 32 * 32 for at in (begin, end)), 1, 1, 0, events))
        true.append((begin, middle - 200, end))
    timeline = Timeline.of("k", Named(("s",), ("",)), Plan(30, 1, 1), slices, device="a card")
    assert timeline.resolution == 32
    first = min(begin for begin, _, _ in true)
    for track, (begin, at, end) in zip(timeline.tracks, true, strict=True):
        (each,) = track.spans()
        assert np.abs(np.array([track.begin - begin, each.begin - at, track.end - end]) + first).max() < 64
