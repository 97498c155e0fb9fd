"""The language rules at templates say what they say at nodes: nothing less, nothing more, at the same places."""

from __future__ import annotations

import random
import re
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ptxkit.check import check_text, language, plain
from ptxkit.check.places import Places
from ptxkit.grammar import parse, tree
from ptxkit.grammar.errors import Finding
from ptxkit.grammar.lazy import TemplateBody, template_body
from ptxkit.grammar.read import parse_all
from tests.grammar import certify, near
from tests.grammar.test_fast import mutant

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]

CORPUS = {path.stem: path.read_text() for path in sorted((Path(__file__).parents[1] / "corpus").glob("*.ptx"))}
HEAD = ".version 9.0\n.target sm_90a\n.address_size 64\n"
EXAMPLES = settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def bodies(module: tree.Module) -> int:
    """The bodies of which no node has been made."""
    return sum(template_body(function) is not None for function in module.functions)


def judged(text: str, *, made: bool, strict: bool = False) -> tuple[list[Finding], int]:
    """The findings, at the nodes if they are made first, and the bodies that stay unmade."""
    module, _ = parse_all(text)
    assert module is not None
    if made:
        assert all(function.body is not None for function in module.functions if function.defined)
    return list(language.findings(module, Places(module), strict=strict)), bodies(module)


def differences(text: str, *, strict: bool = False) -> list[str]:
    fast, slow = judged(text, made=False, strict=strict)[0], judged(text, made=True, strict=strict)[0]
    return [] if fast == slow else [f"at templates: {list(map(str, fast))}", f"at nodes: {list(map(str, slow))}"]


@pytest.mark.parametrize("name", CORPUS)
@pytest.mark.parametrize("strict", [False, True])
def test_the_corpus_is_judged_alike(name: str, strict: bool) -> None:
    assert differences(CORPUS[name], strict=strict) == []


def test_nearly_all_that_compilers_write_is_judged_without_nodes() -> None:
    kept, read = 0, 0
    for name in CORPUS.keys() - {"language"}:
        read += sum(function.defined for function in parse(CORPUS[name]).functions)
        kept += judged(CORPUS[name], made=False)[1]
    assert kept >= 0.9 * read


# ---------------------------------------------------------------------------------------------------- mutants

WORDS = re.compile(r"%[a-z]+[0-9]*|\$L__BB\w+|\b_Z\w+|\b[a-z_]+_param_[0-9]")
NAMES = ("%r9999", "%p1", "%r1", "%rd3", "%f7", "%q5", "%r", "%tid.x", "$L__BB9_99", "%clock64", "%r007", "%r1.x", "%envreg40", "%rd1$",
         "_")
LINES = (
    ".reg .pred %p1;", ".reg .b32 %r5;", ".reg .b64 %r<3>;", "{ .reg .f32 %r1; mov.f32 %r1, 0f00000000; }", ".reg .b32 %r0;",
    "{ .reg .b32 %r1; mov.u32 %r1, 1; }", "{\n.reg .pred p;\n@p bra $L__BB0_1;\n}", "{ $L__BB0_2: ret; }", "{\n$L__BB0_2:\nret;\n}",
    "$L__BB0_1:", "L:", "%r:", "%r5:", "bra L;", "@%r1 bra $L__BB0_1;", "@!%p1 ret;", ".shared .b32 s;", "mov.u32 %r1, s;",
    "{\n.reg .b32 t;\nmov.u32 t, 1;", "}", "call nothing;",
    "{\n.reg .b32 %r<2>;\nmov.u32 %r1, 1;\n}", '.pragma "nounroll";', ".loc 1 2 3", "add .s32 %r1, %r1, 1;",
)


def changed(text: str, rng: random.Random) -> str:
    """A text with other names in some lines, and lines that are gone, twice there or new."""
    lines = text.split("\n")
    for _ in range(rng.randrange(1, 5)):
        number, how = rng.randrange(len(lines)), rng.randrange(8)
        line = lines[number]
        words = list(WORDS.finditer(line))
        if how < 4 and words:
            word, others = rng.choice(words), WORDS.findall(rng.choice(lines))
            lines[number] = line[:word.start()] + rng.choice(others or NAMES if rng.random() < 0.6 else NAMES) + line[word.end():]
        elif how == 4:
            lines.insert(number, rng.choice(lines))
        elif how == 5:
            lines.insert(number, rng.choice(LINES))
        elif how == 6:
            lines.pop(number)
        else:
            lines[number] = line.replace("32", "64", 1) if rng.random() < 0.5 else line.replace(".u", f".{rng.choice('sfb')}", 1)
    return "\n".join(lines)


