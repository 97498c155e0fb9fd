"""State spaces, generic addresses, device functions, divergence."""

from __future__ import annotations

import numpy as np
import pytest

from ptxkit import sim

from .kernels import OUT, run

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]
LANES = np.arange(32, dtype=np.uint32)


def words(body: str, **options: object) -> list[int]:
    """What the 32 lanes leave in %r9."""
    out = np.zeros(32, np.uint32)
    report = run(OUT + body + "\nst.global.u32 [%rd1], %r9;", out, **options)  # type: ignore[arg-type]
    assert not report.findings, report
    return [int(word) for word in out]


def test_const_memory() -> None:
    before = ".const .align 4 .b32 table[4] = {3, 1, 4, 1};\n.const .f32 pi = 0f40490FDB;\n"
    body = "and.b32 %r1, %r0, 3;\nshl.b32 %r1, %r1, 2;\nmov.u32 %r2, table;\nadd.u32 %r2, %r2, %r1;\nld.const.u32 %r9, [%r2];"
    assert words(body, before=before) == [(3, 1, 4, 1)[lane % 4] for lane in range(32)]
    assert words("ld.const.u32 %r9, [pi];", before=before) == [0x40490FDB] * 32


def test_global_variables_and_their_initialisers() -> None:
    before = ".global .align 4 .u32 counter = 7;\n.global .u64 pointer = generic(counter);\n"
    assert words("ld.global.u64 %rd5, [pointer];\nld.u32 %r9, [%rd5];", before=before) == [7] * 32


def test_a_callees_frame_is_aligned_whatever_its_caller_holds() -> None:
    """The caller's parameters and variables take 17 bytes or more; the callee has a parameter and a variable of 8."""
    before = """.func (.param .b64 out) twice(.param .b64 in)
{
    .reg .b64 %rd<2>;
    .local .b64 kept;
    ld.param.u64 %rd0, [in];
    st.local.u64 [kept], %rd0;
    ld.local.u64 %rd1, [kept];
    add.u64 %rd1, %rd1, %rd0;
    st.param.b64 [out], %rd1;
    ret;
}
"""
    body = """cvt.u64.u32 %%rd5, %%r0;
{ .param .b64 give; .param .b64 take; st.param.b64 [give], %%rd5; call (take), twice, (give); ld.param.b64 %%rd6, [take]; }
cvt.u32.u64 %%r9, %%rd6;
{ .local .b8 odd[%s]; }"""
    for size in (1, 4, 12):
        assert words(body % size, before=before) == [2 * lane for lane in range(32)]


def test_local_memory_is_each_lanes_own() -> None:
    body = """.local .align 8 .b8 frame[64];
mov.u64 %rd5, frame;
st.local.u32 [%rd5+8], %r0;
and.b32 %r1, %r0, 1;
shl.b32 %r1, %r1, 2;
cvt.u64.u32 %rd6, %r1;
add.u64 %rd6, %rd5, %rd6;
st.local.u32 [%rd6], 100;
ld.local.u32 %r9, [frame+8];"""
    assert words(body) == list(range(32))


def test_generic_addresses_of_every_space() -> None:
    before = ".shared .align 4 .b32 word;\n.const .b32 constant = 5;\n"
    body = """.local .align 8 .b32 mine;
mov.u64 %rd5, mine;
cvta.local.u64 %rd5, %rd5;
st.u32 [%rd5], %r0;
mov.u64 %rd6, word;
cvta.shared.u64 %rd6, %rd6;
st.u32 [%rd6], 40;
mov.u64 %rd7, constant;
cvta.const.u64 %rd7, %rd7;
ld.u32 %r1, [%rd5];
ld.u32 %r2, [%rd6];
ld.u32 %r3, [%rd7];
add.u32 %r9, %r1, %r2;
add.u32 %r9, %r9, %r3;
cvta.to.shared.u64 %rd8, %rd6;
ld.shared.u32 %r4, [%rd8];
add.u32 %r9, %r9, %r4;"""
    assert words(body, before=before) == [lane + 85 for lane in range(32)]


def test_lanes_that_address_different_spaces() -> None:
    before = ".shared .align 4 .b32 word;\n.const .b32 constant = 5;\n"
    body = """mov.u64 %rd6, word;
cvta.shared.u64 %rd6, %rd6;
st.u32 [%rd6], 40;
mov.u64 %rd7, constant;
cvta.const.u64 %rd7, %rd7;
and.b32 %r1, %r0, 1;
setp.eq.u32 %p1, %r1, 0;
selp.b64 %rd8, %rd6, %rd7, %p1;
ld.u32 %r9, [%rd8];"""
    assert words(body, before=before) == [40, 5] * 16


