"""Control flow that is refused: an else_ of another condition, a range whose end its body writes. What looks like it stays right."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxkit import Ptr, Reg, for_range, if_, ring
from ptxkit.dsl.raw import scope
from ptxkit.errors import TraceError
from ptxkit.flow import else_
from ptxkit.ptx import add, mov
from ptxkit.ptx import st as store
from ptxkit.types import u32
from tests.ptxkit.machine import run, stored, trace
from tests.ptxkit.refusal import refused

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]


def test_else_not_directly_after_if_is_an_error() -> None:
    def kernel(n: Reg[u32]) -> None:
        with if_(n == 0):
            pass
        add.u32(n, n, 1)
        with else_():
            pass

    with pytest.raises(TraceError, match=r"must stand directly after the `with if_"):
        trace(kernel)


def test_else_after_two_ifs_of_one_with_is_an_error() -> None:
    def one_line(n: Reg[u32], m: Reg[u32]) -> None:
        with if_(n == 0), if_(m == 0):
            pass
        with else_():                                                            # wrong
            pass

    def several_lines(n: Reg[u32], m: Reg[u32]) -> None:
        with (
            if_(n == 0),
            if_(n == 1),
            if_(m == 0),
        ):
            pass
        with else_():                                                            # wrong
            pass

    def a_loop_between(n: Reg[u32], m: Reg[u32]) -> None:
        with if_(n == 0), for_range(m), if_(m == 0):
            pass
        with else_():                                                            # wrong
            pass

    for wrong in (one_line, several_lines, a_loop_between):
        refused(wrong, "write `with if_(a & b):`")


@pytest.mark.parametrize(("n", "m"), [(n, m) for n in range(2) for m in range(2)])
def test_each_with_of_nested_ifs_has_its_own_else(n: int, m: int) -> None:
    def kernel(out: Ptr[u32], n: Reg[u32], m: Reg[u32]) -> None:
        with if_(n == 0):
            with if_(m == 0):
                store.global_.u32(out, 1)
            with else_():
                store.global_.u32(out, 2)
        with else_():
            with if_(m == 0):
                store.global_.u32(out, 3)
        for i in range(2):
            with if_(n == i):
                store.global_.u32(out, 4 + i)
            with else_():
                store.global_.u32(out, 6 + i)
        with if_(n == 0):
            with if_(m == 0):
                store.global_.u32(out, 8)
        with else_():
            store.global_.u32(out, 9)
        with if_(n == 0), for_range(m):
            store.global_.u32(out, 10)
        with else_():
            store.global_.u32(out, 11)

    expected = [1 if m == 0 else 2] if n == 0 else [3] if m == 0 else []
    expected += [4 + i if n == i else 6 + i for i in range(2)]
    expected += ([8] if m == 0 else []) if n == 0 else [9]
    expected += [10] * m if n == 0 else [11]
    assert stored(run(trace(kernel), {"out": 0, "n": n, "m": m})) == expected


class When:
    """A context manager of the user's, which enters an if_."""

    def __init__(self, p: Any) -> None:
        self.block = if_(p)

    def __enter__(self) -> None:
        self.block.__enter__()

    def __exit__(self, *given: Any) -> None:
        self.block.__exit__(*given)


def test_managers_of_the_user_are_not_one_with() -> None:
    def kernel(n: Reg[u32], m: Reg[u32]) -> None:
        with When(n == 0):
            with When(m == 0):
                add.u32(n, n, 1)
        with else_():
            add.u32(n, n, 1)

    trace(kernel)


def test_an_exit_stack_is_not_one_with() -> None:
    def kernel(n: Reg[u32], m: Reg[u32]) -> None:
        with ExitStack() as stack:
            stack.enter_context(if_(n == 0))
            stack.enter_context(if_(m == 0))
        with else_():
            add.u32(n, n, 1)

    trace(kernel)


def test_what_a_range_counts_with_is_not_written_in_its_body() -> None:
    def stop(n: Reg[u32]) -> None:
        with for_range(n):
            mov.u32(n, n >> 1)                                                   # wrong

    def step(n: Reg[u32], by: Reg[u32]) -> None:
        with for_range(n, step=by):
            with if_(n == 4):
                add.u32(by, by, 1)                                               # wrong

    def index(n: Reg[u32]) -> None:
        with for_range(n) as i:
            add.u32(i, i, 1)                                                     # wrong

    def rounds(n: Reg[u32]) -> None:
        with ring(2, n), scope():
            add.u32(n, n, 1)                                                     # wrong

    def outer(n: Reg[u32], m: Reg[u32]) -> None:
        with for_range(n), for_range(m):
            add.u32(n, n, 1)                                                     # wrong

    def carried(n: Reg[u32], m: Reg[u32]) -> None:
        with for_range(n, end=m) as rounds:
            with for_range(rounds.end):
                rounds.end = n                                                   # wrong

    for wrong, words in ((stop, "ends at, and so changes"), (step, "steps by"), (index, "as `j = mov.u32(i)`"),
                         (rounds, "`for_range(mov.u32(n))`"), (outer, "ends at"), (carried, "ends at")):
        refused(wrong, "changes how many rounds there are", words)


@given(st.integers(0, 20), st.integers(1, 5))
@settings(deadline=None, max_examples=20)
def test_a_copied_end_is_that_of_python(n: int, by: int) -> None:
    def kernel(out: Ptr[u32], n: Reg[u32], by: Reg[u32]) -> None:
        with for_range(mov.u32(n), step=mov.u32(by)) as i:
            store.global_.u32(out, i)
            mov.u32(n, n >> 1)
            add.u32(by, by, 1)
        with for_range(n, step=by):
            pass
        add.u32(n, n, 1)

    assert stored(run(trace(kernel), {"out": 0, "n": n, "by": by})) == [*range(0, n, by)]
