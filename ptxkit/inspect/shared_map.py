"""The map of an entry's shared memory as SVG, to scale: each allocation where it lies, its stages apart, its name at it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from .facts import EntryFacts, SharedFact

WIDTH, BAR, LANE, CHARACTER = 1000.0, 40.0, 17.0, 6.7
_STAGES = re.compile(r"tile (\d+) x \d+ x |mbarrier x (\d+)")


def drawn(entry: EntryFacts) -> str:
    """The map, "" for an entry whose shared memory has no size that is known."""
    groups = [(top, [part for part in entry.shared if part.within == top.name] or [top])
              for top in entry.shared if not top.within and top.bytes]
    if not groups:
        return ""
    scale = WIDTH / max(top.bytes or 1 for top, _ in groups)
    about, parts, y = _users(entry), list[str](), 0.0
    for top, inside in groups:
        parts.append(f'<text x="0" y="{y + 13:.0f}" class="sym">{escape(top.name)} · {top.bytes:,} bytes, {escape(top.what)}</text>')
        drawing, y = _bar(top, inside, scale, y + 20, about)
        parts += drawing
    return (f'<svg class="map" viewBox="-1 0 {WIDTH + 2:.0f} {y:.0f}" role="img" aria-label="shared memory, to scale">'
            f'{"".join(parts)}</svg>')


def _bar(top: SharedFact, inside: Sequence[SharedFact], scale: float, y: float,
         about: Mapping[str, list[int]]) -> tuple[list[str], float]:
    """The bar of one symbol from `y` down, and where it ends."""
    made = [f'<rect x="0" y="{y:.0f}" width="{(top.bytes or 0) * scale:.1f}" height="{BAR:.0f}" class="free"/>']
    lanes: list[float] = []
    for number, part in enumerate(sorted(inside, key=lambda each: each.offset or 0)):
        size, start = part.bytes or 0, part.offset or 0
        x, wide = start * scale, max(size * scale, 1.5)
        name = part.name
        label = f"{name} · {size:,} B"
        lines = " ".join(map(str, about.get(part.name, ())))
        data = f' data-p="{lines}"' if lines else ""
        tip = f"{name}: bytes {start:,} to {start + size - 1:,} ({start:#x}), {part.what}"
        box = f'<rect x="{x:.1f}" y="{y:.0f}" width="{wide:.1f}" height="{BAR:.0f}" class="part o{number % 8}"/>'
        shape = [f"<title>{escape(tip)}</title>", box, *_ticks(part, x, wide, y)]
        if len(label) * CHARACTER + 8 < wide:
            shape.append(f'<text x="{x + wide / 2:.1f}" y="{y + BAR / 2 + 4:.0f}" text-anchor="middle">{escape(label)}</text>')
        else:
            shape += _leader(label, x + wide / 2, y + BAR, lanes)
        made.append(f'<g class="alloc" tabindex="0"{data}>{"".join(shape)}</g>')
    return made, y + BAR + LANE * len(lanes) + 14


def _ticks(part: SharedFact, x: float, wide: float, y: float) -> Iterator[str]:
    """The bounds of the stages, where they are wide enough to be seen."""
    found = _STAGES.match(part.what)
    stages = int(found[1] or found[2]) if found else 1
    if stages > 1 and wide / stages >= 4:
        for stage in range(1, stages):
            at = x + wide * stage / stages
            yield f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{y:.0f}" y2="{y + BAR:.0f}" class="tick"/>'


def _leader(label: str, x: float, y: float, lanes: list[float]) -> Iterator[str]:
    """A label below the bar, in the first lane that has room, with a line to its place.

    `lanes` are how far each lane is taken, from the left.
    """
    wide = len(label) * CHARACTER + 10
    start = min(max(x + 4, 0), WIDTH - wide)
    lane = next((number for number, taken in enumerate(lanes) if taken <= start), len(lanes))
    lanes[lane:lane + 1] = [start + wide]
    at = y + LANE * (lane + 1)
    yield f'<path d="M{x:.1f} {y:.0f}V{at - 4:.0f}H{max(start - 1, x):.1f}" class="lead"/>'
    yield f'<text x="{start:.1f}" y="{at:.0f}">{escape(label)}</text>'


def _users(entry: EntryFacts) -> dict[str, list[int]]:
    """The PTX lines of the copies, descriptors and barrier instructions by the name of the memory that they are about."""
    found: dict[str, dict[int, None]] = {}
    names = sorted((part.name for part in entry.shared), key=len, reverse=True)
    begins = re.compile(rf"({'|'.join(map(re.escape, names))})(?![\w$.])")

    def add(address: str, line: int | None) -> None:
        name = begins.match(address)
        if name and line is not None:
            found.setdefault(name.group(), {})[line] = None

    for barrier in entry.barriers:
        for use in (*barrier.inits, *barrier.arrives, *barrier.copies, *barrier.waits):
            add(barrier.address, use.line)
    for copy in entry.copies:
        add(copy.shared, copy.line)
    for descriptor in entry.descriptors:
        add(descriptor.address, descriptor.line)
    return {name: list(lines) for name, lines in found.items()}


__all__ = ["drawn"]
