"""docs/lift.md shows what the commands print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ptxkit.cli.main import main

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(python|text)\n(.*?)^```$", re.M | re.S)


@pytest.mark.ptxas
def test_the_page_shows_what_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shown = dict(FENCE.findall((ROOT / "docs" / "lift.md").read_text()))
    monkeypatch.chdir(tmp_path)
    Path("arithmetic.ptx").write_bytes((ROOT / "tests" / "corpus" / "arithmetic.ptx").read_bytes())
    assert main(["lift", "arithmetic.ptx", "-e", "saxpy", "-o", "saxpy.py"]) == 0
    made = Path("saxpy.py").read_text()
    assert made == shown["python"]
    assert main(["diff", "-e", "saxpy", "arithmetic.ptx", "saxpy.py:saxpy"]) == 0
    capsys.readouterr()
    changed = made.replace("ld.global_.f32(rd7)", "ld.global_.nc.f32(rd7)")
    assert changed != made
    Path("changed").mkdir()
    Path("changed/saxpy_nc.py").write_text(changed)
    assert main(["diff", "-e", "saxpy", "arithmetic.ptx", "changed/saxpy_nc.py:saxpy"]) == 1
    assert capsys.readouterr().out.replace("changed/saxpy_nc.py", "saxpy.py") == shown["text"]
