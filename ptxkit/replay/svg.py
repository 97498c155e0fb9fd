"""Draws a picture of a run as SVG: time goes right, one row for each warp, barrier and operation in flight."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from html import escape
from itertools import groupby

from .events import Asleep, Event, Mark, Phase, Record
from .picture import Column, Picture, Row

HEIGHT = {"warp": 34, "barrier": 26, "flight": 20}
GAP = 4
TOP = 22
CHARACTER = 6.3
"""Pixels of a character of 10.5 px monospace."""
MOST_EDGES = 12
"""Barriers for which it is drawn who waits and who would have to come."""
EVER = 620
"""The most that a wait that never ends is drawn to last after the last event."""
GUTTER = 20
"""Room between the rows of warps for what links two accesses."""
LINKS = 3
WHY = {"shared-race": "nothing orders these two", "global-race": "nothing orders these two",
       "proxy-fence": "no proxy fence between these two", "tensormap-fence": "no fence of the tensormap proxy between",
       "nc-load": "ld.global.nc of what the grid writes"}


class Drawing:
    def __init__(self, picture: Picture, recorder: Record, tip: Callable[[Event], str]) -> None:
        self.picture = picture
        self.recorder = recorder
        self.tip = tip
        self.blocked = [asleep for asleep in recorder.sleeps if asleep.end is None]
        x = 10.0
        marked = {id(event) for mark in picture.marks for event in (mark.first, mark.second) if event is not None}
        for column in picture.columns:
            extra = 16 if any(id(event) in marked for event in column.events) else 0
            column.x, column.width = x, max(24.0, CHARACTER * len(column.label) + 12 + extra)
            x += column.width + GAP
        longest = max((len(asleep.words) + len(asleep.lacks) for asleep in self.blocked), default=0)
        self.right = x = x + (min(CHARACTER * longest + 30, EVER) if longest else 0)
        self.width = x + 30 + 30 * min(len({asleep.row for asleep in self.blocked}), MOST_EDGES)
        y = float(TOP)
        before: object = None
        linked = any(mark.first is not None for mark in picture.marks) and sum(row.kind == "warp" for row in picture.rows) <= 16
        for row in picture.rows:
            cta = row.who[0] if row.who is not None else before
            y += 10 if before is not None and cta != before else 0
            before = cta
            row.y = y
            y += HEIGHT[row.kind] + (GUTTER if linked and row.kind == "warp" else 0)
        self.height = y + 12

    def svg(self) -> str:
        parts = [*self._ruler(), *self._rows(), *self._turns()]
        for row in self.picture.rows:
            parts += self._sleeps(row)
            parts += self._phases(row)
            parts += self._flights(row)
        parts += self._boxes()
        parts += self._links()
        parts += self._edges()
        return (f'<svg width="{self.width:.0f}" height="{self.height:.0f}" viewBox="0 0 {self.width:.0f} {self.height:.0f}" role="img" '
                'aria-label="the run, warp by warp">' + _DEFS + "".join(parts) + "</svg>")

    # ------------------------------------------------------------------------------------------- places

    def x(self, number: int | None, *, end: bool = False) -> float:
        if number is None or not self.picture.columns:
            return self.right
        column = self.picture.column(number)
        return column.x + (column.width if end else 0)

    def middle(self, row: Row) -> float:
        return row.y + HEIGHT[row.kind] / 2

    # ------------------------------------------------------------------------------------------- the ground

    def _ruler(self) -> Iterator[str]:
        last = -100.0
        for column in self.picture.columns:
            if column.x - last >= 90 and not column.gap:
                last = column.x
                yield f'<text class="ruler" x="{column.x:.0f}" y="12">step {column.first.step:,}</text>'

    def _rows(self) -> Iterator[str]:
        for row in self.picture.rows:
            yield f'<rect class="row {row.kind}" x="0" y="{row.y:.0f}" width="{self.width:.0f}" height="{HEIGHT[row.kind] - 3}"/>'
        for column in self.picture.columns:
            if column.gap:
                yield (f'<rect class="gap" x="{column.x:.0f}" y="{TOP}" width="{column.width:.0f}" height="{self.height - TOP:.0f}"/>'
                       f'<text class="gap" x="{column.x + 6:.0f}" y="{self.height - 3:.0f}">{escape(column.label)}</text>')

    def _turns(self) -> Iterator[str]:
        starts = [start for start, _ in self.picture.turns]

        def whose(column: Column) -> object:
            at = bisect_right(starts, column.first.number) - 1
            return self.picture.turns[at][1] if at >= 0 and not column.gap else None

        for who, columns in groupby(self.picture.columns, whose):
            run = list(columns)
            row = self.picture.row(who) if isinstance(who, tuple) else None
            if row is not None:
                yield (f'<rect class="turn" x="{run[0].x - 2:.0f}" y="{row.y:.0f}" '
                       f'width="{run[-1].x + run[-1].width - run[0].x + 4:.0f}" height="{HEIGHT["warp"] - 3}" rx="4"/>')

    # ------------------------------------------------------------------------------------------- spans

    def _sleeps(self, row: Row) -> Iterator[str]:
        for asleep in row.sleeps:
            start, end = self.x(asleep.start, end=True), self.x(asleep.end)
            if end <= start or self._hidden(asleep.start, asleep.end):
                continue
            words = asleep.words + (f": {asleep.lacks}" if asleep.lacks else "")
            yield (f'<g><title>{escape(words)}</title><rect class="sleep{" ever" if asleep.end is None else ""}" x="{start:.0f}" '
                   f'y="{row.y + 3:.0f}" width="{end - start:.0f}" height="{HEIGHT["warp"] - 9}" rx="3"/>')
            room = int((end - start - 10) / CHARACTER)
            text = words if len(words) <= room else asleep.words if len(asleep.words) <= room else ""
            if text:
                yield f'<text class="in" x="{start + 6:.0f}" y="{row.y + 19:.0f}">{escape(text)}</text>'
            yield "</g>"

    def _hidden(self, start: int, end: int | None) -> bool:
        """Whether a span lies within events that are left out."""
        return end is not None and bool(self.picture.columns) and self.picture.column(start).gap > 0 \
            and self.picture.column(start) is self.picture.column(end)

    def _phases(self, row: Row) -> Iterator[str]:
        for phase in row.phases:
            if self._hidden(phase.start, phase.end):
                continue
            start, end = self.x(phase.start, end=True), self.x(phase.end, end=phase.end is not None)
            words = phase_words(phase)
            stuck = any(asleep.row == row.name for asleep in self.blocked)
            kind = "phase done" if phase.end is not None else "phase stuck" if stuck else "phase"
            yield (f'<g><title>{escape(f"{row.name}: {words}")}</title><rect class="{kind}" x="{start:.0f}" y="{row.y + 3:.0f}" '
                   f'width="{max(end - start, 3):.0f}" height="17" rx="3"/>')
            room = int((end - start - 8) / CHARACTER)
            text = words if len(words) <= room else f"phase {phase.number}"
            if len(text) <= room:
                x = start + 5 if phase.end is not None else end - CHARACTER * len(text) - 6
                yield f'<text class="in" x="{x:.0f}" y="{row.y + 15:.0f}">{escape(text)}</text>'
            yield "</g>"

    def _flights(self, row: Row) -> Iterator[str]:
        for flight in row.flights:
            if self._hidden(flight.issued, flight.landed):
                continue
            start, end = self.x(flight.issued), self.x(flight.landed, end=flight.landed is not None)
            read = self.x(flight.read, end=True) if flight.read is not None else end
            state = "" if flight.landed is not None else ", never lands in this run"
            words = f"{flight.words} of CTA {flight.who[0]} warp {flight.who[1]}"
            yield (f'<g><title>{escape(f"{words}: `{flight.op.opcode}`{state}")}</title>'
                   f'<rect class="flight" x="{start:.0f}" y="{row.y + 2:.0f}" width="{max(read - start, 3):.0f}" height="13" rx="3"/>'
                   f'<rect class="flight late" x="{read:.0f}" y="{row.y + 2:.0f}" width="{max(end - read, 0):.0f}" height="13" rx="3"/>')
            if CHARACTER * len(words) < end - start:
                yield f'<text class="in" x="{start + 5:.0f}" y="{row.y + 12:.0f}">{escape(words)}</text>'
            yield "</g>"

    # ------------------------------------------------------------------------------------------- events

    def _boxes(self) -> Iterator[str]:
        numbers: dict[int, str] = {}
        pairs = [mark for mark in self.picture.marks if mark.first is not None and mark.second is not None]
        for mark in [*pairs[:1], *self.picture.marks]:
            if mark in pairs[:1]:
                numbers.setdefault(id(mark.first), "1")
            if mark.second is not None:
                numbers.setdefault(id(mark.second), "2" if mark in pairs[:1] else "!")
        for column in self.picture.columns:
            if not column.gap:
                yield from self._box(column, next((numbers[id(e)] for e in column.events if id(e) in numbers), ""))

    def _box(self, column: Column, number: str) -> Iterator[str]:
        event = column.first
        warp = self.picture.row(event.who) if event.who is not None else None
        barrier = self.picture.barrier(event.row) if event.row else None
        flight = next((row for row in self.picture.rows if event.flight is not None and event.flight in row.flights), None)
        own = event.kind not in ("landed", "read", "mbarrier_complete_tx", "copies_arrive", "wgmma_done")
        home = (warp if own else None) or barrier or flight or warp
        if home is None:
            return
        other = next((row for row in (barrier, flight) if row is not None and row is not home), None)
        if other is not None and event.kind not in ("mbarrier_test", "barrier_pass", "cluster_pass", "slept"):
            x = column.x + column.width / 2
            yield (f'<line class="joint" x1="{x:.0f}" y1="{self.middle(home):.0f}" x2="{x:.0f}" y2="{self.middle(other):.0f}"/>'
                   f'<circle class="joint" cx="{x:.0f}" cy="{self.middle(other):.0f}" r="3"/>')
        tips = [self.tip(each) for each in column.events[:8]] + ([f"and {len(column.events) - 8} more"] if len(column.events) > 8 else [])
        high = HEIGHT[home.kind] - (9 if home.kind == "warp" else 7)
        y = home.y + 3
        named = f' id="mark{number}"' if number else ""
        yield (f'<g class="ev {column.tone}{" marked" if number else ""}"{named} tabindex="0"><title>{escape(chr(10).join(tips))}</title>'
               f'<rect x="{column.x:.0f}" y="{y:.0f}" width="{column.width:.0f}" height="{high}" rx="4"/>'
               f'<text x="{column.x + (22 if number else 6):.0f}" y="{y + high / 2 + 4:.0f}">{escape(column.label)}</text>')
        if number:
            yield (f'<circle class="badge" cx="{column.x + 11:.0f}" cy="{y + high / 2:.0f}" r="8"/>'
                   f'<text class="badge" x="{column.x + 11:.0f}" y="{y + high / 2 + 4:.0f}">{number}</text>')
        yield "</g>"

    def _place(self, event: Event | None) -> tuple[float, float] | None:
        if event is None or event.who is None:
            return None
        row = self.picture.row(event.who)
        column = next((c for c in self.picture.columns if any(e is event for e in c.events)), None)
        return None if row is None or column is None else (column.x + column.width / 2, row.y)

    def _links(self) -> Iterator[str]:
        pairs = [(mark, one, two) for mark in self.picture.marks[:LINKS]
                 if (one := self._place(mark.first)) is not None and (two := self._place(mark.second)) is not None]
        for i, pair in reversed(list(enumerate(pairs))):
            yield from self._link(*pair, main=i == 0)

    def _link(self, mark: Mark, one: tuple[float, float], two: tuple[float, float], *, main: bool) -> Iterator[str]:
        below = HEIGHT["warp"] - 6
        (x1, y1), (x2, y2) = one, two
        if y1 == y2:
            start, end, bend = y1 + below, y2 + below, 24.0
            path = f"M{x1:.0f},{start:.0f} C{x1:.0f},{start + bend:.0f} {x2:.0f},{end + bend:.0f} {x2:.0f},{end:.0f}"
        else:
            start, end = (y1 + below, y2 + 3) if y2 > y1 else (y1 + 3, y2 + below)
            path = f"M{x1:.0f},{start:.0f} C{x1:.0f},{(start + end) / 2:.0f} {x2:.0f},{(start + end) / 2:.0f} {x2:.0f},{end:.0f}"
        words = WHY.get(mark.finding.rule, mark.finding.rule)
        wide = CHARACTER * len(words) + 14
        x, y = (x1 + x2) / 2 - wide / 2, (start + end) / 2 + (14 if y1 == y2 else 0)
        x = max(x, 4.0)
        yield f'<path class="race{"" if main else " more"}" d="{path}"><title>{escape(mark.finding.message)}</title></path>'
        if not main:
            return
        yield (f'<rect class="why" x="{x:.0f}" y="{y - 9:.0f}" width="{wide:.0f}" height="18" rx="9"/>'
               f'<text class="why" x="{x + 7:.0f}" y="{y + 4:.0f}">{escape(words)}</text>')

    # ------------------------------------------------------------------------------------------- deadlocks

    def _edges(self) -> Iterator[str]:
        """One line for each barrier that is waited for, which all its waiters join, and one to the warps that would have to come."""
        x = self.right + 14
        for name in list(dict.fromkeys(asleep.row for asleep in self.blocked))[:MOST_EDGES]:
            waiting = [asleep for asleep in self.blocked if asleep.row == name]
            barrier = self.picture.barrier(name) if name else None
            for who in dict.fromkeys(asleep.who for asleep in waiting):
                warp = self.picture.row(who)
                if warp is not None and barrier is not None:
                    yield from self._elbow(x, warp, barrier, f"waits for {name}", "waits")
            for who in dict.fromkeys(who for asleep in waiting for who in asleep.missing):
                warp = self.picture.row(who)
                if warp is not None and barrier is not None:
                    yield from self._elbow(x + 14, barrier, warp, f"would have to come to {name}", "needs")
            x += 30

    def _elbow(self, x: float, one: Row, two: Row, words: str, kind: str) -> Iterator[str]:
        y1, y2 = self.middle(one), self.middle(two)
        yield (f'<g><title>{escape(words)}</title><path class="edge {kind}" d="M{self.right - 2:.0f},{y1:.0f} H{x:.0f} V{y2:.0f} '
               f'H{self.right + 4:.0f}" marker-end="url(#arrow)"/></g>')


def phase_words(phase: Phase) -> str:
    """What came in a phase of a barrier."""
    came = sum(count for _, _, _, count in phase.arrivals)
    words = f"phase {phase.number}: {came} of {phase.wanted} arrivals"
    return words + (f", {phase.came:,} of {phase.announced:,} bytes" if phase.announced or phase.came else "")


def blocked(recorder: Record) -> list[Asleep]:
    return [asleep for asleep in recorder.sleeps if asleep.end is None]


_DEFS = ('<defs><pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
         '<rect class="hatch" width="3" height="7"/></pattern><pattern id="stuck" width="7" height="7" patternUnits="userSpaceOnUse" '
         'patternTransform="rotate(45)"><rect class="stuck" width="3" height="7"/></pattern><marker id="arrow" viewBox="0 0 8 8" refX="7" '
         'refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse"><path class="arrow" d="M0,0 L8,4 L0,8 z"/></marker></defs>')
