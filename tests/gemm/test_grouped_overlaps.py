"""Laws of when the kernel after a grouped product begins: the choice of that, and how it is learned."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from ptxkit.cards import CARDS, H200
from ptxkit.gemm.__main__ import main
from ptxkit.gemm.config.grouped import DynamicGroups, GroupedConfig, StaticGroups, SwapAB
from ptxkit.gemm.config.parts import ConfigError, Cooperative, Overlap, Pingpong, Tile
from ptxkit.gemm.heuristic import grouped_features, grouped_overlaps, grouped_trees
from ptxkit.gemm.heuristic.corrections import NONE, Trees
from ptxkit.gemm.heuristic.group_tile import GroupTile
from ptxkit.gemm.heuristic.grouped import alone, heuristic, untaught, usual_tile
from ptxkit.gemm.heuristic.grouped_overlaps import at_the_start
from ptxkit.gemm.launch.group_kernels import kernel_of
from ptxkit.gemm.problem.grouped import GroupProblem
from ptxkit.gemm.tools import grouped_overlaps_fit, overlaps_fit
from ptxkit.gemm.tools.bench.grouped_candidates import BEGUN, begun_candidates
from ptxkit.gemm.tools.bench.grouped_cases import Case, random_cases
from ptxkit.gemm.tools.grouped_example import example
from ptxkit.gemm.tools.grow import Growth
from ptxkit.gemm.tools.measured import DataError
from ptxkit.gemm.tools.problems import problem_of

pytest.importorskip("ml_dtypes")
pytestmark = [pytest.mark.pure, pytest.mark.timeout(240)]
EVERY = get_args(Overlap)
QUANTISED = Case(8, 512, 4096, 4096, "fp8", gated=True, quantised=True)
PRODUCTS = [one for one in random_cases(9, 120, kinds=("bf16", "fp8", "fp8-block"), units="aligned")
            if grouped_overlaps.takes(problem_of(one))]


def by_begin(loads: float, end: float) -> Trees:
    """A tree that asks for the begin alone."""
    return Trees(np.array([[grouped_overlaps.NAMES.index("later")]]), np.array([[0.5]]), np.array([[loads, end]]))


@pytest.fixture
def trees(monkeypatch):
    """Puts trees in the place of every card's. No answer of other ones is left over."""
    def put(found):
        monkeypatch.setattr(grouped_overlaps, "of_card", lambda card: found)
        grouped_trees._answer.cache_clear()

    yield put
    grouped_trees._answer.cache_clear()


def few(problem: GroupProblem) -> bool:
    return problem.mean <= 64


@pytest.mark.parametrize(("loads", "end", "wanted"), [(-0.02, 0.01, "loads"), (0.01, -0.03, "end"), (-0.02, -0.03, "end"),
                                                      (-0.009, -0.008, "start"), (0.02, 0.01, "start")])
def test_a_tile_has_the_begin_that_the_trees_put_first(loads, end, wanted, trees):
    """If it gains 1 %. A tile from a counter has no begin, and few tokens never wait for the end."""
    problems = [problem_of(one) for one in PRODUCTS[:40]]
    trees(NONE)
    plain = [heuristic(problem) for problem in problems]
    assert all(config.scheduler.overlap == "start" for config in plain)
    trees(by_begin(loads, end))
    seen = 0
    for problem, config in zip(problems, plain, strict=True):
        found = heuristic(problem)
        static = isinstance(found.scheduler, StaticGroups) and found.second is None
        instead = "loads" if loads < -grouped_overlaps.GAIN else "start"
        assert found.scheduler.overlap == ("start" if not static else instead if few(problem) and wanted == "end" else wanted)
        if wanted == "start":
            assert found == config
        seen += static
    assert seen > 15


def test_a_tile_whose_begin_gains_is_chosen_before_one_from_a_counter(trees):
    """A later begin counts in the comparison of tiles."""
    trees(NONE)
    problem, own = next((problem, own) for problem, own in ((each, usual_tile(each, H200)) for each in map(problem_of, PRODUCTS))
                        if not isinstance(own.scheduler, StaticGroups) and not grouped_trees.answer(problem, own, H200).better)
    trees(by_begin(-0.5, 0.5))
    first = grouped_trees.answer(problem, own, H200).better[0]
    assert first.scheduler.overlap == "loads"


