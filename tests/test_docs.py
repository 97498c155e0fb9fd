"""The guide's code runs and prints what the guide shows; the API pages name all that is public; the README's kernel assembles."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import itertools
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ptxkit.runtime import driver
from tests.conftest import why_no_ptxas

ROOT = Path(__file__).parents[1]
GUIDE = ROOT / "docs" / "guide.md"
GEMM = ROOT / "docs" / "gemm.md"

pytestmark = pytest.mark.timeout(120)

_FENCE = re.compile(r"(?:^<!-- (?P<needs>\w+) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """A fenced piece: its language, text, first line in the page, and what it needs ("gpu", "ptxas")."""

    language: str
    text: str
    line: int
    needs: str


def blocks(path: Path) -> list[Block]:
    page = path.read_text(encoding="utf-8")
    return [Block(found["language"], found["text"], page[:found.start("text")].count("\n"), found["needs"] or "")
            for found in _FENCE.finditer(page)]


def possible(needs: str) -> bool:
    return needs == "" or (driver.available("sm_90a") if needs == "gpu" else why_no_ptxas() == "")


def run(block: Block, path: Path, names: dict[str, Any]) -> str:
    """Compile the block at its own lines of the page, run it where this machine can; what it prints."""
    code = compile("\n" * block.line + block.text, str(path), "exec", dont_inherit=True)
    if not possible(block.needs):
        return ""
    with contextlib.redirect_stdout(io.StringIO()) as written:
        exec(code, names)
    return written.getvalue()


@pytest.mark.pure
def test_the_guides_code_prints_what_the_guide_shows() -> None:
    found, names = blocks(GUIDE), {"__name__": "guide"}
    assert {b.language for b in found} == {"python", "text"}
    assert {b.needs for b in found} == {"", "gpu", "ptxas"}
    for block, following in zip(found, [*found[1:], None], strict=True):
        if block.language == "python":
            printed = run(block, GUIDE, names)
            shown = following.text if following is not None and following.language == "text" else ""
            assert not possible(block.needs) or printed.strip() == shown.strip(), f"docs/guide.md:{block.line + 1}"


@pytest.mark.pure
def test_what_the_page_of_the_gemm_shows_is_printed() -> None:
    found, names = blocks(GEMM), {"__name__": "page"}
    shown = [pair for pair in itertools.pairwise(found) if [block.language for block in pair] == ["python", "text"]]
    assert len(shown) == 2
    for block, after in shown:
        assert run(block, GEMM, names).strip() == after.text.strip(), f"docs/gemm.md:{block.line + 1}"


@pytest.mark.ptxas
def test_the_guides_kernels_assemble_without_spills_or_findings() -> None:
    from ptxkit import Kernel

    names: dict[str, Any] = {"__name__": "guide"}
    for block in blocks(GUIDE):
        if block.language == "python":
            run(block, GUIDE, names)
    kernels = [value for name, value in names.items() if isinstance(value, Kernel) and name not in ("wrong", "lost")]
    assert len(kernels) >= 6
    for kernel in kernels:
        assembly = kernel.assemble()
        assert [r.spills for r in assembly.resources.values()] == [0]
        assert assembly.findings == ()


@pytest.mark.pure
def test_the_readmes_kernel_is_proven_as_shown() -> None:
    page = ROOT / "README.md"
    program, shown, *_ = blocks(page)
    names: dict[str, Any] = {"__name__": "readme"}
    assert run(program, page, names).strip() == shown.text.strip()
    assert len(page.read_text(encoding="utf-8").splitlines()) <= 150
    assert possible("ptxas") is False or [r.spills for r in names["saxpy"].assemble().resources.values()] == [0]
    assert [block.text for block in blocks(ROOT / "docs" / "index.md")] == [program.text, shown.text], "the site has it, too"


def generator() -> Any:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["generate"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.pure
def test_the_pages_are_made(tmp_path: Path) -> None:
    module = generator()
    module.ISA = tmp_path / "isa.md"
    assert module.outdated() == [module.ISA]
    module.write()
    assert module.outdated() == []
    assert module.pages().keys() == {"index.md", "instructions.md", *(f"{name}.md" for name in module.PAGES)}
    module.ISA.write_text("edited", encoding="utf-8")
    assert module.outdated() == [module.ISA]


@pytest.mark.pure
def test_pages_say_what_the_table_and_the_records_say() -> None:
    assert generator().outdated() == [], "run `make docs`"


@pytest.mark.pure
def test_another_figure_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """One that was edited, one that is no figure, and one whose record changes."""
    made = generator().figures()
    right = made.filled("a <!-- figure: burst.mean --><!-- /figure --> b")
    assert right == "a <!-- figure: burst.mean -->1.178<!-- /figure --> b"
    assert made.filled(right.replace("1.178", "1.15")) == right
    with pytest.raises(ValueError, match=r"`burst.mode` is no figure"):
        made.filled("<!-- figure: burst.mode -->1<!-- /figure -->")
    (tmp_path / f"{made.shapes.BURST}.json").write_text('{"summary": {"burst bf16": {"best": {"geometric_mean": 1.2}}}}')
    monkeypatch.setattr(made.records, "RESULTS", tmp_path)
    made.records.record.cache_clear()
    request.addfinalizer(made.records.record.cache_clear)
    assert "-->1.200<!--" in made.filled(right)


@pytest.mark.pure
def test_the_readme_is_short_and_shows_what_it_says() -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    assert page.count("\n") <= 150
    assert re.findall(r"^!\[[^]]+]\(([^)]+)\)$", page, re.M) == ["docs/inspect.png", "docs/replay.png", "docs/random.svg"]


@pytest.mark.pure
def test_the_plot_has_each_random_product_of_both_cards() -> None:
    made = generator().figures().products
    dots, rings = re.findall(r"M\d+ \d+h0", made.random_plot()), re.findall(r'<circle [^>]* r="3"', made.random_plot())
    for found, card in ((dots, "h100"), (rings, "h200")):
        assert len(found) == sum(len(made.record(made.RANDOM[card])["runs"][made.run_of(kind, card)]) for kind in made.KINDS) > 0
        assert all(ratio >= 0.4 for _, ratio, _ in made.points_of(card)), "none is below the axis"


MEANS = ("burst.mean", "burst-f16.mean", "sustained.mean", "fp8-rows.mean")


def by_hand(text: str) -> list[str]:
    """The means of recorded runs that a page has outside marks."""
    made = generator().figures()
    return [name for name in MEANS if re.search(rf"(?<![\d.]){re.escape(made.FIGURES[name]())}(?!\d)", made.MARK.sub("", text))]


@pytest.mark.pure
@pytest.mark.parametrize("name", ["README.md", "docs/performance.md", "docs/gemm.md", "docs/grouped.md"])
def test_no_page_has_a_mean_by_hand(name: str) -> None:
    assert by_hand((ROOT / name).read_text(encoding="utf-8")) == []
    assert by_hand("It is 1.178 times as fast, <!-- figure: sustained.mean -->1.062<!-- /figure --> under load.") == ["burst.mean"]


MEASURED = re.compile(r"(?<![\w.^-])\d[\d,.]*(?: to \d[\d,.]*)? ?"
                      r"(?:x cuBLAS|times as (?:fast|long|slow)|times the (?:speed|time)|TFLOP/s|GB/s|TB/s|us\b)")
SOURCE = re.compile(r"benchmarks/results/[\w.-]+|20\d\d-\d\d-\d\d|\d+ [A-Z][a-z]+ 20\d\d")
ARITHMETIC = {"docs/attention.md": ("4.6 TB/s", "600 TFLOP/s")}
"""What follows from a number of operations, and was not measured."""


def without_source(text: str, *, anywhere: bool) -> list[str]:
    """The measured figures outside marks and code, of sections that name neither a record nor a day; with `anywhere`, of all sections."""
    prose = re.sub(r"^```.*?^```$", "", generator().figures().MARK.sub("", text), flags=re.M | re.S)
    return [found for section in re.split(r"^(?=#)", prose, flags=re.M) if anywhere or not SOURCE.search(section)
            for found in MEASURED.findall(section)]


@pytest.mark.pure
def test_measured_figures_say_where_they_are_from() -> None:
    """In the README every one is made from a record; elsewhere its section names the record or the day."""
    assert without_source((ROOT / "README.md").read_text(encoding="utf-8"), anywhere=True) == []
    for path in sorted((ROOT / "docs").glob("*.md")):
        name = path.relative_to(ROOT).as_posix()
        assert set(without_source(path.read_text(encoding="utf-8"), anywhere=False)) <= {*ARITHMETIC.get(name, ())}, name


def typed_beside_a_record(text: str) -> list[str]:
    """The measured figures outside marks of paragraphs that cite a record which figures are made of."""
    made = generator().figures()
    source = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs" / "figures").glob("*.py")))
    names = [re.escape(path.stem) for path in made.records.RESULTS.glob("*.json") if f'"{path.stem}"' in source]
    cited = re.compile(rf"results/(?:{'|'.join(names)})\.json")
    prose = re.sub(r"^```.*?^```$|\btorch \d+\.\d+", "", made.MARK.sub("", text), flags=re.M | re.S)
    return [found for paragraph in re.split(r"\n\n+", prose) if cited.search(paragraph)
            for found in (*MEASURED.findall(paragraph), *re.findall(r"(?<![\w.^-])[0-3]\.\d{2,}(?![\d.])", paragraph))]


TYPED = {
    "performance.md": {"0.768", "0.805", "1 us", "30 us"},      # other cards, and parts of a call, which the record does not have
    "grouped.md": {"1 us", "15 us"},                            # a difference, and how long a product is
    "grouped-performance.md": {"4.1 to 4.6 us", "0.8 us", "0.5 us", "0.98"},    # of another record that is cited there, and a limit
}
"""What a record that is cited does not hold, or holds in other words."""
ACCOUNTS = {"experiments.md"}
"""Pages that tell of each experiment what it gave at the time."""


@pytest.mark.pure
def test_what_a_record_holds_is_not_typed() -> None:
    """So a page cannot differ from the record that it cites, nor from another page that cites it."""
    found = {path.name: set(typed_beside_a_record(path.read_text(encoding="utf-8"))) - TYPED.get(path.name, set())
             for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if path.name not in ACCOUNTS}
    assert {name: figures for name, figures in found.items() if figures} == {}
    page = "It is 1.18 times as fast, 3 us ([recorded](../benchmarks/results/2026-11-23-h200-burst.json)).\n\nIt is 1.2 times as fast."
    assert typed_beside_a_record(page) == ["1.18 times as fast", "3 us", "1.18"]


COUNTED = re.compile(r"(?<![\w.])\d[\d,]* (?:large |random )?(?:shapes|cases|products|layers|tests|opcodes|kernels|rules)")


def typed(text: str) -> list[str]:
    """The decimal numbers and counts of a page outside marks and code."""
    prose = re.sub(r"^```.*?^```$|`[^`]*`", "", generator().figures().MARK.sub("", text), flags=re.M | re.S)
    return [*re.findall(r"(?<![\w.-])\d+\.\d+", prose), *COUNTED.findall(prose)]


@pytest.mark.pure
def test_what_the_readme_types_are_versions() -> None:
    """Those of pyproject.toml."""
    about = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    versions = set(re.findall(r'(?:>=|Python :: )(\d+\.\d+)', about))
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    assert set(typed(page)) <= versions
    pythons = re.findall(r"Python :: (\d\.\d+)", about)
    assert f"Python {pythons[0]} to {pythons[-1]}" in page
    assert typed("It is 1.2 times `3.4` <!-- figure: burst.mean -->1.178<!-- /figure --> over 43 shapes, sm_90a.") == ["1.2", "43 shapes"]


@pytest.mark.pure
def test_a_figure_without_a_source_is_noticed() -> None:
    assert without_source("It is 1.2 x cuBLAS: 700 TFLOP/s, 4.5 us, 2 to 3 times as fast.", anywhere=False) == [
        "1.2 x cuBLAS", "700 TFLOP/s", "4.5 us", "2 to 3 times as fast"]
    section = "# Now\n<!-- figure: burst.mean -->1.178<!-- /figure --> ([1](benchmarks/results/2026-11-23-h200-burst.json)): 3 us.\n"
    assert without_source(section, anywhere=False) == []
    assert without_source(section, anywhere=True) == ["3 us"]
    assert without_source(section + "## Then\n4 us.\n```\n5 us\n```\n", anywhere=False) == ["4 us"]


WITHOUT_A_SENTENCE = {"Label", "mnemonics", "note"}
"""Functions and classes that have no docstring, and need one. Scalar types (`class u32(b32)`) are said by their names."""


def unsaid(source: str, public: set[str] | None) -> set[str]:
    """The public functions and classes of a module's text that have no docstring."""
    module = generator()
    return {node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef | ast.ClassDef)
            and module.wanted(node.name, public) and not ast.get_docstring(node)
            and not (isinstance(node, ast.FunctionDef) and module.decorated(node, "overload"))}


