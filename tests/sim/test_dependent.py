"""Programmatic dependent launch: what a kernel may touch before griddepcontrol.wait. Each mistake stands beside its right twin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ptxkit
from ptxkit import sim
from ptxkit.sim.errors import SimulationError

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]
SCHEDULES = [("fifo", 0), ("random", 1), ("adversarial", 3)]

HEAD = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 src, .param .u64 out, .param .align 64 .b8 map[128]) .reqntid 64 {
.reg .pred %p<10>; .reg .b32 %r<16>; .reg .b64 %rd<16>;
.shared .align 128 .b8 data[4096]; .shared .align 8 .b64 bars[2];
ld.param.u64 %rd0, [src]; ld.param.u64 %rd1, [out];
mov.u32 %r0, %tid.x; mul.wide.u32 %rd4, %r0, 4; add.u64 %rd2, %rd0, %rd4; add.u64 %rd3, %rd1, %rd4;
mov.u32 %r1, data; mad.lo.u32 %r2, %r0, 4, %r1; mov.u32 %r3, bars;
setp.eq.u32 %p0, %r0, 0; mov.u64 %rd5, map; cvta.param.u64 %rd5, %rd5; mov.u32 %r4, 0;
"""
INIT = "@%p0 mbarrier.init.shared.b64 [%r3], 1; st.shared.u32 [%r2], %r0; fence.proxy.async; bar.sync 0; "
EXPECT = "@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 128; "
WAIT = "W: mbarrier.try_wait.parity.shared.b64 %p3, [%r3], 0; @!%p3 bra W; "
READS = {
    "ld": "ld.global.u32 %r5, [%rd2];",
    "generic": "ld.u32 %r5, [%rd2];",
    "nc": "ld.global.nc.u32 %r5, [%rd2];",
    "relaxed": "ld.relaxed.gpu.global.u32 %r5, [%rd2];",
    "copy": "cp.async.ca.shared.global [%r2], [%rd2], 4; cp.async.wait_all;",
    "bulk": EXPECT + "@%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd0], 128, [%r3]; " + WAIT,
    "tensor": EXPECT + "@%p0 cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd5, {%r4}], [%r3]; "
              + WAIT,
}
WRITES = {
    "st": "st.global.u32 [%rd2], 1;",
    "atom": "atom.global.add.u32 %r5, [%rd2], 1;",
    "red": "red.global.add.u32 [%rd2], 1;",
    "bulk": "@%p0 cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r1], 128; @%p0 cp.async.bulk.commit_group; "
            "@%p0 cp.async.bulk.wait_group 0;",
    "tensor": "@%p0 cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%rd5, {%r4}], [%r1]; @%p0 cp.async.bulk.commit_group; "
              "@%p0 cp.async.bulk.wait_group 0;",
}
DEPEND = "griddepcontrol.wait; "


def run(body: str, previous: Any, schedule: str = "fifo", seed: int = 0) -> sim.Report:
    src, out = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    map_ = ptxkit.TensorMap(src, box=(32,))
    return sim.run(HEAD + INIT + body + " ret; }", args=[src, out, map_], grid=2, schedule=schedule, seed=seed, previous=previous)


def rules(body: str, previous: Any) -> set[str]:
    """The rules about dependent launches that are broken, the same in every schedule."""
    found = [{f.rule for f in run(body, previous, *how).findings if f.rule.startswith("dependent")} for how in SCHEDULES]
    assert all(f == found[0] for f in found), found
    return found[0]


@pytest.mark.parametrize("name", READS)
def test_reads_of_what_the_grid_before_writes(name: str) -> None:
    read = READS[name]
    assert rules(read + DEPEND, {"writes": ["src"]}) == {"dependent-launch"}
    assert rules(read + "griddepcontrol.launch_dependents;", {"writes": [0]}) == {"dependent-launch"}
    assert not rules(DEPEND + read, {"writes": ["src"]})
    for harmless in ({"writes": ["out"]}, {"reads": ["src"]}, {"writes": []}, {}):
        assert not rules(read + DEPEND, harmless)


@pytest.mark.parametrize("name", WRITES)
def test_writes_of_what_the_grid_before_uses(name: str) -> None:
    write = WRITES[name]
    for way in ("reads", "writes"):
        assert rules(write + DEPEND, {way: ["src"]}) == {"dependent-launch"}
        assert not rules(DEPEND + write, {way: ["src"]})
        assert not rules(write + DEPEND, {way: ["out"]})


