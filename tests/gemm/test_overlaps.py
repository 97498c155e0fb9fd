"""Laws of when the kernel after a dense product begins: the choice of that, and how it is learned."""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import json
import random

import numpy as np
import pytest

from ptxkit.cards import H100, H200
from ptxkit.gemm.__main__ import main
from ptxkit.gemm.config.parts import MAX_CLUSTER, SplitK, Static, StreamK
from ptxkit.gemm.heuristic import corrections, costs, overlaps
from ptxkit.gemm.heuristic.corrections import NONE, Trees
from ptxkit.gemm.heuristic.dense import by_causes, by_waves, candidates, clocks, heuristic, judged
from ptxkit.gemm.heuristic.space import Structure
from ptxkit.gemm.launch.dense import check_config
from ptxkit.gemm.tools import overlaps_fit, sample
from ptxkit.gemm.tools.bench.shapes import drawn
from ptxkit.gemm.tools.grow import Growth
from ptxkit.gemm.tools.measured import DataError
from ptxkit.gemm.tools.problems import asked, described
from tests.gemm import sampled

H20 = dataclasses.replace(H200, name="NVIDIA H20").with_sms(78)


def by_begin(loads: float, end: float) -> Trees:
    """A tree that asks for the begin alone."""
    return Trees(np.array([[overlaps.NAMES.index("later")]]), np.array([[0.5]]), np.array([[loads, end]]))


@pytest.fixture(autouse=True)
def fewer_trees(monkeypatch):
    """As few as tell what these products are made of."""
    monkeypatch.setattr(overlaps_fit, "GROWTH", Growth(40, 4, 0.3))


@pytest.fixture
def trees(monkeypatch):
    """Puts trees in the place of every card's."""
    return lambda found: monkeypatch.setattr(overlaps, "of_card", lambda card: found)


@pytest.mark.parametrize(("loads", "end", "wanted"), [(-0.02, 0.01, "loads"), (0.01, -0.03, "end"), (-0.01, -0.02, "end"),
                                                      (0.02, 0.01, "start")])
def test_a_candidate_has_the_begin_that_the_trees_put_first(loads, end, wanted, trees):
    problem = asked(4096, 4096, 512)
    trees(NONE)
    plain = judged(problem, H200)
    assert not plain.overlaps
    trees(by_begin(loads, end))
    found = judged(problem, H200)
    scheduler = found.best.scheduler
    assert isinstance(scheduler, Static)
    assert scheduler.overlap == wanted
    gain = np.exp(min(loads, end, 0.0))
    assert float(found.clocks.min()) == pytest.approx(float(plain.clocks.min()) * gain)
    assert clocks(problem, found.best, H200) == pytest.approx(float(found.clocks.min()))
    assert found.without_overlaps().best == plain.best
    for when, logarithm in (("start", 0.0), ("loads", loads), ("end", end)):
        config = dataclasses.replace(found.best, scheduler=dataclasses.replace(scheduler, overlap=when))
        assert by_causes(problem, config, H200)[1] == pytest.approx(by_causes(problem, plain.best, H200)[1] * np.exp(logarithm))


def test_only_the_first_candidates_with_a_scheduler_that_has_a_choice_are_asked(trees):
    trees(by_begin(-0.02, -0.01))
    seen = 0
    for problem in (asked(72, 1024, 16384), asked(256, 512, 32768), asked(3000, 3000, 2048), asked(128, 128, 65536)):
        found = judged(problem, H200)
        first = np.argsort(found.clocks, kind="stable")[:2 * overlaps.ASKED].tolist()
        assert set(found.overlaps) <= set(first)
        assert len(found.overlaps) <= 8
        for place in first:
            scheduler = found.structures[place].scheduler
            assert isinstance(scheduler, Static) or place not in found.overlaps
            seen += isinstance(scheduler, (SplitK, StreamK))
    assert seen


def test_a_card_has_the_begins_of_the_card_whose_constants_it_has():
    assert len(overlaps.of_card(H200))
    assert not len(overlaps.of_card(H100))                              # its samples have none
    partial = H20
    assert np.array_equal(overlaps.of_card(partial).leaves, overlaps.of_card(costs.fitted_as(partial)).leaves)
    for problem in map(described, drawn(21, 40)):
        for card in H100, H200, partial:
            config = heuristic(problem, card)
            check_config(config, problem)
            assert card != H100 or config.scheduler.overlap == "start"


def new(one: Structure, few: bool) -> bool:
    """Whether a card has a structure only once its fit has seen it."""
    if one.cluster == MAX_CLUSTER and isinstance(one.scheduler, Static):
        return True
    if not one.swap_ab or one.tile.BN >= 64:
        return False
    return one.tile.BN in (40, 56) or (not isinstance(one.scheduler, SplitK) and (one.cluster > 1 or (one.tile.BN < 32 and not few)))