def test_only_a_card_that_was_measured_has_begins():
    assert [name for name, card in CARDS.items() if len(grouped_overlaps.of_card(card))] == ["h200"]
    assert not len(grouped_overlaps.of_card(H200.with_sms(66)))
    chosen = [heuristic(problem_of(one)).scheduler.overlap for one in PRODUCTS]
    assert {*chosen} == {*EVERY}
    others = [heuristic(problem_of(one), card).scheduler.overlap for one in PRODUCTS[:20] for card in CARDS.values() if card is not H200]
    assert {*others} == {"start"}


def test_products_that_were_not_measured_have_none():
    """Quantised results, large products, and groups in one block of contiguous rows, of which nobody knows how many are padding."""
    for problem in (problem_of(QUANTISED), problem_of(Case(64, 4096, 4096, 7168)), problem_of(Case(8, 100, 4096, 1024), "contiguous")):
        assert not grouped_overlaps.takes(problem)
        assert heuristic(problem).scheduler.overlap == untaught(problem).scheduler.overlap == "start"


def test_the_shipped_trees_choose_better_than_one_begin_for_all():
    about = json.loads(grouped_overlaps.path_of(H200).read_text(encoding="utf-8"))
    one, chosen, best = (float(re.search(r"([\d.]+) of the time", line)[1]) for line in about["held_out"])  # type: ignore[index]
    assert best < chosen < one - 0.005
    assert about["products"] > 1000


def test_a_configuration_with_a_second_kernel_or_gathered_rows_begins_as_it_does():
    plain = untaught(problem_of(Case(8, 512, 4096, 4096, "fp8-block")))
    assert plain.plan is not None
    with pytest.raises(ConfigError, match="take overlap=\"start\""):
        replace(plain, scheduler=StaticGroups(overlap="loads"))
    gathered = replace(untaught(problem_of(Case(8, 512, 4096, 4096))).operands, gathered=True)
    with pytest.raises(ConfigError, match="take overlap=\"start\""):
        GroupedConfig(gathered, tile=Tile(128, 128), scheduler=StaticGroups(overlap="end"))
    with pytest.raises(ConfigError, match="overlap"):
        StaticGroups(overlap="sometime")  # type: ignore[arg-type]


TILES = {"rows": ("bf16", GroupTile(Tile(128, 64))), "pingpong": ("bf16", GroupTile(Tile(64, 64), Pingpong())),
         "columns": ("bf16", GroupTile(Tile(64, 32), tokens=SwapAB(16))), "blocks": ("fp8-block", GroupTile(Tile(64, 128))),
         "blocks as columns": ("fp8-block", GroupTile(Tile(128, 16), Cooperative(1), tokens=SwapAB(), stages=6))}


@pytest.mark.parametrize("name", TILES)
def test_the_next_kernel_is_let_in_where_the_words_say(name):
    """At the start all threads let it in, before any copy; after the loads the producer does, behind its last copy; for the end nobody."""
    kind, tile = TILES[name]
    problem = problem_of(Case(4, 40, 256, 512, kind))
    for each in grouped_overlaps.begins(tile):
        config = alone(each, problem)
        assert config is not None
        overlap, lines = config.scheduler.overlap, kernel_of(config).trace(**config.parameters).ptx().splitlines()
        lets = [number for number, line in enumerate(lines) if "griddepcontrol.launch_dependents" in line]
        loads = [number for number, line in enumerate(lines) if "cp.async.bulk.tensor" in line and ".mbarrier::" in line]
        assert len(loads) > 1
        assert len(lets) == (overlap != "end")
        assert overlap != "start" or lets[0] < min(loads)
        assert overlap != "loads" or lets[0] > max(loads)
        assert (f"next kernel after the {overlap}" in str(config)) == (overlap != "start")


@pytest.mark.parametrize("name", TILES)
@pytest.mark.parametrize("overlap", EVERY[1:])
def test_results_do_not_depend_on_it(name, overlap):
    kind, tile = TILES[name]
    source = random.Random(f"{name} {overlap}")
    lengths = [source.choice((0, 1, tile.tile_tokens + 1, source.randint(0, 150))) for _ in range(4)] + [5]

    def configure(problem):
        return alone(replace(tile, scheduler=StaticGroups(overlap=overlap)), problem)

    operands = {} if kind == "bf16" else {"dtype": "e4m3", "scales": "block"}
    n, k, layout = 8 * source.randint(9, 40), 16 * source.randint(1, 40), source.choice(("cu_seqlens", "masked"))
    share, report, config = example(lengths, n, k, layout=layout, card=H200.with_sms(4), configure=configure, **operands)
    assert config.scheduler.overlap == overlap
    assert share <= 1
    assert report.verdict != "error", report.findings


