"""Random edits of right kernels: whatever is certified leaves one memory under every schedule."""

from __future__ import annotations

import random

import pytest

from ptxkit import grammar
from ptxkit.sim.checker import Checker

from . import edits
from .planted import text
from .test_certificate import CASES

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
FEW = [("fifo", 0), ("random", 1), ("reverse", 0), ("lazy", 0), ("spurious", 1)]
SMALL = [name for name in edits.subjects() if name.startswith("twin")]


@pytest.mark.parametrize("part", range(4))
def test_what_is_certified_leaves_one_memory(part: int) -> None:
    """Edits of small kernels with every source of dependence; `python -m tests.sim.edits` edits the others too."""
    found = [edits.judged(seed, SMALL, FEW) for seed in range(1_000_000 + 30 * part, 1_000_000 + 30 * part + 30)]
    assert [result for result in found if result.other] == []
    assert {"clean"} < {result.verdict for result in found}
    assert any(not result.certified and result.verdict != "refused" for result in found)


def test_a_certificate_that_is_false_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the mechanism taken away, a planted dependence is certified, and another schedule leaves another memory."""
    _, _, body, threads, _ = next(case for case in CASES if case[0] == "the result of atom.add.u32")
    planted = grammar.parse(text(body, True, threads))
    monkeypatch.setattr(edits, "edited", lambda subject, draw: ("planted", planted))
    twin = [name for name in SMALL if name.endswith("the result of atom.add.u32")]
    assert not edits.judged(0, twin, FEW).certified
    monkeypatch.setattr(Checker, "withhold", lambda *_, **__: None)
    assert edits.judged(0, twin, FEW).other.startswith("other memory under")


def test_edits_repeat() -> None:
    names = sorted(edits.subjects())
    for seed in range(30):
        made = []
        for _ in range(2):
            draw = random.Random(seed)
            subject = edits.subjects()[draw.choice(names)]
            try:
                made.append(edits.edited(subject, draw)[0])
            except Exception as error:
                made.append(str(error))
        assert made[0] == made[1]


@pytest.mark.sweep
@pytest.mark.timeout(3600)
def test_many_edits(request: pytest.FixtureRequest) -> None:
    if "sweep" not in (request.config.option.markexpr or ""):
        pytest.skip("with -m sweep")
    found = edits.summary([edits.judged(seed) for seed in range(2000)])
    assert found["false"] == []
