"""Warp collectives and what PTX leaves undefined, on a Hopper GPU: the same numbers where the CPU device finds nothing wrong?

    python -m tests.sim.gpu_semantics [FILE] [--only shfl] [--dry]

A line per probe on stdout, and in FILE: its name, what the CPU device says, what the GPU did: `fine` and the words that it wrote, a trap,
or no end. Before the name stands nothing where the CPU device finds nothing wrong and both have the same numbers; `~` where the CPU device
finds something, so that PTX defines nothing, whatever the GPU did; else `!`, and the exit status is 1. With `--dry` there is no GPU.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ptxkit import sim

from .gpu_tensor_faults import FINE, Answer, apart, gpu

WORDS, SECONDS = 256, 6
"""Words of the output, and how long a probe may take: some have no end."""

HEAD = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out) .reqntid {threads} {cluster} {{
.reg .pred %p<10>; .reg .b16 %h<8>; .reg .b32 %r<48>; .reg .b64 %rd<12>; .reg .f32 %f<16>;
.shared .align 1024 .b8 data[4096]; .shared .align 8 .b64 bars[2];
ld.param.u64 %rd0, [out];
mov.u32 %r0, %tid.x; mov.u32 %r1, data; mad.lo.u32 %r2, %r0, 16, %r1; and.b32 %r3, %r0, 31; mov.u32 %r40, 0; mov.u32 %r10, bars;
mov.u32 %r5, %cluster_ctarank; xor.b32 %r6, %r5, 1; mad.lo.u32 %r7, %r5, 32, %r0; mad.wide.u32 %rd1, %r7, 4, %rd0;
setp.lt.u32 %p1, %r3, 16; setp.eq.u32 %p0, %r0, 0; mov.u32 %r4, 0; add.u32 %r8, %r0, 100;
"""
PUT = " st.global.u32 [%rd1], %r4;"
SYNC = "barrier.cluster.arrive; barrier.cluster.wait; "
FILL = "mad.lo.u32 %r9, %r5, 1000, %r3; st.shared.u32 [%r2], %r9; "
PEER = FILL + SYNC + "mapa.shared::cluster.u32 %r9, %r2, %r6; {} " + SYNC


def arms(op: str, put: str = PUT) -> str:
    """The instruction in both arms of a branch that parts the warp."""
    return f"@%p1 bra A; {op} bra E; A: {op} E:" + put


def elections(mask: str) -> str:
    """Whether the same lane is elected again and again, also after the warp has parted and met in different ways."""
    elect = f"elect.sync %r{{}}|%p7, {mask}; "
    return elect.format(12) + "mov.u32 %r4, 1; mov.u32 %r13, 0; L: xor.b32 %r14, %r3, %r13; and.b32 %r14, %r14, 1; " \
        "setp.eq.u32 %p3, %r14, 0; @%p3 bra A; add.u32 %r8, %r8, 3; bra B; A: add.u32 %r8, %r8, 5; B: bar.warp.sync " + mask + "; " \
        + elect.format(15) + \
        "setp.ne.u32 %p4, %r12, %r15; @%p4 mov.u32 %r4, 0; add.u32 %r13, %r13, 1; setp.lt.u32 %p5, %r13, 8; @%p5 bra L; "


@dataclass(frozen=True)
class Probe:
    """A kernel `k` of an output of `WORDS` words."""

    name: str
    body: str
    threads: int = 32
    cluster: int = 1

    @property
    def text(self) -> str:
        cluster = f".reqnctapercluster {self.cluster}" if self.cluster > 1 else ""
        return HEAD.format(threads=self.threads, cluster=cluster) + self.body + "\nret;\n}\n"


STEPS = " ".join(f"shfl.sync.down.b32 %r9, %r4, {d}, 31, MASK; add.u32 %r4, %r4, %r9;" for d in (8, 4, 2, 1))
TOKENS = "@%p0 mbarrier.init.shared.b64 [%r10], 32; bar.sync 0; " + " ".join(
    f"mbarrier.arrive.shared.b64 %rd{i}, [%r10]; W{i}: mbarrier.try_wait.shared.b64 %p3, [%r10], %rd{i}; @!%p3 bra W{i}; bar.warp.sync -1;"
    for i in (3, 4, 5))
