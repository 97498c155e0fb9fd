"""What nvcc wrote assembles to the same machine code after a trip through the tree."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from ptxkit import grammar
from ptxkit.grammar import tree

from .certify import ptxas
from .cubin import differences, sections

pytestmark = pytest.mark.timeout(120)

FOLDER = Path(__file__).parents[1] / "corpus"
CORPUS = sorted(FOLDER.glob("*.ptx"))
FLAGS = {"separate": ["-c"]}


def assembled(text: str, folder: Path, *flags: str) -> bytes:
    source, made = folder / "module.ptx", folder / "module.cubin"
    source.write_text(text)
    done = subprocess.run([str(ptxas()), "-arch=sm_90a", *flags, source.name, "-o", made.name], cwd=folder, capture_output=True, text=True,
                          timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return made.read_bytes()


@pytest.mark.thinned(3)
@pytest.mark.ptxas
@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_the_written_form_is_the_same_program(path: Path, tmp_path: Path) -> None:
    """Every section but the text's own line tables is equal: machine code, data, constants, symbols, resources."""
    text, flags = path.read_text(), FLAGS.get(path.stem, [])
    written = grammar.write(grammar.parse(text))
    assert written != text
    wanted = assembled(text, tmp_path, *flags)
    assert any(name.startswith(".text") for name in sections(wanted))
    assert differences(wanted, assembled(written, tmp_path, *flags)) == []


@pytest.mark.ptxas
@pytest.mark.parametrize("name", ["lines", "tma"])
def test_the_code_does_not_depend_on_line_information(name: str, tmp_path: Path) -> None:
    text = (FOLDER / f"{name}.ptx").read_text()
    bare = assembled(grammar.write(grammar.parse(text), locs=False), tmp_path)
    found = differences(assembled(text, tmp_path), bare)
    assert [name for name in found if name.startswith((".text", ".nv.global", ".nv.constant"))] == []


@pytest.mark.ptxas
@pytest.mark.parametrize(
    ("old", "new", "section"),
    [("%tid.x", "%tid.y", ".text.saxpy"), ("%ntid.x", "9", ".text.saxpy"), ("0, 0, 128, 63, ", "0, 0, 128, 64, ", ".nv.constant3"),
     (".param .f32 saxpy_param_1", ".param .align 8 .b8 saxpy_param_1[8]", ".nv.info.saxpy")],
)
def test_the_comparison_sees_another_program(old: str, new: str, section: str, tmp_path: Path) -> None:
    text = (FOLDER / "arithmetic.ptx").read_text()
    written = grammar.write(grammar.parse(text))
    assert old in written
    assert section in differences(assembled(text, tmp_path), assembled(written.replace(old, new), tmp_path))


def strange(text: str) -> list[str]:
    """Absolute paths in a PTX text, also in the strings that its debug sections spell byte by byte."""
    said = [text]
    for item in grammar.parse(text).items:
        if isinstance(item, tree.Section):
            values = [value for row in item.rows if isinstance(row, tree.Data) and row.type == "b8" for value in row.values]
            said.append(bytes(v.value & 255 if isinstance(v, tree.Integer) else 0 for v in values).decode("latin-1"))
    return [found for text in said for found in re.findall(r"(?:^|[\s\"\0(])((?:/[\w.+-]+){2,}|[A-Z]:\\\w+)", text)]


@pytest.mark.pure
@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_no_path_of_a_machine_is_in_the_corpus(path: Path) -> None:
    assert strange(path.read_text()) == []


@pytest.mark.pure
def test_a_path_would_be_seen() -> None:
    head = ".version 9.0\n.target sm_90a\n"
    path = "/".join(("", "home", "me", "a.cu"))
    assert strange(f'{head}.file 1 "{path}"') == [path]
    spelled = ", ".join(str(byte) for byte in b"a\0/tmp/x1/a.cu\0")
    assert strange(head + ".section .debug_str { .b8 " + spelled + " }") == ["/tmp/x1/a.cu"]
