"""What a later access hides, planted: weak writes under strong ones, arrivals that are promised late, contents that are not defined."""

from __future__ import annotations

import numpy as np
import pytest

from ptxkit import TensorMap, sim

from .planted import SCHEDULES, Case, judge, text

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]
STORE = "st.global.u32 [%rd1], %r10;"
LAST = "setp.eq.u32 %p4, %r0, 63;\n"
ZERO = "@%p0 st.shared.u32 [%r1], 0;\nbar.sync 0;\n"
READ = "\nbar.sync 0;\nld.shared.u32 %r10, [%r1];\n" + STORE
LOOP = "@!%p3 bra D;\n" \
    "S: ld.acquire.gpu.global.u32 %r10, [%rd4];\nsetp.eq.u32 %p5, %r10, 0;\n@%p5 bra S;\n@%p3 st.global.u32 [%rd1], %r10;\nD:"
FILL = "st.shared.u32 [%r4], 2;\nfence.proxy.async;\nbar.sync 0;\n"
BULK = "@%p2 cp.async.bulk.global.shared::cta.bulk_group [%rd4], [%r1], 16;\n@%p2 cp.async.bulk.commit_group;\n" \
    "@%p2 cp.async.bulk.wait_group 0;\nfence.proxy.async;\n"
INIT = "@%p0 mbarrier.init.shared::cta.b64 [%r2], 1;\nbar.sync 0;\n"
WAIT = "W: mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r2], 0;\n@!%p4 bra W;\n"
COPY = "@%p0 cp.async.ca.shared.global [%r1], [%rd0], 4;\n@%p0 cp.async.mbarrier.arrive.shared.b64 [%r2];\n"
GROUP = "@%p0 cp.async.bulk.commit_group;\n@%p0 cp.async.bulk.wait_group 0;"

