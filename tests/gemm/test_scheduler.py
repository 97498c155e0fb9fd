"""Tile schedulers, run in a tiny evaluator: every tile once, neighbours in time near in space."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxkit import Ptr, Reg, Vec, kernel
from ptxkit.dsl.kernel import Kernel
from ptxkit.gemm.config.parts import MAX_CLUSTER, ClusterShape, Scheduler, SplitK, Static, StreamK, Swizzle
from ptxkit.gemm.scheduler.dense import tile_scheduler
from ptxkit.gemm.scheduler.hilbert import hilbert
from ptxkit.gemm.scheduler.stream_k import MIN_STAGES_OF_PART
from ptxkit.gemm.scheduler.work import Extents, TileDivmod
from ptxkit.ptx import mov
from ptxkit.ptx import st as store
from ptxkit.types import u32
from tests.ptxkit.machine import run, stored

pytestmark = pytest.mark.pure
SKIPPED = 0xFFFF_FFFF


def shape_of(scheduler: Scheduler) -> ClusterShape:
    """The CTAs that share operands."""
    return scheduler.cluster if isinstance(scheduler, Static | StreamK | SplitK) else ClusterShape()


def size_of(scheduler: Scheduler) -> int:
    """CTAs of a cluster."""
    return scheduler.together if isinstance(scheduler, SplitK) else shape_of(scheduler).size


def scheduled(scheduler: Scheduler, *, batched: bool, turn: int, turns: int, found: bool) -> Kernel[Any]:
    @kernel(block=32, cluster=size_of(scheduler))
    def scheduler_(out: Ptr[u32], m_tiles: Reg[u32], n_tiles: Reg[u32], k_tiles: Reg[u32], batches: Reg[u32], divmod: TileDivmod) -> None:
        tiles = tile_scheduler(scheduler, Extents(m_tiles, n_tiles, k_tiles, divmod, batches if batched else None), out)

        def skipped(stages: Reg[u32]) -> None:
            store.global_.v4.u32(out, Vec([mov.u32(SKIPPED), mov.u32(0), mov.u32(0), stages]))
            store.global_.u32(out + 4, 0)

        first = tiles.begins_at()[1] if found else None
        with tiles.work(turn=turn, turns=turns, skip=skipped, first=first) as work:
            first = mov.u32(work.first) if isinstance(work.first, int) else work.first
            store.global_.v4.u32(out, Vec([work.m, work.n, first, work.stages]))
            store.global_.u32(out + 4, work.batch if work.batch is not None else mov.u32(0))

    return scheduler_


def works(scheduler: Scheduler, clusters: int, m: int, n: int, k: int = 1, batches: int | None = None, turns: int = 1,
          found: bool = False) -> list[list[Any]]:
    """(m, n, first stage, stages, batch) of every CTA and turn, in its order; with the first work tile found before, or not."""
    cluster, size, order = shape_of(scheduler), size_of(scheduler), scheduler.order
    assert isinstance(order, Swizzle)
    divmod = TileDivmod.of(-(-m // cluster.m), -(-n // cluster.n), order.size, order.raster == "along_m")
    each = []
    for turn in range(turns):
        traced = scheduled(scheduler, batched=batches is not None, turn=turn, turns=turns, found=found).trace()
        for cta in range(clusters * size):
            symbols = {"%ctaid.x": cta, "%nctaid.x": clusters * size, "%clusterid.x": cta // size, "%nclusterid.x": clusters,
                       "%cluster_ctarank": cta % size}
            values = stored(run(traced, {"out": 0, "m_tiles": m, "n_tiles": n, "k_tiles": k, "batches": batches or 1,
                                         "divmod_line": divmod.line, "divmod_panel": divmod.panel, "divmod_batch": divmod.batch}, symbols))
            flat = [x for value in values for x in (value if isinstance(value, tuple) else (value,))]
            each.append([tuple(flat[i:i + 5]) for i in range(0, len(flat), 5)])
    return each


swizzles = st.builds(Swizzle, st.sampled_from(["along_m", "along_n"]), st.sampled_from([1, 3, 8]), st.booleans())
clusters_of_tiles = st.builds(ClusterShape, st.sampled_from([1, 2]), st.sampled_from([1, 2]))
schedulers = st.builds(Static, swizzles, clusters_of_tiles)


@settings(deadline=None, max_examples=60)
@given(schedulers, st.integers(1, 5), st.integers(1, 11), st.integers(1, 11), st.sampled_from([None, 1, 3]), st.sampled_from([1, 2]))
def test_every_tile_is_worked_on_once(scheduler, clusters, m, n, batches, turns):
    each = works(scheduler, clusters, m, n, 1, batches, turns)
    found = [work for own in each for work in own]
    assert turns > 1 or works(scheduler, clusters, m, n, 1, batches, found=True) == each
    rows, columns = (-(-tiles // by) * by for tiles, by in ((m, scheduler.cluster.m), (n, scheduler.cluster.n)))
    assert sorted(found) == sorted((i, j, 0, 1, batch) for batch in range(batches or 1) for i in range(rows) for j in range(columns))


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 9), st.one_of(st.none(), clusters_of_tiles), st.integers(1, 6), st.integers(1, 4), st.integers(1, 4),
       st.integers(0, 60), st.booleans())
def test_a_split_depth_is_shared_out(splits, sharing, ctas, m, n, more, ahead):
    """By the CTAs of a cluster, by CTAs, or by clusters that share operands; also of the tiles past the end that these have."""
    scheduler = SplitK(min(splits, MAX_CLUSTER), "cluster") if sharing is None else SplitK(splits, cluster=sharing)
    splits, k = scheduler.splits, scheduler.splits + more
    found = [work for each in works(scheduler, ctas, m, n, k, found=ahead) for work in each]
    for i in range(-(-m // scheduler.cluster.m) * scheduler.cluster.m):
        for j in range(-(-n // scheduler.cluster.n) * scheduler.cluster.n):
            parts = sorted((first, stages) for a, b, first, stages, _ in found if (a, b) == (i, j))
            assert len(parts) == splits
            assert [first for first, _ in parts] == [sum(stages for _, stages in parts[:p]) for p in range(splits)]
            assert sum(stages for _, stages in parts) == k
            assert max(stages for _, stages in parts) - min(stages for _, stages in parts) <= 1


streams = st.builds(StreamK, st.builds(Swizzle, size=st.sampled_from([1, 3])), clusters_of_tiles)


@settings(deadline=None, max_examples=50)
@given(streams, st.integers(1, 9), st.integers(1, 7), st.integers(1, 7), st.integers(1, 30), st.sampled_from([None, 1, 3]))
def test_runs_share_the_depth_out_evenly(scheduler, clusters, m, n, k, batches):
    """Every stage of every tile once. A CTA begins with the end of a tile, whose beginning another has; it has at most one tile without
    its end, which the CTAs of lower numbers have, and behind it whole tiles only. Nobody has much more than another."""
    each = works(scheduler, clusters, m, n, k, batches)
    size = scheduler.cluster.size
    parts: dict[Any, list[Any]] = {}
    for cta, own in enumerate(each):
        for number, (i, j, first, stages, batch) in enumerate(own):
            assert stages
            assert not first or number == 0
            parts.setdefault((batch, i, j), []).append((first, stages, cta))
        short = [number for number, (_, _, first, stages, _) in enumerate(own) if not first and stages < k]
        assert len(short) <= 1
    rows, columns = (-(-tiles // by) * by for tiles, by in ((m, scheduler.cluster.m), (n, scheduler.cluster.n)))
    assert parts.keys() == set(itertools.product(range(batches or 1), range(rows), range(columns)))
    for found in parts.values():
        found.sort()
        assert [first for first, _, _ in found] == [sum(stages for _, stages, _ in found[:p]) for p in range(len(found))]
        assert sum(stages for _, stages, _ in found) == k
        assert [cta for _, _, cta in found] == [found[0][2] - size * p for p in range(len(found))]
    units = rows * columns * (batches or 1) // size
    total = [sum(stages for _, _, _, stages, _ in own) for own in each]
    spread = 0 if units % clusters == 0 else 1 + 4 * (MIN_STAGES_OF_PART - 1)
    assert max(total) - min(total) <= spread
    if units * k // clusters >= MIN_STAGES_OF_PART:
        assert all(stages >= min(MIN_STAGES_OF_PART, k) for found in parts.values() for _, stages, _ in found)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 5), st.integers(1, 30))
def test_warpgroups_in_turn_hear_of_what_the_other_has(ctas, m, n, k):
    scheduler = StreamK()
    whole, both = works(scheduler, ctas, m, n, k), works(scheduler, ctas, m, n, k, turns=2)
    for cta, own in enumerate(whole):
        for turn in range(2):
            seen = both[turn * ctas + cta]
            assert [work[3] for work in seen] == [work[3] for work in own]
            assert [work for work in seen if work[0] != SKIPPED] == own[turn::2]


@settings(deadline=None, max_examples=100)
@given(st.integers(1, 70), st.integers(1, 70))
def test_a_curve_goes_through_every_place_once(rows, columns):
    places = [(int(word) >> 16, int(word) & 0xFFFF) for word in hilbert(rows, columns)]
    assert sorted(places) == [(i, j) for i in range(rows) for j in range(columns)]


@pytest.mark.parametrize(("rows", "columns"), [(1, 9), (8, 8), (32, 32), (16, 48), (40, 8), (128, 1)])
def test_neighbours_on_a_curve_are_neighbours_in_d(rows, columns):
    places = [(int(word) >> 16, int(word) & 0xFFFF) for word in hilbert(rows, columns)]
    assert all(abs(a - c) + abs(b - d) == 1 for (a, b), (c, d) in itertools.pairwise(places))
    for start in range(0, len(places) - 15, 16):                      # 16 tiles in flight touch few rows and columns
        seen = places[start:start + 16]
        assert min(rows, columns) < 4 or len({i for i, _ in seen}) + len({j for _, j in seen}) == 8


def test_tiles_go_down_a_panel_before_the_next_column():
    (order,) = works(Static(Swizzle(size=4)), 1, 10, 3)
    tiles = [work[:2] for work in order]
    assert tiles[:5] == [(0, 0), (1, 0), (2, 0), (3, 0), (0, 1)]
    assert tiles[-2:] == [(8, 2), (9, 2)]
    (order,) = works(Static(Swizzle(size=4, serpentine=True)), 1, 10, 3)
    assert [work[:2] for work in order][10:14] == [(2, 2), (3, 2), (4, 2), (5, 2)]
    (order,) = works(Static(Swizzle("along_n", 4)), 1, 3, 10)
    assert [work[:2] for work in order][:5] == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)]


def test_ctas_of_a_cluster_have_neighbouring_tiles():
    first, below, right, both = works(Static(cluster=ClusterShape(2, 2)), 1, 5, 3)
    assert [(m + 1, n) for m, n, *_ in first] == [work[:2] for work in below]
    assert [(m, n + 1) for m, n, *_ in first] == [work[:2] for work in right]
    assert [(m + 1, n + 1) for m, n, *_ in first] == [work[:2] for work in both]
