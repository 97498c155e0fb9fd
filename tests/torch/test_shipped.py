"""Graphs that outlive the call: CUDA graphs, and AOTInductor packages loaded from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.torch import wanted

torch = wanted(__name__)

from ptxkit.torch import GatedMLP, Linear, cpu_device  # noqa: E402

ops, nn = torch.ops.ptxkit, torch.nn


def model(device: str) -> Any:
    torch.manual_seed(1)
    made = {"device": device, "dtype": torch.bfloat16}
    return nn.Sequential(Linear(64, 96, **made), nn.GELU(), Linear(96, 64, **made), GatedMLP(64, 96, **made))


def package(device: str, folder: Path) -> None:
    layers, x = model(device), torch.randn(16, 64, dtype=torch.bfloat16, device=device)
    with torch.no_grad():
        program = torch.export.export(layers, (x,), dynamic_shapes=({0: torch.export.Dim("rows", min=2, max=1024)},))
        kept = torch._inductor.aoti_compile_and_package(program, package_path=str(folder / "layers.pt2"))
        loaded = torch._inductor.aoti_load_package(kept)
        for rows in (16, 40):
            x = torch.randn(rows, 64, dtype=torch.bfloat16, device=device)
            found, expected = loaded(x).double(), layers(x).double()
            assert (found - expected).norm() <= 2.0 ** -7 * expected.norm()         # inductor's gelu rounds otherwise


@pytest.mark.sweep          # a C++ compiler takes a minute and a half
@pytest.mark.timeout(600)
def test_an_aotinductor_package_runs_on_the_cpu_device(tmp_path: Path) -> None:
    with cpu_device():
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
