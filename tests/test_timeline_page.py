"""docs/timeline.md: its commands and its Python print what the page shows."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ptxkit.cli.main import main
from tests.ptxkit.test_commands_page import agrees
from tests.test_docs import blocks, possible, run
from tests.test_prove_page import shown

PAGE = Path(__file__).parents[1] / "docs" / "timeline.md"

pytestmark = [pytest.mark.pure, pytest.mark.timeout(60)]


def test_the_page_prints_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    found = blocks(PAGE)
    ran = 0
    for block, after in pairwise([*found, None]):
        assert block is not None
        if block.language == "python":
            printed = run(block, PAGE, names)
            wanted = after.text if after is not None and after.language == "text" and not after.text.startswith("$") else ""
            assert not possible(block.needs) or printed.strip() == wanted.strip(), f"docs/timeline.md:{block.line + 1} prints\n{printed}"
            ran += bool(wanted)
        for command, output in shown(block.text) if block.language == "text" else ():
            program, *arguments = shlex.split(command)
            assert (program, main(arguments)) == ("ptxkit", 0)
            printed = capsys.readouterr().out
            assert agrees(output.splitlines(), printed.splitlines()), f"{command} prints\n{printed}"
            ran += 1
    assert ran == 4
    for name in ("timeline.html", "timeline.json", "product.html", "product.json"):
        assert (tmp_path / name).stat().st_size > 2000
    assert "SM 1 CTA 1 producer" in (tmp_path / "timeline.html").read_text()


def test_what_the_page_links_is_there() -> None:
    links = re.findall(r"\]\((?!https:)([^)#]+)", PAGE.read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (PAGE.parent / link).exists()] == []
