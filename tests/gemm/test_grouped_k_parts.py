"""CTAs that share the tiles of long groups along K: any lengths beside float64, the same bits whoever comes last, and what is counted."""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxkit import Ptr, if_, kernel, tid
from ptxkit.errors import LaunchError
from ptxkit.gemm.config.grouped_k import GroupedKConfig, OperandsAlongK
from ptxkit.gemm.config.parts import ClusterShape, ConfigError, Swizzle, Tile
from ptxkit.gemm.kernels.grouped_k import group_gemm_k
from ptxkit.gemm.launch import steps
from ptxkit.gemm.launch.grouped_k import can_implement
from ptxkit.gemm.launch.simulate_grouped_k import simulate
from ptxkit.gemm.problem.grouped_k import COUNTERS_BYTES
from ptxkit.gemm.scheduler.group_table import GroupTable
from ptxkit.gemm.scheduler.grouped_k import DepthScheduler, GroupsAlongK
from ptxkit.gemm.scheduler.persistent import PersistentLoop
from ptxkit.gemm.scheduler.tile_order import TileOrder
from ptxkit.gemm.scheduler.work import TileDivmod
from ptxkit.idioms import inverse
from ptxkit.ptx import bar, mov
from ptxkit.ptx import st as store
from ptxkit.runtime.toolchain import assemble
from ptxkit.types import u32
from tests.gemm.groups import along_k
from tests.gemm.groups import view as view_of
from tests.gemm.test_grouped_k import config, run

pytestmark = pytest.mark.pure
ALONE, ROWS, COLUMNS, DEPTH = ClusterShape(), 3, 2, 16
LENGTHS = ([3, 10, 10, 500, 570, 900, 901], [0, 129], [5, 5, 133, 261, 389, 390, 1000])


@pytest.mark.parametrize("how", ["static", "dynamic", "pingpong", "pingpong, dynamic"])
@pytest.mark.parametrize("cluster", [ALONE, ClusterShape(2, 1), ClusterShape(1, 2)], ids=str)
@pytest.mark.parametrize("tile", [Tile(64, 64), Tile(128, 128), Tile(64, 192), Tile(256, 128)], ids=lambda tile: f"{tile.BM}x{tile.BN}")
@pytest.mark.parametrize("out", ["bf16", "f32", "accumulated"])
@pytest.mark.thinned(18)
def test_parts_of_long_groups_are_added_up(out: str, tile: Tile, cluster: ClusterShape, how: str) -> None:
    """The checker vouches for what was executed alone: who comes last stores."""
    adds = out == "accumulated"
    if "pingpong" in how and tile.BM * tile.BN > 128 * 192:
        pytest.skip("a warpgroup has no room for such a tile")
    for seed, (starts, part) in enumerate(zip(LENGTHS, (128, 64, 192), strict=True)):
        made = replace(config("bf16", "f32" if adds else out, tile, cluster=cluster, accumulate=adds, pingpong="pingpong" in how,
                              dynamic="dynamic" in how), part=part)
        verdict, share, _ = run(starts, tile.BM + 8, 72, out=made.operands.out.__name__, config=made, accumulate=adds, sms=6, seed=seed)
        assert verdict in ("clean", "incomplete")
        assert share <= 1


def test_the_bits_do_not_depend_on_who_comes_last() -> None:
    found = []
    for dynamic, (schedule, seed) in itertools.product((False, True), (("fifo", 0), ("random", 1), ("random", 2), ("adversarial", 0))):
        made = replace(config("bf16", "f32", Tile(64, 64), dynamic=dynamic), part=128)
        starts = np.array([0, 700, 1000, 1010], np.int32)
        rng = np.random.default_rng(1)
        a, b = (rng.standard_normal((1010, 72)).astype(np.float16) for _ in range(2))
        out = np.full((3, 72, 72), np.nan, np.float32)
        made = made.with_({"operands": OperandsAlongK(made.operands.source, made.operands.out, max_groups=32)})
        simulate(a.view(np.uint16), b.view(np.uint16), starts, out, dtype="bf16", config=made, schedule=schedule, seed=seed)
        found.append(out.view(np.uint32))
    assert all((one == found[0]).all() for one in found)


