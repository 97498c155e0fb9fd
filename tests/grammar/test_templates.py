"""Bodies that are made when they are asked for are the values that they would have been at once."""

from __future__ import annotations

import copy
import gc
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ptxkit import grammar
from ptxkit.grammar import tree
from ptxkit.grammar.gc_pause import MAX_IMMORTAL_OBJECTS, MIN_OBJECTS, gc_pause
from ptxkit.grammar.lazy import template_body
from ptxkit.grammar.readers import reference

from .test_fast import CORPUS, HEAD, difference

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]

TEXT = (Path(__file__).parents[1] / "corpus" / "atomics.ptx").read_text()


def unmade(module: tree.Module) -> list[tree.Function]:
    return [function for function in module.functions if template_body(function) is not None]


def test_reading_makes_no_body() -> None:
    functions = unmade(grammar.parse(TEXT))
    assert functions
    assert all(function.defined for function in functions)
    assert len(unmade(grammar.parse(TEXT))) == len(grammar.parse(TEXT).entries)
    body = functions[0].body
    assert isinstance(body, tuple)
    assert functions[0].body is body
    assert unmade(tree.Module((9, 0), ("sm_90a",), 64, (functions[0],))) == []


def test_a_function_without_a_body_has_none() -> None:
    declared = grammar.parse(HEAD + ".func f();").functions[0]
    assert not declared.defined
    assert declared.body is None
    assert tree.Function("func", "f", body=()).defined


@pytest.mark.parametrize("law", [
    lambda value, made: value == made, lambda value, made: made == value, lambda value, made: hash(value) == hash(made),
    lambda value, made: repr(value) == repr(made), lambda value, made: pickle.loads(pickle.dumps(value)) == made,
    lambda value, made: copy.copy(value) == made, lambda value, made: copy.deepcopy(value) == made,
    lambda value, made: grammar.write(value) == grammar.write(made),
    lambda value, made: replace(value, target=("sm_90",)) == replace(made, target=("sm_90",)),
    lambda value, made: replace(value.functions[0], name="g") == replace(made.functions[0], name="g"),
    lambda value, made: eval(repr(value), dict(vars(tree))) == made,
])
def test_what_is_unmade_is_the_same_value(law: Any) -> None:
    value = grammar.parse(TEXT)
    assert unmade(value)
    assert law(value, reference.parse(TEXT))


def test_another_target_makes_nothing() -> None:
    assert unmade(replace(grammar.parse(TEXT), target=("sm_90",)))


def test_bodies_are_made_by_any_thread() -> None:
    text = (Path(__file__).parents[1] / "corpus" / "arithmetic.ptx").read_text()
    expected = grammar.parse(text)
    for _ in range(3):
        module = grammar.parse(text)
        with ThreadPoolExecutor(4) as pool:
            bodies = list(pool.map(lambda function: function.body, module.functions * 2))
        assert bodies == [function.body for function in expected.functions * 2]


@pytest.mark.parametrize("line", [
    "mov.u32 %r1, $L__BB0_1$x;", "mov.u32 %r1, x$L__BB0_1;", "mov.u32 %r1, %$L__BB0_1;", "mov.u32 %r1, %L__BB0_1;", "mov.u32 %r1, %r1$;",
    "mov.u32 %r1, %r1$2;", "mov.u32 %r1, %P__1;", "mov.u32 %r1, f_param_1;", "mov.u32 %r1, xf_param_1;", "mov.u32 %r1, f_param_1$;",
    "mov.u32 %r1, %r$$;", "mov.u32 %r#, %r1;", "mov.u32 %r1, %%r1;", "mov.u32 %r1, %r1%r2;", "mov.u32 %r1, a%r2;", "mov.u32 %r1, %r2.x;",
    "mov.u32 %r1, %r2.5;", "mov.u32 %r1, %;", "mov.u32 %r1, % r2;", "mov.u32 %5, %r1;", "mov.u32 %r1, %r2 3;", "$L__BB0_1: ret;",
    "$L__BB0_1 :", "$L__BB:", "%r1:", "call %r1, (%r1), %r1;", "call\n%r1;", "call f // ;\n;", "recall\n%r1;", ".reg .b32 %r1 , %r2;",
    "mov.u32 %r1, %$x;", "@% mov.u32 %r1, {%, %tid$x};", "{ add.s32 %5, %6, 1; @%7 ret; }", "mov.b64 {%5, %r1}, f_param_1;",
    ".reg .b32 %r1<9>;", ".reg\n.b32 %r1;", ".pragma \"%r1\";", ".pragma \"%r1;", "// %r1 {", "ret; // }", "{", "}", "}{", "{ ret; } {",
    "\x0b", "{\n}\n}\n.func g() {\n{", ".loc 1 2 3\n, function_name $L__BB0_1, inlined_at 1 2 3",
    ".loc 1 2 3, function_name %r1, inlined_at 1 2 3", ".loc 1 2 03", ".loc 1 2", "mov.u32 %r1, %$P1;", "mov.u32 %r1, %$P$$;", "%$P%r1:",
    "mov.u32 %r1, %\x021;", "mov.u32 %r1, %\x031;", "ret; // %r1, %q", "ret; // $L__BB0_1", "ret; // f_param_1 k_param_2", "ret; // \"%r1",
    "call WARP_SZ;", "call _;", "call _, (_), _;", "call WARP_SZ, (%r1);", "call g, (x);", "call (x), g, (x);", "call f_param_1;",
    "call (x),\ng,\n(x, %r1)\n;", "call xf_param_1, (x);", "call f_param_, (x);", "call $L__BB0_1;", "call g$;", "call g.x;", "call 5;",
    "call g$x, (x);", "call g, (x), p;", "call g (x);", "@%r1 call.uni (x), g, ();", "{ call g; call h; }", "call g; call h;",
    "call call, (call);", "call (%r1), g, (%r2, f_param_0);", "call (x) g;", "call ( x ) , g ;", "call /* */ g;", "call g, // ;\n(x);",
    ".pragma \"call g;\";", "call \x04g;", "mov.u32 call g;", "call : ret;", ".reg .b32 call ;", "call (x // y\n), g;", "call g, h, i, j;",
    "call.uni\ng\n;",
    "// %bb.0: // {", "call %A$;", "mov.u32 %A$b, %r1;", ".loc 1 2 3 // %r1", ".loc 1 2 3 // f.py:2:3",
])
def test_templates_are_read_as_the_grammar_reads_their_lines(line: str) -> None:
    for name, other in (("f", "mov.u32 %r7, %r8;"), ("k", "\t.reg .b32 %r<9>;\n\tadd.s32 %r1, %r1, %r2;")):
        body = f"{{\n{other}\n{line}\n{other}\n{line}\n}}"
        assert difference(f"{HEAD}.func {name}()\n{body}\n.func {name}2()\n{{\n{line}\nret;\n}}\n") == ""


