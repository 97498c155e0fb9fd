"""Products of the shapes that torch.matmul takes: vectors, broadcast batches, several batch extents, results in any order of axes."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import numpy as np
import pytest

from ptxkit.cards import H200
from ptxkit.errors import LaunchError
from ptxkit.gemm import Adapter
from ptxkit.gemm.launch.simulate import simulate
from ptxkit.gemm.problem.dense import Arrays, Problem
from ptxkit.gemm.problem.matmul import products, result_shape
from ptxkit.runtime.arrays import ArrayView, contiguous_strides

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]


def seen(shape: tuple[int, ...], strides: tuple[int, ...] | None = None, pointer: int = 0, dtype: str = "f16") -> ArrayView:
    return ArrayView(pointer, shape, contiguous_strides(shape) if strides is None else strides, dtype, 0, "other")


SHAPES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((40,), (40, 11)), ((9, 40), (40,)), ((40,), (40,)), ((3, 5, 40), (40, 16)), ((5, 40), (3, 40, 9)), ((2, 1, 5, 40), (3, 40, 8)),
    ((2, 3, 5, 40), (2, 3, 40, 8)), ((2, 5, 40), (40,)), ((40,), (2, 40, 5)), ((1, 5, 40), (2, 1, 40, 7)))


@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_the_shapes_of_matmul(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(a) + 10 * len(b))
    x, y = rng.standard_normal(a).astype(np.float16), rng.standard_normal(b).astype(np.float16)
    exact = np.asarray(x.astype(np.float64) @ y.astype(np.float64))
    out = np.full(exact.shape, np.nan, np.float16)
    report = simulate(x, y, out, card=H200.with_sms(2))
    assert np.abs(out - exact).max() < 0.05
    assert report.verdict == "clean"


@pytest.mark.parametrize("turn", ["batches", "result"])
def test_other_orders_of_axes(turn: str) -> None:
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((3, 2, 5, 40)).astype(np.float16), rng.standard_normal((40, 9)).astype(np.float16)
    x = np.swapaxes(x, 0, 1) if turn == "batches" else x[0, 0]
    exact = x.astype(np.float64) @ y.astype(np.float64)
    out = np.full(exact.shape, np.nan, np.float16) if turn == "batches" else np.full(exact.shape[::-1], np.nan, np.float16).T
    bias, residual = rng.standard_normal(9).astype(np.float32), np.full_like(out, 2.0)
    assert simulate(x, y, out, card=H200.with_sms(2), bias=bias, residual=residual).verdict == "clean"
    assert np.abs(out - (exact + bias + 2)).max() < 0.05


@pytest.mark.parametrize(("a", "b", "strides"), [
    ((40,), (40, 11), (2,)), ((3, 5, 40), (40, 16), (160, 32, 2)), ((2, 1, 5, 40), (3, 40, 8), (240, 80, 16, 0))])
@pytest.mark.parametrize("name", ["c", "residual"])
def test_what_is_added_is_refused_with_the_strides_that_it_has(name: str, a: tuple[int, ...], b: tuple[int, ...],
                                                               strides: tuple[int, ...]) -> None:
    """The sentence says the strides of the argument, not those of the matrices that it is divided into."""
    x, y = seen(a, pointer=1 << 30), seen(b, pointer=2 << 30)
    shape = result_shape(x, y)
    said = Adapter.can_implement(x, y, seen(shape, pointer=3 << 30), beta=1.0, **{"c": seen(shape, pointer=3 << 30),
                                                                                   name: seen(shape, strides, pointer=4 << 30)})
    assert said == f"{name} has strides {strides}: its rows must be contiguous; pass {name}.contiguous(), a row-major copy"


BEHIND = 1000
"""Where b lies, in elements."""


def everything(arrays: Arrays) -> set[tuple[int, int, int]]:
    """What a product adds up: (address in D, the lower address, the higher one) of every term, in elements."""
    a, b, out = arrays.a, arrays.b, arrays.out
    found = set()
    for batch in range(out.shape[0] if len(out.shape) == 3 else 1):
        def at(array: ArrayView, row: int, column: int, batch: int = batch) -> int:
            apart = array.strides[0] if len(array.shape) == 3 else 0
            return array.pointer // 2 + batch * apart + row * array.strides[-2] + column * array.strides[-1]

        for m, n, k in itertools.product(range(out.shape[-2]), range(out.shape[-1]), range(a.shape[-1])):
            found.add((at(out, m, n), *sorted((at(a, m, k), at(b, k, n)))))        # of a transposed product A is that of B
    return found


@pytest.mark.parametrize("number", range(60))
def test_every_term_once(number: int) -> None:
    """Random batches and orders of axes, against NumPy's broadcasting."""
    rng = random.Random(number)
    outer = tuple(rng.randint(1, 3) for _ in range(rng.randint(0, 3)))
    m, n, k = (rng.randint(1, 3) for _ in range(3))

    def drawn(rows: int, columns: int, vector: int) -> tuple[ArrayView, np.ndarray[Any, Any]]:
        batch = tuple(extent if rng.random() < 0.7 else 1 for extent in outer)[rng.randint(0, len(outer)):]
        shape = (*batch, rows, columns) if not vector or rng.random() < 0.8 else (k,)
        order = sorted(range(len(shape)), key=lambda _: rng.random())
        first = BEHIND * (vector - 1)
        memory = np.arange(first, first + math.prod(shape), dtype=np.int16).reshape([shape[axis] for axis in order])
        array = memory.transpose(np.argsort(order))
        return seen(array.shape, tuple(stride // 2 for stride in array.strides), 2 * first), array

    (a, x), (b, y) = drawn(m, k, 1), drawn(k, n, 2)
    shape = result_shape(a, b)
    assert shape == np.matmul(np.zeros(a.shape), np.zeros(b.shape)).shape
    place = [*sorted(range(len(shape))[:-1], key=lambda _: rng.random()), *range(len(shape))[-1:]]
    d = np.arange(math.prod(shape)).reshape([shape[axis] for axis in place]).transpose(np.argsort(place))
    out = seen(shape, tuple(stride // 8 for stride in d.strides))
    x, y = (x if x.ndim > 1 else x[None]), (y if y.ndim > 1 else y[:, None])
    whole = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    d = d.reshape((*whole, x.shape[-2], y.shape[-1]))
    terms = np.broadcast_arrays(d[..., :, :, None], x[..., :, None, :], np.swapaxes(y, -1, -2)[..., None, :, :])
    wanted = set(zip(*(part.reshape(-1).tolist() for part in terms), strict=True))
    parts = products(Arrays(a, b, out))
    got = [everything(part) for part in parts]
    assert set().union(*got) == wanted
    assert sum(map(len, got)) == len(wanted)


@pytest.mark.parametrize("number", range(40))
def test_strides_along_extents_of_1_mean_nothing(number: int) -> None:
    """Any numbers there give the same launches: the same choice of copies and stores, and the same arguments."""
    rng = random.Random(number)
    outer, (m, n, k) = tuple(rng.choice((1, 1, 3)) for _ in range(rng.randint(0, 2))), (rng.choice((1, 24)) for _ in range(3))
    size, word = rng.choice(((1, "e4m3"), (2, "f16"), (4, "f32")))
    shapes = {"a": (*outer, m, k), "b": (*outer, k, n), "out": (*outer, m, n), "residual": (*outer, m, n), "bias": (m, 1)}
    types = {"a": word, "b": word, "out": rng.choice(("f16", "f32"))}
    plain = {name: seen(shape, pointer=64 * size * place, dtype=types.get(name, "f32"))
             for place, (name, shape) in enumerate(shapes.items())}
    junk = {name: array._replace(strides=tuple(rng.choice((-7, 0, 1, 3, 1 << 33)) if extent == 1 else stride
                                               for extent, stride in zip(array.shape, array.strides, strict=True)))
            for name, array in plain.items()}
    parts = [products(Arrays(**arrays)) for arrays in (plain, junk)]
    assert parts[0] == parts[1]
    for part in parts[1]:
        problem = Problem(part)
        assert all(0 <= stride < 1 << 32 for pair in problem.strides for stride in pair)
        assert all(0 <= stride < 1 << 32 for one in (problem.of_a, problem.of_b) for stride in one.strides)
    in_place = {**junk, "out": junk["out"]._replace(pointer=1 << 20), "residual": plain["out"]._replace(pointer=1 << 20)}
    assert Adapter.can_implement(**in_place) is None


@pytest.mark.parametrize("k", [0, 40])
@pytest.mark.parametrize(("axes", "pad"), [((1, 0, 2), 0), ((1, 0, 2), 8), ((1, 0, 2), 3), ((2, 0, 1), 0)])
def test_results_whose_batches_lie_between_their_rows(axes: tuple[int, ...], pad: int, k: int) -> None:
    """As heads lie among tokens; and what lies between the elements stays as it was."""
    rng = np.random.default_rng(2)
    x, y = rng.standard_normal((3, 70, k)).astype(np.float16), rng.standard_normal((3, k, 24)).astype(np.float16)
    memory = np.full([(3, 70, 24)[axis] + pad * (axis == axes[-1]) for axis in axes], 7, np.float16)
    out = memory.transpose(np.argsort(axes))[:, :70, :24]
    exact = x.astype(np.float64) @ y.astype(np.float64)
    simulate(x, y, out, card=H200.with_sms(2))
    assert np.abs(out - exact).max() < 0.05
    out[...] = 7
    assert (memory == 7).all()


def test_rows_and_columns_of_a_result_may_lie_apart() -> None:
    """A vector times a matrix into a column of another one, and columns of a batch with one A, which are rows of one product."""
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((5, 40)).astype(np.float16), rng.standard_normal((3, 40, 1)).astype(np.float16)
    out = np.full((3, 9), 7, np.float16)
    simulate(y[:, :, 0], x[0], out[:, 2], card=H200.with_sms(2))
    assert np.abs(out[:, 2] - y[:, :, 0].astype(np.float64) @ x[0].astype(np.float64)).max() < 0.05
    simulate(x[0], y[:, :, 0].T, out[:, 4], card=H200.with_sms(2))
    assert np.abs(out[:, 4] - out[:, 2]).max() < 0.05
    out[:, 2] = out[:, 4] = 7
    assert (out == 7).all()
    many, residual = np.full((3, 5, 1), np.nan, np.float16), np.full((1, 5, 1), 2, np.float16)
    for added in (np.full((3, 5, 1), 2, np.float16), np.broadcast_to(residual, (3, 5, 1)), np.full((3, 5, 2), 2, np.float16)[..., :1]):
        simulate(x, y, many, residual=added, card=H200.with_sms(2))
        assert np.abs(many - (x.astype(np.float64) @ y.astype(np.float64) + 2)).max() < 0.05


def test_what_is_added_lies_as_the_result_does() -> None:
    a, b, out, along = seen((9, 40)), seen((40, 16)), seen((9, 16), (1, 9)), seen((9, 16), pointer=1 << 20)
    said = str(Adapter.can_implement(a, b, out, residual=along))
    assert said.startswith("residual has strides (16, 1) and out (1, 9): out is contiguous along its columns")
    assert Adapter.can_implement(a, b, out, residual=seen((9, 16), (1, 9), 1 << 20)) is None
    assert Adapter.can_implement(a, b, along, residual=seen((9, 16), (0, 1))) is None              # a row that is added to all
    assert "residual has strides (1, 9)" in str(Adapter.can_implement(a, b, along, residual=out))


def test_batches_that_are_none_together() -> None:
    a, b = seen((2, 1, 5, 40), (200, 0, 40, 1)), seen((3, 40, 8))
    assert len(products(Arrays(a, b, seen((2, 3, 5, 8))))) == 2                   # a batch of the three, twice
    assert len(products(Arrays(seen((4, 3, 5, 40)), seen((40, 8)), seen((4, 3, 5, 8))))) == 1
    assert "2 launches" in str(Adapter.can_implement(a, b, seen((2, 3, 5, 8))))
    assert Adapter.can_implement(seen((40,)), seen((40, 9)), seen((9,))) is None
    assert "gives (2, 3, 5, 8)" in str(Adapter.can_implement(a, b, seen((2, 3, 8, 5))))
    with pytest.raises(LaunchError, match="batches are as many"):
        result_shape(seen((2, 5, 40)), seen((3, 40, 8)))
    with pytest.raises(LaunchError, match="is a number"):
        result_shape(seen(()), seen((3, 40, 8)))
