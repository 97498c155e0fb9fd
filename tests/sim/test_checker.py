"""The dynamic rules: for each a small kernel with a planted mistake, and its twin without.

A kernel's text holds lines that begin with `+` (only in the twin that is right) or `-` (only in the one with the mistake).
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from ptxkit import sim
from ptxkit.sim.checker.rules import RULES

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]
SCHEDULES = [("fifo", 0), ("random", 0), ("random", 1), ("random", 2), ("lazy", 0), ("adversarial", 0)]

HEAD = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out) .reqntid {threads} {cluster} {{
.reg .pred %p<8>; .reg .b32 %r<32>; .reg .b64 %rd<8>; .reg .f32 %f<64>;
.shared .align 1024 .b8 data[8192];
.shared .align 8 .b64 full[4];
ld.param.u64 %rd0, [out];
cvta.to.global.u64 %rd0, %rd0;
mov.u32 %r0, %tid.x;
mov.u32 %r1, data;
mov.u32 %r2, full;
shl.b32 %r3, %r0, 2;
add.u32 %r4, %r1, %r3;
mul.wide.u32 %rd1, %r0, 4;
add.u64 %rd1, %rd0, %rd1;
setp.eq.u32 %p0, %r0, 0;
shr.u32 %r5, %r0, 5;
setp.eq.u32 %p1, %r5, 0;
setp.eq.u32 %p2, %r5, 1;
"""
INIT = """
@%p0 mbarrier.init.shared.b64 [%r2], {count};
{sync}
"""


def init(count: int, sync: str = "bar.sync 0;") -> str:
    return INIT.format(count=count, sync=sync)


def wait(label: str, parity: int, at: str = "[%r2]", order: str = "") -> str:
    return f"{label}:\nmbarrier.try_wait.parity{order}.shared::cta.b64 %p7, {at}, {parity};\n@!%p7 bra {label};\n"


def text(body: str, right: bool, threads: int = 64, cluster: int = 0) -> str:
    kept = []
    for line in body.splitlines():
        mark = line.lstrip()[:1]
        if mark in "+-" and mark:
            if (mark == "+") == right:
                kept.append(line.lstrip()[1:])
        else:
            kept.append(line)
    clustered = f".reqnctapercluster {cluster}" if cluster else ""
    return HEAD.format(threads=threads, cluster=clustered) + "\n".join(kept) + "\nret;\n}\n"


def rules(report: sim.Report) -> set[str]:
    return {finding.rule for finding in report.findings}


def launch(body: str, right: bool, schedule: str, seed: int, threads: int, ctas: int) -> sim.Report:
    out = np.arange(4096, dtype=np.uint32)
    return sim.run(text(body, right, threads, ctas if ctas > 1 else 0), grid=ctas, args=[out], schedule=schedule, seed=seed)


BULK = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd0], 256, [%r2];"
STORE = "cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r1], 256;"
NEIGHBOUR = "xor.b32 %r6, %r4, 128;"

