"""Planted mistakes with bulk groups, wgmma, clusters at their end, barriers of threads, registers and layouts."""

from __future__ import annotations

from .barriers import CLUSTER, FROM_PEERS, PEER, REMOTE, either, loop, plus
from .memory import DESCRIPTOR, FENCE, FILL, MMA, OUT
from .programs import ARRIVE, BULK, EXPECT, STORE, TENSOR, Case, init, wait

COMMIT = "@%p0 cp.async.bulk.commit_group;\n"
READ_OUT = "@%p0 cp.async.bulk.wait_group.read 0;\n"
OUT_OF_TILE = "mov.u32 %r6, 0;\n@%p0 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd9, {%r6, %r6}], [%r1];\n"
SYNC = "bar.sync 0;\n"

BULK_STORES = [
    Case("bulk-source-reuse", "no wait", FILL + FENCE + SYNC + OUT + COMMIT + plus(READ_OUT) + SYNC + "!" + FILL
         + "@%p0 cp.async.bulk.wait_group 0;\n"),
    Case("bulk-source-reuse", "the wait leaves it", FILL + FENCE + SYNC + OUT_OF_TILE + COMMIT + either(
        "@%p0 cp.async.bulk.wait_group.read 1;\n", READ_OUT) + SYNC + "!" + FILL + "@%p0 cp.async.bulk.wait_group 0;\n"),
    Case("bulk-source-reuse", "in a loop", loop("!" + FILL + FENCE + SYNC + OUT + COMMIT + plus(READ_OUT) + SYNC)
         + "@%p0 cp.async.bulk.wait_group 0;\n"),
    Case("bulk-source-reuse", "another thread waits", FILL + FENCE + SYNC + OUT + COMMIT + "setp.eq.u32 %p10, %r0, 32;\n" + either(
        "@%p10 cp.async.bulk.wait_group.read 0;\n", READ_OUT) + SYNC + "!" + FILL + "@%p0 cp.async.bulk.wait_group 0;\n"),
    Case("bulk-source-reuse", "a copy into it", init(1) + FILL + FENCE + SYNC + "@!%p0 bra done;\n" + f"{STORE} [%rd0], [%r1], 256;\n"
         "cp.async.bulk.commit_group;\n" + plus("cp.async.bulk.wait_group.read 0;\n")
         + f"{EXPECT} [%r2], 256;\n!{BULK} [%r1], [%rd0], 256, [%r2];\n"
         "cp.async.bulk.wait_group 0;\ndone:\n" + wait("w")),
    Case("bulk-source-reuse", "a reduction", FILL + FENCE + SYNC
         + "@%p0 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd0], [%r1], 256;\n" + COMMIT + plus(READ_OUT) + SYNC + "!"
         + FILL
         + "@%p0 cp.async.bulk.wait_group 0;\n"),
    Case("bulk-wait-unshared", "no barrier", FILL + FENCE + SYNC + OUT + COMMIT + READ_OUT + plus(SYNC) + "!" + FILL
         + "@%p0 cp.async.bulk.wait_group 0;\n"),
    Case("bulk-wait-unshared", "its warp alone knows", FILL + FENCE + SYNC + OUT + COMMIT + READ_OUT + either("bar.warp.sync -1;\n", SYNC)
         + "!" + FILL
         + "@%p0 cp.async.bulk.wait_group 0;\n", severity="review"),
    Case("bulk-wait-unshared", "in a loop", loop("!" + FILL + FENCE + SYNC + OUT + COMMIT + READ_OUT + plus(SYNC))
         + "@%p0 cp.async.bulk.wait_group 0;\n"),
    Case("bulk-wait-unshared", "stmatrix over a tile", "and.b32 %r5, %r0, 31;\nshl.b32 %r5, %r5, 4;\nshr.u32 %r10, %r0, 5;\n"
         "shl.b32 %r10, %r10, 9;\nadd.u32 %r5, %r5, %r10;\nadd.u32 %r5, %r1, %r5;\n"
         "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r5], {%r0, %r0, %r0, %r0};\n" + FENCE + SYNC + OUT_OF_TILE + COMMIT
         + "@%p0 cp.async.bulk.wait_group 0;\n" + plus(SYNC) + "!stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r5], {%r0, %r0, %r0, %r0};\n",
         severity="review"),
    Case("bulk-commit", "no group", FILL + FENCE + SYNC + "!" + OUT + plus(COMMIT)
         + "@%p0 cp.async.bulk.wait_group 0;\n", severity="review"),
    Case("bulk-commit", "another thread commits", FILL + FENCE + SYNC + "!" + OUT + "setp.eq.u32 %p10, %r0, 1;\n" + either(
        "@%p10 cp.async.bulk.commit_group;\n", COMMIT) + "@%p0 cp.async.bulk.wait_group 0;\n", severity="review"),
    Case("bulk-commit", "committed before", FILL + FENCE + SYNC + either(COMMIT, "") + "!" + OUT + plus(COMMIT)
         + "@%p0 cp.async.bulk.wait_group 0;\n", severity="review"),
    Case("bulk-exit", "a store", FILL + FENCE + SYNC + "!" + OUT + COMMIT + plus(READ_OUT), severity="review"),
    Case("bulk-exit", "all but the newest", FILL + FENCE + SYNC + OUT_OF_TILE.replace("@%p0", "!@%p0") + COMMIT + either(
        "@%p0 cp.async.bulk.wait_group.read 1;\n", READ_OUT), severity="review"),
    Case("bulk-exit", "the others wait", FILL + FENCE + SYNC + "!" + OUT + COMMIT + either("@!%p0 cp.async.bulk.wait_group 0;\n", READ_OUT),
         severity="review"),
]