def test_the_wait_of_one_thread_and_a_barrier() -> None:
    one = "@%p0 griddepcontrol.wait; "
    for previous in ({"writes": ["src"]}, None):
        broken = {"dependent-launch" if previous else "dependent-launch-unsaid"}
        assert rules(one + READS["ld"], previous) == broken
        assert not rules(one + "bar.sync 0; " + READS["ld"], previous)
        assert not rules(one + "bar.sync 0; " + READS["bulk"], previous)
        assert rules("bar.sync 0; " + one + READS["bulk"].replace("@%p0 cp", "setp.eq.u32 %p4, %r0, 1; @%p4 cp"), previous) == broken
    release = "mbarrier.arrive{}.shared.b64 _, [%r3]; "
    handed = "@!%p0 bra S; griddepcontrol.wait; " + release + "S: " + WAIT + READS["ld"]
    assert not rules(handed.replace("{}", ""), {"writes": ["src"]})
    assert rules(handed.replace("{}", ".relaxed.cta"), {"writes": ["src"]}) == {"dependent-launch"}


def test_the_wait_of_another_cta_that_has_ended() -> None:
    """What a cluster has waited for is known to who has acquired it, also once the cluster has ended."""
    body = "mov.u32 %r6, %ctaid.x; setp.ne.u32 %p5, %r6, 0; @%p5 bra O; WAITS bar.sync 0; @%p0 st.release.gpu.global.u32 [%rd1], 1; ret; " \
           "O: @!%p0 bra P; L: ld.acquire.gpu.global.u32 %r7, [%rd1]; setp.eq.u32 %p6, %r7, 0; @%p6 bra L; P: bar.sync 0; " + READS["ld"]
    assert not rules(body.replace("WAITS", DEPEND), {"writes": ["src"]})
    assert rules(body.replace("WAITS", ""), {"writes": ["src"]}) == {"dependent-launch"}


def test_nothing_said_withholds_the_certificate() -> None:
    report = run(READS["ld"] + " st.shared.u32 [%r2], %r5; " + DEPEND, None)
    assert not report.every_schedule
    assert report.verdict == "incomplete"
    (finding,) = [f for f in report.findings if f.severity == "review"]
    assert finding.rule == "dependent-launch-unsaid"
    assert "previous=" in finding.fix
    early = READS["ld"] + DEPEND
    assert run(early, {"writes": []}).every_schedule
    assert run(DEPEND + READS["ld"], None).every_schedule
    assert run(READS["ld"], None).every_schedule
    assert not run(READS["ld"] + "griddepcontrol.launch_dependents;", None).every_schedule
    assert run("cp.async.bulk.prefetch.L2.global [%rd0], 128; prefetch.global.L2 [%rd2]; " + DEPEND, None).every_schedule


def test_a_proof_knows_the_grid_before() -> None:
    src, out = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    args = [src, out, ptxkit.TensorMap(src, box=(32,))]
    text = HEAD + INIT + READS["ld"] + DEPEND + "ret; }"
    assert ptxkit.prove(text, 2, *args, previous={"writes": ["out"]}).proven
    assert not ptxkit.prove(text, 2, *args).proven
    assert ptxkit.prove(text, 2, *args, previous={"writes": [0]}).verdict == "error"


def test_parts_of_an_array() -> None:
    src, out = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    args = [src, out, ptxkit.TensorMap(src, box=(32,))]
    text = HEAD + "add.u64 %rd3, %rd3, 128; setp.lt.u32 %p1, %r0, 32; setp.eq.u32 %p2, %ctaid.x, 0; " \
        "and.pred %p1, %p1, %p2; @%p1 st.global.u32 [%rd3], %r0; ret; }"
    text = text.replace("setp.eq.u32 %p2, %ctaid.x", "mov.u32 %r9, %ctaid.x; setp.eq.u32 %p2, %r9")
    assert sim.run(text, args=args, grid=2, previous={"writes": [out[:32]]}).verdict == "clean"
    assert sim.run(text, args=args, grid=2, previous={"writes": [out[:33]]}).verdict == "error"


@pytest.mark.parametrize(("previous", "said"), [
    ({"written": ["src"]}, "'written'"), ({"writes": ["nobody"]}, "src, out, map"), ({"writes": [3]}, "src, out, map"),
    ({"writes": "src"}, "list"), (["src"], "mapping"), ({"reads": [np.zeros(4)]}, "no argument")])
def test_what_previous_must_be(previous: Any, said: str) -> None:
    with pytest.raises(SimulationError, match=said):
        run("", previous)


def test_a_number_is_no_array() -> None:
    text = ".version 8.6\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u32 n) .reqntid 32 { ret; }"
    with pytest.raises(SimulationError, match="`n` is no array"):
        sim.run(text, args=[5], grid=1, previous={"writes": ["n"]})
