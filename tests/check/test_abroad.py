"""What right kernels of any compiler earn: no error; and that the mistake beside each of them is still one."""

from __future__ import annotations

import numpy as np
import pytest

from ptxkit import TensorMap, sim
from ptxkit.check import check

from .abroad import ADD, RIGHT, RINGS, TURNS
from .programs import ARRIVE, BULK, CLUSTER, EXPECT, FORMS, Case, init, text
from .test_rules import drawn

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]

BY_NAME = {case.name: case for case in RIGHT}
HALVES = [name for name in BY_NAME if name.startswith("half a warp")]


def said(case: Case, form: str = "plain") -> set[tuple[str, str]]:
    return {(finding.rule, finding.severity) for finding in check(text(case, True, form)[0]) if finding.kind == "protocol"}


@pytest.mark.parametrize("case", RIGHT, ids=lambda case: case.name)
def test_a_right_kernel_earns_no_error(case: Case) -> None:
    for form in ("plain", drawn(case)):
        assert [one for one in said(case, form) if one[1] == "error"] == []


@pytest.mark.sweep
@pytest.mark.timeout(900)
def test_a_right_kernel_earns_no_error_in_any_form(request: pytest.FixtureRequest) -> None:
    if "sweep" not in (request.config.option.markexpr or ""):
        pytest.skip("with -m sweep")
    assert [(case.name, form) for case in RIGHT for form in FORMS if any(one[1] == "error" for one in said(case, form))] == []


@pytest.mark.parametrize("case", RIGHT, ids=lambda case: case.name)
def test_the_kernel_is_right(case: Case) -> None:
    """The CPU device is the judge, with numbers that every loop can do with."""
    for schedule in ("fifo", "adversarial"):
        arrays = [np.arange(8192, dtype=np.uint32), 4, TensorMap(np.zeros((64, 64), np.uint32), box=(2, 32))]
        report = sim.run(text(case, True)[0], grid=case.cluster, args=arrays, schedule=schedule, seed=1, max_steps=100_000)
        assert report.verdict != "error", report


@pytest.mark.parametrize(("name", "body"), RINGS, ids=[name for name, _ in RINGS])
def test_a_ring_earns_nothing_and_its_mistakes_an_error(name: str, body: str) -> None:
    """What the index may be is known of each way to write it: nobody fills a stage, nobody initialises the barriers."""
    assert said(Case("", name, body)) == set()
    lines = body.splitlines(keepends=True)
    empty = "".join(line for line in lines if not line.startswith((EXPECT, BULK)))
    bare = "".join(line for line in lines if "mbarrier.init" not in line)
    assert ("wait-without-arrival", "error") in said(Case("", name, empty))
    assert ("barrier-uninitialised", "error") in said(Case("", name, bare))


@pytest.mark.parametrize("name", HALVES)
@pytest.mark.parametrize("mask", ["-1", "0xffff0000", "0x7fff"])
def test_a_membermask_of_other_lanes_is_an_error(name: str, mask: str) -> None:
    case = BY_NAME[name]
    wrong = Case("", name, case.body.replace("0xffff;", f"{mask};"))
    assert wrong.body != case.body
    assert said(wrong) == {("convergence", "error")}


def changed(name: str, old: str, new: str) -> Case:
    case = BY_NAME[name]
    assert old in case.body, (name, old)
    return Case("", name, case.body.replace(old, new), block=case.block, cluster=case.cluster)