CASES: list[Case] = [
    *((f"a weak store under {first}, and {second}", "", f"-@%p2 st.global.u32 [%rd4], 2;\n@%p2 {first} 1;\n@%p3 {second} 1;", 32, 2)
      for first, second in (("red.relaxed.gpu.global.add.u32 [%rd4],", "red.relaxed.gpu.global.add.u32 [%rd4],"),
                            ("red.relaxed.gpu.global.max.u32 [%rd4],", "red.relaxed.gpu.global.max.u32 [%rd4],"),
                            ("st.relaxed.gpu.global.u32 [%rd4],", "st.volatile.global.u32 [%rd4],"),
                            ("atom.relaxed.gpu.global.exch.b32 %r10, [%rd4],", "atom.relaxed.gpu.global.exch.b32 %r10, [%rd4],"))),
    ("a weak store in shared memory under a sum", "", ZERO + LAST + "-@%p0 st.shared.u32 [%r1], 2;\n@%p0 red.relaxed.cta.shared.add.u32 "
     "[%r1], 1;\n@%p4 red.relaxed.cta.shared.add.u32 [%r1], 1;" + READ, 64, 1),
    ("a part of the word", "", ZERO + LAST + "-@%p0 st.shared.u8 [%r1+1], %r8;\n@%p0 red.relaxed.cta.shared.add.u32 [%r1], 1;\n"
     "@%p4 red.relaxed.cta.shared.add.u32 [%r1], 1;" + READ, 64, 1),
    ("a bulk store under a sum", "", FILL + "-" + BULK.replace("\n", "\n-").rstrip("-") + "@%p2 red.relaxed.gpu.global.add.u32 [%rd4], 1;\n"
     "@%p3 red.relaxed.gpu.global.add.u32 [%rd4], 1;", 32, 2),
    ("a weak store under a bulk sum", "", FILL + "-@%p2 st.global.u32 [%rd4], 7;\n-fence.proxy.async;\n"
     "@%p0 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd4], [%r1], 16;\n" + GROUP, 32, 2),
    ("a sum of the CTA under one of the device", "", "-@%p2 red.relaxed.cta.global.add.u32 [%rd4], 1;\n@%p2 red.relaxed.gpu.global.add.u32 "
     "[%rd4], 1;\n@%p3 red.relaxed.gpu.global.add.u32 [%rd4], 1;", 32, 2),
    ("weak stores before the flag of a loop", "", "-@%p2 st.global.u32 [%rd4], 2;\n-@%p2 st.global.u32 [%rd4], 0;\n"
     "@%p2 st.release.gpu.global.u32 [%rd4], 1;\n" + LOOP, 32, 2),
    ("a bulk store before the flag of a loop", "", FILL + "-" + BULK.replace("\n", "\n-").rstrip("-")
     + "@%p2 st.release.gpu.global.u32 [%rd4], 1;\n" + LOOP, 32, 2),
    ("a read behind one of two equal stores", "", LAST + "@%p0 st.shared.u32 [%r1], 7;\n@%p4 st.shared.u32 [%r1], 7;\n"
     "+bar.sync 0;\n@%p0 ld.shared.u32 %r10, [%r1];\n@%p0 " + STORE, 64, 1),
    ("a copy of one of two atomics' words", "", "@%p2 red.relaxed.gpu.global.add.u32 [%rd4], 1;\n-@%p3 red.relaxed.gpu.global.add.u32 "
     "[%rd4], 1;\n@%p2 red.relaxed.gpu.global.add.u32 [%rd4], 1;\n@%p2 cp.async.ca.shared.global [%r1], [%rd4], 4;\ncp.async.wait_all;\n"
     "@%p2 ld.shared.u32 %r10, [%r1];\n@%p2 " + STORE, 32, 2),
    ("an arrival before the one that is promised", "", INIT + LAST.replace("%p4", "%p5") + COPY +
     "-@%p5 mbarrier.arrive.shared.b64 _, [%r2];\n"
     "+@%p0 mbarrier.arrive.shared.b64 _, [%r2];\n" + WAIT + "ld.shared.u32 %r10, [%r1];\n" + STORE, 64, 1),
    ("a promise before the barrier is known", "", "@%p0 mbarrier.init.shared::cta.b64 [%r2], 1;\n+bar.sync 0;\n"
     + LAST.replace("%p4", "%p5") + COPY.replace("%p0", "%p5") + "@%p5 mbarrier.arrive.shared.b64 _, [%r2];\nbar.sync 0;\n" + WAIT, 64, 1),
    ("bytes that are announced late", "", INIT + LAST.replace("%p4", "%p5")
     + "@%p5 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r2], 16;\n"
     "+bar.sync 0;\n@%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd0], 16, [%r2];\n"
     "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r2];\n" + WAIT, 64, 1),
    ("as many bytes announced late as have come", "", INIT + "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 16;\n"
     "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd0], 16, [%r2];\n"
     "-mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r2], 16;\n"
     "-cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1+16], [%rd0], 16, [%r2];\n" + WAIT, 1, 1),
    ("bytes before more are announced", "", INIT + "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 16;\n"
     "-cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd0], 16, [%r2];\n"
     "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r2], 16;\n"
     "+cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd0], 16, [%r2];\n"
     "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1+16], [%rd0], 16, [%r2];\n" + WAIT, 1, 1),
    ("bytes that a thread completes for a copy", "which bytes", INIT + "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 16;\n"
     "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd0], 16, [%r2];\n"
     "-mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r2], 16;\n" + WAIT, 1, 1),
    ("where a load reads", "is part of an address", "mov.u32 %r10, %smid;\n+mov.u32 %r10, %ctaid.x;\nmul.wide.u32 %rd3, %r10, 4;\n"
     "add.u64 %rd3, %rd3, %rd0;\nld.global.u32 %r11, [%rd3];\nst.global.u32 [%rd1+1024], %r8;", 32, 1),
    ("an arrival that must not complete", "", INIT.replace(", 1;", ", 3;") + LAST.replace("%p4", "%p5") + "@%p0 mbarrier.arrive.noComplete."
     "shared::cta.b64 %rd3, [%r2], 2;\n+bar.sync 0;\n@%p5 mbarrier.arrive.shared::cta.b64 _, [%r2];\n" + WAIT, 64, 1),
    ("a barrier that is taken away", "", INIT + "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r2];\n" + WAIT + "+bar.sync 0;\n"
     "@%p0 mbarrier.inval.shared::cta.b64 [%r2];", 64, 1),
    ("a copy over a barrier", "", INIT + "-@%p0 cp.async.ca.shared.global [%r2], [%rd0], 4;\n+@%p0 cp.async.ca.shared.global [%r2+8], "
     "[%rd0], 4;\ncp.async.wait_all;", 32, 1),
    ("a line that is discarded", "is not defined", "@%p0 discard.global.L2 [%rd4], 128;\nbar.warp.sync -1;\nmul.wide.u32 %rd3, %r0, 4;\n"
     "add.u64 %rd3, %rd3, %rd4;\n+st.global.u32 [%rd3], 5;", 32, 1),
    ("a sum over what is discarded", "", FILL + "-@%p0 discard.global.L2 [%rd4], 128;\nfence.proxy.async;\n"
     "@%p0 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd4], [%r1], 128;\n" + GROUP, 32, 1),
    ("bytes of local memory", "nothing has written", "-st.local.u8 [own], %h0;\n+st.local.u32 [own], 3;\nld.local.u32 %r10, [own];\n"
     + STORE, 32, 1),
    ("local memory by a generic address", "", "mov.u64 %rd3, own;\ncvta.local.u64 %rd3, %rd3;\n+st.u32 [%rd3], 3;\nld.u32 %r10, [%rd3];\n"
     + STORE, 32, 1),
    ("a carry that nothing has written", "a carry", "+add.cc.u32 %r10, %r0, -1;\naddc.u32 %r10, 1, 1;\n" + STORE, 32, 1),
    ("a carry from before a call", "a carry", "add.cc.u32 %r11, %r0, -1;\n-call (%r11), same, (%r0);\n"
     "addc.u32 %r10, 1, 1;\n" + STORE, 32, 1),
    ("a carry on one way", "a carry", "setp.lt.u32 %p4, %r0, 16;\n+add.cc.u32 %r10, %r0, -1;\n@%p4 add.cc.u32 %r10, %r0, -8;\n"
     "addc.u32 %r10, 1, 1;\n" + STORE, 32, 1),
    ("data where a barrier was", "", INIT + LAST.replace("%p4", "%p5") + "@%p0 mbarrier.inval.shared::cta.b64 [%r2];\n+bar.sync 0;\n"
     "@%p5 st.shared.u64 [%r2], 5;\nbar.sync 0;\nld.shared.u32 %r10, [%r2];\n" + STORE, 64, 1),
    ("a barrier where data is read", "", LAST.replace("%p4", "%p5") + "@%p5 st.shared.u64 [%r2], 5;\nbar.sync 0;\n"
     "@%p5 ld.shared.u64 %rd3, [%r2];\n+bar.sync 0;\n@%p0 mbarrier.init.shared::cta.b64 [%r2], 1;\n@%p5 st.global.u64 [%rd5], %rd3;",
     64, 1),
    ("a barrier that is read as data", "reads a live mbarrier", "@%p0 st.shared.u64 [%r2], 5;\n@%p0 st.shared.u64 [%r2+8], 5;\n" + INIT
     + "-ld.shared.u64 %rd3, [%r2];\n+ld.shared.u64 %rd3, [%r2+8];\nst.global.u64 [%rd5], %rd3;", 32, 1),
    ("a quotient by a constant zero", "", "-div.u32 %r10, %r0, 0;\n+div.u32 %r10, %r0, 3;\n" + STORE, 32, 1),
    ("a bulk store of what nothing has written", "hands on", "-@%p0 st.shared.u32 [%r4], 1;\n+st.shared.u32 [%r4], 1;\nfence.proxy.async;\n"
     "bar.sync 0;\n@%p0 cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r1], 128;\n" + GROUP, 32, 1),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_what_is_hidden_has_no_certificate_and_the_twin_has_one(case: Case) -> None:
    judge(case)


@pytest.mark.parametrize(("body", "expected"), [
    ("add.cc.u32 %r11, %r0, -8;\nsetp.lt.u32 %p4, %r0, 16;\n@%p4 add.cc.u32 %r11, %r8, 0;\naddc.u32 %r10, 0, 0;",
     [0] * 16 + [1] * 16),
    ("add.cc.u32 %r11, %r0, -24;\nsetp.lt.u32 %p4, %r0, 16;\n@%p4 bra A;\naddc.u32 %r10, 10, 0;\nbra B;\nA: addc.u32 %r10, 0, 0;\nB:",
     [0] * 16 + [10] * 8 + [11] * 8),
    ("setp.lt.u32 %p4, %r0, 16;\n@%p4 bra A;\nadd.cc.u32 %r11, %r0, -24;\nbra B;\nA: add.cc.u32 %r11, %r0, -8;\nB: addc.u32 %r10, 0, 0;",
     [0] * 8 + [1] * 8 + [0] * 8 + [1] * 8)])
def test_the_carry_belongs_to_the_lane(body: str, expected: list[int]) -> None:
    """Lanes that part take theirs along, and keep them where they meet again or a guard leaves them out."""
    for schedule, seed in SCHEDULES:
        out = np.zeros(4096, np.uint32)
        report = sim.run(text(body + "\n" + STORE, False, 32), grid=1, args=[out], schedule=schedule, seed=seed)
        assert report.every_schedule
        assert out[:32].tolist() == expected


@pytest.mark.parametrize("missing", [0, 5, 8])
@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
def test_what_a_tensor_store_clips_may_be_unwritten(swizzle: int, missing: int) -> None:
    """A box of 8 rows is stored to an array of 7 rows and 4 columns: threads fill one chunk of 16 bytes a row, but for a missing one."""
    width = (swizzle or 128) // 4
    period = 128 // swizzle if swizzle else 1
    kernel = f""".version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128]) .reqntid 32 {{
.reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .pred %p<4>;
.shared .align 1024 .b8 data[1024];
mov.u32 %r0, %tid.x; mov.u32 %r1, data; setp.lt.u32 %p1, %r0, 8; setp.ne.and.u32 %p2, %r0, {missing}, %p1; setp.eq.u32 %p3, %r0, 0;
div.u32 %r2, %r0, {period}; and.b32 %r2, %r2, {max(swizzle // 16 - 1, 0)}; shl.b32 %r2, %r2, 4;
mad.lo.u32 %r2, %r0, {4 * width}, %r2; add.u32 %r2, %r2, %r1;
@%p2 st.shared.v4.u32 [%r2], {{%r0, 1, 2, 3}};
fence.proxy.async; bar.sync 0;
mov.u64 %rd0, map; cvta.param.u64 %rd0, %rd0;
@%p3 cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd0, {{0, 0}}], [%r1];
@%p3 cp.async.bulk.commit_group;
@%p3 cp.async.bulk.wait_group 0;
ret;
}}
"""
    array = np.zeros((7, 4), np.uint32)
    report = sim.run(kernel, grid=1, args=[TensorMap(array, box=(8, width), swizzle=swizzle)])
    assert "bulk-source-uninitialised" in {f.rule for f in report.findings}, str(report)
    assert report.every_schedule == (missing == 8), str(report)
    assert array.tolist() == [[(1 << 32) - 1] * 4 if row == missing else [row, 1, 2, 3] for row in range(7)]


LAST_BLOCK = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 count, .param .u64 out) .reqntid 32 {{
.reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .pred %p<4>;
ld.param.u64 %rd0, [count]; ld.param.u64 %rd1, [out];
mov.u32 %r0, %tid.x; mov.u32 %r1, %nctaid.x; sub.u32 %r1, %r1, 1; setp.eq.u32 %p0, %r0, 0;
@!%p0 ret;
fence.acq_rel.gpu;
atom.global.inc.u32 %r2, [%rd0], 99;
setp.eq.u32 %p1, %r2, %r1;
{} st.global.u32 [%rd0], 0;
@%p1 st.global.u32 [%rd1], 7;
ret;
}}
"""


@pytest.mark.parametrize("who", ["@%p1", "", "@!%p1"], ids=["the last", "each", "all but the last"])
def test_who_comes_last_may_reset_the_counter(who: str) -> None:
    """An atomic observes those before it: a store that its result decides about comes after them. Other stores race."""
    for schedule, seed in SCHEDULES:
        count, out = np.zeros(4, np.uint32), np.zeros(4, np.uint32)
        report = sim.run(LAST_BLOCK.format(who), grid=4, args=[count, out], schedule=schedule, seed=seed)
        assert not report.every_schedule
        if who == "@%p1":
            assert report.verdict == "incomplete", str(report)
            assert count[0] == 0
            assert out[0] == 7
        else:
            assert "global-race" in {finding.rule for finding in report.findings}, str(report)


LAST_WARP = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out) .reqntid 128 {{
.reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .pred %p<4>;
.shared .align 4 .b32 count;
ld.param.u64 %rd1, [out];
mov.u32 %r0, %tid.x; setp.eq.u32 %p0, %r0, 0;
@%p0 st.shared.u32 [count], 0;
bar.sync 0;
and.b32 %r1, %r0, 31; setp.ne.u32 %p0, %r1, 0;
@%p0 ret;
fence.acq_rel.cta;
atom.shared.inc.u32 %r2, [count], 99;
setp.eq.u32 %p1, %r2, 3;
{who} {reset};
@%p1 st.global.u32 [%rd1], 7;
ret;
}}
"""