def test_isspacep() -> None:
    before = ".shared .align 4 .b32 word;\n"
    body = """mov.u64 %rd6, word;
cvta.shared.u64 %rd6, %rd6;
isspacep.shared %p1, %rd6;
isspacep.global %p2, %rd6;
isspacep.global %p3, %rd0;
selp.u32 %r1, 1, 0, %p1;
selp.u32 %r2, 2, 0, %p2;
selp.u32 %r3, 4, 0, %p3;
add.u32 %r9, %r1, %r2;
add.u32 %r9, %r9, %r3;"""
    assert words(body, before=before) == [5] * 32


FUNCTIONS = """
.func (.param .b32 result) scale(.param .b32 a, .param .align 8 .b8 pair[8])
{
\t.reg .b32 %r<8>;
\t.local .align 4 .b32 own;
\tld.param.u32 %r0, [a];
\tld.param.u32 %r1, [pair];
\tld.param.u32 %r2, [pair+4];
\tst.local.u32 [own], %r0;
\tmul.lo.u32 %r3, %r0, %r1;
\tadd.u32 %r3, %r3, %r2;
\tld.local.u32 %r4, [own];
\tadd.u32 %r3, %r3, %r4;
\tst.param.b32 [result], %r3;
\tret;
}
.func (.reg .b32 result) triangle(.reg .b32 n)
{
\t.reg .pred %p<2>;
\t.reg .b32 %r<8>;
\tsetp.eq.u32 %p0, n, 0;
\t@%p0 bra ZERO;
\tsub.u32 %r0, n, 1;
\tcall (%r1), triangle, (%r0);
\tadd.u32 result, %r1, n;
\tret;
ZERO:
\tmov.u32 result, 0;
\tret;
}
"""


def test_calls_with_parameters_in_memory() -> None:
    body = """{
.param .b32 x;
.param .align 8 .b8 y[8];
.param .b32 z;
st.param.b32 [x], %r0;
st.param.b32 [y], 10;
st.param.b32 [y+4], 3;
call (z), scale, (x, y);
ld.param.b32 %r9, [z];
}"""
    assert words(body, before=FUNCTIONS) == [11 * lane + 3 for lane in range(32)]


