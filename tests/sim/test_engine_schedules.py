"""Schedules, deadlocks, livelocks."""

from __future__ import annotations

import numpy as np
import pytest

from ptxkit import sim
from ptxkit.sim.asked import ObserverBase, PolicyBase
from ptxkit.sim.observer import Observer
from ptxkit.sim.policy import POLICIES, policy_of

from .kernels import OUT, run
from .test_hgemm import product

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]

BARRIERS = ".shared .align 8 .b64 full;\n.shared .align 8 .b64 empty;\n.shared .align 128 .b8 data[256];\n"
INIT = """mov.u32 %r0, %tid.x;
setp.eq.u32 %p0, %r0, 0;
@%p0 mbarrier.init.shared.b64 [full], 1;
@%p0 mbarrier.init.shared.b64 [empty], 1;
bar.sync 0;
"""
WAIT = """{name}:
mbarrier.try_wait.parity.shared.b64 %p1, [{barrier}], {parity};
@!%p1 bra {name};
"""


def finding(report: sim.Report) -> str:
    assert report.verdict == "error"
    assert [f.rule for f in report.findings] == ["deadlock"]
    return report.findings[0].message


@pytest.mark.parametrize("schedule", list(sim.SCHEDULES))
def test_every_schedule_gives_the_same_product(schedule: str) -> None:
    assert not product(256, 256, 320, BN=128, schedule=schedule, ctas=1, STAGES=2).findings


@pytest.mark.parametrize("schedule", ["random", "spurious", "adversarial"])
@pytest.mark.parametrize("seed", range(3))
def test_seeds(schedule: str, seed: int) -> None:
    product(256, 128, 256, BN=128, schedule=schedule, seed=seed)


def test_every_schedule_has_a_policy_of_its_name() -> None:
    assert tuple(POLICIES) == sim.SCHEDULES
    assert [policy_of(name, 3).name for name in sim.SCHEDULES] == list(sim.SCHEDULES)


def test_what_is_no_schedule() -> None:
    with pytest.raises(sim.SimulationError, match="there is no schedule 'unfair'; there are fifo, random, lazy"):
        run("", parameters="", schedule="unfair")
    for wrong in (PolicyBase(), 3):
        with pytest.raises(sim.SimulationError, match=r"schedule=.* is no name of ptxkit.sim.SCHEDULES, nor a ptxkit.sim.policy.Policy"):
            run("", parameters="", schedule=wrong)


def test_who_is_no_observer() -> None:
    for wrong in (ObserverBase(), object()):
        with pytest.raises(sim.SimulationError, match=r"among the observers is no ptxkit\.sim\.observer\.Observer: derive its class"):
            run("", parameters="", observers=[wrong])
    with pytest.raises(sim.SimulationError, match=r"observers=<.*> is no sequence: put the observer in a list"):
        run("", parameters="", observers=Observer())


def test_whose_buffer_is_that_of_marks() -> None:
    out = np.zeros(32, np.uint32)
    with pytest.raises(sim.SimulationError, match="'nope' is no argument with memory of its own: there are"):
        run(OUT, out, marks="nope")


def test_elections() -> None:
    body = OUT + "elect.sync %r1|%p1, 0xffffffff;\nmov.u32 %r2, 0;\n@%p1 mov.u32 %r2, 1;\nst.global.u32 [%rd1], %r2;"
    for schedule, lane in (("fifo", 0), ("elect-high", 31)):
        out = np.zeros(32, np.uint32)
        run(body, out, schedule=schedule)
        assert out.nonzero()[0].tolist() == [lane]


def test_nobody_arrives() -> None:
    message = finding(run(INIT + WAIT.format(name="W", barrier="full", parity=0), parameters="", before=BARRIERS, block=64))
    assert "nobody has ever arrived on full" in message
    assert "CTA 0 warps 0-1 waits at `mbarrier.try_wait.parity.shared.b64`" in message
    assert "0 of 1 arrivals" in message


def test_bytes_are_missing() -> None:
    body = INIT + "@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [full], 48;\n" + WAIT.format(name="W", barrier="full", parity=0)
    message = finding(run(body, parameters="", before=BARRIERS))
    assert "48 bytes that were announced on full" in message
    assert "tx deficit" in message


def test_bytes_too_many() -> None:
    body = INIT + "@%p0 mbarrier.complete_tx.shared::cta.relaxed.cluster.b64 [full], 16;\n@%p0 mbarrier.arrive.shared.b64 _, [full];\n" \
        + WAIT.format(name="W", barrier="full", parity=0)
    assert "tx surplus" in finding(run(body, parameters="", before=BARRIERS))