BEGIN, FINISH, AWAIT = "wgmma.fence.sync.aligned;\n", "wgmma.commit_group.sync.aligned;\n", "wgmma.wait_group.sync.aligned 0;\n"
USE = "st.global.f32 [%rd1], %f0;\n"
FROM_A = ("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, {%r50, %r51, %r52, %r53}, %rd10, 0, 1, 1, 0;\n")
MORE = MMA.replace("%rd10, 0,", "%rd10, 1,")
LEAVES = "wgmma.wait_group.sync.aligned 1;\n"
SECOND = MMA.replace("%f0, %f1, %f2, %f3", "%f4, %f5, %f6, %f7")

WGMMA = [Case(case.rule, case.name, DESCRIPTOR + case.body, case.severity, 128, also=case.also) for case in (
    Case("wgmma-fence", "none", plus(BEGIN) + "!" + MMA + FINISH + AWAIT + USE),
    Case("wgmma-fence", "the accumulator is written after it", BEGIN + "-mov.f32 %f1, 0f00000000;\n!" + MMA + FINISH + AWAIT
         + USE, "review"),
    Case("wgmma-fence", "A is loaded after it", "mov.b32 %r50, %r0;\nmov.b32 %r51, %r0;\nmov.b32 %r52, %r0;\n"
         + plus("mov.b32 %r53, %r0;\n")
         + BEGIN + "-add.u32 %r53, %r0, 1;\n!" + FROM_A + FINISH + AWAIT + USE, "review"),
    Case("wgmma-fence", "on one path", "-setp.gt.u32 %p10, %r9, 3;\n-@%p10 bra on;\n" + BEGIN + "on:\n!" + MMA + FINISH + AWAIT
         + USE, "review"),
    Case("wgmma-fence", "in a loop that scales", BEGIN + loop("!" + MORE + FINISH + AWAIT + "mul.f32 %f0, %f0, %f0;\n" + plus(BEGIN))
         + USE, "review"),
    Case("wgmma-wait", "none", BEGIN + MMA + FINISH + plus(AWAIT) + "!" + USE + plus(AWAIT, "-")),
    Case("wgmma-wait", "one is left in flight", BEGIN + MMA + FINISH + either(LEAVES, AWAIT) + "!add.f32 %f8, %f0, %f1;\n"
         + plus(AWAIT, "-")),
    Case("wgmma-wait", "A overwritten", "mov.b32 %r50, %r0;\nmov.b32 %r51, %r0;\nmov.b32 %r52, %r0;\nmov.b32 %r53, %r0;\n" + BEGIN
         + FROM_A + FINISH
         + plus(AWAIT) + "!add.u32 %r51, %r9, 1;\n" + plus(AWAIT, "-") + USE, "error"),
    Case("wgmma-wait", "on one path", BEGIN + MMA + FINISH + "-setp.gt.u32 %p10, %r9, 3;\n-@%p10 bra on;\n" + AWAIT + "-on:\n!" + USE
         + plus(AWAIT, "-"),
         "review"),
    Case("wgmma-wait", "across a loop", BEGIN + loop(MORE + FINISH + LEAVES) + plus(AWAIT) + "!" + USE + plus(AWAIT, "-")),
    Case("wgmma-wait", "the end of the kernel", BEGIN + "!" + MMA + FINISH + plus(AWAIT), "review"),
    Case("wgmma-wait", "cleared in flight", BEGIN + SECOND + FINISH + MMA + FINISH + LEAVES + "st.global.f32 [%rd1], %f4;\n"
         + plus(AWAIT) + "!mov.f32 %f2, 0f00000000;\n" + plus(AWAIT, "-")),
    Case("wgmma-commit", "no group", BEGIN + "!" + MMA + plus(FINISH) + AWAIT + USE),
    Case("wgmma-commit", "committed before", BEGIN + either(FINISH, "") + "!" + MMA + plus(FINISH) + AWAIT + USE),
    Case("wgmma-commit", "the last of two", BEGIN + MMA + either(FINISH, "") + "!" + SECOND + plus(FINISH) + AWAIT
         + "st.global.f32 [%rd1], %f4;\n" + USE),
    Case("wgmma-commit", "in a loop", BEGIN + loop("!" + MORE + plus(FINISH) + AWAIT) + USE),
)]