@pytest.mark.pure
def test_every_public_function_and_class_has_a_docstring() -> None:
    module, found = generator(), set()
    for modules in (module.modules_of(package, names) for _, package, names in module.PAGES.values()):
        for name in modules:
            source = module.source_of(name).read_text(encoding="utf-8")
            assert ast.get_docstring(ast.parse(source)), name
            found |= unsaid(source, module.exported(ast.parse(source))) if not name.endswith(".types") else set()
    assert found == WITHOUT_A_SENTENCE
    assert unsaid("def f(): ...\ndef _g(): ...\nclass C:\n    'Said.'", None) == {"f"}


@pytest.mark.pure
def test_every_public_name_is_on_its_page() -> None:
    module = generator()
    made = module.pages()
    for page, (_, package, listed) in module.PAGES.items():
        for name in module.modules_of(package, listed):
            section = made[f"{page}.md"].partition(f"\n## {name}\n")[2].partition("\n## ")[0]
            source = ast.parse(module.source_of(name).read_text(encoding="utf-8"))
            public = module.exported(source)
            names = public if public is not None else {each for node in source.body for each in module.defined(node) if each[0] != "_"}
            assert {each for each in names if not re.search(rf"`{each}\b", section)} == set(), name
            for node in source.body:
                if isinstance(node, ast.FunctionDef) and node.name in names and not module.decorated(node, "overload"):
                    assert f"### `{node.name}`\n" in section
                    assert re.search(rf"^{node.name}\(", section, re.M)
                    assert module.documentation(node) in section