CASES: list[tuple[str, str, str, int, int]] = [
    ("shared-race", "neighbour", f"st.shared.u32 [%r4], %r0;\n+bar.sync 0;\n{NEIGHBOUR}\nld.shared.u32 %r7, [%r6];\n"
     f"st.global.u32 [%rd1], %r7;", 64, 1),
    ("shared-race", "write after read", f"st.shared.u32 [%r4], %r0;\nbar.sync 0;\n{NEIGHBOUR}\nld.shared.u32 %r7, [%r6];\n+bar.sync 0;\n"
     "st.shared.u32 [%r4], %r7;", 64, 1),
    ("shared-race", "lanes of one warp", "st.shared.u32 [%r4], %r0;\n+bar.warp.sync -1;\nxor.b32 %r6, %r4, 4;\n"
     "ld.shared.u32 %r7, [%r6];", 32, 1),
    ("shared-race", "elected arrival without syncwarp", init(1) + "@!%p1 bra other;\nst.shared.u32 [%r4], %r0;\n+bar.warp.sync -1;\n"
     "@%p0 mbarrier.arrive.shared.b64 _, [%r2];\nbra done;\nother:\n" + wait("w", 0) + NEIGHBOUR + "ld.shared.u32 %r7, [%r6];\n"
     "done:", 64, 1),
    ("shared-race", "bytes that have not come", init(1) + "@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 256;\n@%p0 " + BULK + "\n+"
     + wait("w", 0).replace("\n", "\n+").rstrip("+") + "\n-ld.shared.u32 %r7, [%r4];\n+ld.shared.u32 %r7, [%r4];\n"
     "st.global.u32 [%rd1+4096], %r7;"
     "\nbar.sync 0;", 64, 1),
    ("shared-race", "a relaxed wait", init(1) + "@!%p1 bra other;\nst.shared.u32 [%r4], %r0;\nbar.warp.sync -1;\n"
     "@%p0 mbarrier.arrive.shared.b64 _, [%r2];\nbra done;\nother:\n-" + wait("w", 0, order=".relaxed.cta").replace("\n", "\n-", 2)
     + "+" + wait("v", 0).replace("\n", "\n+", 2) + NEIGHBOUR + "\nld.shared.u32 %r7, [%r6];\ndone:", 64, 1),
    ("shared-race", "a source that a copy still reads", "st.shared.u32 [%r4], %r0;\nfence.proxy.async.shared::cta;\nbar.sync 0;\n"
     f"@%p0 {STORE}\n@%p0 cp.async.bulk.commit_group;\n+@%p0 cp.async.bulk.wait_group.read 0;\n+bar.sync 0;\nst.shared.u32 [%r4], 7;\n"
     "@%p0 cp.async.bulk.wait_group 0;", 64, 1),
    ("shared-race", "only the issuer has waited", "st.shared.u32 [%r4], %r0;\nfence.proxy.async.shared::cta;\nbar.sync 0;\n"
     f"@%p0 {STORE}\n@%p0 cp.async.bulk.commit_group;\n@%p0 cp.async.bulk.wait_group.read 0;\n+bar.sync 0;\n"
     f"st.shared.u32 [%r4], 7;", 64, 1),
    ("shared-race", "cp.async of another lane", f"cp.async.ca.shared.global [%r4], [%rd1], 4;\ncp.async.wait_all;\n+bar.sync 0;\n"
     f"{NEIGHBOUR}\n"
     "ld.shared.u32 %r7, [%r6];", 64, 1),
    ("shared-race", "cp.async that nobody waits for", "cp.async.ca.shared.global [%r4], [%rd1], 4;\n+cp.async.wait_all;\n"
     "ld.shared.u32 %r7, [%r4];", 64, 1),
    ("global-race", "neighbour", "st.global.u32 [%rd1], %r0;\n+bar.sync 0;\nxor.b32 %r6, %r3, 128;\ncvt.u64.u32 %rd2, %r6;\n"
     "add.u64 %rd2, %rd2, %rd0;\n"
     "ld.global.u32 %r7, [%rd2];\nst.shared.u32 [%r4], %r7;", 64, 1),
    ("global-race", "two CTAs", "mov.u32 %r8, %ctaid.x;\nmul.lo.u32 %r8, %r8, 256;\n-mov.u32 %r8, 0;\ncvt.u64.u32 %rd2, %r8;\n"
     "add.u64 %rd1, %rd1, %rd2;\nmov.u32 %r9, %ctaid.x;\nadd.u32 %r9, %r9, %r0;\n"
     "st.global.u32 [%rd1], %r9;", 64, 2),
    ("global-race", "the same tile twice", "mov.u32 %r8, %ctaid.x;\nmul.lo.u32 %r8, %r8, 256;\n-mov.u32 %r8, 0;\ncvt.u64.u32 %rd2, %r8;\n"
     "add.u64 %rd1, %rd1, %rd2;\n"
     "st.global.u32 [%rd1], %r0;", 64, 2),
    ("nc-load", "after a barrier", "st.global.u32 [%rd1], %r0;\nbar.sync 0;\n-ld.global.nc.u32 %r7, [%rd1];\n+ld.global.u32 %r7, [%rd1];\n"
     "ld.global.nc.u32 %r8, [%rd1+4096];\nadd.u32 %r7, %r7, %r8;\nst.shared.u32 [%r4], %r7;", 64, 1),
    ("proxy-fence", "store", f"st.shared.u32 [%r4], %r0;\n+fence.proxy.async.shared::cta;\nbar.sync 0;\n@%p0 {STORE}\n"
     f"@%p0 cp.async.bulk.commit_group;\n"
     "@%p0 cp.async.bulk.wait_group 0;", 64, 1),
    ("proxy-fence", "after the barrier, in the writers", "st.shared.u32 [%r4], %r0;\n+fence.proxy.async;\nbar.sync 0;\n"
     "-@!%p0 fence.proxy.async;\n"
     f"@%p0 {STORE}\n@%p0 cp.async.bulk.commit_group;\n@%p0 cp.async.bulk.wait_group 0;", 64, 1),
    ("proxy-fence", "in the issuer, before the barrier", "st.shared.u32 [%r4], %r0;\n-@%p0 fence.proxy.async;\nbar.sync 0;\n"
     "+@%p0 fence.proxy.async;\n"
     f"@%p0 {STORE}\n@%p0 cp.async.bulk.commit_group;\n@%p0 cp.async.bulk.wait_group 0;", 64, 1),
    ("proxy-fence", "of another space", "st.shared.u32 [%r4], %r0;\n-fence.proxy.async.global;\n+fence.proxy.async.shared::cta;\n"
     "bar.sync 0;\n"
     f"@%p0 {STORE}\n@%p0 cp.async.bulk.commit_group;\n@%p0 cp.async.bulk.wait_group 0;", 64, 1),
    ("proxy-fence", "read, then copied over", init(1) + "st.shared.u32 [%r4], 0;\nld.shared.u32 %r7, [%r4];\n+fence.proxy.async;\n"
     "bar.sync 0;\n"
     "@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 256;\n@%p0 " + BULK + "\n" + wait("w", 0), 64, 1),
    ("shared-uninitialised", "ld", "+st.shared.u32 [%r4], %r0;\nld.shared.u32 %r7, [%r4];\nst.global.u32 [%rd1], %r7;", 64, 1),
    ("register-uninitialised", "a sum", "+mov.u32 %r10, 0;\nadd.u32 %r10, %r10, %r0;\nst.global.u32 [%rd1], %r10;", 64, 1),
    ("register-uninitialised", "a counter", "+mov.u32 %r10, 0;\nmore:\nadd.u32 %r10, %r10, 1;\nsetp.lt.u32 %p3, %r10, 4;\n@%p3 bra more;",
     64, 1),
    ("register-uninitialised", "some lanes", "+mov.u32 %r10, 5;\nsetp.lt.u32 %p3, %r0, 40;\n@%p3 mov.u32 %r10, 7;\n"
     "st.shared.u32 [%r4], %r10;", 64, 1),
    ("register-uninitialised", "one way", "setp.lt.u32 %p3, %r0, 40;\n@%p3 bra this;\n+mov.u32 %r10, 7;\nbra join;\nthis:\n"
     "mov.u32 %r10, 8;\njoin:\nst.shared.u32 [%r4], %r10;", 64, 1),
    ("register-uninitialised", "a guard", "+setp.eq.u32 %p3, %r0, 1;\n@%p3 st.shared.u32 [%r4], %r0;", 64, 1),
    ("register-uninitialised", "an address", "+mov.u32 %r10, 0;\n-add.u32 %r11, %r10, 0;\n-mul.lo.u32 %r11, %r11, 0;\n+mov.u32 %r11, 0;\n"
     "add.u32 %r12, %r4, %r11;\nst.shared.u32 [%r12], %r0;", 64, 1),
    ("register-uninitialised", "a value that is shuffled", "+mov.u32 %r10, 5;\nshfl.sync.bfly.b32 %r11, %r10, 1, 31, -1;\n"
     "st.global.u32 [%rd1], %r11;", 64, 1),
    ("register-uninitialised", "an atomic's operand", "+mov.u32 %r10, 5;\nred.global.add.u32 [%rd1], %r10;", 64, 1),
    ("register-uninitialised", "a parity", init(64) + "+mov.u32 %r10, 0;\nmbarrier.arrive.shared.b64 _, [%r2];\n"
     + wait("w", 0).replace(", 0;", ", %r10;"), 64, 1),
    ("bulk-source-uninitialised", "store", "setp.lt.u32 %p3, %r0, 32;\n-@%p3 st.shared.u32 [%r4], %r0;\n+st.shared.u32 [%r4], %r0;\n"
     f"fence.proxy.async;\nbar.sync 0;\n@%p0 {STORE}\n@%p0 cp.async.bulk.commit_group;\n@%p0 cp.async.bulk.wait_group 0;", 64, 1),
    ("bulk-exit", "store", f"st.shared.u32 [%r4], %r0;\nfence.proxy.async;\nbar.sync 0;\n@%p0 {STORE}\n@%p0 cp.async.bulk.commit_group;\n"
     "+@%p0 cp.async.bulk.wait_group.read 0;", 64, 1),
    ("mbarrier-reinit", "again", init(64) + "mbarrier.arrive.shared.b64 _, [%r2];\n" + wait("w", 0) + "bar.sync 0;\n"
     "+@%p0 mbarrier.inval.shared.b64 [%r2];\n@%p0 mbarrier.init.shared.b64 [%r2], 64;", 64, 1),
    ("mbarrier-overlap", "data", init(64) + "+@%p0 st.shared.u32 [%r2+8], 0;\n-@%p0 st.shared.u32 [%r2+4], 0;\n"
     "mbarrier.arrive.shared.b64 _, [%r2];", 64, 1),
    ("mbarrier-arrival", "nobody waits", init(2) + "@!%p0 bra done;\nmbarrier.arrive.shared.b64 _, [%r2];\n"
     "mbarrier.arrive.shared.b64 _, [%r2];\n"
     "done:\nsetp.eq.u32 %p3, %r0, 32;\n@!%p3 bra last;\n+" + wait("w", 0).replace("\n", "\n+", 2)
     + "mbarrier.arrive.shared.b64 _, [%r2];\nmbarrier.arrive.shared.b64 _, [%r2];\nlast:", 64, 1),
    ("mbarrier-unobserved", "one thread, two phases", init(1) + "@!%p0 bra done;\nmbarrier.arrive.shared.b64 _, [%r2];\n+"
     + wait("w", 0).replace("\n", "\n+", 2) + "mbarrier.arrive.shared.b64 _, [%r2];\ndone:", 64, 1),
    ("mbarrier-wait", "an arrival that does not wait for the waiter", init(1) + "@%p1 bra producer;\n" + wait("w", 0)
     + "+bar.arrive 1, 64;\nbra done;\n"
     "producer:\n@%p0 mbarrier.arrive.shared.b64 _, [%r2];\n" + wait("v", 0) + "+bar.sync 1, 64;\nbar.warp.sync -1;\n"
     "@%p0 mbarrier.arrive.shared.b64 _, [%r2];\ndone:", 64, 1),
    ("barrier-generation", "two arrivals before a wait", "@%p1 bra producer;\nbar.sync 1, 64;\n+bar.arrive 2, 64;\nbar.sync 1, 64;\n"
     "bra done;\n"
     "producer:\nbar.arrive 1, 64;\n+bar.sync 2, 64;\nbar.arrive 1, 64;\ndone:", 64, 1),
    ("dsmem-entry", "before the peer has begun", "mov.u32 %r8, %cluster_ctarank;\nxor.b32 %r8, %r8, 1;\n"
     "mapa.shared::cluster.u32 %r9, %r4, %r8;\n"
     "+barrier.cluster.arrive.aligned;\n+barrier.cluster.wait.aligned;\nst.shared::cluster.u32 [%r9], %r0;\n"
     "barrier.cluster.arrive.aligned;\n"
     "barrier.cluster.wait.aligned;\nld.shared.u32 %r7, [%r4];", 64, 2),
    ("dsmem-exit", "the peer may have gone", "mov.u32 %r8, %cluster_ctarank;\nxor.b32 %r8, %r8, 1;\n"
     "mapa.shared::cluster.u32 %r9, %r4, %r8;\n"
     "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\nst.shared::cluster.u32 [%r9], %r0;\n"
     "+barrier.cluster.arrive.aligned;\n"
     "+barrier.cluster.wait.aligned;", 64, 2),
    ("bank-conflict", "rows of 128 bytes", "-mul.lo.u32 %r6, %r0, 128;\n+mul.lo.u32 %r6, %r0, 132;\nadd.u32 %r6, %r6, %r1;\n"
     "st.shared.u32 [%r6], %r0;", 32, 1),
]


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
@pytest.mark.parametrize(("rule", "name", "body", "threads", "ctas"), CASES, ids=[f"{rule}: {name}" for rule, name, *_ in CASES])
def test_a_planted_mistake_and_its_twin(rule: str, name: str, body: str, threads: int, ctas: int, schedule: str, seed: int) -> None:
    right = launch(body, True, schedule, seed, threads, ctas)
    assert right.verdict == "clean", str(right)
    assert rule not in rules(right)
    assert right.every_schedule
    wrong = launch(body, False, schedule, seed, threads, ctas)
    accepted = {rule} | ({"dsmem-lifetime"} if rule == "dsmem-exit" else set()) | ({"deadlock"} if rule == "mbarrier-wait" else set()) \
        | ({"mbarrier-underflow"} if rule == "mbarrier-arrival" else set())
    assert accepted & rules(wrong), str(wrong)
    severity = RULES[rule].severity
    told = "incomplete" if rule == "bulk-source-uninitialised" else {"error": "error", "review": "review", "info": "clean"}[severity]
    assert wrong.verdict == told, str(wrong)


