"""The page of `inspect --view html` over kernels and foreign PTX: every line is there, links, one file, control bits."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ptxkit.cli.main import main
from ptxkit.inspect import classes
from ptxkit.inspect.shared_map import drawn
from ptxkit.runtime.toolchain import assemble, disassemble
from ptxkit.sass import control
from ptxkit.sass.cubin import code_of
from ptxkit.sass.listing import MachineLine, lines, texts

from .subjects import CORPUS, kernels

SUBJECTS = {"gemm": "ptxkit.gemm.kernels.dense:gemm", "tile_gemm": "", **{path.stem: str(path) for path in CORPUS
            if path.stem in ("wgmma", "triton_matmul", "tma")}}
VOID = ("meta", "link", "input", "br")
SHAPES = ("path", "rect", "line")
LIMIT = 2_000_000


class Row(SimpleNamespace):
    anchor: str
    classes: list[str]
    ptx: list[int]
    to: str
    text: str
    number: str


class Tree(HTMLParser):
    """Rows by anchor, all anchors, links and addresses. An error where a tag is not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows: dict[str, Row] = {}
        self.ids: list[str] = []
        self.links: list[str] = []
        self.addresses: list[str] = []
        self.titles: list[str] = []
        self.here: Row | None = None
        self.feed(text)
        self.close()
        assert self.open == [], "a tag is not closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag not in VOID:
            self.open.append(tag)
        self.ids += [given["id"]] if "id" in given else []
        self.links += [given["href"]] if tag == "a" else []
        self.addresses += [value for name, value in given.items() if name in ("src", "srcset", "action", "poster", "xlink:href")
                           or (name == "href" and tag != "a")]
        if tag == "div" and "r" in given.get("class", "").split():
            self.here = Row(anchor=given["id"], classes=given["class"].split(), ptx=[int(n) for n in given.get("data-p", "").split()],
                            to="", text="", number="")
            self.rows[self.here.anchor] = self.here
        elif self.here is not None and tag == "a" and not self.here.to:
            self.here.to = given["href"]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in SHAPES

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag == "div":
            self.here = None

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["h1"]:
            self.titles.append(data)
        if self.here is None:
            return
        if self.open[-1] == "a" and not self.here.number and not self.here.text:
            self.here.number = data
        elif "u" not in self.open[self.open.index("div"):]:
            self.here.text += data

    def of(self, letter: str) -> list[Row]:
        return [row for anchor, row in self.rows.items() if anchor[0] == letter]


def written(name: str, folder: Path) -> Path:
    """The page of a subject, made once in a run."""
    path = folder / f"{name}.html"
    if not path.exists():
        assert main(["inspect", SUBJECTS[name] or kernels()[name], "--view", "html", "-o", str(path)]) == 0
    return path


@cache
def machine(name: str) -> tuple[list[str], bytes]:
    """The instructions and labels of a subject's cubin, as nvdisasm writes them, and the cubin."""
    if ":" in (SUBJECTS[name] or ":"):
        from ptxkit.cli.source import kernel_of

        found, config = kernel_of(SUBJECTS[name] or kernels()[name], [])
        text = found.trace(**config).ptx(locs=True)
    else:
        text = Path(SUBJECTS[name]).read_text()
    code = assemble(text, "sm_90a").cubin
    return [line.text for line in lines(disassemble(code))], code


@pytest.mark.ptxas
@pytest.mark.thinned(12)
@pytest.mark.parametrize("name", SUBJECTS)
def test_a_page_holds_together(name: str, folder: Path) -> None:
    text = written(name, folder).read_text(encoding="utf-8")
    tree = Tree(text)
    assert len(text) < LIMIT
    assert len(tree.ids) == len(set(tree.ids))
    assert tree.titles == [name if ":" in (SUBJECTS[name] or ":") else Path(SUBJECTS[name]).name], "the title stands once"
    assert tree.addresses == ["data:,"]
    assert not re.search(r"url\(|@import|https?://", re.sub(r'<div class="r[ "].*?</div>', "", text))
    assert {link[0] for link in tree.links} == {"#"}
    assert {link[1:] for link in tree.links} <= set(tree.ids)
    expected, _ = machine(name)
    assert [row.text for row in tree.of("s")] == [re.sub(r"`\((\.L\w+)\)", r"\1", line) for line in expected]
    last = len(tree.of("p"))
    assert [row.anchor for row in tree.of("p")] == [f"p{number}" for number in range(1, last + 1)]
    linked = [row for row in tree.rows.values() if row.ptx]
    assert all(1 <= number <= last for row in linked for number in row.ptx)
    assert sum(bool(row.ptx) for row in tree.of("s")) > 0.8 * len(tree.of("s"))
    for row in linked:
        ends = tree.rows[row.to[1:]]
        assert row.anchor[0] == "p" or ends.anchor == f"p{row.ptx[0]}"
        if row.anchor[0] == "p" and ends is not row:
            assert int(row.anchor[1:]) in ends.ptx, "a link leads to a line of the same origin"