def mutants(seed: int, count: int) -> list[str]:
    rng = random.Random(seed)
    small = [text for text in CORPUS.values() if len(text) < 60_000]
    made = [changed(rng.choice(small), rng) if rng.random() < 0.8 else mutant(rng.choice(small), rng) for _ in range(count)]
    return [text for text in made if parse_all(text)[0] is not None]


@pytest.mark.parametrize("seed", range(2))
def test_mutants_are_judged_alike(seed: int) -> None:
    found = {text: differences(text, strict=number % 3 == 0) for number, text in enumerate(mutants(seed, 60))}
    assert [said for said in found.values() if said] == []


@pytest.mark.sweep
@pytest.mark.timeout(900)
def test_more_mutants_are_judged_alike() -> None:
    assert [said for text in mutants(99, 1500) if (said := differences(text))] == []


# ------------------------------------------------------------------------------------------ lines near the table


def alone(lines: list[str]) -> str:
    """A module with a function for each line, which has the names of `certify` but those of lists and prototypes."""
    before, opening, rest = certify.module_head("9.0", "sm_90a").partition(".visible .entry kernel")
    names = "\n".join(line for line in rest.split("\n") if not re.match(r"(targets|prototype|giving):", line))
    return before + "\n".join(f"{opening}_{number}{names}\n{line}\n}}" for number, line in enumerate(lines))


@pytest.mark.parametrize("seed", range(2))
def test_lines_near_the_table_are_judged_alike(seed: int) -> None:
    rng = random.Random(seed)
    lines = [line.text for section, rows in near.sections().items() for line in near.lines(section, rows, 3, rng)]
    text = alone(lines)
    assert differences(text) == []
    found, kept = judged(text, made=False)
    assert 50 < kept < len(lines)
    assert len({finding.ptx_line for finding in found}) > 100


# ---------------------------------------------------------------------------------------------------- made bodies

REGISTERS = st.sampled_from(("%r0", "%r1", "%r2", "%r7", "%r8", "%r99", "%rd1", "%rd3", "%f1", "%p1", "%p2", "%p9", "r", "p", "%x", "%r01"))
LABELS = st.sampled_from(("$L__BB0_1", "$L__BB0_2", "$L__BB0_9", "L", "M"))
PLACES = st.one_of(REGISTERS, st.sampled_from(("s", "g", "f_param_0", "f_param_1", "f_param_7", "h")))
WHOLE = st.sampled_from(("0", "1", "-1", "4096", "4294967296", "0f3F800000"))
CALLEES = st.sampled_from(("h", "h", "i", "j", "g", "s", "L", "f_param_0", "nowhere", "%rd1", "%r0"))
INSTRUCTIONS = st.one_of(
    st.builds("add.s32 {}, {}, {};".format, REGISTERS, REGISTERS, REGISTERS | WHOLE),
    st.builds("mov.{} {}, {};".format, st.sampled_from(("u32", "b32", "u64", "f32", "pred")), REGISTERS, PLACES | WHOLE | LABELS),
    st.builds("setp.eq.s32 {}, {}, {};".format, REGISTERS, REGISTERS, REGISTERS | WHOLE),
    st.builds("ld.{}.u32 {}, [{}+{}];".format, st.sampled_from(("param", "shared", "global")), REGISTERS, PLACES, st.sampled_from((0, 4))),
    st.builds("st.{}.u32 [{}], {};".format, st.sampled_from(("param", "shared", "global")), PLACES, REGISTERS),
    st.builds("{}bra {};".format, st.builds("@{}{} ".format, st.sampled_from(("", "!")), REGISTERS) | st.just(""), LABELS | PLACES),
    st.builds("call ({}), {}, ({});".format, PLACES, CALLEES, PLACES), st.builds("call {}, ({});".format, CALLEES, PLACES),
    st.builds("add.cc.s32 {}, {}, {};".format, REGISTERS, REGISTERS, REGISTERS),
    st.just("redux.sync.min.f32 %f1, %f1, %r1;"), st.just("ret;"),
)
DECLARED = st.one_of(
    st.builds(".reg .{} {};".format, st.sampled_from(("b32", "f32", "pred", "b64")), REGISTERS),
    st.builds(".reg .{} {}<{}>;".format, st.sampled_from(("b32", "f32", "pred")), st.sampled_from(("%r", "%p", "%x", "%r1", "r", "%q")),
              st.sampled_from((0, 2, 9))),
    st.builds(".{} .b32 {};".format, st.sampled_from(("shared", "param", "local")), st.sampled_from(("s", "t", "%r3", "f_param_1", "L"))),
)
SIMPLE = st.one_of(INSTRUCTIONS, INSTRUCTIONS, INSTRUCTIONS, DECLARED, st.builds("{}:".format, LABELS), st.just(".loc 1 2 3"),
                   st.just('.pragma "nounroll";'))