@pytest.mark.parametrize("lines", [
    "mov.u32 %r11, %r10;\nsetp.lt.u32 %p3, %r0, 99;\nselp.u32 %r12, %r0, %r11, %p3;\nst.global.u32 [%rd1], %r12;",
    "add.u32 %r11, %r10, 1;\nsetp.lt.u32 %p3, %r0, 40;\n@%p3 mov.u32 %r11, 3;\n@%p3 st.global.u32 [%rd1], %r11;",
    "mov.b64 %rd2, {%r0, %r10};\ncvt.u32.u64 %r11, %rd2;\nst.global.u32 [%rd1], %r11;",
    "prmt.b32 %r11, %r0, %r10, 0x3210;\nst.global.u32 [%rd1], %r11;",
    "xor.b32 %r10, %r10, %r10;\nst.global.u32 [%rd1], %r10;",
    "setp.lt.u32 %p3, %r0, 40;\n@%p3 mov.u32 %r10, 1;\n@!%p3 mov.u32 %r10, 2;\nst.global.u32 [%rd1], %r10;"])
def test_a_register_that_holds_nothing_may_be_copied_and_dropped(lines: str) -> None:
    report = launch(lines, True, "fifo", 0, 64, 1)
    assert report.verdict == "clean", str(report)


@pytest.mark.parametrize("given", [True, False])
def test_each_activation_of_a_function_has_registers_of_its_own(given: bool) -> None:
    function = """.func (.reg .u32 sum) add(.reg .u32 a) {
.reg .u32 %x<4>; .reg .pred %q;
setp.eq.u32 %q, a, 0;
GIVEN
@%q bra done;
mov.u32 %x0, 5;
done:
add.u32 sum, %x0, a;
ret;
}
.visible .entry""".replace("GIVEN", "mov.u32 %x0, 1;" if given else "")
    body = "call (%r10), add, (1);\nst.global.u32 [%rd1], %r10;\ncall (%r10), add, (0);\nst.global.u32 [%rd1], %r10;"
    report = sim.run(text(body, True, 64).replace(".visible .entry", function), grid=1, args=[np.zeros(4096, np.uint32)])
    assert report.verdict == ("clean" if given else "error"), str(report)
    assert ("register-uninitialised" in rules(report)) != given