PLANTED = (
    ("all arrive on the leader's mbarrier", "[%r2], 128;", "[%r2], 127;", ("arrive-count", "error")),
    ("all arrive on the leader's mbarrier", "mov.u32 %r22, 0;", "mov.u32 %r22, 1;", ("arrive-count", "error")),
    ("a predicate that a branch decides", "@%p10 mbarrier", "@%p1 mbarrier", None),
    ("the barrier behind the init, written in both arms", "barrier.sync 0;\n", "", ("init-before-use", "error")),
    ("a barrier under the condition under which the loop goes on", "@%p9 bra past;\nbar.sync 0;\n", "@%p9 bra past;\n",
     ("bulk-wait-unshared", "error")),
    ("a store under one condition, a write under the other", "setp.le.u32 %p11, %r9, 3;", "setp.ge.u32 %p11, %r9, 3;",
     ("bulk-source-reuse", "error")),
    ("a copy in the first round of a loop", "@!%p10 bra have;\n", "", ("copy-overwrite", "error")),
    ("an mbarrier for each mode", "bra on;\n", "", ("init-twice", "review")),
    ("its own shared memory, by mapa, before the cluster has met", "mapa.shared::cluster.u32 %r22, %r4, %r20;",
     "xor.b32 %r20, %r20, 1;\nmapa.shared::cluster.u32 %r22, %r4, %r20;", ("cluster-entry", "error")),
    ("a group of copies that is waited for a round later", "cp.async.wait_group 1;\n", "", None),
    ("a product that one condition issues, commits and awaits", "wgmma.commit_group.sync.aligned;\n", "", ("wgmma-commit", "error")),
    ("the wait for products of the last round is peeled off", "last:\nwgmma.wait_group.sync.aligned 0;\n", "last:\n",
     ("wgmma-wait", "error")),
    ("a multicast behind a wait for something else, and a cluster barrier in each round",
     "xor.b32 %r32, %r32, 1;\nbarrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n", "xor.b32 %r32, %r32, 1;\n",
     ("multicast-release", "error")),
    ("a barrier of a part of a warp", "@%p10 bra end;\nbarrier.sync 2, 64;\n", "", ("bar-count", "review")),
    ("a barrier of a part of a warp", "setp.lt.u32 %p10, %r0, 48;", "setp.lt.u32 %p10, %r0, 16;\n@!%p10 bra end;", ("bar-count", "error")),
    ("a wait in one warp, and a barrier that tells the other", "bra on;\nother:\nbarrier.sync 0;\non:\n", "other:\n",
     ("read-before-wait", "review")),
    ("a first look that is asked for again only if it failed", "mbarrier.try_wait.parity.shared::cta.b64 %p8, [%r2], 0;\n"
     "selp.u32 %r10, 1, 0, %p8;\nsetp.ne.u32 %p9, %r10, 0;\n", "setp.eq.u32 %p9, 0, 0;\n", ("read-before-wait", "error")),
    ("the issuer's own writes between its copies", "cp.async.bulk.wait_group.read 1;\n", "", ("bulk-source-reuse", "error")),
    ("other threads write where the copy of known size has not read", "[%r1], 128;", "[%r1], 256;", ("bulk-source-reuse", "error")),
    ("a count of arrivals with two at once", "mov.u32 %r10, 2;", "mov.u32 %r10, 3;", ("arrive-count", "error")),
    ("every other lane arrives", "and.b32 %r10, %r0, 1;", "and.b32 %r10, %r0, 3;", ("arrive-count", "review")),
    ("shared memory that is used again behind a barrier", "fence.proxy.async.shared::cta;\n", "", ("proxy-fence", "error")),
    ("bytes of a stage that another line expects", "256, [%r34]", "512, [%r34]", None),
    ("who reads another CTA's memory arrives and leaves, the other waits", f"stay:\n{CLUSTER}", "stay:\n", ("cluster-exit", "error")),
    ("rows that are added up in the other CTA's buffer", ADD, ADD.replace("cp.reduce", "cp").replace(".add.u32", ""),
     ("copy-overwrite", "error")),
    *((f"a store in one mode, a write in the other: {name}", old, new, ("bulk-source-reuse", "error")) for name, old, new in (
        ("a flag", "setp.ne.s32", "setp.eq.s32"), ("a flag turned", "%r11, 0;", "%r11, 1;"), ("a number beside", "%r9, 4;", "%r9, 5;"),
        ("a bound", "%r11, 4;", "%r11, 5;"))),
    ("a copy in one mode, loads of what threads store in the other", "setp.eq.s32", "setp.le.s32", None),
    ("a copy in one mode, loads of what threads store in the other", "setp.eq.s32", "setp.ge.s32", ("copy-wait", "error")),
    ("a product in one mode, its registers in the other", "setp.eq.s32", "setp.ne.s32", ("wgmma-wait", "error")),
    ("one copy or two, chosen by guards", "[%r2], 256;", "[%r2], 128;", ("expect-tx", "review")),
    ("one of two barriers, chosen by a parameter", "selp.b32 %r10, 8, 0, %p10;", "selp.b32 %r10, 16, 24, %p10;",
     ("barrier-uninitialised", "error")),
)
"""(kernel, what is replaced, by what, what the mistake earns: None for what only a run tells)."""


