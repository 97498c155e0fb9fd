"""What a picture of a run has: the events that become columns, and the rows of warps, barriers and asynchronous operations."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .events import Asleep, Event, Flight, Mark, Phase, Record, Who, people

MOST_COLUMNS = 360
MOST_WARPS = 32
MOST_ROWS = 24
"""Barriers, and asynchronous operations in flight at one time, that are drawn for a CTA."""
QUIET = frozenset(("access", "touch", "warp_sync", "wgmma_issue", "issued", "part", "joined", "registers", "tensormap", "polled",
                   "mbarrier_init", "fence", "wgmma_fence", "warp_meet", "shuffled"))
"""Events that may share a column with others of the same warp."""
HIDDEN = frozenset(("cta_begin", "part", "joined", "touch", "polled", "cta_end", "end"))
"""Events that are counted and listed, and have no column."""
SHORT = {"mbarrier_init": "init", "mbarrier_inval": "inval", "mbarrier_expect_tx": "expect", "mbarrier_arrive": "arrive",
         "copies_arrive": "copies arrive", "mbarrier_complete_tx": "bytes", "mbarrier_flip": "flip", "barrier_arrive": "barrier",
         "barrier_complete": "complete", "barrier_pass": "go on", "cluster_arrive": "cluster", "cluster_complete": "complete",
         "cluster_pass": "go on", "slept": "waits", "exited": "exit", "warp_sync": "meet", "warp_meet": "meet", "shuffled": "shuffle",
         "group_commit": "commit", "group_wait": "waited", "wgmma_issue": "wgmma", "wgmma_fence": "fence", "wgmma_commit": "commit",
         "wgmma_done": "done", "wgmma_wait": "waited", "landed": "lands",
         "read": "read", "tensormap": "map", "registers": "regs", "fault": "fault"}


@dataclass(slots=True)
class Column:
    """Neighbouring events that are drawn as one. `gap`: events that were left out here."""

    events: list[Event]
    label: str
    tone: str
    gap: int = 0
    x: float = 0
    width: float = 0

    @property
    def first(self) -> Event:
        return self.events[0]


@dataclass(slots=True)
class Row:
    """`kind`: "warp", "barrier" or "flight"."""

    kind: str
    name: str
    who: Who | None = None
    phases: list[Phase] = field(default_factory=list)
    flights: list[Flight] = field(default_factory=list)
    sleeps: list[Asleep] = field(default_factory=list)
    y: float = 0


@dataclass(slots=True)
class Picture:
    """`left_out` are sentences about what is not drawn."""

    columns: list[Column]
    rows: list[Row]
    left_out: list[str]
    marks: list[Mark]
    turns: list[tuple[int, Who]]
    end: int
    starts: list[int] = field(default_factory=list)

    def column(self, number: int) -> Column:
        """The column that an event is in, or that stands where it would be."""
        if not self.starts:
            self.starts = [column.first.number for column in self.columns]
        return self.columns[max(bisect_right(self.starts, number) - 1, 0)]

    def row(self, who: Who) -> Row | None:
        return next((row for row in self.rows if row.who == who and row.kind == "warp"), None)

    def barrier(self, name: str) -> Row | None:
        return next((row for row in self.rows if row.kind == "barrier" and row.name == name), None)


def picture(recorder: Record) -> Picture:
    """Choose what is drawn."""
    left_out: list[str] = []
    marks = [mark for mark in recorder.marks if mark.finding.severity != "info"]
    if recorder.count > len(recorder.events):
        left_out.append(f"Only the last {len(recorder.events):,} of {recorder.count:,} events were kept.")
    special = {id(event) for mark in marks for event in (mark.first, mark.second) if event is not None}
    kept = list(recorder.events)
    old = [event for mark in marks for event in (mark.first, mark.second) if event is not None and kept and event.number < kept[0].number]
    events = sorted({id(event): event for event in [*old, *kept] if event.kind not in HIDDEN or id(event) in special}.values(),
                    key=lambda event: event.number)
    starts = {start for start, _ in recorder.turns}
    columns = list(_columns(events, special, starts))
    drawn, sentence = _near(columns, special, bool(marks))
    if sentence:
        left_out.append(sentence)
    rows = _rows(recorder, drawn, marks, left_out)
    return Picture(drawn, rows, left_out, marks, list(recorder.turns), recorder.count)


def _columns(events: Sequence[Event], special: set[int], starts: set[int]) -> Iterable[Column]:
    """Events, with quiet ones of one warp in one turn together."""
    group: list[Event] = []
    for event in events:
        quiet = event.kind in QUIET and id(event) not in special
        if group and not (quiet and event.who == group[0].who and not _between(starts, group[-1].number, event.number)
                          and (_label(event) == _label(group[0]))):
            yield _column(group)
            group = []
        group.append(event)
        if not quiet:
            yield _column(group)
            group = []
    if group:
        yield _column(group)


def _between(starts: set[int], low: int, high: int) -> bool:
    return any(number in starts for number in range(low + 1, min(high, low + 64) + 1))


def _column(group: list[Event]) -> Column:
    label = _label(group[0])
    return Column(list(group), f"{len(group)} × {label}" if len(group) > 1 else label, _tone(group[0]))


def _label(event: Event) -> str:
    if event.kind == "access" and event.op is not None:
        return f"{event.op.tokens[0]}.{event.touched[0].memory.space}"
    if event.kind == "issued" and event.flight is not None:
        return event.flight.words
    if event.kind == "fence" and event.op is not None:
        return ".".join(event.op.tokens[:3])
    if event.kind == "mbarrier_test":
        return "go on" if "complete, goes" in event.words else "not yet"
    if event.kind == "fault":
        return event.words
    return SHORT.get(event.kind, event.kind)


def _tone(event: Event) -> str:
    match event.kind:
        case "access":
            return {"reads": "read", "writes": "write"}.get(event.words, "update")
        case "issued" | "landed" | "read" | "wgmma_issue" | "wgmma_done":
            return "copy"
        case "slept" | "mbarrier_test" | "barrier_pass" | "cluster_pass" | "group_wait" | "wgmma_wait":
            return "wait"
        case "fault":
            return "bad"
        case "exited" | "warp_sync" | "warp_meet" | "shuffled" | "registers" | "touch":
            return "plain"
    return "sync"


def _near(columns: list[Column], special: set[int], marked: bool) -> tuple[list[Column], str]:
    """At most so many columns: those around what is marked, else the first and the last ones."""
    if len(columns) <= MOST_COLUMNS:
        return columns, ""
    centres = [i for i, column in enumerate(columns) if any(id(event) in special for event in column.events)]
    wanted: dict[int, None] = dict.fromkeys(range(20))
    wanted.update(dict.fromkeys(range(len(columns) - (60 if marked else MOST_COLUMNS // 2), len(columns))))
    reach = 0
    while len(wanted) < MOST_COLUMNS and reach < len(columns):
        for centre in (centres or [0])[:8]:
            for i in (centre - reach, centre + reach):
                if 0 <= i < len(columns) and len(wanted) < MOST_COLUMNS:
                    wanted[i] = None
        reach += 1
    found: list[Column] = []
    before = -1
    left = 0
    for i in sorted(wanted):
        if i > before + 1:
            skipped = [event for column in columns[before + 1:i] for event in column.events]
            left += len(skipped)
            found.append(Column(skipped[:1], f"… {len(skipped):,} events", "gap", gap=len(skipped)))
        found.append(columns[i])
        before = i
    return found, f"{left:,} events far from the findings are left out of the picture; the trace for Perfetto has them."


def _rows(recorder: Record, columns: Sequence[Column], marks: Sequence[Mark], left_out: list[str]) -> list[Row]:
    drawn = {event.who: None for column in columns for event in column.events if event.who is not None and not column.gap}
    blocked = [asleep for asleep in recorder.sleeps if asleep.end is None]
    first: dict[Who, None] = {}
    for mark in marks:
        first.update({event.who: None for event in (mark.first, mark.second) if event is not None and event.who is not None})
    for asleep in blocked:
        first.update(dict.fromkeys((asleep.who, *asleep.missing)))
    every = list({**first, **drawn})
    shown = set(every[:MOST_WARPS])
    if len(every) > len(shown):
        left_out.append(f"{len(every) - len(shown)} warps of {len(every)} are not drawn.")
    low = columns[0].first.number if columns else 0
    rows: list[Row] = []
    of_cta: dict[int | None, list[str]] = {}
    for name in recorder.phases:
        cta = cta_of(name)
        if cta is None or any(who[0] == cta for who in shown):
            of_cta.setdefault(cta, []).append(name)
    hidden = 0
    hot = {who[0] for who in first}
    for cta in sorted({who[0] for who in shown}, key=lambda cta: (cta not in hot, cta)):
        rows += [Row("warp", people(who), who, sleeps=[asleep for asleep in recorder.sleeps if asleep.who == who])
                 for who in sorted(shown) if who[0] == cta]
        barriers = _barriers(recorder, of_cta.get(cta, []), low)
        flights = [Row("flight", "in flight", flights=slot) for slot in slots(recorder, cta, low)]
        hidden += max(len(barriers) - MOST_ROWS, 0) + max(len(flights) - MOST_ROWS, 0)
        rows += barriers[:MOST_ROWS] + flights[:MOST_ROWS]
    rows += _barriers(recorder, of_cta.get(None, []), low)[:MOST_ROWS]
    if hidden:
        left_out.append(f"{hidden} rows of barriers and asynchronous operations are not drawn.")
    return rows


def cta_of(name: str) -> int | None:
    """The CTA that a barrier's name ends with; None for a cluster's."""
    tail = name.rpartition(" of CTA ")[2]
    return int(tail) if tail.isdigit() else None


def _barriers(recorder: Record, names: Sequence[str], low: int) -> list[Row]:
    return [Row("barrier", name, phases=[p for p in recorder.phases[name] if p.end is None or p.end >= low]) for name in names]


def slots(recorder: Record, cta: int, low: int = 0) -> list[list[Flight]]:
    """The asynchronous operations of a CTA that were in flight from event `low` on; each goes to the first slot that is free when it
    is issued.
    """
    found: list[list[Flight]] = []
    for flight in recorder.flights:
        if flight.who[0] != cta or (flight.landed is not None and flight.landed < low):
            continue
        for slot in found:
            last = slot[-1].landed
            if last is not None and last < flight.issued:
                slot.append(flight)
                break
        else:
            found.append([flight])
    return found