def test_the_init_must_be_known_to_the_user() -> None:
    body = init(64, "{}") + "mbarrier.arrive.shared.b64 _, [%r2];"
    assert launch(body.format("bar.sync 0;"), True, "fifo", 0, 64, 1).verdict == "clean"
    assert "mbarrier-init" in rules(launch(body.format("bar.warp.sync -1;"), True, "fifo", 0, 64, 1))


@pytest.mark.parametrize(("arrive", "fence", "right"), [
    ("", "", True), (".relaxed", "fence.mbarrier_init.release.cluster;", True), (".relaxed", "", False)])
def test_a_relaxed_cluster_barrier_publishes_inits_only_with_their_fence(arrive: str, fence: str, right: bool) -> None:
    body = f"""@%p0 mbarrier.init.shared.b64 [%r2], 64;
{fence}
barrier.cluster.arrive{arrive}.aligned;
barrier.cluster.wait.aligned;
mov.u32 %r8, %cluster_ctarank;
xor.b32 %r8, %r8, 1;
mapa.shared::cluster.u32 %r9, %r2, %r8;
mbarrier.arrive.shared::cluster.b64 _, [%r9];
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;"""
    report = launch(body, True, "fifo", 0, 64, 2)
    assert ("mbarrier-init" in rules(report)) != right, str(report)
    assert right == (report.verdict == "clean")


