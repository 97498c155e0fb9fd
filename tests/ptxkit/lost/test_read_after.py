"""A register that a `with` body makes and that is read after it, where a path comes without a value."""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ptxkit import Ptr, Reg, else_, for_range, func, if_, loop, tid
from ptxkit.dsl import raw
from ptxkit.errors import TraceError
from ptxkit.ptx import add, exit, fma, ld, mov, setp
from ptxkit.ptx import st as store
from ptxkit.types import f32, pred, u32
from tests.ptxkit.lost.kernels import Holder
from tests.ptxkit.lost.loops import LOOPS
from tests.ptxkit.machine import run, stored, trace
from tests.ptxkit.refusal import refused

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
Numbers = Reg[u32]


@pytest.mark.parametrize("repeat", [LOOPS["for_range"], LOOPS["ring"]], ids=["for_range", "ring"])
def test_a_register_of_the_body_is_read_after_it(repeat: Callable[[Any], AbstractContextManager[Any]]) -> None:
    def kernel(x: Ptr[u32], n: Numbers) -> None:
        with repeat(n):
            found = ld.global_.u32(x)                                            # wrong
        store.global_.u32(x, found)

    refused(kernel, "first written in this loop's body and read after it (line ", "`loop.found = ...`")


def test_a_loop_that_may_be_left_before_the_write() -> None:
    def early(x: Ptr[u32], n: Numbers) -> None:
        with loop() as repeat:
            repeat.break_if(n == 0)
            found = ld.global_.u32(x)                                            # wrong
        store.global_.u32(x, found)

    def one_way(x: Ptr[u32], n: Numbers) -> None:
        with loop() as repeat:
            with if_(n == 1):
                found = ld.global_.u32(x)                                        # wrong
                repeat.break_()
            repeat.break_if(n == 2)
        store.global_.u32(x, found)

    refused(early, "first written in this loop's body", "loop(found=zero)")
    refused(one_way, "first written in this `with if_` body")


def test_a_register_of_a_branch_is_read_after_it() -> None:
    def taken(x: Ptr[u32], n: Numbers) -> None:
        with if_(n == 0):
            found = ld.global_.u32(x)                                            # wrong
        store.global_.u32(x, found)

    def other(x: Ptr[u32], n: Numbers) -> None:
        with if_(n == 0):
            pass
        with else_():
            found = ld.global_.u32(x)                                            # wrong
        store.global_.u32(x, found)

    def guarded(x: Ptr[u32], n: Numbers) -> None:
        with if_(n == 0):
            p = n == 4                                                           # wrong
        store.global_.u32(x, n, pred=p)

    def as_condition(x: Ptr[u32], n: Numbers) -> None:
        with if_(n == 0):
            p = n == 4                                                           # wrong
        with if_(p):
            store.global_.u32(x, n)

    def other_condition(x: Ptr[u32], n: Numbers) -> None:
        with if_(n == 0):
            found = ld.global_.u32(x)                                            # wrong
        with if_(n == 1):
            store.global_.u32(x, found)

    def changed_condition(x: Ptr[u32], n: Numbers) -> None:
        with if_(n == 0):
            found = ld.global_.u32(x)                                            # wrong
        add.u32(n, n, 1)
        with if_(n == 0):
            store.global_.u32(x, found)

    def changed_part(x: Ptr[u32], n: Numbers) -> None:
        q = ld.global_.u32(x) == 1
        with if_((n == 0) & ~q):
            found = mov.u32(1)                                                   # wrong
        setp.eq.u32(q, n, 3)
        with if_((n == 0) & ~q):
            store.global_.u32(x, found)

    for wrong in (taken, other, guarded, as_condition, other_condition, changed_condition, changed_part):
        refused(wrong, "first written in this `with ", "Make it before the `with`")


