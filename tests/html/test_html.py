"""What objects show in a notebook: well-formed, escaped, without scripts, and with every fact that their text has."""

from __future__ import annotations

import itertools
import linecache
import re
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

import ptxkit
from examples import tile_gemm as example
from ptxkit import Layout, Ptr, Reg, Space, TensorMapFields, ctaid, if_, kernel, mark, role, smem, span, tid
from ptxkit.check import check, check_text
from ptxkit.dsl.descriptor import template
from ptxkit.explain.instruction import explain
from ptxkit.explain.matrix import FIELDS, MatrixDescriptor, decode, rows
from ptxkit.html.layouts import cells
from ptxkit.html.parts import STYLE, finding, scoped
from ptxkit.inspect import entries, trail
from ptxkit.inspect.sections import sections
from ptxkit.ptx import add, bar, ld, mad, mov, st
from ptxkit.replay.style import NOTEBOOK
from ptxkit.runtime import toolchain
from ptxkit.types import bf16, e4m3, f16, f32, u32
from tests.html.pages import Page, plain, read

pytestmark = pytest.mark.pure
NASTY = "a<b> & \"c\" 'd' </div><script>"


@kernel(block=64)
def swap(y: Ptr[f32]) -> None:
    """Passes <numbers> & more from warp to warp, through `box`."""
    box = smem.array(f32, 64, name=NASTY)
    i = mov.u32(tid.x)
    st.shared.f32(box.at(i), mov.f32(1.0))
    st.global_.f32(y.at(i), ld.shared.f32(box.at(63 - i)))


@kernel(block=lambda config: config["THREADS"])
def axpy(x: Ptr[f32], y: Ptr[f32], n: Reg[u32], *, THREADS: int = 64, EACH: int = 1) -> None:
    role("all <of> them")
    mark("begin & go")
    with span("body"):
        first = mad.lo.u32(mov.u32(ctaid.x), THREADS * EACH, mov.u32(tid.x))
        for step in range(EACH):
            i = first + step * THREADS
            with if_(i < n):
                st.global_.f32(y.at(i), add.rn.f32(ld.global_.f32(x.at(i)), ld.global_.f32(y.at(i))))


def held(words: str, page: Page) -> None:
    """Every line of a text is in the page, each finding of it with its way out, which a page says in another form."""
    for line in words.splitlines():
        for part in re.split(r" \((?=[^()]*\)$)", line):
            bare = plain(part.rstrip(")"))
            assert bare in page.text or plain(part) in page.text, f"{bare!r} is not in {page.text}"


# --------------------------------------------------------------------------------------------------- the reader of pages


@pytest.mark.parametrize("broken", [
    "<div class=\"ptxkit\"><p></div>", "<div class=\"ptxkit\"></p></div>", "<div class=\"ptxkit\"><b>&</b></div>",
    "<div class=\"ptxkit\"><script>1</script></div>", "<div class=\"ptxkit\" onclick=\"x\"></div>",
    "<div class=\"ptxkit\"><p class=x></p></div>",
    "<div class=\"ptxkit\"><blink>x</blink></div>", "<div class=\"ptxkit\"><p id=\"mark1\"></p></div>", "<p>x</p>",
    "<div class=\"ptxkit\"><style>a{background:url(http://x)}</style></div>"])
def test_the_reader_refuses_broken_pages(broken: str) -> None:
    with pytest.raises(AssertionError):
        read(broken)


def test_styles_hold_within_outputs_only() -> None:
    for style in (STYLE, scoped(NOTEBOOK)):
        assert style.count("{") == style.count("}")
        for selectors in re.findall(r"([^{}]+)\{", style):
            assert all(each.strip().startswith(".ptxkit") for each in selectors.split(",")), selectors
    assert scoped(":root{a:b}\nbody,p{c:d}\n@media (x){:root{e:f}p{g:h}}\nq{i:j}") == \
        ".ptxkit.ptxkit-page p{c:d}\n.ptxkit.ptxkit-page q{i:j}"
    assert "prefers-color-scheme" not in STYLE + scoped(NOTEBOOK), "a notebook's theme is not the system's"


# --------------------------------------------------------------------------------------------------- kernels and layouts


