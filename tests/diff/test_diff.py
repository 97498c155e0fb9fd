"""A comparison says nothing where only names differ, and what differs otherwise, from both sides alike."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from ptxkit.cli.main import main
from ptxkit.diff import diff
from ptxkit.diff.program import Program, of_module
from ptxkit.grammar import parse, tree, write
from ptxkit.lift.module import lifted

CORPUS = sorted((Path(__file__).parents[1] / "corpus").glob("*.ptx"))
ids = [path.stem for path in CORPUS]


def program(text: str) -> Program:
    return of_module(parse(text), "x")


@pytest.mark.pure
@pytest.mark.parametrize("path", CORPUS, ids=ids)
def test_a_file_does_not_differ_from_itself(path: Path) -> None:
    found = diff(program(path.read_text()), program(path.read_text()))
    assert found.same
    assert [f.hunks for f in found.functions if f.hunks] == []


def renamed(text: str, seed: int) -> str:
    """The text with its numbered registers and labels under other numbers."""
    chosen = random.Random(seed)
    numbers = {name: f"{name.rstrip('0123456789')}{n}" for kind in ("%r", "%rd", "%f", "%p", "%rs")
               for names in [sorted(set(re.findall(rf"(?<![\w%]){kind}\d+\b", text)))]
               for name, n in zip(names, chosen.sample(range(10, 9000), len(names)), strict=True)}
    text = re.sub(r"%\w+\d+\b", lambda found: numbers.get(found[0], found[0]), text)
    text = re.sub(r"(%\w+)<\d+>", r"\1<9000>", text)
    return re.sub(r"\$L__BB(\d+)_(\d+)", r"$other_\2_of_\1", text)


@pytest.mark.pure
@pytest.mark.parametrize("path", [path for path in CORPUS if path.stem in ("control", "atomics", "wgmma", "triton_matmul", "tma")],
                         ids=lambda path: path.stem)
def test_renaming_is_no_difference(path: Path) -> None:
    text = path.read_text()
    for seed in range(2):
        other = renamed(text, seed)
        assert other != text
        assert diff(program(text), program(other)).same


@pytest.mark.pure
@pytest.mark.parametrize("path", [path for path in CORPUS if path.stem in ("control", "wgmma", "clusters")], ids=lambda path: path.stem)
def test_what_was_lifted_is_the_same(path: Path) -> None:
    kernels = lifted(path.read_text()).kernels
    found = diff(program(path.read_text()), program(next(iter(kernels.values())).ptx()))
    assert all(function.removed + function.added == 0 and not function.hunks for function in found.functions)


def mutant(module: tree.Module, chosen: random.Random) -> tree.Module:
    """The module with an instruction left out, doubled or swapped with its neighbour in one function."""
    items = list(module.items)
    at = chosen.choice([i for i, item in enumerate(items) if isinstance(item, tree.Function) and len(item.body or ()) > 12])
    function = items[at]
    assert isinstance(function, tree.Function)
    body = list(function.body or ())
    places = [i for i in range(len(body) - 1) if isinstance(body[i], tree.Instruction) and isinstance(body[i + 1], tree.Instruction)
              and body[i] != body[i + 1]]
    place = chosen.choice(places)
    match chosen.randrange(3):
        case 0:
            del body[place]
        case 1:
            body.insert(place, body[place])
        case _:
            body[place], body[place + 1] = body[place + 1], body[place]
    items[at] = tree.Function(function.kind, function.name, function.parameters, function.returns, function.directives, tuple(body),
                              function.linkage, function.attributes)
    return tree.Module(module.version, module.target, module.address_size, tuple(items))


@pytest.mark.pure
@pytest.mark.parametrize("path", [path for path in CORPUS if path.stem in ("control", "wgmma", "objects")], ids=lambda path: path.stem)
def test_a_changed_instruction_is_seen_from_both_sides(path: Path) -> None:
    module = parse(path.read_text())
    first = of_module(module, "x")
    for seed in range(8):
        second = of_module(mutant(module, random.Random(seed)), "y")
        there, back = diff(first, second), diff(second, first)
        assert not there.same
        assert [(f.removed, f.added) for f in there.functions] == [(f.added, f.removed) for f in back.functions]
        assert ([(c.family, c.what, c.before, c.after) for f in there.functions for c in f.changes]
                == [(c.family, c.what, c.after, c.before) for f in back.functions for c in f.changes])
        assert sum(f.removed + f.added for f in there.functions) >= 1


BEFORE = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 n) .reqntid 128
{
    .reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %rd<4>; .shared .align 16 .b8 buffer[1024];
    mov.u32 %r1, %tid.x;
    ld.param.u64 %rd1, [out];
    mbarrier.init.shared::cta.b64 [buffer], 1;
    mbarrier.arrive.expect_tx.shared::cta.b64 %rd2, [buffer], 4096;
    setp.eq.u32 %p1, %r1, 0;
    @%p1 bra L;
    st.global.u32 [%rd1], %r1;
L:  ret;
}
"""