def test_recursion_to_a_depth_that_lanes_do_not_share() -> None:
    body = "and.b32 %r1, %r0, 7;\ncall (%r9), triangle, (%r1);"
    assert words(body, before=FUNCTIONS) == [(lane % 8) * (lane % 8 + 1) // 2 for lane in range(32)]


def test_calls_through_a_pointer() -> None:
    before = FUNCTIONS + """
.func (.reg .b32 result) double(.reg .b32 n)
{
\tadd.u32 result, n, n;
\tret;
}
"""
    body = """mov.u64 %rd5, triangle;
mov.u64 %rd6, double;
setp.lt.u32 %p1, %r0, 10;
selp.b64 %rd7, %rd5, %rd6, %p1;
PROTO: .callprototype (.reg .b32 _) _ (.reg .b32 _);
call (%r9), %rd7, (%r0), PROTO;"""
    assert words(body, before=before) == [n * (n + 1) // 2 if n < 10 else 2 * n for n in range(32)]


def test_a_loop_that_lanes_leave_one_by_one() -> None:
    body = "mov.u32 %r9, 0;\nL:\nadd.u32 %r9, %r9, 3;\nsub.u32 %r0, %r0, 1;\nsetp.ge.s32 %p0, %r0, 0;\n@%p0 bra L;"
    assert words(body) == [3 * (lane + 1) for lane in range(32)]


def test_a_jump_table() -> None:
    body = """and.b32 %r1, %r0, 3;
T: .branchtargets A, B, C, D;
brx.idx %r1, T;
A:
mov.u32 %r9, 10;
bra E;
B:
mov.u32 %r9, 20;
bra E;
C:
mov.u32 %r9, 30;
bra E;
D:
mov.u32 %r9, 40;
E:"""
    assert words(body) == [10 * (lane % 4 + 1) for lane in range(32)]


def test_lanes_that_exit_early() -> None:
    out = np.zeros(32, np.uint32)
    body = OUT + "setp.lt.u32 %p0, %r0, 20;\n@%p0 exit;\nvote.sync.ballot.b32 %r9, 1, 0xffffffff;\nst.global.u32 [%rd1], %r9;"
    run(body, out)
    assert out.tolist() == [0] * 20 + [0xFFF00000] * 12


def test_clocks_repeat() -> None:
    body = "mov.u64 %rd5, %clock64;\nmov.u64 %rd6, %globaltimer;\nmov.u32 %r1, %clock;\ncvt.u32.u64 %r9, %rd5;\nadd.u32 %r9, %r9, %r1;"
    assert words(body) == words(body)


def test_ldmatrix_movmatrix_stmatrix() -> None:
    before = ".shared .align 16 .b8 tile[512];\n"
    body = """shl.b32 %r1, %r0, 4;
mov.u32 %r2, tile;
add.u32 %r3, %r2, %r1;
and.b32 %r4, %r0, 7;
shl.b32 %r10, %r0, 8;
st.shared.v4.b32 [%r3], {%r10, %r10, %r10, %r10};
bar.warp.sync 0xffffffff;
ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r11, %r12, %r13, %r14}, [%r3];
movmatrix.sync.aligned.m8n8.trans.b16 %r15, %r11;
ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r16}, [%r3];
setp.eq.u32 %p1, %r15, %r16;
selp.u32 %r9, 1, 0, %p1;"""
    assert words(body, before=before) == [1] * 32


def test_bar_red() -> None:
    out = np.zeros(64, np.uint32)
    body = OUT + """and.b32 %r1, %r0, 1;
setp.eq.u32 %p1, %r1, 0;
bar.red.popc.u32 %r2, 0, %p1;
bar.red.and.pred %p2, 0, %p1;
bar.red.or.pred %p3, 0, %p1;
selp.u32 %r3, 100, 0, %p2;
selp.u32 %r4, 1000, 0, %p3;
add.u32 %r2, %r2, %r3;
add.u32 %r2, %r2, %r4;
st.global.u32 [%rd1], %r2;"""
    run(body, out, block=64)
    assert set(out.tolist()) == {1032}


def test_prefetches_and_hints_do_nothing() -> None:
    body = """prefetch.global.L2 [%rd0];
prefetch.L1 [%rd0];
prefetchu.L1 [%rd0];
cp.async.bulk.prefetch.L2.global [%rd0], 64;
griddepcontrol.wait;
griddepcontrol.launch_dependents;
nanosleep.u32 20;
mov.u32 %r9, 1;"""
    assert words(body) == [1] * 32


@pytest.mark.parametrize(("body", "rule", "words"), [
    ("ld.global.u32 %r1, [%rd0+128];", "out-of-bounds", "where no buffer lies"),
    ("ld.global.u64 %rd2, [%rd0+4];", "misaligned", "which is not a multiple of its 8 bytes"),
    ("mov.u32 %r1, 500000;\nld.shared.u32 %r2, [%r1];", "out-of-bounds", "shared memory does not reach"),
    ("mov.u64 %rd2, 64;\nld.u32 %r2, [%rd2];", "out-of-bounds", "no memory lies"),
    ("trap;", "trap", "executes trap"),
    ("barrier.cluster.wait;", "cluster-barrier-wait", "without having arrived"),
    ("mbarrier.arrive.shared.b64 %rd2, [bar];", "mbarrier-uninitialised", "on bar of CTA 0"),
    ("mbarrier.init.shared.b64 [bar], 1;\nmbarrier.arrive.shared.b64 %rd2, [bar], 2;", "mbarrier-underflow", "awaits 1 more in phase 0"),
    ("mbarrier.init.shared.b64 [bar], 1;\nmbarrier.arrive.noComplete.shared.b64 %rd2, [bar], 1;", "mbarrier-no-complete", "completes"),
    ("mov.u32 %r1, 1;\nwgmma.fence.sync.aligned;", "wgmma-participation", "all 128 threads"),
])
def test_faults(body: str, rule: str, words: str) -> None:
    report = run(OUT + body, np.zeros(32, np.uint32), before=".shared .align 8 .b64 bar;\n", block=32)
    assert [finding.rule for finding in report.findings] == [rule]
    assert words in report.findings[0].message
    assert report.findings[0].position is not None


@pytest.mark.parametrize("instruction", [
    "alloca.u64 %rd2, %rd0;",
    "stacksave.u64 %rd2;",
    "multimem.ld_reduce.global.add.u32 %r1, [%rd0];",
    "multimem.st.global.u32 [%rd0], %r1;",
    "multimem.red.global.add.u32 [%rd0], %r1;",
])
def test_what_is_not_supported_is_named_before_anything_runs(instruction: str) -> None:
    out = np.zeros(32, np.uint32)
    opcode = instruction.split()[0].replace(".", r"\.")
    with pytest.raises(sim.UnsupportedError, match=opcode):
        run(OUT + "st.global.u32 [%rd1], 1;\n" + instruction, out)
    assert not out.any()
