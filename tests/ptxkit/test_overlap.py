"""What a launch writes is apart from what it reads: decided exactly, beside the sets of the bytes of small arrays."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxkit.errors import LaunchError
from ptxkit.runtime.arrays import ArrayView, contiguous_strides
from ptxkit.runtime.overlap import Spans, refuse_overlap, shares
from ptxkit.types import TYPES

pytestmark = pytest.mark.pure

EXTENTS = st.lists(st.tuples(st.integers(0, 5), st.sampled_from((0, 1, 2, 3, 5, 8, 16, 24, 40))), max_size=4)


@st.composite
def views(draw: Any) -> ArrayView:
    extents = draw(EXTENTS)
    return ArrayView(0x1000 + draw(st.integers(0, 200)), tuple(extent for extent, _ in extents), tuple(stride for _, stride in extents),
                     draw(st.sampled_from(("e4m3", "bf16", "f32", "s64"))), 0, "torch")


def cells(seen: ArrayView) -> set[int]:
    """The bytes of an array's elements."""
    size = TYPES[seen.dtype].bits // 8
    places = (sum(at * stride for at, stride in zip(place, seen.strides, strict=True))
              for place in itertools.product(*map(range, seen.shape)))
    return {seen.pointer + size * place + byte for place in places for byte in range(size)}


def steps(array: ArrayView) -> list[int]:
    """The strides that lead anywhere."""
    return [stride for extent, stride in zip(array.shape, array.strides, strict=True) if extent > 1]


@settings(deadline=None, max_examples=400)
@given(views(), views(), st.booleans())
def test_arrays_share_what_the_sets_of_their_bytes_share(one: ArrayView, other: ArrayView, in_place: bool) -> None:
    wanted = bool(cells(one) & cells(other))
    assert shares(one, other) == wanted
    same = (one.pointer, one.shape, steps(one), TYPES[one.dtype].bits) == (other.pointer, other.shape, steps(other),
                                                                           TYPES[other.dtype].bits)
    named = (("a", other), ("out", one)), ("out",), ("a",) if in_place else ()
    if wanted and not (same and in_place):
        with pytest.raises(LaunchError, match=r"out and a share memory: .* or pass a copy of a"):
            refuse_overlap(*named)
    else:
        refuse_overlap(*named)


def test_large_matrices_are_judged_by_their_elements() -> None:
    """Halves of one matrix, its even and odd columns, and neighbouring batches are apart; a column more is not."""
    def at(offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> ArrayView:
        return ArrayView((1 << 40) + 2 * offset, shape, strides, "bf16", 0, "torch")

    rows, columns = 1 << 14, 1 << 13
    whole = (2 * columns, 1)
    assert not shares(at(0, (rows, columns), whole), at(columns, (rows, columns), whole))
    assert shares(at(0, (rows, columns + 1), whole), at(columns, (rows, columns), whole))
    assert not shares(at(0, (rows, columns), (2 * columns, 2)), at(1, (rows, columns), (2 * columns, 2)))
    assert not shares(at(0, (64, rows, columns), (2 * rows * columns, columns, 1)), at(rows * columns, (64, rows, columns),
                                                                                       (2 * rows * columns, columns, 1)))


def test_an_array_without_memory_overlaps_nothing() -> None:
    one = ArrayView(0, (4, 4), contiguous_strides((4, 4)), "bf16", 0, "torch")
    refuse_overlap((("out", one), ("a", one)))


@settings(deadline=None, max_examples=400)
@given(views(), views())
def test_spans_that_are_apart_share_nothing(one: ArrayView, other: ArrayView) -> None:
    if Spans((one, other), 1).apart((one, other)):
        assert not cells(one) & cells(other)


def test_one_view_read_and_written_is_not_apart() -> None:
    """The same object at two places, as callers who keep views pass it."""
    view = ArrayView(0x1000, (4, 4), (4, 1), "bf16", 0, "torch")
    assert Spans((view,), 0).apart((view,))
    assert not Spans((view, view), 1).apart((view, view))
