"""Threads and processes that tune at once: a shape is tuned once, and no result is lost."""

# ruff: noqa: F811

from __future__ import annotations

import multiprocessing
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from ptxkit import gemm
from ptxkit.gemm.config.dense import DenseConfig
from ptxkit.gemm.heuristic.table import Table, keep
from ptxkit.gemm.heuristic.tuned import tuned
from ptxkit.gemm.launch import tuning
from ptxkit.tuning import locks

from .first_use import CARD, KIND, Clock, card, favourite, operands, problem_of, third, wishes  # noqa: F401


def test_threads_tune_a_shape_once(card) -> None:
    best, clock = third(), favourite(third())
    clock.pause_s = 0.1
    got: list[DenseConfig] = []
    barrier = threading.Barrier(6)

    def work() -> None:
        arrays = operands()
        barrier.wait()
        gemm.gemm(*arrays)
        got.append(tuned(problem_of(), CARD, exact=True))

    with gemm.tuning(timer=clock):
        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert clock.made == 1
    assert got == [best] * 6


def _keep_some(path: Path, first: int, ready: Any) -> None:
    ready.wait()
    for number in range(first, first + 10):
        keep(CARD, KIND, (number, 64, 64), {"config": {"tile": {"BN": 64}}}, path)


def _tune_one(folder: Path, ready: Any, out: Any) -> None:
    clock = Clock(lambda config: 10.0, pause_s=0.3)
    tuning.driver.capturing = lambda stream, ordinal: False
    with gemm.tuning(table=folder / "table.json", timer=clock):
        ready.wait()
        tuning.first_use(problem_of(), None, 0, 1, CARD, None)
    out.put(clock.made)


@pytest.mark.timeout(120)
def test_processes_lose_nothing_of_each_other(tmp_path) -> None:
    many = multiprocessing.get_context("fork")
    path, ready = tmp_path / "table.json", many.Barrier(3)
    workers = [many.Process(target=_keep_some, args=(path, 1 + 10 * number, ready)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert len(Table.read(path).entries[KIND]) == 30
    assert {each.name for each in tmp_path.iterdir()} == {"table.json", ".table.json.lock"}


@pytest.mark.timeout(120)
def test_of_processes_one_tunes_a_shape_and_the_others_find_it(tmp_path) -> None:
    many = multiprocessing.get_context("fork")
    ready, out = many.Barrier(3), many.Queue()
    workers = [many.Process(target=_tune_one, args=(tmp_path, ready, out)) for _ in range(3)]
    for worker in workers:
        worker.start()
    made = [out.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join(60)
    assert sorted(made) == [0, 0, 1]
    assert len(Table.read(tmp_path / "table.json").entries[KIND]) == 1


def test_a_lock_that_another_has_is_waited_for_and_given_up(tmp_path) -> None:
    path = tmp_path / "table.json"
    with locks.locked(path) as first:
        assert first
        begin = time.monotonic()
        with locks.locked(path, 0.1) as second:
            assert not second
        assert time.monotonic() - begin >= 0.1
    with locks.locked(path, 0.1) as third_:
        assert third_
    with locks.locked(tmp_path / "no" / "folder") as none:
        assert not none
