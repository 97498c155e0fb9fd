"""PTX as ptxas takes it and other compilers write it: declarations in bodies, aliases, variables of other entries, calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxkit import sim

from .kernels import HEAD

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]
PROLOGUE = "\t.reg .b64 d;\n\t.reg .b32 r, q;\n\tld.param.u64 d, [p];\n"


def entry(body: str, before: str = "", after: str = "", name: str = "k") -> str:
    return f"{HEAD}{before}\n.visible .entry {name}(.param .u64 p)\n{{\n{PROLOGUE}{body}\tret;\n}}\n{after}"


def run(text: str, count: int = 4, **options: Any) -> tuple[list[int], sim.Report]:
    out = np.full(count, 0xABCD, np.uint32)
    report = sim.run(text, grid=1, block=1, args=(out,), **options)
    return out.tolist(), report


def test_a_global_variable_of_a_body_is_an_array_of_its_own() -> None:
    """Two functions may each have one of the same name; what they hold lasts."""
    table = ".global .align 4 .u32 table[3] = {{{}, 5, 6}};\n"
    function = ".func (.reg .u32 v) get()\n{\n" + table.format(30) + "\tld.global.u32 v, [table];\n\tret;\n}\n"
    body = table.format(40) + """	ld.global.u32 r, [table];
	st.global.u32 [d], r;
	call (r), get;
	st.global.u32 [d+4], r;
	st.global.u32 [table+8], r;
	ld.global.u32 r, [table+8];
	st.global.u32 [d+8], r;
"""
    found, report = run(entry(body, function))
    assert (found, report.verdict) == ([40, 30, 30, 0xABCD], "clean")
    beyond, report = run(entry(".global .align 4 .u32 table[3];\n\tld.global.u32 r, [table+12];\n\tst.global.u32 [d], r;\n"))
    assert report.findings[0].rule == "out-of-bounds"
    assert beyond == [0xABCD] * 4


def test_a_call_through_an_alias_runs_the_function() -> None:
    before = ".visible .func (.reg .u32 v) other();\n.visible .func (.reg .u32 v) real()\n{\n\tmov.u32 v, 77;\n\tret;\n}\n"
    body = "\tcall (r), other;\n\tst.global.u32 [d], r;\n\tcall (r), real, ();\n\tst.global.u32 [d+4], r;\n"
    found, report = run(entry(body, before, ".alias other, real;\n"))
    assert (found[:2], report.verdict) == ([77, 77], "clean")


def test_a_pointer_to_an_alias_is_a_pointer_to_the_function() -> None:
    before = ".visible .func (.reg .u32 v) other();\n.visible .func (.reg .u32 v) real()\n{\n\tmov.u32 v, 78;\n\tret;\n}\n"
    body = "\t.reg .b64 f;\n\tmov.u64 f, other;\nP: .callprototype (.reg .u32 _) _ ();\n\tcall (r), f, (), P;\n\tst.global.u32 [d], r;\n"
    found, report = run(entry(body, before, ".alias other, real;\n"))
    assert (found[0], report.verdict) == (78, "clean")


def test_shared_variables_count_where_they_are_named() -> None:
    """Three of 120,000 bytes are more than a CTA has; each entry names one, the function that it calls another."""
    before = "".join(f".shared .align 4 .b8 {name}[90000];\n" for name in "xyz")
    function = ".func touch()\n{\n\t.reg .b32 r;\n\tmov.u32 r, 3;\n\tst.shared.u32 [y], r;\n\tret;\n}\n"
    body = "\tmov.u32 r, 5;\n\tst.shared.u32 [{0}+89996], r;\n\tcall touch;\n\tld.shared.u32 q, [{0}+89996];\n\tst.global.u32 [d], q;\n"
    second = entry(body.format("z"), name="j").removeprefix(HEAD)
    text = entry(body.format("x"), before + function, second)
    assert run(text, entry="k")[0][0] == run(text, entry="j")[0][0] == 5
    everything = entry(body.format("x") + "\tst.shared.u32 [z], r;\n", before + function)
    with pytest.raises(sim.SimulationError, match=r"271,?024 bytes of shared memory|bytes of shared memory a CTA: at most"):
        run(everything)


def test_the_fourth_element_of_a_position_is_zero() -> None:
    for name in ("tid", "ntid", "ctaid", "nctaid"):
        assert run(entry(f"\tmov.u32 r, %{name}.w;\n\tst.global.u32 [d], r;\n"))[0][0] == 0


@pytest.mark.parametrize("vector", ["v", "w"])
def test_moves_of_whole_vectors(vector: str) -> None:
    body = """	.reg .v2 .b32 v, w;
	.reg .v4 .b16 h;
	.reg .b16 s;
	mov.u32 r, 7;
	mov.u32 q, 9;
	mov.v2.u32 v, {r, q};
	mov.v2.b32 w, v;
	mov.v2.u32 {q, r}, VECTOR;
	st.global.u32 [d], r;
	st.global.u32 [d+4], q;
	st.global.u32 [d+8], VECTOR.y;
	mov.u16 s, 5;
	mov.v4.u16 h, {s, s, s, s};
	mov.u16 s, h.w;
	cvt.u32.u16 r, s;
	st.global.u32 [d+12], r;
