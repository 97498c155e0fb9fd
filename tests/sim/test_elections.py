"""Elections: what tells which lane was chosen, and what is ordered only if a certain lane was, planted; and twins in which nothing is."""

from __future__ import annotations

import numpy as np
import pytest

from ptxkit import sim

from .planted import SCHEDULES, Case, judge, text

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]
ELECT = "elect.sync _|%p4, -1;\n"
OUT = "@%p4 st.global.u32 [%rd0], %r10;"
BOTH = "and.pred %p6, %p4, %p5;\n@%p6 st.global.u32 [%rd0], 5;"

CASES: list[Case] = [
    ("the number of the lane, stored by it", "which lane is chosen", "elect.sync %r10|%p4, -1;\n+mov.u32 %r10, 7;\n" + OUT, 32, 1),
    ("the number of the lane as an address", "which lane is chosen", "elect.sync %r10|%p4, -1;\n+mov.u32 %r10, 7;\n"
     "mul.wide.u32 %rd3, %r10, 4;\nadd.u64 %rd3, %rd3, %rd0;\n@%p4 st.global.u32 [%rd3], 1;", 32, 1),
    ("a ballot of who was elected", "which lane's values", ELECT + "-vote.sync.ballot.b32 %r10, %p4, -1;\n"
     "+vote.sync.ballot.b32 %r10, 1, -1;\n"
     + OUT, 32, 1),
    ("a ballot by the elected lane alone", "which lane's values", "mov.u32 %r11, %lanemask_eq;\n" + ELECT +
     "@!%p4 bra N;\n-vote.sync.ballot.b32 %r10, 1, %r11;\n+mov.u32 %r10, 1;\nst.global.u32 [%rd0], %r10;\nN:", 32, 1),
    ("a reduction by the elected lane alone", "which lane's values", "mov.u32 %r11, %lanemask_eq;\n" + ELECT +
     "@!%p4 bra N;\n-redux.sync.max.u32 %r10, %r0, %r11;\n+mov.u32 %r10, 1;\nst.global.u32 [%rd0], %r10;\nN:", 32, 1),
    ("a ballot of each half", "which lane's values", "setp.lt.u32 %p5, %r0, 16;\nselp.b32 %r11, 0xffff, 0xffff0000, %p5;\n" + ELECT +
     "-vote.sync.ballot.b32 %r10, 1, %r11;\n+vote.sync.ballot.b32 %r10, %p5, -1;\n" + OUT, 32, 1),
    ("a sum of each half", "which lane's values", "setp.lt.u32 %p5, %r0, 16;\nselp.b32 %r11, 0xffff, 0xffff0000, %p5;\n" + ELECT +
     "-redux.sync.add.u32 %r10, %r0, %r11;\n+redux.sync.add.u32 %r10, %r0, -1;\n" + OUT, 32, 1),
    ("a shuffle within segments", "which lane's values", ELECT + "-shfl.sync.idx.b32 %r10, %r0, 0, 0x181f, -1;\n"
     "+shfl.sync.idx.b32 %r10, %r0, 0, 31, -1;\n" + OUT, 32, 1),
    ("a shuffle beyond the clamp", "which lane's values", ELECT + "-shfl.sync.idx.b32 %r10, %r0, 20, 15, -1;\n"
     "+shfl.sync.idx.b32 %r10, %r0, 20, 31, -1;\n" + OUT, 32, 1),
    ("whether a shuffle had a source", "which lane's values", ELECT + "-shfl.sync.up.b32 %r11|%p5, %r8, 1, 0, -1;\n"
     "+shfl.sync.idx.b32 %r11|%p5, %r8, 1, 31, -1;\nselp.u32 %r10, 1, 2, %p5;\n" + OUT, 32, 1),
    ("lanes that have the same", "which lane's values", "shr.u32 %r11, %r0, 4;\n" + ELECT + "-match.any.sync.b32 %r10, %r11, -1;\n"
     "+redux.sync.add.u32 %r10, %r11, -1;\n" + OUT, 32, 1),
    ("a matrix that is turned", "which lane's values", ELECT + "-movmatrix.sync.aligned.m8n8.trans.b16 %r10, %r8;\n"
     "+mov.u32 %r10, %r8;\n" + OUT,
     32, 1),
    ("local memory", "which lane's values", "-st.local.u32 [own], %r0;\n" + ELECT + "-ld.local.u32 %r10, [own];\n+mov.u32 %r10, 3;\n" + OUT,
     32, 1),
    ("local memory by a generic address", "which lane's values", "-mov.u64 %rd3, own;\n-cvta.local.u64 %rd3, %rd3;\n"
     "-st.u32 [%rd3], %r0;\n" +
     ELECT + "-ld.u32 %r10, [%rd3];\n+mov.u32 %r10, 3;\n" + OUT, 32, 1),
    ("a carry", "which lane's values", "-add.cc.u32 %r11, %r0, 0xfffffff8;\n" + ELECT + "+add.cc.u32 %r11, %r8, 0xfffffff8;\n"
     "addc.u32 %r10, 0, 0;\n"
     + OUT, 32, 1),
    ("a predicate of a half and of the election", "which lane's values", "-setp.lt.u32 %p5, %r0, 16;\n+setp.lt.u32 %p5, %r8, 16;\n"
     "" + ELECT +
     "and.pred %p6, %p4, %p5;\n@%p6 st.global.u32 [%rd0], 5;", 32, 1),
    ("an election that half of the warp looks at", "whether its lane comes", "-setp.lt.u32 %p5, %r0, 16;\n"
     "+setp.lt.u32 %p5, %r8, 16;\n" + ELECT +
     "@!%p5 bra N;\n@%p4 st.global.u32 [%rd0], 5;\nN:", 32, 1),
    ("lanes that have left", "whether its lane comes", "-setp.lt.u32 %p5, %r0, 16;\n+setp.gt.u32 %p5, %r8, 16;\n" + ELECT +
     "@%p5 exit;\n@%p4 st.global.u32 [%rd0], 5;", 32, 1),
    ("a value of half of the warp", "which lane's values", "-setp.lt.u32 %p5, %r0, 16;\n+setp.lt.u32 %p5, %r8, 16;\n"
     "mov.u32 %r10, 1;\n" + ELECT +
     "@%p5 bra N;\nmov.u32 %r10, 2;\nN:\n" + OUT, 32, 1),
    ("a value chosen by half of the warp", "which lane's values", "-setp.lt.u32 %p5, %r0, 16;\n+setp.lt.u32 %p5, %r8, 16;\n" + ELECT +
     "selp.u32 %r10, 1, 2, %p5;\n" + OUT, 32, 1),
    ("how often the elected lane goes round", "whether its lane comes|which lane's values", ELECT + "@!%p4 bra N;\nmov.u32 %r11, 0;\n"
     "L: red.global.add.u32 [%rd0], 1;\nadd.u32 %r11, %r11, 1;\n-setp.le.u32 %p5, %r11, %r0;\n+setp.le.u32 %p5, %r11, 5;\n@%p5 bra L;\nN:",
     32, 1),
    ("what the elected lane counts", "which lane's values", ELECT + "@!%p4 bra N;\nmov.u32 %r11, 0;\nmov.u32 %r10, 0;\n"
     "L: add.u32 %r10, %r10, 3;\nadd.u32 %r11, %r11, 1;\n-setp.le.u32 %p5, %r11, %r0;\n+setp.le.u32 %p5, %r11, 5;\n@%p5 bra L;\n"
     "st.global.u32 [%rd0], %r10;\nN:", 32, 1),
    ("where the elected lane goes", "whether its lane comes", "T: .branchtargets A, B;\nand.b32 %r11, %r0, 1;\n+mov.u32 %r11, 1;\n"
     "" + ELECT +
     "@!%p4 bra N;\nbrx.idx %r11, T;\nA: st.global.u32 [%rd0], 1;\nbra N;\nB: st.global.u32 [%rd0], 2;\nN:", 32, 1),
    ("a function that the elected lane calls", "which lane's values", ELECT + "@!%p4 bra N;\nmov.u32 %r10, 7;\n-call (%r10), same, (%r0);\n"
     "st.global.u32 [%rd0], %r10;\nN:", 32, 1),
    *[(f"the elected lane on one side: {how.format(wrong)}", "which lane's values", "and.b32 %r11, %r0, 127;\n" + ELECT +
       f"-{how.format(wrong)}\n+{how.format(right)}\n" + BOTH, 64, 1)
      for how, right, wrong in (("setp.lt.u32 %p5, %r11, {};", 32, 16), ("setp.ge.s32 %p5, %r11, {};", 32, 40),
                                ("setp.le.u32 %p5, %r11, {};", 31, 32), ("setp.hi.u32 %p5, %r11, {};", 31, 30))],
    *[(f"the number of a part of the warp: {how.format(wrong)}", "which lane's values", ELECT +
       f"-{how.format(wrong)}\n+{how.format(right)}\nsetp.eq.u32 %p5, %r11, 0;\n" + BOTH, 64, 1)
      for how, right, wrong in (("shr.u32 %r11, %r0, {};", 5, 4), ("and.b32 %r11, %r0, {};", 96, 112))],
    ("what the others store", "which lane's values", ELECT + "-@!%p4 st.global.u32 [%rd1], 5;\n+@!%p4 st.global.u32 [%rd0], 5;", 32, 1),
]