def wgmma(lines: str, threads: int = 128, out: Any = None) -> sim.Report:
    d = ", ".join(f"%f{i}" for i in range(4))
    mma = f"wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{{d}}}, %rd3, %rd3, %p4, 1, 1, 0, 0;"
    body = """shl.b32 %r6, %r0, 4;
add.u32 %r6, %r6, %r1;
st.shared.v4.u32 [%r6], {0, 0, 0, 0};
PROXY
bar.sync 0;
shr.u32 %r7, %r1, 4;
or.b32 %r7, %r7, 524288;
mov.b64 %rd3, {%r7, 16};
setp.ne.u32 %p4, %r0, %r0;
""".replace("PROXY", "" if "NOFENCE" in lines else "fence.proxy.async;") + lines.replace("NOFENCE", "").replace("MMA", mma)
    return launch(body, True, "fifo", 0, threads, 1)


WGMMA = """wgmma.fence.sync.aligned;
MMA
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
st.global.f32 [%rd1], %f0;
"""


@pytest.mark.parametrize(("rule", "change"), [
    ("", ("", "")),
    ("wgmma-fence", ("wgmma.fence.sync.aligned;\n", "")),
    ("wgmma-fence", ("MMA", "mov.f32 %f1, 0f00000000;\nMMA")),
    ("wgmma-fence", ("MMA", "mov.f32 %f7, %f1;\nMMA")),
    ("wgmma-in-flight", ("wgmma.wait_group.sync.aligned 0;\n", "")),
    ("wgmma-in-flight", ("wgmma.commit", "mov.f32 %f2, 0f00000000;\nwgmma.commit")),
    ("wgmma-fence", ("MMA", "MMA\nmov.f32 %f7, %f1;\nMMA")),
    ("wgmma-uninitialised", ("MMA", "setp.eq.u32 %p4, %r0, %r0;\nMMA")),
    ("proxy-fence", ("wgmma.fence", "NOFENCE wgmma.fence")),
    ("shared-race", ("wgmma.wait", "st.shared.u32 [%r6], 1;\nwgmma.wait")),
    ("wgmma-uncommitted", ("MMA\n", "MMA\nret;\n")),
])
def test_wgmma(rule: str, change: tuple[str, str]) -> None:
    report = wgmma(WGMMA.replace(*change) if change[0] else WGMMA)
    if rule:
        assert rule in rules(report), str(report)
    else:
        assert report.verdict == "clean", str(report)


