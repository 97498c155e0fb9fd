"""The tiles that trees choose from for other kinds of groups: each is right, and only products that were measured have them."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from statistics import geometric_mean
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxkit.cards import CARDS, H200
from ptxkit.gemm.config.grouped import DynamicGroups, GroupedConfig, GroupOperands, StaticGroups, SwapAB, TokensAsRows
from ptxkit.gemm.config.parts import ClusterShape, ConfigError, Cooperative, Tile
from ptxkit.gemm.heuristic import grouped_features, grouped_kinds, grouped_trees
from ptxkit.gemm.heuristic.group_tile import GroupTile, swapped
from ptxkit.gemm.heuristic.grouped import alone, heuristic, untaught, usual_tile
from ptxkit.gemm.heuristic.grouped_tiles import SHORT
from ptxkit.gemm.launch.grouped import check_config
from ptxkit.gemm.problem.grouped import GroupOptions, GroupProblem
from ptxkit.gemm.tools.bench.grouped_cases import Case, case, cases, model_cases
from ptxkit.gemm.tools.grouped_example import example
from ptxkit.gemm.tools.problems import array, arrays_of, problem_of
from tests.gemm.groups import results

pytest.importorskip("ml_dtypes")
pytestmark = [pytest.mark.pure, pytest.mark.timeout(240)]
KINDS = ("bf16", "fp8", "fp8-block")
RECORD = "2026-11-30-h200-grouped-kinds.json"
EXAMPLES: dict[str, dict[str, Any]] = {"bf16": {"dtype": "bf16"}, "fp8": {"dtype": "e4m3", "scales": "group"},
                                       "fp8-block": {"dtype": "e4m3", "scales": "block"}}
LISTS = [(kind, layout, tile) for kind in KINDS for layout in ("cu_seqlens", "contiguous")
         for tile in grouped_kinds.tiles(problem_of(Case(8, 512, 1024, 1024, kind), layout))]  # type: ignore[arg-type]


def name(one: tuple[str, str, GroupTile]) -> str:
    kind, layout, tile = one
    scheduler = tile.scheduler
    return f"{kind} {layout} {tile} {type(scheduler).__name__}{' longest first' * scheduler.longest_first} {tile.promotion}"


def is_right(kind: str, layout: str, tile: GroupTile, number: int) -> None:
    """Random lengths about the ends of tiles, and N and K that end within one; every other product that can has a gate."""
    source = random.Random(f"{number} {kind} {layout} {tile}")
    lengths = [source.choice((0, 1, tile.tile_tokens, tile.tile_tokens + 1, source.randint(0, 300))) for _ in range(3)]
    lengths[0] = lengths[0] or 5

    def configure(problem: GroupProblem) -> GroupedConfig:
        config = alone(tile, problem)
        assert config is not None
        return config

    gated = number % 2 == 1 and alone(tile, problem_of(Case(4, 300, 512, 512, kind, gated=True), layout)) is not None  # type: ignore[arg-type]
    n = (256 if kind == "fp8-block" else 64 * source.randint(1, 6)) if gated else 8 * source.randint(2, 40)
    k = source.choice((128, 384, 80 if kind != "fp8-block" else 256))
    share, report, config = example(lengths, n, k, layout=source.choice(("cu_seqlens", "masked")) if layout == "cu_seqlens" else layout,
                                    gated=gated, card=H200.with_sms(4), configure=configure, mean_tokens=source.choice((150, 300, 600)),
                                    **EXAMPLES[kind])
    assert share <= 1, config
    assert report.verdict != "error", report.findings


@pytest.mark.parametrize("number", range(0, len(LISTS), 4), ids=lambda number: name(LISTS[number]))
def test_tiles_of_other_kinds_are_right(number: int) -> None:
    is_right(*LISTS[number], number // 4)


@pytest.mark.sweep
@pytest.mark.timeout(1800)
def test_every_tile_of_other_kinds_is_right() -> None:
    for number, one in enumerate(LISTS):
        for turn in (0, 1):
            is_right(*one, number + turn)


CASES = st.builds(lambda kind, groups, tokens, n, k, gated: Case(groups, tokens, 256 * n if gated else 8 * n, 16 * k, kind, gated=gated),
                  st.sampled_from(KINDS), st.integers(1, 256), st.integers(1, 4096), st.integers(1, 60), st.integers(1, 600), st.booleans())


OPTIONS = st.fixed_dictionaries({"mean_tokens": st.sampled_from([None, 3, 700]), "batch_invariant": st.booleans(),
                                 "order": st.sampled_from([None, None, "linear"]), "fast_accum": st.sampled_from([None, None, False])})


@settings(deadline=None, max_examples=250)
@given(CASES, st.sampled_from(["cu_seqlens", "contiguous"]), st.sampled_from(["k", "mn"]), st.sampled_from(list(CARDS)), OPTIONS,
       st.booleans())
def test_every_kind_has_a_legal_choice_and_trees_change_only_what_was_measured(one, layout, w_major, card, options, by_rows):
    arrays = arrays_of(one, layout, w_major if one.kind == "bf16" and not one.gated else "k")
    if by_rows and one.kind == "fp8-block":
        arrays = arrays._replace(x_scale=array("f32", *arrays.x_scale.shape))
    problem = GroupProblem(arrays, GroupOptions(layout, one.gated, **options))
    config, own = heuristic(problem, CARDS[card]), untaught(problem, CARDS[card])
    for each in config.kernels:
        check_config(each, problem)
    if not grouped_trees.chooses(problem, CARDS[card]):
        assert config == own


def measured() -> GroupProblem:
    return problem_of(Case(8, 512, 1024, 1024))


@pytest.mark.parametrize(("problem", "why"), [
    (GroupProblem(arrays_of(Case(8, 512, 1024, 1024))._replace(out=array("f32", 4096, 1024))), "results of 32 bits"),
    (problem_of(Case(8, 512, 1024, 1024, "fp8", quantised=True)), "quantised results"),
    (GroupProblem(arrays_of(Case(8, 512, 1024, 1024)), GroupOptions(order="linear")), "an order that the caller gives"),
    (GroupProblem(arrays_of(Case(8, 96, 1024, 1024, "fp8-block"))._replace(x_scale=array("f32", 768, 8))), "few tokens with such scales"),
    (problem_of(Case(8, 96, 1024, 1024), w_major="mn"), "few tokens with weights along N"),
    (GroupProblem(arrays_of(Case(8, 96, 1024, 1024, "fp8")), GroupOptions(batch_invariant=True)), "few tokens that must be rows"),
    (problem_of(Case(64, 4096, 4096, 1024)), "more operations than were measured"),
    (problem_of(Case(8, 512, 1028, 1024)), "results that are stored by element"),
    (problem_of(Case(8, 512, 1024, 1024), "contiguous", "mn"), "contiguous groups with weights along N"),
    (GroupProblem(arrays_of(Case(8, 512, 1024, 1024, "fp8-block"))._replace(x_scale=array("f32", 4096, 8))), "scales that threads read"),
    (GroupProblem(arrays_of(Case(8, 512, 1024, 1024, "fp8")), GroupOptions(fast_accum=False)), "promoted sums without block scales"),
    (GroupProblem(arrays_of(Case(8, 512, 1024, 1024, "fp8"))._replace(x_scale=array("f32", 4096, 1), w_scale=array("f32", 8, 1024, 1))),
     "scales of rows and features")],
    ids=lambda each: each if isinstance(each, str) else "")
def test_other_products_have_no_trees(problem: GroupProblem, why: str) -> None:
    assert grouped_trees.takes(measured())
    assert all(grouped_trees.takes(problem_of(Case(8, 96, 1024, 1024, kind))) for kind in ("fp8", "fp8-block"))
    assert not grouped_trees.takes(problem), why


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("layout", ["cu_seqlens", "contiguous"])
def test_trees_are_told_the_tiles_of_a_product(layout: Any, gated: bool) -> None:
    """With a gate, a tile has both projections; contiguous groups have as many blocks as their rows say, whatever mean is given."""
    arrays = arrays_of(Case(16, 300, 2048, 1024, gated=gated), layout)
    for mean in (None, 700):
        problem = GroupProblem(arrays, GroupOptions(layout, gated, mean_tokens=mean))
        some = grouped_kinds.tiles(problem)
        _, told = grouped_features.judged(problem, some, H200)
        count = 2.0 ** told[:, grouped_features.NAMES.index("all tiles")]
        for tile, tiles in zip(some, count, strict=True):
            across = -(-problem.n // tile.features(gated, quantised=False))
            down = problem.rows / tile.tile_tokens if layout == "contiguous" else 16 * math.ceil(problem.mean / tile.tile_tokens)
            assert tiles == pytest.approx(down * across), tile


@pytest.mark.parametrize(("scheduler", "swap"), [(DynamicGroups(cluster=ClusterShape(1, 2)), False),
                                                 (StaticGroups(cluster=ClusterShape(2, 1)), False),
                                                 (StaticGroups(cluster=ClusterShape(1, 2)), True)])
def test_ctas_of_contiguous_groups_share_rows_alone(scheduler: Any, swap: bool) -> None:
    """Blocks next to each other may be of two groups, and a counter would give both CTAs the first one's tile."""
    with pytest.raises(ConfigError, match=r"contiguous groups need clusters whose CTAs share the tokens, .* and StaticGroups\(\)"):
        GroupedConfig(GroupOperands(layout="contiguous"), SwapAB() if swap else TokensAsRows(), Tile(128, 128), scheduler=scheduler)


