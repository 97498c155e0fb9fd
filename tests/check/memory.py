"""Planted mistakes with transaction bytes, the order of memory, proxies and races."""

from __future__ import annotations

from .barriers import CLUSTER, FLIP, PEER, READ, RING, either, loop, plus
from .programs import ARRIVE, BULK, EXPECT, STORE, TENSOR, Case, init, wait

COPY = f"@%p0 {BULK} [%r1], [%rd0], 256, [%r2];\n"
NEIGHBOUR = "xor.b32 %r6, %r3, 128;\nadd.u32 %r6, %r1, %r6;\n"
"""%r6: the word of the thread with the same lane in the other warp."""
FENCE = "fence.proxy.async.shared::cta;\n"
FILL = "st.shared.u32 [%r4], %r0;\n"
OUT = f"@%p0 {STORE} [%rd0], [%r1], 256;\n"
DRAIN = "@%p0 cp.async.bulk.commit_group;\n@%p0 cp.async.bulk.wait_group 0;\n"
DESCRIPTOR = "shr.u32 %r40, %r1, 4;\ncvt.u64.u32 %rd10, %r40;\nor.b64 %rd10, %rd10, 4611686293305360384;\n"
MMA = ("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, %rd10, %rd10, 0, 1, 1, 0, 0;\n")

TRANSACTIONS = [
    Case("expect-tx", "too few", init(1) + f"-!@%p0 {EXPECT} [%r2], 240;\n+@%p0 {EXPECT} [%r2], 256;\n" + COPY + wait("w")),
    Case("expect-tx", "too many", init(1) + "mov.u32 %r5, 256;\n-add.u32 %r5, %r5, 16;\n@!%p0 bra w;\n!"
         + f"{EXPECT} [%r2], %r5;\n{BULK} [%r1], [%rd0], 256, [%r2];\n" + wait("w")),
    Case("expect-tx", "more than it can count", init(1) + either("mov.u32 %r5, 1048832;\n", "mov.u32 %r5, 256;\n")
         + f"!@%p0 {EXPECT} [%r2], %r5;\n" + COPY + wait("w")),
    Case("expect-tx", "one of two copies", init(1) + f"-!@%p0 {EXPECT} [%r2], 256;\n+@%p0 {EXPECT} [%r2], 512;\n" + COPY
         + f"@%p0 {BULK} [%r1+1024], [%rd0], 256, [%r2];\n" + wait("w")),
    Case("expect-tx", "in a ring", init(1, 1) + RING.format(start=0, inside=either(
        f"!@%p0 {EXPECT} [%r33], 512;\n", f"@%p0 {EXPECT} [%r33], 256;\n") + f"@%p0 {BULK} [%r34], [%rd0], 256, [%r33];\n"
        + wait("w", "%r32", "[%r33]") + READ, flip=FLIP)),
    Case("expect-tx", "each thread of a warp copies", init(1) + f"-!@%p0 {EXPECT} [%r2], 16;\n+@%p0 {EXPECT} [%r2], 512;\n"
         f"shl.b32 %r5, %r0, 4;\nadd.u32 %r5, %r1, %r5;\n@%p1 {BULK} [%r5], [%rd0], 16, [%r2];\n" + wait("w")),
    Case("expect-tx", "nothing expects", init(1) + either(f"@%p0 {ARRIVE} [%r2];\n", f"@%p0 {EXPECT} [%r2], 256;\n") + "!" + COPY
         + wait("w")),
    Case("expect-tx", "a multicast counts in both", init(1, sync="fence.mbarrier_init.release.cluster;\n" + CLUSTER)
         + f"-!@%p0 {EXPECT} [%r2], 256;\n+@%p0 {EXPECT} [%r2], 512;\nmov.u32 %r20, %cluster_ctarank;\nshl.b32 %r5, %r20, 8;\n"
         f"add.u32 %r5, %r1, %r5;\nmov.u16 %h0, 3;\n@%p0 {BULK}.multicast::cluster [%r5], [%rd0], 256, [%r2], %h0;\n"
         + wait("w"), cluster=2),
    Case("expect-tx", "st.async", init(1, sync="fence.mbarrier_init.release.cluster;\n" + CLUSTER) + PEER
         + f"-!@%p0 {EXPECT} [%r2], 128;\n+@%p0 {EXPECT} [%r2], 256;\n"
         "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r22], %r0, [%r21];\n"
         + wait("w", opcode="mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64") + "ld.shared.u32 %r6, [%r4];\n"
         + CLUSTER, cluster=2),
    Case("expect-tx", "the first round", init(1, 1) + "mov.u32 %r5, 0;\n" + plus(f"@%p0 {EXPECT} [%r2], 256;\n")
         + f"!@%p0 {BULK} [%r1], [%rd0], 256, [%r2];\n" + loop(
        "and.b32 %r10, %r30, 1;\nxor.b32 %r11, %r10, 1;\nshl.b32 %r12, %r10, 3;\nadd.u32 %r12, %r2, %r12;\nshl.b32 %r13, %r11, 3;\n"
        "add.u32 %r13, %r2, %r13;\nshr.u32 %r14, %r30, 1;\nand.b32 %r14, %r14, 1;\nshl.b32 %r15, %r11, 10;\nadd.u32 %r15, %r1, %r15;\n"
        f"@%p0 {EXPECT} [%r13], 256;\n@%p0 {BULK} [%r15], [%rd0], 256, [%r13];\n" + wait("w", "%r14", "[%r12]") + "bar.sync 0;\n"),
        severity="review"),
]

