"""The certificate: each source of dependence, planted so that it reaches something that lasts, and a twin in which it does not."""

from __future__ import annotations

import pytest

from .planted import Case, judge

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]
STORE = "st.global.u32 [%rd1], %r10;"
FLAG = "@%p2 st.relaxed.gpu.global.u32 [%rd4], 7;\n"
SET_UP = "@%p0 mbarrier.init.shared::cta.b64 [%r2], 1;\nbar.sync 0;\n"
COPY = SET_UP + """@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 128;
@%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd0], 128, [%r2];
"""
WAIT = "W: mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r2], 0;\n@!%p4 bra W;\n"
USE = "ld.shared.u32 %r10, [%r4];\nst.global.u32 [%rd1+1024], %r10;\n"


def spin(load: str, on: str = "setp.eq.u32 %p5, %r10, 0;") -> str:
    return f"@!%p3 bra D;\nS: {load}\n{on}\n@%p5 bra S;\nD:\n"


LOADS = ["ld.relaxed.gpu.global.u32", "ld.acquire.sys.global.u32", "ld.volatile.global.u32", "ld.mmio.relaxed.sys.global.u32",
         "ld.relaxed.gpu.u32"]
RMWS = ["add.u32", "min.u32", "max.s32", "and.b32", "or.b32", "xor.b32", "inc.u32", "dec.u32", "add.u64"]
SUMS = [("red.relaxed.gpu.global.add.f32", "%f1"), ("red.relaxed.gpu.global.add.noftz.f16x2", "%r8"),
        ("red.relaxed.gpu.global.add.noftz.bf16x2", "%r8"), ("red.relaxed.gpu.global.add.v2.f32", "{%f1, %f1}"),
        ("atom.relaxed.gpu.global.add.f32 %f2,", "%f1")]
TIMES = ["%clock", "%clock_hi", "%globaltimer_lo", "%globaltimer_hi"]
MACHINE = [("%smid", "%ctaid.x"), ("%nsmid", "%nctaid.x"), ("%warpid", "%laneid"), ("%nwarpid", "%ntid.x"), ("%total_smem_size", "%ntid.y")]

