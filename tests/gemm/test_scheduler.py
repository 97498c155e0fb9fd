"""The tile schedule, run in a tiny evaluator: every tile once, neighbours in time near in space."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemm.scheduler import grouped
from ptxkit import Ptr, Reg, Vec, kernel
from ptxkit.kernel import Kernel
from ptxkit.ptx import st as store
from ptxkit.types import u32
from tests.ptxkit.machine import run, stored

pytestmark = pytest.mark.pure


def scheduled(GROUP: int, CLUSTER: int) -> Kernel[Any]:
    @kernel(block=32, cluster=CLUSTER)
    def schedule(out: Ptr[u32], m_tiles: Reg[u32], n_tiles: Reg[u32]) -> None:
        with grouped(m_tiles, n_tiles, GROUP=GROUP, CLUSTER=CLUSTER) as (m, n):
            store.global_.v2.u32(out, Vec([m, n]))

    return schedule


def tiles(GROUP: int, CLUSTER: int, clusters: int, m_tiles: int, n_tiles: int) -> list[list[tuple[int, int]]]:
    """The tiles of every CTA, in its order."""
    traced = scheduled(GROUP, CLUSTER).trace()
    found = []
    for cta in range(clusters * CLUSTER):
        symbols = {"%ctaid.x": cta, "%nctaid.x": clusters * CLUSTER, "%clusterid.x": cta // CLUSTER, "%nclusterid.x": clusters,
                   "%cluster_ctarank": cta % CLUSTER}
        found.append(stored(run(traced, {"out": 0, "m_tiles": m_tiles, "n_tiles": n_tiles}, symbols)))
    return found


@settings(deadline=None, max_examples=60)
@given(st.sampled_from([1, 3, 8, 16]), st.sampled_from([1, 2]), st.integers(1, 7), st.integers(1, 23), st.integers(1, 23))
def test_every_tile_is_worked_on_once(GROUP, CLUSTER, clusters, m_tiles, n_tiles):
    found = [tile for each in tiles(GROUP, CLUSTER, clusters, m_tiles, n_tiles) for tile in each]
    rows = -(-m_tiles // CLUSTER) * CLUSTER
    assert sorted(found) == [(m, n) for m in range(rows) for n in range(n_tiles)]


def test_units_go_down_a_group_before_the_next_column():
    (order,) = tiles(4, 1, 1, 10, 3)
    assert order[:5] == [(0, 0), (1, 0), (2, 0), (3, 0), (0, 1)]
    assert order[-2:] == [(8, 2), (9, 2)]


def test_ctas_of_a_cluster_have_tiles_below_one_another():
    first, second = tiles(8, 2, 1, 5, 3)
    assert [(m + 1, n) for m, n in first] == second
