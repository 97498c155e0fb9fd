"""Which configuration a grouped product gets: right for any lengths, near the fastest that was measured, and without spills."""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxkit.cards import H200
from ptxkit.gemm.config.grouped import DynamicGroups, GroupedConfig, GroupLoads
from ptxkit.gemm.config.parts import BlockScaled, ClusterShape, Cooperative, Direct, Pingpong, ThreadScaled, Tile
from ptxkit.gemm.heuristic.group_tile import GroupTile, swapped
from ptxkit.gemm.heuristic.grouped import FEW_PROMOTED, SINGLE_PROMOTED, SINGLE_TILES, heuristic, untaught
from ptxkit.gemm.heuristic.grouped_tiles import PAIR, PLAIN, PLAIN_GATED, PROMOTED, WIDE, static_pays
from ptxkit.gemm.heuristic.ptr_array import ROWS
from ptxkit.gemm.launch.group_kernels import kernel_of
from ptxkit.gemm.launch.ptr_array import PointerArrays, PointerProblem
from ptxkit.gemm.problem.grouped import GroupArrays, GroupOptions, GroupProblem
from ptxkit.gemm.tools.bench.grouped_candidates import candidates
from ptxkit.gemm.tools.bench.grouped_cases import EXTENTS, Case, skewed
from ptxkit.gemm.tools.grouped_example import example
from ptxkit.gemm.tools.problems import problem_of
from ptxkit.runtime.toolchain import assemble
from ptxkit.types import e4m3
from tests.gemm.groups import lengths, made, view

pytest.importorskip("ml_dtypes")
pytestmark = pytest.mark.pure


@settings(deadline=None, max_examples=6)
@given(lengths(70, 8), st.sampled_from([("bf16", "none"), ("e4m3", "group"), ("e4m3", "block")]), st.booleans(),
       st.sampled_from([2, 12, 24, 48, 80, 200, 1500]), st.sampled_from(["cu_seqlens", "masked"]), st.integers(0, 99))
def test_what_the_heuristic_chooses_is_right_whatever_the_lengths_are(each, kind, gated, mean, layout, seed):
    dtype, scales = kind
    share, report, config = example(each, 256 if gated else 136, 256, dtype=dtype, scales=scales, gated=gated, layout=layout,
                                    mean_tokens=mean, card=H200.with_sms(3), seed=seed)
    assert share <= 1, config
    assert report.findings == report.reasons, str(report)


FAST = (*(each.tile for each in PLAIN), *SINGLE_TILES, SINGLE_TILES[-1].sized(BM=64))
GATED = (*(each.tile for each in PLAIN_GATED), *(swapped(128, BN, 1) for BN in (16, 64, 128, 192)))
BLOCKS = (*(each.tile for each in PROMOTED), *SINGLE_PROMOTED, *(FEW_PROMOTED.sized(BN=BN) for BN in (16, 32)),
          replace(WIDE, promotion="stagger"), WIDE)


@pytest.mark.thinned(12)
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.sweep) for part in range(1, 6))])
@pytest.mark.parametrize(("tiles", "what"), [(FAST, {"scales": "group"}), (FAST, {"dtype": "f16"}), (FAST, {"dtype": "bf16", "out": "f32"}),
                                             (GATED, {"scales": "group", "gated": True}), (GATED, {"dtype": "bf16", "gated": True}),
                                             ((*BLOCKS, PAIR), {"scales": "block"}), (BLOCKS, {"scales": "block", "gated": True})],
                         ids=["fp8", "f16", "results of f32", "gated", "gated bf16", "blocks", "gated blocks"])
def test_every_tile_that_the_heuristic_chooses_from(tiles, what, part):
    """Whole tiles and the last rows of groups; a sixth of the tiles, the others with the sweep. Who draws which ticket is open, but where
    one cluster draws them all."""
    def sums_of(problem: GroupProblem, how: Any, swap_ab: bool) -> Any:
        sums = problem.sums(how, swap_ab)
        return replace(sums, load="bulk") if isinstance(sums, BlockScaled) else sums

    def configured(tile: GroupTile, problem: GroupProblem) -> GroupedConfig:
        return tile.config(problem.operands, functools.partial(sums_of, problem), GroupLoads(), True)

    lines = 512 if "gated" in what else 264
    for tile in tiles[part::6]:
        share, report, _ = example([3, 0, 202, 64], lines, 512, configure=functools.partial(configured, tile), card=H200.with_sms(2),
                                   **{"dtype": "e4m3", **what})
        assert share <= 1, tile
        verdicts = ("incomplete", "clean") if isinstance(tile.scheduler, DynamicGroups) else ("clean",)
        assert report.verdict in verdicts, (tile, report.findings)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("kind", [("bf16", "none"), ("e4m3", "group"), ("e4m3", "block"), ("e5m2", "block")], ids=str)