def test_the_message_has_the_name_of_python() -> None:
    def name(x: Ptr[u32], n: Numbers) -> None:
        with if_(n == 0):
            found = (n + 3) * 2                                                  # wrong
        store.global_.u32(x, found)

    def later_lines(x: Ptr[f32], n: Numbers) -> None:
        with if_(n == 0):
            found = fma.rn.f32(
                ld.global_.f32(x),
                ld.global_.f32(x + 1),
                mov.f32(1.0),
            )
        store.global_.f32(x, found)

    def attribute(x: Ptr[u32], n: Numbers) -> None:
        held = Holder(n)
        with if_(n == 0):
            held.t = n + 3                                                       # wrong
        store.global_.u32(x, held.t)

    def predicate(x: Ptr[u32], n: Numbers) -> None:
        with if_(n == 0):
            p = n == 4                                                           # wrong
        store.global_.u32(x, n, pred=p)

    def carried(x: Ptr[u32], n: Numbers) -> None:
        with for_range(n) as i:
            found = ld.global_.u32(x.at(i))                                      # wrong
        store.global_.u32(x, found)

    def several(x: Ptr[u32], n: Numbers) -> None:
        with if_(n == 0):
            low, high = n + 3, n + 4                                             # wrong
        store.global_.v2.u32(x, (low, high))

    def unrolled(x: Ptr[u32], n: Numbers) -> None:
        found = []
        with if_(n == 0):
            for i in range(2):
                found.append(n + i)                                              # wrong
        store.global_.u32(x, found[0])

    for wrong, words in ((name, "`found` is first written in this `with if_` body"), (name, "as `found = mov.u32(0)`"),
                         (name, "`mov.u32(found, x)`"), (attribute, "`held.t = mov.u32(0)`"), (predicate, "`p = n != n`"),
                         (carried, "`with for_range(n, found=zero) as loop:` and `loop.found = ...`"), (several, "`%r"), (unrolled, "`%r")):
        refused(wrong, words)
    with pytest.raises(TraceError, match=r"`found` is first .*as `found = mov.f32\(0.0\)`"):
        trace(later_lines)


def test_the_way_out_is_right() -> None:
    def kernel(out: Ptr[u32], n: Numbers) -> None:
        found, p = mov.u32(0), n != n
        with if_(n == 0):
            mov.u32(found, 7)
            mov.pred(p, n == 0)
        store.global_.u32(out, found)
        store.global_.u32(out, 1, pred=p)

    assert [stored(run(trace(kernel), {"out": 0, "n": n})) for n in range(2)] == [[7, 1], [0]]


@pytest.mark.parametrize("negated", [False, True])
@pytest.mark.parametrize("both", [False, True])
def test_a_condition_of_two_holds_where_each_does(both: bool, negated: bool) -> None:
    """`p & q` implies `p` and `~(p | q)` implies `~p`; `p | q` and `~(p & q)` imply nothing."""
    def kernel(x: Ptr[u32], n: Numbers) -> None:
        p, q = n == 0, ld.global_.u32(x) == 1
        first = ~p if negated else p
        whole = p & q if both else p | q
        with if_(first):
            found = mov.u32(1)
        with if_(~whole if negated else whole):
            store.global_.u32(x, found)

    if both is not negated:
        trace(kernel)
    else:
        with pytest.raises(TraceError, match="`found` is first written"):
            trace(kernel)


RELATIONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne}


@given(st.sampled_from([*RELATIONS]), st.integers(1, 6), st.booleans(), st.sampled_from([*RELATIONS]), st.integers(1, 6), st.booleans())
@settings(deadline=None, max_examples=300)
def test_comparisons_with_constants_are_silent_only_where_one_implies_the_other(
        one: str, first: int, not_one: bool, other: str, second: int, not_other: bool) -> None:
    """Oracle: Python's comparisons of all numbers around the constants."""
    def kernel(x: Ptr[u32], n: Numbers) -> None:
        write, read = RELATIONS[one](n, first), RELATIONS[other](n, second)
        with if_(~write if not_one else write):
            found = mov.u32(1)
        with if_(~read if not_other else read):
            store.global_.u32(x, found)

    written, reading = ({k for k in range(9) if RELATIONS[sign](k, number) != negated}
                        for sign, number, negated in ((one, first, not_one), (other, second, not_other)))
    if not reading <= written:
        with pytest.raises(TraceError, match="`found` is first written"):
            trace(kernel)
    elif "!=" not in (one, other) and "==" not in (one, other):
        trace(kernel)