STATEMENTS = st.recursive(SIMPLE, lambda inner: st.builds(lambda lines, sign: f"{{{sign}{sign.join(lines)}{sign}}}",
                                                          st.lists(inner, max_size=5), st.sampled_from(("\n", " "))), max_leaves=8)
FINE = st.lists(st.sampled_from((
    "add.s32 %r1, %r2, %r7;", "@%p1 bra $L__BB0_1;", "@!%p2 bra L;", "ld.param.u32 %r2, [f_param_0];", "ld.param.u64 %rd1, [f_param_1];",
    "ld.global.u32 %r1, [%rd3+4];", "mov.u32 %r1, %tid.x;", "mov.f32 %f1, 0f3F800000;", "setp.eq.s32 %p1, %r0, 0;", "mov.u64 %rd1, g;",
    "mov.u32 %r1, s;", "st.shared.u32 [s], %r1;", ".loc 1 2 3", "{\n.reg .pred p;\nsetp.eq.s32 p, %r1, 0;\n@p bra L;\n}",
    "{ .reg .b32 r; mov.u32 r, %r1; }", "{\n.param .b32 y;\n.param .b32 z;\nst.param.b32 [y], %r1;\ncall (z),\nh,\n(y\n);\n}",
    "{\n.param .b32 y;\ncall i, (y);\n}", "{\n.param .b64 y;\ncall i, (y);\n}", "{\n.param .b32 y;\ncall j, (y);\n}",
    "call k;", "{\n.param .b32 y;\n{ call j, (y); }\ncall i,\n(y);\n}", "{ call k; call k; }",
    "{\nM: bra M;\n}", "{\n.reg .pred %p1;\nsetp.eq.s32 %p1, %r1, %r2;\n}", "{\nadd.s32 %r1, %r1, 1;\n{\nret;\n}\n}")),
    max_size=6).map("\n".join)
RIGHT = st.just(".reg .b32 %r<8>;\n.reg .b64 %rd<4>;\n.reg .f32 %f<4>;\n.reg .pred %p<3>;\n$L__BB0_1:\nL:")
OTHERS = st.lists(st.builds(".reg .{} {}<{}>;".format, st.sampled_from(("b32", "b64", "f32", "pred", "v2 .f32")),
                            st.sampled_from(("%r", "%rd", "%f", "%p")), st.sampled_from((1, 4, 100))), max_size=4).map("\n".join)
BODIES = st.one_of(
    st.builds("{}\n{}".format, st.one_of(RIGHT, OTHERS), st.lists(STATEMENTS, max_size=6).map("\n".join)),
    st.builds("{}\n{}\n{}\n{}".format, RIGHT, FINE, STATEMENTS, FINE), st.builds("{}\n{}".format, RIGHT, FINE))
FUNCTIONS = st.builds(
    "{}({})\n{{\n{}\n}}".format, st.sampled_from((".entry f", ".func f", ".entry k", ".func (.reg .b32 %r1) f")),
    st.sampled_from((".param .b32 f_param_0, .param .u64 f_param_1", ".param .b32 x", ".param .texref f_param_0", "")), BODIES)
TEXTS = st.builds(lambda head, functions: HEAD + head + "".join(
    re.sub(r"\b([fk])(?=\(|_param)", rf"\g<1>{number}", function) + "\n" for number, function in enumerate(functions)),
    st.sampled_from((".global .b32 g;\n.func (.param .b32 z) h(.param .b32 y);\n.func i(.param .b32 y);\n.func j(.param .b32 x);\n"
                     ".func k();\n", ".func i(.param .b64 y);\n.func j(.param .b32 y);\n.entry k(.param .b32 y);\n",
                     ".shared .b32 s;\n", ".global .b32 $L__BB0_1;\n", "")),
    st.lists(FUNCTIONS, min_size=1, max_size=3))


@EXAMPLES
@given(TEXTS)
def test_made_bodies_are_judged_alike(text: str) -> None:
    assert differences(text) == []


# ------------------------------------------------------------------------------------------ judges that err are caught

