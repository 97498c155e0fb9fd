"""Threads that store the same bytes with nothing that orders them: told, but no race, unless something else depends on who was last."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxkit import sim

from .kernels import kernel

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]
schedules = pytest.mark.parametrize(("schedule", "seed"), [("fifo", 0), ("random", 1), ("random", 2), ("adversarial", 0), ("lazy", 0)])
BEGIN = """ld.param.u64 %rd0, [out];
mov.u32 %r0, %tid.x;
mov.u32 %r1, data;
and.b32 %r2, %r0, 31;
shr.u32 %r9, %r0, 5;
shl.b32 %r3, %r2, 2;
add.u32 %r4, %r1, %r3;
cvt.u64.u32 %rd1, %r3;
add.u64 %rd1, %rd1, %rd0;
mov.u32 %r20, 7;
setp.eq.u32 %p1, %r9, 0;
setp.eq.u32 %p2, %r0, 0;
"""
READ = "bar.sync 0;\nld{0} %r5, [{1}];\nst.global.u32 [%rd1+1024], %r5;\n"
SHARED, GLOBAL = ("st.shared.u32 [%r4], {};\n", ".shared.u32", "%r4"), ("st.global.u32 [%rd1], {};\n", ".global.u32", "%rd1")


def run(body: str, schedule: str, seed: int, block: int = 96, grid: int = 1, **options: Any) -> sim.Report:
    text = kernel(BEGIN + body, before=".shared .align 16 .b8 data[4096];\n")
    return sim.run(text, grid=grid, block=block, args=(np.zeros(512, np.uint32),), schedule=schedule, seed=seed, **options)


def told(report: sim.Report) -> set[tuple[str, str]]:
    return {(finding.rule, finding.severity) for finding in report.findings}


@schedules
@pytest.mark.parametrize(("store", "space", "place"), [SHARED, GLOBAL])
def test_warps_that_store_the_same(store: str, space: str, place: str, schedule: str, seed: int) -> None:
    report = run(store.format("%r2") + READ.format(space, place), schedule, seed)
    assert told(report) == {("same-value", "info")}, report
    assert report.verdict == "clean"
    assert report.every_schedule


@schedules
@pytest.mark.parametrize(("store", "space", "place"), [SHARED, GLOBAL])
def test_one_byte_of_one_lane_that_differs_is_a_race(store: str, space: str, place: str, schedule: str, seed: int) -> None:
    different = "shl.b32 %r6, %r9, 24;\nsetp.eq.u32 %p3, %r2, 17;\n@%p3 or.b32 %r2, %r2, %r6;\n"
    report = run(different + store.format("%r2") + READ.format(space, place), schedule, seed)
    assert ("shared-race" if "shared" in space else "global-race", "error") in told(report), report


@schedules
@pytest.mark.parametrize("store", [SHARED[0], GLOBAL[0]])
def test_another_value_must_come_after_all_of_them(store: str, schedule: str, seed: int) -> None:
    """The last warp stores another value after its own: the others' stores may be later. With a barrier they are not."""
    after = f"{store.format('%r20')}setp.ne.u32 %p3, %r9, 2;\n{{}}@%p3 bra E;\nmov.u32 %r20, 8;\n{store.format('%r20')}E:\n"
    assert any(rule.endswith("-race") for rule, _ in told(run(after.format(""), schedule, seed)))
    report = run(after.format("bar.sync 0;\n"), schedule, seed)
    assert told(report) == {("same-value", "info")}, report


@schedules
def test_equal_by_chance_is_for_review(schedule: str, seed: int) -> None:
    """The value is that of a clock, whose run says it is equal; the certificate fails, so that another run may say otherwise."""
    clock = "mov.u32 %r21, %clock;\nand.b32 %r21, %r21, 0;\nadd.u32 %r20, %r20, %r21;\n"
    report = run("atom.global.add.u32 %r22, [%rd0+1800], 1;\nst.global.u32 [%rd1+1024], %r22;\n" + clock
                 + "st.shared.u32 [%r1], %r20;\n", schedule, seed, block=64)
    assert not report.every_schedule
    assert not {("same-value", "info")} & told(report)


@schedules
def test_a_flag_that_ctas_set_is_for_review(schedule: str, seed: int) -> None:
    """A CTA that repeats all that others store has forgotten which it is; one that also stores something of its own has not."""
    own = "mov.u32 %r10, %ctaid.x;\nshl.b32 %r10, %r10, 7;\ncvt.u64.u32 %rd2, %r10;\n" \
          "add.u64 %rd3, %rd1, %rd2;\nst.global.u32 [%rd3], %r2;\n"
    flag = "@%p2 st.global.u32 [%rd0+1800], %r20;\n"
    report = run(own + flag, schedule, seed, block=32, grid=4)
    assert told(report) == {("same-value", "review")}, report
    assert told(run(flag, schedule, seed, block=32, grid=4)) == {("same-value", "review")}
    assert told(run("st.global.u32 [%rd1], %r2;\n", schedule, seed, block=32, grid=2)) >= {("global-race", "error")}


@schedules
def test_a_copy_over_what_others_store_is_a_race(schedule: str, seed: int) -> None:
    """Only plain stores are compared."""
    atomic = run("@%p1 bra E;\nst.shared.u32 [%r1], %r20;\nret;\nE:\natom.shared.exch.b32 %r5, [%r1], %r20;\n", schedule, seed, block=64)
    assert ("shared-race", "error") in told(atomic)


def test_a_fresh_barrier_has_no_phase_to_observe() -> None:
    """A producer waits for parity 1 before it fills; a consumer may arrive first of all, and has waited for nothing."""
    body = """mov.u32 %r30, data;
@%p2 mbarrier.init.shared::cta.b64 [%r30], 1;
bar.sync 0;
@%p1 bra CONSUMER;
W:
mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r30], 1;
@!%p3 bra W;
bar.sync 1, 64;
bra E;
CONSUMER:
bar.sync 1, 64;
@%p2 mbarrier.arrive.shared::cta.b64 _, [%r30];
E:
"""
    late = body.replace("CONSUMER:\nbar.sync 1, 64;\n@%p2 mbarrier.arrive.shared::cta.b64 _, [%r30];",
                        "CONSUMER:\n@%p2 mbarrier.arrive.shared::cta.b64 _, [%r30];\nbar.sync 1, 64;")
    for schedule in sim.SCHEDULES:
        assert not told(run(body, schedule, 0, block=64))
        assert "mbarrier-unobserved" not in {rule for rule, _ in told(run(late, schedule, 0, block=64))}, schedule
