"""Any number of groups: more than a table has room for are several launches; none, or none with rows, is no fault."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxkit.cards import H200
from ptxkit.gemm.heuristic.grouped import heuristic
from ptxkit.gemm.launch.simulate_grouped import described, simulate, simulate_pointers
from ptxkit.gemm.problem.group_parts import MOST, UNIT, parts, spans
from ptxkit.gemm.problem.grouped import GroupArrays, GroupOptions, GroupProblem
from ptxkit.gemm.tools.grouped_example import example
from ptxkit.runtime.arrays import ArrayView
from ptxkit.types import TYPES
from tests.gemm.groups import view

BF16 = np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
pytestmark = pytest.mark.pure


@given(st.integers(0, 20 * MOST))
def test_the_launches_have_every_group_once_and_about_as_many_each(groups):
    found = list(spans(groups))
    assert [group for first, count in found for group in range(first, first + count)] == list(range(groups))
    assert len(found) == -(-groups // MOST)
    assert all(0 < count <= MOST for _, count in found)
    assert all(count % UNIT == 0 for _, count in found[:-1])
    assert not found or max(count for _, count in found) - min(count for _, count in found) < UNIT * len(found)


def bytes_of(array: ArrayView) -> tuple[int, int]:
    """The first byte of an array, and the last one's end."""
    size = TYPES[array.dtype].bits // 8
    return array.pointer, array.pointer + size * (1 + sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)))


@pytest.mark.parametrize("layout", ["cu_seqlens", "masked"])
def test_each_launch_has_its_groups_arrays(layout):
    """Whatever belongs to a group is cut; the matrices that the groups of cu_seqlens share are whole."""
    groups, rows, n, k = 3000, 12, 128, 384
    masked = layout == "masked"
    shape = (groups, rows) if masked else (groups * rows,)
    arrays = GroupArrays(view("e4m3", *shape, k, pointer=4096), view("e4m3", groups, n, k, pointer=8192), view("s32", groups + 1 - masked),
                         view("bf16", *shape, n), view("f32", *shape, 3, strides=(36, 1, 12) if masked else (1, groups * rows)),
                         view("f32", groups, 1, 3))
    problem = GroupProblem(arrays, GroupOptions(layout))
    assert problem.in_parts
    made = parts(arrays, problem.options, problem.groups, problem.mean)
    assert len(made) == 3
    cut = ("x", "w", "lengths", "out", "x_scale", "w_scale") if masked else ("w", "w_scale", "lengths")
    for name in cut:
        whole, own = bytes_of(getattr(arrays, name)), [bytes_of(getattr(part, name)) for part, _ in made]
        assert (own[0][0], own[-1][1]) == whole
        shared = 4 if name == "lengths" and not masked else 0           # where one ends and the next begins
        assert all(end - begin == shared for (_, end), (begin, _) in itertools.pairwise(own))
    for part, options in made:
        of_part = GroupProblem(part, options)
        assert not of_part.in_parts
        assert (of_part.mean, of_part.scale_load) == (problem.mean, problem.scale_load)
        assert all(getattr(part, name) == getattr(arrays, name) for name in arrays._fields if name not in cut)
        assert all(array.pointer % 16 == 0 for name, array in part.named() if name != "lengths")


@pytest.mark.parametrize("layout", ["cu_seqlens", "masked", "contiguous"])
def test_more_groups_than_a_table_has_room_for(layout):
    """Rows between and after the groups stay as they are. Contiguous groups have no table, so that what is chosen is taken as it is."""
    lengths = [0] * 1100
    lengths[3], lengths[549], lengths[700], lengths[1099] = 2, 5, 1, 7
    if layout != "contiguous":
        assert example(lengths, 16, 16, layout=layout, pad=1, card=H200.with_sms(2), check=False)[0] <= 1
        return
    rows = np.full(256, -1, np.int32)
    rows[:128] = 1050
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((256, 64)).astype(BF16), rng.standard_normal((1100, 16, 64)).astype(BF16)
    y = np.full((256, 16), np.nan, BF16)
    config = heuristic(described(x, w, rows, y, None, None, GroupOptions("contiguous")), H200.with_sms(2))
    assert simulate(x, w, rows, y, layout="contiguous", config=config, card=H200.with_sms(2)).verdict == "clean"
    np.testing.assert_allclose(y[:128].astype(np.float32), x[:128].astype(np.float32) @ w[1050].astype(np.float32).T, rtol=0.02, atol=0.2)
    assert np.isnan(y[128:].astype(np.float32)).all()


@pytest.mark.parametrize("layout", ["cu_seqlens", "masked", "contiguous"])
@pytest.mark.parametrize("k", [0, 64])
def test_no_groups_and_groups_without_rows_write_nothing(layout, k):
    for groups, rows in ((0, 5), (3, 5), (3, 0)):
        masked = layout == "masked"
        lengths = np.full(rows, -1, np.int32) if layout == "contiguous" else np.zeros(groups + (not masked), np.int32)
        shape = (groups, rows) if masked else (rows,)
        y: Any = np.full((*shape, 16), np.nan, BF16)
        simulate(np.zeros((*shape, k), BF16), np.zeros((groups, 16, k), BF16), lengths, y, layout=layout, card=H200.with_sms(2))
        assert np.isnan(y.astype(np.float32)).all()


def test_pointers_to_no_groups_at_all():
    x, w, y = np.zeros((0, 64), BF16), np.zeros((16, 64), BF16), np.zeros((0, 16), BF16)
    assert simulate_pointers([(x, w, y)], ctas=1).verdict != "error"
