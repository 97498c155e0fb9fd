"""What is lifted assembles to the same machine code, and what was a loop or an if is one again."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxkit import grammar
from ptxkit.dsl.kernel import Kernel
from ptxkit.dsl.trace import Builder
from ptxkit.lift import LiftError, lift
from ptxkit.lift.module import Lifted, lifted
from ptxkit.lift.scopes import labels
from ptxkit.tuning.auto import Autotuned

from ..grammar.certify import ptxas
from ..grammar.cubin import sections

pytestmark = pytest.mark.timeout(120)

ROOT = Path(__file__).parents[2]
CORPUS = sorted((ROOT / "tests" / "corpus").glob("*.ptx"))
FLAGS = {"separate": ["-c"]}
HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"


def code(text: str, folder: Path, *flags: str) -> dict[str, bytes]:
    """The machine code of every function; ptxas refuses to optimise what is made for a debugger."""
    source, made = folder / "module.ptx", folder / "module.cubin"
    source.write_text(text)
    optimise = [] if ", debug" in text else ["-O3"]
    done = subprocess.run([str(ptxas()), "-arch=sm_90a", *optimise, *flags, source.name, "-o", made.name], cwd=folder,
                          capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return {name: data for name, data in sections(made.read_bytes()).items() if name.startswith(".text.")}


@functools.cache
def whole(path: Path) -> Lifted:
    """All entries of a file of the corpus."""
    return lifted(path.read_text(), source=path.name)


@pytest.mark.thinned(3)
@pytest.mark.ptxas
@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_every_entry_comes_back_as_the_same_machine_code(path: Path, tmp_path: Path) -> None:
    text, flags = path.read_text(), FLAGS.get(path.stem, [])
    wanted = code(text, tmp_path, *flags)
    made = whole(path)
    entries = [f.name for f in grammar.parse(text).entries]
    assert list(made.kernels) == entries
    first = code(made.kernels[entries[0]].ptx(), tmp_path, *flags)
    assert {f".text.{name}" for name in entries} <= set(first)
    assert [name for name in first if first[name] != wanted[name]] == []


@pytest.mark.ptxas
@pytest.mark.parametrize(("name", "entry"), [("control", "loops"), ("calls", "say"), ("tma", "by_hand")])
def test_one_entry_of_several(name: str, entry: str, tmp_path: Path) -> None:
    text = (ROOT / "tests" / "corpus" / f"{name}.ptx").read_text()
    made = lifted(text, [entry]).kernels[entry].ptx()
    assert code(made, tmp_path)[f".text.{entry}"] == code(text, tmp_path)[f".text.{entry}"]


DEBUGGED = [path for path in CORPUS if path.stem in ("debug", "unoptimised")]
SPOILED = {
    "a register loses its name": (r'\b(registers\(\w+, \()"%(\w+)"', r'\1"%other\2"'),
    "a further label": (r"^( +)(label\(name=.*)$", r'\1\2\n\1label("more").place()'),
    "an addition of 0 left out": (r"\bat\((\w+), 0\)", r"at(\1)"),
}


@pytest.mark.ptxas
@pytest.mark.parametrize("path", DEBUGGED, ids=lambda path: path.stem)
def test_what_is_made_for_a_debugger_keeps_its_line_table_out_of_the_code(path: Path, tmp_path: Path) -> None:
    made = next(iter(whole(path).kernels.values()))
    assert made.module().target == ("sm_90a", "debug")
    wanted = code(path.read_text(), tmp_path)
    assert code(made.ptx(locs=True), tmp_path) == wanted
    assert made.assemble().resources.keys() == whole(path).kernels.keys()
    one = lifted(path.read_text(), [next(iter(whole(path).kernels))])  # the sections describe the whole module
    assert one.text == whole(path).text.replace(f"lifted from {path.name}", "lifted from PTX")


@pytest.mark.ptxas
@pytest.mark.parametrize("how", list(SPOILED))
def test_what_is_kept_for_a_debugger_decides_the_code(how: str, tmp_path: Path) -> None:
    path = ROOT / "tests" / "corpus" / "unoptimised.ptx"
    text, (pattern, changed) = whole(path).text, SPOILED[how]
    other = re.sub(pattern, changed, text, flags=re.MULTILINE)
    assert other != text
    space: dict[str, Any] = {"__name__": "spoiled"}
    exec(compile(other, "<spoiled>", "exec"), space)
    name = next(iter(whole(path).kernels))
    made = next(value for value in space.values() if isinstance(value, Kernel) and value.name == name)
    assert code(made.ptx(), tmp_path) != code(path.read_text(), tmp_path)


@pytest.mark.ptxas
def test_the_texture_mode_stays(tmp_path: Path) -> None:
    text = """.version 8.0\n.target sm_90a, texmode_independent\n.global .texref t;\n.global .samplerref s;
        .visible .entry k(.param .u64 out) { .reg .f32 %f<5>; .reg .b64 %rd<2>; ld.param.u64 %rd1, [out];
        tex.1d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [t, s, {0f3F800000}]; st.global.f32 [%rd1], %f1; ret; }"""
    made = lifted(text).kernels["k"]
    assert made.module().target == ("sm_90a", "texmode_independent")
    assert code(made.ptx(), tmp_path) == code(text, tmp_path)
    assert made.assemble().resources["k"].registers


@pytest.mark.ptxas
def test_what_is_written_behind_an_operand_stays(tmp_path: Path) -> None:
    text = """.version 8.0\n.target sm_90a\n.global .texref t;
        .visible .entry k(.param .u64 out) { .reg .f32 %f<7>; .reg .b64 %rd<2>; .reg .pred %p<2>; ld.param.u64 %rd1, [out];
        ld.global.f32 %f5, [%rd1+4].unified; ld.global.f32 %f6, [%rd1+8]; tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}|%p1, [t, {%f5, %f6}];
        @%p1 st.global.f32 [%rd1], %f1; ret; }"""
    wanted = code(text, tmp_path)
    assert code(lifted(text).kernels["k"].ptx(), tmp_path) == wanted
    assert code(text.replace(".unified", ""), tmp_path) != wanted


STAYING = HEAD + """.func (.reg .v2 .u32 sum) twice(.reg .v2 .u32 pair, .reg .u32 class)
{
    .reg .u32 t;
    .reg .b8 b;
    cvt.u8.u32 b, class;
    cvt.u32.u8 t, b;
    add.u32 sum.x, pair.x, t;
    add.u32 sum.y, pair.y, class;
    ret;
}
.visible .entry bytes(.param .u64 out)
{
    .reg .u64 p;
    .reg .u32 x, y;
    .reg .u8 c, %b<3>;
    .reg .v2 .u32 v;
    ld.param.u64 p, [out];
    mov.u32 x, %tid.x;
    cvt.u8.u32 c, x;
    st.u8 [p], c;
    {
        .reg .b8 x;
        .reg .v2 .u32 y;
        ld.u8 x, [p+1];
        cvt.u8.s8 %b2, x;
        st.u8 [p+2], x;
        cvt.u32.u8 y.x, %b2;
        st.u32 [p+12], y.x;
    }
    mov.u32 v.x, x;
    mov.u32 v.y, 7;
    call (v), twice, (v, x);
    mov.v2.u32 v, {7, x};
    st.v2.u32 [p+16], v;
    mov.u32 y, v.x;
    st.u32 [p+8], y;
    ret;
}
"""


@pytest.mark.ptxas
def test_vectors_and_registers_of_8_bits_stay_as_they_are(tmp_path: Path) -> None:
    """A number that is cut to 8 bits in a register of 16 is other code; one may also have the name of a register around its block."""
    made = lifted(STAYING).kernels["bytes"].ptx()
    assert code(made, tmp_path) == code(STAYING, tmp_path)


NESTED = HEAD + """.visible .entry nested(.param .u64 out)
{
    .reg .pred %p<4>;
    .reg .b32 %r<4>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [out];
    ld.global.u32 %r1, [%rd1];
    setp.eq.s32 %p1, %r1, 0;
    setp.eq.s32 %p2, %r1, 1;
    @%p1 bra $L__BB0_3;
    st.global.u32 [%rd1+4], %r1;
    @%p2 bra $L__BB0_3;
$L__BB0_2:
    ld.global.u32 %r2, [%rd1+8];
    setp.ne.s32 %p3, %r2, 0;
    @%p3 bra $L__BB0_2;
$L__BB0_3:
    st.global.u32 [%rd1+12], %r1;
    ret;
}
"""


def test_labels_at_one_place_are_as_many_as_there_were() -> None:
    """ptxas begins a basic block at each, which can change its schedule. Two ifs and a loop may end at one place."""
    two = NESTED.replace("@%p1 bra $L__BB0_3", "@%p1 bra $L__BB0_4").replace("$L__BB0_3:\n", "$L__BB0_9:\n$L__BB0_3:\n$L__BB0_4:\n")
    for text, labelled in ((NESTED, 1), (two, 3)):
        made = lifted(text)
        assert shape(made.text) == {"if_": 2, "else_": 0, "loop": 1, "for_range": 0, "bra": 0}
        assert [labels(entry) for entry in made.kernels["nested"].module().entries] == [[7, 1, 10, labelled]]
        assert [labels(entry) for entry in grammar.parse(text).entries] == [[7, 1, 10, labelled]]
        assert ("joined=False" in made.text) is (labelled > 1)


@pytest.mark.ptxas
def test_a_label_that_nobody_names_stays_since_it_changes_the_code(tmp_path: Path) -> None:
    text = (ROOT / "tests" / "corpus" / "triton_scan.ptx").read_text()
    made = whole(ROOT / "tests" / "corpus" / "triton_scan.ptx").kernels["scan"].ptx()
    bare = re.sub(r"^\$L__tmp\w+:\n", "", made, flags=re.MULTILINE)
    assert bare != made
    wanted = code(text, tmp_path)
    assert code(made, tmp_path) == wanted
    assert code(bare, tmp_path) != wanted


def kernels_of(path: Path) -> list[Kernel[Any]]:
    spec = importlib.util.spec_from_file_location(f"lifted_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    values = [value.kernel if isinstance(value, Autotuned) else value for value in vars(module).values()]
    return [value for value in values if isinstance(value, Kernel)]


def shape(text: str) -> dict[str, int]:
    """How many of each construct a lifted text has."""
    return {word: len(re.findall(rf"with {word}\b", text)) for word in ("if_", "else_", "loop", "for_range")} | {
        "bra": len(re.findall(r"\bbra\(", text))}


def traced(kernel: Kernel[Any], monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The constructs that a kernel was written with, by the labels that each asks for."""
    asked: Counter[str] = Counter()
    new_label = Builder.new_label

    def counted(builder: Builder, hint: str) -> str:
        asked[hint] += 1
        return new_label(builder, hint)

    with monkeypatch.context() as patch:
        patch.setattr(Builder, "new_label", counted)
        kernel._trace(kernel.config({}))
    return asked


