"""docs/prove.md: its commands and its Python print what the page shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from ptxkit.cli.main import main
from tests.ptxkit.test_commands_page import agrees
from tests.test_docs import blocks, run

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "prove.md"

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]


def shown(text: str) -> list[tuple[str, str]]:
    """The commands of a block with what they print."""
    return re.findall(r"^\$ ([^\n]*)\n((?:(?!\$ )[^\n]*\n)*)", text, re.M)


def steps() -> list[tuple[str, str]]:
    """The commands of the page, with what they print."""
    return [step for block in blocks(PAGE) if block.language == "text" for step in shown(block.text)]


def edited(command: str, arguments: list[str], output: str) -> bool:
    """Do what `cat` and `sed` of the page do, in this folder: write a file. False for other commands."""
    if command == "cat":
        Path(arguments[0]).write_text(output)
    elif command == "sed":
        _, old, new, _ = arguments[0].split("/")
        Path(arguments[3]).write_text(re.sub(old.replace("+", r"\+"), new.replace("\\n", "\n"), Path(arguments[1]).read_text()))
    return command in ("cat", "sed")


def test_the_commands_print_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Those of other compilers' kernels, `python`, are run by `tests/foreign/test_prove_page.py`."""
    monkeypatch.chdir(tmp_path)
    for name in ("examples", "tests"):
        Path(name).symlink_to(ROOT / name)
    ran = 0
    for step, output in steps():
        command, *arguments = shlex.split(step)
        if edited(command, arguments, output) or command == "python":
            continue
        status = main(arguments)
        printed = "".join(capsys.readouterr())
        assert agrees(output.splitlines(), printed.splitlines()), f"{step} prints\n{printed}"
        assert status == (2 if output.startswith("ptxkit: ") else 1 if "swap.py:swap" in arguments else 0), step
        ran += 1
    assert ran == 8
    page = Path("swap.html").read_text()
    assert "st.shared.u32(words.at(thread), thread)" in page
    assert "nothing orders these two" in page
    assert Path("swap.trace.json").stat().st_size > 1000


def test_the_python_prints_what_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {"__name__": "page"}
    found = blocks(PAGE)
    outputs = 0
    for block, after in zip(found, [*found[1:], None], strict=True):
        if block.language != "python":
            continue
        printed = run(block, PAGE, names)
        if after is not None and after.language == "text" and not after.text.startswith("$"):
            assert agrees(after.text.splitlines(), printed.splitlines()), f"docs/prove.md:{block.line + 1} prints\n{printed}"
            outputs += 1
    assert outputs == 2


def test_what_the_page_links_is_there() -> None:
    links = re.findall(r"\]\((?!https:)([^)#]+)", PAGE.read_text(encoding="utf-8"))
    assert len(links) > 3
    assert [link for link in links if not (PAGE.parent / link).exists()] == []
