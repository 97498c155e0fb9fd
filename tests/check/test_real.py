"""The static rules on real code: compilers' output, the bundled kernels, and both with a mistake in them."""

from __future__ import annotations

import platform
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.compact import compact
from ptxkit.check import check
from tests.sim.mutants.deletions import SYNC, count, without
from tests.sim.mutants.edit import Edit, written
from tests.sim.mutants.more import MUTANTS, VARIANTS
from tests.sim.mutants.subjects import SUBJECTS

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "static.json"
COMPILED = sorted([*(ROOT / "tests" / "corpus").glob("*.ptx"), *(ROOT / "tests" / "sim").glob("*/*.ptx")])

EARNED = {
    "tma.ptx": {
        "load_tiles multicasts into its pair and never meets it": [("cluster-entry", "error", "tma.cu:23")],
        "a read-only wait that leaves the newest group": [("bulk-exit", "review", "tma.cu:56"), ("bulk-exit", "review", "tma.cu:57")],
        "by_hand expects no bytes": [("expect-tx", "error", "tma.cu:69")],
        "and touches a CTA that it has not met": [("cluster-entry", "review", "tma.cu:80"), ("cluster-entry", "review", "tma.cu:81")],
    },
    "wgmma.ptx": {"nvcc clears the accumulators behind the fence": [("wgmma-fence", "review", "100"), ("wgmma-fence", "review", "162")]},
    "unoptimised.ptx": {"nvcc -O0 divides by 2": [("division", "info", "unoptimised.cu:51")]},
}
"""What the corpus, which is there for its instructions and not all of it to be run, earns; and why."""

NO_ERROR = {
    "cluster_multicast": {2, 3, 6, 7}, "tma_copy": {1, 4, 5}, "staged_mma": {0, 7}, "exchange": {2, 3, 8, 9, 10},
    "named": set(), "pool": {1},
    "nvcc.add_one": set(range(1, 12)), "nvcc.around": {0, 2, 4, 6}, "nvcc.distributed": {0, 2, 3},
}
"""Of small kernels: the synchronising instructions, by number, whose deletion earns no error of a static rule. A review is none."""
NEEDLESS = r"fence\.mbarrier_init|cp\.async\.bulk\.wait_group 0"
"""Deletions that are no mistake: of a fence that the default release of the barrier behind it makes needless, and of a last drain."""
SPECIAL = {"cluster_multicast": {6, 7}, "tma_copy": {1, 4}, "staged_mma": {7}, "retarget": {3, 9}, "outputs": {1},
           "nvcc.staged": {16, 17, 18, 19, 20}}
"""More of them, by number."""
CAUGHT = {"mutants": 341, "mutants with an error": 182, "deletions": 360, "deletions with an error": 198}
"""What the rules catch of the catalogue and of the deletions that are mistakes, at least."""


@pytest.mark.parametrize("path", COMPILED, ids=lambda path: path.name)
def test_compilers_output_earns_no_language_finding_and_known_others(path: Path) -> None:
    found = check(path.read_text(encoding="utf-8"))
    assert [str(f) for f in found if f.kind == "language"] == []
    earned = [one for lines in EARNED.get(path.name, {}).values() for one in lines]
    assert sorted((f.rule, f.severity, str(f.position).removeprefix("line ")) for f in found) == sorted(earned)


@pytest.mark.parametrize("name", SUBJECTS)
def test_kernels_that_are_right_earn_nothing(name: str) -> None:
    assert [str(f) for f in check(SUBJECTS[name].original)] == []


@pytest.mark.parametrize("name", VARIANTS)
def test_changes_that_are_no_mistake_earn_no_error(name: str) -> None:
    assert [str(f) for f in check(VARIANTS[name].source()) if f.severity == "error"] == []


def needless(name: str) -> set[int]:
    said = [written(s) for s in Edit(SUBJECTS[name].original, SUBJECTS[name].entry).find(SYNC)]  # type: ignore[arg-type]
    relaxed = any("cluster.arrive.relaxed" in line for line in said)
    return {i for i, line in enumerate(said) if re.search(NEEDLESS, line) and not (relaxed and "fence" in line)} | SPECIAL.get(name, set())


def severities(source: Any) -> set[str]:
    return {finding.severity for finding in check(source)}


@pytest.mark.parametrize("name", NO_ERROR)
def test_what_is_deleted_from_a_small_kernel_is_missed(name: str) -> None:
    without_error = {number for number in range(count(name)) if "error" not in severities(without(name, number))}
    assert without_error == NO_ERROR[name]
    assert needless(name) <= without_error


@pytest.mark.parametrize("name", ["W2:hgemm", "W4.mma:tile_gemm", "W13:hgemm"])
def test_results_of_a_loop_that_are_read_in_flight_after_it_are_an_error(name: str) -> None:
    """The loop goes on under a condition whose opposite ends it: another round gives it another number."""
    assert {said for said in _said(MUTANTS[name].source()) if said.startswith("wgmma")} <= {"wgmma-wait: error", "wgmma-commit: error"}
    assert _error(_said(MUTANTS[name].source()))


@pytest.mark.sweep
@pytest.mark.timeout(1200)
def test_the_catalogue_and_every_deletion(request: pytest.FixtureRequest) -> None:
    """What static rules see of mistakes that the CPU device is there for; nothing that is harmless earns an error."""
    if "sweep" not in (request.config.option.markexpr or ""):
        pytest.skip("with -m sweep")
    mutants = {name: _said(mutant.source()) for name, mutant in MUTANTS.items()}
    deleted = {name: {number: _said(without(name, number)) for number in range(count(name))} for name in SUBJECTS}
    harmless = [(name, number) for name in deleted for number in needless(name)]
    errors = [f"{name} {number}" for name, number in harmless if _error(deleted[name][number])]
    assert errors == []
    mistakes = [row for name, rows in deleted.items() for number, row in rows.items() if (name, number) not in harmless]
    caught = {"mutants": sum(map(bool, mutants.values())), "mutants with an error": sum(map(_error, mutants.values())),
              "deletions": sum(map(bool, mistakes)), "deletions with an error": sum(map(_error, mistakes))}
    results = {"command": "pytest -m sweep tests/check/test_real.py", "python": platform.python_version(),
               "of": {"mutants": len(mutants), "deletions": len(mistakes)}, "caught": caught, "table": mutants, "deleted": deleted}
    RESULTS.write_text(compact(results), encoding="utf-8")
    assert {name: caught[name] for name in CAUGHT if caught[name] < CAUGHT[name]} == {}


def _said(source: Any) -> list[str]:
    return [f"{finding.rule}: {finding.severity}" for finding in check(source)]


def _error(row: list[str]) -> bool:
    return any(said.endswith(": error") for said in row)
