"""Warp collectives as contracts: who may execute them, who is waited for, and what a lane gets of one that takes no part.

Each mistake stands beside its right twin.
"""

from __future__ import annotations

import numpy as np
import pytest

from ptxkit import sim

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]
SCHEDULES = [("fifo", 0), ("random", 1), ("reverse", 0)]

HEAD = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out) .reqntid {threads} {{
.reg .pred %p<10>; .reg .b16 %h<8>; .reg .b32 %r<48>; .reg .b64 %rd<12>; .reg .f32 %f<32>;
.shared .align 1024 .b8 data[4096];
ld.param.u64 %rd0, [out];
mov.u32 %r0, %tid.x; mov.u32 %r1, data; mad.lo.u32 %r2, %r0, 16, %r1; mad.wide.u32 %rd1, %r0, 4, %rd0; and.b32 %r3, %r0, 31;
setp.lt.u32 %p1, %r3, 16; setp.lt.u32 %p2, %r3, 8; mov.u32 %r40, 0;
"""


def run(body: str, schedule: str = "fifo", seed: int = 0, threads: int = 32, check: bool = True) -> tuple[sim.Report, np.ndarray]:
    out = np.zeros(1024, np.uint32)
    return sim.run(HEAD.format(threads=threads) + body + "\nret;\n}", args=[out], grid=1, schedule=schedule, seed=seed, check=check), out


def rules(body: str, threads: int = 32) -> set[str]:
    """The rules broken, the same in every schedule."""
    found = [{f.rule for f in run(body, *how, threads=threads)[0].findings if f.severity == "error"} for how in SCHEDULES]
    assert all(f == found[0] for f in found), found
    return found[0]


# The instruction, with MASK where its member mask stands; it writes %r4.
COLLECTIVES = {
    "shfl": "shfl.sync.idx.b32 %r4, %r0, 0, 31, MASK;",
    "bfly": "shfl.sync.bfly.b32 %r4|%p7, %r0, 1, 31, MASK;",
    "ballot": "vote.sync.ballot.b32 %r4, %p2, MASK;",
    "all": "vote.sync.all.pred %p7, %p2, MASK; selp.u32 %r4, 1, 0, %p7;",
    "any": "match.any.sync.b32 %r4, %r3, MASK;",
    "match": "match.all.sync.b32 %r4|%p7, %r1, MASK;",
    "redux": "redux.sync.add.u32 %r4, %r0, MASK;",
    "elect": "elect.sync %r4|%p7, MASK;",
    "warp": "bar.warp.sync MASK;",
}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_lane_executes_what_names_it(name: str) -> None:
    op = COLLECTIVES[name]
    assert rules(op.replace("MASK", "0xffff")) == {"membermask"}
    assert rules("mov.u32 %r5, 0xfffffffe; " + op.replace("MASK", "%r5")) == {"membermask"}
    assert rules("@!%p1 bra E; " + op.replace("MASK", "0xff") + " E:") == {"membermask"}
    assert not rules(op.replace("MASK", "0xffffffff"))
    assert not rules("@!%p1 bra E; " + op.replace("MASK", "0xffff") + " E:")
    assert not rules("mov.u32 %r5, 0xffff; @!%p1 mov.u32 %r5, 0xffff0000; " + op.replace("MASK", "%r5"))


@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_mask_may_name_lanes_that_have_exited_but_not_lanes_that_never_come(name: str) -> None:
    op = COLLECTIVES[name].replace("MASK", "0xffffffff").replace("idx.b32 %r4, %r0, 0", "idx.b32 %r4, %r0, 3")
    assert not rules("@!%p1 ret; " + op + " st.global.u32 [%rd1], %r3;")
    assert rules("@!%p1 bra E; " + op + " E: barrier.sync 1, 64;") == {"deadlock"}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_the_arms_of_a_branch_meet_in_one_collective(name: str) -> None:
    """Same qualifiers and mask, another instruction: the lanes exchange values across the arms, as at one instruction."""
    op = COLLECTIVES[name].replace("MASK", "0xffffffff")
    store = " st.global.u32 [%rd1], %r4;" if name != "elect" else ""
    apart = "mov.u32 %r4, 0; @%p1 bra A; " + op + " bra E; A: " + op + " E:" + store
    together = "mov.u32 %r4, 0; " + op + store
    assert not rules(apart)
    for how in SCHEDULES:
        assert np.array_equal(run(apart, *how)[1], run(together)[1])
    assert rules("@%p1 bra A; " + op + " bra E; A: vote.sync.uni.pred %p7, %p1, 0xffffffff; E:") == {"divergent-sync"}


@pytest.mark.parametrize("name", [name for name in COLLECTIVES if name not in ("all", "elect")])
def test_one_collective_for_each_value_of_a_predicate(name: str) -> None:
    """`@p` and `@!p` are arms too. Lanes that a guard keeps from a collective which names them, and that have none, are missed."""
    op = COLLECTIVES[name].replace("MASK", "0xffffffff")
    apart = f"mov.u32 %r4, 0; @%p1 {op} @!%p1 {op} st.global.u32 [%rd1], %r4;"
    assert not rules(apart)
    for how in SCHEDULES:
        assert np.array_equal(run(apart, *how)[1], run("mov.u32 %r4, 0; " + op + " st.global.u32 [%rd1], %r4;")[1])
    assert rules(f"@%p1 {op}") == {"divergent-sync"}
    assert rules(f"@%p1 {op} @!%p2 {op}") == {"divergent-sync"}


def test_warp_barriers_in_two_arms_order_memory() -> None:
    swap = "@%p1 bra A; {b}ld.shared.u32 %r4, [%r1]; st.global.u32 [%rd1], %r4; bra E; A: st.shared.u32 [%r1], 7; {a} E:"
    right = swap.format(a="bar.warp.sync 0xffffffff;", b="bar.warp.sync 0xffffffff; ")
    vote = "vote.sync.uni.pred %p7, %p1, 0xffffffff;"
    assert not rules(right)
    assert (run(right)[1][16:32] == 7).all()
    assert rules(swap.format(a=vote, b=vote + " ")) == {"shared-race"}


def test_lanes_that_give_different_masks_are_different_groups() -> None:
    body = "match.any.sync.b32 %r5, %r6, 0xffffffff; redux.sync.add.u32 %r4, %r0, %r5; st.global.u32 [%rd1], %r4;"
    _, out = run("rem.u32 %r6, %r0, 5; " + body)
    lanes = np.arange(32)
    assert np.array_equal(out[:32], [lanes[lanes % 5 == lane % 5].sum() for lane in lanes])


@pytest.mark.parametrize("use", [
    "st.global.u32 [%rd1], %r4;",
    "add.u32 %r5, %r4, 1; st.shared.u32 [%r2], %r5;",
    "setp.eq.u32 %p3, %r4, 5; @%p3 bra E;",
    "and.b32 %r5, %r4, 12; mov.u32 %r6, data; add.u32 %r6, %r6, %r5; ld.shared.u32 %r7, [%r6];",
    "shfl.sync.bfly.b32 %r5, %r4, 1, 31, 0xffff; st.global.u32 [%rd1], %r5;",
    "redux.sync.add.u32 %r5, %r4, 0xffff;",
    "atom.global.add.u32 %r5, [%rd0], %r4;",
])
def test_what_is_read_of_an_absent_lane_must_not_decide(use: str) -> None:
    body = "st.shared.u32 [%r2], 1; @!%p1 bra E; shfl.sync.down.b32 %r4, %r0, {by}, 31, 0xffff; {use} E:"
    assert "undefined-value" in rules(body.format(by=8, use=use))
    assert "undefined-value" not in rules(body.format(by=8, use="add.u32 %r5, %r4, %r0; mov.u32 %r6, %r5;"))
    assert "undefined-value" not in rules(body.format(by=8, use="setp.lt.u32 %p4, %r3, 8; @!%p4 bra E; " + use.replace("0xffff", "0xff")))


def test_the_message_names_the_shuffle() -> None:
    report, _ = run("@!%p1 bra E; shfl.sync.idx.b32 %r4, %r0, 16, 31, 0xffff; add.u32 %r5, %r4, 1; st.global.u32 [%rd1], %r5; E:")
    (found,) = [f for f in report.findings if f.severity == "error"]
    assert found.rule == "undefined-value"
    assert "`shfl.sync.idx.b32`" in found.message
    assert "`%r5`" in found.message


def test_reductions_that_leave_nothing_in_the_upper_lanes() -> None:
    steps = " ".join(f"shfl.sync.down.b32 %r4, %r5, {d}, 31, 0xffff; add.u32 %r5, %r5, %r4;" for d in (8, 4, 2, 1))
    body = "mov.u32 %r5, %r0; @!%p1 bra E; " + steps + " setp.eq.u32 %p3, %r3, 0; @%p3 st.global.u32 [%rd0], %r5; E:"
    assert not rules(body)
    assert run(body)[1][0] == sum(range(16))
    exited = "@!%p1 ret; mov.u32 %r5, %r0; " + steps.replace("0xffff", "0xffffffff") + " setp.eq.u32 %p3, %r3, 0; "
    assert not rules(exited + "@%p3 st.global.u32 [%rd0], %r5;")
    assert rules(exited + "st.global.u32 [%rd1], %r5;") == {"undefined-value"}


@pytest.mark.parametrize(("divide", "wrong"), [("div.u32 %r4, %r0, %r3;", True), ("rem.s32 %r4, %r0, %r3;", True),
                                               ("or.b32 %r6, %r3, 1; div.u32 %r4, %r0, %r6;", False),
                                               ("setp.ne.u32 %p5, %r3, 0; @%p5 div.u32 %r40, %r0, %r3; mov.u32 %r4, %r40;", False)])
def test_a_quotient_by_zero_is_undefined(divide: str, wrong: bool) -> None:
    assert rules(divide + " st.global.u32 [%rd1], %r4;") == ({"undefined-value"} if wrong else set())
    assert not rules(divide + " setp.eq.u32 %p3, %r3, 0; selp.u32 %r4, 0, %r4, %p3; st.global.u32 [%rd1], %r4;")


# ------------------------------------------------------------------------------------------------------ aligned

ALIGNED = {
    "bar": "bar.sync 0;",
    "bar.cta": "bar.cta.sync 1, 64;",
    "arrive": "bar.arrive 1, 96; setp.ge.u32 %p6, %r0, 32; @%p6 bar.sync 1, 96;",
    "red": "bar.red.popc.u32 %r4, 0, %p1;",
    "barrier": "barrier.sync.aligned 0;",
    "cluster": "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",
    "ldmatrix": "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r4, %r5, %r6, %r7}, [%r2];",
    "stmatrix": "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r2], {%r40};",
    "movmatrix": "movmatrix.sync.aligned.m8n8.trans.b16 %r4, %r40;",
    "mma": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0,%f1,%f2,%f3}, {%r40,%r40,%r40,%r40}, {%r40,%r40}, {%f8,%f9,%f10,%f11};",
}
SETUP = "mov.f32 %f8, 0f00000000; mov.f32 %f9, %f8; mov.f32 %f10, %f8; mov.f32 %f11, %f8; st.shared.v4.u32 [%r2], {%r40,%r40,%r40,%r40}; " \
        "barrier.sync 0; "


@pytest.mark.parametrize("name", [name for name in ALIGNED if name != "arrive"])
def test_aligned_instructions_are_for_the_whole_warp(name: str) -> None:
    op = ALIGNED[name]
    assert not rules(SETUP + op, 64)
    assert not rules(SETUP + "setp.gt.u32 %p5, %r0, 100; @%p5 bra E; " + op + " E:", 64)
    assert not rules(SETUP + "@%p1 bra A; mov.u32 %r5, 3; A: " + op, 64)
    assert "divergent-sync" in rules(SETUP + "@%p1 bra A; " + op + " bra E; A: " + op + " E:", 64)
    assert "divergent-sync" in rules(SETUP + "@%p1 " + op, 64)
    assert rules(SETUP + "@!%p1 bra E; " + op + " E:", 64) & {"divergent-sync", "deadlock"}


@pytest.mark.parametrize("name", ["bar", "ldmatrix", "mma", "wgmma"])
def test_lanes_meet_where_an_arm_may_also_return(name: str) -> None:
    """The arms come together before the exit, although the exit is all that every path leads to."""
    op = ALIGNED.get(name, "wgmma.fence.sync.aligned;")
    arms = "@%p1 bra A; mov.u32 %r5, 3; setp.gt.u32 %p5, %r0, 500; @%p5 bra R; bra B; A: mov.u32 %r5, 4; B: "
    assert not rules(SETUP + arms + op + " st.global.u32 [%rd1], %r5; ret; R: st.global.u32 [%rd1], 0;", 128)


@pytest.mark.parametrize("name", ["ldmatrix", "stmatrix", "movmatrix", "mma"])
def test_matrix_instructions_need_every_thread(name: str) -> None:
    assert rules(SETUP + "@!%p1 ret; " + ALIGNED[name]) == {"warp-participation"}
    assert rules(SETUP + ALIGNED[name], 16) == {"warp-participation"}


@pytest.mark.parametrize("name", ["bar", "bar.cta", "red", "barrier", "cluster"])
def test_barriers_do_not_wait_for_threads_that_have_exited(name: str) -> None:
    assert not rules("@!%p1 ret; " + ALIGNED[name], 64)


def test_barriers_that_are_not_aligned_may_part_a_warp() -> None:
    for op in ("barrier.sync 0;", "barrier.cluster.arrive; barrier.cluster.wait;"):
        assert not rules("@%p1 bra A; " + op + " bra E; A: " + op + " E:", 64)


# ------------------------------------------------------------------------------------------------------ elections

LOOP = """
mov.u32 %r9, 0; mov.u64 %rd2, %rd0;
L: {first} @%p7 cp.async.bulk.wait_group.read 0;
bar.warp.sync -1; st.shared.v4.u32 [%r2], {{%r9, %r9, %r9, %r9}}; fence.proxy.async.shared::cta; bar.warp.sync -1;
{second} @%p8 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r1], 512; @%p8 cp.async.bulk.commit_group;
add.u64 %rd2, %rd2, 512; add.u32 %r9, %r9, 1; setp.lt.u32 %p3, %r9, 4; @%p3 bra L;
{first} @%p7 cp.async.bulk.wait_group 0;
"""


def test_elections_choose_one_lane_for_one_mask() -> None:
    elect = "elect.sync _|%p{}, 0xffffffff;"
    assert not rules(LOOP.format(first=elect.format(7), second=elect.format(8)))
    chosen = {int(run(elect.format(7) + " @%p7 st.global.u32 [%rd0], %r3;", "random", seed)[1][0]) for seed in range(12)}
    assert len(chosen) > 1, "another run may choose another lane"
    found = [run(LOOP.format(first="setp.eq.u32 %p7, %r3, 3;", second=elect.format(8)), *how)[0].verdict for how in SCHEDULES]
    assert "error" in found, "no lane is sure to be chosen"
