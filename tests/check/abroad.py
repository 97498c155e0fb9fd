"""Right kernels as other compilers write them: nothing in them is an error, whatever a rule does not know."""

from __future__ import annotations

from .barriers import CLUSTER, FLIP, REMOTE, loop
from .barriers import FENCE as INIT_FENCE
from .groups import AWAIT, BEGIN, FINISH, LEAVES, MMA, MORE, SYNC, USE
from .memory import DESCRIPTOR, FENCE, FILL, NEIGHBOUR
from .programs import ARRIVE, BULK, EXPECT, STORE, Case, init, wait

TILE = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd9, {{{}, %r30}}],"


def ring(stage: str, *, first: int = 0, stages: int = 2, flip: str = FLIP) -> str:
    """A producer in warp 1 and a consumer in warp 0. `stage` computes %r31, the stage, from the round %r30, which begins with `first`;
    %r32 is the phase."""
    full, empty = 0, 8 * stages
    place = "add.u32 %r2, %r1, 16384;\n" if stages > 2 else ""
    body = f"{stage}shl.b32 %r33, %r31, 3;\nadd.s32 %r33, %r2, %r33;\nshl.b32 %r34, %r31, 8;\nadd.s32 %r34, %r1, %r34;\n"
    counter = f"mov.u32 %r30, {first};\nadd.u32 %r29, %r9, {first};\n"
    turn = "add.s32 %r30, %r30, 1;\nsetp.lt.u32 %p9, %r30, %r29;\n"
    return (place + init(*[1] * stages, *[32] * stages) + "@!%p1 bra producer;\nmov.u32 %r32, 0;\n" + counter + "consume:\n" + body
            + wait("wf", "%r32", f"[%r33+{full}]") + "add.u32 %r35, %r34, %r3;\nld.shared.u32 %r36, [%r35];\n"
            "st.global.u32 [%rd1+16384], %r36;\n"
            + f"{FENCE}{ARRIVE} [%r33+{empty}];\n{flip}{turn}@%p9 bra consume;\nbra done;\nproducer:\nsetp.ne.u32 %p10, %r0, 32;\n"
            f"@%p10 bra done;\n"
            + "mov.u32 %r32, 0;\n" + counter + "produce:\n" + body + "xor.b32 %r37, %r32, 1;\n" + wait("we", "%r37", f"[%r33+{empty}]")
            + f"{EXPECT} [%r33+{full}], 128;\n{BULK} [%r34], [%rd0], 128, [%r33+{full}];\n{flip.replace('same', 'other')}{turn}"
            + "@%p9 bra produce;\ndone:\n")


ADD = "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32"
TURNS = ("and.b32 %r11, %r3, 124;\nadd.u32 %r11, %r1, %r11;\nmov.u32 %r30, 0;\n@%p10 bar.arrive 2, 64;\nagain:\nadd.u32 %r30, %r30, 1;\n"
         "setp.lt.u32 %p9, %r30, %r9;\n@%p10 bra first;\nbar.sync 2, 64;\nst.shared.u32 [%r11], %r0;\nld.shared.u32 %r7, [%r11];\n"
         "st.global.u32 [%rd1+16384], %r7;\nbar.arrive 3, 64;\nbra.uni next;\nfirst:\nbar.sync 3, 64;\nst.shared.u32 [%r11], %r0;\n"
         "ld.shared.u32 %r7, [%r11];\nst.global.u32 [%rd1+16384], %r7;\n@%p9 bar.arrive 2, 64;\nnext:\n@%p9 bra again;\n")
