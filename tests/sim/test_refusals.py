"""What the CPU device does not execute it refuses by name, instead of running something like it."""

from __future__ import annotations

import pytest

from ptxkit.grammar import forms, parse
from ptxkit.grammar.special import SPECIAL
from ptxkit.sim import UnsupportedError, run

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]

HEAD = """.version 9.0
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 given) .maxntid 128, 1, 1
{
.reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b64 %rd<9>; .reg .pred %p<4>;
"""
LINES = (
    "vadd.u32.u32.u32 %r1, %r2.b0, %r3",
    "vavrg4.s32.u32.u32.add %r1, %r2, %r3, %r4",
    "vmad.s32.s32.s32.shr7 %r1, %r2.h0, %r3.b1, %r4",
    "tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%rd1, {%r1}]",
    "tld4.r.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, %rd2, {%f5, %f6}]",
    "suld.b.2d.b32.trap %r1, [%rd1, {%r2, %r3}]",
    "sured.b.add.1d.u32.clamp [%rd1, {%r2}], %r3",
    "txq.width.b32 %r1, [%rd1]",
    "mma.sp.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2}, {%r3, %r4}, {%f1, %f2, %f3, %f4}, %r5, 0",
    "multimem.red.add.u32 [%rd1], %r1",
)
SYSTEM = ("%reserved_smem_offset_0", "%reserved_smem_offset_1", "%reserved_smem_offset_cap")


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.partition(" ")[0])
def test_an_instruction_is_refused_by_name(line: str) -> None:
    opcode = line.partition(" ")[0]
    assert forms.lookup(opcode)
    with pytest.raises(UnsupportedError, match=opcode.replace(".", r"\.")):
        run(parse(f"{HEAD}{line};\nret;\n}}\n"), "kernel", grid=1, block=128, args=(0,))


def _reads(name: str) -> str:
    kind = SPECIAL[name]
    register = {"u32": "%r1", "u64": "%rd1", "pred": "%p1"}[kind]
    return f"mov.{kind} {register}, {name};\n"


def test_special_registers_have_a_value() -> None:
    moves = "".join(_reads(name) for name in SPECIAL if name not in SYSTEM)
    assert not run(parse(f"{HEAD}{moves}ret;\n}}\n"), "kernel", grid=1, block=128, args=(0,)).findings


@pytest.mark.parametrize("name", SYSTEM)
def test_a_special_register_without_a_value_is_refused_by_name(name: str) -> None:
    with pytest.raises(UnsupportedError, match=f"`{name}` says where the system keeps data") as caught:
        run(parse(f"{HEAD}{_reads(name)}ret;\n}}\n"), "kernel", grid=1, block=128, args=(0,))
    assert str(caught.value).startswith("line 7: ")
    assert str(caught.value).endswith("keep such data in shared memory that the kernel declares")
