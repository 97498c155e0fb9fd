"""A run as a trace in Chrome's trace event format, which Perfetto and chrome://tracing show.

A microsecond of the trace is one event of the run. A process is a CTA (or a cluster's barrier), a thread a warp, a barrier, or a place
for an asynchronous operation in flight.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .events import Event, Record, Who, people
from .outcome import Outcome
from .picture import cta_of, slots
from .svg import phase_words

if TYPE_CHECKING:
    from .replay import Replay

BARRIERS, FLIGHTS = 1_000, 2_000
"""The first thread numbers of barriers and of operations in flight; a warp's is its index + 1."""
CLUSTERS = 1_000_000
"""The process of the barriers of clusters."""
ELSEWHERE = frozenset(("landed", "read", "wgmma_done", "mbarrier_complete_tx", "copies_arrive"))
"""Events that no warp executes at the time."""
Row = dict[str, Any]


def trace(replay: Replay) -> Row:
    """Run the launch under its schedule; the trace as an object for JSON."""
    return traced(*replay.record(), name=replay.trial.launch.name)


def traced(outcome: Outcome, recorder: Record, *, name: str) -> Row:
    made = _Trace(recorder)
    dropped = recorder.count - len(recorder.events)
    about = {"kernel": name, "verdict": outcome.report.verdict, "findings": [str(finding) for finding in outcome.report.findings],
             "unit": "one microsecond is one event"}
    if dropped:
        about["left out"] = f"the first {dropped:,} of {recorder.count:,} events"
    return {"traceEvents": list(made.rows()), "displayTimeUnit": "ms", "otherData": about}


