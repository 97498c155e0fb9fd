"""What the marks of a launch say: when each warp did what.

Clocks are those of the SM that the warp ran on. Times are in ns since the first warp began: the clocks of an SM are put in their place by
what globaltimer was at the begin and at the end of its warps. On the CPU device a ns is a clock.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..files import write_whole
from .buffer import CPU, Array, Plan, Slice, is_point

if TYPE_CHECKING:
    from ..dsl.marks import Named


@dataclass(frozen=True, slots=True)
class Span:
    """One span of a warp: `begin` and `end` in ns, `clocks` of its SM. `depth` counts the spans around it."""

    name: str
    begin: float
    end: float
    clocks: int
    depth: int


@dataclass(frozen=True)
class Track:
    """A warp in one of its roles. `dropped` are events for which there was no room."""

    sm: int
    cta: int
    warp: int
    role: str
    begin: float
    end: float
    clocks: int
    ended: bool
    dropped: int
    more: int
    """How many marks another lane ran that the writer did not."""
    names: tuple[str, ...] = field(repr=False)
    ids: Array = field(repr=False)
    begins: Array = field(repr=False)
    ends: Array = field(repr=False)
    lengths: Array = field(repr=False)
    points: tuple[tuple[str, float], ...] = field(repr=False)
    """The name and the time of each `mark`."""

    @cached_property
    def depths(self) -> Array:
        """How many spans are around each span."""
        found = np.zeros(len(self.ids), np.int64)
        around: list[float] = []
        for i in np.lexsort((-self.ends, self.begins)).tolist():
            while around and self.begins[i] >= around[-1]:
                around.pop()
            found[i] = len(around)
            around.append(float(self.ends[i]))
        return found

    def spans(self, name: str | None = None) -> Iterator[Span]:
        """The spans in the order of their ends."""
        for i in range(len(self.ids)):
            called = self.names[self.ids[i]]
            if name is None or called == name:
                yield Span(called, float(self.begins[i]), float(self.ends[i]), int(self.lengths[i]), int(self.depths[i]))

    def clocks_of(self, name: str) -> Array:
        """The clocks of each span of that name."""
        found: Array = self.lengths[self.ids == self.names.index(name)] if name in self.names else self.lengths[:0]
        return found


@dataclass(frozen=True, slots=True)
class Overhead:
    """The median times of a launch without marks and with them, in us, taken in turn in one call."""

    without: float
    marked: float
    rounds: int

    @property
    def part(self) -> float:
        return self.marked / self.without - 1

    def __str__(self) -> str:
        return f"overhead {100 * self.part:+.1f} %: {self.without:,.4g} us without marks, {self.marked:,.4g} us with them, medians of " \
               f"{self.rounds} rounds in turn"


@dataclass(frozen=True, slots=True)
class Total:
    """All spans of one name in one role: how many, their clocks, and their part of the time that the role's warps took."""

    role: str
    name: str
    warps: int
    count: int
    mean: float
    p10: float
    p90: float
    part: float


