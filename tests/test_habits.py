"""The hooks are what `make lint` runs, templates and the changelog have their parts."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HOOKS = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")

pytestmark = pytest.mark.pure


def entries() -> list[str]:
    return re.findall(r"^ +entry: (.+)$", HOOKS, re.M)


def test_hooks_run_what_is_here_and_fetch_nothing() -> None:
    assert re.findall(r"^ +- repo: (.+)$", HOOKS, re.M) == ["local"]
    languages = re.findall(r"^ +language: (.+)$", HOOKS, re.M)
    assert set(languages) == {"system"}
    assert len(languages) == len(entries()) == len(re.findall(r"^ +- id: ", HOOKS, re.M))
    assert [word for entry in entries() for word in entry.split() if word.startswith("tests/") and not (ROOT / word).exists()] == []


def test_hooks_lint_as_make_does() -> None:
    lint = re.search(r"^lint:.*\n((?:\t.+\n)+)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    assert lint is not None
    commands = [line.strip().replace("$(PY)", ".venv/bin/python") for line in lint[1].splitlines()]
    assert len(commands) == 3
    assert [command for command in commands if command not in [entry.replace(" --no-fix", "") for entry in entries()]] == []


@pytest.mark.skipif(shutil.which("sh") is None, reason="no sh")
@pytest.mark.parametrize(("length", "status"), [(1, 0), (72, 0), (73, 1), (0, 1)])
def test_the_hook_of_the_subject(length: int, status: int, tmp_path: Path) -> None:
    (entry,) = [entry for entry in entries() if entry.startswith("sh -c ")]
    message = tmp_path / "message"
    message.write_text("x" * length + "\n\n" + "y" * 80 + "\n", encoding="utf-8")
    assert subprocess.run(f"{entry} {message}", shell=True, check=False).returncode == status


@pytest.mark.parametrize("name", ["bug_report", "feature", "performance"])
def test_a_template_has_a_name_and_says_what_it_is_for(name: str) -> None:
    text = (ROOT / ".github" / "ISSUE_TEMPLATE" / f"{name}.md").read_text(encoding="utf-8")
    assert re.match(r"---\nname: .+\nabout: .+\n---\n\n", text)


def test_the_changelog_has_the_version_and_what_is_not_released() -> None:
    titles = re.findall(r"^## \[([^]]+)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert titles[0] == "Unreleased"
    assert tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"] in titles
