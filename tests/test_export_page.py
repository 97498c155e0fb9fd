"""docs/export.md: its commands run and print what the page shows, and the page names every code that an export returns."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from ptxkit.cli.main import main
from ptxkit.export.text import STATUS
from tests.test_docs import blocks
from tests.test_prove_page import edited, shown

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "export.md"

pytestmark = [pytest.mark.ptxas, pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler `cc`"),
              pytest.mark.timeout(120)]


def like(shown: str, printed: str) -> bool:
    """Whether a line is as it is shown; `...` stands for anything."""
    parts = shown.split("...")
    at = 0
    for index, part in enumerate(parts):
        found = printed.find(part, at)
        if found < 0 or (index == 0 and found):
            return False
        at = found + len(part)
    return parts[-1] == "" or printed.endswith(parts[-1])


def agrees(shown: list[str], printed: list[str]) -> bool:
    """Line by line; a line of `...` stands for any lines."""
    if not shown:
        return not printed
    if shown[0] == "...":
        return any(agrees(shown[1:], printed[at:]) for at in range(len(printed) + 1))
    return bool(printed) and like(shown[0], printed[0]) and agrees(shown[1:], printed[1:])


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


def test_another_output_is_noticed() -> None:
    assert agrees(["a", "...", "x ... z"], ["a", "b", "x y z"])
    assert not agrees(["a", "x ... z"], ["a", "x y"])
    assert not agrees(["a"], ["a", "b"])
    assert not agrees(["b..."], ["ab"])