@pytest.mark.parametrize(("awaited", "verdict"), [(True, "clean"), (False, "error")])
def test_accumulators_of_one_shape_are_those_of_another_once_it_has_been_waited_for(awaited: bool, verdict: str) -> None:
    """In flight they need a fence between the two; what has been waited for counts no more, also where later products are in flight."""
    d = ", ".join(f"%f{i}" for i in range(8))
    wide = f"wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {{{d}}}, %rd3, %rd3, %p4, 1, 1, 0, 0;\n"
    begin, end = "wgmma.fence.sync.aligned;\n", "wgmma.commit_group.sync.aligned;\n"
    wait_ = "wgmma.wait_group.sync.aligned 0;\n"
    body = begin + wide + end + (wait_ if awaited else "") + begin + "MMA\nMMA\n" + end + wait_ + "st.global.f32 [%rd1], %f0;\n"
    report = wgmma(body)
    assert report.verdict == verdict, str(report)
    assert ("wgmma-fence" in rules(report)) != awaited


@pytest.mark.parametrize("used", [True, False])
def test_a_wait_that_nobody_looks_at_is_no_wait(used: bool) -> None:
    loop = wait("w", 0) if used else wait("w", 0).replace("@!%p7 bra w;\n", "")
    body = init(64) + "mbarrier.arrive.shared.b64 _, [%r2];\n" + loop + "setp.eq.u32 %p7, %r0, 0;\n@%p7 st.shared.u32 [%r4], 0;"
    report = launch(body, True, "fifo", 0, 64, 1)
    assert report.verdict == ("clean" if used else "error"), str(report)
    assert ("mbarrier-ignored" in rules(report)) != used


