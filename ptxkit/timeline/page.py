"""The picture of a timeline as one HTML page: time goes right, a row is a warp in a role, a box a span."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from ..html.parts import framed, scoped
from ..html.parts import title as titled
from ..replay.style import NOTEBOOK, STYLE
from .buffer import CPU

if TYPE_CHECKING:
    from .timeline import Timeline, Track

WIDTH = 1400.0
LABEL = 250.0
HEIGHT = 26.0
TICKS = 8
NARROW = 0.7
"""Pixels below which a box is drawn together with others of its name and depth."""
FIXED = {"load": "#3c76b5", "wait": "#9aa3b0", "mma": "#2d9d5f", "store": "#d98324"}
OTHERS = ("#8e5bbf", "#c2455a", "#3a9ea5", "#a58a2c", "#6a6fd0", "#b3568f")
MORE = (".drawing{overflow-x:auto}.drawing svg{min-width:64rem}"
        "svg .row{fill:var(--soft)}svg .span{stroke:var(--bg);stroke-width:.4}svg .tick{stroke:var(--line)}"
        ".key{display:inline-block;width:.9em;height:.9em;border-radius:2px;"
        "margin:0 .3em 0 1em;vertical-align:-.1em}table.sums{border-collapse:collapse;font-variant-numeric:tabular-nums}"
        "table.sums td,table.sums th{padding:.1rem .8rem;text-align:right;border:0}table.sums td:nth-child(-n+2),"
        "table.sums th:nth-child(-n+2){text-align:left}")


def made(timeline: Timeline, sms: int, every_warp: bool, window: tuple[float, float] | None) -> str:
    title = f"Timeline of {timeline.kernel}"
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return ('<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<title>{escape(title)}</title>\n'
            f"<style>{STYLE}{MORE}</style></head>\n<body>\n<header><h1>{escape(title)}</h1></header>\n"
            f"{_lead(timeline)}\n{picture(timeline, sms, every_warp, window)}\n{_table(timeline)}\n</body></html>\n")


def cell(timeline: Timeline) -> str:
    """The same as the output of a notebook's cell."""
    body = f"{_lead(timeline)}{picture(timeline, 2, False, None)}{_table(timeline)}"
    return framed(titled(f"Timeline of {timeline.kernel}"), body, style=scoped(NOTEBOOK + MORE))


def _lead(timeline: Timeline) -> str:
    """What was recorded, and what is not in it."""
    lead = [f"{len(timeline.tracks):,} slices of {len({t.sm for t in timeline.tracks}):,} SMs, {timeline.at(timeline.duration)}, on "
            f"{timeline.device}."]
    if timeline.device != CPU:
        lead.append(f"Clocks of different SMs are aligned within {timeline.resolution} ns.")
    if timeline.overhead is not None:
        lead.append(f"Marks cost time: {timeline.overhead}.")
    notes = "".join(f'<p class="said">{escape(note)}.</p>' for note in timeline.notes())
    return f'<p class="lead">{escape(" ".join(lead))}</p>{notes}'


def picture(timeline: Timeline, sms: int, every_warp: bool, window: tuple[float, float] | None) -> str:
    """The legend and the drawing."""
    tracks = rows(timeline, sms, every_warp)
    colours = _colours(timeline)
    low, high = window if window is not None else (min((t.begin for t in tracks), default=0), max((t.end for t in tracks), default=1))
    scale = (WIDTH - LABEL) / max(high - low, 1e-9)
    height = 24 + HEIGHT * len(tracks)
    parts = [f'<svg viewBox="0 0 {WIDTH:.0f} {height:.0f}" width="100%" role="img" aria-label="{escape(timeline.kernel)}">']
    for i in range(TICKS + 1):
        x = LABEL + (WIDTH - LABEL) * i / TICKS
        parts.append(f'<line class="tick" x1="{x:.1f}" x2="{x:.1f}" y1="16" y2="{height:.0f}"/><text class="ruler" x="{x:.1f}" y="11" '
                     f'text-anchor="{"end" if i == TICKS else "middle"}">{timeline.at(low + (high - low) * i / TICKS)}</text>')
    for i, track in enumerate(tracks):
        parts += _row(track, 22 + HEIGHT * i, low, high, scale, colours)
    legend = "".join(f'<span class="key" style="background:{colour}"></span>{escape(name)}' for name, colour in colours.items())
    return f'<p>{legend}</p>\n<div class="drawing">' + "\n".join([*parts, "</svg></div>"])