CASES: list[Case] = [
    *((f"a strong load, {load}", "reads .* with nothing that orders", f"{FLAG}-@%p3 {load} %r10, [%rd4];\n-@%p3 {STORE}\n+"
       + spin(f"{load} %r10, [%rd4];").replace("\n", "\n+").rstrip("+") + f"\n+@%p3 {STORE}", 32, 2) for load in LOADS),
    ("a strong load of shared memory", "reads data",
     "@%p0 st.relaxed.cta.shared.u32 [%r1], 7;\nbar.sync 0;\n-@%p0 st.relaxed.cta.shared.u32 "
     "[%r1], 8;\nld.relaxed.cta.shared.u32 %r10, [%r1];\n" + STORE, 64, 1),
    ("a vector of strong loads", "reads out", FLAG + "@%p3 ld.relaxed.gpu.global.v2.u32 {%r10, %r11}, [%rd4];\n-@%p3 " + STORE, 32, 2),
    ("a load that decides about a store", "decides whether the thread comes to `st", FLAG + "mov.u32 %r11, 1;\n@!%p3 bra D;\n"
     "ld.relaxed.gpu.global.u32 %r10, [%rd4];\nsetp.eq.u32 %p4, %r10, 0;\n@%p4 bra D;\n-st.global.u32 [%rd1], %r11;\nD:", 32, 2),
    ("a load that decides what a register holds", "reaches `st", FLAG + "mov.u32 %r11, 1;\n@!%p3 bra D;\nld.relaxed.gpu.global.u32 %r10, "
     "[%rd4];\nsetp.eq.u32 %p4, %r10, 0;\n@%p4 bra D;\nmov.u32 %r11, 2;\nD:\n-st.global.u32 [%rd1], %r11;", 32, 2),
    ("a load that decides about a round", "decides when a loop ends", FLAG + "@!%p3 bra D;\nmov.u32 %r11, 0;\nL: "
     "ld.relaxed.gpu.global.u32 %r10, [%rd4];\nadd.u32 %r11, %r11, 1;\n-setp.lt.u32 %p4, %r11, %r10;\n+setp.lt.u32 %p4, %r11, 3;\n"
     "@%p4 bra L;\nD:", 32, 2),
    ("an address", "is part of an address of", FLAG + "@!%p3 bra D;\nld.relaxed.gpu.global.u32 %r10, [%rd4];\nmul.wide.u32 %rd2, %r10, 4;\n"
     "add.u64 %rd2, %rd2, %rd1;\n+mov.u64 %rd2, %rd1;\nst.global.u32 [%rd2+256], 1;\nD:", 32, 2),
    ("two flags, each CTA reads the other's", "reads .* with nothing that orders",
     "mul.wide.u32 %rd2, %r8, 4;\nadd.u64 %rd2, %rd2, %rd4;\nsub.u64 %rd3, %rd4, %rd2;\nadd.u64 %rd3, %rd3, %rd4;\nadd.u64 %rd3, %rd3, 4;\n"
     "@%p0 st.relaxed.gpu.global.u32 [%rd2], 1;\nfence.acq_rel.gpu;\n-@%p0 ld.relaxed.gpu.global.u32 %r10, [%rd3];\n"
     "+@!%p0 bra D;\n+S: ld.relaxed.gpu.global.u32 %r10, [%rd3];\n+setp.eq.u32 %p5, %r10, 0;\n+@%p5 bra S;\n+D:\n@%p0 " + STORE, 32, 2),
    *((f"the result of atom.{rmw}", "reads .* with nothing that orders", f"@%p0 atom.relaxed.gpu.global.{rmw} "
       + ("%rd3, [%rd4], 3;\ncvt.u32.u64 %r10, %rd3;" if "64" in rmw else "%r10, [%rd4], 3;") + f"\n-@%p0 {STORE}", 32, 2) for rmw in RMWS),
    ("the result of an exchange", "reads|what is left", "-@%p0 atom.relaxed.gpu.global.exch.b32 %r10, [%rd4], 5;\n"
     "+@%p2 atom.relaxed.gpu.global.exch.b32 %r10, [%rd4], 5;\n@%p2 " + STORE, 32, 2),
    ("the result of a compare-and-swap", "reads|what is left", "-@%p0 atom.relaxed.gpu.global.cas.b32 %r10, [%rd4], 0, %r8;\n"
     "+@%p2 atom.relaxed.gpu.global.cas.b32 %r10, [%rd4], 0, %r8;\n@%p2 " + STORE, 32, 2),
    ("lanes of one atomic", "come to one address", "atom.relaxed.gpu.global.add.u32 %r10, [%rd4], 1;\n-" + STORE, 32, 1),
    ("the last store", "what is left in out", "-@%p0 st.relaxed.gpu.global.u32 [%rd4], %r8;\n+@%p0 st.relaxed.gpu.global.u32 [%rd4], 3;",
     32, 2),
    ("the last store in shared memory", "what is left in data", "setp.eq.u32 %p4, %r0, 32;\n@%p0 st.volatile.shared.u32 [%r1], 1;\n"
     "-@%p4 st.volatile.shared.u32 [%r1], 2;\n+@%p4 st.volatile.shared.u32 [%r1+4], 2;", 64, 1),
    ("the last of the lanes", "lane", "-st.relaxed.gpu.global.u32 [%rd4], %r0;\n+st.relaxed.gpu.global.u32 [%rd1], %r0;", 32, 1),
    ("the last of the lanes' exchanges", "the order of the lanes", "-atom.relaxed.gpu.global.exch.b32 %r10, [%rd4], %r0;\n"
     "+atom.relaxed.gpu.global.exch.b32 %r10, [%rd1], %r0;", 32, 1),
    ("the last exchange", "what is left", "-@%p0 atom.relaxed.gpu.global.exch.b32 %r10, [%rd4], %r8;\n"
     "+@%p0 atom.relaxed.gpu.global.exch.b32 %r10, [%rd4], 9;", 32, 2),
    ("a store among additions", "what is left",
     "@%p2 red.relaxed.gpu.global.add.u32 [%rd4], 1;\n-@%p3 st.relaxed.gpu.global.u32 [%rd4], 5;\n"
     "+@%p3 red.relaxed.gpu.global.add.s32 [%rd4], 5;", 32, 2),
    ("a maximum among additions", "what is left", "@%p2 red.relaxed.gpu.global.add.u32 [%rd4], 1;\n"
     "-@%p3 red.relaxed.gpu.global.max.u32 [%rd4], 5;\n+@%p3 red.relaxed.gpu.global.max.u32 [%rd5], 5;", 32, 2),
    ("signed and unsigned minima", "what is left", "@%p2 red.relaxed.gpu.global.min.u32 [%rd4], -1;\n-@%p3 red.relaxed.gpu.global.min.s32 "
     "[%rd4], 5;\n+@%p3 red.relaxed.gpu.global.min.u32 [%rd4], 5;", 32, 2),
    ("counters with several limits", "what is left", "@%p2 red.relaxed.gpu.global.inc.u32 [%rd4], 1;\n-@%p3 red.relaxed.gpu.global.inc.u32 "
     "[%rd4], 0;\n+@%p3 red.relaxed.gpu.global.inc.u32 [%rd4], 1;", 32, 2),
    *((f"a sum of floats, {op}", "what is left", f"mov.f32 %f1, 0f3F800000;\nmul.wide.u32 %rd2, %r8, 8;\nadd.u64 %rd2, %rd2, %rd4;\n"
       f"-mov.u64 %rd2, %rd4;\n@%p0 {op} [%rd2], {value};", 32, 3) for op, value in SUMS),
    ("a sum of floats by lanes", "the order of the lanes", "-red.relaxed.gpu.global.add.f32 [%rd4], 0f3F800000;\n"
     "+red.relaxed.gpu.global.add.u32 [%rd4], 1;", 32, 1),
    ("a bulk sum of floats", "what is left", "@%p0 st.shared.v4.u32 [%r1], {1, 2, 3, 4};\nfence.proxy.async.shared::cta;\n"
     "-@%p0 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd4], [%r1], 16;\n"
     "+@%p0 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd4], [%r1], 16;\n"
     "@%p0 cp.async.bulk.commit_group;\n@%p0 cp.async.bulk.wait_group 0;", 32, 2),
    ("two bulk sums of one thread", "what is left", "@%p0 st.shared.v4.u32 [%r1], {1, 2, 3, 4};\nfence.proxy.async.shared::cta;\n"
     "@%p0 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd4], [%r1], 16;\n@%p0 cp.async.bulk.commit_group;\n"
     "+@%p0 cp.async.bulk.wait_group 0;\n@%p0 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd4], [%r1], 16;\n"
     "@%p0 cp.async.bulk.commit_group;\n@%p0 cp.async.bulk.wait_group 0;", 32, 1),
    ("the answer of try_wait", "is complete|how often", COPY + "mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r2], 0;\n+@%p5 bra N;\n"
     + WAIT + "+N:\n-selp.u32 %r11, 1, 0, %p5;\n-st.global.u32 [%rd1+2048], %r11;\n" + USE, 32, 1),
    ("the answer of test_wait", "is complete", COPY + "mbarrier.test_wait.parity.shared::cta.b64 %p5, [%r2], 0;\n"
     "@%p5 bra N;\n-st.global.u32 [%rd1+2048], 1;\n" + WAIT + "N:\n" + USE, 32, 1),
    ("an answer that is asked for once", "decides when a loop ends", COPY + "mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r2], 0;\n"
     "V: @%p4 bra N;\n-bra V;\n" + WAIT + "N:\n" + USE, 32, 1),
    ("a wait that is given up", "comes to", COPY + "-mov.u32 %r12, 0;\n-W: mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r2], 0, 100;\n"
     "-@%p4 bra D;\n-add.u32 %r12, %r12, 1;\n-setp.lt.u32 %p5, %r12, 2;\n-@%p5 bra W;\n-D:\n+" + WAIT.replace("\n", "\n+", 1) + USE, 32, 1),
    ("a wait that is left out", "is complete", COPY + "-mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r2], 0;\n"
     "-@!%p4 bra E;\n+" + WAIT.replace("\n", "\n+", 1) + USE + "E:", 32, 1),
    ("how often a wait has asked", "how often", COPY + "mov.u32 %r12, 0;\nW: mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r2], 0;\n"
     "add.u32 %r12, %r12, 1;\n@!%p4 bra W;\n-st.global.u32 [%rd1+2048], %r12;\n" + USE, 32, 1),
    ("a peek at another barrier", "asks for something else|decides", "@%p0 mbarrier.init.shared::cta.b64 [%r2], 1;\n"
     "@%p0 mbarrier.init.shared::cta.b64 [%r2+8], 1;\nbar.sync 0;\n@%p0 mbarrier.arrive.shared::cta.b64 _, [%r2];\n"
     "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r2+8];\n-mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r2+8], 0;\n"
     "+mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r2], 0;\nselp.u32 %r10, 1, 0, %p5;\nst.shared.u32 [%r4], %r0;\n"
     "setp.ne.u32 %p6, %r10, 0;\n@%p6 bra N;\n" + WAIT + "N:\n" + USE, 32, 1),
    ("the state of a barrier", "the state that", SET_UP + "@%p0 mbarrier.arrive.shared::cta.b64 %rd3, [%r2];\n-cvt.u32.u64 %r10, %rd3;\n"
     "-@%p0 " + STORE + "\n@!%p0 bra D;\nV: mbarrier.try_wait.shared::cta.b64 %p4, [%r2], %rd3;\n@!%p4 bra V;\nD:", 32, 1),
    ("what is pending at a barrier", "the state that", SET_UP + "@%p0 mbarrier.arrive.shared::cta.b64 %rd3, [%r2];\n"
     "@%p0 mbarrier.pending_count.b64 %r10, %rd3;\n-@%p0 " + STORE, 32, 1),
    *((f"the time, {name}", f"`{name}` depends on the time", f"mov.u32 %r10, {name};\n-{STORE}", 32, 1) for name in TIMES),
    ("the time in 64 bits", "%clock64", "mov.u64 %rd3, %clock64;\n-st.global.u64 [%rd5], %rd3;", 1, 1),
    ("the time in local memory", "%clock", "mov.u32 %r10, %clock;\nst.local.u32 [own], %r10;\nld.local.u32 %r11, [own];\n"
     "+mov.u32 %r11, 1;\nst.global.u32 [%rd1], %r11;", 32, 1),
    ("the time in a call", "%clock", "mov.u32 %r10, %clock;\ncall (%r11), same, (%r10);\n+mov.u32 %r11, 1;\nst.global.u32 [%rd1], %r11;",
     32, 1),
    ("the time in a carry", "%clock", "mov.u32 %r10, %clock;\nadd.cc.u32 %r10, %r10, -1;\naddc.u32 %r11, 0, 0;\n+mov.u32 %r11, 1;\n"
     "st.global.u32 [%rd1], %r11;", 32, 1),
    ("the time from another lane", "%clock", "mov.u32 %r10, %clock;\nshfl.sync.bfly.b32 %r11, %r10, 1, 31, -1;\n"
     "vote.sync.any.pred %p4, %p0, -1;\n+mov.u32 %r11, 1;\n@%p4 st.global.u32 [%rd1], %r11;", 32, 1),
    ("a wait with a deadline", "%clock", "mov.u32 %r10, %clock;\n" + SET_UP + "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r2];\n"
     "W: mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r2], 0;\n@%p4 bra D;\nmov.u32 %r11, %clock;\nsub.u32 %r11, %r11, %r10;\n"
     "setp.gt.u32 %p5, %r11, 100000000;\n-@%p5 trap;\nbra W;\nD:\n" + "st.global.u32 [%rd1], 1;", 32, 1),
    *((f"the machine, {name}", f"`{name}` depends on where", f"-mov.u32 %r10, {name};\n+mov.u32 %r10, {other};\n{STORE}", 32, 1)
      for name, other in MACHINE),
    ("the number of the grid", "%gridid", "mov.u64 %rd3, %gridid;\n-st.global.u64 [%rd5], %rd3;", 1, 1),
    ("which lanes are active", "which lanes run together", "-activemask.b32 %r10;\n+vote.sync.ballot.b32 %r10, 1, -1;\n" + STORE, 32, 1),
    ("the elected lane", "which lane is chosen", "elect.sync %r10|%p4, -1;\n-" + STORE, 32, 1),
    ("the word of the elected lane", "which lane's values", "elect.sync _|%p4, -1;\n-@%p4 st.global.u32 [%rd1], 9;\n"
     "+@%p4 st.global.u32 [%rd0], 9;", 32, 1),
    ("a value of the elected lane", "which lane's values",
     "elect.sync _|%p4, -1;\n@!%p4 bra N;\nadd.u32 %r11, %r8, 5;\n-add.u32 %r11, %r11, "
     "%r0;\nst.global.u32 [%rd0], %r11;\nN:", 32, 1),
    ("what only the elected lane has", "which lane is chosen",
     "mov.u32 %r10, 3;\nelect.sync _|%p4, -1;\n@%p4 mov.u32 %r10, 4;\n-" + STORE, 32, 1),
    ("an elected copy", "which lane's values", SET_UP + "elect.sync _|%p4, -1;\n@!%p4 bra N;\nmov.u64 %rd3, %rd0;\n-shl.b32 %r11, %r0, 4;\n"
     "-cvt.u64.u32 %rd3, %r11;\n-add.u64 %rd3, %rd3, %rd0;\nmbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 128;\n"
     "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd3], 128, [%r2];\nN:\n" + WAIT + USE, 32, 1),
    ("a constant load of what is written later", "no thread of the grid writes", "-ld.global.nc.u32 %r10, [%rd1];\n+ld.global.u32 %r10, "
     "[%rd1];\nadd.u32 %r10, %r10, 1;\nst.global.u32 [%rd1], %r10;", 32, 1),
    ("a loop that any of two lets go on", "any of several writes|nothing orders",
     "@%p3 red.release.gpu.global.add.u32 [%rd4], 1;\n@!%p2 bra D;\n"
     "S: ld.acquire.gpu.global.u32 %r10, [%rd4];\n-setp.lt.u32 %p5, %r10, 1;\n+setp.lt.u32 %p5, %r10, 2;\n@%p5 bra S;\nD:", 32, 3),
    ("a loop that one of two stores lets go on", "waits for", "add.u32 %r11, %r8, 1;\n-@%p3 st.release.gpu.global.u32 [%rd4], 1;\n"
     "+@%p3 red.release.gpu.global.or.b32 [%rd4], %r8;\n@!%p2 bra D;\nS: ld.acquire.gpu.global.u32 %r10, [%rd4];\n"
     "-setp.lt.u32 %p5, %r10, 1;\n+setp.ne.u32 %p5, %r10, 3;\n@%p5 bra S;\nD:", 32, 3),
    ("a flag that is taken back", "before it is read",
     "@%p2 st.release.gpu.global.u32 [%rd4], 1;\n-@%p2 st.release.gpu.global.u32 [%rd4], 0;\n"
     + spin("ld.acquire.gpu.global.u32 %r10, [%rd4];"), 32, 2),
    ("a flag with another value on the way", "may end its loop with", "@%p2 st.release.gpu.global.u32 [%rd4], 1;\n"
     "@%p2 st.release.gpu.global.u32 [%rd4], 2;\n" + spin("ld.acquire.gpu.global.u32 %r10, [%rd4];") + "-@%p3 " + STORE, 32, 2),
    ("how often a flag was read", "how often", FLAG + "mov.u32 %r11, 0;\n@!%p3 bra D;\nS: ld.acquire.gpu.global.u32 %r10, [%rd4];\n"
     "add.u32 %r11, %r11, 1;\nsetp.eq.u32 %p5, %r10, 0;\n@%p5 bra S;\n-st.global.u32 [%rd1], %r11;\nD:", 32, 2),
    ("a read that is no wait", "", "@%p2 st.global.u32 [%rd5], 5;\n@%p2 st.release.gpu.global.u32 [%rd4], 1;\n"
     "-@%p3 ld.acquire.gpu.global.u32 %r10, [%rd4];\n+" + spin("ld.acquire.gpu.global.u32 %r10, [%rd4];").replace("\n", "\n+").rstrip("+")
     + "\n@%p3 ld.global.u32 %r11, [%rd5];\n@%p3 st.global.u32 [%rd1], %r11;", 32, 2),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_what_depends_has_no_certificate_and_the_twin_has_one(case: Case) -> None:
    judge(case)
