"""`python -m gemm` as a user runs it, without a GPU."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.conftest import why_no_gpu


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "gemm", *words], capture_output=True, text=True, timeout=120)


@pytest.mark.ptxas
@pytest.mark.skipif(not why_no_gpu(), reason="there is a GPU")
def test_without_a_gpu_it_assembles_and_says_so():
    done = command("hgemm", "-m", "512", "-n", "512", "-k", "512")
    assert done.returncode == 0, done.stderr
    assert "setmaxnreg in effect            yes" in done.stdout
    assert "not executed: no NVIDIA driver" in done.stdout.splitlines()[-1]
    report = json.loads(command("hgemm", "--json", "--layout", "tn", "--dtype", "f16", "--out-dtype", "f32").stdout)
    assert report["executed"] is False
    assert report["resources"]["registers"] == 168


@pytest.mark.pure
@pytest.mark.parametrize("words", [("hgemm", "-m", "0"), ("hgemm", "--dtype", "f64"), ("hgemm", "--layout", "nx"), (), ("sgemm",)])
def test_usage_errors_exit_with_2(words):
    assert command(*words).returncode == 2
