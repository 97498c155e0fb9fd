"""Planted mistakes with mbarriers, clusters and their transactions."""

from __future__ import annotations

from .programs import ARRIVE, BULK, CLUSTER, EXPECT, Case, init, wait

PEER = ("mov.u32 %r20, %cluster_ctarank;\nxor.b32 %r20, %r20, 1;\n"
        "mapa.shared::cluster.u32 %r21, %r2, %r20;\nmapa.shared::cluster.u32 %r22, %r4, %r20;\n")
"""%r21: the other CTA's mbarriers, %r22 the thread's word there."""
RELAXED = "barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.acquire.aligned;\n"
FENCE = "fence.mbarrier_init.release.cluster;\n"
ALL = ARRIVE + " [%r2];\n"
REMOTE = "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r21];\n"
FROM_PEERS = wait("last", opcode="mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64")


def plus(text: str, sign: str = "+") -> str:
    """Every line in the twin only (or, with "-", in the mistaken kernel only)."""
    return "".join(f"{sign}{line}\n" for line in text.splitlines())


def either(wrong: str, right: str) -> str:
    return plus(wrong, "-") + plus(right)


def loop(body: str, label: str = "again", times: str = "%r9", counter: str = "%r30") -> str:
    """A loop over a counter."""
    return (f"mov.u32 {counter}, 0;\n{label}:\n{body}add.u32 {counter}, {counter}, 1;\nsetp.lt.u32 %p9, {counter}, {times};\n"
            f"@%p9 bra {label};\n")


RING = ("mov.u32 %r31, 0;\nmov.u32 %r32, {start};\n" + loop(
    "shl.b32 %r33, %r31, 3;\nadd.u32 %r33, %r2, %r33;\nshl.b32 %r34, %r31, 8;\nadd.u32 %r34, %r1, %r34;\n{inside}"
    "add.u32 %r31, %r31, 1;\nsetp.eq.u32 %p8, %r31, 2;\nselp.u32 %r31, 0, %r31, %p8;\n{flip}"))
"""Two stages: %r33 the stage's mbarrier, %r34 its buffer of 256 bytes, %r32 the parity, which the last lines flip."""
FLIP = "@%p8 xor.b32 %r32, %r32, 1;\n"
FULL = f"@%p0 {EXPECT} [%r33], 256;\n@%p0 {BULK} [%r34], [%rd0], 256, [%r33];\n"
READ = "add.u32 %r35, %r34, %r3;\nld.shared.u32 %r36, [%r35];\nbar.sync 0;\n"

