"""Products with groups along K on the CPU device: any lengths, beside float64, with NaN in rows that no product may read."""

from __future__ import annotations

import itertools
from typing import Any, cast

import numpy as np
import pytest

from ptxkit import Ptr, gemm, kernel, tid
from ptxkit.cards import H100, H200
from ptxkit.errors import LaunchError
from ptxkit.gemm.config.grouped_k import DynamicDepths, GroupedKConfig, OperandsAlongK, StaticDepths
from ptxkit.gemm.config.parts import ClusterShape, ConfigError, Cooperative, Overlap, Pingpong, Promoted, Swizzle, Tile
from ptxkit.gemm.heuristic.grouped_k_causes import candidates, clocks, untaught
from ptxkit.gemm.kernels.grouped_k import group_gemm_k
from ptxkit.gemm.launch.grouped_k import can_implement
from ptxkit.gemm.launch.simulate_grouped_k import simulate
from ptxkit.gemm.problem.grouped_k import ProblemAlongK
from ptxkit.gemm.scheduler.group_table import GroupTable
from ptxkit.gemm.scheduler.grouped_k import DepthScheduler, GroupsAlongK
from ptxkit.gemm.scheduler.persistent import PersistentLoop
from ptxkit.gemm.scheduler.tile_order import TileOrder
from ptxkit.gemm.scheduler.work import TileDivmod
from ptxkit.ptx import bar, mov, st
from ptxkit.runtime.arrays import ArrayView, contiguous_strides
from ptxkit.runtime.toolchain import assemble
from ptxkit.types import bf16, f16, f32, u32
from tests.gemm.groups import along_k

ml_dtypes = pytest.importorskip("ml_dtypes")
pytestmark = pytest.mark.pure
Array = np.ndarray[Any, Any]
TYPES: dict[str, Any] = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32}
WORDS = {"bf16": bf16, "f16": f16, "f32": f32}
LEAST = {"bf16": 0.0, "f16": 2.0 ** -25, "f32": 0.0}                           # half of the least subnormal number
UNIT = {"bf16": 2.0 ** -8, "f16": 2.0 ** -11, "f32": 2.0 ** -24}
WHOLE, ORDER = ClusterShape(), Swizzle()


def matrix(rng: np.random.Generator, rows: int, columns: int, type_: str, starts: list[int], group: int | None = None) -> Array:
    """Rows of NaN, but for those of the groups; or of one group alone."""
    made = np.full((rows, columns), np.nan, np.float32)
    first, last = (starts[0], starts[-1]) if group is None else (starts[group], starts[group + 1])
    made[first:last] = rng.standard_normal((last - first, columns))
    return made.astype(TYPES[type_])


def off(out: Array, a: Array, b: Array, starts: list[int], before: Array | None = None) -> float:
    """The largest error in units of what is allowed; infinite where something is no number."""
    word = next(word for word, type_ in TYPES.items() if out.dtype == np.dtype(type_))
    worst = 0.0
    for group, (start, end) in enumerate(itertools.pairwise(starts)):
        x, y = a[start:end].astype(np.float64), b[start:end].astype(np.float64)
        exact, allowed = x.T @ y, abs(x).T @ abs(y) * (16 + np.sqrt(end - start)) * 2.0 ** -23
        if before is not None:
            exact = exact + before[group]
            allowed = allowed * 1.01
        share = abs(out[group].astype(np.float64) - exact) / (allowed + UNIT[word] * 1.02 * abs(exact) + LEAST[word] + 1e-30)
        worst = max(worst, float(np.where(np.isnan(share), np.inf, share).max(initial=0)))
    return worst


def run(starts: list[int], m: int, n: int, source: str = "bf16", out: str = "bf16", *, config: GroupedKConfig | None = None,
        accumulate: bool = False, rows: int = 0, sms: int = 3, seed: int = 0, **how: Any) -> tuple[str, float, Array]:
    rng = np.random.default_rng(seed)
    rows = rows or starts[-1] + 5
    a, b = (matrix(rng, rows, columns, source, starts) for columns in (m, n))
    shape = len(starts) - 1, m, n
    found = (rng.standard_normal(shape) if accumulate else np.full(shape, np.nan)).astype(TYPES[out])
    before = found.astype(np.float64)
    report = simulate(a, b, np.array(starts, np.int32), found, accumulate=accumulate, config=config, card=H200.with_sms(sms), **how)
    return report.verdict, off(found, a, b, starts, before if accumulate else None), found


