"""The choice of experts and the sort of choices on the CPU device, beside NumPy and under the checker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from ptxkit import gemm
from ptxkit.errors import LaunchError
from ptxkit.gemm.kernels.route import choose_experts, sort_choices
from ptxkit.gemm.launch.route import ChoiceProblem, Sorted, SortProblem, simulate_choice, simulate_sort
from ptxkit.runtime.arrays import ArrayView, contiguous_strides
from ptxkit.runtime.toolchain import assemble

pytestmark = pytest.mark.pure
Array = np.ndarray[Any, Any]


def chosen(logits: Array, top: int, over_all: bool = False) -> tuple[Array, Array]:
    """The kernel's weights and experts."""
    weights, experts = np.full((len(logits), top), np.nan, np.float32), np.full((len(logits), top), -7, np.int32)
    report = simulate_choice(logits, weights, experts, over_all=over_all)
    assert report.verdict == "clean", str(report)
    return weights, experts


@pytest.mark.parametrize("over_all", [False, True])
@pytest.mark.parametrize(("tokens", "count", "top"), [(9, 4, 2), (3, 100, 8), (1, 1, 1), (2, 256, 32), (1, 1000, 5), (5, 33, 33 - 1)])
@pytest.mark.thinned(2)
def test_a_choice_is_that_of_a_stable_sort(tokens: int, count: int, top: int, over_all: bool) -> None:
    """Logits have ties, and some are minus infinity."""
    rng = np.random.default_rng(count)
    logits = (np.round(rng.standard_normal((tokens, count)) * 16) / 4).astype(np.float32)
    logits[:, top + 1::3] = -np.inf
    weights, experts = chosen(logits, top, over_all)
    right = np.argsort(-logits, axis=1, kind="stable")[:, :top]
    assert (experts == right).all()
    powers = np.exp(logits.astype(np.float64) - logits.max(1, keepdims=True))
    own = np.take_along_axis(powers, right, 1)
    own /= (powers if over_all else own).sum(1, keepdims=True)
    assert (np.abs(weights - own) <= 2.0 ** -19 * own + 1e-37).all()
    assert (chosen(logits[-1:].copy(), top, over_all)[0] == weights[-1:]).all()


@pytest.mark.parametrize("count", [7, 64])
@pytest.mark.parametrize("word", [0x80000000, 0xFFFFFFFF, 0x7FC00001, 1])
def test_zeros_are_equal_and_nans_are_above_all(word: int, count: int) -> None:
    """As torch.topk has them, whatever bits a NaN has; no expert is chosen twice."""
    bits = np.zeros((3, count), np.uint32)
    bits[0], bits[1, 1::2], bits[2, count - 2] = word, word, word
    logits = bits.view(np.float32)
    right = np.argsort(-np.where(np.isnan(logits), np.inf, logits), axis=1, kind="stable")[:, :5]
    assert (chosen(logits, 5)[1] == right).all()


@pytest.mark.parametrize(("tokens", "top", "count"), [(11, 3, 5), (1, 1, 1), (0, 2, 3), (40, 8, 6), (160, 8, 3), (7, 2, 0), (40, 8, 40),
                                                       (160, 8, 33)])
@pytest.mark.thinned(3)
def test_a_sort_is_stable(tokens: int, top: int, count: int) -> None:
    rng = np.random.default_rng(tokens)
    check_sort(rng.integers(-2, count + 2, (tokens, top)).astype(np.int32), count)