STARTUP = [
    Case("init-twice", "again", init(64) + ALL + wait("w") + "bar.sync 0;\n+@%p0 mbarrier.inval.shared::cta.b64 [%r2];\n"
         "!@%p0 mbarrier.init.shared::cta.b64 [%r2], 64;\n"),
    Case("init-twice", "one barrier for another", "@%p0 mbarrier.init.shared::cta.b64 [%r2], 64;\n"
         "+@%p0 mbarrier.init.shared::cta.b64 [%r2+8], 64;\n-!@%p0 mbarrier.init.shared::cta.b64 [%r2], 64;\nbar.sync 0;\n" + ALL),
    Case("init-twice", "in a branch", "@!%p0 bra ready;\nmbarrier.init.shared.b64 [%r2], 64;\n"
         "+add.u32 %r5, %r2, 8;\n-add.u32 %r5, %r2, 0;\n"
         "!mbarrier.init.shared.b64 [%r5], 64;\nready:\nbar.sync 0;\n" + ALL),
    Case("init-before-use", "arrive", init(64, sync="+bar.sync 0;\n") + "!" + ALL),
    Case("init-before-use", "wait", init(1, sync="") + f"@%p0 {ARRIVE} [%r2];\n+bar.sync 0;\n" + wait("w", mark="!")),
    Case("init-before-use", "a warp alone meets", init(64, sync="-bar.warp.sync -1;\n+bar.sync 0;\n") + "!" + ALL),
    Case("init-before-use", "on one path", init(64, sync="setp.gt.u32 %p10, %r9, 5;\n-@%p10 bra past;\nbar.sync 0;\n-past:\n") + "!" + ALL,
         severity="review", also=("bar-count",)),
    Case("init-before-use", "another copies", "setp.eq.u32 %p10, %r0, 32;\n" + init(1, sync="+bar.sync 0;\n")
         + f"!@%p10 {EXPECT} [%r2], 256;\n@%p10 {BULK} [%r1], [%rd0], 256, [%r2];\nbar.sync 0;\n" + wait("w")),
    Case("init-before-use", "every thread initialises", "-mbarrier.init.shared::cta.b64 [%r2], 64;\n" + plus(init(64)) + "!" + ALL),
    Case("init-fence", "arrive", "-!@%p0 mbarrier.init.shared::cta.b64 [%r2], 64;\n+@%p0 mbarrier.init.shared::cta.b64 [%r2], 64;\n+"
         + FENCE
         + RELAXED + PEER + REMOTE + FROM_PEERS, cluster=2),
    Case("init-fence", "a fence of the CTA's scope", "!@%p0 mbarrier.init.shared::cta.b64 [%r2], 64;\n-fence.acq_rel.cta;\n"
         "+fence.acq_rel.cluster;\n" + RELAXED + PEER + REMOTE + FROM_PEERS, cluster=2),
    Case("init-fence", "multicast", "!@%p0 mbarrier.init.shared::cta.b64 [%r2], 1;\n+" + FENCE + RELAXED
         + f"@%p0 {EXPECT} [%r2], 256;\nmov.u32 %r20, %cluster_ctarank;\n"
         f"setp.eq.u32 %p10, %r20, 0;\nand.pred %p10, %p10, %p0;\nmov.u16 %h0, 3;\n"
         f"@%p10 {BULK}.multicast::cluster [%r1], [%rd0], 256, [%r2], %h0;\n" + wait("w"), cluster=2),
    Case("cluster-entry", "arrive", init(64, sync=plus(CLUSTER)) + "-bar.sync 0;\n" + PEER + "!" + REMOTE + FROM_PEERS, cluster=2),
    Case("cluster-entry", "store", plus(CLUSTER) + PEER + "!st.shared::cluster.u32 [%r22], %r0;\n" + CLUSTER, cluster=2),
    Case("cluster-entry", "a generic store", plus(CLUSTER)
         + "mov.u64 %rd10, smem;\ncvta.shared.u64 %rd10, %rd10;\nmapa.u64 %rd11, %rd10, 1;\n"
         "!st.u32 [%rd11], %r9;\n" + CLUSTER, cluster=2),
    Case("cluster-entry", "multicast", init(1, sync=FENCE + "-bar.sync 0;\n" + plus(CLUSTER)) + f"@%p0 {EXPECT} [%r2], 256;\n"
         "mov.u32 %r20, %cluster_ctarank;\nsetp.eq.u32 %p10, %r20, 0;\nand.pred %p10, %p10, %p0;\nmov.u16 %h0, 3;\n"
         f"!@%p10 {BULK}.multicast::cluster [%r1], [%rd0], 256, [%r2], %h0;\n" + wait("w"), cluster=2),
    Case("cluster-entry", "reading", "st.shared.u32 [%r4], %r0;\n" + plus(CLUSTER) + "-bar.sync 0;\n" + PEER
         + "!ld.shared::cluster.u32 %r23, [%r22];\n" + CLUSTER, cluster=4),
    Case("cluster-entry", "before the init", plus("@%p0 mbarrier.init.shared::cta.b64 [%r2], 64;\n") + CLUSTER
         + plus("@%p0 mbarrier.init.shared::cta.b64 [%r2], 64;\nbar.sync 0;\n", "-") + PEER + "!" + REMOTE
         + FROM_PEERS, severity="review", cluster=2),
]

