"""Random control flow as PTX text: labels and branches at any place, so that there are endless loops, loops with several entries, code
that nothing reaches, and registers that some paths write. Nothing writes %r4, %p3 and %d2."""

from __future__ import annotations

import random

HEAD = """.version 8.6
.target sm_90a
.address_size 64
.shared .align 16 .b8 sm[256];
.func callee() { .reg .pred %q; .reg .b32 %s; CALLEE: @%q bra CALLEE; add.u32 %s, %s, 1; bra CALLEE; }
.visible .entry t(.param .u64 p) .reqntid 128
{
.reg .pred %p<4>;
.reg .b32 %r<5>;
.reg .b64 %d<3>;
.reg .f32 %f<4>;
"""
COMPUTING = ("mov.u32 %r{0}, {1};", "mov.u32 %r{0}, %r{1};", "mov.u32 %r{0}, %tid.x;", "mov.u32 %r{0}, sm;", "add.u32 %r{0}, %r{1}, {0};",
             "add.u32 %r{0}, %r{1}, %r4;", "and.b32 %r{0}, %r{1}, %r{0};", "selp.u32 %r{0}, %r{1}, %r{0}, %p{2};",
             "setp.lt.u32 %p{2}, %r{0}, %r{1};", "not.pred %p{2}, %p{2};", "and.pred %p{2}, %p{2}, %p3;", "cvta.to.global.u64 %d0, %d0;",
             "add.u64 %d0, %d0, %d1;", "cvt.u64.u32 %d1, %r{0};", "add.u64 %d1, %d1, %d2;", "ld.param.u64 %d0, [p];")
TOUCHING = ("ld.global.u32 %r{0}, [%d0];", "st.global.u32 [%d0], %r{0};", "ld.shared.u32 %r{0}, [%r{1}];",
            "st.shared.u32 [%r{1}+{0}], %r0;", "bar.sync 0;", "bar.warp.sync -1;",
            "mbarrier.init.shared.b64 [%r{0}], 1;", "mbarrier.arrive.shared.b64 %d1, [%r{0}];",
            "mbarrier.try_wait.parity.shared.b64 %p{2}, [%r{0}], %r{1};", "cp.async.ca.shared.global [%r{0}], [%d0], 16;",
            "cp.async.commit_group;", "cp.async.wait_group {2};", "call callee, ();",
            "wgmma.fence.sync.aligned;", "wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned {2};",
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%f0, %f1, %f2, %f3}}, %d0, %d1, 1, 1, 1, 0, 0;")
BRANCHES = ("bra {};", "bra.uni {};", "@%p0 bra {};", "@!%p1 bra {};", "@%p2 bra {};", "@%p3 bra {};")
ENDS = ("ret;", "@%p0 ret;", "@%p3 exit;", "trap;")


def program(seed: int) -> str:
    """An entry. For an even seed its first statement is a label; for every third seed no register is written at the begin."""
    draw = random.Random(seed)
    labels = [f"L{i}" for i in range(draw.randint(1, 7))]
    body = [_statement(draw, labels) for _ in range(draw.randint(1, 5 * len(labels)))]
    for label in labels:
        body.insert(draw.randint(0, len(body)), f"{label}:")
    if seed % 2 == 0:
        body.remove("L0:")
        body.insert(0, "L0:")
    if seed % 3:
        body[1 - seed % 2:1 - seed % 2] = ["ld.param.u64 %d0, [p];", "mov.u32 %r0, sm;", "setp.eq.u32 %p0, %r0, 0;"]
    table = "T: .branchtargets " + ", ".join(labels) + ";\n"
    return HEAD + table + "\n".join(body) + "\n}\n"


def _statement(draw: random.Random, labels: list[str]) -> str:
    kind = draw.random()
    if kind < 0.45:
        return draw.choice(BRANCHES).format(draw.choice(labels))
    if kind < 0.48:
        return f"rem.u32 %r3, %r3, {len(labels)};\nbrx.idx %r3, T;"
    if kind < 0.51:
        return draw.choice(ENDS)
    said = draw.choice(TOUCHING if kind < 0.7 else COMPUTING)
    guard = draw.choice(("", "", "", "@%p0 ", "@!%p2 ", "@%p3 "))
    said = said.format(draw.randrange(4), draw.randrange(4), draw.randrange(3))
    return said if said.startswith(("bar.", "call", "wgmma")) else guard + said