"""
    assert run(entry(body.replace("VECTOR", vector)))[0] == [9, 7, 9, 5]


@pytest.mark.parametrize(("bits", "kept", "flushed"), [
    (0x0001, 0x00010000, 0), (0x807F, 0x807F0000, 0x80000000), (0x0080, 0x00800000, 0x00800000), (0x3F80, 0x3F800000, 0x3F800000)])
def test_bf16_to_f32_with_and_without_ftz(bits: int, kept: int, flushed: int) -> None:
    for opcode, expected in (("cvt.f32.bf16", kept), ("cvt.ftz.f32.bf16", flushed)):
        body = f"\t.reg .b16 h;\n\t.reg .f32 f;\n\tmov.b16 h, {bits};\n\t{opcode} f, h;\n\tst.global.f32 [d], f;\n"
        assert run(entry(body))[0][0] == expected


@pytest.mark.parametrize(("bits", "expected"), [(0x00400000, 0), (0x807FFFFF, 0x8000), (0x3F800000, 0x3F80), (0x00800000, 0x0080)])
def test_f32_to_bf16_with_ftz(bits: int, expected: int) -> None:
    body = f"\t.reg .b16 h;\n\t.reg .f32 f;\n\tmov.b32 f, {bits};\n\tcvt.rn.ftz.bf16.f32 h, f;\n\tst.global.b16 [d], h;\n"
    assert run(entry(body))[0][0] & 0xFFFF == expected


def test_a_form_that_only_ptxas_has_is_refused_by_name() -> None:
    with pytest.raises(sim.UnsupportedError, match=r"line \d+: the simulator does not execute `fma.rz.bf16` with such operands"):
        run(entry("\t.reg .b16 h;\n\tfma.rz.bf16 h, h, h, h;\n"))


def test_the_ctas_of_a_cluster_arrive_at_their_leader() -> None:
    """At a generic address that mapa made, in the scope of the cluster and without a state; in the scope of the CTA it is a fault."""
    body = """	.reg .pred first, done;
	.reg .b64 own, leader;
	.shared .align 8 .b64 full;
	cvta.shared.u64 own, full;
	mapa.u64 leader, own, 0;
	mov.u32 r, %cluster_ctarank;
	setp.eq.u32 first, r, 0;
	@first mbarrier.init.shared::cta.b64 [full], 2;
	fence.mbarrier_init.release.cluster;
	barrier.cluster.arrive;
	barrier.cluster.wait;
	mbarrier.arrive.release.SCOPE.b64 _, [leader];
	@!first bra END;
W:
	mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [full], 0;
	@!done bra W;
END:
	barrier.cluster.arrive;
	barrier.cluster.wait;