@pytest.mark.parametrize(("name", "old", "new", "due"), PLANTED, ids=[f"{name}: {n}" for n, (name, *_) in enumerate(PLANTED)])
def test_the_mistake_beside_it_is_told(name: str, old: str, new: str, due: tuple[str, str] | None) -> None:
    found = said(changed(name, old, new))
    assert due in found if due is not None else not any(severity == "error" for _, severity in found)


ROLE = """.func (.param .b32 result) role(.param .b32 thread) {
.reg .b32 %r<4>;
ld.param.u32 %r0, [thread];
shr.u32 %r1, %r0, 5;
shfl.sync.idx.b32 %r2, %r1, 0, 31, -1;
st.param.b32 [result+0], %r2;
ret;
}
"""
HOLD = """.func hold(.param .b64 barrier, .param .b32 parity) {
.reg .pred %p<2>;
.reg .b32 %r<4>;
.reg .b64 %rd<4>;
ld.param.u64 %rd0, [barrier];
ld.param.u32 %r0, [parity];
cvta.to.shared.u64 %rd1, %rd0;
again:
mbarrier.try_wait.parity.shared::cta.b64 %p0, [%rd1], %r0;
@!%p0 bra again;
ret;
}
"""


def with_function(function: str, body: str) -> str:
    return text(Case("", "", body), True)[0].replace(".visible .entry", f"{function}.visible .entry")


def errors(source: str) -> set[str]:
    return {finding.rule for finding in check(source) if finding.severity == "error"}


def test_what_a_function_returns_may_differ_between_threads() -> None:
    """Each warp has a role of its own, and a barrier of 64 threads is not met by all of them at one line."""
    source = with_function(ROLE, "{\n.param .b32 given;\n.param .b32 got;\nst.param.b32 [given+0], %r0;\ncall.uni (got), role, (given);\n"
                           "ld.param.b32 %r10, [got+0];\n}\nsetp.eq.u32 %p10, %r10, 0;\n" + TURNS)
    assert errors(source) == set()
    arrays = [np.arange(8192, dtype=np.uint32), 4, TensorMap(np.zeros((64, 64), np.uint32), box=(2, 32))]
    assert sim.run(source, grid=1, args=arrays, max_steps=100_000).verdict == "clean"


def test_a_barrier_that_a_function_is_given_is_followed() -> None:
    body = (init(64) + f"{ARRIVE} [%r2];\ncvt.u64.u32 %rd10, %r2;\ncvta.shared.u64 %rd10, %rd10;\n"
            "{\n.param .b64 one;\n.param .b32 other;\nst.param.b64 [one+0], %rd10;\nst.param.b32 [other+0], 0;\n"
            "call.uni hold, (one, other);\n}\n")
    assert errors(with_function(HOLD, body)) == set()
    assert errors(with_function(HOLD, body.replace(f"{ARRIVE} [%r2];\n", ""))) == {"wait-without-arrival"}
