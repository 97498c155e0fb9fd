"""`ptxkit inspect` on the corpus and the bundled kernels: the facts are what ptxas says, the page holds together, errors are clear."""

from __future__ import annotations

import io
import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from ptxkit import Ptr, inspect, kernel, smem, tid
from ptxkit.cli.main import main
from ptxkit.errors import NoToolError
from ptxkit.grammar import parse
from ptxkit.inspect.facts import Banks
from ptxkit.ptx import mov, st
from ptxkit.runtime import toolchain
from ptxkit.types import u32

from .subjects import CORPUS, PARTS, kernels

Printed = pytest.CaptureFixture[str]
PARTS_OF_KERNELS = 5


def inspected(capsys: Printed, *arguments: str, status: int = 0) -> dict[str, Any]:
    assert main(["inspect", *arguments, "--json"]) == status
    data: dict[str, Any] = json.loads(capsys.readouterr().out)
    return data


def assembled(path: Path) -> toolchain.Assembly:
    text = path.read_text()
    return toolchain.assemble(text, "sm_90a", relocatable=path.stem in PARTS)


# ------------------------------------------------------------------------------------------------ facts


@pytest.mark.thinned(3)
@pytest.mark.ptxas
@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_the_corpus(path: Path, capsys: Printed) -> None:
    """Every entry of the text, with ptxas's own numbers."""
    data = inspected(capsys, str(path))
    module = parse(path.read_text())
    assert [entry["name"] for entry in data["entries"]] == [entry.name for entry in module.entries]
    said = assembled(path).log
    for entry in data["entries"]:
        section = re.search(rf"Compiling entry function '{re.escape(entry['name'])}'.*?(?=Compiling entry|\Z)", said, re.S)
        assert section is not None
        numbers = {word: int(found[1]) if (found := re.search(pattern, section.group())) else 0 for word, pattern in {
            "registers": r"Used (\d+) registers", "spill_stores": r"(\d+) bytes spill stores", "spill_loads": r"(\d+) bytes spill loads",
            "shared": r"(\d+) bytes smem", "barriers": r"used (\d+) barriers"}.items()}
        assert {word: entry["resources"][word] for word in numbers} == numbers
        static = sum(symbol["bytes"] for symbol in entry["shared"] if symbol["bytes"] is not None and not symbol["within"])
        assert static <= numbers["shared"] <= static + 1024 * len(entry["shared"])  # ptxas aligns each
        assert sum(entry["mix"].values()) == entry["counts"]["instructions"]
        assert "unknown" not in entry["mix"]


@pytest.mark.ptxas
def test_a_part_of_a_program_is_no_error(tmp_path: Path, capsys: Printed) -> None:
    """What another file defines is said once; what is wrong besides is still an error."""
    path = next(path for path in CORPUS if path.stem in PARTS)
    assert main(["inspect", str(path)]) == 0
    said = capsys.readouterr()
    assert "is one part of a program" in said.err
    assert PARTS[path.stem] in said.err
    assert "registers" in said.out
    broken = tmp_path / "broken.ptx"
    broken.write_text(path.read_text().replace("ret;", "nonsense.u32 %r1, %r1;\n\tret;", 1))
    assert main(["inspect", str(broken)]) == 1
    assert "nonsense" in capsys.readouterr().err


@pytest.mark.ptxas
@pytest.mark.thinned(4)
@pytest.mark.parametrize("part", range(PARTS_OF_KERNELS))
def test_kernels(part: int, capsys: Printed) -> None:
    """Every fifth kernel from this one on, so that the parts run beside each other."""
    chosen = list(kernels().items())[part::PARTS_OF_KERNELS]
    assert len(chosen) >= 5
    for name, source in chosen:
        data = inspected(capsys, source)
        entry, = data["entries"]
        assert entry["resources"]["registers"] > 0, name
        assert not entry["missing"], name
        assert all(fact["leading"] is not None and fact["stride"] and fact["address"] for fact in entry["descriptors"]), name
        assert len(entry["descriptors"]) >= entry["counts"]["wgmma"], name
        assert len(entry["copies"]) == sum(entry["counts"][word] for word in ("tma_load", "tma_store", "tma_reduce", "tma_prefetch",
                                                                              "dsmem_copy")), name
        for copy in entry["copies"]:
            if name == "group_gemm_ptr_array":      # the maps of its matrices lie in device memory: no parameter says their boxes
                continue
            assert copy["box"] or not copy["dimensions"] or copy["kind"] == "prefetch", name
            assert copy["bytes"] or copy["kind"] == "prefetch" or not copy["dimensions"], name
        for barrier in entry["barriers"]:
            assert barrier["inits"], (name, barrier["name"])
            assert barrier["arrives"], (name, barrier["name"])
            assert barrier["waits"], (name, barrier["name"])
        if entry["counts"]["wgmma"]:
            assert entry["flight"]["products"] >= 1, name


