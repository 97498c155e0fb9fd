"""Values that a loop carries: what Python computes, what is emitted, and bad uses."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxkit import Ptr, Reg, Vec, for_range, func, if_, loop, ring, smem
from ptxkit.dsl.raw import at, raw, verbatim
from ptxkit.errors import TraceError
from ptxkit.ptx import add, cvt, ld, mov, selp
from ptxkit.ptx import st as store
from ptxkit.types import b32, f16, f32, pred, s32, u32, u64
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


USES: list[tuple[type[Any], Callable[[Any, Any, Ptr[u32]], object]]] = [
    (pred, lambda old, n, out: add.u32(n, n, 1, pred=old)),
    (pred, lambda old, n, out: add.u32(n, n, 1, pred=~old)),
    (pred, lambda old, n, out: if_(old).__enter__()),
    (pred, lambda old, n, out: if_(~old).__enter__()),
    (pred, lambda old, n, out: selp.u32(n, 1, old)),
    (pred, lambda old, n, out: old & (n == 1)),
    (pred, lambda old, n, out: (n == 1) | ~old),
    (pred, lambda old, n, out: verbatim("@{} add.u32 {}, {}, 1;", old, n, n)),
    (u32, lambda old, n, out: out.at(old)),
    (u32, lambda old, n, out: n + old),
    (u32, lambda old, n, out: old + n),
    (u32, lambda old, n, out: mov.u32(old, 1)),
    (u32, lambda old, n, out: store.global_.v2.u32(out, Vec([n, old]))),
    (u32, lambda old, n, out: store.global_.u32(out, raw("{}", old))),
    (u32, lambda old, n, out: store.global_.u32(out, raw(old))),
    (u32, lambda old, n, out: verbatim("add.u32 {}, {}, 1;", n, old)),
    (u32, lambda old, n, out: for_range(old).__enter__()),
    (u32, lambda old, n, out: for_range(n, start=old).__enter__()),
    (u32, lambda old, n, out: for_range(n, step=old).__enter__()),
    (u32, lambda old, n, out: for_range(n, inner=old).__enter__()),
    (u64, lambda old, n, out: store.global_.u32(at(old), n)),
    (u64, lambda old, n, out: out.at(old)),
    (u64, lambda old, n, out: store.global_.u32(old, n)),
]


@pytest.mark.parametrize("number", range(len(USES)))
def test_every_use_of_a_value_that_an_assignment_overwrote_is_an_error(number: int) -> None:
    type_, use = USES[number]

    def kernel(out: Ptr[u32], n: Numbers) -> None:
        first = n > 100 if type_ is pred else mov.u32(0) if type_ is u32 else mov.u64(0)
        with for_range(n, value=first) as rounds:
            old = rounds.value
            rounds.value = first
            use(old, n, out)

    with pytest.raises(TraceError, match=f"copy it first, as `old = mov.{type_.__name__}"):
        trace(kernel)


@pytest.mark.parametrize("leave", ["break_if", "continue_if", "repeat_if"])
def test_ways_out_of_a_loop_take_no_value_that_was_overwritten(leave: str) -> None:
    def kernel(n: Numbers) -> None:
        with loop(small=n < 2) as rounds:
            old = rounds.small
            rounds.small = n > 9
            getattr(rounds, leave)(old)                                          # wrong

    refused(kernel, "copy it first, as `old = mov.pred(loop.small)`")


def test_places_and_operands_that_were_made_of_a_value_and_used_after_it_was_overwritten() -> None:
    def index(n: Numbers) -> None:
        items = smem.array(u32, 64)
        with for_range(n, i=mov.u32(0)) as rounds:
            old = rounds.i
            rounds.i = n
            items.at(rounds.i)
            items.at(old)                                                        # wrong

    def place(n: Numbers, out: Ptr[u32]) -> None:
        with for_range(n, p=out) as rounds:
            old = rounds.p + 1
            rounds.p = out
            store.global_.u32(old, n)                                            # wrong

    def operand(n: Numbers) -> None:
        with for_range(n, p=mov.u64(0)) as rounds:
            old = at(rounds.p, 8)
            rounds.p = mov.u64(8)
            store.global_.u32(old, n)                                            # wrong

    def negated(n: Numbers) -> None:
        with for_range(n, p=n < 2) as rounds:
            old = ~rounds.p
            rounds.p = n > 9
            add.u32(n, n, 1, pred=old)                                           # wrong

    for wrong in (index, place, operand, negated):
        refused(wrong, "copy it first, as `old = mov.")


def test_a_copied_guard_is_the_value_before_the_assignment() -> None:
    def kernel(out: Ptr[u32], n: Numbers) -> None:
        with for_range(n, p=n > 100) as rounds:
            old = mov.pred(rounds.p)
            rounds.p = rounds.index < 2
            store.global_.u32(out.at(rounds.index), 1, pred=old)

    assert [event.operands[0] for event in run(trace(kernel), {"out": 0, "n": 4})] == [4, 8]


def test_a_carried_value_keeps_its_type() -> None:
    def element(x: Ptr[u32], y: Ptr[u64], n: Numbers) -> None:
        with for_range(n, p=x) as rounds:
            rounds.p = y.at(rounds.index)                                        # wrong

    def float_element(x: Ptr[u32], y: Ptr[f32], n: Numbers) -> None:
        with for_range(n, p=x) as rounds:
            rounds.p = y                                                         # wrong

    def half(x: Ptr[f16], n: Numbers) -> None:
        with for_range(n, a=cvt.rn.f16.f32(mov.f32(1.0))) as rounds:
            rounds.a = cvt.rn.bf16.f32(mov.f32(1.0))                             # wrong

    def pairs(x: Ptr[f16], n: Numbers) -> None:
        with for_range(n, a=Vec([cvt.rn.f16x2.f32(mov.f32(1.0), mov.f32(0.0))])) as rounds:
            rounds.a = Vec([cvt.rn.bf16x2.f32(mov.f32(1.0), mov.f32(0.0))])      # wrong

    def constant(n: Numbers) -> None:
        with for_range(n, a=Vec([n, n])) as rounds:
            rounds.a = Vec([n, 1])                                               # wrong

    for wrong, words in ((element, "`loop.p` carries Ptr[u32], not Ptr[u64]: cast it, `p.cast(u32)`"),
                         (float_element, "carries Ptr[u32], not Ptr[f32]: cast it"),
                         (half, "carries a register of f16, not a register of bf16: convert it"),
                         (pairs, "carries a Vec of 1 f16x2, not a Vec of 1 bf16x2: convert it"),
                         (constant, "carries a Vec of 2 u32, not a Vec of 2 int, u32")):
        refused(wrong, words)


def test_a_func_takes_and_returns_its_own_types() -> None:
    @func
    def half(x: Reg[f16]) -> Reg[f16]:
        return x

    @func
    def bits(x: Reg[u32]) -> Reg[f32]:
        return x                                                                 # type: ignore[return-value] # wrong

    def other(n: Numbers) -> None:
        half(cvt.rn.bf16.f32(mov.f32(1.0)))                                      # type: ignore[arg-type]

    refused(other, "parameter `x` is Reg[f16], not Reg[bf16]")
    with pytest.raises(TraceError, match=r"says it returns Reg\[f32\], but returned Reg\[u32\]"):
        trace(lambda: bits(mov.u32(1)))


def test_bits_and_signs_are_carried_as_elsewhere() -> None:
    def kernel(out: Ptr[u32], signed: Ptr[s32], bits: Ptr[b32], half: Ptr[f16], n: Numbers) -> None:
        with for_range(n, p=out, a=ld.global_.b16(half), b=cvt.rn.f16.f32(mov.f32(1.0))) as rounds:
            rounds.p = signed
            rounds.p = bits
            rounds.p = half.cast(u32)
            rounds.a = rounds.b
            rounds.b = ld.global_.b16(half)

    trace(kernel)


@pytest.mark.parametrize("name", ["break_if", "break_", "repeat_if", "continue_if", "continue_"])
def test_a_loop_that_counts_has_no_methods_of_loop(name: str) -> None:
    def index(n: Numbers) -> None:
        with for_range(n) as i:
            getattr(i, name)(i == 3)                                             # wrong

    def carrying(n: Numbers) -> None:
        with for_range(n, total=n) as rounds:
            getattr(rounds, name)(rounds.index == 3)                             # wrong

    def of_a_ring(n: Numbers) -> None:
        with ring(4, n, total=n) as rounds:
            getattr(rounds, name)(rounds.index == 3)                             # wrong

    def three_of_a_ring(n: Numbers) -> None:
        with ring(4, n) as rounds:
            getattr(rounds, name)(n == 3)                                        # wrong

    for wrong in (index, carrying, of_a_ring, three_of_a_ring):
        refused(wrong, f"has no `{name}`", "under `with if_(~p):`" if "continue" in name else "`with loop() as l:`")


def test_names_that_a_loop_has_not() -> None:
    def index(n: Numbers) -> None:
        with for_range(n) as i:
            add.u32(n, i.index, 1)                                               # type: ignore[attr-defined] # wrong

    def uncarried(n: Numbers) -> None:
        with loop() as rounds:
            add.u32(n, n, rounds.total)                                          # type: ignore[attr-defined] # wrong

    def misspelt(n: Numbers) -> None:
        with for_range(n, total=n) as rounds:
            add.u32(n, n, rounds.totl)                                           # wrong

    def unnamed(n: Numbers) -> None:
        with ring(4, n) as rounds:
            add.u32(n, n, rounds.stage)                                          # type: ignore[attr-defined] # wrong

    for wrong, words in ((unnamed, "as (k, stage, parity):`"),
                         (index, "gives its numbers themselves"), (uncarried, "`with loop(total=zero) as l:`"),
                         (misspelt, "it carries total: give it its first value")):
        refused(wrong, words)


@given(st.integers(0, 9), st.integers(0, 9))
@settings(deadline=None, max_examples=12)
def test_the_way_out_of_a_loop_that_counts_is_pythons_break(n: int, last: int) -> None:
    def kernel(out: Ptr[u32], n: Numbers, last: Numbers) -> None:
        i = mov.u32(0)
        with loop() as rounds:
            rounds.break_if(i >= n)
            rounds.break_if(i == last)
            store.global_.u32(out, i)
            add.u32(i, i, 1)

    expected = []
    for i in range(n):
        if i == last:
            break
        expected.append(i)
    assert stored(run(trace(kernel), {"out": 0, "n": n, "last": last})) == expected
def test_a_carried_value_is_not_read_by_its_own_name_anywhere() -> None:
    """By a comprehension, a function of the caller's, or as the attribute that it comes from."""
    def comprehension(n: Numbers) -> None:
        total = mov.u32(0)
        with for_range(n, total=total) as rounds:
            rounds.total = sum(total + k for k in range(2))                      # wrong

    def function(n: Numbers) -> None:
        total = mov.u32(0)

        def plus(value: Any) -> Any:
            return add.u32(total, value)

        with for_range(n, total=total) as rounds:
            rounds.total = plus(rounds.index)                                    # wrong

    def attribute(n: Numbers) -> None:
        state = SimpleNamespace(total=mov.u32(0))
        with for_range(n, total=state.total) as rounds:
            rounds.total = state.total + rounds.index                            # wrong

    for made in (comprehension, function, attribute):
        refused(made, "the loop carries `total`, and its body reads `", "Write `loop.total`")

    def meant(n: Numbers) -> None:
        total = mov.u32(5)
        first, state = total, SimpleNamespace(start=total)
        with for_range(n, total=total) as rounds:
            rounds.total = rounds.total + first + state.start

    trace(meant)
