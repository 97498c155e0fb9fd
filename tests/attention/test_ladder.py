"""Attention's ladder: every step is within the bound of float64 and certified for every schedule, and assembles as it says."""

from __future__ import annotations

from typing import Any

import pytest

from ptxkit.attention.ladder import simulated
from ptxkit.attention.ladder.rung import Rung, ShapeError
from ptxkit.attention.ladder.rungs import BY_NAME, RUNGS

by_name = pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.name)


def right(outcome: simulated.Outcome) -> None:
    assert outcome.share <= 1, outcome
    assert outcome.report.verdict == "clean", str(outcome.report)
    assert outcome.report.every_schedule


@pytest.mark.pure
@by_name
def test_a_step_is_right_and_certified(rung: Rung) -> None:
    right(simulated.run(rung, simulated.small(rung)))


@pytest.mark.pure
@pytest.mark.thinned(3)
@by_name
def test_a_step_with_a_causal_mask_is_right_and_certified(rung: Rung) -> None:
    right(simulated.run(rung, simulated.small(rung, True), True))


@pytest.mark.pure
@pytest.mark.thinned(8)
@by_name
def test_several_heads_of_another_size_in_another_schedule(rung: Rung) -> None:
    """Falling keys too: the first block has the largest scores, and nothing is rescaled after it."""
    right(simulated.run(rung, simulated.small(rung, True, 64), True, heads=2, HEAD=128, BN=64, grown=0.3, schedule="random", seed=1))


@pytest.mark.pure
def test_a_shape_that_is_not_whole_tiles_is_refused() -> None:
    for rung in RUNGS:
        with pytest.raises(ShapeError, match="works on whole tiles: 4097 rows"):
            rung.require(4097, 128)
        assert rung.name in str(rung.problem(4097, 128))
        assert rung.problem(4096, 128) is None
    assert "take 64 or 128" in str(BY_NAME["tensor_cores"].problem(100, 32))
    assert "take 96 or 104" in str(BY_NAME["loop"].problem(100, 128))


@pytest.mark.pure
def test_a_wrong_or_unwritten_element_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    rung = BY_NAME["loop"]
    real = type(rung.kernel).simulate
    for spoil in (0x3F80, simulated.UNWRITTEN):

        def spoilt(kernel: Any, grid: Any, q: Any, k: Any, v: Any, o: Any, *rest: Any, spoil: int = spoil, **how: Any) -> Any:
            outcome = real(kernel, grid, q, k, v, o, *rest, **how)
            o[-1, -1, -1] = spoil
            return outcome

        monkeypatch.setattr(type(rung.kernel), "simulate", spoilt)
        outcome = simulated.run(rung, 8)
        assert not outcome.fine
        assert "WRONG" in str(outcome)


@pytest.mark.thinned(6)
@pytest.mark.ptxas
@by_name
def test_a_step_assembles_without_spills_and_with_setmaxnreg(rung: Rung) -> None:
    for causal, marks in ((False, False), (True, True)):
        assembly = rung.kernel.assemble(causal=causal, marks=marks)
        used = assembly.resources[rung.name]
        assert (used.spill_stores, used.spill_loads, used.stack) == (0, 0, 0)
        assert assembly.findings == ()                                      # among them that ptxas serialises wgmma
        assert used.registers == 168 or rung.step < 4
    sass = rung.kernel.sass()
    assert ("USETMAXREG.TRY_ALLOC" in sass and "USETMAXREG.DEALLOC" in sass) == (rung.step >= 4)
    assert ("HGMMA.64x128x16.F32.BF16" in sass) == (rung.step >= 1)
    assert ("UTMALDG" in sass) == (rung.step >= 2)
    assert ("BAR.ARV" in sass) == (rung.step >= 5)
