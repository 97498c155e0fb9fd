"""The hooks are what `make lint` runs, templates and the changelog have their parts."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from ptxkit import __version__
from tests.distributions import version_of

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
    commands = [line.strip().replace('"$(PY)"', ".venv/bin/python") for line in lint[1].splitlines()]
    assert len(commands) == 3
    assert [command for command in commands if command not in [entry.replace(" --no-fix", "") for entry in entries()]] == []


@pytest.mark.skipif(shutil.which("sh") is None, reason="no sh")
@pytest.mark.parametrize(("length", "status"), [(1, 0), (72, 0), (73, 1), (0, 1)])
def test_the_hook_of_the_subject(length: int, status: int, tmp_path: Path) -> None:
    (entry,) = [entry for entry in entries() if entry.startswith("sh -c ")]
    message = tmp_path / "message"
    message.write_text("x" * length + "\n\n" + "y" * 80 + "\n", encoding="utf-8")
    assert subprocess.run(f"{entry} {message}", shell=True, check=False).returncode == status


@pytest.mark.parametrize("target", ["demo", "test", "lint", "docs", "bench", "dist"])
def test_a_target_uses_an_environment_that_is_there(target: str) -> None:
    """`PY=` names it, and nothing is set up. Its path may have a space."""
    for python in ("/a/python", "/a b/python"):
        done = subprocess.run(["make", "--dry-run", target, f"PY={python}"], cwd=ROOT, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        commands = [shlex.split(line) for line in done.stdout.splitlines() if "python" in line]
        assert any(python in words[:2] for words in commands)
        assert not any("venv" in word or word == "pip" for words in commands for word in words)


def test_the_python_of_a_new_environment_may_have_a_space(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    done = subprocess.run(["make", "--dry-run", "demo", "PYTHON=/a b/python"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert ["/a b/python", "-m", "venv", ".venv"] in [shlex.split(line) for line in done.stdout.splitlines() if line.endswith("venv")]


@pytest.mark.parametrize("name", ["bug_report", "feature", "performance"])
def test_a_template_has_a_name_and_says_what_it_is_for(name: str) -> None:
    text = (ROOT / ".github" / "ISSUE_TEMPLATE" / f"{name}.md").read_text(encoding="utf-8")
    assert re.match(r"---\nname: .+\nabout: .+\n---\n\n", text)


def test_the_changelog_has_the_version_and_what_is_not_released() -> None:
    titles = re.findall(r"^## \[([^]]+)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert titles[0] == "Unreleased"
    assert __version__ in titles


def test_the_version_is_in_one_place() -> None:
    about = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert about["project"]["dynamic"] == ["version"]
    assert about["tool"]["setuptools"]["dynamic"] == {"version": {"attr": "ptxkit.__version__"}}
    assert version_of(ROOT) == __version__
    wrong = [path for name in ("ptxkit", "grammar", "gemm", "attention", "docs") for path in (ROOT / name).rglob("*.*")
             if path.suffix in (".py", ".pyi", ".md", ".toml") and f'"{__version__}"' in path.read_text(encoding="utf-8")]
    assert wrong == [ROOT / "ptxkit" / "__init__.py"]