OURS = [*(path for path in sorted((ROOT / "examples").glob("*.py")) if "@kernel" in path.read_text()),
        *sorted((ROOT / "ptxkit" / "gemm" / "kernels").glob("dense*.py"))]


@pytest.mark.thinned(3)
@pytest.mark.pure
@pytest.mark.parametrize("path", OURS, ids=lambda path: path.stem)
def test_our_own_kernels_have_their_loops_and_ifs_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_gemm = path.parent.name == "kernels"
    kernels = [v for v in vars(importlib.import_module(f"ptxkit.gemm.kernels.{path.stem}")).values() if isinstance(v, Kernel)] if in_gemm \
        else kernels_of(path)
    assert kernels
    for kernel in kernels:
        asked = traced(kernel, monkeypatch)
        wanted = {"if_": asked["else"], "else_": asked["endif"], "loop": asked["loop"], "for_range": asked["for"], "bra": 0}
        assert shape(lift(kernel.ptx())) == wanted


@pytest.mark.pure
@pytest.mark.parametrize("path", [path for path in CORPUS if path.stem in ("control", "wgmma", "triton_matmul", "language")],
                         ids=lambda path: path.stem)
def test_lifting_what_was_lifted_changes_nothing(path: Path) -> None:
    made = whole(path)
    again = lifted(next(iter(made.kernels.values())).ptx())
    assert shape(again.text) == shape(made.text)
    third = lifted(next(iter(again.kernels.values())).ptx())
    assert without_labels(third.text) == without_labels(again.text)