BULK = "cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r1], 128;\n"
FILL = "st.shared.u32 [%r4], %r0;\nfence.proxy.async.shared::cta;\nbar.warp.sync -1;\n" + ELECT
ORDER: list[Case] = [
    ("lane 0 reads what the elected lane has stored", "", ELECT + "@%p4 st.shared.u32 [%r1], 7;\n+bar.warp.sync -1;\n"
     "@%p0 ld.shared.u32 %r10, [%r1];\n@%p0 st.global.u32 [%rd0], %r10;", 32, 1),
    ("the elected lane reads what lane 0 has stored", "", ELECT + "@%p0 st.shared.u32 [%r1], 7;\n+bar.warp.sync -1;\n@!%p4 bra N;\n"
     "ld.shared.u32 %r10, [%r1];\nst.global.u32 [%rd0], %r10;\nN:", 32, 1),
    ("the elected lane reads what each lane has stored", "", "st.shared.u32 [%r4], 7;\n" + ELECT + "+bar.warp.sync -1;\n"
     "@%p4 ld.shared.u32 %r10, [%r1];\n" + OUT, 32, 1),
    ("the last lane's word", "", "st.shared.u32 [%r4], 7;\n" + ELECT + "+bar.warp.sync -1;\n@%p4 ld.shared.u32 %r10, [%r1+124];\n"
     "" + OUT, 32, 1),
    ("each lane overwrites what the elected lane reads", "", "st.shared.u32 [%r4], 7;\nbar.warp.sync -1;\n" + ELECT +
     "@%p4 ld.shared.u32 %r10, [%r1];\n+bar.warp.sync -1;\nst.shared.u32 [%r4], %r0;\n" + OUT, 32, 1),
    ("another election of other lanes", "", ELECT + "@%p4 st.shared.u32 [%r1], 7;\n+bar.warp.sync -1;\nsetp.lt.u32 %p5, %r0, 16;\n"
     "@!%p5 bra N;\n"
     "elect.sync _|%p6, 0xffff;\n@%p6 ld.shared.u32 %r10, [%r1];\n@%p6 st.global.u32 [%rd0], %r10;\nN:", 32, 1),
    ("lane 0 waits for the elected lane's cp.async", "", ELECT + "@%p4 cp.async.ca.shared.global [%r1], [%rd0], 16;\n"
     "-@%p0 cp.async.wait_all;\n"
     "+@%p4 cp.async.wait_all;\nbar.warp.sync -1;\nld.shared.u32 %r10, [%r1];\nst.global.u32 [%rd1+1024], %r10;", 32, 1),
    ("lane 0 waits for the elected lane's store", "", FILL + "@%p4 " + BULK + "@%p4 cp.async.bulk.commit_group;\n"
     "-@%p0 cp.async.bulk.wait_group.read 0;\n+cp.async.bulk.wait_group.read 0;\nbar.warp.sync -1;\nst.shared.u32 [%r4], 7;", 32, 1),
    ("lane 0 commits for the elected lane", "", FILL + "@%p4 " + BULK + "-@%p0 cp.async.bulk.commit_group;\n"
     "+@%p4 cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;\nbar.warp.sync -1;\nst.shared.u32 [%r4], 7;", 32, 1),
    ("the elected lane commits for lane 0", "", FILL + "@%p0 " + BULK + "-@%p4 cp.async.bulk.commit_group;\n"
     "+@%p0 cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;\nbar.warp.sync -1;\nst.shared.u32 [%r4], 7;", 32, 1),
    ("the elected lane waits for lane 0", "", FILL + "@%p0 " + BULK + "@%p0 cp.async.bulk.commit_group;\n"
     "-@%p4 cp.async.bulk.wait_group.read 0;\n+@%p0 cp.async.bulk.wait_group.read 0;\nbar.warp.sync -1;\nst.shared.u32 [%r4], 7;", 32, 1),
    ("lane 0 fences for the elected lane", "", "st.shared.u32 [%r4], %r0;\nbar.warp.sync -1;\n"
     "" + ELECT + "-@%p0 fence.proxy.async.shared::cta;\n"
     "+fence.proxy.async.shared::cta;\n+bar.warp.sync -1;\n@%p4 " + BULK + "@%p4 cp.async.bulk.commit_group;\n"
     "@%p4 cp.async.bulk.wait_group 0;",
     32, 1),
    ("lane 0 initialises, the elected lane arrives", "", "@%p0 mbarrier.init.shared::cta.b64 [%r2], 1;\n+bar.warp.sync -1;\n" + ELECT +
     "@%p4 mbarrier.arrive.shared::cta.b64 _, [%r2];", 32, 1),
    ("two elections at one place, apart", "which lane's values", "-setp.lt.u32 %p5, %r0, 16;\n+setp.lt.u32 %p5, %r0, 32;\n@%p5 bra A;\n"
     "elect.sync _|%p4, -1;\n@%p4 st.global.u32 [%rd0], %r8;\nbra N;\nA: elect.sync _|%p4, -1;\n@%p4 st.global.u32 [%rd0], %r8;\n"
     "N:", 32, 1),
]


@pytest.mark.parametrize("case", [*CASES, *ORDER], ids=lambda case: case[0])
def test_what_goes_by_the_lane_has_no_certificate_and_the_twin_has_one(case: Case) -> None:
    judge(case)


def test_an_election_that_a_function_returns() -> None:
    """Nobody has looked at the caller's registers when the function elects: none of them is known to be the same in all lanes."""
    body = "call (%r10), one;\nsetp.ne.u32 %p4, %r10, 0;\n@%p4 st.global.u32 [%rd0], %r0;"
    function = ".func (.reg .u32 r) one () { .reg .pred q; elect.sync _|q, -1; selp.u32 r, 1, 0, q; ret; }\n.visible .entry"
    kernel = text(body, False, 32).replace(".visible .entry", function)
    reports = [sim.run(kernel, grid=1, args=[np.zeros(4096, np.uint32)], schedule=schedule, seed=seed) for schedule, seed in SCHEDULES]
    assert {report.every_schedule for report in reports} == {False}