ORDER = [
    Case("wait-order", "a relaxed wait", init(32) + f"@!%p1 bra other;\n{FILL}{ARRIVE} [%r2];\nbra done;\nother:\n"
         + either(wait("w", opcode="mbarrier.try_wait.parity.relaxed.cta.shared::cta.b64", mark="!"), wait("w"))
         + NEIGHBOUR + "ld.shared.u32 %r7, [%r6];\ndone:\n", severity="review"),
    Case("wait-order", "a relaxed test_wait before a copy's data", init(1) + f"@%p0 {EXPECT} [%r2], 256;\n{COPY}"
         + wait("w", opcode="mbarrier.test_wait.parity.relaxed.cluster.shared::cta.b64", mark="!") + plus("fence.acq_rel.cluster;\n")
         + "ld.shared.u32 %r7, [%r4];\n", severity="review"),
    Case("wait-order", "of the CTA's scope", init(64, sync="fence.mbarrier_init.release.cluster;\n" + CLUSTER) + PEER
         + "st.shared::cluster.u32 [%r22], %r0;\nmbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r21];\n"
         + either(wait("w", mark="!"), wait("w", opcode="mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64"))
         + "ld.shared.u32 %r7, [%r4];\n", cluster=2, severity="review"),
    Case("arrive-order", "a relaxed arrive", init(32) + f"@!%p1 bra other;\n{FILL}" + plus("fence.acq_rel.cta;\n")
         + "!mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%r2];\nbra done;\nother:\n" + wait("w") + NEIGHBOUR
         + "ld.shared.u32 %r7, [%r6];\ndone:\n", severity="review"),
    Case("arrive-order", "of the CTA's scope", init(64, sync="fence.mbarrier_init.release.cluster;\n" + CLUSTER) + PEER
         + "st.shared::cluster.u32 [%r22], %r0;\n" + either("!mbarrier.arrive.shared::cluster.b64 _, [%r21];\n",
                                                           "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r21];\n")
         + wait("w", opcode="mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64") + "ld.shared.u32 %r7, [%r4];\n", cluster=2,
         severity="review"),
    Case("arrive-order", "in a loop", init(32) + "@!%p1 bra other;\n" + loop(f"{FILL}") + either(
        "!mbarrier.arrive.relaxed.cluster.shared::cta.b64 _, [%r2];\n", "mbarrier.arrive.release.cluster.shared::cta.b64 _, [%r2];\n")
        + "bra done;\nother:\n" + wait("w") + NEIGHBOUR + "ld.shared.u32 %r7, [%r6];\ndone:\n", severity="review"),
]

