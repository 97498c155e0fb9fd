"""Texts of one thing many times, for `benchmarks.hostile`."""

from __future__ import annotations

from dataclasses import dataclass

HEAD = ".version 9.0\n.target sm_90a\n.address_size 64\n"
SHARED = ".shared .align 128 .b8 s[2048];\n"
LARGE = ".shared .align 128 .b8 s[220000];\n"
BEGIN = (".visible .entry k() .reqntid 64\n{\n.reg .b32 %r<9>;\n.reg .b64 %d<9>;\n.reg .f32 %f<9>;\n.reg .pred %p<9>;\n"
         "mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %tid.x;\nmov.u32 %r3, %r1;\nmov.u32 %r4, %r2;\n"
         "mov.u32 %r5, 1;\nmov.u32 %r6, 2;\nmov.u32 %r7, 3;\nmov.u32 %r0, 4;\n"
         "setp.eq.u32 %p1, %r1, 1;\nsetp.eq.u32 %p2, %r1, 2;\nsetp.eq.u32 %p0, %r2, 5;\nmov.u64 %d1, 0;\nmov.u64 %d2, %d1;\n")
END = "ret;\n}\n"
OWN = "shl.b32 %r4, %r2, 2;\nmov.u32 %r5, s;\nadd.u32 %r4, %r4, %r5;\n"
INIT = "mbarrier.init.shared::cta.b64 [s], 64;\n"


