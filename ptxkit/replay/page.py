"""The page that shows a replay: one HTML file with everything in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from ..grammar.errors import Finding
from ..html.parts import code as _code
from ..html.parts import framed, scoped
from .events import Asleep, Event, Mark, Record, crowd, people
from .outcome import Outcome
from .picture import Picture, Row, picture
from .sources import Excerpt, Sources
from .style import NOTEBOOK, SCRIPT, STYLE
from .svg import HEIGHT, Drawing, blocked

if TYPE_CHECKING:
    from .found import Difference
    from .replay import Replay

TITLES = {"shared-race": "Data race in shared memory", "global-race": "Data race in global memory", "deadlock": "Deadlock",
          "livelock": "Livelock", "proxy-fence": "Missing proxy fence", "memory": "The result depends on the schedule",
          "tensormap-fence": "Missing fence of a tensor map"}
LISTED = 2_000
"""Events that the page lists as text."""
CHOICES = 60


def page(replay: Replay) -> str:
    """Run the launch under its schedule, and show the run."""
    outcome, recorder = replay.record()
    return made(replay, outcome, recorder)


def made(replay: Replay, outcome: Outcome, recorder: Record) -> str:
    return _Page(replay, outcome, recorder).html()


def cell(replay: Replay) -> str:
    """Run the launch under its schedule, and show the run as the output of a notebook's cell."""
    outcome, recorder = replay.record()
    page = _Page(replay, outcome, recorder)
    body = "".join([*page.body(), *page.schedule(), "<details><summary>Findings</summary>", *page.findings(), "</details>"])
    return framed(_LINK.sub(r"\1", _MARK.sub("", body)), style=scoped(NOTEBOOK))


_MARK, _LINK = re.compile(r' id="mark[^"]*"'), re.compile(r'<a href="#mark\d">([^<]*)</a>')
"""Places within a page, which may be in a notebook many times."""


