"""Values that a loop carries: what Python computes, what is emitted, and bad uses."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxkit import Ptr, Reg, Vec, for_range, if_, loop, ring
from ptxkit.ptx import add, mov
from ptxkit.ptx import st as store
from ptxkit.types import u32
from tests.ptxkit.machine import lines, run, stored, trace
from tests.ptxkit.refusal import refused

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
Numbers = Reg[u32]


@given(st.integers(0, 9))
@settings(deadline=None, max_examples=12)
def test_a_carried_value_is_what_python_computes(n: int) -> None:
    def kernel(out: Ptr[u32], n: Numbers) -> None:
        one = mov.u32(1)
        with for_range(n, older=mov.u32(0), newer=one) as loop_:
            newer = loop_.older + loop_.newer
            loop_.older = loop_.newer
            loop_.newer = newer
        store.global_.u32(out, loop_.older)
        store.global_.u32(out, one)

    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    assert stored(run(trace(kernel), {"out": 0, "n": n})) == [a, 1]


@given(st.integers(1, 9), st.integers(1, 3))
@settings(deadline=None, max_examples=12)
def test_loops_and_rings_carry_too(n: int, stages: int) -> None:
    def kernel(out: Ptr[u32], n: Numbers) -> None:
        with ring(stages, n, total=mov.u32(0)) as rounds:
            with if_(rounds.stage == 0):
                rounds.total = rounds.total + rounds.index
        with loop(total=rounds.total) as more:
            more.total = more.total + 1
            more.break_if((more.total & 7) == 0)
        store.global_.u32(out, rounds.total)
        store.global_.u32(out, more.total)

    total = sum(i for i in range(n) if i % stages == 0)
    assert stored(run(trace(kernel), {"out": 0, "n": n})) == [total, total // 8 * 8 + 8]


def test_vectors_and_pointers_are_carried() -> None:
    def kernel(out: Ptr[u32], n: Numbers) -> None:
        with for_range(n, pair=Vec([n, mov.u32(7)]), place=out) as rounds:
            rounds.pair = Vec([rounds.pair[1], rounds.pair[0]])                  # all at once
            rounds.place = rounds.place + 1
        store.global_.v2.u32(rounds.place, rounds.pair)

    (event,) = run(trace(kernel), {"out": 64, "n": 3})
    assert [*event.operands[-2:]] == [7, 3] or event.operands[-1] == (7, 3)


def test_what_is_emitted() -> None:
    def kernel(n: Numbers) -> None:
        with for_range(n, total=n) as rounds:
            rounds.total = rounds.total + 1

    assert lines(trace(kernel)) == [
        "mov.u32 %r1, 0;", "mov.u32 %r2, %r0;", "$for_1:", "setp.ge.u32 %p0, %r1, %r0;", "@%p0 bra $done_3;", "add.u32 %r3, %r2, 1;",
        "mov.u32 %r2, %r3;", "$next_2:", "add.u32 %r1, %r1, 1;", "bra $for_1;", "$done_3:", "ret;"]


def test_bad_uses_of_carried_values() -> None:
    def number(n: Numbers) -> None:
        with for_range(n, total=0.0):                                            # type: ignore[call-overload] # wrong
            pass

    def taken_before(n: Numbers) -> None:
        with for_range(n, total=n) as rounds:
            old = rounds.total
            rounds.total = old + 1
            add.u32(n, n, old)                                                   # wrong

    def unknown(n: Numbers) -> None:
        with for_range(n, total=n) as rounds:
            rounds.sum = n                                                       # wrong

    def own(n: Numbers) -> None:
        with for_range(n, total=n) as rounds:
            rounds.index = n                                                     # wrong

    def taken(n: Numbers) -> None:
        with ring(2, n, stage=n):                                                # wrong
            pass

    def ended(n: Numbers) -> None:
        with for_range(n, total=n) as rounds:
            rounds.total = rounds.total + 1
        rounds.total = n                                                         # wrong

    def other_type(n: Numbers) -> None:
        with for_range(n, total=n) as rounds:
            rounds.total = mov.f32(0.0)                                          # wrong

    for wrong, words in ((number, "as `total=mov.f32(0.0)`"), (taken_before, "`old = mov.u32(loop.total)`"), (unknown, "`sum=zero`"),
                         (own, "`index` is the loop's own"), (taken, "cannot carry `stage`"), (ended, "the loop has ended"),
                         (other_type, "carries a register of u32, not a register of f32")):
        refused(wrong, words)
