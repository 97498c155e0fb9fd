"""What an H200 did with warp collectives, as recorded, is what the CPU device computes where it finds nothing wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .gpu_semantics import PROBES, mark, simulated, words
from .gpu_tensor_faults import FINE, Answer

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
LINE = re.compile(r"(?P<mark>[ ~!]) (?P<name>.{48}) (?P<here>\S.*?) +(?P<there>(?:fine: |cuCtx|no answer).*)")
pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]


def recorded() -> dict[str, tuple[str, str]]:
    """(the mark, what the GPU did) of each probe, of the latest record."""
    text = max(RESULTS.glob("*-semantics.txt")).read_text(encoding="utf-8")
    rows = [match for line in text.splitlines() if (match := LINE.fullmatch(line))]
    return {row["name"].strip(): (row["mark"], row["there"]) for row in rows}


def test_the_record() -> None:
    rows = recorded()
    assert rows.keys() == {probe.name for probe in PROBES}
    for probe in PROBES:
        here = simulated(probe)
        expected, there = rows[probe.name]
        assert expected == ("~" if here.words != FINE else " "), probe.name
        if expected == " ":
            assert there == words(here), probe.name
    assert sum(each == " " for each, _ in rows.values()) > 20


def test_a_probe_that_differs_is_marked() -> None:
    one, other = Answer(FINE, bytes(8)), Answer(FINE, bytes([1] * 8))
    assert [mark(one, one), mark(one, other), mark(one, Answer("trap")), mark(Answer("a rule"), other)] == [" ", "!", "!", "~"]