@pytest.mark.parametrize("parameters", [
    ".param .u64 NAME_param_0, .param .u32 NAME_param_1", "\n\t.param .u64 NAME_param_0,\n\t.param .align 8 .b8 NAME_param_1[16]\n",
    ".param .u64NAME_param_0", ".param .u64 .ptr .align 8NAME_param_0", ".param .u64 xNAME_param_0", ".param .u64 NAME_param_0NAME_param_1",
    "\n.param\n.u64\nNAME_param_0\n,\n.param .b32 x", ".param .u64 \x030", ".param .u64 NAME_param_", ".param .u64 NAME_param_0$",
    ".param .u64 // c\n NAME_param_0", ".param .u64 .ptr .global .align 16 NAME_param_0, .param .u64 NAME_param_0", ".param .u64 NAME",
    ".param .b8 NAME_param_0[], .param .b8 NAME_param_1[ ]", ".param .align 3 .b8 y[4], .param .align 3 .b8 y[4]",
])
def test_parameters_are_read_alike_for_every_function(parameters: str) -> None:
    for names in (("f", "g", "f"), ("%f", "f"), ("f", "%f", "_x"), ("u64", "f_param_0"), ("NAME_param_", "NAME")):
        functions = [f".func (.param .b32 {name}_param_9) {name}({parameters.replace('NAME', name)});\n" for name in names]
        assert difference(HEAD + "".join(functions)) == ""


@pytest.mark.parametrize("frozen", [False, True])
def test_reading_leaves_the_collector_as_it_was(frozen: bool) -> None:
    text = TEXT.replace("atomics", "one") + TEXT.partition(".address_size 64")[2] * 4
    gc.collect(1)
    if frozen:
        gc.freeze()
    try:
        before = gc.get_freeze_count()
        assert (before > MAX_IMMORTAL_OBJECTS) is frozen
        with gc_pause():
            assert not gc.isenabled()
            kept = [[number] for number in range(2 * MIN_OBJECTS)]
        assert gc.isenabled()
        assert gc.get_freeze_count() == (before if frozen else 0)
        assert any(found is kept for found in gc.get_objects(generation=2)) is not frozen
        assert all(map(gc.is_tracked, kept))
        gc.disable()
        grammar.parse(text)
        assert not gc.isenabled()
    finally:
        gc.unfreeze()
        gc.enable()


def test_a_sign_of_the_readers_is_no_parameter() -> None:
    assert difference(HEAD + ".func f(.param .u64 f_param_0);\n.func g(.param .u64 \x030);\n") == ""


def test_few_bodies_of_the_corpus_are_left_to_their_statements() -> None:
    modules = {path.stem: grammar.parse(path.read_text()) for path in CORPUS}
    left = {name: sum(f.defined for f in module.functions) - len(unmade(module)) for name, module in modules.items()}
    assert {name: number for name, number in left.items() if number} == {"calls": 1, "language": 7, "objects": 1, "unoptimised": 1}