STAGES = ("mov.u32 %r31, 0;\nmov.u32 %r32, 0;\n" + loop(
    "shl.b32 %r33, %r31, 3;\nadd.u32 %r33, %r2, %r33;\nshl.b32 %r34, %r31, 12;\nadd.u32 %r34, %r1, %r34;\nshr.u32 %r40, %r34, 4;\n"
    "cvt.u64.u32 %rd10, %r40;\nor.b64 %rd10, %rd10, 4611686293305360384;\n{inside}"
    "add.u32 %r31, %r31, 1;\nsetp.eq.u32 %p8, %r31, 2;\nselp.u32 %r31, 0, %r31, %p8;\n@%p8 xor.b32 %r32, %r32, 1;\n"))
PRODUCER = ("@!%p4 bra work;\nmov.u32 %r41, 0;\nmov.u32 %r42, 1;\n" + loop(
    "shl.b32 %r43, %r41, 3;\nadd.u32 %r43, %r2, %r43;\nshl.b32 %r44, %r41, 12;\nadd.u32 %r44, %r1, %r44;\n" + wait("e", "%r42", "[%r43+16]")
    + f"@%p5 {EXPECT} [%r43], 4096;\n@%p5 {BULK} [%r44], [%rd0], 4096, [%r43];\n"
    "add.u32 %r41, %r41, 1;\nsetp.eq.u32 %p8, %r41, 2;\nselp.u32 %r41, 0, %r41, %p8;\n@%p8 xor.b32 %r42, %r42, 1;\n", "fill")
        + "bra done;\nwork:\n")
ROLES = "setp.ge.u32 %p4, %r0, 128;\nsetp.eq.u32 %p5, %r0, 128;\n"
RELEASE = f"{ARRIVE} [%r33+16];\n"

RELEASES = [
    Case("stage-release", "before the wait", init(1, 1, 128, 128) + ROLES + PRODUCER + STAGES.format(
        inside=wait("w", "%r32", "[%r33]") + BEGIN + MORE + FINISH + plus("!" + RELEASE, "-") + AWAIT + plus(RELEASE)) + USE + "done:\n",
        severity="review", block=160),
    Case("stage-release", "before the commit", init(1, 1, 128, 128) + ROLES + PRODUCER + STAGES.format(
        inside=wait("w", "%r32", "[%r33]") + BEGIN + MORE + plus("!" + RELEASE, "-") + FINISH + AWAIT + plus(RELEASE)) + USE + "done:\n",
        severity="review", block=160),
    Case("stage-release", "the wait leaves the group", init(1, 1, 128, 128) + ROLES + PRODUCER + STAGES.format(
        inside=wait("w", "%r32", "[%r33]") + BEGIN + MORE + FINISH + either(LEAVES, AWAIT) + "!" + RELEASE) + AWAIT + USE + "done:\n",
        severity="review", block=160),
]

