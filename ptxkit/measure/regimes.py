"""How time is taken. Entries are captured in CUDA graphs and replayed in turn, in random order, round after round.

burst      operand sets in turn, more bytes than the L2 holds several times, so that each product finds its operands in memory; graphs
           of about a millisecond with pauses three times as long, so that the card keeps its clocks.
warm       the same on one operand set.
sustained  graphs of about 25 ms without pauses, after the card has settled: it is then limited by its power.
"""

from __future__ import annotations

import random
import statistics
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .asked import Launch, Regime, Timer

MOST_LAUNCHES = 2048
"""In one graph: what a graph's replay costs the host grows with it."""
COLD = 5
"""Bytes in rotation over those of the L2: with random replacement a line survives one turn with probability exp(-5), under 1 %."""
MOST_SETS = 512


def sets_that_are_cold(set_bytes: int, l2_bytes: int, most: int = MOST_SETS) -> int:
    """How many operand sets, used in turn, leave next to nothing of a set in the L2 until its next turn."""
    return max(1, min(most, -(-COLD * l2_bytes // max(1, set_bytes))))


@dataclass(frozen=True, slots=True)
class Entry:
    """One way to do the work that is measured: a launch for each operand set, used in turn.

    `scale` is the work of a launch in units of that work. A ceiling computes no result.
    """

    name: str
    launches: list[Launch]
    label: str = ""
    scale: float = 1.0
    ceiling: bool = False
    detail: dict[str, Any] = field(default_factory=dict)
    keeps: tuple[Any, ...] = ()


REGIMES = {regime.name: regime for regime in (
    Regime("burst", 1.0, True, 3.0, 20),
    Regime("warm", 1.0, False, 3.0, 20),
    Regime("sustained", 25.0, False, 0.0, 12, 0.8),
)}


@dataclass(slots=True)
class Captured:
    """An entry as a graph: `products` is how many units of the work a replay is worth."""

    entry: Entry
    graph: Any
    launches: int
    estimate_us: float

    @property
    def products(self) -> float:
        return self.launches * self.entry.scale


@dataclass(slots=True)
class Timed:
    """Microseconds a unit of work, a round each, and the spans of host time in which they ran."""

    captured: Captured
    us: list[float]
    spans: list[tuple[float, float]]

    @property
    def median(self) -> float:
        return statistics.median(self.us)


def launches_for(estimate_us: float, graph_ms: float, sets: int) -> int:
    """As many as fill the graph, whole turns through the operand sets, at least one turn."""
    turns = max(1, round(1e3 * graph_ms / (estimate_us * sets)))
    return sets * max(1, min(turns, MOST_LAUNCHES // sets))


def capture(timer: Timer, entry: Entry, regime: Regime, graph_ms: float | None = None) -> Captured:
    """The entry's launches as a graph, replayed once."""
    launches = entry.launches if regime.cold else entry.launches[:1]
    start, end = timer.event(), timer.event()
    with timer.aside():
        for launch in launches:                            # whatever a first call allocates or assembles is not captured
            launch()
        timer.synchronize()
        timer.hold()
        start.record()
        for launch in (launches * 3)[:3]:
            launch()
        end.record()
    timer.synchronize()
    estimate = max(1e3 * start.elapsed_time(end) / 3, 1.0)
    count = launches_for(estimate, graph_ms or regime.graph_ms, len(launches))
    graph = timer.graph([launches[i % len(launches)] for i in range(count)])
    graph.replay()
    timer.synchronize()
    return Captured(entry, graph, count, estimate)


def measure(timer: Timer, entries: Sequence[Captured], regime: Regime, rounds: int, seed: int = 0, *,
            settle_s: float | None = None) -> list[Timed]:
    """Every entry once a round, in random order."""
    found = [Timed(entry, [], []) for entry in entries]
    order = random.Random(seed)
    settle_s = regime.settle_s if settle_s is None else settle_s
    turns = [timed for _ in range(rounds) for timed in order.sample(found, len(found))]
    if regime.pause:
        for timed in turns:
            _burst(timer, timed, regime)
    else:
        _settle(timer, found, settle_s)
        _sustained(timer, turns)
    return found


def _burst(timer: Timer, timed: Timed, regime: Regime) -> None:
    start, end = timer.event(), timer.event()
    timer.hold()
    begin = time.perf_counter()
    start.record()
    timed.captured.graph.replay()
    end.record()
    end.synchronize()
    stop = time.perf_counter()
    ms = start.elapsed_time(end)
    timed.us.append(1e3 * ms / timed.captured.products)
    timed.spans.append((begin, stop))
    time.sleep(regime.pause * ms / 1e3)


def _settle(timer: Timer, found: Sequence[Timed], seconds: float) -> None:
    """Replays in turn until the clocks have come down to what the power allows."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for timed in found:
            timed.captured.graph.replay()
        timer.synchronize()


def _sustained(timer: Timer, turns: Sequence[Timed]) -> None:
    """Two graphs are always enqueued beyond the one that runs, so the card never waits."""
    flying: deque[tuple[Timed, Any, Any]] = deque()
    before = time.perf_counter()

    def land() -> None:
        nonlocal before
        timed, start, end = flying.popleft()
        end.synchronize()
        now = time.perf_counter()
        timed.us.append(1e3 * start.elapsed_time(end) / timed.captured.products)
        timed.spans.append((before, now))
        before = now

    for timed in turns:
        start, end = timer.event(), timer.event()
        start.record()
        timed.captured.graph.replay()
        end.record()
        flying.append((timed, start, end))
        if len(flying) > 2:
            land()
    while flying:
        land()


def best_of(timer: Timer, entries: Sequence[Entry], regime: Regime, rounds: int = 3) -> Captured:
    """The fastest of several entries of one baseline, by a few interleaved rounds."""
    graphs = [capture(timer, entry, regime) for entry in entries]
    if len(graphs) == 1:
        return graphs[0]
    return min(measure(timer, graphs, regime, rounds, settle_s=0.0), key=lambda timed: timed.median).captured


__all__ = ["COLD", "MOST_LAUNCHES", "MOST_SETS", "REGIMES", "Captured", "Entry", "Regime", "Timed", "best_of", "capture",
           "launches_for", "measure", "sets_that_are_cold"]
