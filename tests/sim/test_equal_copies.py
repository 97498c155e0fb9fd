"""Bulk and tensor stores of the same bytes with nothing that orders them: told, but no race. Other bytes are one, in every schedule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxkit import TensorMap, sim

from .kernels import kernel

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]
SCHEDULES = [("fifo", 0), ("random", 1), ("random", 2), ("random", 3), ("adversarial", 0), ("lazy", 0), ("reverse", 0)]
schedules = pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
SAME, RACE = ("same-value", "info"), ("global-race", "error")
EMPTY = {("bulk-source-uninitialised", "review"), ("order-dependence", "review")}

FILL = """ld.param.u64 %rd0, [out];
mov.u32 %r0, %tid.x;
mov.u32 %r1, data;
shl.b32 %r2, %r0, 2;
add.u32 %r3, %r1, %r2;
and.b32 %r4, %r0, 31;
st.shared.u32 [%r3], %r4;
fence.proxy.async.shared::cta;
bar.sync 0;
setp.eq.u32 %p0, %r0, 0;
setp.eq.u32 %p1, %r0, 32;
"""
"""Each warp has the numbers 0 to 31 in 128 bytes of its own; %p0 and %p1 are the first threads of two warps."""
STORE = "cp.async.bulk.global.shared::cta.bulk_group [%rd0{}], [%r1{}], {};\n"
COMMIT = "cp.async.bulk.commit_group;\n"
WAIT = COMMIT + "cp.async.bulk.wait_group {};\n"


def by(predicate: str, *lines: str) -> str:
    return "".join(f"@{predicate} {line}\n" for text in lines for line in text.splitlines())


def run(body: str, schedule: str, seed: int, block: int = 64, grid: int = 1, out: Any = None) -> sim.Report:
    text = kernel(FILL + body, before=".shared .align 128 .b8 data[1024];\n")
    return sim.run(text, grid=grid, block=block, args=(np.zeros(512, np.uint32) if out is None else out,), schedule=schedule, seed=seed)


def told(report: sim.Report) -> set[tuple[str, str]]:
    return {(finding.rule, finding.severity) for finding in report.findings}


def stores(first: str, second: str) -> str:
    """A store by each of two warps, both waited for."""
    return by("%p0", first, WAIT.format(0)) + by("%p1", second, WAIT.format(0))


@schedules
def test_one_thread_two_copies(schedule: str, seed: int) -> None:
    """The copies of one thread are not ordered by its program either."""
    report = run(by("%p0", STORE.format("", "", 128), COMMIT, STORE.format("", "+128", 128), WAIT.format(0)), schedule, seed)
    assert (told(report), report.verdict, report.every_schedule) == ({SAME}, "clean", True), report
    shifted = run(by("%p0", STORE.format("", "", 128), COMMIT, STORE.format("", "+112", 128), WAIT.format(0)), schedule, seed)
    assert told(shifted) >= {RACE}, shifted
    waited = run(by("%p0", STORE.format("", "", 128), WAIT.format(0), STORE.format("", "+112", 128), WAIT.format(0)), schedule, seed)
    assert told(waited) == set(), waited


@schedules
def test_two_warps(schedule: str, seed: int) -> None:
    assert told(run(stores(STORE.format("", "", 128), STORE.format("", "+128", 128)), schedule, seed)) == {SAME}
    assert told(run(stores(STORE.format("", "", 64), STORE.format("+32", "+160", 64)), schedule, seed)) == {SAME}
    assert told(run(stores(STORE.format("", "", 64), STORE.format("+32", "+144", 64)), schedule, seed)) >= {RACE}


def test_a_store_that_has_read_and_not_landed() -> None:
    """A schedule may land the second store between the two: only the last one to land says whether they are equal."""
    equal = stores(STORE.format("", "", 128), STORE.format("", "+128", 128))
    zeros = "mov.u32 %r5, 0;\n@%p1 st.shared.v4.u32 [%r1+128], {%r5, %r5, %r5, %r5};\nfence.proxy.async;\nbar.sync 0;\n"
    other = zeros + stores(STORE.format("+1024", "+16", 16), STORE.format("+1024", "+128", 16))
    for seed in range(40):
        assert told(run(equal, "random", seed)) == {SAME}
        report = run(other, "random", seed)
        assert told(report) == {RACE}, "memory is zero there before"
        assert not report.every_schedule


@schedules
def test_one_word_that_differs_is_a_race(schedule: str, seed: int) -> None:
    other = "setp.eq.u32 %p2, %r0, 55;\n@%p2 st.shared.u32 [%r3], 7;\nfence.proxy.async.shared::cta;\nbar.sync 0;\n"
    report = run(other + stores(STORE.format("", "", 128), STORE.format("", "+128", 128)), schedule, seed)
    assert told(report) >= {RACE}, report
    assert not report.every_schedule


@schedules
def test_other_bytes_must_come_after_both(schedule: str, seed: int) -> None:
    """The second warp has waited for its own store, not for the first warp's, and then stores others over both."""
    later = by("%p1", STORE.format("", "+16", 16), WAIT.format(0))
    both = by("%p0", STORE.format("", "", 128), WAIT.format(0)) + by("%p1", STORE.format("", "+128", 128), WAIT.format(0))
    assert told(run(both + later, schedule, seed)) >= {RACE}
    assert told(run(both + "bar.sync 0;\n" + later, schedule, seed)) == {SAME}
    generic = "@%p1 st.global.u32 [%rd0], 5;\n"
    assert told(run(both + generic, schedule, seed)) >= {RACE}
    assert told(run(both + "bar.sync 0;\n" + generic, schedule, seed)) == {SAME}