"""The warp in which %p10 holds and the other one take turns with one buffer."""
OPERANDS = "".join(f"st.shared.u32 [%r4+{at}], %r0;\n" for at in range(0, 8192, 512)) + FENCE + SYNC
BIT = "xor.b32 %r38, %r31, 1;\nsetp.eq.u32 %p8, %r38, 0;\n@%p8 xor.b32 %r32, %r32, 1;\n"
"""The phase changes after the last of two stages."""
LAST = "setp.eq.u32 %p8, %r31, 2;\nselp.b32 %r38, 1, 0, %p8;\nxor.b32 %r32, %r32, %r38;\n"
RINGS = (
    ("a mask", ring("and.b32 %r31, %r30, 1;\n", flip=BIT)),
    ("the round before, with its sign", ring("add.s32 %r40, %r30, -1;\nshr.u32 %r41, %r40, 31;\nadd.s32 %r41, %r40, %r41;\n"
                                            "and.b32 %r41, %r41, -2;\nsub.s32 %r31, %r40, %r41;\n", first=1, flip=BIT)),
    ("a mask without the bits that a shift loses", ring(
        "add.s32 %r40, %r30, -1;\nshr.u32 %r41, %r40, 31;\nadd.s32 %r41, %r40, %r41;\nand.b32 %r41, %r41, 536870910;\n"
        "sub.s32 %r31, %r40, %r41;\n", first=1, flip=BIT).replace("shl.b32 %r34, %r31, 8", "and.b32 %r34, %r31, 1;\n"
        "shl.b32 %r34, %r34, 8")),
    ("an inverse", ring("mul.hi.u32 %r40, %r30, -1431655765;\nshr.u32 %r40, %r40, 1;\nmad.lo.s32 %r31, %r40, -3, %r30;\n", stages=3,
                        flip=LAST)),
    ("an inverse with its sign", ring("mul.hi.s32 %r40, %r30, 1431655766;\nshr.u32 %r41, %r40, 31;\nadd.s32 %r40, %r40, %r41;\n"
                                      "mul.lo.s32 %r40, %r40, 3;\nsub.s32 %r31, %r30, %r40;\n", stages=3, flip=LAST)),
    ("an inverse of 64 bits", ring("mul.wide.u32 %rd20, %r30, 2863311531;\nshr.u64 %rd20, %rd20, 33;\ncvt.u32.u64 %r40, %rd20;\n"
                                   "mul.lo.u32 %r40, %r40, 3;\nsub.u32 %r31, %r30, %r40;\n", stages=3, flip=LAST)),
    ("rem", ring("rem.u32 %r31, %r30, 3;\n", stages=3, flip=LAST)),
    ("a stage that is chosen", ring("and.b32 %r40, %r30, 1;\nsetp.ne.u32 %p8, %r40, 0;\nselp.b32 %r31, 1, 0, %p8;\n", flip=BIT)),
    ("a stage that starts again under a guard", ring("", flip="add.u32 %r31, %r31, 1;\nsetp.eq.u32 %p8, %r31, 2;\n"
     "@%p8 mov.u32 %r31, 0;\n" + FLIP).replace(
        "mov.u32 %r32, 0;\n", "mov.u32 %r31, 0;\nmov.u32 %r32, 0;\n")),
    ("a stage that starts again in a branch", ring("", flip="add.u32 %r31, %r31, 1;\nsetp.lt.u32 %p8, %r31, 2;\n@%p8 bra same;\n"
     "mov.u32 %r31, 0;\n"
        "xor.b32 %r32, %r32, 1;\nsame:\n").replace("mov.u32 %r32, 0;\n", "mov.u32 %r31, 0;\nmov.u32 %r32, 0;\n")),
    ("a phase of the counter's bits", ring("and.b32 %r31, %r30, 1;\nbfe.u32 %r32, %r30, 1, 1;\n", flip="")),
)

