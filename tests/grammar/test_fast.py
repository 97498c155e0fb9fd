"""The fast path reads what the grammar reads: the same trees, the same places, and errors at the same place for what is wrong."""

from __future__ import annotations

import dataclasses
import random
import re
import time
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ptxkit import grammar
from ptxkit.check import check_text
from ptxkit.grammar import read, tree
from ptxkit.grammar.errors import ParseError, Position
from ptxkit.grammar.readers import fallback, lines, nodes, reference, slots, statements, templates
from ptxkit.grammar.readers import module as modules

from . import trees
from .initialisers import Texts

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]

CORPUS = sorted((Path(__file__).parents[1] / "corpus").glob("*.ptx"))
SMALL = [path.read_text() for path in CORPUS if path.stat().st_size < 18_000]
HEAD = ".version 9.0\n.target sm_90a\n.address_size 64\n"
EXAMPLES = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))

PIECES = (
    ";", "{", "}", "(", ")", "[", "]", ",", ":", "/*", "*/", "//", '"', "@", "!", "%r1", ".reg .b32 q;", "\n", "\r\n", "\t", " ", "0x",
    "-", "+", "|", "L:", "call", "ret;", ".loc 1 2 3", '.pragma "x";', ".u32", "WARP_SZ", "\x0b", "é", "\xa0", "5U", "0f3F800000", "1.5",
    "add.s32 a, b, c;", "t: .branchtargets A;", ".section .debug_x { .b8 1 }", '.file 1 "a"', ".entry", "::", ".x", "_", "<3>", "=",
    "{1,2}", "generic(x)",
)


def places(node: object) -> list[tuple[str, Position | None]]:
    """The positions of a tree's nodes, in order."""
    found: list[tuple[str, Position | None]] = []
    if isinstance(node, tuple):
        for part in node:
            found += places(part)
    elif dataclasses.is_dataclass(node) and not isinstance(node, Position):
        for field in dataclasses.fields(node):
            value = getattr(node, field.name)
            found += [(type(node).__name__, value)] if field.name == "position" else places(value)
    return found


def difference(text: str) -> str:
    """How the fast path differs from the grammar on a text; empty if it does not."""
    results: list[tree.Module | ParseError] = []
    for parse in (read.parse, reference.parse):
        try:
            results.append(parse(text))
        except ParseError as error:
            results.append(error)
    fast, slow = results
    if isinstance(fast, ParseError) or isinstance(slow, ParseError):
        if not (isinstance(fast, ParseError) and isinstance(slow, ParseError)):
            return f"one of them refuses it: {fast!r}, {slow!r}"
        if fast.position != slow.position or fast.message.partition(", expected")[0] != slow.message.partition(", expected")[0]:
            return f"they are told differently: {fast}, {slow}"
        # The grammar's tables merge some states and then name what other places could have, too.
        return "" if set(fast.expected) <= set(slow.expected) else f"{fast} expects what the grammar does not"
    if fast != slow:
        return "the trees differ"
    return "" if places(fast) == places(slow) else "the places differ"


@pytest.mark.parametrize("path", [path for path in CORPUS if path.stat().st_size < 35_000], ids=lambda path: path.stem)
def test_the_corpus_is_read_alike(path: Path) -> None:
    assert difference(path.read_text()) == ""


@EXAMPLES
@given(trees.modules, st.integers(0, 2**32))
def test_any_module_is_read_alike_however_it_is_laid_out(module: tree.Module, seed: int) -> None:
    assert difference(relaid(grammar.write(module), random.Random(seed))) == ""


def relaid(text: str, rng: random.Random) -> str:
    """The same module with other blanks: lines joined and broken, comments, tabs, line ends, no line end at the end."""
    if '"' in text:
        return text
    blanks = [" ", "\t", "\n", "\r\n", " // c ; { \n", "/* ; } */", "  "]
    broken = re.sub(r" |\n", lambda match: rng.choice(blanks) if rng.random() < 0.3 else match[0], text.rstrip("\n"))
    return re.sub(r"([,;{}])", lambda match: f"{match[0]} " if rng.random() < 0.3 else match[0], broken)


