"""Kernels with a planted fault, and their twins without it: lines that begin with `-` are in the planted kernel only, those with `+` in
the twin.
"""

from __future__ import annotations

import re

import numpy as np

from ptxkit import sim

SCHEDULES = [("fifo", 0), ("random", 1), ("reverse", 0), ("spurious", 1), ("adversarial", 2)]
HEAD = """.version 8.6
.target sm_90a
.address_size 64
.func (.reg .u32 %back) same(.reg .u32 %given) {{ mov.u32 %back, %given; ret; }}
.visible .entry k(.param .u64 out) .reqntid {threads} {{
.reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<32>; .reg .b64 %rd<16>; .reg .f32 %f<8>;
.shared .align 128 .b8 data[1024]; .shared .align 8 .b64 full[4]; .local .align 8 .b8 own[16];
ld.param.u64 %rd0, [out]; cvta.to.global.u64 %rd0, %rd0; add.u64 %rd4, %rd0, 8192; add.u64 %rd5, %rd0, 12288;
mov.u32 %r0, %tid.x; mov.u32 %r1, data; mov.u32 %r2, full; mad.lo.u32 %r4, %r0, 4, %r1;
mov.u32 %r8, %ctaid.x; mad.lo.u32 %r9, %r8, {threads}, %r0; mul.wide.u32 %rd1, %r9, 4; add.u64 %rd1, %rd0, %rd1;
setp.eq.u32 %p0, %r0, 0; setp.eq.u32 %p1, %r8, 0; and.pred %p2, %p0, %p1; setp.ne.u32 %p3, %r8, 0; and.pred %p3, %p3, %p0;
"""
"""%r0 the thread, %r8 the CTA, %rd1 the thread's word. %rd4, %rd5: two words of zero, for flags. %p0 thread 0, %p2 that of CTA 0, %p3
that of the others; %p1 CTA 0."""


Case = tuple[str, str, str, int, int]
"""Name, reason, text, threads of a CTA, CTAs."""


def text(body: str, planted: bool, threads: int) -> str:
    kept = [line.lstrip()[1:] if line.lstrip()[:1] in ("+", "-") else line for line in body.splitlines()
            if line.lstrip()[:1] != ("+" if planted else "-")]
    return HEAD.format(threads=threads) + "\n".join(kept) + "\nret;\n}\n"


def run(body: str, planted: bool, schedule: str, seed: int, threads: int, ctas: int) -> tuple[sim.Report, bytes]:
    out = np.arange(4096, dtype=np.uint32)
    out[2048:] = 0
    report = sim.run(text(body, planted, threads), grid=ctas, args=[out], schedule=schedule, seed=seed, max_steps=200_000)
    return report, out.tobytes()


def judge(case: Case) -> None:
    """No schedule certifies the planted kernel, for this reason. Every schedule certifies the twin, and leaves the same memory."""
    _, reason, body, threads, ctas = case
    left = set()
    for schedule, seed in SCHEDULES:
        report, _ = run(body, True, schedule, seed, threads, ctas)
        assert not report.every_schedule, (schedule, str(report))
        assert report.verdict in ("incomplete", "error")
        assert report.verdict == "error" or any(re.search(reason, finding.message) for finding in report.reasons), str(report)
        assert all(finding.ptx_line is not None and finding.fix for finding in report.reasons)
        report, memory = run(body, False, schedule, seed, threads, ctas)
        assert report.every_schedule, (schedule, str(report))
        left.add(memory)
    assert len(left) == 1
