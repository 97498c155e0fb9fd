"""Control flow: what each construct emits, and that it does what the same Python program does."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ptxkit import Ptr, Reg, Ring, for_range, if_, label, loop, ring, smem
from ptxkit import func as device_function
from ptxkit.flow import else_
from ptxkit.grammar import tree
from ptxkit.ptx import add, bra, mov, mul, setp
from ptxkit.ptx import st as store
from ptxkit.types import u32
from tests.ptxkit import machine
from tests.ptxkit.machine import lines, run, stored, trace

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
LAW = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])


# --------------------------------------------------------------------------------------------------- what is emitted


def test_if() -> None:
    def kernel(n: Reg[u32]) -> None:
        with if_(n == 3):
            add.u32(n, n, 1)

    assert lines(trace(kernel)) == ["setp.eq.u32 %p0, %r0, 3;", "@!%p0 bra $else_1;", "add.u32 %r0, %r0, 1;", "$else_1:", "ret;"]


def test_if_of_a_negated_predicate() -> None:
    def kernel(n: Reg[u32]) -> None:
        with if_(~(n == 3)):
            add.u32(n, n, 1)

    assert lines(trace(kernel))[1] == "@%p0 bra $else_1;"


def test_else() -> None:
    def kernel(n: Reg[u32]) -> None:
        with if_(n == 3):
            add.u32(n, n, 1)
        with else_():
            add.u32(n, n, 2)

    assert lines(trace(kernel))[1:] == ["@!%p0 bra $else_1;", "add.u32 %r0, %r0, 1;", "bra $endif_2;", "$else_1:",
                                        "add.u32 %r0, %r0, 2;", "$endif_2:", "ret;"]


def test_loop() -> None:
    def kernel(n: Reg[u32]) -> None:
        with loop() as repeat:
            add.u32(n, n, 1)
            repeat.break_if(n == 9)
            repeat.continue_if(n == 3)
            repeat.break_()

    assert lines(trace(kernel)) == ["$loop_1:", "add.u32 %r0, %r0, 1;", "setp.eq.u32 %p0, %r0, 9;", "@%p0 bra $done_2;",
                                    "setp.eq.u32 %p1, %r0, 3;", "@%p1 bra $loop_1;", "bra $done_2;", "bra $loop_1;", "$done_2:", "ret;"]


def test_a_branch_may_go_forward_or_back() -> None:
    def kernel(n: Reg[u32]) -> None:
        top, out = label("top"), label("out")
        top.place()
        add.u32(n, n, 1)
        bra(out, pred=n == 9)
        bra(top)
        out.place()

    assert lines(trace(kernel)) == ["$top_1:", "add.u32 %r0, %r0, 1;", "setp.eq.u32 %p0, %r0, 9;", "@%p0 bra $out_2;", "bra $top_1;",
                                    "$out_2:", "ret;"]


def test_a_kernel_ends_in_one_ret() -> None:
    def empty() -> None:
        pass

    def returns(n: Reg[u32]) -> None:
        from ptxkit.ptx import ret

        ret(pred=n == 0)

    def leaves() -> None:
        from ptxkit.ptx import exit

        exit()

    assert lines(trace(empty)) == ["ret;"]
    assert lines(trace(returns))[-2:] == ["@%p0 ret;", "ret;"]
    assert lines(trace(leaves)) == ["exit;"]


# --------------------------------------------------------------------------------------------------- what it does


@given(st.integers(1, 9), st.lists(st.integers(0, 12), min_size=1, max_size=4))
@LAW
def test_a_ring_runs_on_over_loops_for_any_stage_count(stages: int, rounds: list[int]) -> None:
    def kernel(out: Ptr[u32], n: Reg[u32]) -> None:
        position = Ring(stages)
        for i, count in enumerate(rounds):
            with ring(position, n if i == 0 else count) as (k, stage, parity):
                for value in (k, stage, parity):
                    store.global_.u32(out, value)

    found = stored(run(trace(kernel), {"out": 0, "n": rounds[0]}))
    expected, slot = [], 0
    for count in rounds:
        for k in range(count):
            expected += [k, slot % stages, slot // stages & 1]
            slot += 1
    assert found == expected


@given(st.integers(0, 40), st.integers(0, 45), st.integers(1, 7), st.booleans())
@LAW
def test_for_range_counts_as_python_does(start: int, stop: int, step: int, in_registers: bool) -> None:
    def kernel(out: Ptr[u32], a: Reg[u32], b: Reg[u32], c: Reg[u32]) -> None:
        first, last, by = (a, b, c) if in_registers else (start, stop, step)
        with for_range(last, start=first, step=by) as i:
            store.global_.u32(out, i)

    assert stored(run(trace(kernel), {"out": 0, "a": start, "b": stop, "c": step})) == list(range(start, stop, step))


VARIABLES = 3
BASE = 1024
LOOPS = ("for", "ring", "loop")
Program = list[tuple[Any, ...]]


def programs() -> st.SearchStrategy[Program]:
    """Random structured programs over three variables: in-place writes, uses as an index, branches, loops that end."""
    variable = st.integers(0, VARIABLES - 1)
    simple = st.one_of(
        st.tuples(st.just("add"), variable, st.integers(1, 5)),
        st.tuples(st.just("set"), variable, variable),
        st.tuples(st.just("use"), variable),
        st.tuples(st.just("use"), variable),
    )
    condition = st.one_of(st.tuples(variable, st.sampled_from(["eq", "ne"]), st.integers(0, 12)),
                          st.tuples(variable, st.sampled_from(["lt", "ge"]), st.integers(1, 12)))

    def nested(inner: st.SearchStrategy[Program]) -> st.SearchStrategy[Program]:
        compound = st.one_of(
            simple,
            st.tuples(st.just("if"), condition, inner, st.none() | inner),
            st.tuples(st.just("for"), st.integers(0, 3), inner),
            st.tuples(st.just("ring"), st.integers(1, 3), st.integers(0, 4), inner),
            st.tuples(st.just("loop"), st.integers(1, 3), condition, inner),
            st.tuples(st.just("skip"), condition, inner),
        )
        return st.lists(compound, min_size=1, max_size=4)

    return st.recursive(st.lists(simple, min_size=1, max_size=4), nested, max_leaves=12)


RELATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "ge": lambda a, b: a >= b,
}


class Written:
    """The program written with ptxkit."""

    def __init__(self, values: list[Reg[u32]]) -> None:
        self.values = values
        self.array = smem.array(u32, 1 << 12)

    def condition(self, condition: tuple[int, str, int]) -> Any:
        index, relation, bound = condition
        return RELATIONS[relation](self.values[index], bound)

    def use(self, index: Any) -> None:
        store.shared__cta.u32(self.array.at(index), 0)
        store.shared__cta.u32(self.array.at(index) + 1, 0)

    def use_all(self) -> None:
        for value in self.values:
            self.use(value)

    def run(self, program: Program) -> None:
        for kind, *rest in program:
            if kind in LOOPS:
                self.use_all()                       # so that the loop finds their addresses computed before it
            match kind, rest:
                case "add", (index, amount):
                    add.u32(self.values[index], self.values[index], amount)
                case "set", (to, source):
                    mov.u32(self.values[to], self.values[source])
                case "use", (index,):
                    self.use(self.values[index])
                case "if", (condition, yes, no):
                    with if_(self.condition(condition)):
                        self.run(yes)
                    if no is not None:
                        with else_():
                            self.run(no)
                case "for", (count, body):
                    with for_range(count) as i:
                        self.use(i)
                        self.use_all()
                        self.run(body)
                        self.use(i)
                case "ring", (stages, count, body):
                    with ring(stages, count) as (_, stage, parity):
                        self.use(stage)
                        self.use_all()
                        self.run(body)
                        self.use(parity)
                case "loop", (count, condition, body):
                    turns = mov.u32(0)
                    with loop() as repeat:
                        self.use(turns)
                        self.use_all()
                        self.run(body)
                        add.u32(turns, turns, 1)
                        self.use(turns)
                        repeat.break_if(turns == count)
                        repeat.continue_if(self.condition(condition))
                        self.use(turns)
                case "skip", (condition, body):
                    past = label("past")
                    bra(past, pred=self.condition(condition))
                    self.run(body)
                    past.place()


class Model:
    """The program in Python: the indices that it uses, in order."""

    def __init__(self, values: list[int]) -> None:
        self.values = values
        self.used: list[int] = []

    def condition(self, condition: tuple[int, str, int]) -> bool:
        index, relation, bound = condition
        return bool(RELATIONS[relation](self.values[index], bound))

    def run(self, program: Program) -> None:
        for kind, *rest in program:
            if kind in LOOPS:
                self.used += self.values
            match kind, rest:
                case "add", (index, amount):
                    self.values[index] += amount
                case "set", (to, source):
                    self.values[to] = self.values[source]
                case "use", (index,):
                    self.used.append(self.values[index])
                case "if", (condition, yes, no):
                    if self.condition(condition):
                        self.run(yes)
                    elif no is not None:
                        self.run(no)
                case "for", (count, body):
                    for i in range(count):
                        self.used += [i, *self.values]
                        self.run(body)
                        self.used.append(i)
                case "ring", (stages, count, body):
                    for k in range(count):
                        self.used += [k % stages, *self.values]
                        self.run(body)
                        self.used.append(k // stages & 1)
                case "loop", (count, condition, body):
                    turns = 0
                    while True:
                        self.used += [turns, *self.values]
                        self.run(body)
                        turns += 1
                        self.used.append(turns)
                        if turns == count:
                            break
                        if self.condition(condition):
                            continue
                        self.used.append(turns)
                case "skip", (condition, body):
                    if not self.condition(condition):
                        self.run(body)


@given(programs())
@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
def test_programs_do_what_python_does_and_reused_addresses_are_never_stale(program: Program) -> None:
    """Addresses are computed once per region and reused; every use must still see the variable's value of that moment."""

    def kernel(a: Reg[u32], b: Reg[u32], c: Reg[u32]) -> None:
        Written([a, b, c]).run(program)

    model = Model([1, 2, 3])
    model.run(program)
    events = run(trace(kernel), {"a": 1, "b": 2, "c": 3}, {"kernel_smem": BASE})
    assert [e.operands[0] for e in events] == [BASE + 4 * i + extra for i in model.used for extra in (0, 4)]