RIGHT = [Case("", name, body, "error", *sizes) for name, body, *sizes in (
    *((f"a ring: {name}", body) for name, body in RINGS),
    ("a predicate that a branch decides", init(32) + "@%p1 bra yes;\nsetp.ne.u32 %p10, 0, 0;\nbra on;\nyes:\nsetp.eq.u32 %p10, 0, 0;\non:\n"
     f"@%p10 {ARRIVE} [%r2];\n" + wait("w")),
    ("the barrier behind the init, written in both arms", "@!%p0 bra other;\nmbarrier.init.shared::cta.b64 [%r2], 64;\nbarrier.sync 0;\n"
     f"bra on;\nother:\nbarrier.sync 0;\non:\n{ARRIVE} [%r2];\n" + wait("w")),
    ("a role arrives on a named barrier, the other stores the tile", f"@%p1 bra store;\n{FILL}{FENCE}bar.arrive 1, 64;\nbra end;\nstore:\n"
     f"bar.sync 1, 64;\n@!%p0 bra end;\n{STORE} [%rd0], [%r1+128], 128;\ncp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\nend:\n"),
    ("a named barrier of both roles, whose number is computed", f"add.u32 %r10, %r9, 1;\n@%p1 bra store;\n{FILL}{FENCE}"
     f"barrier.sync %r10, 64;\nbra end;\nstore:\nbarrier.sync %r10, 64;\n@!%p0 bra end;\n{STORE} [%rd0], [%r1+128], 128;\n"
     "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\nend:\n"),
    ("a flag that is polled", "@%p0 st.shared.u32 [%r1+4096], 0;\nbar.sync 0;\n@!%p1 bra read;\nst.shared.u32 [%r4], %r0;\n"
     "fence.acq_rel.cta;\n@%p0 st.relaxed.cta.shared.u32 [%r1+4096], 1;\n"
     "bra end;\nread:\nld.relaxed.cta.shared.u32 %r10, [%r1+4096];\nsetp.eq.u32 %p10, %r10, 0;\n@%p10 bra read;\nfence.acq_rel.cta;\n"
     "ld.shared.u32 %r7, [%r1];\nend:\n"),
    ("written after another role has read and arrived", FILL + init(32) + f"@!%p1 bra write;\nld.shared.u32 %r7, [%r4];\n{ARRIVE} [%r2];\n"
     "bra end;\nwrite:\n" + wait("w") + "st.shared.u32 [%r4+-128], %r0;\nend:\n"),
    ("two stages of output tiles whose boxes are not in the text", "mov.u32 %r27, 32;\nmov.u32 %r28, 0;\nmov.u32 %r30, 0;\n"
     "mov.u32 %r31, 1;\nagain:\nst.shared.u32 [%r4], %r30;\n"
     f"{FENCE}{SYNC}@%p0 {TILE.format('%r28')} [%r1];\n@%p0 cp.async.bulk.commit_group;\n@%p0 cp.async.bulk.wait_group.read 1;\n{SYNC}"
     f"st.shared.u32 [%r4+1024], %r30;\n{FENCE}{SYNC}and.b32 %r32, %r31, 1;\nshl.b32 %r32, %r32, 10;\nadd.u32 %r32, %r1, %r32;\n"
     f"@%p0 {TILE.format('%r27')} [%r32];\n@%p0 cp.async.bulk.commit_group;\n@%p0 cp.async.bulk.wait_group.read 1;\n"
     f"{SYNC}add.u32 %r31, %r31, 2;\n"
     "add.u32 %r30, %r30, 8;\nsetp.lt.u32 %p9, %r30, %r9;\n@%p9 bra again;\n@%p0 cp.async.bulk.wait_group.read 0;\n"),
    ("a barrier under the condition under which the loop goes on", "mov.u32 %r30, 0;\nagain:\nst.shared.u32 [%r4], %r30;\n"
     f"{FENCE}{SYNC}@%p0 {STORE} [%rd0], [%r1], 256;\n@%p0 cp.async.bulk.commit_group;\n@%p0 cp.async.bulk.wait_group 0;\n"
     f"add.u32 %r30, %r30, 1;\nsetp.eq.u32 %p9, %r30, %r9;\n@%p9 bra past;\n{SYNC}past:\nsetp.ne.u32 %p10, %r30, %r9;\n@%p10 bra again;\n"),
    ("a store under one condition, a write under the other", f"setp.gt.u32 %p10, %r9, 3;\n{FILL}{FENCE}{SYNC}@!%p10 bra past;\n"
     f"@%p0 {STORE} [%rd0], [%r1], 256;\n@%p0 cp.async.bulk.commit_group;\npast:\nsetp.le.u32 %p11, %r9, 3;\n@!%p11 bra end;\n"
     "st.shared.u32 [%r4], 0;\nend:\n@%p0 cp.async.bulk.wait_group 0;\n"),
    ("all arrive on the leader's mbarrier", "mov.u32 %r20, %cluster_ctarank;\nor.b32 %r21, %r20, %r0;\nsetp.eq.u32 %p10, %r21, 0;\n"
     "@%p10 mbarrier.init.shared::cta.b64 [%r2], 128;\nfence.mbarrier_init.release.cluster;\n" + CLUSTER + "mov.u32 %r22, 0;\n"
     f"mapa.shared::cluster.u32 %r21, %r2, %r22;\n{REMOTE}setp.ne.u32 %p11, %r20, 0;\n@%p11 bra on;\n"
     + wait("w", opcode="mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64") + "on:\n" + CLUSTER, 64, 2),
    ("only the leader's barrier is initialised for the cluster's arrivals", init(128, sync="fence.mbarrier_init.release.cluster;\n"
     + CLUSTER)
     + "mov.u32 %r20, %cluster_ctarank;\nmov.u32 %r22, 1;\nmapa.shared::cluster.u32 %r21, %r2, %r22;\n" + REMOTE
     + "setp.eq.u32 %p11, %r20, 1;\n@!%p11 bra on;\n" + wait("w", opcode="mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64")
     + "on:\n" + CLUSTER, 64, 2),
    ("its own shared memory, by mapa, before the cluster has met", "mov.u32 %r20, %cluster_ctarank;\n"
     "mapa.shared::cluster.u32 %r22, %r4, %r20;\n"
     "st.shared::cluster.u32 [%r22], %r0;\nld.shared.u32 %r7, [%r4];\n" + CLUSTER, 64, 2),
    ("a copy in the first round of a loop", init(1) + "setp.eq.u32 %p10, 0, 0;\nmov.u32 %r30, 0;\nagain:\n@!%p10 bra have;\n"
     "@!%p0 bra have;\n"
     f"{EXPECT} [%r2], 256;\n{BULK} [%r1], [%rd0], 256, [%r2];\nhave:\nsetp.ne.u32 %p10, 0, 0;\nadd.u32 %r30, %r30, 1;\n"
     "setp.lt.u32 %p9, %r30, %r9;\n@%p9 bra again;\n" + wait("w")),
    ("each stage is filled once before the first is waited for", init(1, 1, 1, 1) + "@!%p0 bra on;\n" + loop(
        f"and.b32 %r31, %r30, 3;\nshl.b32 %r32, %r31, 3;\nadd.u32 %r32, %r2, %r32;\nshl.b32 %r33, %r31, 8;\nadd.u32 %r33, %r1, %r33;\n"
        f"{EXPECT} [%r32], 256;\n{BULK} [%r33], [%rd0], 256, [%r32];\n", times="%r9") + "on:\n" + "".join(wait(f"w{n}", 0,
        f"[%r2+{8 * n}]") for n in range(4))),
    ("a group of copies that is waited for a round later", "mov.u32 %r30, 0;\ncp.async.ca.shared.global [%r4], [%rd1], 4;\n"
     "cp.async.commit_group;\nagain:\nadd.u32 %r31, %r30, 1;\nand.b32 %r32, %r31, 1;\nshl.b32 %r32, %r32, 9;\nadd.u32 %r32, %r4, %r32;\n"
     "setp.lt.u32 %p10, %r31, %r9;\nselp.b32 %r33, 4, 0, %p10;\ncp.async.ca.shared.global [%r32], [%rd1], 4, %r33;\n"
     "cp.async.commit_group;\ncp.async.wait_group 1;\nbar.sync 0;\nand.b32 %r34, %r30, 1;\nshl.b32 %r34, %r34, 9;\n"
     "add.u32 %r34, %r4, %r34;\n"
     "ld.shared.u32 %r7, [%r34];\nst.global.u32 [%rd1+16384], %r7;\nbar.sync 0;\nmov.u32 %r30, %r31;\nsetp.lt.u32 %p9, %r30, %r9;\n"
     "@%p9 bra again;\ncp.async.wait_all;\n"),
    ("an mbarrier for each mode", "setp.gt.u32 %p10, %r9, 3;\n@%p10 bra many;\n@%p0 mbarrier.init.shared::cta.b64 [%r2], 64;\nbra on;\n"
     "many:\n"
     f"@%p0 mbarrier.init.shared::cta.b64 [%r2], 64;\non:\nbar.sync 0;\n{ARRIVE} [%r2];\n" + wait("w")),
    ("an mbarrier is initialised in one mode, and else where it is needed", "setp.gt.u32 %p10, %r9, 3;\nand.pred %p11, %p0, %p10;\n"
     "@%p11 mbarrier.init.shared::cta.b64 [%r2], 64;\nsetp.le.u32 %p12, %r9, 3;\nand.pred %p12, %p0, %p12;\n"
     f"@%p12 mbarrier.init.shared::cta.b64 [%r2], 64;\nbar.sync 0;\n{ARRIVE} [%r2];\n" + wait("w")),
    ("barriers that a loop initialises", "@!%p0 bra on;\n" + loop(
        "shl.b32 %r31, %r30, 3;\nadd.u32 %r31, %r2, %r31;\nmbarrier.init.shared::cta.b64 [%r31], 64;\n", times="4")
     + f"on:\nbar.sync 0;\n{ARRIVE} [%r2+24];\n" + wait("w", 0, "[%r2+24]")),
    ("an address that goes through local memory", ".local .align 4 .b8 stack[8];\nmov.u32 %r10, %r2;\nst.local.u32 [stack], %r10;\n"
     "ld.local.u32 %r11, [stack];\n"
     f"@%p0 mbarrier.init.shared::cta.b64 [%r11], 64;\nbar.sync 0;\n{ARRIVE} [%r2];\n" + wait("w", 0, "[%r11]")),
    ("one of two barriers, chosen by a parameter", init(64, 64) + "setp.gt.u32 %p10, %r9, 3;\nselp.b32 %r10, 8, 0, %p10;\n"
     f"add.u32 %r10, %r2, %r10;\n{ARRIVE} [%r10];\n" + wait("w", 0, "[%r10]")),
    *((f"half a warp: {name}", f"and.b32 %r10, %r0, 31;\nsetp.lt.u32 %p10, %r10, 16;\n@!%p10 bra on;\n{body}\non:\nbar.sync 0;\n")
      for name, body in (
        ("shfl", "shfl.sync.bfly.b32 %r11, %r0, 8, 31, 0xffff;\nst.global.u32 [%rd1+16384], %r11;"),
        ("shfl of a segment", "shfl.sync.down.b32 %r11|%p11, %r0, 4, 4127, 0xffff;\nst.global.u32 [%rd1+16384], %r11;"),
        ("vote", "vote.sync.ballot.b32 %r11, %p0, 0xffff;\nst.global.u32 [%rd1+16384], %r11;"),
        ("match", "match.any.sync.b32 %r11, %r0, 0xffff;\nst.global.u32 [%rd1+16384], %r11;"),
        ("redux", "redux.sync.add.u32 %r11, %r0, 0xffff;\nst.global.u32 [%rd1+16384], %r11;"),
        ("elect", "elect.sync _|%p11, 0xffff;\n@%p11 st.global.u32 [%rd1+16384], %r0;"),
        ("bar.warp.sync", "bar.warp.sync 0xffff;"))),
    ("each half of a warp with its own mask", "and.b32 %r10, %r0, 16;\nsetp.eq.u32 %p10, %r10, 0;\nselp.b32 %r12, 65535, -65536, %p10;\n"
     "shfl.sync.bfly.b32 %r11, %r0, 8, 31, %r12;\nst.global.u32 [%rd1+16384], %r11;\n"),
    ("the two halves of a warp meet at two lines", "and.b32 %r10, %r0, 16;\nsetp.eq.u32 %p10, %r10, 0;\n@%p10 bra low;\n"
     "vote.sync.ballot.b32 %r11, %p0, -1;\nbra on;\nlow:\nvote.sync.ballot.b32 %r11, %p0, -1;\non:\nst.global.u32 [%rd1+16384], %r11;\n"),
    ("lanes that have exited stand in the mask", "and.b32 %r10, %r0, 31;\nsetp.ge.u32 %p10, %r10, 24;\n@%p10 exit;\n"
     "bar.warp.sync -1;\nredux.sync.max.u32 %r11, %r0, -1;\nst.global.u32 [%rd1+16384], %r11;\n"),
    ("a mask that is asked for", "setp.gt.u32 %p10, %r9, 3;\nvote.sync.ballot.b32 %r12, %p10, -1;\n@!%p10 bra on;\n"
     "shfl.sync.idx.b32 %r11, %r0, 0, 31, %r12;\nst.global.u32 [%rd1+16384], %r11;\non:\n"),
    ("a product that one condition issues, commits and awaits", OPERANDS + DESCRIPTOR + "setp.gt.u32 %p10, %r9, 3;\n" + BEGIN +
     "@!%p10 bra one;\n" + MMA
     + "one:\nsetp.le.u32 %p11, %r9, 3;\n@%p11 bra two;\n" + FINISH + "two:\nsetp.gt.u32 %p12, %r9, 3;\n@!%p12 bra end;\n" + AWAIT + USE
     + "end:\n", 128),
    ("the wait for products of the last round is peeled off", OPERANDS + DESCRIPTOR + BEGIN + MMA + FINISH + "mov.u32 %r30, 0;\nagain:\n"
     "setp.ge.u32 %p9, %r30, %r9;\n@%p9 bra last;\n" + BEGIN + MORE + FINISH + LEAVES + "add.u32 %r30, %r30, 1;\nbra again;\n"
     "last:\n" + AWAIT
     + USE, 128),
    ("a multicast behind a wait for something else, and a cluster barrier in each round", init(64, 1, sync=INIT_FENCE + CLUSTER)
     + "mov.u32 %r20, %cluster_ctarank;\nsetp.eq.u32 %p11, %r20, 0;\nand.pred %p11, %p11, %p0;\nmov.u16 %h0, 3;\nmov.u32 %r32, 0;\n"
     + loop(f"{ARRIVE} [%r2];\n" + wait("w", "%r32") + f"@%p0 {EXPECT} [%r2+8], 256;\n@%p11 {BULK}.multicast::cluster [%r1], [%rd0], 256, "
            "[%r2+8], %h0;\n" + wait("v", "%r32", "[%r2+8]") + f"ld.shared.u32 %r7, [%r4];\n"
            f"{FENCE}xor.b32 %r32, %r32, 1;\n" + CLUSTER), 64, 2),
    ("bytes of a stage that another line expects", init(1, 1) + "@!%p0 bra on;\nmov.u32 %r31, 8;\nadd.u32 %r32, %r2, %r31;\n"
     f"{EXPECT} [%r32], 256;\n{EXPECT} [%r2], 256;\n" + loop(
         f"and.b32 %r33, %r30, 1;\nshl.b32 %r34, %r33, 3;\nadd.u32 %r34, %r2, %r34;\nshl.b32 %r35, %r33, 8;\nadd.u32 %r35, %r1, %r35;\n"
         f"{BULK} [%r35], [%rd0], 256, [%r34];\n", times="2") + "on:\n" + wait("w") + wait("v", 0, "[%r2+8]")),
    ("a barrier of a part of a warp", "setp.lt.u32 %p10, %r0, 48;\n@!%p10 bra on;\nbarrier.sync 2, 64;\non:\n@%p10 bra end;\n"
     "barrier.sync 2, 64;\n"
     "end:\n"),
    ("shared memory that is used again behind a barrier", init(1) + f"{FILL}bar.sync 0;\n{NEIGHBOUR}ld.shared.u32 %r7, [%r6];\n"
     f"st.global.u32 [%rd1+16384], %r7;\n{FENCE}bar.sync 0;\n@%p0 {EXPECT} [%r2], 256;\n"
     f"@%p0 {BULK} [%r1], [%rd0], 256, [%r2];\n" + wait("w")
     + "ld.shared.u32 %r7, [%r4];\nst.global.u32 [%rd1+16384], %r7;\n"),
    ("a wait in one warp, and a barrier that tells the other", init(1) + f"@%p0 {EXPECT} [%r2], 256;\n"
     f"@%p0 {BULK} [%r1], [%rd0], 256, [%r2];\n"
     "@!%p1 bra other;\n" + wait("w") + "barrier.sync 0;\nbra on;\nother:\nbarrier.sync 0;\non:\nld.shared.u32 %r7, [%r4];\n"
     "st.global.u32 [%rd1+16384], %r7;\n"),
    ("a first look that is asked for again only if it failed", init(1) + f"@%p0 {EXPECT} [%r2], 256;\n"
     f"@%p0 {BULK} [%r1], [%rd0], 256, [%r2];\n"
     "mbarrier.try_wait.parity.shared::cta.b64 %p8, [%r2], 0;\nselp.u32 %r10, 1, 0, %p8;\nsetp.ne.u32 %p9, %r10, 0;\n@%p9 bra have;\n"
     + wait("w") + "have:\nld.shared.u32 %r7, [%r4];\nst.global.u32 [%rd1+16384], %r7;\n"),
    ("the issuer's own writes between its copies", FILL + FENCE + SYNC
     + f"@!%p0 bra end;\nst.shared.u32 [%r1], %r9;\n{FENCE}{STORE} [%rd0], [%r1], 16;\n"
     f"cp.async.bulk.commit_group;\nst.shared.u32 [%r1+16], %r9;\n{FENCE}{STORE} [%rd0+16], [%r1+16], 16;\ncp.async.bulk.commit_group;\n"
     "cp.async.bulk.wait_group.read 1;\nst.shared.u32 [%r1], %r9;\ncp.async.bulk.wait_group 0;\nend:\n"),
    ("other threads write where the copy of known size has not read", FILL + FENCE + SYNC + f"@%p0 {STORE} [%rd0], [%r1], 128;\n"
     "@%p0 cp.async.bulk.commit_group;\nsetp.ge.u32 %p10, %r0, 32;\n@%p10 st.shared.u32 [%r4], 5;\n"
     "@%p0 cp.async.bulk.wait_group 0;\n"),
    ("a count of arrivals with two at once", init(64) + "setp.lt.u32 %p10, %r0, 32;\nmov.u32 %r10, 2;\n"
     "@%p10 mbarrier.arrive.shared::cta.b64 _, [%r2], %r10;\n" + wait("w")),
    ("every other lane arrives", init(32) + "and.b32 %r10, %r0, 1;\nsetp.eq.u32 %p10, %r10, 0;\n" + f"@%p10 {ARRIVE} [%r2];\n" + wait("w")),
    ("a lane that the others choose arrives", init(2) + "activemask.b32 %r10;\nbrev.b32 %r11, %r10;\nclz.b32 %r11, %r11;\n"
     "and.b32 %r12, %r0, 31;\nsetp.eq.u32 %p10, %r11, %r12;\n" + f"@%p10 {ARRIVE} [%r2];\n" + wait("w")),
    ("threads that leave at different rounds", "mov.u32 %r30, 0;\nagain:\nadd.u32 %r30, %r30, 1;\nsetp.le.u32 %p10, %r30, %r0;\n"
     "@%p10 bra again;\nsetp.lt.u32 %p11, %r30, 33;\n@%p0 mbarrier.init.shared::cta.b64 [%r2], 32;\nbar.sync 0;\n"
     f"@%p11 {ARRIVE} [%r2];\n" + wait("w")),
    ("lanes that arrive on barriers of their own choice", init(32, 32) + "shr.u32 %r10, %r0, 5;\nld.global.u32 %r11, [%rd1];\n"
     "and.b32 %r11, %r11, 1;\nshl.b32 %r11, %r11, 3;\nadd.u32 %r11, %r2, %r11;\n" + f"{ARRIVE} [%r11];\n" + wait("w")),
    ("who reads another CTA's memory arrives and leaves, the other waits", FILL + CLUSTER + "mov.u32 %r20, %cluster_ctarank;\n"
     "setp.eq.u32 %p10, %r20, 0;\n@!%p10 bra stay;\nmov.u32 %r22, 1;\nmapa.shared::cluster.u32 %r22, %r4, %r22;\n"
     "ld.shared::cluster.u32 %r23, [%r22];\nst.global.u32 [%rd1], %r23;\nbarrier.cluster.arrive.release.aligned;\nbra.uni end;\n"
     f"stay:\n{CLUSTER}end:\n", 64, 2),
    ("rows that are added up in the other CTA's buffer", FILL + "st.shared.u32 [%r4+1024], 0;\nfence.proxy.async;\n"
     + init(1, sync="fence.mbarrier_init.release.cluster;\n" + f"@%p0 {EXPECT} [%r2], 768;\n" + CLUSTER) + "@!%p0 bra on;\n"
     "mov.u32 %r20, %cluster_ctarank;\nxor.b32 %r20, %r20, 1;\nmapa.shared::cluster.u32 %r21, %r2, %r20;\nadd.u32 %r22, %r1, 1024;\n"
     "mapa.shared::cluster.u32 %r22, %r22, %r20;\n" + loop(f"{ADD} [%r22], [%r1], 256, [%r21];\n", times="3") + "on:\n" + wait("w")
     + "ld.shared.u32 %r7, [%r4+1024];\n" + CLUSTER, 64, 2),
    ("one copy or two, chosen by guards", init(1) + f"setp.gt.u32 %p10, %r9, 3;\n@!%p0 bra on;\n{EXPECT} [%r2], 256;\n"
     f"@%p10 {BULK} [%r1], [%rd0], 256, [%r2];\n@!%p10 {BULK} [%r1], [%rd0], 128, [%r2];\n"
     f"@!%p10 {BULK} [%r1+128], [%rd0], 128, [%r2];\non:\n" + wait("w")),
    *((f"a store in one mode, a write in the other: {name}", "setp.gt.u32 %p10, %r9, 3;\nselp.b32 %r10, 1, 0, %p10;\n" + FILL + FENCE
       + f"bar.sync 0;\nand.pred %p11, %p0, %p10;\n@%p11 {STORE} [%rd0], [%r1], 256;\n@%p11 cp.async.bulk.commit_group;\n{other}\n"
       "@%p12 st.shared.u32 [%r4], 5;\n@%p0 cp.async.bulk.wait_group 0;\n") for name, other in (
          ("a flag", "setp.ne.s32 %p12, %r10, 1;"), ("a flag turned", "xor.b32 %r11, %r10, 1;\nsetp.ne.s32 %p12, %r11, 0;"),
          ("a number beside", "setp.lt.u32 %p12, %r9, 4;"), ("a bound", "min.u32 %r11, %r9, 4;\nsetp.ne.u32 %p12, %r11, 4;"))),
    ("a copy in one mode, loads of what threads store in the other", "setp.gt.u32 %p10, %r9, 3;\nselp.b32 %r10, 1, 0, %p10;\n"
     "@%p10 cp.async.ca.shared.global [%r4], [%rd1], 4;\n@%p10 cp.async.commit_group;\nsetp.eq.s32 %p12, %r10, 0;\n"
     "@%p12 st.shared.u32 [%r4], 3;\n@%p12 ld.shared.u32 %r7, [%r4];\ncp.async.wait_all;\n"),
    ("a product in one mode, its registers in the other", OPERANDS + DESCRIPTOR + "setp.gt.u32 %p10, %r9, 3;\nselp.b32 %r10, 1, 0, %p10;\n"
     + BEGIN + "@!%p10 bra one;\n" + MMA + "wgmma.commit_group.sync.aligned;\none:\nsetp.eq.s32 %p12, %r10, 0;\n@!%p12 bra two;\n" + USE
     + "two:\nwgmma.wait_group.sync.aligned 0;\n", 128),
    ("a role that is kept in local memory", ".local .align 4 .b8 stack[8];\nmov.u64 %rd10, stack;\ncvta.local.u64 %rd10, %rd10;\n"
     "shr.u32 %r10, %r0, 5;\nst.u32 [%rd10], %r10;\nld.u32 %r10, [%rd10];\nsetp.eq.u32 %p10, %r10, 0;\n" + TURNS),
)]
"""No error, in any form."""
