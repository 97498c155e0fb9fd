"""Numbers, names, versions and targets as they may be spelled, right and wrong. ptxas judges them, as those of `declared`.

Left out is where the rules are stricter on purpose: sums of registers of another type, and counts of an mbarrier out of the manual's range.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from .declared import HEAD, KERNEL, Family, inside, outside


def words(text: str) -> list[str]:
    return text.split()


LONG = [*words("""18446744073709551616 18446744073709551617U 27670116110564327424 92233720368547758080 99999999999999999999
0x10000000000000001 0xFFFFFFFFFFFFFFFFF 02000000000000000000000 010000000000000000000000 -18446744073709551616"""),
        "0b1" + 64 * "0", "1" + 250 * "0", 300 * "0" + "1"]
"""Numbers of more than 64 bits: ptxas takes those whose digits before the last have 63."""
WHOLE = words("1 -1 1.5 0f3f800000 r d f h WARP_SZ {1} {r} {d} 4294967296")
PLACED = words("%tid.x %tid.w %tid %clock64 %laneid %gridid %is_explicit_cluster !%is_explicit_cluster")
OUT = words("-1 -2 0 15 16 255 256 4294967295 4294967296 4294967297 -256 18446744073709551615 -9223372036854775808")
EXPRESSIONS = [*words("7%4 7%-4 (7)%4 7%(4) 7%%4 2+7%4 7%4U 7%WARP_SZ 8>>1%2"), "7 % 4", "7 %4", "7% 4", "(7) % (4)"]
GUARDS = words("p !p r gv f k L %tid.x %tid %is_explicit_cluster !%is_explicit_cluster %laneid v.x WARP_SZ 1")
SUMMED = """mov.b32 r, s+1;|add.s32 r, s+4, r+8;|mov.b32 r+1, s;|add.u64 d, e, d+4;|add.f32 f, f+1, f;|mov.pred p, q+1;|add.s32 r, v.x+1, r;
mov.u32 r, %tid.x+1;|st.global.b32 [d], r+1;|st.global.v2.b32 [d], {r+1,s};|ld.global.b32 r, d+4;|shfl.sync.up.b32 r, s+1, 1, 0, -1;
mapa.u64 d, d+1, r;|add.s32 r, r+1.0, s;|add.s32 r, r+s, s;|vadd.s32.s32.s32 r, r+1, s, s;|bar.sync r+1;|elect.sync r|p, r+1;
wgmma.wait_group.sync.aligned r+1;|mov.b64 {r,s}, d+1;|cvt.u64.u32 d, r+1;"""
REGISTERS = (".reg .b32 r, s; .reg .b64 d, e; .reg .b16 h; .reg .f32 f; .reg .f64 g; .reg .pred p, q; .reg .v4 .b32 v; .reg .v2 .b32 w; "
             ".reg .v4 .u16 u; .global .b32 gv[4]; ")
NUMBERS = words("""
0 1 -1 +1 --1 -(1) (1) ~0 !0 1U 1u 1UL 1L 0x1 0X1 0xFFU 0b1 0B1 0b2 07 08 0777U 0o7 1e3 1. .5 1e 0f3f800000 0F3F800000 0f3f80000
0d3ff0000000000000 1f 4294967295 4294967296 -4294967295 -2147483648 -2147483649 18446744073709551615 -9223372036854775808
0xFFFFFFFFFFFFFFFF 0777777777777777777777 1+1 2*3 1<<3 1<<31 1<<32 1<<63 1<<64 8>>1 7/2 7/0 -7/2 1==1 1<2 1&&0 1||0 1?2:3 (.s64)-1
(.u64)1 (.s32)1 (1.5) 1.5+1 WARP_SZ WARP_SZ+1 -WARP_SZ 1_000 0x 0b 'a' -0 -0.0 0xg inf 1.0E-5 00
""")
NAMES = words("""
%tid %tid.x %ntid %laneid %clock %clock64 %smid %envreg0 %envreg32 %pm0 %lanemask_eq %foo % %% %1 %_ $ $1 _ __ _1 a.b 1a a$b a%b
WARP_SZ tid add mov ret bra call exit b32 reg entry global shared param ld v2 sm_90a align version e 0f f0 true main printf func
eq _ZN1aE %r %p1 %rd1 %SP %SPL $L__BB0_1
""")
VECTORS = words("""
%tid %ntid %ctaid %nctaid %clusterid %cluster_ctaid v w {r,s} {r,s,r,s} {1,2,3,4} {1,2} {r,1} {v.x,v.y} p
""")
VERSIONS = words("""
8.10 7.18 7.20 8.1 8.01 08.1 8.00 8.000 9.0 9.00 09.0 9. 9 .9 9.0.0 9.0a 8.9 8.09 8.30 8.80 7.8 1.0 0.0 -9.0 +9.0 9.0f 9,0
""")
TARGETS = words("""
sm_90a sm_90A SM_90a SM_90A Sm_90a sm_90aa sm_090a sm_90ab sm_90x sm_80a sm_80A sm_99 sm_90a,sm_90a sm_90a,sm_90 debug
debug,sm_90a sm_90a,texmode_unified sm_90a,TEXMODE_UNIFIED sm_90a, sm90a 90a sm_86 sm_89 sm_88 sm_72 sm_35 sm_20
""")
LINES = """mov.u32 r,1;|mov.u32\tr\t,\t1\t;|mov.u32 r, 1;;|;|mov.u32 r 1;|mov .u32 r, 1;|mov. u32 r, 1;|MOV.u32 r, 1;|mov.U32 r, 1;
mov.u32/**/ r, 1;|mov/**/.u32 r, 1;|@ p mov.u32 r, 1;|@ ! p mov.u32 r, 1;|@!!p mov.u32 r, 1;|@p @q mov.u32 r, 1;|@r mov.u32 r, 1;|@1 ret;
{mov.u32 r, 1;}|{}|{;}|{ L: } bra L;|{ L: bra L; }|L: { bra L; }|L: M: bra M;|L: ; bra L;|L:|L : bra L;|@p A: bra A;|A: @p bra A;
mov.u32 r, %TID.x;|mov.u32 r, %tid.X;|ld.global.b32 r, [d + 4];|ld.global.b32 r, [d - 4];|ld.global.b32 r, [d+-4];|ld.global.b32 r, [4+d];
ld.global.b32 r, [d+4+4];|ld.global.b32 r, [d+(4)];|ld.global.b32 r, [d+4*2];|ld.global.b32 r, gv;|ld.global.b32 r, d;
ld.global.b32 r, gv[1];
ld.global.b32 r, [gv+d];|ld.global.b32 r, [16];|ld.global.b32 r, [-16];|mov.u64 d, generic(gv);|mov.u64 d, gv+4;|mov.u64 d, gv-4;
mov.u64 d, 4+gv;
mov.u64 d, -gv;|mov.u64 d, (gv);|mov.u64 d, gv[1];|add.s32 r, -s, 1;|add.s32 r, s, !s;|add.f32 f, -f, f;|setp.eq.and.u32 p, r, s, !q;
mov.u32 _, r;|add.u32 _, r, s;|and.pred p, !p, q;|not.pred p, !q;|selp.b32 r, r, s, !p;|ret|.reg .b32 z|.reg .b32 z<0>;
.reg .b32 z<1>; mov.b32 z0, z0;
.reg .b32 z<3>; mov.b32 z3, 1;|.reg .b32 z<3>; mov.b32 z01, 1;|.reg .b32 z<0x3>;|.reg .b32 z<3U>;|.reg .b32 z < 3 >;|.reg.b32 z;
.reg .v2.b32 z;
.reg .b32 z1<3>; mov.b32 z11, 1;|.reg .f16 z;|.reg .bf16 z;|.reg .tf32 z;|.reg .e4m3 z;|.reg .b1 z;|.local .b32 z = 1;|.const .b32 z;
.tex .u32 z;"""
ITEMS = """.func f() ;|.func f(){}|.func f() {ret;} ;|.func (.reg .b32 r, .reg .b32 s) f() { ret; }|.func f(.reg .b8 a) { ret; }
.func f(.b32 a) { ret; }
.func f(.param .b32) { ret; }|.func f(.param .b32 _);|.extern .func f(.param .b32 _);|.extern .func (.param .b32 _) f ();
.func .noreturn f() { trap; }
.func f() .noreturn { trap; }|.common .func f() { ret; }|.visible .weak .func f() { ret; }|.func .visible f() { ret; }
.entry e { ret; }|.func e { ret; }
.entry e();|.weak .entry e() { ret; }|.entry e() .maxntid 1 .maxntid 1 { ret; }|.entry e() .maxntid 1,2,3,4 { ret; }
.entry e() .maxntid { ret; }
.entry e(.param .u64 a,) { ret; }|.entry e(.param .u64 a, .param .u64 a) { ret; }|.entry e(.param .u64 .ptr .align 16 .global a) { ret; }
.extern .global .b32 a; .extern .global .b64 a;|.extern .global .b32 a; .visible .global .u32 a;
.extern .global .b32 a[]; .visible .global .b32 a[3];
.extern .global .b32 a[2]; .extern .global .b32 a[3];|.extern .global .align 8 .b32 a; .extern .global .b32 a;
.global .b32 a; .global .b32 a;
.global .b32 a[2] = {1,2,};|.global .b32 a[2] = {};|.global .b32 a[] = {1,2};|.global .b32 b; .global .u64 a = 4+b;
.global .attribute(.unified(1)) .b32 a;
.global .attribute() .b32 a;|.global .v3 .b32 a;|.b32 a;|.global a;|;|{}|ret;|L:|.file "a.cu"|.file 1 "a.cu" 1 2
.section .debug_x { .b8 1 }"""


def numbers() -> Iterator[str]:
    lines = ("mov.b32 r, {};", "mov.s32 r, {};", "mov.b64 d, {};", "mov.b16 h, {};", "mov.f32 f, {};", "mov.pred p, {};",
             "add.u64 d, e, {};", "shl.b32 r, s, {};", "setp.eq.u32 p, r, {};", "and.b16 h, h, {};", "selp.b32 r, {}, 2, p;")
    for line, number in product(lines, NUMBERS):
        yield inside(REGISTERS + line.format(number))
    for number in NUMBERS:
        yield from (outside(f".global .b32 a = {number};"), outside(f".global .s8 a[2] = {{{number}, 1}};"))


def names() -> Iterator[str]:
    for name in NAMES:
        yield from map(inside, (f".reg .b32 {name}; mov.b32 {name}, 1;", f".reg .b32 {name}<4>; mov.b32 {name}1, 1;",
                                f"{name}: bra {name};", f"bra {name};", f".shared .b32 {name};", f"A: ret; {name}: .branchtargets A;"))
        yield from map(outside, (f".global .b32 {name};", f".func g() {{ ret; }} .alias {name}, g;"))
        yield from (HEAD + f".func {name}() {{ ret; }}\n.visible .entry k() {{ call {name}; ret; }}\n",
                    HEAD + f".entry {name}() {{ ret; }}",
                    HEAD + f".entry k(.param .u32 {name}) {{ .reg .b32 q; ld.param.u32 q, [{name}]; ret; }}")


def vectors() -> Iterator[str]:
    """A special register as a whole has four components, of 32 bits, and of 16 those that were so wide once."""
    lines = ("mov.v4.u32 v, {};", "mov.v4.b32 v, {};", "mov.v2.u32 w, {};", "mov.v4.u16 u, {};", "mov.u32 r, {};", "mov.b64 d, {};",
             "mov.v4.u32 {{r,_,s,_}}, {};", "add.u32 r, {}, 1;", "st.global.v4.u32 [d], {};", "mov.v4.f32 v, {};")
    for line, value in product(lines, VECTORS):
        yield inside(REGISTERS + line.format(value))


def headings() -> Iterator[str]:
    for version, target in product(VERSIONS, ("sm_90a", "sm_80")):
        yield f".version {version}\n.target {target}\n.address_size 64\n{KERNEL}"
    for target in TARGETS:
        yield f".version 9.0\n.target {target}\n.address_size 64\n{KERNEL}"
    for size in ("64", "32", "0x40", "64U", "6 4", "16", "", "-64", "64.0"):
        yield f".version 9.0\n.target sm_90a\n.address_size {size}\n{KERNEL}"


def spellings() -> Iterator[str]:
    yield from (inside(REGISTERS + line) for line in LINES.replace("\n", "|").split("|"))
    yield from (outside(item) for item in ITEMS.replace("\n", "|").split("|"))


def long_numbers() -> Iterator[str]:
    for number in LONG:
        yield from (inside(REGISTERS + line.format(number)) for line in (
            "mov.b32 r, {};", "mov.u64 d, {};", "ld.global.b32 r, [d+{}];", "mov.u64 d, gv+{};", "bar.sync {};", "mov.f32 f, {};"))
        yield from (outside(f".global .b32 a[{number}];"), outside(f".global .b64 a = {number};"),
                    f"{HEAD}.entry k() .maxntid {number} {{ret;}}")


def whole_vectors() -> Iterator[str]:
    """One value, or a special register, for a vector or in one of its lanes."""
    lines = ("mov.v2.u32 w, {};", "mov.v4.f32 v, {};", "mov.v2.b64 {{d,e}}, {};", "mov.v2.u16 {{h,h}}, {};", "mov.b64 {{r,s}}, {};",
             "mov.b32 {{h,h}}, {};", "mov.b64 d, {};", "mov.b128 b, {};", "mov.b128 {{d,e}}, {};", "mov.b64 {{d}}, {};",
             "st.global.v2.b32 [d], {};", "mov.pred p, {};")
    lanes = ("mov.b32 r, {{{},{}}};", "mov.b64 d, {{{},{}}};", "mov.b64 d, {{{},r}};", "mov.b64 d, {{1,{}}};", "mov.b128 b, {{{},d}};",
             "mov.v2.u16 {{h,h}}, {{{},h}};", "mov.v2.u32 w, {{{},r}};", "st.global.v2.u32 [d], {{{},r}};")
    for line, value in (*product(lines, WHOLE + PLACED), *product(lanes, PLACED[:-1])):
        yield inside(".reg .b128 b; " + REGISTERS + line.format(value, value))


def ranges() -> Iterator[str]:
    """Numbers around the limits of operands, and what is left of them in 32 bits."""
    lines = ("lop3.b32 r,r,s,s,{};", "lop3.or.b32 r|p,r,s,s,{},p;", "bar.sync {};", "bar.sync 0, {};", "barrier.sync {};",
             "cp.async.wait_group {};", "cp.async.bulk.wait_group {};", "wgmma.wait_group.sync.aligned {};", "pmevent {};",
             "setmaxnreg.inc.sync.aligned.u32 {};", "bfe.u32 r,r,{},1;", "ld.global.b32 r, [d+{}];", "ld.shared.b32 r, [r+{}];",
             "st.global.b32 [gv+{}], r;", "prefetch.global.L2 [d+{}];", "cp.async.ca.shared.global [r], [d], {};")
    for line, number in product(lines, OUT):
        yield inside(REGISTERS + line.format(number))


def expressions() -> Iterator[str]:
    for line, value in product(("mov.b32 r, {};", "ld.global.b32 r, [d+{}];", "mov.b64 d, {{{},1}};", "bar.sync {};"), EXPRESSIONS):
        yield inside(REGISTERS + line.format(value))
    yield from (outside(f".global .s32 a = {value};") for value in EXPRESSIONS)


def guards() -> Iterator[str]:
    for line, guard in product(("ret;", "bra L;", "mov.b32 r, s;", "call f;", "{{ ret; }}"), GUARDS):
        yield HEAD + f".func f() {{ ret; }} .visible .entry k() {{ {REGISTERS} L: @{guard} {line} ret; }}"


def sums() -> Iterator[str]:
    yield from (inside(REGISTERS + line) for line in SUMMED.replace("\n", "|").split("|"))


def places() -> Iterator[str]:
    """What is passed to a function, elements of what is no array, ranges and labels of one name, aliases of themselves."""
    for kind, line in product((".visible .entry", ".func", ".func (.param .b32 R)"), (
            "st.param.b32 [P], r;", "ld.param.b32 r, [P];", "st.param.b32 [a], r;", "ld.param.b32 r, a[1];", "ld.param.b32 r, b[1];",
            "ld.global.b32 r, g[1];", "ld.global.b32 r, gv[1];", "st.param.b32 [a], r; st.param.b32 [P], r;", "mov.u64 d, g[1];",
            "ld.param.b32 r, b[1]; ld.param.b32 r, a[1];", "z: .reg .b32 z;")):
        yield f"{HEAD}.global .b32 g; {kind} k(.param .u64 P) {{ {REGISTERS} .param .b32 a; .param .b32 b[4]; {line} ret; }}\n"
    for head, alias in product((".func f();", ".visible .func f();", ".func f() {ret;}"), (".alias f, f;", ".alias f, e;", ".alias e, f;")):
        yield outside(f".visible .func e() {{ ret; }} {head} {alias}")


def pragmas() -> Iterator[str]:
    """Pragmas that ptxas knows, and others, in every place and with every argument."""
    places = (outside('.pragma "?";'), HEAD + '.visible .entry k() .pragma "?"; { ret; }', HEAD + '.func k() { .pragma "?"; ret; }',
              HEAD + '.func k() .pragma "?"; { ret; }' + KERNEL, inside('.pragma "?";'))
    for place, word in product(places, ("frequency", "used_bytes_mask", "enable_smem_spilling", "nounroll", "x")):
        for argument in ("", " ", " 0", " 3", " 0x3", " x", " 3 4", " -1", " 4294967296", "3"):
            yield place.replace("?", word + argument)


def parted_headings() -> Iterator[str]:
    """A version that stands apart, sizes of addresses, lists without values, and numbers of sections."""
    for version in (".version\n9.0", ".version /* */ 9.0", ".version\t9.0", ".version  9.0", "// .version\n.version 9.0",
                    "/* .version */ .version 9.0", ".version // x\n9.0"):
        yield f"{version}\n.target sm_90a\n.address_size 64\n{KERNEL}"
    for size in (16, 64, 128, 0):
        yield f".version 9.0\n.target sm_80\n.address_size {size}\n{KERNEL}"
    for type, shape in product(("b8", "u32", "f64", "f16"), ("[]", "[0]", "[1]", "[2][2]", "[][2]")):
        yield outside(f".global .{type} x{shape} = {{}};")
    for datum in (".b32 4294967295", ".b32 4294967296", ".b32 -2147483649", ".b8 256", ".b16 65536", ".b64 18446744073709551615"):
        yield HEAD + KERNEL + f".section .debug_x {{ {datum}\n }}"


FAMILIES: tuple[Family, ...] = (numbers, names, vectors, headings, spellings, long_numbers, whole_vectors, ranges, expressions, guards,
                                sums, places, pragmas, parted_headings)