def mutant(text: str, rng: random.Random) -> str:
    """A text near a real one, most often wrong."""
    for _ in range(rng.randrange(1, 4)):
        at, lines = rng.randrange(len(text) + 1), text.split("\n")
        line = rng.randrange(len(lines))
        before, behind = lines[:line], lines[line:]
        text = rng.choice([
            text[:at] + rng.choice(PIECES) + text[at:],
            text[:at] + text[at + rng.randrange(1, 6):],
            "\n".join(before + behind[1:]),
            "\n".join([*before, rng.choice(lines), *behind]),
            text[:at],
            "\n".join(before) + " " + "\n".join(behind),
            text[:at] + rng.choice(" \t\n/;.,%") + text[at + 1:],
        ]) or "\n"
    return text


@pytest.mark.parametrize("seed", range(4))
def test_mutants_of_real_files_are_told_alike(seed: int) -> None:
    rng = random.Random(seed)
    found = [difference(mutant(rng.choice(SMALL), rng)) for _ in range(14)]
    assert [said for said in found if said] == []


@pytest.mark.sweep
@pytest.mark.timeout(900)
def test_more_mutants_of_real_files_are_told_alike() -> None:
    rng = random.Random(99)
    found = [difference(mutant(rng.choice(SMALL), rng)) for _ in range(150)]
    assert [said for said in found if said] == []


BOTH = HEAD + """
.func f() {
 add.s32 a, b, c;
L:
 @p sub.s32 d, e;
 add.s32
 a, b, c;
}
.func g(.param .b32 g_param_0)
{
 .reg .b32 %r<5>;
 ld.param.u32 %r1, [g_param_0+4];
 @%p1 bra $L__BB0_1;
 {add.s32 %r1, %r2, 3;}
 { .reg .pred p; add.s32 %r1, %r2, 1; @p add.s32 %r3, {%r4, %r2}, 10; }
$L__BB0_1:
 call (a),
 f, (b);
 mad.lo.s32 %r1, %r2, 3, %r4;
}
.func h(.param .b32 h_param_0)
{
 ld.param.u32 %r1, [h_param_0+4];
}
"""
"""A body that is read by its statements, and two by their templates."""


