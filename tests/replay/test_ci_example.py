"""The example of a CI without a GPU: what its workflow runs, runs here."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.check.test_sarif import checked

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "ci"
_RUN = re.compile(r"^( *)run: (?:\|\n((?:\1  .*\n)+)|(.*)\n)", re.M)


def commands() -> list[str]:
    """The shell commands of the workflow, without the one that installs."""
    text = (EXAMPLE / "workflow.yml").read_text(encoding="utf-8")
    found = [line.strip() for block in _RUN.finditer(text) for line in (block[2] or block[3]).splitlines()]
    assert found[0] == "python -m pip install ptxkit pytest"
    return found[1:]


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    python = f'"{sys.executable}"'
    shell = re.sub(r"^ptxkit\b", f"{python} -m ptxkit", command).replace("python -m pytest", f"{python} -m pytest -p ptxkit.testing")
    return subprocess.run(shell, shell=True, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
                          check=False)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n")
    return folder


def test_the_workflow_passes(project: Path) -> None:
    assert len(commands()) == 4
    for command in commands():
        done = run(command, project)
        assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(path.name for path in (project / "findings").iterdir()) == ["reverse.sarif", "total.sarif"]
    assert all(checked(json.loads(path.read_text())) == [] for path in (project / "findings").iterdir())
    assert not (project / "replays").exists()


def test_a_planted_race_fails_both(project: Path) -> None:
    """The barrier between the store and the load is taken out."""
    kernels = project / "kernels.py"
    kernels.write_text(kernels.read_text().replace("    bar.sync(0)\n", "", 1))
    line = next(number for number, text in enumerate(kernels.read_text().splitlines(), 1) if "(THREADS - 1)" in text)
    codes = {command: run(command, project).returncode for command in commands()}
    assert [code for command, code in codes.items() if "total" in command or "mkdir" in command] == [0, 0]
    assert [code for command, code in codes.items() if "reverse" in command or "pytest" in command] == [1, 1]
    (result,) = checked(json.loads((project / "findings" / "reverse.sarif").read_text()))
    place = result["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("kernels.py", line)
    page = (project / "replays" / "test_kernels-test_reverse.html").read_text()
    assert "nothing orders these two" in page
    assert "ld.shared.f32(words.at(thread ^ (THREADS - 1)))" in page


def test_the_workflow_names_no_machine() -> None:
    text = (EXAMPLE / "workflow.yml").read_text(encoding="utf-8")
    assert "://" not in text
    assert "\t" not in text
    assert all(re.match(r"( {2})*[^ ]", line) for line in text.splitlines() if line.strip()), "indented by two"
