"""The guide's code runs and prints what the guide shows; the API pages are what the sources say; the README's kernel assembles."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import itertools
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ptxkit.runtime import driver, toolchain

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
    return needs == "" or (driver.available("sm_90a") if needs == "gpu" else toolchain.has_ptxas())


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
    kernels = [value for name, value in names.items() if isinstance(value, Kernel) and name != "wrong"]
    assert len(kernels) >= 6
    for kernel in kernels:
        assembly = kernel.assemble()
        assert [r.spills for r in assembly.resources.values()] == [0]
        assert assembly.findings == ()


@pytest.mark.ptxas
def test_the_readmes_kernel_assembles() -> None:
    names: dict[str, Any] = {"__name__": "readme"}
    run(blocks(ROOT / "README.md")[0], ROOT / "README.md", names)
    (entry,) = names["tile"].assemble().resources.values()
    assert entry.spills == 0


def generator() -> Any:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["generate"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.pure
def test_the_api_pages_are_what_the_sources_say() -> None:
    assert generator().outdated() == [], "run `make docs`"


@pytest.mark.pure
def test_an_edited_page_is_noticed(tmp_path: Path) -> None:
    module = generator()
    module.API = tmp_path
    assert "index.md" in module.outdated()
    for name, text in module.pages().items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert module.outdated() == []
    (tmp_path / "writing.md").write_text("edited", encoding="utf-8")
    (tmp_path / "old.md").write_text("no longer made", encoding="utf-8")
    assert module.outdated() == ["old.md", "writing.md"]


@pytest.mark.pure
def test_links_between_pages_lead_somewhere() -> None:
    for page in (GUIDE, GEMM, ROOT / "README.md", *(ROOT / "docs" / "api").glob("*.md")):
        text = re.sub(r"`[^`\n]*`", "", _FENCE.sub("", page.read_text(encoding="utf-8")))
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