@pytest.mark.parametrize("ends", [[0, 300, 5, 300, 5, 300], [60, 10, 400, -1, 400, 7], [0, 1 << 30, 64, 0, 400, 0]], ids=str)
def test_wrong_lengths_touch_nothing_else(ends: list[int]) -> None:
    """Groups that overlap have more parts than there is room for: then none has several. The CPU device sees every byte that is touched
    outside of an array, the workspace among them."""
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal((400, 64)).astype(np.float16) for _ in range(2))
    out = np.zeros((len(ends) - 1, 64, 64), np.float16)
    with np.errstate(all="ignore"):
        report = simulate(a, b, np.array(ends, np.int64).astype(np.int32), out, config=replace(config("f16", "f16", Tile(64, 64)), part=64))
    assert report.verdict in ("clean", "incomplete")


@kernel(target="sm_90a", block=32)
def work_of_parts(groups: GroupsAlongK, found: Ptr[u32], *, skip_empty: bool = False) -> None:
    """Writes what each work tile of a CTA is."""
    tiles = DepthScheduler(groups, GroupTable(32, longest_first=True), TileOrder(Swizzle(size=2)), PersistentLoop(), DEPTH, skip_empty,
                           DepthScheduler.allocate_shared())
    tiles.read()
    bar.sync(0)
    with tiles.work() as work:
        assert work.shared is not None
        words = [work.group, work.m, work.n, work.start, work.end, work.stages, mov.u32(1), mov.u32(0), mov.u32(0)]
        with if_(work.shared):
            part = tiles.part_of(work.tile)
            mov.u32(words[6], part.parts)
            mov.u32(words[7], part.first)
            mov.u32(words[8], part.tile)
        for i, word in enumerate(words):
            store.global_.u32(found.at(work.tile * 16 + i), word, pred=mov.u32(tid.x) == 0)


