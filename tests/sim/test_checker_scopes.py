"""Rules about who is told: scopes of fences and flags, every reader and every atomic of a word, all threads of a set; rules of phases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxkit import sim
from ptxkit.sim.checker.rules import RULES

from .mutants.edit import Edit
from .mutants.subjects import SUBJECTS
from .test_checker import SCHEDULES, init, launch, rules, text, wait

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]

FLAG = """mov.u32 %r8, %ctaid.x;
setp.eq.u32 %p3, %r8, 0;
@!%p3 bra reader;
st.global.u32 [%rd1], %r0;
bar.sync 0;
@!%p0 bra done;
{release}
ret;
reader:
@!%p0 bra join;
spin:
{acquire}
setp.ne.u32 %p5, %r9, 1;
@%p5 bra spin;
{after}
join:
bar.sync 0;
ld.global.u32 %r10, [%rd1];
st.global.u32 [%rd1+8192], %r10;
done:"""
ST, LD = "st.{}.global.u32 [%rd0+4096], 1;", "ld.{}.global.u32 %r9, [%rd0+4096];"


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("release", "acquire", "after", "right"), [
    (ST.format("release.gpu"), LD.format("acquire.gpu"), "", True),
    (ST.format("release.sys"), LD.format("acquire.gpu"), "", True),
    (ST.format("release.cluster"), LD.format("acquire.gpu"), "", False),
    (ST.format("release.gpu"), LD.format("acquire.cta"), "", False),
    (ST.format("relaxed.gpu"), LD.format("acquire.gpu"), "", False),
    (ST.format("release.gpu"), LD.format("relaxed.gpu"), "", False),
    ("fence.acq_rel.gpu;\n" + ST.format("relaxed.gpu"), LD.format("relaxed.gpu"), "fence.acq_rel.gpu;", True),
    ("membar.gl;\n" + ST.format("relaxed.gpu"), LD.format("relaxed.gpu"), "membar.gl;", True),
    ("fence.sc.sys;\nred.relaxed.gpu.global.add.u32 [%rd0+4096], 1;", LD.format("acquire.gpu"), "", True),
    ("fence.acq_rel.cta;\n" + ST.format("relaxed.gpu"), LD.format("relaxed.gpu"), "fence.acq_rel.gpu;", False),
    ("fence.acq_rel.gpu;\n" + ST.format("relaxed.gpu"), LD.format("relaxed.gpu"), "fence.acq_rel.cta;", False),
    ("membar.cta;\n" + ST.format("relaxed.gpu"), LD.format("relaxed.gpu"), "membar.gl;", False),
    ("fence.acq_rel.gpu;\n" + ST.format("relaxed.gpu"), LD.format("relaxed.gpu"), "", False),
    ("fence.acq_rel.gpu;\n" + ST.format("relaxed.cta"), LD.format("relaxed.gpu"), "fence.acq_rel.gpu;", False),
    ("red.release.gpu.global.add.u32 [%rd0+4096], 1;", LD.format("acquire.gpu"), "", True),
    ("red.release.cta.global.add.u32 [%rd0+4096], 1;", LD.format("acquire.gpu"), "", False)])
def test_a_flag_publishes_at_the_scope_of_both_sides(release: str, acquire: str, after: str, right: bool) -> None:
    source = text(FLAG.format(release=release, acquire=acquire, after=after), True)
    for schedule, seed in SCHEDULES[::2]:
        report = sim.run(source, grid=2, args=[np.zeros(4096, np.uint32)], schedule=schedule, seed=seed)
        assert report.verdict == ("clean" if right else "error"), str(report)
        assert ("global-race" in rules(report)) != right


@pytest.mark.parametrize(("fence", "right"), [("cluster", True), ("gpu", True), ("cta", False)])
def test_a_fence_before_a_relaxed_arrival_in_another_cta_reaches_the_cluster(fence: str, right: bool) -> None:
    body = init(64, "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;") + f"""mov.u32 %r8, %cluster_ctarank;