READS = [
    Case("read-before-wait", "ld", init(1) + f"@%p0 {EXPECT} [%r2], 256;\n{COPY}" + either("!ld.shared.u32 %r7, [%r4];\n", "") + wait("w")
         + "ld.shared.u32 %r7, [%r4];\n"),
    Case("read-before-wait", "ldmatrix", init(1) + f"@%p0 {EXPECT} [%r2], 512;\n@%p0 {BULK} [%r1], [%rd0], 512, [%r2];\n" + plus(wait("w"))
         + "and.b32 %r5, %r0, 31;\nshl.b32 %r5, %r5, 4;\nadd.u32 %r5, %r1, %r5;\n"
         "!ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r5];\n" + plus(wait("v", 0), "-")),
    Case("read-before-wait", "wgmma", init(1) + f"@%p0 {EXPECT} [%r2], 4096;\n@%p0 {BULK} [%r1], [%rd0], 4096, [%r2];\n" + DESCRIPTOR
         + plus(wait("w")) + "wgmma.fence.sync.aligned;\n!" + MMA + "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n"
         + plus(wait("v", 0), "-"), block=128),
    Case("read-before-wait", "only the issuer waits", init(1) + f"@!%p0 bra on;\n{EXPECT} [%r2], 256;\n{BULK} [%r1], [%rd0], 256, [%r2];\n"
         + wait("w") + "on:\n" + plus("bar.sync 0;\n") + "!ld.shared.u32 %r7, [%r4];\n", severity="review"),
    Case("read-before-wait", "a warp waits for both", init(1) + f"@%p0 {EXPECT} [%r2], 256;\n{COPY}@!%p1 bra on;\n" + wait("w") + "on:\n"
         "-bar.warp.sync -1;\n+bar.sync 0;\n!ld.shared.u32 %r7, [%r4];\n", severity="review"),
    Case("read-before-wait", "on one path", init(1) + f"@%p0 {EXPECT} [%r2], 256;\n{COPY}-setp.gt.u32 %p10, %r9, 7;\n-@%p10 bra skip;\n"
         + wait("w") + "skip:\n!ld.shared.u32 %r7, [%r4];\n", severity="review"),
    Case("copy-overwrite", "a loop of copies", init(1) + "mov.u32 %r12, 0;\n" + loop(
        f"@%p0 {EXPECT} [%r2], 256;\n!{COPY}" + plus(wait("w", "%r12") + "xor.b32 %r12, %r12, 1;\nbar.sync 0;\n"))
        + plus(wait("v", 0), "-")),
    Case("copy-overwrite", "in one thread", init(1) + "@!%p0 bra done;\n" + loop(
        f"{EXPECT} [%r2], 256;\n!{BULK} [%r1], [%rd0], 256, [%r2];\n" + plus("and.b32 %r12, %r30, 1;\n" + wait("w", "%r12")))
        + "done:\n" + plus(wait("v", 0), "-")),
    Case("copy-overwrite", "two stages without a release", init(1, 1) + "mov.u32 %r31, 0;\nmov.u32 %r32, 0;\n@!%p0 bra done;\n" + loop(
        "shl.b32 %r33, %r31, 3;\nadd.u32 %r33, %r2, %r33;\nshl.b32 %r34, %r31, 8;\nadd.u32 %r34, %r1, %r34;\n"
        f"{EXPECT} [%r33], 256;\n!{BULK} [%r34], [%rd0], 256, [%r33];\n" + plus(wait("w", "%r32", "[%r33]"))
        + "add.u32 %r31, %r31, 1;\nsetp.eq.u32 %p8, %r31, 2;\nselp.u32 %r31, 0, %r31, %p8;\n@%p8 xor.b32 %r32, %r32, 1;\n") + "done:\n"
        + plus(wait("v", 0), "-"), severity="review"),
    Case("bulk-alignment", "the address", init(1) + f"@%p0 {EXPECT} [%r2], 256;\n" + either(
        f"!@%p0 {BULK} [%r1+8], [%rd0], 256, [%r2];\n", f"@%p0 {BULK} [%r1+16], [%rd0], 256, [%r2];\n") + wait("w")),
    Case("bulk-alignment", "the size", init(1) + either("mov.u32 %r5, 100;\n", "mov.u32 %r5, 96;\n") + f"@%p0 {EXPECT} [%r2], %r5;\n"
         f"!@%p0 {BULK} [%r1], [%rd0], %r5, [%r2];\n" + wait("w")),
    Case("bulk-alignment", "a tile", init(1) + f"mov.u32 %r5, 0;\n@%p0 {EXPECT} [%r2], 4096;\n" + either(
        "!@%p0 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1+64], [%rd9, {%r5, %r5}], [%r2];\n",
        "@%p0 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1+128], [%rd9, {%r5, %r5}], [%r2];\n")
        + wait("w")),
    Case("bulk-alignment", "words for bytes", FILL + FENCE + "bar.sync 0;\nmov.u32 %r5, %ctaid.x;\nshl.b32 %r5, %r5, 4;\n"
         f"-add.u32 %r5, %r5, 4;\n!@%p0 {STORE} [%rd0], [%r1], %r5;\n" + DRAIN),
    Case("bulk-alignment", "rows of 96 bytes for boxes", init(1) + "mov.u32 %r5, 0;\nmov.u32 %r6, %ctaid.x;\n"
         f"mad.lo.u32 %r6, %r6, 256, %r1;\n-add.u32 %r6, %r6, 96;\n@%p0 {EXPECT} [%r2], 4096;\n"
         f"!@%p0 {TENSOR} [%r6], [%rd9, {{%r5, %r5}}], [%r2];\n" + wait("w")),
    Case("bulk-alignment", "a store", FILL + FENCE + "bar.sync 0;\n" + either(f"!@%p0 {STORE} [%rd0], [%r1+4], 128;\n",
                                                                            f"@%p0 {STORE} [%rd0], [%r1+16], 128;\n") + DRAIN),
]

