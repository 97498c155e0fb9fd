"""docs/scoreboard.md is what its record says, every finding is adjudicated, and each of its gates can fail."""

from __future__ import annotations

import copy
import json
from importlib.metadata import PackageNotFoundError
from typing import Any

import pytest

from benchmarks import scoreboard

pytestmark = pytest.mark.pure

FLOOR = {"Triton softmax", "Triton layer norm", "Triton matmul", "Triton matmul, host descriptors", "Triton matmul, device descriptors",
         "Triton causal attention", "Gluon matmul, blocked", "Gluon matmul, persistent"}


def record() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(scoreboard.RECORD.read_text(encoding="utf-8"))
    return found


def test_the_page_is_what_the_record_says() -> None:
    made = scoreboard.page(record(), scoreboard.adjudications())
    assert scoreboard.PAGE.read_text(encoding="utf-8") == made, "run `python -m benchmarks.scoreboard --page`"


def test_nothing_is_wrong_and_the_floor_is_there() -> None:
    assert scoreboard.faults(record(), scoreboard.adjudications()) == []
    assert {row["kernel"] for row in record()["kernels"] if row["floor"]} == FLOOR


def test_what_the_corpus_earns_is_what_is_recorded() -> None:
    recorded = {row["kernel"]: row["findings"] for row in record()["kernels"] if row["kernel"].startswith("nvcc ")}
    assert {row["kernel"]: row["findings"] for row in scoreboard.corpus()} == recorded


def test_packages_that_are_not_there_are_a_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is compiled or written."""
    def version(package: str) -> str:
        if package == "triton":
            raise PackageNotFoundError(package)
        return "1.0"

    before = scoreboard.RECORD.read_bytes(), scoreboard.PAGE.read_bytes()
    monkeypatch.setattr(scoreboard, "version", version)
    assert scoreboard.main([]) == 1
    assert capsys.readouterr().err == ("no kernel was compiled: there is no triton; `make scoreboard` sets up an environment that has "
                                       "all, and --page writes the page from the record\n")
    assert (scoreboard.RECORD.read_bytes(), scoreboard.PAGE.read_bytes()) == before


def test_every_adjudication_is_used() -> None:
    known = scoreboard.adjudications()
    used = [scoreboard.adjudged(row["kernel"], finding, known) for row in record()["kernels"] for finding in row["findings"]]
    assert [each for each in known if each not in used] == []


@pytest.mark.parametrize(("change", "fault"), [
    ({"findings": [{"rule": "shared-race", "severity": "error", "count": 1}]}, "error shared-race is not adjudicated"),
    ({"findings": [{"rule": "wrong", "severity": "error", "count": 1}]}, "the error wrong is false"),
    ({"right": False}, "its numbers are wrong"),
    ({"proven": False, "dependence": ""}, "not proven, and no dependence is named"),
    ({"proven": False, "dependence": "x depends on y"}, ""),
])
def test_a_fault_is_noticed(change: dict[str, Any], fault: str) -> None:
    known = [*scoreboard.adjudications(), {"kernel": "*", "rule": "wrong", "severity": "error", "true": False, "why": ""}]
    planted = copy.deepcopy(record())
    planted["kernels"][0].update(change)
    name = planted["kernels"][0]["kernel"]
    assert scoreboard.faults(planted, known) == ([f"{name}: {fault}"] if fault else [])
