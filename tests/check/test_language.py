"""Language rules: what is told, at which words, and that ptxas refuses it, too; nothing is told of what compilers write."""

from __future__ import annotations

import io
import json
import random
import re
import subprocess
import sys
import tracemalloc
from collections import defaultdict
from pathlib import Path

import pytest

from ptxkit.check import check_text, kinds, language
from ptxkit.check.kinds import Kinds
from ptxkit.check.names import Scope
from ptxkit.check.places import Places
from ptxkit.cli.main import main
from ptxkit.grammar import match, parse, tree
from ptxkit.grammar.errors import Finding
from ptxkit.grammar.read import parse_all
from ptxkit.grammar.write import write_instruction
from tests.grammar import certify
from tests.grammar.test_fast import SMALL, mutant

pytestmark = pytest.mark.timeout(120)

CORPUS = sorted((Path(__file__).parents[1] / "corpus").glob("*.ptx"))
HEAD = ".version 9.0\n.target sm_90a\n.address_size 64\n"
BODY = HEAD + """.global .b32 gv; .global .texref tx; .func g(){ret;} .func (.param .b32 r) f(.param .align 8 .b8 a[8]){ret;}
.entry k(.param .b32 p){ .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b64 %rd<9>; .reg .pred %p<3>; .reg .b16 %h<3>;
.param .b32 one; .param .align 8 .b8 eight[8]; .param .align 4 .b8 four[8]; proto: .callprototype _ (); table: .calltargets g;
LINE
L: ret; }"""

# A line, the rule that tells of it and the words it is told at.
LINES = {
    "add.s32 %r1, %r2;": ("operands", "add.s32"),
    "add.s32 %r1, %r2, %rd3;": ("operands", "%rd3"),
    "add.s32 %r1, %r2, 1.0;": ("operands", "0d3FF0000000000000"),
    "ld.global.v2.u32 {%r1, %r2, %r3}, [%rd1];": ("operands", "{%r1, %r2, %r3}"),
    "add.s32 %r1, %r2, %r9;": ("undefined-name", "%r9"),
    "add.s32 %r1, %r2, nothing;": ("undefined-name", "nothing"),
    "bra M;": ("undefined-name", "M"),
    "bra g;": ("undefined-name", "g"),
    "call proto;": ("undefined-name", "proto"),
    ".reg .b32 %r;\n.reg .b64 %r;": ("duplicate-name", "%r"),
    ".reg .b32 %r<4>;": ("duplicate-name", "%r<4>"),
    ".reg .b32 %r5;": ("duplicate-name", "%r5"),
    "L: ret;": ("duplicate-name", "L"),
    ".reg .b32 L;": ("duplicate-name", "L"),
    "@%r1 bra L;": ("operands", "%r1"),
    "foo.bar %r1;": ("opcode", "foo.bar"),
    "bar.snyc 0;": ("opcode", "bar.snyc"),
    "redux.sync.min.f32 %f1, %f2, %r3;": ("target", "redux.sync.min.f32"),
    "st.param.b32 [p], %r1;": ("operands", "p"),
    "ld.global.u32 %r1, [L];": ("operands", "L"),
    "ld.u32 %r1, [g];": ("operands", "g"),
    "ld.global.u32 %r1, [tx];": ("operands", "tx"),
    "tex.1d.v4.f32.s32 {%f1,%f2,%f3,%f4}, [gv, {%r1}];": ("operands", "gv"),
    "mov.u64 %rd1, L;": ("operands", "L"),
    "mov.u32 %r1, gv;": ("operands", "gv"),
    "ld.shared.u32 %r1, [gv];": ("operands", "[gv]"),
    "setmaxnreg.inc.sync.aligned.u32 100;": ("operands", "100"),
    "call (one), f, (one);": ("call", "one"),
    "call (one), f, (four);": ("call", "four"),
    "call (one), f, (eight, eight);": ("call", "f"),
    "call f, (eight);": ("call", "f"),
    "call g, (one);": ("call", "g"),
    "call %rd1, (one), proto;": ("call", "%rd1"),
    "call %rd1, (one), table;": ("call", "%rd1"),
    ".shared .b32 s = 5;": ("declaration", "s"),
    ".reg .b32 q[4];": ("declaration", "q"),
    ".shared .align 3 .b8 s[4];": ("declaration", "s"),
    ".shared .b8 s[];": ("declaration", "s"),
    ".shared .pred s;": ("declaration", "s"),
    ".global .b8 s[2] = {1, 2, 3};": ("declaration", "s"),
    ".global .f32 s = 5;": ("declaration", "s"),
    ".local .v4 .b64 s;": ("declaration", "s"),
}

