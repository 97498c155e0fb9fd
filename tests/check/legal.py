"""Kernels that are right though they look like the mistakes: written another way, or more than they need."""

from __future__ import annotations

from .barriers import CLUSTER, FROM_PEERS, PEER, REMOTE, loop
from .groups import AWAIT, BEGIN, COMMIT, FINISH, LEAVES, MORE, OUT, SYNC, USE
from .memory import COPY, DESCRIPTOR, FENCE, FILL, NEIGHBOUR
from .programs import ARRIVE, BULK, EXPECT, STORE, Case, init, wait

LEGAL = [Case("", name, body, "error", *sizes) for name, body, *sizes in (
    ("bytes expected at once, copied in a loop", init(1) + f"@!%p0 bra w;\n{EXPECT} [%r2], 1024;\n" + loop(
        f"shl.b32 %r5, %r30, 8;\nadd.u32 %r5, %r1, %r5;\n{BULK} [%r5], [%rd0], 256, [%r2];\n", times="4") + wait("w")),
    ("bytes expected copy by copy", init(1) + f"@%p0 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r2], 256;\n{COPY}"
     "@%p0 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r2], 512;\n"
     f"@%p0 {BULK} [%r1+256], [%rd0], 512, [%r2];\n@%p0 {ARRIVE} [%r2];\n" + wait("w")),
    ("the copy before its expect_tx", init(1) + f"{COPY}@%p0 {EXPECT} [%r2], 256;\n" + wait("w")),
    ("a look before the wait", init(64) + ARRIVE + " [%r2];\nmbarrier.try_wait.parity.shared::cta.b64 %p8, [%r2], 0;\n@%p8 bra on;\n"
     + wait("w") + "on:\n"),
    ("test_wait with a sleep", init(64) + ARRIVE + " [%r2];\nw:\nmbarrier.test_wait.parity.shared::cta.b64 %p7, [%r2], 0;\n@%p7 bra on;\n"
     "nanosleep.u32 20;\nbra w;\non:\n"),
    ("a second phase", init(64) + ARRIVE + " [%r2];\n" + wait("w") + ARRIVE + " [%r2];\n" + wait("v", 1)),
    ("two arrives make one phase", init(128) + ARRIVE + " [%r2];\n" + ARRIVE + " [%r2];\n" + wait("w")),
    ("each of two warps arrives at its own line", init(32) + "setp.ge.u32 %p10, %r0, 32;\nsetp.gt.u32 %p11, %r9, 3;\n"
     f"and.pred %p12, %p11, %p10;\nnot.pred %p13, %p11;\nand.pred %p14, %p13, %p1;\n@%p12 {ARRIVE} [%r2];\n@%p14 {ARRIVE} [%r2];\n"
     + wait("w")),
    ("one role or the other arrives", init(32) + f"@%p1 bra one;\nbra end;\none:\n{ARRIVE} [%r2];\nend:\n" + wait("w")),
    ("an init by another thread than 0", "setp.eq.u32 %p10, %r0, 33;\n@%p10 mbarrier.init.shared::cta.b64 [%r2], 64;\nbarrier.sync 0;\n"
     + ARRIVE + " [%r2];\n" + wait("w")),
    ("a cluster barrier for bar.sync", init(64, sync=CLUSTER) + ARRIVE + " [%r2];\n" + wait("w"), 64, 2),
    ("init, then a barrier with the default release", init(64, sync="barrier.cluster.arrive;\nbarrier.cluster.wait;\n") + PEER + REMOTE
     + FROM_PEERS, 64, 2),
    ("arrive early, wait late", "@%p0 mbarrier.init.shared::cta.b64 [%r2], 64;\nfence.mbarrier_init.release.cluster;\n"
     "barrier.cluster.arrive.relaxed;\n" + FILL.replace("%r4", "%r4+4096") + "barrier.cluster.wait;\n" + PEER + REMOTE + FROM_PEERS, 64, 2),
    ("its own memory by mapa", "mov.u32 %r20, %cluster_ctarank;\nmapa.shared::cluster.u32 %r22, %r4, %r20;\n"
     + CLUSTER + "st.shared::cluster.u32 [%r22], %r0;\n" + CLUSTER + "ld.shared.u32 %r5, [%r4];\n", 64, 2),
    ("its own memory by mapa in .shared", "mov.u32 %r20, %cluster_ctarank;\nmapa.shared::cluster.u32 %r22, %r4, %r20;\n"
     + CLUSTER + "st.shared.u32 [%r22], %r0;\n" + CLUSTER + "ld.shared::cta.u32 %r5, [%r22];\n", 64, 2),
    ("mapa of rank 0 in CTA 0", "mov.u32 %r20, %cluster_ctarank;\nsetp.eq.u32 %p10, %r20, 0;\nmapa.shared::cluster.u32 %r22, %r4, 0;\n"
     + CLUSTER + "@%p10 st.shared.u32 [%r22], %r0;\n" + CLUSTER, 64, 2),
    ("mapa of a rank that is given", "mapa.shared::cluster.u32 %r22, %r4, %r9;\n" + CLUSTER + "st.shared.u32 [%r22], %r0;\n" + CLUSTER,
     64, 2),
    ("the bit of the rank is cleared", PEER + CLUSTER + "and.b32 %r22, %r22, -16777217;\nst.shared.u32 [%r22], %r0;\n" + CLUSTER, 64, 2),
    ("a selected address", PEER + CLUSTER + "setp.gt.u32 %p10, %r9, 3;\nselp.b32 %r22, %r4, %r22, %p10;\nst.shared.u32 [%r22], %r0;\n"
     + CLUSTER, 64, 2),
    ("one arrive or the other", "setp.gt.u32 %p10, %r9, 3;\nbarrier.cluster.arrive;\nbarrier.cluster.wait;\n"
     "@%p10 bra one;\nbarrier.cluster.arrive.relaxed;\nbra on;\none:\nbarrier.cluster.arrive.release;\non:\nbarrier.cluster.wait;\n", 64,
         2),
    ("a result of a function that is not seen", "{\n.reg .b32 %seen;\n.param .b32 got;\n.param .b32 given;\nst.param.b32 [given], %r0;\n"
     "call.uni (got), elsewhere, (given);\nld.param.b32 %seen, [got];\nsetp.eq.u32 %p10, %seen, 0;\n}\n@%p10 st.global.u32 [%rd1], %r0;\n"),
    ("the fence in the issuer, behind the barrier, and in the writers", FILL + FENCE + SYNC + "@%p0 fence.proxy.async;\n" + OUT + COMMIT
     + "@%p0 cp.async.bulk.wait_group 0;\n"),
    ("the fence in the issuer alone, behind the barrier", FILL + SYNC + f"@!%p0 bra end;\n{FENCE}{STORE} [%rd0], [%r1], 256;\n"
     "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\nend:\n"),
    ("another buffer is written meanwhile", FILL + FENCE + SYNC + OUT + COMMIT + "st.shared.u32 [%r4+8192], %r0;\n" + FENCE + SYNC
     + f"@%p0 {STORE} [%rd0], [%r1+8192], 256;\n" + COMMIT + "@%p0 cp.async.bulk.wait_group 0;\n"),
    ("the thread's own word", FILL + "ld.shared.u32 %r7, [%r4];\nst.shared.u32 [%r4], %r7;\n"),
    ("atomics", "red.shared.add.u32 [%r1], 1;\natom.shared.add.u32 %r7, [%r1], 1;\n"),
    ("a warp's own words", FILL + "bar.warp.sync -1;\nxor.b32 %r6, %r3, 64;\nadd.u32 %r6, %r1, %r6;\nld.shared.u32 %r7, [%r6];\n"),
    ("bar.arrive for the other role", "@%p1 bra one;\nbar.sync 1, 64;\n" + NEIGHBOUR + f"ld.shared.u32 %r7, [%r6];\nbra end;\none:\n{FILL}"
     "bar.arrive 1, 64;\nend:\n"),
    ("bar.red as a barrier", FILL + "bar.red.popc.u32 %r10, 0, %p1;\n" + NEIGHBOUR + "ld.shared.u32 %r7, [%r6];\n"),
    ("a copy that was waited for before the loop", init(1) + f"@%p0 {EXPECT} [%r2], 256;\n{COPY}" + loop(
        wait("w") + "ld.shared.u32 %r7, [%r4];\nbar.sync 0;\n")),
    ("cp.async handed over by its own arrive", init(32) + "@!%p1 bra other;\ncp.async.ca.shared.global [%r4], [%rd1], 4;\n"
     "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r2];\nbra end;\nother:\n" + wait("w") + NEIGHBOUR
     + "ld.shared.u32 %r7, [%r6];\nend:\n"),
    ("cp.async handed over to a bulk store", init(64) + "cp.async.ca.shared.global [%r4], [%rd1], 4;\n"
     "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r2];\n@!%p0 bra end;\n" + wait("w") + f"{FENCE}{STORE} [%rd0], [%r1], 256;\n"
     "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\nend:\n"),
    ("a chain of products", DESCRIPTOR + BEGIN + MORE + MORE + FINISH + AWAIT + USE, 128),
    ("a product in flight over the loop", DESCRIPTOR + BEGIN + loop(MORE + FINISH + LEAVES) + AWAIT + USE, 128),
    ("two waits", DESCRIPTOR + BEGIN + MORE + FINISH + LEAVES + AWAIT + USE, 128),
    ("the whole warp or none", "setp.gt.u32 %p10, %r9, 3;\n@%p10 bra on;\nldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r10}, [%r1];\non:\n"),
)]
