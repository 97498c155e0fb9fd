"""Graphs that outlive the call: CUDA graphs, and AOTInductor packages loaded from Python."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.torch import wanted

torch = wanted(__name__)

import ptxkit.torch  # noqa: E402, F401
from tests.torch import packaged  # noqa: E402

ops = torch.ops.ptxkit


def model(device: str) -> Any:
    return packaged.model(torch, "ptxkit", device)


def package(device: str, folder: Path) -> None:
    """A package of ptxkit's layers runs as the layers do. Where it kills a process, one of torch's layers says whose fault it is."""
    done = packaged.alone("ptxkit", device, folder)
    judge(done, lambda: packaged.alone("torch", device, folder))


def judge(done: Any, control: Callable[[], Any]) -> None:
    if done.returncode < 0:
        other = control()
        if (other.returncode, other.stdout) == (done.returncode, done.stdout):          # at the same step
            pytest.skip(f"torch {torch.__version__} is killed by signal {-other.returncode} on a package of its own nn.Linear, too: the "
                        f"fault is not of ptxkit's operators:\n{other.stderr[-2000:]}")
    assert done.returncode == 0, f"status {done.returncode} after {done.stdout.split()}:\n{done.stderr[-4000:]}"
    assert done.stdout.splitlines()[-1] == "as eager"


def test_a_process_that_is_killed_is_a_failure_or_a_skip_with_a_reason() -> None:
    def ended(how: str) -> Any:
        return subprocess.run([sys.executable, "-X", "faulthandler", "-c", how], capture_output=True, text=True, check=False)

    killed, failed, good = ended("import os; os.kill(os.getpid(), 11)"), ended("raise SystemExit(3)"), ended("print('as eager')")
    later = ended("import os; print('made', flush=True); os.kill(os.getpid(), 11)")
    judge(good, lambda: killed)
    for done, control in ((killed, good), (killed, later), (failed, killed), (failed, good)):
        with pytest.raises(AssertionError, match=r"Segmentation fault|status 3"):
            judge(done, lambda control=control: control)
    with pytest.raises(pytest.skip.Exception, match=r"of its own nn\.Linear"):
        judge(killed, lambda: killed)


@pytest.mark.sweep          # a C++ compiler takes a minute and a half
@pytest.mark.timeout(600)
def test_an_aotinductor_package_runs_on_the_cpu_device(tmp_path: Path) -> None:
    package("cpu", tmp_path)


@pytest.mark.gpu
@pytest.mark.timeout(600)
def test_an_aotinductor_package_runs_on_the_gpu(tmp_path: Path) -> None:
    package("cuda", tmp_path)


@pytest.mark.gpu
def test_a_captured_graph_replays_with_other_values_and_lengths() -> None:
    """Nothing in the operators waits, a forward and backward pass of groups included."""
    x = torch.randn(256, 64, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    w = torch.randn(4, 128, 64, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    offs = torch.tensor([10, 10, 200, 256], dtype=torch.int32, device="cuda")
    layers = model("cuda")

    def step() -> list[Any]:
        y = ops.grouped_gemm(x, w.mT, offs, activation="silu_and_mul", clear_rest=True)
        return [y.detach(), *torch.autograd.grad(layers(y).float().square().sum(), (x, w))]

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    for ends in ([10, 10, 200, 256], [1, 77, 77, 250]):
        with torch.no_grad():
            x.copy_(torch.randn_like(x))
        offs.copy_(torch.tensor(ends, dtype=torch.int32))
        graph.replay()
        for replayed, eager in zip(captured, step(), strict=True):
            assert torch.equal(replayed, eager)


@pytest.mark.gpu
@pytest.mark.timeout(600)
def test_reduce_overhead_trains_as_eager() -> None:
    layers = model("cuda")
    compiled = torch.compile(layers, mode="reduce-overhead", fullgraph=True)
    for _ in range(4):
        x = torch.randn(128, 64, dtype=torch.bfloat16, device="cuda")
        grads = []
        for call in (layers, compiled):
            layers.zero_grad()
            call(x).float().square().mean().backward()
            grads.append([parameter.grad.clone() for parameter in layers.parameters()])
        for one, other in zip(*grads, strict=True):
            assert (one.double() - other.double()).norm() <= 2.0 ** -6 * one.double().norm()