def without_labels(text: str) -> str:
    """The text with its labels, which are numbered anew, all under one name."""
    for name in set(re.findall(r'label\("(\w+)"\)', text)):
        text = re.sub(rf"\b{name}\b", "LABEL", text)
    return "\n".join(sorted(text.splitlines()))


@pytest.mark.pure
@pytest.mark.parametrize("written", ["%r1", "%r2", "%r3"], ids=["index", "stop", "step"])
def test_a_loop_that_writes_what_it_counts_with_is_no_for_range(written: str) -> None:
    text = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry f(.param .u32 n) {
    .reg .pred %p<1>;
    .reg .b32 %r<4>;
    ld.param.u32 %r2, [n];
    mov.u32 %r3, 1;
    mov.u32 %r1, 0;
$for:
    setp.ge.u32 %p0, %r1, %r2;
    @%p0 bra $done;
    BODY
$next:
    add.u32 %r1, %r1, %r3;
    bra $for;
$done:
    ret;
}"""
    assert shape(lift(text.replace("BODY", "st.global.u32 [0], %r1;")))["for_range"] == 1
    loops = lifted(text.replace("BODY", f"shl.b32 {written}, {written}, 1;"))
    assert shape(loops.text)["for_range"] == 0
    assert "shl.b32" in loops.kernels["f"].ptx()


@pytest.mark.pure
def test_a_lifted_kernel_takes_arrays() -> None:
    (kernel,) = kernels_of(ROOT / "examples" / "vector_add.py")
    again = lifted(kernel.ptx()).kernels["vector_add"]
    a, b = np.random.default_rng(0).standard_normal((2, 300), dtype=np.float32)
    c = np.zeros(300, np.float32)
    assert not again.simulate(2, a, b, c, 300).findings
    assert np.array_equal(c, a + b)
    assert [(p.name, p.kind, p.type and p.type.__name__) for p in again.trace().parameters] == [
        ("a", "pointer", "b32"), ("b", "pointer", "b32"), ("c", "pointer", "b32"), ("n", "scalar", "u32")]


@pytest.mark.pure
def test_pointers_are_seen_by_what_is_done_with_them() -> None:
    found = {name: {p.name: (p.kind, p.type and p.type.__name__) for p in kernel.trace().parameters}
             for name, kernel in whole(ROOT / "tests" / "corpus" / "atomics.ptx").kernels.items()}
    assert found["ordered"] == {"param_0": ("pointer", "b32"), "param_1": ("pointer", "b32")}
    assert found["atomics"]["param_3"] == ("pointer", None)
    assert found["atomics"]["param_5"] == ("pointer", "b16")


# ------------------------------------------------------------------------------------------ one construct at a time


def body(text: str, parameters: str = ".param .u64 out", before: str = "") -> list[str]:
    """The Python of one entry's body, without indentation of the function."""
    ptx = f"""{HEAD}{before}.visible .entry k({parameters}) {{
        .reg .pred %p<8>; .reg .b32 %r<16>; .reg .b64 %rd<8>; .reg .f32 %f<8>; {text} }}"""
    lines = lift(ptx).splitlines()
    start = next(i for i, line in enumerate(lines) if line.endswith("-> None:"))
    end = next(i for i, line in enumerate(lines) if line.startswith("if __name__"))
    return [line.removeprefix("    ") for line in lines[start + 1:end] if line.strip()]


