"""The stub and the DSL's types against two type checkers: planted errors, legal code, and random calls against the trace's own verdict."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .calls import marked, sample

pytestmark = pytest.mark.pure

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ERRORS, LEGAL, HELPERS, RESULTS = HERE / "errors.py", HERE / "legal.py", HERE / "helpers.py", HERE / "results.py"
CALLS, SEED = 1000, 20
MARK = re.compile(r"# E(?:\((\w+)\))?: \S")

Reports = dict[Path, dict[int, str]]


def mypy(files: list[Path], scratch: Path) -> Reports:
    """The errors by file and line."""
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir", str(scratch / "mypy"),
               "--show-absolute-path", "--no-error-summary", "--no-pretty", *map(str, files)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode in (0, 1), run.stdout + run.stderr
    found: Reports = {file: {} for file in files}
    for path, line, message in re.findall(r"^(.+?):(\d+): error: (.*)$", run.stdout, re.MULTILINE):
        found[Path(path)].setdefault(int(line), message)
    return found


def basedpyright(files: list[Path], scratch: Path) -> Reports:
    """The errors by file and line."""
    pytest.importorskip("basedpyright")
    settings = {"include": list(map(str, files)), "extraPaths": [str(ROOT)], "typeCheckingMode": "standard", "pythonVersion": "3.11"}
    (scratch / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "--project", str(scratch), "--pythonpath", sys.executable, "--level", "error",
               "--outputjson"]
    run = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)
    assert run.returncode in (0, 1), run.stdout + run.stderr
    report = json.loads(run.stdout)
    assert report["summary"]["filesAnalyzed"] == len(files)
    found: Reports = {file: {} for file in files}
    for diagnostic in report["generalDiagnostics"]:
        found[Path(diagnostic["file"])].setdefault(diagnostic["range"]["start"]["line"] + 1, diagnostic["message"].splitlines()[0])
    return found


def expected(text: str, checker: str) -> set[int]:
    """The lines whose mark asks for an error of this checker."""
    marks = ((number, MARK.search(line)) for number, line in enumerate(text.splitlines(), 1))
    return {number for number, mark in marks if mark and mark[1] in (None, checker)}


def differences(text: str, wanted: set[int], reported: dict[int, str]) -> list[str]:
    """What was not reported and what should not have been, with the source line."""
    lines = text.splitlines()
    missed = [f"{number}: not reported: {lines[number - 1].strip()}" for number in sorted(wanted - reported.keys())]
    extra = [f"{number}: reported: {lines[number - 1].strip()}  [{reported[number]}]" for number in sorted(reported.keys() - wanted)]
    return missed + extra


@pytest.mark.thinned(40)
@pytest.mark.parametrize("check", [mypy, basedpyright])
def test_reports_exactly_what_is_wrong(check: Callable[[list[Path], Path], Reports], tmp_path: Path) -> None:
    """Every planted error and nothing else; nothing in legal code; of random calls those that the trace refuses."""
    text, lines = sample(CALLS, SEED)
    calls = tmp_path / "random_calls.py"
    calls.write_text(text)
    wanted = {ERRORS: expected(ERRORS.read_text(), check.__name__), LEGAL: set[int](), RESULTS: set[int](),
              calls: set(marked(text, lines)), HELPERS: expected(HELPERS.read_text(), check.__name__)}
    assert len(wanted[ERRORS]) > 100
    assert len(wanted[HELPERS]) > 40
    assert 0.3 * CALLS < len(wanted[calls]) < 0.5 * CALLS
    reported = check(list(wanted), tmp_path)
    found = [f"{file.name}:{what}" for file in wanted for what in differences(file.read_text(), wanted[file], reported[file])]
    assert not found, "\n".join(found)


def test_legal_code_traces() -> None:
    from .legal import legal

    assert "wgmma.mma_async" in legal.ptx()


def test_differences_are_found() -> None:
    """The comparison itself can fail, in both directions."""
    text = "a  # E: wrong\nb\nc  # E(mypy): wrong\n"
    assert expected(text, "mypy") == {1, 3}
    assert expected(text, "basedpyright") == {1}
    assert differences(text, {1}, {1: "x"}) == []
    assert differences(text, {1}, {2: "x"}) == ["1: not reported: a  # E: wrong", "2: reported: b  [x]"]