def test_contiguous_groups_are_asked_about_by_their_blocks() -> None:
    grouped_trees._answer.cache_clear()
    arrays = arrays_of(Case(8, 1024, 1024, 1024), "contiguous")
    for blocks, counts in ((1, range(8192, 8192 - 128, -31)), (2, (8064, 8000))):
        for rows in counts:
            cut = arrays._replace(x=array("bf16", rows, 1024), lengths=array("s32", rows), out=array("bf16", rows, 1024))
            assert heuristic(GroupProblem(cut, GroupOptions("contiguous", mean_tokens=1000)))
        assert grouped_trees._answer.cache_info().misses == blocks


@pytest.mark.parametrize(("section", "kinds", "shares"), [("learned", 11, {True: (270, 1.015), False: (560, 1.035)}),
                                                          ("few tokens", 5, {False: (240, 1.05)})])
def test_what_is_recorded_of_trees_is_nearer_to_the_fastest_tile(section: str, kinds: int, shares: dict[bool, tuple[int, float]]) -> None:
    """Of each kind, by trees that have not seen the product; few of them lose. The begin of the next kernel brings more."""
    learned = results(RECORD)[section]
    assert len(learned) == kinds
    gained = sorted(geometric_mean(row[2] / row[1] for row in found) for found in learned.values())
    assert gained[-1] < 0.995
    assert gained[-3] < 0.99
    for contiguous, (count, most) in shares.items():
        found = [row for kind, found in learned.items() for row in found if ("contiguous" in kind) == contiguous]
        assert len(found) >= count
        assert geometric_mean(row[2] for row in found) < most < geometric_mean(row[1] for row in found)
        assert geometric_mean(row[3] / row[2] for row in found) < (0.996 if section == "few tokens" else 0.985)
        for place in (2, 3):
            assert sum(row[place] > 1.03 * row[1] for row in found) < 0.05 * len(found)