RACES = [
    Case("shared-race", "a neighbour's word", FILL + plus("bar.sync 0;\n") + NEIGHBOUR + "!ld.shared.u32 %r7, [%r6];\n"),
    Case("shared-race", "written after it is read", FILL + "bar.sync 0;\n" + NEIGHBOUR + "ld.shared.u32 %r7, [%r6];\n"
         + plus("bar.sync 0;\n")
         + "!st.shared.u32 [%r4], %r7;\n"),
    Case("shared-race", "lanes of a warp", FILL + plus("bar.warp.sync -1;\n") + "xor.b32 %r6, %r3, 4;\nadd.u32 %r6, %r1, %r6;\n"
         "!ld.shared.u32 %r7, [%r6];\n", severity="review", block=32),
    Case("shared-race", "in a loop", loop(FILL + "bar.sync 0;\n" + NEIGHBOUR + "ld.shared.u32 %r7, [%r6];\n" + plus("bar.sync 0;\n"))
         .replace("st.shared", "!st.shared")),
    Case("shared-race", "on one path", FILL + "setp.gt.u32 %p10, %r9, 5;\n-@%p10 bra skip;\nbar.sync 0;\n-skip:\n" + NEIGHBOUR
         + "!ld.shared.u32 %r7, [%r6];\n", severity="review", also=("bar-count",)),
    Case("shared-race", "vectors", "shl.b32 %r5, %r0, 4;\nadd.u32 %r5, %r1, %r5;\nst.shared.v4.u32 [%r5], {%r0, %r0, %r0, %r0};\n"
         + plus("barrier.sync 0;\n") + "shl.b32 %r6, %r0, 2;\nadd.u32 %r6, %r1, %r6;\n!ld.volatile.shared.u32 %r7, [%r6+512];\n"),
    Case("shared-race", "a warp that sums", FILL + plus("bar.sync 0;\n") + "@!%p1 bra done;\n!ld.shared.u32 %r7, [%r4+128];\ndone:\n"),
    Case("shared-race", "stmatrix", "and.b32 %r5, %r0, 31;\nshl.b32 %r5, %r5, 4;\nshr.u32 %r10, %r0, 5;\nshl.b32 %r10, %r10, 9;\n"
         "add.u32 %r5, %r5, %r10;\nadd.u32 %r5, %r1, %r5;\nstmatrix.sync.aligned.m8n8.x4.shared.b16 [%r5], {%r0, %r0, %r0, %r0};\n"
         + plus("bar.sync 0;\n") + "xor.b32 %r6, %r3, 128;\nshl.b32 %r6, %r6, 2;\nadd.u32 %r6, %r1, %r6;\n!ld.shared.u32 %r7, [%r6];\n"),
    Case("elected-arrive", "thread 0 of a warp", init(1) + f"@!%p1 bra other;\n{FILL}" + plus("bar.warp.sync -1;\n")
         + f"!@%p0 {ARRIVE} [%r2];\nbra done;\nother:\n" + wait("w") + NEIGHBOUR + "ld.shared.u32 %r7, [%r6];\ndone:\n", severity="review"),
    Case("elected-arrive", "elect.sync", init(1) + f"@!%p1 bra other;\n{FILL}" + plus("bar.warp.sync 0xffffffff;\n")
         + f"elect.sync _|%p10, 0xffffffff;\n!@%p10 {ARRIVE} [%r2];\nbra done;\nother:\n" + wait("w") + NEIGHBOUR
         + "ld.shared.u32 %r7, [%r6];\ndone:\n", severity="review"),
    Case("elected-arrive", "after loads", init(1, 1) + f"@!%p1 bra other;\n@%p0 {ARRIVE} [%r2];\n" + wait("v", 0, "[%r2+8]")
         + FILL + "bra done;\nother:\n" + wait("w") + NEIGHBOUR + "ld.shared.u32 %r7, [%r6];\nadd.u32 %r8, %r7, %r8;\n"
         + plus("bar.warp.sync -1;\n") + "setp.eq.u32 %p10, %r0, 32;\n" + f"!@%p10 {ARRIVE} [%r2+8];\ndone:\n", severity="review"),
    Case("copy-wait", "no wait", "cp.async.ca.shared.global [%r4], [%rd1], 4;\n" + plus("cp.async.wait_all;\n")
         + "!ld.shared.u32 %r7, [%r4];\n"),
    Case("copy-wait", "no group", "cp.async.ca.shared.global [%r4], [%rd1], 4;\n" + plus("cp.async.commit_group;\n")
         + "cp.async.wait_group 0;\n!ld.shared.u32 %r7, [%r4];\n", severity="review"),
    Case("copy-wait", "a wait that leaves it", "cp.async.ca.shared.global [%r4], [%rd1], 4;\ncp.async.commit_group;\n"
         + either("cp.async.wait_group 1;\n", "cp.async.wait_group 0;\n") + "!ld.shared.u32 %r7, [%r4];\n",
         severity="review"),
    Case("copy-wait", "a ring that never waits", loop(
        "and.b32 %r10, %r30, 3;\nshl.b32 %r10, %r10, 8;\nadd.u32 %r11, %r4, %r10;\n+bar.sync 0;\n"
        "cp.async.ca.shared.global [%r11], [%rd1], 4;\ncp.async.commit_group;\n" + plus("cp.async.wait_group 1;\nbar.sync 0;\n")
        + "add.u32 %r12, %r30, 1;\nand.b32 %r12, %r12, 3;\nshl.b32 %r12, %r12, 8;\nadd.u32 %r12, %r4, %r12;\n"
        "!ld.shared.u32 %r7, [%r12];\n"), severity="review"),
    Case("copy-wait", "stored out", "cp.async.ca.shared.global [%r4], [%rd1], 4;\ncp.async.commit_group;\n"
         + plus("cp.async.wait_group 0;\n")
         + FENCE + f"bar.sync 0;\n!{OUT}" + DRAIN),
]

