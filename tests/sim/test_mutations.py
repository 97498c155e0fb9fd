"""The bug catalogue against the checker: every mutant must be caught, every kernel that is right must be left alone.

`make test` runs each mutant under one schedule, another for every mutant; `pytest -m sweep tests/sim/test_mutations.py` runs all of them
under first-come, ten random seeds and every adversary, and records the scores.
"""

from __future__ import annotations

import functools
import platform
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from benchmarks.compact import compact
from ptxkit.sim import SCHEDULES

from .mutants.catalogue import Mutant
from .mutants.deletions import COMMON, SPECIAL, count, harmless, without
from .mutants.more import MUTANTS, VARIANTS
from .mutants.operators import ALIKE, HERE, alike, mutants
from .mutants.outcome import Outcome, caught, outcome, refusal
from .mutants.subjects import SUBJECTS

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "mutations.json"
ADVERSARIES = [name for name in SCHEDULES if name not in ("fifo", "random")]
SUITE = [("fifo", 0), *[("random", seed) for seed in range(10)], *[(name, 0) for name in ADVERSARIES]]
PROBES = [("fifo", 0), ("random", 0), ("random", 1), ("lazy", 0), ("adversarial", 0)]
LEFT_ALONE = [("fifo", 0), *[("random", seed) for seed in range(20 - 1 - len(ADVERSARIES))], *[(name, 0) for name in ADVERSARIES]]

NOT_YET: dict[str, str] = {}
"""Mutants that some schedule of `PROBES` lets pass, and why. A mutant that is caught after all fails its test until it leaves the table."""


@functools.cache
def refused(subject: str) -> str:
    return refusal(SUBJECTS[subject])


def run(mutant: Mutant, schedule: str, seed: int) -> Outcome:
    return outcome(SUBJECTS[mutant.subject], _source(mutant), schedule, seed)


@functools.lru_cache(maxsize=4)
def _source(mutant: Mutant) -> Any:
    return mutant.source()


def drawn(name: str) -> tuple[str, int]:
    """A schedule for a mutant: any, but always the same."""
    return SUITE[zlib.crc32(name.encode()) % len(SUITE)]


def need(subject: str) -> None:
    if refused(subject):
        pytest.skip(refused(subject))


def sweeping(request: pytest.FixtureRequest) -> None:
    if "sweep" not in (request.config.option.markexpr or ""):
        pytest.skip("with -m sweep")


@pytest.mark.thinned(12)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(name: str) -> None:
    mutant = MUTANTS[name]
    need(mutant.subject)
    if name in NOT_YET:
        seen = [run(mutant, *schedule) for schedule in PROBES]
        judged = [caught(mutant, one) for one in seen]
        found = all(judged) if mutant.every else any(judged)
        assert not found, f"{name} is caught now ({seen[0]}): take it out of NOT_YET"
        return
    if mutant.every:
        seen = [run(mutant, *drawn(name))]
    else:
        seen = [run(mutant, *schedule) for schedule in SUITE if schedule[0] in ADVERSARIES]
    assert any(caught(mutant, one) for one in seen), [str(one) for one in seen]


@pytest.mark.thinned(6)
@pytest.mark.parametrize("name", VARIANTS)
def test_a_change_that_is_no_mistake_is_left_alone(name: str) -> None:
    variant = VARIANTS[name]
    need(variant.subject)
    seen = run(variant, *drawn(name))
    assert seen.right, str(seen)
    assert seen.verdict in SUBJECTS[variant.subject].right, str(seen)


@pytest.mark.thinned(8)
@pytest.mark.parametrize("name", SUBJECTS)
def test_the_original_is_left_alone(name: str) -> None:
    subject = SUBJECTS[name]
    need(name)
    for schedule in (("fifo", 0), drawn(name), drawn(name[::-1])):
        seen = outcome(subject, subject.original, *schedule)
        assert seen.right, str(seen)
        assert seen.verdict in subject.right, str(seen)


def survivors(name: str, schedules: Callable[[int], list[tuple[str, int]]], numbers: Sequence[int]) -> set[int]:
    """The synchronising instructions whose deletion earns no error under some of the schedules."""
    subject, left = SUBJECTS[name], set()
    for number in numbers:
        source = without(name, number)
        if any(outcome(subject, source, *schedule).verdict != "error" for schedule in schedules(number)):
            left.add(number)
    return left


@pytest.mark.thinned(16)
@pytest.mark.parametrize("name", SUBJECTS)
def test_every_synchronising_instruction_is_needed(name: str) -> None:
    """Each is deleted in its turn: an error, unless it is known to be superfluous."""
    need(name)
    large = name.startswith(("gemm.", "hgemm.", "pingpong"))          # of these some, the rest with -m sweep
    chosen = [number for number in range(count(name)) if not large or zlib.crc32(f"{name}{number}".encode()) % 4 == 0]
    left = survivors(name, lambda number: [drawn(f"{name}-{number}")], chosen)
    assert [number for number in sorted(left) if not harmless(name, number)] == []
    assert left >= set(SPECIAL.get(name, ()))


SMALL = ("bulk_sum", "exchange", "gather", "mail", "named", "outputs", "publish", "retarget", "staged_mma", "transpose", "nvcc.handoff",
         "nvcc.last_block", "nvcc.total")


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", SMALL)
def test_small_mistakes_anywhere(name: str) -> None:
    """A third of what the operators make of a kernel, each under one schedule."""
    made = [(what, source) for what, source in mutants(name) if zlib.crc32(what.encode()) % 3 == 0]
    left = [what for what, source in made if outcome(SUBJECTS[name], source, *drawn(what)).verdict != "error"]
    assert [what for what in left if not alike(name, what)] == []
    assert len(left) < len(made)