MATRIX = "st.shared.v4.u32 [%r2], {%r8, %r8, %r8, %r8}; barrier.sync 0; "

PROBES = (
    Probe("elect: the same lane for the whole warp", elections("0xffffffff") + PUT),
    Probe("elect: the same lane for half a warp", "@!%p1 bra E; " + elections("0xffff") + PUT + " E:"),
    Probe("elect: the same lane for odd lanes", "and.b32 %r9, %r3, 1; setp.eq.u32 %p6, %r9, 0; @%p6 bra E; " + elections("0xaaaaaaaa")
          + PUT + " E:"),
    Probe("shfl: two arms of a branch", arms("shfl.sync.idx.b32 %r4, %r8, 3, 31, -1;")),
    Probe("shfl: two arms, across them", arms("shfl.sync.bfly.b32 %r4, %r8, 16, 31, -1;")),
    Probe("vote: two arms", arms("vote.sync.ballot.b32 %r4, %p1, -1;")),
    Probe("redux: two arms", arms("redux.sync.add.u32 %r4, %r8, -1;")),
    Probe("match: two arms", "and.b32 %r9, %r3, 3; " + arms("match.any.sync.b32 %r4, %r9, -1;")),
    Probe("bar.warp.sync: two arms", "@%p1 bra A; bar.warp.sync -1; ld.shared.u32 %r4, [%r1]; bra E; A: st.shared.u32 [%r1], 7; "
          "bar.warp.sync -1; E:" + PUT),
    Probe("shfl: one for each value of a predicate", "@%p1 shfl.sync.bfly.b32 %r4, %r8, 16, 31, -1; "
          "@!%p1 shfl.sync.bfly.b32 %r4, %r8, 16, 31, -1;" + PUT),
    Probe("redux: one for each value of a predicate", "@%p1 redux.sync.add.u32 %r4, %r8, -1; @!%p1 redux.sync.add.u32 %r4, %r8, -1;" + PUT),
    Probe("bar.warp.sync: a guard keeps lanes from it", "@%p1 bar.warp.sync -1; mov.u32 %r4, 1;" + PUT),
    Probe("shfl: a guard keeps lanes from it", "@%p1 shfl.sync.bfly.b32 %r4, %r8, 1, 31, -1;" + PUT),
    Probe("shfl: exactly the lanes of the mask", "@!%p1 bra E; shfl.sync.bfly.b32 %r4, %r8, 8, 31, 0xffff;" + PUT + " E:"),
    Probe("shfl: a sum of 16 lanes", "mov.u32 %r4, %r0; @!%p1 bra E; " + STEPS.replace("MASK", "0xffff")
          + " @%p0 st.global.u32 [%rd0], %r4; E:"),
    Probe("shfl: a sum of 16 lanes, the others have exited", "mov.u32 %r4, %r0; @!%p1 ret; " + STEPS.replace("MASK", "-1")
          + " @%p0 st.global.u32 [%rd0], %r4;"),
    Probe("groups: a mask for each value", "rem.u32 %r9, %r0, 5; match.any.sync.b32 %r11, %r9, -1; redux.sync.add.u32 %r4, %r0, %r11;"
          + PUT),
    Probe("shfl: from a lane elsewhere", "@!%p1 bra E; shfl.sync.idx.b32 %r4, %r8, 16, 31, 0xffff;" + PUT + " E:"),
    Probe("shfl: from a lane that has exited", "@!%p1 ret; shfl.sync.idx.b32 %r4, %r8, 16, 31, -1;" + PUT),
    Probe("shfl: a lane that is not in its mask", "shfl.sync.bfly.b32 %r4, %r8, 1, 31, 0xffff;" + PUT),
    Probe("vote: a lane that is not in its mask", "vote.sync.ballot.b32 %r4, %p1, 0xff;" + PUT),
    Probe("shfl and vote in two arms", "@%p1 bra A; shfl.sync.idx.b32 %r4, %r8, 3, 31, -1; bra E; A: vote.sync.ballot.b32 %r4, %p1, -1; E:"
          + PUT),
    Probe("bar.sync: two arms", "@%p1 bra A; bar.sync 0; mov.u32 %r4, 1; bra E; A: bar.sync 0; mov.u32 %r4, 2; E:" + PUT, 64),
    Probe("bar.sync: lanes that leave early", "@%p1 bra E; bar.sync 0; mov.u32 %r4, 1;" + PUT + " E:", 64),
    Probe("bar.sync: lanes that have exited", "@%p1 ret; bar.sync 0; mov.u32 %r4, 1;" + PUT, 64),
    Probe("bar.sync: an elected lane and a count of 32", "@%p0 bar.sync 1, 32; mov.u32 %r4, 1;" + PUT),
    Probe("barrier.sync: two arms", "@%p1 bra A; barrier.sync 0; mov.u32 %r4, 1; bra E; A: barrier.sync 0; mov.u32 %r4, 2; E:" + PUT, 64),
    Probe("barrier.cluster: two arms", "@%p1 bra A; barrier.cluster.arrive; barrier.cluster.wait; mov.u32 %r4, 1; bra E; A: "
          "barrier.cluster.arrive; barrier.cluster.wait; mov.u32 %r4, 2; E:" + PUT, 32, 2),
    Probe("ldmatrix: a whole warp", MATRIX + "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r2];" + PUT),
    Probe("ldmatrix: half of the lanes have exited", MATRIX + "@!%p1 ret; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r2];" + PUT),
    Probe("ldmatrix: a block of 16 threads", MATRIX + "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r2];" + PUT, 16),
    Probe("ld.shared::cluster of the other CTA", PEER.format("ld.shared::cluster.u32 %r4, [%r9];") + PUT, 32, 2),
    Probe("ld.shared::cta of the other CTA", PEER.format("ld.shared::cta.u32 %r4, [%r9];") + PUT, 32, 2),
    Probe("ld.shared of the other CTA", PEER.format("ld.shared.u32 %r4, [%r9];") + PUT, 32, 2),
    Probe("st.shared::cta of the other CTA", PEER.format("st.shared::cta.u32 [%r9], 77;") + "ld.shared.u32 %r4, [%r2];" + PUT, 32, 2),
    Probe("atom.shared::cta of the other CTA", PEER.format("atom.shared::cta.add.u32 %r4, [%r9], 1;") + PUT, 32, 2),
    Probe("ld.shared::cta of mapa's own address", PEER.replace("%r6;", "%r5;").format("ld.shared::cta.u32 %r4, [%r9];") + PUT, 32, 2),
    Probe("token: of the phase before", TOKENS + "mbarrier.test_wait.shared.b64 %p3, [%r10], %rd5; selp.u32 %r4, 1, 2, %p3;" + PUT),
    Probe("token: two phases old", TOKENS + "mbarrier.test_wait.shared.b64 %p3, [%r10], %rd4; selp.u32 %r4, 1, 2, %p3;" + PUT),
    Probe("token: three phases old", TOKENS + "mbarrier.test_wait.shared.b64 %p3, [%r10], %rd3; selp.u32 %r4, 1, 2, %p3;" + PUT),
    Probe("st.global: one address, different values", "st.global.u32 [%rd0], %r8;"),
    Probe("st.shared: one address, different values", "st.shared.u32 [%r1], %r8; bar.sync 0; ld.shared.u32 %r4, [%r1];" + PUT),
    Probe("stmatrix: one address, different values", "and.b32 %r9, %r2, 0xffffffdf; stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r9], {%r8}; "
          "bar.sync 0; ld.shared.u32 %r4, [%r2];" + PUT),
    Probe("st.global: one address, equal values", "st.global.u32 [%rd0], 5;"),
    Probe("div.u32 by zero", "mov.u32 %r9, %r4; div.u32 %r4, %r8, %r9;" + PUT),
    Probe("rem.s32 by zero", "mov.u32 %r9, %r4; rem.s32 %r4, %r8, %r9;" + PUT),
    Probe("div.s64 by zero", "cvt.u64.u32 %rd3, %r8; cvt.u64.u32 %rd4, %r4; div.s64 %rd3, %rd3, %rd4; cvt.u32.u64 %r4, %rd3;" + PUT),
    Probe("ld.global.nc after a store", "ld.global.nc.u32 %r9, [%rd1]; bar.sync 0; st.global.u32 [%rd1+128], %r8; st.global.u32 [%rd1], 9; "
          "bar.sync 0; ld.global.nc.u32 %r4, [%rd1]; st.global.u32 [%rd1+256], %r4;"),
)


