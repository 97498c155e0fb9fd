"""`check` and ptxas agree on lines near the table's own: what one takes, the other takes."""

from __future__ import annotations

import pytest

from grammar import match
from tests.grammar import certify, near

pytestmark = [pytest.mark.ptxas, pytest.mark.skipif(certify.ptxas() is None, reason="no ptxas")]


def disagreements(judged: list[near.Verdict]) -> list[str]:
    return [f"{v.line.text} | ptxas: {v.ptxas} | check: {v.check}" for v in judged if not v.agrees and not v.stricter]


def test_a_sample_agrees() -> None:
    judged = near.verdicts(16, seed=7)
    found = near.figures(judged)
    assert found["legal"] > 500
    assert found["illegal"] > 1000
    assert found["recall"] >= 0.99, disagreements(judged)
    assert found["specificity"] >= 0.99, disagreements(judged)


@pytest.mark.sweep
@pytest.mark.timeout(1800)
def test_a_sweep_agrees() -> None:
    judged = near.verdicts(300, seed=8)
    found = near.figures(judged)
    assert found["recall"] >= 0.999, disagreements(judged)
    assert found["specificity"] >= 0.995, disagreements(judged)


def test_a_lax_matcher_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match, "accepts", lambda operand, type: True)
    assert near.figures(near.verdicts(40, 2, ("add", "ld", "mma", "cvt")))["specificity"] < 0.95


def test_a_strict_matcher_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match, "accepts", lambda operand, type: operand.type == type)
    assert near.figures(near.verdicts(40, 2, ("add", "ld", "mma", "cvt")))["recall"] < 0.95
