"""What measurements say of the tiles of grouped products: where trees choose, what they learn from, and files that are none."""

from __future__ import annotations

import json
import math
import random
import re

import numpy as np
import pytest
from hypothesis import example as tried
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxkit.cards import CARDS, H200
from ptxkit.gemm.__main__ import main
from ptxkit.gemm.config.budget import default_warpgroups
from ptxkit.gemm.config.grouped import GroupedConfig
from ptxkit.gemm.config.parts import Pingpong
from ptxkit.gemm.heuristic import grouped_causes, grouped_features, grouped_few, grouped_overlaps, grouped_trees
from ptxkit.gemm.heuristic.grouped import alone, heuristic, untaught, usual_tile
from ptxkit.gemm.heuristic.grouped_overlaps import at_the_start
from ptxkit.gemm.launch.grouped import check_config
from ptxkit.gemm.problem.grouped import GroupOptions, GroupProblem
from ptxkit.gemm.tools import grouped_fit
from ptxkit.gemm.tools.bench.grouped_candidates import taught_candidates
from ptxkit.gemm.tools.bench.grouped_cases import Case, case, random_cases
from ptxkit.gemm.tools.grouped_example import example
from ptxkit.gemm.tools.grow import Growth
from ptxkit.gemm.tools.measured import DataError
from ptxkit.gemm.tools.problems import arrays_of, problem_of

pytest.importorskip("ml_dtypes")
pytestmark = [pytest.mark.pure, pytest.mark.timeout(240)]
FEWER = Growth(80, 5, 0.2)

CASES = st.builds(lambda groups, tokens, columns, depth: Case(groups, tokens, 8 * columns, 8 * depth), st.integers(4, 256),
                  st.integers(1, 4096), st.integers(16, 2000), st.integers(16, 2000))
TAKEN = [one for one in random_cases(3, 260) if grouped_trees.takes(problem_of(one))]
FEW, STRADDLING = ([one for one in TAKEN if grouped_trees.forest_of(problem_of(one)) == forest
                    and not untaught(problem_of(one), H200).streams] for forest in ("few", "straddling"))
KINDS, FEW_KINDS = ([one for one in random_cases(4, 220, kinds=("bf16", "fp8", "fp8-block"), units="aligned")
                     if grouped_trees.takes(problem_of(one)) and grouped_trees.forest_of(problem_of(one)) == forest
                     and not untaught(problem_of(one), H200).streams] for forest in ("kinds", "few-kinds"))
CASES_OF = {"straddling": STRADDLING, "few": FEW, "kinds": KINDS, "few-kinds": FEW_KINDS}
MEANS = (1, 6, 20, 45, 100)
TILES = list(dict.fromkeys(tile for mean in MEANS for tile in grouped_few.tiles(mean)))
OTHER_TILES = [(kind, gated, tile) for kind, bits, gated in (("fp8", 8, False), ("bf16", 16, True), ("fp8", 8, True),
                                                             ("fp8-block", 8, False), ("fp8-block", 8, True))
               for tile in dict.fromkeys(tile for mean in MEANS for tile in grouped_few.tiles(mean, bits, promoted=kind == "fp8-block"))
               if alone(tile, problem_of(Case(8, 64, 1024, 1024, kind, gated=gated))) is not None]
"""Type, gate and tile: the tiles of few tokens that products in 8 bits, with a gate, with both, or with scales of blocks can have."""


@pytest.fixture(autouse=True)
def asked_anew():
    """No answer of other trees is left over."""
    grouped_trees._answer.cache_clear()
    yield
    grouped_trees._answer.cache_clear()


@settings(deadline=None, max_examples=60)
@given(CASES, st.sampled_from(list(CARDS)))
def test_a_choice_is_legal_and_trees_change_only_what_they_were_grown_for(case, card):
    problem = problem_of(case)
    config, own = heuristic(problem, CARDS[card]), untaught(problem, CARDS[card])
    check_config(config, problem)
    if not grouped_trees.chooses(problem, CARDS[card]):
        assert at_the_start(config) == own
    if not grouped_overlaps.chooses(problem, CARDS[card]):
        assert at_the_start(config) == config


