"""Laws of the choice among configurations of products with groups along K, by the model and by trees, and of how the trees are grown."""

from __future__ import annotations

import importlib.util
import itertools
import json
import math
import random
import re
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
from ptxkit.gemm.config.parts import Cooperative, Pingpong
from ptxkit.gemm.heuristic import grouped_k, grouped_k_trees
from ptxkit.gemm.heuristic.corrections import NONE, Trees, read
from ptxkit.gemm.heuristic.grouped_k import LARGEST, Question, chooses, heuristic, ranked, whole
from ptxkit.gemm.heuristic.grouped_k_causes import begins, candidates, clocks, judged, modelled, untaught
from ptxkit.gemm.heuristic.grouped_k_trees import NAMES, NAMES_OF_BEGINS, begins_of_card, matrix, of_card
from ptxkit.gemm.problem.grouped_k import ProblemAlongK
from ptxkit.gemm.tools import grouped_k_fit
from ptxkit.gemm.tools.bench.grouped_k import FAR, LENGTHS, MOST_BYTES, MOST_FLOPS, asked, drawn, of_models, off, product
from ptxkit.gemm.tools.bench.shapes import ShapeError
from ptxkit.gemm.tools.grow import Growth
from tests.gemm.groups import along_k, results

pytestmark = [pytest.mark.pure, pytest.mark.timeout(240)]
PRODUCTS = list(drawn(5, 40))
Put = Callable[[Trees, Trees], None]


def asks(name: str, below: float, above: float, cut: float = 0.5, names: tuple[str, ...] = NAMES) -> Trees:
    """A tree with one question."""
    return Trees(np.array([[names.index(name)]]), np.array([[cut]]), np.array([[below, above]]))


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch) -> Iterator[Put]:
    """Puts trees in the place of every card's. No answer of other ones is left over."""
    def found(trees: Trees, of_begins: Trees) -> None:
        monkeypatch.setattr(grouped_k, "of_card", lambda card: trees)
        monkeypatch.setattr(grouped_k, "begins_of_card", lambda card: of_begins)
        monkeypatch.setattr(grouped_k, "parts_of_card", lambda card: NONE)
        grouped_k._answer.cache_clear()

    yield found
    grouped_k._answer.cache_clear()


SAME = asks("later", 0.0, 0.0, names=NAMES_OF_BEGINS)


