"""Lanes that arrive or release each by itself: what an elected one has done comes with all of them, and no lane's release is another's."""

from __future__ import annotations

import numpy as np
import pytest

from ptxkit import sim

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]

HEAD = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out) .reqntid 64,1,1 {
.reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %rd<9>;
.shared .align 8 .b64 full[2]; .shared .align 8 .b64 empty[2]; .shared .b32 buf[64]; .shared .b32 flags[64];
mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 5; and.b32 %r3, %r1, 31; setp.ne.u32 %p1, %r2, 0;
ld.param.u64 %rd1, [out]; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2;
mov.u32 %r9, buf; mad.lo.u32 %r9, %r3, 4, %r9; mov.u32 %r14, flags; mad.lo.u32 %r14, %r3, 4, %r14;
mov.b32 %r5, 0; mov.b32 %r6, 1; mov.b32 %r7, 0;
st.shared.b32 [%r9+128], 0; st.shared.b32 [%r14], 0;
@%p1 bra Ready;
elect.sync _|%p2, -1;
@!%p2 bra Ready;
mbarrier.init.shared.b64 [full], 32;
mbarrier.init.shared.b64 [empty], 32;
Ready:
bar.sync 0;
"""
RING = """@%p1 bra Consumer;
Producer:
{ .reg .pred q; Wait: mbarrier.try_wait.parity.shared.b64 q, [empty], %r6; @!q bra Wait; }
st.shared.b32 [%r9], %r5;
HERE
mbarrier.arrive.shared.b64 _, [full];
Next: xor.b32 %r6, %r6, 1; add.u32 %r5, %r5, 1; setp.ne.u32 %p4, %r5, 4; @%p4 bra Producer;
bra End;
Consumer:
{ .reg .pred q; Wait2: mbarrier.try_wait.parity.shared.b64 q, [full], %r7; @!q bra Wait2; }
ld.shared.b32 %r11, [%r9]; ld.shared.b32 %r12, [buf+128]; add.u32 %r11, %r11, %r12; st.global.u32 [%rd1], %r11;
mbarrier.arrive.shared.b64 _, [empty];
xor.b32 %r7, %r7, 1; add.u32 %r5, %r5, 1; setp.ne.u32 %p4, %r5, 4; @%p4 bra Consumer;
End: ret;
}
"""
ALONE = "@%p2 st.shared.b32 [buf+128], %r5;"
FLAGS = """@%p1 bra Reader;
st.shared.b32 [%r9], %r3;
BEFORE
RELEASE [%r14], 1;
bra End;
Reader: OTHER
Again: ACQUIRE %r11, [%r14]; setp.eq.u32 %p4, %r11, 0; @%p4 bra Again;
AFTER
ld.shared.b32 %r12, [%r9]; st.global.u32 [%rd1], %r12;
End: ret;
}
"""

ENDS = """@%p1 bra Reader;
mbarrier.arrive.shared.b64 _, [full];
HERE
setp.ne.u32 %p4, %r3, 0; @%p4 bra End;
fence.acq_rel.cta; st.relaxed.cta.shared.b32 [flags], 1;
bra End;
Reader: setp.ne.u32 %p4, %r3, 0; @%p4 bra End;
Again: ld.acquire.cta.shared.b32 %r11, [flags]; setp.eq.u32 %p4, %r11, 0; @%p4 bra Again;
mbarrier.inval.shared.b64 [full];
End: ret;
}
"""


def flags(release: str = "st.release.cta.shared.b32", acquire: str = "ld.acquire.cta.shared.b32", before: str = "", after: str = "", *,
          other: bool = False) -> str:
    told = {"RELEASE": release, "ACQUIRE": acquire, "BEFORE": before, "AFTER": after, "OTHER": "xor.b32 %r14, %r14, 4;" if other else ""}
    text = FLAGS
    for word, said in told.items():
        text = text.replace(word, said)
    return text


RIGHT = {
    "all wait and all arrive, after an election": RING.replace("HERE", ""),
    "the elected lane stores, all arrive": RING.replace("HERE", ALONE),
    "the elected lane of each round stores, all arrive": RING.replace("HERE", "elect.sync _|%p2, -1;\n" + ALONE),
    "each lane's word": flags(),
    "each lane's word after a fence": flags("fence.acq_rel.cta;\nst.relaxed.cta.shared.b32"),
    "each lane's word, a fence after it": flags(acquire="ld.relaxed.cta.shared.b32", after="fence.acq_rel.cta;"),
    "another lane's word, the writers have met": flags(before="bar.warp.sync -1;", other=True),
    "another lane's word, the readers have met": flags(after="bar.warp.sync -1;", other=True),
}
WRONG = {
    "the elected lane stores when it may have arrived": RING.replace(
        "HERE", "setp.lt.u32 %p5, %r3, 16;\n@%p5 mbarrier.arrive.shared.b64 _, [full];\n" + ALONE + "\n@%p5 bra Next;"),
    "the elected lane stores after all have arrived": RING.replace("HERE", "").replace("Next:", ALONE + "\nNext:"),
    "another lane's word": flags(other=True),
    "another lane's word after a fence": flags("fence.acq_rel.cta;\nst.relaxed.cta.shared.b32", other=True),
    "another lane's word, a fence after it": flags(acquire="ld.relaxed.cta.shared.b32", after="fence.acq_rel.cta;", other=True),
}


def test_lanes_that_have_arrived_meet_by_a_shuffle() -> None:
    assert run(ENDS.replace("HERE", "shfl.sync.idx.b32 %r10, %r5, 0, 31, -1;"), "fifo").verdict == "clean"
    assert "mbarrier-init" in {finding.rule for finding in run(ENDS.replace("HERE", ""), "fifo").findings}


def run(text: str, schedule: str) -> sim.Report:
    return sim.run(HEAD + text, "k", grid=1, block=64, args=[np.zeros(64, np.uint32)], schedule=schedule, seed=1)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", RIGHT)
def test_what_is_ordered_is_clean(name: str) -> None:
    for schedule in ("fifo", "adversarial"):
        report = run(RIGHT[name], schedule)
        assert report.verdict == "clean", (schedule, report.findings)


@pytest.mark.parametrize("name", WRONG)
def test_what_goes_by_another_lane_is_a_race(name: str) -> None:
    for schedule in ("fifo", "adversarial"):
        assert "shared-race" in {finding.rule for finding in run(WRONG[name], schedule).findings}, schedule