def test_flags_synchronise_at_their_scope_under_the_residency_that_is_said() -> None:
    body = """mov.u32 %r8, %ctaid.x;
setp.eq.u32 %p3, %r8, 0;
@!%p3 bra reader;
st.global.u32 [%rd1], %r0;
bar.sync 0;
@%p0 st.release.{scope}.global.u32 [%rd0+4096], 1;
ret;
reader:
@!%p0 bra join;
spin:
ld.acquire.{scope}.global.u32 %r9, [%rd0+4096];
setp.ne.u32 %p5, %r9, 1;
@%p5 bra spin;
join:
bar.sync 0;
ld.global.u32 %r10, [%rd1];
st.global.u32 [%rd1+8192], %r10;"""
    for scope in ("gpu", "cta"):
        report = sim.run(text(body.format(scope=scope), True, 64), grid=2, args=[np.zeros(4096, np.uint32)])
        assert ("global-race" in rules(report)) == (scope == "cta"), str(report)
        assert report.verdict == ("error" if scope == "cta" else "clean"), str(report)
        assert report.every_schedule == (scope == "gpu")
        assert "provided that its 2 CTAs are resident together" in report.provided


def test_nothing_is_clean_that_has_not_been_checked() -> None:
    report = sim.run(text("st.shared.u32 [%r4], %r0;", True, 64), grid=1, args=[np.zeros(64, np.uint32)], check=False)
    assert report.verdict == "incomplete"
    assert not report.every_schedule
    assert str(report).startswith("not checked")


def test_a_finding_says_where_who_and_what_to_do() -> None:
    body = next(body for _, name, body, *_ in CASES if name == "lanes of one warp")
    finding = next(f for f in launch(body, False, "fifo", 0, 32, 1).findings if f.rule == "shared-race")
    assert finding.ptx_line is not None
    assert "ld.shared" in text(body, False, 32).splitlines()[finding.ptx_line - 1]
    assert re.search(r"CTA 0 warp \d lane \d+ reads data\+\d+ of CTA 0, which `st.shared.u32` \(line \d+\) of CTA 0 warp \d lane",
                     finding.message)
    assert finding.fix
    assert finding.kind == "protocol"


def test_every_rule_has_its_section_in_the_documentation() -> None:
    from pathlib import Path

    page = (Path(__file__).parents[2] / "docs" / "verdicts.md").read_text()
    assert set(RULES) <= set(re.findall(r"^### `([\w-]+)`$", page, re.M))