def test_a_kernel_says_what_it_is_and_assembles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def surprise(*given: Any, **more: Any) -> Any:
        raise AssertionError("it was assembled")

    monkeypatch.setattr("ptxkit.runtime.toolchain.assemble", surprise)
    for made in (example.tile_gemm, axpy, swap):
        traced = made.trace()
        monkeypatch.delitem(traced.resources, made.name, raising=False)     # that another test may have asked for
        page = read(made._repr_html_())
        assert made.name in page.text
        for parameter in traced.parameters:
            assert re.search(rf" {parameter.name} (TensorMap|Ptr\[\w+\]|Reg\[\w+\]) ", page.text)
        for each in traced.shared.allocations:
            assert plain(f"{each.offset:,} {each.bytes:,} {each.name} {each.what}") in page.text
        for name, value in traced.config.items():
            assert f"{name}={value!r}" in page.text
        assert plain(made.ptx()) in page.text
        assert "not assembled yet" in page.text
        assert page.text.count("PTX, ") == page.tags.count("details") == 1
    assert "Passes <numbers> & more from warp to warp, through box." in read(swap._repr_html_()).text


@pytest.mark.ptxas
def test_registers_are_said_once_it_is_assembled() -> None:
    @kernel(block=32)
    def small(y: Ptr[f32]) -> None:
        st.global_.f32(y.at(mov.u32(tid.x)), mov.f32(1.0))

    assembly = small.assemble()
    used = assembly.resources["small"]
    assert f"registers {used.registers} of a thread, {used.spills} bytes spilled" in read(small._repr_html_()).text
    page = read(assembly._repr_html_())
    assert f"small {used.registers} 0 0 0 {used.shared} {used.barriers}" in page.text
    assert assembly.tool.version in page.text


def test_a_kernel_that_cannot_be_traced_says_why() -> None:
    @kernel(block=32)
    def open_(y: Ptr[f32], *, WIDTH: int) -> None:
        raise ValueError(NASTY)

    assert "needs a value for its compile-time parameter WIDTH" in read(open_._repr_html_()).text

    @kernel(block=32)
    def broken(y: Ptr[f32]) -> None:
        raise ValueError(NASTY)

    assert plain(NASTY) in read(broken._repr_html_()).text


def layouts() -> list[Layout]:
    found = [Layout.of(type_, rows_, columns, major=major, swizzle=swizzle)
             for type_, rows_, columns, major in ((bf16, 64, 64, "k"), (f16, 128, 64, "mn"), (f32, 4, 256, "k"), (e4m3, 16, 128, "k"))
             for swizzle in (128, 64, 32, 16, 0)]
    return [*found, Layout.of(f32, 12, 20, swizzle=0), Layout.of(bf16, 8, 8)]