xor.b32 %r8, %r8, 1;
mapa.shared::cluster.u32 %r9, %r2, %r8;
mapa.shared::cluster.u32 %r10, %r4, %r8;
st.shared::cluster.u32 [%r10], %r0;
fence.acq_rel.{fence};
mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%r9];
{wait("w", 0, order=".acquire.cluster")}
ld.shared.u32 %r11, [%r4];
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;"""
    for schedule, seed in SCHEDULES:
        report = launch(body, True, schedule, seed, 64, 2)
        assert ("shared-race" in rules(report)) != right, str(report)


@pytest.mark.parametrize("space", ["shared", "global"])
@pytest.mark.parametrize("threads", [64, 96, 128])
def test_no_reader_is_forgotten(space: str, threads: int) -> None:
    """Four warps read a word; `threads` of them meet the one that then overwrites it."""
    at = "[%r1]" if space == "shared" else "[%rd0+4096]"
    body = f"""@%p0 st.{space}.u32 {at}, 1;
bar.sync 0;
ld.{space}.u32 %r7, {at};
setp.lt.u32 %p3, %r0, {threads};
@%p3 bar.sync 1, {threads};
@%p0 st.{space}.u32 {at}, 2;"""
    for schedule in ("fifo", "random", "lazy", "reverse", "elect-high", "adversarial"):
        report = launch(body, True, schedule, 1, 128, 1)
        assert (f"{space}-race" in rules(report)) == (threads < 128), str(report)


@pytest.mark.parametrize("space", ["shared", "global"])
@pytest.mark.parametrize("threads", [64, 128])
def test_no_atomic_is_forgotten(space: str, threads: int) -> None:
    """Four warps add to a word; the reader has met `threads` of them."""
    at = "[%r1]" if space == "shared" else "[%rd0+4096]"
    body = f"""@%p0 st.{space}.u32 {at}, 0;
