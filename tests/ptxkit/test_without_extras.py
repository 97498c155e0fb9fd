"""Commands where nothing of the extras is installed: they work, or one sentence names the way out."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ptxkit.cli.extras import EXTRAS, way_out

ROOT = Path(__file__).parents[2]
SMALL = ["-m", "64", "-n", "64", "-k", "64"]
COMMANDS = [
    *(["ptxkit.gemm", "run", *SMALL, "--device", "sim", "--dtype", dtype] for dtype in ("bf16", "f16", "f32", "e4m3")),
    ["ptxkit.gemm", "grouped", "--groups", "2", "--tokens", "16", "-n", "64", "-k", "64", "--device", "sim"],
    ["ptxkit.gemm", "verify", "--device", "sim", "--cases", "1"],
    ["ptxkit.gemm", "verify", "--cases", "1"],
    ["ptxkit.gemm", "bench", "--shapes", "64x64x64"],
    *(["ptxkit.gemm", command] for command in ("invariance", "probe")),
    ["ptxkit.gemm", "sample", "--output", "sample.json.gz"],
    ["ptxkit.gemm", "bench", "--grouped"],
    ["ptxkit.gemm", "tune", "--shapes", "64x64x64"],
    ["ptxkit.gemm", "timeline", *SMALL],
    *(["ptxkit.attention", command] for command in ("verify", "bench", "bench-decode", "ladder")),
    ["ptxkit.attention", "verify", "--device", "sim"],
    ["ptxkit.cli.main", "gemm", "explain", *SMALL],
]
PROGRAM = """
import contextlib, importlib, io, json, sys

for name in sys.argv[1].split(","):
    sys.modules[name] = None
ends = []
for module, *arguments in json.loads(sys.argv[2]):
    if arguments[0] == "ladder":
        ladder = importlib.import_module("ptxkit.attention.ladder.command")
        ladder.RUNGS = ladder.RUNGS[:1]         # the others need nothing that the first does not
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            status = importlib.import_module(module if module.endswith(".main") else module + ".__main__").main(arguments)
        except SystemExit as end:
            status = end.code
    ends.append((status, said.getvalue()))
print(json.dumps(ends))
"""
WAY_OUT = re.compile(r"pip install '?ptxkit\[\w+\]|install the display driver")


@pytest.mark.pure
def test_a_command_without_extras_works_or_names_the_way_out(tmp_path: Path) -> None:
    """That may be the driver, where a GPU is what it lacks first."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, ",".join(EXTRAS), json.dumps(COMMANDS)], cwd=tmp_path, capture_output=True,
                          text=True, check=False, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    for command, (status, said) in zip(COMMANDS, json.loads(done.stdout), strict=True):
        assert "fault of ptxkit" not in said, (command, said)
        assert status == 0 or (status == 1 and WAY_OUT.search(said)), (command, status, said)


@pytest.mark.pure
def test_extras_are_those_of_the_package() -> None:
    about = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for module, (extra, _) in EXTRAS.items():
        assert any(re.match(rf"{module}\b", need) for need in about[extra]), module
        assert f"ptxkit[{extra}]" in way_out(module)
