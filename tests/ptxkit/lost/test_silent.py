"""Lines that emit nothing or read a first value for good: blocks without `with`, opcodes without a call, names of a carried value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ptxkit import Ptr, Reg, Vec, else_, for_range, func, if_, loop, ring, smem, span, tid
from ptxkit.errors import TraceError
from ptxkit.flow import ring as again
from ptxkit.idioms import cluster_sync, elect
from ptxkit.ptx import add, bar, exit, ld, max, mov, wgmma
from ptxkit.ptx import st as store
from ptxkit.reductions import block_reduce, warp_reduce
from ptxkit.types import bf16, u32
from tests.ptxkit.machine import run, stored, trace
from tests.ptxkit.refusal import refused

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
Numbers = Reg[u32]
mma = wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16


# --------------------------------------------------------------------------------------------------- what was never entered or called


def _without_with() -> dict[str, Callable[..., None]]:
    def branch(n: Numbers) -> None:
        if_(n == 0)                                                              # wrong
        add.u32(n, n, 1)

    def other(n: Numbers) -> None:
        with if_(n == 0):
            add.u32(n, n, 1)
        else_()                                                                  # wrong
        add.u32(n, n, 2)

    def counting(n: Numbers) -> None:
        for_range(n)                                                             # wrong

    def carrying(n: Numbers) -> None:
        for_range(n, total=n)                                                    # wrong

    def repeating(n: Numbers) -> None:
        loop()                                                                   # wrong

    def rounds(n: Numbers) -> None:
        ring(3, n)                                                               # wrong

    def timed(n: Numbers) -> None:
        span("load")                                                             # wrong

    def in_a_body(n: Numbers) -> None:
        with for_range(n):
            if_(n == 3)                                                          # wrong

    return {each.__name__: each for each in (branch, other, counting, carrying, repeating, rounds, timed, in_a_body)}


@pytest.mark.parametrize("wrong", _without_with().values(), ids=_without_with())
def test_a_block_without_with_is_an_error(wrong: Callable[..., None]) -> None:
    refused(wrong, "stands here without `with`", "write `with ")


def test_a_loop_that_nothing_leaves() -> None:
    def endless(n: Numbers) -> None:
        with loop():                                                             # wrong
            add.u32(n, n, 1)

    def inner(n: Numbers) -> None:
        with loop(), for_range(4) as i:                                          # wrong
            add.u32(n, n, i)

    for wrong in (endless, inner):
        refused(wrong, "this loop never ends", "`l.break_if(p)`")

    def right(n: Numbers) -> None:
        with loop():
            exit(pred=n == 3)
        with loop() as outer, loop():
            outer.break_if(n == 4)
        with loop() as other:
            other.continue_if(n == 3)
            other.break_()

    trace(right)


def test_a_block_of_a_device_function() -> None:
    @func
    def half(x: Reg[u32]) -> Reg[u32]:
        if_(x > 9)
        return add.u32(x, 0)

    def kernel(n: Numbers) -> None:
        half(n)

    with pytest.raises(TraceError, match="stands here without `with`"):
        trace(kernel)


def test_a_block_may_be_made_before_it_is_entered() -> None:
    def kernel(out: Ptr[u32], n: Numbers) -> None:
        counted = for_range(n, total=mov.u32(0))
        with counted as rounds:
            rounds.total = rounds.total + 2
        store.global_.u32(out, rounds.total)

    assert stored(run(trace(kernel), {"out": 0, "n": 4})) == [8]


def _uncalled() -> dict[str, Callable[..., None]]:
    def barrier(n: Numbers) -> None:
        bar.sync  # noqa: B018 # wrong

    def fence(n: Numbers) -> None:
        wgmma.fence.sync.aligned  # noqa: B018 # wrong

    def in_a_branch(n: Numbers) -> None:
        with if_(n == 0):
            bar.sync  # noqa: B018 # wrong

    def idiom(n: Numbers) -> None:
        cluster_sync  # noqa: B018 # wrong

    def block(n: Numbers) -> None:
        else_  # noqa: B018 # wrong

    def inner(n: Numbers) -> None:
        def body() -> None:
            bar.sync  # noqa: B018 # wrong

        body()

    return {each.__name__: each for each in (barrier, fence, in_a_branch, idiom, block, inner)}


@pytest.mark.parametrize("wrong", _uncalled().values(), ids=_uncalled())
def test_an_opcode_or_idiom_without_a_call_is_an_error(wrong: Callable[..., None]) -> None:
    refused(wrong, "stands here without a call", "(...)`")


def wait_for_all() -> None:
    bar.sync  # noqa: B018


def test_a_function_that_the_kernel_names_is_read_too() -> None:
    def kernel(n: Numbers) -> None:
        wait_for_all()

    with pytest.raises(TraceError, match=r"`bar\.sync` stands here without a call") as caught:
        trace(kernel)
    assert caught.value.position is not None
    assert caught.value.position.line == wait_for_all.__code__.co_firstlineno + 1


def test_opcodes_are_values() -> None:
    def kernel(n: Numbers) -> None:
        name = bar.sync
        name(0)
        several = [add.u32, max.u32]
        several[0](n, n, 1)
        _ = bar.sync, elect, again
        wgmma.fence.sync.aligned()

    trace(kernel)


# --------------------------------------------------------------------------------------------------- names


def test_a_name_bound_in_a_branch_to_what_another_name_holds() -> None:
    def copied(x: Ptr[u32], n: Numbers) -> None:
        best, here = mov.u32(5), ld.global_.u32(x)
        with if_(here > best):
            best = here                                                          # wrong
        store.global_.u32(x, best)

    def other(x: Ptr[u32], n: Numbers) -> None:
        one, two = ld.global_.u32(x), ld.global_.u32(x + 1)
        with if_(one > two):
            larger = one
        with else_():
            larger = two                                                         # wrong
        store.global_.u32(x, larger)

    def swapped(x: Ptr[u32], n: Numbers) -> None:
        one, two = ld.global_.u32(x), ld.global_.u32(x + 1)
        with if_(one > two):
            one, two = two, one                                                  # wrong
        store.global_.v2.u32(x, (one, two))

    for wrong in (copied, other, swapped):
        refused(wrong, "only binds the name", "`mov.u32(", "selp.u32(a, b, p)`")


def test_the_loops_own_registers_and_negations_are_values_too() -> None:
    def before(x: Ptr[u32], n: Numbers) -> None:
        last = mov.u32(7)
        with ring(3, n) as (k, stage, _):
            store.global_.u32(x.at(k), last)
            last = stage                                                         # wrong

    def negated(x: Ptr[u32], n: Numbers) -> None:
        stop = ~(n > 0)
        with loop() as repeat:
            repeat.break_if(stop)
            stop = ~(ld.global_.u32(x) == 0)                                     # wrong

    def view(n: Numbers) -> None:
        tile = smem.tile(bf16, (2, 64, 64))
        here = tile[0]
        with for_range(4):
            mov.u32(n, here.at(0, 0).register())
            here = tile[1]                                                       # wrong

    for wrong, name in ((before, "last"), (negated, "stop"), (view, "here")):
        refused(wrong, f"the loop loses `{name}`")


def test_the_first_value_of_a_carried_name() -> None:
    def in_the_body(x: Ptr[u32], n: Numbers) -> None:
        total = mov.u32(0)
        with for_range(n, total=total) as rounds:
            rounds.total = total + rounds.index                                  # wrong

    def in_a_loop(x: Ptr[u32], n: Numbers) -> None:
        total = mov.u32(0)
        with loop(total=total) as rounds:
            rounds.total = rounds.total + 1
            rounds.break_if(total > 5)                                           # wrong

    def vector(x: Ptr[u32], n: Numbers) -> None:
        pair = Vec([mov.u32(0), mov.u32(0)])
        with for_range(n, pair=pair) as rounds:
            rounds.pair = Vec([rounds.pair[1], pair[0] + 1])                     # wrong

    def after(x: Ptr[u32], n: Numbers) -> None:
        total = mov.u32(0)
        with for_range(n, total=total) as rounds:
            rounds.total = rounds.total + 1
        store.global_.u32(x, total)                                              # wrong

    def after_in_a_branch(x: Ptr[u32], n: Numbers) -> None:
        total = mov.u32(0)
        with ring(2, n, total=total) as rounds:
            rounds.total = rounds.total + 1
        with if_(n == 3):
            store.global_.u32(x, total)                                          # wrong

    def never(n: Numbers) -> None:
        with for_range(n, total=n):                                              # wrong
            pass

    for wrong in (in_the_body, in_a_loop, vector):
        refused(wrong, "reads `", "the first value in every iteration", "another name")
    for wrong in (after, after_in_a_branch):
        refused(wrong, "`loop.total`, the result", "another name")
    refused(never, "never assigns `loop.total`")


def _right() -> dict[str, tuple[Callable[..., None], Callable[[int], int]]]:
    """Kernels, and what they store for n."""
    def another_name(out: Ptr[u32], n: Numbers) -> None:
        base = mov.u32(5)
        value, total = base, mov.u32(0)
        with for_range(n):
            value = base + 1
            add.u32(total, total, value)
        store.global_.u32(out, total)

    def unrolled(out: Ptr[u32], n: Numbers) -> None:
        values, total = [mov.u32(1), mov.u32(3)], mov.u32(0)
        value = values[0]
        with for_range(n):
            for value in values:
                add.u32(total, total, value)
        store.global_.u32(out, total)

    def carried_on(out: Ptr[u32], n: Numbers) -> None:
        total = mov.u32(0)
        for _ in range(3):
            with for_range(n, total=total) as rounds:
                rounds.total = rounds.total + 1
            total = rounds.total
        store.global_.u32(out, total)

    def first_by_another_name(out: Ptr[u32], n: Numbers) -> None:
        zero = mov.u32(0)
        with for_range(n, total=zero) as rounds:
            rounds.total = max.u32(rounds.total, zero + rounds.index)
        store.global_.u32(out, rounds.total + zero)

    def written_back(out: Ptr[u32], n: Numbers) -> None:
        total = mov.u32(0)
        with for_range(n, total=total) as rounds:
            rounds.total = rounds.total + 2
        mov.u32(total, rounds.total)
        store.global_.u32(out, total)

    def in_place(out: Ptr[u32], n: Numbers) -> None:
        with for_range(n, total=mov.u32(0)) as rounds:
            add.u32(rounds.total, rounds.total, 3)
        store.global_.u32(out, rounds.total)

    def nothing_to_assign(out: Ptr[u32], n: Numbers) -> None:
        with for_range(n, total=n) as rounds:
            rounds.total = rounds.total
        store.global_.u32(out, rounds.total)

    def name_of_a_branch(out: Ptr[u32], n: Numbers) -> None:
        one, two = mov.u32(4), mov.u32(6)
        here = one
        total = mov.u32(0)
        with if_(n > 2):
            here = two
            add.u32(total, total, here)
        with if_(n > 3):
            here = one
            add.u32(total, total, here)
        store.global_.u32(out, total)

    def both_halves_in_place(out: Ptr[u32], n: Numbers) -> None:
        larger, other = mov.u32(n), mov.u32(4)
        with if_(larger < other):
            mov.u32(larger, other)
        store.global_.u32(out, larger)

    return {
        "another name": (another_name, lambda n: 6 * n), "unrolled": (unrolled, lambda n: 4 * n),
        "carried on": (carried_on, lambda n: 3 * n), "first by another name": (first_by_another_name, lambda n: n - 1),
        "written back": (written_back, lambda n: 2 * n), "in place": (in_place, lambda n: 3 * n),
        "nothing to assign": (nothing_to_assign, lambda n: n),
        "a name of a branch": (name_of_a_branch, lambda n: 6 * (n > 2) + 4 * (n > 3)),
        "in place in a branch": (both_halves_in_place, lambda n: n if n > 4 else 4),
    }


@pytest.mark.parametrize(("kernel", "expected"), _right().values(), ids=_right())
def test_what_is_right_is_silent_and_right(kernel: Callable[..., None], expected: Callable[[int], int]) -> None:
    traced: Any = trace(kernel)
    for n in (1, 3, 7):
        assert stored(run(traced, {"out": 0, "n": n})) == [expected(n)]


# --------------------------------------------------------------------------------------------------- Python leaves a body


def test_python_leaves_a_body_that_runs_on_the_gpu() -> None:
    def early(x: Ptr[u32], n: Numbers) -> None:
        with if_(n == 0):                                                        # wrong
            return
        store.global_.u32(x, n)

    def in_a_loop(x: Ptr[u32], n: Numbers) -> None:
        with for_range(n) as i:                                                  # wrong
            store.global_.u32(x, i)
            return
        store.global_.u32(x, n)

    def skipped(x: Ptr[u32], n: Numbers) -> None:
        for i in range(3):
            with if_(n == i):                                                    # wrong
                continue
            store.global_.u32(x, n)

    def broken(x: Ptr[u32], n: Numbers) -> None:
        for _ in range(3):
            with loop() as spin:                                                 # wrong
                spin.break_if(n == 0)
                break
            store.global_.u32(x, n)

    def other(x: Ptr[u32], n: Numbers) -> None:
        with if_(n == 0):
            store.global_.u32(x, n)
        with else_():                                                            # wrong
            return
        store.global_.u32(x, 1)

    for wrong in (early, in_a_loop, skipped, broken, other):
        refused(wrong, "leaves this `with ", "`exit()`", "`loop.continue_if(p)`")


def test_a_body_ends_in_a_helper_that_a_with_begins() -> None:
    """The frame around the helper stands at one place all the time: it does not leave the helper's bodies."""
    @contextmanager
    def entered(x: Ptr[u32], n: Numbers) -> Iterator[None]:
        with if_(n == 0):
            store.global_.u32(x, n)
        with if_(n == 1):
            store.global_.u32(x, 2)
        yield

    def kernel(x: Ptr[u32], n: Numbers) -> None:
        with loop() as more:
            more.break_if(n == 0)
            with entered(x, n):
                pass
            with entered(x, n):
                words = 3
                store.global_.u32(x, words)

    assert stored(run(trace(kernel), {"x": 0, "n": 0})) == []