@pytest.mark.ptxas
@pytest.mark.thinned(12)
@pytest.mark.parametrize("name", SUBJECTS)
def test_the_legend_names_the_classes_that_there_are(name: str, folder: Path) -> None:
    text = written(name, folder).read_text(encoding="utf-8")
    there = {classes.of_ptx(opcode) for opcode in re.findall(r'<div class="r[^>]* id="p.*?<b class="\w">([\w.:]+)</b>', text)}
    there |= {classes.of_sass(line) for line in machine(name)[0] if not line.startswith(".")}
    offered = [letter for letter in re.findall(r'data-only="(\w+)"', text) if len(letter) == 1]
    assert offered == [letter for letter in classes.CLASSES if letter in there]


@pytest.mark.ptxas
def test_numbers_stand_at_the_right(folder: Path) -> None:
    text = written("gemm", folder).read_text(encoding="utf-8")
    cells = re.findall(r'<td class="n">(.*?)</td>', text)
    assert len(cells) > 50
    assert all(re.fullmatch(r"[-\d,.]*", re.sub("<[^>]*>", "", cell)) for cell in cells)
    assert {"bytes", "offset", "count"} <= set(re.findall(r'<th class="n">(.*?)</th>', text))


@pytest.mark.thinned(9)
@pytest.mark.ptxas
@pytest.mark.parametrize("name", ["gemm", "tile_gemm", "triton_matmul"])
def test_lines_of_one_origin_have_one_colour(name: str, folder: Path) -> None:
    tree = Tree(written(name, folder).read_text(encoding="utf-8"))

    def colour(row: Row) -> str:
        return next((each for each in row.classes if re.fullmatch(r"o\d", each)), "")

    seen = set()
    for row in tree.of("f"):
        if row.ptx:
            seen.add(colour(row))
            assert {colour(tree.rows[f"p{number}"]) for number in row.ptx} == {colour(row)}
    assert len(seen) == 8
    for row in tree.of("s"):
        assert not row.ptx or colour(row) == colour(tree.rows[f"p{row.ptx[0]}"])


@pytest.mark.ptxas
def test_roles_are_those_of_the_kernel(folder: Path) -> None:
    """In tile_gemm the lines after `with if_(thread < 128):` are the producer's, those after else_ the mma warpgroup's."""
    tree = Tree(written("tile_gemm", folder).read_text(encoding="utf-8"))
    source = {row.text.strip().split("#")[0].strip(): row for row in tree.of("f")}
    role = {text: next((each for each in row.classes if each in ("rs", "rp", "rm", "ro")), "") for text, row in source.items()}
    assert role["mbarrier.init.shared__cta.b64(full[s], 1)"] == "rs"
    assert role["load(a_tile[stage], a, (k * BK, 0), full[stage])"] == "rp"
    assert role["wait(empty[stage], parity ^ 1)"] == "rp"
    assert role["wgmma.fence.sync.aligned()"] == "rm"
    assert role["mbarrier.arrive.shared__cta.b64(empty[stage])"] == "rm"
    assert role["bar.sync(0)"] == ""
    products = [row for row in tree.of("s") if "HGMMA" in row.text]
    assert products
    assert all("rm" in row.classes for row in products)
    assert any("rp" in row.classes for row in tree.of("s") if "UTMALDG" in row.text)