@pytest.mark.parametrize("gated", [False, True])
def test_contiguous_groups(kind, gated):
    """Blocks of 128 rows that are full, or not, or of groups without rows; block scales that are copied by four, and one by one."""
    dtype, scales = kind
    for k, mean in ((512, 64), (272, 512)):
        share, report, config = example([128, 0, 130, 5], 256, k, dtype=dtype, scales=scales, layout="contiguous", gated=gated,
                                        mean_tokens=mean, card=H200.with_sms(3))
        assert share <= 1, config
        assert report.findings == report.reasons, str(report)
        assert isinstance(config.sums, BlockScaled) == (scales == "block")
        assert config.tile.BM == 128


def test_the_l2_fetches_as_many_bytes_as_the_configuration_says():
    from ptxkit.gemm.launch.dense import Maps

    for tokens, expected in ((8, 128), (64, 128), (512, 256)):
        problem = problem_of(Case(8, tokens, 4096, 7168))
        config = heuristic(problem)
        records = kernel_of(config).trace(**config.parameters).copies.records
        maps = Maps(records, {"x": problem.x_lines, "w": problem.w_lines}, config.loads.l2_fetch)
        assert {config.loads.l2_fetch, *(fields.l2_promotion for fields in maps.fields if fields)} == {expected}


@pytest.mark.parametrize(("kind", "groups", "tokens", "both_ends"), [
    ("bf16", 32, 192, True), ("fp8", 64, 256, True), ("fp8-block", 24, 160, True), ("fp8-block", 24, 256, False), ("bf16", 16, 192, False),
    ("bf16", 32, 128, False), ("bf16", 96, 192, False), ("fp8", 32, 2048, False)], ids=str)
