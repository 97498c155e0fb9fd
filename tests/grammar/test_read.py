"""Which tree each spelling is, where statements stand, and what a wrong text is told."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from ptxkit import grammar
from ptxkit.grammar.errors import ParseError, Position
from ptxkit.grammar.tree import (
    Address,
    Aggregate,
    Arguments,
    Block,
    Directive,
    Element,
    Expression,
    Float,
    Function,
    Guard,
    Initializer,
    Instruction,
    Integer,
    Label,
    Loc,
    Minus,
    Name,
    Not,
    Offset,
    Operand,
    Pair,
    Pointer,
    Prototype,
    Statement,
    Targets,
    TensorAddress,
    Text,
    Variable,
    Vector,
)

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]

HEAD = ".version 9.0\n.target sm_90a\n.address_size 64\n"
X, P, Q = Name("x"), Name("p"), Name("q")


def body(text: str) -> tuple[Statement, ...]:
    function = grammar.parse(f"{HEAD}.func f()\n{{\n{text}\n}}").functions[0]
    assert function.body is not None
    return function.body


@pytest.mark.parametrize(
    ("text", "operand"),
    [
        ("%tid.x", Name("%tid.x")),
        ("v.y", Name("v.y")),
        ("r.b0", Name("r.b0")),
        ("_", Name("_")),
        ("WARP_SZ", Integer(32)),
        ("0x1F", Integer(31)),
        ("0XfU", Integer(15, True)),
        ("017", Integer(15)),
        ("0", Integer(0)),
        ("0b101", Integer(5)),
        ("- 5", Integer(-5)),
        ("18446744073709551615", Integer(2**64 - 1)),
        ("(1 + 2) * 3", Integer(9)),
        ("1.5", Float.of(1.5)),
        (".5", Float.of(0.5)),
        ("2.", Float.of(2.0)),
        ("-1e3", Float.of(-1000.0)),
        ("0f3F800000", Float.of(1.0, 32)),
        ("0D3ff0000000000000", Float.of(1.0)),
        ("x+8", Offset(X, 8)),
        ("x + -8", Offset(X, -8)),
        ("x+0", Offset(X, 0)),
        ("x[3]", Element(X, Integer(3))),
        ("x[p]", Element(X, P)),
        ("x[p+1]", Element(X, P, 1)),
        ("[p]", Address(P)),
        ("[p+0]", Address(P, 0, True)),
        ("[ p + 2*4 ]", Address(P, 8)),
        ("[p+-4]", Address(P, -4)),
        ("[p+0xFFFFFFFFFFFFFFFC]", Address(P, -4)),
        ("[p+8].unified", Address(P, 8, False, True)),
        ("[p] .unified", Address(P, 0, False, True)),
        ("[16]", Address(Integer(16))),
        ("[16+4]", Address(Integer(20))),
        ("{p, 1, _, 1.0}", Vector((P, Integer(1), Name("_"), Float.of(1.0)))),
        ("[x, {p, q}]", TensorAddress(X, Vector((P, Q)))),
        ("[x, p]", TensorAddress(X, P)),
        ("[x, p, {q}]", TensorAddress(X, Vector((Q,)), P)),
        ("p|q", Pair(P, Q)),
        ("p | _", Pair(P, Name("_"))),
        ("{p, q} | p", Pair(Vector((P, Q)), P)),
        ("!p", Not(P)),
        ("! 5", Integer(0)),
        ("-p", Minus(P)),
        ("-r.h1", Minus(Name("r.h1"))),
    ],
)
def test_operands(text: str, operand: Operand) -> None:
    assert body(f"op.u32 a, {text};") == (Instruction("op.u32", (Name("a"), operand)),)


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("ret;", Instruction("ret")),
        ("@p bra L;", Instruction("bra", (Name("L"),), Guard("p"))),
        ("@ ! p bra.uni L;", Instruction("bra.uni", (Name("L"),), Guard("p", True))),
        ("add\n\t.u32 /* c */ .x p, q;", Instruction("add.u32.x", (P, Q))),
        ("add.u32%r1,%r2;", Instruction("add.u32", (Name("%r1"), Name("%r2")))),
        ("cp.async.bulk.shared::cluster.mbarrier::complete_tx::bytes [p], [q];",
         Instruction("cp.async.bulk.shared::cluster.mbarrier::complete_tx::bytes", (Address(P), Address(Q)))),
        ("call f;", Instruction("call", (Name("f"),))),
        ("call .uni (p), f, (q, (1+2), 1.0), proto;",
         Instruction("call.uni", (Arguments((P,)), Name("f"), Arguments((Q, Integer(3), Float.of(1.0))), Name("proto")))),
        ("call (), f, ();", Instruction("call", (Arguments(()), Name("f"), Arguments(())))),
        ("callee.x p;", Instruction("callee.x", (P,))),
        ("{ L: { } }", Block((Label("L"), Block(())))),
        (".loc 1 2 3", Loc(1, 2, 3)),
        (".loc 1 2 3, function_name $n+4, inlined_at 5 6 7", Loc(1, 2, 3, ("$n", 4, 5, 6, 7))),
        ('.pragma "a", "b";', Directive("pragma", (Text("a"), Text("b")))),
        ("t: .branchtargets A, B<2>, C;", Targets("t", "branchtargets", ("A", "B0", "B1", "C"))),
        ("t : .calltargets f;", Targets("t", "calltargets", ("f",))),
        ("t: .callprototype _;", Prototype("t")),
        ("t: .callprototype (.param .b32 _) _ (.param .align 8 .b8 _[16]) .noreturn;",
         Prototype("t", (Variable("param", "b32", "_"),), (Variable("param", "b8", "_", align=8, shape=(16,)),), (Directive("noreturn"),))),
        (".reg .b32 %r<5>;", Variable("reg", "b32", "%r", 5)),
        (".reg .v4 .f32 v;", Variable("reg", "f32", "v", vector=4)),
        (".shared .align 16 .b8 x[4][0x8];", Variable("shared", "b8", "x", align=16, shape=(4, 8))),
    ],
)
def test_statements(text: str, statement: Statement) -> None:
    assert body(text) == (statement,)


def test_a_declaration_is_a_variable_for_each_name() -> None:
    assert body(".reg .b32 a, b<3>, c;") == (Variable("reg", "b32", "a"), Variable("reg", "b32", "b", 3), Variable("reg", "b32", "c"))


def test_registers_may_be_named_like_opcodes_and_labels_like_registers() -> None:
    assert body("add: call: add.u32 add, call, ret;") == (
        Label("add"), Label("call"), Instruction("add.u32", (Name("add"), Name("call"), Name("ret")))
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1<<4|3", Integer(19)),
        ("0f3F800000", Float.of(1.0, 32)),
        ("x", X),
        ("x+(2*4)", Expression("+", (X, Integer(8)))),
        ("generic(x)", Expression("generic", (X,))),
        ("generic(x)+8", Expression("+", (Expression("generic", (X,)), Integer(8)))),
        ("0xFF00(x)", Expression("mask", (Integer(0xFF00), X))),
        ("255(generic(x)+1)", Expression("mask", (Integer(255), Expression("+", (Expression("generic", (X,)), Integer(1)))))),
        ("{}", Aggregate(())),
        ("{1, {2, x}}", Aggregate((Integer(1), Aggregate((Integer(2), X))))),
        ("{addr_mode_0 = clamp_to_edge, force = 1}",
         Aggregate((Expression("=", (Name("addr_mode_0"), Name("clamp_to_edge"))), Expression("=", (Name("force"), Integer(1)))))),
    ],
)
def test_initialisers(text: str, value: Initializer) -> None:
    assert grammar.parse(f"{HEAD}.global .u64 v = {text};").items == (Variable("global", "u64", "v", initializer=value),)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("blanks", [" ", "\t", "\n", " \n", "/* x */"])
def test_many_blanks_in_a_statement_are_read_in_linear_time(blanks: str) -> None:
    text = f"{HEAD}.func f() {{ .reg .b32 r; add.u32 r, r {200_000 // len(blanks) * blanks} , 1; }}"
    assert grammar.parse(text) == grammar.parse(f"{HEAD}.func f() {{ .reg .b32 r; add.u32 r, r, 1; }}")


def test_declarations_and_functions() -> None:
    module = grammar.parse(HEAD + """
        .visible .global .attribute(.managed, .unified(1, 2)) .align 8 .v2 .u32 g[2][];
        .extern .func (.reg .u32 r, .reg .f32 s) f (.reg .b32 x) .noreturn;
        .func g;
        .weak .entry k(.param .u64 .ptr .global .align 8 a, .param .u64 .ptr b, .param .align 64 .b8 map[128])
        .maxntid 128, 1 .pragma "x"; .minnctapersm 0x2 { }""")
    assert module.items == (
        Variable("global", "u32", "g", vector=2, align=8, shape=(2, None), linkage="visible", attributes=("managed", "unified(1, 2)")),
        Function("func", "f", (Variable("reg", "b32", "x"),), (Variable("reg", "u32", "r"), Variable("reg", "f32", "s")),
                 (Directive("noreturn"),), None, "extern"),
        Function("func", "g"),
        Function("entry", "k",
                 (Variable("param", "u64", "a", pointer=Pointer("global", 8)), Variable("param", "u64", "b", pointer=Pointer()),
                  Variable("param", "b8", "map", align=64, shape=(128,))), (),
                 (Directive("maxntid", (128, 1)), Directive("pragma", (Text("x"),)), Directive("minnctapersm", (2,))), (), "weak"),
    )


def test_a_module_may_leave_out_the_address_size_and_name_options() -> None:
    module = grammar.parse(".version 7.8\n.target sm_90, debug, texmode_independent\n")
    assert (module.version, module.target, module.address_size) == ((7, 8), ("sm_90", "debug", "texmode_independent"), None)


def test_statements_know_where_they_stand() -> None:
    text = HEAD + """.global .u32 g;