# What ptxas takes although it cuts the number off.
CUT = {
    "mov.u16 %h1, 70000;": "70000",
    "add.u32 %r1, %r2, 4294967296;": "4294967296",
    "shl.b32 %r1, %r2, 4294967296;": "4294967296",
    "ld.global.u32 %r1, [%rd1+4294967296];": "%rd1",
}

HEADS = {
    ".version 9.1\n.target sm_90a\n": ("version", "9.1"),
    ".version 7.8\n.target sm_90a\n": ("version", "sm_90a"),
    ".version 0.4\n.target sm_90a\n": ("version", "0.4"),
    ".version 9.0\n.target sm_91\n": ("target", "sm_91"),
    ".version 9.0\n.target foo\n": ("target", "foo"),
    ".version 9.0\n.target sm_90a, foo\n": ("target", "foo"),
    ".version 9.0\n.target sm_90a\n.address_size 32\n": ("target", "32"),
    HEAD + ".local .b32 s;": ("declaration", "s"),
    HEAD + ".reg .b32 s;": ("declaration", "s"),
    HEAD + ".global .b32 s; .global .b32 s;": ("duplicate-name", "s"),
    HEAD + ".extern .global .b32 s = 5;": ("declaration", "s"),
    HEAD + ".common .shared .b32 s;": ("declaration", "s"),
    HEAD + ".entry e(.reg .b32 s) {ret;}": ("declaration", "e"),
    HEAD + ".entry e(.param .b8 s[40000]) {ret;}": ("declaration", "e"),
    HEAD + ".entry e(.param .b32 s[]) {ret;}": ("declaration", "e"),
    HEAD + ".entry e() .maxntid 32 .reqntid 64 {ret;}": ("declaration", "e"),
    HEAD + ".entry e() .maxntid 0 {ret;}": ("declaration", "e"),
    HEAD + ".entry e() .maxntid 1,2,3,4 {ret;}": ("declaration", "e"),
    HEAD + ".entry e() .noreturn {ret;}": ("declaration", "e"),
    HEAD + ".func e() .maxntid 32 {ret;}": ("declaration", "e"),
    HEAD + ".entry e() .blocksareclusters {ret;}": ("declaration", "e"),
    HEAD + ".entry e() {ret;} .entry e() {ret;}": ("duplicate-name", "e"),
    HEAD + ".func e(.param .b32 a); .func e(.param .b64 a){ret;}": ("declaration", "e"),
    HEAD + ".extern .func e(); .func e(){ret;}": ("declaration", "e"),
    HEAD + ".func (.param .b32 a, .param .b32 b) e(){ret;}": ("declaration", "e"),
}


def told(text: str, **how: bool) -> list[Finding]:
    return list(check_text(text, protocols=False, **how))


def accepted(text: str, folder: Path) -> bool:
    (folder / "m.ptx").write_text(text)
    command = ["sh", "-c", 'ulimit -v 8000000; exec "$0" "$@"', str(certify.ptxas()), "-arch=sm_90a", "m.ptx", "-o", "m.cubin"]
    return subprocess.run(command, cwd=folder, capture_output=True, timeout=60, check=False).returncode == 0


@pytest.mark.pure
@pytest.mark.parametrize("line", LINES)
def test_a_wrong_line_is_told_at_its_words(line: str) -> None:
    text = BODY.replace("LINE", line)
    found = told(text)
    assert [(finding.rule, finding.words) for finding in found] == [LINES[line]]
    place = found[0]
    assert place.ptx_line is not None
    assert place.message
    if place.words in line:
        assert text.split("\n")[place.ptx_line - 1][place.ptx_column - 1:].startswith(place.words)
    assert place.expected or place.rule in ("opcode", "undefined-name", "duplicate-name", "declaration")


@pytest.mark.pure
def test_a_number_that_is_cut_off_is_told() -> None:
    for line, words in CUT.items():
        assert [(finding.rule, finding.words) for finding in told(BODY.replace("LINE", line))] == [("operands", words)]


@pytest.mark.pure
@pytest.mark.parametrize("text", HEADS)
def test_a_wrong_declaration_is_told(text: str) -> None:
    found = told(text)
    assert [(finding.rule, finding.words) for finding in found] == [HEADS[text]]
    assert found[0].ptx_line is not None


@pytest.mark.ptxas
@pytest.mark.skipif(certify.ptxas() is None, reason="no ptxas")
def test_ptxas_refuses_all_of_them(tmp_path: Path) -> None:
    assert accepted(BODY.replace("LINE", "call (one), f, (eight); call g; mov.u64 %rd1, g; ld.param.b32 %r1, [p];"), tmp_path)
    wrong = [f"{text}\n.visible .entry last() {{ ret; }}" for text in (*[BODY.replace("LINE", line) for line in LINES], *HEADS)]
    assert [text for text in wrong if accepted(text, tmp_path)] == []


