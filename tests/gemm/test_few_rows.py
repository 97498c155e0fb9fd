"""Which model chooses for dense products of few rows, and what it takes for some that lie otherwise."""

from __future__ import annotations

import itertools

import pytest

from ptxkit.cards import H100, H200
from ptxkit.gemm.heuristic import corrections
from ptxkit.gemm.heuristic.dense import by_waves, clocks, heuristic, judged
from ptxkit.gemm.tools.problems import asked


def test_batch_invariant_products_of_few_rows_have_narrow_tiles_where_b_lies_along_k():
    """Along N its copies have spans of 64 columns."""
    widths = {layout: [heuristic(asked(rows, n, 2048, layout=layout, batch_invariant=True)).tile.BN for rows in (8, 16, 48)
                       for n in (512, 1152, 2104)] for layout in ("nt", "nn")}
    assert min(widths["nt"]) < 32 <= min(widths["nn"])


def test_few_rows_are_chosen_for_by_waves_and_no_others(monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(corrections, "of_card", lambda card: corrections.NONE)  # a card without measurements of few rows
        assert by_waves(asked(64, 4096, 4096))
    assert not by_waves(asked(65, 4096, 4096))
    assert not by_waves(asked(64, 4096, 4096, "e4m3", out="bf16", fast_accum=False))
    for card, m in itertools.product((H100, H200), (4096, 700)):
        problem = asked(m, 4096, 4096)
        chosen = judged(problem, card)
        assert heuristic(problem, card) == chosen.best
        assert clocks(problem, chosen.best, card) == pytest.approx(float(chosen.clocks.min()))


@pytest.mark.parametrize("card", [H100, H200], ids=lambda card: card.name)
def test_ctas_ask_once_for_eight_rows_that_lie_along_m(card):
    """Each K of A has 16 bytes there, and every CTA asks for the same lines: in clusters one copy serves several."""
    for n, k in ((2760, 1096), (9816, 1168), (5128, 3328), (16000, 512)):
        config = heuristic(asked(8, n, k, layout="tn"), card)
        assert config.multicast.m * config.multicast.n > 1 or config.splits > 1