PROXIES = [
    Case("proxy-fence", "a bulk store", FILL + plus(FENCE) + f"bar.sync 0;\n!{OUT}" + DRAIN),
    Case("proxy-fence", "behind the barrier in the writers", FILL + "+" + FENCE + "bar.sync 0;\n-@!%p0 fence.proxy.async;\n!" + OUT + DRAIN,
         severity="review"),
    Case("proxy-fence", "of global memory", FILL + either("fence.proxy.async.global;\n", FENCE) + f"bar.sync 0;\n!{OUT}" + DRAIN),
    Case("proxy-fence", "stmatrix and a tensor store", "and.b32 %r5, %r0, 31;\nshl.b32 %r5, %r5, 4;\nshr.u32 %r10, %r0, 5;\n"
         "shl.b32 %r10, %r10, 9;\nadd.u32 %r5, %r5, %r10;\nadd.u32 %r5, %r1, %r5;\n"
         "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r5], {%r0, %r0, %r0, %r0};\n" + plus("fence.proxy.async;\n")
         + "bar.sync 1, 64;\nmov.u32 %r6, 0;\n"
         "!@%p0 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd9, {%r6, %r6}], [%r1];\n" + DRAIN),
    Case("proxy-fence", "wgmma", DESCRIPTOR
         + "shl.b32 %r5, %r0, 4;\nadd.u32 %r5, %r1, %r5;\nst.shared.v4.u32 [%r5], {%r0, %r0, %r0, %r0};\n"
         + plus(FENCE) + "bar.sync 0;\nwgmma.fence.sync.aligned;\n!" + MMA
         + "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\nst.global.f32 [%rd1], %f0;\n", block=128),
    Case("proxy-fence", "cp.async and wgmma", DESCRIPTOR + "shl.b32 %r5, %r0, 4;\nadd.u32 %r5, %r1, %r5;\n"
         "cp.async.cg.shared.global [%r5], [%rd0], 16;\ncp.async.wait_all;\n" + plus(FENCE) + "bar.sync 0;\nwgmma.fence.sync.aligned;\n!"
         + MMA
         + "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\nst.global.f32 [%rd1], %f0;\n", block=128),
    Case("proxy-fence", "on one path", FILL + "setp.gt.u32 %p10, %r9, 5;\n-@%p10 bra skip;\n" + FENCE + f"-skip:\nbar.sync 0;\n!{OUT}"
         + DRAIN,
         severity="review"),
    Case("proxy-fence", "one warp does not fence", FILL + "-@%p1 fence.proxy.async;\n+fence.proxy.async;\n" + f"bar.sync 0;\n!{OUT}"
         + DRAIN,
         severity="review"),
    Case("proxy-fence", "through an mbarrier", init(64) + FILL + plus(FENCE) + ARRIVE + " [%r2];\n@!%p0 bra done;\n" + wait("w")
         + f"!{STORE} [%rd0], [%r1], 256;\ncp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\ndone:\n"),
    Case("store-barrier", "a bulk store", FILL + FENCE + plus("bar.sync 0;\n") + f"!{OUT}" + DRAIN),
    Case("store-barrier", "a warp alone meets", FILL + FENCE + either("bar.warp.sync -1;\n", "bar.sync 0;\n") + f"!{OUT}" + DRAIN),
    Case("store-barrier", "wgmma", DESCRIPTOR
         + "shl.b32 %r5, %r0, 4;\nadd.u32 %r5, %r1, %r5;\nst.shared.v4.u32 [%r5], {%r0, %r0, %r0, %r0};\n"
         + FENCE + plus("bar.sync 0;\n") + "wgmma.fence.sync.aligned;\n!" + MMA
         + "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\nst.global.f32 [%rd1], %f0;\n", block=128),
    Case("store-barrier", "on one path", FILL + FENCE + "setp.gt.u32 %p10, %r9, 5;\n-@%p10 bra skip;\nbar.sync 0;\n-skip:\n!" + OUT + DRAIN,
         severity="review", also=("bar-count",)),
]

