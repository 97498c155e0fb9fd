"""Laws of the cost model of dense products, and of how it is fitted and told."""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import json
import random

import numpy as np
import pytest

from ptxkit.cards import CARDS, H100, H200
from ptxkit.gemm.__main__ import main
from ptxkit.gemm.collective.epilogue_ops import PLAIN_SUM
from ptxkit.gemm.config.dense import DenseConfig, Operands
from ptxkit.gemm.config.parts import ClusterShape, ConfigError, Dynamic, Loads, Pingpong, Static, StreamK, Swizzle, Tile
from ptxkit.gemm.heuristic import corrections, costs, overlaps, rings, space
from ptxkit.gemm.heuristic.costs import Columns, Costs, Sizes, estimate
from ptxkit.gemm.heuristic.dense import CORRECTED_ROWS, SHALLOW, by_waves, candidates, clocks, heuristic, judged, timed
from ptxkit.gemm.heuristic.space import Rows
from ptxkit.gemm.heuristic.tuned import knobs, tuned
from ptxkit.gemm.heuristic.waves import WORTH_SPLITTING
from ptxkit.gemm.launch.dense import check_config
from ptxkit.gemm.launch.grid import Grid
from ptxkit.gemm.tools import fit, further, grow, measured, sample, tune
from ptxkit.gemm.tools.bench.shapes import Problem, drawn
from ptxkit.gemm.tools.explain import explained, lines
from ptxkit.gemm.tools.grow import Growth
from ptxkit.gemm.tools.problems import asked, described
from ptxkit.types import TYPES
from tests.gemm import sampled

PARTIAL = dataclasses.replace(H200, name="NVIDIA H20").with_sms(78)


def parts(config, m, n, k):
    of = costs.of_card(H200)
    return estimate(of, Sizes.of(asked(m, n, k)), Columns.of([config], H200, of))


def test_lines_that_straddle_cost_more_and_multicast_shares_them():
    alone, pair = DenseConfig(tile=Tile(128, 128)), DenseConfig(tile=Tile(128, 128), scheduler=Static(cluster=ClusterShape(2, 1)))
    aligned, straddled = (parts(alone, 4096, 4096, k).copy[0] for k in (5120, 5128))
    assert straddled > 1.3 * aligned
    assert parts(pair, 4096, 4096, 5128).copy[0] < straddled
    assert parts(alone, 4096, 4096, 5184).copy[0] == aligned            # lines of 10,368 bytes are whole ones


def test_the_parts_grow_with_what_causes_them():
    config = DenseConfig(tile=Tile(128, 128), schedule=Pingpong())
    small, deep, high = (parts(config, *extents) for extents in ((4096, 4096, 512), (4096, 4096, 1024), (8192, 4096, 512)))
    assert deep.steps[0] == 2 * small.steps[0]
    assert deep.tiles[0] > small.tiles[0]
    assert deep.waves[0] == small.waves[0]
    assert high.waves[0] > 1.8 * small.waves[0]
    assert high.memory[0] > small.memory[0]
    runs = parts(DenseConfig(tile=Tile(128, 128), scheduler=StreamK()), 1304, 1304, 8192)
    assert runs.reduction[0] > 0
    assert runs.steps[0] < 128