# --------------------------------------------------------------------------------------------------- reuse of addresses


def count(traced: Any, opcode: str) -> int:
    return machine.opcodes(traced).count(opcode)


def test_an_address_is_computed_once_in_a_region() -> None:
    def kernel(i: Reg[u32]) -> None:
        array = smem.array(u32, 64)
        for _ in range(5):
            store.shared__cta.u32(array.at(i), 0)
        with if_(i == 0):
            store.shared__cta.u32(array.at(i), 0)

    assert count(trace(kernel), "mad.lo.u32") == 1


@pytest.mark.parametrize("write", [
    lambda i: add.u32(i, i, 1),
    lambda i: mov.u32(i, 7),
    lambda i: add.u32(i, i, 1, pred=i == 0),
])
def test_a_write_in_place_is_seen(write: Callable[[Reg[u32]], None]) -> None:
    def kernel(i: Reg[u32]) -> None:
        array = smem.array(u32, 64)
        store.shared__cta.u32(array.at(i), 0)
        write(i)
        store.shared__cta.u32(array.at(i), 0)

    assert count(trace(kernel), "mad.lo.u32") == 2


def test_a_vector_destination_is_a_write_too() -> None:
    from ptxkit.ptx import ld

    def kernel(p: Ptr[u32], i: Reg[u32], j: Reg[u32]) -> None:
        array = smem.array(u32, 64)
        store.shared__cta.u32(array.at(j), 0)
        ld.global_.v2.u32((i, j), p)
        store.shared__cta.u32(array.at(j), 0)

    assert count(trace(kernel), "mad.lo.u32") == 2