TWICE = "barrier.cluster.arrive.aligned;\n"
SENT = init(64, sync="fence.mbarrier_init.release.cluster;\n" + CLUSTER)
HALF = ("mov.u32 %r20, %cluster_ctarank;\nshl.b32 %r5, %r20, 8;\nadd.u32 %r5, %r1, %r5;\n")

CLUSTERS = [
    Case("cluster-exit", "arrive", SENT + PEER + "!" + REMOTE + either("", FROM_PEERS), cluster=2, also=("wait-without-arrival",)),
    Case("cluster-exit", "store", CLUSTER + PEER + "!st.shared::cluster.u32 [%r22], %r0;\n" + plus(CLUSTER), cluster=2),
    Case("cluster-exit", "atomics on a generic address", CLUSTER
         + "mov.u64 %rd10, smem;\ncvta.shared.u64 %rd10, %rd10;\nmapa.u64 %rd11, %rd10, 0;\n"
         "!atom.add.u32 %r5, [%rd11], 1;\n" + plus(CLUSTER), cluster=4),
    Case("cluster-exit", "on one path", CLUSTER + PEER
         + "!red.shared::cluster.add.u32 [%r22], %r0;\nsetp.gt.u32 %p10, %r9, 3;\n-@%p10 bra ending;\n"
         + CLUSTER + "-ending:\n", cluster=2, severity="review", also=("cluster-barrier",)),
    Case("cluster-exit", "a read", FILL + CLUSTER + PEER + "!ld.shared::cluster.u32 %r23, [%r22];\nst.global.u32 [%rd1], %r23;\n"
         + plus(CLUSTER), cluster=2),
    Case("cluster-barrier", "two arrives", TWICE + "-!" + TWICE + "barrier.cluster.wait.aligned;\n"),
    Case("cluster-barrier", "a wait without", plus(TWICE) + "!barrier.cluster.wait.acquire;\n", severity="review"),
    Case("cluster-barrier", "in a loop", loop("!barrier.cluster.arrive.relaxed;\n" + plus("barrier.cluster.wait;\n"))
         + plus("barrier.cluster.wait;\n", "-"),
         severity="review"),
    Case("cluster-barrier", "one warp does not arrive", "@%p1 barrier.cluster.arrive.release;\n+@!%p1 barrier.cluster.arrive.release;\n"
         "!barrier.cluster.wait;\n", severity="review"),
    Case("cluster-window", "a load", FILL + CLUSTER + PEER
         + either("!ld.shared::cta.u32 %r23, [%r22];\n", "ld.shared::cluster.u32 %r23, [%r22];\n")
         + "st.global.u32 [%rd1], %r23;\n" + CLUSTER, cluster=2),
    Case("cluster-window", "an atomic, through add and mov", FILL + CLUSTER + "mapa.shared::cluster.u32 %r22, %r1, 1;\n"
         "add.u32 %r22, %r22, %r3;\nmov.b32 %r23, %r22;\n"
         + either("!atom.shared.add.u32 %r24, [%r23+4], 1;\n", "atom.shared::cluster.add.u32 %r24, [%r23+4], 1;\n")
         + CLUSTER, cluster=4),
    Case("cluster-window", "an mbarrier", SENT + PEER + either("!mbarrier.arrive.shared::cta.b64 _, [%r21];\n", REMOTE) + FROM_PEERS,
         cluster=2),
    Case("cluster-window", "one of two addresses of another CTA", FILL + CLUSTER + PEER + "add.u32 %r23, %r22, 64;\n"
         "setp.gt.u32 %p10, %r9, 3;\nselp.b32 %r24, %r22, %r23, %p10;\n"
         + either("!st.shared.u32 [%r24], %r0;\n", "st.shared::cluster.u32 [%r24], %r0;\n") + CLUSTER, cluster=2),
    Case("multicast-mask", "beyond the cluster", SENT.replace(", 64;", ", 1;") + f"@%p0 {EXPECT} [%r2], 512;\n" + HALF
         + either("mov.u16 %h0, 7;\n", "mov.u16 %h0, 3;\n")
         + f"!@%p0 {BULK}.multicast::cluster [%r5], [%rd0], 256, [%r2], %h0;\n" + wait("w") + CLUSTER, cluster=2),
    Case("multicast-mask", "nobody", SENT.replace(", 64;", ", 1;") + either("", f"@%p0 {EXPECT} [%r2], 512;\n") + HALF
         + "mov.u32 %r6, 3;\n-and.b32 %r6, %r6, 4;\n"
         f"cvt.u16.u32 %h0, %r6;\n!@%p0 {BULK}.multicast::cluster [%r5], [%rd0], 256, [%r2], %h0;\n" + plus(wait("w")) + CLUSTER, cluster=2,
         also=("expect-tx",)),
    Case("multicast-mask", "shifted by the rank", SENT.replace(", 64;", ", 1;") + f"@%p0 {EXPECT} [%r2], 512;\n" + HALF
         + "mov.u32 %r6, 3;\n"
         "-shl.b32 %r6, %r6, %r20;\nmov.u32 %r7, 0;\ncvt.u16.u32 %h0, %r6;\n"
         f"!@%p0 {TENSOR}.multicast::cluster [%r5], [%rd9, {{%r7, %r7}}], [%r2], %h0;\n" + wait("w") + CLUSTER, cluster=2),
]