@pytest.mark.parametrize(("module", "name", "right", "wrong"), [
    (nodes, "NodeBuilder", "found += nodes[done:before", "found += nodes[done + 1:before"),
    (nodes, "NodeBuilder", "statement(draft, line)", "statement(draft, line + 1)"),
    (nodes, "NodeBuilder", "known.clear()", "known"),
    (nodes, "NodeBuilder", "lines[-1] + more + 1", "lines[-1] + more"),
    (nodes, "NodeBuilder", "column + before", "column"),
    (nodes, "NodeBuilder", "column -= len(guard.predicate)", "column -= 0"),
    (nodes, "NodeBuilder", "columns[number] += len", "columns[number] -= len"),
    (nodes, "NodeBuilder", "operands[number] = orders[number]", "operands[number] = tuple"),
    (nodes, "NodeBuilder", "set_offset(found, node.offset)", "set_offset(found, 0)"),
    (statements, "StatementReader", "self.body += nodes[done:stop]", "self.body += nodes[done + 1:stop]"),
    (statements, "StatementReader", "statement(draft, line + 1)", "statement(draft, line)"),
    (lines, "LineReader", "line.index(bare) + 1", "line.index(bare)"),
    (slots, "instructions", "set_opcode, nodes, ", "set_opcode, reversed(nodes), "),
    (lines, "LineReader", "meanings[1:].__getitem__, map(slice", "meanings.__getitem__, map(slice"),
    (lines, "LineReader", "line.index(words[begin - 1], at) + 1", "line.index(words[begin - 1], at)"),
    (lines, "LineReader", "compress(range(first + 1,", "compress(range(first,"),
])
def test_a_fast_path_that_errs_is_caught(module: ModuleType, name: str, right: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Path(str(module.__file__)).read_text()
    assert right in source
    names = dict(vars(module))
    exec(compile(source.replace(right, wrong), str(module.__file__), "exec"), names)
    assert difference(BOTH) == ""
    for user in (modules, templates, lines, nodes):
        if name in vars(user):
            monkeypatch.setattr(user, name, names[name])
    assert difference(BOTH) != ""


@pytest.mark.parametrize("text", [
    "mov.u32 a, WARP_SZ;", "vmad.s32 a, b, c, -%r1.b0;", "mov.u32 a, {-x, b};", "ld.u32 a, [WARP_SZ];", "ld.u32 a, [%r1+WARP_SZ];",
    "mov.u32 a, -WARP_SZ;", "mov.u32 a, --x;", "bra WARP_SZ;", "bra\tL;", "  bra L;", "@p bra $L;", "@!p ret ;", "@p\tret;",
    "call f, (WARP_SZ);", "add.s32 a,b  ,c;", "add.s32 a, b c, d;", "add.s32 a b, c;", "add.s32 a, , b;", "add.s32 a, b,;",
    "add.s32  ;", "add.s32 ,;", "a.b;",
    "{add.s32 a, b, c;", "add.s32 a, b, c; }", "{ add.s32 a, b, c; }", "{.reg.b32 q;", ".reg.b32 q, r;", ".param.b64 q;", "l: ret;",
    "L: add.s32 a, b, c;", "and.b32 a, b, c;    setp.ne.u32 p, a, 0; }", "ret; ret", "ret; }{", "\t// begin", "add.s32 a, b, c; // \"x\"",
    "ld.u32 a, [ b + 4 ];", "st.u32 [b], { a };", ".loc 1 2 3", ".loc 1 2 3\n\n, function_name f, inlined_at 1 2 3", ".loc 1 02 3", "}",
    "a, b;", "call (r), f\n, (a);", "call\nf;", "add.s32\ta, b,\nc;", "vprintf\n", ".pragma \"a//b\";", "wgmma.fence.sync.aligned;",
    "add.s32 a, b, wgmma.fence.sync;", "@p.x add.s32 a, b;", "mov.b64 a, {b, c}; mov.u32 d, %tid.x;", "% r1;", "mov.u32 a, %tid .x;",
    "add.s32 a, b, c;5", "add.s32 a, b, c;d",
])
def test_lines_of_any_shape_are_read_alike(text: str) -> None:
    for line in (text, f"\t{text}", f"{text}\r", f"{text} // c"):
        said = [difference(f"{HEAD}.func f() {{\n add.s32 a, b, c;\n{line}\n sub.s32 a, b, c;\n{line}\n}}")]
        assert [words for words in said if words] == []


# ----------------------------------------------------------------------------------------------- all errors at once


def test_reading_goes_on_behind_an_error() -> None:
    module, errors = read.parse_all(HEAD + """.func f() {
    add.s32 a, b
    add.s32 a, b, c;
    ld.u32 a, [p-4]; ret;
    mov.u32 a, 5u;
}
.global .b99 x;
.global .b32 y;
.func g() { ret; """)
    assert [error.position.line for error in errors] == [5, 7, 8, 10, 12]
    assert module is not None
    assert [getattr(item, "name", "") for item in module.items] == ["f", "y", "g"]
    assert module.functions[0].body == (
        tree.Instruction("add.s32", tuple(map(tree.Name, "abc"))), tree.Instruction("ret"))


def test_a_text_without_errors_has_none() -> None:
    for path in CORPUS[:4]:
        module, errors = read.parse_all(path.read_text())
        assert (module, errors) == (grammar.parse(path.read_text()), [])


def test_errors_are_told_up_to_a_number() -> None:
    _, errors = read.parse_all(HEAD + ".func f() {\n" + "add a b;\n" * 500 + "}")
    assert len(errors) == read.MAX_ERRORS + 1


@pytest.mark.parametrize("text", ["", "\0", "garbage", ".version 9.0", ".version 9.0 .target sm_90a {", "/*", HEAD + "/* x"])
def test_what_is_no_module_at_all_is_one_error(text: str) -> None:
    module, errors = read.parse_all(text)
    assert len(errors) == 1
    assert module is None or module.items == ()


# ---------------------------------------------------------------------------------------------------- strange sizes


@pytest.mark.parametrize(("before", "unit", "behind"), [
    (".func f() {", "{", ""), (".func f() {", "{", "}" * 20_001), (".global .b32 x = ", "(", ""), (".global .b32 x[] = ", "{", ""),
    (".func f() { mov.u32 a, ", "(", ""), (".func f() { mov.u32 a, ", "{", ""),
])
def test_nesting_ends_somewhere(before: str, unit: str, behind: str) -> None:
    with pytest.raises(ParseError) as caught:
        grammar.parse(HEAD + before + unit * 20_000 + behind)
    assert "nested more than 64 deep" in caught.value.message
    assert caught.value.position.line == 4


@pytest.mark.parametrize("unit", ["-", "~ ", "1+", "1 ?\n2:", "(.s64)"])
@pytest.mark.parametrize("before", [".global .b32 x = ", ".func f() { .reg .b32 a; mov.u32 a, "])
def test_expressions_end_somewhere(before: str, unit: str) -> None:
    for parse in (grammar.parse, reference.parse):
        with pytest.raises(ParseError, match="an expression has more than 4096 operator characters") as caught:
            parse(HEAD + before + unit * 20_000 + "1;")
        assert caught.value.position.line == 4


def test_expressions_up_to_there_are_fine() -> None:
    for text in ("-" * 4096 + "1", "1+" * 4095 + "1", ", ".join(["1+1"] * 3000)):
        assert difference(f"{HEAD}.global .b32 x[] = {{ {text} }};") == ""
    assert difference(HEAD + '.pragma "' + "-" * 5000 + '";') == ""


def test_nesting_up_to_there_is_fine() -> None:
    module = grammar.parse(HEAD + ".func f() {" + "{" * 63 + "ret;" + "}" * 64)
    assert grammar.parse(grammar.write(module)) == module
    assert difference(grammar.write(module)) == ""
    assert eval(repr(module), dict(vars(tree))) == module


@pytest.mark.parametrize("text", [
    "mov.u32 a, N;", "ld.u32 a, [b+N];", ".loc N 1 1", ".reg .b32 r<N>;", "mov.f32 a, N.5;", "mov.f32 a, 1eN;", "t: .branchtargets L<N>;",
    ".shared .b32 s[N];", "mov.u32 a, 0xN;", "mov.u32 a, 0N;", "mov.b32 %rN, 1;", "mov.u32 a, (1 + N);",
])
def test_numbers_of_thousands_of_digits_are_told(text: str) -> None:
    for digits in ("7" * 5000, "7" * 20, "0" * 5000):
        assert difference(f"{HEAD}.func f() {{ {text.replace('N', digits)} }}") == ""
        check_text(f"{HEAD}.func f() {{ .reg .b32 %r<9>; {text.replace('N', digits)} }}")
    assert "digits" in str(read.parse_all(f".version 9.{'0' * 5000} .target sm_90a")[1][0])


@pytest.mark.parametrize("text", [
    "a" * 60_000, ";" * 60_000, "a " * 30_000, '"' * 60_000, "/" * 60_000, "/*" * 30_000, "(" * 60_000, "[" * 60_000, "%" * 60_000,
    "\n" * 60_000, "{" * 10_000 + "}" * 10_000, ", " * 30_000, "a," * 30_000, "0" * 60_000, "." * 60_000, "a.b" * 20_000, "a::" * 20_000,
    "@p " * 20_000, "add.s32 a, b, c; " * 3_000, "x: " * 20_000, "{}" * 10_000, "a;" * 10_000, ".loc 1 2 3 " * 4_000,
    ".reg .b32 r<999999999>; " * 2_000, "a: .branchtargets " + ", ".join(["b<60000>"] * 20) + ";",
], ids=lambda text: repr(text[:12]))
def test_no_text_takes_long(text: str) -> None:
    start = time.process_time()
    for whole in (text, f"{HEAD}.func f() {{ {text} }}", f"{HEAD}.global .b32 x[] = {{ {text} }};"):
        read.parse_all(whole)
    assert time.process_time() - start < 10


# ------------------------------------------------------------------------------------- constants, and lists of any length


def initialisers_told_otherwise(seed: int, count: int) -> list[tuple[str, str]]:
    texts = Texts(seed)
    told = [(text, difference(f"{HEAD}{text}\n.global .u32 z;\n")) for text in [texts.text() for _ in range(count)]]
    return [(text, said) for text, said in told if said]


@pytest.mark.parametrize("seed", range(4))
def test_constants_of_any_spelling_are_read_alike(seed: int) -> None:
    assert initialisers_told_otherwise(seed, 250) == []


@pytest.mark.sweep
@pytest.mark.timeout(900)
def test_more_constants_are_read_alike() -> None:
    assert initialisers_told_otherwise(99, 20_000) == []


class Handed:
    """The reference reader, and how many characters it is given."""

    def __init__(self) -> None:
        self.characters = 0

    def parse(self, text: str) -> tree.Module:
        self.characters += len("".join(text.split()))
        return reference.parse(text)

    def fragment(self, text: str, start: str, place: Position) -> list[object]:
        self.characters += len("".join(text.split()))
        return reference.fragment(text, start, place)


@pytest.mark.parametrize(("before", "unit", "behind"), [
    (".global .u32 a[] = {", "1+{0}, ", "1};"), (".global .u32 a[] = {", "{{{0}, 2+2}}, ", "{}};"),
    (".global .u8 a[] = {", "0xFF(x+{0}), ", "1};"),
    (".global .attribute(.managed) .u32 a[] = {", "{0}, // c\n", "1};"),
    (".func f() { .global .u64 a[] = {", "{{x+{0}*2}}, ", "x}; ret; }"),
    (".func f() { call (r), f, (", "1+{0}, ", "a); }"), (".func f() { foo ", "1+{0}, ", "a; }"),
    (".global .samplerref a = {", "a = 1, ", "a = 1};"),
    (".global .u32 a[] = {", "1+{0}, ", "5 5};"),
    (".global .u32 a[] = {", "{{1+{0}}},\n", "{{1}, 2, }};"),
    (".global .u32 a[] = {", "1/{0}, ", ""),
    (".func f() { .global .u32 a[] = {", "{{1+{0}, {{}}}}, ", "{{} 5"), (".global .u32 a[] = {", "1+{0}, ", "{ {1}, {" + "{" * 70),
])
def test_long_lists_are_not_given_to_the_grammar(before: str, unit: str, behind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = HEAD + before + "".join([unit.format(number) for number in range(1, 400)]) + behind
    assert difference(text) == ""
    handed = Handed()
    monkeypatch.setattr(fallback, "reference_reader", lambda: handed)
    read.parse_all(text)
    assert handed.characters < 800


def test_what_is_given_to_the_grammar_ends_somewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fallback, "MAX_CHARACTERS", 1 << 15)
    handed = Handed()
    monkeypatch.setattr(fallback, "reference_reader", lambda: handed)
    labels = "L1,\n" * 50_000
    _, errors = read.parse_all(f"{HEAD}.func f() {{\n x: .branchtargets\n{labels} L2;\n ret;\n add.u32 a b;\n}} .global .u32 a;")
    assert [(error.position.line, error.message[:35]) for error in errors] == [
        (5, "what begins here has more than 3276"), (50_008, "found 'b', expected '+', ',', ';', ")]
    assert handed.characters < 80_000


@pytest.mark.parametrize("head", [
    ".version\n9.0 .target sm_90a", ".version 9.0 // x\n.target // y\n sm_90a // z\n, debug\n.address_size 0x40",
    ".version9.0.target sm_90a.address_size 64",
    ".version 9.0 .target sm_90a .address_size 64U", ".version 9.0 .target sm_90a,", ".version 9.0 .target sm_90a .address_size x",
])
def test_heads_of_any_spelling_are_read_alike(head: str) -> None:
    for behind in ("", "\n.global .b32 x;", ".global .b32 x;", "// c", "\n.func f() { add.u32 a b; }"):
        assert difference(head + behind) == ""