def check_sort(experts: Array, count: int) -> None:
    out = Sorted(*(np.full(shape, -7, np.int32) for shape in (count + 1, experts.size, experts.shape, experts.size)))
    report = simulate_sort(experts, out)
    assert report.verdict == "clean", str(report)
    flat = experts.reshape(-1)
    key = np.where((flat >= 0) & (flat < count), flat, count)
    order = np.argsort(key, kind="stable")
    assert (out.offs == np.searchsorted(key[order], np.arange(count + 1))).all()
    assert (out.choice == order).all()
    assert (out.token == order // max(1, experts.shape[1])).all()
    slot = np.empty(len(flat), np.int32)
    slot[order] = np.arange(len(flat))
    assert (out.slot.reshape(-1) == np.where(key < count, slot, -1)).all()


def test_a_sort_of_more_choices_than_the_masks_hold() -> None:
    """Four warps of 128 threads look at 4,096 choices with their masks; here there are more, so that they look twice."""
    from unittest import mock

    from ptxkit.gemm.launch import route

    with mock.patch.object(route, "FEW", 1 << 20):
        rng = np.random.default_rng(3)
        experts = rng.integers(-1, 3, (4500, 1)).astype(np.int32)
        assert not SortProblem(*[view("s32", *shape) for shape in ((4500, 1), (3,), (4500,), (4500, 1), (4500,))]).held
        check_sort(experts, 2)
        check_sort(experts * 20, 41)


@pytest.mark.ptxas
def test_registers_leave_room_for_a_full_sm() -> None:
    """Nothing spills. Of 1,024 threads an SM holds two CTAs, so that 264 experts are one wave of an H100."""
    for parameters, most in (({"threads": 128}, 64), ({}, 32), ({"dense": True}, 32), ({"held": False}, 32)):
        found = assemble(sort_choices.trace(**cast("Any", parameters)).ptx()).resources["sort_choices"]
        assert not found.spill_stores
        assert found.registers <= most, parameters
    for each, most in ((1, 32), (8, 48), (32, 160)):
        found = assemble(choose_experts.trace(each=cast("Any", each), over_all=True).ptx()).resources["choose_experts"]
        assert not found.spill_stores
        assert found.registers <= most, each


def view(dtype: str, *shape: int) -> ArrayView:
    return ArrayView(0, shape, contiguous_strides(shape), dtype, 0, "other")


def test_what_is_refused_is_said_in_one_sentence() -> None:
    logits, weights, experts = view("f32", 3, 8), view("f32", 3, 2), view("s32", 3, 2)
    offs, flat = view("s32", 9), view("s32", 6)
    cases: list[tuple[Any, tuple[Any, ...], str]] = [
        (ChoiceProblem, (view("bf16", 3, 8), weights, experts, False), "logits has elements of bf16"),
        (ChoiceProblem, (view("f32", 8), weights, experts, False), r"it is float32 \[tokens, experts\]"),
        (ChoiceProblem, (view("f32", 3, 2000), weights, experts, False), "chooses of at most 1024 experts"),
        (ChoiceProblem, (view("f32", 3, 1), weights, experts, False), "top is 2: of 1 experts a kernel chooses 1 to 1"),
        (ChoiceProblem, (logits, weights, view("s64", 3, 2), False), "experts has elements of s64"),
        (ChoiceProblem, (logits, weights, view("s32", 4, 2), False), "experts has shape"),
        (SortProblem, (view("s64", 3, 2), offs, flat, experts, flat), "experts has elements of s64"),
        (SortProblem, (flat, offs, flat, experts, flat), "choices of a token"),
        (SortProblem, (experts, view("s32", 0), flat, experts, flat), "offs has no elements"),
        (SortProblem, (experts, offs, view("s32", 5), experts, flat), "choice has shape"),
    ]
    for problem, given, sentence in cases:
        with pytest.raises(LaunchError, match=sentence) as raised:
            problem(*given)
        assert len(str(raised.value).splitlines()) == 1
    with pytest.raises(LaunchError, match="logits"):
        gemm.choose_experts(cast("Any", object()), 2)
    recorded, other = SimpleNamespace(requires_grad=True), SimpleNamespace()
    for given, out in ((recorded, None), (other, (recorded, other))):
        with pytest.raises(LaunchError, match="requires grad"):
            gemm.choose_experts(given, 2, out=out)
