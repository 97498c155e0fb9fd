"""A timeline in Chrome's trace event format, which Perfetto and chrome://tracing show: a process is an SM, a thread a warp."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..replay.trace import process, thread

if TYPE_CHECKING:
    from .timeline import Timeline, Track

Row = dict[str, Any]
WARPS = 64
"""Warps of a CTA, at most, in the numbers of threads."""


def traced(timeline: Timeline, sms: int | None) -> Row:
    """The trace as an object for JSON."""
    about: Row = {"kernel": timeline.kernel, "device": timeline.device, "notes": timeline.notes(),
                  "clocks of SMs are aligned within": f"{timeline.resolution} ns"}
    if timeline.overhead is not None:
        about["overhead"] = str(timeline.overhead)
    return {"traceEvents": list(_rows(timeline.of_sms(sms))), "displayTimeUnit": "ns", "otherData": about}


def _rows(tracks: tuple[Track, ...]) -> Iterator[Row]:
    for sm in sorted({track.sm for track in tracks}):
        yield from process(sm + 1, f"SM {sm}", sm)
    warps: dict[tuple[int, int, int], list[str]] = {}
    for track in tracks:
        warps.setdefault((track.sm, track.cta, track.warp), []).append(track.role)
    for (sm, cta, warp), roles in warps.items():
        words = " ".join(role for role in roles if role)
        yield from thread((sm + 1, WARPS * cta + warp + 1), f"CTA {cta} warp {warp} {words}".rstrip(), WARPS * cta + warp)
    for track in tracks:
        yield from _track(track)


def _track(track: Track) -> Iterator[Row]:
    at = {"pid": track.sm + 1, "tid": WARPS * track.cta + track.warp + 1}
    if track.role:
        yield {"name": track.role, "cat": "role", "ph": "X", **at, "ts": track.begin / 1000, "dur": (track.end - track.begin) / 1000,
               "args": {"clocks": track.clocks}}
    for span in track.spans():
        yield {"name": span.name, "cat": "span", "ph": "X", **at, "ts": span.begin / 1000, "dur": (span.end - span.begin) / 1000,
               "args": {"clocks": span.clocks}}
    for name, time in track.points:
        yield {"name": name, "cat": "mark", "ph": "i", "s": "t", **at, "ts": time / 1000}