def test_both_predicates_of_one_comparison_are_two_conditions() -> None:
    def kernel(x: Ptr[u32], n: Numbers) -> None:
        p, q = raw.registers(pred, 2)
        raw.verbatim("setp.eq.u32 {}|{}, {}, 0;", p, q, n)
        with if_(p):
            found = mov.u32(1)                                                   # wrong
        with if_(q):
            store.global_.u32(x, found)

    refused(kernel, "`found` is first written")


def test_in_a_function() -> None:
    @func
    def clamp(x: Reg[u32]) -> Reg[u32]:
        with if_(x > 9):
            low = mov.u32(9)                                                     # wrong
        return add.u32(low, 0)

    def kernel(n: Numbers) -> None:
        clamp(n)

    with pytest.raises(TraceError, match="first written in this `with if_` body") as caught:
        trace(kernel)
    assert caught.value.position is not None
    assert caught.value.position.line == clamp.function.__code__.co_firstlineno + 3


def _silent() -> list[Callable[..., None]]:
    def in_place(x: Ptr[u32], n: Numbers) -> None:
        total = mov.u32(0)
        with for_range(n) as i:
            add.u32(total, total, i)
        store.global_.u32(x, total)

    def temporary(x: Ptr[u32], n: Numbers) -> None:
        value = ld.global_.u32(x)
        store.global_.u32(x, value)
        with for_range(n) as i:
            value = ld.global_.u32(x.at(i))
            store.global_.u32(x, value)
            value = value + 1
            store.global_.u32(x, value)

    def written_first(x: Ptr[u32], n: Numbers) -> None:
        value = ld.global_.u32(x)
        other = ld.global_.u32(x + 1)
        with for_range(n) as i:
            mov.u32(value, i)
            store.global_.u32(x, value)
            value = other                                                        # the old one is written before it is read

    def index_again(x: Ptr[u32], n: Numbers) -> None:
        with for_range(n) as i:
            store.global_.u32(x, i)
        with for_range(n) as i:
            store.global_.u32(x, i)

    def polled(x: Ptr[u32]) -> None:
        with loop() as spin:
            seen = ld.global_.u32(x)
            spin.break_if(seen != 0)
        store.global_.u32(x, seen)

    def at_the_bottom(x: Ptr[u32]) -> None:
        with loop() as spin:
            seen = ld.global_.u32(x)
            spin.repeat_if(seen == 0)
        store.global_.u32(x, seen)

    def both_halves(x: Ptr[u32], n: Numbers) -> None:
        with if_(n == 0):
            found = mov.u32(1)
        with else_():
            mov.u32(found, 2)
        store.global_.u32(x, found)

    def other_half_leaves(x: Ptr[u32], n: Numbers) -> None:
        with if_(n == 0):
            found = mov.u32(1)
        with else_():
            exit()
        store.global_.u32(x, found)

    def written_again(x: Ptr[u32], n: Numbers) -> None:
        with if_(n == 0):
            found = mov.u32(1)
            store.global_.u32(x, found)
        mov.u32(found, 2)
        store.global_.u32(x, found)

    def same_condition(x: Ptr[u32], n: Numbers) -> None:
        with if_(n == 0), if_(tid.x == 0):
            found = mov.u32(1)
        with if_(tid.x == 0), if_(n == 0):
            store.global_.u32(x, found)

    def same_pair(x: Ptr[u32], n: Numbers) -> None:
        q = ld.global_.u32(x) == 1
        with if_((n == 0) & ~q):
            found = mov.u32(1)
        with if_((n == 0) & ~q):
            store.global_.u32(x, found)

    def same_guard(x: Ptr[u32], n: Numbers) -> None:
        p = n == 0
        with if_(p):
            found = mov.u32(1)
        store.global_.u32(x, found, pred=p)

    def index_after(x: Ptr[u32], n: Numbers) -> None:
        with for_range(n) as i:
            pass
        store.global_.u32(x, i)

    def other_pointer(x: Ptr[u32], n: Numbers) -> None:
        place = x + 1
        store.global_.u32(place, 0)
        with for_range(n) as i:
            place = x.at(i)
            store.global_.u32(place, 0)

    return [in_place, temporary, written_first, index_again, polled, at_the_bottom, both_halves, other_half_leaves, written_again,
            same_condition, same_pair, same_guard, index_after, other_pointer]