class _Trace:
    def __init__(self, recorder: Record) -> None:
        self.recorder = recorder
        self.low = recorder.events[0].number if recorder.events else 0
        self.flows = 0
        self.barriers: dict[str, tuple[int, int]] = {}
        self.flights: dict[int, tuple[int, int]] = {}

    def rows(self) -> Iterator[Row]:
        yield from self._names()
        yield from self._turns()
        yield from self._events()
        yield from self._phases()
        yield from self._flights()
        yield from self._waits()
        yield from self._findings()

    def _slice(self, name: str, cat: str, track: tuple[int, int], start: int, end: int, /, **args: Any) -> Row:
        start = max(start, self.low)
        pid, tid = track
        return {"name": name, "cat": cat, "ph": "X", "pid": pid, "tid": tid, "ts": start, "dur": max(end - start, 1), "args": args}

    def _flow(self, name: str, one: tuple[int, int], start: int, two: tuple[int, int], end: int) -> Iterator[Row]:
        """An arrow between two slices, each of which is there at its time."""
        if start < self.low or end < start:
            return
        self.flows += 1
        same: Row = {"name": name, "cat": "flow", "id": self.flows}
        yield {**same, "ph": "s", "pid": one[0], "tid": one[1], "ts": start}
        yield {**same, "ph": "f", "bp": "e", "pid": two[0], "tid": two[1], "ts": end}

    # ------------------------------------------------------------------------------------------- names

    def _names(self) -> Iterator[Row]:
        warps = sorted({event.who for event in self.recorder.events if event.who is not None} | {who for _, who in self.recorder.turns})
        for cta in sorted({who[0] for who in warps}):
            yield from process(cta + 1, f"CTA {cta}", cta)
            for who in warps:
                if who[0] == cta:
                    yield from thread(place(who), f"warp {who[1]}", who[1])
            for i, slot in enumerate(slots(self.recorder, cta)):
                yield from thread((cta + 1, FLIGHTS + i), "in flight", FLIGHTS + i)
                self.flights.update({id(flight): (cta + 1, FLIGHTS + i) for flight in slot})
        if any(cta_of(name) is None for name in self.recorder.phases):
            yield from process(CLUSTERS, "barriers of clusters", CLUSTERS)
        for i, name in enumerate(self.recorder.phases):
            of = cta_of(name)
            self.barriers[name] = CLUSTERS if of is None else of + 1, BARRIERS + i
            yield from thread(self.barriers[name], name, BARRIERS + i)

    # ------------------------------------------------------------------------------------------- warps

    def _turns(self) -> Iterator[Row]:
        turns = list(self.recorder.turns)
        ends = [*(start for start, _ in turns[1:]), self.recorder.count]
        for (start, who), end in zip(turns, ends, strict=True):
            if end > max(start, self.low):
                yield self._slice("runs", "turn", place(who), start, end)

    def _events(self) -> Iterator[Row]:
        said = self.recorder.says
        for event in self.recorder.events:
            if event.who is None or event.kind in ELSEWHERE:
                continue
            where = event.op and (event.op.python or event.op.position)
            name = event.op.opcode if event.op is not None else event.words
            yield self._slice(name, event.kind, place(event.who), event.number, event.number + 1, step=event.step, does=said(event),
                              **({"at": str(where)} if where else {}))
            yield from self._arrows(event)

    def _arrows(self, event: Event) -> Iterator[Row]:
        assert event.who is not None
        here, at = place(event.who), event.number
        to = self.barriers.get(event.row)
        if to is not None and event.kind in ("mbarrier_arrive", "mbarrier_expect_tx", "barrier_arrive", "cluster_arrive"):
            yield from self._flow("arrives", here, at, to, at)
        if to is not None and event.kind in ("mbarrier_test", "barrier_pass", "cluster_pass") and "not complete" not in event.words:
            ends = [phase.end for phase in self.recorder.phases[event.row] if phase.end is not None]
            i = bisect_left(ends, at) - 1
            if i >= 0:
                yield from self._flow("lets go on", to, ends[i], here, at)
        flight = None if event.flight is None else self.flights.get(id(event.flight))
        if flight is not None and event.flight is not None and event.number == event.flight.issued:
            yield from self._flow("issues", here, at, flight, at)

    def _waits(self) -> Iterator[Row]:
        for number, asleep in enumerate(self.recorder.sleeps):
            end = self.recorder.count if asleep.end is None else asleep.end
            if end <= self.low:
                continue
            pid, tid = place(asleep.who)
            same: Row = {"name": asleep.words, "cat": "wait", "id": number, "pid": pid, "tid": tid}
            yield {**same, "ph": "b", "ts": max(asleep.start, self.low),
                   "args": {"who": people(asleep.who, asleep.mask), **({"lacks": asleep.lacks} if asleep.lacks else {})}}
            yield {**same, "ph": "e", "ts": end}

    # ------------------------------------------------------------------------------------------- barriers and operations in flight

    def _phases(self) -> Iterator[Row]:
        for name, phases in self.recorder.phases.items():
            for phase in phases:
                end = self.recorder.count if phase.end is None else phase.end + 1
                if end > self.low:
                    yield self._slice(f"phase {phase.number}", "phase", self.barriers[name], phase.start, end, state=phase_words(phase))

    def _flights(self) -> Iterator[Row]:
        for flight in self.recorder.flights:
            at = self.flights.get(id(flight))
            end = self.recorder.count if flight.landed is None else flight.landed + 1
            if at is not None and end > self.low:
                yield self._slice(flight.words, "flight", at, flight.issued, end, of=people(flight.who), opcode=flight.op.opcode,
                                  **({} if flight.read is None else {"read at": flight.read}))
        for event in self.recorder.events:
            if event.kind == "mbarrier_complete_tx" and event.flight is not None and event.flight.landed is not None:
                at, to = self.flights.get(id(event.flight)), self.barriers.get(event.row)
                if at is not None and to is not None:
                    yield from self._flow("bytes come", at, event.flight.landed, to, event.number)

    def _findings(self) -> Iterator[Row]:
        for mark in self.recorder.marks:
            event = mark.second
            who = event.who if event is not None and event.who is not None else (0, 0)
            at = self.recorder.count if event is None else event.number
            pid, tid = place(who)
            yield {"name": f"[{mark.finding.rule}]", "cat": "finding", "ph": "i", "s": "g", "pid": pid, "tid": tid, "ts": at,
                   "args": {"message": mark.finding.message, "severity": mark.finding.severity, "at": str(mark.finding.position or "")}}
            if mark.first is not None and mark.first.who is not None and event is not None:
                yield from self._flow(mark.finding.rule, place(mark.first.who), mark.first.number, (pid, tid), at)


def place(who: Who) -> tuple[int, int]:
    """(process, thread) of a warp."""
    return who[0] + 1, who[1] + 1


def process(pid: int, name: str, order: int) -> Iterator[Row]:
    yield {"name": "process_name", "ph": "M", "pid": pid, "tid": 0, "ts": 0, "args": {"name": name}}
    yield {"name": "process_sort_index", "ph": "M", "pid": pid, "tid": 0, "ts": 0, "args": {"sort_index": order}}


def thread(at: tuple[int, int], name: str, order: int) -> Iterator[Row]:
    same: Row = {"ph": "M", "pid": at[0], "tid": at[1], "ts": 0}
    yield {**same, "name": "thread_name", "args": {"name": name}}
    yield {**same, "name": "thread_sort_index", "args": {"sort_index": order}}