bar.sync 0;
red.{space}.add.u32 {at}, 1;
setp.lt.u32 %p3, %r0, {threads};
@%p3 bar.sync 1, {threads};
@%p0 ld.{space}.u32 %r7, {at};
@%p0 st.{space}.u32 {at}, %r7;"""
    for schedule in ("fifo", "random", "lazy", "reverse", "elect-high", "adversarial"):
        report = launch(body, True, schedule, 1, 128, 1)
        assert (f"{space}-race" in rules(report)) == (threads < 128), str(report)


def test_atomics_of_two_ctas_need_a_scope_that_holds_both() -> None:
    for scope, right in (("gpu", True), ("cta", False)):
        report = launch(f"red.relaxed.{scope}.global.add.u32 [%rd0+4096], 1;", True, "fifo", 0, 64, 1)
        assert report.verdict == "clean", str(report)
        report = sim.run(text(f"red.relaxed.{scope}.global.add.u32 [%rd0+4096], 1;", True), grid=2, args=[np.zeros(4096, np.uint32)])
        assert ("global-race" in rules(report)) != right, str(report)


def test_a_lane_that_read_earlier_is_not_forgotten_for_one_that_read_later() -> None:
    """All lanes read, then lane 0 reads again and arrives for all of them without having met them."""
    body = init(1) + "@!%p1 bra other;\nst.shared.u32 [%r4], 0;\nbar.sync 1, 64;\nld.shared.u32 %r7, [%r1];\n" \
        "+bar.warp.sync -1;\n@!%p0 bra done;\nmbarrier.arrive.shared.b64 _, [%r2+8];\nld.shared.u32 %r8, [%r1];\n" \
        "mbarrier.arrive.shared.b64 _, [%r2];\nbra done;\nother:\nbar.sync 1, 64;\n" + wait("w", 0) \
        + "setp.eq.u32 %p3, %r0, 32;\n@%p3 st.shared.u32 [%r1], 5;\ndone:"
    body = "@%p0 mbarrier.init.shared.b64 [%r2+8], 1;\n" + body
    for schedule, seed in SCHEDULES:
        assert launch(body, True, schedule, seed, 64, 1).verdict == "clean"
        assert "shared-race" in rules(launch(body, False, schedule, seed, 64, 1))


COPY = "cp.async.ca.shared.global [%r4], [%rd1], 4;"


@pytest.mark.parametrize(("change", "rule"), [
    (("", ""), ""), (("noinc", "plain"), ""), ((COPY + "\ncp.async.mbarrier", "cp.async.mbarrier"), "shared-uninitialised"),
    (("cp.async.mbarrier.arrive.noinc.shared.b64 [%r2];", "mbarrier.arrive.shared.b64 _, [%r2];"), "shared-race")])
def test_copies_that_arrive_on_an_mbarrier(change: tuple[str, str], rule: str) -> None:
    body = init(32 if "plain" not in change else 1) + f"""@!%p1 bra other;
{COPY}
cp.async.mbarrier.arrive.noinc.shared.b64 [%r2];
{"bar.warp.sync -1; @%p0 mbarrier.arrive.shared.b64 _, [%r2];" if "plain" in change else ""}
bra done;
other:
{wait("w", 0)}
xor.b32 %r6, %r4, 132;
ld.shared.u32 %r7, [%r6];
done:"""
    body = body.replace(".noinc", "") if "plain" in change else body.replace(*change) if change[0] else body
    for schedule, seed in SCHEDULES:
        report = launch(body, True, schedule, seed, 64, 1)
        assert report.verdict == ("error" if rule else "clean"), str(report)
        assert not rule or rule in rules(report), str(report)


def test_who_waits_at_the_cluster_barrier_has_arrived() -> None:
    body = "@%p1 barrier.cluster.arrive;\nbarrier.cluster.wait;\n"
    assert "cluster-barrier-wait" in rules(launch(body, True, "fifo", 0, 64, 2))
    body = "barrier.cluster.arrive;\nbarrier.cluster.wait;\n"
    assert launch(body, True, "fifo", 0, 64, 2).verdict == "clean"
    assert "cluster-barrier-wait" in rules(launch(body + "barrier.cluster.wait;", True, "fifo", 0, 64, 2))


def test_a_guard_keeps_no_lane_from_what_names_it() -> None:
    assert "divergent-sync" in rules(launch("setp.lt.u32 %p3, %r0, 7;\n@%p3 bar.warp.sync -1;", True, "fifo", 0, 32, 1))
    assert launch("setp.lt.u32 %p3, %r0, 7;\n@%p3 bar.warp.sync 127;", True, "fifo", 0, 32, 1).verdict == "clean"


# Rules of phases, tensor maps and registers.


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
def test_a_wait_that_may_come_a_phase_early(schedule: str, seed: int) -> None:
    """Warp 1 waits for phase 1 (parity 1) without having waited for phase 0: at first, the same parity is that of the phase before."""
    body = init(32) + "@!%p1 bra other;\nmbarrier.arrive.shared.b64 _, [%r2];\n" + wait("v", 0) \
        + "st.shared.u32 [%r4], 1;\nmbarrier.arrive.shared.b64 _, [%r2];\nbra done;\nother:\n"
    right = wait("x", 0) + wait("w", 1) + NEIGHBOUR + "done:"
    wrong = wait("w", 1) + NEIGHBOUR + "done:"
    found = launch(body + wrong, True, schedule, seed, 64, 1)
    assert rules(found) & {"mbarrier-early-wait", "shared-race", "shared-uninitialised"}, str(found)
    if schedule == "fifo":
        assert "mbarrier-early-wait" in rules(late(body, wrong)), str(late(body, wrong))
    report = launch(body + right, True, schedule, seed, 64, 1)
    assert "mbarrier-early-wait" not in rules(report), str(report)


NEIGHBOUR = "xor.b32 %r6, %r4, 128;\nld.shared.u32 %r7, [%r6];\n"


def late(body: str, wrong: str) -> sim.Report:
    """The waiter looks only when the phase that it means has completed: the numbers are right, and the rule still speaks."""
    delay = "mov.u32 %r20, 0;\nmore:\nadd.u32 %r20, %r20, 1;\nsetp.lt.u32 %p6, %r20, 3000;\n@%p6 bra more;\n"
    return launch(body + delay + wrong, True, "fifo", 0, 64, 1)


@pytest.mark.parametrize(("bytes", "right"), [(256, True), (512, False)])
def test_bytes_that_complete_in_another_phase(bytes: int, right: bool) -> None:
    """The second copy is issued in phase 0, whose bytes do not count it, and completes in phase 1 when it comes late."""
    copy = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1+{0}], [%rd0+{0}], 256, [%r2];\n"
    second = copy.format(256) if not right else ""
    body = init(1) + "@!%p0 bra join;\nmbarrier.arrive.expect_tx.shared.b64 _, [%r2], 256;\n" + copy.format(0) + second + wait("w", 0) \
        + "mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 256;\n" + (copy.format(256) if right else "") + wait("v", 1) \
        + "join:\nbar.sync 0;"
    seen: set[str] = set()
    for schedule in sim.SCHEDULES:
        report = launch(body, True, schedule, 0, 64, 1)
        assert report.verdict == ("clean" if right else "error"), str(report)
        seen |= rules(report)
    assert right or "mbarrier-bytes" in seen, seen


@pytest.mark.parametrize(("subject", "gone"), [("retarget", r"^fence\.proxy\.tensormap"), ("outputs", r"^fence\.proxy\.tensormap"),
                                               ("outputs", r"^bar\.sync")])
def test_a_map_is_acquired_by_who_uses_it(subject: str, gone: str) -> None:
    edit = Edit(SUBJECTS[subject].original)
    edit.delete(gone, 0)
    for schedule, seed in SCHEDULES:
        report, _ = SUBJECTS[subject].run(edit.done(), schedule=schedule, seed=seed)
        assert rules(report) & ({"tensormap-fence"} if "tensormap" in gone else {"tensormap-fence", "global-race"}), str(report)


def registers(lines: str) -> Any:
    head = ".version 8.6\n.target sm_90a\n.address_size 64\n.visible .entry k() .reqntid 384 .minnctapersm 1 {\n" \
        ".reg .pred %p<4>; .reg .b32 %r<4>;\nmov.u32 %r0, %tid.x;\nsetp.lt.u32 %p0, %r0, 128;\nsetp.lt.u32 %p1, %r0, 32;\n" \
        "setp.eq.u32 %p2, %r0, 0;\n"
    return sim.run(head + lines + "\nret;\n}\n", grid=1, args=[])


@pytest.mark.parametrize(("lines", "rule"), [
    ("@!%p0 bra more;\nsetmaxnreg.dec.sync.aligned.u32 40;\nret;\nmore:\nsetmaxnreg.inc.sync.aligned.u32 232;", ""),
    ("@!%p0 bra more;\nsetmaxnreg.inc.sync.aligned.u32 40;\nret;\nmore:\nsetmaxnreg.inc.sync.aligned.u32 232;", "setmaxnreg-direction"),
    ("@!%p0 bra more;\nsetmaxnreg.dec.sync.aligned.u32 40;\nret;\nmore:\nsetmaxnreg.dec.sync.aligned.u32 232;", "setmaxnreg-direction"),
    ("@!%p1 bra more;\nsetmaxnreg.dec.sync.aligned.u32 40;\nmore:", "setmaxnreg-participation"),
    ("@!%p2 bra more;\nsetmaxnreg.dec.sync.aligned.u32 40;\nmore:", "setmaxnreg-participation"),
    ("@%p2 setmaxnreg.dec.sync.aligned.u32 40;", "setmaxnreg-participation")])
def test_registers_change_hands_by_warpgroups(lines: str, rule: str) -> None:
    report = registers(lines)
    assert report.verdict == ("error" if rule else "clean"), str(report)
    assert not rule or rule in rules(report), str(report)


def test_these_tests_name_rules() -> None:
    assert {"mbarrier-early-wait", "mbarrier-bytes", "tensormap-fence", "setmaxnreg-direction", "setmaxnreg-participation"} <= set(RULES)