@pytest.mark.pure
@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_nothing_is_told_of_what_compilers_write(path: Path) -> None:
    assert told(path.read_text()) == []


@pytest.mark.pure
def test_operands_of_equal_kinds_have_one_verdict() -> None:
    """What the rules remember by the kinds of the operands is what the table says of each instruction."""
    scope = Scope()
    for type, count in certify.REGISTERS.items():
        list(scope.declare(tree.Variable("reg", type, f"%{type}_", count)))
    for space in ("global", "const", "shared", "local"):
        list(scope.declare(tree.Variable(space, "b8", f"{space}_data", shape=(1024,))))
    verdicts: dict[tuple[object, ...], set[bool]] = defaultdict(set)
    rng = random.Random(7)
    registers = [tree.Name(f"%{type}_{rng.randrange(3)}") for type in certify.REGISTERS]
    for signature in rng.sample(certify.operand_lists(), 70):
        line = rng.choice(list(certify.instances(signature)))
        for _ in range(6):  # other numbers, of the same kind and of kinds nearby, and other registers
            changed = tree.Instruction(line.opcode, tuple(
                tree.Integer(rng.choice((operand.value, operand.value + 1, rng.randrange(-9, 300), 1 << rng.randrange(40))))
                if isinstance(operand, tree.Integer) else rng.choice([operand, operand, *registers]) if rng.random() < 0.2 else operand
                for operand in line.operands))
            if any(signature.form.rules for signature in _signatures(line.opcode)):
                continue
            key = Kinds(scope, {"callee": True, "giver": True}, ()).keys([changed])[0]
            verdicts[key].add(match.check(changed, scope.type) is None)
    assert len(verdicts) > 200
    assert [key for key, said in verdicts.items() if len(said) > 1] == []


def _signatures(opcode: str) -> tuple[object, ...]:
    from ptxkit.check.names import signatures

    return signatures(opcode)


@pytest.mark.pure
def test_kinds_that_say_too_little_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "integer", lambda value: "0")
    with pytest.raises(AssertionError):
        test_operands_of_equal_kinds_have_one_verdict()


@pytest.mark.pure
def test_what_one_function_declares_another_may_not_use() -> None:
    """Functions that declare alike share what was found out, but not their registers."""
    text = HEAD + "".join(f".func f{n}() {{ .reg .b32 %r<{count}>; .reg .f32 {name}; add.u32 %r1, %r1, %r4; mov.f32 {name}, %f; }}\n"
                          for n, (count, name) in enumerate([(9, "%f"), (4, "%f"), (9, "%q"), (5, "%f")]))
    assert [(finding.words, finding.ptx_line) for finding in told(text)] == [("%r4", 5), ("%f", 6)]


@pytest.mark.pure
def test_order_is_told_when_asked_for() -> None:
    text = BODY.replace("LINE", "ldmatrix.sync.aligned.x1.m8n8.shared.b16 {%r1}, [%r2];")
    assert told(text) == []
    assert [(finding.rule, finding.severity, finding.expected) for finding in told(text, strict=True)] == [
        ("order", "review", ("ldmatrix.sync.aligned.m8n8.x1.shared.b16",))]


@pytest.mark.pure
def test_versions_and_targets_are_said() -> None:
    line = "mbarrier.arrive.relaxed.cta.shared.b64 %rd1, [%r1];"
    text = BODY.replace("LINE", line).replace("9.0", "8.0")
    assert ["needs PTX" in finding.message for finding in told(text)] == [True]
    assert [finding.expected for finding in check_text(BODY.replace("LINE", "setmaxnreg.inc.sync.aligned.u32 128;"), target="sm_90",
                                                       protocols=False)] == [("sm_90a",)]


@pytest.mark.pure
@pytest.mark.parametrize("head", [".version 7.0\n.target sm_80", ".version 7.8\n.target sm_90", ".version 6.5\n.target sm_70"])
def test_a_module_from_before_the_table_is_not_told_its_version(head: str) -> None:
    """8.0 is the lowest version that the table tells apart."""
    assert told(BODY.replace("LINE", "fma.rn.f32 %f1, %f1, %f1, %f1;").replace(".version 9.0\n.target sm_90a", head)) == []


# ------------------------------------------------------------------------------------------------ the command

BAD_FILES = {
    "binary": (b"\x7fELF\x02\x01", "machine code"), "zeros": (b".version 9.0\n\0\0", "is no text"),
    "utf16": (HEAD.encode("utf-16"), "UTF-16"), "empty": (b"", "expected '.version'"),
    "latin": (HEAD.encode() + b"\xe9", r"found '\xe9', expected"), "cut": (HEAD.encode() + b".func f() { add.s32 ", "expected"),
    "directive": (HEAD.encode() + b".nonsense 5;", "'.nonsense'"),
    "old": (HEAD.encode().replace(b"9.0", b"1.0") + b".func f() { ret; }", "needs PTX 8.0"),
    "operators": (HEAD.encode() + b".global .u32 x = " + b"-" * 100_000 + b"1;", "more than 4096 operator characters"),
    "target": (b".version 9.0\n.target sm_12345\n", "no target"),
    "nested": (HEAD.encode() + b".func f() {" + b"{" * 100_000, "nested more than"),
}