def test_who_came_the_last_time_has_exited() -> None:
    body = INIT + """setp.ge.u32 %p2, %r0, 32;
@!%p2 bra CONSUMER;
setp.eq.u32 %p3, %r0, 32;
@%p3 mbarrier.arrive.shared.b64 _, [full];
ret;
CONSUMER:
""" + WAIT.format(name="W0", barrier="full", parity=0) + WAIT.format(name="W1", barrier="full", parity=1)
    message = finding(run(body, parameters="", before=BARRIERS, block=64))
    assert "1 of 1 arrivals are missing on full" in message
    assert "CTA 0 warp 1 arrived in the phase before and has exited" in message


def test_a_count_that_nobody_reaches() -> None:
    message = finding(run("mov.u32 %r0, %tid.x;\nsetp.lt.u32 %p0, %r0, 32;\n@%p0 ret;\nbar.sync 1, 96;", parameters="", block=96))
    assert "barrier 1 of CTA 0 awaits 96 threads, 64 have come" in message


def test_an_elected_lane_at_a_barrier_of_warps() -> None:
    body = "mov.u32 %r0, %tid.x;\nsetp.eq.u32 %p0, %r0, 0;\n@!%p0 bra E;\nbar.sync 1, 32;\nE:\n"
    assert "only lanes 0x1 of warp 0" in finding(run(body, parameters=""))


def test_a_warp_that_skips_the_cluster_barrier() -> None:
    body = """mov.u32 %r1, %cluster_ctarank;
setp.eq.u32 %p0, %r1, 0;
@%p0 bra A;
bar.sync 3, 64;
A:
barrier.cluster.arrive;
barrier.cluster.wait;"""
    message = finding(run(body, parameters="", grid=2, cluster=2))
    assert "barrier 3 of CTA 1 awaits 64 threads, 32 have come" in message
    assert "waits at `barrier.cluster.wait`" in message


def test_lanes_that_never_come() -> None:
    body = "mov.u32 %r0, %tid.x;\nsetp.lt.u32 %p0, %r0, 8;\n@!%p0 bra E;\nbar.warp.sync 0xffff;\nE:\nbarrier.sync 1, 64;"
    assert "is for lanes 0x0000ffff, only 0x000000ff come to it" in finding(run(body, parameters=""))


def test_parted_lanes_meet_at_a_shuffle() -> None:
    """Lanes go on apart from each other while one waits for what another does later."""
    body = OUT + INIT + """setp.eq.u32 %p2, %r0, 5;
@!%p2 bra OTHERS;
""" + WAIT.format(name="W", barrier="full", parity=0) + """OTHERS:
setp.eq.u32 %p3, %r0, 0;
@%p3 mbarrier.arrive.shared.b64 _, [full];
shfl.sync.bfly.b32 %r3, %r0, 1, 31, 0xffffffff;
st.global.u32 [%rd1], %r3;"""
    out = np.zeros(32, np.uint32)
    assert not run(body, out, before=BARRIERS).findings
    assert out.tolist() == [lane ^ 1 for lane in range(32)]


def test_a_flag_that_is_never_set() -> None:
    body = "ld.param.u64 %rd0, [out];\nL:\nld.acquire.gpu.global.u32 %r1, [%rd0];\nsetp.eq.u32 %p0, %r1, 0;\n@%p0 bra L;"
    report = run(body, np.zeros(1, np.uint32), block=64)
    assert [f.rule for f in report.findings] == ["livelock"]
    assert "CTA 0 warp 1" in report.findings[0].message


@pytest.mark.parametrize("schedule", list(sim.SCHEDULES))
def test_a_flag_that_another_cta_sets(schedule: str) -> None:
    body = """ld.param.u64 %rd0, [out];
mov.u32 %r2, %ctaid.x;
setp.eq.u32 %p1, %r2, 1;
@%p1 bra SET;
L:
ld.acquire.gpu.global.u32 %r1, [%rd0];
setp.eq.u32 %p0, %r1, 0;
@%p0 bra L;
ret;
SET:
st.release.gpu.global.u32 [%rd0], 1;"""
    assert not run(body, np.zeros(1, np.uint32), grid=2, schedule=schedule).findings


def test_a_program_that_takes_too_long() -> None:
    report = run("mov.u32 %r1, 0;\nL:\nadd.u32 %r1, %r1, 1;\nbra L;", parameters="", max_steps=100_000)
    assert [f.rule for f in report.findings] == ["max-steps"]


@pytest.mark.timeout(30)
def test_a_program_that_waits_too_often() -> None:
    report = run("L:\nbar.sync 0;\nbra L;", parameters="", block=64, max_steps=1000)
    assert [f.rule for f in report.findings] == ["max-steps"]


def test_a_long_computation_is_no_livelock() -> None:
    body = "mov.u32 %r1, 0;\nL:\nadd.u32 %r1, %r1, 1;\nsetp.lt.u32 %p0, %r1, 60000;\n@%p0 bra L;"
    assert not run(body, parameters="").findings