# ------------------------------------------------------------------------------------------------- how it is learned


def sweep(change, count: int = 40):
    """What a sweep would have measured, if `change` said how many times as long a tile takes with a begin."""
    rows = []
    for one in PRODUCTS[:count]:
        problem = problem_of(one)
        others = grouped_trees.tiles(problem, H200) if grouped_trees.takes(problem) else ()
        first, said, _ = grouped_trees.ranked(problem, tuple(dict.fromkeys((usual_tile(problem, H200), *others))), H200)
        configs = [{"config": str(config), "us": float(np.exp(logarithm)) * change(problem, each) / H200.clock_mhz}
                   for tile, logarithm in list(zip(first, said, strict=True))[:6] for each in grouped_overlaps.begins(tile)
                   if (config := alone(each, problem)) is not None]
        rows.append({"case": str(one), "configs": configs})
    return {"device": {"name": H200.name}, "rows": rows}


def of_depth(problem, tile):
    """Deep products gain by a begin after the loads, others by one after the end."""
    wanted = "loads" if problem.k > 1000 else "end"
    return 0.94 if tile.scheduler.overlap == wanted else 1.0


def test_trees_learn_which_begin_is_best(tmp_path, capsys, monkeypatch, trees):
    monkeypatch.setattr(overlaps_fit, "GROWTH", Growth(40, 4, 0.3))
    data, kept = tmp_path / "s.json", tmp_path / "t.json"
    data.write_text(json.dumps(sweep(of_depth, 60)))
    assert main(["fit", "--grouped", "--overlaps", "--card", "h200", "--output", str(kept), str(data)]) == 0
    constant, chosen, best = (float(re.search(r"([\d.]+) of the time", line)[1]) for line in capsys.readouterr().out.splitlines())  # type: ignore[index]
    assert best == pytest.approx(0.94, abs=0.002)
    assert best <= chosen < constant - 0.01
    trees(grouped_trees.corrections.read(kept, grouped_overlaps.NAMES))
    right, asked = 0, [problem for problem in map(problem_of, PRODUCTS[60:]) if not few(problem)]
    assert len(asked) > 15
    for problem in asked:
        found = grouped_trees.answer(problem, GroupTile(Tile(128, 128)), H200).own.scheduler
        right += found.overlap == ("loads" if problem.k > 1000 else "end")
    assert right > 0.85 * len(asked)


def test_nothing_is_kept_where_nothing_is_to_be_gained(tmp_path, monkeypatch):
    monkeypatch.setattr(overlaps_fit, "GROWTH", Growth(20, 3, 0.3))
    kept = tmp_path / "t.json"
    assert grouped_overlaps_fit.fit([sweep(lambda problem, tile: 1.0)], H200, kept) == 1
    assert not kept.exists()


def test_tiles_without_every_begin_teach_nothing():
    data = sweep(of_depth, 10)
    for row in data["rows"]:
        row["configs"] = [one for one in row["configs"] if "after the end" not in one["config"]]
    with pytest.raises(DataError, match="measured with every begin of the next kernel"):
        grouped_overlaps_fit.fit([data], H200)


def test_what_is_measured_are_the_first_tiles_with_every_begin():
    for one in PRODUCTS[:6]:
        problem = problem_of(one)
        found = list(begun_candidates(problem))
        assert found[0] == heuristic(problem)
        by_tile: dict[GroupedConfig, set[str]] = {}
        for config in found:
            if not isinstance(config.scheduler, DynamicGroups) and config.second is None:
                by_tile.setdefault(at_the_start(config), set()).add(config.scheduler.overlap)
        whole = [begins for begins in by_tile.values() if begins == {*EVERY}]
        assert 1 <= len(whole) <= BEGUN
        assert len(by_tile) <= len(whole) + 1
    assert not list(begun_candidates(problem_of(QUANTISED)))


def test_a_sweep_has_one_kind_of_variants(capsys):
    assert main(["grouped", "--sweep", "--variants", "tiles,overlaps"]) == 2
    assert "--variants tiles,overlaps: a sweep has every candidate; with tiles every tile" in capsys.readouterr().err


def test_what_trees_are_told_begins_with_what_those_of_tiles_are():
    assert (*grouped_features.NAMES, "later") == grouped_overlaps.NAMES