FAULTS = {
    "a register out of its range": ("known.issuperset(body.words)", "True", "", "add.s32 %r1, %r1, %r9;"),
    "a label that is not there": ("known.issuperset(body.words)", "True", "", "bra $L__BB0_7;"),
    "a register out of a long range": ("_within(counts, word)", "True", ".reg .b32 %q<5000>;", "add.s32 %r1, %r1, %r9;"),
    "a label that is not there beside a long range": ("0 < len(digits) < 11 and int(digits) < counts.get(stem, 0)",
                                                      "int(digits or 0) < counts.get(stem, 9)", ".reg .b32 %q<5000>;", "bra $L__BB0_7;"),
    "a label twice": ("once = len({*names, *ranges, *labels}) == len(names) + declared + len(labels)", "once = True", "",
                      "$L__BB0_1:\nret;"),
    "a label that is a range's name": ("{*names, *ranges, *labels}) == len(names) + declared +", "{*names, *labels}) == len(names) +",
                                       ".reg .b32 L<3>;", "L:"),
    "a declaration behind an instruction": ("""if unit.kind not in ("", "label"):""", "if False:", "",
                                            "ret;\n.reg .b32 %r;\n.reg .b32 %r;"),
    "a block's own register": ("if ANY in name or (ranged", "if (ranged", ".reg .b64 %rd<3>;",
                             "{\n.local .b32 %r1;\nmov.u64 %rd1, %r2;\n}"),
    "a name of another kind": ("(unit, *map(names.meaning, mentioned))", "unit", ".reg .f32 named;",
                               "mov.u32 %r1, named;"),
    "registers of another type": ("known.get(stem, type) == type", "True", ".reg .f32 %q<4>;", "add.s32 %q1, %q1, 1;"),
    "a range twice": ("len(names) + declared +", "len(names) + len(ranges) +", ".reg .b32 %r<2>;", "ret;"),
    "a function with other parameters": (", functions.shapes(function.parameters)", "", "",
                                         "{\n.param .b32 y;\ncall h, (y);\ncall g, (y);\n}"),
    "a function whose name a register has": ("{*names, *ranges, *labels}.isdisjoint(called)", "True", ".reg .b32 g;",
                                             "{\n.param .b32 y;\ncall g, (y);\n}"),
    "a register of a range alone": ("name.rstrip(DIGITS) for", '"" for', ".reg .b32 %r5;", "ret;"),
}
TWO = HEAD + """.func g(.param .b32 x);
.func h(.param .b64 x);
.func e()
{
.reg .b32 %r<8>;
.reg .b32 %q<4>;
.shared .b32 named;
ret;
}
.func f()
{
.reg .b32 %r<8>;
DECLARED
$L__BB0_1:
LINE
}
"""


@pytest.mark.parametrize("name", FAULTS)
def test_a_judge_that_errs_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right, wrong, declared, line = FAULTS[name]
    text = TWO.replace("ret;", line, 1).replace("DECLARED", declared).replace("LINE", line)
    source = Path(str(plain.__file__)).read_text()
    assert source.count(right) == 1
    assert differences(text) == []
    names = dict(vars(plain))
    exec(compile(source.replace(right, wrong), str(plain.__file__), "exec"), names)
    monkeypatch.setattr(language, "Judge", names["Judge"])
    assert differences(text) != []


def test_a_verdict_on_a_parameter_is_none_on_that_of_a_call() -> None:
    text = HEAD + ".func f(.param .b64 x)\n{\n.reg .b64 %rd<3>;\n.param .b64 y;\nmov.u64 %rd1, x;\nmov.u64 %rd2, y;\n}\n"
    for _ in range(2):
        for made in (False, True):
            assert [finding.words for finding in judged(text, made=made)[0]] == ["y"]


# ---------------------------------------------------------------------------------------------------- what stays unmade


def test_no_node_is_made_for_the_language(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TemplateBody, "build", lambda self: pytest.fail("a body is made"))
    assert check_text(CORPUS["arithmetic"], protocols=False) == ()


@pytest.mark.parametrize("made", [False, True])
def test_registers_that_are_not_used_take_no_memory(made: bool) -> None:
    letters = "abcdefghijk"
    names = [a + b + c for a in letters for b in letters for c in letters]
    text = HEAD + ".func f()\n{\n" + "".join(f".reg .b32 %{name}<99999>;\n" for name in names) + "add.s32 %abc7, %bca8, 1;\n}\n"
    judged(text, made=made)
    tracemalloc.start()
    found, _ = judged(text, made=made)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == []
    assert most < 100 * len(text)


def test_a_range_that_is_declared_again_has_no_names_of_the_one_before() -> None:
    text = HEAD + ".func f()\n{\n.reg .b64 %rd<9>;\nld.global.u64 %rd1, [%rd7];\n.reg .b64 %rd<3>;\nld.global.u64 %rd1, [%rd7];\n}\n"
    language._verdicts.clear()
    for made in (False, True):
        assert [finding.words for finding in judged(text, made=made)[0]] == ["%rd<3>", "%rd7"]