@dataclass(frozen=True, slots=True)
class Shape:
    """What a text begins with, what it has many times, then `between`, what closes each of these from the last to the first, and its end.

    In `unit` and `closing`, {i} is the number, {last} the one before it, {half} its half, {low} its remainder by 16, {k}, {line} and
    {far} offsets in 1,600, 1,600 and 200,000 bytes, {back} and {any} some others of the numbers.
    """

    before: str
    unit: str
    after: str = ""
    closing: str = ""
    between: str = ""

    def text(self, size: int) -> str:
        """A text of about that many characters."""
        sample = self.unit.format(**_numbers(99999, 99999)) + self.closing.format(**_numbers(99999, 99999))
        many = max(1, size // (len(sample) + 1))
        units, written, number = [self.before], len(self.before) + len(self.after), 1
        while written < size:
            units.append(self.unit.format(**_numbers(number, many)))
            written += len(units[-1]) + len(self.closing)
            number += 1
        units.append(self.between)
        if self.closing:
            units += [self.closing.format(**_numbers(i, many)) for i in reversed(range(1, number))]
        if "{any}" in self.unit:
            units += [f"A{i}:\n" for i in range(number, many + 2)]
        return "".join(units) + self.after


def _numbers(i: int, many: int) -> dict[str, int]:
    return {"i": i, "last": i - 1, "half": i // 2, "low": i % 16, "k": i * 8 % 1600, "line": i * 16 % 1600, "far": i * 8 % 200_000,
            "back": i * 7 % many + 1, "any": i * 13 % many + 1}


def body(unit: str, before: str = "", after: str = "", outside: str = "", closing: str = "", between: str = "") -> Shape:
    """In an entry."""
    return Shape(HEAD + outside + BEGIN + before, unit, after + END, closing, between)


def module(unit: str, before: str = "", after: str = ".visible .entry k() { ret; }\n") -> Shape:
    """Outside of functions."""
    return Shape(HEAD + before, unit, after)


FLOW = {
    "branches to one label": body("@%p1 bra L;\n", after="L:\n"),
    "branches back to one label": body("@%p1 bra L;\n", before="L:\n"),
    "branches over a line": body("@%p1 bra L{i};\nadd.s32 %r3, %r3, 1;\nL{i}:\n"),
    "threads that branch": body("setp.eq.u32 %p1, %r2, {i};\n@%p1 bra L{i};\nst.shared.b32 [s+{k}], %r1;\nL{i}:\n", outside=SHARED),
    "loops one after the other": body("L{i}:\nadd.s32 %r3, %r3, 1;\nsetp.lt.s32 %p1, %r3, 9;\n@%p1 bra L{i};\n"),
    "loops in one another": body("L{i}:\nadd.s32 %r3, %r3, 1;\n", closing="@%p1 bra L{i};\n"),
    "loops in one another that count": body(".reg .b32 q{i};\nmov.u32 q{i}, 0;\nL{i}:\n", before="bar.sync 0;\n",
                                            closing="add.u32 q{i}, q{i}, 1;\nsetp.lt.u32 %p1, q{i}, 9;\n@%p1 bra L{i};\n"),
    "loops that are entered in the middle": body("A{i}:\n@%p1 bra A{back};\n@%p2 bra A{any};\nadd.s32 %r3, %r3, %r1;\n"),
    "loops with two entries": body("@%p1 bra B{i};\nA{i}:\nadd.s32 %r3, %r3, 1;\nB{i}:\nadd.s32 %r4, %r3, 1;\n@%p2 bra A{i};\n"),
    "values that meet": body("@%p1 bra L{i};\nadd.s32 %r3, %r4, 1;\nbra M{i};\nL{i}:\nsub.s32 %r4, %r3, 2;\nM{i}:\n"),
    "conditions in one another": body("@%p1 bra L{i};\nadd.s32 %r3, %r3, 1;\n", closing="L{i}:\nadd.s32 %r3, %r3, 2;\n"),
    "conditions in one another that store": body("@%p1 bra L{i};\nst.shared.b32 [s+{k}], %r2;\n",
                                                 closing="L{i}:\nld.shared.b32 %r3, [s+{k}];\n", outside=SHARED),
    "conditions of values": body(".reg .pred q{i};\nsetp.lt.s32 q{i}, %r3, {i};\n@q{i} bra L{i};\nadd.s32 %r3, %r3, %r4;\nL{i}:\n"),
    "jump tables": body("T{i}: .branchtargets A, B, C;\nbrx.idx %r1, T{i};\n", before="A: B: C:\n"),
    "a jump table": body("L{low}, ", before="".join(f"L{i}:\nadd.s32 %r3, %r3, 1;\n" for i in range(16)) + "T: .branchtargets ",
                         after="L0;\nbrx.idx %r1, T;\n"),
    "a jump to every label": body("L{i}, ", before="T: .branchtargets ", between="L0;\nbrx.idx %r1, T;\nL0:\n",
                                  closing="L{i}:\nadd.s32 %r3, %r3, 1;\n"),
    "code that nothing reaches": body("L{i}:\nadd.s32 %r3, %r3, 1;\n@%p1 bra L{i};\nbar.sync 0;\n", before="ret;\n"),
    "exits": body("@%p1 exit;\nadd.s32 %r3, %r3, 1;\n"), "traps": body("@%p0 trap;\nst.shared.b32 [s+{k}], %r2;\n", outside=SHARED),
    "labels": body("L{i}:\n"), "one label": body("L:"), "one label in lines": body("L:\n"),
    "blocks": body("{{}}"), "blocks in lines": body("{{}}\n"), "deep blocks": body("{{" * 60 + "add.u32 %r3, %r3, 1;" + "}}" * 60 + "\n"),
    "blocks in one another": body("{{\n", closing="}}\n"),
    "blocks that declare": body("{{ .reg .b32 q; mov.b32 q, 1; add.u32 %r3, %r3, q; }}\n"),
    "blocks in one another that declare": body("{{ .reg .b32 q{low};\nmov.b32 q{low}, 1;\n", closing="}}\n"),
}
VALUES = {
    "one line": body("add.s32 %r3, %r3, %r1;"),
    "additions": body("add.s32 %r3, %r3, %r1;\n", after="st.shared.b32 [%r3], %r1;\n", outside=SHARED),
    "moves in a chain": body(".reg .b32 q{i};\nmov.b32 q{i}, q{last};\n", before=".reg .b32 q0;\nmov.b32 q0, 1;\n"),
    "sums in a tree": body(".reg .b32 q{i};\nadd.s32 q{i}, q{last}, q{half};\n", before=".reg .b32 q0;\nmov.b32 q0, %tid.x;\n"),
    "sums of loads": body(".reg .b32 q{i};\nld.global.b32 q{i}, [%d1];\nadd.s32 %r3, %r3, q{i};\n", after="st.shared.b32 [%r3], %r1;\n",
                          outside=SHARED),
    "addresses that grow": body(".reg .b32 q{i};\nld.global.b32 q{i}, [%d1];\nadd.s32 %r4, %r4, q{i};\nst.shared.b32 [%r4], %r1;\n",
                                before=OWN, outside=SHARED),
    "predicates": body(".reg .pred q{i};\nsetp.lt.and.s32 q{i}, %r1, {i}, q{last};\n", before=".reg .pred q0;\nsetp.eq.u32 q0, %r1, 1;\n"),
    "predicates of threads": body(".reg .pred q{i};\nsetp.lt.and.s32 q{i}, %r2, {i}, q{last};\n@q{i} bar.sync 0;\n",
                                  before=".reg .pred q0;\nsetp.eq.u32 q0, %r1, 1;\n"),
    "guards in a chain": body("@%p1 add.s32 %r3, %r4, 1;\n@!%p2 mov.b32 %r4, %r3;\n"),
    "choices in a chain": body(".reg .b32 q{i};\nselp.b32 q{i}, q{last}, %r1, %p1;\n", before=".reg .b32 q0;\nmov.b32 q0, 1;\n"),
    "remainders": body("rem.u32 %r3, %r4, 7;\nadd.u32 %r4, %r3, {low};\nst.shared.b32 [%r4], %r1;\n", outside=SHARED),
    "divisions": body("div.u32 %r3, %r4, {i};\nrem.u32 %r4, %r3, %r5;\n"),
    "immediates": body("add.s32 %r3, %r4, {i};\nxor.b32 %r4, %r3, {i};\n"),
    "registers that nothing writes": body(".reg .b32 q{i};\nadd.s32 %r3, %r3, q{i};\n"),
    "declarations": body(".reg .b32 q{i};\nmov.b32 q{i}, 1;\n"), "ranges of registers": body(".reg .b32 %a{i}x<9>;\n"),
    "ranges in one range's names": body(".reg .b32 q{i}<2>;\nmov.b32 q{i}0, 1;\n"),
    "lanes of a vector": body("%r1,", before="mov.b64 {", after="%r1}, %d1;\n"),
    "vectors": body(".reg .v4 .b32 v{i};\nld.global.v4.b32 v{i}, [%d1];\nadd.s32 %r3, %r3, v{i}.x;\n"),
    "conversions": body("cvt.u64.u32 %d3, %r3;\nshl.b64 %d4, %d3, 2;\ncvt.u32.u64 %r3, %d4;\n"),
}
MEMORY = {
    "stores and loads": body("st.shared.b32 [s+{k}], %r1;\nld.shared.b32 %r3, [s+{k}];\n", outside=SHARED),
    "stores to many places": body("st.shared.b32 [s+{far}], %r2;\n", outside=LARGE),
    "stores under predicates": body("@%p1 st.shared.b32 [s+{k}], %r1;\n@%p0 ld.shared.b32 %r3, [s+{k}];\n", outside=SHARED),
    "stores to many places under predicates": body("setp.eq.u32 %p1, %r2, {low};\n@%p1 st.shared.b32 [s+{far}], %r1;\n", outside=LARGE),
    "stores and loads of each thread": body("st.shared.b32 [%r4+{k}], %r1;\nld.shared.b32 %r3, [%r4+{k}];\nbar.sync 0;\n",
                                            before=OWN, outside=SHARED),
    "stores to variables": body(".shared .b32 v{i};\nst.shared.b32 [v{i}], %r2;\n"),
    "atomics": body("atom.shared.add.u32 %r3, [s+{k}], %r1;\n", outside=SHARED),
    "stores and bulk copies": body("st.shared.b32 [s+{k}], %r2;\ncp.async.bulk.global.shared::cta.bulk_group [%d1], [s+{line}], 16;\n",
                                   outside=SHARED),
    "copies in groups": body("cp.async.ca.shared.global [s+{k}], [%d1], 8;\ncp.async.commit_group;\ncp.async.wait_group 1;\n"
                             "ld.shared.b32 %r3, [s+{k}];\n", outside=SHARED),
    "copies and stores": body("cp.async.ca.shared.global [s+{k}], [%d1], 8;\nst.shared.b32 [s+{far}], %r2;\n", outside=LARGE),
    "bulk copies": body("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s+64], [%d1], 64, [s];\n",
                        before=INIT, outside=SHARED),
    "bulk copies and fences": body("st.shared.b32 [s+{k}], %r2;\nfence.proxy.async.shared::cta;\nbar.sync 0;\n"
                                   "cp.async.bulk.global.shared::cta.bulk_group [%d1], [s+64], 64;\ncp.async.bulk.commit_group;\n"
                                   "cp.async.bulk.wait_group.read 0;\n", outside=SHARED),
    "tensor maps": body("tensormap.replace.tile.global_address.global.b1024.b64 [%d1], %d2;\nfence.proxy.tensormap::generic.release.gpu;\n"
                        "fence.proxy.tensormap::generic.acquire.gpu [%d1], 128;\n"),
    "matrices": body("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r3}}, [%r4];\nstmatrix.sync.aligned.m8n8.x1.shared.b16 [%r4], {{%r3}};\n",
                     before=OWN, outside=SHARED),
}
ORDER = {
    "barriers": body("bar.sync 0;\n"), "barriers with numbers": body("bar.sync {low}, 64;\nst.shared.b32 [s], %r2;\n", outside=SHARED),
    "barriers under conditions": body("@%p1 bra L{i};\nbar.sync {low};\nL{i}:\nst.shared.b32 [s], %r2;\n", outside=SHARED),
    "barriers of some threads": body("setp.lt.u32 %p1, %r2, 32;\n@%p1 bar.sync {low}, 32;\n@!%p1 bar.arrive {low}, 64;\n"),
    "mbarriers": body("mbarrier.arrive.shared::cta.b64 _, [s+{k}];\nW{i}:\nmbarrier.try_wait.parity.shared::cta.b64 %p1, [s+{k}], 0;\n"
                      "@!%p1 bra W{i};\n", before=INIT, outside=SHARED),
    "mbarriers of their own": body(".shared .align 8 .b64 m{i};\nmbarrier.init.shared::cta.b64 [m{i}], 64;\nbar.sync 0;\n"
                                   "mbarrier.arrive.shared::cta.b64 _, [m{i}];\nW{i}:\n"
                                   "mbarrier.try_wait.parity.shared::cta.b64 %p1, [m{i}], 0;\n@!%p1 bra W{i};\n"),
    "mbarriers of a large array": body("mbarrier.init.shared::cta.b64 [s+{far}], 64;\nmbarrier.arrive.shared::cta.b64 _, [s+{far}];\n"
                                       "mbarrier.try_wait.parity.shared::cta.b64 %p1, [s+{far}], 0;\n", outside=LARGE),
    "mbarriers with an index": body("and.b32 %r3, %r6, 56;\nadd.u32 %r3, %r3, %r5;\nmbarrier.arrive.shared::cta.b64 _, [%r3];\n",
                                    before=INIT + OWN, outside=SHARED),
    "a ring of bulk copies": body(
        "E{i}:\nmbarrier.try_wait.parity.shared::cta.b64 %p3, [s+8], 1;\n@!%p3 bra E{i};\n"
        "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [s], 64;\n"
        "@%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s+256], [%d1], 64, [s];\n"
        "F{i}:\nmbarrier.try_wait.parity.shared::cta.b64 %p3, [s], 0;\n@!%p3 bra F{i};\n"
        "ld.shared.b32 %r3, [s+256];\nmbarrier.arrive.shared::cta.b64 _, [s+8];\n",
        before="mbarrier.init.shared::cta.b64 [s], 1;\nmbarrier.init.shared::cta.b64 [s+8], 64;\nbar.sync 0;\n", outside=SHARED),
    "wgmma": body("wgmma.fence.sync.aligned;\nwgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{%f0,%f1,%f2,%f3}}, "
                  "%d1, %d2, 1, 1, 1, 0, 0;\nwgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n"),
    "wgmma with registers of their own": body(
        ".reg .f32 a{i},b{i},c{i},e{i};\nwgmma.fence.sync.aligned;\nwgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 "
        "{{a{i},b{i},c{i},e{i}}}, %d1, %d2, 0, 1, 1, 0, 0;\nwgmma.commit_group.sync.aligned;\n",
        after="wgmma.wait_group.sync.aligned 0;\n"),
    "a ring of wgmma": body(
        "F{i}:\nmbarrier.try_wait.parity.shared::cta.b64 %p3, [s], 0;\n@!%p3 bra F{i};\nwgmma.fence.sync.aligned;\n"
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{%f0,%f1,%f2,%f3}}, %d1, %d2, 1, 1, 1, 0, 0;\n"
        "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 1;\nmbarrier.arrive.shared::cta.b64 _, [s+8];\n",
        before="mbarrier.init.shared::cta.b64 [s], 1;\nmbarrier.init.shared::cta.b64 [s+8], 64;\nbar.sync 0;\n", outside=SHARED),
    "shuffles": body("shfl.sync.idx.b32 %r3, %r4, {low}, 31, {i};\n"),
    "elections": body("elect.sync %r3|%p3, -1;\n@%p3 st.shared.b32 [s+{k}], %r1;\nbar.warp.sync -1;\n", outside=SHARED),
    "half warps": body("setp.lt.u32 %p1, %r2, {low};\n@%p1 bar.warp.sync -1;\n"),
    "clusters": body("mapa.shared::cluster.u32 %r3, %r4, {low};\nst.shared::cluster.b32 [%r3+{k}], %r1;\n"
                     "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n", before=OWN, outside=SHARED),
    "arrives on other CTAs": body("mapa.shared::cluster.u32 %r3, %r4, {low};\n"
                                  "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r3+{k}];\n",
                                  before=INIT + OWN, outside=SHARED),
    "registers of warps": body("setmaxnreg.inc.sync.aligned.u32 240;\n"),
}
MODULES = {
    "calls": body("call f;\n", outside=".func f() { .reg .b32 r; mov.b32 r, 1; add.u32 r, r, 1; ret; }\n"),
    "calls in a chain": Shape(HEAD + ".func f0() { ret; }\n", ".func f{i}() {{ call f{last}; call f{last}; ret; }}\n",
                              ".visible .entry k() { call f9; ret; }\n"),
    "calls of what is not seen": body("call g, ();\nst.shared.b32 [s+{k}], %r2;\n", outside=".extern .func g();\n" + SHARED),
    "calls with arguments": body("call (%r3), f, (%r3);\n", outside=".func (.reg .b32 o) f(.reg .b32 a) { add.u32 o, a, 1; ret; }\n"),
    "functions": module(".func f{i}() {{ .reg .b32 r; mov.b32 r, {i}; ret; }}\n"),
    "functions that are declared": module(".extern .func (.reg .b32 o) f{i}(.reg .b32 a);\n"),
    "entries": module(".visible .entry k{i}() {{ ret; }}\n", after=""),
    "entries with parameters": module(".visible .entry k{i}(.param .u64 a, .param .u32 b) {{ .reg .b64 d; ld.param.u64 d, [a]; ret; }}\n",
                                      after=""),
    "entries that call": module(".visible .entry k{i}() {{ call f; ret; }}\n", before=".func f() { ret; }\n", after=""),
    "entries that branch": module(".visible .entry k{i}() {{ .reg .pred p; L: @p bra L; M: @p bra M; ret; }}\n", after=""),
    "entries with shared memory": module(".shared .b32 g{i};\n.visible .entry k{i}() {{ .reg .b32 d; mov.u32 d, g{i}; "
                                         "st.shared.b32 [d], d; ret; }}\n", after=""),
    "aliases": module(".visible .func f{i}();\n.alias f{i}, b;\n", before=".visible .func b() { ret; }\n"),
    "variables": module(".global .align 4 .b32 g{i} = {i};\n"), "elements of a list": module("1,", ".global .b32 x[] = {",
                                                                                               "1};\n.visible .entry k() { ret; }\n"),
    "addresses in a list": module("y+{i},", ".global .u32 y;\n.global .u64 x[] = {", "y};\n.visible .entry k() { ret; }\n"),
    "lists in a list": module("{{1, 2}},", ".global .b32 x[][2] = {", "{1, 2}};\n.visible .entry k() { ret; }\n"),
    "parameters": module(".param .u8 p{i}, ", ".func k(", ".param .u8 p) { ret; }\n"),
    "parameters of an entry": module(".param .u8 p{i}, ", ".visible .entry k(", ".param .u8 p) { ret; }\n"),
    "parentheses": Shape(HEAD + ".global .b32 x = ", "(", "1;\n.visible .entry k() { ret; }\n"),
    "parentheses that close": Shape(HEAD + ".global .b32 x = 1", "+(1", ";\n.visible .entry k() { ret; }\n", ")"),
    "terms of a sum": module("+1", ".global .b32 x = 1", ";\n.visible .entry k() { ret; }\n"),
    "signs": module("-", ".global .b32 x = ", "1;\n.visible .entry k() { ret; }\n"),
    "choices in a constant": module("1 ? 2 : ", ".global .b32 x = ", "3;\n.visible .entry k() { ret; }\n"),
    "comments": body("// words\n"), "comments in a line": body("/* words */"), "files": module(".file {i} \"x{i}.cu\"\n"),
    "source lines": body(".loc 1 {i} 1\n.loc 1 {i} 2, function_name $i, inlined_at 1 {i} 1\nadd.s32 %r3, %r3, 1;\n"),
    "source lines of calls": module(".loc 1 {i} 1\n.loc 1 {i} 2, function_name $i, inlined_at 1 {i} 1\nadd.s32 %r3, %r3, 1;\n",
                                    ".file 1 \"x.cu\"\n" + BEGIN, END + ".section .debug_str {\n$i:\n.b8 65,0\n}\n"),
    "pragmas": body(".pragma \"nounroll\";\n"),
    "debug data": module(".b8 1,2,3\n", ".visible .entry k() { ret; }\n.section .debug_info {\n",
                                                                       "}\n"),
    "prototypes": body("P{i}: .callprototype _ ();\ncall %d1, (), P{i};\n"), "call targets": body(
        "T{i}: .calltargets f;\ncall %d1, (), T{i};\n", outside=".func f() { ret; }\n"),
}
WRONG = {
    "a long name": body("n", after=": bra L;\nL:\n"), "a long name of digits": body("1", before="add.s32 %r3, %r3, %r", after=";\n"),
    "a long number": body("1", before="add.s32 %r3, %r3, ", after=";\n"),
    "a long fraction": body("1", before="add.f32 %f1, %f1, 0.", after=";\n"),
    "a long opcode": body(".s32", before="add", after=" %r3, %r3, %r1;\n"), "a long string": module("a", ".file 1 \"", "\"\n"),
    "a string that does not end": module("a b\n", ".file 1 \"", ""), "a comment that does not end": module("a b\n", "/*", ""),
    "missing semicolons": body("add.s32 %r1\n"), "semicolons": body(";"), "commas": body(","), "braces": body("{{"), "brackets": body("["),
    "braces that close": body("}}\n"), "quotes": body("\""), "dots": body("."), "colons": body(":"), "at signs": body("@"),
    "slashes": body("/"),
    "operands": body("%r1, ", before="add.s32 ", after="%r1;\n"), "guards": body("@%p1 ", after="ret;\n"),
    "one unknown instruction": body("zzz.b32 %r1;\n"), "unknown instructions": body("zzz{i}.b32 %r1;\n"),
    "misspelt instructions": body("add.s3{low} %r3, %r3, {i};\n"), "undefined names": body("add.s32 %r1, %r1, %z{i};\n"),
    "undefined labels": body("bra Z{i};\n"), "wrong types": body("add.f32 %r1, %r{low}, {i};\n"),
    "wrong addresses": body("ld.shared.b32 %r1, [z{i}+4];\n"),
    "names twice": body(".reg .b32 q;\n"), "unknown directives": module(".zzz{i} 1\n"), "versions": module(".version 9.0\n"),
    "targets": Shape(".version 9.0\n.target sm_90a", ", sm_90a", "\n.address_size 64\n.visible .entry k() { ret; }\n"),
    "heads without bodies": module(".visible .entry k{i}(\n"), "characters": module("\u00e9\n"), "zeros": module("\0"),
    "a vector in a vector": body("{{", before="mov.b64 ", after="%r1;\n"),
    "offsets": body("+4", before="ld.global.b32 %r1, [%d1", after="];\n"),
}
SHAPES: dict[str, Shape] = {**FLOW, **VALUES, **MEMORY, **ORDER, **MODULES, **WRONG}
