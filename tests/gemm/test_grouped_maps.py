"""Tensor maps made on the device, groups with matrices of their own, rows that say their group, tickets: on the CPU device."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ptxkit.ptx as ptx
from ptxkit import Ptr, Reg, TensorMap, if_, kernel, sim, smem, tid
from ptxkit.cards import H200
from ptxkit.errors import LaunchError
from ptxkit.gemm.collective.tensormaps import acquire, publish, some_rows
from ptxkit.gemm.config.grouped import DynamicGroups, GroupLoads, StagedGroups, StaticGroups, SwapAB, TokensAsRows
from ptxkit.gemm.config.parts import ClusterShape, ConfigError, Direct, Pingpong, Swizzle, Tile
from ptxkit.gemm.heuristic.grouped_tiles import SEVERAL
from ptxkit.gemm.heuristic.ptr_array import ROWS
from ptxkit.gemm.heuristic.ptr_array import heuristic as pointers_heuristic
from ptxkit.gemm.launch.ptr_array import PointerArrays, PointerProblem
from ptxkit.gemm.problem.grouped import GroupArrays, GroupOptions, GroupProblem, misfit
from ptxkit.gemm.tools.grouped_example import example
from ptxkit.gemm.tools.reference import worst
from ptxkit.runtime.arrays import ArrayView, contiguous_strides
from ptxkit.types import b32, e4m3, f32, u32
from tests.gemm.groups import made, with_defaults

from ..sim.mutants.catalogue import MUTANTS
from ..sim.mutants.edit import Edit

ml_dtypes = pytest.importorskip("ml_dtypes")
pytestmark = pytest.mark.pure


@pytest.mark.parametrize("layout", ["cu_seqlens", "masked"])
@pytest.mark.parametrize("parameters", [{"tile": Tile(64, 32)}, {"tile": Tile(128, 64), "schedule": Pingpong()},
                                        {"tile": Tile(64, 64), "scheduler": StaticGroups(cluster=ClusterShape(2, 1))}], ids=str)
def test_maps_of_each_group_end_where_it_does(layout, parameters):
    share, report, config = example([0, 1, 63, 65, 7], 72, 72, layout=layout,
                                    configure=with_defaults({**parameters, "store": StagedGroups(ends="tensormap")}),
                                    card=H200.with_sms(3))
    assert config.updates_maps
    assert share <= 1
    assert report.verdict == "clean", report.findings


@settings(deadline=None, max_examples=6)
@given(st.lists(st.sampled_from([0, 0, 1, 7, 63, 64, 65, 150]), min_size=1, max_size=5),
       st.sampled_from([StagedGroups(), Direct(), StagedGroups(ends="tensormap")]),
       st.sampled_from([StaticGroups(), StaticGroups("search"), DynamicGroups()]), st.integers(0, 99))
def test_every_way_of_the_last_rows_is_right(lengths, store, scheduler, seed):
    configure = with_defaults({"tile": Tile(64, 32), "store": store, "scheduler": scheduler})
    share, _, _ = example(lengths, 72, 64, configure=configure, check=False, card=H200.with_sms(3), seed=seed)
    assert share <= 1


@pytest.mark.parametrize("parameters", [{"tile": Tile(128, 8), "tokens": SwapAB()}, {"tile": Tile(64, 32), "schedule": Pingpong()}],
                         ids=str)
def test_tickets_are_each_drawn_once(parameters):
    share, report, _ = example([0, 1, 40, 150], 136, 64, configure=with_defaults({**parameters, "scheduler": DynamicGroups()}),
                               card=H200.with_sms(3))
    assert share <= 1
    assert report.verdict in ("clean", "incomplete")           # whoever comes first gets the next: only this schedule is known
    assert report.findings == report.reasons, str(report)


@pytest.mark.parametrize(("scheduler", "parameters"),
                         [(StaticGroups(), {"tile": Tile(128, 32)}), (DynamicGroups(), {"tile": Tile(64, 32), "tokens": SwapAB()}),
                                                   (StaticGroups(), {"tile": Tile(128, 32), "schedule": Pingpong()}),
                                                   (DynamicGroups(), {"tile": Tile(128, 32), "schedule": Pingpong()})], ids=str)
def test_rows_may_say_their_group(scheduler, parameters):
    """Blocks that no group has, before others and between them, are left out: warpgroups that take turns take those that are not."""
    for lengths, sms in (([0, 130, 7], 3), ([5, 0, 130, 0, 0, 7, 128], 2)):
        share, report, _ = example(lengths, 72, 192, layout="contiguous", configure=with_defaults({**parameters, "scheduler": scheduler}),
                                card=H200.with_sms(sms))
        assert share <= 1
        assert report.findings == report.reasons, str(report)


_SWAPPED = {"tokens": SwapAB(16, True), "loads": GroupLoads(True), "scheduler": DynamicGroups(order=Swizzle(size=1))}
OWN_MATRICES = [{"tile": Tile(64, 64)}, {"tile": Tile(128, 32), "scheduler": StaticGroups("search")},
                {"tile": Tile(64, 32), "scheduler": DynamicGroups()}, {"tile": Tile(192, 64), "tokens": TokensAsRows(True)},
                {"tile": Tile(128, 64), "store": Direct()}, {"tile": Tile(128, 64), "schedule": Pingpong()},
                {"tile": Tile(128, 64), "schedule": Pingpong(), "scheduler": DynamicGroups()},
                {"tile": Tile(64, 32), "tokens": SwapAB(), "scheduler.order": Swizzle(size=1)},
                {**_SWAPPED, "tile": Tile(64, 16)}, {**_SWAPPED, "tile": Tile(256, 96), "scheduler": StaticGroups(order=Swizzle(size=1))},
                {**_SWAPPED, "tile": Tile(128, 64), "scheduler": DynamicGroups(True, 1, Swizzle(size=1))}]


@pytest.mark.thinned(3)
@pytest.mark.parametrize("parameters", OWN_MATRICES, ids=str)
def test_groups_with_matrices_of_their_own(parameters):
    """Depths differ: of warpgroups that take turns each passes by the stages that the other one has."""
    config = made(parameters, layout="ptr_array", max_groups=32)
    own_matrices(((3, 72, 64), (70, 40, 136), (0, 8, 64), (65, 136, 8), (1, 264, 200), (200, 72, 192)), config=config)


@pytest.mark.thinned(20)
@pytest.mark.parametrize("most", ROWS, ids=str)
def test_every_tile_of_groups_with_matrices_of_their_own(most):
    """Of few groups, and of so many that some CTAs begin with the shortest."""
    for groups in (4, SEVERAL + 1):
        extents = ((5, 264, 72), (0, 8, 64), (201, 136, 200), (17, 40, 8)) * 5
        own_matrices(extents[:groups], mean_tokens=min(most, 9999))


@pytest.mark.parametrize(("kind", "out", "most"), [
    pytest.param(*types, most, marks=[pytest.mark.sweep] * ((i + j) % 2))
    for i, types in enumerate([("bfloat16", "float32"), ("float8_e4m3fn", "bfloat16"), ("float8_e4m3fn", "float32")])
    for j, most in enumerate([8, 200, 9999])])
def test_results_may_be_wider_than_operands(kind, out, most):
    """Of tokens that are columns, whose stores use no map of Y, and that are rows; also of 4 features after the last 8."""
    more = 4 if out == "float32" else 0
    own_matrices(((5, 24 + more, 64), (0, 8, 64), (70, 136 + more, 208)), kind, out, mean_tokens=most)


@pytest.mark.parametrize("promote", [False, True])
@pytest.mark.parametrize("groups", [4, 300])
def test_no_choice_stores_pairs_where_rows_may_end_within_8_columns(groups, promote):
    """The host does not know N, and rows of 4 features of 32 bits are multiples of 16 bytes."""
    for mean, invariant in itertools.product((1, *ROWS[:-1], 9999), (False, True)):
        config = pointers_heuristic(e4m3, e4m3, f32, mean, promote, False, groups, invariant)
        assert config.staged or config.swap_ab or config.elements == 1, config


def own_matrices(extents, kind="bfloat16", out="bfloat16", **how):
    """Groups of these M, N and K against their products in float64."""
    from ptxkit.gemm.launch.simulate_grouped import simulate_pointers

    rng, words = np.random.default_rng(3), {"bfloat16": "bf16", "float8_e4m3fn": "e4m3", "float32": "f32"}
    given, result = np.dtype(kind), np.dtype(out)
    groups = [(rng.standard_normal((m, k)).astype(np.float32).astype(given), rng.standard_normal((n, k)).astype(np.float32).astype(given),
               np.full((m, n), np.nan, result)) for m, n, k in extents]
    report = simulate_pointers(groups, ctas=3, **how)
    assert report.findings == report.reasons, str(report)
    for x, w, y in groups:
        a, b = x.astype(np.float64), w.astype(np.float64)
        assert worst(y.astype(np.float64), a @ b.T, np.abs(a) @ np.abs(b).T, a.shape[1], words[out], words[kind]) <= 1


@kernel(target="sm_90a", block=64)
def relay(y: TensorMap, out: Ptr[f32], workspace: Ptr[u32], rows: Reg[u32]) -> None:
    """Warp 0 publishes a map of `rows` rows of Y from its third on; a thread of warp 1 acquires it and stores a tile through it."""
    tile = smem.tile(f32, (1, 8, 8), swizzle=0, name="tile")
    edited = smem.array(b32, 32, align=128, name="map")
    thread = ptx.mov.u32(tid.x)
    ptx.st.shared__cta.f32(smem.SharedAddress(0, tile[0].register() + (thread << 2)), 1.0)
    ptx.fence.proxy.async_.shared__cta()
    with if_(thread < 32):
        publish(workspace, y, edited, thread, some_rows(ptx.add.u64(out.reg, 64), rows))
    ptx.bar.sync(0)
    with if_(thread == 32):
        acquire(workspace)
        ptx.cp.async_.bulk.tensor_2d.global_.shared__cta.tile.bulk_group(workspace, (0, 0), tile[0])
        ptx.cp.async_.bulk.commit_group()
        ptx.cp.async_.bulk.wait_group(0)


def relayed(module: Any, schedule: str = "fifo", seed: int = 0) -> tuple[Any, Any]:
    y = np.zeros((9, 8), np.float32)
    report = sim.run(module, grid=1, args=[TensorMap(y, box=(8, 8)), y, np.zeros(32, np.uint32), 5], schedule=schedule, seed=seed)
    return report, y


@kernel(target="sm_90a", block=32)
def store_rows(y: TensorMap, i: Reg[u32], j: Reg[u32]) -> None:
    """A box of 8 rows of ones, at (0, i, j) of a map of overlapping rows."""
    tile = smem.tile(f32, (1, 8, 4), swizzle=0, name="tile")
    thread = ptx.mov.u32(tid.x)
    ptx.st.shared__cta.f32(smem.SharedAddress(0, tile[0].register() + (thread << 2)), 1.0)
    ptx.fence.proxy.async_.shared__cta()
    ptx.bar.warp.sync(0xFFFFFFFF)
    with if_(thread == 0):
        ptx.cp.async_.bulk.tensor_3d.global_.shared__cta.tile.bulk_group(y, (0, i, j), tile[0])
        ptx.cp.async_.bulk.commit_group()
        ptx.cp.async_.bulk.wait_group(0)


def stored_rows(i: int, j: int, rows: int = 6) -> Any:
    y = np.zeros((rows, 4), np.float32)
    report = store_rows.simulate(1, TensorMap(y, box=(1, 8, 4), shape=(rows + 1, 8, 4), strides=(4, 4, 1), offset=-8 * 16), i, j)
    return report, y[:, 0].tolist()


@given(st.integers(0, 5), st.integers(0, 8))
def test_a_map_that_begins_before_y_stores_as_many_rows_as_are_left(row, left):
    left = min(left, 6 - row)
    report, rows = stored_rows(8 - left, row + left)
    assert report.verdict == "clean", report
    assert rows == [float(row <= each < row + left) for each in range(6)]


def test_what_lies_before_y_is_not_reached_unnoticed():
    report, _ = stored_rows(0, 3)
    assert [finding.rule for finding in report.findings] == ["out-of-bounds"]


SCHEDULES = [("fifo", 0), ("random", 0), ("random", 1), ("lazy", 0), ("adversarial", 0)]


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
def test_a_published_map_that_is_acquired_is_clean(schedule, seed):
    report, y = relayed(relay.trace(), schedule, seed)
    assert report.verdict == "clean", report
    assert (y[2:7] == 1).all()
    assert not y[:2].any()
    assert not y[7:].any()


@pytest.mark.parametrize(("hazard", "rules"), [
    (lambda edit: edit.delete(r"^fence\.proxy\.tensormap"), {"tensormap-fence"}),
    (lambda edit: edit.after(r"cp\.async\.bulk\.tensor", edit.take(r"^fence\.proxy\.tensormap")), {"tensormap-fence"}),
    (lambda edit: MUTANTS["P7.release:retarget"].change(edit), {"tensormap-fence"}),
    (lambda edit: edit.delete(r"^bar\.sync"), {"tensormap-fence", "global-race", "bad-tensormap"}),
    (lambda edit: edit.delete(r"^fence\.proxy\.async"), {"proxy-fence", "missing-proxy-fence", "async-proxy"}),
], ids=["no acquire", "acquired too late", "not released", "no order between the warps", "tile not fenced"])
def test_a_hazard_of_the_maps_is_caught(hazard, rules):
    edit = Edit(relay.trace())
    hazard(edit)
    changed = edit.done()
    seen = set()
    for schedule, seed in SCHEDULES:
        report, _ = relayed(changed, schedule, seed)
        assert report.verdict == "error", report
        seen |= {finding.rule for finding in report.findings}
    assert seen & rules, seen


@pytest.mark.parametrize("wrong", [
    {"scheduler": StaticGroups(cluster=ClusterShape(2, 1)), "operands.layout": "contiguous"},
    {"tile": Tile(128, 96), "tokens": SwapAB(), "operands.layout": "contiguous"},
    {"scheduler": StaticGroups(cluster=ClusterShape(2, 1)), "operands.layout": "ptr_array"},
    {"operands.layout": "ptr_array", "operands.gated": True},
    {"tile.BN": 16, "tokens": SwapAB(), "store": StagedGroups(ends="tensormap")},
    {"scheduler": StaticGroups("across"), "operands.layout": "ptr_array"}], ids=str)
def test_what_does_not_go_together_is_refused(wrong):
    with pytest.raises(ConfigError):
        made({"tile": Tile(128, 64), **wrong})


@pytest.mark.parametrize(("ends", "rows", "sentence"), [
    ([0, 3, 2], 9, "group 1 begins at row 3 and ends at row 2"), ([0, 3, 10], 9, "x has 9 rows"), ([-1, 3], 9, "begins with -1"),
    ([0, 0, 9], 9, None), ([2, 5], 9, None)])
def test_lengths_that_make_no_sense_have_a_sentence(ends, rows, sentence):
    found = misfit(ends, rows)
    assert found is None if sentence is None else sentence in (found or "")


@given(st.lists(st.integers(0, 5), min_size=1, max_size=9))
def test_sums_of_lengths_make_sense(lengths):
    ends = [0, *itertools.accumulate(lengths)]
    assert misfit(ends, ends[-1]) is None
    assert misfit(ends, ends[-1] - 1) is not None


def view(dtype: str, *shape: int) -> ArrayView:
    return ArrayView(0, shape, contiguous_strides(shape), dtype, 0, "other")


@pytest.mark.parametrize(("change", "sentence"), [
    ({"sizes": view("s64", 4, 3)}, "sizes has elements"), ({"sizes": view("s32", 4, 2)}, "sizes has shape"),
    ({"x": view("s64", 3)}, "addresses"), ({"w": view("f32", 4)}, "addresses"), ({"dtype": "f64"}, "f64"),
    ({"w_dtype": "f16"}, "w must have bf16"), ({"out_dtype": "e4m3"}, "out_dtype='e4m3': it is bf16, f16, f32"),
    ({"mean_tokens": 0}, "more than 0"), ({"x_scale": view("f32", 1)}, "w_scale is missing"),
    ({"x_scale": view("f32", 4, 1), "w_scale": view("f32", 4)}, "x has one scale")], ids=str)
def test_bad_pointers_are_a_sentence(change, sentence):
    how = {"dtype": "bf16", "w_dtype": None, "out_dtype": "bf16", "mean_tokens": 128.0, "fast_accum": None}
    arrays = PointerArrays(view("s64", 4), view("s64", 4), view("s64", 4), view("s32", 4, 3))
    arrays = arrays._replace(**{name: value for name, value in change.items() if name not in how})
    with pytest.raises(LaunchError, match=sentence):
        PointerProblem(arrays, **{**how, **{name: value for name, value in change.items() if name in how}})


@pytest.mark.parametrize(("options", "change", "sentence"), [
    (GroupOptions("contiguous"), {"lengths": view("s32", 5)}, r"m_indices has shape \(5,\)"),
    (GroupOptions("contiguous"), {"lengths": view("f32", 100)}, "int32"),
    # type: ignore[arg-type]
    (GroupOptions("masked"), {}, r"\[groups, rows, K\]"), (GroupOptions(order="fastest"), {}, "order='fastest'")], ids=str)
def test_bad_layouts_are_a_sentence(options, change, sentence):
    arrays = GroupArrays(view("bf16", 100, 64), view("bf16", 4, 72, 64), view("s32", 5), view("bf16", 100, 72))
    with pytest.raises(LaunchError, match=sentence):
        GroupProblem(arrays._replace(**change), options)