@pytest.mark.parametrize("card", [H100, H200, PARTIAL], ids=lambda card: card.name)
def test_what_is_chosen_for_random_products_can_be_launched(card):
    for problem in (*drawn(3, 60), *drawn(4, 20, dtypes=["e4m3"]), *drawn(5, 20, dtypes=["f32"])):
        shape = described(problem)
        config = heuristic(shape, card)
        check_config(config, shape)
        grid = Grid.of(shape, config, card.resident(config.cluster) // config.cluster)
        assert 1 <= grid.ctas[0] <= max(card.sms, config.splits * -(-shape.m // config.tile.BM) * -(-shape.n // config.tile.BN))
        whole = -(-shape.m // 64) * -(-shape.n // 64)
        if whole >= 4 * card.sms and shape.k >= 512:
            assert grid.ctas[0] >= card.sms // 3                        # no card is left idle by a problem that has work for it


def test_rows_of_tiles_that_a_panel_would_leave_over_are_in_one_panel():
    whole, panel = space.WHOLE, Swizzle().size
    for cluster, swapped in itertools.product((ClusterShape(), ClusterShape(2, 1)), (False, True)):
        one = space.Structure(Tile(128, 128), Pingpong(), Static(cluster=cluster), swap_ab=swapped)
        for rows in (1, panel, panel + 1, space.MOST_WHOLE, space.MOST_WHOLE + 1):
            high = (rows - 1) * 128 * cluster.m + 8
            problem = asked(4096, high, 512) if swapped else asked(high, 4096, 512)
            order = space.of_structure(one, problem).scheduler.order
            assert (order == whole) == (panel < rows <= space.MOST_WHOLE)
            assert clocks(problem, space.of_structure(one, problem)) == pytest.approx(
                clocks(problem, dataclasses.replace(space.of_structure(one, problem), scheduler=Static(cluster=cluster))))
    for scheduler in (Static(Swizzle("along_n")), StreamK(), Dynamic()):
        one = space.Structure(Tile(128, 128), Pingpong(), scheduler)
        assert space.of_structure(one, asked(1400, 4096, 512)).scheduler == scheduler


@pytest.mark.parametrize("card", [H100, H200], ids=lambda card: card.name)
def test_stream_k_is_not_for_few_stages(card):
    for problem in (asked(1120, 15720, 160, batches=17), asked(5096, 14080, 64 * SHALLOW), asked(3000, 3000, 64 * SHALLOW - 8)):
        assert not any(isinstance(config.scheduler, StreamK) for _, config in judged(problem, card).fastest_first())
    deeper = judged(asked(3000, 3000, 64 * SHALLOW + 8), card)
    assert any(isinstance(config.scheduler, StreamK) for _, config in deeper.fastest_first())


def test_few_rows_are_chosen_for_by_costs_where_measurements_of_them_correct_it(monkeypatch):
    trees = dataclasses.replace(ask("m", 20.0, (0.0, 0.0)), few=True)
    monkeypatch.setattr(corrections, "of_card", lambda card: trees)
    for rows in (1, CORRECTED_ROWS - 1):
        assert by_waves(asked(rows, 4096, 4096))
        assert not by_waves(asked(rows, 4096, 4096, batches=8))
    assert by_waves(asked(40, 4096, 4096, batch_invariant=True))
    assert by_waves(asked(8, 4096, 4096, layout="nn"))
    for layout in ("tn", "tt"):                                 # eight rows along M
        assert not by_waves(asked(8, 4096, 4096, layout=layout))
        assert by_waves(asked(8, 4096, 4096, layout=layout, batch_invariant=True))
    for rows, layout in itertools.product((CORRECTED_ROWS, 40, 64), ("nt", "nn", "tn", "tt")):
        problem = asked(rows - rows % 8 if layout[0] == "t" and rows > 9 else 16 if layout[0] == "t" else rows, 4096, 4096, layout=layout)
        assert not by_waves(problem)
        all_ = judged(problem)
        check_config(all_.best, problem)
        assert clocks(problem, all_.best) == pytest.approx(float(all_.clocks.min()))
        assert any(config.swap_ab for _, config in all_.fastest_first())


def ask(name: str, cut: float, leaves: tuple[float, float]) -> corrections.Trees:
    """One tree of one question."""
    return corrections.Trees(np.array([[corrections.NAMES.index(name)]]), np.array([[cut]]), np.array([leaves]))


def test_what_trees_say_of_the_first_candidates_changes_their_order_alone(monkeypatch):
    problem = asked(1000, 3000, 2048)
    monkeypatch.setattr(overlaps, "of_card", lambda card: corrections.NONE)
    monkeypatch.setattr(corrections, "of_card", lambda card: corrections.NONE)
    plain = judged(problem, H200)
    first = plain.structures[int(np.argmin(plain.clocks))].tile
    trees = ask("BN", first.BN - 1, (0.0, 0.5))
    monkeypatch.setattr(corrections, "of_card", lambda card: trees)
    changed = judged(problem, H200)
    assert changed.best.tile.BN < first.BN
    order = np.argsort(plain.clocks, kind="stable")[:corrections.CORRECTED]
    assert np.delete(changed.clocks, order).min() >= changed.clocks[order].max()
    kept = order[[plain.structures[place].tile.BN < first.BN for place in order]]
    assert changed.clocks[kept] == pytest.approx(plain.clocks[kept])
    assert changed.clocks.min() > plain.clocks.min()


def test_trees_are_read_as_they_were_written(tmp_path):
    source = np.random.default_rng(3)
    shape = (7, 4)
    trees = corrections.Trees(source.integers(0, len(corrections.NAMES), shape), source.uniform(0, 9, shape).round(2),
                              source.normal(size=(7, 16)).round(3), True)
    path = tmp_path / "card.trees.json"
    corrections.write(path, trees, {"device": "one"})
    again = corrections.read(path)
    assert again.few
    rows = source.uniform(0, 9, (50, len(corrections.NAMES)))
    assert again.logarithm(rows) == pytest.approx(trees.logarithm(rows), abs=0.05)              # each leaf is a byte
    by_hand = [sum(leaves[sum((row[place] > cut) << (3 - level) for level, (place, cut) in enumerate(zip(places, cuts, strict=True)))]
                   for places, cuts, leaves in zip(trees.places, trees.cuts, trees.leaves, strict=True)) for row in rows]
    assert trees.logarithm(rows) == pytest.approx(by_hand)
    for text in ("", "{}", path.read_text().replace("BM", "no feature")):
        path.write_text(text)
        with pytest.raises(costs.CostsError, match="no trees"):
            corrections.read(path)


def test_trees_learn_what_the_model_does_not_know():
    true = Costs()
    kept = record(true, 4, count=16)
    for row in kept["parts"][0]["rows"]:
        for pair in row["us"]:
            pair[1] *= 1.3 if kept["parts"][0]["configs"][pair[0]].get("tile", {}).get("BM", 128) == 128 else 1.0
    some, _ = measured.pairs([kept], H200)
    known = fit.unseen(true, some, H200, Growth(60))
    assert np.log(measured.regrets(true, some, known)).mean() < 0.6 * np.log(measured.regrets(true, some)).mean()
    assert np.all(measured.regrets(true, some, np.zeros(len(some))) == measured.regrets(true, some))


def test_joined_trees_say_what_both_say():
    source = np.random.default_rng(5)

    def made(count, levels):
        places = source.integers(0, len(corrections.NAMES), (count, levels))
        return corrections.Trees(places, source.uniform(0, 9, places.shape), source.normal(size=(count, 1 << levels)))

    rows = source.uniform(0, 9, (50, len(corrections.NAMES)))
    for one, other in ((made(5, 3), made(4, 6)), (made(5, 6), made(4, 3)), (corrections.NONE, made(3, 8))):
        both = grow.joined(one, other)
        assert len(both) == len(one) + len(other)
        assert both.logarithm(rows) == pytest.approx(one.logarithm(rows) + other.logarithm(rows))
        assert both[len(one):].logarithm(rows) == pytest.approx(other.logarithm(rows))


def test_a_choice_is_taught_further_where_that_helps(tmp_path, monkeypatch, capsys):
    """What its constants and trees know stays; no part of the products is both learned from and judged by."""
    kept = record(costs.of_card(H200), 4, count=48)
    for row in kept["parts"][0]["rows"]:
        for pair in row["us"]:
            pair[1] *= 1.3 if kept["parts"][0]["configs"][pair[0]].get("tile", {}).get("BM", 128) == 128 else 1.0
    data, path = tmp_path / "data.json.gz", tmp_path / "card.json"
    data.write_bytes(gzip.compress(json.dumps(kept).encode()))
    for name, value in (("LEVELS", (2,)), ("RATES", (0.3,)), ("COUNTS", (0, 10))):
        monkeypatch.setattr(further, name, value)
    known = dataclasses.replace(ask("m", 0.0, (0.0, 0.25)), few=False)
    monkeypatch.setattr(fit, "trees_of_card", lambda card: known)
    every, _ = measured.pairs([kept], H200)
    name, own = str(every.structure[0]), costs.of_card(H200)
    unseen = dataclasses.replace(own, factors={word: value for word, value in own.factors.items() if word != name})
    monkeypatch.setattr(fit, "of_card", lambda card: unseen if card == H200 else costs.of_card(card))
    assert main(["fit", str(data), "--card", "h200", "--further", "--output", str(path)]) == 0
    told = capsys.readouterr().out
    assert "held out, as it was" in told
    assert "held out, 10 trees of 2 questions" in told
    learned = corrections.read(tmp_path / "card.trees.json")
    assert len(learned) == 11
    assert name in costs.read(path).factors
    assert costs.read(path).constants() == pytest.approx(costs.of_card(H200).constants(), rel=1e-3)
    assert main(["fit", str(data), "--card", "h200", "--further", "--start", "h100", "--output", str(path)]) == 0
    begun = costs.following(costs.of_card(H100), H100, H200)
    assert begun.memory > 1.3 * costs.of_card(H100).memory
    assert costs.read(path).constants() == pytest.approx(begun.constants(), rel=1e-3)
    assert json.loads(path.read_text())["start"] == "constants and 1 trees of NVIDIA H100 80GB HBM3"
    assert json.loads(path.read_text())["device"] == H200.name
    monkeypatch.setattr(further, "COUNTS", (0,))                        # no trees, and no split that could be learned of
    monkeypatch.setattr(further, "SPLIT", "no such structure")
    path.unlink()
    capsys.readouterr()
    assert main(["fit", str(data), "--card", "h200", "--further", "--output", str(path)]) == 1
    assert "there is nothing to be gained" in capsys.readouterr().out
    assert not path.exists()
    some, _ = measured.pairs([kept], H200)
    part = grow.parts(some.product, 4, 0)
    assert all(len(set(part[some.product == product])) == 1 for product in range(int(some.product.max()) + 1))


@pytest.mark.parametrize(("words", "status", "sentence"), [
    (["--start", "h100"], 2, "--start h100 is for --further"),
    (["--keep", "3"], 2, "--keep is for --further"),
    (["--further", "--turns", "3"], 2, "--further keeps the constants"),
    (["--further", "--start", "h20"], 1, "NVIDIA H20 has no constants of its own; NVIDIA H100 80GB HBM3 and NVIDIA H200 have")])
def test_what_a_fit_cannot_start_with_is_a_sentence(tmp_path, capsys, words, status, sentence):
    data = tmp_path / "data.json.gz"
    data.write_bytes(gzip.compress(json.dumps(record(costs.of_card(H200), 4, count=4)).encode()))
    assert main(["fit", str(data), "--card", "h200", "--output", str(tmp_path / "card.json"), *words]) == status
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "card.json").exists()


OPERANDS = [pytest.param(Operands(TYPES[a], TYPES[a], TYPES[out], TYPES[accumulator], *majors, batched),
                         marks=[pytest.mark.sweep] * ((types + layout + batched) % 2))
            for types, (a, out, accumulator, layouts) in enumerate((
                ("bf16", "bf16", "f32", 4), ("bf16", "f32", "f32", 4), ("f16", "f32", "f16", 1), ("e4m3", "bf16", "f32", 1),
                ("e4m3", "e4m3", "f32", 1), ("f32", "f32", "f32", 1)))
            for layout, majors in enumerate(list(itertools.product(("k", "mn"), repeat=2))[:layouts]) for batched in (False, True)]
"""Half of them, the others with the sweep: each type and each layout, with and without batches."""


def test_a_width_that_no_fit_has_seen_is_taken_for_what_is_beside_it():
    """Its own factor, that of the upright tile, or the mean of the next narrower and the next wider ones."""
    known = {"128x112 cooperative 1x2": 0.9, "128x128 cooperative 1x2 swapped": 1.6, "128x128 cooperative 1x2": 3.0,
             "192x192 by columns 1x2 swapped": 0.8}
    for name, expected in (("128x120 cooperative 1x2 swapped", 1.2), ("128x120 cooperative 1x2", (0.9 * 3.0) ** 0.5),
                           ("128x112 cooperative 1x2 swapped", 0.9), ("128x144 cooperative 1x2 swapped", 1.6),
                           ("192x208 by columns 1x2 swapped", 0.8), ("192x192 cooperative 1x2 swapped", 1.0),
                           ("128x120 pingpong 1x2", 1.0)):
        assert costs.factor(known, name) == pytest.approx(expected), name


def test_a_sample_has_structures_that_no_fit_has_seen(monkeypatch):
    """Besides the model's first, and each configuration once."""
    own = costs.of_card(H200)
    few = dataclasses.replace(own, factors={name: value for name, value in own.factors.items() if "128x" not in name})
    monkeypatch.setattr(sample, "card_of", lambda device: H200)
    monkeypatch.setattr(sample.driver, "current_device", lambda: 0)
    monkeypatch.setattr(sample, "of_card", lambda card: few)
    found = sample.near(described(Problem(1000, 2048, 1024, "bf16", "nt")), 24, random.Random(0))
    assert len(set(found)) == len(found) > 24
    beyond = [config for config in found[24:] if costs.structure(config) not in few.factors]
    assert len(beyond) >= 24 // sample.OTHERS


def test_a_sample_has_the_other_ways_of_the_tuner_and_draws_each_product_once(monkeypatch):
    monkeypatch.setattr(sample, "card_of", lambda device: H200)
    monkeypatch.setattr(sample.driver, "current_device", lambda: 0)
    part = next(part for part in sample.PARTS if part.name == "bf16 tn batched")
    drawn = sample.Drawn(part, 5, 6, ways=2)
    first, second = itertools.islice(drawn, 2)
    assert first.problem == next(sample.products(part, 5))
    assert first.candidates == sample.near(described(first.problem), 6, random.Random(6))
    assert set(first.configs) == {*first.candidates, *tune.ways(first.candidates[0]), *tune.ways(first.candidates[1])}
    assert len(set(first.configs)) == len(first.configs) > len(first.candidates)
    assert any(isinstance(one.scheduler, Static) and one.scheduler.overlap == "loads" for one in first.ways)
    monkeypatch.setattr(sample, "near", lambda *given: pytest.fail("a product was drawn again"))
    assert [*itertools.islice(drawn, 2)] == [first, second]


def test_no_fit_learns_from_what_only_the_tuner_tries():
    """The record of a product with its candidates, and the same with a faster way."""
    asked = described(Problem(1000, 2048, 1024, "bf16", "nt"))
    found = [config for _, config in itertools.islice(judged(asked, H200).timed(), 3)]
    kept = [knobs(config, asked) for config in found]
    row = {"shape": "1000x2048x1024:bf16:nt", "us": [[0, 5.0], [1, 6.0], [2, 7.0]]}
    usual = {"device": {"name": H200.name}, "seed": 1, "parts": [{"part": "bf16 nt", "configs": kept, "rows": [row]}]}
    way = {**knobs(tune.ways(found[0])[0], asked), "way": True}
    more = {**usual, "parts": [{"part": "bf16 nt", "configs": [*kept, way], "rows": [{**row, "us": [*row["us"], [3, 4.0]]}]}]}
    for record in usual, more:
        some, names = measured.pairs([record], H200)
        assert names == ["1000x2048x1024:bf16:nt"]
        assert some.us.tolist() == [5.0, 6.0, 7.0]
        assert set(some.best) == {5.0}


@pytest.mark.parametrize("option", ["--ways", "--overlaps"])
def test_ways_without_a_number_of_first_configurations_are_refused(option, tmp_path, capsys):
    assert main(["sample", option, "2", "--output", str(tmp_path / "sample.json.gz")]) == 2
    assert "--ways and --overlaps are for the first configurations of --most" in capsys.readouterr().err


@pytest.mark.parametrize("operands", OPERANDS)
def test_the_rings_are_those_of_the_configurations(operands):
    """What is counted for all structures at once is what `DenseConfig` counts, and refuses, for each."""
    own = costs.of_card(H200)
    found = space.structures()
    there, seen = rings.fitting(found, Columns.of_structures(found, H200, own), operands)
    legal = []
    for one, is_there in zip(found, there, strict=True):
        try:
            legal.append(space.configured(one, operands, PLAIN_SUM, Rows(256), (Loads(), Loads()), one.store))
        except ConfigError:
            assert not is_there, one
        else:
            assert is_there, one
    wanted = Columns.of(legal, H200, own)
    assert all(np.array_equal(getattr(seen, name), getattr(wanted, name)) for name in seen.__slots__)


def test_a_new_shape_makes_the_one_configuration_that_it_gets(monkeypatch):
    """No clock decides: what takes long is to make configurations."""
    problems = [described(problem) for problem in drawn(6, 40)] + [asked(m, 4096, 7168) for m in (1, 8, 40)]
    made = []
    before = DenseConfig.__post_init__
    monkeypatch.setattr(DenseConfig, "__post_init__", lambda self: (made.append(1), before(self))[1])
    for problem in problems:
        made.clear()
        heuristic(problem, H200)
        assert len(made) <= (12 if by_waves(problem) else 1)


def test_constants_are_kept_and_read_and_every_card_has_some(tmp_path):
    own = Costs(l2=123.0, factors={"128x256 cooperative 1x1": 0.9})
    costs.write(tmp_path / "card.json", own, {"device": "a card"})
    assert costs.read(tmp_path / "card.json") == own
    with pytest.raises(costs.CostsError, match="no constants"):
        costs.read(tmp_path / "gone.json")
    assert {word for word, card in CARDS.items() if costs.fit_path(card.name).is_file()} == {"h100", "h200"}
    assert costs.of_card(dataclasses.replace(H100, name="another")) == costs.of_card(H100)


def record(true: Costs, seed: int, wrong: float = 0.0, count: int = 40) -> dict:
    """What `sample` would keep on a card whose products take just what the model says."""
    source = random.Random(seed)

    def measured(shape):
        all_ = judged(shape, H200)
        configs = [all_.config(place) for place in source.sample(range(len(all_.structures)), 60)]
        total = estimate(true, Sizes.of(shape), Columns.of(configs, H200, true)).total / H200.clock_mhz
        return [(config, float(us) * source.uniform(1, 1 + wrong), False) for config, us in zip(configs, total, strict=True)]

    some = [problem for problem in drawn(seed, count, dtypes=["bf16"], layout="nt") if not by_waves(described(problem))]
    return sampled.record(seed, ((problem, measured(described(problem))) for problem in some))


def test_a_fit_finds_what_made_the_times_and_its_regret_is_that_of_the_choice(tmp_path, capsys):
    true = Costs(l2_all=5000.0, stage=90.0, launch=3000.0, memory=900.0)
    some, names = measured.pairs([record(true, 1)], H200)
    assert len(names) == len(set(some.product.tolist()))
    assert np.all(measured.regrets(true, some) == 1.0)                       # who knows the truth chooses the best
    weights = some.weights()
    found = fit.fitted(some, H200, turns=2)
    assert fit.loss(found, some, weights, H200.clock_mhz) < 0.5 * fit.loss(Costs(), some, weights, H200.clock_mhz)
    assert np.log(measured.regrets(found, some)).mean() <= np.log(measured.regrets(Costs(), some)).mean() + 1e-9
    backwards = dataclasses.replace(true, factors={word: 1 / us for word, us in zip(some.structure, some.us, strict=True)})
    assert measured.regrets(backwards, some).max() > 1.05                    # a bad choice is seen
    path = tmp_path / "data.json.gz"
    path.write_bytes(gzip.compress(json.dumps(record(true, 2)).encode()))
    assert main(["fit", str(path), "--card", "h200", "--turns", "1", "--rounds", "3", "--output", str(tmp_path / "card.json")]) == 0
    assert "with trees, held out" in capsys.readouterr().out
    assert costs.read(tmp_path / "card.json").factors
    assert len(corrections.read(tmp_path / "card.trees.json")) == 3
    assert main(["fit", str(path), "--card", "h200", "--turns", "1", "--rounds", "0", "--output", str(tmp_path / "card.json")]) == 0
    assert not (tmp_path / "card.trees.json").exists()                  # trees correct no constants but their own
    assert main(["fit", str(path), "--card", "h100", "--output", str(tmp_path / "card.json")]) == 1


def different(rng):
    """Products of which each model chooses some: few and many rows, odd extents, batches, promoted sums."""
    for _ in range(40):
        word, unit, batches = rng.choice(("bf16", "f32", "e4m3")), rng.choice((1, 16, 64)), rng.choice((None, None, 1, 30))
        m, n, k = (max(1, round(2 ** rng.uniform(0, 12)) // unit) * unit for _ in range(3))
        fp8 = word == "e4m3"
        yield asked(rng.choice((4, 16, m)), n, k, word, out="bf16" if fp8 else None, layout=rng.choice(("nt", "nn")), batches=batches,
                    fast_accum=False if fp8 and rng.random() < 0.5 else None, batch_invariant=rng.random() < 0.2)


def test_what_explain_says_of_a_candidate_makes_its_time():
    """The formula that is printed gives each candidate's time from the parts that are printed; and the choice is the model's first."""
    rng = random.Random(7)
    seen = set()
    for problem in different(rng):
        card = rng.choice(list(CARDS.values()))
        found = explained(problem, card, 5)
        told = list(lines(found))
        assert found["by"].startswith("the model") == (tuned(problem, card) is None)
        assert f"{found['us']:.2f} us" in told[2]
        assert [row["us"] for row in found["candidates"] if row["config"] == found["chosen"]] == [found["us"]]
        if found["by"].startswith("the model") and found["by"] != "the model of waves":
            assert found["place"] == 0
            assert all(row["us"] >= found["us"] for row in found["candidates"])
        for row in found["candidates"]:
            model = found["models"][row["model"]]
            seen.add((row["model"], found["by"]))
            assert any(model["formula"] in line for line in told)
            if row["parts"]["learned"] is None:
                if row["model"] == "costs":
                    continue                    # of which the trees were not asked
                row["parts"]["learned"] = 1
            made = eval(model["formula"].replace("^", "**").replace(" x ", " * "), {"max": max, "launch": model["launch"]}, row["parts"])
            assert made == pytest.approx(row["us"], rel=1e-3 if row["model"] == "costs" else 1e-9)      # the exponent is printed rounded
    assert {"costs", "waves"} == {model for model, _ in seen}
    assert "the model of operands that threads copy" in {by for _, by in seen}


def test_candidates_of_every_model_come_fastest_first():
    """As the tuner takes the first of them. The heuristic's takes no longer than the first, but for what a change is worth."""
    for problem in different(random.Random(8)):
        found = list(itertools.islice(timed(problem, H200), 50))
        assert [time for time, _ in found] == sorted(time for time, _ in found)
        assert [config for _, config in found] == list(itertools.islice(candidates(problem, H200), 50))
        assert clocks(problem, heuristic(problem, H200), H200) <= found[0][0] / WORTH_SPLITTING
        for time, config in found[:1]:
            assert clocks(problem, config, H200) == pytest.approx(time)


@pytest.mark.parametrize("stages", [corrections.STAGES, ((200, 1.0),)])
def test_later_trees_are_asked_of_all_that_may_be_the_fastest(stages, monkeypatch):
    """The choice is that of all trees, asked of all candidates. It is another one if they are asked of the first one alone."""
    some = [described(problem) for kind in ("any8", "aligned") for problem in drawn(17, 40, kind, ["bf16"])]
    wanted = [problem for problem in some if not by_waves(problem, H200)]
    found = {}
    for each in stages, ():
        with monkeypatch.context() as patched:
            trees = dataclasses.replace(corrections.of_card(H200))              # without the stages that it has made
            patched.setattr(corrections, "STAGES", each)
            patched.setattr(corrections, "of_card", lambda card, trees=trees: trees)
            found[each] = [heuristic(problem, H200) for problem in wanted]
    assert (found[stages] == found[()]) == (stages == corrections.STAGES)


def test_explain_tells_the_choice_and_its_parts(capsys):
    assert main(["explain", "-m", "1976", "-n", "5592", "-k", "6280", "--card", "h100", "--most", "3"]) == 0
    told = capsys.readouterr().out
    assert str(heuristic(asked(1976, 5592, 6280), H100)) in told
    assert "<- chosen" in told
    assert "the model of costs" in told
    assert main(["explain", "-m", "4096", "-n", "4096", "-k", "4096", "--card", "h200", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["by"] == "the tuned table of the card"
    assert any(row["config"] == found["chosen"] for row in found["candidates"])
    times = [row["us"] for row in found["candidates"][:12]]
    assert times == sorted(times)
    assert main(["explain", "-m", "4096", "-n", "4096", "-k", "4096", "--card", "h200", "--most", "100", "--json"]) == 0
    learned = [row["parts"]["learned"] for row in json.loads(capsys.readouterr().out)["candidates"]]
    assert None not in learned[:corrections.CORRECTED - 8]              # the last of them take as long as others behind them
    assert None in learned                                              # measurements were not asked of these
    assert main(["explain", "-m", "16", "-n", "4096", "-k", "7168", "--card", "h100"]) == 0
    assert "the model of costs" in capsys.readouterr().out
    assert main(["explain", "-m", "4", "-n", "4096", "-k", "7168", "--card", "h100"]) == 0
    assert "the model of waves" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["explain", "-m", "0", "-n", "1", "-k", "1"])
    assert ended.value.code == 2
