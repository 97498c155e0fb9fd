"""What `make dist` refuses."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.distributions import Refused, committed, main, requirements, unfinished

pytestmark = pytest.mark.pure
VERSION = '__version__ = "1.2.3"\n'
HEAD = "# Changelog\n\n## [Unreleased]\n\n"


def git(repository: Path, *arguments: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", *who, *arguments], cwd=repository, capture_output=True, check=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A checkout of one commit, in a folder with a space."""
    folder = tmp_path / "a checkout"
    (folder / "ptxkit").mkdir(parents=True)
    (folder / "gemm").mkdir()
    (folder / "gemm" / "kernel.py").write_text("", encoding="utf-8")
    (folder / "ptxkit" / "gemm").symlink_to("../gemm")
    (folder / ".gitignore").write_text("*.log\n", encoding="utf-8")
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "Begin")
    return folder


def test_only_what_is_committed_is_built(repository: Path, tmp_path: Path) -> None:
    (repository / "ignored.log").touch()
    tree = committed(repository, tmp_path / "tree")
    made = sorted(path.relative_to(tree).as_posix() for path in tree.rglob("*"))
    assert made == [".gitignore", "gemm", "gemm/kernel.py", "ptxkit", "ptxkit/gemm"]
    assert (tree / "ptxkit" / "gemm").is_symlink()
    (repository / "forgotten.py").touch()
    with pytest.raises(Refused, match=r"^what is here is not what is committed \(`git status` lists forgotten\.py\): commit it, or put"):
        committed(repository, tmp_path / "other")
    git(repository, "add", "--all")
    with pytest.raises(Refused, match="forgotten"):
        committed(repository, tmp_path / "other")
    with pytest.raises(Refused, match="is no checkout"):
        committed(tree, tmp_path / "other")


@pytest.mark.parametrize(("changelog", "tags", "lacks"), [
    (HEAD + "## [1.2.3] - 2026-01-31\n\n- A.\n", ["v1.2.3"], ""),
    (HEAD + "## [1.2.3] - 2026-01-31\n\n- A.\n", ["v1.2.2"], "the last commit has no tag v1.2.3"),
    (HEAD + "### Added\n\n- B.\n\n## [1.2.3] - 2026-01-31\n", ["v1.2.3"], "CHANGELOG.md has lines under Unreleased: they belong to 1.2.3"),
    (HEAD + "## [1.2.2] - 2026-01-31\n", ["v1.2.3"], "CHANGELOG.md has no section `## [1.2.3] - YEAR-MONTH-DAY`"),
    (HEAD + "## [1.2.3]\n", ["v1.2.3"], "CHANGELOG.md has no section `## [1.2.3] - YEAR-MONTH-DAY`"),
    (HEAD + "## [1.2x3] - 2026-01-31\n", ["v1.2.3"], "CHANGELOG.md has no section `## [1.2.3] - YEAR-MONTH-DAY`"),
])
def test_what_a_release_lacks(changelog: str, tags: list[str], lacks: str, tmp_path: Path) -> None:
    (tmp_path / "ptxkit").mkdir()
    (tmp_path / "ptxkit" / "__init__.py").write_text(VERSION, encoding="utf-8")
    (tmp_path / "CHANGELOG.md").write_text(changelog, encoding="utf-8")
    found = unfinished(tmp_path, tags)
    assert found.startswith(lacks)
    assert bool(found) == bool(lacks)


def test_a_refusal_is_a_sentence_and_a_status(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("tests.distributions.ROOT", tmp_path)
    assert main(["-o", str(tmp_path / "dist")]) == 1
    assert capsys.readouterr().err == f"make dist: {tmp_path} is no checkout: distributions are made of what is committed\n"
    assert not (tmp_path / "dist").exists()


def test_what_is_needed_at_run_time() -> None:
    found = requirements(Path(__file__).parents[1], "toolchain")
    assert {"lark", "numpy", "nvidia-cuda-nvcc", "cuda-python"} <= {each.partition(">")[0] for each in found}
