"""How time is taken. Entries are captured in CUDA graphs and replayed in turn, in random order, round after round.

burst      operand sets in turn, more bytes than the L2 holds several times, so that each product finds its operands in memory; graphs
           of about a millisecond with pauses three times as long, so that the card keeps its clocks.
warm       the same on one operand set.
sustained  graphs of about 25 ms without pauses, after the card has settled: it is then limited by its power.
"""

from __future__ import annotations

import functools
import gc
import random
import statistics
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .baselines import Entry

MOST_LAUNCHES = 2048
"""In one graph: what a graph's replay costs the host grows with it."""
_HOLD_CYCLES = 400_000
"""For 0.2 ms the card spins, so that the graph is enqueued before the first event is passed, and its launch is not timed."""


@dataclass(frozen=True, slots=True)
class Regime:
    """`graph_ms` of work in a graph, then a pause of `pause` times as long; `cold` takes the operand sets in turn."""

    name: str
    graph_ms: float
    cold: bool
    pause: float
    rounds: int
    settle_s: float = 0.0


REGIMES = {regime.name: regime for regime in (
    Regime("burst", 1.0, True, 3.0, 20),
    Regime("warm", 1.0, False, 3.0, 20),
    Regime("sustained", 25.0, False, 0.0, 12, 0.8),
)}


@dataclass(slots=True)
class Captured:
    """An entry as a graph: `products` is how many products of the problem a replay is worth."""

    entry: Entry
    graph: Any
    launches: int
    estimate_us: float

    @property
    def products(self) -> float:
        return self.launches * self.entry.scale


@dataclass(slots=True)
class Timed:
    """Microseconds a product, a round each, and the spans of host time in which they ran."""

    captured: Captured
    us: list[float]
    spans: list[tuple[float, float]]

    @property
    def median(self) -> float:
        return statistics.median(self.us)


@functools.cache
def _side_stream(torch: Any) -> Any:
    """The stream of every capture: a library keeps a workspace for each stream that it sees."""
    return torch.cuda.Stream()


def launches_for(estimate_us: float, graph_ms: float, sets: int) -> int:
    """As many as fill the graph, whole turns through the operand sets, at least one turn."""
    turns = max(1, round(1e3 * graph_ms / (estimate_us * sets)))
    return sets * max(1, min(turns, MOST_LAUNCHES // sets))


def capture(torch: Any, entry: Entry, regime: Regime, graph_ms: float | None = None) -> Captured:
    """The entry's launches as a graph, replayed once."""
    launches = entry.launches if regime.cold else entry.launches[:1]
    side = _side_stream(torch)
    side.wait_stream(torch.cuda.current_stream())
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with torch.cuda.stream(side):
        for launch in launches:                            # whatever a first call allocates or assembles is not captured
            launch()
        torch.cuda.synchronize()
        torch.cuda._sleep(_HOLD_CYCLES)
        start.record()
        for launch in (launches * 3)[:3]:
            launch()
        end.record()
    torch.cuda.synchronize()
    estimate = max(1e3 * start.elapsed_time(end) / 3, 1.0)
    count = launches_for(estimate, graph_ms or regime.graph_ms, len(launches))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(side), _nothing_collected():
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            for i in range(count):
                launches[i % len(launches)]()
        finally:
            graph.capture_end()
    graph.replay()
    torch.cuda.synchronize()
    return Captured(entry, graph, count, estimate)


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """A graph of an earlier measurement that is collected while another one is captured ends that capture with an error."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def measure(torch: Any, entries: Sequence[Captured], regime: Regime, rounds: int, seed: int = 0, *,
            settle_s: float | None = None) -> list[Timed]:
    """Every entry once a round, in random order."""
    found = [Timed(entry, [], []) for entry in entries]
    order = random.Random(seed)
    settle_s = regime.settle_s if settle_s is None else settle_s
    turns = [timed for _ in range(rounds) for timed in order.sample(found, len(found))]
    if regime.pause:
        for timed in turns:
            _burst(torch, timed, regime)
    else:
        _settle(torch, found, settle_s)
        _sustained(torch, turns)
    return found


def _burst(torch: Any, timed: Timed, regime: Regime) -> None:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(_HOLD_CYCLES)
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


def _settle(torch: Any, found: Sequence[Timed], seconds: float) -> None:
    """Replays in turn until the clocks have come down to what the power allows."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for timed in found:
            timed.captured.graph.replay()
        torch.cuda.synchronize()


def _sustained(torch: Any, turns: Sequence[Timed]) -> None:
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
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        timed.captured.graph.replay()
        end.record()
        flying.append((timed, start, end))
        if len(flying) > 2:
            land()
    while flying:
        land()


def best_of(torch: Any, entries: Sequence[Entry], regime: Regime, rounds: int = 3) -> Captured:
    """The fastest of several entries of one baseline, by a few interleaved rounds."""
    graphs = [capture(torch, entry, regime) for entry in entries]
    if len(graphs) == 1:
        return graphs[0]
    return min(measure(torch, graphs, regime, rounds, settle_s=0.0), key=lambda timed: timed.median).captured


__all__ = ["REGIMES", "Captured", "Regime", "Timed", "best_of", "capture", "launches_for", "measure"]