@pytest.mark.ptxas
def test_tables_are_folded_and_barriers_name_python_lines(folder: Path) -> None:
    text = written("tile_gemm", folder).read_text(encoding="utf-8")
    assert "<details open" not in text
    table = text[text.index("<summary>mbarriers"):]
    table = table[:table.index("</details>")]
    source = (Path(__file__).parents[2] / "examples" / "tile_gemm.py").read_text().split("\n")
    named = {word: int(line) for word, line in re.findall(r"<td>([\w.]+)</td>(?:<td[^>]*>[^<]*</td>){4}"
                                                          r"<td><a href=\"#p\d+\" data-l=\"\d+\">tile_gemm\.py:(\d+)</a>", table)}
    assert "mbarrier.init" in source[named["init"] - 1]
    assert "mbarrier.arrive" in source[named["arrive"] - 1]
    assert "try_wait" in source[named["try_wait"] - 1]
    rest = text[text.index("<summary>Barriers of the CTA"):]
    assert re.search(r'data-l="\d+">tile_gemm\.py:42</a>', rest)


@pytest.mark.ptxas
def test_the_map_of_shared_memory_is_to_scale(folder: Path) -> None:
    from ptxkit import inspect
    from ptxkit.cli.source import kernel_of

    found, _ = kernel_of(kernels()["tile_gemm"], [])
    entry, = inspect.entries(found)
    picture = drawn(entry)
    assert picture in written("tile_gemm", folder).read_text(encoding="utf-8")
    top, *inside = entry.shared
    shapes = re.findall(r'<rect x="([\d.]+)" y="\d+" width="([\d.]+)" height="40" class="part', picture)
    assert len(shapes) == len(inside) == 4
    for part, (x, wide) in zip(inside, shapes, strict=True):
        assert top.bytes
        assert part.bytes
        assert part.offset is not None
        assert float(x) == pytest.approx(1000 * part.offset / top.bytes, abs=0.1)
        assert float(wide) == pytest.approx(max(1000 * part.bytes / top.bytes, 1.5), abs=0.1)
        assert f">{part.name} · {part.bytes:,} B</text>" in picture
    assert picture.count('class="tick"') == 6, "four stages of A and B"
    assert picture.count("data-p=") == 4, "each allocation leads to the lines that use it"


# ------------------------------------------------------------------------------------------------ classes and control bits

ARITHMETIC = frozenset(re.findall(r"\w+",
    "BREV CS2R DADD DFMA DMUL DSETP F2F F2FP F2I FADD FCHK FFMA FLO FMNMX FMUL FRND FSEL FSETP HADD2 HFMA2 HMNMX2 HMUL2 HSET2 HSETP2 "
    "I2F I2FP IABS IADD3 IDP IMAD ISETP LEA LEPC LOP3 MATCH MOV MUFU P2R PLOP3 POPC PRMT R2P R2UR REDUX S2R S2UR SEL SGXT SHF SHFL UFLO "
    "UIADD3 UIMAD UISETP ULEA ULOP3 UMOV UPRMT USEL USGXT USHF VABSDIFF VIADD VIADDMNMX VIMNMX VOTE VOTEU"))


@pytest.mark.ptxas
@pytest.mark.parametrize("name", ["gemm", "wgmma", "triton_matmul"])
def test_what_is_not_arithmetic_has_a_class(name: str) -> None:
    """Every mnemonic that counts as arithmetic is in a list of arithmetic that is written apart."""
    for text in machine(name)[0]:
        if not text.endswith(":") and classes.of_sass(text) == "a":
            assert re.sub(r"@!?U?P\w+\s+", "", text).split()[0].split(".")[0] in ARITHMETIC, text


@pytest.mark.pure
@pytest.mark.parametrize(("sass", "ptx", "letter"), [
    ("HGMMA.64x256x16.F32.BF16 R24, gdesc[UR8], R24", "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16", "t"),
    ("@!UP0 UTMALDG.2D [UR8], [UR4]", "cp.async.bulk.tensor.2d.shared::cluster.global.tile", "c"),
    ("@P1 SYNCS.ARRIVE.TRANS64 RZ, [UR6], RZ", "mbarrier.arrive.shared::cta.b64", "b"), ("BAR.SYNC.DEFER_BLOCKING 0x0", "bar.sync", "b"),
    ("STSM.16.MT88.4 [R3], R4", "stmatrix.sync.aligned.m8n8.x4.shared.b16", "m"), ("LDG.E R4, [R2.64]", "ld.global.u32", "m"),
    ("FFMA R2, R3, R4, R5", "fma.rn.f32", "a"), ("@P0 BRA `(.L_x_1)", "bra", "x"),
    ("USETMAXREG.DEALLOC.CTAPOOL 0x28", "setmaxnreg.dec", "x")])
