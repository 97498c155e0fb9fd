"""Names that would stand for two things in PTX: each is refused at the kernel, with both, before an address becomes another one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pytest

from ptxkit import Kernel, Ptr, Reg, debug, func, kernel, label, smem
from ptxkit.check import check
from ptxkit.dsl.kernel import TAKEN
from ptxkit.dsl.raw import Module, Param, at, function, register, scope, verbatim
from ptxkit.errors import TraceError
from ptxkit.ptx import add, ld, mul, st
from ptxkit.types import u32

pytestmark = pytest.mark.pure
Number = Reg[u32]
Numbers = Ptr[u32]


@dataclass(frozen=True)
class Rows:
    row: Number


@dataclass(frozen=True)
class Inner:
    c: Number


@dataclass(frozen=True)
class Nested:
    b: Inner
    b_c: Number


@dataclass(frozen=True)
class Long:
    b_c: Number


@dataclass(frozen=True)
class Umlaut:
    höhe: Number


@func
def twice(n: Number) -> Number:
    return add.u32(n, n)


@func
def result(argument0: Number) -> Number:
    return add.u32(argument0, 1)


@func
def argument0(n: Number) -> Number:
    return result(n)


def first() -> Any:
    @func
    def same(n: Number) -> Number:
        return add.u32(n, 1)
    return same


def second() -> Any:
    @func
    def same(n: Number) -> Number:
        return add.u32(n, 2)
    return same


@func
def kept(n: Number) -> Number:
    place = smem.array(u32, 4)
    st.shared.u32(place, n)
    return ld.shared.u32(place)


def stores(n: Number) -> None:
    st.shared.u32(smem.array(u32, 4), n)


# --------------------------------------------------------------------------------------------------- parameters


def field_and_parameter(a: Rows, a_row: Number) -> None:
    stores(a.row)


def two_fields(a: Nested) -> None:
    stores(a.b.c)


def fields_of_two_records(a: Long, a_b: Inner) -> None:
    stores(a.b_c)


def given_name(n: Number, m: Annotated[Param[u32], ".u32 n"]) -> None:
    stores(n)


@pytest.mark.parametrize(("body", "one", "other", "name"), [
    (field_and_parameter, "field `a.row`", "parameter `a_row`", "a_row"),
    (two_fields, "field `a.b.c`", "field `a.b_c`", "a_b_c"),
    (fields_of_two_records, "field `a.b_c`", "field `a_b.c`", "a_b_c"),
    (given_name, "parameter `n`", "parameter `m`", "n"),
])
def test_two_parameters_are_not_one_of_ptx(body: Callable[..., None], one: str, other: str, name: str) -> None:
    with pytest.raises(TraceError) as caught:
        kernel(block=32)(body).ptx()
    position = caught.value.position
    assert position is not None
    assert (position.file, position.line) == (__file__, body.__code__.co_firstlineno)
    assert f"{one} and {other} of kernel `{body.__name__}` are both `{name}` in PTX" in caught.value.message
    assert caught.value.message.endswith("rename one of them")


def test_records_with_other_names_are_apart() -> None:
    @kernel(block=1)
    def apart(out: Numbers, a: Rows, a_rows: Number) -> None:
        st.global_.u32(out, a.row)

    out = np.zeros(1, np.uint32)
    apart.simulate(1, out, {"row": 3}, 4)
    assert out[0] == 3


# --------------------------------------------------------------------------------------------------- names of one body


def k_parameter(k_smem: Number) -> None:
    """A read of the shared memory's address would be one of the parameter's."""
    stores(k_smem)


def k_register(n: Number) -> None:
    register(u32, "k_smem")
    stores(n)


def k_label(n: Number) -> None:
    label(name="k_smem").place()
    stores(n)


def k_nested(n: Number) -> None:
    with scope():
        verbatim(".shared .u32 k_smem;")
        stores(n)


def hidden_function(n: Number) -> None:
    register(u32, "twice")
    stores(twice(n))


def parameter_and_label(n: Number, done: Number) -> None:
    label(name="done").place()
    stores(n)


def parameter_and_register(n: Number) -> None:
    stores(add.u32(register(u32, "n"), n, 1))


def register_and_label(n: Number) -> None:
    register(u32, "done")
    label(name="done").place()
    stores(n)


def parameter_and_variable(n: Number) -> None:
    verbatim(".shared .u32 n;")
    st.shared.u32(at("n"), n)


@pytest.mark.parametrize(("body", "sentence"), [
    (k_parameter, "a parameter of `k` is called `k_smem` and hides the shared memory of kernel `k`: rename one of them"),
    (k_register, "a register of `k` is called `k_smem` and hides the shared memory of kernel `k`: rename one of them"),
    (k_label, "a label of `k` is called `k_smem` and hides the shared memory of kernel `k`: rename one of them"),
    (k_nested, "a .shared variable of `k` is called `k_smem` and hides the shared memory of kernel `k`: rename one of them"),
    (hidden_function, "a register of `k` is called `twice` and hides function `twice`: rename one of them"),
    (parameter_and_label, "a parameter and a label of `k` are called `done`: rename one of them"),
    (parameter_and_register, "a parameter and a register of `k` are called `n`: rename one of them"),
    (register_and_label, "a register and a label of `k` are called `done`: rename one of them"),
    (parameter_and_variable, "a parameter and a .shared variable of `k` are called `n`: rename one of them"),
])
def test_a_body_has_one_meaning_of_a_name(body: Callable[..., None], sentence: str) -> None:
    with pytest.raises(TraceError) as caught:
        kernel(block=32, name="k")(body).ptx()
    assert caught.value.message == sentence
    assert caught.value.position is not None
    assert caught.value.position.line == body.__code__.co_firstlineno


def test_a_parameter_of_a_function_does_not_hide_shared_memory() -> None:
    @func
    def a(b_smem: Number) -> Number:
        stores(b_smem)
        return add.u32(b_smem, 1)

    @kernel(block=32)
    def a_b(n: Number) -> None:
        a(n)

    with pytest.raises(TraceError, match="a parameter of `a` is called `a_b_smem` and hides the shared memory of kernel `a_b`"):
        a_b.ptx()


def test_braces_of_the_author_may_hide_a_name() -> None:
    @kernel(block=32)
    def nested(n: Number) -> None:
        with scope():
            verbatim(".shared .u32 n;")
            st.shared.u32(at("n"), 7)

    assert not check(nested)


def test_a_call_hides_neither_its_arguments_nor_its_callee() -> None:
    @kernel(block=1)
    def calls(out: Numbers, argument0_: Annotated[Param[u32], ".u32 argument0"], n: Annotated[Param[u32], ".u32 result"]) -> None:
        own = add.u32(register(u32, "argument0_"), ld.param.u32(argument0_), 1)
        st.global_.u32(out, twice(own))
        st.global_.u32(out + 1, add.u32(ld.param.u32(argument0_), ld.param.u32(n)))
        debug.print("%u", own)

    @kernel(block=1)
    def of_words(out: Numbers, n: Number) -> None:
        st.global_.u32(out, argument0(n))

    out = np.zeros(2, np.uint32)
    for each in (calls, of_words):
        assert not check(each)
    assert calls.simulate(1, out, 5, 30).verdict == "clean"
    assert out.tolist() == [12, 35]
    of_words.simulate(1, out, 5)
    assert out[0] == 6


def test_a_function_has_another_name_for_its_result() -> None:
    @func
    def doubled(result: Number) -> Number:
        return add.u32(result, result)

    @kernel(block=32)
    def uses(n: Number) -> None:
        doubled(n)

    with pytest.raises(TraceError, match="@func `doubled`: its parameter `result` and its result are both `doubled_result` in PTX"):
        uses.ptx()


# --------------------------------------------------------------------------------------------------- names of one module


def _entries(module: Module, *bodies: Callable[..., None], name: str = "") -> Kernel[Any]:
    made = [kernel(block=32, module=module, name=name or body.__name__)(body) for body in bodies]
    return made[0]


def one(out: Numbers, n: Number) -> None:
    st.global_.u32(out, first_of_two(n))


def two(out: Numbers, n: Number) -> None:
    st.global_.u32(out, second_of_two(n))


def keeps(out: Numbers, n: Number) -> None:
    st.global_.u32(out, kept(n))


def keeps_too(out: Numbers, n: Number) -> None:
    st.global_.u32(out, kept(n))


def doubles(out: Numbers, n: Number) -> None:
    st.global_.u32(out, twice(n))


def doubles_too(out: Numbers, n: Number) -> None:
    st.global_.u32(out, mul.lo.u32(twice(n), 3))


first_of_two, second_of_two = first(), second()


def plain(n: Number) -> None:
    stores(n)


def _with_a_function() -> Module:
    module = Module()

    @function(".func (.param .b32 r) twice (.param .b32 a)", module)
    def _(r: Any, a: Any) -> None:
        st.param.b32(r, ld.param.b32(a))

    return module


@pytest.mark.parametrize(("entries", "sentence"), [
    (lambda: _entries(Module(), one, two), "entries of the module of kernel `one` call two functions `same`: rename one of them"),
    (lambda: _entries(Module(), keeps, keeps_too), "@func `kept` is another function in each entry of the module of kernel `keeps`"),
    (lambda: _entries(Module(), plain, plain), "two kernels in the module of kernel `plain` are called `plain`: rename one of them"),
    (lambda: _entries(_with_a_function(), doubles), "two functions in the module of kernel `doubles` are called `twice`"),
    (lambda: _entries(Module(".global .u32 x; .global .f32 x;"), plain), "two variables in the module of kernel `plain` are called `x`"),
    (lambda: _entries(Module(".global .u32 plain;"), plain), "kernel `plain` and variable `plain` in the module of kernel `plain`"),
    (lambda: _entries(Module(".global .u32 twice;"), doubles), "function `twice` and variable `twice` in the module of kernel `doubles`"),
    (lambda: _entries(Module(".global .u32 plain_smem;"), plain), "a variable and the shared memory of kernel `plain` in the module"),
    (lambda: _entries(Module(), doubles, name="twice"), "two functions of this module are called `twice`"),
])
def test_a_module_has_one_thing_of_a_name(entries: Callable[[], Kernel[Any]], sentence: str) -> None:
    with pytest.raises(TraceError) as caught:
        entries().ptx()
    assert sentence in caught.value.message


def test_entries_share_a_function_and_declare_what_others_define() -> None:
    shared = _entries(Module(".extern .global .u32 x; .global .u32 x;"), doubles, doubles_too)
    assert shared.ptx().count(".func") == 1
    assert not [finding for finding in check(shared) if finding.rule == "duplicate-name"]


def test_texts_of_entries_are_apart() -> None:
    def hello(n: Number) -> None:
        debug.print("hello %u", n)

    def bye(n: Number) -> None:
        debug.print("bye %u", n)
        debug.print("hello %u", n)

    module = _entries(Module(), hello, bye)
    assert module.ptx().count(".global .align") == 2
    assert not [finding for finding in check(module) if finding.severity == "error"]


# --------------------------------------------------------------------------------------------------- words of PTX and of the methods


def _parameter(word: str) -> None:
    space: dict[str, Any] = {**globals()}
    exec(f"def k({word}: Number) -> None:\n    stores({word})\n", space)
    kernel(block=32)(space["k"]).ptx()


def _registers(word: str) -> None:
    kernel(block=32, name="k")(lambda: register(u32, word) and None).ptx()


def _labels(word: str) -> None:
    kernel(block=32, name="k")(lambda: label(name=word).place()).ptx()


@pytest.mark.parametrize("use", [_parameter, lambda word: kernel(name=word)(plain), _registers, _labels])
@pytest.mark.parametrize("word", ["WARP_SZ", "inlined_at"])
def test_words_of_ptx_are_no_names(use: Callable[[str], Any], word: str) -> None:
    with pytest.raises(TraceError, match=word):
        use(word)


@pytest.mark.parametrize("word", ["tid", "add", "ld", "param", "entry", "r0"])
def test_other_words_are_names(word: str) -> None:
    _parameter(word)
    assert not check(kernel(block=32, name=word)(plain))


def test_a_kernel_is_no_special_register() -> None:
    with pytest.raises(TraceError, match="`%tid` is a special register of PTX"):
        kernel(name="%tid")(plain)


def test_fields_and_parameters_of_functions_are_ascii() -> None:
    @func
    def high(höhe: Number) -> Number:
        return add.u32(höhe, 1)

    with pytest.raises(TraceError, match=r"`höhe` is not an identifier of PTX .*: rename the field of `Umlaut`"):
        kernel(block=32)(_umlaut).ptx()
    with pytest.raises(TraceError, match=r"`höhe` is not an identifier of PTX .*: rename the parameter"):
        kernel(block=32, name="k")(lambda: high(None) and None).ptx()  # type: ignore[arg-type]


def _umlaut(a: Umlaut) -> None:
    stores(a.höhe)


def test_a_compile_time_parameter_is_no_option_of_a_method() -> None:
    options = {parameter.name for method in ("ptx", "launch", "simulate", "debug", "timeline", "export", "compile", "trace")
               for parameter in inspect.signature(getattr(Kernel, method)).parameters.values()
               if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)} - {"self", "schedule"}
    assert set(TAKEN) == options
    for name, method in TAKEN.items():
        assert name in inspect.signature(getattr(Kernel, method)).parameters

    def draws(n: Number, *, seed: int = 0) -> None:
        stores(n)

    with pytest.raises(TraceError, match=r"a compile-time parameter cannot be called `seed`: it is an option of draws.simulate"):
        kernel(block=32)(draws)
