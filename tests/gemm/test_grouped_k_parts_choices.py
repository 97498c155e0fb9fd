"""Laws of which products with groups along K get parts, by the model and by trees, and of how the trees are grown."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np
import pytest

from ptxkit.cards import CARDS, H100, H200
from ptxkit.gemm.__main__ import main
from ptxkit.gemm.config.grouped_k import GroupedKConfig
from ptxkit.gemm.heuristic import grouped_k
from ptxkit.gemm.heuristic.corrections import NONE, Trees, read
from ptxkit.gemm.heuristic.grouped_k import GAIN_OF_PARTS, Weighed, heuristic, whole
from ptxkit.gemm.heuristic.grouped_k_causes import begins, candidates, judged, tiles_of, untaught
from ptxkit.gemm.heuristic.grouped_k_parts import (
    FACTORS,
    LEAST_PART,
    MOST_SUMS,
    NAMES_OF_PARTS,
    clocks,
    lengths,
    matrix,
    parts_beside,
    parts_of_card,
    shared,
)
from ptxkit.gemm.heuristic.grouped_k_trees import path_of
from ptxkit.gemm.problem.grouped_k import ProblemAlongK
from ptxkit.gemm.tools import grouped_k_parts_fit
from ptxkit.gemm.tools.bench.grouped_k import asked, drawn, drawn_thin, every_shared, kernels_of, product
from ptxkit.gemm.tools.grow import Growth
from tests.gemm.groups import along_k, results

pytestmark = [pytest.mark.pure, pytest.mark.timeout(240)]
PRODUCTS = [*drawn(6, 60), *drawn_thin(6, 24)]
WITHOUT = np.array([np.inf])


def asks(name: str, below: float, above: float, cut: float) -> Trees:
    """A tree with one question."""
    return Trees(np.array([[NAMES_OF_PARTS.index(name)]]), np.array([[cut]]), np.array([[below, above]]))


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Trees], None]]:
    """Puts trees of parts in the place of every card's. No answer of other ones is left over."""
    def found(trees: Trees) -> None:
        monkeypatch.setattr(grouped_k, "parts_of_card", lambda card: trees)
        grouped_k._answer.cache_clear()

    yield found
    grouped_k._answer.cache_clear()


def counted(problem: ProblemAlongK, config: GroupedKConfig) -> float:
    """The tiles of a group over those of a wave."""
    m, n = problem.tiles(config)
    return m * n * config.cluster / H200.resident(config.cluster)


def test_a_choice_with_parts_is_a_candidate_that_fits() -> None:
    """Only groups of less than half a wave of tiles have parts. Their sums take little memory."""
    for card in CARDS.values():
        found = [(one.problem, heuristic(one.problem, card)) for one in PRODUCTS]
        assert any(config.part for _, config in found)
        for problem, config in found:
            every = [each for one in candidates(problem, card) for each in begins(one)]
            assert replace(config, part=0) in every
            if config.part:
                m, n = problem.tiles(config)
                assert 2 * m * n * config.cluster < card.resident(config.cluster)
                assert LEAST_PART <= config.part < problem.rows * 1.1
                assert problem.workspace_bytes(config) <= 1.2 * MOST_SUMS
            else:
                assert config == whole(problem, card)


def test_large_results_have_no_parts() -> None:
    for problem in (along_k(8, 32768, 4096, 7168), along_k(64, 1 << 17, 2048, 4096), along_k(1, 65536, 4096, 4096)):
        every = Weighed.of(problem, H200)
        assert every.parts(problem, H200) is None or counted(problem, every.parts(problem, H200)[1]) < 0.5  # type: ignore[index]
        for card in (H100, H200):
            assert heuristic(problem, card).part == 0


def test_one_long_group_with_few_tiles_is_shared() -> None:
    """Also on a card without trees: 16 groups, of which one may have half of 65,536 rows, and results of 128 x 128; or one group alone."""
    for card in (H100, H200):
        for groups in (1, 16):
            problem = along_k(groups, 65536, 128, 128)
            assert 256 <= heuristic(problem, card).part <= 8192
            assert whole(problem, card).part == 0
    assert heuristic(along_k(4, 512, 128, 128), H100).part == 0


@pytest.mark.parametrize("groups", [1, 2, 3, 19, 20, 21, 60, 1000])
def test_lengths_are_those_of_all_groups_in_falling_order(groups: int) -> None:
    for shares, counts in lengths(groups):
        assert math.isclose(float((shares * counts).sum()), groups, rel_tol=1e-9)
        assert counts.sum() == groups
        assert (np.diff(shares) <= 1e-12).all()
        assert len(shares) <= 20
    if groups > 1:
        assert lengths(groups)[2][0][0] == groups / 2


