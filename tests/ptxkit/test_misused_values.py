"""What Python itself refuses of values and functions of a trace: one sentence at the author's line. Errors of their own code stay so."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from ptxkit import NamedBarrier, NamedBarriers, Pipeline, Reg, Ring, for_range, if_, kernel, loop, ring, smem, tid
from ptxkit.dsl.misused import run
from ptxkit.errors import PtxkitError, TraceError
from ptxkit.fragments import load_fragment
from ptxkit.idioms import wait
from ptxkit.ptx import add, mbarrier, mov, wgmma
from ptxkit.reductions import block_reduce
from ptxkit.types import bf16, f32, u32
from tests.ptxkit.machine import trace
from tests.ptxkit.refusal import refused

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
N = Reg[u32]
VALUES: dict[str, Callable[[Any], Any]] = {
    "register": lambda n: n, "predicate": lambda n: n < 3, "negated": lambda n: ~(n < 3), "opcode": lambda n: add.u32,
    "tile": lambda n: smem.tile(bf16, (2, 64, 64)), "view": lambda n: smem.tile(bf16, (64, 64))[0], "array": lambda n: smem.array(f32, 4),
    "barriers": lambda n: smem.mbarrier(2), "barrier": lambda n: smem.mbarrier(2)[0], "pipeline": lambda n: Pipeline(2, consumers=32),
    "named barrier": lambda n: NamedBarrier(32), "named barriers": lambda n: NamedBarriers(2, 32), "ring": lambda n: Ring(2),
    "descriptor": lambda n: smem.tile(bf16, (64, 64))[0].desc(),
}
MISUSES: dict[str, Callable[[Any], Any]] = {
    "attribute": lambda value: value.total, "assigned": lambda value: setattr(value, "total", 3), "called": lambda value: value(0, 0, 0),
    "text": lambda value: "".join([value]), "math": math.exp,
    "managed": lambda value: value.__enter__(), "indexes": lambda value: [1, 2][value],
}
LONG: dict[str, Callable[[Any], Any]] = {"length": len, "item": lambda value: value[7]}
SHOWN: dict[str, Callable[[Any], Any]] = {
    "fraction": lambda value: value[1.5], "word": lambda value: value["a"], "sum": lambda value: value + "a",
}


@pytest.mark.parametrize("misuse", [*MISUSES, *SHOWN])
@pytest.mark.parametrize("name", VALUES)
def test_a_value_that_is_misused_is_one_sentence(name: str, misuse: str) -> None:
    def wrong(n: N) -> None:
        {**MISUSES, **SHOWN}[misuse](VALUES[name](n))

    with pytest.raises(PtxkitError) as caught:
        trace(wrong)
    message = str(caught.value)
    assert message.startswith(f"{__file__}:"), message
    assert "\n" not in message
    assert "`" in message or misuse in SHOWN                         # these say what is taken
    assert " at 0x" not in message


@pytest.mark.parametrize("misuse", LONG)
@pytest.mark.parametrize("name", [name for name in VALUES if name not in ("tile", "barriers", "named barriers", "array")])
def test_a_value_is_no_sequence(name: str, misuse: str) -> None:
    def wrong(n: N) -> None:
        LONG[misuse](VALUES[name](n))

    with pytest.raises(TraceError):
        trace(wrong)


def test_sequences_are_iterated() -> None:
    def right(n: N) -> None:
        tile, full, words = smem.tile(bf16, (2, 64, 64)), smem.mbarrier(3), smem.array(f32, 4)
        assert [each.offset for each in tile] == [tile[i].offset for i in range(2)]
        assert [each.offset for each in full] == [full[i].offset for i in range(3)]
        assert [each.offset for each in words] == [words[i].offset for i in range(4)]
        for each in full:
            mbarrier.init.shared__cta.b64(each, 1)
            wait(each, 0)
            mbarrier.arrive.shared__cta.b64(each)

    trace(right)
    refused(lambda: list(smem.array(f32, 4)[1]), "`for place in array` takes each of a whole array")


CALLS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a shape as numbers": (lambda n: smem.tile(bf16, 64, 64),  # type: ignore[call-arg, arg-type]
                           "`tile` is called as `tile(type, shape, *, major='k', swizzle=None, name=None)`, as in "
                           "`smem.tile(bf16, (64, 64))`, and this call has too many arguments by position"),
    "no type": (lambda n: smem.array(64), "as in `smem.array(f32, 256)`, and this call is missing"),  # type: ignore[call-arg, arg-type]
    "no count": (lambda n: smem.mbarrier(), "as in `smem.mbarrier(4)`"),  # type: ignore[call-arg]
    "unknown option": (lambda n: smem.tile(bf16, (64, 64), stages=3),  # type: ignore[call-arg]
                       "and this call has an unexpected keyword argument 'stages'"),
    "no threads": (lambda n: NamedBarriers(2), "`NamedBarriers` is called as `NamedBarriers(count, threads)`"),  # type: ignore[call-arg]
    "no parity": (lambda n: Pipeline(2, consumers=32).producer_acquire(0),  # type: ignore[call-arg]
                  "`producer_acquire` is called as `producer_acquire(stage, parity, bytes=None)`, and this call is missing"),
    "consumers by position": (lambda n: Pipeline(2, 32),  # type: ignore[call-arg, misc]
                              "as in `Pipeline(STAGES, consumers=128, bytes=tile.layout.bytes)`"),
    "two conditions": (lambda n: if_(n < 3, n > 1), "as in `if_(p & q)`"),  # type: ignore[call-arg]
    "a counted loop": (lambda n: loop(3), "`loop` is called as `loop(**carried)`"),  # type: ignore[call-overload]
    "no end": (lambda n: for_range(), "`for_range` is called as"),  # type: ignore[call-overload]
    "no rounds": (lambda n: ring(2), "as in `ring(STAGES, n)`"),  # type: ignore[call-overload]
    "a barrier alone": (lambda n: wait(smem.mbarrier(1)[0]),  # type: ignore[call-arg]
                        "`wait` is called as `wait(barrier, parity, *, cluster=False)`"),
    "a value alone": (lambda n: block_reduce(n), "`block_reduce` is called as"),  # type: ignore[call-arg, arg-type]
    "a tile alone": (lambda n: load_fragment(smem.tile(bf16, (64, 64))[0]), "`load_fragment` is called as"),  # type: ignore[call-arg]
    "a method": (lambda n: NamedBarriers(2, 32).sync(), "`barriers[i]` is one of them, with `sync()`"),  # type: ignore[attr-defined]
    "an item": (lambda n: Pipeline(2, consumers=32)[0], "`p.full[stage]` and `p.empty[stage]`"),  # type: ignore[index]
    "a fraction": (lambda n: Pipeline(2, consumers=32).producer_acquire(0, 1.5),  # type: ignore[arg-type]
                   "the parity of a stage is 0, 1 or a 32-bit register, as `ring` gives it, not 1.5"),
    "an index": (lambda n: Pipeline(2, consumers=32).producer_acquire(0, 2), "as `ring` gives it, not 2"),
    "coordinates as a sequence": (lambda n: list(wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16.coordinates(n)),  # type: ignore[call-overload]
                                  "`Coordinates` is no sequence: `here.runs(acc)` gives (row, column, neighbours)"),
    "a fourth axis": (lambda n: tid.w, "`Dim3` has no `w`: it has `x`, `y` and `z`, as `tid.x`"),  # type: ignore[attr-defined]
    "all axes": (lambda n: smem.array(f32, 4)[tid], "an int or a 32-bit register, not tid"),  # type: ignore[index]
    "half a stage": (lambda n: Ring(1.5), "a ring has at least one stage, an int, not 1.5"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize(("wrong", "words"), CALLS.values(), ids=CALLS)
def test_a_call_that_does_not_fit_shows_one_that_does(wrong: Callable[..., None], words: str) -> None:
    with pytest.raises(TraceError) as caught:
        kernel(block=32, name="k")(named(wrong)).trace()
    assert str(caught.value).startswith(f"{__file__}:{wrong.__code__.co_firstlineno}: ")
    assert words in str(caught.value)


def test_a_ring_gives_three_registers() -> None:
    def wrong(n: N) -> None:
        with ring(3, n) as (_, _):  # type: ignore[misc] # wrong
            pass

    refused(wrong, "a `ring` gives three registers", "`with ring(STAGES, n) as (k, stage, parity):`")


def named(body: Callable[[Any], Any]) -> Callable[..., None]:
    def kernel(n: N) -> None:
        body(n)

    return kernel


def tile() -> None:
    """A function of the author's with the name of one of ptxkit's."""


def test_the_authors_own_errors_stay_what_they_are() -> None:
    for wrong, error in ((lambda n: tile(3), TypeError), (lambda n: [].foo, AttributeError), (lambda n: (lambda a: a)(), TypeError),  # type: ignore[call-arg, attr-defined, misc]
                         (lambda n: {}["a"], KeyError), (lambda n: 1 // 0, ZeroDivisionError), (lambda n: len(3), TypeError),  # type: ignore[arg-type]
                         (lambda n: int("a"), ValueError), (lambda n: missing, NameError)):  # type: ignore[name-defined] # noqa: F821
        with pytest.raises(error) as caught:
            kernel(block=32, name="k")(named(wrong)).trace()
        assert not isinstance(caught.value, TraceError)


def test_what_a_function_of_the_package_cannot_use_is_named() -> None:
    """Where a function has no sentence of its own, what it was given is said, and Python's error is the cause."""
    def wrong() -> None:
        smem.Layout.of(bf16, "64", 64)  # type: ignore[attr-defined, arg-type]

    with pytest.raises(TraceError) as caught:
        run(wrong)
    assert "`of` cannot use what it is given here, " in str(caught.value)
    assert "rows='64'" in str(caught.value)
    assert isinstance(caught.value.__cause__, TypeError | ValueError)


def test_attributes_are_asked_for_as_before() -> None:
    def right(n: N) -> None:
        assert not hasattr(n, "total")
        assert not hasattr(smem.mbarrier(1), "wait")
        assert getattr(mov.u32(1), "total", None) is None

    trace(right)
