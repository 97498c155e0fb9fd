"""What a loop's body binds and the code after the loop reads: Python binds it once, while tracing, however often the body runs."""

# ruff: noqa: E741

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ptxkit import Ptr, Reg, Ring, for_range, if_, loop, ring
from ptxkit.ptx import add, mov, st
from ptxkit.types import u32
from tests.ptxkit.lost.kernels import Kernels, N
from tests.ptxkit.lost.loops import LOOPS
from tests.ptxkit.machine import trace
from tests.ptxkit.refusal import refused

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
KERNELS = Kernels()
wrong, right = KERNELS.wrong, KERNELS.right
BINDS = "only binds the name `"
VALUES: dict[str, tuple[Callable[[Reg[u32]], Any], Callable[[Reg[u32]], Any]]] = {
    "flag": (lambda n: False, lambda n: True), "number": (lambda n: 7, lambda n: 3), "fraction": (lambda n: 1.0, lambda n: 0.5),
    "word": (lambda n: "a", lambda n: "b"), "register": (lambda n: mov.u32(n), lambda n: n),
}


@pytest.mark.parametrize("repeat", LOOPS.values(), ids=LOOPS)
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_a_name_that_a_body_binds_is_not_the_loops(
        repeat: Callable[[Any], AbstractContextManager[Any]], value: tuple[Callable[[Any], Any], Callable[[Any], Any]]) -> None:
    def kernel(x: Ptr[u32], n: Reg[u32]) -> None:
        found = value[0](n)
        with repeat(n):
            found = value[1](n)                                                  # wrong
            st.global_.u32(x, n)
        st.global_.u32(x, found)

    def unread(x: Ptr[u32], n: Reg[u32]) -> None:
        found = value[0](n)
        with repeat(n):
            found = value[1](n)
            st.global_.u32(x, n)
        found = n
        st.global_.u32(x, found)

    refused(kernel, f"{BINDS}found` to another value here, which emits nothing")
    trace(unread)


@wrong(f"{BINDS}s.found`", "`mov.u32(s.found, 1)`")
def an_attribute(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(found=False)
    with for_range(n) as i:
        s.found = True  # wrong
        st.global_.u32(x, i)
    if s.found:
        st.global_.u32(x, n)


@wrong(f"{BINDS}s[1]`")
def an_item(x: Ptr[u32], n: N) -> None:
    s = ["a", "b"]
    with for_range(n) as i:
        s[1] = "c"  # wrong
        st.global_.u32(x, i)
    st.global_.u32(x, len(s[1]))


@wrong(f"{BINDS}best`")
def a_register_of_before(x: Ptr[u32], n: N, m: N) -> None:
    best = n
    with loop() as l:
        best = m  # wrong
        l.break_if(n < 3)
    st.global_.u32(x, best)


@wrong(f"{BINDS}best`")
def within_a_branch(x: Ptr[u32], n: N, m: N) -> None:
    best = n
    with for_range(n), if_(n > m):
        best = m  # wrong
    st.global_.u32(x, best)


@wrong(f"{BINDS}state['best']`")
def a_slot(x: Ptr[u32], n: N, m: N) -> None:
    state = {"best": n}
    with for_range(n):
        state["best"] = m  # wrong
    st.global_.u32(x, state["best"])


@wrong("the loop carries nothing, so that `l.total = ...` emits nothing", "`with loop(total=zero) as l:`")
def a_loop_that_carries_nothing(x: Ptr[u32], n: N) -> None:
    with loop() as l:
        l.total = n  # type: ignore[attr-defined] # wrong
        l.break_if(n < 3)


@wrong("`break_if` is the loop's own")
def a_method_of_a_loop(x: Ptr[u32], n: N) -> None:
    with loop() as l:
        l.break_if = n  # type: ignore[assignment, method-assign] # wrong


# --------------------------------------------------------------------------------------------------- right


@right
def the_name_of_a_loops_own_register(x: Ptr[u32], n: N, m: N) -> None:
    position, stage = Ring(3), m
    st.global_.u32(x, stage)
    with ring(position, n) as (k, stage, _):
        st.global_.u32(x.at(k), stage)
    st.global_.u32(x, stage)


@right
def a_flag_made_again(x: Ptr[u32], n: N) -> None:
    for _ in range(2):
        first = True
        with for_range(n) as i:
            first = False
            st.global_.u32(x, i)
    first = True
    if first:
        st.global_.u32(x, n)


@right
def a_count_of_the_trace(x: Ptr[u32], n: N) -> None:
    stats, array = SimpleNamespace(stores=0), np.zeros(2, int)
    with for_range(n) as i:
        stats.stores += 1
        array[1] += 1
        st.global_.u32(x, i)
    assert (stats.stores, array[1]) == (1, 1)


@right
def what_numbers_the_lines(x: Ptr[u32], n: N) -> None:
    class Numbers:
        used = 0

        def take(self) -> int:
            self.used += 1
            return self.used

    numbers = Numbers()
    with for_range(n):
        st.global_.u32(x, numbers.take())
    st.global_.u32(x, numbers.take())


@right
def what_is_made_when_it_is_needed(x: Ptr[u32], n: N) -> None:
    made: Any = None

    def zero() -> Any:
        nonlocal made
        made = made or [mov.u32(0)]
        return made[0]

    zero()
    with for_range(n):
        add.u32(zero(), zero(), 1)
    st.global_.u32(x, zero())


@right
def what_each_unrolled_body_binds(x: Ptr[u32], n: N, m: N) -> None:
    for turn, register in enumerate((n, m)):
        with for_range(n) as i:
            column, value = turn * 16, register
            st.global_.u32(x.at(i) + column, value)
        with if_(n > 3):
            row, other = turn * 8, register
            st.global_.u32(x + row, other)
        st.global_.u32(x + column + row, value)
        st.global_.u32(x, other)


@right
def a_generator(x: Ptr[u32], n: N) -> None:
    def turns() -> Iterator[int]:
        yield from range(2)

    for turn in turns():
        with for_range(n) as i:
            last = turn
            st.global_.u32(x.at(i), last)
        st.global_.u32(x, last)


test_a_value_that_a_body_binds_is_an_error, test_a_right_kernel_that_looks_like_it_is_silent = KERNELS.tests()