def test_parts_that_no_group_has_cost_nothing_and_short_ones_share_the_work() -> None:
    for one in PRODUCTS:
        problem = one.problem
        found = judged(problem, H200)
        places = np.arange(len(found.configs))
        before = clocks(problem, found, H200, places, np.full(len(places), np.inf))
        assert np.allclose(clocks(problem, found, H200, places, np.full(len(places), 2.0 * problem.rows)), before)
    problem = along_k(16, 1 << 17, 64, 64)
    found = judged(problem, H200)
    own = np.array([found.own])
    whole_, parts = (clocks(problem, found, H200, own, np.array([part]))[:, 0] for part in (np.inf, 2048.0))
    assert (parts < [0.75 * whole_[0], 0.5 * whole_[1], 0.5 * whole_[2]]).all()
    assert whole_[2] > 3 * whole_[0]                                        # the group with half of all rows is one CTA's work
    assert parts[2] < 1.5 * parts[0]


def test_candidates_are_those_that_promise_most_first() -> None:
    some = 0
    for one in PRODUCTS:
        problem = one.problem
        every = Weighed.of(problem, H200)
        found = every.shared(problem, H200)
        tiles = tiles_of(problem, every.found.said.seen)
        assert (found is None) or (2 * tiles[found.places] < every.found.said.seen.resident[found.places]).all()
        if found is None:
            continue
        some += 1
        promise = every.clocks[found.places] + found.change
        assert (np.diff(promise) >= 0).all()
        told = matrix(problem, every.told, found)
        assert told.shape == (len(found.part), len(NAMES_OF_PARTS))
        assert np.isfinite(told).all()
        for entry in (0, len(found.part) - 1):
            assert problem.workspace_bytes(every.shared_config(found, entry)) <= 1.1 * MOST_SUMS
        ratio = found.part / found.fair
        assert (ratio[found.part > LEAST_PART] >= min(FACTORS)).all()
    assert some > len(PRODUCTS) // 3
    nothing = along_k(4, 64, 64, 64)
    assert shared(nothing, judged(nothing, H200), H200, np.zeros(len(judged(nothing, H200).configs))) is None


def test_what_trees_say_is_what_is_chosen(put: Callable[[Trees], None]) -> None:
    """Parts must gain GAIN_OF_PARTS; without trees of parts none is chosen where trees choose."""
    eligible = [one for one in PRODUCTS if grouped_k.chooses(one.problem, H200) and Weighed.of(one.problem, H200).shared(one.problem, H200)]
    assert eligible
    for trees, expected in ((asks("tiles", -9.0, -9.0, 0.0), True), (asks("tiles", 9.0, 9.0, 0.0), False), (NONE, False)):
        put(trees)
        assert {heuristic(one.problem, H200).part > 0 for one in eligible} == {expected}
    put(asks("over fair", -9.0, 0.0, 0.1))
    for one in eligible:
        every = Weighed.of(grouped_k.Question.of(one.problem, H200).asked, H200)
        found = every.parts(one.problem, H200)
        assert found is not None
        own, _ = every.whole(H200)
        assert (heuristic(one.problem, H200).part > 0) == (found[0] < own + math.log(1 - GAIN_OF_PARTS))


def test_the_shipped_trees_choose_better_of_products_that_they_have_not_seen() -> None:
    """Held out of the trees, and of a seed on which nothing was fitted."""
    about = json.loads(parts_beside(path_of(H200)).read_text(encoding="utf-8"))
    assert len(parts_of_card(H200)) > 0
    assert len(parts_of_card(H100)) == 0
    assert float(about["held_out"][0].split("without parts: ")[1].split()[0]) < 0.95
    rows = results("2026-12-01-h200-weight-gradients.json")["random"]["rows"]
    assert len(rows) == 500
    with_parts = [row for row in rows if len(row) > 3]
    assert len(with_parts) > 80
    assert geometric_mean(row[3] / row[1] for row in with_parts) < 0.85
    assert min(row[2] / row[-1 if len(row) > 3 else 1] for row in rows) > 1.0


# ---------------------------------------------------------------------------------------------------------------- products and fits

def test_thin_products_are_asked_for_by_words() -> None:
    found = asked("6:24:thin")
    assert found == list(drawn_thin(6, 24))
    assert all(product(str(one)) == one for one in found)
    assert {one.groups == 1 for one in found} == {min(one.m, one.n) < 64 for one in found} == {True, False}
    assert all(one.groups == 1 or min(one.m, one.n) < 64 for one in found)