@pytest.mark.parametrize(("who", "reset", "right"), [
    ("@%p1", "st.shared.u32 [count], 0", True), ("@%p1", "st.shared.u16 [count], 0", True), ("@%p1", "ld.shared.u32 %r3, [count]", True),
    ("", "st.shared.u32 [count], 0", False), ("@!%p1", "st.shared.u32 [count], 0", False), ("", "ld.shared.u32 %r3, [count]", False)])
def test_the_last_of_several_warps_may_reset_a_counter_in_shared_memory(who: str, reset: str, right: bool) -> None:
    for schedule, seed in SCHEDULES:
        out = np.zeros(4, np.uint32)
        report = sim.run(LAST_WARP.format(who=who, reset=reset), grid=1, args=[out], schedule=schedule, seed=seed)
        assert not report.every_schedule
        if right:
            assert report.verdict == "incomplete", str(report)
            assert out[0] == 7
        else:
            assert "shared-race" in {finding.rule for finding in report.findings}, str(report)


@pytest.mark.parametrize("hidden", [
    "@%p1 st.shared.u32 [count], 0;\n@!%p1 ld.shared.u32 %r3, [count]",
    "st.volatile.shared.u32 [count], 3;\n@%p1 st.shared.u32 [count], 0"],
    ids=["others read", "strong stores between"])