.func f()
{ // a comment
    .reg .b32 a,
              b;
/* two
   lines */ L: @p add.u32 a, b, 1;
    .pragma "x"; t: .branchtargets L;
}
"""
    variable, function = grammar.parse(text).items
    assert isinstance(function, Function)
    assert function.body is not None
    where = [getattr(node, "position", None) for node in (variable, function, *function.body)]
    assert where == [Position(None, *at) for at in ((4, 14), (5, 7), (7, 15), (8, 15), (10, 13), (10, 19), (11, 5), (11, 18))]


# ----------------------------------------------------------------------------------------------- what is wrong

ERRORS = {  # the text in a function's body, or a whole module with its head; `^` stands where the error is told
    "add.s32 a, b^\n\tret;": "expected ';' at the end of the line",
    "add.s32 a ^b;": "found 'b', expected '+', ',', ';', '[' or '|'",
    "add.s32 a, ^;": "found ';', expected an operand, a number, '[' or '{'",
    "ld.u32 a, [p^-4];": "found '-', expected '+', ',' or ']' (a negative offset is written +-8)",
    "ld.u32 a, [p+^q];": "found 'q', expected a number",
    "ld.u32 a, [p^;": "found ';', expected '+', ',' or ']'",
    "ld.u32 a, [p^+1.0];": "an address is displaced by an integer",
    "ld.u32 a, ^[1.0];": "an address is an integer",
    "ld.u32 a, x^[1.0];": "an index is an integer",
    "mov.b64 {a, b, ^[p]};": "found '[', expected an operand or a number",
    "mov.u32 a, ^5u;": "found '5u', expected an operand, a number, '[' or '{'",
    "mov.u32 a, ^089;": "found '089'",
    "mov.u32 a, ^0f3f8;": "found '0f3f8'",
    "mov.u32 a, ^99999999999999999999;": "the number with the digits 99999999999999999999 does not fit 64 bits",
    "mov.f64 a, ^1e400;": "1e400 does not fit a double",
    "mov.f64 a, ^1e-400;": "1e-400 does not fit a double",
    "mov.u32 a, 1^/0;": "/ divides by zero",
    "mov.u32 a, 1 ^% 0;": "% divides by zero",
    "mov.u32 a, 1.5 ^+ 1;": "+ has an integer on one side and a floating-point number on the other",
    "mov.u32 a, 1.5 ^& 2.5;": "& needs integers",
    "mov.u32 a, ^~1.5;": "~ needs an integer",
    "mov.u32 a, 1 ^? 1.5 : 2;": "?: needs integers",
    "mov.u32 a, (^.f32)2;": "a constant is cast to .s64 or .u64, not to .f32",
    "mov.u32 a, (^.u64)2.0;": "(.u64) needs an integer",
    "mov.u32 a, (1+2^;": "found ';', expected ')'",
    "@^5 bra L;": "found '5', expected an operand or '!'",
    "@p^, bra L;": "found ',', expected an instruction",
    "^;": "found ';', expected an instruction, a label, a state space such as .reg, '.loc', '.pragma', '@', '{' or '}'",
    "^Add.s32 a, b;": "found 'Add.s32', expected an instruction",
    "add^. s32 a, b;": "found '.', expected",
    "call (a, f^;": "found ';', expected ')' or ','",
    ".reg ^.bf16 h;": "found '.bf16', expected a type such as .b32",
    ".reg .b32 r<^>;": "found '>', expected a number",
    ".shared .b8 x[4^;": "found ';', expected ']'",
    ".shared .b8 x = {1, 2^;": "found ';', expected ',' or '}'",
    ".shared .b8 x = {1, ^};": "found '}', expected",
    ".loc 1 2 ^ret;": "found 'ret', expected a number",
    ".pragma ^nounroll;": "found 'nounroll', expected a string",
    "t: .branchtargets ^;": "found ';', expected a name",
    "t: .callprototype (.param .b32 _) ^(.param .b32 _);": "found '(', expected '_'",
    "^/* never ends": "the comment that opens here has no end",
    "add.s32 a, ^é;": "found 'é', expected an operand",
    "^#define X": "found '#', expected an instruction",
    "^": "found the end of the text, expected '.version'",
    "^.target sm_90a": "found '.target', expected '.version'",
    ".version ^9": "found '9', expected a version such as 9.0",
    HEAD + "^garbage": "found 'garbage', expected a state space such as .reg, a linkage such as .visible, '.alias'",
    HEAD + ".global ^.b99 x;": "found '.b99', expected a type such as .b32, .v2, .v4 or .v8, '.align' or '.attribute'",
    HEAD + ".global .u32 ^3x;": "found '3x', expected a name",
    HEAD + ".global .u64 x = y^-4;": "found '-', expected '+', ',' or ';' (a negative offset is written +-8)",
    HEAD + ".global .u64 x = y^+1.0;": "an address is displaced by an integer",
    HEAD + ".entry k(.param .u64 a,^) {}": "found ')', expected a state space such as .reg",
    HEAD + ".entry k(.param .u64^) {}": "found ')', expected a name, '.ptr' or '_'",
    HEAD + ".entry k() ^.Maxntid 3 {}": "found '.Maxntid', expected a directive such as .maxntid, '.pragma', ';' or '{'",
    HEAD + ".entry k() { ret; ^": "found the end of the text, expected an instruction",
    HEAD + ".func f() { {} ^": "found the end of the text, expected an instruction",
    HEAD + ".func (.param .b32 x ^f() {}": "found 'f', expected ')', ',' or '['",
    HEAD + ".file 1 ^x.cu": "found 'x.cu', expected a string",
    HEAD + ".section ^debug {}": "found 'debug', expected a section's name",
    HEAD + ".section .debug_str { .b8 1^+2 }": "found '+', expected a label, a type such as .b32, ',' or '}'",
    HEAD + ".alias a ^b;": "found 'b', expected ','",
}


@pytest.mark.parametrize("planted", ERRORS, ids=[repr(text.removeprefix(HEAD)) for text in ERRORS])
def test_a_wrong_text_is_told_where_and_what_was_expected(planted: str) -> None:
    whole = planted == "^" or planted.lstrip("^").startswith((".version", ".target"))
    text = planted if whole else f"{HEAD}.func f()\n{{\n  {planted}\n}}\n"
    before, _, after = text.partition("^")
    with pytest.raises(ParseError) as caught:
        grammar.parse(before + after)
    error = caught.value
    assert (error.position.line, error.position.column) == (before.count("\n") + 1, len(before) - before.rfind("\n"))
    assert error.message.startswith(ERRORS[planted])
    assert str(error) == f"line {error.position.line}: {error.message}"
    assert not re.search(r"[A-Z]{3}", error.message.replace("WARP_SZ", "")), "a terminal's name is no word"
    assert "found" not in error.message or error.expected


def test_lark_is_imported_only_for_what_the_fast_path_leaves() -> None:
    code = """
import sys
from ptxkit import grammar
grammar.parse(".version 9.0 .target sm_90a .func f() { add.u32 a, b, 1; }")
assert "lark" not in sys.modules
grammar.parse(".version 9.0 .target sm_90a .func f() { add.u32 a, b, [1 + 1]; }")
assert "lark" in sys.modules"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
