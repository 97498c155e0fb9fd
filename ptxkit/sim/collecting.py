"""Python's cyclic garbage collector while a grid runs: a run makes few cycles, and looking for them takes an eighth of its time."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG = 200_000
"""New objects after which the youngest generation is collected; CPython has 700 or 2,000. As many live in a grid that fills the card."""

_lock = threading.Lock()
_runs: list[tuple[int, int, int]] = []
"""An entry for each run under way: the thresholds that the first one found."""


@contextmanager
def seldom_collecting() -> Iterator[None]:
    """Collect garbage less often. The thresholds are those of before once no run is under way."""
    with _lock:
        found = _runs[0] if _runs else gc.get_threshold()
        _runs.append(found)
        gc.set_threshold(max(YOUNG, found[0]) if found[0] else 0, *found[1:])
    try:
        yield
    finally:
        with _lock:
            _runs.pop()
            if not _runs:
                gc.set_threshold(*found)
