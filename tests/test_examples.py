"""Each example runs, checks itself and prints one line, on a GPU and without one."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ptxkit.runtime import driver

ROOT = Path(__file__).parents[1]
PARALLEL = ("expert_parallel", "tensor_parallel")
"""Of several processes, in tests/torch/test_parallel.py."""
EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py") if path.stem not in ("__init__", *PARALLEL))

pytestmark = pytest.mark.timeout(120)


def test_the_examples_are_these() -> None:
    assert EXAMPLES == ["attention_tile", "cluster_multicast", "moe", "tile_gemm", "tma_copy", "tuned_sums", "vector_add",
                        "warp_reduction"]


@pytest.mark.thinned(2)
@pytest.mark.pure
@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("ptxas", ["found", "driver"])
def test_an_example_prints_one_line(name: str, ptxas: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **({"PTXKIT_PTXAS": "driver"} if ptxas == "driver" else {})}
    done = subprocess.run([sys.executable, ROOT / "examples" / f"{name}.py"], cwd=ROOT, env=environment, capture_output=True, text=True,
                          timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    (line,) = done.stdout.splitlines()
    assert line.startswith(f"{name}: ")
    if name in ("attention_tile", "moe", "tuned_sums"):                   # execute without a GPU, too
        assert driver.available("sm_90a") or ", on the CPU device: " in line
    elif not driver.available("sm_90a"):
        assert line.endswith("not executed, there is no Hopper GPU")
        if ptxas == "driver":
            assert "not assembled, there is no ptxas" in line


@pytest.mark.gpu
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_right_on_the_gpu(name: str) -> None:
    assert importlib.import_module(f"examples.{name}").check()


def test_experts_of_large_logits_have_finite_weights() -> None:
    """The second of a token's two experts has nothing where the first is far ahead."""
    x, router = np.full((1, 2), 100, np.float32), np.array([[1, 1], [50, 50], [0, 0]], np.float32)
    weights = importlib.import_module("examples.moe").on_cpu(x, router, x, x, lambda x, *_: x, lambda _x, _slot, weights: weights)
    assert weights.tolist() == [[1, 0]]
