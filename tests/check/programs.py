"""Kernels with a planted mistake and their corrected twins, written once and put into several forms.

A line of a body that begins with `+` is in the twin only, one with `-` in the mistaken kernel only; `!` marks where the finding is due.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

FORMS = ("plain", "function", "generic", "branch")
"""As written; in a device function that the entry calls; with addresses by way of the generic space, as nvcc writes them; under a
condition that the whole CTA shares."""


@dataclass(frozen=True)
class Case:
    """`corrected`: the directives of the twin, where they are the mistake. `also`: other rules that rightly speak of it."""

    rule: str
    name: str
    body: str
    severity: str = "error"
    block: int = 64
    cluster: int = 1
    directives: str = ""
    corrected: str | None = None
    also: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.rule}: {self.name}"


HEAD = """.version 8.6
.target sm_90a
.address_size 64
.shared .align 1024 .b8 smem[32768];
.shared .align 8 .b64 bar[4];
.extern .func (.param .b32 got) elsewhere (.param .b32 given);
"""
REGISTERS = """.reg .pred %p<24>;
.reg .b16 %h<8>;
.reg .b32 %r<64>;
.reg .b64 %rd<32>;
.reg .f32 %f<64>;
"""
PRELUDE = """ld.param.u64 %rd0, [out];
ld.param.u32 %r9, [n];
mov.u32 %r0, %tid.x;
mov.u32 %r1, smem;
mov.u32 %r2, bar;
shl.b32 %r3, %r0, 2;
add.u32 %r4, %r1, %r3;
cvt.u64.u32 %rd1, %r3;
add.u64 %rd1, %rd0, %rd1;
setp.eq.u32 %p0, %r0, 0;
setp.lt.u32 %p1, %r0, 32;
"""
"""%rd0 the output, %rd1 the thread's word of it, %rd9 a tensor map, %r0 the thread, %r1 shared memory, %r4 the thread's word of it,
%r2 the mbarriers, %r9 a number; %p0 in thread 0, %p1 in warp 0."""

ENTRY = """.visible .entry k(.param .u64 out, .param .u32 n, .param .align 128 .b8 map[128]) {directives}
{{
"""
FUNCTION = ".func body(.param .u64 out, .param .u32 n, .param .u64 map)\n{\n"
ARGUMENTS = ".reg .b32 %r<10>;\n.reg .b64 %rd<10>;\nld.param.u64 %rd0, [out];\nld.param.u32 %r9, [n];\n"
MAP = "mov.b64 %rd9, map;\ncvta.param.u64 %rd9, %rd9;\n"
CALL = """{
.param .u64 a;
.param .u32 b;
.param .u64 c;
st.param.u64 [a], %rd0;
st.param.u32 [b], %r9;
st.param.u64 [c], %rd9;
call.uni body, (a, b, c);
}
"""


def text(case: Case, right: bool, form: str = "plain") -> tuple[str, int | None]:
    """The PTX, and the line on which the mistake is due (None in the twin)."""
    lines = [line for line in case.body.splitlines() if line and not line.startswith("-" if right else "+")]
    body = "\n".join(line.lstrip("+-") for line in lines) + "\n"
    directives = [f".reqntid {case.block}"] if case.block else []
    if case.cluster > 1:
        directives.append(f".reqnctapercluster {case.cluster}")
    directives.append(case.corrected if right and case.corrected is not None else case.directives)
    entry = ENTRY.format(directives=" ".join(directives))
    prelude = PRELUDE
    if form == "generic":
        for register, name in (("%r1", "smem"), ("%r2", "bar")):
            prelude = prelude.replace(f"mov.u32 {register}, {name};", f"mov.u64 %rd30, {name};\ncvta.shared.u64 %rd30, %rd30;\n"
                                      f"cvta.to.shared.u64 %rd31, %rd30;\ncvt.u32.u64 {register}, %rd31;")
        body = _nvcc_waits(body)
    if form == "branch":
        body = f"setp.eq.u32 %p23, %r9, 0;\n@%p23 bra skipped;\n{body}skipped:\n"
    if form == "function":
        function = f"{FUNCTION}{REGISTERS}ld.param.u64 %rd9, [map];\n{prelude}{body}ret;\n}}\n"
        made = f"{HEAD}{function}{entry}{ARGUMENTS}{MAP}{CALL}ret;\n}}\n"
    else:
        made = f"{HEAD}{entry}{REGISTERS}{MAP}{prelude}{body}ret;\n}}\n"
    marked = [number for number, line in enumerate(made.splitlines(), 1) if line.startswith("!")]
    return re.sub(r"^!", "", made, flags=re.M), None if right or not marked else marked[0]


def _nvcc_waits(body: str) -> str:
    """Waiting loops as nvcc writes inline assembly: the answer goes through a register."""
    return re.sub(r"(?m)^(!?mbarrier\.t\w+_wait\S*) (%p\d+), (.*;)\n@!\2 bra (\w+);\n",
                  r"{\n.reg .pred answer;\n\1 answer, \3\nselp.b32 %r63, 1, 0, answer;\n}\nsetp.eq.s32 \2, %r63, 0;\n@\2 bra \4;\n", body)


def wait(label: str, parity: int | str = 0, barrier: str = "[%r2]", opcode: str = "mbarrier.try_wait.parity.shared::cta.b64",
         mark: str = "") -> str:
    """A loop that waits; `mark` stands before the instruction."""
    return f"{label}:\n{mark}{opcode} %p7, {barrier}, {parity};\n@!%p7 bra {label};\n"


def init(*counts: int, sync: str = "bar.sync 0;\n", mark: str = "") -> str:
    """Thread 0 initialises barriers of these counts, then all meet."""
    return "".join(f"{mark}@%p0 mbarrier.init.shared::cta.b64 [%r2+{8 * i}], {count};\n" for i, count in enumerate(counts)) + sync


BULK = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
STORE = "cp.async.bulk.global.shared::cta.bulk_group"
TENSOR = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
EXPECT = "mbarrier.arrive.expect_tx.shared::cta.b64 _,"
ARRIVE = "mbarrier.arrive.shared::cta.b64 _,"
CLUSTER = "barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n"
