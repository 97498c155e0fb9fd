"""Sorting in the registers of a warp, and the table of groups that is sorted by it, beside numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxkit import Ptr, Reg, kernel, tid
from ptxkit.gemm.config.grouped_parts import CAPACITIES
from ptxkit.gemm.scheduler.group_table import MOST_COUNTED, MOST_GROUPS, GroupTable
from ptxkit.gemm.scheduler.sort import descending, places_of
from ptxkit.ptx import bar, ld, mov, st
from ptxkit.types import u32

pytestmark = pytest.mark.pure


@kernel(target="sm_90a", block=32)
def sorted_values(values: Ptr[u32], places: Ptr[u32], *, each: int = 1) -> None:
    """Sorts 32 times `each` values, and counts their places."""
    at = [mov.u32(tid.x) + 32 * i for i in range(each)]
    found = [ld.global_.u32(values.at(place)) for place in at]
    for place, value in zip(at, places_of(found), strict=True):
        st.global_.u32(places.at(place), value)
    for place, value in zip(at, descending(found), strict=True):
        st.global_.u32(values.at(place), value)


@pytest.mark.parametrize("each", [1, 2, 4, 8, 16, 32])
def test_values_fall(each: int) -> None:
    rng, count = np.random.default_rng(each), 32 * each
    for values in (rng.integers(0, 1 << 32, count), rng.integers(0, 3, count), np.arange(count), np.arange(count)[::-1],
                   np.where(np.arange(count) == count - 1, (1 << 32) - 1, 0)):
        found, places = values.astype(np.uint32), np.zeros(count, np.uint32)
        assert sorted_values.simulate(1, values=found, places=places, each=each).verdict == "clean"
        assert (found == np.sort(values)[::-1]).all()
        assert (places == [(values > value).sum() for value in values]).all()


@kernel(target="sm_90a", block=32)
def table_of(lengths: Ptr[u32], count: Reg[u32], rows: Reg[u32], found: Ptr[u32], *, capacity: int = 32) -> None:
    """Writes a table that is sorted by length: start, end and group of each entry, and the tiles of 16 rows before it."""
    table = GroupTable(capacity, longest_first=True)
    table.scan(lengths, count, rows, 16, "cu_seqlens", mov.u32(0))
    bar.sync(0)
    for i in range(capacity // 32):
        at = mov.u32(tid.x) + 32 * i
        for word, array in enumerate((table.start, table.end, table.group, table.tiles_before)):
            st.global_.u32(found.at(at * 4 + word), ld.shared__cta.u32(array.at(at)))


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_a_table_has_its_longest_groups_first(capacity: int) -> None:
    """On both sides of the limit up to which places are counted. Equally long groups keep their order."""
    assert min(CAPACITIES) <= MOST_COUNTED < max(CAPACITIES) <= MOST_GROUPS
    rng = np.random.default_rng(capacity)
    for count in (capacity, capacity - 5, 1):
        lengths = rng.choice([0, 0, 1, 7, 40, 41, 300], count)
        starts = np.concatenate([[3], 3 + np.cumsum(lengths)]).astype(np.uint32)
        found: Any = np.full((capacity, 4), 99, np.uint32)
        report = table_of.simulate(1, lengths=starts, count=count, rows=int(starts[-1]), found=found.reshape(-1), capacity=capacity)
        assert report.verdict == "clean"
        order = np.argsort(-lengths, kind="stable")
        assert (found[:count, 2] == order).all()
        assert (found[:count, 0] == starts[:-1][order]).all()
        assert (found[:count, 1] == starts[1:][order]).all()
        tiles = -(-lengths[order] // 16)
        assert (found[:count, 3] == np.cumsum(tiles) - tiles).all()