def test_machine_code_and_ptx_have_the_same_classes(sass: str, ptx: str, letter: str) -> None:
    assert (classes.of_sass(sass), classes.of_ptx(ptx)) == (letter, letter)


@pytest.mark.pure
@pytest.mark.parametrize("fields", [(0, 1, 7, 7, 0, 0), (15, 0, 0, 5, 0b101001, 0b1111), (4, 0, 3, 7, 0b111111, 2), (1, 1, 5, 0, 1, 8)])
def test_control_bits_are_read_back(fields: tuple[int, ...]) -> None:
    """Against a writer of the fields from the high end down, with noise in all other bits."""
    stall, stays, writes, reads, waits, reuse = fields
    word = 0
    for value, width in ((0b10, 2), (reuse, 4), (waits, 6), (reads, 3), (writes, 3), (stays, 1), (stall, 4), (0x1A5A5A5A5A5, 41)):
        word = word << width | value
    bits = control.decode(word)
    assert (bits.stall, bits.yields, bits.reuse) == (stall, not stays, reuse)
    assert (bits.writes, bits.reads) == (None if writes == 7 else writes, None if reads == 7 else reads)
    assert bits.waits == tuple(board for board in range(6) if waits & 1 << board)


@pytest.mark.ptxas
@pytest.mark.parametrize("name", ["gemm", "triton_matmul"])
def test_control_bits_agree_with_what_scoreboards_are_for(name: str) -> None:
    """A read of a special register sets a scoreboard, arithmetic of fixed latency none, and nothing waits for one that nothing sets.

    The reuse bits are the `.reuse` flags that nvdisasm prints.
    """
    _, code = machine(name)
    found = list(lines(disassemble(code)))
    made = control.issues(found, texts(code))
    assert [issue is None for issue in made] == [line.offset is None for line in found]
    by_mnemonic: dict[str, list[control.Control]] = {}
    for line, issue in zip(found, made, strict=True):
        if issue is not None:
            by_mnemonic.setdefault(re.sub(r"@!?U?P\w+\s+", "", line.text).split()[0].split(".")[0], []).append(issue.control)
            assert bool(issue.control.reuse) == (".reuse" in line.text), line.text
    assert all(bits.writes is not None for bits in by_mnemonic["S2R"])
    fixed = [bits for word in ("IADD3", "UIADD3", "LOP3", "ISETP", "FFMA") for bits in by_mnemonic.get(word, [])]
    assert len(fixed) > 15
    assert all(bits.writes is None for bits in fixed)
    everything = [bits for many in by_mnemonic.values() for bits in many]
    assert {board for bits in everything for board in bits.waits} <= {board for bits in everything for board in (bits.writes, bits.reads)}


@pytest.mark.pure
def test_slots_add_up_within_a_basic_block() -> None:
    def word(stall: int) -> bytes:
        return struct.pack("<QQ", 0, stall << 41 | 0b111111 << 46)

    def made(*lines: tuple[str, int]) -> list[int | None]:
        machine, code = [], b""
        for text, stall in lines:
            machine.append(MachineLine("k", None if text.endswith(":") else len(code), text))
            code += b"" if text.endswith(":") else word(stall)
        sections: Mapping[str, Any] = {".text.k": code}
        return [None if issue is None else issue.slot for issue in control.issues(machine, sections)]

    assert made(("MOV R0, R1", 3), ("FADD R0, R0, R1", 0), (".L_x_9:", 0), ("MOV R0, R1", 1), ("@P0 BRA `(.L_x_0)", 5), ("NOP", 2),
                (".L_x_0:", 0), ("EXIT", 5), ("NOP", 1)) == [0, 3, None, 4, 5, 0, None, 0, 0]
    by_table = made(("BRX R2 -0x10", 1), ("MOV R0, R1", 4), (".L_x_9:", 0), ("MOV R0, R1", 1))
    assert by_table == [0, 0, None, 0], "a table may lead to any label"


@pytest.mark.ptxas
def test_the_machine_code_of_a_section_is_that_of_its_function() -> None:
    _, code = machine("gemm")
    (start, size), = code_of(code)
    assert texts(code)[".text.gemm"] == code[start:start + size]
