"""Which rows of which group a tile has, run on the CPU device: every row of every group once, and tiles of one size where that is asked."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxkit import Ptr, Reg, Vec, ctaid, if_, kernel, laneid, tid
from ptxkit.dsl.kernel import Kernel
from ptxkit.gemm.config.parts import ClusterShape, Raster, Swizzle
from ptxkit.gemm.scheduler.fast_divmod import DivmodTable
from ptxkit.gemm.scheduler.group_table import GroupTable
from ptxkit.gemm.scheduler.grouped import ORDERS, GroupScheduler, Order
from ptxkit.gemm.scheduler.persistent import PersistentLoop
from ptxkit.gemm.scheduler.tile_order import TileOrder
from ptxkit.idioms import inverse
from ptxkit.ptx import bar, mov
from ptxkit.ptx import st as store
from ptxkit.types import u32

pytestmark = pytest.mark.pure
COLUMNS = 3
Panels = tuple[int, Raster]
"""Lines of a panel of tiles, and which way they lie."""


@functools.cache
def listing(tokens: int, order: Order, even: int, longest_first: bool, capacity: int, panels: Panels) -> Kernel[Any]:
    """A kernel in which every CTA writes down its tiles: group, first row, end, column."""
    @kernel(block=32)
    def tiles_of_groups(lengths: Ptr[u32], groups: Reg[u32], rows: Reg[u32], out: Ptr[u32], width: Reg[u32], of_width: Reg[u32]) -> None:
        table, inverses = GroupTable(capacity, longest_first=longest_first), DivmodTable()
        table.scan(lengths, groups, rows, tokens, "cu_seqlens", mov.u32(0))
        inverses.make(mov.u32(laneid))
        bar.sync(0)
        with if_(mov.u32(tid.x) == 0):
            size, raster = panels
            scheduler = GroupScheduler(TileOrder(Swizzle(raster, size), ClusterShape()), PersistentLoop(False), order, tokens, inverses,
                                       of_width, even=even)
            with scheduler.work(table, width, mov.u32(1)) as work:
                store.global_.v4.u32(out.at(work.tile * 4), Vec([work.group, work.row, work.until, work.n]))

    return tiles_of_groups


def tiles(lengths: list[int], tokens: int, order: Order, even: int, ctas: int, longest_first: bool = False,
          capacity: int = 32, panels: Panels = (2, "along_m")) -> list[tuple[int, ...]]:
    """Group, first row, end and column of each tile, in the order of the tiles."""
    ends = np.array((0, *itertools.accumulate(lengths)), np.uint32)
    count = sum(-(-length // tokens) for length in lengths) * COLUMNS
    out = np.full((count + 1, 4), 0xFFFF_FFFF, np.uint32)
    traced = listing(tokens, order, even, longest_first, capacity, panels)
    report = traced.simulate(ctas, ends, len(lengths), int(ends[-1]), out, COLUMNS, inverse(COLUMNS))
    assert report.verdict == "clean", report.findings
    assert (out[-1] == 0xFFFF_FFFF).all()                       # no tile too many
    return [tuple(map(int, row)) for row in out[:-1]]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from([0, 1, 63, 64, 65, 128, 192, 193, 257, 320, 449, 700, 2500]), min_size=1, max_size=6),
       st.sampled_from([64, 128, 192, 256]), st.sampled_from([order for order in ORDERS if order != "dynamic"]),
       st.sampled_from([0, 16, 64]), st.sampled_from([1, 4]), st.booleans(),
       st.tuples(st.sampled_from([1, 2, 3, 40]), st.sampled_from(["along_m", "along_n"])))
def test_every_row_of_a_group_is_in_one_tile_of_each_column(lengths, tokens, order, even, ctas, longest_first, panels):
    """Also of more rows of tiles, and wider panels, than there are inverses in shared memory."""
    found = sorted(tiles(lengths, tokens, order, even, ctas, longest_first, panels=panels))
    begin = 0
    for group, length in enumerate(lengths):
        for column in range(COLUMNS):
            own = [(row, until) for of, row, until, n in found if (of, n) == (group, column)]
            assert [row for row, _ in own] == [begin, *(until for _, until in own[:-1])][:len(own)]
            assert (own[-1][1] if own else begin) == begin + length
            unit = even or 64
            blocks = [-(-(until - row) // unit) for row, until in own]
            assert all(0 < each <= tokens // unit for each in blocks)
            assert sum(blocks) == -(-length // unit)
            if even and blocks:
                assert max(blocks) - min(blocks) <= 1
        begin += length


@kernel(block=32)
def beginnings(lengths: Ptr[u32], groups: Reg[u32], rows: Reg[u32], out: Ptr[u32], width: Reg[u32], of_width: Reg[u32], *,
               SWAP_AB: bool = False, ALONG_N: bool = False) -> None:
    """Each CTA writes down where it expects to begin, and where it does: group and tile of weights."""
    table, inverses = GroupTable(32), DivmodTable()
    table.scan(lengths, groups, rows, 64, "cu_seqlens", mov.u32(0))
    inverses.make(mov.u32(laneid))
    bar.sync(0)
    with if_(mov.u32(tid.x) == 0):
        tile_order = TileOrder(Swizzle("along_n" if ALONG_N else "along_m", 2), ClusterShape())
        scheduler = GroupScheduler(tile_order, PersistentLoop(False), "linear", 64, inverses, of_width, SWAP_AB)
        place = out.at(mov.u32(ctaid.x) * 4)
        group, tile = scheduler.expected(groups, width)
        with scheduler.work(table, width, mov.u32(1)) as work:
            store.global_.v4.u32(place, Vec([group, tile, work.group, work.m if SWAP_AB else work.n]))


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, 64), min_size=1, max_size=8), st.integers(1, 5), st.booleans(), st.booleans())
def test_a_cta_begins_where_it_is_expected_to_if_every_group_has_one_tile_of_tokens(lengths, width, transposed, along_n):
    ends, ctas = np.array((0, *itertools.accumulate(lengths)), np.uint32), len(lengths) * width
    out = np.zeros((ctas, 4), np.uint32)
    report = beginnings.simulate(ctas, ends, len(lengths), int(ends[-1]), out, width, inverse(width), SWAP_AB=transposed,
                                 ALONG_N=along_n)
    assert report.verdict == "clean", report.findings
    assert (out[:, :2] == out[:, 2:]).all()
    assert len({tuple(row) for row in out[:, :2].tolist()}) == ctas


def test_four_m64_blocks_are_two_and_two_or_three_and_one():
    assert [(row, until) for _, row, until, n in tiles([250], 192, "linear", 64, 1) if not n] == [(0, 128), (128, 250)]
    assert [(row, until) for _, row, until, n in tiles([250], 192, "linear", 0, 1) if not n] == [(0, 192), (192, 250)]


@settings(deadline=None, max_examples=25)
@given(st.sampled_from([32, 64, 128]).flatmap(lambda room: st.tuples(
    st.just(room), st.lists(st.sampled_from([0, 1, 63, 64, 65, 128, 700]), min_size=1, max_size=min(room, 80)))), st.sampled_from([1, 3]))
def test_the_longest_group_comes_first_and_of_equals_the_first(table, ctas):
    capacity, lengths = table
    found = tiles(lengths, 64, "linear", 0, ctas, longest_first=True, capacity=capacity)
    order = list(dict.fromkeys(group for group, *_ in found))
    assert order == sorted((group for group, length in enumerate(lengths) if length), key=lambda group: (-lengths[group], group))