CONSTRUCTS = {
    "if": ("setp.eq.u32 %p1, %r1, 0; @%p1 bra L; add.u32 %r2, %r1, 1; L: ret;",
           ["p1 = setp.eq.u32(r1, 0)", "with if_(~p1):", "    add.u32(r1, 1)", "ret()"]),
    "if and else": ("@!%p1 bra L; mov.u32 %r1, 1; bra.uni M; L: mov.u32 %r1, 2; M: ret;",
                    ["with if_(p1):", "    r1 = mov.u32(1)", "with else_():", "    mov.u32(r1, 2)", "ret()"]),
    "a loop with its condition at the end": ("mov.u32 %r1, 0; L: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 9; @%p1 bra L; ret;",
                                             ["r1 = mov.u32(0)", "with loop() as loop_1:", "    add.u32(r1, r1, 1)",
                                              "    p1 = setp.lt.u32(r1, 9)", "    loop_1.repeat_if(p1)", "ret()"]),
    "a loop with its condition at the top": ("L: @%p1 bra M; add.u32 %r1, %r1, 1; bra.uni L; M: ret;",
                                             ["with loop() as loop_1:", "    loop_1.break_if(p1)", "    add.u32(r1, r1, 1)", "ret()"]),
    "continue": ("L: @%p1 bra L; add.u32 %r1, %r1, 1; @%p2 bra L; ret;",
                 ["with loop() as loop_1:", "    loop_1.continue_if(p1)", "    add.u32(r1, r1, 1)", "    loop_1.repeat_if(p2)", "ret()"]),
    "a break out of two loops": ("L: M: @%p1 bra E; @%p2 bra M; N: @%p3 bra E; @%p4 bra N; bra.uni L; E: ret;",
                                 ["with loop() as loop_1:", "    loop_1.break_if(p1)", "    loop_1.continue_if(p2)",
                                  "    with loop() as loop_2:", "        loop_1.break_if(p3)", "        loop_2.repeat_if(p4)", "ret()"]),
    "a jump into a branch": ("@%p1 bra A; @%p2 bra B; A: add.u32 %r1, %r1, 1; B: ret;",
                             ["with if_(~p1):", "    bra(B, pred=p2)", "add.u32(r1, r1, 1)", "B.place()", "ret()"]),
}