def test_nothing_computed_in_a_branch_is_used_after_it() -> None:
    def kernel(i: Reg[u32]) -> None:
        array = smem.array(u32, 64)
        with if_(i == 0):
            store.shared__cta.u32(array.at(i), 0)
        with else_():
            store.shared__cta.u32(array.at(i), 0)
        store.shared__cta.u32(array.at(i), 0)

    assert count(trace(kernel), "mad.lo.u32") == 3


def test_a_label_forgets() -> None:
    def kernel(i: Reg[u32]) -> None:
        array = smem.array(u32, 64)
        top = label()
        bra(top, pred=i == 3)
        store.shared__cta.u32(array.at(i), 0)
        top.place()
        store.shared__cta.u32(array.at(i), 0)

    assert count(trace(kernel), "mad.lo.u32") == 2


# --------------------------------------------------------------------------------------------------- depth


@given(st.integers(1, 30))
@settings(deadline=None, max_examples=10)
def test_nesting_has_no_limit(depth: int) -> None:
    def kernel(out: Ptr[u32], n: Reg[u32]) -> None:
        with ExitStack() as stack:
            for level in range(depth):
                stack.enter_context(if_(n > level))
            store.global_.u32(out, mul.lo.u32(n, 2))

    assert stored(run(trace(kernel), {"out": 0, "n": depth})) == [2 * depth]
    assert stored(run(trace(kernel), {"out": 0, "n": depth - 1})) == []


def test_func_body_has_its_own_control_flow() -> None:
    @device_function
    def clamp(x: Reg[u32]) -> Reg[u32]:
        result = mov.u32(x)
        with if_(setp.gt.u32(x, 9)):
            mov.u32(result, 9)
        return result

    def kernel(out: Ptr[u32], n: Reg[u32]) -> None:
        with if_(n == 0):
            store.global_.u32(out, clamp(n))

    traced = trace(kernel)
    (function, entry) = traced.module.functions
    labels = [s.name for f in (function, entry) for s in f.body or () if isinstance(s, tree.Label)]
    assert labels == ["$else_1", "$else_1"]