def config(source: str, out: str, tile: Tile, *, cluster: ClusterShape = WHOLE, dynamic: bool = False, accumulate: bool = False,
           order: Swizzle = ORDER, pingpong: bool = False, overlap: Overlap = "start") -> GroupedKConfig:
    scheduler = DynamicDepths(order, cluster) if dynamic else StaticDepths(order, cluster, overlap)
    schedule = Pingpong() if pingpong else Cooperative()
    return GroupedKConfig(OperandsAlongK(WORDS[source], WORDS[out], accumulate, 32), tile, schedule=schedule, scheduler=scheduler)


@pytest.mark.parametrize("cluster", [WHOLE, ClusterShape(2, 1), ClusterShape(1, 2)], ids=str)
@pytest.mark.parametrize("tile", [Tile(128, 128), Tile(128, 256), Tile(256, 128), Tile(64, 64)], ids=lambda tile: f"{tile.BM}x{tile.BN}")
@pytest.mark.parametrize("out", ["bf16", "f16", "f32", "accumulated"])
@pytest.mark.thinned(16)
def test_the_kernel_is_right_and_clean(out: str, tile: Tile, cluster: ClusterShape) -> None:
    """Groups that end within a stage, before, behind and among rows of NaN; one is empty, and one is a whole stage."""
    adds, word = out == "accumulated", "f32" if out == "accumulated" else out
    source = "f16" if word == "f16" else "bf16"
    made = config(source, word, tile, cluster=cluster, accumulate=adds)
    verdict, share, _ = run([3, 10, 10, 74], tile.BM + 8, tile.BN + 8, source, word, config=made, accumulate=adds, sms=4)
    assert verdict == "clean"
    assert share <= 1


@pytest.mark.parametrize("overlap", ["start", "loads", "end"])
@pytest.mark.parametrize("tile", [Tile(64, 64), Tile(64, 256), Tile(128, 192), Tile(192, 128)], ids=lambda tile: f"{tile.BM}x{tile.BN}")
@pytest.mark.parametrize("out", ["bf16", "accumulated"])
@pytest.mark.parametrize("cluster", [WHOLE, ClusterShape(2, 1), ClusterShape(1, 2)], ids=str)
@pytest.mark.thinned(18)
def test_warpgroups_take_turns(cluster: ClusterShape, out: str, tile: Tile, overlap: Overlap) -> None:
    """Groups of few and of many stages after each other: each warpgroup passes over as many stages as the other one's tile has."""
    adds = out == "accumulated"
    made = config("bf16", "f32" if adds else out, tile, cluster=cluster, accumulate=adds, pingpong=True, overlap=overlap)
    for seed, starts in enumerate(([3, 70, 70, 200, 329, 330], [0, 1, 500, 501, 502], [0, 40])):
        verdict, share, _ = run(starts, 200, 264, out=made.operands.out.__name__, config=made, accumulate=adds, sms=4, seed=seed)
        assert (verdict, share <= 1) == ("clean", True)


@pytest.mark.parametrize("pingpong", [False, True])
@pytest.mark.parametrize("cluster", [WHOLE, ClusterShape(2, 1)], ids=str)
def test_tiles_are_drawn(cluster: ClusterShape, pingpong: bool) -> None:
    """The checker vouches for what was executed alone, since whoever comes first gets the next tile."""
    for seed, starts in enumerate(([0, 130, 131, 131, 200], [0, 0, 64], [5, 5])):
        made = config("bf16", "bf16", Tile(64, 64), cluster=cluster, dynamic=True, order=Swizzle("along_n", 2, True), pingpong=pingpong)
        verdict, share, _ = run(starts, 200, 136, config=made, seed=seed, sms=4)
        assert verdict in ("clean", "incomplete")
        assert share <= 1


@pytest.mark.parametrize("starts", [[0, 64, 128], [0, 1, 2, 3], [7, 7, 7], [0, 200], [0, 63, 128, 193]], ids=str)
def test_lengths_about_a_stage(starts: list[int]) -> None:
    verdict, share, _ = run(starts, 72, 40, "f16", "f32", rows=starts[-1] or 1, config=config("f16", "f32", Tile(64, 64)))
    assert verdict == "clean"
    assert share <= 1


