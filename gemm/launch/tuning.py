"""New shapes tuned on their first use: `with gemm.tuning():`, or PTXKIT_TUNE. What was found is used from then on, also without either.

Nothing is tuned while the stream is captured into a graph: the heuristic serves there, and a later use is tuned. A shape that could not be
tuned keeps the heuristic's configuration, which is said once.
"""

from __future__ import annotations

import itertools
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from ptxkit.cards import Card
from ptxkit.errors import LaunchError, PtxkitError
from ptxkit.files import make_folder
from ptxkit.runtime import driver
from ptxkit.settings import settings
from ptxkit.tuning.locks import locked
from ptxkit.tuning.search import halving

from ..config.dense import DenseConfig
from ..heuristic import table
from ..heuristic.dense import candidates, heuristic
from ..heuristic.overlaps import other_begins
from ..heuristic.tuned import kind, knobs, shape_of, tuned
from ..problem.dense import Arrays, Problem, short
from ..problem.options import number
from .trial import DeviceTimer, Launches

SECONDS = 5.0
MOST = 48
"""Configurations of a shape that are tried, if the seconds are enough."""
ASSEMBLING = 0.6
"""The share of the seconds in which configurations are assembled and loaded; the rest measures them."""
WORTH = 0.99
"""What a configuration must take of the heuristic's time, at most, to replace it: less is noise."""
_LOG = logging.getLogger("ptxkit")


class Timer(Protocol):
    """Measures the configurations of one product."""

    def admit(self, found: Sequence[DenseConfig], until: float) -> list[DenseConfig]:
        """Those that can be launched and give the same result as the first one. After `until` (of `time.monotonic`) no more are tried."""

    def times(self, some: Sequence[DenseConfig], rounds: int) -> list[float]:
        """The median microseconds of each over so many rounds, in which all are run in turn."""

    def close(self) -> None:
        """Gives back what it holds."""


MakeTimer = Callable[[Problem, Arrays, int, int, Launches], Timer]
"""From the product, its arrays, the ordinal of the device, the stream of the call, and what makes its launches."""


@dataclass(frozen=True, slots=True)
class Wish:
    """How new shapes are tuned."""

    seconds: float = SECONDS
    table: Path | None = None                   # None: that of PTXKIT_TUNE, else the card's in the cache directory
    timer: MakeTimer | None = None              # None: by events on the device

    def path(self, card: Card) -> Path | None:
        """The table of a card that entries are added to; None when they are kept by this process alone."""
        return table.kept_at(card, self.table)


class tuning:  # it is called as a function is: `with gemm.tuning():`
    """Shapes without a tuned configuration are tuned on their first use in this block, in all threads of the process.

        with gemm.tuning():
            model(batch)                        # about five seconds for each new shape
        model(batch)                            # what was found is used from now on, and in later processes

    `seconds` is the time for a shape. `table` is the file (or the folder with a file for each card) in which entries are kept instead of
    the cache directory; those that are there are used. Name it in PTXKIT_TABLE to use it later. `timer` replaces the measurement on the
    device. Blocks may be nested; the innermost counts. A product takes up to 300 MB of device memory while it is tuned, or a copy of its
    operands and result. Raises LaunchError for seconds that are no number from 0 on, and for a table that is no path.
    """

    def __init__(self, *, seconds: float = SECONDS, table: str | Path | None = None, timer: MakeTimer | None = None) -> None:
        seconds = number("seconds", seconds)
        if not 0 <= seconds < math.inf:
            raise LaunchError(f"seconds={seconds}: it is the time for a shape, a number from 0 on")
        if not (table is None or (isinstance(table, str | Path) and str(table))):
            raise LaunchError(f"table={short(table)}: it is the path of a .json file or of a folder, or None for the cache directory")
        self._wish = Wish(seconds, None if table is None else Path(table).expanduser().absolute(), timer)

    def __enter__(self) -> None:
        if self._wish.table is not None:
            table.also_read(self._wish.table)
        _open.append(self._wish)
        _news()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with _guard:
            place = next(place for place in reversed(range(len(_open))) if _open[place] is self._wish)
            del _open[place]