@pytest.mark.parametrize("forest", grouped_trees.FORESTS)
def test_trees_are_of_the_card_that_was_measured_and_change_some_choices(forest):
    assert [name for name, card in CARDS.items() if len(grouped_trees.of_card(card, forest))] == ["h200"]
    assert not len(grouped_trees.of_card(H200.with_sms(66), forest))
    assert len(grouped_trees.of_card(H200, forest)) > 100
    cases = CASES_OF[forest]
    assert len(cases) > 30
    changed = sum(at_the_start(heuristic(problem_of(one), H200)) != untaught(problem_of(one), H200) for one in cases)
    assert 0.1 * len(cases) < changed < len(cases)


@pytest.mark.parametrize(("forest", "after", "before"), [("straddling", 1.035, 1.045), ("few", 1.045, 1.07), ("kinds", 1.022, 1.035),
                                                         ("few-kinds", 1.021, 1.03)])
def test_the_shipped_trees_choose_better_of_products_that_they_have_not_seen(forest, after, before):
    about = json.loads(grouped_trees.path_of(H200, forest).read_text(encoding="utf-8"))
    without, *stay, found = (float(re.search(r"regret ([\d.]+)", line)[1]) for line in about["held_out"])  # type: ignore[index]
    assert found < after < before < without
    assert all(found < 0.99 * each for each in stay)


def test_more_must_be_gained_where_less_is_known():
    """Where lines straddle 2 %; of few tokens in rows of whole lines 3 %, and 8 % of more of them or of more weights than were measured; of
    other kinds 3 %, and 7 % with few tokens; and of contiguous groups, whose number of blocks is known, 1 %."""
    least = {0.02: Case(8, 64, 4096, 4104), 0.03: Case(14, 64, 4096, 4096), 0.08: Case(8, 65, 4096, 4096)}
    asked = [*((gain, problem_of(one)) for gain, one in least.items()), (0.03, problem_of(Case(8, 512, 4096, 4096))),
             (0.08, problem_of(Case(15, 64, 4096, 4096))), (0.07, problem_of(Case(8, 64, 4096, 4096, "fp8"))),
             (0.01, problem_of(Case(8, 64, 4096, 4096), "contiguous"))]
    for gain, problem in asked:
        assert grouped_trees.gains(problem, math.log(1 - gain - 1e-6), 0.0)
        assert not grouped_trees.gains(problem, math.log(1 - gain + 1e-6), 0.0)


@given(st.floats(1e-6, 16_384.0))
@tried(5e-324)
@tried(2049.0)
def test_trees_are_asked_about_as_many_tiles(mean):
    near = grouped_trees.rounded(mean)
    assert grouped_trees.rounded(near) == near
    mean = max(mean, grouped_trees.LEAST)
    assert mean <= near <= mean * (1 + 2.0 ** -grouped_trees.STEPS)
    for tokens in (64, 128, 192, 256, *(size for size in grouped_few.TOKENS if mean <= 128)):
        assert math.ceil(mean / tokens) == math.ceil(near / tokens)
    assert (mean <= 64, mean <= 128) == (near <= 64, near <= 128)


def test_few_tokens_of_any_mean_have_a_choice():
    arrays = arrays_of(Case(64, 97, 1000, 2056))
    assert heuristic(GroupProblem(arrays, GroupOptions(mean_tokens=5e-324)), H200)


def test_trees_take_no_shared_k_away():
    """They have seen no product whose K CTAs share."""
    sharing = [one for one in random_cases(5, 600) if one.tokens <= 128 and untaught(problem_of(one), H200).streams]
    assert len(sharing) > 10
    assert all(heuristic(problem_of(one), H200) == untaught(problem_of(one), H200) for one in sharing)