def simulated(probe: Probe) -> Answer:
    out = np.zeros(WORDS, np.uint32)
    found = [sim.run(probe.text, args=[out], grid=probe.cluster, schedule=how, seed=1, max_steps=100_000)
             for how in ("random", "adversarial", "fifo")]
    wrong = sorted({f.rule for report in found for f in report.findings if f.severity in ("error", "review")} - {"order-dependence"})
    return Answer(", ".join(wrong) or FINE, out.tobytes())


def measured(probe: Probe) -> Answer:
    from ptxkit.runtime import driver, launch, launcher

    out = launch.device_array(np.zeros(WORDS, np.uint32))
    run = launcher.Launcher(driver.load(probe.text).kernel("k"), ("u64",), block=(probe.threads, 1, 1), cluster=(probe.cluster, 1, 1))
    run(launch.LEGACY_STREAM, (probe.cluster, 1, 1), (out.pointer,), ())
    driver.synchronize()
    return Answer(FINE, out.numpy().tobytes())


def words(answer: Answer) -> str:
    """The words of an output: what each run of equal ones is, with their number."""
    if answer.words != FINE:
        return answer.words
    found = np.frombuffer(answer.array, np.uint32)
    runs = np.split(found, np.flatnonzero(np.diff(found)) + 1)
    runs = runs[:-1] if not runs[-1][0] else runs
    said = [f"{run[0]}" + (f"x{len(run)}" if len(run) > 1 else "") for run in runs]
    return f"{FINE}: " + " ".join(said[:12]) + (" ..." if len(said) > 12 else "")


