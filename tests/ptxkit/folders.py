"""A working directory for tests of commands."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from . import planted
from .test_cli import KERNEL

KNOWN = "kernels_of_a_test:store"
"""A kernel there, as a command line names it."""


def with_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module of kernels and PTX, made the working directory for one test."""
    (tmp_path / "kernels_of_a_test.py").write_text(KERNEL)
    (tmp_path / "k.ptx").write_text(planted.CLEAN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "kernels_of_a_test", raising=False)
    return tmp_path
