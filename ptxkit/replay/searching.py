"""Looks for a schedule under which a launch fails, and shortens it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..cards import H200, Card
from ..proof.launch import Launch
from ..proof.schedules import SEEDED, Schedule, Schedules, schedules_of
from ..sim.asked import SCHEDULES
from ..sim.errors import SimulationError
from ..sim.policy import Policy, policy_of
from .choices import Choices
from .found import SEEN, Difference, Failure, Search
from .outcome import Outcome, Trial
from .policies import Recording, Replaying
from .probes import Census, probes
from .replay import Replay
from .shrink import Budget, shrink

INCONCLUSIVE = ("max-steps",)
"""Findings that say that a run was cut off, not that it fails."""
ENDLESS = 100_000
"""Warp instructions that are shown of a run that does not end."""


def search_launch(launch: Launch, *, schedules: Schedules = 20, runs: int = 400, seconds: float = 30.0, max_steps: int | None = None,
                  card: Card = H200) -> Search:
    """As `search`, of a launch."""
    if runs < 1 or seconds <= 0:
        raise SimulationError(f"a search takes at least 1 run and some time, not {runs} runs and {seconds} seconds")
    order = [policy_of(*schedule) for schedule in sorted(schedules_of(schedules), key=_plain) if schedule.name != "fifo"]
    return _Search(Trial.of(launch, max_steps, card), Budget(runs, seconds)).all(order)


def recorded(launch: Launch, schedule: Schedule, *, max_steps: int | None = None, card: Card = H200) -> Replay:
    """The replay of a run in this schedule, as it is."""
    trial = Trial.of(launch, max_steps, card)
    recording = Recording(policy_of(*schedule))
    endless = any(finding.rule in INCONCLUSIVE for finding in trial.run(recording, check=False).report.findings)
    if endless:
        trial = Trial(trial.launch, min(ENDLESS, trial.max_steps or ENDLESS), card)
    choices = Choices() if schedule.name == "fifo" else recording.choices()
    return Replay(trial, choices, found=len(choices))


def _plain(schedule: Schedule) -> int:
    """The sort key: schedules that do one thing come before those that do anything, whose recordings are long."""
    return list(SCHEDULES).index(schedule.name) if schedule.name not in SEEDED else len(SCHEDULES) + SEEDED.index(schedule.name)


@dataclass(frozen=True, slots=True)
class _Found:
    failure: Failure
    choices: Choices


class _Search:
    def __init__(self, trial: Trial, budget: Budget) -> None:
        self.trial = trial
        self.budget = budget
        self.usual: Outcome | None = None

    def all(self, policies: Sequence[Policy]) -> Search:
        census = Census()
        first = self.trial.run(Replaying(Choices()), observers=[census])
        self.budget.runs += 1
        self.usual = first
        if any(finding.rule in INCONCLUSIVE for finding in first.report.findings):
            return Search((), self.budget.runs, time.monotonic() - self.budget.began, 1, complete=False)
        if self.trial.max_steps is None:
            most = 100_000 + 20 * first.report.stats.instructions
            self.trial = Trial(self.trial.launch, most, self.trial.card)
        found = [_Found(failure, Choices()) for failure in failures(first, None)[:1]]
        always, tried = bool(found), 1
        tries: list[Recording | Replaying] = [*map(Replaying, probes(census.ctas)), *map(Recording, policies)]
        for policy in tries:
            if self.budget.over() or any(each.failure.rule in SEEN for each in found):
                break
            if not isinstance(policy, Recording) and self.budget.quarter():
                continue
            tried += 1
            for failure in failures(self._run(policy, check=not always), first):
                if not any(failure.same(each.failure) for each in found):
                    choices = policy.choices() if isinstance(policy, Recording) else policy.choices
                    found.append(_Found(failure, choices))
        replays = sorted((self._shortest(each) for each in found), key=_telling)
        return Search(tuple(replays), self.budget.runs, time.monotonic() - self.budget.began, tried, not self.budget.over())

    def _run(self, policy: Policy, *, check: bool) -> Outcome:
        self.budget.runs += 1
        return self.trial.run(policy, check=check)

    def _shortest(self, found: _Found) -> Replay:
        failure = found.failure
        last = [failure]

        def fails(candidate: Choices) -> bool:
            outcome = self._run(Replaying(candidate), check=failure.rule not in SEEN)
            same = next((other for other in failures(outcome, self.usual) if failure.same(other)), None)
            last[0] = same or last[0]
            return same is not None

        short = shrink(found.choices, fails, self.budget) if len(found.choices) else found.choices
        policy = Replaying(short)
        if len(short):
            self._run(policy, check=False)
        return Replay(self.trial, short, last[0], found=len(found.choices), told=tuple(policy.words()))


def _telling(replay: Replay) -> bool:
    """The sort key: what anybody sees (a deadlock, other memory) before what the checker says."""
    return replay.failure is None or replay.failure.rule not in SEEN


def failures(outcome: Outcome, usual: Outcome | None) -> list[Failure]:
    """What fails in a run; `usual` is the run in first-come-first-run order."""
    found = [Failure(each.rule, each.message, each) for each in outcome.report.findings
             if each.severity == "error" and each.rule not in INCONCLUSIVE]
    if usual is None or not outcome.report.ended or not usual.report.ended:
        return found
    different = tuple(differences(usual, outcome))
    if different:
        found.append(Failure("memory", f"memory depends on the schedule: {different[0]}", None, different))
    return found


def differences(usual: Outcome, other: Outcome) -> Iterator[Difference]:
    """For each array and each variable of the module that differs, its first element that does."""
    for name, one in usual.launch.arrays.items():
        yield from _difference(name, one, other.launch.arrays[name])
    for name, was in usual.report.variables.items():
        yield from _difference(name, np.frombuffer(bytes(was), np.uint8), np.frombuffer(bytes(other.report.variables[name]), np.uint8))


def _difference(name: str, one: Any, two: Any) -> Iterator[Difference]:
    was, now = one.tobytes(), two.tobytes()
    if was == now:
        return
    differ = (np.frombuffer(was, np.uint8) != np.frombuffer(now, np.uint8)).reshape(-1, one.dtype.itemsize).any(axis=1)
    index = tuple(int(i) for i in np.unravel_index(int(differ.argmax()), one.shape))
    yield Difference(name, index, str(one[index]), str(two[index]), int(differ.sum()))
