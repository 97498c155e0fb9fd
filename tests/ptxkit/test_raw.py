"""PTX beyond the typed DSL: registers without a value, operands, statements and modules as PTX writes them."""

from __future__ import annotations

import re
from typing import Annotated

import pytest

from ptxkit import kernel, label, loop
from ptxkit.check import check_text
from ptxkit.dsl.raw import Module, Param, at, function, raw, register, registers, scope, verbatim
from ptxkit.dsl.reg import Reg
from ptxkit.errors import TraceError
from ptxkit.grammar import parse, write
from ptxkit.ptx import add, bra, ld, mov, ret, setp, st, vadd, vmad
from ptxkit.runtime.toolchain import disassemble
from ptxkit.types import b8, bits32, f32, s32, u32, u64

MODULE = Module(".const .align 4 .b32 table[4] = {1, 2, 3, 4};", version=(8, 6))


@function(".func (.param .b32 result) load (.param .b64 address)", MODULE)
def load(result: Param[u32], address: Param[u64]) -> None:
    st.param.b32(at("result"), ld.u32(ld.param.u64(address)))


@function(".func (.reg .b32 result) next_ (.reg .b32 x)", MODULE)
def next_(result: Reg[u32], x: Reg[u32]) -> None:
    add.u32(result, x, 1)


@kernel(module=MODULE, directives=".maxntid 64, 1, 1", name="_Z5first$v")
def first(out: Param[u64], box: Annotated[Param[b8], ".align 8 .b8 box[24]"]) -> None:
    a, b = registers(bits32, 2)
    place = ld.param.u64(out)
    ld.const.u32(a, at("table", 8))
    verbatim("call ({}), next_, ({});", b, a)
    with scope():
        verbatim(".param .b32 result; .param .b64 address;")
        st.param.b64(at("address"), place)
        verbatim("call (result), load, (address);")
        ld.param.b32(a, at("result"))
    with loop() as rounds:
        add.u32(a, a, 1)
        st.global_.u32(at(place, 4), a)
        rounds.repeat_if(setp.lt.u32(a, 10))
    st.global_.f32(place, raw("0f7FC00001"))
    st.global_.u64(place, ld.param.u64(at(box, 8)))


@kernel(module=MODULE, block=32)
def second(out: Param[u64]) -> None:
    st.global_.u32(ld.param.u64(out), 1)


@kernel(block=32)
def video(x: Reg[s32]) -> None:
    total = vadd.s32.u32.u32(raw("{}.b0", x), raw("{}.h1", x))
    vmad.s32.u32.s32(raw("-{}", total), raw("{}.b3", x), x)


@pytest.mark.pure
def test_parts_of_registers_and_minus_are_raw_operands() -> None:
    text = video.ptx()
    assert "vadd.s32.u32.u32 %r1, %r0.b0, %r0.h1;" in text
    assert "vmad.s32.u32.s32 %r2, -%r1, %r0.b3, %r0;" in text
    assert not [finding for finding in check_text(text) if finding.kind == "language"]

    @kernel(block=32)
    def selects(x: Reg[s32]) -> None:
        vadd.s32.u32.u32(x.b0, x)  # type: ignore[attr-defined]

    with pytest.raises(TraceError, match=r'raw\("\{\}\.b0", r\)'):
        selects.ptx()
    with pytest.raises(AttributeError, match="b9"):
        Reg.__getattr__(object.__new__(Reg), "b9")  # type: ignore[attr-defined]


@pytest.mark.ptxas
def test_ptxas_takes_parts_and_minus() -> None:
    assert video.assemble().findings == ()


@pytest.mark.pure
def test_a_module_is_written_whole_and_in_order() -> None:
    module = first.module()
    assert [f.name for f in module.functions] == ["load", "next_", "_Z5first$v", "second"]
    assert module.version == (8, 6)
    assert parse(write(module)) == parse(second.ptx(locs=True))
    said = first.ptx()
    for line in ("ld.const.u32 %r0, [table+8];", "call (%r1), next_, (%r0);", "call (result), load, (address);", "@%p0 bra $loop_1;",
                 "st.global.f32 [%rd0], 0f7FC00001;", "ld.param.u64 %rd1, [box+8];", ".maxntid 64, 1, 1", ".param .align 8 .b8 box[24]"):
        assert line in said
    assert "bra $loop_1;\n    bra" not in said


@pytest.mark.ptxas
def test_ptxas_takes_it() -> None:
    assert {"_Z5first$v", "second"} <= set(first.assemble().resources)


def traced(body: str) -> str:
    space = dict(globals())
    exec("from ptxkit.ptx import mov, mbarrier, bra\nfrom ptxkit.dsl.raw import register", space)
    exec(f"def k(out: Param[u64]) -> None:\n{body}", space)
    return kernel(block=32)(space["k"]).ptx()