@pytest.mark.parametrize("which", ["a", "b"])
def test_a_neighbours_nan_does_not_enter(which: str) -> None:
    """Two groups meet within a stage. All rows of one operand's other group are NaN: of this group, nothing is."""
    rng, starts = np.random.default_rng(1), [0, 20, 50]
    a = matrix(rng, 50, 64, "bf16", starts, group=0 if which == "a" else None)
    b = matrix(rng, 50, 64, "bf16", starts, group=0 if which == "b" else None)
    out = np.zeros((2, 64, 64), np.float32)
    report = simulate(a, b, np.array(starts, np.int32), out, config=config("bf16", "f32", Tile(64, 64)))
    assert report.verdict == "clean"
    assert off(out[:1], a, b, starts[:2]) <= 1
    assert np.isnan(out[1]).all()
    assert off(out[:1] * np.float32(1.001), a, b, starts[:2]) > 1           # the bound is no wider than the errors


def test_empty_groups_are_zeros_or_left_as_they_are() -> None:
    starts = [0, 0, 70, 70]
    _, share, zeros = run(starts, 64, 64, "bf16", "f32", config=config("bf16", "f32", Tile(64, 64)))
    assert share <= 1
    assert (zeros[[0, 2]] == 0).all()
    made = config("bf16", "f32", Tile(64, 64), accumulate=True)
    rng = np.random.default_rng(2)
    a, b = (matrix(rng, 70, 64, "bf16", starts) for _ in range(2))
    out = np.full((3, 64, 64), -0.0, np.float32)
    assert simulate(a, b, np.array(starts, np.int32), out, accumulate=True, config=made).verdict == "clean"
    assert np.signbit(out[[0, 2]]).all()                                    # not even written: -0 + 0 is 0
    assert off(out[1:2], a, b, starts[1:3]) <= 1


def test_twice_accumulated_is_twice_as_much() -> None:
    rng, starts = np.random.default_rng(3), np.array([0, 30, 64], np.int32)
    a, b = (rng.integers(-4, 5, (64, 64)).astype(np.float16) for _ in range(2))
    out = np.zeros((2, 64, 64), np.float32)
    for _ in range(2):
        simulate(a, b, starts, out, accumulate=True, check=False)
    exact = np.stack([a[s:e].astype(np.float32).T @ b[s:e] for s, e in ((0, 30), (30, 64))])
    assert (out == 2 * exact).all()


def test_no_rows_leave_zeros_or_everything() -> None:
    nothing, lengths, out = np.zeros((0, 8), np.float16), np.zeros(3, np.int32), np.full((2, 8, 8), 7, np.float32)
    simulate(nothing, nothing, lengths, out, accumulate=True)
    assert (out == 7).all()
    simulate(nothing, nothing, lengths, out)
    assert (out == 0).all()


@pytest.mark.parametrize("ends", [[0, 300, 5], [60, 10, 64], [-5, 20, 64], [0, 1 << 30, 64]], ids=str)
def test_wrong_lengths_touch_nothing_else(ends: list[int]) -> None:
    """Of groups that decrease or exceed the rows; the CPU device sees every byte that is touched outside of an array."""
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal((64, 64)).astype(np.float16) for _ in range(2))
    out = np.zeros((2, 64, 64), np.float16)
    with np.errstate(all="ignore"):
        report = simulate(a, b, np.array(ends, np.int64).astype(np.int32), out, config=config("f16", "f16", Tile(64, 64)))
    assert report.verdict == "clean"


def test_rows_and_groups_may_lie_apart() -> None:
    rng, starts = np.random.default_rng(5), [0, 9, 70]
    a, b = np.full((70, 80), np.nan, np.float16), np.full((70, 96), np.nan, np.float16)
    a[:, :72], b[:, 8:88] = rng.standard_normal((70, 72)), rng.standard_normal((70, 80))
    whole = np.full((2, 80, 96), 7, np.float32)
    out = whole[:, 4:76, 8:88]
    report = simulate(a[:, :72], b[:, 8:88], np.array(starts, np.int32), out, config=config("f16", "f32", Tile(128, 64)))
    assert report.verdict == "clean"
    assert off(out, a[:, :72], b[:, 8:88], starts) <= 1
    whole[:, 4:76, 8:88] = 7
    assert (whole == 7).all()


def test_more_groups_than_a_table_holds_are_several_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    from ptxkit.gemm.problem import grouped_k

    monkeypatch.setattr(grouped_k, "CAPACITIES", (2,))
    monkeypatch.setattr(ProblemAlongK, "operands", property(lambda problem: OperandsAlongK(problem.source, problem.out, max_groups=32)))
    starts = [2, 5, 5, 40, 44, 50]
    verdict, share, _ = run(starts, 64, 64, "bf16", "f32")
    assert verdict in ("clean", "incomplete")
    assert share <= 1


def view(dtype: str, *shape: int, strides: tuple[int, ...] | None = None, pointer: int = 1 << 40) -> ArrayView:
    return ArrayView(pointer, shape, strides or contiguous_strides(shape), dtype, 0, "other")