def test_python_may_end_where_the_body_ends() -> None:
    def helper(n: Numbers, x: Ptr[u32]) -> Numbers:
        total = mov.u32(0)
        with if_(n == 0):
            add.u32(total, total, n)
            return total

    def kernel(x: Ptr[u32], n: Numbers) -> None:
        helper(n, x)
        for i in range(2):
            if i:
                with span("last"):
                    continue
            with if_(n == i), for_range(n):
                for each in range(3):
                    if each == 1:
                        break
                    store.global_.u32(x, each)
            with if_(n == 3):
                continue
        with if_(n == 3), ring(2, n):
            store.global_.u32(x, n)
            return

    trace(kernel)


# --------------------------------------------------------------------------------------------------- reductions of too few threads


def test_a_reduction_where_too_few_threads_come() -> None:
    def block(n: Numbers) -> None:
        with if_(tid.x < 32):
            block_reduce(add.u32, n)                                             # wrong

    def warp(n: Numbers) -> None:
        with if_(tid.x < 7):
            warp_reduce(add.u32, n)                                              # wrong

    def elected(n: Numbers) -> None:
        with if_(elect()):
            warp_reduce(max.u32, n)                                              # wrong

    refused(block, "block_reduce is executed by all threads of the block, and at most 32 threads come here", block=128)
    for wrong in (warp, elected):
        refused(wrong, "warp_reduce is executed by all 32 lanes", block=128)

    def right(n: Numbers) -> None:
        with if_(tid.x < 64):
            warp_reduce(add.u32, n)
        with if_(tid.x // 32 == 1):
            warp_reduce(max.u32, n)

    trace(right, block=128)
