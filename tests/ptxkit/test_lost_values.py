"""Values that a `with` body would lose without a word: each is an error at its line, and what is right stays silent."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ptxkit import Ptr, Reg, Ring, Vec, else_, for_range, func, if_, kernel, loop, ring, smem, tid
from ptxkit.dsl.raw import raw
from ptxkit.errors import TraceError
from ptxkit.ptx import add, div, exit, ld, max, mov, setp, sub
from ptxkit.ptx import st as store
from ptxkit.types import b32, f32, s32, u32, u64
from tests.ptxkit.machine import lines, run, stored, trace
from tests.ptxkit.refusal import refused

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
Numbers = Reg[u32]


@contextmanager
def counted(n: Numbers) -> Iterator[None]:
    """A `loop` that counts to `n`, and at least once."""
    k = mov.u32(0)
    with loop() as repeat:
        yield
        add.u32(k, k, 1)
        repeat.break_if(k >= n)


LOOPS: dict[str, Callable[[Any], AbstractContextManager[Any]]] = {
    "for_range": for_range, "loop": counted, "ring": lambda n: ring(3, n), "ring of before": lambda n: ring(Ring(2), n),
}


# --------------------------------------------------------------------------------------------------- a name of the caller


@pytest.mark.parametrize("repeat", LOOPS.values(), ids=LOOPS)
def test_a_name_that_the_body_binds_again_is_lost(repeat: Callable[[Any], AbstractContextManager[Any]]) -> None:
    def kernel(x: Ptr[f32], n: Numbers) -> None:
        total = mov.f32(0.0)
        with repeat(n):
            total = add.rn.f32(total, ld.global_.f32(x))                         # wrong

    refused(kernel, "the loop loses `total`", "total=total) as loop:` and `loop.total = ...`", "`add.rn.f32(total, total, x)`")


@pytest.mark.parametrize("repeat", LOOPS.values(), ids=LOOPS)
def test_a_name_bound_to_another_register_emits_nothing_and_is_lost(repeat: Callable[[Any], AbstractContextManager[Any]]) -> None:
    def kernel(x: Ptr[f32], n: Numbers) -> None:
        last = mov.f32(0.0)
        with repeat(n):
            value = ld.global_.f32(x)
            store.global_.f32(x, sub.rn.f32(value, last))
            last = value                                                         # wrong

    refused(kernel, "the loop loses `last`", "`mov.f32(last, ...)`")


def test_slots_attributes_and_free_names_are_names_too() -> None:
    class State:
        total: Any

    def slot(n: Numbers) -> None:
        sums = [[mov.u32(0)], [mov.u32(1)]]
        with for_range(n):
            sums[1][0] = sums[1][0] + 1                                          # wrong

    def key(n: Numbers) -> None:
        sums = {"a": mov.u32(0)}
        with for_range(n):
            sums["a"] = sums["a"] + 1                                            # wrong

    def attribute(n: Numbers) -> None:
        state = State()
        state.total = n
        with for_range(4):
            state.total = state.total + 1                                        # wrong

    def nonlocal_(n: Numbers) -> None:
        def more() -> None:
            nonlocal n
            n = n + 1

        with for_range(4):
            more()                                                               # not at this line: names are assigned anywhere

    def vector(n: Numbers) -> None:
        sums = Vec([mov.u32(0), mov.u32(0)])
        with for_range(n):
            sums = Vec([each + 1 for each in sums])                              # wrong

    for wrong, word in ((slot, "sums[1][0]"), (key, "sums['a']"), (attribute, "state.total"), (vector, "sums[0]")):
        refused(wrong, f"the loop loses `{word}`")
    with pytest.raises(TraceError, match="the loop loses `n`"):
        trace(nonlocal_)


FAR: dict[str, Any] = {}


class Slotted:
    __slots__ = ("total",)
    total: Any


@dataclass(frozen=True)
class Frozen:
    total: Any


def test_objects_of_other_kinds_globals_and_functions_hold_names_too() -> None:
    """`last = value`: nothing reads the register of the body after it, so that only the names tell."""
    def slots(x: Ptr[u32], n: Numbers) -> None:
        state = Slotted()
        state.total = mov.u32(0)
        with for_range(n) as i:
            store.global_.u32(x, state.total)
            state.total = mov.u32(i)                                             # wrong

    def frozen(x: Ptr[u32], n: Numbers) -> None:
        state = Frozen(mov.u32(0))
        with for_range(n) as i:
            store.global_.u32(x, state.total)
            state = replace(state, total=i + 1)                                  # wrong

    def namespace(x: Ptr[u32], n: Numbers) -> None:
        state = SimpleNamespace(total=mov.u32(0))
        with for_range(n) as i:
            store.global_.u32(x, state.total)
            state.total = mov.u32(i)                                             # wrong

    def rotated(x: Ptr[u32], n: Numbers) -> None:
        state = deque([mov.u32(0), mov.u32(1)])
        with for_range(n) as i:
            store.global_.u32(x, state.popleft())
            state.append(mov.u32(i))

    def far(x: Ptr[u32], n: Numbers) -> None:
        FAR["total"] = mov.u32(0)
        with for_range(n) as i:
            store.global_.u32(x, FAR["total"])
            FAR["total"] = mov.u32(i)                                            # wrong

    def body(x: Ptr[u32], n: Numbers) -> None:
        total = mov.u32(0)

        def step(i: Numbers) -> None:
            nonlocal total
            store.global_.u32(x, total)
            total = mov.u32(i)                                                   # wrong

        repeated(n, step)

    def private(x: Ptr[u32], n: Numbers) -> None:
        class Own:
            __slots__ = ("__total",)

            def __init__(self) -> None:
                self.__total = mov.u32(0)

            def step(self, i: Numbers) -> None:
                store.global_.u32(x, self.__total)
                self.__total = mov.u32(i)                                        # wrong

        own = Own()
        with for_range(n) as i:
            own.step(i)

    def default(x: Ptr[u32], n: Numbers) -> None:
        def step(i: Numbers, kept: Any = [mov.u32(0)]) -> None:  # noqa: B006, B008
            store.global_.u32(x, kept[0])
            kept[0] = mov.u32(i)                                                 # wrong

        repeated(n, step)

    def given(x: Ptr[u32], n: Numbers) -> None:
        def step(kept: Any, i: Numbers) -> None:
            store.global_.u32(x, kept[0])
            kept[0] = mov.u32(i)                                                 # wrong

        repeated(n, partial(step, [mov.u32(0)]))

    for wrong in (private, default, given):
        refused(wrong, "the loop loses `")
    for wrong, word in ((slots, "state.total"), (frozen, "state.total"), (namespace, "state.total"), (far, "FAR['total']"),
                        (body, "total")):
        refused(wrong, f"the loop loses `{word}`")
    with pytest.raises(TraceError, match=r"the loop loses `state.0.`"):
        trace(rotated)                                                           # both registers are of before the loop


def repeated(n: Numbers, step: Callable[[Numbers], None]) -> None:
    """A loop that knows nothing of the names that its body binds."""
    with for_range(n) as i:
        step(i)


def test_a_register_of_an_earlier_trace_is_none_of_this_one() -> None:
    def kept(x: Ptr[u32], n: Numbers) -> None:
        with for_range(n) as i:
            FAR["kept"] = i + 1
            store.global_.u32(x, FAR["kept"])

    for _ in range(2):
        trace(kept)


def test_places_are_values_too() -> None:
    def pointer(x: Ptr[u32], n: Numbers) -> None:
        with for_range(n):
            store.global_.u32(x, 1)
            x = x + 4                                                            # wrong

    def shared(n: Numbers) -> None:
        place = smem.array(u32, 64).at(0)
        with for_range(n):
            store.shared__cta.u32(place, 1)
            place = place + 1                                                    # wrong

    refused(pointer, "the loop loses `x`", "compute `x` from the loop's index")
    refused(shared, "the loop loses `place`")


def test_the_names_around_a_loop_in_a_context_manager_are_those_of_its_user() -> None:
    @contextmanager
    def tiles(n: Numbers) -> Iterator[Numbers]:
        with for_range(n) as i:
            yield i

    def kernel(n: Numbers) -> None:
        total = mov.u32(0)
        with tiles(n) as i:
            total = total + i                                                    # wrong

    refused(kernel, "the loop loses `total`")


def test_in_an_exit_stack() -> None:
    def kernel(n: Numbers) -> None:
        total = mov.u32(0)
        with ExitStack() as stack:
            stack.enter_context(for_range(n))
            total = total + 1                                                    # wrong

    refused(kernel, "the loop loses `total`")


# --------------------------------------------------------------------------------------------------- a register of the body


@pytest.mark.parametrize("repeat", [LOOPS["for_range"], LOOPS["ring"]], ids=["for_range", "ring"])
def test_a_register_of_the_body_is_read_after_it(repeat: Callable[[Any], AbstractContextManager[Any]]) -> None:
    def kernel(x: Ptr[u32], n: Numbers) -> None:
        with repeat(n):
            found = ld.global_.u32(x)                                            # wrong
        store.global_.u32(x, found)

    refused(kernel, "first written in this loop's body and read after it (line ", "loop.total")


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

    refused(early, "first written in this loop's body", "loop(total=zero)")
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

    for wrong in (taken, other, guarded, as_condition, other_condition, changed_condition):
        refused(wrong, "first written in this `with ", "Make it before the `with`")


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


# --------------------------------------------------------------------------------------------------- what is right


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
            same_condition, same_guard, index_after, other_pointer]


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
           here: tuple[int, ...] = ()) -> set[frozenset[int]]:
    """The sets of names that have values after the program, over all paths. `wrong` collects reads without a value, but not in the block
    that makes the name."""
    for at, (kind, *rest) in enumerate(program):
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
            _paths(rest[1], left, wrong, homes, (*here, at))
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
@settings(deadline=None, max_examples=400, suppress_health_check=[HealthCheck.too_slow])
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


# --------------------------------------------------------------------------------------------------- the carried form


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


# --------------------------------------------------------------------------------------------------- signs, and Python's own words


def test_comparisons_of_unsigned_registers() -> None:
    def below_zero(n: Numbers) -> None:
        _ = n < 0

    def at_least_zero(n: Reg[u64]) -> None:
        _ = n >= 0

    def negative(n: Numbers) -> None:
        _ = n > -1

    def equal(n: Numbers) -> None:
        _ = n == -1

    def bits(n: Reg[b32]) -> None:
        _ = n < -1

    def mixed(n: Numbers, m: Reg[s32]) -> None:
        _ = n < m

    def special(m: Reg[s32]) -> None:
        _ = m == tid.x

    def large(m: Reg[s32]) -> None:
        _ = m < 0xFFFFFFFF

    def quotient(n: Numbers) -> None:
        _ = n // -2

    def rest(n: Numbers, m: Reg[s32]) -> None:
        _ = m % n

    def rounds(m: Reg[s32]) -> None:
        with for_range(m):                                                       # wrong
            pass

    for wrong, words in ((below_zero, "is always False"), (at_least_zero, "is always True"), (negative, "`mov.s32(x) > -1`"),
                         (equal, "for these bits 4294967295"), (bits, "`mov.s32(x) < -1`"), (mixed, "`mov.s32(x) < mov.s32(y)`"),
                         (special, "`mov.u32(x) == mov.u32(y)`"), (large, "write -1, or `mov.u32(x) < 4294967295`"),
                         (quotient, "`mov.s32(x) // -2`"), (rest, "`mov.s32(x) % mov.s32(y)`"), (rounds, "`mov.u32(max.s32(n, 0))`")):
        refused(wrong, words)

    def right(n: Numbers, m: Reg[s32], b: Reg[b32]) -> None:
        n > 0, n <= 0, n == 0, n < 0xFFFFFFFF, m < 0, m >= -1, m == -1, b == -1, b == m, mov.s32(n) < 0, mov.s32(n) > -1
        _ = mov.s32(n) < mov.s32(tid.x)

    trace(right)


def test_a_register_is_no_sequence_and_no_context() -> None:
    def iterated(n: Numbers) -> None:
        for _ in n:                                                              # wrong
            pass

    def unpacked(n: Numbers) -> None:
        _, _ = n                                                                 # wrong

    def contained(n: Numbers) -> None:
        _ = 3 in n                                                               # wrong

    def entered(n: Numbers) -> None:
        with n > 3:                                                              # wrong
            pass

    for wrong in (iterated, unpacked, contained):
        refused(wrong, "is one value and no sequence", "`with for_range(n) as i:`")
    refused(entered, "`with` takes no register", "`with if_(p):`")


def test_constants_of_opcodes() -> None:
    def below_zero(n: Numbers) -> None:
        setp.lt.u32(n, 0)

    def at_least_zero(n: Reg[u64]) -> None:
        setp.ge.u64(n, 0)

    def negative(n: Numbers) -> None:
        setp.hi.u32(n, -2)

    def combined(n: Numbers) -> None:
        setp.le.and_.u32(n, -2, n == 0)

    def large(m: Reg[s32]) -> None:
        setp.lt.s32(m, 0xFFFFFFFE)

    def clamp(n: Numbers) -> None:
        max.u32(n, 0)

    def quotient(n: Numbers) -> None:
        div.u32(n, -2)

    def left(n: Numbers) -> None:
        setp.le.u32(0, n)

    def left_below(n: Numbers) -> None:
        setp.hi.u32(0, n)

    def left_negative(n: Numbers) -> None:
        max.u32(-1, n)

    for wrong, words in ((below_zero, "always False: a .u32"), (at_least_zero, "`setp.ge.s64`"),
                         (negative, "`setp.gt.s32`, for these bits 4294967294"),
                         (combined, "`setp.le.and.s32`"), (large, "write -2, or `setp.lt.u32`"), (clamp, "is the other operand"),
                         (quotient, "write `div.s32`"), (left, "`setp.le.u32(0, x)` is `setp.ge.u32(x, 0)`: `setp.ge.u32` with 0 is"),
                         (left_below, "always False"), (left_negative, "`max.s32`")):
        refused(wrong, words)

    def right(n: Numbers, m: Reg[s32]) -> None:
        setp.eq.u32(n, -1), setp.lt.s32(m, -1), setp.gt.u32(n, 0), setp.lt.s32(m, 0), setp.lt.u32(n, 0xFFFFFFFE), max.s32(m, 0)
        setp.lt.u32(0, n), setp.ge.u32(0, n), setp.eq.u32(-1, n), div.u32(0, n), sub.u32(0, n)
        setp.gt.u32(n, raw("-2147483648"))                                       # as compilers write 2^31

    trace(right)


def test_python_cannot_run_what_runs_on_the_gpu() -> None:
    def if_statement(n: Numbers) -> None:
        if if_(n == 0):                                                          # wrong
            add.u32(n, n, 1)

    def for_statement(n: Numbers) -> None:
        for _ in for_range(n):                                                   # type: ignore[attr-defined] # wrong
            add.u32(n, n, 1)

    def while_statement(n: Numbers) -> None:
        while loop():                                                            # wrong
            add.u32(n, n, 1)

    for wrong, words in ((if_statement, "write `with if_(p):`"), (for_statement, "write `with for_range(n) as i:`"),
                         (while_statement, "write `with loop():`")):
        refused(wrong, words)


def test_the_line_of_a_block_or_cluster_that_cannot_be() -> None:
    @kernel(block=2048)
    def large(n: Numbers) -> None:
        pass

    @kernel(block=32, cluster=20)
    def wide(n: Numbers) -> None:
        pass

    @kernel(block=lambda given_: given_["THREADS"])
    def of_config(n: Numbers, *, THREADS: int = 32) -> None:
        pass

    for wrong, words in ((large, "1 to 1024 threads, not 2048"), (wide, "1 to 16 CTAs")):
        with pytest.raises(TraceError, match=words) as caught:
            wrong.trace()
        assert caught.value.position is not None
        assert caught.value.position.line == wrong.function.__code__.co_firstlineno
    first = test_the_line_of_a_block_or_cluster_that_cannot_be.__code__.co_firstlineno
    for config, words in (({"THREADS": 2048}, "not 2048"), ({"cluster": 20}, "stands in @kernel"), ({"block": 2048}, "stands in @kernel")):
        with pytest.raises(TraceError, match=words) as caught:
            of_config.trace(**config)
        assert caught.value.position is not None
        assert (caught.value.position.file, caught.value.position.line > first + 15) == (__file__, True)


def test_an_address_of_mapa_is_not_of_this_cta() -> None:
    from ptxkit import cluster_ctarank
    from ptxkit.ptx import atom, mapa

    def load(n: Numbers) -> None:
        ld.shared__cta.u32(mapa.shared__cluster.u32(smem.array(u32, 4), 1))

    def default(n: Numbers) -> None:
        there = mapa.shared__cluster.u32(smem.array(u32, 4), n)
        store.shared.u32(there + 4, n)                                           # wrong

    def atomic(n: Numbers) -> None:
        there = add.u32(mov.u32(mapa.shared__cluster.u32(smem.array(u32, 4), n)), 8)
        atom.shared.add.u32(there, n)                                            # wrong

    def carried(n: Numbers) -> None:
        with for_range(n, there=mapa.shared__cluster.u32(smem.array(u32, 4), n)) as rounds:
            ld.shared.u32(rounds.there)                                          # wrong
            rounds.there = rounds.there + 4

    def bits(n: Numbers) -> None:
        there = mapa.shared__cluster.u32(smem.array(u32, 4), n) ^ 4
        ld.shared.u32(there)                                                     # wrong

    for wrong in (load, default, atomic, carried, bits):
        refused(wrong, "one that mapa made is for `.shared::cluster`", cluster=2)

    def right(n: Numbers) -> None:
        words = smem.array(u32, 4)
        ld.shared__cluster.u32(mapa.shared__cluster.u32(words, 1))
        ld.shared__cta.u32(mapa.shared__cluster.u32(words, mov.u32(cluster_ctarank)))
        there, here = mapa.shared__cluster.u32(words, 1), words.at(0).register()
        ld.shared__cta.u32(here + (there - mapa.shared__cluster.u32(words, 1)))  # a distance is no address
        ld.shared__cta.u32(there & 0xFFFFFF)                                     # without the rank

    trace(right, cluster=2)
