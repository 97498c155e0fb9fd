"""Bad input to a trace: Python that looks at registers, values of other traces, labels, kernels and device functions that cannot be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ptxkit import Layout, Ptr, Reg, Ring, TensorMap, for_range, if_, kernel, label, loop, smem, tid
from ptxkit import func as device_function
from ptxkit.errors import Position, TraceError
from ptxkit.flow import else_
from ptxkit.idioms import wait
from ptxkit.ptx import add, bar, bra, cp, ld, mbarrier, mov, opcode, wgmma
from ptxkit.ptx import st as store
from ptxkit.types import bf16, f32, pred, s32, u32, u64
from tests.ptxkit.machine import trace
from tests.ptxkit.refusal import line_of, refused

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]

MMA = wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16
load = cp.async_.bulk.tensor_2d.shared__cluster.global_.tile.mbarrier__complete_tx__bytes


# --------------------------------------------------------------------------------------------------- Python on registers


def test_python_cannot_look_at_a_register() -> None:
    def branch(a: Reg[u32]) -> None:
        if a == 1:
            pass

    def conjunction(a: Reg[u32]) -> None:
        _ = a == 1 and a == 2

    def negation(a: Reg[u32]) -> None:
        _ = not a

    def repeat(a: Reg[u32]) -> None:
        while a != 0:
            pass

    def member(a: Reg[u32]) -> None:
        _ = a in [1, 2]

    def chained(a: Reg[u32]) -> None:
        _ = 1 < a < 5

    def of_negated(a: Reg[u32]) -> None:
        _ = ~(a == 1) and True

    def special(a: Reg[u32]) -> None:
        _ = tid.x == 0 and True

    words = ("has no value while the kernel is being traced", "`with if_(p):`", "`p & q`")
    for function in (branch, repeat):
        refused(function, *words, at=function.__code__.co_firstlineno + 1)
    for function in (conjunction, negation, member, chained, of_negated, special):
        refused(function, *words)


def test_python_cannot_count_with_a_register() -> None:
    def unrolled(n: Reg[u32]) -> None:
        list(range(n))  # type: ignore[call-overload]

    def subscript(n: Reg[u32]) -> None:
        [1, 2, 3][n]  # type: ignore[call-overload]

    refused(unrolled, "cannot index or count in Python", "`for_range`")
    refused(subscript, "cannot index or count in Python")


@pytest.mark.parametrize(("sign", "way_out"), [("+", "add.u32(x, x, y)"), ("-", "sub.u32(x, x, y)"), ("*", "mul.lo.u32(x, x, y)"),
                                               ("&", "and_.b32(x, x, y)"), ("|", "or_.b32(x, x, y)"), ("^", "xor.b32(x, x, y)"),
                                               ("<<", "shl.b32(x, x, y)"), (">>", "shr.u32(x, x, y)")])
def test_augmented_assignment_would_rebind_silently(sign: str, way_out: str) -> None:
    def function(x: Reg[u32]) -> None:
        exec(f"x {sign}= 1", {}, {"x": x})

    with pytest.raises(TraceError) as caught:
        trace(function)
    assert f"`x {sign}= y` would silently bind the Python name to a new register" in str(caught.value)
    assert f"`{way_out}`" in str(caught.value)
    name, *modifiers = way_out.partition("(")[0].split(".")
    assert opcode(".".join([name.rstrip("_"), *modifiers]))


def test_control_flow_takes_a_predicate() -> None:
    def known() -> None:
        with if_(True):  # type: ignore[arg-type]  # wrong
            pass

    def number(n: Reg[u32]) -> None:
        with loop() as repeat:
            repeat.break_if(n)  # type: ignore[arg-type]  # wrong

    refused(known, "control flow takes a predicate register, not True", "a condition known in Python is a Python `if`")
    refused(number, "control flow takes a predicate register, not Reg[u32]")


def test_else_without_if() -> None:
    def between(n: Reg[u32]) -> None:
        with if_(n == 0):
            pass
        add.u32(n, n, 1)
        with else_():  # wrong
            pass

    def twice(n: Reg[u32]) -> None:
        with if_(n == 0):
            pass
        with else_():
            pass
        with else_():  # wrong
            pass

    for function in (between, twice):
        refused(function, "else_() must stand directly after the `with if_(...)` block")


def test_what_a_loop_counts_with() -> None:
    def wide(n: Reg[u64]) -> None:
        with for_range(n):  # type: ignore[arg-type]  # wrong
            pass

    def negative() -> None:
        with for_range(4, start=-1):  # wrong
            pass

    def fractional() -> None:
        with for_range(1.5):  # type: ignore[arg-type]  # wrong
            pass

    def stuck() -> None:
        with for_range(4, step=0):  # wrong
            pass

    def as_range(n: Reg[u32]) -> None:
        with for_range(n, 700, 256):  # type: ignore[call-overload]  # wrong
            pass

    def no_stages() -> None:
        Ring(0)

    def ended(n: Reg[u32]) -> None:
        with loop() as repeat:
            repeat.break_if(n == 0)
        repeat.break_()

    refused(ended, "this loop has ended: break and continue stand inside its `with` block")
    for function, given in ((wide, "Reg[u64](%rd0)"), (negative, "-1"), (fractional, "1.5")):
        refused(function, "an int from 0 to 2^32 - 1 or a 32-bit register", f"not {given}")
    refused(stuck, "step 0 does not end")
    refused(as_range, "`range(first, end, by)` is `for_range(end, start=first, step=by)`")
    refused(no_stages, "a ring has at least one stage, an int, not 0")


# --------------------------------------------------------------------------------------------------- traces


@pytest.mark.parametrize("outside", [
    lambda: bar.sync(0), lambda: smem.tile(bf16, (64, 64)), lambda: smem.mbarrier(1), lambda: MMA.fragment(), lambda: label(),
    lambda: Ring(2), lambda: if_(pred).__enter__(), lambda: mov.u32(tid.x), lambda: tripled(1), lambda: wait(None, 0)])  # type: ignore[arg-type]
def test_an_instruction_outside_a_trace(outside: Callable[[], Any]) -> None:
    with pytest.raises(TraceError) as caught:
        outside()
    assert caught.value.message == "PTX instructions can only be called while a @kernel function is being traced"
    assert caught.value.position is not None
    assert caught.value.position.file == __file__


def test_a_register_outside_its_trace() -> None:
    kept: list[Any] = []

    def keeps(n: Reg[u32]) -> None:
        kept.append(n)

    trace(keeps)
    with pytest.raises(TraceError, match="can only be called while a @kernel function is being traced"):
        _ = kept[0] + 1


def test_a_register_of_another_trace() -> None:
    kept: dict[str, Any] = {}

    def keeps(n: Reg[u32], p: Ptr[u32], a: TensorMap) -> None:
        kept.update(n=n, p=p, a=a, q=n == 1, barriers=smem.mbarrier(2), array=smem.array(u32, 4), tile=smem.tile(bf16, (64, 64)),
                    ring=Ring(2))
        kept.update(barrier=kept["barriers"][0], view=kept["tile"][0], desc=kept["tile"][0].desc())

    trace(keeps)

    def operand(m: Reg[u32]) -> None:
        add.u32(m, kept["n"])

    def left(m: Reg[u32]) -> None:
        kept["n"] + 1

    def right(m: Reg[u32]) -> None:
        _ = m + kept["n"]

    def unary(m: Reg[u32]) -> None:
        ~kept["n"]

    def guard(m: Reg[u32]) -> None:
        add.u32(m, m, 1, pred=~kept["q"])

    def combined(m: Reg[u32]) -> None:
        _ = (m == 0) & ~kept["q"]

    def condition(m: Reg[u32]) -> None:
        if_(kept["q"]).__enter__()

    def pointer(m: Reg[u32]) -> None:
        ld.global_.u32(kept["p"])

    def moved(m: Reg[u32]) -> None:
        kept["p"].at(m)

    def bound(m: Reg[u32]) -> None:
        for_range(kept["n"]).__enter__()

    def vector(m: Reg[u32]) -> None:
        store.global_.v2.u32(kept["p"], (m, m))

    def lanes(p: Ptr[u32]) -> None:
        store.global_.v2.u32(p, (kept["n"], 1))

    def index(m: Reg[u32]) -> None:
        smem.array(u32, 4).at(kept["n"])

    def advanced(m: Reg[u32]) -> None:
        kept["ring"].advance()

    def passed(m: Reg[u32]) -> None:
        tripled(kept["n"])

    def descriptor(m: Reg[u32]) -> None:
        MMA(MMA.fragment(), kept["desc"], kept["desc"], True)

    def tensormap(m: Reg[u32]) -> None:
        load(smem.tile(bf16, (64, 64))[0], kept["a"], (0, 0), smem.mbarrier(1)[0])

    for function in (operand, left, right, unary, guard, combined, condition, pointer, moved, bound, vector, lanes, index, advanced, passed,
                     descriptor, tensormap):
        refused(function, f"belongs to the trace of `keeps`, not to `{function.__name__}`", "pass it as a parameter")

    def barriers() -> None:
        kept["barriers"][0]

    def barrier() -> None:
        mbarrier.arrive.shared__cta.b64(kept["barrier"])

    def array() -> None:
        kept["array"].at(1)

    def element() -> None:
        ld.shared__cta.u32(kept["array"])

    def stage() -> None:
        kept["tile"][0]

    def view() -> None:
        kept["view"].desc()

    for shared in (barriers, barrier, array, element, stage, view):
        refused(shared, f"this shared memory belongs to `keeps`, not to `{shared.__name__}`", "allocate it inside the kernel")


def test_a_register_of_a_device_function_stays_there() -> None:
    kept: list[Any] = []

    @device_function
    def leaks(n: Reg[u32]) -> None:
        kept.append(n + 1)

    def uses(n: Reg[u32]) -> None:
        leaks(n)
        add.u32(n, kept[0])

    refused(uses, "belongs to the trace of `leaks`, not to `uses`")


# --------------------------------------------------------------------------------------------------- labels


def test_a_label_that_is_never_placed() -> None:
    def lost(n: Reg[u32]) -> None:
        end = label("end")
        bra(end, pred=n == 0)  # wrong
        add.u32(n, n, 1)

    def text(n: Reg[u32]) -> None:
        bra("nowhere")  # wrong
        add.u32(n, n, 1)

    refused(lost, "label `$end_1` is branched to but never placed in `lost`", "`label.place()`")
    refused(text, "label `nowhere` is branched to but never placed in `text`")


def test_a_label_defined_twice() -> None:
    def twice(n: Reg[u32]) -> None:
        top = label("top")
        top.place()
        add.u32(n, n, 1)
        top.place()

    message = refused(twice, "label `$top_1` is defined twice: first at")
    assert f"{__file__}:{line_of(twice) - 2}, again at" in message


# --------------------------------------------------------------------------------------------------- kernels and functions


def test_kernels_that_cannot_be() -> None:
    def plain(n: Reg[u32]) -> None:
        pass

    def annotated(n: int) -> None:
        pass

    def bare(n) -> None:  # type: ignore[no-untyped-def]
        pass

    def boolean(p: Reg[pred]) -> None:
        pass

    def returns(n: Reg[u32]) -> Reg[u32]:
        return n

    def generates(n: Reg[u32]) -> Any:
        yield n

    with pytest.raises(TraceError, match=r"kernel `returns` returned Reg\[u32\].*a kernel returns nothing") as caught:
        trace(returns)
    assert caught.value.position == Position(__file__, returns.__code__.co_firstlineno)
    with pytest.raises(TraceError, match="`generates` is a generator: write a plain `def` without `yield`"):
        trace(generates)
    with pytest.raises(TraceError, match="a block has 1 to 1024 threads, not 2048"):
        trace(plain, block=2048)
    with pytest.raises(TraceError, match="a cluster has 1 to 16 CTAs"):
        trace(plain, cluster=32)
    with pytest.raises(TraceError, match="block is one to three positive extents, not 0"):
        trace(plain, block=0)
    with pytest.raises(TraceError, match="smem is 'static', 'dynamic' or None"):
        trace(plain, smem="large")
    with pytest.raises(TraceError, match="is not an identifier of PTX"):
        kernel(name="größer")(plain)
    for function, name in ((annotated, "n"), (bare, "n"), (boolean, "p")):
        with pytest.raises(TraceError, match=rf"parameter `{name}` of kernel .* write TensorMap, Ptr\[type\], Reg") as caught:
            trace(function)
        assert caught.value.position == Position(__file__, function.__code__.co_firstlineno)


@kernel(block=32)
def configured(n: Reg[u32], *, STAGES: int, BM: int = 64) -> None:
    pass


def test_configurations_that_a_kernel_does_not_have() -> None:
    for how, words in (({"BK": 3}, "kernel `configured` has no compile-time parameter `BK`; it has STAGES, BM"),
                       ({}, "kernel `configured` needs a value for its compile-time parameter `STAGES`")):
        with pytest.raises(TraceError) as caught:
            configured.ptx(**how)
        assert words in str(caught.value)
        assert str(caught.value).startswith(__file__)
    with pytest.raises(TraceError, match=r"compile-time parameter `STAGES` is \[1, 2\], which may change: .* a tuple"):
        configured.ptx(STAGES=[1, 2])
    with pytest.raises(TraceError, match="a compile-time parameter cannot be called `stream`"):
        @kernel(block=32)
        def takes(n: Reg[u32], *, stream: int = 0) -> None:
            pass
    with pytest.raises(TraceError, match=r"a kernel is not called but launched: configured\.launch\(grid,"):
        configured(1, STAGES=3)  # type: ignore[arg-type]


@device_function
def tripled(n: Reg[u32]) -> Reg[u32]:
    return n * 3


def test_device_functions_that_cannot_be() -> None:
    @device_function
    def endless(n: Reg[u32]) -> Reg[u32]:
        return endless(n)

    @device_function
    def untyped(n: int) -> None:
        pass

    @device_function
    def forgets(n: Reg[u32]) -> Reg[u32]:
        pass  # type: ignore[empty-body]

    def other() -> Any:
        @device_function
        def tripled(n: Reg[u32]) -> Reg[u32]:
            return n * 4

        return tripled

    def recursive(n: Reg[u32]) -> None:
        endless(n)

    def wrong_type(x: Reg[f32]) -> None:
        tripled(x)  # type: ignore[arg-type]

    def too_many(n: Reg[s32]) -> None:
        tripled(n, n)  # type: ignore[call-arg, arg-type]

    def unannotated(n: Reg[u32]) -> None:
        untyped(1)

    def ambiguous(n: Reg[u32]) -> None:
        tripled(n)
        other()(n)

    def returns_nothing(n: Reg[u32]) -> None:
        forgets(n)

    refused(recursive, "@func `endless` calls itself", "write the recursion as a loop", at=endless.function.__code__.co_firstlineno + 2)
    refused(wrong_type, "@func `tripled`: parameter `n` is Reg[u32], not Reg[f32](%f0)")
    refused(too_many, "@func `tripled` takes 1 registers (n), 2 were given")
    refused(unannotated, "@func `untyped` takes and returns Reg[...] values")
    refused(ambiguous, "two functions of this module are called `tripled`: rename one")
    refused(returns_nothing, "says it returns Reg[u32], but returned None", at=forgets.function.__code__.co_firstlineno)


def test_layouts_are_checked_outside_a_trace_too() -> None:
    with pytest.raises(TraceError, match="a tile of 0x64 bf16 has no elements"):
        Layout.of(bf16, 0, 64)