def multicast(release: str, empty: int) -> str:
    """A loop that multicasts halves into both CTAs, after a wait for the buffer on the mbarrier [%r2+8]."""
    return (init(1, empty, sync="fence.mbarrier_init.release.cluster;\n" + CLUSTER) + PEER + "mapa.shared::cluster.u32 %r24, %r2, 0;\n"
            "mapa.shared::cluster.u32 %r25, %r2, 1;\n" + HALF
            + "mov.u16 %h0, 3;\nmov.u32 %r32, 0;\nmov.u32 %r37, 1;\nsetp.eq.u32 %p3, %r0, 32;\n" + loop(
                "@!%p3 bra use;\n" + wait("e", "%r37", "[%r2+8]") + f"{EXPECT} [%r2], 512;\n"
                f"!{BULK}.multicast::cluster [%r5], [%rd0], 256, [%r2], %h0;\nuse:\n@!%p1 bra on;\n" + wait("w", "%r32")
                + f"ld.shared.u32 %r36, [%r4];\n{release}on:\nxor.b32 %r32, %r32, 1;\nxor.b32 %r37, %r37, 1;\n")
            + CLUSTER)


MULTICASTS = [
    Case("multicast-release", "own threads", either(multicast(f"{ARRIVE} [%r2+8];\n", 32), multicast(
        "mbarrier.arrive.shared::cluster.b64 _, [%r24+8];\nmbarrier.arrive.shared::cluster.b64 _, [%r25+8];\n", 64)), cluster=2),
    Case("multicast-release", "by mapa to itself",
         either(multicast("mov.u32 %r26, %cluster_ctarank;\nmapa.shared::cluster.u32 %r27, %r2, %r26;\n"
         "mbarrier.arrive.shared::cluster.b64 _, [%r27+8];\n", 32), multicast(
        "mbarrier.arrive.shared::cluster.b64 _, [%r24+8];\nmbarrier.arrive.shared::cluster.b64 _, [%r25+8];\n", 64)), cluster=2),
    Case("multicast-release", "one lane", either(multicast(f"bar.warp.sync -1;\n@%p0 {ARRIVE} [%r2+8];\n", 1), multicast(
        "bar.warp.sync -1;\n@%p0 mbarrier.arrive.shared::cluster.b64 _, [%r24+8];\n"
         "@%p0 mbarrier.arrive.shared::cluster.b64 _, [%r25+8];\n", 2)),
        cluster=2),
]