EDIT = ("@!%p1 bra done;\nmov.u32 %r5, 0;\n@%p0 tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r1+16384], %rd0;\n"
        "bar.warp.sync -1;\n")
RELEASE = "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd0], [%r1+16384], 128;\n"
ACQUIRE = "fence.proxy.tensormap::generic.acquire.gpu [%rd0], 128;\n"
LOAD = (f"@%p0 {EXPECT} [%r2], 4096;\n!@%p0 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], "
        "[%rd0, {%r5, %r5}], [%r2];\ndone:\n" + wait("w"))

TENSORMAPS = [
    Case("tensormap-fence", "no acquire", init(1) + EDIT + RELEASE + plus(ACQUIRE) + LOAD, severity="review"),
    Case("tensormap-fence", "no release", init(1) + EDIT + plus(RELEASE) + ACQUIRE + LOAD, severity="review"),
    Case("tensormap-fence", "edited in global memory", init(1) + "@!%p1 bra done;\nmov.u32 %r5, 0;\n"
         "@%p0 tensormap.replace.tile.global_dim.global.b1024.b32 [%rd0], 0, %r9;\n" + plus(
             "fence.proxy.tensormap::generic.release.gpu;\n" + ACQUIRE) + LOAD, severity="review"),
    Case("tensormap-fence", "a store", "@!%p1 bra done;\nmov.u32 %r5, 0;\n"
         "@%p0 tensormap.replace.tile.global_stride.global.b1024.b64 [%rd0], 0, "
         "%rd0;\n" + plus("fence.proxy.tensormap::generic.release.gpu;\n" + ACQUIRE)
         + "!@%p0 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd0, {%r5, %r5}], [%r1];\n" + DRAIN + "done:\n",
         severity="review"),
]

UNDEFINED = [
    Case("register-undefined", "a wait that is gone", init(64) + ARRIVE + " [%r2];\nw:\n" + plus(
        "mbarrier.try_wait.parity.shared::cta.b64 %p7, [%r2], 0;\n") + "!@!%p7 bra w;\n"),
    Case("register-undefined", "an address", FILL + either("!ld.shared.u32 %r7, [%r40];\n", "ld.shared.u32 %r7, [%r4];\n")),
    Case("register-undefined", "a comparison", either("setp.eq.u32 %p10, %r40, 0;\n", "setp.eq.u32 %p10, %r0, 0;\n")
         + "!@%p10 st.global.u32 [%rd1], %r0;\n"),
    Case("register-undefined", "an index in a loop", loop(either("shl.b32 %r5, %r41, 2;\n", "shl.b32 %r5, %r30, 2;\n")
                                                        + "add.u32 %r6, %r4, %r5;\n!ld.shared.u32 %r7, [%r6];\n"), also=("shared-race",)),
]
