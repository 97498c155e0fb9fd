"""The pytest fixture: what passes, what fails, and what it keeps."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ptxkit.replay import Choices

from .kernels import CROSSED, LATE, RACE

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
ROOT = Path(__file__).parents[2]
IN_CI = ("CI", "BUILD_NUMBER")
"""Where one of these is set, pytest says every failure twice: its summary holds the whole message, too."""

TESTS = f'''
import numpy as np
import pytest

RACE = """{RACE}"""
LATE = """{LATE}"""
CROSSED = """{CROSSED}"""
RIGHT = RACE.replace("ld.shared", "bar.sync 0;\\n\\tld.shared").replace("st.shared", "@%p0 st.shared").replace("mov.u32 %r0, %tid.x;",
    "mov.u32 %r0, %tid.x;\\n\\tsetp.eq.u32 %p0, %r0, 5;")


def test_right(prove):
    out = np.zeros(64, np.uint32)
    proof = prove(RIGHT, 1, out, block=64)
    assert proof.proven
    assert (out == 5).all()


@pytest.mark.parametrize("block", [64])
def test_race(prove, block):
    prove(RIGHT, 1, np.zeros(64, np.uint32), block=block)
    prove(RACE, 1, np.zeros(64, np.uint32), block=block, schedules=2)


def test_other_memory(prove):
    prove(LATE, 2, np.zeros(2, np.uint32), block=32, schedules=12, accept="incomplete")


def test_deadlock(prove):
    prove(CROSSED, 1, block=64)


def test_a_wrong_call(prove):
    prove(RIGHT, 1, block=64)
'''


def pytest_of(folder: Path, *options: str) -> str:
    """What pytest says of the tests, in a process and a folder of its own."""
    (folder / "test_kernels.py").write_text(TESTS)
    environment = {name: value for name, value in os.environ.items() if name not in IN_CI} | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "ptxkit.testing", "-p", "no:cacheprovider", "-p", "no:randomly",
                           "--rootdir", str(folder), "--basetemp", str(folder / "temporary"), *options], cwd=folder,
                          env=environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_the_fixture(tmp_path: Path) -> None:
    said = pytest_of(tmp_path)
    assert "4 failed, 1 passed" in said
    assert "not proven: k, 2 schedules: 2 error" in said
    assert "shared-race" in said
    assert "memory differs: `out`[1]" in said
    assert "[deadlock] deadlock: nobody has ever arrived" in said
    assert "kernel `k` takes 1 argument (out), 0 were given" in said
    assert "1. CTA 0 warp 0 goes on only when all others wait" in said
    pages = [Path(path) for path in re.findall(r"^page: (.*)$", said, re.M)]
    assert [path.name for path in pages] == ["test_race-64-2.html", "test_other_memory.html", "test_deadlock.html"]
    assert all("<svg" in path.read_text() for path in pages)
    kept = [Choices.load(path) for path in re.findall(r"^replay: (.*)$", said, re.M)]
    assert [len(choices) for choices in kept] == [0, 1, 0]
    assert "another exception" not in said
    assert "def __call__" not in said, "the fixture's own lines are no part of a failure"


@pytest.mark.parametrize("how", ["option", "setting"])
def test_where_replays_are_kept(tmp_path: Path, how: str) -> None:
    if how == "setting":
        (tmp_path / "pytest.ini").write_text("[pytest]\nptxkit_replays = kept/replays\nptxkit_search_seconds = 5\n")
    said = pytest_of(tmp_path, "-k", "deadlock", *(["--ptxkit-replays", "kept/replays"] if how == "option" else []))
    folder = tmp_path / "kept" / "replays"
    assert sorted(path.name for path in folder.iterdir()) == ["test_kernels-test_deadlock.html", "test_kernels-test_deadlock.json"]
    assert f"page: {folder}" in said


def test_replays_that_cannot_be_kept(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("a file")
    said = pytest_of(tmp_path, "-k", "deadlock", "--ptxkit-replays", "kept")
    assert "not proven: k, 4 schedules: 4 error" in said
    assert "kept: File exists: name another folder with --ptxkit-replays" in said
    assert "ptxkit_search_seconds is a number of seconds, not 'long'" in pytest_of(tmp_path, "-k", "right", "-o",
                                                                                    "ptxkit_search_seconds=long")


def test_ptxkit_is_a_plugin_of_pytest() -> None:
    made = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    assert made == {"ptxkit.testing": "ptxkit.testing"}