@pytest.mark.parametrize("problem", [asked(4096, 4096, 512), asked(72, 1024, 16384), asked(16, 9712, 17840), asked(33, 7752, 19496),
                                     asked(1, 368, 3424, batches=96), asked(40, 4096, 4096, layout="nn")],
                         ids=lambda problem: f"{problem.m}x{problem.n}x{problem.k}")
def test_what_only_a_fit_can_put_forward_is_no_candidate_where_none_has_seen_it(problem):
    """Of an H100, whose fit has seen none of it, nothing else is missing; a sample tries all; an H200 has those that its fit has seen."""
    few = problem.m <= 64 and problem.batches is None
    offered, tried = ({*judged(problem, H100, untried=untried).structures} for untried in (False, True))
    assert offered == {one for one in tried if not new(one, few)}
    seen = {*judged(problem, H200).structures}
    factors = costs.of_card(H200).factors
    assert {one for one in seen if new(one, few)} == {one for one in {*judged(problem, H200, untried=True).structures}
                                                      if new(one, few) and costs.structure(one) in factors}
    assert any(new(one, few) for one in seen)


def test_a_sample_tries_what_no_fit_has_seen(monkeypatch):
    monkeypatch.setattr(sample, "card_of", lambda device: H100)
    monkeypatch.setattr(sample.driver, "current_device", lambda: 0)
    found = sample.near(asked(4096, 4096, 512), 24, random.Random(0))
    assert any(config.cluster == MAX_CLUSTER for config in found)
    offered = [config for config in candidates(asked(4096, 4096, 512), H100) if isinstance(config.scheduler, Static)]
    assert not any(config.cluster == MAX_CLUSTER for config in offered)


def test_clusters_of_eight_are_chosen_on_an_h200():
    assert any(heuristic(described(problem), H200).cluster == MAX_CLUSTER for problem in drawn(22, 60, dtypes=["bf16"]))


def test_begins_without_trees_for_the_rest(monkeypatch, trees):
    """A fit with `--rounds 0` takes away the trees that correct the model: the others are asked of nothing then."""
    trees(by_begin(-0.02, -0.01))
    monkeypatch.setattr(corrections, "of_card", lambda card: NONE)
    problem = asked(1000, 3000, 2048)
    best = heuristic(problem, H200)
    assert {clocks(problem, config, H200) for config in (best, *overlaps.other_begins(best))} == {clocks(problem, best, H200)}
    assert by_begin(-0.02, -0.01).logarithm(np.zeros((0, len(overlaps.NAMES)))).shape == (0,)


def record(change, seed: int, count: int = 60) -> dict:
    """What `sample --overlaps` would keep where each later begin changes what a product takes by a factor."""
    source = random.Random(seed)

    def measured(shape):
        for clock, config in itertools.islice(judged(shape, H200).without_overlaps().timed(), 12):
            us = clock / H200.clock_mhz
            yield config, us * source.uniform(1, 1.004), False
            for each in overlaps.other_begins(config):
                yield each, us * change(shape, each.scheduler.overlap) * source.uniform(1, 1.004), True

    some = [problem for problem in drawn(seed, count, dtypes=["bf16"], layout="nt") if not by_waves(described(problem), H200)]
    return sampled.record(seed, ((problem, measured(described(problem))) for problem in some))


def written(path, found):
    path.write_bytes(gzip.compress(json.dumps(found).encode()))
    return str(path)


def test_a_fit_finds_for_which_products_a_later_start_pays(tmp_path, capsys, trees):
    """After the end with a long K, after the loads with a short one; of seeds that the fit has not seen nearly all get the right time."""
    def change(problem, when):
        return {"end": 0.95 if problem.k > 2048 else 1.05, "loads": 1.03 if problem.k > 2048 else 0.97}[when]

    data, kept = written(tmp_path / "data.json.gz", record(change, 1)), tmp_path / "kept.json"
    assert main(["fit", "--overlaps", "--card", "h200", data, "--output", str(kept)]) == 0
    told = capsys.readouterr().out
    assert "begins chosen by trees that have not seen the product" in told
    assert json.loads(kept.read_text())["device"] == H200.name
    trees(corrections.read(kept, overlaps.NAMES))
    right = of = 0
    for problem in drawn(2, 60, dtypes=["bf16"], layout="nt"):
        scheduler = heuristic(described(problem), H200).scheduler
        if not by_waves(described(problem), H200) and isinstance(scheduler, Static):
            of, right = of + 1, right + (scheduler.overlap == ("end" if problem.k > 2048 else "loads"))
    assert right > 0.9 * of > 20