"""
    out = np.zeros(4, np.uint32)
    text = entry(body).replace(")\n{", ")\n.reqnctapercluster 2\n{", 1)
    for schedule in ("fifo", "random", "adversarial"):
        report = sim.run(text.replace("SCOPE", "cluster"), grid=2, block=1, args=(out,), schedule=schedule)
        assert report.verdict == "clean", report
    wrong = sim.run(text.replace("SCOPE", "cta"), grid=2, block=1, args=(out,))
    assert [finding.rule for finding in wrong.findings] == ["out-of-bounds"]


def test_a_whole_special_register_is_a_vector() -> None:
    text = f"""{HEAD}.visible .entry k(.param .u64 p)
{{
	.reg .b64 d;
	.reg .b32 r, q;
	.reg .v4 .u32 v;
	.reg .v4 .u16 h;
	ld.param.u64 d, [p];
	mov.v4.u32 v, %tid;
	mov.v4.u16 h, %ntid;
	mov.v4.u32 {{r, _, q, _}}, %ctaid;
	mad.wide.u32 d, v.x, 16, d;
	cvt.u32.u16 v.z, h.x;
	st.global.v4.u32 [d], {{v.x, v.w, v.z, r}};
	ret;
}}
"""
    out = np.full((2, 4), 7, np.uint32)
    report = sim.run(text, grid=1, block=2, args=(out,))
    assert (out.tolist(), report.verdict) == ([[0, 0, 2, 0], [1, 0, 2, 0]], "clean")


def test_a_number_is_converted_to_the_size_of_its_use() -> None:
    body = "mov.b32 r, 4294967301;\nadd.u32 r, r, 8589934594;\nst.global.b32 [d], r;\nst.global.b32 [d+4], 4294967304;\n"
    found, _ = run(entry(body))
    assert found[:2] == [7, 8]


@pytest.mark.parametrize("schedule", ["fifo", "reverse", "random", "lazy"])
def test_a_scan_that_pairs_of_warps_repeat_is_proven(schedule: str) -> None:
    """Triton's 128 threads sort 64 numbers: two warps each store what the other two store, too."""
    path = Path(__file__).parents[1] / "corpus" / "triton_scan.ptx"
    given = np.random.default_rng(0).integers(-50, 100, 64)
    x = given.copy()
    report = sim.run(path.read_text(), grid=1, args=(x, 0, 0), dynamic_smem=4096, schedule=schedule)
    assert (report.verdict, report.every_schedule) == ("clean", True)
    assert {(finding.rule, str(finding.position)) for finding in report.findings} == {("same-value", "triton_kernels.py:43:22")}, \
        "of what was inlined, the outermost call"
    assert np.array_equal(x, np.sort(np.cumsum(given)))


NESTED = """.func (.param .b64 v) inner(.param .b64 x)
{
	.reg .b64 a;
	ld.param.u64 a, [x];
	add.u64 a, a, 1;
	st.param.b64 [v], a;
	ret;
}
.func (.param .b32 v) outer(.param .b32 x)
{
	.reg .b64 a;
	.reg .b32 b;
	ld.param.u32 b, [x];
	cvt.u64.u32 a, b;
	{
	.param .b64 to;
	.param .b64 back;
	st.param.b64 [to+0], a;
	call (back), inner, (to);
	ld.param.b64 a, [back+0];
	}
	cvt.u32.u64 b, a;
	st.param.b32 [v], b;
	ret;
}
"""


def test_the_frames_of_calls_in_calls_are_aligned() -> None:
    """The entry's arguments end in the middle of a double word, with which the arguments of the inner call begin."""
    body = """	{
	.param .b32 to;
	st.param.b32 [to+0], 41;
	.param .b32 back;
	.local .align 4 .b8 odd[4];
	call (back), outer, (to);
	ld.param.b32 r, [back+0];
	}
	st.global.u32 [d], r;
"""
    out, report = run(entry(body, NESTED))
    assert (out[0], report.verdict) == (42, "clean")