class _Page:
    def __init__(self, replay: Replay, outcome: Outcome, recorder: Record) -> None:
        self.replay = replay
        self.report = outcome.report
        self.recorder = recorder
        self.sources = Sources(replay.trial.launch.text)
        for difference in replay.failure.differences if replay.failure is not None else ():
            _mark(difference, outcome, recorder)
        self.picture = _sorted(picture(recorder), replay)

    def html(self) -> str:
        title = self._title()
        body = [*self.body(), *self.schedule(), *self.findings(), *self._events()]
        policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
        return ('<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
                '<meta name="viewport" content="width=device-width, initial-scale=1">'
                f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<title>{escape(title)}</title>\n'
                f"<style>{STYLE}</style></head>\n<body>\n" + "\n".join(body) + f"\n<script>{SCRIPT}</script>\n</body></html>\n")

    def body(self) -> list[str]:
        """What failed, where, and the picture."""
        differs = self.report.verdict != "error" and any(mark.finding.rule == "memory" for mark in self.picture.marks)
        verdict = "not proven" if differs else self.report.verdict
        return [f'<header><span class="verdict {"error" if differs else escape(verdict)}">{escape(verdict)}</span>'
                f"<h1>{escape(self._title())}</h1></header>", *self._lead(), *self._pair(), *self._waits(), *self._picture()]

    # ------------------------------------------------------------------------------------------- the failure

    def _title(self) -> str:
        failure = self.replay.failure
        errors = [mark.finding for mark in self.picture.marks if mark.finding.severity == "error"]
        rule = errors[0].rule if errors else failure.rule if failure is not None else ""
        name = self.replay.trial.launch.name
        if not rule:
            return f"A run of {name}"
        return f"{TITLES.get(rule, rule.replace('-', ' ').capitalize())} in {name}"

    def _lead(self) -> Iterator[str]:
        for mark in self.picture.marks[:1]:
            yield f'<p class="lead">{_message(mark.finding)}</p>'
            if mark.finding.fix:
                yield f'<p class="fix"><b>Way out:</b> {escape(mark.finding.fix)}.</p>'
        for mark in self.picture.marks[1:]:
            if mark.finding.rule == "memory":
                yield f'<p class="lead">{_message(mark.finding)}</p>'

    def _pair(self) -> Iterator[str]:
        """The two accesses of the first race, each with its source."""
        mark = next((m for m in self.picture.marks if m.first is not None and m.second is not None), None)
        if mark is None:
            yield from self._single()
            return
        yield '<div class="pair">'
        for number, event in (("1", mark.first), ("2", mark.second)):
            assert event is not None
            who = "" if event.who is None else people(event.who, event.mask)
            yield (f'<section class="side"><h2><span class="badge">{number}</span> {escape(who)} '
                   f'<a href="#mark{number}">step {event.step:,}</a></h2><p>{_code(self._without(event))}</p>')
            yield from map(_excerpt, self.sources.excerpts(event.op))
            yield "</section>"
        yield "</div>"

    def _single(self) -> Iterator[str]:
        """The place of the first finding that is about one."""
        for mark in self.picture.marks:
            op = None if mark.second is None else mark.second.op
            excerpts = list(self.sources.excerpts(op, mark.finding.position, mark.finding.ptx_line))
            if excerpts:
                said = "" if mark.second is None or mark.second.op is None else f"<p>{_code(self.recorder.says(mark.second))}</p>"
                yield '<div class="pair"><section class="side">' + said + "".join(map(_excerpt, excerpts)) + "</section></div>"
                return

    def _without(self, event: Event) -> str:
        """The event's sentence without who it is."""
        return self.recorder.says(event).partition(": ")[2]

    def _waits(self) -> Iterator[str]:
        if not self._deadlocked():
            return
        yield '<h2>Who waits for whom</h2><ul class="waits">'
        groups: dict[str, list[Asleep]] = {}
        for each in blocked(self.recorder):
            where = each.op.python or each.op.position
            words = escape(f"{each.words} at {where}" if where else each.words) + (f": <b>{escape(each.lacks)}</b>" if each.lacks else "")
            groups.setdefault(words, []).append(each)
        for words, waiting in list(groups.items())[:40]:
            who = people(waiting[0].who, waiting[0].mask) if len(waiting) == 1 else crowd([each.who for each in waiting])
            yield f"<li><b>{escape(who)}</b> {words}</li>"
        if len(groups) > 40:
            yield f"<li>and {len(groups) - 40} more</li>"
        yield "</ul>"

    def _deadlocked(self) -> bool:
        return bool(blocked(self.recorder)) and any(m.finding.rule in ("deadlock", "livelock") for m in self.picture.marks)

    # ------------------------------------------------------------------------------------------- the picture

    def _picture(self) -> Iterator[str]:
        drawing = Drawing(self.picture, self.recorder, self._tip)
        yield "<h2>What ran when</h2>"
        yield ('<p class="said">Time goes right. One warp runs at a time: its row is shaded. Grey rows are barriers with their phases; '
               "blue bars are asynchronous operations from issue to landing. Point at anything for its source line.</p>")
        if drawing.blocked:
            yield ('<p class="said">At the right: a solid arrow goes to what a warp waits for, a dashed one to the warp that would have to '
                   "come.</p>")
        yield from (f'<p class="said">{escape(sentence)}</p>' for sentence in self.picture.left_out)
        end = ' data-end="1"' if self._deadlocked() else ""
        yield f'<div class="picture"><div class="labels" style="height:{drawing.height:.0f}px">'
        for row in self.picture.rows:
            yield (f'<div class="{row.kind}{" hot" if self._hot(row) else ""}" style="top:{row.y:.0f}px;height:{HEIGHT[row.kind] - 3}px" '
                   f'title="{escape(row.name)}">{escape(row.name)}</div>')
        yield f'</div><div class="scroll" tabindex="0"{end}>{drawing.svg()}</div></div>'
        yield ('<p class="legend"><span class="k read">read</span><span class="k write">write</span><span class="k update">atomic</span>'
               '<span class="k sync">arrive, barrier, fence</span><span class="k wait">wait</span><span class="k copy">copy, wgmma</span>'
               '<span class="k bad">what the finding is about</span></p>')

    def _hot(self, row: Row) -> bool:
        return row.who is not None and any(e is not None and e.who == row.who for m in self.picture.marks[:1] for e in (m.first, m.second))

    def _tip(self, event: Event) -> str:
        where = event.op and (event.op.python or event.op.position)
        line = event.op.position.line if event.op is not None and event.op.position is not None and event.op.position.file is None else None
        ptx = f", PTX line {line}" if line is not None and event.op is not None and event.op.python is not None else ""
        return f"step {event.step:,}: {self.recorder.says(event)}" + (f"\nat {where}{ptx}" if where else "")

    # ------------------------------------------------------------------------------------------- the rest

    def schedule(self) -> Iterator[str]:
        choices = self.replay.choices
        yield "<h2>The schedule</h2>"
        if not len(choices):
            yield ("<p>First come, first run: each warp runs until it waits, and asynchronous operations land when they are issued. "
                   "No unusual schedule is needed to see this.</p>")
            return
        words = self.recorder.choices or tuple(choices.words())
        found = f" (found with {self.replay.found})" if self.replay.found > len(words) else ""
        many = "choices that differ" if len(words) > 1 else "choice that differs"
        yield f"<p>{len(words)} {many} from first come, first run{found}; after the last one that is the order again.</p><ol>"
        yield from (f"<li>{_code(each)}</li>" for each in words[:CHOICES])
        yield "</ol>"
        if len(words) > CHOICES:
            yield f'<p class="said">and {len(words) - CHOICES:,} more, which the JSON file has.</p>'

    def findings(self) -> Iterator[str]:
        yield f"<h2>Findings ({len(self.report.findings)})</h2><ul class='findings'>"
        for finding in self.report.findings:
            yield f'<li class="{escape(finding.severity)}">{_message(finding, full=True)}</li>'
        yield "</ul>"
        said = str(self.report).splitlines()[:2]
        yield f'<p class="said">{escape(said[0])}</p>'

    def _events(self) -> Iterator[str]:
        events = [event for event in self.recorder.events if event.kind not in ("touch",)]
        counts = ", ".join(f"{count:,} {kind}" for kind, count in sorted(self.recorder.said.items(), key=lambda item: -item[1]))
        yield f"<details><summary>All {self.recorder.count:,} events as text</summary><p class='said'>{escape(counts)}</p>"
        if len(events) > LISTED:
            yield f'<p class="said">The last {LISTED:,} of them:</p>'
        yield "<ol class='events'>"
        yield from (f'<li value="{event.number}">{escape(self._tip(event))}</li>' for event in events[-LISTED:])
        yield "</ol></details>"


