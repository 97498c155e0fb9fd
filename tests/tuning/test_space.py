"""Laws of spaces: their points are those of nested loops, and what says nothing is an error that says what to write."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxkit import Space
from ptxkit.tuning.space import SpaceError, digest, space_of, spelled, within, words
from ptxkit.types import bf16, f32

pytestmark = pytest.mark.pure

axes = st.dictionaries(st.sampled_from("ABCD"), st.lists(st.integers(-5, 40), min_size=1, max_size=4, unique=True), min_size=1, max_size=4)


@settings(deadline=None)
@given(axes, st.integers(-10, 80), st.integers(2, 5))
def test_the_points_are_those_of_nested_loops(values, most, divisor):
    space = Space(**values).where(lambda **config: sum(config.values()) <= most, "small")
    names = list(values)
    space = space.where(eval(f"lambda {names[-1]}: {names[-1]} % {divisor} != 1"), "no remainder")
    asked, others = space.points()
    every = [dict(zip(values, point, strict=True)) for point in itertools.product(*values.values())]
    right = [point for point in every if sum(point.values()) <= most and point[names[-1]] % divisor != 1]
    assert [dict(point) for point in asked] == right
    assert [dict(one.point) for one in others] == [point for point in every if point not in right]
    assert all((one.why == "small") == (sum(dict(one.point).values()) > most) for one in others)


@given(axes, axes)
@settings(deadline=None, max_examples=50)
def test_two_spaces_have_one_digest_if_their_points_are_the_same(one, other):
    same = Space(**one).points()[0] == Space(**other).points()[0]
    assert (digest(Space(**one).points()[0]) == digest(Space(**other).points()[0])) == same


def test_mappings_and_lists_are_spaces():
    assert space_of({"A": (1, 2)}).points() == Space(A=[1, 2]).points()
    points = [{"A": 1, "B": 2}, {"A": 3, "B": 4}]
    assert [dict(point) for point in space_of(points).points()[0]] == points
    space = Space(A=(1, 2), B=(3, 4))
    assert within(space.points()[0], {"A": 2, "C": 9}) == [(("A", 2), ("B", 3)), (("A", 2), ("B", 4))]
    assert words(space.points()[0][1]) == "A=1 B=4"


@dataclass(frozen=True)
class Order:
    size: int = 4


def test_values_are_spelled_the_same_in_every_process():
    assert spelled(bf16) == "ptxkit.types.bf16"
    assert spelled(Order(8)) == '{"Order": {"size": 8}}'
    first, second = (lambda x: x), (lambda x: x + 1)
    lambdas = {spelled(function) for function in (first, second)}
    assert all("0x" not in text for text in lambdas)
    assert len({spelled(value) for value in (1, 1.0, True, "1", None, (1,), f32)}) == 7


@pytest.mark.parametrize(("make", "sentence"), [
    (lambda: Space(A=()), "no value for `A`"), (lambda: Space(A=(1, 1)), "`A` twice"), (lambda: space_of({}), "no parameters"),
    (lambda: Space(A=64), r"64 for `A`: give its values, as A=\(64,\)"), (lambda: Space(A="ab"), "'ab' for `A`"),
    (lambda: space_of([64, 128]), "a list of points"), (lambda: space_of(64), "a list of points"),
    (lambda: space_of([]), "no points"), (lambda: Space(A=([1],)), "can be hashed"),
    (lambda: Space(A=(1,)).where(lambda B: True), "asks for `B`, the space has A"),
    (lambda: Space(A=(1,)).where("A > 1"), "a condition is a function of parameters")])
def test_a_space_that_says_nothing_is_an_error(make, sentence):
    with pytest.raises(SpaceError, match=sentence):
        make()


def test_numbers_of_numpy_are_those_of_python():
    (one,), _ = Space(A=np.arange(3, 4)).points()
    assert type(dict(one)["A"]) is int