@pytest.mark.parametrize("made", layouts(), ids=str)
def test_a_layouts_picture_has_the_bank_group_of_every_chunk(made: Layout) -> None:
    page = read(made._repr_html_())
    for words in (f"{made.rows} rows x {made.columns} columns of {made.type.__name__}", f"{made.major}-major", f"{made.bytes:,} bytes",
                  f"multiple of {made.alignment:,}"):
        assert words in page.text
    wide = 16 // made.element_bytes
    drawn = re.findall(r"(row|column) (\d+), (?:rows|columns) (\d+)-(\d+): byte ([\d,]+) \(0x\w+\), banks (\d+)-(\d+) (\d)", page.text)
    assert len(drawn) == min(made.outer, 8) * min(made.inner // wide, 16) == sum(map(len, cells(made)))
    for word, line, first, last, byte, low, high, group in drawn:
        at, start = int(line), int(first)
        assert (word == "row") == (made.major == "k")
        assert int(last) == start + wide - 1
        offset = int(byte.replace(",", ""))
        assert {made.offset(*((at, i) if made.major == "k" else (i, at))) - offset for i in range(start, start + wide)} == \
            set(range(0, 16, made.element_bytes))
        assert {offset // 4 % 32, (offset + 12) // 4 % 32} == {int(low), int(high)}
        assert int(group) == int(low) // 4
    if made.outer >= 8:
        colours = len({place // 16 % 8 for place, *_ in cells(made)})
        assert f"this one shows {colours}." in page.text
        assert (colours == 8) == (made.swizzle > 0 or made.inner_bytes % 128 == 16) or made.inner_bytes == 80


def test_the_pattern_repeats_where_the_picture_says_so() -> None:
    for made in layouts():
        if made.swizzle and made.outer > 8:
            for line, inner in itertools.product(range(8), range(0, made.inner, 16 // made.element_bytes)):
                groups = {made.offset(*((at, inner) if made.major == "k" else (inner, at))) // 16 % 8 for at in range(line, made.outer, 8)}
                assert len(groups) == 1


def test_tiles_and_plans_are_shown() -> None:
    plan = example.tile_gemm.trace().shared
    page = read(plan._repr_html_())
    for each in plan.allocations:
        assert plain(f"{each.offset:,} {each.bytes:,} {each.name} {each.what}") in page.text
    assert f"{plan.total:,} of {plan.limit:,} bytes" in page.text
    tiles = [content for _, content in plan.contents if isinstance(content, smem.Tile)]
    assert len(tiles) == 2
    for tile in tiles:
        assert f"{tile.stages} stages of {tile.stage_bytes:,} bytes, from byte {tile.offset:,}" in read(tile._repr_html_()).text
    seen: list[str] = []

    @kernel(block=32)
    def views(y: Ptr[f32]) -> None:
        tile = smem.tile(bf16, (2, 64, 64))
        seen.append(tile[0]._repr_html_())
        seen.append(tile[mov.u32(tid.x)].lines(8, 16)._repr_html_())
        seen.append(tile[0].desc(16)._repr_html_())

    views.ptx()
    assert "a view of 64 contiguous by 64 strided elements, 8,192 bytes" in read(seen[0]).text
    assert "64 contiguous by 16 strided elements, 2,048 bytes" in read(seen[1]).text
    assert f"{template(Layout.of(bf16, 64, 64)):#018x}" in read(seen[2]).text


# --------------------------------------------------------------------------------------------------- descriptors


@pytest.mark.parametrize("bits", [0, 0x4000004000010040, 0x4002004000018047, 0x8000000800080001, (1 << 64) - 1, 0x1234567890ABCDEF])
def test_every_field_of_a_descriptor_stands_with_its_value(bits: int) -> None:
    made = decode(bits)
    page = read(made._repr_html_())
    assert f"{bits:#018x}" in page.text
    for first, width, name in FIELDS:
        number = bits >> first & (1 << width) - 1
        assert f" {first}-{first + width - 1} {name} {number:#x} " in page.text
    values = {name: words for _, _, name, _, words in rows(made)}
    assert [int(re.sub(r"0x\w+ = ", "", words.replace(",", "")).split()[0]) if words != "none" else 0 for words in values.values()] == \
        [getattr(made, each.name) for each in fields(MatrixDescriptor)][:5]
    drawn = re.findall(r"bit (\d+): ([a-z ]+?) ([01])(?= )", page.text)
    assert {int(bit): int(value) for bit, _, value in drawn} == {bit: bits >> bit & 1 for bit in range(64)}
    owners = {bit: name for first, width, name in FIELDS for bit in range(first, first + width)}
    assert {int(bit): name for bit, name, _ in drawn} == {bit: owners.get(bit, "no field") for bit in range(64)}


def test_every_field_of_a_tensor_map_stands_with_its_value() -> None:
    good = TensorMapFields(bf16, (4096, 2048), (8192,), (64, 128), swizzle=128, fill="nan", l2_promotion=256)
    page = read(good._repr_html_())
    for each in fields(good):
        value = getattr(good, each.name)
        words = value.__name__ if each.name == "type" else " x ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        assert f" {each.name} {words}" in page.text
    wrong = TensorMapFields(bf16, (4096,), (), (512,))
    assert plain(str(wrong.problem())) in read(wrong._repr_html_()).text


# --------------------------------------------------------------------------------------------------- reports


def test_findings_of_the_rules_are_all_there() -> None:
    text = axpy.ptx().replace("mad.lo.u32", "mad.loo.u32").replace("ret;", "retx;")
    found = check_text(text)
    assert len(found) >= 2
    page = read(found._repr_html_())
    for each in found:
        held(str(each), page)
    assert str(found) == "\n".join(map(str, found))
    assert found == tuple(found)
    none = check(example.tile_gemm)
    assert (str(none), none) == ("no findings", ())
    assert "clean no findings" in read(none._repr_html_()).text.replace("cleanno", "clean no")


def test_a_report_shows_verdict_and_findings_with_their_source() -> None:
    y = np.zeros(64, np.float32)
    made = swap.simulate(1, y)
    assert len(made.findings) == 3
    page = read(made._repr_html_())
    held(str(made).partition(": ")[2], page)
    assert page.text.startswith("error")
    lines = linecache.getlines(__file__)
    for each in made.findings:
        assert each.position is not None
        assert plain(lines[each.position.line - 1]) in page.text
        assert each.fix in page.text
    fine = read(axpy.simulate(1, y, y.copy(), 64)._repr_html_())
    assert fine.text.startswith("clean")
    assert "every schedule of this input is equivalent to the one that ran" in fine.text


def test_only_sources_are_read() -> None:
    def shown(file: str) -> Page:
        return read(f'<div class="ptxkit">{finding(ptxkit.errors.Finding("r", "m", position=ptxkit.errors.Position(file, 1)))}</div>')

    assert "pre" in shown(__file__).tags
    assert "pre" not in shown("/etc/passwd").tags


def test_a_proof_a_search_and_a_replay_show_what_their_text_says() -> None:
    y = np.zeros(64, np.float32)
    proof = ptxkit.prove(swap, 1, y, schedules=8)
    assert proof.verdict == "error"
    page = read(proof._repr_html_())
    head, *rest = str(proof).splitlines()
    assert page.text.startswith("not proven")
    held("\n".join([head.partition(": ")[2], *(re.sub(r" \[in .*\]$", "", line) for line in rest)]), page)
    found = proof.search(runs=40, seconds=5)
    page = read(found._repr_html_())
    for each in found.replays:
        held(str(each), page)
    assert found.replay is not None
    page = read(found.replay._repr_html_())
    assert "svg" in page.tags
    for each in found.replay.run().report.findings:
        assert plain(each.message.splitlines()[0]) in page.text
    for words in found.replay.told:
        assert plain(words) in page.text
    right = read(ptxkit.prove(axpy, 1, y, y.copy(), 64)._repr_html_())
    assert right.text.startswith("proven")


@pytest.mark.ptxas
def test_a_trail_follows_lines_to_ptx_and_machine_code() -> None:
    ptx = example.tile_gemm.ptx(locs=True).splitlines()
    every = trail(example.tile_gemm)
    known = [number for number in example.tile_gemm.positions() if ptx[number - 1].strip() != "}"]
    assert sorted(number for step in every for number, _ in step.ptx) == sorted(known)
    for step in every:
        assert step.text == linecache.getline(example.__file__, step.position.line).strip()
        assert all(text == ptx[number - 1].strip() for number, text in step.ptx)
        assert all(example.tile_gemm.positions()[number] == step.position for number, _ in step.ptx)
    found = trail(example.tile_gemm, "mma(acc")
    assert [step.position.line for step in found] == [trail(example.tile_gemm, found[0].position.line)[0].position.line]
    assert sum("HGMMA.64x256x16" in text for _, text in found[0].sass) == 4
    products = {step.position.line for step in every if any("HGMMA" in text for _, text in step.sass)}
    assert products == {found[0].position.line}
    copies = {step.text for step in every if any("UTMALDG" in text for _, text in step.sass)}
    assert len(copies) == 2
    assert all(text.startswith("load(") for text in copies)
    page = read(found._repr_html_())
    held(str(found).partition("  ")[2], page)
    assert "{%f0, ..., %f127}" in page.text
    with pytest.raises(ptxkit.PtxkitError, match=r"no line of `tile_gemm` that emits is 'nothing like it'"):
        trail(example.tile_gemm, "nothing like it")


def test_a_trail_without_an_assembler_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> toolchain.Tool:
        raise toolchain.NoToolError("there is no ptxas")

    monkeypatch.setattr(toolchain, "ptxas", missing)
    found = trail(swap, "st.shared")
    assert (found[0].sass, found.said) == ((), "there is no ptxas")
    assert str(found).endswith("there is no ptxas")
    assert "there is no ptxas" in read(found._repr_html_()).text


def test_entries_show_their_tables() -> None:
    found = entries(example.tile_gemm)
    assert found == tuple(found)
    page = read(found._repr_html_())
    for section in sections(found[0]):
        assert section.title in page.text
        for row in section.rows:
            assert plain(" ".join(row)) in page.text
            assert all(cell in str(found) for cell in row)


def test_an_explanation_shows_its_page() -> None:
    for opcode in ("ldmatrix.sync.aligned.m8n8.x4.shared.b16", "wgmma.fence", "%tid"):
        made = explain(opcode)
        assert plain(str(made)) in read(made._repr_html_()).text


# --------------------------------------------------------------------------------------------------- measures, timelines, sessions


def grid(config: Any) -> int:
    return -(-1000 // (config["THREADS"] * config["EACH"]))


def test_spaces_tuned_kernels_and_benchmarks_show_what_their_text_says() -> None:
    space = Space(THREADS=(64, 128, 2048), EACH=(1, 4)).where(lambda THREADS, EACH: THREADS * EACH <= 2048, NASTY)
    page = read(space._repr_html_())
    assert "5 points, 1 left out" in page.text
    assert plain(NASTY) in page.text
    for point in space.points()[0]:
        assert " ".join(f"{name}={value}" for name, value in point) in page.text
    x, y = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
    tuned = axpy.tune(space, grid=grid, args=(x, y, 1000), check={"y": x + y}, device="cpu")
    page = read(tuned._repr_html_())
    held(str(tuned).partition(": ")[2], page)
    for point, time in tuned.times:
        assert f"{' '.join(f'{name}={value}' for name, value in point)} {time:,.0f} {tuned.unit}" in page.text
    bench = axpy.bench(grid=grid, args=(x, y, 1000), device="cpu", against={"<wide>": {"EACH": 4}, "bad": {"EACH": 0}}, flops=1000)
    page = read(bench._repr_html_())
    (row,) = bench.rows
    for name, seen in row["contestants"].items():
        assert plain(f"{name} {seen['us']:,.0f} {seen['tflops']:.1f}") in page.text
        assert name not in row["ratios"] or f"{row['ratios'][name]['ratio']:.3f}" in page.text
    assert row["left_out"]["bad"] in page.text


def test_a_timeline_shows_its_sums_and_its_spans() -> None:
    x = np.ones(256, np.float32)
    timeline = axpy.simulate(4, x, x.copy(), 256, marks=True).timeline
    assert timeline is not None
    page = read(timeline._repr_html_())
    for total in timeline.totals():
        assert f"{total.role} {total.name} {total.warps:,} {total.count:,} {total.mean:,.1f}" in page.text
    assert "begin & go at" in page.text


def test_a_session_shows_its_rows() -> None:
    from ml_dtypes import bfloat16

    a, b, c = np.ones((64, 128), bfloat16), np.eye(256, 128, dtype=bfloat16), np.zeros((64, 256), np.float32)
    session = example.tile_gemm.debug(1, a, b, c, 2)
    session.break_phase("full[1]")
    stop = session.go()
    for shown in (stop, session, session.warps(), session.barriers(), session.flight(), session.registers(), session.tile("B", stage=1)):
        assert plain(repr(shown)) in read(shown._repr_html_()).text or set(plain(repr(shown)).split()) <= set(
            read(shown._repr_html_()).text.split())


# --------------------------------------------------------------------------------------------------- names in a notebook


def test_a_cell_is_called_as_it_is_in_the_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """IPython compiles a cell as a file whose name has the number of the process."""
    from types import SimpleNamespace

    from ptxkit.dsl import source

    file = "/tmp/ipykernel_4711/2938.py"
    text = "@kernel(block=32)\ndef cell(y: Ptr[f32]) -> None:\n    st.global_.f32(y.at(mov.u32(tid.x)), ld.global_.f32(y.at(32)))\n"
    text += "@kernel(block=32)\ndef wrong(y: Ptr[f32]) -> None:\n    bar.sync(99)\n"
    compiler = SimpleNamespace(format_code_name=lambda name: ("Cell", "In[7]") if name == file else None)
    monkeypatch.setitem(source.sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace(compile=compiler)))
    monkeypatch.setitem(linecache.cache, file, (len(text), None, text.splitlines(True), file))
    names: dict[str, Any] = {"kernel": kernel, "Ptr": Ptr, "f32": f32, "st": st, "ld": ld, "mov": mov, "tid": tid, "bar": bar}
    exec(compile(text, file, "exec", dont_inherit=True), names)
    assert '.file 1 "In[7]"' in names["cell"].ptx(locs=True)
    made = names["cell"].simulate(1, np.zeros(32, np.float32))
    assert [str(each.position) for each in made.findings] == ["In[7]:3:1"]
    assert "y.at(32)" in read(made._repr_html_()).text
    assert "y.at(32)" in read(ptxkit.prove(names["cell"], 1, np.zeros(32, np.float32)).replay()._repr_html_()).text
    with pytest.raises(ptxkit.PtxkitError, match=r"^In\[7\]:6: "):
        names["wrong"].ptx()
