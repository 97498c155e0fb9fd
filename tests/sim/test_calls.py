"""Functions and what is asked twice, planted: what goes into a call and comes back, who makes it, which question goes on."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ptxkit import sim

from . import planted
from .planted import SCHEDULES, Case

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]
FUNCTIONS = """
.func (.reg .u32 b) time () { mov.u32 b, %clock; ret; }
.func (.reg .u32 b) number () { mov.u32 b, 7; ret; }
.func ends (.reg .u32 g) { .reg .pred p; setp.eq.u32 p, g, 77; @p exit; ret; }
.func puts (.reg .u32 a, .reg .u32 v) { st.shared.u32 [a], v; ret; }
.func twice (.reg .u32 a, .reg .u32 v) { call puts, (a, 1); call puts, (a, v); ret; }
.func (.reg .u32 v) gets (.reg .u32 a) { ld.shared.u32 v, [a]; ret; }
.func put (.param .u64 a, .param .u32 v) { .reg .u64 x; .reg .u32 y; ld.param.u64 x, [a]; ld.param.u32 y, [v]; st.global.u32 [x], y; ret; }
.func keeps (.reg .u64 a, .reg .u32 v) { st.u32 [a], v; ret; }
.func copies (.reg .u32 to, .reg .u64 from, .reg .u32 bar) {
mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 128;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [to], [from], 128, [bar]; ret; }
.func waits (.reg .u32 bar, .reg .u32 parity) { .reg .pred p;
W: mbarrier.try_wait.parity.shared::cta.b64 p, [bar], parity; @!p bra W; ret; }
.func one (.reg .u64 a) { st.global.u32 [a], 1; ret; }
.func two (.reg .u64 a) { st.global.u32 [a], 2; ret; }
.func stores (.reg .u64 to, .reg .u32 from) { cp.async.bulk.global.shared::cta.bulk_group [to], [from], 128; ret; }
.visible .entry"""
ELECT = "elect.sync _|%p4, -1;\n"
STORE = "st.global.u32 [%rd1], %r10;"
LOCAL = "st.local.u32 [own], 5;\nmov.u64 %rd3, own;\ncvta.local.u64 %rd3, %rd3;\n" + ELECT
PUT = "@!%p4 bra N;\n{ .param .u64 a; .param .u32 v; st.param.u64 [a], %rd5; st.param.u32 [v], VALUE; call put, (a, v); }\nN:"
RING = "setp.eq.u32 %p5, %r0, 0;\n@%p5 mbarrier.init.shared::cta.b64 [%r2], 1;\nbar.warp.sync -1;\n" + ELECT + "@!%p4 bra N;\n" \
    "mov.u32 %r11, 0;\nL: call copies, (%r1, %rd0, %r2);\nand.b32 %r12, %r11, 1;\ncall waits, (%r2, %r12);\nadd.u32 %r11, %r11, 1;\n" \
    "setp.lt.u32 %p5, %r11, 3;\n@%p5 bra L;\nN:\n" \
    "-@%p0 call (%r10), gets, (%r1);\n+@%p4 call (%r10), gets, (%r1);\n@%p4 st.global.u32 [%rd5], %r10;"
ASKED = "@%p0 mbarrier.init.shared::cta.b64 [%r2], 1;\nbar.sync 0;\n@%p5 mbarrier.arrive.shared::cta.b64 _, [%r2];\nmov.u32 %r10, 1;\n"
ASKED = "setp.eq.u32 %p5, %r0, 63;\n" + ASKED
ASK = "mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r2], 0;\n"
SET = "setp.eq.u32 %p5, %r0, 63;\n-@%p5 red.relaxed.gpu.global.or.b32 [%rd4], 1;\n"
LOAD = "ld.relaxed.gpu.global.u32 {}, [%rd4];\n"

CHOICE = "P: .callprototype _ (.reg .u64 _);\nmov.u64 %rd2, one;\nmov.u64 %rd3, two;\n"

CASES: list[Case] = [
    ("what a function returns to a call by its address", "clock", "P: .callprototype (.reg .u32 _) _ ();\n-mov.u64 %rd3, time;\n"
     "+mov.u64 %rd3, number;\ncall (%r10), %rd3, (), P;\n" + STORE, 32, 1),
    ("a function that the time chooses", "clock", CHOICE + "-mov.u32 %r11, %clock;\n+mov.u32 %r11, 3;\nsetp.eq.u32 %p5, %r11, 77;\n"
     "selp.b64 %rd2, %rd2, %rd3, %p5;\ncall %rd2, (%rd1), P;", 32, 1),
    ("a function that a strong load chooses", "reads .* with nothing", CHOICE + "setp.eq.u32 %p5, %r0, 63;\n"
     "-@%p5 st.relaxed.gpu.global.u32 [%rd4], 1;\nld.relaxed.gpu.global.u32 %r11, [%rd4];\nsetp.eq.u32 %p5, %r11, 1;\n"
     "selp.b64 %rd2, %rd2, %rd3, %p5;\ncall %rd2, (%rd1), P;", 64, 1),
    ("a function that the elected lane's number chooses", "which lane", CHOICE + "-setp.lt.u32 %p5, %r0, 16;\n+setp.lt.u32 %p5, %r8, 16;\n"
     "selp.b64 %rd2, %rd2, %rd3, %p5;\n" + ELECT + "@%p4 call %rd2, (%rd5), P;", 32, 1),
    ("a thread that ends in a function", "clock", "-mov.u32 %r11, %clock;\n+mov.u32 %r11, 3;\ncall ends, (%r11);\n"
     + STORE.replace("%r10", "1"), 32, 1),
    ("local memory that the elected lane changes by a generic address", "which lane", LOCAL + "-@%p4 st.u32 [%rd3], 1;\n"
     "+st.u32 [%rd3], 1;\nld.local.u32 %r10, [own];\n" + STORE, 32, 1),
    ("local memory that a function of the elected lane changes", "which lane", LOCAL + "-@%p4 call keeps, (%rd3, 1);\n"
     "+call keeps, (%rd3, 1);\nld.local.u32 %r10, [own];\n" + STORE, 32, 1),
    ("a parameter of the elected lane", "which lane", ELECT + "-" + PUT.replace("VALUE", "%r0").replace("\n", "\n-") + "\n+"
     + PUT.replace("VALUE", "7").replace("\n", "\n+"), 32, 1),
    ("an address of the elected lane", "which lane", "st.shared.u32 [%r4], 1;\n-" + ELECT + "-@%p4 ld.shared.u32 %r10, [%r4];\n", 32, 1),
    ("a function reads what one of the elected lane has stored", "", ELECT + "@%p4 call puts, (%r1, 7);\n+bar.warp.sync -1;\n"
     "@%p0 call (%r10), gets, (%r1);\n@%p0 st.global.u32 [%rd5], %r10;", 32, 1),
    ("a function of the elected lane reads", "", ELECT + "@%p0 call puts, (%r1, 7);\n+bar.warp.sync -1;\n"
     "@%p4 call (%r10), gets, (%r1);\n@%p4 st.global.u32 [%rd5], %r10;", 32, 1),
    ("functions that functions call", "", ELECT + "@%p4 call twice, (%r1, 7);\n+bar.warp.sync -1;\n"
     "@%p0 call (%r10), gets, (%r1);\n@%p0 st.global.u32 [%rd5], %r10;", 32, 1),
    ("a function by its address", "", "P: .callprototype _ (.reg .u32 _, .reg .u32 _);\nmov.u64 %rd3, puts;\n" + ELECT
     + "@%p4 call %rd3, (%r1, 7), P;\n+bar.warp.sync -1;\n@%p0 call (%r10), gets, (%r1);\n@%p0 st.global.u32 [%rd5], %r10;", 32, 1),
    ("copies and waits in functions of the elected lane", "", RING, 32, 1),
    ("a bulk store in a function, committed outside", "", "st.shared.u32 [%r4], %r0;\nfence.proxy.async.shared::cta;\nbar.warp.sync -1;\n"
     + ELECT + "@%p4 call stores, (%rd0, %r1);\n-@%p0 cp.async.bulk.commit_group;\n+@%p4 cp.async.bulk.commit_group;\n"
     "cp.async.bulk.wait_group.read 0;\nbar.warp.sync -1;\nst.shared.u32 [%r4], 7;", 32, 1),
    ("a word that is read twice", "reads .* with nothing that orders", SET + "@%p0 " + LOAD.format("%r10") + "@%p0 " + LOAD.format("%r11") +
     "@%p0 " + STORE, 64, 1),
    ("a word that is looked at, and read again", "decides", SET + "@!%p0 bra E;\n" + LOAD.format("%r10") +
     "setp.ne.u32 %p4, %r10, 1;\n@%p4 bra Y;\nst.global.u32 [%rd5], 1;\nY: " + LOAD.format("%r11") + "E:", 64, 1),
    ("two questions, one of which goes elsewhere", "decides whether the thread comes", ASKED + ASK + "-@%p4 bra F;\n+@%p4 bra M;\nL: " + ASK
     + "@!%p4 bra L;\nM: @%p0 st.global.u32 [%rd5], 1;\nbra E;\nF: @%p0 st.global.u32 [%rd5], 2;\nE:", 64, 1),
    ("two questions, and what follows the second", "reaches", ASKED + ASK + "@%p4 bra F;\nL: " + ASK + "@!%p4 bra L;\n-mov.u32 %r10, 2;\n"
     "F: " + STORE, 64, 1),
    ("a bulk load that is in flight when the CTA ends", "may exit before", "@%p0 mbarrier.init.shared::cta.b64 [%r2], 1;\nbar.sync 0;\n"
     "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 16;\n"
     "@%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd0], 16, [%r2];\n+@!%p0 bra E;\n+L: "
     + ASK + "+@!%p4 bra L;\n+E:", 64, 1),
    ("a copy under a sum", "", "@%p0 st.shared.u32 [%r1], 0;\nbar.sync 0;\nsetp.eq.u32 %p4, %r0, 63;\n"
     "@%p0 cp.async.ca.shared.global [%r1], [%rd0], 4;\n"
     "cp.async.wait_all;\n@%p0 red.relaxed.cta.shared.add.u32 [%r1], 1;\n+bar.sync 0;\n@%p4 red.relaxed.cta.shared.add.u32 [%r1], 1;\n"
     "@%p0 red.relaxed.cta.shared.add.u32 [%r1], 1;\nbar.sync 0;\nld.shared.u32 %r10, [%r1];\n" + STORE, 64, 1),
    *((f"{one} that nobody uses, and {two}", "", f"-@%p2 {one.format('cta')}\n+@%p2 {one.format('gpu')}\n@%p3 {two.format('gpu')}", 32, 2)
      for one, two in (("ld.relaxed.{}.global.u32 %r10, [%rd4];", "st.relaxed.{}.global.u32 [%rd4], 1;"),
                       ("st.relaxed.{}.global.u32 [%rd4], 1;", "ld.relaxed.{}.global.u32 %r10, [%rd4];"),
                       ("st.relaxed.{0}.global.u32 [%rd4], 1;\n@%p2 st.relaxed.gpu.global.u32 [%rd4], 2;",
                        "ld.relaxed.{}.global.u32 %r10, [%rd4];"))),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: re.sub(r"\W+", " ", case[0])[:60])
def test_what_is_planted_has_no_certificate_and_the_twin_has_one(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    functions = FUNCTIONS.replace("{", "{{").replace("}", "}}")
    monkeypatch.setattr(planted, "HEAD", planted.HEAD.replace(".visible .entry", functions))
    planted.judge(case)


@pytest.mark.parametrize(("wait", "right"), [("", False), ("@%p0 cp.async.wait_all;", False), ("cp.async.wait_all;", True),
                                             ("cp.async.commit_group;\ncp.async.wait_group 0;", True),
                                             ("cp.async.commit_group;\ncp.async.wait_group 1;", False)])
def test_threads_that_end_while_their_copies_are_in_flight(wait: str, right: bool) -> None:
    for schedule, seed in SCHEDULES:
        report, _ = planted.run("cp.async.ca.shared.global [%r4], [%rd1], 4;\n" + wait, False, schedule, seed, 32, 1)
        assert {f.rule for f in report.findings} == (set() if right else {"bulk-exit"})


ARRIVE = "barrier.cluster.arrive.aligned;\n"
CLUSTER = ARRIVE + "barrier.cluster.wait.aligned;\n"


@pytest.mark.parametrize(("peer", "owner", "verdict"), [
    ("ld.shared::cluster.u32 %r10, [%r12];\nst.global.u32 [%rd1], %r10;\nexit;", CLUSTER, "clean"),
    (ARRIVE + "ld.shared::cluster.u32 %r10, [%r12];\nst.global.u32 [%rd1], %r10;\nexit;", CLUSTER, "error"),
    (ARRIVE + "ld.shared::cluster.u32 %r10, [%r12];\nst.global.u32 [%rd1], %r10;\nexit;", CLUSTER + CLUSTER, "clean"),
    ("st.shared::cluster.u32 [%r12+128], %r0;\nexit;", CLUSTER, "incomplete"),
    ("ld.shared::cluster.u32 %r10, [%r12];\nst.global.u32 [%rd1], %r10;\nexit;", "", "error")])
def test_who_waits_at_the_cluster_barrier_waits_for_those_that_end(peer: str, owner: str, verdict: str) -> None:
    """Its threads that have ended are waited for no more: what they have read before, they have read."""
    body = "xor.b32 %r11, %r8, 1;\nmapa.shared::cluster.u32 %r12, %r4, %r11;\nst.shared.u32 [%r4], %r0;\n" \
        f"{CLUSTER}@%p1 bra O;\n{peer}\nO: {owner}"
    kernel = planted.text(body, False, 32).replace(".reqntid 32", ".reqntid 32 .explicitcluster .reqnctapercluster 2")
    found = set()
    for schedule, seed in SCHEDULES:
        report = sim.run(kernel, grid=2, args=[np.zeros(4096, np.uint32)], schedule=schedule, seed=seed)
        found.add(report.verdict)
        assert verdict != "error" or {f.rule for f in report.findings} & {"dsmem-exit", "dsmem-lifetime"}
    assert found == {verdict}