@pytest.mark.pure
@pytest.mark.parametrize("name", list(CONSTRUCTS))
def test_a_construct_is_found_again(name: str) -> None:
    text, wanted = CONSTRUCTS[name]
    assert [line for line in body(text) if not re.search(r"= (registers?|label)\(", line)] == wanted


@pytest.mark.pure
def test_names_that_say_something_stay() -> None:
    text = """.reg .b32 total, lane, add; mov.u32 lane, %tid.x; mov.u32 total, %laneid; add.u32 total, total, lane;
              mov.u32 %r3, %ctaid.y; add.u32 total, total, %r3;
              ld.param.u64 %rd1, [values]; mov.u32 add, 3; st.global.u32 [%rd1], add; ret;"""
    lines = body(text, ".param .u64 values")
    assert "ctaid_y = mov.u32(ctaid.y)" in lines
    assert "values_value = ld.param.u64(values)" in lines
    assert "add_ = mov.u32(3)" in lines
    assert "add.u32(total, total, tid_x)" in lines


@pytest.mark.pure
def test_source_lines_are_comments() -> None:
    text = "\n.loc 1 10 3\nmov.u32 %r1, 1;\n.loc 1 11 3\nmov.u32 %r2, 2;\n.loc 1 11 9\nret;"
    lines = body(text, before='.file 1 "a.cu"\n')
    assert lines == ["# a.cu:10", "mov.u32(1)", "# a.cu:11", "mov.u32(2)", "ret()"]


@pytest.mark.pure
@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_the_file_is_a_module_of_short_lines(path: Path, tmp_path: Path) -> None:
    text = whole(path).text
    kept = re.sub(r'DECLARATIONS = """.*?"""', "", text, flags=re.DOTALL)
    assert [line for line in kept.splitlines() if len(line) > 120 and '"' not in line and not line.startswith("def ")] == []
    file = tmp_path / "lifted.py"
    file.write_text(text)
    done = subprocess.run([sys.executable, "-m", "ruff", "check", "--isolated", "--select", "E,F,W", "--ignore", "E501,E741",
                           str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.pure
def test_deep_nests_fall_back_to_labels() -> None:
    depth = 40
    text = "".join(f"@%p1 bra L{i};" for i in range(depth)) + "add.u32 %r1, %r1, 1;" + "".join(
        f"L{i}: add.u32 %r2, %r2, {i};" for i in reversed(range(depth))) + "ret;"
    lines = body(text)
    assert sum("with if_" in line for line in lines) == 14
    assert sum("bra(" in line for line in lines) == depth - 14


# ------------------------------------------------------------------------------------------ what cannot be lifted


@pytest.mark.pure
@pytest.mark.parametrize(
    ("text", "said"),
    [(HEAD, "the module is empty"), (f"{HEAD}.func f() {{ ret; }}", "there is no entry to lift"),
     (".version 8.0\n.target sm_90a\n.address_size 32\n.entry f() { ret; }", "32-bit addresses"),
     (f"{HEAD}.entry f() {{ bra nowhere; }}", "branches to `nowhere`"),
     (f"{HEAD}.entry f() {'{' * 30} .param .b32 x; {'}' * 30}", "nested deeper"),
     (f"{HEAD}.entry f() {{ @%p1 ret; }}", "the guard `%p1` is not declared"),
     (f"{HEAD}.entry f() {{ .reg .b32 %r<2>; add.u32 %r1, %r1, %r5; }}", "uses `%r5`, which is not declared")],
)
def test_what_has_no_kernel_is_refused(text: str, said: str) -> None:
    with pytest.raises(LiftError, match=said):
        lift(text)


@pytest.mark.pure
def test_an_unknown_entry_is_refused_with_those_there_are() -> None:
    with pytest.raises(LiftError, match="no entry `z`: the module has a, b"):
        lift(f"{HEAD}.entry a() {{ ret; }} .entry b() {{ ret; }}", ["z"])