def work_of(lengths: list[int], part: int, skip_empty: bool, most: int | None = None) -> list[tuple[int, ...]]:
    starts, rows = [0, *itertools.accumulate(lengths)], sum(lengths)
    most = 2 * (rows // part) if most is None else most
    found = np.full((2 * (most + len(lengths)) * ROWS * COLUMNS, 16), 99, np.uint32)
    groups = {"lengths": np.array(starts, np.uint32), "count": len(lengths), "rows": rows, "m_tiles": ROWS, "n_tiles": COLUMNS,
              "divmod": TileDivmod.of(ROWS, COLUMNS, 2, along_m=True), "part": part, "inverse_of_part": inverse(part), "most_parts": most}
    assert work_of_parts.simulate(2, groups=groups, found=found.reshape(-1), skip_empty=skip_empty).verdict == "clean"
    count = int((found[:, 0] != 99).sum())
    assert (found[count:] == 99).all()
    return [tuple(map(int, tile[:9])) for tile in found[:count]]


@given(lengths=st.lists(st.sampled_from([0, 1, 15, 16, 31, 32, 33, 64, 65, 100, 1000]), min_size=1, max_size=8), part=st.integers(1, 5),
       skip_empty=st.booleans())
@settings(max_examples=30)
def test_parts_have_each_row_of_each_tile_once(lengths: list[int], part: int, skip_empty: bool) -> None:
    part *= DEPTH
    work, starts = work_of(lengths, part, skip_empty), [0, *itertools.accumulate(lengths)]
    shared = [one for one in work if one[6] > 1]
    assert work[:len(shared)] == shared                                     # the places of their sums come first
    assert len(shared) <= 2 * (sum(lengths) // part) * ROWS * COLUMNS
    for group, length in enumerate(lengths):
        for m, n in itertools.product(range(ROWS), range(COLUMNS)):
            own = [(index, one) for index, one in enumerate(work) if one[:3] == (group, m, n)]
            parts = max(1, -(-length // part)) if length or not skip_empty else 0
            assert len(own) == parts
            assert [one[6] for _, one in own] == [parts] * parts
            edges = [starts[group], *(one[4] for _, one in own)]
            assert [one[3] for _, one in own] == edges[:-1] if parts else True
            assert not parts or edges[-1] == starts[group + 1]
            assert all(one[4] - one[3] <= part and one[5] == max(1, -(-(one[4] - one[3]) // DEPTH)) for _, one in own)
            if parts > 1:
                assert all(one[4] > one[3] and (one[4] - one[3]) % DEPTH == 0 for _, one in own[1:])
                assert [index for index, _ in own] == [own[0][1][7] + ROWS * COLUMNS * turn for turn in range(parts)]
                assert len({one[8] for _, one in own}) == 1
    tiles = {one[8]: one[:3] for one in shared}
    assert len(set(tiles.values())) == len(tiles)                           # each has a counter of its own
    assert not tiles or max(tiles) < sum(lengths) // part * ROWS * COLUMNS


def test_without_room_each_group_is_one_part() -> None:
    assert {one[6] for one in work_of([100, 0, 40], 32, False, most=4)} == {1}
    assert {one[6] for one in work_of([100, 0, 40], 32, False, most=6)} == {1, 2, 4}


@pytest.mark.ptxas
@pytest.mark.parametrize(("made", "spilled"), [
    (config("bf16", "bf16", Tile(128, 256), cluster=ClusterShape(2, 1), dynamic=True), 0),
    (config("bf16", "f32", Tile(64, 256), accumulate=True), 0), (config("bf16", "bf16", Tile(256, 192), dynamic=True), 0),
    (config("bf16", "f32", Tile(128, 192), pingpong=True, dynamic=True), 0), (config("bf16", "bf16", Tile(256, 192)), 4)], ids=str)
def test_next_to_nothing_spills_and_the_budget_is_kept(made: GroupedKConfig, spilled: int) -> None:
    """Where the sums take 192 registers of a thread one more may be spilled, which is read once a tile: the end of a static order."""
    traced = group_gemm_k.trace(**replace(made, part=256).parameters)
    assert traced.dynamic_smem <= replace(made, part=256).shared_bytes
    found = assemble(traced.ptx())
    assert found.resources["group_gemm_k"].spill_stores <= spilled
    assert "serialized" not in found.log


def test_kernels_do_not_depend_on_the_length_of_a_part() -> None:
    made = config("bf16", "bf16", Tile(128, 128))
    assert replace(made, part=128).parameters == replace(made, part=256).parameters != made.parameters
    assert str(replace(made, part=128)) == "128x128x64, 6 stages, 2 mma warpgroups, along m by 8, parts of 128 rows"


def test_what_cannot_be_shared_is_said_in_one_sentence() -> None:
    made = config("bf16", "bf16", Tile(64, 64))
    for part in (-64, 100, 1 << 21):
        with pytest.raises(ConfigError, match="part is a multiple of 64, not") as raised:
            replace(made, part=part)
        assert len(str(raised.value).splitlines()) == 1
    problem = along_k(2, 1 << 20, 1024, 1024)
    assert problem.workspace_bytes(replace(made, part=1 << 20)) > 0
    with pytest.raises(LaunchError, match="take longer parts"):
        problem.workspace_bytes(replace(made, part=64))
    shapes: list[tuple[Any, ...]] = [("bf16", 1 << 20, 1024), ("bf16", 1 << 20, 1024), ("s32", 3), ("bf16", 2, 1024, 1024)]
    said = can_implement(*(view_of(*shape, pointer=(number + 1) << 40) for number, shape in enumerate(shapes)),
                         config=replace(made, part=64))
    assert said is not None
    assert "take longer parts" in said


def test_a_host_without_workspaces_clears_the_counters_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sums of parts behind them are written before they are read."""
    problem = along_k(1, 65536, 512, 512)
    bytes = problem.workspace_bytes(replace(config("bf16", "bf16", Tile(64, 64)), part=1024))
    plan = SimpleNamespace(launcher=None, grid=(1, 1, 1))
    launch = SimpleNamespace(workspace_bytes=bytes, maps=(), plan=plan, placed_in=lambda place: ())
    monkeypatch.setattr(steps.grouped_k, "prepare", lambda *_: launch)
    found = steps.of_groups_along_k(cast("Any", None), 1 << 40)
    assert found.workspace_bytes == bytes > 64 << 20
    clear, _ = found.steps
    assert isinstance(clear, steps.FillStep)
    assert (clear.start, clear.width * clear.height) == (1 << 40, COUNTERS_BYTES)