def test_some_ctas_begin_with_the_shortest_of_several_sorted_groups(kind, groups, tokens, both_ends):
    """About 16, or where there is much work 48, and 32 in the second kernel of block scales: as many as have a group's tiles, or a part of
    them, or several times as many. With static assignment nobody chooses where to begin, nor among groups that are alike."""
    drawn = 0
    for n, k in itertools.product((256, 1536, 2048, 4096, 6144, 7168, 14336), (1024, 14336)):
        kernels = untaught(problem_of(Case(groups, tokens, n, k, kind))).kernels
        for config in kernels:
            across, tail = -(-n // config.features), getattr(config.scheduler, "from_tail", 0)
            if tail:
                assert config.scheduler.longest_first
                much = groups * across * k // 64 >= 40_000
                about = 48 if much and kind == "bf16" else 32 if much and kind == "fp8-block" and config is not kernels[0] else 16
                assert kind != "fp8-block" or config.second is None
                assert 0.6 * about <= tail <= 1.5 * about
                assert tail % across == 0 or across // round(across / about) == tail
            assert bool(tail) <= both_ends
        if any(config.dynamic for config in kernels):
            drawn += 1
            assert any(getattr(config.scheduler, "from_tail", 0) for config in kernels) == both_ends
    assert drawn or not both_ends


@pytest.mark.parametrize("kind", ["bf16", "fp8", "fp8-block"])
def test_tiles_of_few_tokens_are_half_as_wide_where_that_fills_the_waves(kind):
    """192 tiles of 128 features are two waves, and 384 of 64 three: 3/4 of the time. 256 are two as well, and 512 four; 128 leave some SMs
    without. With block scales a deeper ring is taken for them, and a tile of a warpgroup; and where half of the SMs have none. Trees may
    know better."""
    def of_a_warpgroup(*extent: int) -> bool:
        config = untaught(problem_of(Case(*extent, kind)))
        assert config.tile.BM in (64, 128)
        assert config.tile_tokens >= (64 if kind == "fp8-block" else 128)
        return config.tile.BM == 64

    assert of_a_warpgroup(8, 24, 3072, 4096)
    assert of_a_warpgroup(4, 40, 6144, 4096)
    assert of_a_warpgroup(4, 24, 2048, 4096)
    assert of_a_warpgroup(8, 24, 2048, 4096) == (kind != "fp8-block")
    assert not of_a_warpgroup(8, 24, 4096, 4096)
    assert not of_a_warpgroup(32, 40, 3072, 4096)               # 768 and 1536: 0.97 of six waves and of twelve
    assert untaught(problem_of(Case(8, 24, 3072, 4096, kind, gated=True))).tile.BM == 128


@pytest.mark.parametrize(("groups", "tokens", "features", "columns"), [
    (8, 4, 128, 16), (8, 6, 128, 32), (8, 8, 128, 32), (9, 6, 128, 32), (9, 7, 64, 128), (64, 4, 128, 16), (64, 16, 64, 128)])
def test_few_tokens_with_block_scales_are_columns_and_more_of_them_rows(groups, tokens, features, columns):
    for gated in (False, True):
        config = heuristic(problem_of(Case(groups, tokens, 4096, 4096, "fp8-block", gated=gated)))
        assert (features, columns) == (config.tile.BM, config.tile.BN)
        assert (columns < 128) == config.swap_ab
        assert isinstance(config.sums, BlockScaled) == (columns == 128)
        assert config.dynamic


def test_a_wide_tile_goes_around_in_the_given_order_where_lengths_that_differ_have_a_kernel_of_their_own():
    """Tiles of a whole wave are at the same stage then, and share what the L2 has; by ticket CTAs would drift apart. Trees choose
    other tiles for some."""
    for quantised in (False, True):
        for tokens in (128, 256, 512):
            config = untaught(problem_of(Case(8, tokens, 4096, 7168, "fp8-block", quantised=quantised)))
            wide = config.tile.BN == 256
            assert config.dynamic != (wide and config.second is not None)
            assert config.dynamic or config.scheduler.find == "linear"
            assert config.second is None or config.second.dynamic
    asked = problem_of(Case(8, 512, 4096, 7168, "fp8-block"))
    asked.options = replace(asked.options, order="search")
    assert {getattr(kernel.scheduler, "find", "dynamic") for kernel in heuristic(asked).kernels} == {"search"}


@pytest.mark.parametrize(("extent", "kind", "what", "share"), [
    ((32, 192, 6144, 7168), "fp8-block", {}, True), ((8, 512, 4096, 7168), "fp8-block", {}, True),
    ((8, 128, 4096, 7168), "fp8-block", {}, True), ((20, 591, 4096, 5632), "fp8-block", {"gated": True}, True),
    ((16, 136, 2048, 6144), "fp8-block", {"quantised": True}, False), ((12, 225, 2048, 6144), "bf16", {}, True),
    ((8, 819, 4096, 2048), "bf16", {}, False), ((16, 223, 4608, 3584), "bf16", {"gated": True}, False),
    ((24, 240, 5120, 5632), "fp8", {}, False)], ids=str)
def test_two_kernels_share_the_groups_where_that_was_measured_to_pay(extent, kind, what, share):
    """Groups that are alike are the first one's, those that differ both's; where they are not shared they are one's. Trees choose
    another tile for some."""
    case = Case(*extent, kind, **what)
    config = untaught(problem_of(case))
    assert config.plan is not None
    assert config.second is not None
    assert (config.plan.between is not None) == share
    assert config.own(case.lengths, case.columns, 132) == case.lengths
    lengths = [skewed(case.groups, case.rows, number=number) for number in range(12)]
    assert any(all(any(kernel.own(each, case.columns, 132)) for kernel in config.kernels) for each in lengths) == share


def test_long_groups_with_block_scales_go_to_pairs_of_ctas():
    """Where nothing else is asked for, and in whole clusters, also with a second kernel of single CTAs."""
    def in_pairs(*extent: int, order: Any = None, **what: Any) -> list[bool]:
        problem = problem_of(Case(*extent, "fp8-block", **what))
        problem.options = replace(problem.options, order=order)
        config = heuristic(problem)
        grids = {problem.grid(config, ctas) for ctas in (1, 2, 131, 132)}
        assert all(grid % kernel.cluster == 0 for grid in grids for kernel in config.kernels)
        assert max(grids) == 132
        return [kernel.scheduler.cluster == ClusterShape(1, 2) for kernel in config.kernels]

    assert in_pairs(8, 4096, 4096, 4096) == in_pairs(4, 8192, 4096, 7168) == [True]
    assert in_pairs(6, 1024, 7168, 3072) == [False, True]
    assert in_pairs(5, 1300, 6144, 4096) == [True, False]
    for what in ({"order": "dynamic"}, {"order": "linear"}, {"gated": True}, {"quantised": True}):
        assert not any(in_pairs(8, 4096, 4096, 4096, **what)), what
    assert not any(in_pairs(8, 4096, 128, 4096))                # one tile wide
    assert not any(in_pairs(32, 192, 6144, 7168))               # one tile of each group


def test_the_heuristic_has_a_configuration_for_every_case():
    for extent in EXTENTS:
        for kind in ("bf16", "fp8", "fp8-block"):
            for gated in (False, True):
                problem = problem_of(Case(*extent, kind, gated=gated))
                found = list(candidates(problem))
                assert found[0] == heuristic(problem)
                assert len(set(found)) == len(found) > 4
    assert made({"tile.BN": 128, "schedule": Cooperative(sums=ThreadScaled())}, e4m3, e4m3).stages >= 4
    wide = made({"tile": WIDE.tile, "scheduler": WIDE.scheduler, "schedule": Cooperative(sums=BlockScaled(load="bulk"))}, e4m3, e4m3,
                max_groups=32)
    assert (wide.stages, wide.buffers) == (4, 1)                # one buffer less for a stage more: with fewer stages it spills


def test_only_tiles_of_counted_lengths_are_assigned_statically():
    """Where rows say their group there is no other kernel for lengths that differ, so nothing is gained, or counted."""
    x, w, scales = view("e4m3", 3072, 4096), view("e4m3", 8, 4096, 4096), (view("f32", 3072, 32), view("f32", 8, 32, 32))
    for layout, words in (("cu_seqlens", 9), ("contiguous", 3072)):
        arrays = GroupArrays(x, w, view("s32", words), view("bf16", 3072, 4096), *scales)
        assert static_pays(WIDE, GroupProblem(arrays, GroupOptions(layout))) == (layout == "cu_seqlens")


ALL_KINDS = [(dtype, scales, out, gated) for dtype, scales in (("bf16", "none"), ("e4m3", "none"), ("e4m3", "group"), ("e4m3", "block"))
             for out in ("bf16", "f32") for gated in (False, True)]


def chosen_for(dtype: str, scales: str, out: str, gated: bool, mean: int) -> GroupedConfig:
    rows, n, k = 8 * mean, 4096, 4096
    lines = 2 * n if gated else n
    pair: dict[str, Any] = {"group": (view("f32", 1), view("f32", 8)), "none": (None, None),
                            "block": (view("f32", rows, k // 128), view("f32", 8, lines // 128, k // 128))}
    arrays = GroupArrays(view(dtype, rows, k), view(dtype, 8, lines, k), view("s32", 9), view(out, rows, n), *pair[scales])
    return heuristic(GroupProblem(arrays, GroupOptions(gated=gated)))


def spilled(config: GroupedConfig) -> int:
    kernel = kernel_of(config)
    return kernel.assemble(**config.parameters).resources[kernel.name].spill_stores


@pytest.mark.ptxas
@pytest.mark.parametrize(("kind", "mean"), [(("e4m3", "group", "bf16", False), 4096), (("e4m3", "block", "bf16", False), 64),
                                            (("e4m3", "block", "f32", True), 4096), (("bf16", "none", "bf16", True), 24)], ids=str)
def test_what_the_heuristic_chooses_does_not_spill(kind, mean):
    assert not spilled(chosen_for(*kind, mean))


@pytest.mark.ptxas
@pytest.mark.sweep
@pytest.mark.parametrize("kind", ALL_KINDS, ids=str)
def test_nothing_that_the_heuristic_chooses_spills(kind):
    for mean in (4, 8, 16, 24, 48, 64, 96, 128, 192, 512, 8192):
        assert not spilled(chosen_for(*kind, mean)), mean


@pytest.mark.ptxas
@pytest.mark.parametrize("mean", [8, 24, 4096])
@pytest.mark.parametrize("more", ["", "scatter", "gather"])
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.thinned(6)
def test_stores_by_element_serialise_no_product(dtype, more, mean):
    """C7514 would be a finding."""
    given = {more: view("s32", 8 * mean)} if more else {}
    arrays = GroupArrays(view(dtype, 8 * mean, 4096), view(dtype, 8, 1001, 4096), view("s32", 9), view(dtype, 8 * mean, 1001), **given)
    config = heuristic(GroupProblem(arrays, GroupOptions()))
    assert assemble(kernel_of(config).trace(**config.parameters).ptx()).findings == ()


@pytest.mark.thinned(6)
@pytest.mark.ptxas
@pytest.mark.parametrize("most", ROWS, ids=str)
def test_tiles_of_matrices_of_each_group_do_not_spill(most):
    """Whatever the room of their table."""
    for groups, out in ((8, "bf16"), (1024, "f32")):
        given = view("s64", groups)
        arrays = PointerArrays(given, given, given, view("s32", groups, 3), view("f32", 1), view("f32", groups))
        assert not spilled(PointerProblem(arrays, "e4m3", None, out, min(most, 9999), None).config())


@pytest.mark.ptxas
def test_a_tile_that_spills_is_seen():
    fast = made({"tile": Tile(128, 192), "schedule": Pingpong()}, e4m3, e4m3, scaled=True)
    assert not spilled(fast)
    assert spilled(replace(fast, store=Direct()))               # whose addresses take more registers
