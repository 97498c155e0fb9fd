"""@kernel and @func on what they are not for, and annotations that cannot be read: one sentence at the author's line."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from ptxkit import Ptr, Reg, func, kernel
from ptxkit.errors import TraceError
from ptxkit.ptx import add, mov, st
from ptxkit.types import u32

pytestmark = pytest.mark.pure


def plain(out: Ptr[u32]) -> None:
    st.global_.u32(out, 1)


def refused(make: Callable[[], Any], *words: str) -> None:
    with pytest.raises(TraceError) as caught:
        make()
    said = str(caught.value)
    assert said.startswith(f"{__file__}:"), said
    assert "\n" not in said
    for word in words:
        assert word in said, said


def test_without_parentheses() -> None:
    refused(lambda: kernel(plain), "@kernel takes options: write @kernel(block=128), or @kernel()")  # type: ignore[call-overload,arg-type]
    refused(lambda: kernel("sm_90a"), "@kernel takes options")  # type: ignore[arg-type]


async def waits(out: Ptr[u32]) -> None:
    pass


def generates(out: Ptr[u32]) -> Any:
    yield out


@pytest.mark.parametrize("decorator", [kernel(block=32), func])
def test_what_is_no_plain_function(decorator: Callable[[Any], Any]) -> None:
    class Kind:
        pass

    for given, word in ((kernel(block=32)(plain), "`plain` is a @kernel already"), (func(plain), "`plain` is a @func already"),
                        (Kind, "`Kind` is a class"), (3, "3 is none"), (None, "None is none"), (len, "is none"),
                        (functools.partial(plain), "is none"), (classmethod(plain), "this is a classmethod"),
                        (property(plain), "this is a property"), (waits, "`waits` is a coroutine"),
                        (generates, "`generates` is a generator"), (Kind(), "is none: write `def`")):
        refused(lambda given=given: decorator(given), word)
    assert decorator(staticmethod(plain)).function is plain


@pytest.mark.parametrize(("options", "word"), [
    ({"block": "32"}, "block is one to three positive extents, not '32'"), ({"block": 32.0}, "not 32.0"),
    ({"block": (32, None)}, "block is"),
    ({"cluster": None}, "cluster is one to three positive extents, not None"), ({"target": 90}, 'such as "sm_90a", not 90'),
    ({"target": ""}, "not ''"), ({"name": 3}, "name is a text, not 3"), ({"module": 3}, "module is a ptxkit.Module, not 3"),
    ({"min_ctas": "2"}, "min_ctas is a positive number or None, not '2'"), ({"max_registers": -1}, "max_registers is"),
    ({"max_registers": True}, "not True")])
def test_options_that_cannot_be(options: dict[str, Any], word: str) -> None:
    refused(lambda: kernel(**{"block": 32, **options})(plain).ptx(), word)


@pytest.mark.parametrize("name", ["", "a b", "a\nb", "n" * 130 + "-", "\x1b[31m", "ö", "a\0"])
def test_names_that_ptx_has_not(name: str) -> None:
    refused(lambda: kernel(block=32, name=name)(plain), "is not an identifier of PTX", "give another name")


@pytest.mark.parametrize("option", ["block", "cluster", "directives"])
def test_functions_of_the_configuration(option: str) -> None:
    for given in (lambda: 32, lambda one, two: 32, lambda *, N: 32):
        refused(kernel(**{"block": 32, option: given})(plain).ptx, f"{option} is called with the configuration alone")

    def own(config: dict[str, Any]) -> int:
        return len(config["N"])

    refused(kernel(**{"block": 32, option: own})(plain).ptx, f"{option} asks for 'N'", "keyword-only parameter")


class Room:
    def method(self, out: Ptr[u32]) -> None: ...

    @staticmethod
    @kernel(block=32)
    def inner(out: Ptr[u32]) -> None:
        st.global_.u32(out, 1)


def test_methods() -> None:
    refused(kernel(block=32)(Room.method).ptx, "kernel `method` is a method, and a launch has no `self`", "staticmethod")
    refused(lambda: kernel(block=32)(Room().method), "is none: write `def`")
    assert ".entry inner" in Room.inner.ptx() == Room().inner.ptx()

    def unsaid(out) -> None: ...  # type: ignore[no-untyped-def]

    refused(kernel(block=32)(unsaid).ptx, "parameter `out` of kernel `unsaid` has no type: write TensorMap")


def test_defaults_of_arguments() -> None:
    """A launch would not use them."""
    def pointer(out: Ptr[u32] = None) -> None: ...  # type: ignore[assignment]
    def number(out: Ptr[u32], n: Reg[u32] = 3) -> None: ...  # type: ignore[assignment]

    refused(lambda: kernel(block=32)(pointer), "`out` of kernel `pointer` has a default", "behind `*`")
    refused(lambda: kernel(block=32)(number), "`n` of kernel `number` has a default")


def test_any_number_of_parameters() -> None:
    def several(*out: Ptr[u32]) -> None: ...
    def named(**out: Ptr[u32]) -> None: ...

    for function in (several, named):
        refused(lambda function=function: kernel(block=32)(function), "takes any number of `out`")


# --------------------------------------------------------------------------------------------------- traces within traces


def test_a_trace_within_itself() -> None:
    @kernel(block=32)
    def once(out: Ptr[u32]) -> None:
        once.ptx()

    @kernel(block=32)
    def deeper(out: Ptr[u32], *, N: int = 3) -> None:
        deeper.ptx(N=N + 1)

    refused(once.ptx, "kernel `once` is traced within its own trace", "@func")
    refused(deeper.ptx, "kernel `deeper` is traced within its own trace")


def test_a_register_of_another_configuration() -> None:
    kept: list[Any] = []

    @kernel(block=32)
    def leaks(out: Ptr[u32], *, N: int = 1) -> None:
        kept.append(mov.u32(5))
        add.u32(kept[0], N)

    @kernel(block=32)
    def other(out: Ptr[u32]) -> None:
        add.u32(kept[0], 1)

    leaks.ptx()
    refused(lambda: leaks.ptx(N=2), "is of an earlier trace of `leaks`", "keep none outside of it")
    refused(other.ptx, "belongs to the trace of `leaks`, not to `other`")


# --------------------------------------------------------------------------------------------------- annotations


def test_a_type_that_is_imported_in_a_function() -> None:
    from ptxkit.types import f64 as near
    from ptxkit.types import f64 as used

    @kernel(block=32)
    def lost(out: Ptr[near]) -> None:
        pass

    @kernel(block=32)
    def found(out: Ptr[used]) -> None:
        assert used.bits == 64

    @func
    def helper(x: Reg[near]) -> None: ...

    @kernel(block=32)
    def calls(x: Reg[u32]) -> None:
        helper(x)  # type: ignore[arg-type]

    @dataclass
    class Record:
        out: Ptr[near]

    def taken(record: Any) -> None: ...

    taken.__annotations__["record"] = Record
    refused(lost.ptx, "kernel `lost`: the annotation `Ptr[near]` of `out` names `near`", "at the top level of the module")
    refused(calls.ptx, "@func `helper`: the annotation `Reg[near]` of `x` names `near`")
    refused(kernel(block=32)(taken).ptx, "the dataclass `Record`, parameter `record` of kernel `taken`: the annotation `Ptr[near]`")
    assert ".param .u64" in found.ptx()


@pytest.mark.parametrize(("hint", "word"), [
    ("Ptr[u32", "SyntaxError"), ("1/0", "ZeroDivisionError"), ("Ptr.nothing", "AttributeError"), ("Reg[int]", "is annotated"),
    ("Ptr[int]", "is annotated"), ("int", "is annotated"), ("Reg", "is annotated"), ("3", "is annotated"), (3, "is annotated")])
def test_annotations_that_mean_nothing(hint: Any, word: str) -> None:
    def odd(out: Any) -> None: ...

    odd.__annotations__["out"] = hint
    refused(kernel(block=32)(odd).ptx, word)


def test_a_parameter_without_an_annotation() -> None:
    def untyped(out) -> None: ...    # type: ignore[no-untyped-def]

    refused(kernel(block=32)(untyped).ptx, "parameter `out` of kernel `untyped` has no type: write TensorMap, Ptr[type], Reg[type]")


def test_the_line_of_a_block_or_cluster_that_cannot_be() -> None:
    @kernel(block=2048)
    def large(n: Reg[u32]) -> None:
        pass

    @kernel(block=32, cluster=20)
    def wide(n: Reg[u32]) -> None:
        pass

    @kernel(block=lambda given_: given_["THREADS"])
    def of_config(n: Reg[u32], *, THREADS: int = 32) -> None:
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
