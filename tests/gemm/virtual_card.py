"""A GPU that keeps time: as much of torch.cuda as the bench uses, with a clock that launches advance and a least-recently-used L2."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any


@dataclass(frozen=True, eq=False)
class Torch:
    """The module, as far as the bench uses it."""

    cuda: SimpleNamespace
    equal: Any


class Card:
    """`now` in microseconds. `kernel(us)` is a launch that takes so long; `reader(...)` one whose time depends on what the L2 holds."""

    def __init__(self, l2_bytes: int = 60 << 20) -> None:
        self.now = 0.0
        self.l2_bytes = l2_bytes
        self.lines: OrderedDict[Any, int] = OrderedDict()
        self.recording: list[Callable[[], None]] | None = None
        self.replays: list[Any] = []
        self.torch = Torch(equal=lambda x, y: x == y, cuda=SimpleNamespace(
            Event=lambda enable_timing: Event(self), Stream=lambda: SimpleNamespace(wait_stream=lambda other: None),
            CUDAGraph=lambda: Graph(self), stream=self.stream, current_stream=lambda: None, synchronize=lambda: None,
            _sleep=lambda cycles: self.do(lambda: self.advance(cycles / 1980)), empty_cache=lambda: None))

    @contextmanager
    def stream(self, which: Any) -> Any:
        yield which

    def advance(self, us: float) -> None:
        self.now += us

    def do(self, work: Callable[[], None]) -> None:
        """Now, or when the graph that is being captured is replayed."""
        if self.recording is None:
            work()
        else:
            self.recording.append(work)

    def kernel(self, us: float) -> Callable[[], None]:
        return lambda: self.do(lambda: self.advance(us))

    def reader(self, name: Any, size: int, warm_us: float, cold_us: float) -> Callable[[], None]:
        """Reads `size` bytes of one operand set, in lines of 1 MiB."""
        def work() -> None:
            missed = 0
            lines = max(1, size >> 20)
            for line in range(lines):
                key = name, line
                missed += key not in self.lines
                self.lines[key] = 1
                self.lines.move_to_end(key)
                if len(self.lines) > self.l2_bytes >> 20:
                    self.lines.popitem(last=False)
            self.advance(warm_us + (cold_us - warm_us) * missed / lines)
        return lambda: self.do(work)


@dataclass
class Matrix:
    """A result that is NaN or right."""

    written: bool = False

    def fill_(self, value: float) -> None:
        self.written = value == value

    def clone(self) -> Matrix:
        return Matrix(self.written)


class Event:
    def __init__(self, card: Card) -> None:
        self.card = card
        self.when = -1.0

    def record(self) -> None:
        assert self.card.recording is None
        self.when = self.card.now

    def synchronize(self) -> None:
        assert self.when >= 0

    def elapsed_time(self, other: Event) -> float:
        return (other.when - self.when) / 1e3


class Graph:
    def __init__(self, card: Card) -> None:
        self.card = card
        self.work: list[Callable[[], None]] = []

    def capture_begin(self, capture_error_mode: str) -> None:
        assert self.card.recording is None
        self.card.recording = self.work

    def capture_end(self) -> None:
        self.card.recording = None

    def replay(self) -> None:
        assert self.work
        self.card.replays.append(self)
        for work in self.work:
            work()
