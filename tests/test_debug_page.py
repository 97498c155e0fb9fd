"""docs/debug.md: its commands and its Python print what the page shows."""

from __future__ import annotations

import itertools
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from ptxkit.cli.main import main
from ptxkit.debugger.terminal import GROUPS, Terminal
from tests.ptxkit.test_commands_page import agrees
from tests.test_docs import blocks, run
from tests.test_prove_page import edited, shown

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "debug.md"

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]


def test_the_commands_print_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    above = [place for place in sys.path if ROOT not in Path(place).resolve().parents]
    monkeypatch.setattr(sys, "path", above)                  # files are named from a folder on it
    for name in ("examples", "tests"):
        Path(name).symlink_to(ROOT / name)
    ran = 0
    for step, output in [step for block in blocks(PAGE) if block.language == "text" for step in shown(block.text)]:
        command, *arguments = shlex.split(step)
        if edited(command, arguments, output):
            continue
        status = main(arguments)
        printed = "".join(capsys.readouterr())
        assert agrees(output.splitlines(), printed.splitlines()), f"{step} prints\n{printed}"
        assert status == int("error" in output), step
        ran += 1
    assert ran == 6


def test_the_python_prints_what_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    found = blocks(PAGE)
    names: dict[str, Any] = {"__name__": "page"}
    pairs = [(block, after) for block, after in itertools.pairwise(found) if block.language == "python"]
    assert len(pairs) == 1
    for block, after in pairs:
        assert agrees(after.text.splitlines(), run(block, PAGE, names).splitlines())


def test_the_page_names_every_command() -> None:
    commands = {name.removeprefix("do_") for name in dir(Terminal) if name.startswith("do_")}
    assert commands == {name for names in GROUPS.values() for name in names}
    page = PAGE.read_text(encoding="utf-8")
    assert {name for name in commands if not re.search(rf"(?:^|`){name}\b", page, re.M)} == set()
