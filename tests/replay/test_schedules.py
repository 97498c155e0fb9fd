"""A schedule that was recorded is repeated exactly, and a shortened one still fails in the same way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxkit import TensorMap, sim
from ptxkit.proof.launch import fresh
from ptxkit.replay import Choices, Trial, search
from ptxkit.replay.choices import FORMAT, Help, Land, Run, joined
from ptxkit.replay.policies import Recording, Replaying
from ptxkit.replay.probes import Census, probes
from ptxkit.replay.searching import failures, search_launch
from ptxkit.replay.shrink import Budget, shrink
from ptxkit.sim.asked import SCHEDULES
from ptxkit.sim.policy import policy_of
from tests.sim.mutants.subjects import SUBJECTS

from .kernels import CROSSED, LATE, NEIGHBOUR, OVERTAKEN, RACE, trial
from .programs import WORDS, program

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]


def trial_of(seed: int) -> Trial:
    args = [np.arange(WORDS, dtype=np.uint32), np.zeros(64, np.uint32)]
    return trial(program(seed), 2, *args, block=64, max_steps=20_000)


def same(launch: Trial, schedule: str, seed: int, check: bool = True) -> Choices:
    """Record a run, repeat it, and hold that both are one; the schedule."""
    recording = Recording(policy_of(schedule, seed))
    with np.errstate(all="ignore"):
        plain = launch.run(policy_of(schedule, seed), check=check)
        first = launch.run(recording, check=check)
        made = Choices.of_data(json.loads(json.dumps(recording.choices().data())))
        policy = Replaying(made)
        again = launch.run(policy, check=check)
    assert made == recording.choices()
    assert first.report == plain.report, "to record a schedule changes it"
    assert first.bytes() == again.bytes() == plain.bytes()
    for what in ("findings", "stats", "output", "verdict", "every_schedule"):
        assert getattr(first.report, what) == getattr(again.report, what)
    assert policy.at == len(made.steps)
    return made


@given(st.integers(0, 10_000), st.sampled_from(list(SCHEDULES)), st.integers(0, 50))
@settings(max_examples=50, deadline=None, derandomize=True)
def test_a_recorded_schedule_is_repeated_exactly(program_seed: int, schedule: str, seed: int) -> None:
    same(trial_of(program_seed), schedule, seed)


@pytest.mark.parametrize("name", ["tile_gemm", "exchange", "bulk_sum", "named", "nvcc.tickets", "staged_mma"])
@pytest.mark.parametrize(("schedule", "seed"), [("random", 3), ("adversarial", 1), ("lazy", 0)])
def test_schedules_of_whole_kernels(name: str, schedule: str, seed: int) -> None:
    subject = SUBJECTS[name]
    args, _, how = subject.launch()
    same(trial(subject.original, args=args, entry=subject.entry, **how), schedule, seed, check=schedule == "random")


def test_the_empty_schedule_is_first_come_first_run() -> None:
    assert not len(Choices())
    launch = trial_of(5)
    assert launch.run(Replaying(Choices())).report == launch.run("fifo").report


def test_random_programs_are_of_all_kinds() -> None:
    """Else the laws above would say little."""
    found = [{finding.rule for finding in trial_of(seed).run("random", seed).report.findings} for seed in range(60)]
    assert {"deadlock", "shared-race", "proxy-fence", "mbarrier-wait"} <= set().union(*found)
    assert 10 < sum("deadlock" not in rules for rules in found) < 50


@pytest.mark.parametrize("text", [{}, {"format": "another"}, {"format": FORMAT, "steps": [["jump", 1]]},
                                  {**Choices().data(), "steps": [["run", 1, 2]]}, {**Choices().data(), "late": [[1, 2]]}, [], 3])
def test_a_damaged_schedule_is_refused(tmp_path: Path, text: Any) -> None:
    path = tmp_path / "schedule.json"
    path.write_text(json.dumps(text))
    with pytest.raises(sim.SimulationError, match=r"schedule\.json is (no schedule|damaged)"):
        Choices.load(path)
    path.write_text("{")
    with pytest.raises(sim.SimulationError, match="is no JSON"):
        Choices.load(path)
    with pytest.raises(sim.SimulationError, match="cannot read"):
        Choices.load(tmp_path / "none.json")


# ----------------------------------------------------------------------------------------------------- searching


def rules_of(found: Any) -> list[str]:
    return [replay.failure.rule for replay in found.replays]


def test_a_race_in_every_schedule_needs_none() -> None:
    found = search(RACE, 1, np.zeros(64, np.uint32), block=64)
    assert rules_of(found) == ["shared-race"]
    assert not len(found.replay.choices)
    assert "in first-come-first-run order" in str(found)


def test_memory_that_differs_needs_one_choice() -> None:
    out = np.zeros(2, np.uint32)
    found = search(LATE, 2, out, block=32)
    assert rules_of(found) == ["memory"]
    assert found.replay.choices == Choices(last=frozenset({(0, 0)}))
    assert "1. CTA 0 warp 0 goes on only when all others wait" in str(found)
    assert "out[1] is 0, first come first run gives 7" in str(found)
    assert not out.any(), "a search changes the caller's arrays"
    assert found.replay.run().launch.arrays["out"].tolist() == [7, 0]


def test_a_failure_that_is_seen_comes_first() -> None:
    found = search(NEIGHBOUR, 1, np.zeros(64, np.uint32), block=64)
    assert rules_of(found)[0] == "memory"
    assert {"shared-race"} <= {finding.rule for finding in found.replay.run().report.findings}


@pytest.mark.parametrize(("text", "arrays"), [(CROSSED, 0), (OVERTAKEN, 1)])
def test_deadlocks(text: str, arrays: int) -> None:
    found = search(text, 1, *[np.zeros(4, np.uint32)] * arrays, block=64)
    assert rules_of(found) == ["deadlock"]


def test_a_right_kernel_has_no_failure() -> None:
    subject = SUBJECTS["named"]
    args, _, how = subject.launch()
    found = search(subject.original, how.pop("grid"), *args, schedules=12, **how)
    assert not found
    assert "no schedule fails" in str(found)
    assert found.schedules >= 12
    assert found.complete


@given(st.integers(0, 10_000))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_a_shortened_schedule_fails_in_the_same_way(seed: int) -> None:
    found = search_launch(trial_of(seed).launch, schedules=8, runs=80, seconds=10)
    for replay in found.replays:
        assert len(replay.choices) <= replay.found or not replay.found
        usual = replay.trial.run(Replaying(Choices()))
        assert any(replay.failure.same(each) for each in failures(replay.run(), usual))


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(1, 4)), max_size=30), st.data())
@settings(max_examples=150, deadline=None, derandomize=True)
def test_shortening_finds_what_is_needed(runs: list[tuple[int, int, int]], data: Any) -> None:
    """Against an oracle: a schedule fails if and only if it has certain choices; these are what is left."""
    steps = *(Run(cta, warp, 0, blocks) for cta, warp, blocks in runs), Land(0, 0, 1, 2), Help(((0, 0, 1),))
    late = frozenset((0, 0, n) for n in range(1, 4))
    needed = data.draw(st.sets(st.sampled_from(steps), max_size=3)) if steps else set()
    wanted = data.draw(st.sets(st.sampled_from(sorted(late)), max_size=2))

    def fails(schedule: Choices) -> bool:
        return needed <= set(schedule.steps) and wanted <= schedule.late

    whole = Choices(steps, late)
    short = shrink(whole, fails, Budget(2_000, 60))
    assert fails(short)
    assert short.late == wanted
    assert set(short.steps) == needed
    assert len(short) == len(needed) + len(wanted)


def test_a_search_ends_in_time() -> None:
    calls = 0

    def fails(_: Choices) -> bool:
        nonlocal calls
        calls += 1
        budget.runs += 1
        return True

    budget = Budget(7, 60)
    shrink(Choices(tuple(Run(0, i % 3, 0, 1) for i in range(1000))), fails, budget)
    assert calls <= 7
    found = search(NEIGHBOUR, 1, np.zeros(64, np.uint32), block=64, runs=3)
    assert found.runs <= 4
    assert not found.complete
    with pytest.raises(sim.SimulationError, match="at least 1 run"):
        search(NEIGHBOUR, 1, np.zeros(64, np.uint32), block=64, runs=0)


def test_runs_of_one_warp_are_joined() -> None:
    steps = (Run(0, 0, 0, 1), Run(0, 0, 0, 2), Run(0, 1, 0, 5), Run(0, 0, 0, 7))
    assert joined(steps) == (Run(0, 0, 0, 3), Run(0, 1, 0, 5), Run(0, 0, 0, 7))
    assert Choices(steps).switches == 2


# ----------------------------------------------------------------------------------------------------- arrays


def test_copied_arrays_share_memory_as_the_given_ones_do() -> None:
    base = np.arange(64, dtype=np.float32).reshape(8, 8)
    part, turned, alone = base[2:, 1:5], base.T, np.ones(3)
    fixed = np.arange(4)
    fixed.flags.writeable = False
    made = fresh([base, part, turned, 7, TensorMap(part, box=(2, 4)), alone, part, fixed])
    assert np.array_equal(made[1], part)
    assert np.array_equal(made[2], turned)
    made[0][3, 3] = -1
    assert made[1][1, 2] == made[2][3, 3] == made[4].array[1, 2] == -1
    assert made[1].strides == part.strides
    assert made[3] == 7
    assert base[3, 3] == 27
    assert not made[7].flags.writeable


# ----------------------------------------------------------------------------------------------------- probes


def test_probes_are_different_and_few() -> None:
    made = list(probes([(0, 12), (1, 12)]))
    assert len(set(made)) == len(made)
    assert all(each.steps == each.elections == () for each in made)
    assert {frozenset({(1, 11)}), frozenset({(0, warp) for warp in range(4)})} <= {each.last for each in made}
    assert len(list(probes([(cta, 32) for cta in range(1000)]))) < 200
    assert list(probes([])) == []


@pytest.mark.parametrize("name", ["tile_gemm", "exchange", "named", "nvcc.multistage"])
def test_a_right_kernel_stays_right_when_any_role_is_slow(name: str) -> None:
    """All that a probe does the hardware may do: it ends, and leaves the same memory."""
    subject = SUBJECTS[name]
    args, _, how = subject.launch()
    of = trial(subject.original, args=args, entry=subject.entry, max_steps=100_000, **how)
    census = Census()
    usual = of.run(Replaying(Choices()), check=False, observers=[census])
    for choices in list(probes(census.ctas))[::5]:
        policy = Replaying(choices)
        outcome = of.run(policy, check=False)
        assert outcome.report.ended, (choices, outcome.report)
        assert outcome.bytes() == usual.bytes()
        assert Choices.of_data(choices.data()) == choices
        assert len(policy.words()) == len(choices)