def _sorted(made: Picture, replay: Replay) -> Picture:
    """What explains most comes first: a deadlock, then two accesses of a race, then what else fails."""
    rule = "" if replay.failure is None else replay.failure.rule
    made.marks.sort(key=lambda mark: (mark.finding.severity != "error", mark.finding.rule not in ("deadlock", "livelock"),
                                      mark.first is None, mark.finding.rule != rule))
    return made


def _mark(difference: Difference, outcome: Outcome, recorder: Record) -> None:
    """Other memory is marked where it was written last."""
    array = outcome.launch.arrays.get(difference.array)
    event = None if array is None else recorder.writer(difference.array, array, difference.index)
    op = None if event is None else event.op
    finding = Finding("memory", f"In this schedule {difference}", "", None if op is None else op.python or op.position, "protocol", "error")
    recorder.marks.append(Mark(finding, event, None))


def _message(finding: Finding, *, full: bool = False) -> str:
    lines = finding.message.split("\n")
    where = f"{escape(str(finding.position))}: " if finding.position is not None else ""
    head = f"{where}<b>[{escape(finding.rule)}]</b> {_code(lines[0])}"
    rest = "".join(f"<br>{_code(line.strip())}" for line in lines[1:])
    fix = f' <span class="fix">({escape(finding.fix)})</span>' if full and finding.fix else ""
    return head + (rest if full else "") + fix


def _excerpt(excerpt: Excerpt) -> str:
    rows = "".join(f'<div class="{"on" if number == excerpt.marked else ""}"><i>{number}</i>{escape(text)}</div>'
                   for number, text in excerpt.lines)
    return f'<figure><figcaption>{escape(excerpt.name)}:{excerpt.marked}</figcaption><pre>{rows}</pre></figure>'
