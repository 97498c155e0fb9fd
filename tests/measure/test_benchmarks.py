"""Benchmarks that need a GPU say so where there is none."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import why_no_gpu

ROOT = Path(__file__).parents[2]
ON_THE_CPU = {"compact", "hostile", "parser", "scoreboard", "shapes", "simulator"}
"""Files of benchmarks/ that measure no GPU."""
FILES = sorted({path.stem for path in (ROOT / "benchmarks").glob("*.py")} - ON_THE_CPU)


def test_the_others_measure_no_gpu() -> None:
    for name in ON_THE_CPU:
        assert not re.search("TorchTimer|torch\\.cuda|device_array", (ROOT / "benchmarks" / f"{name}.py").read_text(encoding="utf-8")), name


@pytest.mark.skipif(not why_no_gpu(), reason="there is a driver")
@pytest.mark.parametrize("name", FILES)
def test_without_a_gpu_a_benchmark_is_one_sentence(name: str) -> None:
    if name == "torch_operators":
        pytest.importorskip("torch")
    done = subprocess.run([sys.executable, f"benchmarks/{name}.py"], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True,
                          capture_output=True, timeout=100)
    assert done.returncode == 1
    assert re.fullmatch(r"(no [a-z ]+|nothing) was (measured|tuned): there is no GPU.*\n", done.stderr), done.stderr
    assert not done.stdout
