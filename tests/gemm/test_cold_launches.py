"""The timer of sweeps, with a card that is late as often as a test says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ptxkit.gemm.tools.cold_launches import ENQUEUE_US, MOST_ENQUEUE_US, TRIES, SpinTimer

pytestmark = pytest.mark.pure


class Card:
    """As much of torch as the timer uses. A burst takes 3 ms, and the first `late` ones begin before all launches are there."""

    def __init__(self, late: int) -> None:
        self.late, self.slept = late, list[int]()
        self.cuda = SimpleNamespace(_sleep=self.slept.append, Event=lambda **_: self)

    def query(self) -> bool:
        return len(self.slept) <= self.late

    def record(self) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, _: Any) -> float:
        return 3.0


def test_a_burst_is_measured_again_while_the_host_is_late() -> None:
    """Each time the card spins twice as long. Where it stays late the last time counts."""
    for late, bursts in ((0, 1), (2, 3), (9, TRIES)):
        card, done = Card(late), list[int]()
        assert SpinTimer(card).us([lambda one=one, done=done: done.append(one) for one in range(4)]) == 750.0
        assert done == [0, 1, 2, 3] * bursts
        assert card.slept == [round(8000 * ENQUEUE_US * 2 ** burst) for burst in range(bursts)]


def test_the_spin_has_bounds() -> None:
    card = Card(100)
    timer = SpinTimer(card)
    for _ in range(20):
        timer.us([lambda: None])
    assert timer.enqueue_us == MOST_ENQUEUE_US
    card.late = 0
    for _ in range(1000):
        timer.us([lambda: None])
    assert timer.enqueue_us == ENQUEUE_US