@pytest.mark.parametrize("shape", [(8, 32768, 4096, 7168), (256, 16384, 7168, 2048), (1, 8192, 4096, 4096), (4, 64, 64, 64),
                                   (64, 4096, 96, 8), (1000, 8192, 512, 512)], ids=str)
def test_a_choice_is_near_the_least_of_groups_that_are_alike_and_fits(shape: tuple[int, int, int, int]) -> None:
    for card in (H100, H200, H200.with_sms(4)):
        for out, adds in (("bf16", False), ("f32", True)):
            asked = along_k(*shape, out, accumulate=adds)
            chosen = untaught(asked, card)
            least = min(clocks(asked, one, card) for one in candidates(asked, card) if isinstance(one.schedule, Cooperative))
            assert clocks(asked, chosen, card) <= (1.0 if shape[0] == 1 else 1.5) * least
            assert chosen.operands == asked.operands
            assert chosen.stages >= 3
    large = untaught(along_k(8, 32768, 4096, 7168))
    assert large.tile.BM * large.tile.BN == 128 * 256
    assert large.dynamic
    few = untaught(along_k(4, 64, 64, 64))
    assert (few.tile.BM, few.tile.BN, few.dynamic) == (64, 64, False)


@pytest.mark.ptxas
@pytest.mark.parametrize("made", [config("bf16", "bf16", Tile(128, 256), cluster=ClusterShape(2, 1), dynamic=True),
                                  config("f16", "f32", Tile(256, 128), accumulate=True), config("bf16", "f32", Tile(192, 128)),
                                  config("bf16", "bf16", Tile(64, 256)), config("bf16", "f32", Tile(192, 128), pingpong=True),
                                  config("bf16", "bf16", Tile(128, 192), pingpong=True, dynamic=True)], ids=str)
def test_nothing_spills_and_the_budget_is_kept(made: GroupedKConfig) -> None:
    traced = group_gemm_k.trace(**made.parameters)
    assert traced.dynamic_smem <= made.shared_bytes
    found = assemble(traced.ptx())
    assert found.resources["group_gemm_k"].spill_stores == 0
    assert "serialized" not in found.log


@kernel(target="sm_90a", block=32)
def order_of_work(groups: GroupsAlongK, found: Ptr[u32], *, skip_empty: bool = False) -> None:
    """Writes the group, m, n and stages of each work tile of a CTA, in its order."""
    table = GroupTable(32, longest_first=True)
    tiles = DepthScheduler(groups, table, TileOrder(Swizzle(size=2)), PersistentLoop(), 16, skip_empty)
    tiles.read()
    bar.sync(0)
    with tiles.work() as work:
        for i, word in enumerate((work.group, work.m, work.n, work.stages)):
            st.global_.u32(found.at(work.tile * 4 + i), word, pred=mov.u32(tid.x) == 0)