def mark(here: Answer, there: Answer) -> str:
    if here.words != FINE:
        return "~"
    return " " if there.words == FINE and there.array == here.array else "!"


def main(arguments: list[str] | None = None) -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--only", default="", help="probes with this in their name")
    parser.add_argument("--dry", action="store_true", help="no GPU: assemble the texts")
    options = parser.parse_args(arguments)
    chosen = [probe for probe in PROBES if options.only in probe.name]
    if options.dry:
        from ptxkit.runtime import toolchain

        for probe in chosen:
            toolchain.assemble(probe.text)
            print(f"  {probe.name:48} {simulated(probe).words:22} {words(Answer(FINE, simulated(probe).array))}")
        return 0
    (where,) = apart(gpu, [None])
    if where.words != FINE:
        print(where.words, file=sys.stderr)
        return 2
    lines = [f"python -m tests.sim.gpu_semantics, on an {where.array.decode()}: what the CPU device says, and what the GPU did (~ where "
             "PTX defines nothing, ! where they differ):"]
    marks = []
    for probe, there in zip(chosen, apart(measured, chosen, SECONDS), strict=True):
        here = simulated(probe)
        marks.append(mark(here, there))
        lines.append(f"{marks[-1]} {probe.name:48} {here.words:22} {words(there)}")
    lines.append(f"{len(marks)} probes: {marks.count(' ')} agree, {marks.count('~')} are undefined, {marks.count('!')} differ")
    text = "\n".join(lines) + "\n"
    print(text, end="")
    if options.file is not None:
        options.file.write_text(text, encoding="utf-8")
    return 1 if "!" in marks else 0


if __name__ == "__main__":
    sys.exit(main())