def test_what_no_atomic_observes_still_races(hidden: str) -> None:
    found = set()
    for schedule, seed in SCHEDULES:
        report = sim.run(LAST_WARP.format(who="", reset=hidden), grid=1, args=[np.zeros(4, np.uint32)], schedule=schedule, seed=seed)
        assert not report.every_schedule
        found |= {finding.rule for finding in report.findings}
    assert "shared-race" in found


ARRIVALS = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out) .reqntid 64 {{
.reg .b32 %r<12>; .reg .b64 %rd<4>; .reg .pred %p<4>;
.shared .align 16 .b32 words[64]; .shared .align 8 .b32 count; .shared .align 8 .b32 flag;
ld.param.u64 %rd0, [out];
mov.u32 %r0, %tid.x; setp.eq.u32 %p0, %r0, 0;
@%p0 st.shared.u32 [count], 0;
@%p0 st.shared.u32 [flag], 0;
bar.sync 0;
shl.b32 %r1, %r0, 2; mov.u32 %r2, words; add.u32 %r3, %r2, %r1;
st.shared.u32 [%r3], %r0;
{arrive}
@%p1 st.release.cta.shared.u32 [flag], 1;
W: ld.acquire.cta.shared.u32 %r5, [flag];
setp.eq.u32 %p2, %r5, 0;
@%p2 bra W;
sub.u32 %r6, 252, %r1; add.u32 %r6, %r6, %r2; ld.shared.u32 %r7, [%r6];
cvt.u64.u32 %rd1, %r1; add.u64 %rd0, %rd0, %rd1; st.global.u32 [%rd0], %r7;
}}
"""
ADD = "atom.add.acq_rel.cta.shared.u32 %r4, [count], 1;\n"


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("arrive", "right"), [
    (f"{ADD}setp.eq.u32 %p1, %r4, 63;", True), (f"{ADD.replace('acq_rel', 'relaxed')}setp.eq.u32 %p1, %r4, 63;", False),
    (f"fence.acq_rel.cta;\n{ADD.replace('acq_rel', 'relaxed')}fence.acq_rel.cta;\nsetp.eq.u32 %p1, %r4, 63;", True),
    (f"{ADD}setp.eq.u32 %p1, %r0, 63;", False)], ids=["acq_rel", "relaxed", "fences", "not asked"])
def test_the_last_of_a_warps_lanes_has_seen_the_others(arrive: str, right: bool) -> None:
    """A barrier by hand: lanes of one warp come to one counter, and each reads what those before it left."""
    for schedule, seed in SCHEDULES:
        out = np.zeros(64, np.uint32)
        report = sim.run(ARRIVALS.format(arrive=arrive), grid=1, args=[out], schedule=schedule, seed=seed)
        if right:
            assert report.verdict == "incomplete", str(report)
            assert out.tolist() == [*range(63, -1, -1)]
        else:
            assert "shared-race" in {finding.rule for finding in report.findings}, str(report)