@pytest.mark.ptxas
def test_a_kernels_protocol_is_what_its_text_says(capsys: Printed) -> None:
    """The tile GEMM of the examples: four stages, one producer thread, 128 consumers."""
    entry, = inspected(capsys, kernels()["tile_gemm"])["entries"]
    full, empty = entry["barriers"]
    assert (full["name"], full["count"], empty["name"], empty["count"]) == ("full", 4, "empty", 4)
    assert {init["amount"] for init in full["inits"]} == {1}
    assert {init["amount"] for init in empty["inits"]} == {128}
    assert [use["bytes"] for use in full["arrives"]] == [sum(use["bytes"] for use in full["copies"])]
    assert [use["threads"] for use in empty["arrives"]] == ["threads 128-255 (warps 4-7)"]
    assert [use["threads"] for use in full["waits"]] == ["threads 128-255 (warps 4-7)"]
    assert [use["threads"] for use in empty["waits"]] == ["thread 0"]
    assert {(tuple(copy["box"]), copy["swizzle"], copy["barrier"], copy["threads"]) for copy in entry["copies"]} == {
        ((64, 64), 128, "full", "thread 0"), ((64, 256), 128, "full", "thread 0")}
    assert entry["flight"] == {"products": 4, "groups": 1}
    assert [part["name"] for part in entry["shared"]][1:] == ["A", "B", "full", "empty"]


@pytest.mark.ptxas
def test_notes_of_ptxas_stand_at_their_entry_with_a_remedy(capsys: Printed) -> None:
    path = next(path for path in CORPUS if path.stem == "wgmma")
    data = inspected(capsys, str(path))
    notes = {entry["name"]: entry["notes"] for entry in data["entries"]}
    assert {note["rule"] for note in notes["specialised"]} == {"C7517", "C7519"}
    assert all(note["remedy"] for note in notes["specialised"])
    assert notes["multicast"] == []
    assert {finding["rule"] for finding in data["findings"]} == {"C7517", "C7519"}


@pytest.mark.pure
def test_from_python() -> None:
    path = next(path for path in CORPUS if path.stem == "tma")
    text = path.read_text()
    from_text, from_tree = inspect.entries(text), inspect.entries(parse(text))
    assert [entry.name for entry in from_text] == ["load_tiles", "bulk", "by_hand"]
    assert from_text == from_tree

    @kernel(block=64)
    def clear(out: Ptr[u32], *, VALUE: int = 0) -> None:
        tile = smem.array(u32, 64, name="staging")
        st.shared__cta.u32(tile.at(mov.u32(tid.x)), VALUE)
        st.global_.u32(out, VALUE)

    for source in (clear, clear.trace(VALUE=7)):
        entry, = inspect.entries(source)
        assert [(part.name, part.bytes, part.what) for part in entry.parameters] == [("out", 8, "pointer to global of u32")]
        assert [part.name for part in entry.shared] == ["clear_smem", "staging"]
        assert entry.banks == Banks(1, 1, ())
        assert entry.bounds["reqntid"] == (64, 1, 1)


# ------------------------------------------------------------------------------------------------ the page