THREADS = [
    Case("convergence", "ldmatrix in one thread", "-@!%p0 bra on;\n!ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r10}, [%r1];\non:\n" + SYNC),
    Case("convergence", "a guard", "-setp.lt.u32 %p10, %r0, 16;\n+setp.lt.u32 %p10, %r0, 32;\n"
         "!@%p10 stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r4], {%r0};\n" + SYNC),
    Case("convergence", "half a warpgroup", DESCRIPTOR + "-@%p1 bra on;\n" + either("!" + BEGIN, BEGIN)
         + MMA + FINISH + AWAIT + "on:\n" + SYNC, block=128),
    Case("convergence", "setmaxnreg", "-@%p1 bra on;\n!setmaxnreg.dec.sync.aligned.u32 40;\non:\n"
         + SYNC, block=128, directives=".minnctapersm 1"),
    Case("bar-count", "in one thread", "-!@%p0 bar.sync 0;\n+bar.sync 0;\nbar.warp.sync -1;\n", also=("convergence",)),
    Case("bar-count", "a count too high", "-!bar.sync 1, 96;\n+bar.sync 1, 64;\n"),
    Case("bar-count", "a count too low", "-!bar.sync 1, 32;\n+bar.sync 1, 64;\n", severity="review"),
    Case("bar-count", "two counts", "@%p1 bra one;\n-bar.arrive 2, 96;\n+bar.arrive 2, 64;\nbra end;\none:\n!bar.sync 2, 64;\nend:\n",
         severity="review"),
    Case("bar-count", "a role that does not come",
         "setp.lt.u32 %p10, %r0, 64;\n@!%p10 bra end;\n-!barrier.sync 3, 128;\n+barrier.sync 3, 64;\nend:\n", block=128),
]

REGISTERS = [
    Case("setmaxnreg-ignored", "nothing is said of the block", "!setmaxnreg.dec.sync.aligned.u32 40;\n", "review", 0,
         corrected=".maxnreg 96"),
    Case("setmaxnreg-ignored", ".reqntid alone", "!setmaxnreg.dec.sync.aligned.u32 40;\n", "review", 128, corrected=".minnctapersm 1"),
    Case("setmaxnreg-ignored", ".maxntid alone", "!setmaxnreg.dec.sync.aligned.u32 40;\n", "review", 0, directives=".maxntid 256",
         corrected=".maxntid 256 .minnctapersm 1"),
    Case("setmaxnreg-pool", "too many", "setp.lt.u32 %p10, %r0, 128;\n@%p10 bra small;\n-!setmaxnreg.inc.sync.aligned.u32 240;\n"
         "+setmaxnreg.inc.sync.aligned.u32 232;\nbra end;\nsmall:\nsetmaxnreg.dec.sync.aligned.u32 40;\nend:\n", block=384,
         directives=".minnctapersm 1"),
    Case("setmaxnreg-pool", "one gives too little", "setp.lt.u32 %p10, %r0, 128;\n@%p10 bra small;\n!setmaxnreg.inc.sync.aligned.u32 224;\n"
         "bra end;\nsmall:\n-setmaxnreg.dec.sync.aligned.u32 64;\n+setmaxnreg.dec.sync.aligned.u32 40;\nend:\n", block=384,
         directives=".minnctapersm 1"),
    Case("setmaxnreg-pool", "by .maxnreg", "setp.lt.u32 %p10, %r0, 128;\n@%p10 bra small;\n-!setmaxnreg.inc.sync.aligned.u32 160;\n"
         "+setmaxnreg.inc.sync.aligned.u32 152;\nbra end;\nsmall:\nsetmaxnreg.dec.sync.aligned.u32 40;\nend:\n", block=256,
         directives=".maxnreg 96"),
    Case("setmaxnreg-direction", "up by dec", "setp.lt.u32 %p10, %r0, 128;\n@%p10 bra small;\n-!setmaxnreg.dec.sync.aligned.u32 232;\n"
         "+setmaxnreg.inc.sync.aligned.u32 232;\nbra end;\nsmall:\nsetmaxnreg.dec.sync.aligned.u32 40;\nend:\n", block=384,
         directives=".minnctapersm 1"),
    Case("setmaxnreg-direction", "down by inc", "setp.lt.u32 %p10, %r0, 128;\n@!%p10 bra end;\n-!setmaxnreg.inc.sync.aligned.u32 40;\n"
         "+setmaxnreg.dec.sync.aligned.u32 40;\nend:\n", block=256, directives=".maxnreg 96"),
    Case("setmaxnreg-direction", "twice", "setmaxnreg.dec.sync.aligned.u32 40;\n-!setmaxnreg.dec.sync.aligned.u32 64;\n"
         "+setmaxnreg.inc.sync.aligned.u32 64;\n", block=128, directives=".maxnreg 96", severity="review"),
]