def rows(timeline: Timeline, sms: int, every_warp: bool) -> list[Track]:
    """The tracks that are drawn, by SM, CTA and role. Warps without a role or marks have a row only where no warp has any."""
    full = any(track.role or len(track.ids) or track.points for track in timeline.tracks)
    found: dict[tuple[object, ...], Track] = {}
    for track in timeline.of_sms(sms):
        empty = not len(track.ids) and not track.points
        if not (full and empty and not track.role):
            found.setdefault((track.sm, track.cta, track.role, track.warp if every_warp else 0), track)
    return sorted(found.values(), key=lambda track: (track.sm, track.begin, track.cta, track.warp))


def _row(track: Track, y: float, low: float, high: float, scale: float, colours: dict[str, str]) -> Iterator[str]:
    label = f"SM {track.sm} CTA {track.cta} {track.role or 'warp'} ({track.warp})"
    begin, end = max(track.begin, low), min(track.end, high)
    yield f'<text x="0" y="{y + 15:.0f}">{escape(label)}</text>'
    if end < begin:
        return
    x, wide = LABEL + (begin - low) * scale, (end - begin) * scale
    yield f'<rect class="row" x="{x:.2f}" y="{y:.0f}" width="{wide:.2f}" height="{HEIGHT - 4}"/>'
    last: dict[tuple[str, int], float] = {}
    for span in sorted(track.spans(), key=lambda span: (span.depth, span.begin)):
        begin, end = max(span.begin, low), min(span.end, high)
        x, wide = LABEL + (begin - low) * scale, max((end - begin) * scale, NARROW)
        if end < begin or x + wide < last.get((span.name, span.depth), 0.0) + NARROW:
            continue
        last[span.name, span.depth] = x + wide
        inset = min(span.depth, 3) * 4.0
        yield (f'<rect class="span" x="{x:.2f}" y="{y + inset:.0f}" width="{wide:.2f}" height="{HEIGHT - 4 - inset:.0f}" '
               f'fill="{colours[span.name]}">'
               f"<title>{escape(span.name)}: {span.clocks:,} clocks, {span.begin:,.0f} to {span.end:,.0f} ns</title></rect>")
    for name, time in track.points:
        if low <= time <= high:
            x = LABEL + (time - low) * scale
            yield (f'<line x1="{x:.2f}" x2="{x:.2f}" y1="{y - 2:.0f}" y2="{y + HEIGHT - 2:.0f}" stroke="{colours[name]}" '
                   f'stroke-width="2"><title>{escape(name)} at {time:,.0f} ns</title></line>')


def _colours(timeline: Timeline) -> dict[str, str]:
    names = dict.fromkeys(name for track in timeline.tracks[:1] for name in track.names)
    others = [name for name in names if name not in FIXED]
    return {name: FIXED.get(name) or OTHERS[others.index(name) % len(OTHERS)] for name in names}


def _table(timeline: Timeline) -> str:
    head = "".join(f"<th>{word}</th>" for word in ("role", "span", "warps", "spans", "mean clocks", "p10", "p90", "of the time"))
    body = "".join(f"<tr><td>{escape(t.role or '-')}</td><td>{escape(t.name)}</td><td>{t.warps:,}</td><td>{t.count:,}</td><td>{t.mean:,.1f}"
                   f"</td><td>{t.p10:,.0f}</td><td>{t.p90:,.0f}</td><td>{100 * t.part:.1f} %</td></tr>" for t in timeline.totals())
    return f'<table class="sums"><tr>{head}</tr>{body}</table>'
