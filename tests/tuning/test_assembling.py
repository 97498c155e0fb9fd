"""Points are assembled in parallel, come in their order with their own errors, and end when nobody asks for more."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxkit import Space
from ptxkit.errors import PtxkitError
from ptxkit.tuning.assembly import assembling
from ptxkit.tuning.tune import admitted

from .clocked import axpy


@pytest.mark.ptxas
def test_parallel_assembly_gives_what_one_after_another_gives():
    space = Space(THREADS=(32, 64, 2048), EACH=(1, 2, 3))
    alone = admitted(axpy, space, jobs=1)
    assert admitted(axpy, space, jobs=8) == alone
    assert [dict(point) for point in alone[0]] == [{"THREADS": threads, "EACH": each} for threads in (32, 64) for each in (1, 2, 3)]


@pytest.mark.pure
@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(0, 30), unique=True, max_size=20), st.integers(1, 6))
def test_points_come_in_their_order_with_their_own_errors(items, jobs):
    def one(item):
        time.sleep(item % 3 * 1e-4)
        if item % 4 == 1:
            raise PtxkitError(str(item))

    found = list(assembling(items, one, jobs))
    assert [item for item, _ in found] == items
    assert [None if error is None else str(error) for _, error in found] == [str(item) if item % 4 == 1 else None for item in items]


@pytest.mark.pure
def test_who_stops_asking_ends_what_has_not_begun(monkeypatch):
    """Two items are under way then, and end after all others were given up."""
    begun, ends, shutdown = [], threading.Event(), ThreadPoolExecutor.shutdown

    def one(item):
        begun.append(item)
        assert item < 6 or ends.wait(60)

    def ending(pool, wait, cancel_futures):
        shutdown(pool, wait=False, cancel_futures=cancel_futures)
        ends.set()
        shutdown(pool, wait=wait)

    monkeypatch.setattr(ThreadPoolExecutor, "shutdown", ending)
    for item, _ in assembling(range(200), one, 2):
        if item == 3:
            break
    assert ends.is_set()
    assert max(begun) < 8