@schedules
def test_a_copy_over_equal_plain_stores(schedule: str, seed: int) -> None:
    """A lane of the other warp has stored the first word."""
    lane = "mov.u32 %r5, {};\n@%p1 st.global.u32 [%rd0+8], %r5;\n"
    store = by("%p0", STORE.format("", "", 128), WAIT.format(0))
    for word in (2, 3):                                         # 2 is what the copy stores there, too
        found = told(run(lane.format(word) + "bar.sync 0;\n" + store, schedule, seed))
        assert found == ({SAME} if word == 2 else {("proxy-fence", "error")}), "ordered by a barrier alone"
    assert told(run(store + lane.format(3), schedule, seed)) >= {RACE}


@schedules
def test_ctas_that_repeat_all_of_each_other_forgot_which_they_are(schedule: str, seed: int) -> None:
    all_of_it = by("%p0", STORE.format("", "", 128), WAIT.format(0))
    assert told(run(all_of_it, schedule, seed, grid=2)) >= {RACE}
    own = "mov.u32 %r6, %ctaid.x;\nmul.wide.u32 %rd2, %r6, 256;\nadd.u64 %rd2, %rd2, %rd0;\n" \
          "@%p0 cp.async.bulk.global.shared::cta.bulk_group [%rd2+512], [%r1], 256;\n"
    assert told(run(own + all_of_it, schedule, seed, grid=2)) == {("same-value", "review")}


BOXES = """ld.param.u64 %rd0, [out];
mov.b64 %rd2, map;
cvta.param.u64 %rd1, %rd2;
mov.u32 %r0, %tid.x;
mov.u32 %r1, data;
shl.b32 %r2, %r0, 4;
add.u32 %r3, %r1, %r2;
st.shared.v4.u32 [%r3], {{%r0, %r0, %r0, %r0}};
{fill}
fence.proxy.async.shared::cta;
bar.sync 0;
setp.ne.u32 %p0, %r0, 0;
@%p0 ret;
cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {{0, 0}}], [%r1];
cp.async.bulk.commit_group;
cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {{0, {row}}}], [%r1+512];
cp.async.bulk.commit_group;
cp.async.bulk.wait_group.read 0;
"""
"""Two boxes of 4 x 32 words from two stages; 32 threads fill one, and {fill} the other."""


@schedules
@pytest.mark.parametrize(("fill", "row", "found"), [
    ("st.shared.v4.u32 [%r3+512], {%r0, %r0, %r0, %r0};", 0, {SAME}),
    ("st.shared.v4.u32 [%r3+512], {%r0, %r0, %r0, 9};", 0, {RACE}),
    ("st.shared.v4.u32 [%r3+512], {%r0, %r0, %r0, %r0};", 1, {RACE}),
    ("st.shared.v4.u32 [%r3+512], {%r0, %r0, %r0, 9};", 4, set()),
    ("", 0, {RACE, *EMPTY})])
def test_two_boxes(fill: str, row: int, found: set[tuple[str, str]], schedule: str, seed: int) -> None:
    text = kernel(BOXES.format(fill=fill, row=row), ".param .u64 out, .param .align 64 .b8 map[128]",
                  before=".shared .align 1024 .b8 data[1024];\n")
    out = np.zeros((16, 32), np.uint32)
    report = sim.run(text, grid=1, block=32, args=(np.zeros(1, np.uint32), TensorMap(out, box=(4, 32))), schedule=schedule, seed=seed)
    assert told(report) == found, report


def test_bytes_that_nothing_has_written_are_not_known_to_be_equal() -> None:
    text = kernel(BOXES.format(fill="", row=0).replace("st.shared.v4.u32 [%r3], {%r0, %r0, %r0, %r0};", ""),
                  ".param .u64 out, .param .align 64 .b8 map[128]", before=".shared .align 1024 .b8 data[1024];\n")
    report = sim.run(text, grid=1, block=32, args=(np.zeros(1, np.uint32), TensorMap(np.zeros((16, 32), np.uint32), box=(4, 32))))
    assert told(report) == {("same-value", "review"), *EMPTY}