def test_a_fit_keeps_nothing_where_nothing_is_gained_or_measured(tmp_path, capsys):
    kept = tmp_path / "kept.json"
    slower = written(tmp_path / "slower.json.gz", record(lambda problem, when: 1.04, 3, 30))
    assert main(["fit", "--overlaps", "--card", "h200", slower, "--output", str(kept)]) == 1
    assert "nothing to be gained" in capsys.readouterr().out
    one = record(lambda problem, when: 1.0, 4, 8)
    for part in one["parts"]:
        part["rows"] = [{**row, "us": [us for us in row["us"] if not part["configs"][us[0]].get("way")]} for row in part["rows"]]
    assert main(["fit", "--overlaps", "--card", "h200", written(tmp_path / "none.json.gz", one), "--output", str(kept)]) != 0
    assert "`sample --most N --overlaps N`" in capsys.readouterr().err
    for more, said, status in ((["--further"], "--overlaps takes no --further", 2), (["--turns", "3"], "or --turns", 2),
                               (["--grouped"], "is not what `grouped --sweep` writes", 1)):
        assert main(["fit", "--overlaps", *more, "--card", "h200", slower, "--output", str(kept)]) == status
        assert said in capsys.readouterr().err
    with pytest.raises(DataError, match="H20 has no constants of its own"):
        overlaps_fit.fit([one], H20, kept)
    assert not kept.exists()


def test_one_begin_that_is_best_for_all_is_no_gain_of_trees(tmp_path, capsys):
    found, kept = record(lambda problem, when: {"end": 1.05, "loads": 0.95}[when], 6, 30), tmp_path / "kept.json"
    data = written(tmp_path / "data.json.gz", found)
    assert main(["fit", "--overlaps", "--card", "h200", data, "--output", str(kept)]) == 1
    assert "'loads' for all" in capsys.readouterr().out
    assert not kept.exists()


def test_what_a_fit_of_begins_learns_from():
    """Not from products without times or with promoted sums, configurations without every begin, or those far from the best, and from no
    more of a change than is believed. A lucky time that was not measured again does not count as the best."""
    whole = record(lambda problem, when: {"end": 2.0, "loads": 0.99}[when], 7, 12)
    some, _ = overlaps_fit.changes([whole], H200)
    assert some.left.max() == pytest.approx(overlaps_fit.MOST)
    part = whole["parts"][0]
    ways = [bool(config.get("way")) for config in part["configs"]]
    row = next(one for one in part["rows"] if ways[one["us"][1][0]])    # the first configuration has other begins
    level = [[place, 9.9 if ways[place] else 10.0] for place, _ in row["us"]]

    def count(us):
        return len(overlaps_fit.changes([{**whole, "parts": [{**part, "rows": [{**row, "us": us}, {**row, "us": []}]}]}], H200)[0])

    own = count(level)
    assert own > 2
    assert count(level[1:]) == own - 1                                  # its start is missing
    assert count([[place, us * (1.5 if at < 3 else 1)] for at, (place, us) in enumerate(level)]) == own - 1
    lucky = [[place, *(us,) * 3] if at > 2 else [place, us] for at, (place, us) in enumerate(level)]
    assert count([*lucky[:2], [lucky[2][0], 1.0], *lucky[3:]]) == own
    with pytest.raises(DataError, match="was measured with every begin"):
        count([*level[:2], [level[2][0], 1.0], *level[3:]])             # nothing was measured again: all are far from the best
    promoted = {**row, "shape": "1024x1024x1024:e4m3-block"}
    with pytest.raises(DataError, match="was measured with every begin"):
        overlaps_fit.changes([{**whole, "parts": [{**part, "rows": [promoted]}]}], H200)


def test_no_entry_is_told_by_trees_that_have_seen_its_product():
    some, products = overlaps_fit.changes([record(lambda problem, when: {"end": 0.9, "loads": 1.1}[when], 5)], H200)
    assert products == int(some.product.max()) + 1 > 20
    assert set(np.round(some.left, 1).ravel()) == {-0.1, 0.1}
    shuffled = dataclasses.replace(some, us=np.random.default_rng(0).uniform(9, 11, some.us.shape))
    gains = overlaps_fit.gains(shuffled, overlaps_fit.unseen(shuffled))
    assert abs(np.log(gains).mean()) < 0.02                             # noise of 10 % teaches nothing
    assert overlaps_fit.gains(some, overlaps_fit.unseen(some)) == pytest.approx(0.9, abs=0.01)


def test_a_sample_has_the_other_begins_of_its_first_candidates(monkeypatch):
    monkeypatch.setattr(sample, "card_of", lambda device: H200)
    monkeypatch.setattr(sample.driver, "current_device", lambda: 0)
    part = next(part for part in sample.PARTS if part.name == "bf16 nn")
    one = next(iter(sample.Drawn(part, 5, 6, overlaps=3)))
    assert all(getattr(config.scheduler, "overlap", "start") == "start" for config in one.candidates)
    assert set(one.ways) == {way for config in one.candidates[:3] for way in overlaps.other_begins(config)}
    assert {way.scheduler.overlap for way in one.ways} == set(overlaps.LATER)