def test_a_sweep_has_what_is_chosen_without_and_each_kernel_once() -> None:
    found = every_shared(PRODUCTS, H200)
    assert found
    for one, configs in found.items():
        own, *others = configs
        assert own.part == 0
        assert all(config.part for config in others)
        assert len(set(configs)) == len(configs)
        kernels = kernels_of(configs)
        assert len({str(config.parameters) for config in configs}) == len(kernels)
        assert {str(config.parameters) for config in kernels} == {str(config.parameters) for config in configs}
        assert str(own) == str(Weighed.of(one.problem, H200).whole(H200)[1])


def swept(bias: Callable[[GroupedKConfig], float], count: int = 60) -> dict[str, Any]:
    """A sweep as if each configuration took what is promised, times a bias."""
    rows = []
    for one, configs in every_shared(list(drawn(17, count)), H200).items():
        every = Weighed.of(one.problem, H200)
        some = every.shared(one.problem, H200)
        assert some is not None
        promise = every.clocks[some.places] + some.change
        said = {str(every.shared_config(some, entry)): promise[entry] for entry in range(len(some.part))}
        said[str(configs[0])] = every.whole(H200)[0]
        rows.append({"product": str(one), "configs": [{"config": str(config), "us": [bias(config) * math.exp(said[str(config)]) / 1e3] * 4}
                                                      for config in configs]})
    return {"device": {"name": H200.name}, "rows": rows}


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouped_k_parts_fit, "GROWTH", Growth(200, 5, 0.1))


@pytest.mark.usefixtures("short")
def test_trees_learn_what_was_measured(tmp_path: Path, put: Callable[[Trees], None], capsys: pytest.CaptureFixture[str]) -> None:
    """With parts tiles of 64 rows take half of the time that is promised, others a quarter longer."""
    scale = 1e3 / H200.clock_mhz

    def bias(one: GroupedKConfig) -> float:
        return 1.0 if not one.part else 0.5 if one.tile.BM == 64 else 1.25

    data, kept = tmp_path / "d.json", tmp_path / "t.json"
    data.write_text(json.dumps(swept(lambda one: scale * bias(one))))
    assert main(["fit", "--grouped-k", "--parts", str(data), "--card", "h200", "--output", str(kept)]) == 0
    assert "over the time without parts" in capsys.readouterr().out
    put(read(kept, NAMES_OF_PARTS))
    off = []
    for one in drawn(18, 40):
        every = Weighed.of(one.problem, H200)
        some = every.shared(one.problem, H200)
        if some is None or not grouped_k.chooses(one.problem, H200):
            continue
        promise = every.clocks[some.places] + some.change
        times = {config: promise[entry] + math.log(bias(config)) for entry, config in
                 enumerate(every.shared_config(some, entry) for entry in range(min(len(some.part), grouped_k.ASKED_OF_PARTS)))}
        chosen = every.parts(one.problem, H200)
        assert chosen is not None
        off.append(times[chosen[1]] - min(times.values()))
    assert len(off) > 10
    assert np.mean(off) < 0.05


@pytest.mark.usefixtures("short")
def test_nothing_to_learn_is_not_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where parts always take longer."""
    data = tmp_path / "d.json"
    data.write_text(json.dumps(swept(lambda one: 1e3 / H200.clock_mhz * (4.0 if one.part else 1.0))))
    assert main(["fit", "--grouped-k", "--parts", str(data), "--card", "h200", "--output", str(tmp_path / "t.json")]) == 1
    assert "nothing to be gained" in capsys.readouterr().out
    assert not (tmp_path / "t.json").exists()


@pytest.mark.parametrize(("options", "sentence"), [
    (["--grouped-k", "--parts"], "no product in these files was measured with parts"),
    (["--grouped", "--parts"], "--parts is for --grouped-k"), (["--grouped-k", "--parts", "--further"], "takes no other option than"),
])
def test_what_cannot_be_fitted_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], sentence: str) -> None:
    data = tmp_path / "d.json"
    data.write_text(json.dumps({"device": {"name": H200.name}, "rows": []}))
    assert main(["fit", *options, str(data), "--card", "h200", "--output", str(tmp_path / "t.json")]) != 0
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "t.json").exists()


def test_too_few_products_are_not_fitted() -> None:
    few = swept(lambda one: 1.0)
    few["rows"] = few["rows"][:3]
    with pytest.raises(grouped_k_parts_fit.DataError, match="5 are the least"):
        grouped_k_parts_fit.fit([few], H200)


def test_without_parts_the_choice_without_trees_is_the_model_s() -> None:
    for one in PRODUCTS:
        assert whole(one.problem, H100) == untaught(grouped_k.Question.of(one.problem, H100).asked, H100)
