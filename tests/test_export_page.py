"""docs/export.md: its commands run and print what the page shows, and the page names every code that an export returns."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from ptxkit.cli.main import main
from ptxkit.export.text import STATUS
from tests.pages import agrees
from tests.test_docs import blocks
from tests.test_prove_page import edited, shown

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "export.md"

pytestmark = [pytest.mark.ptxas, pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler `cc`"),
              pytest.mark.timeout(120)]


def test_the_commands_print_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("examples").symlink_to(ROOT / "examples")
    Path("libcuda.so.1").write_bytes(b"")                       # on a machine with a driver, too
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    ran = []
    for step, output in [step for block in blocks(PAGE) if block.language == "text" for step in shown(block.text)]:
        command, *arguments = shlex.split(step)
        if edited(command, arguments, output):
            continue
        if command == "ptxkit":
            assert main(arguments) == 0, step
            printed = "".join(capsys.readouterr())
        else:
            done = subprocess.run([command, *arguments], capture_output=True, text=True, check=False)
            assert done.returncode == int(command == "./main"), done.stderr
            printed = done.stdout + done.stderr
        assert agrees(output.splitlines(), printed.splitlines()), f"{step} prints\n{printed}"
        ran.append(command)
    assert ran == ["ptxkit", "cc", "./main", "ptxkit", "ptxkit", "ptxkit"]


def test_the_page_names_every_code() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [word for word in STATUS[1:] if f"| `NAME_{word}` |" not in page] == []