@pytest.mark.parametrize("skip_empty", [False, True])
def test_every_tile_is_worked_on_once_those_of_the_longest_group_first(skip_empty: bool) -> None:
    starts = [4, 4, 20, 21, 100, 100, 133]
    rows, columns, count = 3, 2, 4 if skip_empty else 6
    found = np.full((6 * rows * columns, 4), 99, np.uint32)
    divmod = TileDivmod.of(rows, columns, 2, along_m=True)
    groups = {"lengths": np.array(starts, np.uint32), "count": 6, "rows": 120, "m_tiles": rows, "n_tiles": columns, "divmod": divmod,
              "part": 0, "inverse_of_part": 0, "most_parts": 0}
    assert order_of_work.simulate(2, groups=groups, found=found.reshape(-1), skip_empty=skip_empty).verdict == "clean"
    work = [tuple(map(int, tile)) for tile in found[:count * rows * columns]]
    assert (found[count * rows * columns:] == 99).all()
    lengths = np.diff(np.minimum(starts, 120))
    there = [group for group in range(6) if lengths[group] or not skip_empty]
    assert {tile[:3] for tile in work} == set(itertools.product(there, range(rows), range(columns)))
    assert [stages for *_, stages in work] == [max(1, -(-int(lengths[g]) // 16)) for g, *_ in work]
    taken = [int(lengths[g]) for g, *_ in work]
    assert taken == sorted(taken, reverse=True)


def test_a_config_says_what_it_is_and_what_it_cannot_be() -> None:
    made = config("bf16", "f32", Tile(128, 256), cluster=ClusterShape(2, 1), dynamic=True, accumulate=True)
    assert str(made) == "128x256x64, 4 stages, 2 mma warpgroups, cluster 2x1, along m by 8, dynamic, accumulates"
    assert made.with_({"tile.BN": 128}).stages > made.stages
    later = config("bf16", "bf16", Tile(128, 128), pingpong=True, overlap="end")
    assert str(later) == "128x128x64, 6 stages, pingpong, along m by 8, next kernel after the end"
    cases: list[tuple[Any, str]] = [
        (lambda: OperandsAlongK(f32), "wgmma transposes 16-bit types only"), (lambda: OperandsAlongK(accumulate=True), "take out=f32"),
        (lambda: OperandsAlongK(max_groups=5), "max_groups is 32"), (lambda: GroupedKConfig(tile=Tile(128, 72)), "a multiple of 64"),
        (lambda: GroupedKConfig(tile=Tile(128, 128, 48)), "BK is 64"), (lambda: GroupedKConfig(tile=Tile(256, 256)), "take a smaller tile"),
        (lambda: GroupedKConfig(schedule=Cooperative(3)), "cannot share 128 rows"),
        (lambda: GroupedKConfig(stages=9), "than 232,448 bytes"), (lambda: GroupedKConfig(stages=1), "a ring has 2 to"),
        (lambda: GroupedKConfig(schedule=Cooperative(sums=Promoted())), "sums in the tensor cores"),
        (lambda: GroupedKConfig(tile=Tile(128, 256), schedule=Pingpong()), "take a smaller tile"),
        (lambda: StaticDepths(overlap="later"), "overlap is")]  # type: ignore[arg-type]
    for make, sentence in cases:
        with pytest.raises(ConfigError, match=sentence) as raised:
            make()
        assert len(str(raised.value).splitlines()) == 1


def test_what_is_refused_is_said_in_one_sentence() -> None:
    a, b, lengths, out = view("bf16", 64, 32), view("bf16", 64, 48), view("s32", 3), view("bf16", 2, 32, 48)
    assert can_implement(a, b, lengths, out) is None
    sums = view("f32", 2, 32, 48)
    assert can_implement(a, b, lengths, sums, accumulate=True, config=config("bf16", "f32", Tile(64, 64), accumulate=True)) is None
    cases: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
        ((view("bf16", 63, 32), b, lengths, out), {}, "groups along K are rows of both"),
        ((view("e4m3", 64, 32), b, lengths, out), {}, "a has elements of e4m3"),
        ((view("f16", 64, 32), b, lengths, out), {}, "groups along K have one type"),
        ((a._replace(strides=(1, 64)), b, lengths, out), {}, "its rows must be contiguous"),
        ((a._replace(strides=(33, 1)), b, lengths, out), {}, "begin at multiples of 16 bytes"),
        ((a._replace(strides=(0, 1)), b, lengths, out), {}, "do not overlap"),
        ((a._replace(pointer=8), b, lengths, out), {}, "a"),
        ((a, b, view("s64", 3), out), {}, "it must be int32"), ((a, b, view("s32", 3, 1), out), {}, "cu_seqlens has shape"),
        ((a, b, view("s32", 4), out), {}, "out has shape"), ((a, b, lengths, view("e4m3", 2, 32, 48)), {}, "out has elements of e4m3"),
        ((a, b, lengths, out._replace(strides=(32 * 50, 50, 1))), {}, "rows of groups along K are multiples of 16 bytes"),
        ((a, b, lengths, out._replace(strides=(out.strides[0], 1, out.shape[1]))), {}, "its rows must be contiguous; exchange a and b"),
        ((a, b, lengths, out), {"accumulate": True}, "out has elements of bf16"),
        ((a, b, lengths, sums), {"config": config("bf16", "bf16", Tile(64, 64))}, "its out is bf16, the arguments need f32"),
        ((view("bf16", 64, 32), b, view("s32", 41), view("bf16", 40, 32, 48)), {"config": config("bf16", "bf16", Tile(64, 64))},
         "room for 32 groups"),
    ]
    for given, more, sentence in cases:
        said = can_implement(*given, **more)
        assert said is not None, sentence
        assert sentence in said
        assert len(said.splitlines()) == 1
    with pytest.raises(LaunchError, match="too many for their 32-bit numbers"):
        along_k(1 << 11, 64, 1 << 17, 1 << 17).grid(config("bf16", "bf16", Tile(64, 64)), 1)
    with pytest.raises(LaunchError, match="a"):
        gemm.group_gemm_k(cast("Any", object()), b, lengths)
