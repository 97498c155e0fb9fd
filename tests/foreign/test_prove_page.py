"""docs/prove.md: the kernels of other compilers print what the page shows."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ptxkit.cli.main import main
from tests.ptxkit.test_commands_page import agrees
from tests.test_prove_page import ROOT, edited, steps

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(300)]


def test_the_scripts_print_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TRITON_DEFAULT_FP_FUSION": "1"}
    for name in ("CUTE_DSL_ARCH", "CUTE_DSL_KEEP", "CUTE_DSL_DUMP_DIR"):        # the page sets them
        environment.pop(name, None)
    ran = 0
    for step, output in steps():
        command, *arguments = shlex.split(step)
        if edited(command, arguments, output) or command != "python":
            continue
        done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=200, env=environment)
        printed = (done.stdout + done.stderr.splitlines()[-1] if done.returncode else done.stdout).replace(f"{tmp_path}/", "")
        assert agrees(output.splitlines(), printed.splitlines()), f"{step} prints\n{printed}\n{done.stderr}"
        assert done.returncode == ("Error" in output)
        ran += 1
    assert ran == 5


def test_commands_say_how_a_kernel_is_proven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("kernels.py").write_text("import triton\n\n\n@triton.jit\ndef nothing(x):\n    pass\n")
    for command in ("check", "simulate"):
        assert main([command, "kernels.py:nothing"]) == 2
        assert "prove it from Python, ptxkit.prove(nothing, grid, *arguments)" in capsys.readouterr().err