def test_what_was_fresh_for_the_trees_is_faster_by_them() -> None:
    """Products of two seeds whose tile or begin is another one than by the trees before."""
    fresh = results(RECORD)["fresh"]
    for seed, least in (("131", 100), ("141", 120)):
        found = [ratio for kind in fresh[seed].values() if isinstance(kind, dict) for ratio in kind["changed"]]
        assert len(found) >= least
        assert geometric_mean(found) < 0.975
        assert sum(each > 1.03 for each in found) < 0.1 * len(found)
        for word, *_ in fresh[seed]["slowest"]:                 # the record is of the trees that ship
            problems = [problem_of(case(word), layout) for layout in ("cu_seqlens", "contiguous")]  # type: ignore[arg-type]
            assert any(heuristic(problem) != untaught(problem) for problem in problems), word


def test_extents_of_models_have_other_choices_only_where_these_were_measured() -> None:
    """Without them in what trees learned other tiles took up to 1.11 times as long."""
    measured, blocks = results(RECORD)["models"], results(RECORD)["models contiguous"]
    changed: dict[str, set[str]] = {"cu_seqlens": set(), "contiguous": set()}
    for one in (replace(each, gated=gated) for each in (*model_cases(), *cases()) for gated in (False, True)[:1 + (each.n % 2 == 0)]):
        for layout, found in changed.items():
            problem = problem_of(one, layout)  # type: ignore[arg-type]
            if grouped_trees.takes(problem) and heuristic(problem, H200) != untaught(problem, H200):
                found.add(str(one))
    assert changed["cu_seqlens"] == measured.keys()
    assert blocks.keys() < changed["contiguous"]
    assert (len(measured), len(blocks), len(changed["contiguous"])) == (26, 20, 115)        # docs/grouped-performance.md says so
    assert max(now / before for before, now in blocks.values()) < 1.01
    assert geometric_mean(now / before for before, now in measured.values()) < 0.96
    few = [now / before for word, (before, now) in measured.items() if case(word).tokens <= 64]
    assert geometric_mean(few) < 0.9
    assert max(now / before for before, now in measured.values()) < 1.03


