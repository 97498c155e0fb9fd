"""Random small programs of two CTAs with two warps each: right, racing, or deadlocked, as it comes."""

from __future__ import annotations

import random

from tests.sim.kernels import OUT, kernel

SHARED = """.shared .align 128 .b8 tile[512];
.shared .align 8 .b64 full;
.shared .align 8 .b64 empty;
"""
SETUP = """ld.param.u64 %rd20, [source];
cvt.u32.u64 %r33, %rd21;
mov.u32 %r30, tile;
add.u32 %r32, %r30, %r63;
setp.eq.u32 %p5, %r0, 0;
@%p5 mbarrier.init.shared.b64 [full], 1;
@%p5 mbarrier.init.shared.b64 [empty], 2;
and.b32 %r31, %r0, 31;
setp.eq.u32 %p6, %r31, 0;
mov.u32 %r40, %ctaid.x;
cvt.u64.u32 %rd22, %r63;
add.u64 %rd23, %rd20, %rd22;
mov.u32 %r10, 0;
bar.sync 0;
setp.lt.u32 %p7, %r0, 32;
@%p7 bra FIRST;
"""
PIECES = (
    "st.shared.u32 [%r32], %r0;",
    "ld.shared.u32 %r10, [%r30+{word}];",
    "st.shared.u32 [%r30+{word}], %r31;",
    "bar.sync 0;",
    "bar.sync 1, 64;",
    "bar.arrive 1, 64;",
    "@%p6 mbarrier.arrive.shared.b64 _, [empty];",
    "@%p6 mbarrier.arrive.expect_tx.shared.b64 _, [full], 128;\n"
    "@%p6 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r30], [%rd20], 128, [full];",
    "W{n}:\nmbarrier.try_wait.parity.shared.b64 %p1, [full], {parity};\n@!%p1 bra W{n};",
    "W{n}:\nmbarrier.test_wait.parity.shared.b64 %p1, [empty], {parity};\nselp.u32 %r10, 1, %r10, %p1;",
    "cp.async.ca.shared.global [%r32+256], [%rd23], 4;\ncp.async.commit_group;",
    "cp.async.wait_all;",
    "atom.global.add.u32 %r10, [%rd20+512], 1;",
    "red.global.add.u32 [%rd20+516], %r31;",
    "ld.relaxed.gpu.global.u32 %r10, [%rd20+512];",
    "elect.sync _|%p2, -1;\nselp.u32 %r10, 1, %r10, %p2;",
    "@%p6 cp.async.bulk.global.shared::cta.bulk_group [%rd20+128], [%r30], 64;\n@%p6 cp.async.bulk.commit_group;",
    "@%p6 cp.async.bulk.wait_group 0;",
    "st.global.u32 [%rd1], %r10;",
    "setp.lt.u32 %p3, %r31, 7;\n@%p3 bra L{n};\nadd.u32 %r10, %r10, 1;\nst.shared.u32 [%r32+128], %r10;\nL{n}:",
)
WORDS = 160
"""Words of the source that a program may touch."""


def program(seed: int) -> str:
    """Each warp of a CTA does some of the pieces, and stores what it has."""
    chosen = random.Random(seed)
    number = iter(range(1000))

    def role() -> str:
        return "\n".join(chosen.choice(PIECES).format(word=4 * chosen.randrange(32), n=next(number), parity=chosen.randrange(2))
                         for _ in range(chosen.randint(2, 7)))

    body = OUT.replace("mov.u32 %r0, %tid.x;", "mov.u32 %r0, %tid.x;\nmov.u64 %rd21, 0;") + SETUP + role() \
        + "\nst.global.u32 [%rd1], %r10;\nret;\nFIRST:\n" + role() + "\nst.global.u32 [%rd1], %r10;"
    return kernel(body, ".param .u64 source, .param .u64 out", before=SHARED)