def test_only_trees_see_tiles_as_they_are():
    """What limits of shared K were measured by stays as it was, on every card and for elements of 8 bits."""
    some = tuple(TILES)
    usual, there = (grouped_causes.Columns.of(some, H200, as_they_are=each) for each in (False, True))
    assert (usual.spans == 1).all()
    for tile, blocks, spans in zip(some, there.blocks, there.spans, strict=True):
        assert spans == max(1, tile.tile.BK // 64)
        warpgroups = 1 if isinstance(tile.schedule, Pingpong) else tile.schedule.warpgroups or default_warpgroups(tile.tile.BM)
        assert blocks == tile.tile.BM // 64 // warpgroups


def test_trees_are_asked_once_about_rows_that_are_about_as_many():
    """A model's number of rows changes from call to call."""
    arrays, groups = arrays_of(Case(64, 97, 1000, 2056)), 64
    problems = [GroupProblem(arrays, GroupOptions(mean_tokens=rows / groups)) for rows in range(groups * 97, groups * 100, 7)]
    assert len({heuristic(problem, H200) for problem in problems}) == 1
    assert grouped_trees._answer.cache_info().misses == 1


@pytest.mark.parametrize("forest", grouped_trees.FORESTS)
def test_features_have_the_names_of_the_files(forest):
    problem = problem_of(CASES_OF[forest][0])
    some = grouped_trees.tiles(problem, H200)
    seen = grouped_causes.Columns.of(some, H200)
    found = grouped_features.features(problem, some, seen, grouped_causes.clocks_of(problem, seen, H200))
    assert tuple(found) == grouped_features.NAMES
    names = grouped_trees.names_of(forest)
    assert names == grouped_features.NAMES[:len(names)]
    assert len(set(some)) == len(some)


@pytest.mark.parametrize("layout", ["cu_seqlens", "masked"])
@pytest.mark.parametrize("tile", grouped_trees.further(), ids=str)
def test_every_further_tile_is_right(tile, layout):
    """Empty groups, groups within a tile and over several, and N and K that end within one."""
    def configure(problem: GroupProblem) -> GroupedConfig:
        config = alone(tile, problem)
        assert config is not None
        return config

    share, report, _ = example([3, 0, 260], 72, 72, layout=layout, card=H200.with_sms(4), configure=configure)
    assert share <= 1
    assert report.verdict != "error", report.findings


@pytest.mark.parametrize("tile", TILES[::5], ids=lambda tile: f"{tile} {type(tile.scheduler).__name__}")
def test_tiles_of_few_tokens_are_right(tile):
    _is_right(tile, TILES.index(tile))


@pytest.mark.sweep
@pytest.mark.timeout(900)
def test_every_tile_of_few_tokens_is_right():
    for number, tile in enumerate(TILES):
        _is_right(tile, 1000 + number)


@pytest.mark.parametrize("number", range(0, len(OTHER_TILES), 9), ids=lambda number: " ".join(map(str, OTHER_TILES[number])))
def test_tiles_of_few_tokens_of_other_kinds_are_right(number):
    _is_right(OTHER_TILES[number][2], number, *OTHER_TILES[number][:2])


@pytest.mark.sweep
@pytest.mark.timeout(1800)
def test_every_tile_of_few_tokens_of_other_kinds_is_right():
    for number, (kind, gated, tile) in enumerate(OTHER_TILES):
        _is_right(tile, 1000 + number, kind, gated)


def _is_right(tile, seed, kind="bf16", gated=False):
    """Random lengths, some of them 0, and N and K that end within a tile."""
    source = random.Random(seed)
    lengths = [source.choice((0, 1, 3, source.randint(0, 40), source.randint(0, 150))) for _ in range(source.randint(1, 6))]
    lengths[0] = lengths[0] or 5

    def configure(problem: GroupProblem) -> GroupedConfig:
        config = alone(tile, problem)
        assert config is not None
        return config

    n, k = 8 * source.randint(2, 40) * (1 + gated), (16 if kind != "bf16" else 8) * source.choice((1, 3, 9, 17, source.randint(1, 40)))
    n = 256 * source.randint(1, 2) if gated and kind == "fp8-block" else n
    operands = {} if kind == "bf16" else {"dtype": "e4m3", "scales": "block" if kind == "fp8-block" else "group"}
    share, report, _ = example(lengths, n, k, layout=source.choice(("cu_seqlens", "masked")), gated=gated, card=H200.with_sms(4),
                               configure=configure, **operands)
    assert share <= 1
    assert report.verdict != "error", report.findings


@settings(deadline=None, max_examples=60)
@given(st.floats(0.02, 128.0))
def test_tiles_of_few_tokens_have_room_for_groups(mean):
    sizes = grouped_few.tokens_of(mean)
    assert sizes
    assert max(sizes) >= min(mean, 128)
    found = grouped_few.tiles(mean)
    assert len(set(found)) == len(found) <= 128
    problem = problem_of(Case(8, 64, 1000, 2056))
    assert all(alone(tile, problem) is not None for tile in found)


@pytest.mark.parametrize("forest", grouped_trees.FORESTS)
def test_what_is_measured_has_both_choices_and_every_tile(forest):
    for one in CASES_OF[forest][:3]:
        problem = problem_of(one)
        found = list(taught_candidates(problem))
        assert found[0] == heuristic(problem)
        assert untaught(problem) in found
        assert len(found) == len(set(found)) >= (10 if problem.promote else 15)
    assert not list(taught_candidates(problem_of(Case(8, 64, 4096, 4096, "fp8", gated=True, quantised=True))))


def sweep(truth, count=60, cases=STRADDLING):
    """What a sweep would have measured, if `truth` said how many times as long as by the causes a tile takes. It is given the tile, and
    whether it is what is chosen without trees."""
    rows = []
    for one in cases[:count]:
        problem = problem_of(one)
        some = dict.fromkeys((usual_tile(problem, H200), *grouped_trees.tiles(problem, H200)))
        configs = {str(config): tile for tile in some if (config := alone(tile, problem)) is not None}
        own = str(untaught(problem, H200))
        clocks, _ = grouped_features.judged(problem, tuple(configs.values()), H200)
        rows.append({"case": str(one), "configs": [{"config": name, "us": clock * truth(tile, name == own) / H200.clock_mhz}
                                                   for (name, tile), clock in zip(configs.items(), clocks, strict=True)]})
    return {"device": {"name": H200.name}, "rows": rows}


def test_trees_learn_which_tiles_are_faster_than_their_causes(monkeypatch):
    """Tiles of 128 tokens take a third less time than the causes say: trees that have not seen a product know it, too."""
    monkeypatch.setattr(grouped_fit, "GROWTH", FEWER)
    some = grouped_fit.measured([sweep(lambda tile, own: 0.67 if tile.tile_tokens == 128 else 1.0)], H200)
    before, after = (np.log(found).mean() for found in grouped_fit.regrets(some, grouped_fit.unseen(some, H200)))
    assert math.exp(before) > 1.05
    assert math.exp(after) < 1.01
    trees = grouped_fit.taught(some, np.ones(len(some.us), dtype=bool), H200)
    monkeypatch.setattr(grouped_trees, "of_card", lambda card, forest: trees)
    others = [(problem_of(one), grouped_causes.fastest(problem_of(one), H200)) for one in STRADDLING[60:]]
    tall = [(*grouped_trees.answer(each, own, H200).better, own)[0].tile_tokens for each, own in others]
    assert tall.count(128) > 0.8 * len(tall)


def test_nothing_is_kept_where_nothing_is_to_be_gained(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(grouped_fit, "GROWTH", FEWER)
    assert grouped_fit.fit([sweep(lambda tile, own: 0.5 if own else 1.0, 20)], H200, tmp_path / "t.json") == 1
    assert capsys.readouterr().out.endswith("there is nothing to be gained\n")
    assert not (tmp_path / "t.json").exists()


def test_a_fit_is_kept_where_it_is_asked_for_and_read_again(tmp_path, capsys, monkeypatch):
    """Each forest has its own file, beside that of straddling rows."""
    monkeypatch.setattr(grouped_fit, "GROWTH", FEWER)
    data, kept = tmp_path / "s.json", tmp_path / "t.json"
    both = sweep(swapped_is_faster, 30)
    kinds = [one for one in KINDS if untaught(problem_of(one)).second is None]
    both["rows"] += sweep(swapped_is_slower, 20, FEW)["rows"] + sweep(wide_is_slower, 25, kinds)["rows"]
    both["rows"] += sweep(swapped_is_slower, 15, FEW_KINDS)["rows"]
    data.write_text(json.dumps(both))
    assert main(["fit", "--grouped", "--card", "h200", "--output", str(kept), str(data)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0::3] == [grouped_fit.PRODUCTS[forest] for forest in grouped_trees.FORESTS]
    for line, count in zip(said[1::3], (30, 20, 25, 15), strict=True):
        assert re.fullmatch(rf"without trees: {count} products, regret 1\.\d+, 95th percentile \d\.\d+, worst \d\.\d+", line)
    for name, forest, count in (("t", "straddling", 30), ("t-few", "few", 20), ("t-kinds", "kinds", 25), ("t-few-kinds", "few-kinds", 15)):
        path = tmp_path / f"{name}.json"
        assert json.loads(path.read_text())["products"] == count
        assert len(grouped_trees.corrections.read(path, grouped_trees.names_of(forest))) == FEWER.rounds


def swapped_is_faster(tile, own):
    return 0.67 if tile.swap_ab else 1.0


def swapped_is_slower(tile, own):
    return 1.5 if tile.swap_ab else 1.0


def wide_is_slower(tile, own):
    return 1.5 if tile.tile.BN > 128 else 1.0


def test_only_trees_of_what_was_swept_are_grown(tmp_path, monkeypatch):
    monkeypatch.setattr(grouped_fit, "GROWTH", FEWER)
    assert grouped_fit.fit([sweep(swapped_is_slower, 20, FEW)], H200, tmp_path / "t.json") == 0
    assert [path.name for path in tmp_path.iterdir()] == ["t-few.json"]


def test_too_few_products_of_one_kind_are_no_obstacle(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(grouped_fit, "GROWTH", FEWER)
    both = sweep(swapped_is_slower, 20, FEW)
    both["rows"] += sweep(swapped_is_faster, 20, [case("5x500x1000x1000")])["rows"]
    assert grouped_fit.fit([both], H200, tmp_path / "t.json") == 0
    assert "16 bits, more than 128 tokens a group, rows that straddle lines: 1 products, and 5 are the least" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["t-few.json"]
    assert grouped_fit.fit([sweep(swapped_is_slower, 2, FEW)], H200, tmp_path / "u.json") == 1


def test_further_trees_keep_what_the_card_has_learned(tmp_path, capsys, monkeypatch):
    """The card's trees know the half of it; further ones learn what they leave over."""
    monkeypatch.setattr(grouped_fit, "GROWTH", FEWER)
    first, second = (tmp_path / name for name in ("one.json", "two.json"))
    data = tmp_path / "s.json"
    data.write_text(json.dumps(sweep(swapped_is_faster, 30)))
    monkeypatch.setattr(grouped_fit, "path_of", lambda card, forest, beside=None: beside or first)
    monkeypatch.setattr(grouped_fit, "of_card", lambda card, forest: grouped_trees.corrections.read(first, grouped_features.OF_TILES))
    assert grouped_fit.fit([grouped_fit.sweep(data)], H200) == 0
    data.write_text(json.dumps(sweep(lambda tile, own: swapped_is_faster(tile, own) * (0.67 if tile.tile_tokens == 128 else 1.0), 40)))
    capsys.readouterr()
    assert grouped_fit.fit([grouped_fit.sweep(data)], H200, second, further=True) == 0
    stay, more = (float(re.search(r"regret ([\d.]+)", line)[1]) for line in capsys.readouterr().out.splitlines()[2:4])  # type: ignore[index]
    assert more < stay
    both = json.loads(second.read_text())
    assert both["products"] == 70
    assert len(grouped_trees.corrections.read(second, grouped_features.OF_TILES)) == 2 * FEWER.rounds


def test_further_trees_need_some_that_stay(monkeypatch):
    monkeypatch.setattr(grouped_fit, "of_card", lambda card, forest: grouped_trees.corrections.NONE)
    with pytest.raises(DataError, match=re.escape("has no trees of groups that could stay, h200.grouped-few.json: leave out --further")):
        grouped_fit.fit([sweep(swapped_is_slower, 20, FEW)], H200, further=True)


@pytest.mark.parametrize(("text", "sentence"), [
    ("{}", "is not what `grouped --sweep` writes"), ("[", "is not what `grouped --sweep` writes"),
    ('{"device": {"name": "NVIDIA H200"}, "rows": [{"case": "8x512x64x64", "configs": [3]}]}', "is not what `grouped --sweep` writes"),
    ('{"device": {"name": "NVIDIA H200"}, "rows": []}', "no product was swept that trees learn from"),
    ('{"device": {"name": "NVIDIA H100 80GB HBM3"}, "rows": []}', "--card h200 is NVIDIA H200, and a record is of NVIDIA H100 80GB HBM3")])
def test_files_that_are_none(tmp_path, text, sentence, capsys):
    data = tmp_path / "s.json"
    data.write_text(text)
    with pytest.raises(DataError, match=re.escape(sentence)):
        _fit(data)
    with pytest.raises(DataError, match="cannot read"):
        _fit(tmp_path / "none.json")


def _fit(data):
    from ptxkit.gemm.tools import fit

    options = _parser(fit).parse_args(["--grouped", "--card", "h200", str(data)])
    return fit.command(options)


def _parser(module):
    import argparse

    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    return parser


@pytest.mark.parametrize("more", [["--start", "h100"], ["--keep", "3"], ["--rounds", "9"], ["--turns", "3"]])
def test_options_of_dense_trees_are_refused(more, capsys, tmp_path):
    (tmp_path / "s.json").write_text('{"device": {"name": "NVIDIA H200"}, "rows": []}')
    assert main(["fit", "--grouped", "--card", "h200", *more, str(tmp_path / "s.json")]) != 0
    assert "--grouped takes no --start, --keep, --rounds or --turns: it grows a fixed number of trees" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "sentence"), [
    (["--sweep", "--w-major", "mn", "--kinds", "fp8", "--cases", "random:1:9"], "weights lie along N in bf16 without a gate"),
    (["--sweep", "--w-major", "mn", "--cases", "8x512x1024x1024:gated"], "weights lie along N in bf16 without a gate"),
    (["--sweep", "--layout", "contiguous", "--cases", "8x512x1024x1024:fp8:quantised"], "quantised results are not measured so"),
    (["--compare", "--layout", "contiguous"], "--layout and --w-major are of --sweep")])
def test_what_a_sweep_cannot_measure_is_a_sentence(words, sentence, capsys):
    assert main(["grouped", *words]) == 2
    assert sentence in capsys.readouterr().err


def test_a_sweep_has_no_other_variants(capsys):
    assert main(["grouped", "--sweep", "--variants", "linear"]) != 0
    assert "--variants linear: a sweep has every candidate; with tiles every tile" in capsys.readouterr().err