@pytest.mark.pure
@pytest.mark.parametrize(
    ("body", "said"),
    [("    ld.global_.u32(at(mov.u32(1), 4))", "64-bit register"),
     ("    ld.global_.u32(at(mov.b64(raw('0d3FF0000000000000')), 4)); add.u32(out, 1)", "`ld.param` reads it"),
     ("    raw('{}.b0')", "1 places"),
     ("    raw('1, 2')", "not one operand"),
     ("    verbatim('add.u32 {}, 1, 2;', 5)", "stands for a register, a label"),
     ("    verbatim('add.u32 {}, 1')", "1 places"),
     ("    mbarrier.init.shared__cta.b64(ld.param.u64(out), 1)", "an mbarrier"),
     ("    with loop() as l:\n        p = setp.eq.u32(1, mov.u32(2))\n        l.repeat_if(p)\n        ret()", "nothing stands after it"),
     ("    register(u32); bra('nowhere')", "never placed")],
)
def test_mistakes_are_said(body: str, said: str) -> None:
    with pytest.raises(TraceError, match=said):
        traced(body)


@pytest.mark.pure
def test_declarations_and_heads_are_held_to_what_they_are() -> None:
    with pytest.raises(TraceError, match="no bodies"):
        kernel(module=Module(".func f() { ret; }"), name="k")(lambda: None).ptx()
    with pytest.raises(TraceError, match=r"the head of one \.func"):
        function(".entry f()", Module())
    with pytest.raises(TraceError, match="not an identifier of PTX"):
        kernel(name="a b")(lambda: None)


@pytest.mark.pure
def test_a_label_at_the_end_that_nobody_needs_gets_no_ret_of_its_own() -> None:
    from ptxkit import label

    @kernel(block=32)
    def ends() -> None:
        ret()
        label("end").place()

    assert ends.ptx().count("ret;") == 1


@kernel(block=32)
def names(out: Param[u64]) -> None:
    a, b, _ = registers(u32, ("%r1", "total", "%f1"))
    c = register(f32, "%r3")
    end = label(name="$done_1")
    place = ld.param.u64(at(out, 0))
    others = [mov.u32(i) for i in range(4)]
    add.u32(a, others[0], others[3])
    p = setp.lt.u32(a, b)
    bra(end, pred=p)
    label("done").place()
    mov.f32(c, 1.0)
    mov.f32(mov.f32(2.0))
    st.global_.u32(at(place, 0), a)
    end.place()


@pytest.mark.pure
def test_registers_and_labels_have_the_names_that_are_given() -> None:
    text = names.ptx()
    assert [line.strip() for line in text.splitlines() if ".reg" in line] == [
        ".reg .pred %p<1>;", ".reg .b32 %r0;", ".reg .b32 %r2;", ".reg .b32 %r4;", ".reg .b32 %r5;", ".reg .b64 %rd<1>;",
        ".reg .f32 %f0;", ".reg .f32 %f2;", ".reg .b32 %r1;", ".reg .b32 total;", ".reg .b32 %f1;", ".reg .f32 %r3;"]
    for line in ("add.u32 %r1, %r0, %r5;", "mov.f32 %r3, 0f3F800000;", "mov.f32 %f0, 0f40000000;", "mov.f32 %f2, %f0;",
                 "@%p0 bra $done_1;", "$done_1:", "ld.param.u64 %rd0, [out+0];", "st.global.u32 [%rd0+0], %r1;"):
        assert f"{line}\n" in text
    assert check_text(text, protocols=False) == ()
    assert parse(text) == parse(write(parse(text)))


@pytest.mark.pure
@pytest.mark.parametrize(("name", "said"), [("%r0", "has a register `%r0` already"), ("x", "has a register `x` already"),
                                            *((name, "cannot be called") for name in ("%tid", "a b", "_", "%", "4"))])
def test_a_name_is_given_once(name: str, said: str) -> None:
    @kernel()
    def taken() -> None:
        register(u32, "x")
        mov.u32(1)
        register(u32, name)

    with pytest.raises(TraceError, match=said):
        taken.ptx()


@pytest.mark.pure
def test_a_label_is_placed_once() -> None:
    @kernel()
    def twice() -> None:
        label(name="here").place()
        label(name="here").place()

    with pytest.raises(TraceError, match="defined twice"):
        twice.ptx()


@kernel(target="sm_90a, debug", block=32)
def watched(out: Param[u64]) -> None:
    place = ld.param.u64(out)
    one = mov.u32(1)
    two = add.u32(one, 1)
    st.global_.u32(place, two)


@pytest.mark.ptxas
def test_a_kernel_for_a_debugger_is_not_optimised_and_has_its_lines() -> None:
    made = watched.assemble()
    assert made.findings == ()
    plain = kernel(block=32, name="watched")(watched.function).assemble()
    assert "IADD3" in disassemble(made.cubin)
    assert "IADD3" not in disassemble(plain.cubin)
    first = watched.function.__code__.co_firstlineno
    lines = {int(found) for found in re.findall(r'//## File "[^"]*test_raw.py", line (\d+)', disassemble(made.cubin, lines=True))}
    assert lines == set(range(first + 2, first + 6))


PREDICATES = Module()


@function(".func unless (.reg .pred p, .reg .b8 b)", PREDICATES)
def unless(p: Reg, b: Param) -> None:
    ret(pred=p)


@kernel(module=PREDICATES)
def beside() -> None:
    pass


def test_a_function_is_given_its_registers_but_those_of_8_bits() -> None:
    (function_,) = [item for item in beside.module().functions if item.name == "unless"]
    assert [(variable.type, variable.name) for variable in function_.parameters] == [("pred", "%p0"), ("b8", "b")]