ARRIVALS = [
    Case("arrive-count", "more than come", either(init(65, mark="!"), init(64)) + ALL + wait("w")),
    Case("arrive-count", "less than come",
         "-!@%p0 mbarrier.init.shared::cta.b64 [%r2], 1;\n+@%p0 mbarrier.init.shared::cta.b64 [%r2], 32;\n"
         f"bar.sync 0;\n@%p1 {ALL}" + wait("w")),
    Case("arrive-count", "a count at the arrive", either(init(63, mark="!"), init(128)) + "mov.u32 %r5, 2;\n"
         f"{ARRIVE} [%r2], %r5;\n" + wait("w")),
    Case("arrive-count", "one lane of each warp",
         "-!@%p0 mbarrier.init.shared::cta.b64 [%r2], 3;\n+@%p0 mbarrier.init.shared::cta.b64 [%r2], 2;\n"
         f"bar.sync 0;\nelect.sync _|%p10, 0xffffffff;\n@%p10 {ALL}" + wait("w")),
    Case("arrive-count", "copies and a thread",
         "-!@%p0 mbarrier.init.shared::cta.b64 [%r2], 2;\n+@%p0 mbarrier.init.shared::cta.b64 [%r2], 1;\n"
         f"bar.sync 0;\n@%p0 {EXPECT} [%r2], 256;\n@%p0 {BULK} [%r1], [%rd0], 256, [%r2];\n" + wait("w"), severity="review"),
    Case("arrive-count", "from another CTA",
         "-!@%p0 mbarrier.init.shared::cta.b64 [%r2], 63;\n+@%p0 mbarrier.init.shared::cta.b64 [%r2], 64;\n"
         + CLUSTER + PEER + REMOTE + FROM_PEERS, cluster=2),
    Case("arrive-count", "cp.async arrives",
         "-!@%p0 mbarrier.init.shared::cta.b64 [%r2], 128;\n+@%p0 mbarrier.init.shared::cta.b64 [%r2], 64;\n"
         "bar.sync 0;\ncp.async.ca.shared.global [%r4], [%rd1], 4;\ncp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r2];\n" + wait("w"),
         severity="review"),
    Case("barrier-uninitialised", "another one", init(64, sync="bar.sync 0;\n") + f"-!{ARRIVE} [%r2+8];\n+{ARRIVE} [%r2];\n" + wait("w"),
         also=("wait-without-arrival",)),
    Case("barrier-uninitialised", "none", plus(init(64)) + "-bar.sync 0;\n!" + ALL + wait("w")),
    Case("barrier-uninitialised", "a copy's", init(1) + f"@%p0 {EXPECT} [%r2], 256;\n-!@%p0 {BULK} [%r1], [%rd0], 256, [%r2+16];\n"
         f"+@%p0 {BULK} [%r1], [%rd0], 256, [%r2];\n" + wait("w"), also=("expect-tx",)),
    Case("barrier-uninitialised", "one of a ring", "-!@%p0 mbarrier.init.shared::cta.b64 [%r2], 1;\n"
         + plus(init(1, 1, 1, 1, sync="")) + "bar.sync 0;\n" + RING.format(start=0, inside=FULL + wait("w", "%r32", "[%r33]")
         + READ, flip=FLIP),
         severity="review"),
    Case("wait-without-arrival", "nobody", init(64) + plus(ALL) + wait("w", mark="!")),
    Case("wait-without-arrival", "on another barrier", init(64, 64) + f"-{ARRIVE} [%r2+8];\n" + plus(ALL) + wait("w", mark="!")),
    Case("wait-without-arrival", "expect_tx is no arrival", init(1) + "-@%p0 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r2], 256;\n"
         f"+@%p0 {EXPECT} [%r2], 256;\n@%p0 {BULK} [%r1], [%rd0], 256, [%r2];\n" + wait("w", mark="!")),
    Case("wait-without-arrival", "test_wait in a loop", init(64) + plus(ALL) + wait("w", mark="!",
         opcode="mbarrier.test_wait.parity.shared.b64")),
    Case("phase-deadlock", "each waits for the other", init(32, 32) + "@%p1 bra one;\n" + either(
        wait("a", 0), wait("a", 1)) + f"{ARRIVE} [%r2+8];\nbra end;\none:\n" + wait("b", 0, "[%r2+8]", mark="!")
        + f"{ARRIVE} [%r2];\nend:\n"),
    Case("phase-deadlock", "a ring whose producer waits for data", init(1, 32) + "@%p1 bra one;\n" + either(
        wait("a", 0, "[%r2+8]", mark="!"), wait("a", 1, "[%r2+8]")) + "setp.eq.u32 %p10, %r0, 32;\n"
        f"@%p10 {EXPECT} [%r2], 256;\n@%p10 {BULK} [%r1], [%rd0], 256, [%r2];\nbra end;\none:\n" + wait("b", 0)
        + f"ld.shared.u32 %r36, [%r4];\n{ARRIVE} [%r2+8];\nend:\n"),
    Case("phase-deadlock", "in a loop", init(32, 32) + "@%p1 bra one;\n" + either("mov.u32 %r32, 0;\n", "mov.u32 %r32, 1;\n") + loop(
        wait("a", "%r32") + f"{ARRIVE} [%r2+8];\nxor.b32 %r32, %r32, 1;\n") + "bra end;\none:\nmov.u32 %r32, 0;\n" + loop(
        wait("b", "%r32", "[%r2+8]", mark="!") + f"{ARRIVE} [%r2];\nxor.b32 %r32, %r32, 1;\n", "more") + "end:\n"),
    Case("parity-start", "data", init(1, 1) + RING.format(start="{start}", inside=FULL + wait("w", "%r32", "[%r33]", mark="!")
         + READ, flip=FLIP)
         .replace("mov.u32 %r32, {start};\n", either("mov.u32 %r32, 1;", "mov.u32 %r32, 0;")), severity="review"),
    Case("parity-start", "by an xor", init(1, 1) + RING.format(
        start=0, inside=FULL + "-xor.b32 %r38, %r32, 1;\n+mov.b32 %r38, %r32;\n" + wait("w", "%r38", "[%r33]", mark="!") + READ, flip=FLIP),
        severity="review"),
    Case("parity-start", "one buffer", init(1) + either("mov.u32 %r32, 1;\n", "mov.u32 %r32, 0;\n") + loop(
        f"@%p0 {EXPECT} [%r2], 256;\n@%p0 {BULK} [%r1], [%rd0], 256, [%r2];\n" + wait("w", "%r32", mark="!")
        + "ld.shared.u32 %r36, [%r4];\nbar.sync 0;\nxor.b32 %r32, %r32, 1;\n"), severity="review"),
    Case("parity-fixed", "the flip forgotten", init(1, 1) + RING.format(
        start=0, inside=FULL + wait("w", "%r32", "[%r33]", mark="!") + READ, flip=plus(FLIP)), severity="review"),
    Case("parity-fixed", "a literal", init(1, 1) + RING.format(
        start=0, inside=FULL + either(wait("w", "0", "[%r33]", mark="!"), wait("w", "%r32", "[%r33]"))
        + READ, flip=FLIP), severity="review"),
    Case("parity-fixed", "one buffer", init(1) + "mov.u32 %r32, 0;\n" + loop(
        f"@%p0 {EXPECT} [%r2], 256;\n@%p0 {BULK} [%r1], [%rd0], 256, [%r2];\n" + wait("w", "%r32", mark="!")
        + "ld.shared.u32 %r36, [%r4];\nbar.sync 0;\n+xor.b32 %r32, %r32, 1;\n"), severity="review"),
    Case("wait-result", "no loop", init(64) + ALL + "w:\n!mbarrier.try_wait.parity.shared::cta.b64 %p7, [%r2], 0;\n+@!%p7 bra w;\n"),
    Case("wait-result", "both ways lead on", init(64) + ALL + "w:\n!mbarrier.try_wait.parity.shared::cta.b64 %p7, [%r2], 0;\n"
         "+@!%p7 bra w;\n-@!%p7 bra on;\n-on:\n", severity="review"),
    Case("wait-result", "test_wait", init(64) + ALL + "w:\n!mbarrier.test_wait.parity.acquire.cta.shared::cta.b64 %p7, [%r2], 0;\n"
         "+@!%p7 bra w;\n"),
    Case("wait-result", "with a state", init(64) + "mbarrier.arrive.shared::cta.b64 %rd12, [%r2];\nw:\n"
         "!mbarrier.try_wait.shared::cta.b64 %p7, [%r2], %rd12;\n+@!%p7 bra w;\n"),
]