@pytest.mark.pure
@pytest.mark.parametrize(
    ("old", "new", "family", "what"),
    [("], 4096", "], 8192", "barriers", "expect_tx"),
     ("[buffer], 1;", "[buffer], 2;", "barriers", "init"),
     (".reqntid 128", ".reqntid 256", "launch", ".reqntid 256"),
     ("[1024]", "[2048]", "shared memory", "2048 bytes"),
     ("st.global.u32", "st.global.wb.u32", "opcodes", "st.global.wb.u32"),
     (".param .u32 n", ".param .u64 n", "launch", "parameter 1: .u64")],
)
def test_what_changed_is_named(old: str, new: str, family: str, what: str) -> None:
    (function,) = diff(program(BEFORE), program(BEFORE.replace(old, new))).functions
    assert any(change.family == family and what in change.what for change in function.changes)


@pytest.mark.pure
def test_another_register_or_target_is_a_difference() -> None:
    for old, new in (("[%rd1], %r1", "[%rd1], %r2"), ("@%p1 bra L", "@!%p1 bra L"),
                     ("st.global.u32 [%rd1], %r1;\nL:", "L: st.global.u32 [%rd1], %r1;\n")):
        assert old in BEFORE
        found = diff(program(BEFORE), program(BEFORE.replace(old, new)))
        assert not found.same
        assert found.functions[0].hunks


@pytest.mark.pure
def test_the_listing_names_registers_as_the_first_side_does() -> None:
    other = BEFORE.replace("%r1", "%r5").replace("], 4096", "], 8192")
    (function,) = diff(program(BEFORE), program(other), context=1).functions
    (hunk,) = function.hunks
    assert hunk.lines == ((" ", "mbarrier.init.shared::cta.b64 [buffer], 1"),
                          ("-", "mbarrier.arrive.expect_tx.shared::cta.b64 _, [buffer], 4096"),
                          ("+", "mbarrier.arrive.expect_tx.shared::cta.b64 _, [buffer], 8192"), (" ", "setp.eq.u32 %p1, %r1, 0"))


@pytest.mark.pure
def test_functions_that_only_one_side_has() -> None:
    two = BEFORE + BEFORE[BEFORE.index(".visible"):].replace("entry k(", "entry m(")
    found = diff(program(BEFORE), program(two))
    assert (found.only_before, found.only_after, found.same) == ((), ("m",), False)
    renamed_ = diff(program(BEFORE), program(BEFORE.replace("entry k(", "entry m(")))
    assert renamed_.same


@pytest.mark.ptxas
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b, cubin = tmp_path / "a.ptx", tmp_path / "b.ptx", tmp_path / "a.cubin"
    a.write_text(BEFORE)
    b.write_text(BEFORE.replace("[1024]", "[2048]"))
    assert main(["diff", str(a), str(a)]) == 0
    assert "the same but for names" in capsys.readouterr().out
    assert main(["diff", str(a), str(b), "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    changes = data["functions"][0]["changes"]
    assert {"family": "resources", "what": "shared", "before": 1024, "after": 2048} in changes
    assert main(["assemble", str(a), "-o", str(cubin)]) == 0
    capsys.readouterr()
    assert main(["diff", str(cubin), str(a)]) == 0
    b.write_text(BEFORE.replace("setp.eq", "setp.ne"))
    assert main(["diff", str(cubin), str(b)]) == 1
    assert "machine code" in capsys.readouterr().out
    b.write_text(BEFORE.replace("[1024]", "[2048]"))
    assert main(["diff", str(cubin), str(b)]) == 1
    said = capsys.readouterr().out
    assert "resources" in said
    assert "1024 -> 2048" in said


@pytest.mark.pure
@pytest.mark.parametrize("data", [b"nonsense", b"\0\0", b"\x7fELFxx", None])
def test_bad_input(data: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.ptx"
    if data is not None:
        path.write_bytes(data)
    assert main(["diff", str(path), str(path)]) == 1
    said = capsys.readouterr()
    assert said.err.startswith("ptxkit: ")
    assert said.out == ""


@pytest.mark.pure
def test_writing_keeps_the_comparison_empty() -> None:
    text = next(path for path in CORPUS if path.stem == "arithmetic").read_text()
    assert diff(program(text), program(write(parse(text)))).same