PRODUCT = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{%f0, %f1, %f2, %f3}}, %rd{}, %rd10, 0, 1, 1, {}, 0;\n"
STEPS = "add.u64 %rd11, %rd10, 2;\n{}add.u64 %rd13, %rd10, 6;\n"


def steps(second: str, transposed: str = "0", mark: str = "!") -> str:
    """Four products along K; the descriptor of the third is what is given."""
    return (DESCRIPTOR + STEPS.format(second) + BEGIN + PRODUCT.format(10, 0) + PRODUCT.format(11, 0) + mark
        + PRODUCT.format(12, transposed)
            + PRODUCT.format(13, 0) + FINISH + AWAIT + USE)


LAYOUTS = [
    Case("layout", "another swizzle", steps("-add.u64 %rd12, %rd10, 4611686018427387908;\n+add.u64 %rd12, %rd10, 4;\n"), "review", 128,
         also=("descriptor-start",)),
    Case("layout", "another stride", steps("-add.u64 %rd12, %rd10, 137438953476;\n+add.u64 %rd12, %rd10, 4;\n"), "review", 128),
    Case("layout", "transposed", either(steps("add.u64 %rd12, %rd10, 4;\n", "1"), steps("add.u64 %rd12, %rd10, 4;\n", mark="")), "review",
         128),
    Case("layout", "other rows", steps("-add.u64 %rd12, %rd10, 64;\n+add.u64 %rd12, %rd10, 4;\n"), "review", 128),
    Case("descriptor-start", "inside the pattern", DESCRIPTOR + either("add.u64 %rd10, %rd10, 8;\n", "add.u64 %rd10, %rd10, 64;\n")
         + BEGIN + "!" + MMA + FINISH
         + AWAIT + USE, "review", 128),
    Case("descriptor-start", "by its address",
         "add.u32 %r41, %r1, 1024;\n-add.u32 %r41, %r41, 512;\nshr.u32 %r40, %r41, 4;\nand.b32 %r40, %r40, 16383;\n"
         "mov.b64 %rd10, {%r40, 1073741888};\n" + BEGIN + "!" + MMA + FINISH + AWAIT + USE, "review", 128),
    Case("descriptor-start", "a narrower swizzle", "add.u32 %r41, %r1, 512;\n-add.u32 %r41, %r41, 64;\nbfe.u32 %r40, %r41, 4, 14;\n"
         "mov.b64 %rd10, {%r40, 2147483680};\n" + BEGIN + "!" + MMA + FINISH + AWAIT + USE, "review", 128),
    Case("descriptor-start", "an unaligned variable",
         "-.shared .align 128 .b8 tile[8192];\n+.shared .align 1024 .b8 tile[8192];\nmov.u32 %r41, tile;\n"
         "and.b32 %r41, %r41, 262143;\nshr.u32 %r40, %r41, 4;\nmov.b64 %rd10, {%r40, 1073741888};\n" + BEGIN + "!" + MMA + FINISH + AWAIT
         + USE, "review", 128),
]

DIVISIONS = [
    Case("division", "a power of two", "-!div.u32 %r40, %r9, 64;\n+shr.u32 %r40, %r9, 6;\n@%p0 st.global.u32 [%rd0], %r40;\n", "info"),
    Case("division", "its remainder",
         "-!rem.u64 %rd20, %rd0, 128;\n+and.b64 %rd20, %rd0, 127;\n@%p0 st.global.u64 [%rd0], %rd20;\n", "info"),
    Case("division", "any other, in a register",
         "mov.u32 %r41, 10;\n-!div.u32 %r40, %r9, %r41;\n+mul.hi.u32 %r40, %r9, 429496730;\n@%p0 st.global.u32 [%rd0], %r40;\n", "info"),
    Case("division", "of either sign", "-!rem.s32 %r40, %r9, 8;\n+and.b32 %r40, %r9, 7;\n@%p0 st.global.u32 [%rd0], %r40;\n", "info"),
]