def test_the_table_of_those_not_caught_names_mutants() -> None:
    assert not set(NOT_YET) - set(MUTANTS)


def test_an_edit_that_changes_nothing_is_refused() -> None:
    from .mutants.edit import Edit

    edit = Edit(SUBJECTS["named"].original)
    with pytest.raises(LookupError, match="nothing in `named` matches"):
        edit.delete("wgmma")
    with pytest.raises(LookupError, match="changes nothing"):
        edit.change(r"bar\.sync 1", lambda s: (s,))
    with pytest.raises(LookupError, match="is not in"):
        edit.text(r"bar\.sync 1", "shared", "global")


# The whole suite.


def judged(name: str) -> dict[str, Any]:
    """A row of the recorded table: a mutant under the whole suite."""
    mutant = MUTANTS[name]
    if refused(mutant.subject):
        return {"expect": mutant.expect, "caught": None, "reason": refused(mutant.subject)}
    seen = [run(mutant, *schedule) for schedule in SUITE]
    missed = [one for one in seen if not caught(mutant, one)]
    row = {"expect": mutant.expect, "every": mutant.every, "caught": not missed if mutant.every else len(missed) < len(seen),
           "schedules": f"{len(seen) - len(missed)}/{len(seen)}", "wrong numbers": sum(not one.right for one in seen),
           "rules": sorted({rule for one in seen for rule in one.rules})}
    return {**row, "missed": [f"{one.schedule}/{one.seed}" for one in missed]} if missed else row


def left_without(name: str) -> tuple[int, set[int]]:
    return count(name), survivors(name, lambda number: OPERATED, range(count(name)))


MEANT = [name for name in SUBJECTS if not name.startswith(("gemm.", "hgemm"))] + ["gemm.pingpong", "gemm.split", "gemm.spread"]


def left_by_operators(name: str) -> tuple[int, list[str]]:
    """How many mutants the operators make of a subject, and those that some schedule lets pass."""
    made, left = 0, []
    for what, source in mutants(name):
        made += 1
        if any(outcome(SUBJECTS[name], source, *schedule).verdict != "error" for schedule in OPERATED):
            left.append(what)
    return made, left


OPERATED = [("fifo", 0), ("adversarial", 0)]


@pytest.mark.sweep
@pytest.mark.timeout(3600)
def test_every_mutant_under_every_schedule(request: pytest.FixtureRequest) -> None:
    sweeping(request)
    with ProcessPoolExecutor(2) as workers:
        rows = dict(zip(MUTANTS, workers.map(judged, MUTANTS, chunksize=4), strict=True))
        deleted = dict(zip(SUBJECTS, workers.map(left_without, SUBJECTS), strict=True))
        operated = dict(zip(MEANT, workers.map(left_by_operators, MEANT), strict=True))
    score: dict[str, list[int]] = {}
    for name, row in rows.items():
        of_kind = score.setdefault(MUTANTS[name].kind.partition(".")[0], [0, 0])
        of_kind[0] += bool(row["caught"])
        of_kind[1] += 1
    RESULTS.write_text(compact({
        "command": "pytest -m sweep tests/sim/test_mutations.py", "python": platform.python_version(),
        "schedules": [f"{name}/{seed}" for name, seed in SUITE],
        "caught": sum(bool(row["caught"]) for row in rows.values()), "mutants": len(rows),
        "score": {kind: f"{good}/{total}" for kind, (good, total) in score.items()},
        "deletions": {"schedules": [f"{name}/{seed}" for name, seed in OPERATED],
                      "instructions": sum(total for total, _ in deleted.values()),
                      "an error": sum(total - len(left) for total, left in deleted.values()), "harmless": COMMON,
                      "harmless there": SPECIAL},
        "operators": {"schedules": [f"{name}/{seed}" for name, seed in OPERATED],
                      "mutants": sum(total for total, _ in operated.values()),
                      "an error": sum(total - len(left) for total, left in operated.values()), "harmless": ALIKE, "harmless there": HERE,
                      "left": {name: left for name, (_, left) in operated.items()}},
        "table": {name: {key: row[key] for key in ("rules", "missed", "reason") if key in row} for name, row in rows.items()}}),
        encoding="utf-8")
    left = {name for name, row in rows.items() if not row["caught"]}
    assert left == set(NOT_YET), sorted(left ^ set(NOT_YET))
    for name, (_, numbers) in deleted.items():
        assert [number for number in sorted(numbers) if not harmless(name, number)] == [], name
    for name, (_, descriptions) in operated.items():
        assert [what for what in descriptions if not alike(name, what)] == [], name


@pytest.mark.sweep
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", [*SUBJECTS, *VARIANTS])
def test_what_is_right_is_left_alone_under_every_schedule(name: str, request: pytest.FixtureRequest) -> None:
    sweeping(request)
    subject = SUBJECTS[name if name in SUBJECTS else VARIANTS[name].subject]
    need(subject.name)
    source = subject.original if name in SUBJECTS else VARIANTS[name].source()
    for schedule in LEFT_ALONE:
        seen = outcome(subject, source, *schedule)
        assert seen.right, str(seen)
        assert seen.verdict in subject.right, str(seen)