@pytest.mark.pure
@pytest.mark.parametrize("package", ["ptxkit.grammar", "ptxkit", "ptxkit.gemm"])
def test_what_a_package_exports_is_on_a_page(package: str) -> None:
    made = "".join(generator().pages().values())
    exports = importlib.import_module(package)
    names = {name for name in exports.__all__ if not isinstance(getattr(exports, name), ModuleType)}
    assert {name for name in names if not re.search(rf"`{name}\b", made)} == set()


def links(text: str) -> list[str]:
    """What a page links to in the repository, without the places within pages."""
    return re.findall(r"\]\((?!https?:)([^)#]+)", re.sub(r"`[^`\n]*`", "", _FENCE.sub("", text)))


def is_there(path: Path) -> bool:
    """In an unpacked source distribution the folders gemm and grammar are in ptxkit only."""
    unpacked = (ROOT / "PKG-INFO").exists()
    return path.exists() or (unpacked and (ROOT / "ptxkit" / path.resolve().relative_to(ROOT.resolve())).exists())


@pytest.mark.pure
def test_links_between_pages_lead_somewhere() -> None:
    """From the pages that are written; links of those that are made are followed in the built site."""
    written = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "benchmarks").rglob("*.md"), *(ROOT / ".github").rglob("*.md")]
    assert len(written) > 12
    for page in written:
        for target in links(page.read_text(encoding="utf-8")):
            path = page.parent / target
            assert is_there(path), f"{page.name}: {target}"