@dataclass(frozen=True)
class Timeline:
    """The marks of one launch. `page(path)` writes a picture, `trace(path)` what Perfetto shows; `print` says the sums."""

    kernel: str
    device: str
    tracks: tuple[Track, ...] = field(repr=False)
    lost: int
    """Marks of single threads that are not their warp's writer."""
    room: int
    most: int
    """The events that a warp had room for, and the most that one had."""
    resolution: int
    """The step of globaltimer in ns: how well the clocks of SMs are known to each other."""
    overhead: Overhead | None = None

    @classmethod
    def of(cls, kernel: str, named: Named, plan: Plan, slices: Iterable[Slice], *, device: str) -> Timeline:
        listed = list(slices)
        time = _Time(listed)
        last = {(each.cta, each.warp): each.role for each in listed}      # where a warp's writer has another role, others stay behind
        tracks = tuple(_track(each, named, time, behind=last[each.cta, each.warp] != each.role) for each in listed)
        return cls(kernel, device, tracks, sum(each.lost for each in listed), plan.events, max((each.count for each in listed), default=0),
                   time.resolution)

    @property
    def duration(self) -> float:
        """From the first begin of a warp to the last end, in ns."""
        return max((track.end for track in self.tracks), default=0.0)

    def at(self, time: float) -> str:
        """A time in words."""
        return f"{time:,.0f} clocks" if self.device == CPU else f"{time / 1000:,.3f} us"

    @property
    def dropped(self) -> int:
        return sum(track.dropped for track in self.tracks)

    def of_role(self, role: str) -> tuple[Track, ...]:
        return tuple(track for track in self.tracks if track.role == role)

    def clocks(self, name: str, role: str | None = None) -> Array:
        """The clocks of all spans of that name."""
        found = [track.clocks_of(name) for track in self.tracks if role is None or track.role == role]
        return np.concatenate(found) if found else np.zeros(0, np.uint32)

    def totals(self) -> list[Total]:
        """Per role and name, in the order of roles, then of the time taken."""
        found = []
        for role in dict.fromkeys(track.role for track in self.tracks):
            tracks = self.of_role(role)
            took = sum(track.clocks for track in tracks)
            rows = []
            for name in dict.fromkeys(name for track in tracks for name in track.names):
                each = [track.clocks_of(name) for track in tracks]
                clocks = np.concatenate(each)
                if len(clocks):
                    low, high = np.percentile(clocks, (10, 90)).tolist()
                    rows.append(Total(role, name, sum(len(one) > 0 for one in each), len(clocks), float(clocks.mean()), low, high,
                                      float(clocks.sum(dtype=np.uint64)) / took if took else 0.0))
            found += sorted(rows, key=lambda row: -row.part)
        return found

    def notes(self) -> list[str]:
        """What is not in the timeline, with the way out."""
        found = []
        if full := [track for track in self.tracks if track.dropped]:
            found.append(f"{len(full):,} slices were full: {self.dropped:,} events are not here; events={self.most} would hold them all")
        if self.lost:
            found.append(f"{self.lost:,} marks are not here: a single thread ran them that does not write its warp's marks; say role(...) "
                         "in its body")
        if others := [track for track in self.tracks if track.more]:
            found.append(f"in {len(others):,} slices another lane ran up to {max(t.more for t in others):,} marks more than the one that "
                         "writes (the first lane, or the thread that said the role); those are not here")
        if open_ := [track for track in self.tracks if not track.ended]:
            found.append(f"{len(open_):,} slices have no end: their warps did not come to the end of the kernel")
        return found

    def __str__(self) -> str:
        warps, ctas = ({(t.cta, t.warp) for t in self.tracks}, {t.cta for t in self.tracks})
        events = sum(len(track.ids) + len(track.points) for track in self.tracks)
        sms = {t.sm for t in self.tracks}
        lines = [f"{self.kernel}: {events:,} marks of {len(warps):,} warps, {len(ctas):,} CTAs and {len(sms):,} SMs in "
                 f"{self.at(self.duration)} ({self.device})"]
        if self.overhead is not None:
            lines.append(str(self.overhead))
        rows = [("role", "span", "warps", "spans", "mean clocks", "p10", "p90", "of the time")]
        rows += [(t.role or "-", t.name, f"{t.warps:,}", f"{t.count:,}", f"{t.mean:,.1f}", f"{t.p10:,.0f}", f"{t.p90:,.0f}",
                  f"{100 * t.part:.1f} %") for t in self.totals()]
        wide = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines += ["  ".join(word.ljust(wide[i]) if i < 2 else word.rjust(wide[i]) for i, word in enumerate(row)).rstrip() for row in rows]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes())])

    def of_sms(self, count: int | None) -> tuple[Track, ...]:
        """The tracks of the first SMs, all of None."""
        shown = set(sorted({track.sm for track in self.tracks})[:count])
        return tuple(track for track in self.tracks if track.sm in shown)

    def trace(self, path: str | Path, *, sms: int | None = None) -> None:
        """Write a trace that Perfetto (ui.perfetto.dev) shows: a process is an SM, a thread a warp. `sms`: of so many SMs, None of all."""
        from .perfetto import traced

        write_whole(Path(path), json.dumps(traced(self, sms)).encode())

    def page(self, path: str | Path, *, sms: int = 2, every_warp: bool = False, window: tuple[float, float] | None = None) -> None:
        """Write a picture as an HTML page: the rows of the first `sms` SMs, one for each CTA and role (its first warp), or one for every
        warp. `window` is the part of the time that it shows, in ns.
        """
        from .page import made

        write_whole(Path(path), made(self, sms, every_warp, window).encode())

    def _repr_html_(self) -> str:
        from .page import cell

        return cell(self)


class _Time:
    """Clocks of an SM as ns since the first begin. `rate`: clocks per ns, of all warps together."""

    def __init__(self, slices: list[Slice]) -> None:
        ended = [each for each in slices if each.time[1]]
        times = [time for each in slices for time in each.time if time]
        self.resolution = max(int(np.gcd.reduce(np.asarray(times, np.uint64))), 1) if times else 1
        took = sum(each.time[1] - each.time[0] for each in ended)
        self.rate = sum(each.clock[1] - each.clock[0] for each in ended) / took if took else 1.0
        self.first: dict[int, int] = {}
        for each in slices:
            self.first[each.sm] = min(each.clock[0], self.first.get(each.sm, each.clock[0]))
        start = min((each.time[0] for each in slices), default=0)
        offset: dict[int, float] = {}                 # globaltimer is rounded down: the largest difference is the nearest
        for each in slices:
            for clock, time in zip(each.clock, each.time, strict=True):
                if time:
                    here = time - start - (clock - self.first[each.sm]) / self.rate
                    offset[each.sm] = max(here, offset.get(each.sm, here))
        least = min((offset[each.sm] + (each.clock[0] - self.first[each.sm]) / self.rate for each in slices), default=0.0)
        self.offset = {sm: value - least for sm, value in offset.items()}

    def ns(self, sm: int, clock: Any) -> Any:
        return self.offset[sm] + (np.asarray(clock).astype(np.int64) - self.first[sm]) / self.rate


def _track(each: Slice, named: Named, time: _Time, *, behind: bool) -> Track:
    points = is_point(each.events)
    spans = each.events[~points]
    last = each.clock[1] if each.clock[1] else max([each.clock[0], *each.events["clock"].tolist()[-1:]])
    marks = each.events[points]
    at = time.ns(each.sm, marks["clock"]).tolist()
    begin, end = (float(time.ns(each.sm, clock)) for clock in (each.clock[0], last))
    ends = spans["clock"].astype(np.int64)
    return Track(each.sm, each.cta, each.warp, named.roles[each.role], begin, end, last - each.clock[0], ended=each.clock[1] != 0,
                 dropped=each.count - len(each.events), more=0 if behind else each.most - each.count, names=named.names,
                 ids=spans["id"].astype(np.int64), begins=time.ns(each.sm, ends - spans["clocks"]), ends=time.ns(each.sm, ends),
                 lengths=spans["clocks"],
                 points=tuple((named.names[i & 0xFFFF], t) for i, t in zip(marks["id"].tolist(), at, strict=True)))