@pytest.mark.pure
@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_one_clear_error(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, says = BAD_FILES[name]
    (tmp_path / "bad.ptx").write_bytes(data)
    assert main(["check", str(tmp_path / "bad.ptx")]) == 1
    written = capsys.readouterr()
    lines = [line for line in (written.out + written.err).splitlines() if "error" in line or line.startswith("ptxkit:")]
    assert says in lines[0]
    assert len(lines) <= 2, "one error, and the count"


@pytest.mark.pure
def test_a_file_over_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "big.ptx").write_text(HEAD + "// x\n" * 250_000)
    command = [sys.executable, "-m", "ptxkit", "check", "big.ptx"]
    environment = {"PATH": "", "PYTHONPATH": str(Path(__file__).parents[2]), "PTXKIT_PTX_MB": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "more than 1 MB" in done.stderr
    assert "PTXKIT_PTX_MB" in done.stderr


@pytest.mark.pure
def test_the_json_of_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.ptx").write_text(BODY.replace("LINE", "add.s32 %r1,\n  %r2, %rd3;\nadd.s32 a b;"))
    assert main(["check", str(tmp_path / "a.ptx"), "--json", "--language"]) == 1
    rows = json.loads(capsys.readouterr().out)["findings"]
    assert [(row["rule"], row["line"], row["column"], row["words"]) for row in rows] == [("operands", 8, 8, "%rd3"), ("syntax", 9, 11, "")]
    assert rows[0]["expected"] == ["a .s32 register", "an integer, any integer"]
    assert "';'" in rows[1]["expected"]


@pytest.mark.pure
def test_stdin_may_hold_anything(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(HEAD.encode() + b"// \xe9\xff\n.func f() { ret; }")))
    assert main(["check", "-", "--language"]) == 1
    assert "the byte 0xe9 is not ASCII" in capsys.readouterr().out


@pytest.mark.pure
@pytest.mark.parametrize("unit", ["a;", "add.s32 %r1, %r2, %r3;\n", "{}", "L: ", "ret;", ".reg .b32 q;", "add.u32 q, 5;"])
def test_memory_stays_below_a_hundred_times_the_file(unit: str) -> None:
    """Of the tree and of its making; findings have a limit of their own."""

    def peak(size: int) -> int:
        text = HEAD + ".func f() {\n" + unit * (size // len(unit)) + "}"
        tracemalloc.start()
        module, _ = parse_all(text)
        assert module is not None
        found: int = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(1_000)
    assert peak(40_000) - peak(20_000) < 100 * 20_000


@pytest.mark.pure
def test_findings_end_somewhere() -> None:
    found = told(HEAD + ".func f() {\n" + "a;" * (language.MOST + 50) + "}")
    assert len(found) == language.MOST + 1
    assert found[-1].rule == "too-many"


@pytest.mark.pure
def test_a_tree_that_was_not_read_is_checked_alike() -> None:
    """Equal operands need not be one object."""
    module = parse(CORPUS[0].read_text())
    rebuilt: tree.Module = eval(repr(module), dict(vars(tree)))
    assert list(language.findings(rebuilt, Places(rebuilt))) == []
    wrong = write_instruction(tree.Instruction("add.u32", (tree.Name("%r1"), tree.Name("%r1"), tree.Name("%rd1"))))
    assert [finding.rule for finding in told(BODY.replace("LINE", wrong))] == ["operands"]


@pytest.mark.pure
def test_the_page_shows_what_the_command_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "language.md").read_text()
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.M | re.S)
    assert [language for language, _ in blocks] == ["ptx", "", "python", "text"]
    (tmp_path / "scale.ptx").write_text(blocks[0][1])
    monkeypatch.chdir(tmp_path)
    assert main(["check", "scale.ptx"]) == 1
    assert "$ ptxkit check scale.ptx\n" + capsys.readouterr().out == blocks[1][1]
    exec(blocks[2][1], {"__name__": "page"})
    assert capsys.readouterr().out.strip() == blocks[3][1].strip()


@pytest.mark.pure
@pytest.mark.parametrize("seed", range(3))
def test_mutants_of_real_files_are_findings_with_a_place(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(15):
        for finding in told(mutant(rng.choice(SMALL), rng)):
            assert finding.ptx_line or finding.rule == "too-many"
            assert finding.kind == "language"