def test_the_trees_of_a_card_choose_a_candidate() -> None:
    """A card that was not measured whole has the model alone, and so has a single group."""
    assert len(of_card(H200))
    assert len(begins_of_card(H200))
    for one in PRODUCTS:
        problem = one.problem
        every = [each for config in candidates(problem, H200) for each in begins(config)]
        assert replace(heuristic(problem, H200), part=0) in every
        assert len(set(every)) == len(every)
        for card in CARDS.values():
            if card != H200:
                assert not chooses(problem, card)
                assert whole(problem, card) == untaught(Question.of(problem, card).asked, card)
    assert not chooses(along_k(1, 4096, 512, 512), H200)
    assert not chooses(PRODUCTS[0].problem, H200.with_sms(66))
    assert chooses(along_k(8, 4096, 512, 512), H200)
    for groups, rows, m, n in ((8, int(LARGEST // 2 // 4096 ** 2) + 1, 4096, 4096), (8, 4096, 56, 512), (8, 4096, 512, 56),
                               (8, 60, 512, 512), (1025, 1 << 15, 512, 512)):
        assert not chooses(along_k(groups, rows, m, n), H200)


def test_some_choices_are_no_model_s() -> None:
    found = [(untaught(one.problem, H200), heuristic(one.problem, H200)) for one in PRODUCTS]
    assert sum(own != chosen for own, chosen in found) > len(found) // 2
    assert any(isinstance(chosen.schedule, Pingpong) for _, chosen in found)
    assert any(chosen.scheduler.overlap != "start" for _, chosen in found)
    assert all(isinstance(own.schedule, Cooperative) and own.scheduler.overlap == "start" for own, _ in found)


def test_the_shipped_trees_choose_better_of_products_that_they_have_not_seen() -> None:
    """Held out of the trees, and of a seed on which nothing was fitted."""
    about = json.loads(grouped_k_trees.path_of(H200).read_text(encoding="utf-8"))
    without, found = (float(re.search(r"regret ([\d.]+)", line)[1]) for line in about["held_out"])  # type: ignore[index]
    assert found < 1.07 < 1.1 < without
    rows = results("2026-12-01-h200-weight-gradients.json")["random"]["rows"]
    assert len(rows) == len(list(drawn(66, 500)))
    assert geometric_mean(now / before for before, now, *_ in rows) < 0.95
    assert geometric_mean(row[2] / row[1] for row in rows) > 1.95


def test_without_trees_the_candidates_stay_those_of_the_model() -> None:
    """What a wave of tiles has room for is dealt out, and the rest is drawn."""
    for one in PRODUCTS:
        own = untaught(one.problem, H100)
        one_wave = one.problem.work_tiles(own) * own.cluster <= H100.resident(own.cluster)
        assert own.dynamic == (not one_wave)


def test_each_candidate_is_seen_as_it_is() -> None:
    """The columns of a problem's candidates are those of the configurations one by one."""
    for one in PRODUCTS[:8]:
        found = judged(one.problem, H200)
        alone = modelled(one.problem, found.configs, H200)
        assert np.allclose(alone.clocks, found.said.clocks)
        assert (found.dynamic == [config.dynamic for config in found.configs]).all()
        assert matrix(found.said, found.dynamic).shape == (len(found.configs), len(NAMES))
        assert np.isclose(clocks(one.problem, found.configs[3], H200), found.said.clocks[0, 3])


def test_what_trees_say_is_what_is_chosen(put: Put) -> None:
    for schedule, tree in ((Pingpong, asks("pingpong", 0.0, -3.0)), (Cooperative, asks("pingpong", -3.0, 0.0))):
        put(tree, SAME)
        assert all(isinstance(heuristic(one.problem, H200).schedule, schedule) for one in PRODUCTS)
    put(asks("dynamic", -3.0, 0.0), SAME)
    assert not any(heuristic(one.problem, H200).dynamic for one in PRODUCTS)


def test_a_little_is_not_enough(put: Put) -> None:
    """Another configuration must gain GAIN, another begin GAIN_OF_BEGINS."""
    little = 0.9 * grouped_k.GAIN_OF_BEGINS
    static = asks("dynamic", -3.0, 0.0)
    for later, when in ((0.0, "start"), (-little, "start"), (-2 * little, "loads")):
        put(static, asks("later", later, 0.0, names=NAMES_OF_BEGINS))
        assert {heuristic(one.problem, H200).scheduler.overlap for one in PRODUCTS} == {when}
    put(static, asks("later", -0.02, -0.05, names=NAMES_OF_BEGINS))
    assert {heuristic(one.problem, H200).scheduler.overlap for one in PRODUCTS} == {"end"}
    nothing = asks("m", 0.0, 0.0)
    put(nothing, SAME)
    for one in PRODUCTS:
        (own, _), *others = ranked(one.problem, H200)
        chosen = next(each for each in others if each[1] == heuristic(one.problem, H200))
        assert chosen[0] <= own
        assert [each[0] for each in others] == sorted(each[0] for each in others)


@pytest.mark.parametrize("seed", range(6))
def test_about_as_many_rows_are_the_same_question(seed: int) -> None:
    """A model's rows change from call to call, and each choice is another kernel."""
    source = random.Random(seed)
    groups, mean, m, n = source.randint(4, 200), source.randint(64, 2000), 8 * source.randint(16, 500), 8 * source.randint(16, 500)
    found = {heuristic(along_k(groups, groups * mean + round(groups * mean * part / 2000), m, n)) for part in range(40)}
    assert len(found) <= 2


def test_a_question_is_answered_once() -> None:
    grouped_k._answer.cache_clear()
    chosen = heuristic(PRODUCTS[0].problem, H200)
    before = grouped_k._answer.cache_info().misses
    assert heuristic(PRODUCTS[0].problem, H200) == chosen
    assert grouped_k._answer.cache_info().misses == before


# ---------------------------------------------------------------------------------------------------------------- products and fits

def test_random_products_are_as_their_words_say() -> None:
    for one in drawn(3, 60):
        assert product(str(one)) == one
        assert all(length % LENGTHS == 0 for length in one.lengths)
        assert (len(one.lengths), sum(one.lengths)) == (one.groups, one.rows)
        assert one.bytes <= MOST_BYTES
        assert one.flops <= MOST_FLOPS
        assert isinstance(one.problem, ProblemAlongK)
        assert one.problem.accumulate == one.accumulates
    assert [str(one) for one in drawn(3, 5)] == [str(one) for one in itertools.islice(drawn(3, 60), 5)]
    with pytest.raises(ShapeError, match="write one such as"):
        product("8x16x32")


def test_products_are_asked_for_by_words() -> None:
    assert asked("3:5") == list(drawn(3, 5))
    assert asked("models") == of_models()
    assert all(product(str(one)) == one and chooses(one.problem, H200) for one in of_models())
    for text in ("3", "3:5:6", "three:5", ""):
        with pytest.raises(ShapeError, match="names no products"):
            asked(text)


def test_one_wrong_group_is_seen() -> None:
    """However long the others are."""
    torch = pytest.importorskip("torch")
    right = torch.randn(5, 16, 16) * torch.tensor([1e4, 1.0, 1e4, 0.0, 1.0])[:, None, None]
    assert off(right * 1.001, right) < FAR
    for wrong in (right[[0, 4, 2, 3, 1]], right + torch.tensor([0, 0, 0, 1e-3, 0])[:, None, None], right * math.nan):
        assert not off(wrong, right) < FAR


def swept(bias: Callable[[GroupedKConfig], float], count: int = 12) -> dict[str, Any]:
    """A sweep as if each configuration took its clocks by the model times a bias."""
    rows = []
    for one in drawn(11, count):
        every = [each for config in candidates(one.problem, H200) for each in begins(config)]
        us = np.exp(modelled(one.problem, every, H200).blended) / H200.clock_mhz * [bias(config) for config in every]
        rows.append({"product": str(one), "configs": [{"config": str(config), "us": [float(time)] * 4}
                                                      for config, time in zip(every, us, strict=True)]})
    return {"device": {"name": H200.name}, "rows": rows}


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouped_k_fit, "GROWTH", Growth(60, 5, 0.2))


@pytest.mark.usefixtures("short")
def test_trees_learn_what_was_measured(tmp_path: Path, put: Put, capsys: pytest.CaptureFixture[str]) -> None:
    """Pingpong takes half of the time. The best begin is the end for tiles of 64 rows, and else the start. The command keeps both kinds of
    trees, which choose that."""
    def bias(one: GroupedKConfig) -> float:
        late = one.scheduler.overlap == "end"
        return (0.5 if isinstance(one.schedule, Pingpong) else 1.0) * ((0.9 if one.tile.BM == 64 else 1.1) if late else 1.0)

    data, kept = tmp_path / "d.json", tmp_path / "t.json"
    data.write_text(json.dumps(swept(bias)))
    assert main(["fit", "--grouped-k", str(data), "--card", "h200", "--output", str(kept)]) == 0
    assert "with trees that have not seen the product: 12 products" in capsys.readouterr().out
    put(read(kept, NAMES), read(tmp_path / "t-overlaps.json", NAMES_OF_BEGINS))
    for one in drawn(12, 20):
        chosen = heuristic(one.problem, H200)
        assert isinstance(chosen.schedule, Pingpong)
        assert chosen.dynamic or chosen.scheduler.overlap == ("end" if chosen.tile.BM == 64 else "start")


@pytest.mark.usefixtures("short")
def test_nothing_to_learn_is_not_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where the model's choice is the fastest trees have nothing to add."""
    found = swept(lambda one: 1.0)
    for row in found["rows"]:
        own = str(untaught(product(row["product"]).problem, H200))
        row["configs"] = [{**one, "us": [time * (0.5 if one["config"] == own else 1.0) for time in one["us"]]} for one in row["configs"]]
    data = tmp_path / "d.json"
    data.write_text(json.dumps(found))
    assert main(["fit", "--grouped-k", str(data), "--card", "h200", "--output", str(tmp_path / "t.json")]) == 1
    assert "nothing to be gained" in capsys.readouterr().out
    assert not (tmp_path / "t.json").exists()


@pytest.mark.parametrize(("text", "options", "sentence"), [
    ("{}", [], "is not what `benchmarks/weight_gradients.py --sweep` writes"), (None, [], "cannot read"),
    (json.dumps({"device": {"name": H200.name}, "rows": []}), [], "no product in these files"),
    (json.dumps({"device": {"name": H100.name}, "rows": []}), [], "a record is of"),
    (json.dumps({"device": {"name": H200.name}, "rows": []}), ["--further"], "--grouped-k takes no other option"),
])
def test_what_cannot_be_fitted_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, options: list[str],
                                       sentence: str) -> None:
    data = tmp_path / "d.json"
    if text is not None:
        data.write_text(text)
    assert main(["fit", "--grouped-k", str(data), "--card", "h200", "--output", str(tmp_path / "t.json"), *options]) != 0
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "t.json").exists()


def test_too_few_products_are_not_fitted() -> None:
    with pytest.raises(grouped_k_fit.DataError, match="5 are the least"):
        grouped_k_fit.fit([swept(lambda one: 1.0, 3)], H200)


def test_the_benchmark_says_that_there_is_no_gpu(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(__file__).parents[2] / "benchmarks" / "weight_gradients.py"
    spec = importlib.util.spec_from_file_location("weight_gradients", path)
    assert spec is not None
    assert spec.loader is not None
    command = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(command)
    monkeypatch.setattr(command.driver, "available", lambda *_: False)
    for options in (["--sweep", "1:3"], ["--random", "1:3"]):
        assert command.main(options) == 1
        assert "there is no GPU" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        command.main(["--sweep", "1"])