_open: list[Wish] = []
_guard = threading.Lock()
_devices: dict[int, threading.Lock] = {}
_failed: set[tuple[int, str, table.Shape]] = set()
_listeners: list[Callable[[], None]] = []


def on_begin(listener: Callable[[], None]) -> None:
    """Calls this whenever a block begins: what is known of launches must ask again whether it was tuned."""
    _listeners.append(listener)


def _news() -> None:
    _failed.clear()
    for listener in _listeners:
        listener()


def wish() -> Wish | None:
    """How new shapes are tuned now; None when they are not."""
    if _open:
        return _open[-1]
    return _ENVIRONMENT if settings().tune else None


_ENVIRONMENT = Wish()


def first_use(problem: Problem, arrays: Arrays, ordinal: int, stream: int, card: Card,
              launches: Launches) -> tuple[DenseConfig | None, bool]:
    """The tuned configuration of a product, measured now if there is none. And whether that is settled: it is not during a capture."""
    now, found = wish(), tuned(problem, card, exact=True)
    if now is None or found is not None:
        return found, True
    key = ordinal, kind(problem), shape_of(problem)
    if key in _failed:
        return None, True
    if driver.capturing(stream, ordinal):
        return None, False
    with _guard:
        device = _devices.setdefault(ordinal, threading.Lock())
    with device, _turn(now.path(card), problem, now.seconds):
        found = tuned(problem, card, exact=True)        # another thread or process may have been faster
        if found is not None:
            return found, True
        try:
            config, entry = search(problem, card, now, lambda: _timer(now, problem, arrays, ordinal, stream, launches))
        except PtxkitError as error:
            _failed.add(key)
            _LOG.warning("%s was not tuned and keeps its configuration: %s", _words(problem), str(error).splitlines()[0])
            return None, True
        table.keep(card, key[1], key[2], entry, now.path(card))
        return config, True


@contextmanager
def _turn(path: Path | None, problem: Problem, seconds: float) -> Iterator[None]:
    """One process at a time tunes a shape for a table; the others find what it found. None waits for more than twice the time."""
    if path is None:
        yield
        return
    try:
        make_folder(path.parent, settings().cache_dir)
    except OSError:                             # `table.keep` says it
        yield
        return
    shape = "x".join(map(str, shape_of(problem)))
    with locked(path.with_name(f"{path.stem}.{kind(problem).replace('/', '-')}.{shape}"), 2 * seconds):
        table.reread()
        yield


def _timer(now: Wish, problem: Problem, arrays: Arrays, ordinal: int, stream: int, launches: Launches) -> Timer:
    if now.timer is None:
        return DeviceTimer(arrays, ordinal, stream, launches)
    return now.timer(problem, arrays, ordinal, stream, launches)


def search(problem: Problem, card: Card, now: Wish, make: Callable[[], Timer]) -> tuple[DenseConfig, dict[str, Any]]:
    """The fastest configuration of a product within the seconds, and its entry of a table."""
    begin = time.monotonic()
    usual = heuristic(problem, card)
    near = tuned(problem, card)
    first = [usual] if near is None else [usual, near]
    found = list(dict.fromkeys([*first, *other_begins(usual), *itertools.islice(candidates(problem, card), MOST)]))
    timer = make()
    try:
        right = timer.admit(found, begin + ASSEMBLING * now.seconds)
        if not right:
            raise PtxkitError("none of its configurations can be launched")
        ranked = halving(right, timer.times, late=lambda: time.monotonic() - begin > now.seconds)
        least, best = ranked[0]
        (own,) = timer.times([usual], 4) if usual in right and best != usual else (least,)
    finally:
        timer.close()
    if usual in right and least > WORTH * own:
        least, best = own, usual
    measured = {"us": float(f"{least:.4g}"), **({"heuristic_us": float(f"{own:.4g}")} if usual in right else {})}
    return best, {"config": knobs(best, problem), "measured": {"first_use": measured}, "of": len(right), "wrong": len(found) - len(right)}


def _words(problem: Problem) -> str:
    return f"{'x'.join(map(str, shape_of(problem)))} of {kind(problem)}"


__all__ = ["MakeTimer", "Timer", "Wish", "first_use", "on_begin", "search", "tuning", "wish"]