@pytest.mark.parametrize("kernel", _silent(), ids=lambda f: f.__name__)
def test_what_is_right_stays_silent(kernel: Callable[..., None]) -> None:
    trace(kernel)


STATEMENTS = st.recursive(
    st.lists(st.tuples(st.sampled_from(["write", "read"]), st.integers(0, 1)), min_size=1, max_size=3),
    lambda inner: st.lists(st.one_of(
        st.tuples(st.sampled_from(["write", "read"]), st.integers(0, 1)),
        st.tuples(st.just("if"), inner, st.none() | inner),
        st.tuples(st.just("for"), inner),
        st.tuples(st.just("loop"), inner, inner),
        st.tuples(st.just("while"), inner),
    ), min_size=1, max_size=4), max_leaves=10)


def _paths(program: Any, states: set[frozenset[int]], wrong: list[int], homes: dict[int, tuple[int, ...]],
           here: tuple[int, ...] = (), first: int = 0) -> set[frozenset[int]]:
    """The sets of names that have values after the program, over all paths. `wrong` collects reads without a value, but not in the block
    that makes the name."""
    for at, (kind, *rest) in enumerate(program, first):
        if kind == "write":
            homes.setdefault(rest[0], here)
            states = {state | {rest[0]} for state in states}
        elif kind == "read" and rest[0] in homes and homes[rest[0]] != here[:len(homes[rest[0]])]:
            wrong += [rest[0]] if any(rest[0] not in state for state in states) else []
        elif kind == "if":
            taken = _paths(rest[0], states, wrong, homes, (*here, at, 0))
            states = taken | (states if rest[1] is None else _paths(rest[1], states, wrong, homes, (*here, at, 1)))
        elif kind in ("for", "while"):
            states = states | _paths(rest[0], states, wrong, homes, (*here, at))
        elif kind == "loop":
            left = _paths(rest[0], states, wrong, homes, (*here, at))
            _paths(rest[1], left, wrong, homes, (*here, at), len(rest[0]))
            states = left
    return states


def _write(program: Any, n: Numbers, place: Ptr[u32], names: dict[int, Numbers]) -> None:
    for kind, *rest in program:
        if kind == "write":
            if rest[0] in names:
                mov.u32(names[rest[0]], n)
            else:
                names[rest[0]] = mov.u32(n)
        elif kind == "read" and rest[0] in names:
            store.global_.u32(place, names[rest[0]])
        elif kind == "if":
            with if_(setp.eq.u32(ld.global_.u32(place), 0)):
                _write(rest[0], n, place, names)
            if rest[1] is not None:
                with else_():
                    _write(rest[1], n, place, names)
        elif kind == "for":
            with for_range(n):
                _write(rest[0], n, place, names)
        elif kind == "while":
            with loop() as repeat:
                repeat.break_if(n == 0)
                _write(rest[0], n, place, names)
        elif kind == "loop":
            with loop() as repeat:
                _write(rest[0], n, place, names)
                repeat.break_if(n == 0)
                _write(rest[1], n, place, names)


@given(STATEMENTS)
@settings(deadline=None, max_examples=250, suppress_health_check=[HealthCheck.too_slow])
def test_it_is_an_error_just_where_a_path_comes_without_a_value(program: Any) -> None:
    """Oracle: every path is followed, with bodies once or not at all."""
    wrong: list[int] = []
    _paths(program, {frozenset()}, wrong, {})

    def kernel(place: Ptr[u32], n: Numbers) -> None:
        _write(program, n, place, {})

    if wrong:
        with pytest.raises(TraceError, match="first written in this"):
            trace(kernel)
    else:
        trace(kernel)