def test_short_contiguous_groups_have_tiles_that_leave_padding_out() -> None:
    """However few rows of a block are used: most of it may be padding, and trees know no such lengths."""
    source, changed = random.Random(8), 0
    for _ in range(300):
        one = Case(source.randint(2, 64), source.randint(1, 64), 128 * source.randint(1, 40), 128 * source.randint(1, 40),
                   source.choice(KINDS), drawn=source.randrange(10 ** 6))
        problem = problem_of(one, "contiguous")
        chosen, own = heuristic(problem), untaught(problem)
        changed += chosen != own
        if problem.mean <= SHORT:
            assert isinstance(chosen.schedule, Cooperative)
            assert chosen.cluster == 1
    assert changed > 10


def test_trees_are_asked_about_what_a_product_has_without_them_and_are_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few tokens in less than a wave know their tiles without trees. A tile from a counter that trees put first stays one."""
    problem, asked = problem_of(Case(4, 8, 1024, 2048, "fp8")), []
    drawn = swapped(64, 32, longest_first=False)
    assert isinstance(untaught(problem).scheduler, StaticGroups)

    def answer(problem: GroupProblem, own: GroupTile, card: Any) -> grouped_trees.Answer:
        asked.append(own)
        return grouped_trees.Answer(own, (drawn,))

    monkeypatch.setattr(grouped_trees, "answer", answer)
    assert heuristic(problem) == alone(drawn, problem)
    assert asked == [usual_tile(problem, H200)]
    assert isinstance(asked[0].scheduler, StaticGroups)


def test_the_first_tile_that_a_problem_can_have_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a gate, pairs share halves of a tile in parts of 8 lines."""
    gated = problem_of(Case(8, 512, 1024, 1024, gated=True))
    pairs, wide = (GroupTile(tile, scheduler=grouped_kinds.PAIRS) for tile in (Tile(128, 48), Tile(128, 128)))
    assert alone(pairs, gated) is None
    monkeypatch.setattr(grouped_trees, "answer", lambda problem, own, card: grouped_trees.Answer(own, (pairs, wide)))
    assert heuristic(gated) == alone(wide, gated)
