"""The replays of the kernels with a mistake: each shows its failure again, its page and its trace are in order."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from ptxkit.replay import Choices
from ptxkit.replay.page import made
from ptxkit.replay.policies import Replaying
from ptxkit.replay.searching import failures, search_launch
from ptxkit.replay.trace import traced
from tests.sim.mutants import more
from tests.sim.mutants.catalogue import MUTANTS
from tests.sim.mutants.subjects import MAX_STEPS, SUBJECTS

from .kernels import trial
from .test_pages import check_trace, read

pytestmark = [pytest.mark.pure, pytest.mark.timeout(300)]
assert more, "it registers mutants"
SMALL = ("exchange", "publish", "gather", "nvcc.handoff", "named", "outputs", "bulk_sum", "nvcc.total", "tma_copy")


def judge(name: str, seconds: float) -> int:
    """Search, and look at what is found; how many replays there are."""
    mutant = MUTANTS[name]
    subject = SUBJECTS[mutant.subject]
    args, _, how = subject.launch()
    with np.errstate(all="ignore"):
        of = trial(mutant.source(), args=args, entry=subject.entry, max_steps=MAX_STEPS, **how)
        found = search_launch(of.launch, schedules=8, seconds=seconds, max_steps=MAX_STEPS)
        for replay in found.replays:
            usual = replay.trial.run(Replaying(Choices()))
            assert len(replay.choices) <= replay.found
            assert any(replay.failure is not None and replay.failure.same(each) for each in failures(replay.run(), usual))
            outcome, recorder = replay.record()
            assert read(made(replay, outcome, recorder)).ids or not recorder.marks
            check_trace(traced(outcome, recorder, name=name))
    return len(found.replays)


DRAWN = sorted((name for name, mutant in MUTANTS.items() if mutant.subject in SMALL), key=lambda name: zlib.crc32(name.encode()))[:12]


@pytest.mark.parametrize("name", DRAWN)
def test_replays_of_some_mutants(name: str) -> None:
    judge(name, 5)


def test_most_of_them_fail() -> None:
    assert sum(judge(name, 5) > 0 for name in DRAWN[:4]) >= 3


@pytest.mark.sweep
@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_replays_of_every_mutant(name: str) -> None:
    judge(name, 30)
