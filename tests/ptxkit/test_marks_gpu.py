"""Marks on a card."""

from __future__ import annotations

import numpy as np
import pytest

from ptxkit import device_array, mark, role, span
from tests.ptxkit.marked import counts, written

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]


def test_a_card_writes_what_the_cpu_device_does() -> None:
    marked = written(mark, span, role)
    timeline = marked.timeline(300, device_array(np.zeros(64 * 300, np.uint32)), 4, 2)
    simulated = marked.simulate(2, np.zeros(1024, np.uint32), 4, 2, marks=True).timeline
    for name in ("idle", "producer", "consumer"):
        one, two = counts(timeline.of_role(name)), counts(simulated.of_role(name))
        assert one == {word: 150 * count for word, count in two.items()}
    assert timeline.notes() == []
    assert len({track.sm for track in timeline.tracks}) > 100
    assert timeline.overhead is not None
    assert 0 < timeline.overhead.without < timeline.overhead.marked * 1.5
    for track in timeline.tracks:
        spans = list(track.spans())
        assert all(track.begin <= each.begin <= each.end <= track.end for each in spans)


def test_a_full_slice_is_said() -> None:
    timeline = written(mark, span, role).timeline(2, device_array(np.zeros(1024, np.uint32)), 9, 2, events=3, rounds=0)
    assert timeline.dropped
    assert "would hold them all" in str(timeline)
    assert timeline.overhead is None