class Page(HTMLParser):
    """Anchors, the links to them, and whether every tag is closed in order."""

    VOID = ("meta", "br", "link", "img", "input", "hr")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.rows: dict[str, str] = {}
        self.outside: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag not in self.VOID:
            self.open.append(tag)
        if "id" in given:
            self.ids.append(given["id"] or "")
        if tag == "a":
            self.links.append(given.get("href") or "")
            if self.ids and self.open[-2:] == ["div", "a"]:
                self.rows[self.ids[-1]] = given.get("href") or ""
        self.outside += [value or "" for name, value in attrs
                         if name in ("src", "action", "data", "poster") or (name == "href" and tag != "a")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def lines(self) -> list[str]:
        """The anchors of the lines of PTX."""
        return [at for at in self.ids if re.fullmatch(r"p\d+", at)]


def checked(text: str, ptx_lines: int) -> Page:
    page = Page(text)
    assert len(page.ids) == len(set(page.ids))
    assert {link[0] for link in page.links} <= {"#"}
    assert {link[1:] for link in page.links} <= set(page.ids)
    assert page.outside == ["data:,"], "no address but that of an empty icon, so that no browser asks for one"
    assert not re.search(r"https?://", re.sub(r"<div class=\"r[ \"].*?</div>", "", text))
    assert [f"p{number}" for number in range(1, ptx_lines + 1)] == page.lines()
    assert all(f"p{number}" in page.rows for number in range(1, ptx_lines + 1))
    return page


@pytest.mark.ptxas
@pytest.mark.parametrize("stem", ["triton_matmul", "language"])
def test_the_page_of_a_file(stem: str, capsys: Printed) -> None:
    path = next(path for path in CORPUS if path.stem == stem)
    assert main(["inspect", str(path), "--view", "html"]) == 0
    text = capsys.readouterr().out
    page = checked(text, path.read_text().count("\n") + 1)
    linked = [link for at, link in page.rows.items() if at[0] == "p" and link[1] == "s"]
    assert len(linked) > 5
    if stem == "triton_matmul":  # its source lies beside it
        assert any(at[0] == "f" for at in page.ids)
        assert any(link[1] == "p" for at, link in page.rows.items() if at[0] == "f")


@pytest.mark.ptxas
def test_the_page_of_a_kernel(tmp_path: Path, capsys: Printed) -> None:
    target = tmp_path / "page.html"
    assert main(["inspect", kernels()["tile_gemm"], "--view", "html", "-o", str(target)]) == 0
    assert capsys.readouterr().out == ""
    text = target.read_text()
    page = Page(text)
    checked(text, len(page.lines()))
    assert "STAGE_BYTES" in text
    from_python = {at: link for at, link in page.rows.items() if at[0] == "f" and link[1] == "p"}
    assert len(from_python) > 15
    assert "HGMMA" in text


def test_what_stands_in_a_file_is_escaped(tmp_path: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "ptxas", "nvdisasm")
    path = tmp_path / "k.ptx"
    path.write_text('.version 8.0\n.target sm_90a\n.address_size 64\n// <script>alert("&")</script>\n.file 1 "/etc/passwd"\n'
                    ".visible .entry k()\n{\n.loc 1 1 0\n    ret;\n}\n")
    assert main(["inspect", str(path), "--view", "html"]) == 0
    text = capsys.readouterr().out
    assert "<script>alert" not in text
    assert Path("/etc/passwd").read_text().split("\n")[0] not in text
    checked(text, 11)


# ------------------------------------------------------------------------------------------------ without tools, without PTX


def without(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    def missing() -> Any:
        raise NoToolError("the tool was not found: install it")

    for name in names:
        monkeypatch.setattr(toolchain, name, missing)


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_without_a_toolchain(path: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "ptxas", "nvdisasm", "cuobjdump")
    assert main(["inspect", str(path)]) == 0
    written = capsys.readouterr()
    assert "no resources" in written.err
    names = [entry.name for entry in parse(path.read_text()).entries]
    assert [name for name in names if f"{name}\n\nresources:" not in written.out] == []
    assert written.out.count("not known:\n  no registers") == len(names)


def test_a_file_without_a_toolchain_as_json(capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "ptxas", "nvdisasm")
    for entry in inspected(capsys, str(next(path for path in CORPUS if path.stem == "tma")))["entries"]:
        assert entry["resources"] is None
        assert any("assembled" in said for said in entry["missing"])
        assert entry["copies"]


@pytest.mark.ptxas
def test_a_cubin_with_and_without_its_ptx(tmp_path: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    source = next(path for path in CORPUS if path.stem == "wgmma")
    made = assembled(source)
    path = tmp_path / "k.cubin"
    path.write_bytes(made.cubin)
    expected = {name: (used.registers, used.shared, used.barriers) for name, used in made.resources.items()}
    data = inspected(capsys, str(path))
    assert {e["name"]: tuple(e["resources"][w] for w in ("registers", "shared", "barriers")) for e in data["entries"]} == expected
    assert all(any("PTX" in said for said in entry["missing"]) for entry in data["entries"])
    assert main(["inspect", str(path), "--view", "html"]) == 0
    assert "HGMMA" in capsys.readouterr().out
    without(monkeypatch, "nvdisasm")
    assert main(["inspect", str(path), "--view", "html"]) == 0
    checked(capsys.readouterr().out, 0)
    monkeypatch.undo()
    code, *_ = toolchain._run([str(toolchain.ptxas().path), "-lineinfo", "-arch=sm_90a", str(source), "-o", str(path)])
    assert code == 0
    data = inspected(capsys, str(path))
    assert {entry["name"]: len(entry["descriptors"]) for entry in data["entries"]} == {"specialised": 13, "multicast": 0}
    assert main(["inspect", str(path), "--view", "html"]) == 0
    page = Page(capsys.readouterr().out)
    assert sum(link[1] == "s" for at, link in page.rows.items() if at[0] == "p") > 20
    path.write_bytes(path.read_bytes().replace(b"mma_async", b"mma(async"))
    assert main(["inspect", str(path)]) == 0
    written = capsys.readouterr()
    assert "the PTX in" in written.err
    assert "registers" in written.out


# ------------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(("name", "data", "says"), [
    ("noise.ptx", bytes(range(256)) * 8, "is no text"), ("noise.cubin", b"\x7fELF" + b"\xff" * 40, "not a whole cubin"),
    ("host.o", b"\x7fELF\x02\x01\x01" + bytes(11) + b"\x3e\x00" + bytes(80), "not of CUDA machine code"),
    ("words.ptx", b"hello", "expected"),
    ("latin.ptx", b".version 8.0\n\xe9\xff", "expected"), ("empty.ptx", b"", "expected")])
def test_files_that_are_neither(name: str, data: bytes, says: str, tmp_path: Path, capsys: Printed) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    for more in ([], ["--json"], ["--view", "html"]):
        assert main(["inspect", str(path), *more]) == 1
        written = capsys.readouterr()
        assert says in written.err
        assert written.err.count("\n") == 1
        assert "Traceback" not in written.err


def test_what_is_not_there(tmp_path: Path, capsys: Printed) -> None:
    for arguments, status, says in (
            (["missing.ptx"], 1, "no file missing.ptx"), ([str(tmp_path)], 1, "is a folder"),
            (["no_such_module_x:k"], 2, "no_such_module_x"),
            ([str(CORPUS[0]), "-e", "nothing"], 1, "has no entry 'nothing'; it has"), ([str(CORPUS[0]), "--set", "A=1"], 2, "--set"),
            ([str(CORPUS[0]), "-o", str(tmp_path / "no" / "file")], 2, "cannot write")):
        assert main(["inspect", *arguments]) == status
        written = capsys.readouterr()
        assert says in written.err
        assert written.out == ""
        assert "Traceback" not in written.err


@pytest.mark.ptxas
def test_one_entry_of_several(capsys: Printed) -> None:
    path = next(path for path in CORPUS if path.stem == "tma")
    data = inspected(capsys, str(path), "-e", "by_hand")
    assert [entry["name"] for entry in data["entries"]] == ["by_hand"]


def test_from_stdin(capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "ptxas")
    monkeypatch.setattr(sys, "stdin", io.StringIO(next(path for path in CORPUS if path.stem == "wgmma").read_text()))
    assert {entry["name"] for entry in inspected(capsys, "-")["entries"]} == {"specialised", "multicast"}


def test_ptx_that_is_not_legal_is_still_shown(tmp_path: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "ptxas")
    path = tmp_path / "k.ptx"
    path.write_text(".version 8.0\n.target sm_90a\n.address_size 64\n.entry k(.param .u64 p)\n{\n    add.nothing %r1, %r2;\n    ret;\n}\n")
    entry, = inspected(capsys, str(path))["entries"]
    assert entry["mix"] == {"control": 1, "unknown": 1}
    assert any("ptxkit check" in said for said in entry["missing"])
