"""docs/tune.md: its Python prints what the page shows, and its command runs."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.test_docs import blocks, possible, run

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "tune.md"

pytestmark = [pytest.mark.ptxas, pytest.mark.timeout(120)]


def test_what_the_page_shows_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found, names, compared = blocks(PAGE), {"__name__": "tune"}, 0
    for block, after in itertools.pairwise([*found, None]):
        assert block is not None
        if block.language == "python":
            printed = run(block, PAGE, names)
            if after is not None and after.language == "text" and possible(block.needs):
                assert printed.strip() == after.text.strip(), f"docs/tune.md:{block.line + 1}"
                compared += 1
    assert compared == 2
    assert {block.needs for block in found if block.language == "python"} == {"", "ptxas", "gpu"}


def test_the_command_that_measures_the_tuner_runs(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "benchmarks/tuner.py", "--part", "tune", "--size", "256", "--device", "cpu"], cwd=ROOT,
                          capture_output=True, text=True, timeout=110, check=False,
                          env={**os.environ, "PTXKIT_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["measured"] == 64
    assert found["skipped"] == {}
