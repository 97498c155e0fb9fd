"""The timer of a device that tunes, on a driver that does nothing: it gives everything back, and results are compared by their values."""

# ruff: noqa: F811

from __future__ import annotations

import time

import numpy as np
import pytest

from ptxkit.errors import LaunchError
from ptxkit.gemm.heuristic.dense import candidates
from ptxkit.gemm.launch import dense, trial
from ptxkit.measure.regimes import COLD
from ptxkit.measure.values import apart, decoded, span
from ptxkit.runtime.arrays import ArrayView

from .first_use import CARD, card, operands, problem_of, wishes  # noqa: F401


def test_the_device_timer_gives_everything_back(card, monkeypatch) -> None:
    monkeypatch.setitem(card.results, "cuEventElapsedTime", lambda start, end: (0.5,))
    arrays = operands()
    seen = dense.Arrays(*(dense.view(array) for array in arrays))
    problem = problem_of()
    found = list(candidates(problem, CARD))[:3]
    timer = trial.DeviceTimer(seen, 0, 1, dense.launches(problem, dense.PLAIN, 0))
    size = sum(span(array) for array in seen[:3])
    assert len(timer.sets) == min(trial.MOST_SETS, -(-COLD * (50 << 20) // size))
    assert len({each.a.pointer for each in timer.sets} | {arrays[0].pointer}) == len(timer.sets) + 1
    assert timer.admit(found, time.monotonic() + 60) == found
    times = timer.times(found[:2], 3)
    assert times == pytest.approx([500.0 / count for _, count in timer.graphs.values()])
    timer.close()
    timer.close()
    calls = card.calls
    assert calls["cuMemAlloc"] - calls["cuMemFree"] == 3        # those of the call itself
    assert calls["cuEventCreate"] == calls["cuEventDestroy"] == 2
    assert calls["cuStreamBeginCapture"] == calls["cuStreamEndCapture"] == calls["cuGraphInstantiate"] == calls["cuGraphDestroy"]
    assert calls["cuGraphInstantiate"] == calls["cuGraphExecDestroy"] >= 2
    assert calls["cuThreadExchangeStreamCaptureMode"] % 2 == 0


def test_as_many_sets_as_there_is_memory_for(card, monkeypatch) -> None:
    full = []
    allocate = trial.driver.allocate

    def limited(size: int, ordinal: int) -> int:
        if len(full) == limit:
            raise LaunchError("cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY")
        full.append(1)
        return allocate(size, ordinal)

    seen = dense.Arrays(*(dense.view(array) for array in operands()))
    monkeypatch.setattr(trial.driver, "allocate", limited)
    limit = 7
    timer = trial.DeviceTimer(seen, 0, 1, dense.launches(problem_of(), dense.PLAIN, 0))
    assert len(timer.sets) == 2
    timer.close()
    full.clear()
    limit = 2
    before = card.calls["cuMemFree"]
    with pytest.raises(LaunchError, match="OUT_OF_MEMORY"):
        trial.DeviceTimer(seen, 0, 1, dense.launches(problem_of(), dense.PLAIN, 0))
    assert card.calls["cuMemFree"] - before == 2


def test_results_are_compared_by_their_values() -> None:
    values = np.array([0.0, 1.5, -2.0, 448.0, 2.0 ** -9, np.nan])
    import ml_dtypes

    for dtype, name in (("bf16", "bfloat16"), ("e4m3", "float8_e4m3fn"), ("e5m2", "float8_e5m2"), ("f16", "float16"), ("f32", "float32")):
        kind_ = getattr(ml_dtypes, name, None) or np.dtype(name)
        stored = values.astype(kind_)
        assert np.array_equal(decoded(stored.view(np.uint8).reshape(-1), dtype), stored.astype(np.float64), equal_nan=True), dtype
    every = np.arange(256, dtype=np.uint8)
    assert np.array_equal(decoded(every, "e4m3"), every.view(ml_dtypes.float8_e4m3fn).astype(np.float64), equal_nan=True)
    assert apart(np.array([1.0, 2.0]), np.array([1.0, 2.0])) == 0
    assert apart(np.array([1.0, np.nan]), np.array([1.0, 2.0])) == float("inf")
    assert apart(np.array([1.0, 5.0]), np.array([1.0, np.nan])) == float("inf")
    assert apart(np.array([1.1]), np.array([1.0])) == pytest.approx(0.1)
    assert apart(np.array([0.1]), np.array([0.0])) == float("inf")
    assert apart(np.array([0.0]), np.array([0.0])) == 0
    assert span(ArrayView(0, (3, 4), (8, 1), "bf16", 0, "other")) == 2 * (2 * 8 + 3 + 1)
    assert span(ArrayView(0, (3, 4), (0, 1), "f32", 0, "other")) == 16
    assert span(ArrayView(0, (0, 4), (4, 1), "f32", 0, "other")) == 0
