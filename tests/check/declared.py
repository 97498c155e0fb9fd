"""Modules near each declaration, legal and illegal, by kind. ptxas judges them.

A kind is a family of texts: every state space in every place, every limit from both sides, every version gate, every reserved word.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path

from ptxkit.check import check_text
from ptxkit.grammar.features import NEWEST, VERSIONS
from ptxkit.grammar.special import SPECIAL

from ..grammar import certify

Family = Callable[[], Iterator[str]]
HEAD = ".version 9.0\n.target sm_90a\n.address_size 64\n"
KERNEL = "\n.visible .entry k() { ret; }\n"
SPACES = ("reg", "sreg", "const", "global", "local", "param", "shared", "tex")
LINKAGES = ("", ".extern ", ".visible ", ".weak ", ".common ")
VERSIONED = ("6.0", "6.3", "6.4", "7.0", "7.1", "7.7", "7.8", "8.0", "8.1", "8.2", "8.3", "8.8", "9.0")
TARGETS = ("sm_90a", "sm_90", "sm_80", "sm_75", "sm_70", "sm_50")
LOWEST = {"sm_90a": "8.0", "sm_90": "7.8", "sm_80": "7.0", "sm_75": "6.3", "sm_70": "6.0", "sm_50": "4.0"}
SECONDS = 20


def inside(statements: str) -> str:
    return f"{HEAD}.visible .entry k() {{ {statements} ret; }}\n"


def outside(items: str) -> str:
    return HEAD + items + KERNEL


def versioned(items: str) -> Iterator[str]:
    for version, target in product(VERSIONED, TARGETS):
        if tuple(map(int, version.split("."))) >= tuple(map(int, LOWEST[target].split("."))):
            yield f".version {version}\n.target {target}\n.address_size 64\n{items}\n"


# ---------------------------------------------------------------------------------------------------- variables


def spaces() -> Iterator[str]:
    """Every state space and linkage with every shape of declaration, in a module and in a function."""
    declared = (
        ".b32 x;|.b32 x[4];|.b32 x[];|.b32 x = 1;|.b32 x[2] = {1,2};|.pred x;|.texref x;|.samplerref x;|.surfref x;|.v2 .b32 x;|.v4 .f64 x;"
        "|.v8 .b16 x;|.b128 x;|.align 16 .b128 x;|.align 3 .b32 x;|.align 0 .b32 x;|.attribute(.managed) .b32 x;"
        "|.attribute(.unified(1,2)) .b32 x;|.b32 x[0];|.b32 x[2][];|.b32 x[][2];|.b32 x[][];|.b32 x<4>;|.f16 x;|.f16x2 x;|.b8 x;|.b32 x, y;"
        "|.b32 x[2], y;|.b32 x, x;|.attribute(.managed) .b32 x = 1;|.u64 x = x;|.u64 x[4] = {x, x+4};")
    for space, linkage, rest in product(SPACES, LINKAGES, declared.split("|")):
        yield outside(f"{linkage}.{space} {rest}")
        yield inside(f"{linkage}.{space} {rest}")
    for one, other in product(LINKAGES, repeat=2):
        yield outside(f"{one}.global .b32 z; {other}.global .b32 z;")


def alignments() -> Iterator[str]:
    places = (".{s} .align {a} .{t} x;", ".visible .entry f(.{s} .align {a} .{t} x[8]) {{ret;}}",
              ".func f(.{s} .align {a} .{t} x[8]) {{ret;}}",
              ".func (.{s} .align {a} .{t} x[8]) f() {{ret;}}", ".visible .entry f(.{s} .u64 .ptr .align {a} x) {{ret;}}",
              ".func f(.{s} .u64 .ptr .global .align {a} x) {{ret;}}")
    for space, align, type, place in product(SPACES, (1, 2, 64, 128, 256, 65536, 1 << 17, 1 << 32, (1 << 32) + 1, 1 << 63), ("b8", "b64"),
                                             places):
        text = place.format(s=space, a=align, t=type)
        yield outside(text)
        if text[0] == "." and "f(" not in text:
            yield inside(text)


def sizes() -> Iterator[str]:
    """Around the limits of .const, of .shared in and outside of functions, and of what `.reg` counts."""
    for bytes in (1, 49152, 49153, 65535, 65536, 65537, 232440, 232448, 232449, 1 << 22, 1 << 30):
        for space, type in product(("const", "global", "shared", "local"), ("b8", "b32")):
            for linkage in ("", ".extern "):
                declared = f"{linkage}.{space} .{type} x[{bytes}];"
                yield outside(declared)
                yield inside(declared)
                yield HEAD + declared + " .visible .entry k() { .reg .b64 a; mov.u64 a, x; ret; }"
                yield HEAD + declared + " .func f() { .reg .b64 a; mov.u64 a, x; ret; } .visible .entry k() { call f; ret; }"
        for target in ("sm_90", "sm_80", "sm_75"):
            yield f".version 9.0\n.target {target}\n.visible .entry k() {{ .shared .b8 x[{bytes}]; ret; }}"
    for parts in combinations((".const .b8 a;", ".const .align 8 .b8 b[65528];", ".const .b8 c[7];", ".const .b8 d[8];",
                               ".const .b16 e;"), 3):
        yield outside(" ".join(parts))
        yield inside(" ".join(parts))
    for count in (0, 1, 1000, 1 << 32):
        yield inside(f".reg .b32 r<{count}>;")
    yield inside("{ .shared .b8 x[200000]; } { .shared .b8 y[200000]; }")
    yield HEAD + ".func f() { .shared .b8 x[200000]; ret; } .visible .entry k() { .shared .b8 y[200000]; call f; ret; }"
    yield HEAD + ".func f() { .shared .b8 x[200000]; ret; } .visible .entry k() { .shared .b8 y[200000]; ret; }"


def words() -> Iterator[str]:
    """Reserved words, words of PTX that are none, and special registers, as every kind of name."""
    tried = ["WARP_SZ", "WARP_SZ2", "warp_sz", "function_name", "inlined_at", "generic", "_", "add", "mov", "reg", "global", "b32", "u32",
             "pred", "x", "y", "tid", "ptr", "texref", "section", "file", "loc", "v2", "managed", "unified", "attribute", "sizeof", "rn",
             "to", "cc", "debug", "sm_90a", "U", "$", "%", "$x", "%x", "_x", "%tid_x", "%warpsize", "%p1", "%r1", "__x", "___", "_$", "$$",
             "%_", "%1", "%%", "x$", "a", "b0", "h1", "clamp", "nearest", "width"]
    for word in tried:
        yield from (text.replace("NAME", word) for text in (
            inside(".reg .b32 NAME;"), inside(".reg .b32 NAME<4>;"), inside(".reg .b32 q, NAME;"), outside(".global .b32 NAME;"),
            inside(".shared .b32 NAME;"), inside(".local .b32 NAME; .reg .b64 dd; mov.u64 dd, NAME;"), inside("NAME: bra NAME;"),
            HEAD + ".visible .entry NAME() { ret; }", HEAD + ".func NAME() { ret; }",
            HEAD + ".visible .entry k(.param .u32 NAME) { .reg .u32 rr; ld.param.u32 rr, [NAME]; ret; }",
            HEAD + ".func k(.param .u32 NAME) { .reg .u32 rr; ld.param.u32 rr, [NAME]; ret; }",
            inside(".param .b32 NAME; st.param.b32 [NAME], 1;"),
            inside(".reg .b32 i; mov.u32 i, 0; NAME: .branchtargets A; brx.idx i, NAME; A:"),
            outside(".func bar() {ret;} .func NAME(); .alias NAME, bar;")))
    for word in ("%tid", "%laneid", "%clock64", "%pm0", "%envreg0", "%clusterid"):
        yield from (text.replace("NAME", word) for text in (
            outside(".global .b32 NAME;"), HEAD + ".visible .entry NAME() { ret; }", HEAD + ".func NAME() { ret; }",
            inside(".reg .b32 NAME; mov.b32 NAME, 0;")))


def initial_values() -> Iterator[str]:
    before = ".func f() {ret;} .visible .entry e() {ret;} .global .b32 y; .shared .b32 sh; .const .b32 c; .global .texref t; "
    values = ["0", "1", "-1", "256", "4294967296", "1.0", "-1.0", "0f3F800000", "0d3FF0000000000000", "y", "y+4", "y+-4", "generic(y)",
              "generic(y)+4", "0xFF(y)", "0xFF00(y+1)", "0xFF(generic(y))", "0x1FF(y)", "0(y)", "f", "e", "f+4", "generic(f)", "sh", "c",
              "generic(c)", "t", "z", "x", "x+4", "{1}", "{1,2}", "{{1}}", "{}", "{1,2,3,4,5}", "{y}", "{y,1}", "{1.0}", "1+2", "~0",
              "WARP_SZ", "1?2:3", "{{1,2},{3,4}}", "{1,{2}}"]
    types = ["b8", "u8", "s8", "b16", "u16", "b32", "u32", "s32", "b64", "u64", "s64", "f32", "f64", "f16", "f16x2", "b128", "texref"]
    for space, type, value in product(("global", "const"), types, values):
        yield HEAD + before + f".{space} .{type} x = {value}; .global .b32 z;"
    for type, shape, value in product(("b8", "u32", "u64", "f32"), ("[4]", "[2][2]", "[][2]"), values):
        yield HEAD + before + f".global .{type} x{shape} = {value}; .global .b32 z;"
    for vector, type, value, shape in product(("v2", "v4"), ("b32", "f32", "u64"), ("{1,2}", "{1,2,3,4}", "1", "{{1,2}}", "{}", "{y,y}"),
                                              ("", "[2]")):
        yield HEAD + before + f".global .{vector} .{type} x{shape} = {value};"
    for items in (".global .u64 p = z; .global .u32 z;", ".global .u64 p = g; .func g() {ret;}",
                  ".func g(); .global .u64 p = g; .func g() {ret;}",
                  ".global .u64 p = z+4; .global .b32 z[4];", ".global .b32 z; .global .u64 p = z; .global .u64 w[2] = {p, z};",
                  ".extern .global .b32 z; .global .u64 p = z; .visible .global .b32 z = 1;"):
        yield outside(items)
        yield inside(items)
    for statements in (".global .b32 y; { .global .u64 x = y; }", "{ .global .b32 y; } .global .u64 x = y;",
                       ".global .u64 x = y; .global .b32 y;",
                       ".shared .b32 y; .global .u64 x = y;", ".reg .b32 y; .global .u64 x = y;", ".const .b32 y = 1; .global .u64 x = y;"):
        yield inside(statements)


# ---------------------------------------------------------------------------------------------------- functions


DIRECTIVES = {
    "maxntid": ("", "0", "1", "32", "32, 1", "32,1,1", "32,1,1,1", "1025", "4294967296", "0,1,1"),
    "reqntid": ("", "0", "1", "32,1,1", "32,1,1,1", "1025", "1,0,1"), "minnctapersm": ("", "0", "1", "33", "1,1", "4294967296"),
    "maxnctapersm": ("", "0", "1", "1,1"), "maxnreg": ("", "0", "1", "255", "257", "1,1", "4294967296"), "noreturn": ("", "1"),
    "explicitcluster": ("", "1"), "blocksareclusters": ("", "1"), "reqnctapercluster": ("", "0", "2", "17", "2,2,2", "2,2,2,2",
                                                                                        "4294967296"),
    "maxclusterrank": ("", "0", "8", "17", "2,2", "4294967296"), "abi_preserve": ("", "0", "10", "239", "240", "256", "1,1"),
    "abi_preserve_control": ("", "0", "11", "12", "1,1"),
}
USUAL = {"maxntid": "32", "reqntid": "32", "minnctapersm": "1", "maxnreg": "64", "noreturn": "", "explicitcluster": "",
         "blocksareclusters": "", "reqnctapercluster": "2", "maxclusterrank": "4", "abi_preserve": "10", "abi_preserve_control": "1"}
OF_FUNCTIONS = ("noreturn", "abi_preserve", "abi_preserve_control")


def directives() -> Iterator[str]:
    for word, choices in DIRECTIVES.items():
        for numbers in choices:
            for head in (".visible .entry k() .{} {} {{ ret; }}", ".visible .func k() .{} {} {{ ret; }}", ".visible .entry k() .{} {};",
                         ".visible .entry k() {{ p: .callprototype _ () .{} {}; ret; }}", ".func (.param .b32 r) k() .{} {} {{ ret; }}"):
                if "callprototype" not in head or numbers != "240":  # which only a function that is there runs out of
                    yield HEAD + head.format(word, numbers)
    for (one, ones), (other, others) in product(USUAL.items(), repeat=2):
        yield f"{HEAD}.visible .entry k() .{one} {ones} .{other} {others} {{ ret; }}"
        yield f"{HEAD}.visible .func k() .{one} {ones} .{other} {others} {{ ret; }}"
    for word, numbers in USUAL.items():
        more = " .reqntid 32 .reqnctapercluster 2" if word == "blocksareclusters" else ""
        yield from versioned(f".visible .func k() .{word} {numbers} {{ ret; }}" if word in OF_FUNCTIONS
                             else f".visible .entry k() .{word} {numbers}{more} {{ ret; }}")


def features() -> Iterator[str]:
    """Every feature of declarations in every version and target."""
    for items in (
            ".visible .func b() { ret; } .visible .func f(); .alias f, b;", ".global .attribute(.managed) .b32 x;",
            ".global .b32 y; .global .u8 x = 0xFF(y);", ".global .b32 y; .global .u64 x = generic(y);", ".global .b128 y;",
            ".shared .b128 y;",
            ".visible .entry k() { .reg .b128 y; ret; }", ".visible .entry k(.param .b128 y) { ret; }", ".func k(.reg .b128 y) { ret; }",
            ".visible .entry k(.param .b8 x[4352]) {ret;}", ".visible .entry k(.param .b8 x[4353]) {ret;}",
            ".visible .entry k(.param .b8 x[32764]) {ret;}", ".visible .entry k(.param .b8 x[32765]) {ret;}", ".weak .func f() {ret;}",
            ".common .global .b32 f;", ".visible .entry k(.param .u64 .ptr .global .align 4 q) {ret;}", ".weak .global .b32 x;"):
        yield from versioned(items)
    for version, limit in (("8.0", 4352), ("8.1", 32764)):
        for parts in (((1, 1), (8, 1)), ((limit - 8, 1), (8, 8)), ((limit - 7, 1), (8, 8)), ((1, 1), (limit - 8, 8)), ((1, 1),
                                                                                                                       (limit - 7, 8)),
                      ((1, 64), (limit - 64, 64)), ((1, 64), (limit - 63, 64)), ((limit, 4), (1, 1)), ((1, 128), (limit - 127, 128))):
            given = ", ".join(f".param .align {align} .b8 p{number}[{bytes}]" for number, (bytes, align) in enumerate(parts))
            for kind in ("entry", "func"):
                yield f".version {version}\n.target sm_90a\n.visible .{kind} k({given}) {{ ret; }}"
    for name, type in SPECIAL.items():
        read = {"u32": "mov.u32 r,", "u64": "mov.u64 d,", "pred": "mov.pred p,"}[type]
        yield from versioned(f".visible .entry k() {{ .reg .b32 r; .reg .b64 d; .reg .pred p; {read} {name}; ret; }}")


def aliases() -> Iterator[str]:
    heads = ("()", "(.param .b32 a)", "(.param .b64 a)", "(.param .b32 a, .param .b32 b)", "(.reg .b32 a)", "(.param .align 8 .b8 a[8])",
             "(.param .f32 a)", "() .noreturn")
    for one, other in product(LINKAGES[:4], repeat=2):
        yield f"{HEAD}{one}.func foo(); {other}.func bar() {{ ret; }} .visible .entry k() {{ call foo; ret; }} .alias foo, bar;"
        yield f"{HEAD}{one}.func foo(); {other}.func bar() {{ ret; }} .alias foo, bar; .visible .entry k() {{ call foo; ret; }}"
    for one, other in product(heads, repeat=2):
        yield outside(f".visible .func foo{one}; .visible .func bar{other} {{ trap; }} .alias foo, bar;")
    for one, other in product(("", "(.param .b32 r) ", "(.param .b64 r) ", "(.reg .b32 r) "), repeat=2):
        yield outside(f".visible .func {one}foo(); .visible .func {other}bar() {{ ret; }} .alias foo, bar;")
    bar = ".visible .func bar() { ret; } "
    for items in (".alias foo, bar;", ".visible .func foo(); .alias bar, foo;", ".alias bar, bar;",
                  ".visible .func foo() {ret;} .alias foo, bar;",
                  ".visible .func foo(); .alias foo, bar; .alias foo, bar;", ".visible .global .b32 foo; .alias foo, bar;",
                  ".visible .func foo(); .global .b32 v; .alias foo, v;", ".visible .entry foo(); .alias foo, bar;",
                  ".visible .func foo(); .visible .func f2(); .alias foo, bar; .alias f2, foo;",
                  ".visible .func foo(); .alias foo, bar; .visible .func foo() {ret;}", ".visible .func foo(); .alias foo, k;"):
        yield outside(bar + items)
    yield outside(".visible .func foo(); .alias foo, bar; " + bar)


TYPES = (".param .b32", ".param .u32", ".param .b64", ".param .f32", ".param .b8", ".param .align 8 .b8 [8]", ".param .align 4 .b8 [8]",
         ".param .b8 [8]", ".param .b8 []", ".reg .b32", ".reg .f32", ".reg .b64", ".reg .pred", ".param .pred", ".param .f16",
         ".param .v2 .b32", ".param .b128", ".param .b32 [2]", ".param .texref", ".param .f16x2")


def _formal(type: str, name: str) -> str:
    before, bracket, shape = type.partition(" [")
    return f"{before} {name}{bracket.strip()}{shape}"


def heads() -> Iterator[str]:
    for type in TYPES:
        given = _formal(type, "x")
        for end in ("{ret;}", ";"):
            for text in (f".func f({given}){end}", f".func ({given}) f(){end}", f".visible .entry f({given}){end}",
                         f".extern .func f({given}){end}"):
                yield outside(text)
        for other in TYPES:
            actual = _formal(other, "y")
            yield f"{HEAD}.func f({given}) {{ret;}} .visible .entry k() {{ {actual}; call f, (y); ret; }}"
            yield f"{HEAD}.func ({given}) f() {{ret;}} .visible .entry k() {{ {actual}; call (y), f; ret; }}"
            yield outside(f".func f({given}); .func f({_formal(other, 'x')}) {{ret;}}")
    for kind, one, other, end in product(("func", "entry"), LINKAGES[:4], LINKAGES[:4], ("{ret;}", ";")):
        yield outside(f"{one}.{kind} f(); {other}.{kind} f() {end}")
    for items in (".func f(.param .b32 a, .param .b32 a) {ret;}", ".func f(.param .b32 a) {.reg .b32 a; ret;}",
                  ".entry e(.param .b32 a) { a: ret;}",
                  ".entry e() {ret;} .entry e();", ".func f() {ret;} .func f();", ".func f() .noreturn; .func f() {trap;}",
                  ".common .func f() {ret;}",
                  ".func (.param .b32 a, .param .b32 c) f() {ret;}", ".func (.reg .b32 a, .reg .b32 c) f() {ret;}",
                  ".func f(.param .b32 a[], .param .b32 c) {ret;}", ".func f(.param .b32 a[2][2]) {ret;}",
                  ".entry e(.param .b32 a[2][2]) {ret;}",
                  ".entry e(.param .b32 a[0]) {ret;}", ".func f() {ret;} .global .b32 f;", ".global .b32 f; .func f() {ret;}",
                  ".extern .func f() {ret;}", ".extern .func f(); .visible .func f() {ret;}",
                  *(f".visible .entry e(.param .{type} .ptr .{space} x) {{ret;}}" for type in ("u64", "u32", "f64") for space in SPACES)):
        yield outside(items)


def jumps() -> Iterator[str]:
    """Branches, tables and calls."""
    registers = ".reg .b32 a; .reg .b64 d; .reg .pred p; mov.u32 a, 0; mov.u64 d, 0; "
    for statements in (
            "brx.idx a, T; A: ret; B: ret; T: .branchtargets A, B;", "T: .branchtargets A, B; brx.idx a, T; A: ret; B: ret;",
            "T: .branchtargets A<2>; brx.idx a, T; A0: ret; A1: ret;", "T: .branchtargets X; brx.idx a, T;", "A: brx.idx a, A;",
            "T: .branchtargets T;",
            "T: .branchtargets A; A: bra T;", "T: .branchtargets A; T: .branchtargets A; A:", "{ T: .branchtargets A; } brx.idx a, T; A:",
            "T: .branchtargets A; { brx.idx a, T; } A:", "T: .branchtargets A; { A: } brx.idx a, T;",
            "{ brx.idx a, T; T: .branchtargets A; A: }",
            "T: .calltargets g; brx.idx a, T;", "T: .branchtargets U; U: .branchtargets A; A: brx.idx a, T;",
            "T: .branchtargets A; A: brx.idx d, T;",
            "call d, (), P; P: .callprototype _ ();", "P: .callprototype _ (); call d, (), P;", "call d, (), T; T: .calltargets g;",
            "T: .calltargets g; call d, (), T;", "T: .calltargets g, h; call d, (), T;", "T: .calltargets k; call d, (), T;", "call k;",
            "call kk;",
            "call h, (q);", "call h, (o);", "call h, (1);", "call h, (a);", "call h;", "call g, ();", "call later;", "call q;",
            "bra L; L:", "{ L: } bra L;",
            "P: .callprototype (.param .b32 _) _ () .noreturn;", "P: .callprototype (.param .b32 _, .param .b32 _) _ ();",
            "P: .callprototype _ (.shared .b32 _);", "P: .callprototype _ () .noreturn .noreturn;"):
        yield (f"{HEAD}.func g() {{ret;}} .func h(.param .b32 x) {{ret;}} .global .b32 o; .visible .entry kk() {{ret;}} .visible .entry "
               f"k() {{ .shared .b32 q; {registers}{statements} ret; }} .func later() {{ret;}}")


# ---------------------------------------------------------------------------------------------------- the text


def headers() -> Iterator[str]:
    for version in product(range(11), range(10)):
        if version in VERSIONS or version < NEWEST:
            yield f".version {version[0]}.{version[1]}\n.target sm_80\n.address_size 64\n{KERNEL}"
            yield f".version {version[0]}.{version[1]}\n.target sm_90a\n.address_size 64\n{KERNEL}"
    for target in ("sm_90a, texmode_unified", "sm_90a,texmode_independent", "sm_90a,texmode_unified,texmode_independent", "sm_90a,sm_80",
                   "debug",
                   "texmode_unified,sm_90a", "compute_90", "sm_91", "sm_90f", "sm_13", "sm_10", "sm_20", "sm_90a,map_f64_to_f64"):
        yield f".version 9.0\n.target {target}\n.address_size 64\n{KERNEL}"


def locations() -> Iterator[str]:
    section = "\n.section .debug_str { $i: .b8 1\n }"
    inlined = ".loc 1 2 2, function_name $i, inlined_at"
    for lines in (".loc 1 1 1", ".loc 0 1 1", ".loc 1 4294967296 0", ".loc 1 4294967295 0", ".loc 1 1 4294967296", f"{inlined} 1 1 1",
                  f".loc 1 1 1\n {inlined} 1 1 1", f".loc 1 1 1\n {inlined} 1 1 2", f".loc 1 1 1\n {inlined} 2 1 1",
                  f"{inlined} 1 1 1\n.loc 1 1 1",
                  f".loc 1 1 1\n {inlined} 1 1 1\n .loc 1 3 3, function_name $i, inlined_at 1 2 2",
                  ".loc 1 1 1\n .loc 1 2 2, function_name $x, inlined_at 1 1 1",
                  f"{{ .loc 1 1 1\n }} {inlined} 1 1 1", f".loc 1 1 1\n {inlined} 1 1 1 // 9"):
        yield f"{HEAD}.visible .entry k() {{ {lines}\n ret; }}\n.file 1 \"a\"{section}"
        yield f"{HEAD}.file 1 \"a\"\n.visible .entry k() {{ {lines}\n ret; }}\n"
    yield f"{HEAD}.visible .entry j() {{ .loc 1 1 1\n ret; }}\n.visible .entry k() {{ {inlined} 1 1 1\n ret; }}\n.file 1 \"a\"{section}"
    for items in ('.file 1 "a"\n.file 1 "b"',
                  '.file 1 "a"\n.file 2 "a"', '.pragma "nounroll";', '.pragma "x";', ".section .debug_info { .b8 256\n }",
                  ".section .debug_info { .b8 -129\n }", ".section .debug_info { .u32 1\n }",
                  ".section .debug_str { a: .b8 1\n a: .b8 2\n }",
                  ".section .debug_str { a: .b8 1\n b: .b8 255\n }"):
        yield outside(items)


def characters() -> Iterator[str]:
    for character in ("\u00e9", "\u00a0", "\u4e2d", "\ufeff", "\x7f", "\x01", "\x1b", "\x0b", "\x0c", "\r", "\t"):
        yield from (HEAD + text.replace("?", character) for text in (
            f"// ?{KERNEL}", f"/* ? */{KERNEL}", f".file 1 \"?\"{KERNEL}", f"{KERNEL} ?", ".visible .entry k() { ret; // ?\n }",
            ".visible .entry k() { .pragma \"?\"; ret; }", ".visible .entry k() { ret;?}", ".visible .entry k?() { ret; }"))


FAMILIES: tuple[Family, ...] = (spaces, alignments, sizes, words, initial_values, directives, features, aliases, heads, jumps, headers,
                                locations, characters)


# ---------------------------------------------------------------------------------------------------- judging

# What says nothing about the text: a crash or too much memory, and what the linker or another mode of ptxas takes.
SILENT = re.compile(r"Unresolved extern|--compile-only|requires ABI|Memory allocation failure|Debug information not found")
# What ptxas takes by mistake: the bytes of shared memory beyond 32 bits.
STRICTER = re.compile(r"bytes of declared shared memory")


@dataclass(frozen=True, slots=True)
class Verdict:
    """A text, what ptxas says against it ("" when it accepts it, None when it says nothing) and what `check` does."""

    text: str
    ptxas: str | None
    check: str

    @property
    def agrees(self) -> bool:
        return self.ptxas is None or bool(self.ptxas) == bool(self.check) or (not self.ptxas and bool(STRICTER.search(self.check)))


def asked(text: str) -> str | None:
    """What ptxas says against a text."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "text.ptx")
        source.write_text(text, encoding="utf-8", newline="")
        target = re.search(r"\.target\s+(sm_(?:90|80|75|100a?)\b)", text)
        command = ["sh", "-c", f'ulimit -v {certify.MEMORY_KIB}; exec "$0" "$@"', certify.ptxas() or "ptxas",
                   f"-arch={target[1] if target else 'sm_90a'}", str(source), "-o", "/dev/null"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return None
    said = re.findall(r"(?:error|fatal)\s*: (.*)", done.stderr)
    return "" if done.returncode == 0 else None if not said or SILENT.search(said[0]) else str(said[0])


def told(text: str) -> str:
    """What `check` says against it."""
    return next((finding.message for finding in check_text(text, protocols=False) if finding.severity == "error"), "")


def verdicts(texts: list[str]) -> list[Verdict]:
    with ThreadPoolExecutor(2) as pool:
        return [Verdict(text, said, told(text)) for text, said in zip(texts, pool.map(asked, texts), strict=True)]


def sample(family: Family, count: int, seed: int) -> list[str]:
    texts = [*dict.fromkeys(family())]
    return texts if count >= len(texts) else random.Random(f"{seed} {family.__name__}").sample(texts, count)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.check.declared", description="Modules near each declaration, judged by both.")
    parser.add_argument("families", nargs="*", help=", ".join(family.__name__ for family in FAMILIES))
    parser.add_argument("--count", type=int, default=1 << 30, help="texts of each family")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for family in FAMILIES:
        if not options.families or family.__name__ in options.families:
            judged = verdicts(sample(family, options.count, options.seed))
            wrong = [verdict for verdict in judged if not verdict.agrees]
            refused = sum(bool(verdict.ptxas) for verdict in judged)
            print(f"{family.__name__}: {len(judged)} texts, {refused} refused, {len(wrong)} judged otherwise")
            for verdict in wrong:
                print(f"  {verdict.text!r} | ptxas: {verdict.ptxas} | check: {verdict.check}")


if __name__ == "__main__":
    main()
